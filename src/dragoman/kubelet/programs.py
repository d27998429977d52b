"""How does a command run in a container? Places (what it sees) and the two engines that run something in them.

The simulated engine runs the shell of `shell` in memory. An engine starts a command, passes on what it writes and says
how it ended; when a container starts, ends or is started again is decided elsewhere (`lifecycle`).
"""

from __future__ import annotations

import copy
import posixpath
from collections.abc import Callable, Mapping
from typing import Protocol, TypeAlias

from dragoman.apiserver.sessions import OutputListener
from dragoman.kubelet.shell.commands import PROGRAMS
from dragoman.kubelet.shell.files import Entry, FileMount, Files, Folder
from dragoman.kubelet.shell.language import ScriptShell, ShellProgram, ShellSurroundings, find
from dragoman.kubelet.shell.process import Pipe, SimulatedProcess
from dragoman.node.cdi import NO_EDITS, Edits
from dragoman.runtime.clock import Clock

Tools: TypeAlias = Mapping[str, ShellProgram]

KILL, TERM = 9, 15
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_BINARIES = ("sh", "cat", "ls", "sleep", "echo", "env")


class Running(Protocol):
    """A command that runs, or has run."""

    def feed(self, data: bytes) -> None:
        """Input."""
        ...

    def end_input(self) -> None:
        """No more input."""
        ...

    def signal(self, number: int) -> bool:
        """Deliver a signal; False where the program does not take it."""
        ...

    def interrupt(self) -> None:
        """Ctrl-C."""
        ...

    def resize(self, columns: int, rows: int) -> None:
        """The terminal's size."""
        ...

    def close(self) -> None:
        """End it without a word."""
        ...


class Place:
    """What a container sees: environment, files, programs. Files are made when somebody looks."""

    def __init__(
        self,
        *,
        env: Mapping[str, str],
        hostname: str,
        ip: str = "",
        cwd: str = "/",
        user: int = 0,
        mounts: tuple[FileMount, ...] = (),
        edits: Edits = NO_EDITS,
        tools: Tools | None = None,
        now: float = 0.0,
        term_path: str = "/dev/termination-log",
        read_only: bool = False,
    ) -> None:
        self.read_only = read_only
        self.env = dict(env)
        self.env.setdefault("PATH", PATH)
        self.env.setdefault("HOME", "/root" if user == 0 else "/")
        self.hostname = hostname
        self.ip = ip
        self.cwd = cwd or "/"
        self.user = user
        self.mounts = mounts
        self.edits = edits
        self.tools: Tools = tools or {}
        self.now = now
        self.term_path = term_path
        self.main: SimulatedCommand | None = None
        self._files: Files | None = None

    def with_env(self, env: Mapping[str, str]) -> Place:
        """The same place for a command with more environment."""
        made = copy.copy(self)
        made._files = self.files
        made.env = {**self.env, **env}
        return made

    @property
    def files(self) -> Files:
        """Its file system."""
        if self._files is None:
            root = self._root()
            # /dev is a file system of its own, also where the root may not be written to.
            own = (FileMount("/", root, read_only=self.read_only), FileMount("/dev", root, "dev"))
            self._files = Files((*own, *self.mounts))
        return self._files

    def term_message(self) -> str:
        """What the container left for `terminationMessagePath`."""
        if self._files is None:
            return ""
        entry = self._files.find(self.term_path)
        return entry.data[-4096:].decode("utf-8", "replace") if entry is not None else ""

    def _root(self) -> Folder:
        now = self.now
        hosts = f"127.0.0.1\tlocalhost\n{self.ip}\t{self.hostname}\n"
        root = Folder(
            {
                "etc/hostname": f"{self.hostname}\n".encode(),
                "etc/hosts": hosts.encode(),
                "etc/resolv.conf": b"search default.svc.cluster.local svc.cluster.local cluster.local\n",
                "etc/os-release": b'NAME="Dragoman simulated container"\nID=dragoman\n',
                "etc/passwd": b"root:x:0:0:root:/root:/bin/sh\n",
                self.term_path.strip("/"): b"",
            },
            now=now,
        )
        for folder in ("tmp", "root", "var/run", "var/log", "proc", "run", "usr/bin", "home", "mnt", "opt", "srv"):
            root.put(folder, Entry("folder", mode=0o755, changed=now))
        if self.cwd != "/":
            root.put(self.cwd.strip("/"), Entry("folder", mode=0o755, changed=now))
        for name in _BINARIES:
            root.put(f"bin/{name}", Entry("file", b"", 0o755, now))
        for device in ("null", "zero", "random", "urandom", "tty", "stdout", "stderr", "stdin"):
            root.put(f"dev/{device}", Entry("device", mode=0o666, changed=now))
        for node in self.edits.device_nodes:
            root.put(node.path.strip("/"), Entry("device", mode=node.file_mode or 0o660, changed=now))
        for mount in self.edits.mounts:
            path = mount.container_path.strip("/")
            named = posixpath.basename(path)
            if "." in named or named in self.tools or "/bin/" in mount.container_path:
                root.put(path, Entry("file", b"", 0o755, now))
            else:
                root.put(path, Entry("folder", mode=0o755, changed=now))
        for name in self.tools:
            root.put(f"usr/bin/{name}", Entry("file", b"", 0o755, now))
        return root


class _Sink:
    def __init__(self, output: OutputListener, number: int) -> None:
        self._output, self._number = output, number

    def write(self, data: bytes) -> None:
        """Pass on."""
        if data:
            self._output(self._number, data)


class SimulatedCommand:
    """A command in the simulated shell. ended(code) is called once, perhaps before the constructor returns."""

    def __init__(
        self,
        clock: Clock,
        place: Place,
        command: tuple[str, ...],
        output: OutputListener,
        ended: Callable[[int], None],
        *,
        started_at: float,
        is_main: bool = False,
        has_input: bool = False,
    ) -> None:
        self.input = Pipe()
        self.input.ended = not has_input
        self.process = SimulatedProcess(clock, started_at, ended)
        out, errors = _Sink(output, 1), _Sink(output, 2)
        main = place.main
        if is_main:
            place.main = self
        self.log = out
        around = ShellSurroundings(
            self.process,
            place.files,
            place.tools,
            place.hostname,
            place.user,
            out if is_main else main.log if main else None,
            None if is_main or main is None else main.signalled,
        )
        self.killed: Callable[[int], None] | None = None
        shell = ScriptShell(
            around, place.env, {0: self.input, 1: out, 2: errors}, name="sh" if is_main else "exec", cwd=place.cwd
        )
        shell.variables["PWD"] = place.cwd
        self.process.start(shell.call(command, place.env, shell.fds))

    def signalled(self, number: int) -> None:
        """A signal from another process of the container."""
        if number and not self.signal(number) and self.killed is not None:
            self.killed(number)

    def feed(self, data: bytes) -> None:
        """Input."""
        if not self.input.ended:
            self.input.write(data)
            self.process.step()

    def end_input(self) -> None:
        """No more input."""
        self.input.ended = True
        self.process.step()

    def signal(self, number: int) -> bool:
        """Deliver a signal; False where no trap takes it."""
        return self.process.signal(number)

    def interrupt(self) -> None:
        """Ctrl-C: what the shell waits for is over."""
        self.process.interrupt()

    def resize(self, columns: int, rows: int) -> None:
        """Nothing looks at it."""

    def close(self) -> None:
        """End it without a word."""
        self.process.close()


def knows(command: tuple[str, ...], tools: Tools) -> bool:
    """Whether the simulated shell runs that command; else it is a program of the image."""
    if not command:
        return False
    name = posixpath.basename(command[0])
    if name in tools:
        return True
    if name in ("python", "python3"):
        return "-c" in command[1:3] or "--version" in command
    return name in PROGRAMS


def found(place: Place, command: tuple[str, ...]) -> bool:
    """Whether a command can be started at all."""
    around = ShellSurroundings(None, place.files, place.tools)  # type: ignore[arg-type]
    return bool(command) and not isinstance(find(around, command[0], place.cwd), str)
