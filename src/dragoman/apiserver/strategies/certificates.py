"""What may a certificate signing request become? Its spec stays; conditions come by `approval`, the rest by `status`.

Source: k8s.io/kubernetes pkg/registry/certificates/certificates, pkg/apis/certificates/validation.
"""

from __future__ import annotations

from typing import Final

from dragoman.api.kinds import BY_NAME
from dragoman.api.shape import Object
from dragoman.apiserver.lookup import Lookup
from dragoman.apiserver.request import Write
from dragoman.apiserver.status import invalid
from dragoman.apiserver.strategies.base import Strategy

REQUEST: Final = BY_NAME["CertificateSigningRequest"]
_APPROVALS: Final = ("Approved", "Denied")


class SigningRequestStrategy(Strategy):
    """CertificateSigningRequest."""

    def prepare_create(self, lookup: Lookup, obj: Object, write: Write) -> list[str]:
        """Say who asks; nobody says it of himself."""
        spec: Object = obj.setdefault("spec", {})
        user = write.user
        spec["username"] = user.name
        spec["groups"] = list(user.groups)
        for field in ("uid", "extra"):
            spec.pop(field, None)
        if user.uid:
            spec["uid"] = user.uid
        if user.extra:
            spec["extra"] = {key: list(values) for key, values in user.extra.items()}
        missing = [field for field in ("request", "signerName", "usages") if not spec.get(field)]
        if missing:
            causes = [("FieldValueRequired", "Required value", f"spec.{field}") for field in missing]
            raise invalid(REQUEST, obj["metadata"].get("name", ""), causes)
        if "/" not in spec["signerName"]:
            text = "must be a fully qualified domain and path of the form 'example.com/signer-name'"
            cause = ("FieldValueInvalid", f'Invalid value: "{spec["signerName"]}": {text}', "spec.signerName")
            raise invalid(REQUEST, obj["metadata"].get("name", ""), [cause])
        return []

    def prepare_update(self, lookup: Lookup, new: Object, old: Object, subresource: str, write: Write) -> list[str]:
        """Keep what this way of writing does not change."""
        if "spec" in old:
            new["spec"] = old["spec"]
        if subresource == "approval":
            conditions = (new.get("status") or {}).get("conditions") or []
            new["status"] = {**(old.get("status") or {}), "conditions": conditions}
            self._check_approval(new, old)
        elif subresource == "status":
            self._check_status(new, old)
        _stamp(new, old, lookup.now_text())
        return []

    def _check_approval(self, new: Object, old: Object) -> None:
        types = _types(new)
        if set(_APPROVALS) <= set(types):
            text = "Forbidden: Approved and Denied conditions are mutually exclusive"
            raise invalid(REQUEST, new["metadata"]["name"], [("FieldValueForbidden", text, "status.conditions")])
        gone = [kind for kind in _APPROVALS if kind in _types(old) and kind not in types]
        if gone:
            text = f'Forbidden: updates may not remove a condition of type "{gone[0]}"'
            raise invalid(REQUEST, new["metadata"]["name"], [("FieldValueForbidden", text, "status.conditions")])

    def _check_status(self, new: Object, old: Object) -> None:
        for kind in _APPROVALS:
            added = kind in _types(new)
            if added is not (kind in _types(old)):
                text = f'Forbidden: updates may not {"add" if added else "remove"} a condition of type "{kind}"'
                raise invalid(REQUEST, new["metadata"]["name"], [("FieldValueForbidden", text, "status.conditions")])
        before = (old.get("status") or {}).get("certificate")
        if before and (new.get("status") or {}).get("certificate") != before:
            text = "Forbidden: updates may not set certificate content if existing certificate content is present"
            raise invalid(REQUEST, new["metadata"]["name"], [("FieldValueForbidden", text, "status.certificate")])


def _types(obj: Object) -> list[str]:
    return [str(entry.get("type")) for entry in (obj.get("status") or {}).get("conditions") or ()]


def _stamp(new: Object, old: Object, now: str) -> None:
    known = {
        (entry.get("type"), entry.get("status")): entry.get("lastTransitionTime")
        for entry in (old.get("status") or {}).get("conditions") or ()
    }
    for entry in (new.get("status") or {}).get("conditions") or ():
        entry.setdefault("lastUpdateTime", now)
        if not entry.get("lastTransitionTime"):
            entry["lastTransitionTime"] = known.get((entry.get("type"), entry.get("status"))) or now
