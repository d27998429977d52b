"""Quantities: what is read, what is printed, exactness."""

from __future__ import annotations

import pickle
from fractions import Fraction
from math import ceil

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragoman.values.quantity import BINARY_SI, DECIMAL_EXPONENT, INT64_MAX, Quantity

# text -> (canonical text, nanos)
READ = {
    "zero": ("0", "0", 0),
    "a plain number": ("12", "12", 12 * 10**9),
    "leading zeros": ("0012", "0012", 12 * 10**9),  # kept: upstream reuses text it counts as canonical
    "trailing zeros become a suffix": ("2000", "2k", 2000 * 10**9),
    "a fraction becomes milli": ("0.5", "500m", 5 * 10**8),
    "three decimals are kept as written": ("1.500", "1.500", 15 * 10**8),
    "binary": ("80Gi", "80Gi", 80 * 2**30 * 10**9),
    "binary grows its suffix": ("1024Mi", "1Gi", 2**30 * 10**9),
    "binary below 1024 prints as decimal": ("512", "512", 512 * 10**9),
    "a binary fraction of a unit prints as decimal": ("0.5Ki", "512", 512 * 10**9),
    "a binary fraction": ("1.5Gi", "1536Mi", 1536 * 2**20 * 10**9),
    "an exponent": ("1e3", "1e3", 1000 * 10**9),
    "an exponent that is no multiple of three": ("1e4", "10e3", 10000 * 10**9),
    "an exponent in capitals": ("5E3", "5E3", 5000 * 10**9),
    "capital E alone is exa": ("5E", "5E", 5 * 10**27),
    "negative": ("-1.5", "-1500m", -15 * 10**8),
    "below a nano rounds away from zero": ("0.0000000001", "1n", 1),
    "below a nano, negative": ("-0.0000000001", "-1n", -1),
    "binary is capped": ("9999999Ei", str(INT64_MAX), INT64_MAX * 10**9),
    "a sign": ("+5", "+5", 5 * 10**9),
    "only a point": (".5", "500m", 5 * 10**8),
    "too large for a suffix keeps its amount": ("1000E", "1000E", 10**30),
}


@pytest.mark.parametrize("case", READ, ids=str)
def test_reads_and_prints_as_the_api_does(case: str) -> None:
    text, canonical, nanos = READ[case]
    quantity = Quantity.parse(text)
    assert quantity.nanos == nanos
    assert str(quantity) == canonical
    assert Quantity.parse(canonical) == quantity


REFUSED = {
    "nothing": ("", "regular expression"),
    "words": ("aoeu", "regular expression"),
    "an unknown suffix": ("1i", "unable to parse quantity's suffix"),
    "a small k": ("1ki", "unable to parse quantity's suffix"),
    "two points": ("1.1.1", "regular expression"),
    "an empty exponent": ("1e", "unable to parse quantity's suffix"),
    "an absurd exponent": ("1e999999999", "the exponent must be within"),
    "absurdly many digits": ("1" * 2000, "at most"),
    "a space inside": ("1 Gi", "regular expression"),
}


@pytest.mark.parametrize("case", REFUSED, ids=str)
def test_refuses_with_a_reason(case: str) -> None:
    text, reason = REFUSED[case]
    with pytest.raises(ValueError, match=reason):
        Quantity.parse(text)


@pytest.mark.parametrize("wrong", [True, None, [], {}, float("nan"), float("inf")], ids=repr)
def test_refuses_what_is_neither_text_nor_a_number(wrong: object) -> None:
    with pytest.raises(ValueError, match="a quantity"):
        Quantity.parse(wrong)  # type: ignore[arg-type]


def test_takes_numbers_as_json_has_them() -> None:
    assert Quantity.parse(5) == Quantity.parse(5.0) == Quantity.parse("5")
    assert str(Quantity.parse(1.5)) == "1500m"
    assert Quantity.parse(1e21).nanos == 10**30


def test_equality_is_by_value_and_so_is_the_hash() -> None:
    assert Quantity.parse("1Ki") == Quantity.parse("1024")
    assert len({Quantity.parse("1Ki"), Quantity.parse("1024"), Quantity.parse("1.024k")}) == 1
    assert Quantity.parse("1Ki") != 1024
    assert Quantity.parse("1Gi") > Quantity.parse("1G") >= Quantity.parse("1000M")


def test_whole_units_and_thousandths_round_away_from_zero() -> None:
    assert [Quantity.parse(text).value() for text in ("1.1", "-1.1", "2", "0")] == [2, -2, 2, 0]
    assert [Quantity.parse(text).milli() for text in ("1100u", "1", "-1100u")] == [2, 1000, -2]


def test_sums_keep_the_format_of_the_left_one_unless_it_is_zero() -> None:
    assert str(Quantity.parse("1Gi") + Quantity.parse("1Gi")) == "2Gi"
    assert str(Quantity.parse("1k") + Quantity.parse("24")) == "1024"
    assert str(Quantity.parse("0") + Quantity.parse("1Ki")) == "1Ki"
    assert str(Quantity.parse("1Gi") - Quantity.parse("1Mi")) == "1023Mi"
    assert str(-Quantity.parse("1Gi")) == "-1Gi"
    assert str(Quantity.parse("1Gi") * 3) == "3Gi"
    assert str(Quantity.of(5, DECIMAL_EXPONENT)) == "5"
    assert str(Quantity.of(2048, BINARY_SI)) == "2Ki"


# what upstream holds as a 64-bit number, for CEL's isInteger()
INTEGERS = {"5": 5, "50k": 50_000, "1Ki": 1024, "1500m": None, "1000m": None, "1.5Gi": None, "50000000G": 5 * 10**16}


@pytest.mark.parametrize("text", INTEGERS)
def test_knows_what_upstream_holds_as_an_integer(text: str) -> None:
    assert Quantity.parse(text).as_int64() == INTEGERS[text]


def test_is_immutable_and_survives_pickling() -> None:
    quantity = Quantity.parse("80Gi")
    with pytest.raises(AttributeError):
        quantity.nanos = 5  # type: ignore[misc]
    with pytest.raises(AttributeError):
        del quantity.nanos
    copied = pickle.loads(pickle.dumps(quantity))
    assert (copied, str(copied), copied.as_int64()) == (quantity, "80Gi", quantity.as_int64())


_SUFFIXES = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_BINARY = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50}
_DIGITS = st.text("0123456789", min_size=1, max_size=12)


@given(st.booleans(), _DIGITS, st.text("0123456789", max_size=9), st.sampled_from([*_SUFFIXES, *_BINARY]))
def test_the_amount_is_exact(negative: bool, whole: str, fraction: str, suffix: str) -> None:
    text = f"{'-' if negative else ''}{whole}.{fraction}{suffix}"
    unit = Fraction(10) ** _SUFFIXES[suffix] if suffix in _SUFFIXES else Fraction(2) ** _BINARY[suffix]
    nanos = ceil(Fraction(f"{whole}.{fraction or 0}") * unit * 10**9)
    if suffix in _BINARY:
        nanos = min(nanos, INT64_MAX * 10**9)
    assert Quantity.parse(text).nanos == (-nanos if negative else nanos)


@given(st.integers(-(10**30), 10**30), st.sampled_from(["DecimalSI", "BinarySI", "DecimalExponent"]))
def test_printed_text_reads_back_as_the_same_amount(nanos: int, format: str) -> None:
    bounded = nanos % (INT64_MAX * 10**9) if format == "BinarySI" else nanos
    quantity = Quantity(bounded, format)
    again = Quantity.parse(str(quantity))
    assert again == quantity
    assert str(again) == str(quantity)


@given(st.integers(-(10**25), 10**25), st.integers(-(10**25), 10**25))
def test_arithmetic_and_order_are_those_of_the_amounts(one: int, two: int) -> None:
    left, right = Quantity(one), Quantity(two)
    assert (left + right).nanos == one + two
    assert (left - right).nanos == one - two
    assert (left < right, left <= right, left == right) == (one < two, one <= two, one == two)
