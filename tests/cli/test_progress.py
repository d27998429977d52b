from __future__ import annotations

import io

import pytest

from dragoman.cli import progress

TEXT = '{"metadata": {"resourceVersion": "1"}}\n' * 1000


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("stream", "size", "shown"), [(Terminal, 1, True), (Terminal, 10**9, False), (io.StringIO, 1, False)]
)
def test_a_bar_is_shown_on_terminals_for_large_files(
    stream: type[io.StringIO], size: int, shown: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    written = stream()
    monkeypatch.setattr(progress, "FROM", size)
    monkeypatch.setattr("sys.stderr", written)
    monkeypatch.setenv("TERM", "xterm")
    with progress.reading([("f", TEXT)], passes=2) as reported:
        for _ in range(2000):
            reported()
    assert ("2000/2000" in written.getvalue()) == shown
    assert bool(written.getvalue()) == shown
