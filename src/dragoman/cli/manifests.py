"""Which objects stand in these files? For commands that send them to a server as they are.

A file may hold many YAML documents, JSON or a List; `-` is standard input, a folder all its manifests. What tools
decide on is read leniently elsewhere (`source`); here an object must name its kind.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

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
        try:
            documents = list(yaml.load_all(content, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader)))
        except yaml.YAMLError as error:
            raise Invalid(name, f"not YAML: {' '.join(str(error).split())}") from None
        for number, document in enumerate(documents, 1):
            if document is None:
                continue
            items = document.get("items", []) if _is_list(document) else [document]
            found += [_addressed(f"{name}, document {number}", obj) for obj in items]
    if not found:
        raise Invalid(", ".join(names), "no objects in there")
    return found


def _is_list(document: Any) -> bool:
    return isinstance(document, dict) and str(document.get("kind", "")).endswith("List") and "items" in document


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
