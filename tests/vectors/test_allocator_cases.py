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

from dragoman.allocate.allocator import Allocation
from dragoman.allocate.refusal import Refusals

from .allocator_calls import Case, digest, run
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


DIFFERS = sorted((Path(__file__).parent / "upstream_differs").glob("*.json"))


@pytest.mark.parametrize("path", DIFFERS, ids=lambda path: path.stem)
def test_our_answer_where_upstream_differs(path: Path) -> None:
    case = json.loads(path.read_text())
    answer = run(case)
    if case["here"] == "fits":
        assert isinstance(answer, Allocation), answer
        given = [[f"{r.request}={r.pool}/{r.device}" for r in result.devices.results] for result in answer.results[0]]
        assert given == case["given"]
    else:
        assert isinstance(answer, Refusals)
        assert answer.reasons[0].code == case["here"]
