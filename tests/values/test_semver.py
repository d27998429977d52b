"""Semantic versions: order by the letter of semver.org, strict and tolerant reading."""

from __future__ import annotations

import pickle
from itertools import pairwise

import pytest
import semver as reference
from hypothesis import given
from hypothesis import strategies as st

from dragoman.values.semver import Semver

# The chain of semver.org section 11, and a little more.
ASCENDING = [
    "0.9.9",
    "1.0.0-0",
    "1.0.0-9",
    "1.0.0-10",
    "1.0.0-alpha",
    "1.0.0-alpha.1",
    "1.0.0-alpha.beta",
    "1.0.0-beta",
    "1.0.0-beta.2",
    "1.0.0-beta.11",
    "1.0.0-rc.1",
    "1.0.0",
    "1.0.1",
    "1.2.0",
    "1.10.0",
    "2.0.0",
]


def test_the_order_is_semver_orgs() -> None:
    for one, two in pairwise(ASCENDING):
        assert Semver.parse(one) < Semver.parse(two), (one, two)


def test_build_metadata_is_kept_and_counts_for_nothing() -> None:
    one, two = Semver.parse("1.2.3+a.b"), Semver.parse("1.2.3+001")
    assert str(one) == "1.2.3+a.b"
    assert one == two
    assert hash(one) == hash(two)
    assert not one < two
    assert (one.major, one.minor, one.patch) == (1, 2, 3)
    assert one != "1.2.3"
    assert pickle.loads(pickle.dumps(one)) == two


REFUSED = {
    "nothing": "",
    "a v": "v1.2.3",
    "two numbers": "1.2",
    "four numbers": "1.2.3.4",
    "a leading zero": "1.02.3",
    "a leading zero in a pre-release number": "1.2.3-01",
    "an empty pre-release": "1.2.3-",
    "an empty part of a pre-release": "1.2.3-a..b",
    "an empty build": "1.2.3+",
    "a sign": "1.2.3-ü",
    "spaces": " 1.2.3",
    "a number beyond 64 bits": "1.2.99999999999999999999",
    "other digits": "1.2.\u0663",
}


@pytest.mark.parametrize("case", REFUSED, ids=str)
def test_refuses_what_is_no_version(case: str) -> None:
    with pytest.raises(ValueError, match=r"version|number|pre-release|build"):
        Semver.parse(REFUSED[case])


TOLERATED = {
    "v1.2.3": "1.2.3",
    " v1.2 ": "1.2.0",
    "1": "1.0.0",
    "01.002.0003": "1.2.3",
    "1.2.3-rc.1": "1.2.3-rc.1",
    "v000": "0.0.0",
}


@pytest.mark.parametrize("text", TOLERATED)
def test_normalizing_forgives(text: str) -> None:
    assert str(Semver.parse(text, normalize=True)) == TOLERATED[text]


@pytest.mark.parametrize("text", ["vv1.2.3", "1-rc", "1.2+b", "x", ""])
def test_normalizing_has_limits(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        Semver.parse(text, normalize=True)


_IDENTIFIERS = st.one_of(
    st.integers(0, 10**6).map(str), st.from_regex(r"[0-9A-Za-z-]*[A-Za-z-][0-9A-Za-z-]*", fullmatch=True)
)
_PRE = st.lists(_IDENTIFIERS, max_size=3).map(".".join)
_VERSIONS = st.builds(
    lambda a, b, c, pre, build: f"{a}.{b}.{c}{'-' + pre if pre else ''}{'+' + build if build else ''}",
    *[st.integers(0, 10**4)] * 3,
    _PRE,
    _PRE,
)


@pytest.mark.slow
@given(_VERSIONS, _VERSIONS)
def test_agrees_with_another_implementation(one: str, two: str) -> None:
    found = (Semver.parse(one) > Semver.parse(two)) - (Semver.parse(one) < Semver.parse(two))
    assert found == reference.Version.parse(one).compare(two)
    assert str(Semver.parse(one)) == one
