"""Certificates and keys of a cluster for tests: an authority, the API server's, an admin's, the service accounts' key."""

from __future__ import annotations

import datetime
import ipaddress
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID


class Authority:
    """Makes NAME.key and NAME.crt in a folder; its own are ca.key and ca.crt."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self._key = _new_key(folder / "ca.key")
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "test-ca")])
        made = self._builder(self._name, self._key).add_extension(
            x509.BasicConstraints(ca=True, path_length=None), critical=True
        )
        self._write("ca", made)

    def server(self, name: str, hosts: list[str]) -> None:
        """A certificate of a server under these names and addresses."""
        key = _new_key(self.folder / f"{name}.key")
        names = x509.SubjectAlternativeName([_host(host) for host in hosts])
        made = self._builder(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)]), key)
        self._write(name, made.add_extension(names, critical=False))

    def client(self, name: str, user: str, group: str) -> None:
        """A certificate of a user in a group."""
        key = _new_key(self.folder / f"{name}.key")
        subject = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, group), x509.NameAttribute(NameOID.COMMON_NAME, user)]
        use = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CLIENT_AUTH])
        self._write(name, self._builder(x509.Name(subject), key).add_extension(use, critical=False))

    def key(self, name: str) -> None:
        """A key alone."""
        _new_key(self.folder / f"{name}.key")

    def _builder(self, subject: x509.Name, key: rsa.RSAPrivateKey) -> x509.CertificateBuilder:
        now = datetime.datetime.now(datetime.UTC)
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(hours=1))
            .not_valid_after(now + datetime.timedelta(days=30))
        )

    def _write(self, name: str, builder: x509.CertificateBuilder) -> None:
        signed = builder.sign(self._key, hashes.SHA256())
        (self.folder / f"{name}.crt").write_bytes(signed.public_bytes(serialization.Encoding.PEM))


def _new_key(path: Path) -> rsa.RSAPrivateKey:
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    pem = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.TraditionalOpenSSL, serialization.NoEncryption()
    )
    path.write_bytes(pem)
    return key


def _host(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)
