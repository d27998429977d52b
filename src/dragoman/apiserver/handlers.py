"""What does a path and a method mean? From HTTP requests to calls of the registry, and back to replies.

One Handlers per server; `respond` is the door. Refusals leave as `status.Refused`; the app turns them into replies.
Authentication is done before (app.py).
"""

from __future__ import annotations

from typing import Any

import msgspec

from dragoman.api.admission import NO_RESOURCE
from dragoman.api.shape import Object
from dragoman.apiserver import discovery, metadata, openapi, openapi2, reviews, streams, strict, subresources, table
from dragoman.apiserver.admission import Attributes
from dragoman.apiserver.custom.kind import CustomKind
from dragoman.apiserver.events_group import from_events_group, to_events_group
from dragoman.apiserver.external.converting import Conversion
from dragoman.apiserver.http import Headers, HttpRequest, Reply, Stream, json_reply
from dragoman.apiserver.logs import LogOptions
from dragoman.apiserver.negotiate import decode, decode_object, form_of, to_yaml
from dragoman.apiserver.options import (
    check_declared,
    check_list_version,
    check_types,
    delete_options,
    known_unknowns,
    unknown_fields,
    version_of,
    write_of,
)
from dragoman.apiserver.registry import CHANGED_TRIES, PatchCheck, Registry
from dragoman.apiserver.replies import object_reply, outcome_reply, page_reply
from dragoman.apiserver.request import Page, RequestOutcome, Write
from dragoman.apiserver.resource_metrics import PRINTER
from dragoman.apiserver.selectors import parse_labels
from dragoman.apiserver.served import METRICS, METRICS_GROUP, METRICS_VERSION, Served
from dragoman.apiserver.sessions import PodSessions
from dragoman.apiserver.status import StatusError, bad_request, not_found, stale
from dragoman.apiserver.store import Selection
from dragoman.apiserver.strategies.pods import FINISHED
from dragoman.apiserver.streams import SessionRequest, wanted_of
from dragoman.apiserver.target import RequestInfo, target_of
from dragoman.apiserver.watch import Convert, Frames, Streams, WatchOptions

WATCH_MIN_S = 1800.0
_PLAIN_MEDIA = ("*/*", "application/*", "application/json")
PATCHES = {
    "application/json-patch+json": "json",
    "application/merge-patch+json": "merge",
    "application/strategic-merge-patch+json": "strategic",
    "application/apply-patch+yaml": "apply",
}
_SCALE = ("autoscaling", "v1", "Scale")
_BODIES = {
    "binding": ("", "v1", "Binding"),
    "eviction": ("policy", "v1", "Eviction"),
    "token": ("authentication.k8s.io", "v1", "TokenRequest"),
}
_NOT_HERE = {
    "exec": "exec is served over WebSocket only: use kubectl 1.30 or newer (this client asked for SPDY)",
    "attach": "attach is served over WebSocket only: use kubectl 1.30 or newer (this client asked for SPDY)",
    "portforward": "port-forward is served over WebSocket only: use kubectl 1.31 or newer (this client asked for SPDY)",
    "proxy": "proxying is not served by the embedded API server",
    "resize": "in-place resize is not served by the embedded API server",
}


class Handlers:
    """The API of one registry. `whose` authenticates bearer tokens (TokenReview)."""

    def __init__(self, registry: Registry, *, minor: int, whose: reviews.Whose) -> None:
        self.registry = registry
        self.streams = Streams()
        self.whose = whose
        self._version = discovery.document(discovery.version_text(minor))
        self.conversion: Conversion | None = None
        self._openapi = openapi.OpenApi(registry.served)
        self._documents: dict[str, discovery.DiscoveryDocument] = {}
        self._generation = -1

    async def respond(self, request: HttpRequest) -> Reply | Stream:
        """The answer to an authenticated request. Raises Refused."""
        path = request.path
        if path.startswith(("/api/", "/apis/")):
            parts = path.split("/")[1:]
            if parts[0] == "api" and len(parts) > 2 and parts[1] == "v1":
                return await self._resource(request, "", "v1", parts[2:])
            if parts[0] == "apis" and len(parts) > 3:
                return await self._resource(request, parts[1], parts[2], parts[3:])
        return self._root(request)

    # ---- discovery, version, OpenAPI

    def _root(self, request: HttpRequest) -> Reply:
        path = request.path
        if request.method not in ("GET", "HEAD"):
            raise StatusError(405, "MethodNotAllowed", f"{request.method} is not allowed on {path}")
        if path == "/version":
            return Reply(200, self._version.body)
        if path == "/openapi/v3":
            return json_reply(self._openapi.index())
        if path.startswith("/openapi/v3/"):
            return self._openapi_v3(request, path.removeprefix("/openapi/v3/"))
        if path == "/openapi/v2":
            return self._openapi_v2(request)
        if path == "/openid/v1/jwks":
            return json_reply(self.registry.tokens.key_set())
        if path == "/.well-known/openid-configuration":
            host = request.headers.get("host", "")
            return json_reply(self.registry.tokens.configuration(f"https://{host}"))
        if path == "/":
            paths = [
                "/.well-known/openid-configuration",
                "/api",
                "/api/v1",
                "/apis",
                "/healthz",
                "/livez",
                "/openapi/v2",
                "/openapi/v3",
                "/openid/v1/jwks",
                "/readyz",
                "/version",
            ]
            return json_reply({"paths": paths})
        return self._discovery(request)

    def _openapi_v3(self, request: HttpRequest, group_version: str) -> Reply:
        found = self._openapi.document(group_version)
        if found is None:
            raise _no_path()
        headers = openapi.caching_headers(found, request.query.get("hash", ""), self.registry.clock.now())
        encoded: Headers = [(name.lower().encode(), value.encode()) for name, value in headers.items()]
        if request.headers.get("if-none-match", "") == headers["ETag"]:
            return Reply(304, b"", None, encoded)
        return Reply(200, found.body, headers=encoded)

    def _openapi_v2(self, request: HttpRequest) -> Reply:
        accept = request.headers.get("accept", "")
        media = [part.partition(";")[0].strip().lower() for part in accept.split(",")]
        chosen = next((m for m in media if m in openapi2.PROTOBUF_TYPES or m in ("", *_PLAIN_MEDIA)), None)
        if chosen is None:
            raise StatusError(406, "NotAcceptable", f"OpenAPI v2 is served as JSON and {openapi2.PROTOBUF_TYPES[0]}")
        protobuf = chosen in openapi2.PROTOBUF_TYPES
        found = self._openapi.v2(protobuf=protobuf)
        headers: Headers = [(b"etag", f'"{found.hash}"'.encode()), (b"vary", b"Accept")]
        if request.headers.get("if-none-match", "") == f'"{found.hash}"':
            return Reply(304, b"", None, headers)
        content_type = openapi2.PROTOBUF_SENT if protobuf else b"application/json"
        return Reply(200, found.body, content_type, headers)

    def _discovery(self, request: HttpRequest) -> Reply:
        form = form_of(request.headers.get("accept", ""))
        path = request.path
        aggregated = form.kind == "APIGroupDiscoveryList" and path in ("/api", "/apis")
        key = f"{path} {form.version}" if aggregated else path
        served = self.registry.served
        if self._generation != served.generation:
            self._generation = served.generation
            self._documents.clear()
        document = self._documents.get(key)
        if document is None:
            if aggregated:
                made = discovery.aggregated(served, core=path == "/api", api=form.version)
            else:
                made = _legacy(served, path)
            document = self._documents[key] = discovery.document(made)
        headers: Headers = [(b"etag", document.etag.encode()), (b"vary", b"Accept"), (b"cache-control", b"public")]
        if request.headers.get("if-none-match", "") == document.etag:
            return Reply(304, b"", None, headers)
        return Reply(200, document.body, form.content_type if aggregated else b"application/json", headers)

    # ---- resources

    async def _resource(self, request: HttpRequest, group: str, version: str, parts: list[str]) -> Reply | Stream:
        target, plural = target_of(self.registry.served, group, version, parts)
        if target is None:
            if (group, plural) in reviews.REVIEWS and version == "v1" and request.method == "POST":
                form_of(request.headers.get("accept", ""), tables=False)
                body = decode_object(request.body, request.headers.get("content-type", ""))
                body = check_types((group, version, reviews.REVIEWS[group, plural][0]), body)
                namespace = parts[1] if parts[0] == "namespaces" else ""
                reply = reviews.answer(self.registry, plural, body, request.user, self.whose, namespace)
                return json_reply(reply, 201)
            if group == METRICS_GROUP:
                return self._usage(request, version, parts)
            raise _no_path()
        if target.subresource:
            return await self._subresource(request, target)
        if not target.name:
            return await self._collection(request, target)
        match request.method:
            case "GET" | "HEAD":
                if request.flag("watch"):
                    return self._watch(request, target)
                record = self.registry.get(target.kind, target.name, target.namespace)
                shown = await self._shown(target, record.body)
                return object_reply(request, target, shown, self.registry.clock.now())
            case "PUT":
                body = self._body(request, target)
                write, warnings = self._checked(request, target, body)
                body, write = await self._stored(target, body, write)
                outcome = await self.registry.updating(target.kind, body, target.name, target.namespace, write=write)
                return await self._done(request, target, outcome, warnings)
            case "PATCH":
                return await self._patch(request, target)
            case "DELETE":
                options = delete_options(request)
                write = Write(user=request.user)
                outcome = await self.registry.deleting(target.kind, target.name, target.namespace, options, write=write)
                return await self._done(request, target, outcome, [])
        raise StatusError(405, "MethodNotAllowed", f"{request.method} is not allowed on an object")

    async def _collection(self, request: HttpRequest, target: RequestInfo) -> Reply | Stream:
        kind = target.kind
        match request.method:
            case "GET" | "HEAD":
                if request.flag("watch"):
                    return self._watch(request, target)
                return await self._list(request, target)
            case "POST":
                if kind.namespaced and not target.namespace:
                    raise StatusError(405, "MethodNotAllowed", "create needs the path of a namespace")
                body = self._body(request, target)
                write, warnings = self._checked(request, target, body)
                body, write = await self._stored(target, body, write)
                outcome = await self.registry.creating(kind, body, target.namespace, write)
                return await self._done(request, target, outcome, warnings)
            case "DELETE":
                selection, options = self._selection(request, target), delete_options(request)
                write = Write(user=request.user)
                page = await self.registry.deleting_collection(kind, selection, options, write=write)
                page = await self._shown_page(target, page)
                return page_reply(request, target, page, self.registry.clock.now())
        raise StatusError(405, "MethodNotAllowed", f"{request.method} is not allowed on a collection")

    def _usage(self, request: HttpRequest, version: str, parts: list[str]) -> Reply:
        """metrics.k8s.io: what nodes and pods use now."""
        namespace, rest = (parts[1], parts[2:]) if parts[0] == "namespaces" and len(parts) > 2 else ("", parts)
        plural, name = rest[0], rest[1] if len(rest) == 2 else ""
        known = self.registry.served.has_metrics and version == METRICS_VERSION and plural in METRICS
        if not known or len(rest) > 2 or (bool(namespace) and not METRICS[plural][1]):
            raise _no_path()
        if METRICS[plural][1] and name and not namespace:
            raise _no_path()
        if request.method not in ("GET", "HEAD") or request.flag("watch"):
            raise StatusError(
                405, "MethodNotAllowed", "the server does not allow this method on the requested resource"
            )
        metrics, now = self.registry.metrics, self.registry.clock.now()
        form = form_of(request.headers.get("accept", ""))
        if name:
            found = [metrics.one(plural, namespace, name, now)]
        else:
            labels = parse_labels(request.query.get("labelSelector", ""))
            found = metrics.listed(plural, namespace, labels, now)
        if form.kind == "Table":
            made = table.printed(PRINTER[plural], found, now, request.query.get("includeObject", "Metadata"))
            return Reply(200, msgspec.json.encode(made), form.content_type)
        if name:
            body = found[0]
        else:
            head = {"kind": f"{METRICS[plural][0]}List", "apiVersion": f"{METRICS_GROUP}/{METRICS_VERSION}"}
            body = {**head, "metadata": {}, "items": found}
        if form.media != "application/json":
            return Reply(200, to_yaml(msgspec.json.encode(body)), form.content_type)
        return json_reply(body)

    def _selection(self, request: HttpRequest, target: RequestInfo) -> Selection:
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

    async def _list(self, request: HttpRequest, target: RequestInfo) -> Reply:
        query = request.query
        if "sendInitialEvents" in query and request.flag("sendInitialEvents"):
            raise StatusError(422, "Invalid", "sendInitialEvents is forbidden for a list: it belongs to a watch")
        selection = self._selection(request, target)
        limit = request.number("limit") or 0
        token = query.get("continue", "")
        if not token:
            check_list_version(request, target, self.registry.store)
        elif query.get("resourceVersion", "0") not in ("", "0"):
            raise bad_request("specifying resource version is not allowed when using continue")
        page = self.registry.page(target.kind, selection, limit=limit, token=token)
        page = await self._shown_page(target, page)
        return page_reply(request, target, page, self.registry.clock.now())

    # ---- watch

    def _watch(self, request: HttpRequest, target: RequestInfo) -> Stream:
        form = form_of(request.headers.get("accept", ""))
        query = request.query
        selection = self._selection(request, target)
        asked = version_of(query.get("resourceVersion", ""))
        match = query.get("resourceVersionMatch", "")
        initial = "sendInitialEvents" in query and request.flag("sendInitialEvents")
        if "sendInitialEvents" in query and match != "NotOlderThan":
            raise StatusError(422, "Invalid", "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan")
        if match and "sendInitialEvents" not in query:
            raise StatusError(
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
        options = WatchOptions(
            since, synthetic, initial and bookmarks, bookmarks, float(timeout_s), query.get("includeObject", "Metadata")
        )
        frames = Frames(
            target.kind,
            target.version,
            form,
            self.registry.clock.now,
            options.include_object,
            to_events_group if target.events_group else None,
        )
        chunks, release = self.streams.start(
            self.registry, target.kind, selection, options, frames, self._convert(target)
        )
        content_type = form.content_type if form.kind else b"application/json"
        return Stream(chunks, release, content_type)

    # ---- versions that only a webhook knows

    def _by_webhook(self, target: RequestInfo) -> CustomKind | None:
        kind = target.kind
        wanted = isinstance(kind, CustomKind) and kind.definition.needs_webhook(target.version)
        return kind if wanted and self.conversion is not None and isinstance(kind, CustomKind) else None

    def _convert(self, target: RequestInfo) -> Convert | None:
        kind, conversion = self._by_webhook(target), self.conversion
        if kind is None or conversion is None:
            return None
        return lambda records: conversion.records(kind, records, target.version)

    async def _shown(self, target: RequestInfo, body: bytes) -> bytes:
        """Stored bytes in the version of the request."""
        kind = self._by_webhook(target)
        if kind is None or self.conversion is None:
            return body
        objects = [msgspec.json.decode(body)]
        [made] = await self.conversion.objects(kind, objects, kind.versions[0], target.version)
        return msgspec.json.encode(made)

    async def _shown_page(self, target: RequestInfo, page: Page) -> Page:
        convert = self._convert(target)
        return page if convert is None else msgspec.structs.replace(page, records=await convert(page.records))

    async def _stored(self, target: RequestInfo, body: Object, write: Write) -> tuple[Object, Write]:
        """A sent object in the stored version, and the write that says so."""
        kind = self._by_webhook(target)
        if kind is None or self.conversion is None:
            return body, write
        metadata.check_type(kind, target.version, body)
        sent = kind.definition.to_stored(target.version, body)
        sent.setdefault("metadata", {})
        [made] = await self.conversion.objects(kind, [sent], target.version, kind.versions[0])
        typed = {"apiVersion": kind.api_version, "kind": kind.kind, **made}
        return typed, msgspec.structs.replace(write, version=kind.versions[0])

    async def _patched_by_webhook(
        self, kind: CustomKind, target: RequestInfo, type: str, patch: Any, write: Write, patch_check: PatchCheck
    ) -> RequestOutcome:
        """A patch in a version that only a webhook knows: the live object is converted, patched, converted back."""
        registry = self.registry
        for _ in range(CHANGED_TRIES):
            record = registry.find(kind, target.name, target.namespace)
            if record is None and type != "apply":
                raise not_found(kind, target.name)
            live = None
            if record is not None:
                live = msgspec.json.decode(await self._shown(target, record.body))
            patched, warnings = registry.patched(
                kind,
                target.name,
                target.namespace,
                type,
                patch,
                subresource=target.subresource,
                write=write,
                patch_check=patch_check,
                live=live,
            )
            body, storing = await self._stored(target, patched, write)
            if type == "apply":
                storing = msgspec.structs.replace(storing, operation="Apply")
            try:
                if record is None:
                    outcome = await registry.creating(kind, body, target.namespace, storing)
                else:
                    body["metadata"]["resourceVersion"] = str(record.version)
                    outcome = await registry.updating(
                        kind, body, target.name, target.namespace, subresource=target.subresource, write=storing
                    )
            except StatusError as refused:
                if refused.code != 409 or (patched.get("metadata") or {}).get("resourceVersion"):
                    raise
                continue
            outcome.warnings = warnings + outcome.warnings
            return outcome
        raise stale(kind, target.name)

    # ---- bodies and options of writes

    def _body(self, request: HttpRequest, target: RequestInfo) -> Object:
        body = decode_object(request.body, request.headers.get("content-type", ""))
        return from_events_group(body) if target.events_group else body

    def _checked(self, request: HttpRequest, target: RequestInfo, body: Object) -> tuple[Write, list[str]]:
        write = write_of(request, target)
        return write, unknown_fields(target, body, write, request.body)

    async def _patch(self, request: HttpRequest, target: RequestInfo) -> Reply:
        media = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        type = PATCHES.get(media)
        custom = isinstance(target.kind, CustomKind)
        if type is None or (custom and type == "strategic"):
            known = [accepted for accepted, name in PATCHES.items() if not custom or name != "strategic"]
            raise StatusError(
                415,
                "UnsupportedMediaType",
                f"the body of the request was in an unknown format - accepted media types include: {', '.join(known)}",
            )
        write = write_of(request, target)
        if type == "apply" and not request.query.get("fieldManager"):
            raise StatusError(422, "Invalid", "fieldManager: Required value: is required for apply patch")
        if write.force and type != "apply":
            raise StatusError(422, "Invalid", "force: Forbidden: may not be specified for non-apply patch")
        patch = decode(request.body, media)
        if type == "apply" and write.validation == "Strict" and (twice := strict.repeated_in_yaml(request.body)):
            text = "error converting YAML to JSON: yaml: unmarshal errors:"
            raise bad_request(f"error strict decoding YAML: {text}\n  " + "\n  ".join(twice))

        def patch_check(patched: Object, live: Object | None) -> list[str]:
            if type == "apply":
                check_declared(target, patched)
            known = set(known_unknowns(target, live)) if live else set()
            try:
                return unknown_fields(target, patched, write)
            except StatusError:
                fresh = set(known_unknowns(target, patched)) - known
                if known and not fresh:
                    return []
                raise

        if (kind := self._by_webhook(target)) is not None:
            outcome = await self._patched_by_webhook(kind, target, type, patch, write, patch_check)
            return await self._done(request, target, outcome, [])
        outcome = await self.registry.patching(
            target.kind,
            target.name,
            patch,
            target.namespace,
            type=type,
            subresource=target.subresource,
            write=write,
            patch_check=patch_check,
        )
        return await self._done(request, target, outcome, [])

    async def _done(
        self, request: HttpRequest, target: RequestInfo, outcome: RequestOutcome, warnings: list[str]
    ) -> Reply:
        if outcome.body is not None:
            outcome.body = await self._shown(target, outcome.body)
        return outcome_reply(request, target, outcome, warnings, self.registry.clock.now())

    # ---- subresources

    async def _subresource(self, request: HttpRequest, target: RequestInfo) -> Reply | Stream:
        name = target.subresource
        if name in ("exec", "attach", "portforward") and target.kind.kind == "Pod":
            # What also a WebSocket would be refused for is said first: clients come here after that.
            query = [] if name == "portforward" else [("command", request.query.get("command", ""))]
            wanted, host = await self.session(request, query)
            streams.refusing(lambda: host.check(wanted.container) if wanted.container else None)
        if name in _NOT_HERE and target.kind.kind in ("Pod", "Service", "Node"):
            raise StatusError(501, "NotImplemented", _NOT_HERE[name])
        if name not in self.registry.served.subresources(target.kind, target.version):
            raise _no_path()
        method = request.method
        if name in ("status", "ephemeralcontainers", "finalize", "approval"):
            return await self._part(request, target)
        if name == "scale":
            return await self._scale(request, target)
        if name == "log" and method == "GET":
            return self._log(request, target)
        if method != "POST":
            raise StatusError(405, "MethodNotAllowed", f"{method} is not allowed on {name}")
        body = decode_object(request.body, request.headers.get("content-type", ""))
        body = check_types(_BODIES[name], body)
        write = write_of(request, target)
        registry = self.registry
        if name == "binding":
            pod = target.name or (body.get("metadata") or {}).get("name", "")
            return json_reply(await subresources.bind(registry, pod, target.namespace, body, write), 201)
        if name == "eviction":
            options = subresources.eviction_options(body, dry_run=write.dry_run)
            return json_reply(await subresources.evict(registry, target.name, target.namespace, options, write), 201)
        assert name == "token", "the table of kinds names no other subresource"
        account = registry.get(target.kind, target.name, target.namespace)
        return json_reply(registry.tokens.issue(account, body, dry_run=write.dry_run), 201)

    async def _part(self, request: HttpRequest, target: RequestInfo) -> Reply:
        registry = self.registry
        match request.method:
            case "GET" | "HEAD":
                found = registry.get(target.kind, target.name, target.namespace)
                return object_reply(request, target, await self._shown(target, found.body), registry.clock.now())
            case "PUT":
                body = self._body(request, target)
                write, warnings = self._checked(request, target, body)
                body, write = await self._stored(target, body, write)
                outcome = await registry.updating(
                    target.kind, body, target.name, target.namespace, subresource=target.subresource, write=write
                )
                return await self._done(request, target, outcome, warnings)
            case "PATCH":
                return await self._patch(request, target)
        raise StatusError(405, "MethodNotAllowed", f"{request.method} is not allowed on {target.subresource}")

    async def _scale(self, request: HttpRequest, target: RequestInfo) -> Reply:
        record = self.registry.get(target.kind, target.name, target.namespace)
        scale = subresources.scale_of(record, target.version)
        form_of(request.headers.get("accept", ""), tables=False)
        match request.method:
            case "GET" | "HEAD":
                return json_reply(scale)
            case "PUT":
                wanted = decode_object(request.body, request.headers.get("content-type", ""))
                wanted = check_types(_SCALE, wanted)
            case "PATCH":
                media = request.headers.get("content-type", "").partition(";")[0].strip().lower()
                wanted = self._patched_scale(PATCHES.get(media), scale, decode(request.body, media))
            case _:
                raise StatusError(405, "MethodNotAllowed", f"{request.method} is not allowed on scale")
        return json_reply(
            await subresources.set_scale(self.registry, record, wanted, write_of(request, target), target.version)
        )

    def _patched_scale(self, type: str | None, scale: Object, patch: Any) -> Object:
        if type is None:
            raise StatusError(
                415, "UnsupportedMediaType", "a Scale is patched by JSON, merge, strategic or apply patches"
            )
        return subresources.patched_scale(type, scale, patch)

    # ---- sessions

    async def session(self, request: HttpRequest, query: list[tuple[str, str]]) -> tuple[SessionRequest, PodSessions]:
        """What a WebSocket is for, and whoever has the pod. Raises Refused."""
        parts = request.path.split("/")[1:]
        of_core = parts[:2] == ["api", "v1"] and len(parts) > 2
        target = target_of(self.registry.served, "", "v1", parts[2:])[0] if of_core else None
        if target is None or target.kind.kind != "Pod" or target.subresource not in ("exec", "attach", "portforward"):
            raise StatusError(404, "NotFound", "no WebSocket is served here: only exec, attach and portforward of pods")
        wanted = wanted_of(target.subresource, request, query)
        record = self.registry.get(target.kind, target.name, target.namespace)
        pod = record.decode()
        if wanted.verb != "portforward":
            container = _container(pod, target.name, wanted.container)
            wanted = msgspec.structs.replace(wanted, container=container)
        options = streams.options_of(wanted)
        write = write_of(request, target)
        await self.registry.connecting(
            Attributes(target.kind, "CONNECT", target.namespace, target.name, options, None, write, target.subresource)
        )
        if (pod.get("status") or {}).get("phase") in FINISHED:
            raise bad_request(
                f"cannot exec into a container in a completed pod; current phase is {pod['status']['phase']}"
            )
        sessions = self.registry.sessions.of(target.namespace, target.name)
        if sessions is None:
            if not pod["spec"].get("nodeName"):
                raise bad_request(f"pod {target.name} does not have a host assigned")
            raise bad_request(f"the node {pod['spec']['nodeName']} of pod {target.name} offers no {wanted.verb}")
        return wanted, sessions

    # ---- logs

    def _log(self, request: HttpRequest, target: RequestInfo) -> Stream:
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
        options = LogOptions(
            container,
            follow=request.flag("follow"),
            previous=request.flag("previous"),
            timestamps=request.flag("timestamps"),
            tail_lines=request.number("tailLines"),
            since_s=None if since_s is None else float(since_s),
            limit_bytes=request.number("limitBytes"),
        )
        return Stream(source(options), _nothing, b"text/plain", may_fail=True)


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


def _legacy(served: Served, path: str) -> Object:
    parts = path.split("/")[1:]
    if parts == ["api"]:
        return discovery.legacy_versions()
    if parts == ["apis"]:
        return discovery.legacy_groups(served)
    known = served.groups()
    if parts == ["api", "v1"]:
        return discovery.legacy_resources(served, "", "v1")
    if len(parts) in (2, 3) and parts[0] == "apis" and parts[1] in known:
        if len(parts) == 2:
            return discovery.legacy_group(served, parts[1])
        if parts[2] in known[parts[1]]:
            return discovery.legacy_resources(served, parts[1], parts[2])
    raise _no_path()


def _no_path() -> StatusError:
    return StatusError(404, "NotFound", NO_RESOURCE)
