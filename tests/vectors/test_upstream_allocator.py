"""Random calls against Kubernetes' own allocator (bench/upstream): the same feasibility, error and devices.

Needs the peer: DRAGOMAN_TEST_UPSTREAM=PATH, or what `make peers` built. DRAGOMAN_UPSTREAM_CASES=N
asks for N cases instead of a few hundred, DRAGOMAN_UPSTREAM_SEED=N for the first seed. A difference fails unless it
is one that docs/reference/allocation.md lists. test_allocator_cases.py compares with recorded answers anywhere.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from pathlib import Path

import pytest
from peer import ask, peer

from .allocator_differences import difference, their_outcome
from .upstream_cases import random_case

BATCH = 300
CASES = int(os.environ.get("DRAGOMAN_UPSTREAM_CASES", "300"))
FIRST = int(os.environ.get("DRAGOMAN_UPSTREAM_SEED", "0"))
RECORDED = sorted((Path(__file__).parent / "upstream_differs").glob("*.json"))


if not peer():
    pytest.skip("no peer: `make peers`, or DRAGOMAN_TEST_UPSTREAM=PATH", allow_module_level=True)


@pytest.mark.slow
@pytest.mark.parametrize("first", range(FIRST, FIRST + CASES, BATCH))
def test_random_calls_have_the_same_answers(first: int) -> None:
    cases = [random_case(seed) for seed in range(first, min(first + BATCH, FIRST + CASES))]
    counts: Counter[str] = Counter()
    found = [difference(case, theirs, counts) for case, theirs in zip(cases, ask(cases, timeout_s=1), strict=True)]
    assert [line for line in found if line] == []
    assert counts["fits"] > len(cases) // 8  # the comparison is about something
    print(dict(counts))


@pytest.mark.parametrize("path", RECORDED, ids=lambda path: path.stem)
def test_what_upstream_answers_otherwise(path: Path) -> None:
    """Each recorded difference is still there; when it is gone, the case and its line in the docs go too."""
    case = json.loads(path.read_text())
    (theirs,) = ask([case])
    assert their_outcome(case, theirs) == case["upstream"]
