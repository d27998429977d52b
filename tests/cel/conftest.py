"""What the tests of the language share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from dragoman.cel import types as t
from dragoman.cel.environment import Environment
from dragoman.cel.expression import compile_expression
from dragoman.cel.stdlib.library import FUNCTIONS, TYPE_NAMES

VARIABLES = {"m": t.map_of(t.STRING, t.DYN), "d": t.DYN, "n": t.INT, "s": t.STRING}
VALUES: dict[str, Any] = {
    "m": {"one": 1, "text": "fish", "yes": True, "list": (3, 1, 2)},
    "d": "dynamic",
    "n": 7,
    "s": "fish",
}

LANGUAGE = Environment(VARIABLES, FUNCTIONS, type_names=TYPE_NAMES)
STRICT = Environment(VARIABLES, FUNCTIONS, type_names=TYPE_NAMES, strict=True)


@pytest.fixture
def run() -> Callable[[str], Any]:
    """Evaluates an expression with the variables m, d, n and s."""
    return lambda text: compile_expression(text, LANGUAGE).program(*VALUES.values())
