"""How does a container's command run as a process of this machine? The opt-in runtime of `up --runtime process`.

Only containers whose image is named in the image map run so; all others stay simulated. A process runs in a process
group of its own and is ended by that group alone. As root it sees the machine's files through an overlay in a mount
namespace of its own, so that volumes lie where the pod wants them and nothing that it writes reaches the machine, and
it runs as nobody without capabilities. Without root there is no such view: paths of mounts in its arguments and
environment are replaced by where the volumes lie.
"""

from __future__ import annotations

import asyncio
import fnmatch
import os
import shlex
import shutil
import signal
import subprocess
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path

import msgspec

from dragoman.apiserver.sessions import OutputListener
from dragoman.errors import Invalid
from dragoman.kubelet.programs import Place

NOBODY = 65534
ADDRESS = "127.0.0.1"
"""The address of pods whose containers are processes here: that of loopback."""
CHUNK = 64 * 1024
CANNOT_START = 125
_TOOLS = ("unshare", "setpriv", "chroot", "mount")
_OUTER = """set -e
R=$1; shift
mount -t overlay overlay -o lowerdir=/,upperdir="$R/upper",workdir="$R/work" "$R/merged"
for d in proc dev sys; do mount --rbind /$d "$R/merged/$d"; done
mkdir -p "$R/merged/.volumes"
mount --bind "$R/volumes" "$R/merged/.volumes"
exec chroot "$R/merged" /bin/sh -c "$@"
"""


class ImageMap(msgspec.Struct, frozen=True):
    """Which images' containers run as processes: (pattern of the image, command that stands for its entry point).

    An empty command means the container's own.
    """

    entries: tuple[tuple[str, tuple[str, ...]], ...] = ()

    @classmethod
    def parse(cls, texts: list[str]) -> ImageMap:
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
        return cls(tuple(entries))

    def command(self, image: str, command: tuple[str, ...], args: tuple[str, ...]) -> tuple[str, ...] | None:
        """What runs for a container of that image; None where it stays simulated."""
        for pattern, words in self.entries:
            plain = image.partition("@")[0].rpartition(":")[0] or image
            if fnmatch.fnmatchcase(image, pattern) or fnmatch.fnmatchcase(plain, pattern):
                found = (*words, *args) if words else (*command, *args)
                return found or None
        return None


class LocalCommand:
    """A process. ended(code) is called once, on the loop, when it and its group are over."""

    def __init__(
        self,
        place: Place,
        command: tuple[str, ...],
        folder: Path,
        output: OutputListener,
        ended: Callable[[int], None],
        *,
        has_input: bool = False,
        memory_bytes: int = 0,
        inside: int = 0,
    ) -> None:
        self._output = output
        self._ended = ended
        self._loop = asyncio.get_running_loop()
        self._open: set[int] = set()
        self._code: int | None = None
        self._closed = False
        words, env, cwd = _prepared(place, command, folder, memory_bytes, inside)
        self.pid = 0
        self._process: subprocess.Popen[bytes] | None = None
        try:
            self._process = subprocess.Popen(  # noqa: S603 - running it is what the user asked for
                words,
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


def can_isolate() -> bool:
    """Whether processes can have a view of files of their own."""
    return os.geteuid() == 0 and all(shutil.which(tool) for tool in _TOOLS)


def write_volumes(place: Place, folder: Path) -> dict[str, Path]:
    """The volumes of a container as files below a folder: where each mount path lies."""
    found: dict[str, Path] = {}
    for index, mount in enumerate(sorted(place.mounts, key=lambda m: m.path)):
        root = folder / "volumes" / str(index)
        prefix = f"{mount.below}/" if mount.below else ""
        for key, entry in mount.folder.entries.items():
            if mount.below and key != mount.below and not key.startswith(prefix):
                continue
            path = root / key.removeprefix(mount.below).lstrip("/")
            if entry.kind == "folder":
                path.mkdir(parents=True, exist_ok=True)
            elif entry.kind == "file":
                path.parent.mkdir(parents=True, exist_ok=True)
                if not path.is_dir():
                    path.write_bytes(entry.data)
                    path.chmod(entry.mode | 0o444)
        if not root.exists():
            root.mkdir(parents=True, exist_ok=True)
        if not mount.read_only and root.is_dir():
            root.chmod(0o777)
        found[mount.path] = root
    return found


def _prepared(
    place: Place, command: tuple[str, ...], folder: Path, memory_bytes: int, inside: int
) -> tuple[list[str], Mapping[str, str], str]:
    """(words to run, environment, working directory)."""
    env = {**place.env, "PATH": os.environ.get("PATH", place.env["PATH"]), "TMPDIR": "/tmp"}  # noqa: S108 - its own
    limit = f"ulimit -d {memory_bytes // 1024}; " if memory_bytes else ""
    if inside:
        drop = ["setpriv", *_dropping(place)]
        return ["chroot", f"/proc/{inside}/root", *drop, *command], env, "/"
    volumes = write_volumes(place, folder)
    if not can_isolate():
        env["TMPDIR"] = str(folder / "tmp")
        Path(env["TMPDIR"]).mkdir(parents=True, exist_ok=True)
        words = [_replaced(word, volumes) for word in command]
        env = {key: _replaced(value, volumes) for key, value in env.items()}
        return ["/bin/sh", "-c", f'{limit}exec "$@"', "sh", *words], env, str(folder)
    for name in ("upper", "work", "merged", "volumes"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    binds = "".join(
        f"{_target(path, root)} && mount --bind /.volumes/{root.name} {shlex.quote(path)} && "
        for path, root in volumes.items()
    )
    # What is in a home of root is not for nobody to see, but for the program that runs.
    opened = "".join(f"chmod o+x {shlex.quote(str(parent))} && " for parent in _closed_folders(command[0]))
    inner = (
        f"{binds}{opened}mkdir -p {shlex.quote(place.cwd)} && cd {shlex.quote(place.cwd)} && {limit}"
        f'exec setpriv {shlex.join(_dropping(place))} "$@"'
    )
    return ["unshare", "--mount", "/bin/sh", "-c", _OUTER, "sh", str(folder), inner, "sh", *command], env, "/"


def _dropping(place: Place) -> list[str]:
    user = str(place.user or NOBODY)
    return [
        f"--reuid={user}",
        f"--regid={NOBODY}",
        "--clear-groups",
        "--no-new-privs",
        "--bounding-set=-all",
        "--inh-caps=-all",
        "--pdeathsig=KILL",
    ]


def _target(path: str, root: Path) -> str:
    """The command that makes the place of a mount."""
    if root.is_dir():
        return f"mkdir -p {shlex.quote(path)}"
    return f"mkdir -p {shlex.quote(os.path.dirname(path))} && touch {shlex.quote(path)}"  # noqa: PTH120 - of the container


def _closed_folders(program: str) -> list[Path]:
    """The folders above a program that others may not enter."""
    found = shutil.which(program)
    if found is None:
        return []
    real = (Path(found), Path(found).resolve())
    parents = {parent for path in real for parent in path.parents}
    return sorted(parent for parent in parents if not parent.stat().st_mode & 0o001)


def _replaced(text: str, volumes: Mapping[str, Path]) -> str:
    for path, root in sorted(volumes.items(), key=lambda item: -len(item[0])):
        text = text.replace(path, str(root))
    return text
