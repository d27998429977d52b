"""What does nvidia-imex read, and what does it answer? Its configuration, its peers, its state on a simulated host.

The simulated daemon takes part through files alone: it reads its configuration and /etc/hosts, and shows its state in
a file that it keeps locked while it runs, so that a daemon that was killed is not taken for one that is ready. What can
be wrong with the host stands in another file (`HostState`). Keys and values as in the driver's
templates/compute-domain-daemon-config.tmpl.cfg.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Protocol

import msgspec

from dragoman.node.files import write_atomically
from dragoman.runtime.clock import Clock

CONFIG, TEMPLATE, NODES, STATE = "imexd.cfg", "imexd.cfg.tmpl", "nodes.cfg", "imex-state.json"
ADDRESS = "{{.IMEXCmdBindInterfaceIP}}"
PORT, COMMAND_PORT = 50000, 50005
READY, INITIALIZING, UNAVAILABLE = "READY", "INITIALIZING", "UNAVAILABLE"
START_S = 1.0
"""How long a simulated daemon takes until it is ready."""
CHECK_S = 1.0

_KEYS: Sequence[tuple[str, str]] = (
    ("LOG_LEVEL", "4"),
    ("LOG_FILE_NAME", ""),
    ("LOG_APPEND_TO_LOG", "0"),
    ("LOG_FILE_MAX_SIZE", "1024"),
    ("LOG_MAX_ROTATE_COUNT", "10"),
    ("LOG_USE_SYSLOG", "0"),
    ("STATS_FILE_NAME", "/var/log/nvidia-imex-stats.log"),
    ("DAEMONIZE", "0"),
    ("BIND_INTERFACE_IP", ""),
    ("SERVER_PORT", str(PORT)),
    ("NETWORK_INTERFACE", ""),
    ("IMEX_WAIT_FOR_QUORUM", "RECOVERY"),
    ("IMEX_ENABLE_AUTH_ENCRYPTION", "0"),
    ("IMEX_AUTH_ENCRYPTION_MODE", "SSL_TLS"),
    ("IMEX_AUTH_SOURCE", ""),
    ("IMEX_SERVER_KEY", ""),
    ("IMEX_SERVER_CERT", ""),
    ("IMEX_SERVER_CERT_AUTH", ""),
    ("IMEX_CLIENT_KEY", ""),
    ("IMEX_CLIENT_CERT", ""),
    ("IMEX_CLIENT_CERT_AUTH", ""),
    ("IMEX_SECURITY_TARGET_OVERRIDE", ""),
    ("IMEX_CMD_ENABLED", "1"),
    ("IMEX_CMD_BIND_INTERFACE_IP", ADDRESS),
    ("IMEX_CMD_PORT", str(COMMAND_PORT)),
    ("IMEX_CMD_UNIX_DOMAIN_PATH", ""),
    ("IMEX_NODE_DISCONNECTED_GRACE_TIME", "-1"),
    ("IMEX_NODE_CONFIG_FILE", f"/imexd/{NODES}"),
    ("IMEX_GSS_SERVICE_NAME", "host"),
    ("IMEX_GSS_TIMEOUT_SEC", "30"),
    ("IMEX_GSS_RETRY_INTERVAL_SEC", "5"),
    ("IMEX_GSS_SEC_CONTEXT_LIFETIME_SEC", "-1"),
    ("IMEX_GSS_SHUTDOWN_ON_FAILURE", "0"),
)


def template() -> str:
    """The configuration with a place for the pod's address."""
    return "".join(f"{key}={value}\n" for key, value in _KEYS)


def rendered(text: str, ip: str) -> str:
    """The configuration of one pod."""
    return text.replace(ADDRESS, ip)


def parsed(text: str) -> dict[str, str]:
    """The keys of a configuration."""
    pairs = (line.partition("=") for line in text.splitlines() if line and not line.startswith("#"))
    return {key.strip(): value.strip() for key, _, value in pairs}


# ---- the simulated host


class HostState(msgspec.Struct, frozen=True, rename="camel"):
    """What of a simulated host bears on IMEX.

    service: nvidia-imex.service there: masked (it never starts), or active, and then it has the ports. failure of a
    daemon in a pod: "" works, "never-ready" stays in INITIALIZING, "crash" ends at once. start_s: until it is ready.
    fabric: state of the NVLink fabric as NVML reports it.
    """

    service: str = "masked"
    failure: str = ""
    start_s: float = START_S
    fabric: str = "COMPLETED"
    ready: bool = True
    """Of the host's own service, where it runs."""


def host_state(file: Path) -> HostState:
    """What the file says; a healthy host where there is none."""
    try:
        return msgspec.json.decode(file.read_bytes(), type=HostState)
    except FileNotFoundError:
        return HostState()


def set_host_state(file: Path, state: HostState) -> None:
    """Change the host."""
    file.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(file, msgspec.json.encode(state), durable=False)


# ---- the simulated daemon


class ImexState(msgspec.Struct, frozen=True, rename="camel"):
    """What a running daemon shows. started: how often one was started in this folder; peers: name to address."""

    state: str = INITIALIZING
    started: int = 1
    resolved: int = 0
    peers: dict[str, str] = {}


class Readable(Protocol):
    """Where files are read from: those of a container."""

    def __call__(self, path: str) -> str:
        """The text of a file, "" where there is none."""
        ...


class SimulatedImex:
    """One nvidia-imex process. `run` ends when the process does; its value is the exit code."""

    def __init__(
        self, clock: Clock, read: Readable, folder: Path, host: Path, say: Callable[[str], None], config: str
    ) -> None:
        """folder: of this host, where its state lies. host: the file of the HostState. config: path that it reads."""
        self.clock = clock
        self.read = read
        self.folder = folder
        self.host = host
        self.say = say
        self.config = config
        self._again = asyncio.Event()
        self._resolved = 0

    def resolve_again(self) -> None:
        """SIGUSR1."""
        self._again.set()

    async def run(self) -> int:
        """Until it fails or is cancelled."""
        keys = parsed(self.read(self.config))
        if not keys:
            self.say(f"nvidia-imex: cannot read {self.config}")
            return 1
        file = self.folder / STATE
        before = _shown(file)
        descriptor = os.open(self.folder / f"{STATE}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                self.say(f"nvidia-imex: cannot bind port {keys.get('SERVER_PORT', PORT)}: address in use")
                return 1
            return await self._serve(file, keys, (before.started if before else 0) + 1)
        finally:
            os.close(descriptor)

    async def _serve(self, file: Path, keys: Mapping[str, str], started: int) -> int:
        if fault := self._fault():
            self.say(f"nvidia-imex: {fault}")
            return 1
        self._show(file, ImexState(INITIALIZING, started))
        began = self.clock.monotonic()
        state = INITIALIZING
        while True:
            host = host_state(self.host)
            if fault := self._fault():
                self.say(f"nvidia-imex: {fault}")
                return 1
            late = self.clock.monotonic() - began < host.start_s
            now = INITIALIZING if late or host.failure == "never-ready" else READY
            if now != state or self._again.is_set() or not self._resolved:
                state = now
                self._again.clear()
                self._resolved += 1
                peers = self._peers(keys.get("IMEX_NODE_CONFIG_FILE", ""))
                self._show(file, ImexState(state, started, self._resolved, peers))
            wait_s = min(CHECK_S, max(0.05, host.start_s / 4)) if late else CHECK_S * 5
            try:
                await self.clock.within(wait_s, self._again.wait())
            except TimeoutError:
                continue

    def _fault(self) -> str:
        host = host_state(self.host)
        if host.service == "active":
            return f"cannot bind port {PORT}: address in use (nvidia-imex.service runs on the host; mask it)"
        return "failed to initialise (simulated)" if host.failure == "crash" else ""

    def _peers(self, nodes_file: str) -> dict[str, str]:
        """Names (or addresses) of the node list with the addresses that they resolve to."""
        hosts: dict[str, str] = {}
        for line in self.read("/etc/hosts").splitlines():
            address, *names = line.split()
            hosts |= dict.fromkeys(names, address)
        found = {}
        for name in self.read(nodes_file).split():
            address = name if name[:1].isdigit() else hosts.get(name, "")
            if address:
                found[name] = address
        return found

    def _show(self, file: Path, state: ImexState) -> None:
        write_atomically(file, msgspec.json.encode(state), durable=False)


def _shown(file: Path) -> ImexState | None:
    try:
        return msgspec.json.decode(file.read_bytes(), type=ImexState)
    except FileNotFoundError:
        return None


def query(folder: Path) -> ImexState:
    """What `nvidia-imex-ctl` learns of the daemon in that folder; UNAVAILABLE where none runs."""
    state = _shown(folder / STATE)
    if state is None:
        return ImexState(UNAVAILABLE, 0)
    try:
        descriptor = os.open(folder / f"{STATE}.lock", os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return ImexState(UNAVAILABLE, 0)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return state
    finally:
        os.close(descriptor)
    return ImexState(UNAVAILABLE, state.started)
