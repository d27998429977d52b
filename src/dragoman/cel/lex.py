"""Which words and signs does a text consist of? Tokens with their offsets, literals already as values.

Never looks at what tokens mean together.
"""

from __future__ import annotations

import math
import re
from typing import Final

import msgspec

from dragoman.cel.faults import CompileError, Issue
from dragoman.cel.values import INT_MAX, UINT_MAX, CelValue, Uint

CODE_POINTS_MAX: Final = 100_000


class Token(msgspec.Struct, frozen=True):
    """kind: name, quoted (a name in backticks), int, uint, double, string, bytes, end, or the sign itself."""

    kind: str
    offset: int
    text: str
    value: CelValue = None


_SPACE = re.compile(r"(?:[\t \r\n\f]|//[^\n]*)*")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_QUOTED = re.compile(r"`([A-Za-z0-9_.\-/ ]+)`")
_FLOAT = re.compile(r"(?:[0-9]+\.[0-9]+(?:[eE][+-]?[0-9]+)?|[0-9]+[eE][+-]?[0-9]+|\.[0-9]+(?:[eE][+-]?[0-9]+)?)")
_INT = re.compile(r"(?:0x[0-9a-fA-F]+|[0-9]+)([uU]?)")
_SIGN = re.compile(r"==|!=|<=|>=|&&|\|\||[<>+\-*/%!?:.,()\[\]{}]")
_STRING_START = re.compile(r"([bB]?[rR]?)(\"\"\"|'''|\"|')")
_ESCAPE = re.compile(
    r"\\(?:([abfnrtv\"'\\?`])|[xX]([0-9a-fA-F]{2})|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|([0-3][0-7]{2}))"
)
_SIMPLE = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}


def tokens_of(text: str) -> list[Token]:
    """The tokens of a text, the last one of kind `end`. Raises Refused."""
    if len(text) > CODE_POINTS_MAX:
        raise CompileError(
            "", [Issue(0, f"expression code point size exceeds limit: size: {len(text)}, limit {CODE_POINTS_MAX}")]
        )
    found: list[Token] = []
    position = 0
    while True:
        space = _SPACE.match(text, position)
        position = space.end() if space else position
        if position >= len(text):
            found.append(Token("end", position, "<EOF>"))
            return found
        token = _token_at(text, position)
        found.append(token)
        position += len(token.text)


def _token_at(text: str, position: int) -> Token:
    started = _STRING_START.match(text, position)
    if started:
        return _string(text, position, started.group(1).lower(), started.group(2), started.end())
    name = _NAME.match(text, position)
    if name:
        word = name.group()
        return Token(word if word in ("in", "true", "false", "null") else "name", position, word)
    number = _FLOAT.match(text, position)
    if number:
        value = float(number.group())
        if math.isinf(value):
            raise CompileError(text, [Issue(position, "invalid double literal")])
        return Token("double", position, number.group(), value)
    number = _INT.match(text, position)
    if number:
        return _integer(text, position, number)
    sign = _SIGN.match(text, position)
    if sign:
        return Token(sign.group(), position, sign.group())
    quoted = _QUOTED.match(text, position)
    if quoted:
        return Token("quoted", position, quoted.group(), quoted.group(1))
    raise CompileError(text, [Issue(position, f"Syntax error: token recognition error at: '{text[position]}'")])


def _integer(text: str, position: int, number: re.Match[str]) -> Token:
    digits = number.group().rstrip("uU")
    value = int(digits, 16) if digits.startswith("0x") else int(digits[:40])
    if number.group(1):
        if value > UINT_MAX or len(digits) > 40:
            raise CompileError(text, [Issue(position, "invalid uint literal")])
        return Token("uint", position, number.group(), Uint(value))
    # One more than the largest int: a minus sign may precede, the parser decides.
    if value > INT_MAX + 1 or len(digits) > 40:
        raise CompileError(text, [Issue(position, "invalid int literal")])
    return Token("int", position, number.group(), value)


def _string(text: str, position: int, prefix: str, quote: str, start: int) -> Token:
    end = start
    raw = "r" in prefix
    single = len(quote) == 1
    while True:
        if end >= len(text) or (single and text[end] in "\r\n"):
            raise CompileError(
                text, [Issue(position, f"Syntax error: token recognition error at: '{text[position:end][:40]}'")]
            )
        if text.startswith(quote, end):
            break
        end += 2 if text[end] == "\\" and not raw else 1
    body = text[start:end].replace("\r\n", "\n").replace("\r", "\n")
    whole = text[position : end + len(quote)]
    if "b" in prefix:
        return Token("bytes", position, whole, body.encode() if raw else _unescape_bytes(body, text, position))
    return Token("string", position, whole, body if raw else _unescape(body, text, position))


def _unescape(body: str, text: str, position: int) -> str:
    if "\\" not in body:
        return body
    parts: list[str] = []
    at = 0
    while at < len(body):
        if body[at] != "\\":
            stop = body.find("\\", at)
            stop = len(body) if stop < 0 else stop
            parts.append(body[at:stop])
            at = stop
            continue
        found = _ESCAPE.match(body, at)
        if not found:
            raise CompileError(text, [Issue(position, f"Syntax error: invalid escape sequence '{body[at : at + 2]}'")])
        parts.append(_escaped_char(found, text, position))
        at = found.end()
    return "".join(parts)


def _escaped_char(found: re.Match[str], text: str, position: int) -> str:
    simple, hexed, short, long, octal = found.groups()
    if simple:
        return _SIMPLE.get(simple, simple)
    code = int(octal, 8) if octal else int(hexed or short or long, 16)
    if code > 0x10FFFF or 0xD800 <= code <= 0xDFFF:
        raise CompileError(text, [Issue(position, "Syntax error: invalid unicode code point")])
    return chr(code)


def _unescape_bytes(body: str, text: str, position: int) -> bytes:
    """As _unescape, but \\x and octal escapes are bytes, not code points."""
    parts = bytearray()
    at = 0
    while at < len(body):
        if body[at] != "\\":
            parts += body[at].encode()
            at += 1
            continue
        found = _ESCAPE.match(body, at)
        if not found or found.group(3) or found.group(4):
            raise CompileError(text, [Issue(position, f"Syntax error: invalid escape sequence '{body[at : at + 2]}'")])
        if found.group(2) or found.group(5):
            parts.append(int(found.group(5), 8) if found.group(5) else int(found.group(2), 16))
        else:
            parts += _escaped_char(found, text, position).encode()
        at = found.end()
    return bytes(parts)
