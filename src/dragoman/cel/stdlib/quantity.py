"""Kubernetes quantities in expressions: quantity(), comparison, sums, conversions."""

from __future__ import annotations

from typing import Final

from dragoman.cel import types as t
from dragoman.cel.faults import EvalError
from dragoman.cel.functions import free, member
from dragoman.cel.values import STRICT_EQUALITY, TYPE_OF
from dragoman.values.quantity import DECIMAL_EXPONENT, Quantity

QUANTITY: Final = t.struct("kubernetes.Quantity")
TYPE_OF[Quantity] = QUANTITY
STRICT_EQUALITY.add(Quantity)


def _parse(text: str) -> Quantity:
    try:
        return Quantity.parse(_untrimmed(text))
    except ValueError as error:
        raise EvalError(str(error)) from None


def _untrimmed(text: str) -> str:
    """Spaces around are an error in expressions, though JSON forgives them."""
    if text != text.strip():
        raise ValueError(f"quantities must match the regular expression, got {text[:40]!r}")
    return text


def _is_quantity(text: str) -> bool:
    try:
        Quantity.parse(_untrimmed(text))
    except ValueError:
        return False
    return True


def _integer(value: Quantity) -> int:
    found = value.as_int64()
    if found is None:
        raise EvalError("cannot convert value to integer")
    return found


def _compare(one: Quantity, two: Quantity) -> int:
    return (one.nanos > two.nanos) - (one.nanos < two.nanos)


def _whole(value: int) -> Quantity:
    return Quantity.of(value, DECIMAL_EXPONENT)


_TWO = (QUANTITY, QUANTITY)

OVERLOADS: Final = [
    free("quantity", "string_to_quantity", (t.STRING,), QUANTITY, _parse),
    free("isQuantity", "is_quantity_string", (t.STRING,), t.BOOL, _is_quantity),
    free("sign", "quantity_sign", (QUANTITY,), t.INT, Quantity.sign),
    member("isGreaterThan", "quantity_is_greater_than", _TWO, t.BOOL, lambda one, two: one.nanos > two.nanos),
    member("isLessThan", "quantity_is_less_than", _TWO, t.BOOL, lambda one, two: one.nanos < two.nanos),
    member("compareTo", "quantity_compare_to", _TWO, t.INT, _compare),
    member("asApproximateFloat", "quantity_get_float", (QUANTITY,), t.DOUBLE, Quantity.as_float),
    member("asInteger", "quantity_get_int", (QUANTITY,), t.INT, _integer),
    member("isInteger", "quantity_is_integer", (QUANTITY,), t.BOOL, lambda value: value.as_int64() is not None),
    member("add", "quantity_add", _TWO, QUANTITY, lambda one, two: one + two),
    member("add", "quantity_add_int", (QUANTITY, t.INT), QUANTITY, lambda one, two: one + _whole(two)),
    member("sub", "quantity_sub", _TWO, QUANTITY, lambda one, two: one - two),
    member("sub", "quantity_sub_int", (QUANTITY, t.INT), QUANTITY, lambda one, two: one - _whole(two)),
]
