"""The refusal codes are a closed set: each has a situation that provokes it, and stands documented with that example."""

from __future__ import annotations

import re
import typing
from pathlib import Path

import pytest

from dragoman.allocate import refusal as device
from dragoman.explain import messages, state
from dragoman.explain.hint_changes import HINT_KINDS
from dragoman.schedule import refusal as pod
from tests.explain.codes import CODES, row, situation

DOCUMENT = Path(__file__).parents[2] / "docs" / "reference" / "refusals.md"
EVERY = {
    kind.__name__
    for union in (pod.ScheduleReason, device.Refusal, state.StateReason)
    for kind in typing.get_args(union)
} | {"SearchLimitReached"}


SPLIT = "`dropped` of"


ROW = re.compile(r"^\| `(\w+)` \| (.*) \| (.*) \| (.*) \|$", re.MULTILINE)


def rows() -> dict[str, tuple[str, str, str]]:
    return {code: tuple(rest) for code, *rest in ROW.findall(DOCUMENT.read_text().partition(SPLIT)[0])}


def test_every_hint_is_documented() -> None:
    table = re.findall(r"^\| (`.*) \| .* \|$", DOCUMENT.read_text().partition(SPLIT)[2], re.MULTILINE)
    assert {name for row in table for name in re.findall(r"`(\w+)`", row)} == HINT_KINDS


def test_every_code_has_a_situation_and_a_row() -> None:
    assert set(CODES) == EVERY
    assert set(rows()) == EVERY


@pytest.mark.parametrize("code", CODES)
def test_the_situation_provokes_the_code_as_documented(code: str) -> None:
    assert row(code) == rows()[code]


@pytest.mark.parametrize("code", CODES)
def test_its_facts_are_plain_json(code: str) -> None:
    reported = messages.as_json(situation(code))
    assert reported["code"] == code
    assert not [name for name in reported if "_" in name]
