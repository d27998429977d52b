"""A tiny API server on 127.0.0.1 for the transport's tests: enough to list, watch, write, and misbehave."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any, TypeVar

import pytest
from aiohttp import web

from dragoman.api.kinds import BY_PLURAL, Kind
from dragoman.cluster.cache import merged
from dragoman.cluster.http import HttpClient
from dragoman.cluster.kubeconfig import Access
from dragoman.runtime.clock import Clock
from dragoman.runtime.entropy import Entropy
from dragoman.testing.wait import until

Object = dict[str, Any]
T = TypeVar("T")


class TinyServer:
    """Objects in memory, a log of events, and `answers` to give instead of the right ones."""

    def __init__(self) -> None:
        self.url = ""
        self.version = 10
        self.oldest = 0
        self.objects: dict[tuple[str, str, str], Object] = {}
        self.events: list[tuple[int, int, str, str, Object]] = []
        self.logged = 0
        self.requests: list[tuple[str, str, dict[str, str], Any, dict[str, str]]] = []
        self.answers: list[Callable[[web.Request], web.Response | None]] = []
        self.always: Callable[[web.Request], Awaitable[web.Response]] | None = None
        self.moved = asyncio.Event()
        self.served = {"resource.k8s.io": ["v1"], "scheduling.k8s.io": ["v1beta1"]}
        self.page_end: int | None = None
        self.streams = 0

    # ---- objects

    def put(self, plural: str, obj: Object) -> Object:
        self.version += 1
        meta = obj["metadata"]
        key = (plural, meta.get("namespace", ""), meta["name"])
        type_ = "MODIFIED" if key in self.objects else "ADDED"
        meta.setdefault("uid", f"uid-{self.version}")
        meta["resourceVersion"] = str(self.version)
        self.objects[key] = obj
        self._log(type_, plural, obj)
        return obj

    def remove(self, plural: str, namespace: str, name: str) -> None:
        self.version += 1
        obj = self.objects.pop((plural, namespace, name))
        obj = {**obj, "metadata": {**obj["metadata"], "resourceVersion": str(self.version)}}
        self._log("DELETED", plural, obj)

    def bookmark(self, plural: str) -> None:
        self.version += 1
        self._log("BOOKMARK", plural, {"metadata": {"resourceVersion": str(self.version)}})

    def _log(self, type_: str, plural: str, obj: Object) -> None:
        self.logged += 1
        self.events.append((self.logged, self.version, type_, plural, json.loads(json.dumps(obj))))
        moved, self.moved = self.moved, asyncio.Event()
        moved.set()

    def forget_history(self) -> None:
        self.oldest = self.version

    def backup(self) -> tuple[int, str]:
        return self.version, json.dumps([[list(key), obj] for key, obj in self.objects.items()])

    def restore(self, kept: tuple[int, str]) -> None:
        """As an API server whose etcd was restored: older versions and objects, the old history."""
        self.version, objects = kept[0], json.loads(kept[1])
        self.objects = {tuple(key): obj for key, obj in objects}
        self.events = [event for event in self.events if event[1] <= self.version]

    # ---- requests

    async def answer(self, request: web.Request) -> web.StreamResponse:
        body = json.loads(raw) if (raw := await request.read()) else None
        self.requests.append((request.method, request.path, dict(request.query), body, dict(request.headers)))
        if self.always is not None:
            return await self.always(request)
        for answer in list(self.answers):
            response = answer(request)
            if response is not None:
                self.answers.remove(answer)
                return response
        parts = request.path.strip("/").split("/")
        group, parts = ("", parts[2:]) if parts[0] == "api" else (parts[1], parts[2:])
        if group and not parts:
            return web.json_response({"versions": [{"version": v} for v in self.served[group]]})
        if group:
            version, parts = parts[0], parts[1:]
            if not parts:
                names = [plural for g, plural in BY_PLURAL if g == group]
                return web.json_response({"version": version, "resources": [{"name": n} for n in names]})
        namespace = ""
        if parts[0] == "namespaces" and len(parts) > 2:
            namespace, parts = parts[1], parts[2:]
        kind = BY_PLURAL[group, parts[0]]
        return await self._object(request, kind, namespace, parts[1:], body)

    async def _object(
        self, request: web.Request, kind: Kind, namespace: str, rest: list[str], body: Any
    ) -> web.StreamResponse:
        if not rest:
            if request.method == "POST":
                meta = body["metadata"]
                meta.setdefault("name", meta.get("generateName", "") + "xxxxx")
                if namespace:
                    meta["namespace"] = namespace
                if (kind.plural, namespace, meta["name"]) in self.objects:
                    return status(409, "AlreadyExists", f'{kind.plural} "{meta["name"]}" already exists')
                return web.json_response(self.put(kind.plural, body), status=201)
            if request.query.get("watch"):
                return await self._watch(request, kind)
            return self._list(request, kind, namespace)
        if request.method == "POST":
            if rest[1] == "binding":
                pod = self.objects[kind.plural, namespace, rest[0]]
                self.put(kind.plural, {**pod, "spec": {**pod.get("spec", {}), "nodeName": body["target"]["name"]}})
            return web.json_response({"kind": "Status", "status": "Success"}, status=201)
        found = self.objects.get((kind.plural, namespace, rest[0]))
        if found is None:
            return status(404, "NotFound", f'{kind.plural} "{rest[0]}" not found')
        if request.method == "DELETE":
            wanted = ((body or {}).get("preconditions") or {}).get("uid")
            if wanted and wanted != found["metadata"]["uid"]:
                return status(409, "Conflict", "the UID in the precondition does not match")
            self.remove(kind.plural, namespace, rest[0])
            return web.json_response({"kind": "Status", "status": "Success"})
        if request.method in ("PATCH", "PUT"):
            meta = body.get("metadata", {}) if isinstance(body, dict) else {}
            for field in ("uid", "resourceVersion"):
                if field in meta and meta[field] != found["metadata"][field]:
                    return status(409, "Conflict", f"{field} has changed")
            new = merged(found, body) if request.method == "PATCH" else body
            return web.json_response(self.put(kind.plural, json.loads(json.dumps(new))))
        return web.json_response(found)

    def _list(self, request: web.Request, kind: Kind, namespace: str) -> web.Response:
        items = [
            obj
            for (plural, ns, _), obj in sorted(self.objects.items())
            if plural == kind.plural and namespace in ("", ns)
        ]
        start = int(request.query.get("continue", 0))
        end = start + min(int(request.query.get("limit", 500)), self.page_end or 500)
        meta = {"resourceVersion": str(self.version)}
        if end < len(items):
            meta["continue"] = str(end)
        return web.json_response({"metadata": meta, "items": items[start:end]})

    async def _watch(self, request: web.Request, kind: Kind) -> web.StreamResponse:
        since = int(request.query["resourceVersion"])
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        await response.prepare(request)
        self.streams += 1
        epoch = self.streams_epoch = getattr(self, "streams_epoch", 0)
        if since < self.oldest:
            gone = {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old resource version"}
            await response.write(json.dumps({"type": "ERROR", "object": gone}).encode() + b"\n")
            return response
        sent = max((number for number, version, *_ in self.events if version <= since), default=0)
        while epoch == self.streams_epoch:
            moved = self.moved
            for number, _version, type_, plural, obj in list(self.events):
                if number > sent and plural == kind.plural:
                    line = json.dumps({"type": type_, "object": obj}).encode() + b"\n"
                    half = len(line) // 2  # lines arrive in pieces
                    await response.write(line[:half])
                    await response.write(line[half:])
                sent = max(sent, number)
            await moved.wait()
        return response

    def drop_watches(self) -> None:
        self.streams_epoch = getattr(self, "streams_epoch", 0) + 1
        moved, self.moved = self.moved, asyncio.Event()
        moved.set()


def status(code: int, reason: str, message: str, **more: Any) -> web.Response:
    body = {"kind": "Status", "status": "Failure", "code": code, "reason": reason, "message": message, **more}
    return web.json_response(body, status=code)


@asynccontextmanager
async def serving() -> AsyncIterator[TinyServer]:
    server = TinyServer()
    app = web.Application(client_max_size=1 << 26)
    app.router.add_route("*", "/{rest:.*}", server.answer)
    runner = web.AppRunner(app, shutdown_timeout=0.01)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    host, port = runner.addresses[0][:2]
    server.url = f"http://{host}:{port}"
    try:
        yield server
    finally:
        server.drop_watches()
        await runner.cleanup()


class Bench:
    """What a test gets: a server, a client of it, a clock, and `until`."""

    def __init__(self, server: TinyServer) -> None:
        self.server = server
        self.clock = Clock()
        self.entropy = Entropy(1)
        self.client = HttpClient(Access(server=server.url, token="secret"), self.clock, self.entropy)
        self.until = until
        self.status = status


Run = Callable[[Callable[[Bench], Awaitable[T]]], T]


@pytest.fixture
def run() -> Callable[[Callable[[Bench], Coroutine[Any, Any, Any]]], Any]:
    """Run a test body against a server of its own."""

    def call(body: Callable[[Bench], Coroutine[Any, Any, Any]]) -> Any:
        async def main() -> Any:
            async with serving() as server:
                bench = Bench(server)
                try:
                    return await body(bench)
                finally:
                    await bench.client.close()

        return asyncio.run(main())

    return call
