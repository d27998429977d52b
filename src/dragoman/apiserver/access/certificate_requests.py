"""What does a certificate signing request ask for? PKCS #10 requests as they stand in the API."""

from __future__ import annotations

import base64

from cryptography import x509
from cryptography.x509.oid import NameOID


class Unfit(Exception):
    """A request is not what its signer signs; the text says why."""


def names_of(request: x509.CertificateSigningRequest) -> x509.SubjectAlternativeName | None:
    """The alternative names that are asked for."""
    try:
        return request.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return None


def read_request(text: object) -> x509.CertificateSigningRequest:
    """The request in spec.request (base64 of PEM). Raises Unfit."""
    try:
        found = x509.load_pem_x509_csr(base64.b64decode(str(text or ""), validate=True))
    except ValueError as error:
        raise Unfit("PEM block type must be CERTIFICATE REQUEST") from error
    if not found.is_signature_valid:
        raise Unfit("the request's signature is not valid")
    return found


def subject_of(request: x509.CertificateSigningRequest) -> tuple[str, tuple[str, ...]]:
    """Common name and organizations."""
    names = [str(entry.value) for entry in request.subject.get_attributes_for_oid(NameOID.COMMON_NAME)]
    groups = tuple(str(entry.value) for entry in request.subject.get_attributes_for_oid(NameOID.ORGANIZATION_NAME))
    return (names[0] if names else ""), groups
