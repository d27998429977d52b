"""How much is that? Kubernetes quantities, exact: a whole number of nano-units, and the format it was written in.

Behaves as `resource.Quantity` of k8s.io/apimachinery does: what it accepts, how it rounds (below one nano away
from zero), how it caps (binary suffixes at 2**63-1) and the text it prints. Never uses a float to decide.
"""

from __future__ import annotations

import math
import re
from functools import lru_cache, total_ordering
from typing import Final

NANO: Final = 10**9
INT64_MAX: Final = 2**63 - 1

DECIMAL_SI: Final = "DecimalSI"
BINARY_SI: Final = "BinarySI"
DECIMAL_EXPONENT: Final = "DecimalExponent"

MAX_EXPONENT: Final = 1000
"""Ceiling of `e` exponents. Upstream's is that of 32 bits; beyond 1000 nobody means what the text says."""

_MAX_DIGITS = 1000
_TEXT = re.compile(r"([+-]?)([0-9]*)(?:(\.)([0-9]*))?([eEinumkKMGTP]*[+-]?[0-9]*)")
_DECIMAL = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_BINARY = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}
_DECIMAL_SUFFIX = {exponent: suffix for suffix, exponent in _DECIMAL.items()}
_BINARY_SUFFIX = {0: ""} | {exponent: suffix for suffix, exponent in _BINARY.items()}

_FORMAT_TEXT = (
    "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"  # the API's wording
)
_NUMBER_TEXT = "unable to parse numeric part of quantity"
_SUFFIX_TEXT = "unable to parse quantity's suffix"


@total_ordering
class Quantity:
    """An exact amount; equal, ordered and hashed by value alone, so "1Ki" equals "1024". Immutable.

    `nanos` is the amount times 10**9. `format` is DecimalSI, BinarySI or DecimalExponent and shapes the text.
    """

    __slots__ = ("_scale", "_text", "format", "nanos")

    nanos: int
    format: str
    _text: str
    _scale: int | None

    def __init__(self, nanos: int, format: str = DECIMAL_SI, *, _text: str = "", _scale: int | None = 0) -> None:
        set_ = object.__setattr__
        set_(self, "nanos", nanos)
        set_(self, "format", format)
        set_(self, "_text", _text)
        # Upstream's representation: an int64 times ten to the scale, or (None) a big decimal. It shows in the
        # language of selectors only: isInteger() of a big decimal is false there.
        set_(self, "_scale", _scale)

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"a Quantity is immutable: cannot set {name}")

    def __delattr__(self, name: str) -> None:
        raise AttributeError(f"a Quantity is immutable: cannot delete {name}")

    def __reduce__(self) -> tuple[object, ...]:
        return (_restore, (self.nanos, self.format, self._text, self._scale))

    @staticmethod
    def parse(value: str | int | float) -> Quantity:
        """Reads a quantity as JSON or YAML carry it: text or number. Raises ValueError with the reason."""
        if isinstance(value, str):
            return _parse_text(value.strip())
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise ValueError(f"a quantity is text or a number, got {type(value).__name__}")
        if isinstance(value, float):
            if not math.isfinite(value):
                raise ValueError(f"a quantity must be finite, got {value}")
            if value.is_integer() and abs(value) < 2**53:
                value = int(value)
        return _parse_text(repr(value))

    @staticmethod
    def of(value: int, format: str = DECIMAL_SI) -> Quantity:
        """A whole number of units."""
        return Quantity(value * NANO, format, _scale=0 if -INT64_MAX - 1 <= value <= INT64_MAX else None)

    # ---- reading

    def __str__(self) -> str:
        text = self._text
        if not text:
            text = _canonical(self.nanos, self.format)
            object.__setattr__(self, "_text", text)
        return text

    def __repr__(self) -> str:
        return f"Quantity({str(self)!r})"

    def value(self) -> int:
        """Whole units, rounded up away from zero."""
        return _away_from_zero(self.nanos, NANO)

    def milli(self) -> int:
        """Thousandths, rounded up away from zero."""
        return _away_from_zero(self.nanos, NANO // 1000)

    def as_int64(self) -> int | None:
        """The amount as CEL's asInteger() gives it: None where upstream holds no int64 (fractions, big decimals)."""
        scale = self._scale
        if scale is None or scale < 0 or abs(self.nanos) > INT64_MAX * NANO:
            return None
        return self.nanos // NANO

    def as_float(self) -> float:
        """The nearest double as upstream computes it (asApproximateFloat); may lose precision."""
        scale = -9 if self._scale is None else self._scale
        shift = scale + 9
        unscaled = self.nanos // 10**shift if shift else self.nanos
        try:
            return float(unscaled) * 10.0**scale if scale else float(unscaled)
        except OverflowError:
            return math.inf if self.nanos > 0 else -math.inf

    def sign(self) -> int:
        """-1, 0 or 1."""
        return (self.nanos > 0) - (self.nanos < 0)

    def is_zero(self) -> bool:
        """Nothing at all."""
        return self.nanos == 0

    # ---- order

    def __eq__(self, other: object) -> bool:
        return self.nanos == other.nanos if isinstance(other, Quantity) else NotImplemented

    def __lt__(self, other: Quantity) -> bool:
        return self.nanos < other.nanos if isinstance(other, Quantity) else NotImplemented

    def __le__(self, other: Quantity) -> bool:
        return self.nanos <= other.nanos if isinstance(other, Quantity) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.nanos)

    def __bool__(self) -> bool:
        return self.nanos != 0

    # ---- arithmetic: the format is the left one's, unless that is zero

    def __add__(self, other: Quantity) -> Quantity:
        if not isinstance(other, Quantity):
            return NotImplemented
        return _sum(self, other, self.nanos + other.nanos)

    def __sub__(self, other: Quantity) -> Quantity:
        if not isinstance(other, Quantity):
            return NotImplemented
        return _sum(self, other, self.nanos - other.nanos)

    def __neg__(self) -> Quantity:
        return Quantity(-self.nanos, self.format, _scale=self._scale)

    def __mul__(self, factor: int) -> Quantity:
        if not isinstance(factor, int):
            return NotImplemented
        nanos = self.nanos * factor
        return Quantity(nanos, self.format, _scale=_kept_scale(nanos, self._scale))

    __rmul__ = __mul__


ZERO: Final = Quantity(0)


def _restore(nanos: int, format: str, text: str, scale: int | None) -> Quantity:
    return Quantity(nanos, format, _text=text, _scale=scale)


def _away_from_zero(nanos: int, unit: int) -> int:
    whole = -(-abs(nanos) // unit)
    return whole if nanos >= 0 else -whole


def _kept_scale(nanos: int, scale: int | None) -> int | None:
    """The scale if the amount still fits 64 bits at it."""
    if scale is None or abs(nanos) > INT64_MAX * 10 ** (scale + 9):
        return None
    return scale


def _sum(left: Quantity, right: Quantity, nanos: int) -> Quantity:
    format = left.format if left.nanos else right.format
    one = left._scale
    two = right._scale
    if one is None or two is None:
        scale = None
    elif not right.nanos:
        scale = one
    elif not left.nanos:
        scale = two
    else:
        scale = _kept_scale(nanos, min(one, two))
    return Quantity(nanos, format, _scale=scale)


@lru_cache(maxsize=65536)
def _parse_text(text: str) -> Quantity:
    if text == "0":
        return Quantity(0, _text="0")
    found = _TEXT.fullmatch(text) if text else None
    if found is None:
        raise ValueError(f"{_FORMAT_TEXT}, got {text[:40]!r}")
    sign, digits, _point, fraction, suffix = found.groups()
    number = digits.lstrip("0")
    fraction = fraction or ""
    if len(number) + len(fraction) > _MAX_DIGITS:
        raise ValueError(f"a quantity has at most {_MAX_DIGITS} digits, got {len(number) + len(fraction)}")
    base, exponent, format = _read_suffix(suffix, text)
    quick = _parse_quick(text, sign, number or "0", fraction, (base, exponent, format))
    if quick is not None:
        return quick
    if not digits and not fraction:
        raise ValueError(f"{_NUMBER_TEXT}, got {text[:40]!r}")
    return _parse_slow(sign, int(digits + fraction), len(fraction), (base, exponent, format))


def _read_suffix(suffix: str, text: str) -> tuple[int, int, str]:
    """Base, exponent and format that a suffix stands for."""
    if suffix in _DECIMAL:
        return 10, _DECIMAL[suffix], DECIMAL_SI
    if suffix in _BINARY:
        return 2, _BINARY[suffix], BINARY_SI
    if suffix[0] in "eE":
        try:
            exponent = int(suffix[1:])
        except ValueError:
            raise ValueError(f"{_SUFFIX_TEXT}, got {text[:40]!r}") from None
        if abs(exponent) > MAX_EXPONENT:
            raise ValueError(f"{_SUFFIX_TEXT}: the exponent must be within {MAX_EXPONENT}, got {text[:40]!r}")
        return 10, exponent, DECIMAL_EXPONENT
    raise ValueError(f"{_SUFFIX_TEXT}, got {text[:40]!r}")


def _parse_quick(text: str, sign: str, number: str, fraction: str, unit: tuple[int, int, str]) -> Quantity | None:
    """The amount as an int64 times a power of ten, where upstream holds it so; keeps text that counts as canonical."""
    base, exponent, format = unit
    if base == 10:
        precision, scale, factor = 18 - len(number) - len(fraction), exponent - len(fraction), 1
    elif fraction:
        return None
    else:
        precision, scale, factor = 14 - len(number) - exponent * 3 // 10, 0, 2**exponent
    if precision < 0 or scale < -9:
        return None
    shifted = number + fraction
    written = int(shifted)
    value = written * factor
    if value > INT64_MAX:
        return None
    plain = scale % 3 == 0 and not shifted.endswith("000") and shifted[0] != "0"
    keep = written & 7 != 0 if base == 2 else plain
    nanos = (-value if sign == "-" else value) * 10 ** (scale + 9)
    return Quantity(nanos, format, _text=text if keep else "", _scale=scale)


def _parse_slow(sign: str, digits: int, places: int, unit: tuple[int, int, str]) -> Quantity:
    """The amount as a big decimal: rounded to nanos away from zero, capped if binary."""
    base, exponent, format = unit
    if base == 2:
        numerator, shift = digits << exponent, 9 - places
    else:
        numerator, shift = digits, exponent - places + 9
    nanos = numerator * 10**shift if shift >= 0 else -(-numerator // 10**-shift)
    if format == BINARY_SI:
        nanos = min(nanos, INT64_MAX * NANO)
        if 0 < nanos < NANO:
            format = DECIMAL_SI
    return Quantity(-nanos if sign == "-" else nanos, format, _scale=None)


def _canonical(nanos: int, format: str) -> str:
    """No fraction, the largest suffix that leaves a whole number; text of the API."""
    if not nanos:
        return "0"
    if format == BINARY_SI and abs(nanos) >= 1024 * NANO and nanos % NANO == 0:
        number, exponent = nanos // NANO, 0
        while number % 1024 == 0 and exponent < 60:
            number //= 1024
            exponent += 10
        return f"{number}{_BINARY_SUFFIX[exponent]}"
    exponent = -9
    while nanos % 10 == 0:
        nanos //= 10
        exponent += 1
    if format != DECIMAL_EXPONENT and exponent > 18:
        # Upstream has no suffix above E and prints the bare number, which is another amount; we keep the amount.
        return f"{nanos * 10 ** (exponent - 18)}E"
    shift = exponent % 3
    nanos *= 10**shift
    exponent -= shift
    if format == DECIMAL_EXPONENT:
        return f"{nanos}e{exponent}" if exponent else str(nanos)
    return f"{nanos}{_DECIMAL_SUFFIX[exponent]}"
