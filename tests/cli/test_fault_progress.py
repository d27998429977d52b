"""A fault or a clock that takes long says so instead of waiting in silence."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from dragoman.cli import fault
from dragoman.errors import Retry
from dragoman.kubelet.faults import DONE, MESSAGE, STATE


class Slow:
    """An API whose ConfigMap is answered after so many looks."""

    def __init__(self, looks: int) -> None:
        self.left = looks

    async def get(self, *address: Any) -> dict[str, Any]:
        self.left -= 1
        notes = {STATE: DONE, MESSAGE: "rebooted"} if self.left < 0 else {}
        return {"metadata": {"annotations": notes}}


def wait_for(looks: int, within_s: float) -> int:
    client: Any = Slow(looks)
    return asyncio.run(fault.reported(client, "node-rebooted-a", "default", within_s))


def test_says_that_it_goes_on(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(fault, "PROGRESS_S", 0.1)
    assert wait_for(8, 60) == 0
    said = capsys.readouterr()
    assert "node-rebooted-a: still waiting after" in said.err
    assert said.out.strip() == "rebooted"


def test_says_nothing_where_it_is_quick(capsys: pytest.CaptureFixture[str]) -> None:
    assert wait_for(0, 60) == 0
    assert "still" not in capsys.readouterr().err


def test_a_wait_that_ends_without_an_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(Retry, match="no response within"):
        wait_for(10_000, 0.2)
