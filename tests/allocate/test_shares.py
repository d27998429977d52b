"""What one consumer takes of a capacity, and when the policy forbids it."""

from __future__ import annotations

from typing import Any

import pytest

from dragoman.allocate.shares import consumption, violation
from dragoman.api.codec import decode
from dragoman.api.resource import DeviceCapacity
from dragoman.values.quantity import Quantity

RANGE = {"default": "2", "validRange": {"min": "2", "step": "2", "max": "4"}}
# policy, value, asked (None: nothing) -> consumed, rule broken
CASES: dict[str, tuple[dict[str, Any] | None, str, str | None, str, str]] = {
    "nothing asked, no policy: everything": (None, "1", None, "1", ""),
    "nothing asked, empty policy: everything": ({}, "1", None, "1", ""),
    "nothing asked: the default": ({"default": "1", "validRange": {"min": "1"}}, "2", None, "1", ""),
    "nothing asked: the default of values": ({"default": "1", "validValues": ["1"]}, "2", None, "1", ""),
    "asked without a policy": (None, "4", "3", "3", ""),
    "above the minimum": ({"default": "1", "validRange": {"min": "1"}}, "4", "2", "2", ""),
    "below the minimum is raised": ({"default": "2", "validRange": {"min": "2"}}, "4", "1", "2", ""),
    "rounded up to a step": ({"default": "1", "validRange": {"min": "1", "step": "2"}}, "4", "2", "3", ""),
    "on a step": ({"default": "1", "validRange": {"min": "1", "step": "1"}}, "4", "2", "2", ""),
    "one of the values": ({"default": "1", "validValues": ["1", "2", "3"]}, "4", "2", "2", ""),
    "the next of the values": ({"default": "1", "validValues": ["1", "3"]}, "4", "2", "3", ""),
    "above all values": ({"default": "1", "validValues": ["1", "2"]}, "4", "3", "3", "one of 1, 2"),
    "above the maximum": (RANGE, "10", "6", "6", "max 4"),
    "at the maximum": (RANGE, "10", "4", "4", ""),
    "one unit over the maximum": ({"default": "2", "validRange": {"min": "1", "max": "4"}}, "10", "5", "5", "max 4"),
    "a thousandth over the maximum": (
        {"default": "0.5", "validRange": {"min": "0.5", "max": "1500m"}},
        "4",
        "1501m",
        "1501m",
        "max 1500m",
    ),
    "rounded up over the maximum": (
        {"default": "1", "validRange": {"min": "1", "step": "3", "max": "6"}},
        "10",
        "5",
        "7",
        "max 6",
    ),
    "rounded up beyond what 64 bits hold": (
        {"default": "2", "validRange": {"min": "2", "step": "9223372036854775806"}},
        "9223372036854775807",
        "3",
        "9223372036854775808",
        "",
    ),
    "the default is never a violation": ({"default": "7", "validRange": {"min": "2", "max": "4"}}, "10", None, "7", ""),
    "a rounded value is binary": (
        {"default": "1Ki", "validRange": {"min": "1Ki", "step": "1Ki"}},
        "4Ki",
        "1025",
        "2Ki",
        "",
    ),
    "fractions count in thousandths": (
        {"default": "0.5", "validRange": {"min": "0.5", "step": "0.5"}},
        "4",
        "0.6",
        "1",
        "",
    ),
    "zero is a value": ({"default": "0", "validValues": ["0"]}, "1", None, "0", ""),
    "zero or nothing": ({"default": "0", "validValues": ["0"]}, "1", "1", "1", "one of 0"),
}


@pytest.mark.parametrize("sentence", CASES)
def test_consumption(sentence: str) -> None:
    policy, value, asked, consumed, broken = CASES[sentence]
    capacity = decode(DeviceCapacity, {"value": value} | ({} if policy is None else {"requestPolicy": policy}))
    amount = consumption(capacity, None if asked is None else Quantity.parse(asked), fractional=True)
    assert str(amount) == consumed
    assert violation(capacity, amount, fractional=True) == broken


def test_without_the_gate_fractions_are_rounded_up_to_whole_units() -> None:
    capacity = decode(DeviceCapacity, {"value": "4", "requestPolicy": {"validRange": {"min": "0.5", "step": "0.5"}}})
    assert str(consumption(capacity, Quantity.parse("1.5"), fractional=False)) == "2"
