"""Which objects stand in these files? For commands that send them to a server as they are.

A file may hold many YAML documents, JSON or a List; `-` is standard input, a folder all its manifests. What tools
decide on is read leniently elsewhere (`source`); here an object must name its kind.
"""

from __future__ import annotations

import codecs
import os
import select
import stat
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from dragoman.api import yamltext
from dragoman.api.kinds import KINDS, Kind
from dragoman.errors import Invalid, NotFound

SUFFIXES = (".yaml", ".yml", ".json")
KUSTOMIZATION = "kustomization"
"""Stem of a file that says how others are put together, and is no object of a cluster."""
_WRITER_WAIT_S = 5.0


def texts(names: list[str]) -> Iterator[tuple[str, str]]:
    """(name, text) of each file; folders give their manifests sorted by name. Raises NotFound, Invalid."""
    for name in names:
        if not name:
            raise Invalid("-f", "the name of a file is empty")
        if name == "-":
            yield "<stdin>", _text("<stdin>", sys.stdin.buffer.read())
            continue
        path = Path(name)
        if path.is_dir():
            inside = sorted(f for f in path.iterdir() if f.suffix in SUFFIXES and f.stem != KUSTOMIZATION)
            if not inside:
                raise NotFound(f"{name}: no .yaml, .yml or .json files in this folder")
            yield from ((str(file), _text(str(file), _content(file))) for file in inside)
        else:
            yield name, _text(name, _content(path))


def _text(name: str, content: bytes) -> str:
    if content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        raise Invalid(name, "is UTF-16 text: save it as UTF-8 (PowerShell: ... | Out-File -Encoding utf8)")
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        byte = content[error.start]
        raise Invalid(
            f"{name}, line {line}", f"is not UTF-8 text (byte 0x{byte:02x}): save the file as UTF-8"
        ) from None


def _content(path: Path) -> bytes:
    """What a file holds, or a pipe that somebody writes to (`-f <(kubectl get ...)`)."""
    try:
        descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))
    except FileNotFoundError:
        raise NotFound(f"{path}: no such file") from None
    except OSError as error:
        raise Invalid(str(path), f"cannot be read: {error.strerror}") from None
    with os.fdopen(descriptor, "rb") as file:
        mode = os.fstat(descriptor).st_mode
        try:
            if stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode):
                return _piped(path, descriptor)
            if stat.S_ISBLK(mode) or (stat.S_ISCHR(mode) and not os.isatty(descriptor)):
                raise Invalid(str(path), "is a device, not a file")
            os.set_blocking(descriptor, True)
            return file.read()
        except OSError as error:
            raise Invalid(str(path), f"cannot be read: {error.strerror}") from None


def _piped(path: Path, descriptor: int) -> bytes:
    began = time.monotonic()
    received: list[bytes] = []
    while True:
        select.select([descriptor], [], [], _WRITER_WAIT_S)
        try:
            part = os.read(descriptor, 1 << 20)
        except BlockingIOError:  # the writer has not written yet
            continue
        received.append(part)
        if not part and any(received):
            return b"".join(received)
        if not part:  # no writer, or none yet
            if time.monotonic() - began > _WRITER_WAIT_S:
                raise Invalid(str(path), f"is a pipe that nothing was written to within {_WRITER_WAIT_S:.0f} s")
            time.sleep(0.05)


def read(names: list[str]) -> list[tuple[Kind, dict[str, Any]]]:
    """Objects with their kinds, in file order. Raises Invalid with file and document."""
    found = []
    for name, text in texts(names):
        chunks = yamltext.chunks(text, name)
        found += [_addressed(f"{name}, document {chunk.document}", chunk.value) for chunk in chunks]
    if not found:
        raise Invalid(", ".join(names), "contains no objects")
    return found


def _addressed(where: str, obj: Any) -> tuple[Kind, dict[str, Any]]:
    if not isinstance(obj, dict) or not obj.get("kind") or not obj.get("apiVersion"):
        raise Invalid(where, "an object needs apiVersion and kind")
    if not (isinstance(obj.get("metadata"), dict) and obj["metadata"].get("name")):
        raise Invalid(f"{where}: metadata.name", "required")
    group, _, _ = str(obj["apiVersion"]).rpartition("/")
    for kind in KINDS:
        if kind.kind == obj["kind"] and kind.group == group:
            return kind, obj
    raise Invalid(where, f"unknown kind {obj['kind']} in {obj['apiVersion']}")
