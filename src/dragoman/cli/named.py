"""Which embedded clusters are there on this machine? One small file each, in the user's state folder.

`dragoman up` writes one when it starts, so that two never share a kubeconfig and `dragoman clusters` can list and stop
them. A process is known by its number and the moment it began: another process with the same number is never taken for
it.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec

from dragoman.errors import Denied, Invalid, NotFound

STOP_S = 20.0
POLL_S = 0.05
_NAME = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,38}[a-z0-9])?")


class ClusterRecord(msgspec.Struct):
    """One cluster. began: of the process, as the kernel counts; ready: when its kubeconfig is written."""

    name: str
    pid: int
    began: str
    kubeconfig: str
    data: str = ""
    server: str = ""
    nodes: int = 0
    ready: bool = False
    listed: bool = True
    """Whether it has a name that its user gave it, and is remembered after its end."""

    @property
    def is_running(self) -> bool:
        """Whether that process is still there."""
        return began_at(self.pid) == self.began


def home() -> Path:
    """Where the files are: DRAGOMAN_HOME, else dragoman in the user's state folder."""
    if given := os.environ.get("DRAGOMAN_HOME"):
        return Path(given)
    state = os.environ.get("XDG_STATE_HOME")
    return (Path(state) if state else Path.home() / ".local" / "state") / "dragoman"


def checked(name: str) -> str:
    """A name that can stand in file names and contexts. Raises Invalid."""
    if not _NAME.fullmatch(name):
        raise Invalid("--name", f"must be up to 40 lower-case letters, digits and hyphens, got {name!r}")
    return name


def log_of(name: str) -> Path:
    """Where a cluster that runs in the background writes its log."""
    return home() / f"{name}.log"


def began_at(pid: int) -> str:
    """When a process began; "" for none."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return _began_elsewhere(pid)
    fields = text.rpartition(")")[2].split()
    return "" if fields[0] == "Z" else fields[19]


def _began_elsewhere(pid: int) -> str:
    """Where there is no /proc: that it is there at all."""
    if Path("/proc/self").exists():
        return ""
    try:
        os.kill(pid, 0)
    except OSError:
        return ""
    return "?"


def records() -> list[ClusterRecord]:
    """All that are known, sorted by name; unnamed ones only while they run."""
    found: list[ClusterRecord] = []
    for path in sorted(home().glob("*.json")):
        try:
            record = msgspec.json.decode(path.read_bytes(), type=ClusterRecord)
        except (OSError, msgspec.MsgspecError):
            continue
        if record.listed or record.is_running:
            found.append(record)
        else:
            with contextlib.suppress(OSError):
                path.unlink()
    return found


def record_of(name: str) -> ClusterRecord:
    """That cluster. Raises NotFound with those that there are."""
    known = records()
    for record in known:
        if record.name == name:
            return record
    shown = ", ".join(record.name for record in known) or "none"
    raise NotFound(f"no cluster {name!r} on this machine; there are: {shown}")


def write(record: ClusterRecord) -> None:
    """Remember it."""
    folder = home()
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    path = folder / f"{record.name}.json"
    temporary = path.with_suffix(f".{os.getpid()}")
    temporary.write_bytes(msgspec.json.format(msgspec.json.encode(record)))
    temporary.replace(path)


def forget(name: str) -> None:
    """Forget a cluster and its log."""
    for path in (home() / f"{name}.json", log_of(name)):
        path.unlink(missing_ok=True)


@contextlib.contextmanager
def registered(record: ClusterRecord) -> Iterator[ClusterRecord]:
    """Be that cluster while the body runs. Raises Denied where its name or kubeconfig is another running one's."""
    try:
        with _locked():
            _refuse_conflicts(record)
            write(record)
    except OSError as error:
        if record.listed:
            raise Denied(
                f"{error.filename or home()}: {error.strerror}; set DRAGOMAN_HOME to a folder of yours"
            ) from None
        yield record  # nobody asked for it to be known
        return
    try:
        yield record
    finally:
        with contextlib.suppress(OSError):
            if record.listed:
                record.ready = False
                write(record)
            else:
                forget(record.name)


def _refuse_conflicts(record: ClusterRecord) -> None:
    for other in records():
        if other.pid == record.pid or not other.is_running:
            continue
        if other.name == record.name:
            raise Denied(
                f"a cluster named {other.name} runs already (process {other.pid}); choose another --name, or end it: "
                f"dragoman clusters stop {other.name}"
            )
        if other.kubeconfig == record.kubeconfig:
            raise Denied(
                f"{other.kubeconfig} is the kubeconfig of the running cluster {other.name} (process {other.pid}); "
                "choose a --name or another --kubeconfig"
            )


@contextlib.contextmanager
def _locked() -> Iterator[None]:
    home().mkdir(parents=True, exist_ok=True, mode=0o700)
    with (home() / "lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def stop(record: ClusterRecord) -> bool:
    """End it as Ctrl-C does; False where it did not run. Raises Denied where it does not end."""
    if not record.is_running:
        return False
    os.kill(record.pid, signal.SIGTERM)
    deadline = time.monotonic() + STOP_S
    while record.is_running:
        if time.monotonic() > deadline:
            raise Denied(f"cluster {record.name} (process {record.pid}) has not ended after {STOP_S:.0f} s")
        time.sleep(POLL_S)
    return True
