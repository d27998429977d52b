"""How is JSON read that nests deeper than the interpreter can follow? Opaque parameters may: an API server accepts
10,000 levels (encoding/json of Go), CPython gives up below 1,000.

What lies deeper than DEPTH_MAX stays bytes (`msgspec.Raw`), which every encoder of ours writes back as they were. The
rest of the object is plain values, so that one tenant's object never keeps the others from being read.
"""

from __future__ import annotations

import hashlib
import re
from typing import Any

import msgspec

DEPTH_MAX = 200
"""Levels of an object that become plain values. No field that Kubernetes knows lies as deep."""

_PART = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"|[\[\]{}]', re.DOTALL)


def loads(text: bytes | bytearray | str) -> Any:
    """The value of a JSON text of any depth. Raises msgspec.DecodeError for what is no JSON."""
    try:
        return msgspec.json.decode(text)
    except RecursionError:
        return _shallow(text.encode("utf-8", "surrogatepass") if isinstance(text, str) else bytes(text))


def copied(value: Any) -> Any:
    """A copy of a JSON-shaped value that shares nothing which can change."""
    return loads(msgspec.json.encode(value))


def bound(holder: msgspec.Struct, field: str) -> None:
    """Turn a free-form field into Raw if it nests deeper than DEPTH_MAX."""
    value = getattr(holder, field)
    if not _depth_within(value, DEPTH_MAX):
        msgspec.structs.force_setattr(holder, field, msgspec.Raw(_encoded(value)))


def is_deep(value: Any) -> bool:
    """Whether that is a part that was left as bytes."""
    return isinstance(value, msgspec.Raw)


def _shallow(text: bytes) -> Any:
    value, below = _cut(text)
    while below:  # the same for what was cut off: bytes that are no JSON must not pass as some
        _, deeper = _cut(below.pop())
        below += deeper
    return value


def _cut(text: bytes) -> tuple[Any, list[bytes]]:
    """The value with Raw for what lies deeper than DEPTH_MAX, and those parts."""
    # Text that knows its own digest cannot be written, so no string of the text is taken for a mark.
    mark = "raw:" + hashlib.sha256(text).hexdigest()
    shallow: list[bytes] = []
    deep: list[bytes] = []
    depth = at = began = 0
    for part in _PART.finditer(text):
        sign = text[part.start()]
        if sign in b"[{":
            depth += 1
            if depth == DEPTH_MAX:
                began = part.start()
        elif sign in b"]}":
            if depth == DEPTH_MAX:
                shallow += (text[at:began], f'"{mark}:{len(deep)}"'.encode())
                at = part.end()
                deep.append(text[began:at])
            depth -= 1
    shallow.append(text[at:])
    whole = b"".join(shallow)
    try:
        value = msgspec.json.decode(whole)
    except RecursionError:  # brackets that close nothing
        raise msgspec.DecodeError("JSON is malformed: brackets do not match") from None
    return _with_raw(value, mark, deep), deep


def _with_raw(value: Any, mark: str, deep: list[bytes]) -> Any:
    if isinstance(value, str):
        return msgspec.Raw(deep[int(value.rpartition(":")[2])]) if value.startswith(mark) else value
    if isinstance(value, dict):
        return {key: _with_raw(inner, mark, deep) for key, inner in value.items()}
    if isinstance(value, list):
        return [_with_raw(inner, mark, deep) for inner in value]
    return value


def _depth_within(value: Any, most: int) -> bool:
    level = [value]
    for _ in range(most):
        level = [
            inner
            for outer in level
            if isinstance(outer, dict | list)
            for inner in (outer.values() if isinstance(outer, dict) else outer)
        ]
        if not level:
            return True
    return False


def _encoded(value: Any) -> bytes:
    """JSON of a value too deep for encoders that recurse."""
    done: list[bytes] = []
    todo: list[Any] = [(value,)]
    while todo:
        match todo.pop():
            case bytes() as text:
                done.append(text)
            case (dict() as members,):
                parts: list[Any] = [b"{"]
                for index, (key, inner) in enumerate(members.items()):
                    parts += (b"," if index else b"", msgspec.json.encode(str(key)) + b":", (inner,))
                todo.extend(reversed([*parts, b"}"]))
            case (list() as items,):
                parts = [b"["]
                for index, inner in enumerate(items):
                    parts += (b"," if index else b"", (inner,))
                todo.extend(reversed([*parts, b"]"]))
            case (inner,):
                done.append(msgspec.json.encode(inner))
    return b"".join(done)
