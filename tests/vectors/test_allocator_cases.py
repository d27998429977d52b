"""First-fit against recorded answers of Kubernetes' own allocator: the same devices, selectors, configuration, or cause.

`make vectors` asked for them (needs Go); the tests read what is recorded. Scenarios have one behaviour each, random calls
mix them. What docs/reference/allocation.md lists as answered otherwise is in upstream_differs.
"""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from .allocator_calls import Case, digest
from .allocator_differences import difference, their_outcome
from .allocator_scenarios import SCENARIOS
from .upstream_cases import random_case

CALLS = json.loads((Path(__file__).parent / "recorded" / "allocator.json").read_text(encoding="utf-8"))["calls"]


def recorded(group: str, case: Case) -> dict[str, Any]:
    answer: dict[str, Any] = CALLS[group][case["name"]]
    assert answer["case"] == digest(case), "another call was recorded under this name: run `make vectors`"
    return answer


@pytest.mark.parametrize("name", SCENARIOS)
def test_scenario(name: str) -> None:
    case = SCENARIOS[name]
    counts: Counter[str] = Counter()
    assert difference(case, recorded("scenarios", case), counts) == ""
    assert list(counts) == their_outcome(case, recorded("scenarios", case)).split()[:1]  # by no listed difference


def test_every_scenario_is_recorded_and_no_other() -> None:
    assert set(CALLS["scenarios"]) == set(SCENARIOS)


def test_random_calls() -> None:
    counts: Counter[str] = Counter()
    cases = [random_case(int(name.removeprefix("random-"))) for name in CALLS["random"]]
    different = [difference(case, recorded("random", case), counts) for case in cases]
    assert [line for line in different if line] == []
    assert counts["fits"] > len(cases) // 8  # the comparison is about something
    assert counts["no"] > len(cases) // 8
