"""Who am I, and may I? The review kinds of authentication.k8s.io and authorization.k8s.io.

Answered by the same authenticator and authorizer that stand at the door. Nothing is stored.
Source: k8s.io/kubernetes pkg/registry/authorization and pkg/registry/authentication.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from dragoman.api.shape import Object
from dragoman.apiserver.access.attributes import Attributes, quoted
from dragoman.apiserver.access.authorizer import ALLOWED, Authorizer
from dragoman.apiserver.access.node import node_of
from dragoman.apiserver.access.rules import PolicyRule
from dragoman.apiserver.access.tokens import AUDIENCES, BadToken, Identified
from dragoman.apiserver.lookup import Lookup
from dragoman.apiserver.request import User
from dragoman.apiserver.selectors import FieldTerm, parse_fields
from dragoman.apiserver.status import StatusError, bad_request

# (group, plural) -> (kind, namespaced)
REVIEWS: dict[tuple[str, str], tuple[str, bool]] = {
    ("authentication.k8s.io", "selfsubjectreviews"): ("SelfSubjectReview", False),
    ("authentication.k8s.io", "tokenreviews"): ("TokenReview", False),
    ("authorization.k8s.io", "selfsubjectaccessreviews"): ("SelfSubjectAccessReview", False),
    ("authorization.k8s.io", "subjectaccessreviews"): ("SubjectAccessReview", False),
    ("authorization.k8s.io", "localsubjectaccessreviews"): ("LocalSubjectAccessReview", True),
    ("authorization.k8s.io", "selfsubjectrulesreviews"): ("SelfSubjectRulesReview", False),
}
_BY_PLURAL: Final = {plural: (kind, group) for (group, plural), (kind, _) in REVIEWS.items()}
_ONE_OF: Final = "exactly one of nonResourceAttributes or resourceAttributes must be specified"
_BAD: Final = "invalid bearer token"
Whose = Callable[[str, tuple[str, ...]], Identified]


def answer(lookup: Lookup, plural: str, body: Object, user: User, whose: Whose, namespace: str = "") -> Object:
    """The review with its status. `whose` authenticates a token. Raises 400, 422."""
    kind, group = _BY_PLURAL[plural]
    if body.get("kind") not in (None, kind):
        raise bad_request(f"the kind in the data ({body['kind']}) does not match the expected kind ({kind})")
    spec: Object = body.get("spec") or {}
    meta: Object = {**(body.get("metadata") or {}), "creationTimestamp": lookup.now_text()}
    reply: Object = {"kind": kind, "apiVersion": f"{group}/v1", "metadata": meta}
    match kind:
        case "SelfSubjectReview":
            return {**reply, "status": {"userInfo": user_info(user)}}
        case "TokenReview":
            status = _token(spec, whose)
        case "SelfSubjectRulesReview":
            if not spec.get("namespace"):
                raise bad_request("no namespace on request")
            status = _rules(lookup.authorizer, user, spec["namespace"])
        case _:
            status = _access(lookup.authorizer, kind, body, spec, user, namespace)
    return {**reply, "spec": spec, "status": status}


def user_info(user: User) -> Object:
    """authentication.k8s.io/v1 UserInfo."""
    out: Object = {"username": user.name, "groups": list(user.groups)}
    if user.uid:
        out["uid"] = user.uid
    if user.extra:
        out["extra"] = {key: list(values) for key, values in user.extra.items()}
    return out


def _token(spec: Object, whose: Whose) -> Object:
    if not spec.get("token"):
        raise bad_request("token is required for TokenReview in authentication")
    try:
        found = whose(str(spec["token"]), tuple(spec.get("audiences") or AUDIENCES))
    except BadToken as bad:
        return {
            "user": {},
            "error": f"[invalid bearer token, {bad}]" if str(bad) != "invalid bearer token" else str(bad),
        }
    return {"authenticated": True, "user": user_info(found.user), "audiences": list(found.audiences)}


def _access(authorizer: Authorizer, kind: str, body: Object, spec: Object, user: User, namespace: str) -> Object:
    resource, other = spec.get("resourceAttributes"), spec.get("nonResourceAttributes")
    if (resource is None) is (other is None):
        raise _invalid(kind, "spec.nonResourceAttributes", f"Invalid value: null: {_ONE_OF}")
    if kind != "SelfSubjectAccessReview":
        if not spec.get("user") and not spec.get("groups"):
            raise _invalid(kind, "spec.user", 'Invalid value: "": at least one of user or group must be specified')
        extra = {key.lower(): tuple(values) for key, values in (spec.get("extra") or {}).items()}
        user = User(spec.get("user") or "", tuple(spec.get("groups") or ()), spec.get("uid") or "", extra)
    if kind == "LocalSubjectAccessReview":
        said = (body.get("metadata") or {}).get("namespace", "") or namespace
        if said != namespace:
            raise bad_request("the namespace of the provided object does not match the namespace sent on the request")
        if resource is None:
            text = "Invalid value: disallowed on this kind of request"
            raise _invalid(kind, "spec.nonResourceAttributes", text)
        if resource.get("namespace", "") != namespace:
            text = f"Invalid value: {quoted(resource.get('namespace', ''))}: must match metadata.namespace"
            raise _invalid(kind, "spec.resourceAttributes.namespace", text)
    verdict = authorizer.explain(_asked(user, resource, other))
    status: Object = {"allowed": verdict.allowed}
    if verdict.reason:
        status["reason"] = verdict.reason
    return status


def _asked(user: User, resource: Any, other: Any) -> Attributes:
    if other is not None:
        return Attributes(user, other.get("verb") or "", path=other.get("path") or "")
    return Attributes(
        user,
        resource.get("verb") or "",
        resource.get("group") or "",
        resource.get("version") or "*",
        resource.get("resource") or "",
        resource.get("subresource") or "",
        resource.get("namespace") or "",
        resource.get("name") or "",
        fields=_fields(resource.get("fieldSelector") or {}),
    )


def _fields(selector: Object) -> tuple[FieldTerm, ...]:
    if selector.get("rawSelector"):
        try:
            return tuple(parse_fields(selector["rawSelector"]))
        except StatusError:
            return ()
    return tuple(
        FieldTerm(entry["key"], entry["values"][0], entry["operator"] == "In")
        for entry in selector.get("requirements") or ()
        if entry.get("operator") in ("In", "NotIn") and len(entry.get("values") or ()) == 1
    )


def _rules(authorizer: Authorizer, user: User, namespace: str) -> Object:
    if authorizer.mode == "allow":
        rules = [PolicyRule(("*",), ("*",), ("*",)), PolicyRule(("*",), urls=("*",))]
    else:
        rules = authorizer.rbac.rules_for(user, namespace)
    status: Object = {
        "resourceRules": [rule.as_object() for rule in rules if rule.resources],
        "nonResourceRules": [rule.as_object() for rule in rules if rule.urls],
        "incomplete": False,
    }
    if authorizer.mode == "allow":
        status["evaluationError"] = ALLOWED
    elif node_of(user):
        status["incomplete"] = True
        status["evaluationError"] = "node authorizer does not support user rule resolution"
    return status


def _invalid(kind: str, field: str, text: str) -> StatusError:
    message = f'{kind}.authorization.k8s.io "" is invalid: {field}: {text}'
    cause = {"reason": "FieldValueInvalid", "message": text, "field": field}
    return StatusError(422, "Invalid", message, {"group": "authorization.k8s.io", "kind": kind, "causes": [cause]})
