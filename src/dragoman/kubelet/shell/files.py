"""What files does a simulated container see? Folders in memory, mounted over each other; never this machine's files.

A Folder may be shared: that of an emptyDir volume by the containers of its pod. Ceilings are `FOLDER_BYTES` for the
bytes of a folder and `ENTRIES` for its files.
"""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Iterator, Sequence
from typing import Literal, TypeAlias

import msgspec

FOLDER_BYTES = 16 * 1024 * 1024
ENTRIES = 10_000
LINKS = 10
NO_FILE, NO_FOLDER, IS_FOLDER = "No such file or directory", "Not a directory", "Is a directory"
READ_ONLY, FULL, EXISTS, NOT_EMPTY = (
    "Read-only file system",
    "No space left on device",
    "File exists",
    "Directory not empty",
)

EntryKind: TypeAlias = Literal["file", "folder", "device", "link"]


class FileFault(Exception):
    """What the system would say, as in `cat: /x: No such file or directory`."""


class Entry(msgspec.Struct):
    """A file, a folder, a device node, or a link to `data`."""

    kind: EntryKind = "file"
    data: bytes = b""
    mode: int = 0o644
    changed: float = 0.0


class Folder:
    """A tree of entries by relative path; "" is the folder itself. refresh: called before it is read. from_api: whether
    its files are what objects say, and containers' own changes do not last."""

    def __init__(self, files: dict[str, bytes] | None = None, *, mode: int = 0o644, now: float = 0.0) -> None:
        self.entries: dict[str, Entry] = {"": Entry("folder", mode=0o755, changed=now)}
        self.refresh: Callable[[], None] | None = None
        self.from_api = False
        for path, data in (files or {}).items():
            self.put(path, Entry("file", data, mode, now))

    def put(self, path: str, entry: Entry) -> None:
        """An entry with all folders above it; without ceilings, for those who build a folder."""
        parts = path.split("/")
        for end in range(1, len(parts)):
            above = "/".join(parts[:end])
            if above not in self.entries:
                self.entries[above] = Entry("folder", mode=0o755, changed=entry.changed)
        self.entries[path] = entry

    def names(self, path: str) -> list[str]:
        """What lies directly in a folder, sorted."""
        prefix = f"{path}/" if path else ""
        return sorted(
            key[len(prefix) :]
            for key in self.entries
            if key and key.startswith(prefix) and "/" not in key[len(prefix) :]
        )


class FileMount(msgspec.Struct, frozen=True):
    """A folder (or one file or folder of it: `below`) at an absolute path. name: of the volume."""

    path: str
    folder: Folder
    below: str = ""
    read_only: bool = False
    name: str = ""


class Files:
    """What one container sees. Paths are absolute; relative ones are taken from `/`."""

    def __init__(self, mounts: Sequence[FileMount]) -> None:
        self.mounts = sorted(mounts, key=lambda mount: -len(mount.path))

    # ---- finding

    def _at(self, path: str) -> tuple[FileMount, str]:
        for mount in self.mounts:
            root = mount.path.rstrip("/")
            if path == mount.path or path.startswith(f"{root}/"):
                rest = path[len(root) :].strip("/")
                if mount.folder.refresh:
                    mount.folder.refresh()
                return mount, "/".join(part for part in (mount.below, rest) if part)
        raise FileFault(NO_FILE)

    def followed(self, path: str, *, last: bool = True) -> str:
        """The path with its links followed."""
        path = posixpath.normpath(posixpath.join("/", path)).replace("//", "/")
        for _ in range(LINKS):
            parts = path.split("/")[1:]
            for end in range(1, len(parts) + (1 if last else 0)):
                above = "/" + "/".join(parts[:end])
                mount, key = self._at(above)
                entry = mount.folder.entries.get(key)
                if entry is not None and entry.kind == "link":
                    target = posixpath.join(posixpath.dirname(above), entry.data.decode())
                    path = posixpath.normpath(posixpath.join(target, *parts[end:]))
                    break
            else:
                return path
        raise FileFault("Too many levels of symbolic links")

    def find(self, path: str, *, follow: bool = True) -> Entry | None:
        """The entry at a path; None where there is none."""
        try:
            path = self.followed(path, last=follow)
            mount, key = self._at(path)
        except FileFault:
            return None
        entry = mount.folder.entries.get(key)
        if entry is None and any(m.path == path or m.path.startswith(f"{path.rstrip('/')}/") for m in self.mounts):
            return Entry("folder", mode=0o755)  # where something is mounted there is a folder
        return entry

    def entry(self, path: str) -> Entry:
        """The entry at a path. Raises FileFault."""
        found = self.find(path)
        if found is None:
            raise FileFault(NO_FILE)
        return found

    def is_folder(self, path: str) -> bool:
        """Whether it is one."""
        found = self.find(path)
        return found is not None and found.kind == "folder"

    # ---- reading

    def read(self, path: str) -> bytes:
        """The bytes of a file. Raises FileFault."""
        found = self.entry(path)
        if found.kind == "folder":
            raise FileFault(IS_FOLDER)
        return found.data if found.kind == "file" else b""

    def names(self, path: str) -> list[str]:
        """The names in a folder, sorted; mount points are among them. Raises FileFault."""
        path = self.followed(path)
        if not self.is_folder(path):
            raise FileFault(NO_FOLDER if self.find(path) else NO_FILE)
        mount, key = self._at(path)
        prefix = path.rstrip("/") + "/"
        below = {m.path[len(prefix) :].split("/")[0] for m in self.mounts if m.path.startswith(prefix)}
        return sorted({*mount.folder.names(key), *below} - {""})

    def walk(self, path: str) -> Iterator[str]:
        """A path and all below it, folders before what is in them."""
        yield path
        found = self.find(path, follow=False)
        if found is not None and found.kind == "folder":
            for name in self.names(path):
                yield from self.walk(posixpath.join(path, name))

    # ---- writing

    def _writable(self, path: str) -> tuple[FileMount, str, str]:
        path = self.followed(path)
        mount, key = self._at(path)
        if mount.read_only:
            raise FileFault(READ_ONLY)
        above = posixpath.dirname(path)
        if path != "/" and not self.is_folder(above):
            raise FileFault(NO_FOLDER if self.find(above) else NO_FILE)
        return mount, key, path

    def write(self, path: str, data: bytes, now: float, *, append: bool = False) -> None:
        """Make or replace a file. Raises FileFault."""
        mount, key, path = self._writable(path)
        found = self.find(path)
        if found is not None and found.kind == "folder":
            raise FileFault(IS_FOLDER)
        if found is not None and found.kind == "device":
            return
        entries = mount.folder.entries
        kept = found.data if found is not None and append else b""
        used = sum(len(entry.data) for entry in entries.values()) - (len(found.data) if found else 0)
        if used + len(kept) + len(data) > FOLDER_BYTES or (found is None and len(entries) >= ENTRIES):
            raise FileFault(FULL)
        entries[key] = Entry("file", kept + data, found.mode if found else 0o644, now)

    def make_folder(self, path: str, now: float, *, parents: bool = False) -> None:
        """mkdir. Raises FileFault."""
        path = posixpath.normpath(posixpath.join("/", path))
        if parents:
            above = posixpath.dirname(path)
            if above != path and not self.is_folder(above):
                self.make_folder(above, now, parents=True)
            if self.is_folder(path):
                return
        mount, key, path = self._writable(path)
        if self.find(path) is not None:
            raise FileFault(EXISTS)
        if len(mount.folder.entries) >= ENTRIES:
            raise FileFault(FULL)
        mount.folder.entries[key] = Entry("folder", mode=0o755, changed=now)

    def link(self, path: str, target: str, now: float) -> None:
        """ln -s. Raises FileFault."""
        mount, key, path = self._writable(path)
        if self.find(path, follow=False) is not None:
            raise FileFault(EXISTS)
        mount.folder.entries[key] = Entry("link", target.encode(), 0o777, now)

    def set_mode(self, path: str, mode: int) -> None:
        """chmod. Raises FileFault."""
        mount, key, _ = self._writable(path)
        if key not in mount.folder.entries:
            raise FileFault(NO_FILE)
        mount.folder.entries[key].mode = mode

    def remove(self, path: str, *, recursive: bool = False) -> None:
        """rm, rmdir. Raises FileFault."""
        path = posixpath.normpath(posixpath.join("/", path))
        found = self.find(path, follow=False)
        if found is None:
            raise FileFault(NO_FILE)
        mount, key = self._at(self.followed(path, last=False))
        if mount.read_only:
            raise FileFault(READ_ONLY)
        if any(m.path == path for m in self.mounts):
            raise FileFault("Device or resource busy")
        if found.kind == "folder" and self.names(path) and not recursive:
            raise FileFault(NOT_EMPTY)
        entries = mount.folder.entries
        for other in [k for k in entries if k == key or k.startswith(f"{key}/")]:
            del entries[other]
