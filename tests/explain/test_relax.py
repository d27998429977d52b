"""Selectors near a selector."""

from __future__ import annotations

import pytest

from dragoman.api.codec import decode
from dragoman.api.resource import Device
from dragoman.explain.relax import conjuncts, corrected, weaker
from dragoman.testing.build import DRIVER, device

A = f"device.attributes['{DRIVER}']"
C = f"device.capacity['{DRIVER}']"
DEVICES = [
    decode(Device, device("a", model="x", gen=2, capacity={"memory": "40Gi"})),
    decode(Device, device("b", model="y", gen=4, capacity={"memory": "80Gi"})),
]

PARTS: dict[str, list[str]] = {
    "a && b": ["a", "b"],
    "a && (b && c)": ["a", "(b && c)"],
    "x == '&&' && y": ["x == '&&'", "y"],
    "a && b || c": ["a && b || c"],
    "a": ["a"],
    r"x == 'it\'s && ' && y": [r"x == 'it\'s && '", "y"],
}


@pytest.mark.parametrize("text", PARTS)
def test_conditions_at_the_top_level(text: str) -> None:
    assert conjuncts(text) == PARTS[text]


WEAKER: dict[str, list[str]] = {
    f"{A}.model == 'z'": [f"{A}.model == 'x'", f"{A}.model == 'y'", ""],
    f"{A}.gen >= 5": [f"{A}.gen >= 4", f"{A}.gen >= 2", ""],
    f"{C}.memory.compareTo(quantity('100Gi')) >= 0": [
        f"{C}.memory.compareTo(quantity('80Gi')) >= 0",
        f"{C}.memory.compareTo(quantity('40Gi')) >= 0",
        "",
    ],
    f"{C}.memory.isGreaterThan(quantity('80Gi'))": [f"{C}.memory.compareTo(quantity('40Gi')) >= 0", ""],
    f"{A}.p && {A}.q": [f"{A}.p", f"{A}.q", ""],
}


@pytest.mark.parametrize("text", WEAKER)
def test_weaker_texts(text: str) -> None:
    assert list(weaker(text, DEVICES, DRIVER)) == WEAKER[text]


def test_a_capacity_read_as_attribute_is_put_right() -> None:
    text = f"{A}.memory.compareTo(quantity('1Gi')) >= 0"
    assert list(corrected(text, f"{DRIVER}/memory", DEVICES, DRIVER)) == [f"{C}.memory.compareTo(quantity('1Gi')) >= 0"]


def test_a_misspelt_name_is_put_right() -> None:
    assert list(corrected(f"{A}.modell == 'x'", f"{DRIVER}/modell", DEVICES, DRIVER)) == [f"{A}.model == 'x'"]
