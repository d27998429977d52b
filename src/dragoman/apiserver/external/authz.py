"""What may expressions ask about rights? The `authorizer` of admission expressions, as functions of the language.

Source: k8s.io/apiserver pkg/cel/library/authz.go.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import msgspec

from dragoman.apiserver.access.attributes import Attributes
from dragoman.apiserver.access.authorizer import Authorizer
from dragoman.apiserver.access.impersonation import ACCOUNT, account_groups
from dragoman.apiserver.access.rbac import Verdict
from dragoman.apiserver.request import User
from dragoman.apiserver.selectors import parse_fields
from dragoman.apiserver.status import StatusError
from dragoman.cel import types as t
from dragoman.cel.faults import EvalError
from dragoman.cel.functions import Overload, free, member
from dragoman.cel.values import TYPE_OF, CelValue
from dragoman.values import names

_PREFIX: Final = "kubernetes.authorization"
AUTHORIZER: Final = t.opaque(f"{_PREFIX}.Authorizer")
PATH_CHECK: Final = t.opaque(f"{_PREFIX}.PathCheck")
GROUP_CHECK: Final = t.opaque(f"{_PREFIX}.GroupCheck")
RESOURCE_CHECK: Final = t.opaque(f"{_PREFIX}.ResourceCheck")
DECISION: Final = t.opaque(f"{_PREFIX}.Decision")


class Asker(msgspec.Struct, frozen=True):
    """The authorizer as seen by one user."""

    authorizer: Authorizer
    user: User


class PathCheck(msgspec.Struct, frozen=True):
    """A question about a path, without its verb."""

    asker: Asker
    path: str


class GroupCheck(msgspec.Struct, frozen=True):
    """An API group."""

    asker: Asker
    group: str


class ResourceCheck(msgspec.Struct, frozen=True):
    """A question about a resource, without its verb."""

    asker: Asker
    about: Attributes


class AuthorizationDecision(msgspec.Struct, frozen=True):
    """An answer."""

    verdict: Verdict


TYPE_OF.update(
    {
        Asker: AUTHORIZER,
        PathCheck: PATH_CHECK,
        GroupCheck: GROUP_CHECK,
        ResourceCheck: RESOURCE_CHECK,
        AuthorizationDecision: DECISION,
    }
)


def about(asker: Asker, group: str, resource: str, namespace: str, name: str, subresource: str) -> ResourceCheck:
    """The question about the resource of a request (`authorizer.requestResource`)."""
    return ResourceCheck(asker, Attributes(asker.user, "", group, "*", resource, subresource, namespace, name))


def _path(asker: Asker, path: str) -> PathCheck:
    if not path.strip():
        raise EvalError("path must not be empty")
    return PathCheck(asker, path)


def _account(asker: Asker, namespace: str, name: str) -> Asker:
    if names.dns_subdomain(name):
        raise EvalError(f"Invalid service account name: {name}")
    if names.dns_label(namespace):
        raise EvalError(f"Invalid service account namespace: {namespace}")
    return Asker(asker.authorizer, User(f"{ACCOUNT}{namespace}:{name}", account_groups(namespace)))


def _resource(group: GroupCheck, resource: str) -> ResourceCheck:
    if not resource.strip():
        raise EvalError("resource must not be empty")
    return about(group.asker, group.group, resource, "", "", "")


def _with(field: str) -> Callable[[ResourceCheck, str], ResourceCheck]:
    def set_field(check: ResourceCheck, value: str) -> ResourceCheck:
        return ResourceCheck(check.asker, msgspec.structs.replace(check.about, **{field: value}))

    return set_field


def _selecting(check: ResourceCheck, text: str) -> ResourceCheck:
    try:
        fields = tuple(parse_fields(text))
    except StatusError:
        return check
    return ResourceCheck(check.asker, msgspec.structs.replace(check.about, fields=fields))


def _check_path(check: PathCheck, verb: str) -> AuthorizationDecision:
    return _decided(check.asker, Attributes(check.asker.user, verb.lower(), path=check.path))


def _check_resource(check: ResourceCheck, verb: str) -> AuthorizationDecision:
    return _decided(check.asker, msgspec.structs.replace(check.about, verb=verb))


def _decided(asker: Asker, asked: Attributes) -> AuthorizationDecision:
    return AuthorizationDecision(asker.authorizer.explain(asked))


def _escape(text: str) -> str:
    return text.replace("~", "~0").replace("/", "~1")


def _no_error(_: CelValue) -> str:
    return ""


OVERLOADS: Final[tuple[Overload, ...]] = (
    member("path", "authorizer_path", (AUTHORIZER, t.STRING), PATH_CHECK, _path),
    member("group", "authorizer_group", (AUTHORIZER, t.STRING), GROUP_CHECK, GroupCheck),
    member("serviceAccount", "authorizer_serviceaccount", (AUTHORIZER, t.STRING, t.STRING), AUTHORIZER, _account),
    member("resource", "groupcheck_resource", (GROUP_CHECK, t.STRING), RESOURCE_CHECK, _resource),
    *(
        member(name, f"resourcecheck_{name.lower()}", (RESOURCE_CHECK, t.STRING), RESOURCE_CHECK, _with(name))
        for name in ("subresource", "namespace", "name")
    ),
    member("fieldSelector", "resourcecheck_fieldselector", (RESOURCE_CHECK, t.STRING), RESOURCE_CHECK, _selecting),
    member("labelSelector", "resourcecheck_labelselector", (RESOURCE_CHECK, t.STRING), RESOURCE_CHECK, lambda c, _: c),
    member("check", "pathcheck_check", (PATH_CHECK, t.STRING), DECISION, _check_path),
    member("check", "resourcecheck_check", (RESOURCE_CHECK, t.STRING), DECISION, _check_resource),
    member("allowed", "decision_allowed", (DECISION,), t.BOOL, lambda d: d.verdict.allowed),
    member("reason", "decision_reason", (DECISION,), t.STRING, lambda d: d.verdict.reason),
    member("errored", "decision_errored", (DECISION,), t.BOOL, lambda _: False),
    member("error", "decision_error", (DECISION,), t.STRING, _no_error),
)
ESCAPE: Final = free("jsonpatch.escapeKey", "string_jsonpatch_escapeKey_string", (t.STRING,), t.STRING, _escape)
