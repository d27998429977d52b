"""The list of refusal codes is closed and documented, facts included."""

from __future__ import annotations

import re
import typing
from pathlib import Path

from dragoman.allocate.refusal import Refusal
from dragoman.explain.text import as_json
from dragoman.schedule.refusal import ScheduleReason

from .test_text import EVERY

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "refusals.md"
ROW = re.compile(r"^\| `(\w+)` \| .+ \| ([\w, ]+) \|$", re.MULTILINE)


def test_every_code_is_on_the_page_with_the_facts_that_json_has() -> None:
    documented = {
        code: set(facts.replace("none", "").split(", ")) - {""} for code, facts in ROW.findall(PAGE.read_text())
    }
    codes = {kind.__name__ for kind in (*typing.get_args(Refusal), *typing.get_args(ScheduleReason))}
    assert set(documented) == codes
    for code, reason in EVERY.items():
        assert documented[code] == set(as_json(reason)) - {"code", "message"}, code


def test_no_code_means_two_things() -> None:
    kinds = [kind.__name__ for kind in (*typing.get_args(Refusal), *typing.get_args(ScheduleReason))]
    assert len(kinds) == len(set(kinds))
