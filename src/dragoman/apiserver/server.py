"""How is an embedded API server started and ended? Store, certificates, socket, token and kubeconfig put together.

`serving` is the one entry for daemons. It decides nothing about requests.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack, aclosing, asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import msgspec
import uvicorn

from dragoman.api.gates import DEFAULTS, Gates
from dragoman.apiserver import certificates, fields, kubeconfig, signing
from dragoman.apiserver.access.authorizer import AuthorizationMode
from dragoman.apiserver.access.tokens import signing_key
from dragoman.apiserver.app import App
from dragoman.apiserver.bootstrap import bootstrap
from dragoman.apiserver.external.chain import AdmissionChain
from dragoman.apiserver.heads import BoundedHead
from dragoman.apiserver.registry import Registry
from dragoman.apiserver.served import Served
from dragoman.apiserver.store import Store
from dragoman.apiserver.wal import open_store
from dragoman.cluster.kubeconfig import Access
from dragoman.errors import Denied, Invalid
from dragoman.runtime.clock import Clock
from dragoman.runtime.entropy import Entropy
from dragoman.runtime.log import get
from dragoman.runtime.metrics import Metrics
from dragoman.runtime.tasks import LOOP_BACKOFF, supervised

KEEP_ALIVE_S = 120
SWEEP_S = 60.0
BACKLOG = 2048
WS_BYTES = 1024 * 1024


class ServerConfig(msgspec.Struct, frozen=True):
    """port 0: any free one (with data: the same as last time, if free). data None: memory only.

    token "": made once and kept in the data folder. minor: the Kubernetes version to play, 1.minor. runtime_config: API
    versions that are on or off beside the defaults (`served.parse_runtime_config`). authorization: by roles, or
    everything allowed to whoever is authenticated. repair_data: give up what stands behind damage in the log.
    """

    host: str = "127.0.0.1"
    port: int = 0
    data: Path | None = None
    repair_data: bool = False
    token: str = ""
    tls: bool = True
    minor: int = 37
    kubeconfig: Path | None = None
    gates: Gates = DEFAULTS
    runtime_config: dict[str, bool] = {}
    authorization: AuthorizationMode = "rbac"


class Server(msgspec.Struct, frozen=True):
    """A running server."""

    registry: Registry
    app: App
    access: Access


@asynccontextmanager
async def serving(
    config: ServerConfig, clock: Clock, entropy: Entropy, metrics: Metrics | None = None
) -> AsyncIterator[Server]:
    """An API server while the body runs. Raises Denied (port or folder in use), Invalid (damaged folder).

    The kubeconfig, if wanted, is written once requests are answered. metrics: what /metrics shows, with a token.
    """
    with ExitStack() as stack:
        with _plain_errors():
            app, sock, certificate = _prepared(config, clock, entropy, metrics, stack)
        host = f"[{config.host}]" if ":" in config.host else config.host
        url = f"{'https' if config.tls else 'http'}://{host}:{sock.getsockname()[1]}"
        registry = app.registry
        access = Access(url, registry.ca_text.encode() or None, token=app.token)
        chain = AdmissionChain(registry, registry.store, entropy.uuid4, clock.utc)
        registry.external = chain
        app.handlers.conversion = chain.conversion
        async with aclosing(chain), on_socket(app, sock, certificate), _together() as group:
            sweeping = supervised(
                lambda: _sweep(registry), clock=clock, entropy=entropy, backoff=LOOP_BACKOFF, log=get("apiserver")
            )
            sweeper = group.create_task(sweeping, name="apiserver: sweep")
            if config.kubeconfig is not None:
                with _plain_errors():
                    kubeconfig.write(config.kubeconfig, access)
            try:
                yield Server(registry, app, access)
            finally:
                sweeper.cancel()


def _prepared(
    config: ServerConfig, clock: Clock, entropy: Entropy, metrics: Metrics | None, stack: ExitStack
) -> tuple[App, socket.socket, tuple[Path, Path] | None]:
    """All that can be refused, before anything runs."""
    if not 0 <= config.port <= 65535:
        raise Invalid("port", f"must be 0 to 65535, got {config.port}")
    if config.data is not None:
        if config.data.exists() and not config.data.is_dir():
            raise Invalid(str(config.data), "is a file; the state needs a folder")
        config.data.mkdir(parents=True, exist_ok=True, mode=0o700)
    folder = config.data or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="dragoman-")))
    store = _store(config, stack)
    token = config.token or _kept(folder / "token", entropy)
    served = Served(minor=config.minor, gates=config.gates, runtime_config=config.runtime_config)
    tokens_key = signing_key(folder / "sa.key")
    registry = Registry(store, clock, entropy, config.gates, served, mode=config.authorization, key=tokens_key)
    certificate = None
    if config.tls:
        file, key, registry.ca_text = certificates.ensure(folder / "tls", config.host, clock.utc())
        certificate = (file, key)
        signing.follow(registry, signing.Authority(folder / "tls"))
    sock = _listen(config, folder)
    bootstrap(registry, (config.host, sock.getsockname()[1]))
    app = App(registry, token, minor=config.minor, metrics=metrics)
    return app, sock, certificate


@contextmanager
def _plain_errors() -> Iterator[None]:
    """What the system refuses (a folder that is a file, no right to write) in one line that names it."""
    try:
        yield
    except OSError as error:
        raise Denied(f"{error.filename or 'the system refuses'}: {error.strerror or error}") from error


@asynccontextmanager
async def _together() -> AsyncIterator[asyncio.TaskGroup]:
    """A task group from which a single error comes out as it is: callers show it to people."""
    try:
        async with asyncio.TaskGroup() as group:
            yield group
    except BaseExceptionGroup as broken:
        if len(broken.exceptions) == 1:
            raise broken.exceptions[0] from None
        raise


def _store(config: ServerConfig, stack: ExitStack) -> Store:
    if config.data is None:
        return Store(fields.fields_of)
    store, wal = open_store(config.data / "store", fields.fields_of, repair=config.repair_data)
    stack.callback(wal.close)
    return store


def _kept(file: Path, entropy: Entropy) -> str:
    """A secret that is made once."""
    if file.exists() and (known := file.read_text().strip()):
        return known
    made = entropy.token(32)
    file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    certificates.write_private(file, made.encode())
    return made


async def _sweep(registry: Registry) -> None:
    while True:
        await registry.clock.sleep(SWEEP_S)
        registry.sweep()


def _listen(config: ServerConfig, folder: Path) -> socket.socket:
    remembered = folder / "port"
    if config.port == 0 and remembered.exists():
        try:
            return listen(config.host, int(remembered.read_text()))
        except (ValueError, Denied):
            pass  # somebody else has it now: any other will do
    sock = listen(config.host, config.port)
    remembered.write_text(str(sock.getsockname()[1]))
    return sock


def listen(host: str, port: int) -> socket.socket:
    """A listening socket; port 0 takes any free one. Raises Denied where the port cannot be had."""
    # With the protocol named, asyncio switches Nagle's algorithm off; without it every reply waits 40 ms.
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    sock = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        sock.bind((host, port))
        sock.listen(BACKLOG)
    except OSError as error:
        sock.close()
        raise Denied(f"cannot listen on {host}:{port}: {error.strerror}; choose another port or 0") from error
    sock.setblocking(False)
    return sock


class _Uvicorn(uvicorn.Server):
    """uvicorn inside a loop of ours: signals are the daemon's business."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.up = asyncio.Event()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Capture none."""
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Tell when requests are answered."""
        await super().startup(sockets)
        self.up.set()


def _websocket(**arguments: Any) -> asyncio.Protocol:
    """The protocol of one WebSocket. Its tables take as long to build as a cluster's nodes, and few ever open one."""
    from uvicorn.protocols.websockets.wsproto_impl import WSProtocol

    return WSProtocol(**arguments)


@asynccontextmanager
async def on_socket(app: App, sock: socket.socket, certificate: tuple[Path, Path] | None) -> AsyncIterator[None]:
    """Serve an app while the body runs; certificate is (certificate, key), None means plain HTTP."""
    uv = _Uvicorn(
        uvicorn.Config(
            app,
            lifespan="off",
            http=BoundedHead,
            ws=_websocket,  # type: ignore[arg-type]
            ws_max_size=WS_BYTES,
            log_config=None,
            log_level="error",  # it warns of every upgrade that we answer with a Status
            access_log=False,
            server_header=False,
            proxy_headers=False,
            timeout_keep_alive=KEEP_ALIVE_S,
            timeout_graceful_shutdown=2,
            **_tls(certificate),
        )
    )
    async with _together() as group:
        task = group.create_task(uv.serve(sockets=[sock]), name="apiserver: http")
        try:
            await uv.up.wait()
            yield
        finally:
            app.ready = False
            app.handlers.streams.stop()
            uv.should_exit = True
            try:
                # Also after an error of the body: a group would cancel it, and connections would stay open.
                await task
            finally:
                sock.close()


def _tls(certificate: tuple[Path, Path] | None) -> dict[str, Any]:
    if certificate is None:
        return {}

    def context(config: Any, make: Callable[[], ssl.SSLContext]) -> ssl.SSLContext:
        made = make()
        made.minimum_version = ssl.TLSVersion.TLSv1_2
        made.set_alpn_protocols(["http/1.1"])
        # A client may show a certificate of our authority; who shows none is asked for a token.
        made.verify_mode = ssl.CERT_OPTIONAL
        made.load_verify_locations(certificate[0].with_name("ca.crt"))
        return made

    return {"ssl_certfile": certificate[0], "ssl_keyfile": certificate[1], "ssl_context_factory": context}
