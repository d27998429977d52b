"""How does a value look inside a formatted string? `"...".format([...])` as version 2 of the strings library has it:
English digit groups, and powers of ten written out in scientific notation."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Final

from dragoman.cel.faults import EvalError
from dragoman.cel.stdlib.conversions import format_double
from dragoman.cel.stdlib.times import format_duration, format_timestamp
from dragoman.cel.types import Type
from dragoman.cel.values import TEXT_MAX, CelValue, Duration, Timestamp, Uint, map_keys, type_name

_PRECISION: Final = 6
_PRECISION_MAX: Final = 1000
_SUPERSCRIPT = str.maketrans("0123456789-+", "⁰¹²³⁴⁵⁶⁷⁸⁹⁻⁺")
_SPECIAL_DOUBLES = frozenset(("NaN", "Infinity", "-Infinity"))


def format_string(text: str, values: tuple[CelValue, ...]) -> str:
    """Replaces each clause by its value. Raises EvalError."""
    parts: list[str] = []
    position = 0
    for piece, letter, precision in _pieces(text):
        parts.append(piece)
        if not letter:
            continue
        if position >= len(values):
            raise EvalError(f"index {position} out of range")
        parts.append(_clause(letter, precision, values[position]))
        position += 1
    return "".join(parts)


def clauses(text: str) -> Iterator[str]:
    """The letters of the clauses in a text. Raises EvalError."""
    for _, letter, _ in _pieces(text):
        if letter:
            if letter not in _LETTERS:
                raise EvalError(f'could not parse formatting clause: unrecognized formatting clause "{letter}"')
            yield letter


_LETTERS: Final = frozenset("sdfebxXo")


def _pieces(text: str) -> Iterator[tuple[str, str, int]]:
    """Literal text, then the clause's letter (empty if none follows) and precision."""
    at = 0
    while at < len(text):
        mark = text.find("%", at)
        if mark < 0:
            yield text[at:], "", 0
            return
        before = text[at:mark]
        if text[mark + 1 : mark + 2] == "%":
            yield f"{before}%", "", 0
            at = mark + 2
            continue
        letter, precision, at = _read_clause(text, mark + 1)
        yield before, letter, precision


def _read_clause(text: str, at: int) -> tuple[str, int, int]:
    """Letter and precision of a clause after its percent sign, and where the text goes on."""
    if at >= len(text):
        raise EvalError("unexpected end of string")
    precision = _PRECISION
    if text[at] == ".":
        end = at + 1
        while end < len(text) and text[end].isdigit() and text[end].isascii():
            end += 1
        precision = int(text[at + 1 : end][:6] or 0)
        at = end
        if precision > _PRECISION_MAX:
            raise EvalError(f"precision {precision} exceeds the limit of {_PRECISION_MAX}")
    if at >= len(text):
        what = "error while parsing precision: could not find end of precision specifier"
        raise EvalError(f"could not parse formatting clause: {what}")
    return text[at], precision, at + 1


def _clause(letter: str, precision: int, value: CelValue) -> str:
    try:
        return _formatted(letter, precision, value)
    except EvalError as error:
        if error.message.startswith("could not parse"):
            raise
        raise EvalError(f"error during formatting: {error.message}") from None


def _formatted(letter: str, precision: int, value: CelValue) -> str:
    match letter:
        case "s":
            return _shown(value)
        case "d":
            return _decimal(value)
        case "f":
            return _fixed(value, precision)
        case "e":
            return _scientific(value, precision)
        case "b":
            return _binary(value)
        case "x":
            return _hex(value)
        case "X":
            return _hex(value).upper()
        case "o":
            if value.__class__ not in (int, Uint):
                raise EvalError(f"octal clause can only be used on integers, was given {type_name(value)}")
            return f"{int(value):o}"
    raise EvalError(f'could not parse formatting clause: unrecognized formatting clause "{letter}"')


def _bounded(text: str) -> str:
    if len(text) > TEXT_MAX:
        raise EvalError(f"a string of {len(text)} characters exceeds the limit of {TEXT_MAX}")
    return text


def _shown(value: CelValue) -> str:
    """`%s`."""
    kind = value.__class__
    if kind is str:
        return str(value)
    if kind is tuple:
        return _bounded(f"[{', '.join(_literal(element) for element in value)}]")
    if isinstance(value, dict):
        pairs = sorted((_key(key), _literal(value[kept])) for key, kept in zip(map_keys(value), value, strict=True))
        return _bounded("{" + ", ".join(f"{key}:{shown}" for key, shown in pairs) + "}")
    if value is None:
        return "null"
    if kind is bool:
        return "true" if value else "false"
    if kind is int or kind is Uint:
        return str(int(value))
    if kind is float:
        return format_double(value)
    if kind is bytes:
        return value.decode(errors="replace")  # type: ignore[no-any-return]
    return _shown_other(value)


def _shown_other(value: CelValue) -> str:
    if isinstance(value, Timestamp):
        return format_timestamp(value)
    if isinstance(value, Duration):
        return format_duration(value)
    if isinstance(value, Type):
        return value.name
    what = "strings, bools, bytes, ints, doubles, maps, lists, types, durations, and timestamps"
    raise EvalError(f"string clause can only be used on {what}, was given {type_name(value)}")


def _key(key: CelValue) -> str:
    if key.__class__ not in (str, bool, int, Uint):
        raise EvalError(f"no formatting function for map key of type {type_name(key)}")
    return _literal(key)


ESCAPES: Final = {
    "\a": "\\a",
    "\b": "\\b",
    "\f": "\\f",
    "\n": "\\n",
    "\r": "\\r",
    "\t": "\\t",
    "\v": "\\v",
    "\\": "\\\\",
    '"': '\\"',
}


def quoted(text: str) -> str:
    """The text in double quotes with escapes, as Go's %q writes it."""
    return '"' + "".join(ESCAPES.get(sign) or (sign if sign.isprintable() else _code(sign)) for sign in text) + '"'


def _code(sign: str) -> str:
    code = ord(sign)
    if code < 0x80:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def _literal(value: CelValue) -> str:
    """A value inside a list or map: as a literal of the language."""
    kind = value.__class__
    if kind is str:
        return quoted(value)
    if kind is bytes:
        return "b" + quoted(value.decode(errors="replace"))
    if kind is float:
        text = f"{value:.{_PRECISION}f}" if math.isfinite(value) else format_double(value)
        return text if math.isfinite(value) else f'"{text}"'
    if isinstance(value, Timestamp | Duration):
        name = "timestamp" if isinstance(value, Timestamp) else "duration"
        return f'{name}("{_shown_other(value)}")'
    if kind in (tuple, bool, int, Uint, type(None), Type) or isinstance(value, dict):
        return _shown(value)
    raise EvalError(f"no formatting function for {type_name(value)}")


def _decimal(value: CelValue) -> str:
    if value.__class__ not in (int, Uint):
        raise EvalError(f"decimal clause can only be used on integers, was given {type_name(value)}")
    return str(int(value))


def _double(value: CelValue, clause: str) -> float:
    if value.__class__ is float:
        return float(value)
    if value.__class__ is str and value in _SPECIAL_DOUBLES:
        return float(value.replace("Infinity", "inf"))
    raise EvalError(f"{clause} clause can only be used on doubles, was given {type_name(value)}")


def _not_finite(number: float) -> str:
    return "NaN" if math.isnan(number) else "∞" if number > 0 else "-∞"


def _fixed(value: CelValue, precision: int) -> str:
    number = _double(value, "fixed-point")
    return f"{number:,.{precision}f}" if math.isfinite(number) else _not_finite(number)


def _scientific(value: CelValue, width: int) -> str:
    """Six decimals always: what looks like a precision is a width upstream."""
    number = _double(value, "scientific")
    if not math.isfinite(number):
        return _not_finite(number).rjust(width)
    mantissa, _, exponent = f"{number:.{_PRECISION}e}".partition("e")
    power = int(exponent)
    digits = f"{'-' if power < 0 else ''}{abs(power):02d}".translate(_SUPERSCRIPT)
    return f"{mantissa}×10{digits}".rjust(width)


def _binary(value: CelValue) -> str:
    if value.__class__ is bool:
        return "1" if value else "0"
    if value.__class__ in (int, Uint):
        return f"{int(value):b}"
    raise EvalError(f"only integers and bools can be formatted as binary, was given {type_name(value)}")


def _hex(value: CelValue) -> str:
    kind = value.__class__
    if kind is str:
        return str(value.encode().hex())
    if kind is bytes:
        return str(value.hex())
    if kind in (int, Uint):
        return f"{int(value):x}"
    what = "only integers, byte buffers, and strings can be formatted as hex"
    raise EvalError(f"{what}, was given {type_name(value)}")
