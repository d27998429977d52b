"""Who am I, and may I? The review kinds of authentication.k8s.io and authorization.k8s.io.

The embedded cluster authenticates and then allows everything: an access review says yes to anyone with a valid
token. Nothing is stored.
"""

from __future__ import annotations

from collections.abc import Callable

from dragoman.api.shape import Object
from dragoman.apiserver.lookup import Lookup
from dragoman.apiserver.request import User
from dragoman.apiserver.status import bad_request
from dragoman.apiserver.strategies.base import dig

# (group, plural) -> (kind, namespaced)
REVIEWS: dict[tuple[str, str], tuple[str, bool]] = {
    ("authentication.k8s.io", "selfsubjectreviews"): ("SelfSubjectReview", False),
    ("authentication.k8s.io", "tokenreviews"): ("TokenReview", False),
    ("authorization.k8s.io", "selfsubjectaccessreviews"): ("SelfSubjectAccessReview", False),
    ("authorization.k8s.io", "subjectaccessreviews"): ("SubjectAccessReview", False),
    ("authorization.k8s.io", "localsubjectaccessreviews"): ("LocalSubjectAccessReview", True),
    ("authorization.k8s.io", "selfsubjectrulesreviews"): ("SelfSubjectRulesReview", False),
}
_REASON = "the embedded API server allows everything to whoever holds a valid token"


def answer(
    lookup: Lookup, group: str, plural: str, body: Object, user: User, whose: Callable[[str], User | None]
) -> Object:
    """The review with its status. `whose` authenticates a token."""
    kind, _ = REVIEWS[group, plural]
    if body.get("kind") not in (None, kind):
        raise bad_request(f"the kind in the data ({body['kind']}) does not match the expected kind ({kind})")
    spec = body.get("spec") or {}
    reply: Object = {"kind": kind, "apiVersion": f"{group}/v1", "metadata": {"creationTimestamp": lookup.now_text()}}
    if kind == "SelfSubjectReview":
        reply["status"] = {"userInfo": _user(user)}
        return reply
    reply["spec"] = spec
    if kind == "TokenReview":
        found = whose(str(spec.get("token", "")))
        if found:
            reply["status"] = {"authenticated": True, "user": _user(found)}
        else:
            reply["status"] = {"authenticated": False, "error": "invalid bearer token"}
    elif kind == "SelfSubjectRulesReview":
        reply["status"] = {
            "resourceRules": [{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}],
            "nonResourceRules": [{"verbs": ["*"], "nonResourceURLs": ["*"]}],
            "incomplete": False,
        }
    else:
        anonymous = kind != "SelfSubjectAccessReview" and dig(spec, "user") == "system:anonymous"
        reply["status"] = {"allowed": not anonymous, "reason": "" if anonymous else _REASON}
    return reply


def _user(user: User) -> Object:
    out: Object = {"username": user.name, "groups": list(user.groups)}
    if user.uid:
        out["uid"] = user.uid
    if user.extra:
        out["extra"] = {key: list(values) for key, values in user.extra.items()}
    return out
