"""Which keys does the text have twice in one mapping? The parsers keep the last one and say nothing."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from dragoman.api.files import Document
from dragoman.api.validate.field import path_text
from dragoman.api.yamltext import compose
from dragoman.lint.finding import LINES_MAX, ItemPath


def repeated_keys(document: Document) -> Iterator[tuple[str, str, int]]:
    """Path, key and line of each key that is there again."""
    if len(document.chunk.text) > LINES_MAX:
        return
    node = compose(document.chunk)
    if node is not None:
        for path, key, line in _of(node, ()):
            yield path_text(path), key, document.chunk.line + line


def _of(node: Any, path: ItemPath) -> Iterator[tuple[ItemPath, str, int]]:
    if node.id == "mapping":
        seen: set[str] = set()
        for key, value in node.value:
            name = str(key.value)
            if name in seen and name != "<<":
                yield (*path, name), name, key.start_mark.line
            seen.add(name)
            yield from _of(value, (*path, name))
    elif node.id == "sequence":
        for index, item in enumerate(node.value):
            yield from _of(item, (*path, index))
