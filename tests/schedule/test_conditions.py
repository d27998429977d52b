"""Binding conditions: ready, pending with a deadline, failed (KEP-5007)."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from dragoman.schedule.conditions import Pending, Ready, binding_of
from dragoman.schedule.refusal import BindingFailed
from dragoman.testing.build import claim, typed

NOW = datetime(2026, 1, 1, 12, 0, tzinfo=UTC)
DEVICE = {"driver": "d", "pool": "p", "device": "x"}
RESULT = {"request": "r", **DEVICE, "bindingConditions": ["up", "linked"], "bindingFailureConditions": ["broken"]}


def allocated(*conditions: dict[str, Any], stamp: str | None = "2026-01-01T11:55:00Z", **result: Any) -> Any:
    allocation: dict[str, Any] = {"devices": {"results": [RESULT | result]}}
    if stamp:
        allocation["allocationTimestamp"] = stamp
    share = {"shareID": result["shareID"]} if "shareID" in result else {}
    status = {"allocation": allocation, "devices": [{**DEVICE, **share, "conditions": list(conditions)}]}
    return typed(claim("c", status=status))


def true(name: str, **more: str) -> dict[str, Any]:
    return {"type": name, "status": "True", **more}


CASES: dict[str, tuple[Any, object]] = {
    "not allocated": (typed(claim("c")), Ready()),
    "no conditions": (allocated(bindingConditions=[]), Ready()),
    "all true": (allocated(true("up"), true("linked")), Ready()),
    "one missing": (allocated(true("up")), Pending(NOW + timedelta(minutes=5))),
    "one false": (allocated(true("up"), {"type": "linked", "status": "False"}), Pending(NOW + timedelta(minutes=5))),
    "failure wins over success": (
        allocated(true("up"), true("linked"), true("broken", message="no light")),
        BindingFailed("c", "d/p/x", "broken", "no light", False),
    ),
    "too late": (
        allocated(true("up"), stamp="2026-01-01T11:49:00Z"),
        BindingFailed("c", "d/p/x", "linked", "", True),
    ),
    "without a time it never is too late": (allocated(true("up"), stamp=None), Pending(None)),
    "another share's report does not count": (
        allocated(true("up"), true("linked"), shareID="s1"),
        Ready(),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_binding(name: str) -> None:
    made, expected = CASES[name]
    assert binding_of(made, NOW) == expected
