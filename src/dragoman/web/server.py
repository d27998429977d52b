"""How does the page get its files and its JSON? HTTP on loopback; who may ask is `access`, what is answered the modules
beside this one.

    async with serving(source, settings, clock, entropy) as page:
        page.address        # with the one-time token

Answers that take long are made in one thread of their own, one after the other, and kept for as long as the state is
the same. It writes to a cluster only through `actions`, where there are some.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress
from datetime import datetime
from importlib.resources import files as package_files
from typing import Any, TypeVar

import msgspec
from aiohttp import web

from dragoman.api.gates import DEFAULTS, Gates
from dragoman.errors import Denied, DragomanError, Forbidden, Invalid, NotFound
from dragoman.explain.about import ExplainInput, about
from dragoman.known_drivers import NONE_KNOWN, KnownDrivers
from dragoman.lint.linter import LintTarget
from dragoman.runtime.clock import Clock
from dragoman.runtime.entropy import Entropy
from dragoman.runtime.log import get
from dragoman.runtime.tasks import report
from dragoman.schedule.cycle import is_waiting
from dragoman.schedule.units import SchedulingContext
from dragoman.web import editor, timeline
from dragoman.web.access import HEADERS, PageAccess
from dragoman.web.actions import Actions
from dragoman.web.fleet import FilterError, Fleet, FleetFilter
from dragoman.web.state import PageState, StateSource
from dragoman.web.waiting import WaitingObjects, explain_input
from dragoman.whatif.updates import Applied

T = TypeVar("T")

BODY_MAX = 2 * 1024 * 1024
LANGUAGES = ("en", "ko")
TYPES = {
    "html": "text/html",
    "js": "text/javascript",
    "css": "text/css",
    "json": "application/json",
    "svg": "image/svg+xml",
}
BEAT_S = 15.0
"""Between two signs of life on a stream of updates."""
ROWS = 100
EVENTS_S = 2.0
"""So long events that were listed are used again."""

Say = Callable[[str], None]


class PageSettings(msgspec.Struct, frozen=True):
    """port: 0 for any free one. context: of decisions that are asked about. known, applied: for lint."""

    context: SchedulingContext
    port: int = 0
    minor: int = 37
    gates: Gates = DEFAULTS
    known: KnownDrivers = NONE_KNOWN
    applied: Applied | None = None


class WebPage:
    """The page of one source of states."""

    def __init__(
        self,
        source: StateSource,
        settings: PageSettings,
        clock: Clock,
        entropy: Entropy,
        actions: Actions | None,
        now: Callable[[], datetime] | None,
    ) -> None:
        self.source = source
        self.settings = settings
        self.clock = clock
        self.now = now or clock.utc
        self.access = PageAccess(entropy)
        self.actions = actions
        self._quick = ThreadPoolExecutor(1, "page")
        self._slow = ThreadPoolExecutor(1, "page-decisions")
        self._known: dict[str, tuple[int, Any]] = {}
        self._fleet: Fleet | None = None
        self._events: tuple[float, tuple[dict[str, Any], ...]] | None = None

    def close(self) -> None:
        """End the threads."""
        for thread in (self._quick, self._slow):
            thread.shutdown(wait=False, cancel_futures=True)

    async def _kept(self, name: str, state: PageState, make: Callable[[], T], *, slow: bool = False) -> T:
        """What `make` gives, once for each state. In its thread, so that one waits for the other."""

        def once() -> T:
            known = self._known.get(name)
            if known is None or known[0] != state.number:
                known = self._known[name] = (state.number, make())
            found: T = known[1]
            return found

        return await self._apart(once, slow=slow)

    async def _apart(self, make: Callable[[], T], *, slow: bool = False) -> T:
        """In a thread: decisions, which may take long, in another than what is only counted or looked up."""
        return await asyncio.get_running_loop().run_in_executor(self._slow if slow else self._quick, make)

    async def prepare(self) -> None:
        """Makes what a browser asks for first."""
        state = self.source.current
        await self.fleet(state)
        with suppress(DragomanError):
            await self.waiting(state)

    async def fleet(self, state: PageState) -> Fleet:
        """The devices of a state."""

        def make() -> Fleet:
            self._fleet = Fleet(state.snapshot, self._fleet, nodes_known="Node" not in state.hidden)
            return self._fleet

        return await self._kept("fleet", state, make)

    async def events(self) -> tuple[dict[str, Any], ...]:
        """Events, listed a moment ago at most."""
        if self._events is None or self.clock.monotonic() - self._events[0] > EVENTS_S:
            self._events = (self.clock.monotonic(), await self.source.events())
        return self._events[1]

    async def scene(self, state: PageState) -> ExplainInput:
        """What explanations of a state draw on."""
        events = await self.events()
        now, monotonic = self.now(), self.clock.monotonic
        context = self.settings.context
        return await self._kept(
            "scene", state, lambda: explain_input(state, events, context, now, monotonic), slow=True
        )

    async def waiting(self, state: PageState) -> WaitingObjects:
        """Everything that waits in a state."""
        scene = await self.scene(state)
        return await self._kept("waiting", state, lambda: WaitingObjects(scene), slow=True)

    # ---- answers

    async def show_state(self, request: web.Request) -> Any:
        """{"number", "title", "notes", "problem", "actions", "now", "pending"}."""
        state = self.source.current
        waits = await self._kept("pending", state, lambda: sum(map(is_waiting, state.snapshot.pods.values())))
        body: dict[str, Any] = {"number": state.number, "title": self.source.title, "notes": state.notes}
        body |= {"problem": state.problem, "actions": self.actions.offered() if self.actions else None}
        return body | {
            "now": self.now().isoformat(),
            "pending": waits,
            "nodes": sorted(state.snapshot.nodes)[:500],
        }

    async def show_fleet(self, request: web.Request) -> Any:
        """`Fleet.summary`."""
        fleet, wanted = await self.fleet(self.source.current), _filter(request)
        return await self._apart(lambda: fleet.summary(request.query.get("by", ""), wanted))

    async def show_nodes(self, request: web.Request) -> Any:
        """`Fleet.nodes`."""
        fleet, wanted, query = await self.fleet(self.source.current), _filter(request), request.query
        offset, limit = _number(request, "offset", 0), _number(request, "limit", 60)
        group = query.get("group", "")
        return await self._apart(lambda: fleet.nodes(query.get("by", ""), group, wanted, offset, limit))

    async def show_holders(self, request: web.Request) -> Any:
        """`Fleet.holders`, a page of it."""
        fleet, wanted = await self.fleet(self.source.current), _filter(request)
        offset = _number(request, "offset", 0)
        return await self._apart(lambda: fleet.holders(wanted, offset, ROWS))

    async def show_problems(self, request: web.Request) -> Any:
        """`Fleet.problems`, a page of it."""
        fleet = await self.fleet(self.source.current)
        offset = _number(request, "offset", 0)
        return {"total": len(fleet.problems), "problems": fleet.problems[offset : offset + ROWS]}

    async def show_object(self, request: web.Request) -> Any:
        """What `explain` says of a pod, claim, node or device: {"lines", ...}."""
        state = self.source.current
        scene = await self.scene(state)
        kind, name = request.query.get("kind", ""), request.query.get("name", "")
        namespace = request.query.get("namespace", "")
        if kind not in ("pod", "claim", "node", "device"):
            raise Invalid("kind", f"must be pod, claim, node or device, got {kind!r}")
        if kind == "pod":
            waiting = await self.waiting(state)
            with suppress(NotFound):
                found = await self._apart(lambda: waiting.pod((namespace, name)), slow=True)
                answer = await self._apart(lambda: about(scene, kind, name, namespace), slow=True)
                return {"lines": answer.lines, "body": answer.body, "hints": found["hints"]}
        answer = await self._apart(lambda: about(scene, kind, name, namespace), slow=True)
        body: dict[str, Any] = {"lines": answer.lines, "body": answer.body, "hints": []}
        if kind == "node":
            fleet = await self.fleet(state)
            body["node"] = fleet.node(name)
        return body

    async def show_waiting(self, request: web.Request) -> Any:
        """`WaitingObjects.groups`."""
        waiting = await self.waiting(self.source.current)
        return await self._apart(waiting.groups, slow=True)

    async def show_time(self, request: web.Request) -> Any:
        """`timeline.page` and `timeline.latency`."""
        state, events, now = self.source.current, await self.events(), self.now()
        found = await self._kept("time", state, lambda: timeline.entries(state.snapshot, events))
        since_s, offset = float(_number(request, "since", 0)), _number(request, "offset", 0)
        text = request.query.get("text", "")
        part = timeline.page(found, now, since_s=since_s, text=text, offset=offset, limit=100)
        return {**part, "latency": await self._kept("latency", state, lambda: timeline.latency(state.snapshot))}

    async def ask_what_if(self, request: web.Request) -> Any:
        """`WaitingObjects.what_if`."""
        asked, state = await _body(request), self.source.current
        waiting, fleet = await self.waiting(state), await self.fleet(state)
        return await self._apart(lambda: waiting.what_if(asked, fleet), slow=True)

    async def ask_editor(self, request: web.Request) -> Any:
        """`editor.judged`."""
        text, state = str((await _body(request)).get("text", "")), self.source.current
        scene, fleet = await self.scene(state), await self.fleet(state)
        given = self.settings
        target = LintTarget(minor=given.minor, gates=given.gates, known=given.known, applied=given.applied)
        lint_with = await self._kept("lint", state, lambda: editor.linter(scene, target), slow=True)
        return await self._apart(lambda: editor.judged(text, scene, lint_with, fleet, target), slow=True)

    async def act(self, request: web.Request) -> Any:
        """An action, where there are some."""
        if self.actions is None:
            raise Denied("this page is read only; `dragoman up --web` has actions")
        return await self.actions.act(request.match_info["action"], await _body(request))

    async def updates(self, request: web.Request) -> web.StreamResponse:
        """A stream: the number of every new state."""
        answer = web.StreamResponse(headers={**HEADERS, "Content-Type": "text/event-stream"})
        await answer.prepare(request)
        number = _number(request, "number", -1)
        with suppress(ConnectionError):
            while True:
                try:
                    async with asyncio.timeout(BEAT_S):
                        state = await self.source.after(number)
                except TimeoutError:
                    await answer.write(b": still here\n\n")
                    continue
                number = state.number
                await answer.write(f"data: {number}\n\n".encode())
        return answer


def _filter(request: web.Request) -> FleetFilter:
    query = request.query
    return FleetFilter(*(query.get(name, "") for name in ("class", "namespace", "node", "state", "expression")))


def _number(request: web.Request, name: str, default: int) -> int:
    text = request.query.get(name, "")
    if not text:
        return default
    if not text.removeprefix("-").isdecimal() or len(text) > 12:
        raise Invalid(name, f"must be a whole number, got {text!r}")
    return int(text)


async def _body(request: web.Request) -> dict[str, Any]:
    if request.content_type != "application/json":
        raise Invalid("Content-Type", "must be application/json")
    try:
        body = json.loads(await request.text())
    except ValueError as error:
        raise Invalid("body", f"must be JSON: {error}") from None
    if not isinstance(body, dict):
        raise Invalid("body", "must be a JSON object")
    return body


# ---- serving


@asynccontextmanager
async def serving(
    source: StateSource,
    settings: PageSettings,
    clock: Clock,
    entropy: Entropy,
    *,
    actions: Actions | None = None,
    say: Say = lambda text: None,
    now: Callable[[], datetime] | None = None,
) -> AsyncIterator[WebPage]:
    """Serve while the body runs. say: prints a new address when an old one is opened again. now: the cluster's
    time, where that is not the world's. Raises Denied."""
    page = WebPage(source, settings, clock, entropy, actions, now)
    app = web.Application(client_max_size=BODY_MAX, middlewares=[_guarded(page, say)])
    app.add_routes([web.get("/", _file), web.get("/static/{path:.+}", _file), web.get("/api/updates", page.updates)])
    reads = {
        "state": page.show_state,
        "fleet": page.show_fleet,
        "nodes": page.show_nodes,
        "holders": page.show_holders,
        "problems": page.show_problems,
        "object": page.show_object,
        "waiting": page.show_waiting,
        "time": page.show_time,
    }
    app.add_routes([web.get(f"/api/{name}", _answering(make)) for name, make in reads.items()])
    app.add_routes([web.post("/api/whatif", _answering(page.ask_what_if))])
    app.add_routes([web.post("/api/editor", _answering(page.ask_editor))])
    app.add_routes([web.post("/api/actions/{action}", _answering(page.act))])
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.5)
    await runner.setup()
    try:
        try:
            await web.TCPSite(runner, "127.0.0.1", settings.port).start()
        except OSError as error:
            raise Denied(f"port {settings.port} on 127.0.0.1: {error.strerror or error}; choose another one") from None
        page.access.port = runner.addresses[0][1]
        preparing = asyncio.create_task(page.prepare(), name="prepare the page")
        try:
            yield page
        finally:
            preparing.cancel()
            await asyncio.wait([preparing])
            if not preparing.cancelled() and (broke := preparing.exception()) is not None:
                report(get("page"), broke)
    finally:
        page.close()
        await runner.cleanup()


def _answering(make: Callable[[web.Request], Awaitable[Any]]) -> Callable[[web.Request], Awaitable[web.Response]]:
    async def answer(request: web.Request) -> web.Response:
        try:
            return _json(await make(request))
        except FilterError as error:
            return _error(400, str(error), line=error.line, column=error.column)
        except NotFound as error:
            return _error(404, str(error))
        except Invalid as error:
            return _error(400, str(error))
        except (Forbidden, Denied) as error:
            return _error(403, str(error))
        except DragomanError as error:
            return _error(503, str(error))

    return answer


def _json(body: Any, status: int = 200) -> web.Response:
    return web.Response(body=msgspec.json.encode(body), status=status, content_type="application/json")


def _error(status: int, message: str, **place: int) -> web.Response:
    return _json({"error": {"message": message, **place}}, status)


def _guarded(page: WebPage, say: Say) -> Any:
    """Every request: Host, cookie, origin; every answer: its headers."""
    access = page.access

    @web.middleware
    async def guard(request: web.Request, handler: Any) -> web.StreamResponse:
        try:
            answer = await _let_in(request, handler)
        except web.HTTPException as error:
            answer = _error(error.status, error.reason)
        except Exception as error:
            get("page").error("broke", exc=error, path=request.path)
            answer = _error(500, f"the page broke: {type(error).__name__}; please report this")
        if not answer.prepared:
            answer.headers.update(HEADERS)
        return answer

    async def _let_in(request: web.Request, handler: Any) -> web.StreamResponse:
        host = request.headers.get("Host", "")
        if not access.is_host(host):
            return _error(421, "this server answers on loopback only")
        token = request.query.get("token")
        if request.path == "/" and token is not None:
            return _opened(access, token, say)
        if not access.knows(request.cookies):
            text = "This page needs the address that the terminal shows; an address works once."
            return web.Response(text=text, status=401)
        if request.method not in ("GET", "HEAD") and not access.is_ours(host, request.headers):
            return _error(403, "only this page itself may ask for that")
        found: web.StreamResponse = await handler(request)
        return found

    return guard


def _opened(access: PageAccess, token: str, say: Say) -> web.Response:
    """The cookie for the token, and on to the page without it. Not a redirect: a link from another site would reach its
    target without a strict cookie."""
    cookie = access.exchange(token)
    if cookie is None:
        say(f"that address was used before; open the page again: {access.address()}")
        text = "This address was used before. The terminal shows a new one."
        return web.Response(text=text, status=401)
    html = (
        '<!doctype html><meta http-equiv="refresh" content="0;url=/"><link rel="icon" href="/static/icon.svg">'
        '<title>Dragoman</title><a href="/">Dragoman</a>'
    )
    answer = web.Response(text=html, content_type="text/html")
    answer.set_cookie(access.cookie, cookie, httponly=True, samesite="Strict", path="/")
    return answer


async def _file(request: web.Request) -> web.Response:
    """A file of the page; there is nothing else below that path."""
    name = request.match_info.get("path", "index.html")
    parts = name.split("/")
    if any(part in ("", ".", "..") or "\\" in part for part in parts) or parts[-1].rpartition(".")[2] not in TYPES:
        return _error(404, "no such file")
    file = package_files("dragoman.web").joinpath("static", *parts)
    if not file.is_file():
        return _error(404, "no such file")
    return web.Response(body=file.read_bytes(), content_type=TYPES[parts[-1].rpartition(".")[2]], charset="utf-8")
