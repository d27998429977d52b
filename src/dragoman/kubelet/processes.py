"""How does a container's command run as a process of this machine? The opt-in runtime of `up --runtime process`.

Only containers whose image is named in the image map run so; all others stay simulated. A process runs in a process
group of its own and is ended by that group alone. What it sees of the machine's files is in `isolation`.
"""

from __future__ import annotations

import asyncio
import errno
import fnmatch
import os
import shlex
import shutil
import signal
import socket
import subprocess
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing, suppress
from pathlib import Path

import msgspec

from dragoman.apiserver.sessions import OutputListener
from dragoman.errors import Invalid
from dragoman.kubelet import isolation
from dragoman.kubelet.programs import Place

ADDRESS = "127.0.0.1"
"""The address of pods whose containers are processes in the machine's network."""
CHUNK = 64 * 1024
CANNOT_START = 125


class ImageMap(msgspec.Struct, frozen=True):
    """Which images' containers run as processes: (pattern of the image, command that stands for its entry point).

    An empty command means the container's own. own_network: whether their pods have networks of their own
    (`podnetwork`), else they share the machine's.
    """

    entries: tuple[tuple[str, tuple[str, ...]], ...] = ()
    own_network: bool = False

    @classmethod
    def parse(cls, texts: list[str], *, own_network: bool = False) -> ImageMap:
        """Of `IMAGE=COMMAND` each. Raises Invalid."""
        entries: list[tuple[str, tuple[str, ...]]] = []
        for text in texts:
            image, equals, command = text.partition("=")
            if not equals or not image:
                raise Invalid(
                    "--image-map", f"must be IMAGE=COMMAND, got {text!r}; an empty COMMAND is the container's own"
                )
            try:
                words = tuple(shlex.split(command))
            except ValueError as error:
                raise Invalid("--image-map", f"cannot read the command of {text!r}: {error}") from None
            if words and shutil.which(words[0]) is None:
                raise Invalid("--image-map", f"{words[0]} of image {image} is not a program of this machine")
            entries.append((image, words))
        return cls(tuple(entries), own_network)

    def command(self, image: str, command: tuple[str, ...], args: tuple[str, ...]) -> tuple[str, ...] | None:
        """What runs for a container of that image; None where it stays simulated."""
        for pattern, words in self.entries:
            plain = image.partition("@")[0].rpartition(":")[0] or image
            if fnmatch.fnmatchcase(image, pattern) or fnmatch.fnmatchcase(plain, pattern):
                found = (*words, *args) if words else (*command, *args)
                return found or None
        return None


class LocalCommand:
    """A process. ended(code) is called once, on the loop, when it and its group are over.

    folder: the container's own; volumes: those of its pod. beside: the pid of the container's own command, for another.
    enter: words before the command, which let it run elsewhere.
    """

    def __init__(
        self,
        place: Place,
        command: tuple[str, ...],
        folder: Path,
        volumes: Path,
        output: OutputListener,
        ended: Callable[[int], None],
        *,
        has_input: bool = False,
        memory_bytes: int = 0,
        beside: int = 0,
        enter: Sequence[str] = (),
    ) -> None:
        self._output = output
        self._ended = ended
        self._loop = asyncio.get_running_loop()
        self._open: set[int] = set()
        self._code: int | None = None
        self._closed = False
        entered = isolation.inside(place, command, beside) if beside else None
        words, env, cwd = entered or isolation.prepared(place, command, folder, volumes, memory_bytes)
        self.pid = 0
        self._process: subprocess.Popen[bytes] | None = None
        try:
            self._process = subprocess.Popen(  # noqa: S603 - running it is what the user asked for
                [*enter, *words],
                env=env,
                cwd=cwd,
                stdin=subprocess.PIPE if has_input else subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                start_new_session=True,
            )
        except OSError as error:
            output(2, f"{words[0]}: {error.strerror}\n".encode())
            self._loop.call_soon(ended, CANNOT_START)
            return
        self.pid = self._process.pid
        for number, pipe in ((1, self._process.stdout), (2, self._process.stderr)):
            assert pipe is not None
            os.set_blocking(pipe.fileno(), False)
            self._open.add(pipe.fileno())
            self._loop.add_reader(pipe.fileno(), self._read, number, pipe.fileno())
        self._pidfd = os.pidfd_open(self.pid)
        self._loop.add_reader(self._pidfd, self._exited)

    def _read(self, number: int, fd: int) -> None:
        try:
            data = os.read(fd, CHUNK)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if data:
            self._output(number, data)
            return
        self._loop.remove_reader(fd)
        self._open.discard(fd)

    def _exited(self) -> None:
        assert self._process is not None
        self._loop.remove_reader(self._pidfd)
        os.close(self._pidfd)
        for number, pipe in ((1, self._process.stdout), (2, self._process.stderr)):
            if pipe is not None and pipe.fileno() in self._open:
                self._read(number, pipe.fileno())
        # Its leader is not reaped yet, so the number of the group is still its own.
        self._kill(signal.SIGKILL)
        code = self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout, self._process.stderr):
            if pipe is not None:
                self._loop.remove_reader(pipe.fileno())
                with suppress(OSError):
                    pipe.close()
        self._code = 128 - code if code < 0 else code
        if not self._closed:
            self._ended(self._code)

    def _kill(self, number: int) -> None:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, number)

    # ---- as programs.Running

    def feed(self, data: bytes) -> None:
        """Input; lost when the process does not read."""
        if self._process is not None and self._process.stdin is not None and self._code is None:
            with suppress(OSError, ValueError):
                self._process.stdin.write(data)
                self._process.stdin.flush()

    def end_input(self) -> None:
        """No more input."""
        if self._process is not None and self._process.stdin is not None:
            with suppress(OSError, ValueError):
                self._process.stdin.close()

    def signal(self, number: int) -> bool:
        """Deliver a signal to the process's group."""
        if self._process is None or self._code is not None:
            return False
        self._kill(number)
        return True

    def interrupt(self) -> None:
        """Ctrl-C."""
        self.signal(signal.SIGINT)

    def resize(self, columns: int, rows: int) -> None:
        """There is no terminal behind it."""

    def close(self) -> None:
        """End the group at once, without a word."""
        self._closed = True
        self.signal(signal.SIGKILL)


def ports_in_use(ports: Iterable[int]) -> list[int]:
    """Those ports of this machine on which somebody listens already; processes for pods share them."""
    used = []
    for port in ports:
        with closing(socket.socket()) as trial:
            trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                trial.bind(("", port))
            except OSError as error:
                if error.errno == errno.EADDRINUSE:
                    used.append(port)
    return used
