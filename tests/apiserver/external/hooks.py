"""Webhooks on loopback over TLS, and a registry that asks them."""

from __future__ import annotations

import asyncio
import base64
import json
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from aiohttp import web

from dragoman.apiserver import certificates
from dragoman.apiserver.bootstrap import in_memory
from dragoman.apiserver.external.chain import AdmissionChain
from dragoman.apiserver.registry import Registry
from dragoman.runtime.clock import Clock
from dragoman.runtime.entropy import Entropy

Reply = Callable[[dict[str, Any]], Any]
"""What a webhook makes of a request: a response without uid, or a whole web.Response."""


class Hooks:
    """A server of webhooks by path; `seen` are the requests that came."""

    def __init__(self) -> None:
        self.replies: dict[str, Reply] = {}
        self.seen: list[dict[str, Any]] = []
        self.port = 0
        self.ca = ""

    async def answer(self, request: web.Request) -> web.StreamResponse:
        """One AdmissionReview."""
        review = json.loads(await request.read())
        self.seen.append(review["request"])
        made = self.replies[request.path](review["request"])
        if asyncio.iscoroutine(made):
            made = await made
        if isinstance(made, web.StreamResponse):
            return made
        response = {"uid": review["request"]["uid"], **made}
        return web.json_response({"apiVersion": review["apiVersion"], "kind": "AdmissionReview", "response": response})

    def client(self, path: str) -> dict[str, Any]:
        """A clientConfig by URL."""
        return {"url": f"https://127.0.0.1:{self.port}{path}", "caBundle": self.ca}


@asynccontextmanager
async def hooks(folder: Path, host: str = "127.0.0.1") -> AsyncIterator[Hooks]:
    """The server while the body runs; its certificate is for loopback and `host`."""
    found = Hooks()
    certificate, key, ca = certificates.ensure(folder, host, datetime.now(UTC))
    found.ca = base64.b64encode(ca.encode()).decode()
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificate, key)
    app = web.Application()
    app.router.add_post("/{path:.*}", found.answer)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context)
    await site.start()
    found.port = runner.addresses[0][1]
    try:
        yield found
    finally:
        await runner.cleanup()


@asynccontextmanager
async def asking() -> AsyncIterator[Registry]:
    """A registry with the whole chain."""
    registry = in_memory(Clock(), Entropy(1))
    chain = AdmissionChain(registry, registry.store, registry.entropy.uuid4, registry.clock.utc)
    registry.external = chain
    try:
        yield registry
    finally:
        await chain.aclose()


def webhook(name: str, client: dict[str, Any], **fields: Any) -> dict[str, Any]:
    """One webhook over config maps, unless it says otherwise."""
    rule = {"operations": ["*"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"]}
    return {
        "name": name,
        "clientConfig": client,
        "rules": [rule],
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
        **fields,
    }


def patch(*operations: dict[str, Any]) -> dict[str, Any]:
    """A yes with a patch."""
    text = base64.b64encode(json.dumps(list(operations)).encode()).decode()
    return {"allowed": True, "patchType": "JSONPatch", "patch": text}


def add(path: str, value: Any) -> dict[str, Any]:
    """An operation."""
    return {"op": "add", "path": path, "value": value}
