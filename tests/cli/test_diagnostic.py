"""Does a diagnostic show its place, the line with a mark below, and a change that helps?"""

from __future__ import annotations

import io

from dragoman.cli.diagnostic import Diagnostic, lines

TEXT = "kind: Pod\nspec:\n  - 이름: 가나  # 둘\n"


class Screen(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_all_of_it() -> None:
    found = Diagnostic("error", "no \x1b name", "p.yaml", 3, "BadName", "Pod default/p: spec", "write x", "kind: Pod\n")
    assert list(lines(found, {"p.yaml": TEXT}, io.StringIO())) == [
        "p.yaml:3: error: no \\x1b name [BadName] (Pod default/p: spec)",
        "    3 |   - 이름: 가나  # 둘",
        "      |     ^^^^^^^^^^",
        "  help: write x",
        "      -spec:",
        "      -  - 이름: 가나  # 둘",
    ]


def test_without_a_line_or_a_text_the_first_line_stands_alone() -> None:
    assert list(lines(Diagnostic("note", "m", "f"), {}, io.StringIO())) == ["f: note: m"]
    assert list(lines(Diagnostic("note", "m", "f", 9), {"f": "a\n"}, io.StringIO())) == ["f:9: note: m"]


def test_a_terminal_gets_colour_and_still_no_sequences_of_objects(monkeypatch) -> None:  # type: ignore[no-untyped-def]
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    (line,) = lines(Diagnostic("warning", "\x1b[2J", "f"), {}, Screen())
    assert line == "f: \x1b[33mwarning:\x1b[0m \\x1b[2J"


def test_a_long_diff_is_cut() -> None:
    text = "".join(f"a{i}\n" for i in range(20))
    found = list(lines(Diagnostic("error", "m", "f", after="b\n"), {"f": text}, io.StringIO()))
    assert found[-1] == "      ... and 9 more lines"
