"""An API server that refuses, is overloaded, breaks or hangs: each daemon says so once, is not ready, asks
less and less often, and goes on by itself afterwards."""

from __future__ import annotations

import asyncio
import logging
import shutil
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import yaml
from aiohttp import web

from dragoman.cli import output, shell
from dragoman.cli.main import main

STEP_S, STEPS = 0.5, 600
"""Five minutes of the daemon's time, in steps so small that a loop without back-off shows."""
TRIES = 24
"""Of one watch within that time: waits of 0.1 s doubled up to 30 s."""
LEASE_TRIES = 120


def refusing(code: int, **headers: str) -> Callable[[web.Request], Awaitable[web.Response]]:
    async def answer(request: web.Request) -> web.Response:
        body = {"kind": "Status", "status": "Failure", "code": code, "message": f"no: {code}"}
        return web.json_response(body, status=code, headers=headers)

    return answer


async def hanging(request: web.Request) -> web.Response:
    await asyncio.sleep(3600)
    raise AssertionError


async def html(request: web.Request) -> web.Response:
    return web.Response(text="<html><title>Bad gateway</title></html>", content_type="text/html", status=502)


ANSWERS = {
    "forbidden": refusing(403),
    "unauthorized": refusing(401),
    "too many": refusing(429),
    "too many, with a wait": refusing(429, **{"Retry-After": "7"}),
    "broken": refusing(500),
    "unavailable": refusing(503),
    "slow": hanging,
    "a page": html,
}
DAEMONS = {
    "scheduler": ["scheduler"],
    "controllers": ["controllers", "--controllers", "claims,taints"],
    "exporter": ["exporter", "--listen", "127.0.0.1:0"],
    "explain": ["explain", "--watch"],
    "driver": ["driver", "example", "--node-name", "n"],
}


class Lines(logging.Handler):
    def __init__(self) -> None:
        super().__init__(logging.INFO)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(f"{record.getMessage()} {getattr(record, 'fields', {})}")

    def having(self, text: str) -> list[str]:
        return [line for line in self.lines if text in line]


class Daemon:
    """One daemon of the command line in this process, whose clock the test moves."""

    def __init__(self, bench: Any, url: str, log: Lines) -> None:
        self.bench, self.url, self.log = bench, url, log

    async def asked(self, path: str) -> tuple[int, str]:
        async with aiohttp.ClientSession() as session, session.get(self.url + path) as response:
            return response.status, await response.text()

    async def is_ready(self) -> bool:
        return (await self.asked("/readyz"))[0] == 200

    async def pass_time(self) -> int:
        """Five minutes of the daemon's time; the requests it made."""
        before = len(self.bench.server.requests)
        for _ in range(STEPS):
            self.bench.clock.advance(STEP_S)
            await asyncio.sleep(0.004)
        return len(self.bench.server.requests) - before


@pytest.fixture
def started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Any:
    @asynccontextmanager
    async def start(bench: Any, argv: list[str]) -> AsyncIterator[Daemon]:
        config = tmp_path / "kubeconfig"
        cluster = {"name": "c", "cluster": {"server": bench.server.url}}
        user = {"name": "u", "user": {"token": "t"}}
        context = {"name": "x", "context": {"cluster": "c", "user": "u"}}
        parts = {"clusters": [cluster], "users": [user], "contexts": [context], "current-context": "x"}
        config.write_text(yaml.safe_dump({"apiVersion": "v1", "kind": "Config", **parts}))
        if argv[0] == "driver":
            root = Path(tempfile.mkdtemp(prefix="k"))  # short: it holds sockets
            request.addfinalizer(lambda: shutil.rmtree(root))
            (root / "plugins_registry").mkdir(parents=True)
            argv = [*argv, "--root-dir", str(root)]
        made: list[Any] = []
        said: list[str] = []
        monkeypatch.setattr(shell, "run", lambda args, work: made.append((args, work)) or 0)
        monkeypatch.setattr(shell, "Clock", lambda: bench.clock)
        monkeypatch.setattr(output, "say", said.append)
        assert main([*argv, "--kubeconfig", str(config), "--request-timeout", "1s"]) == 0
        log = Lines()
        logging.getLogger("dragoman").addHandler(log)
        stop = asyncio.Event()
        serving = asyncio.ensure_future(shell._serve(*made[0], stop))
        try:
            await bench.until(lambda: serving.done() or any("http" in line for line in said))
            if serving.done():
                await serving
            yield Daemon(bench, said[-1].split()[-1], log)
        finally:
            logging.getLogger("dragoman").removeHandler(log)
            bench.server.always = None
            stop.set()
            serving.cancel()
            await asyncio.wait([serving])

    return start


def put_node(bench: Any) -> None:
    bench.server.put("nodes", {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}})


def watches(bench: Any) -> int:
    return len({path for _, path, query, *_ in bench.server.requests if query.get("watch")})


CASES = [("scheduler", answer) for answer in ANSWERS]
CASES += [(daemon, answer) for daemon in DAEMONS if daemon != "scheduler" for answer in ("forbidden", "broken")]


@pytest.mark.parametrize(("name", "answer"), CASES)
def test_an_outage_is_said_once_and_waited_out(run: Any, started: Any, name: str, answer: str) -> None:
    async def body(t: Any) -> None:
        put_node(t)
        async with started(t, DAEMONS[name]) as daemon:
            if name == "driver":  # no kubelet here: it is ready but for that
                await t.until(lambda: watches(t) > 0)
            else:
                await t.until(daemon.is_ready)
            followed = watches(t)
            daemon.log.lines.clear()
            t.server.always = ANSWERS[answer]
            t.server.drop_watches()
            await t.until(lambda: daemon.log.having("cannot follow"))
            requests = await daemon.pass_time()
            assert requests <= followed * TRIES + LEASE_TRIES
            code, text = await daemon.asked("/readyz")
            assert code == 503
            assert "cannot follow" in text
            assert (await daemon.asked("/livez"))[0] == 200
            assert len(daemon.log.having("cannot follow")) == 1
            assert len(daemon.log.lines) <= 12, "\n".join(daemon.log.lines)
            t.server.always = None

            async def pass_a_minute() -> None:
                t.clock.advance(10)

            if name != "driver":
                await t.until(daemon.is_ready, meanwhile=pass_a_minute)
            else:
                await t.until(lambda: daemon.log.having("followed again"), meanwhile=pass_a_minute)

    run(body)


@pytest.mark.parametrize("name", DAEMONS)
@pytest.mark.parametrize("answer", ["forbidden", "too many"])
def test_one_started_meanwhile_waits_and_says_why(run: Any, started: Any, name: str, answer: str) -> None:
    async def body(t: Any) -> None:
        put_node(t)
        t.server.always = ANSWERS[answer]
        async with started(t, DAEMONS[name]) as daemon:
            code = {"forbidden": 403, "too many": 429}[answer]

            async def says_why() -> bool:
                status, text = await daemon.asked("/readyz")
                return status == 503 and f"no: {code}" in text

            await t.until(says_why)
            assert await daemon.pass_time() <= 14 * TRIES + LEASE_TRIES
            assert (await daemon.asked("/livez"))[0] == 200
            assert len(daemon.log.lines) <= 12, "\n".join(daemon.log.lines)
            t.server.always = None

            async def pass_a_minute() -> None:
                t.clock.advance(60)

            if name != "driver":
                await t.until(daemon.is_ready, meanwhile=pass_a_minute)

    run(body)


def test_a_standby_is_ready_and_one_without_its_lease_is_not(run: Any, started: Any) -> None:
    async def body(t: Any) -> None:
        spec = {"holderIdentity": "another", "leaseDurationSeconds": 1000, "renewTime": "2026-01-01T00:00:00.000000Z"}
        t.server.put("leases", {"metadata": {"name": "dragoman-scheduler", "namespace": "kube-system"}, "spec": spec})
        async with started(t, DAEMONS["scheduler"]) as daemon:
            await t.until(daemon.is_ready)

            async def no_lease(request: web.Request) -> web.Response:
                return await refusing(403)(request)

            t.server.always = no_lease

            async def says_lease() -> bool:
                t.clock.advance(2)
                return "lease: " in (await daemon.asked("/readyz"))[1]

            await t.until(says_lease)
            assert len(daemon.log.having("lease not taken")) == 1

    run(body)
