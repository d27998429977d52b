"""Upstream's allocator cases under first-fit: the same devices, selectors and configuration, or the same cause.

Each file holds one call on one node; where the folder is absent the test is skipped by name. Differences that
docs/reference/allocation.md lists are asserted the other way round in test_allocator.py.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from dragoman.allocate.allocator import Allocation
from dragoman.allocate.refusal import Refusals
from dragoman.api.codec import to_json

from .allocator_calls import code_of, plain, run

FOLDER = Path(__file__).parents[3] / "shared" / "cases" / "allocator"
CASES = sorted(FOLDER.glob("*.json"))


@pytest.mark.skipif(not CASES, reason="the folder ../shared/cases/allocator is not there")
@pytest.mark.parametrize("path", CASES, ids=lambda path: path.stem)
def test_case(path: Path) -> None:
    case = json.loads(path.read_text())
    answer = run(case)
    if case["error"]:
        assert isinstance(answer, Refusals)
        assert code_of(case["error"]) in [reason.code for reason in answer.reasons]
        return
    if not case["results"]:
        if case["claims"]:
            assert isinstance(answer, Refusals), answer
            assert not answer.undecided
        else:
            assert answer == Allocation(results=((),), steps=answer.steps)
        return
    assert isinstance(answer, Allocation), answer
    got = [plain(to_json(result)) for result in answer.results[0]]
    assert got == [plain(result) for result in case["results"]]
