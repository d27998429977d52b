"""What does a resource path address? The kind, version, namespace, name and subresource in it."""

from __future__ import annotations

import msgspec

from dragoman.api.kinds import Kind
from dragoman.apiserver.served import EVENTS_GROUP, Served
from dragoman.apiserver.subresources import POD


class RequestInfo(msgspec.Struct, frozen=True):
    """What a path addresses."""

    kind: Kind
    version: str
    namespace: str = ""
    name: str = ""
    subresource: str = ""
    events_group: bool = False


def target_of(served: Served, group: str, version: str, parts: list[str]) -> tuple[RequestInfo | None, str]:
    """The target of a path below a group's version, None if nothing is served there, and the resource's name."""
    namespace = ""
    if group == "" and parts[0] == "namespaces" and (len(parts) < 3 or parts[2] in ("status", "finalize")):
        pass
    elif parts[0] == "namespaces" and len(parts) >= 3:
        namespace, parts = parts[1], parts[2:]
    plural = parts[0]
    if group == "" and plural == "bindings":
        return RequestInfo(POD, version, namespace, "", "binding"), plural
    events_group = group == EVENTS_GROUP and plural == "events"
    kind = served.find(group, version, plural)
    if kind is None or len(parts) > 3:
        return None, plural
    name = parts[1] if len(parts) > 1 else ""
    subresource = parts[2] if len(parts) > 2 else ""
    if bool(namespace) and not kind.namespaced:
        return None, plural
    if kind.namespaced and name and not namespace:
        return None, plural
    return RequestInfo(kind, version, namespace, name, subresource, events_group), plural
