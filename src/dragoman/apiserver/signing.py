"""Who signs the certificates that users ask for? Requests that are approved, by the server's own authority.

The signers of Kubernetes' API server: client certificates (CN is the user, O the groups), those of kubelets, and their
serving certificates. Nothing is approved here. Source: k8s.io/kubernetes pkg/controller/certificates/signer.
"""

from __future__ import annotations

import base64
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path
from typing import Final

import msgspec
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID

from dragoman.api.kinds import BY_NAME
from dragoman.api.shape import Object
from dragoman.apiserver.access.certificate_requests import Unfit, names_of, read_request, subject_of
from dragoman.apiserver.registry import Registry
from dragoman.apiserver.request import Write
from dragoman.apiserver.store import StoredObject

REQUEST: Final = BY_NAME["CertificateSigningRequest"]
CLIENT: Final = "kubernetes.io/kube-apiserver-client"
KUBELET: Final = "kubernetes.io/kube-apiserver-client-kubelet"
SERVING: Final = "kubernetes.io/kubelet-serving"
LONGEST_S: Final = 365 * 24 * 3600
BACKDATED: Final = timedelta(minutes=5)
NODES: Final = "system:nodes"
NODE: Final = "system:node:"
_SIGNER: Final = Write(manager="dragoman-apiserver")
_KEY_USES: Final = {"digital signature": "digital_signature", "key encipherment": "key_encipherment"}
_EXTENDED: Final = {"client auth": ExtendedKeyUsageOID.CLIENT_AUTH, "server auth": ExtendedKeyUsageOID.SERVER_AUTH}


class Authority:
    """The certificate authority of a server's TLS folder."""

    def __init__(self, folder: Path) -> None:
        self._certificate = x509.load_pem_x509_certificate((folder / "ca.crt").read_bytes())
        key = serialization.load_pem_private_key((folder / "ca.key").read_bytes(), None)
        assert isinstance(key, ec.EllipticCurvePrivateKey), "no other kind is written there"
        self._key = key

    def sign(self, request: x509.CertificateSigningRequest, usages: list[str], seconds: int, now: datetime) -> bytes:
        """A certificate in PEM."""
        plain = {name for usage in usages if (name := _KEY_USES.get(usage))}
        builder = (
            x509.CertificateBuilder()
            .subject_name(request.subject)
            .issuer_name(self._certificate.subject)
            .public_key(request.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - BACKDATED)
            .not_valid_after(min(now + timedelta(seconds=seconds), self._certificate.not_valid_after_utc))
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_key_usage(plain), critical=True)
        )
        extended = [oid for usage in usages if (oid := _EXTENDED.get(usage))]
        if extended:
            builder = builder.add_extension(x509.ExtendedKeyUsage(extended), critical=False)
        names = names_of(request)
        if names is not None:
            builder = builder.add_extension(names, critical=False)
        return builder.sign(self._key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)


def _key_usage(plain: set[str]) -> x509.KeyUsage:
    fields = ("content_commitment", "data_encipherment", "key_agreement", "key_cert_sign", "crl_sign")
    no = dict.fromkeys((*fields, "encipher_only", "decipher_only"), False)
    return x509.KeyUsage(
        digital_signature="digital_signature" in plain, key_encipherment="key_encipherment" in plain, **no
    )


def _check(signer: str, request: x509.CertificateSigningRequest, usages: list[str]) -> None:
    """Raises Unfit."""
    wanted = "server auth" if signer == SERVING else "client auth"
    if wanted not in usages or not set(usages) <= {*_KEY_USES, wanted}:
        raise Unfit(f"usages did not match [{wanted} digital signature key encipherment]")
    if signer == CLIENT:
        return
    name, groups = subject_of(request)
    if groups != (NODES,):
        raise Unfit(f"subject organization is not {NODES}")
    if not name.startswith(NODE):
        raise Unfit(f"subject common name does not begin with {NODE}")
    if (names_of(request) is None) is (signer == SERVING):
        raise Unfit("subject alternative names are needed for serving, and not allowed else")


class _State(msgspec.Struct, frozen=True):
    approved: bool
    settled: bool


def _state(request: Object) -> _State:
    status: Object = request.get("status") or {}
    types = {entry.get("type") for entry in status.get("conditions") or ()}
    return _State("Approved" in types, bool(status.get("certificate")) or bool(types & {"Denied", "Failed"}))


def follow(registry: Registry, authority: Authority) -> None:
    """Sign approved requests from now on, and those that are there."""

    def changed(_: StoredObject | None, record: StoredObject | None) -> None:
        if record is not None:
            _sign(registry, authority, record)

    registry.followers[REQUEST] = changed
    for record in registry.select(REQUEST):
        _sign(registry, authority, record)


def _sign(registry: Registry, authority: Authority, record: StoredObject) -> None:
    body = record.decode()
    spec: Object = body.get("spec") or {}
    state = _state(body)
    if not state.approved or state.settled or spec.get("signerName") not in (CLIENT, KUBELET, SERVING):
        return
    usages = list(spec.get("usages") or ())
    seconds = min(spec.get("expirationSeconds") or LONGEST_S, LONGEST_S)
    change: Callable[[Object], Object]
    try:
        request = read_request(spec.get("request"))
        _check(spec["signerName"], request, usages)
        pem = authority.sign(request, usages, seconds, registry.clock.utc())
    except Unfit as unfit:
        now = registry.now_text()
        failed = {
            "type": "Failed",
            "status": "True",
            "reason": "SignerValidationFailure",
            "message": str(unfit),
            "lastUpdateTime": now,
            "lastTransitionTime": now,
        }

        def change(obj: Object) -> Object:
            obj["status"]["conditions"] = [*obj["status"]["conditions"], failed]
            return obj

    else:

        def change(obj: Object) -> Object:
            obj["status"]["certificate"] = base64.b64encode(pem).decode()
            return obj

    registry.change(record, change, subresource="status", write=_SIGNER)
