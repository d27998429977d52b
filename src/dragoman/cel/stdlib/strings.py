"""What can be done with strings? Version 2 of the strings library, by code points. `format` is in strformat."""

from __future__ import annotations

from typing import Final

from dragoman.cel import types as t
from dragoman.cel.faults import EvalError
from dragoman.cel.functions import free, member
from dragoman.cel.stdlib.strformat import ESCAPES, format_string
from dragoman.cel.values import TEXT_MAX

SPACES: Final = (
    "\t\n\v\f\r \x85\xa0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a"
    "\u2028\u2029\u202f\u205f\u3000"
)
"""What trim() takes off: Unicode's white space."""

_LOWER = {ord(upper): upper.lower() for upper in "ABCDEFGHIJKLMNOPQRSTUVWXYZ"}
_UPPER = {ord(lower): lower.upper() for lower in "abcdefghijklmnopqrstuvwxyz"}
_QUOTED = str.maketrans(ESCAPES)


def _out_of_range(index: int) -> EvalError:
    return EvalError(f"index out of range: {index}")


def _char_at(text: str, index: int) -> str:
    if not 0 <= index <= len(text):
        raise _out_of_range(index)
    return text[index : index + 1]


def _index_of(text: str, part: str, offset: int = 0) -> int:
    if offset < 0:
        raise _out_of_range(offset)
    if not part:
        return min(offset, len(text))
    return text.find(part, offset) if offset < len(text) else -1


def _last_index_of(text: str, part: str) -> int:
    return text.rfind(part) if part else len(text)


def _last_index_of_from(text: str, part: str, offset: int) -> int:
    if offset < 0:
        raise _out_of_range(offset)
    if not part:
        return min(offset, len(text))
    if offset >= len(text):
        return -1
    return text.rfind(part, 0, offset + len(part))


def _bounded(size: int) -> None:
    if size > TEXT_MAX:
        raise EvalError(f"a string of {size} characters exceeds the limit of {TEXT_MAX}")


def _replace(text: str, old: str, new: str, count: int = -1) -> str:
    places = text.count(old) if count < 0 else min(text.count(old), count)
    _bounded(len(text) + places * (len(new) - len(old)))
    return text.replace(old, new, count)


def _split(text: str, separator: str, limit: int = -1) -> tuple[str, ...]:
    if limit == 0:
        return ()
    if separator:
        return tuple(text.split(separator, limit - 1 if limit > 0 else -1))
    if limit < 0 or limit >= len(text):
        return tuple(text)
    return (*text[: limit - 1], text[limit - 1 :])


def _substring(text: str, start: int) -> str:
    if not 0 <= start <= len(text):
        raise _out_of_range(start)
    return text[start:]


def _substring_to(text: str, start: int, end: int) -> str:
    if start > end:
        raise EvalError(f"invalid substring range. start: {start}, end: {end}")
    for index in (start, end):
        if not 0 <= index <= len(text):
            raise _out_of_range(index)
    return text[start:end]


def _join(parts: tuple[object, ...], separator: str = "") -> str:
    for part in parts:
        if part.__class__ is not str:
            raise EvalError(f"join: invalid input: {part}")
    texts: tuple[str, ...] = parts  # type: ignore[assignment]
    _bounded(sum(map(len, texts)) + len(separator) * max(0, len(texts) - 1))
    return separator.join(texts)


def _quote(text: str) -> str:
    return f'"{text.translate(_QUOTED)}"'


_S, _I = t.STRING, t.INT
_STRINGS = t.list_of(t.STRING)

OVERLOADS: Final = [
    member("charAt", "string_char_at_int", (_S, _I), _S, _char_at),
    member("indexOf", "string_index_of_string", (_S, _S), _I, _index_of),
    member("indexOf", "string_index_of_string_int", (_S, _S, _I), _I, _index_of),
    member("lastIndexOf", "string_last_index_of_string", (_S, _S), _I, _last_index_of),
    member("lastIndexOf", "string_last_index_of_string_int", (_S, _S, _I), _I, _last_index_of_from),
    member("lowerAscii", "string_lower_ascii", (_S,), _S, lambda text: text.translate(_LOWER)),
    member("replace", "string_replace_string_string", (_S, _S, _S), _S, _replace),
    member("replace", "string_replace_string_string_int", (_S, _S, _S, _I), _S, _replace),
    member("split", "string_split_string", (_S, _S), _STRINGS, _split),
    member("split", "string_split_string_int", (_S, _S, _I), _STRINGS, _split),
    member("substring", "string_substring_int", (_S, _I), _S, _substring),
    member("substring", "string_substring_int_int", (_S, _I, _I), _S, _substring_to),
    member("trim", "string_trim", (_S,), _S, lambda text: text.strip(SPACES)),
    member("upperAscii", "string_upper_ascii", (_S,), _S, lambda text: text.translate(_UPPER)),
    member("format", "string_format", (_S, t.list_of(t.DYN)), _S, format_string),
    free("strings.quote", "strings_quote", (_S,), _S, _quote),
    member("join", "list_join", (_STRINGS,), _S, _join),
    member("join", "list_join_string", (_STRINGS, _S), _S, _join),
]
