"""The short form of the swap test: the scheduler and the controllers ours, three scenarios; `make swap` does all."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.real.swap import COMBINATIONS, outcomes

pytestmark = pytest.mark.slow

SCENARIOS = ["lab", "partitions", "eviction"]


def test_scenarios_end_in_the_same_way_with_our_scheduler_and_controllers(tmp_path: Path) -> None:
    theirs, ours = (
        outcomes(tmp_path / str(number), combination, SCENARIOS)
        for number, combination in enumerate((COMBINATIONS[0], "kube/dragoman/dragoman"))
    )
    assert theirs == ours
    assert not [result for result in theirs.values() if "failed" in str(result)]
