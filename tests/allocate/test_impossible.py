"""Claims made to be hard and impossible are refused for certain, within few steps, with a reason that counts."""

from __future__ import annotations

import pytest
from impossible import SHAPES, objects_of

from dragoman.allocate.allocator import Ask, allocate
from dragoman.allocate.refusal import Refusals
from dragoman.snapshot.change import Snapshot

STEPS_MAX = 2_000


@pytest.mark.parametrize("name", SHAPES)
def test_a_certain_no(name: str) -> None:
    objects, claims = objects_of(SHAPES[name])
    answer = allocate(Snapshot.from_objects(objects), [Ask(claims, "node-0000")], share_id=lambda: "")
    assert isinstance(answer, Refusals)
    assert answer.steps < STEPS_MAX
    assert answer.reasons[0].code in ("RequestsContended", "ConstraintUnsatisfied")
