"""Which objects stand in these files? For commands that send them to a server as they are.

A file may hold many YAML documents, JSON or a List; `-` is standard input, a folder all its manifests. What tools
decide on is read leniently elsewhere (`source`); here an object must name its kind.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from dragoman.api import yamltext
from dragoman.api.kinds import KINDS, Kind
from dragoman.errors import Invalid, NotFound

SUFFIXES = (".yaml", ".yml", ".json")


def texts(names: list[str]) -> Iterator[tuple[str, bytes]]:
    """(name, content) of each file; folders give their manifests sorted by name. Raises NotFound, Invalid."""
    for name in names:
        if name == "-":
            yield "<stdin>", sys.stdin.buffer.read()
            continue
        path = Path(name)
        if path.is_dir():
            inside = sorted(file for file in path.iterdir() if file.suffix in SUFFIXES)
            if not inside:
                raise NotFound(f"{name}: no .yaml, .yml or .json files in this folder")
            yield from ((str(file), _content(file)) for file in inside)
        else:
            yield name, _content(path)


def _content(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        raise NotFound(f"{path}: no such file") from None
    except OSError as error:
        raise Invalid(str(path), f"cannot be read: {error.strerror}") from None


def read(names: list[str]) -> list[tuple[Kind, dict[str, Any]]]:
    """Objects with their kinds, in file order. Raises Invalid with file and document."""
    found = []
    for name, content in texts(names):
        chunks = yamltext.chunks(content.decode("utf-8", errors="replace"), name)
        found += [_addressed(f"{name}, document {chunk.document}", chunk.value) for chunk in chunks]
    if not found:
        raise Invalid(", ".join(names), "no objects in there")
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
