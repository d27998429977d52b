"""The guide to the library does what it says: its code is run in order."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import dragoman.allocate

GUIDE = Path(__file__).parents[2] / "docs" / "guides" / "library.md"


def test_the_code_of_the_guide_runs(capsys: pytest.CaptureFixture[str]) -> None:
    blocks = re.findall(r"```python\n(.*?)```", GUIDE.read_text(), flags=re.DOTALL)
    assert len(blocks) >= 6
    names: dict[str, object] = {}
    for block in blocks:
        exec(compile(block, str(GUIDE), "exec"), names)
    assert '"device": "gpu-1"' in capsys.readouterr().out.replace("'", '"')


def test_every_name_of_the_library_is_there() -> None:
    for name in dragoman.allocate.__all__:
        assert getattr(dragoman.allocate, name) is not None
    with pytest.raises(AttributeError):
        dragoman.allocate.nothing  # noqa: B018
