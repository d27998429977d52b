"""Scripts are read into trees, or refused with what is wrong; nothing deep or endless gets far."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dragoman.kubelet.shell import syntax
from dragoman.kubelet.shell.syntax import AndOr, Literal, Parameter, Sequence, Simple, SyntaxFault, parse
from tests.kubelet.shell.stage import real

WRONG = {
    "an open quote": "echo 'a",
    "an open double quote": 'echo "a',
    "an open substitution": "echo $(ls",
    "an open brace": "echo ${x",
    "an open group": "{ echo a",
    "if without fi": "if true; then echo",
    "then without if": "then echo",
    "for without do": "for x in a; echo $x; done",
    "case without esac": "case x in a) echo;;",
    "a pipe into nothing": "echo |",
    "and with nothing": "true && ",
    "a closing parenthesis": "echo )",
    "two semicolons": "echo;; echo",
    "a redirection to nothing": "echo >",
}


@pytest.mark.parametrize("name", WRONG)
def test_what_cannot_be_read_is_refused_as_a_real_shell_refuses_it(name: str, tmp_path: Path) -> None:
    with pytest.raises(SyntaxFault, match="syntax error"):
        parse(WRONG[name])
    assert real(WRONG[name], tmp_path)[1] == 2


def test_a_tree_keeps_what_is_quoted_and_what_is_not() -> None:
    tree = parse("x='a b'c echo \"$y\" z && true")
    while isinstance(tree, Sequence) and len(tree.nodes) == 1:
        (tree,) = tree.nodes
    assert isinstance(tree, AndOr)
    assert tree.op == "&&"
    simple = tree.left
    assert isinstance(simple, Simple)
    assert simple.assignments == (("x", (Literal("a b", True), Literal("c", False))),)
    assert simple.words == ((Literal("echo", False),), (Parameter("y", "", None, True),), (Literal("z", False),))


@pytest.mark.parametrize("opening", ["(", "$(", "{ ", "if true; then ", 'echo "$(', "${x:-"])
def test_what_nests_too_deep_is_refused(opening: str) -> None:
    with pytest.raises(SyntaxFault):
        parse(opening * (20 * syntax.DEEPEST))


@given(st.text(alphabet="abc $(){}[]|&;<>'\"`\\\n#=-:%!*if then fi do done case in esac", max_size=60))
@settings(max_examples=300, deadline=None)
def test_any_text_is_a_tree_or_a_fault(text: str) -> None:
    with suppress(SyntaxFault):
        parse(text)
