"""Between which two steps is a driver killed? Counts what it does to files below some folders, and acts at the nth.

Works for a driver in any language: whatever it wants to survive a crash has to reach a file. Linux' inotify by its
system calls; it never looks into the files.
"""

from __future__ import annotations

import ctypes
import os
import select
import struct
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

_MODIFY, _CLOSE_WRITE, _MOVED_FROM, _MOVED_TO, _CREATE, _DELETE = 0x2, 0x8, 0x40, 0x80, 0x100, 0x200
_MASK = _MODIFY | _CLOSE_WRITE | _MOVED_FROM | _MOVED_TO | _CREATE | _DELETE
_HEAD = struct.Struct("iIII")
_BUFFER = 65536


class FileSteps:
    """Counts while the body of `with` runs; `act` is called once, in a thread, at step `at` (0: never).

    Folders made meanwhile are watched from the moment that they are seen.
    """

    def __init__(self, folders: Sequence[Path], at: int = 0, act: Callable[[], None] = lambda: None) -> None:
        self.folders = folders
        self.at = at
        self.act = act
        self.count = 0
        self._watched: dict[int, Path] = {}

    def __enter__(self) -> Self:
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._fd = self._libc.inotify_init1(os.O_CLOEXEC | os.O_NONBLOCK)
        if self._fd < 0:
            raise OSError(ctypes.get_errno(), "inotify_init1")
        self._end, self._ended = os.pipe()
        for folder in self.folders:
            for top, _, _ in os.walk(folder):
                self._watch(Path(top))
        self._thread = threading.Thread(target=self._follow, name="file steps", daemon=True)
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.write(self._ended, b"x")
        self._thread.join()
        for descriptor in (self._fd, self._end, self._ended):
            os.close(descriptor)

    def _watch(self, folder: Path) -> None:
        number = self._libc.inotify_add_watch(self._fd, os.fsencode(folder), _MASK)
        if number >= 0:
            self._watched[number] = folder

    def _follow(self) -> None:
        while True:
            readable, _, _ = select.select([self._fd, self._end], [], [])
            if self._fd in readable:
                self._take(os.read(self._fd, _BUFFER))
            elif self._end in readable:
                return

    def _take(self, content: bytes) -> None:
        offset = 0
        while offset < len(content):
            number, mask, _, length = _HEAD.unpack_from(content, offset)
            name = content[offset + _HEAD.size : offset + _HEAD.size + length].rstrip(b"\0")
            offset += _HEAD.size + length
            self.count += 1
            if self.count == self.at:
                self.act()
            if mask & _CREATE and number in self._watched:
                made = self._watched[number] / os.fsdecode(name)
                if made.is_dir():
                    self._watch(made)
