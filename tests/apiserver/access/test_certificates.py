"""Client certificates: asked for, approved, signed, and shown at the door."""

from __future__ import annotations

import asyncio
import base64
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from dragoman.api.kinds import BY_NAME
from dragoman.apiserver.bootstrap import in_memory
from dragoman.apiserver.heads import peer_of
from dragoman.apiserver.registry import Registry
from dragoman.apiserver.request import User, Write
from dragoman.apiserver.server import ServerConfig, serving
from dragoman.apiserver.status import StatusError
from dragoman.cluster.http import HttpClient
from dragoman.cluster.kubeconfig import Access
from dragoman.errors import Denied
from dragoman.runtime.clock import Clock
from dragoman.runtime.entropy import Entropy
from tests.apiserver.access.stage import rule

REQUEST = BY_NAME["CertificateSigningRequest"]
CLIENT = "kubernetes.io/kube-apiserver-client"
ANNA = User("anna", ("system:authenticated",))


def asked(name: str, *groups: str) -> tuple[bytes, str]:
    """A key in PEM and the request for it as the API has it."""
    key = ec.generate_private_key(ec.SECP256R1())
    parts = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, group) for group in groups]
    subject = x509.Name([*parts, x509.NameAttribute(NameOID.COMMON_NAME, name)])
    made = x509.CertificateSigningRequestBuilder().subject_name(subject).sign(key, hashes.SHA256())
    form = serialization.PrivateFormat.PKCS8
    pem = key.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption())
    return pem, base64.b64encode(made.public_bytes(serialization.Encoding.PEM)).decode()


def body(text: str, signer: str = CLIENT, *usages: str) -> dict[str, Any]:
    spec = {"request": text, "signerName": signer, "usages": list(usages or ("client auth", "digital signature"))}
    return {"metadata": {"name": "r"}, "spec": spec}


def approve(registry: Registry, kind: str = "Approved", user: User | None = None) -> None:
    conditions = [{"type": kind, "status": "True", "reason": "Test"}]
    write = Write(user=user) if user else Write()
    registry.patch(REQUEST, "r", {"status": {"conditions": conditions}}, subresource="approval", write=write)


def status(registry: Registry) -> dict[str, Any]:
    return dict(registry.get(REQUEST, "r").decode().get("status") or {})


def test_a_certificate_that_was_approved_opens_the_door(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with serving(ServerConfig(data=tmp_path), Clock(), Entropy()) as server:
            registry = server.registry
            key, text = asked("anna", "builders", "ops")
            registry.create(REQUEST, body(text))
            assert "certificate" not in status(registry)
            approve(registry)
            pem = base64.b64decode(status(registry)["certificate"])
            access = Access(server.access.server, server.access.ca_pem, cert_pem=pem, key_pem=key)
            client = HttpClient(access, Clock(), Entropy())
            with pytest.raises(Denied, match='User "anna" cannot list resource "configmaps"'):
                await client.list(BY_NAME["ConfigMap"], "default")
            reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "view"}
            subject = {"kind": "Group", "name": "ops", "apiGroup": "rbac.authorization.k8s.io"}
            binding = {"metadata": {"name": "b"}, "roleRef": reference, "subjects": [subject]}
            registry.create(BY_NAME["RoleBinding"], binding, "default")
            assert (await client.list(BY_NAME["ConfigMap"], "default")).items
            await client.close()

    asyncio.run(scenario())


UNFIT: dict[str, tuple[dict[str, Any], str]] = {
    "another use": (body(asked("anna")[1], CLIENT, "server auth"), "usages did not match"),
    "a kubelet of no node": (
        body(asked("anna", "system:nodes")[1], "kubernetes.io/kube-apiserver-client-kubelet"),
        "subject common name does not begin with system:node:",
    ),
}


@pytest.mark.parametrize("case", UNFIT, ids=str)
def test_what_its_signer_does_not_sign_fails(tmp_path: Path, case: str) -> None:
    made, text = UNFIT[case]

    async def scenario() -> None:
        async with serving(ServerConfig(data=tmp_path), Clock(), Entropy()) as server:
            server.registry.create(REQUEST, made)
            approve(server.registry)
            failed = status(server.registry)["conditions"][-1]
            assert (failed["type"], failed["reason"]) == ("Failed", "SignerValidationFailure")
            assert text in failed["message"]

    asyncio.run(scenario())


def test_who_asks_is_written_down_and_the_spec_stays() -> None:
    registry = in_memory(Clock(), Entropy(1))
    text = asked("anna")[1]
    made = body(text)
    made["spec"]["username"] = "root"
    registry.create(REQUEST, made, write=Write(user=ANNA))
    spec = registry.get(REQUEST, "r").decode()["spec"]
    assert (spec["username"], spec["groups"]) == ("anna", ["system:authenticated"])
    registry.patch(REQUEST, "r", {"spec": {"username": "root"}, "metadata": {"labels": {"a": "b"}}})
    assert registry.get(REQUEST, "r").decode()["spec"]["username"] == "anna"


def test_approval_takes_a_right_and_is_not_taken_back() -> None:
    registry = in_memory(Clock(), Entropy(1))
    registry.create(REQUEST, body(asked("anna")[1]))
    with pytest.raises(StatusError, match="user not permitted to approve requests with signerName"):
        approve(registry, user=ANNA)
    rules = [rule("approve", "signers", "certificates.k8s.io", "kubernetes.io/*")]
    registry.create(BY_NAME["ClusterRole"], {"metadata": {"name": "approver"}, "rules": rules})
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "approver"}
    subjects = [{"kind": "User", "name": "anna", "apiGroup": "rbac.authorization.k8s.io"}]
    made = {"metadata": {"name": "a"}, "roleRef": reference, "subjects": subjects}
    registry.create(BY_NAME["ClusterRoleBinding"], made)
    approve(registry, user=ANNA)
    with pytest.raises(StatusError, match="may not remove a condition"):
        approve(registry, "Denied")


def test_nobody_gets_a_certificate_of_masters() -> None:
    registry = in_memory(Clock(), Entropy(1))
    with pytest.raises(StatusError, match="with system:masters group is not allowed"):
        registry.create(REQUEST, body(asked("anna", "system:masters")[1]))


def test_a_certificate_names_user_and_groups() -> None:
    subject = ((("organizationName", "a"),), (("organizationName", "b"),), (("commonName", "anna"),))
    assert peer_of({"subject": subject}) == User("anna", ("a", "b", "system:authenticated"))
    assert peer_of({}) is None
    assert peer_of(None) is None
