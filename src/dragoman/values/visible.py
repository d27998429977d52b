"""How does text from objects look on a terminal? Control characters made visible, and how many columns text takes.

Names, messages and attributes come from whoever may write objects; escape sequences in them must not reach a terminal,
and line breaks must not forge lines. Letters of every script are shown as they are.
"""

from __future__ import annotations

import re
import unicodedata

_JOINERS = frozenset("\u200c\u200d")
"""Formatting characters that scripts and emoji need; others may hide or reorder text."""

# C0 and C1 controls, DEL, line and paragraph separators, formatting characters, surrogates.
_SUSPECT = re.compile(r"[\x00-\x1f\x7f-\x9f\xad\u0600-\u061c\u06dd\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ud800-\udfff\ufeff\ufff9-\ufffb\U000e0000-\U000e007f]")  # fmt: skip # noqa: E501


def visible(text: str) -> str:
    """The text in one line: `\\n`, `\\x1b`, `\\u202e` in the place of what a terminal would act on."""
    return _SUSPECT.sub(_escaped, text)


def visible_lines(text: str) -> str:
    """The same for text of several lines: its line breaks stay."""
    return "\n".join(visible(line) for line in text.split("\n"))


def _escaped(found: re.Match[str]) -> str:
    char = found[0]
    if char in _JOINERS:
        return char
    short = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}.get(char)
    if short:
        return short
    code = ord(char)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def json_safe(text: str) -> str:
    """JSON text with what a terminal would act on as `\\uXXXX`; the value stays the same."""
    return _SUSPECT.sub(lambda found: found[0] if found[0] in "\n\u200c\u200d" else _json_escape(found[0]), text)


def _json_escape(char: str) -> str:
    code = ord(char)
    if code < 0x10000:
        return f"\\u{code:04x}"
    code -= 0x10000
    return f"\\u{0xD800 + (code >> 10):04x}\\u{0xDC00 + (code & 0x3FF):04x}"


def columns_of(text: str) -> int:
    """How many columns a terminal takes for the text: two for wide characters (Hangul, CJK), none for marks."""
    if text.isascii():
        return len(text)
    return sum(_width(char) for char in text)


def _width(char: str) -> int:
    if unicodedata.category(char) in ("Mn", "Me", "Cf"):
        return 0
    return 2 if unicodedata.east_asian_width(char) in ("W", "F") else 1


def padded(text: str, columns: int) -> str:
    """The text with blanks up to so many columns."""
    return text + " " * (columns - columns_of(text))


def wrapped(text: str, columns: int, indent: str = "") -> list[str]:
    """Lines of at most so many columns, broken at blanks only; all but the first begin with indent."""
    lead = text[: len(text) - len(text.lstrip(" "))]
    lines, current = [], lead
    empty = True
    for word in text.split(" "):
        if not word:
            continue
        joined = current + word if empty else f"{current} {word}"
        if not empty and columns_of(joined) > columns:
            lines.append(current)
            joined = indent + word
        current, empty = joined, False
    return [*lines, current]
