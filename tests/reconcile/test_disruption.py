"""What PodDisruptionBudgets allow."""

from __future__ import annotations

from typing import Any

import pytest

from dragoman.reconcile import disruption
from tests.reconcile.serving import BUDGET, pod, settle

BUDGETS: dict[str, tuple[dict[str, Any], tuple[int, int, int, int]]] = {
    "a minimum": ({"minAvailable": 2}, (1, 3, 2, 4)),
    "a maximum": ({"maxUnavailable": 1}, (0, 3, 4, 5)),
    "a share of what the owner wants": ({"minAvailable": "40%"}, (1, 3, 2, 5)),
    "a maximum as a share": ({"maxUnavailable": "60%"}, (1, 3, 2, 5)),
}


@pytest.mark.parametrize("name", BUDGETS)
def test_budgets(cluster: Any, name: str) -> None:
    spec, (allowed, healthy, desired, expected) = BUDGETS[name]
    owner = cluster.add("ReplicaSet", "rs", spec={"replicas": 5, "selector": {"matchLabels": {"app": "web"}}})
    for number in range(4):
        pod(cluster, f"p{number}", f"10.0.0.{number}", ready=number > 0, owner=owner)
    cluster.add("PodDisruptionBudget", "b", spec={"selector": {"matchLabels": {"app": "web"}}, **spec})
    settle(cluster, disruption.sync, BUDGET)
    status = cluster.get("PodDisruptionBudget", "b")["status"]
    got = (status["disruptionsAllowed"], status["currentHealthy"], status["desiredHealthy"], status["expectedPods"])
    assert got == (allowed, healthy, desired, expected)
    condition = status["conditions"][0]
    assert (condition["type"], condition["status"]) == ("DisruptionAllowed", "True" if allowed else "False")


def test_a_budget_of_pods_that_nobody_scales_allows_nothing(cluster: Any) -> None:
    pod(cluster, "alone", "10.0.0.1")
    cluster.add("PodDisruptionBudget", "b", spec={"selector": {"matchLabels": {"app": "web"}}, "maxUnavailable": 1})
    settle(cluster, disruption.sync, BUDGET)
    status = cluster.get("PodDisruptionBudget", "b")["status"]
    assert status["disruptionsAllowed"] == 0
    assert "found no controllers for pod 'alone'" in status["conditions"][0]["message"]
