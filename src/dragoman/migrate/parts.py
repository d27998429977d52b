"""Which part of a file holds which object? Cut so that all parts together are the file again, byte for byte.

Items of a List are parts of their own where none shares an anchor with another, so that work costs what it touches.
"""

from __future__ import annotations

import json
import re
from typing import Any

import yaml

from dragoman.api import yamltext
from dragoman.migrate.yamledit import Path

_SEPARATOR = re.compile(r"^---(?=\s|$)[^\n]*(?:\n|$)", re.MULTILINE)
_BLANK = re.compile(r"(?:[ \t]*(?:#[^\n]*)?(?:\r?\n|$)|%[^\n]*\n|\.\.\.[^\n]*(?:\n|$))*")
_ANCHOR = re.compile(r"(?m)(?:^|[\s,\[{:-])[&*][A-Za-z0-9_-]+")


class FilePart:
    """A part of a file. path: of the object in what the text says; None: there is no object, the text stays.

    line: of its first line, from 1. document and item: as in messages. of_list: the item is one of a List.
    value: the object as it was read.
    """

    __slots__ = ("document", "item", "line", "path", "text", "value")

    def __init__(
        self,
        text: str,
        line: int,
        document: int,
        path: Path | None = None,
        item: int | None = None,
        value: dict[str, Any] | None = None,
    ) -> None:
        self.text = text
        self.line = line
        self.document = document
        self.path = path
        self.item = item
        self.value = value or {}


class FileParts:
    """A file as parts. Raises yamltext.Broken."""

    def __init__(self, text: str, name: str) -> None:
        self.newline = "\r\n" if "\r\n" in text else "\n"
        self.is_json = text.lstrip("\ufeff \t\r\n")[:1] in ("{", "[") and _is_json(text)
        self.all: list[FilePart] = []
        body = text.removeprefix("\ufeff")
        if body is not text and len(body) < len(text):
            self.all.append(FilePart("\ufeff", 1, 0))
        if self.is_json:
            self._cut_json(body, name)
        else:
            self._cut_yaml(body, name)

    @property
    def text(self) -> str:
        """All parts together."""
        return "".join(part.text for part in self.all)

    @property
    def objects(self) -> list[FilePart]:
        """The parts that hold objects."""
        return [part for part in self.all if part.path is not None]

    # ---- cutting

    def _cut_json(self, text: str, name: str) -> None:
        decoder, at, number = json.JSONDecoder(), 0, 0
        while at < len(text):
            start = at + len(text[at:]) - len(text[at:].lstrip())
            if start == len(text):
                self.all.append(FilePart(text[at:], 1, number))
                return
            number += 1
            _, end = decoder.raw_decode(text, start)
            self.all.append(FilePart(text[at:start], 1, number))
            self._document(text[start:end], name, text.count("\n", 0, start) + 1, number)
            at = end

    def _cut_yaml(self, text: str, name: str) -> None:
        marks = [*_SEPARATOR.finditer(text)]
        bounds = [(0, 0), *((m.start(), _content_start(m)) for m in marks)]
        number = 0
        for index, (mark, start) in enumerate(bounds):
            end = bounds[index + 1][0] if index + 1 < len(bounds) else len(text)
            if start > mark:
                self.all.append(FilePart(text[mark:start], text.count("\n", 0, mark) + 1, number))
            part = text[start:end]
            if _BLANK.fullmatch(part):
                if part:
                    self.all.append(FilePart(part, text.count("\n", 0, start) + 1, number))
                continue
            number += 1
            self._document(part, name, text.count("\n", 0, start) + 1, number)

    def _document(self, text: str, name: str, line: int, number: int) -> None:
        value = yamltext.parse(text, name, document=number, line=line)
        if not isinstance(value, dict):
            if value is not None:
                raise yamltext.Broken(name, number, line, "must be an object with apiVersion and kind")
            self.all.append(FilePart(text, line, number))
            return
        if not yamltext.is_list(value):
            self.all.append(FilePart(text, line, number, (), None, value))
            return
        items = value["items"]
        if _ANCHOR.search(text) or not items or not all(isinstance(item, dict) for item in items):
            # One text for all: edits of one object change the text of the others' part.
            self.all.append(FilePart(text, line, number, ("items",), 0, value))
            return
        self._items(text, line, number, items)

    def _items(self, text: str, line: int, number: int, items: list[dict[str, Any]]) -> None:
        root: Any = yaml.compose(text, Loader=yaml.CSafeLoader)
        listed = next(node for key, node in root.value if key.value == "items")
        if listed.flow_style:
            starts = [entry.start_mark.index for entry in listed.value]
            ends = [entry.end_mark.index for entry in listed.value]
        else:
            starts = [text.rfind("\n", 0, entry.start_mark.index) + 1 for entry in listed.value]
            ends = [*starts[1:], _end_of_block(text, listed)]
        at = 0
        for index, (start, end) in enumerate(zip(starts, ends, strict=True)):
            if start > at:
                self.all.append(FilePart(text[at:start], line + text.count("\n", 0, at), number))
            path: Path = () if listed.flow_style else (0,)
            place = line + text.count("\n", 0, start)
            self.all.append(FilePart(text[start:end], place, number, path, index, items[index]))
            at = end
        if at < len(text):
            self.all.append(FilePart(text[at:], line + text.count("\n", 0, at), number))


def _content_start(mark: re.Match[str]) -> int:
    """Behind the line of `---`, or behind the dashes where something follows on it."""
    rest = mark[0][3:].strip()
    return mark.end() if not rest or rest.startswith("#") else mark.start() + 4


def _is_json(text: str) -> bool:
    decoder, at = json.JSONDecoder(), 0
    text = text.removeprefix("\ufeff")
    try:
        while at < len(text):
            at += len(text[at:]) - len(text[at:].lstrip())
            if at < len(text):
                _, at = decoder.raw_decode(text, at)
    except (ValueError, RecursionError):
        return False
    return True


def _end_of_block(text: str, listed: Any) -> int:
    """Behind the last line of a block list: before the next key of the List, or the end of the text."""
    at = int(listed.end_mark.index)
    column = listed.start_mark.column
    # libyaml ends a block at the next token: lines of comments between belong to what follows, if they are less deep.
    lines = text[:at].split("\n")

    def is_before_the_next(line: str) -> bool:
        is_comment = line.lstrip().startswith("#") and not line.startswith(" " * (column + 1))
        return not line.strip() or is_comment

    while len(lines) > 1 and is_before_the_next(lines[-1]):
        lines.pop()
    end = len("\n".join(lines))
    found = text.find("\n", end)
    return len(text) if found < 0 else found + 1
