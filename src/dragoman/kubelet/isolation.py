"""What does a process that stands for a container see of this machine's files? Three ways, the best that is allowed.

ROOT: the machine's files through an overlay in a mount namespace of its own, volumes at their mount paths, the user
nobody (or runAsUser) without capabilities. USER: the same without being root, in a user namespace of its own: the
process is root there and the user of `up` outside. NONE: the machine's files as they are; paths of mounts in arguments
and environment are replaced by where the volumes lie, and what a program looks for at a fixed path, such as the token
of its service account, it does not find.
"""

from __future__ import annotations

import enum
import functools
import os
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from dragoman.kubelet.programs import Place

NOBODY = 65534
DATA_MIN_BYTES = 256 * 2**20
"""The limit counts what a process may address, of which the runtimes of languages take much more than they use."""
TRIAL_S = 10.0
_TOOLS = ("unshare", "nsenter", "setpriv", "chroot", "mount", "hostname")
_BEGIN = """set -e
R=$1; V=$2; I=$3; shift 3; M="$R/merged"
"""
_END = """for d in proc dev sys; do mount --rbind /$d "$M/$d"; done
mkdir -p "$M/.volumes"
mount --bind "$V" "$M/.volumes"
exec chroot "$M" /bin/sh -c "$I" "$@"
"""
_AS_ROOT = f"""{_BEGIN}
mount -t overlay overlay -o lowerdir=/,upperdir="$R/upper",workdir="$R/work" "$M"
{_END}"""
# Below / are mounts that a user namespace may not leave out, so that / itself cannot be the lower layer there: each
# folder becomes an overlay of its own, and one with mounts in it is put together of what it holds.
_AS_USER = f"""{_BEGIN}
mount -t tmpfs -o mode=0755 tmpfs "$M"
N=0
view() {{
  mkdir -p "$M$1"
  N=$((N + 1)); mkdir "$R/upper/$N" "$R/work/$N"
  mount -t overlay overlay -o "userxattr,lowerdir=$1,upperdir=$R/upper/$N,workdir=$R/work/$N" "$M$1" 2>/dev/null &&
    return 0
  for e in "$1"/* "$1"/.[!.]*; do entry "$e"; done
}}
entry() {{
  if [ -L "$1" ]; then cp -P "$1" "$M$1"
  elif [ -d "$1" ] && [ -r "$1" ]; then view "$1"
  elif [ -f "$1" ]; then : > "$M$1"; mount --bind "$1" "$M$1" 2>/dev/null || rm -f "$M$1"
  fi
}}
for e in /*; do case "$e" in /proc|/dev|/sys) mkdir -p "$M$e";; *) entry "$e";; esac; done
{_END}"""


class Isolation(enum.Enum):
    """See the module."""

    ROOT = "root"
    USER = "user"
    NONE = "none"


@functools.cache
def isolation() -> Isolation:
    """What this machine allows, tried once."""
    if not all(shutil.which(tool) for tool in _TOOLS):
        return Isolation.NONE
    way = Isolation.ROOT if os.geteuid() == 0 else Isolation.USER
    with tempfile.TemporaryDirectory(prefix="dragoman-") as folder:
        words = _entering(way, Path(folder), Path(folder), "exec true")
        try:
            done = subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, timeout=TRIAL_S)  # noqa: S603
        except (OSError, subprocess.TimeoutExpired):
            return Isolation.NONE
    return Isolation.NONE if done.returncode else way


def remove(folder: Path) -> None:
    """Delete a folder of processes; overlays leave folders in it that nobody may enter."""
    for path in folder.glob("*/work/**/"):
        with suppress(OSError):
            path.chmod(0o700)
    shutil.rmtree(folder, ignore_errors=True)


def write_volumes(place: Place, folder: Path) -> dict[str, Path]:
    """The volumes of a container as files below the folder of the pod's volumes: where each mount path lies.

    What comes from the API is brought up to date, file by file; what containers wrote stays.
    """
    found: dict[str, Path] = {}
    # A file of the user who reads it has the mode that was asked for; without root, everybody may read it.
    owner = (place.user or NOBODY) if os.geteuid() == 0 else None
    for mount in sorted(place.mounts, key=lambda m: m.path):
        root = folder / mount.name
        if not root.exists():
            root.mkdir(parents=True)
            if not mount.folder.from_api:
                root.chmod(0o777)
        for key, entry in sorted(mount.folder.entries.items()):
            path = root / key
            if entry.kind == "folder":
                path.mkdir(parents=True, exist_ok=True)
            elif entry.kind == "file" and (mount.folder.from_api or not path.exists()):
                _write(path, entry.data, entry.mode, owner)
        if mount.folder.from_api:
            for path in root.rglob("*"):
                if path.is_file() and str(path.relative_to(root)) not in mount.folder.entries:
                    path.unlink()
        found[mount.path] = root / mount.below if mount.below else root
    return found


def _write(path: Path, data: bytes, mode: int, owner: int | None) -> None:
    if path.is_dir() or (path.is_file() and path.read_bytes() == data):
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_name(f".{path.name}.new")
    fresh.write_bytes(data)
    if owner is not None:
        os.chown(fresh, owner, owner)
    fresh.chmod(mode if owner is not None else mode | 0o444)
    fresh.replace(path)


def prepared(
    place: Place, command: tuple[str, ...], folder: Path, volumes: Path, memory_bytes: int
) -> tuple[list[str], Mapping[str, str], str]:
    """(words to run, environment, working directory) for a container's command.

    folder: the container's own; volumes: that of its pod's volumes.
    """
    env = {**place.env, "PATH": os.environ.get("PATH", place.env["PATH"]), "TMPDIR": "/tmp"}  # noqa: S108 - its own
    limit = f"ulimit -d {max(memory_bytes, DATA_MIN_BYTES) // 1024}; " if memory_bytes else ""
    where = write_volumes(place, volumes)
    folder.mkdir(parents=True, exist_ok=True)
    volumes.mkdir(parents=True, exist_ok=True)
    way = isolation()
    if way is Isolation.NONE:
        env["TMPDIR"] = str(folder / "tmp")
        Path(env["TMPDIR"]).mkdir(parents=True, exist_ok=True)
        words = [_replaced(word, where) for word in command]
        env = {key: _replaced(value, where) for key, value in env.items()}
        return ["/bin/sh", "-c", f'{limit}exec "$@"', "sh", *words], env, str(folder)
    binds = "".join(_bind(path, root, volumes) for path, root in where.items())
    # What is in a home of root is not for nobody to see, but for the program that runs.
    closed = _closed_folders(command[0]) if way is Isolation.ROOT else []
    opened = "".join(f"chmod o+x {shlex.quote(str(parent))} && " for parent in closed)
    inner = (
        f"hostname {shlex.quote(place.hostname)}; {binds}{opened}"
        f"mkdir -p {shlex.quote(place.cwd)} && cd {shlex.quote(place.cwd)} && {limit}"
        f'exec setpriv {shlex.join(_dropping(place, way))} "$@"'
    )
    return [*_entering(way, folder, volumes, inner), *command], env, "/"


def inside(place: Place, command: tuple[str, ...], pid: int) -> tuple[list[str], Mapping[str, str], str] | None:
    """The same for a command beside a container's own, which has that pid; None where it has no view of its own."""
    way = isolation()
    if way is Isolation.NONE:
        return None
    env = {**place.env, "PATH": os.environ.get("PATH", place.env["PATH"])}
    user = ["--user", "--preserve-credentials"] if way is Isolation.USER else []
    entering = ["nsenter", f"--target={pid}", *user, "--uts", "chroot", f"/proc/{pid}/root"]
    return [*entering, "setpriv", *_dropping(place, way), *command], env, "/"


def _entering(way: Isolation, folder: Path, volumes: Path, inner: str) -> list[str]:
    for name in ("upper", "work", "merged"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    script = _AS_ROOT if way is Isolation.ROOT else _AS_USER
    user = [] if way is Isolation.ROOT else ["--user", "--map-root-user"]
    return ["unshare", *user, "--mount", "--uts", "/bin/sh", "-c", script, "sh", str(folder), str(volumes), inner, "sh"]


def _dropping(place: Place, way: Isolation) -> list[str]:
    user = [f"--reuid={place.user or NOBODY}", f"--regid={NOBODY}", "--clear-groups"] if way is Isolation.ROOT else []
    return [*user, "--no-new-privs", "--bounding-set=-all", "--inh-caps=-all", "--pdeathsig=KILL"]


def _bind(path: str, root: Path, volumes: Path) -> str:
    """The commands that put a volume, or a part of one, at its mount path."""
    source, target = shlex.quote(f"/.volumes/{root.relative_to(volumes)}"), shlex.quote(path)
    above = shlex.quote(os.path.dirname(path))  # noqa: PTH120 - of the container
    made = f"mkdir -p {target}" if root.is_dir() else f"mkdir -p {above} && touch {target}"
    return f"{made} && mount --bind {source} {target} && "


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
