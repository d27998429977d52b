"""Which paths into a variable an expression reads."""

from __future__ import annotations

import pytest

from dragoman.cel import types as t
from dragoman.cel.environment import Environment
from dragoman.cel.expression import checked
from dragoman.cel.reads import paths_read
from dragoman.cel.stdlib.library import FUNCTIONS

WITHIN = Environment({"v": t.map_of(t.STRING, t.DYN), "w": t.map_of(t.STRING, t.STRING)}, FUNCTIONS)

READ: dict[str, set[str]] = {
    "true": set(),
    "w.a == 'x'": set(),
    "v.a.b == 1": {"a.b"},
    "v['a']['b'] == 1": {"a.b"},
    "v.a.b == 1 && v.c == 2": {"a.b", "c"},
    "has(v.a.b)": {"a.b"},
    "'b' in v.a": {"a.b"},
    "v.a.?b.orValue(true)": {"a.b"},
    "v.a[?'b'].hasValue()": {"a.b"},
    "v[w.a] == 1": {""},
    "v.a[w.a] == 1": {"a"},
    "v.a.exists(x, x == 1)": {"a"},
    "v.a.size() == 1": {"a"},
    "w.a in v.a": {"a"},
    "cel.bind(x, v.a, x.b == 1 && x.c == 2)": {"a.b", "a.c"},
    "cel.bind(x, v.a, cel.bind(y, x.b, y.c == 1))": {"a.b.c"},
    "cel.bind(x, v.a, true)": set(),
    "cel.bind(v, w, v.a == 'x')": set(),
    "[1].exists(v, v == 1)": set(),
    "v.a == 1 || v.a.b == 1": {"a"},
    "v == {'a': 1}": {""},
    "[v.a].map(x, x)[0] == v.b": {"a", "b"},
}


@pytest.mark.parametrize("text", READ)
def test_reads(text: str) -> None:
    paths, _ = paths_read(checked(text, WITHIN), "v")
    assert {".".join(path) for path in paths} == READ[text]


def test_tells_the_path_of_a_place_in_the_text() -> None:
    text = "v.a['b'] == 1"
    _, places = paths_read(checked(text, WITHIN), "v")
    assert places[text.index(".a")] == ("a",)
    assert places[text.index("['b']")] == ("a", "b")
