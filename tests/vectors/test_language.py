"""The selector language against recorded answers of Kubernetes' CEL: type and value, refused, or failing.

`make vectors` asked for them (needs Go); the tests read what is recorded.
"""

from __future__ import annotations

import base64
import json
import math
from pathlib import Path
from typing import Any

import pytest

from dragoman.api.selectors import STORED, environment
from dragoman.cel import types as t
from dragoman.cel.expression import compile_expression
from dragoman.cel.faults import CompileError, EvalError
from dragoman.cel.values import BoolKey, Duration, Optional, Timestamp, Uint, type_name

RECORDED: dict[str, list[list[Any]]] = json.loads(
    (Path(__file__).parent / "recorded" / "language.json").read_text(encoding="utf-8")
)["sections"]
"""Section to [expression, "refused"], [expression, "fails", type] or [expression, type, value].

"no program": it compiles, and cel-go stumbles over a constant when it prepares the evaluation.
"""

KNOWN = {
    "[4].existsOne(x, true)",
    "string(timestamp('2023-06-15T08:09:10.123456789+05:45'))",
    "{null: 1}",
    "{[1]: 2}",
    "{dyn(1): 'a', dyn(1u): 'b'}",
    "dyn(1)[?'a']",
    "dyn('ab')[?0]",
}
"""Answered otherwise, as docs/reference/cel.md lists."""


def plain(value: Any) -> list[Any]:
    """A value in the form of the recorded ones: [kind, content]; entries of maps in order of their text."""
    match value:
        case None:
            return ["null"]
        case bool():
            return ["bool", value]
        case BoolKey():
            return ["bool", value.value]
        case Uint():
            return ["uint", str(int(value))]
        case int():
            return ["int", str(value)]
        case float():
            return ["double", _number(value)]
        case str():
            return ["string", value]
        case bytes():
            return ["bytes", base64.b64encode(value).decode()]
        case tuple():
            return ["list", [plain(element) for element in value]]
        case dict():
            return ["map", sorted(([plain(k), plain(v)] for k, v in value.items()), key=json.dumps)]
        case Duration():
            return ["duration", str(value.nanos)]
        case Timestamp():
            return ["timestamp", str(value.nanos // 10**9), value.nanos % 10**9]
        case Optional():
            return ["optional", plain(value.value)] if value.present else ["optional"]
        case t.Type():
            return ["type", value.name]
    return ["other", type_name(value)]


def _number(value: float) -> str:
    return "NaN" if math.isnan(value) else repr(value)


def _sorted(given: Any) -> Any:
    """A recorded value with the entries of its maps in order, numbers in one spelling."""
    match given:
        case ["map", entries]:
            return ["map", sorted(([_sorted(k), _sorted(v)] for k, v in entries), key=json.dumps)]
        case ["list", elements]:
            return ["list", [_sorted(element) for element in elements]]
        case ["optional", inner]:
            return ["optional", _sorted(inner)]
        case ["double", text]:
            return ["double", _number(float(text))]
    return given


def agrees(found: list[Any], recorded: list[Any]) -> bool:
    match recorded:
        case ["no program"]:
            return found[0] in ("refused", "fails")
        case ["refused"]:
            return found == ["refused"]
        case ["fails", kind]:
            return found[0] == "fails" and _type(found[1]) == _type(kind)
    kind, value = recorded
    return [_type(found[0]), found[1]] == [_type(kind), _sorted(value)]


def _type(name: str) -> str:
    """null has two names."""
    return name.replace("null_type", "null")


def answer(text: str) -> list[Any]:
    try:
        compiled = compile_expression(text, environment(STORED))
    except CompileError:
        return ["refused"]
    try:
        return [str(compiled.type), plain(compiled.program(None))]
    except EvalError:
        return ["fails", str(compiled.type)]


@pytest.mark.parametrize("section", RECORDED)
def test_answers_as_kubernetes_does(section: str) -> None:
    different = {}
    for text, *recorded in RECORDED[section]:
        found = answer(text)
        if agrees(found, recorded) is (text in KNOWN):
            different[text] = f"here {found}, there {recorded}"
    assert different == {}
