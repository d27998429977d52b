"""Does this write give away, or use, rights that its writer does not have? Roles and bindings; a claim's status.

KEP-4817's granular authorization: whoever writes a claim's status needs, beside that right, one for the allocation and
one for each driver whose device status changes. Source: k8s.io/kubernetes pkg/registry/rbac, pkg/registry/resource.
"""

from __future__ import annotations

from typing import Any, Final

from dragoman.api.kinds import BY_NAME, Kind
from dragoman.api.shape import Object
from dragoman.apiserver.access import escalation
from dragoman.apiserver.access.attributes import Attributes as Question
from dragoman.apiserver.access.attributes import denied
from dragoman.apiserver.access.authorizer import MASTERS
from dragoman.apiserver.access.certificate_requests import Unfit, read_request, subject_of
from dragoman.apiserver.access.impersonation import NODE_EXTRA, account_of
from dragoman.apiserver.admission.attributes import AdmissionPlugin, Attributes
from dragoman.apiserver.lookup import Lookup
from dragoman.apiserver.request import User
from dragoman.apiserver.status import forbidden, invalid

CLAIM: Final = BY_NAME["ResourceClaim"]
REQUEST: Final = BY_NAME["CertificateSigningRequest"]
GATE: Final = "DRAResourceClaimGranularStatusAuthorization"


class Escalation(AdmissionPlugin):
    """Refuses roles and bindings that give more than their writer has."""

    kinds = frozenset(BY_NAME[name] for name in escalation.GUARDED)

    def validate(self, lookup: Lookup, attributes: Attributes) -> None:
        """New and changed ones."""
        obj = attributes.obj
        if obj is not None and not attributes.subresource:
            escalation.check(lookup.authorizer, attributes.kind, obj, attributes.old, attributes.write.user)


class Signers(AdmissionPlugin):
    """Refuses to approve and to sign for signers that the writer has no right to, and certificates of masters."""

    kinds = frozenset((REQUEST,))

    def validate(self, lookup: Lookup, attributes: Attributes) -> None:
        """CertificateApproval, CertificateSigning and CertificateSubjectRestriction of upstream."""
        obj, old = attributes.obj, attributes.old
        if obj is None:
            return
        signer = str((obj.get("spec") or {}).get("signerName", ""))
        if attributes.operation == "CREATE":
            if signer == "kubernetes.io/kube-apiserver-client" and MASTERS in _organizations(obj):
                why = f"use of {signer} signer with {MASTERS} group is not allowed"
                raise forbidden(REQUEST, attributes.name, why)
            return
        if attributes.subresource == "approval":
            _signing(lookup, attributes, "approve", signer)
        elif attributes.subresource == "status" and _signed(obj) != _signed(old or {}):
            _signing(lookup, attributes, "sign", signer)


def _signed(obj: Object) -> Object:
    status: Object = obj.get("status") or {}
    return {field: status.get(field) for field in ("certificate", "conditions")}


def _signing(lookup: Lookup, attributes: Attributes, verb: str, signer: str) -> None:
    user = attributes.write.user
    names = (signer, f"{signer.partition('/')[0]}/*")
    asked = (Question(user, verb, REQUEST.group, "*", "signers", name=name) for name in names)
    if not any(map(lookup.authorizer.allows, asked)):
        what = f'user not permitted to {verb} requests with signerName "{signer}"'
        raise forbidden(REQUEST, attributes.name, what)


def _organizations(obj: Object) -> tuple[str, ...]:
    try:
        return subject_of(read_request((obj.get("spec") or {}).get("request")))[1]
    except Unfit as unfit:
        name = obj["metadata"].get("name", "")
        raise invalid(REQUEST, name, [("FieldValueInvalid", f"Invalid value: {unfit}", "spec.request")]) from unfit


class ClaimStatus(AdmissionPlugin):
    """Refuses changes of a claim's status that its writer has no right to."""

    kinds = frozenset((CLAIM,))

    def validate(self, lookup: Lookup, attributes: Attributes) -> None:
        """Writes of the status only; everything else leaves it alone."""
        obj, old = attributes.obj, attributes.old
        if attributes.subresource != "status" or obj is None or old is None:
            return
        if lookup.authorizer.mode == "allow" or not lookup.gates.on(GATE):
            return
        new_status: Object = obj.get("status") or {}
        old_status: Object = old.get("status") or {}
        causes = _binding(lookup, attributes, new_status, old_status)
        if new_status.get("allocation"):
            causes += _drivers(lookup, attributes, new_status, old_status)
        if causes:
            raise invalid(CLAIM, attributes.name, causes)


_Cause = tuple[str, str, str]


def _binding(lookup: Lookup, attributes: Attributes, new: Object, old: Object) -> list[_Cause]:
    if all((new.get(field) or None) == (old.get(field) or None) for field in ("allocation", "reservedFor")):
        return []
    verb = attributes.write.verb
    asked = _question(attributes.write.user, verb, "binding")
    if lookup.authorizer.allows(asked):
        return []
    needed = f'requires resource="resourceclaims/binding", verb="{verb}" permission: {denied(asked).message}'
    text = f"Forbidden: changing status.allocation or status.reservedFor {needed}"
    return [("FieldValueForbidden", text, "status.allocation")]


def _drivers(lookup: Lookup, attributes: Attributes, new: Object, old: Object) -> list[_Cause]:
    causes: list[_Cause] = []
    verb, user = attributes.write.verb, attributes.write.user
    verbs = [f"arbitrary-node:{verb}"]
    node = _node_of_allocation(new["allocation"])
    if node and account_of(user.name) and user.extra.get(NODE_EXTRA) == (node,):
        verbs.insert(0, f"associated-node:{verb}")
    for driver in sorted(_changed_drivers(new, old)):
        asked = [_question(user, one, "driver", attributes.namespace, driver) for one in verbs]
        if any(map(lookup.authorizer.allows, asked)):
            continue
        needed = f'resource="resourceclaims/driver", verb="[{" ".join(verbs)}]" permission: {denied(asked[0]).message}'
        causes.append(
            ("FieldValueForbidden", f"Forbidden: changing status.devices requires {needed}", "status.devices")
        )
    return causes


def _question(user: User, verb: str, subresource: str, namespace: str = "", name: str = "") -> Question:
    kind: Kind = CLAIM
    return Question(user, verb, kind.group, kind.versions[0], kind.plural, subresource, namespace, name)


def _changed_drivers(new: Object, old: Object) -> set[str]:
    """The drivers of devices whose status was added, changed or removed."""

    def by_device(status: Object) -> dict[tuple[Any, ...], Object]:
        listed = status.get("devices") or ()
        return {tuple(d.get(field) for field in ("driver", "pool", "device", "shareID")): d for d in listed}

    now, before = by_device(new), by_device(old)
    return {str(key[0]) for key in now.keys() | before.keys() if now.get(key) != before.get(key)}


def _node_of_allocation(allocation: Object) -> str:
    """The one node that an allocation is for, by name; "" if it says it otherwise."""
    terms = (allocation.get("nodeSelector") or {}).get("nodeSelectorTerms") or []
    if len(terms) != 1 or terms[0].get("matchExpressions"):
        return ""
    fields = terms[0].get("matchFields") or []
    if len(fields) != 1:
        return ""
    entry, values = fields[0], fields[0].get("values") or []
    if entry.get("key") != "metadata.name" or entry.get("operator") != "In" or len(values) != 1:
        return ""
    return str(values[0])
