"""What expressions cost, while running and at worst: upstream's figures (Kubernetes 1.37, cel-go 0.29)."""

from __future__ import annotations

import pytest

from dragoman.cel.environment import Environment
from dragoman.cel.estimate import UNBOUNDED, estimate
from dragoman.cel.expression import checked
from dragoman.cel.faults import CostExceeded, EvalError
from dragoman.cel.meter import Meter, Plan
from dragoman.cel.stdlib.library import FUNCTIONS, TYPE_NAMES
from dragoman.cel.types import DYN, STRING, list_of, map_of

WITHIN = Environment(
    {"driver": STRING, "attributes": map_of(STRING, DYN), "names": list_of(STRING)}, FUNCTIONS, type_names=TYPE_NAMES
)
VALUES = ("", {"yes": True}, ("fish", "bird"))


def sizes(path: tuple[str, ...]) -> int | None:
    match path:
        case ("driver",):
            return 63
        case ("attributes",):
            return 32
        case ("names",):
            return 10
        case ("attributes", "@keys"):
            return 32
        case ("attributes", _) | ("names", "@items"):
            return 64
    return None


# expression -> (cost of running it on VALUES, worst-case cost)
COSTS: dict[str, tuple[int, int]] = {
    "true": (0, 0),
    "1 in [1, 2]": (0, 12),
    "has(attributes.no)": (1, 1),
    "optional.of(true).orValue(false)": (1, 2),
    "optional.none().orValue(false)": (1, 2),
    "true ? driver == '' : false": (1, 1),
    "attributes.?no.orValue(true)": (1, 3),
    "attributes[?'no'].hasValue()": (2, 3),
    "[1, 2, 3].exists(x, x == 2)": (16, 29),
    "[1, 2, 3].map(x, x + 1).size() == 3": (45, 65),
    "cel.bind(a, 1 + 1, a == 2)": (3, 13),
    "cel.bind(a, 1 + 1, true)": (0, 11),
    "[driver][0] == ''": (13, 12),
    "int('5') == 5": (1, 2),
    "string(driver) == ''": (2, 2),
    "['a'][size('')] == 'a'": (4, 13),
    "{1: 2}[1] == 2": (3, 32),
    "[[1, 2].size()].size() == 1": (13, 23),
    "dyn(1) == 1": (1, 2),
    "optional.of(1).optMap(x, x + 1).value() == 2": (9, 19),
    "driver.startsWith('abc')": (2, 2),
    "driver.matches('abc')": (2, 8),
    "'abcdefghijkl'.contains('cde')": (2, 2),
    "'abc'.split('b').size() == 2": (3, 3),
    "[3, 1, 2].sort() == [1, 2, 3]": (30, 50),
    "[3, 1, 2].sortBy(x, x) == [1, 2, 3]": (72, 112),
    "[1, 2].transformMap(i, v, v).size() == 2": (11, 51),
    "sets.contains([1, 2], [1])": (3, 23),
    "lists.range(3).size() == 3": (16, 16),
    "quantity('1Ki').isGreaterThan(quantity('1'))": (3, 3),
    "quantity('1Ki').compareTo(quantity('1')) >= 0": (4, 4),
    "semver('1.0.0').major() == 1": (3, 3),
    "attributes.includes('x')": (49, 49),
    "format.dns1123Label().validate('a').hasValue()": (10, 34),
}


@pytest.mark.parametrize("text", COSTS)
def test_costs_what_it_costs_upstream(text: str) -> None:
    tree = checked(text, WITHIN)
    meter = Meter(Plan(WITHIN), 10**6)
    meter.run(tree, *VALUES)
    assert (meter.cost, estimate(tree, sizes).most) == COSTS[text]


# what failed costs, too, and what an error keeps from being evaluated does not
FAILED: dict[str, int] = {
    "attributes.no": 2,
    "attributes.no > 0": 3,
    "attributes.no.isGreaterThan(quantity('1'))": 4,
    "attributes.no.matches('a')": 2,
    "[attributes.no, 1].size()": 13,
    "attributes.no.x.y.z": 2,
}


@pytest.mark.parametrize("text", FAILED)
def test_an_evaluation_that_fails_has_its_cost(text: str) -> None:
    meter = Meter(Plan(WITHIN), 10**6)
    with pytest.raises(EvalError):
        meter.run(checked(text, WITHIN), *VALUES)
    assert meter.cost == FAILED[text]


def test_the_limit_stops_an_evaluation_and_no_operator_absorbs_it() -> None:
    tree = checked("[1, 2, 3].all(x, [1, 2, 3].all(y, x != y)) || true", WITHIN)
    with pytest.raises(CostExceeded, match="actual cost limit exceeded"):
        Meter(Plan(WITHIN), 10).run(tree, *VALUES)
    meter = Meter(Plan(WITHIN), 1000)
    assert meter.run(tree, *VALUES) is True
    assert 10 < meter.cost <= 1000


def test_sizes_that_nobody_knows_are_unbounded() -> None:
    assert estimate(checked("attributes.no.split('')", WITHIN), lambda _: None).most > UNBOUNDED // 10
    assert estimate(checked("attributes.no.lowerAscii().lowerAscii()", WITHIN), sizes).most == 2 + 2 * 7
