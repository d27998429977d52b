"""Types that the checker finds for expressions, and the overloads that it leaves."""

from __future__ import annotations

import pytest

from dragoman.cel import types as t
from dragoman.cel.ast import Call, Ident
from dragoman.cel.environment import Environment
from dragoman.cel.expression import checked
from dragoman.cel.faults import CompileError
from dragoman.cel.stdlib.library import FUNCTIONS

WITHIN = Environment(
    {
        "n": t.INT,
        "s": t.STRING,
        "d": t.DYN,
        "m": t.map_of(t.STRING, t.INT),
        "l": t.list_of(t.STRING),
        "a.b": t.INT,
    },
    FUNCTIONS,
)

TYPES: dict[str, t.Type] = {
    "1": t.INT,
    "null": t.NULL,
    "n + 1": t.INT,
    "s + 'x'": t.STRING,
    "m.x": t.INT,
    "m['x']": t.INT,
    "l[0]": t.STRING,
    "d.anything.at.all": t.DYN,
    "d + 1": t.INT,
    "d == 1": t.BOOL,
    "has(m.x)": t.BOOL,
    "n > 0 ? s : 'none'": t.STRING,
    "n > 0 ? d : 'none'": t.DYN,
    "[1, 2]": t.list_of(t.INT),
    "[]": t.list_of(t.DYN),
    "[1, d]": t.list_of(t.DYN),
    "{'a': [1]}": t.map_of(t.STRING, t.list_of(t.INT)),
    "l.map(x, x.size())": t.list_of(t.INT),
    "l.filter(x, x != s)": t.list_of(t.STRING),
    "l.all(x, x == s)": t.BOOL,
    "m.exists(k, k == s)": t.BOOL,
    "[[1], []]": t.list_of(t.list_of(t.INT)),
    "m[?'x'].orValue(0)": t.INT,
    "cel.bind(x, n, [x, x])": t.list_of(t.INT),
    "a.b": t.INT,
    "type(n)": t.type_of(t.INT),
}


@pytest.mark.parametrize("text", TYPES, ids=repr)
def test_types(text: str) -> None:
    assert checked(text, WITHIN).type == TYPES[text]


def test_overloads_are_narrowed_to_those_that_the_types_allow() -> None:
    added, dynamic = checked("n + 1", WITHIN), checked("d + d", WITHIN)
    assert isinstance(added, Call)
    assert isinstance(dynamic, Call)
    assert added.overloads == ("add_int64",)
    assert len(dynamic.overloads) > 5


def test_a_variable_of_a_macro_hides_one_outside_and_ends_with_it() -> None:
    assert checked("l.all(n, n == s)", WITHIN).type == t.BOOL, "a string inside"
    with pytest.raises(CompileError):
        checked("l.all(n, n == 1)", WITHIN)
    with pytest.raises(CompileError, match="undeclared reference to 'x'"):
        checked("l.all(x, true) && x == s", WITHIN)


def test_a_dotted_name_is_the_longest_variable_that_is_declared() -> None:
    found = checked("a.b", WITHIN)
    assert isinstance(found, Ident)
    assert found.name == "a.b"
    with pytest.raises(CompileError, match="type 'int' does not support field selection"):
        checked("a.b.c", WITHIN)
    with pytest.raises(CompileError, match="undeclared reference to 'a'"):
        checked("a.c", WITHIN)


def test_every_fault_is_reported_at_its_place() -> None:
    with pytest.raises(CompileError) as refused:
        checked("n + s == nope || l.size(1)", WITHIN)
    assert [issue.offset for issue in refused.value.issues] == [2, 9, 23]
