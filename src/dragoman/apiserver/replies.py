"""How does an object or a list look to this client? Versions, Tables, metadata only, YAML."""

from __future__ import annotations

import msgspec

from dragoman.api.shape import Object
from dragoman.apiserver import table
from dragoman.apiserver.custom.kind import CustomKind
from dragoman.apiserver.events_group import to_events_group
from dragoman.apiserver.http import HttpRequest, Reply, json_reply
from dragoman.apiserver.negotiate import YAML, MediaForm, form_of, to_yaml
from dragoman.apiserver.request import Page, RequestOutcome
from dragoman.apiserver.store import StoredObject
from dragoman.apiserver.target import RequestInfo
from dragoman.apiserver.versions import from_stored, render, reshape, type_text


def page_reply(request: HttpRequest, target: RequestInfo, page: Page, now: float) -> Reply:
    """A list; now is epoch seconds, for the ages in Tables."""
    form = form_of(request.headers.get("accept", ""))
    metadata: Object = {"resourceVersion": str(page.version)}
    if page.more:
        metadata["continue"] = page.more
        metadata["remainingItemCount"] = page.remaining
    if form.kind == "Table":
        objects = (_whole(target, record) for record in page.records)
        include = request.query.get("includeObject", "Metadata")
        made = table.table(target.kind, objects, now, include, metadata=metadata, version=target.version)
        return Reply(200, msgspec.json.encode(made), form.content_type)
    if form.kind.startswith("PartialObjectMetadata"):
        objects = (_whole(target, record) for record in page.records)
        listed = table.partial_metadata_list(objects, metadata)
        return Reply(200, msgspec.json.encode(listed), form.content_type)
    if target.events_group:
        items = [msgspec.json.encode(to_events_group(record.decode())) for record in page.records]
        head = {"kind": "EventList", "apiVersion": "events.k8s.io/v1", "metadata": metadata}
    else:
        items = [reshape(target.kind, target.version, record.body) for record in page.records]
        text = target.kind.version_text(target.version)
        head = {"kind": target.kind.list_kind, "apiVersion": text, "metadata": metadata}
    body = msgspec.json.encode(head)[:-1] + b',"items":[' + b",".join(items) + b"]}"
    return _in_form(Reply(200, body), form)


def _whole(target: RequestInfo, record: StoredObject) -> Object:
    return {**type_text(target.kind, target.version), **from_stored(target.kind, target.version, record.decode())}


# Beta versions live for six releases (reference of the API's deprecation policy): since, until.
_DEPRECATED = {"v1beta1": (35, 38), "v1beta2": (36, 39)}


def deprecations(target: RequestInfo) -> tuple[str, ...]:
    """A warning for a version of resource.k8s.io that goes away, where there is a newer one."""
    kind, group = target.kind, "resource.k8s.io"
    if isinstance(kind, CustomKind):
        found = kind.definition.version(target.version)
        text = f"{kind.group}/{target.version} {kind.kind} is deprecated"
        return (found.warning or text,) if found.deprecated else ()
    if kind.group != group or target.version not in _DEPRECATED or target.version == kind.versions[0]:
        return ()
    since, until = _DEPRECATED[target.version]
    return (
        f"{group}/{target.version} {kind.kind} is deprecated in v1.{since}+, unavailable in v1.{until}+; "
        f"use {kind.api_version} {kind.kind}",
    )


def object_reply(request: HttpRequest, target: RequestInfo, body: bytes, now: float, status: int = 200) -> Reply:
    """One object, from its stored bytes."""
    form = form_of(request.headers.get("accept", ""))
    if not form.kind and not target.events_group:
        return _in_form(Reply(status, render(target.kind, target.version, body)), form)
    stored: Object = msgspec.json.decode(body)
    obj: Object = {**type_text(target.kind, target.version), **from_stored(target.kind, target.version, stored)}
    if target.events_group:
        obj = to_events_group(obj)
    if form.kind == "Table":
        metadata = {"resourceVersion": obj["metadata"].get("resourceVersion", "")}
        include = request.query.get("includeObject", "Metadata")
        obj = table.table(target.kind, [obj], now, include, metadata=metadata, version=target.version)
    elif form.kind.startswith("PartialObjectMetadata"):
        obj = table.partial_metadata(obj)
    return _in_form(Reply(status, msgspec.json.encode(obj), form.content_type), form)


def outcome_reply(
    request: HttpRequest, target: RequestInfo, outcome: RequestOutcome, warnings: list[str], now: float
) -> Reply:
    """What a write ended with, warnings as headers."""
    if outcome.body is None:
        reply = json_reply(outcome.status or {})
    else:
        reply = object_reply(request, target, outcome.body, now, 201 if outcome.created else 200)
    for text in (*deprecations(target), *warnings, *outcome.warnings):
        quoted = text.replace("\\", "\\\\").replace('"', '\\"')
        reply.headers = [*reply.headers, (b"warning", f'299 - "{quoted}"'.encode("latin-1", "replace"))]
    return reply


def _in_form(reply: Reply, form: MediaForm) -> Reply:
    if form.media == YAML:
        reply.body = to_yaml(reply.body)
        reply.content_type = form.content_type
    return reply
