"""What runs on this node? The runtime that simulates: containers that "run" without running anything.

Sandboxes and containers live in one small file for each pod, so that they survive the node agent, as real ones
survive the kubelet. How long a container runs and how it ends is told at its start. It decides nothing about pods.
"""

from __future__ import annotations

import contextlib
from pathlib import Path

import msgspec

from dragoman.node.files import write_atomically
from dragoman.runtime.clock import Clock

EXIT_FAILED = 1
EXIT_KILLED = 137
EXIT_TERMINATED = 143
EXIT_LOST = 255


class ContainerRun(msgspec.Struct):
    """One run of a container. ends_at None: until it is stopped. streak: short or failed runs in a row before it."""

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
    log: str = ""

    def is_running(self, now: float) -> bool:
        """Whether it has not ended yet."""
        return self.ends_at is None or now < self.ends_at


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

    def start(self, uid: str, run: ContainerRun) -> None:
        """Start a container; an earlier run of it becomes the previous one."""
        box = self.sandboxes[uid]
        if run.name in box.current:
            box.previous[run.name] = box.current[run.name]
        box.current[run.name] = run
        self._save(box)

    def stop(self, uid: str, name: str, *, after_s: float, exit_code: int = EXIT_TERMINATED, message: str = "") -> None:
        """End a running container in so many seconds; message is its last word."""
        box = self.sandboxes[uid]
        run = box.current[name]
        now = self.clock.now()
        if not run.is_running(now) or (run.ends_at is not None and run.ends_at <= now + after_s):
            return
        run.ends_at, run.exit_code, run.reason = now + max(after_s, 0.0), exit_code, "Error"
        run.message = message
        self._save(box)

    def end(self, uid: str) -> None:
        """The sandbox is no longer alive; what its containers did stays known until `remove`."""
        box = self.sandboxes.get(uid)
        if box and box.alive:
            box.alive = False
            self._save(box)

    def remove(self, uid: str) -> None:
        """Forget the pod."""
        if self.sandboxes.pop(uid, None):
            with contextlib.suppress(FileNotFoundError):
                self._path(uid).unlink()

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
