"""What does a path and a method mean? From HTTP requests to calls of the registry, and back to replies.

One Handlers per server; `respond` is the door. Refusals leave as `status.Refused`; the app turns them into replies.
Authentication is done before (app.py).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from dragoman.api.kinds import BY_NAME, BY_PLURAL, Kind
from dragoman.apiserver import discovery, openapi, reviews, schema, subresources, table
from dragoman.apiserver.events_group import from_events_group, to_events_group
from dragoman.apiserver.http import Headers, Reply, Request, Stream, json_reply
from dragoman.apiserver.logs import LogWish
from dragoman.apiserver.negotiate import YAML, Form, decode, decode_object, form_of, to_yaml
from dragoman.apiserver.registry import Registry
from dragoman.apiserver.request import DeleteWish, Outcome, Page, User, Validation, Write
from dragoman.apiserver.status import Object, Refused, bad_request, expired
from dragoman.apiserver.store import Record, Selection
from dragoman.apiserver.versions import from_stored, prefix, render, reshape, type_text
from dragoman.apiserver.watch import Frames, Streams, WatchWish
from dragoman.errors import Invalid

WATCH_MIN_S = 1800.0
PATCHES = {
    "application/json-patch+json": "json",
    "application/merge-patch+json": "merge",
    "application/strategic-merge-patch+json": "strategic",
    "application/apply-patch+yaml": "apply",
}
_VALIDATIONS: dict[str, Validation] = {"Strict": "Strict", "Warn": "Warn", "Ignore": "Ignore"}
_NOT_HERE = {
    "exec": "exec is not served by the embedded API server",
    "attach": "attach is not served by the embedded API server",
    "portforward": "port-forward is not served by the embedded API server",
    "proxy": "proxying is not served by the embedded API server",
    "resize": "in-place resize is not served by the embedded API server",
}


class Target(msgspec.Struct, frozen=True):
    """What a path addresses."""

    kind: Kind
    version: str
    namespace: str = ""
    name: str = ""
    subresource: str = ""
    events_group: bool = False


class Handlers:
    """The API of one registry. `whose` authenticates bearer tokens (TokenReview)."""

    def __init__(self, registry: Registry, *, minor: int, whose: Callable[[str], User | None]) -> None:
        self.registry = registry
        self.streams = Streams()
        self.whose = whose
        self._version = discovery.document(discovery.version_text(minor))
        self._documents: dict[str, discovery.Document] = {}

    def respond(self, request: Request) -> Reply | Stream:
        """The answer to an authenticated request. Raises Refused."""
        path = request.path
        if path.startswith(("/api/", "/apis/")):
            parts = path.split("/")[1:]
            if parts[0] == "api" and len(parts) > 2 and parts[1] == "v1":
                return self._resource(request, "", "v1", parts[2:])
            if parts[0] == "apis" and len(parts) > 3:
                return self._resource(request, parts[1], parts[2], parts[3:])
        return self._root(request)

    # ---- discovery, version, OpenAPI

    def _root(self, request: Request) -> Reply:
        path = request.path
        if request.method not in ("GET", "HEAD"):
            raise Refused(405, "MethodNotAllowed", f"{request.method} is not allowed on {path}")
        if path == "/version":
            return Reply(200, self._version.body)
        if path == "/openapi/v3":
            return json_reply(openapi.index())
        if path.startswith("/openapi/v3/"):
            return self._openapi(request, path.removeprefix("/openapi/v3/"))
        if path == "/openapi/v2":
            raise Refused(406, "NotAcceptable", "OpenAPI v2 is not served; use /openapi/v3")
        if path == "/":
            paths = ["/api", "/api/v1", "/apis", "/healthz", "/livez", "/openapi/v3", "/readyz", "/version"]
            return json_reply({"paths": paths})
        return self._discovery(request)

    def _openapi(self, request: Request, group_version: str) -> Reply:
        found = openapi.document(group_version)
        if found is None:
            raise _no_path()
        headers = openapi.caching_headers(found, request.query.get("hash", ""), self.registry.clock.now())
        encoded: Headers = [(name.lower().encode(), value.encode()) for name, value in headers.items()]
        if request.headers.get("if-none-match", "") == headers["ETag"]:
            return Reply(304, b"", None, encoded)
        return Reply(200, found.body, headers=encoded)

    def _discovery(self, request: Request) -> Reply:
        form = form_of(request.headers.get("accept", ""))
        path = request.path
        aggregated = form.kind == "APIGroupDiscoveryList" and path in ("/api", "/apis")
        key = f"{path} {form.version}" if aggregated else path
        document = self._documents.get(key)
        if document is None:
            made = discovery.aggregated(core=path == "/api", api=form.version) if aggregated else _legacy(path)
            document = self._documents[key] = discovery.document(made)
        headers: Headers = [(b"etag", document.etag.encode()), (b"vary", b"Accept"), (b"cache-control", b"public")]
        if request.headers.get("if-none-match", "") == document.etag:
            return Reply(304, b"", None, headers)
        return Reply(200, document.body, form.content_type if aggregated else b"application/json", headers)

    # ---- resources

    def _resource(self, request: Request, group: str, version: str, parts: list[str]) -> Reply | Stream:
        target, plural = self._target(group, version, parts)
        if target is None:
            if (group, plural) in reviews.REVIEWS and version == "v1" and request.method == "POST":
                body = decode_object(request.body, request.headers.get("content-type", ""))
                reply = reviews.answer(self.registry, group, plural, body, request.user, self.whose)
                return json_reply(reply, 201)
            raise _no_path()
        if target.subresource:
            return self._subresource(request, target)
        if not target.name:
            return self._collection(request, target)
        match request.method:
            case "GET" | "HEAD":
                if request.flag("watch"):
                    return self._watch(request, target)
                record = self.registry.get(target.kind, target.name, target.namespace)
                return self._object(request, target, record.body)
            case "PUT":
                body = self._body(request, target)
                write, warnings = self._checked(request, target, body)
                outcome = self.registry.update(target.kind, body, target.name, target.namespace, write=write)
                return self._outcome(request, target, outcome, warnings)
            case "PATCH":
                return self._patch(request, target)
            case "DELETE":
                wish = self._delete_wish(request)
                outcome = self.registry.delete(target.kind, target.name, target.namespace, wish)
                return self._outcome(request, target, outcome, [])
        raise Refused(405, "MethodNotAllowed", f"{request.method} is not allowed on an object")

    def _target(self, group: str, version: str, parts: list[str]) -> tuple[Target | None, str]:
        namespace = ""
        if group == "" and parts[0] == "namespaces" and (len(parts) < 3 or parts[2] in ("status", "finalize")):
            pass
        elif parts[0] == "namespaces" and len(parts) >= 3:
            namespace, parts = parts[1], parts[2:]
        plural = parts[0]
        if group == "" and plural == "bindings":
            return Target(subresources.POD, version, namespace, "", "binding"), plural
        events_group = group == discovery.EVENTS_GROUP and plural == "events"
        kind = BY_NAME["Event"] if events_group else BY_PLURAL.get((group, plural))
        if kind is None or version not in kind.versions or len(parts) > 3 + 8:
            return None, plural
        name = parts[1] if len(parts) > 1 else ""
        subresource = parts[2] if len(parts) > 2 else ""
        if bool(namespace) and not kind.namespaced:
            return None, plural
        if kind.namespaced and name and not namespace:
            return None, plural
        return Target(kind, version, namespace, name, subresource, events_group), plural

    def _collection(self, request: Request, target: Target) -> Reply | Stream:
        kind = target.kind
        match request.method:
            case "GET" | "HEAD":
                if request.flag("watch"):
                    return self._watch(request, target)
                return self._list(request, target)
            case "POST":
                if kind.namespaced and not target.namespace:
                    raise Refused(405, "MethodNotAllowed", "create needs the path of a namespace")
                body = self._body(request, target)
                write, warnings = self._checked(request, target, body)
                outcome = self.registry.create(kind, body, target.namespace, write)
                return self._outcome(request, target, outcome, warnings)
            case "DELETE":
                page = self.registry.delete_collection(
                    kind, self._selection(request, target), self._delete_wish(request)
                )
                return self._page(request, target, page)
        raise Refused(405, "MethodNotAllowed", f"{request.method} is not allowed on a collection")

    def _selection(self, request: Request, target: Target) -> Selection:
        selected = request.query.get("fieldSelector", "")
        if target.events_group:
            selected = selected.replace("regarding.", "involvedObject.").replace(
                "reportingController", "reportingComponent"
            )
        if target.name:
            selected = f"metadata.name={target.name}" + (f",{selected}" if selected else "")
        labels = request.query.get("labelSelector", "")
        return self.registry.selection(
            target.kind, target.namespace, labels=labels, selected=selected, version=target.version
        )

    def _list(self, request: Request, target: Target) -> Reply:
        query = request.query
        if "sendInitialEvents" in query and request.flag("sendInitialEvents"):
            raise Refused(422, "Invalid", "sendInitialEvents is forbidden for a list: it belongs to a watch")
        selection = self._selection(request, target)
        limit = request.number("limit") or 0
        token = query.get("continue", "")
        if not token:
            self._check_list_version(request, target)
        elif query.get("resourceVersion", "0") not in ("", "0"):
            raise bad_request("specifying resource version is not allowed when using continue")
        page = self.registry.page(target.kind, selection, limit=limit, token=token)
        return self._page(request, target, page)

    def _check_list_version(self, request: Request, target: Target) -> None:
        match = request.query.get("resourceVersionMatch", "")
        asked = _version(request.query.get("resourceVersion", ""))
        if match and asked is None:
            raise Refused(422, "Invalid", "resourceVersionMatch is forbidden unless resourceVersion is provided")
        if match not in ("", "Exact", "NotOlderThan"):
            raise Refused(422, "Invalid", f"resourceVersionMatch {match!r} must be Exact or NotOlderThan")
        if asked is None:
            return
        self.registry.store.check_version(asked)
        if match == "Exact":
            if asked == 0:
                raise Refused(422, "Invalid", 'resourceVersionMatch "Exact" is forbidden for resourceVersion "0"')
            shelf = self.registry.store.shelf(target.kind)
            newest = shelf.ring[-1].version if shelf.ring else shelf.forgotten
            if asked < max(newest, self.registry.store.history_start):
                raise expired("The provided resource version is too old: only the current one can be listed exactly")

    def _page(self, request: Request, target: Target, page: Page) -> Reply:
        form = form_of(request.headers.get("accept", ""))
        metadata: Object = {"resourceVersion": str(page.version)}
        if page.more:
            metadata["continue"] = page.more
            metadata["remainingItemCount"] = page.remaining
        if form.kind == "Table":
            objects = (self._whole(target, record) for record in page.records)
            include = request.query.get("includeObject", "Metadata")
            made = table.table(target.kind, objects, self.registry.clock.now(), include, metadata=metadata)
            return Reply(200, msgspec.json.encode(made), form.content_type)
        if form.kind.startswith("PartialObjectMetadata"):
            objects = (self._whole(target, record) for record in page.records)
            listed = table.partial_metadata_list(objects, metadata)
            return Reply(200, msgspec.json.encode(listed), form.content_type)
        if target.events_group:
            items = [msgspec.json.encode(to_events_group(record.decode())) for record in page.records]
            head = {"kind": "EventList", "apiVersion": "events.k8s.io/v1", "metadata": metadata}
        else:
            items = [reshape(target.kind, target.version, record.body) for record in page.records]
            text = target.kind.version_text(target.version)
            head = {"kind": f"{target.kind.kind}List", "apiVersion": text, "metadata": metadata}
        body = msgspec.json.encode(head)[:-1] + b',"items":[' + b",".join(items) + b"]}"
        return _in_form(Reply(200, body), form)

    def _whole(self, target: Target, record: Record) -> Object:
        return {**type_text(target.kind, target.version), **from_stored(target.kind, target.version, record.decode())}

    # ---- watch

    def _watch(self, request: Request, target: Target) -> Stream:
        form = form_of(request.headers.get("accept", ""))
        query = request.query
        selection = self._selection(request, target)
        asked = _version(query.get("resourceVersion", ""))
        match = query.get("resourceVersionMatch", "")
        initial = "sendInitialEvents" in query and request.flag("sendInitialEvents")
        if "sendInitialEvents" in query and match != "NotOlderThan":
            raise Refused(422, "Invalid", "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan")
        if match and "sendInitialEvents" not in query:
            raise Refused(
                422, "Invalid", "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided"
            )
        if initial or not asked:
            if asked:
                self.registry.store.check_version(asked)
            synthetic = initial or "sendInitialEvents" not in query
            since = None
        else:
            synthetic, since = False, asked
        bookmarks = request.flag("allowWatchBookmarks")
        timeout_s = request.number("timeoutSeconds") or self.registry.entropy.jitter(WATCH_MIN_S, 1.0)
        wish = WatchWish(
            since, synthetic, initial and bookmarks, bookmarks, float(timeout_s), query.get("includeObject", "Metadata")
        )
        frames = Frames(
            target.kind,
            target.version,
            form,
            self.registry.clock.now,
            wish.include_object,
            to_events_group if target.events_group else None,
        )
        chunks, release = self.streams.start(self.registry, target.kind, selection, wish, frames)
        content_type = form.content_type if form.kind else b"application/json"
        return Stream(chunks, release, content_type)

    # ---- bodies and options of writes

    def _body(self, request: Request, target: Target) -> Object:
        body = decode_object(request.body, request.headers.get("content-type", ""))
        return from_events_group(body) if target.events_group else body

    def _write(self, request: Request, target: Target) -> Write:
        asked = request.query.get("fieldValidation") or "Warn"
        validation = _VALIDATIONS.get(asked)
        if validation is None:
            raise Refused(
                422,
                "Invalid",
                f"fieldValidation: Unsupported value: {asked!r}: supported values: Ignore, Warn, Strict",
            )
        manager = request.query.get("fieldManager", "")
        if not manager:
            manager = request.headers.get("user-agent", "unknown").partition("/")[0] or "unknown"
        if len(manager) > 128:
            raise Refused(422, "Invalid", "fieldManager: may not be longer than 128")
        return Write(
            version=target.version,
            manager=manager,
            force=request.flag("force"),
            dry_run=_dry_run(request.query.get("dryRun")),
            validation=validation,
            user=request.user,
        )

    def _checked(self, request: Request, target: Target, body: Object) -> tuple[Write, list[str]]:
        write = self._write(request, target)
        return write, self._unknown_fields(target, body, write)

    def _unknown_fields(self, target: Target, body: Object, write: Write) -> list[str]:
        """Unknown fields: refused under Strict, returned as warnings under Warn. Wrong types are always refused."""
        try:
            unknown = schema.strict_errors((target.kind.group, target.version, target.kind.kind), body)
        except Invalid as wrong:
            raise bad_request(
                f"{target.kind.kind} in version {target.version!r} cannot be handled as a {target.kind.kind}: {wrong}"
            ) from wrong
        if unknown and write.validation == "Strict":
            raise bad_request(
                f"{target.kind.kind} in version {target.version!r} cannot be handled as a {target.kind.kind}: "
                f"strict decoding error: {', '.join(unknown)}"
            )
        return unknown if write.validation == "Warn" else []

    def _patch(self, request: Request, target: Target) -> Reply:
        media = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        type = PATCHES.get(media)
        if type is None:
            raise Refused(
                415,
                "UnsupportedMediaType",
                "the body of the request was in an unknown format - accepted media types include: "
                + ", ".join(PATCHES),
            )
        write = self._write(request, target)
        if type == "apply" and not request.query.get("fieldManager"):
            raise Refused(422, "Invalid", "fieldManager: Required value: is required for apply patch")
        if write.force and type != "apply":
            raise Refused(422, "Invalid", "force: Forbidden: may not be specified for non-apply patch")
        patch = decode(request.body, media)

        def judge(patched: Object, live: Object | None) -> list[str]:
            known = set(self._stored_unknown(target, live)) if live else set()
            try:
                return self._unknown_fields(target, patched, write)
            except Refused:
                fresh = set(self._stored_unknown(target, patched)) - known
                if known and not fresh:
                    return []
                raise

        outcome = self.registry.patch(
            target.kind,
            target.name,
            patch,
            target.namespace,
            type=type,
            subresource=target.subresource,
            write=write,
            judge=judge,
        )
        return self._outcome(request, target, outcome, [])

    def _stored_unknown(self, target: Target, obj: Object) -> list[str]:
        try:
            return schema.strict_errors((target.kind.group, target.version, target.kind.kind), obj)
        except Invalid:
            return []

    def _delete_wish(self, request: Request) -> DeleteWish:
        options: Object = {}
        if request.body:
            sent = decode(request.body, request.headers.get("content-type", ""))
            if isinstance(sent, dict):
                options = sent
        preconditions = options.get("preconditions") or {}
        grace = options.get("gracePeriodSeconds")
        if grace is None:
            grace = request.number("gracePeriodSeconds")
        propagation = options.get("propagationPolicy") or request.query.get("propagationPolicy", "")
        if not propagation and options.get("orphanDependents"):
            propagation = "Orphan"
        dry = options.get("dryRun") or []
        return DeleteWish(
            grace_s=grace,
            propagation=propagation,
            uid=preconditions.get("uid") or "",
            resource_version=preconditions.get("resourceVersion") or "",
            dry_run=bool(dry) or _dry_run(request.query.get("dryRun")),
        )

    # ---- replies

    def _object(self, request: Request, target: Target, body: bytes, status: int = 200) -> Reply:
        form = form_of(request.headers.get("accept", ""))
        if not form.kind and not target.events_group:
            return _in_form(Reply(status, render(target.kind, target.version, body)), form)
        obj: Object = msgspec.json.decode(prefix(target.kind, "") + body[1:])
        obj = {**type_text(target.kind, target.version), **from_stored(target.kind, target.version, obj)}
        obj["apiVersion"] = target.kind.version_text(target.version)
        if target.events_group:
            obj = to_events_group(obj)
        if form.kind == "Table":
            metadata = {"resourceVersion": obj["metadata"].get("resourceVersion", "")}
            include = request.query.get("includeObject", "Metadata")
            obj = table.table(target.kind, [obj], self.registry.clock.now(), include, metadata=metadata)
        elif form.kind.startswith("PartialObjectMetadata"):
            obj = table.partial_metadata(obj)
        return _in_form(Reply(status, msgspec.json.encode(obj), form.content_type), form)

    def _outcome(self, request: Request, target: Target, outcome: Outcome, warnings: list[str]) -> Reply:
        if outcome.body is None:
            reply = json_reply(outcome.status or {})
        else:
            reply = self._object(request, target, outcome.body, 201 if outcome.created else 200)
        for text in warnings + outcome.warnings:
            quoted = text.replace("\\", "\\\\").replace('"', '\\"')
            reply.headers = [*reply.headers, (b"warning", f'299 - "{quoted}"'.encode("latin-1", "replace"))]
        return reply

    # ---- subresources

    def _subresource(self, request: Request, target: Target) -> Reply | Stream:
        name = target.subresource
        if name in _NOT_HERE and target.kind.kind in ("Pod", "Service", "Node"):
            raise Refused(501, "NotImplemented", _NOT_HERE[name])
        if name not in target.kind.subresources:
            raise _no_path()
        method = request.method
        if name in ("status", "ephemeralcontainers", "finalize"):
            return self._part(request, target)
        if name == "scale":
            return self._scale(request, target)
        if name == "log" and method == "GET":
            return self._log(request, target)
        if method != "POST":
            raise Refused(405, "MethodNotAllowed", f"{method} is not allowed on {name}")
        body = decode_object(request.body, request.headers.get("content-type", ""))
        write = self._write(request, target)
        registry = self.registry
        if name == "binding":
            pod = target.name or (body.get("metadata") or {}).get("name", "")
            return json_reply(subresources.bind(registry, pod, target.namespace, body, write), 201)
        if name == "eviction":
            wish = subresources.eviction_wish(body, dry_run=write.dry_run)
            return json_reply(subresources.evict(registry, target.name, target.namespace, body, wish), 201)
        assert name == "token", "the table of kinds names no other subresource"
        account = registry.get(target.kind, target.name, target.namespace)
        return json_reply(subresources.issue_token(registry, account, body), 201)

    def _part(self, request: Request, target: Target) -> Reply:
        registry = self.registry
        match request.method:
            case "GET" | "HEAD":
                return self._object(request, target, registry.get(target.kind, target.name, target.namespace).body)
            case "PUT":
                body = self._body(request, target)
                write, warnings = self._checked(request, target, body)
                outcome = registry.update(
                    target.kind, body, target.name, target.namespace, subresource=target.subresource, write=write
                )
                return self._outcome(request, target, outcome, warnings)
            case "PATCH":
                return self._patch(request, target)
        raise Refused(405, "MethodNotAllowed", f"{request.method} is not allowed on {target.subresource}")

    def _scale(self, request: Request, target: Target) -> Reply:
        record = self.registry.get(target.kind, target.name, target.namespace)
        scale = subresources.scale_of(record)
        match request.method:
            case "GET" | "HEAD":
                return json_reply(scale)
            case "PUT":
                wanted = decode_object(request.body, request.headers.get("content-type", ""))
            case "PATCH":
                media = request.headers.get("content-type", "").partition(";")[0].strip().lower()
                wanted = self._patched_scale(PATCHES.get(media), scale, decode(request.body, media))
            case _:
                raise Refused(405, "MethodNotAllowed", f"{request.method} is not allowed on scale")
        return json_reply(subresources.set_scale(self.registry, record, wanted, self._write(request, target)))

    def _patched_scale(self, type: str | None, scale: Object, patch: Any) -> Object:
        if type is None:
            raise Refused(415, "UnsupportedMediaType", "a Scale is patched by JSON, merge, strategic or apply patches")
        return subresources.patched_scale(type, scale, patch)

    # ---- logs

    def _log(self, request: Request, target: Target) -> Stream:
        record = self.registry.get(target.kind, target.name, target.namespace)
        pod = record.decode()
        container = _container(pod, target.name, request.query.get("container", ""))
        source = self.registry.logs.of(record.uid, target.namespace, target.name)
        if source is None:
            if not pod["spec"].get("nodeName"):
                raise bad_request(f"pod {target.name} does not have a host assigned")
            raise bad_request(
                f'container "{container}" in pod "{target.name}" is waiting to start, or its node does not offer logs'
            )
        since_s = request.number("sinceSeconds")
        wish = LogWish(
            container,
            follow=request.flag("follow"),
            previous=request.flag("previous"),
            timestamps=request.flag("timestamps"),
            tail_lines=request.number("tailLines"),
            since_s=None if since_s is None else float(since_s),
            limit_bytes=request.number("limitBytes"),
        )
        return Stream(source(wish), _nothing, b"text/plain", may_fail=True)


def _nothing() -> None:
    """Nothing to release."""


def _container(pod: Object, name: str, asked: str) -> str:
    spec = pod["spec"]
    names = [
        c["name"] for field in ("containers", "initContainers", "ephemeralContainers") for c in spec.get(field) or []
    ]
    if asked:
        if asked not in names:
            raise bad_request(f"container {asked} is not valid for pod {name}")
        return asked
    first = [c["name"] for c in spec.get("containers") or []]
    if len(first) > 1:
        raise bad_request(
            f"a container name must be specified for pod {name}, choose one of: [{' '.join(first)}]",
        )
    return str(first[0])


def _legacy(path: str) -> Object:
    parts = path.split("/")[1:]
    if parts == ["api"]:
        return discovery.legacy_versions()
    if parts == ["apis"]:
        return discovery.legacy_groups()
    known = discovery.groups()
    if parts == ["api", "v1"]:
        return discovery.legacy_resources("", "v1")
    if len(parts) in (2, 3) and parts[0] == "apis" and parts[1] in known:
        if len(parts) == 2:
            return discovery.legacy_group(parts[1])
        if parts[2] in known[parts[1]]:
            return discovery.legacy_resources(parts[1], parts[2])
    raise _no_path()


def _no_path() -> Refused:
    return Refused(404, "NotFound", "the server could not find the requested resource")


def _version(text: str) -> int | None:
    if not text:
        return None
    try:
        return int(text)
    except ValueError:
        raise bad_request(f"invalid resource version {text!r}") from None


def _dry_run(text: str | None) -> bool:
    if not text:
        return False
    if text != "All":
        raise Refused(422, "Invalid", f'dryRun: Unsupported value: {text!r}: supported values: "All"')
    return True


def _in_form(reply: Reply, form: Form) -> Reply:
    if form.media == YAML:
        reply.body = to_yaml(reply.body)
        reply.content_type = form.content_type
    return reply
