"""What runs on this node? Sandboxes and containers: those that only last, and those whose command an engine runs.

Sandboxes and containers live in one small file for each pod, so that they survive the node agent, as real ones
survive the kubelet. Of a container without a command that an engine knows, it is known at the start how long it runs
and how it ends; others end when their command does (`programs`). It decides nothing about pods.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from dragoman.apiserver.sessions import OutputListener
from dragoman.errors import NotFound
from dragoman.kubelet.isolation import remove, write_volumes
from dragoman.kubelet.podnetwork import PodNetwork
from dragoman.kubelet.processes import LocalCommand
from dragoman.kubelet.programs import Place, Running, SimulatedCommand
from dragoman.node.files import write_atomically
from dragoman.runtime.clock import Clock

EXIT_FAILED = 1
EXIT_KILLED = 137
EXIT_TERMINATED = 143
EXIT_LOST = 255
LOG_BYTES = 1024 * 1024
"""How much of a container's output is kept; the oldest goes first."""
MESSAGE_BYTES, MESSAGE_LINES = 2048, 80


class Said(msgspec.Struct):
    """A piece of a container's output, and when it was written."""

    at: float
    text: str


class ContainerRun(msgspec.Struct):
    """One run of a container. ends_at None: until it is stopped, or its command ends. streak: short or failed runs in a
    row before it. scripted: an engine runs its command. local: as a process of this machine."""

    id: str
    name: str
    image: str
    attempt: int
    started_at: float
    ends_at: float | None = None
    exit_code: int = 0
    reason: str = ""
    message: str = ""
    streak: int = 0
    log: list[Said] = []
    scripted: bool = False
    stopping: bool = False
    local: bool = False

    def is_running(self, now: float) -> bool:
        """Whether it has not ended yet."""
        return self.ends_at is None or now < self.ends_at

    @property
    def text(self) -> str:
        """Its whole log."""
        return "".join(resource_slice.text for resource_slice in self.log)

    def say(self, at: float, text: str) -> None:
        """Add to the log."""
        last = self.log[-1] if self.log else None
        if last is not None and last.at == at and len(last.text) < 4096:
            last.text += text
        else:
            self.log.append(Said(at, text))
        if len(self.log) % 64 == 0 or len(text) > 4096:
            size = sum(len(resource_slice.text) for resource_slice in self.log)
            while size > LOG_BYTES and len(self.log) > 1:
                size -= len(self.log.pop(0).text)


class Start(msgspec.Struct):
    """A run with what it takes: where, which command, whether somebody may write to it. exit_code: whatever its own."""

    run: ContainerRun
    place: Place
    command: tuple[str, ...] = ()
    stdin: bool = False
    message_from_log: bool = False
    exit_code: int | None = None
    memory_bytes: int = 0
    own_network: bool = False
    api_port: int = 0

    @property
    def local(self) -> bool:
        """Whether the command runs as a process of this machine."""
        return self.run.local

    @property
    def shares_ports(self) -> bool:
        """Whether it listens in the machine's own network."""
        return self.run.local and not self.own_network


class Sandbox(msgspec.Struct):
    """A pod's place on the node. alive is False once its network is gone (end, reboot)."""

    uid: str
    namespace: str
    name: str
    ip: str
    created_at: float
    alive: bool = True
    current: dict[str, ContainerRun] = {}
    previous: dict[str, ContainerRun] = {}


class _Boot(msgspec.Struct):
    boot_id: str


class SimulatedRuntime:
    """All sandboxes of one node; ends are facts of the clock, so nothing has to run for a container to end."""

    def __init__(self, folder: Path, clock: Clock, *, boot_id: str) -> None:
        self.folder = folder
        self.clock = clock
        self.boot_id = boot_id
        self.sandboxes: dict[str, Sandbox] = {}
        self.places: dict[tuple[str, str], Place] = {}
        self.wake: Callable[[str], None] = lambda uid: None
        """Called with a pod's uid when one of its commands has ended."""
        self._commands: dict[tuple[str, str], Running] = {}
        self._networks: dict[str, PodNetwork] = {}
        self._listeners: dict[tuple[str, str], dict[object, tuple[OutputListener, Callable[[int], None]]]] = {}

    def load(self) -> None:
        """Find what ran before this process; after a reboot nothing does."""
        self.folder.mkdir(parents=True, exist_ok=True)
        boot = self.folder / "boot"
        try:
            rebooted = msgspec.json.decode(boot.read_bytes(), type=_Boot).boot_id != self.boot_id
        except (FileNotFoundError, msgspec.MsgspecError):
            rebooted = True
        now = self.clock.now()
        for path in sorted(self.folder.glob("*.json")):
            try:
                box = msgspec.json.decode(path.read_bytes(), type=Sandbox)
            except msgspec.MsgspecError:
                # A simulated container that cannot be read never ran.
                path.unlink()
                continue
            self.sandboxes[box.uid] = box
            if rebooted:
                self._lose(box, now)
        if rebooted:
            write_atomically(boot, msgspec.json.encode(_Boot(self.boot_id)), durable=False)

    def _lose(self, box: Sandbox, now: float) -> None:
        box.alive = False
        for run in box.current.values():
            if run.is_running(now):
                run.ends_at, run.exit_code, run.reason = now, EXIT_LOST, "Unknown"
                run.message = "the node was rebooted"
        self._save(box)

    def sandbox(self, uid: str) -> Sandbox | None:
        """The pod's sandbox, alive or not."""
        return self.sandboxes.get(uid)

    def create(self, uid: str, namespace: str, name: str, ip: str) -> Sandbox:
        """A sandbox for the pod; runs of a dead one stay known. On disk with its first container: until then it is
        as good as not made."""
        old = self.sandboxes.get(uid)
        box = Sandbox(uid, namespace, name, ip, self.clock.now())
        if old:
            box.current, box.previous = old.current, old.previous
        self.sandboxes[uid] = box
        return box

    async def connect(self, uid: str, start: Start, refused: Callable[[int], None]) -> None:
        """Make the network that a container's process is to have, if its pod has none yet. refused: called with ports
        that cannot be had at the pod's address. Raises Retry."""
        if not (start.local and start.own_network) or uid in self._networks:
            return
        network = PodNetwork(self.sandboxes[uid].ip, start.api_port, refused)
        try:
            await network.open()
        except BaseException:
            network.close()
            raise
        self._networks[uid] = network

    def start(self, uid: str, start: Start) -> None:
        """Start a container; an earlier run of it becomes the previous one."""
        box, run = self.sandboxes[uid], start.run
        self._close(uid, run.name)
        if run.name in box.current:
            box.previous[run.name] = box.current[run.name]
        box.current[run.name] = run
        self._save(box)
        self.launch(uid, start)

    def launch(self, uid: str, start: Start) -> None:
        """Run the command of a container that is started, or was before this process began."""
        run, key = start.run, (uid, start.run.name)
        self.places[key] = start.place
        if not run.scripted:
            return
        finished: list[int] = []

        def output(number: int, data: bytes) -> None:
            process = start.place.main.process if start.place.main else None
            at = process.now if process else self.clock.now()
            run.say(at, data.decode("utf-8", "replace"))
            for listener, _ in tuple(self._listeners.get(key, {}).values()):
                listener(number, data)

        def ended(code: int) -> None:
            finished.append(code)
            self._commands.pop(key, None)
            self._finish(uid, start, code)

        if start.local:
            folder = self.local_folder(uid, run)
            self._commands[key] = LocalCommand(
                start.place,
                start.command,
                folder,
                self.volumes_folder(uid),
                output,
                ended,
                has_input=start.stdin,
                memory_bytes=start.memory_bytes,
                enter=self._entering(uid),
            )
            return
        command = SimulatedCommand(
            self.clock,
            start.place,
            start.command,
            output,
            ended,
            started_at=run.started_at,
            is_main=True,
            has_input=start.stdin,
        )
        command.killed = lambda number: self.stop(uid, run.name, after_s=0.0, exit_code=128 + number)
        if not finished:
            self._commands[key] = command

    def _finish(self, uid: str, start: Start, code: int) -> None:
        box, run = self.sandboxes.get(uid), start.run
        if box is None or box.current.get(run.name) is not run or not run.is_running(self.clock.now()):
            return
        main = start.place.main
        run.ends_at = min(self.clock.now(), main.process.now if main else self.clock.now())
        run.exit_code = code if start.exit_code is None else start.exit_code
        run.message = start.place.term_message()
        if not run.message and code and start.message_from_log:
            run.message = "\n".join(run.text.splitlines()[-MESSAGE_LINES:])[-MESSAGE_BYTES:]
        self._save(box)
        self._report_end(uid, run)
        self.wake(uid)

    def local_folder(self, uid: str, run: ContainerRun) -> Path:
        """Where a container that is a process of this machine keeps its files."""
        return self.folder / "processes" / uid / f"{run.name}-{run.attempt}"

    def volumes_folder(self, uid: str) -> Path:
        """Where the volumes of a pod lie for its processes, which share them."""
        return self.folder / "processes" / uid / "volumes"

    def update_volumes(self, uid: str) -> None:
        """Bring what running processes of a pod see of the API's objects up to date."""
        for (pod, name), command in self._commands.items():
            if pod == uid and isinstance(command, LocalCommand):
                write_volumes(self.places[pod, name], self.volumes_folder(uid))

    def is_lost(self, uid: str, run: ContainerRun) -> bool:
        """Whether it runs, and this process does not know yet what it sees, being new."""
        return run.is_running(self.clock.now()) and (uid, run.name) not in self.places

    def signal(self, uid: str, name: str, number: int) -> bool:
        """Deliver a signal to a container's command; False where it does not take it."""
        command = self._commands.get((uid, name))
        return command is not None and command.signal(number)

    # ---- beside the container's own command

    def execute(
        self,
        uid: str,
        name: str,
        command: tuple[str, ...],
        output: OutputListener,
        ended: Callable[[int], None],
        *,
        has_input: bool = False,
        env: dict[str, str] | None = None,
    ) -> Running:
        """Run another command in a running container. Raises NotFound where it does not run."""
        box, place = self.sandboxes.get(uid), self.places.get((uid, name))
        run = box.current.get(name) if box else None
        if run is None or place is None or not run.is_running(self.clock.now()):
            raise NotFound(f'container "{name}" is not running')
        inner = place if not env else place.with_env(env)
        own = self._commands.get((uid, name))
        if isinstance(own, LocalCommand):
            folder, volumes = self.local_folder(uid, run), self.volumes_folder(uid)
            return LocalCommand(
                inner,
                command,
                folder,
                volumes,
                output,
                ended,
                has_input=has_input,
                beside=own.pid,
                enter=self._entering(uid),
            )
        return SimulatedCommand(
            self.clock, inner, command, output, ended, started_at=self.clock.now(), has_input=has_input
        )

    def command(self, uid: str, name: str) -> Running | None:
        """The container's own command, while it runs."""
        return self._commands.get((uid, name))

    def listen(self, uid: str, name: str, output: OutputListener, ended: Callable[[int], None]) -> Callable[[], None]:
        """Hear what a container writes from now on, and how it ends; the result ends that."""
        token = object()
        self._listeners.setdefault((uid, name), {})[token] = (output, ended)

        def leave() -> None:
            heard = self._listeners.get((uid, name), {})
            heard.pop(token, None)
            if not heard:
                self._listeners.pop((uid, name), None)

        return leave

    def _report_end(self, uid: str, run: ContainerRun) -> None:
        for _, ended in tuple(self._listeners.pop((uid, run.name), {}).values()):
            ended(run.exit_code)

    def _close(self, uid: str, name: str) -> None:
        if command := self._commands.pop((uid, name), None):
            command.close()
        self.places.pop((uid, name), None)

    def close(self) -> None:
        """The agent ends: commands stop without an end, to be run again by the next one."""
        for command in self._commands.values():
            command.close()
        self._commands.clear()
        for uid in tuple(self._networks):
            self._disconnect(uid)

    def _entering(self, uid: str) -> Sequence[str]:
        return self._networks[uid].entering if uid in self._networks else ()

    def _disconnect(self, uid: str) -> None:
        if network := self._networks.pop(uid, None):
            network.close()

    def stop(self, uid: str, name: str, *, after_s: float, exit_code: int = EXIT_TERMINATED, message: str = "") -> None:
        """End a running container in so many seconds; message is its last word."""
        box = self.sandboxes[uid]
        run = box.current[name]
        now = self.clock.now()
        if not run.is_running(now) or (run.ends_at is not None and run.ends_at <= now + after_s):
            return
        run.ends_at, run.exit_code, run.reason = now + max(after_s, 0.0), exit_code, "Error"
        run.message = message
        run.stopping = True
        self._save(box)
        if after_s <= 0:
            self._close(uid, name)
            self._report_end(uid, run)

    def end(self, uid: str) -> None:
        """The sandbox is no longer alive; what its containers did stays known until `remove`."""
        box = self.sandboxes.get(uid)
        for run in tuple(box.current.values()) if box else ():
            self._close(uid, run.name)
            self._report_end(uid, run)
        self._disconnect(uid)
        if box and box.alive:
            box.alive = False
            self._save(box)

    def remove(self, uid: str) -> None:
        """Forget the pod."""
        self._disconnect(uid)
        if box := self.sandboxes.pop(uid, None):
            for name in box.current:
                self._close(uid, name)
            with contextlib.suppress(FileNotFoundError):
                self._path(uid).unlink()
            if any(run.local for run in box.current.values()):
                remove(self.folder / "processes" / uid)

    def running(self, uid: str) -> list[str]:
        """Names of containers that run now."""
        box = self.sandboxes.get(uid)
        now = self.clock.now()
        return [name for name, run in box.current.items() if run.is_running(now)] if box else []

    def next_exit(self, uid: str) -> float | None:
        """Seconds until the next container of the pod ends by itself; None if none will."""
        box = self.sandboxes.get(uid)
        now = self.clock.now()
        ends = [run.ends_at for run in box.current.values() if run.ends_at is not None] if box else []
        left = [end - now for end in ends if end > now]
        return min(left) if left else None

    def _path(self, uid: str) -> Path:
        return self.folder / f"{uid}.json"

    def _save(self, box: Sandbox) -> None:
        write_atomically(self._path(box.uid), msgspec.json.encode(box), durable=False)
