"""Which slices a scheduler sees that has a scope."""

from __future__ import annotations

import pytest

from dragoman.schedule.scope import EVERYTHING, DeviceScope
from dragoman.snapshot.change import Gone, Put
from dragoman.testing.build import gpus, pod, typed


@pytest.mark.parametrize(
    ("text", "driver", "pool", "covered"),
    [
        ("", "a.example.com", "n1", True),
        ("a.example.com", "a.example.com", "n1", True),
        ("a.example.com", "b.example.com", "n1", False),
        ("a.example.com/n1", "a.example.com", "n1", True),
        ("a.example.com/n1", "a.example.com", "n2", False),
        ("a.example.com/rack/1, b.example.com", "a.example.com", "rack/1", True),
        ("a.example.com/rack/1, b.example.com", "b.example.com", "x", True),
    ],
)
def test_drivers_and_pools(text: str, driver: str, pool: str, covered: bool) -> None:
    assert DeviceScope.parse(text).covers(driver, pool) is covered


def test_only_slices_are_held_back() -> None:
    scope = DeviceScope.parse("other.example.com")
    assert not scope.shows(Put("ResourceSlice", typed(gpus("n1", 1))))
    assert scope.shows(Put("Pod", typed(pod("p"))))
    assert scope.shows(Gone("ResourceSlice", "", "n1"))
    assert DeviceScope.parse("") == EVERYTHING
