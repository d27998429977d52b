"""Is this daemon alive, ready, and what has it counted? /livez, /readyz and /metrics over plain HTTP, no token.

Serves what it is given; decides nothing.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

from aiohttp import web

from dragoman.errors import Denied, Invalid
from dragoman.runtime.metrics import Metrics


@asynccontextmanager
async def listening(
    address: str,
    metrics: Metrics,
    problems: Callable[[], Sequence[str]],
    is_live: Callable[[], Awaitable[bool]],
    reports: Mapping[str, Callable[[], Mapping[str, Any]]] | None = None,
) -> AsyncIterator[str]:
    """Serve at HOST:PORT (port 0: any free one) while the body runs; gives the URL. Raises Invalid, Denied.

    problems: why the daemon is not ready, one line each; none: it is.
    reports: more paths, each with what makes its JSON.
    """
    host, _, port = address.rpartition(":")
    if not port.isdecimal():
        raise Invalid("--listen", f"must be HOST:PORT, got {address!r}")

    async def live(request: web.Request) -> web.Response:
        return web.Response(text="ok") if await is_live() else web.Response(text="does not serve", status=503)

    async def ready(request: web.Request) -> web.Response:
        found = problems()
        return web.Response(text="\n".join(found), status=503) if found else web.Response(text="ok")

    async def counted(request: web.Request) -> web.Response:
        return web.Response(body=metrics.text(), headers={"Content-Type": "text/plain; version=0.0.4; charset=utf-8"})

    async def report(request: web.Request) -> web.Response:
        return web.json_response((reports or {})[request.path]())

    app = web.Application()
    app.add_routes([web.get(path, report) for path in reports or ()])
    app.add_routes([web.get("/livez", live), web.get("/readyz", ready), web.get("/metrics", counted)])
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    try:
        site = web.TCPSite(runner, host.strip("[]") or "127.0.0.1", int(port))
        try:
            await site.start()
        except OSError as error:
            raise Denied(f"--listen {address}: {error.strerror or error}; choose another port or 0") from None
        bound = runner.addresses[0]
        yield f"http://{bound[0]}:{bound[1]}"
    finally:
        await runner.cleanup()
