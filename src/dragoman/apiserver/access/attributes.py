"""What is authorized? One request as authorizers see it: who, which verb, on what.

`attributes_of` reads it off a request's path, as upstream's RequestInfo does, whether or not anything is served there:
who may not ask does not learn what exists. Source: k8s.io/apiserver pkg/endpoints/request and filters.
"""

from __future__ import annotations

import json
from typing import Final

import msgspec

from dragoman.api.shape import Object
from dragoman.apiserver.http import HttpRequest
from dragoman.apiserver.request import User
from dragoman.apiserver.selectors import FieldTerm, parse_fields
from dragoman.apiserver.status import StatusError

_VERBS: Final = {
    "POST": "create",
    "GET": "get",
    "HEAD": "get",
    "PUT": "update",
    "PATCH": "patch",
    "DELETE": "delete",
}
_NAMESPACE_PARTS: Final = ("status", "finalize")
_SELECTING: Final = ("list", "watch", "deletecollection")


class Attributes(msgspec.Struct, frozen=True):
    """One question to an authorizer. A path in the place of a resource asks about a non-resource URL."""

    user: User
    verb: str
    group: str = ""
    version: str = ""
    resource: str = ""
    subresource: str = ""
    namespace: str = ""
    name: str = ""
    path: str = ""
    fields: tuple[FieldTerm, ...] = ()

    @property
    def combined(self) -> str:
        """resource, or resource/subresource."""
        return f"{self.resource}/{self.subresource}" if self.subresource else self.resource


def attributes_of(request: HttpRequest) -> Attributes:
    """What a request asks for."""
    path = request.path
    parts = path.strip("/").split("/")
    if parts[0] == "api" and len(parts) >= 3:
        group, rest = "", parts[1:]
    elif parts[0] == "apis" and len(parts) >= 4:
        group, rest = parts[1], parts[2:]
    else:
        return Attributes(request.user, request.method.lower(), path=path)
    version, rest = rest[0], rest[1:]
    verb = _VERBS.get(request.method, "")
    if rest[0] in ("watch", "proxy") and len(rest) > 1:
        verb, rest = rest[0], rest[1:]
    namespace = ""
    if rest[0] == "namespaces" and len(rest) > 1:
        namespace = rest[1]
        if len(rest) > 2 and rest[2] not in _NAMESPACE_PARTS:
            rest = rest[2:]
    name = rest[1] if len(rest) > 1 else ""
    subresource = rest[2] if len(rest) > 2 else ""
    fields: tuple[FieldTerm, ...] = ()
    if not name and verb in ("get", "delete"):
        fields = _fields(request)
        if verb == "delete":
            verb = "deletecollection"
        else:
            verb = "watch" if _is_watch(request) else "list"
            name = next((term.value for term in fields if term.key == "metadata.name" and term.equal), "")
    return Attributes(request.user, verb, group, version, rest[0], subresource, namespace, name, path, fields)


def _is_watch(request: HttpRequest) -> bool:
    return request.query.get("watch", "false").lower() not in ("false", "0", "f", "")


def _fields(request: HttpRequest) -> tuple[FieldTerm, ...]:
    text = request.query.get("fieldSelector", "")
    if not text:
        return ()
    try:
        return tuple(parse_fields(text))
    except StatusError:
        return ()  # the handler says what is wrong with it, to those who may ask


def quoted(text: str) -> str:
    """A text as Go's %q writes it."""
    return json.dumps(text, ensure_ascii=False)


def _sanitized(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def forbidden_text(asked: Attributes) -> str:
    """What somebody may not do, in upstream's words."""
    who = quoted(asked.user.name)
    if not asked.resource:
        return _sanitized(f"User {who} cannot {asked.verb} path {quoted(asked.path)}")
    what = f"User {who} cannot {asked.verb} resource {quoted(asked.combined)} in API group {quoted(asked.group)}"
    where = f"in the namespace {quoted(asked.namespace)}" if asked.namespace else "at the cluster scope"
    return _sanitized(f"{what} {where}")


def denied(asked: Attributes, reason: str = "") -> StatusError:
    """The 403 for a question that was answered no."""
    why = f"{forbidden_text(asked)}: {reason}" if reason else forbidden_text(asked)
    details: Object = {}
    if asked.name:
        details["name"] = asked.name
    if asked.group:
        details["group"] = asked.group
    if asked.resource:
        details["kind"] = asked.resource
    qualified = f"{asked.resource}.{asked.group}" if asked.group else asked.resource
    if not qualified:
        message = f"forbidden: {why}"
    elif asked.name:
        message = f"{qualified} {quoted(asked.name)} is forbidden: {why}"
    else:
        message = f"{qualified} is forbidden: {why}"
    return StatusError(403, "Forbidden", message, details)
