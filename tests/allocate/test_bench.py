"""The benchmark runs, prints JSON lines, and its bounds name figures that it prints."""

from __future__ import annotations

import json
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

BENCH = Path(__file__).parents[2] / "bench"


def lines(*arguments: str) -> list[dict[str, object]]:
    command = [sys.executable, str(BENCH / "allocate.py"), "--quick", "--no-upstream", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.mark.slow
def test_the_benchmark_prints_lines() -> None:
    found = lines("c", "d", "f")
    assert {str(line["bench"]) for line in found} >= {"c 1 pairs", "c 8 pairs", "d partitions", "f impossible"}
    assert all(line["python"] and line["machine"] for line in found)
    assert all(line["placed"] == 40 for line in found if str(line["bench"]).startswith("c "))


def test_every_bound_has_its_reason() -> None:
    bounds = tomllib.loads((BENCH / "bounds.toml").read_text())["bound"]
    assert bounds
    for bound in bounds:
        assert bound["bench"][0] in "abcdefg"
        assert bound["figure"] in ("ratio_first", "ratio_nth", "ratio", "steps")
        assert bound["measured"] > 0
        assert bound["margin"] >= 1
        assert bound["reason"]
