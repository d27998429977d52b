"""Who vouches for the server? A certificate authority of our own and a certificate for loopback.

Kept in a folder (the data folder, or one that lasts as long as the process), readable by its owner only, and made
again when close to its end, not valid yet (made while the clock was ahead), or when the names differ.
"""

from __future__ import annotations

import ipaddress
import os
from datetime import datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

YEARS = 10
NAMES = ("localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc")
ADDRESSES = ("127.0.0.1", "::1")


def ensure(folder: Path, host: str, now: datetime) -> tuple[Path, Path, str]:
    """The certificate file, the key file and the CA in PEM, made where missing."""
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    certificate, key, ca = folder / "server.crt", folder / "server.key", folder / "ca.crt"
    made = all(file.exists() for file in (key, ca, folder / "ca.key"))
    if not made or not _is_good(certificate, host, now):
        _make(folder, host, now)
    return certificate, key, ca.read_text()


def _is_good(file: Path, host: str, now: datetime) -> bool:
    try:
        known = x509.load_pem_x509_certificate(file.read_bytes())
        names = known.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except (OSError, ValueError, x509.ExtensionNotFound):
        return False
    listed = [str(n) for n in names.get_values_for_type(x509.IPAddress)] + names.get_values_for_type(x509.DNSName)
    begun, far_from_end = known.not_valid_before_utc <= now, known.not_valid_after_utc > now + timedelta(days=30)
    return host in listed and begun and far_from_end


def _make(folder: Path, host: str, now: datetime) -> None:
    ca_key, server_key = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    ca_name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "dragoman-ca")])
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "dragoman-apiserver")])
    start, end = now - timedelta(hours=1), now + timedelta(days=365 * YEARS)
    ca = (
        _builder(ca_name, ca_name, ca_key.public_key(), start, end)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(sign=True), critical=True)
        .sign(ca_key, hashes.SHA256())
    )
    server = (
        _builder(name, ca_name, server_key.public_key(), start, end)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(sign=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.SubjectAlternativeName(_names(host)), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(ca_key.public_key()), critical=False)
        .sign(ca_key, hashes.SHA256())
    )
    write_private(folder / "ca.crt", ca.public_bytes(serialization.Encoding.PEM))
    write_private(folder / "ca.key", _pem(ca_key))
    write_private(folder / "server.key", _pem(server_key))
    write_private(folder / "server.crt", server.public_bytes(serialization.Encoding.PEM))


def _pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    form = serialization.PrivateFormat.PKCS8
    return key.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption())


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, start: datetime, end: datetime
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(start)
        .not_valid_after(end)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
    )


def _usage(*, sign: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=not sign,
        key_cert_sign=sign,
        crl_sign=sign,
        encipher_only=False,
        decipher_only=False,
    )


def _names(host: str) -> list[x509.GeneralName]:
    names: list[x509.GeneralName] = [x509.DNSName(name) for name in NAMES]
    addresses = set(ADDRESSES)
    try:
        ipaddress.ip_address(host)
        addresses.add(host)
    except ValueError:
        if host not in NAMES:
            names.append(x509.DNSName(host))
    return names + [x509.IPAddress(ipaddress.ip_address(address)) for address in sorted(addresses)]


def write_private(file: Path, body: bytes) -> None:
    """Write a file that only its owner may read, in one step: never half, never readable by others meanwhile."""
    fresh = file.with_name(f".{file.name}.new")
    fresh.unlink(missing_ok=True)
    handle = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(handle, "wb") as out:
        out.write(body)
    fresh.replace(file)
