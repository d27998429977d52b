"""Arithmetic is C's on 64 bits, as the machine's own shell has it; what is no expression is named."""

from __future__ import annotations

from pathlib import Path

import pytest

from dragoman.errors import Invalid
from dragoman.kubelet.shell.arithmetic import evaluate
from tests.kubelet.shell.stage import real

EXPRESSIONS = [
    "1 + 2 * 3",
    "(1 + 2) * 3",
    "7 / 2",
    "-7 / 2",
    "7 / -2",
    "-7 % 3",
    "7 % -3",
    "1 << 4 | 1",
    "255 >> 3 & 6",
    "5 ^ 3",
    "~5",
    "!0 + !7",
    "1 < 2 == 1",
    "3 <= 3 && 4 >= 5",
    "0 || 2",
    "1 ? 2 : 3",
    "0 ? 2 : 1 ? 4 : 5",
    "10 - 4 - 3",
    "9223372036854775807 + 1",
    "2 * 3 % 4",
    "1 == 1 != 0",
    "- - 3",
    "",
]


def test_values_are_those_of_a_real_shell(tmp_path: Path) -> None:
    script = "; ".join(f"echo $(({text}))" for text in EXPRESSIONS if text)
    lines, code = real(script, tmp_path)
    assert code == 0
    assert [evaluate(text, {}) for text in EXPRESSIONS if text] == [int(line) for line in lines.split()]


def test_variables_are_read_and_assigned() -> None:
    variables = {"a": "4", "empty": "", "b": "7"}
    assert evaluate("a * $b + empty + none", variables) == 28
    assert evaluate("c = a + 1", variables) == 5
    assert evaluate("a += c", variables) == 9
    assert (variables["a"], variables["c"]) == ("9", "5")
    assert evaluate("a++ + 0", variables) == 9
    assert variables["a"] == "10"
    assert evaluate("", variables) == 0


WRONG = {
    "1 / 0": "division by zero",
    "1 % 0": "division by zero",
    "1 +": "arithmetic",
    "(1": "arithmetic",
    "1 2": "unexpected '2'",
    "1 @ 2": "syntax error at ' @ 2'",
}


@pytest.mark.parametrize("text", WRONG)
def test_what_is_no_expression_is_named(text: str) -> None:
    with pytest.raises(Invalid, match=WRONG[text]):
        evaluate(text, {})
