"""The arithmetic of Deployments: how large each ReplicaSet may be, and what the status says of a rollout."""

from __future__ import annotations

from typing import Any

import pytest

from dragoman.api.codec import decode
from dragoman.api.core import Workload
from dragoman.reconcile.ownership import Ownership
from dragoman.reconcile.step import ReconcileInput
from dragoman.reconcile.workloads import rollout
from dragoman.reconcile.workloads.rollout import RolloutSizes
from dragoman.snapshot.change import Snapshot

NOW = 1_800_000_000.0
STARTED = "2027-01-15T08:00:00Z"  # NOW


def deployment(replicas: int = 10, status: dict[str, Any] | None = None, **spec: Any) -> Workload:
    body = {"metadata": {"name": "web", "generation": 3}, "spec": {"replicas": replicas, **spec}, "status": status}
    return decode(Workload, body)


def rolling(surge: Any, unavailable: Any) -> dict[str, Any]:
    return {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": surge, "maxUnavailable": unavailable}}


def replica_set(name: str, replicas: int, available: int | None = None, **annotations: str) -> Workload:
    count = replicas if available is None else available
    return decode(
        Workload,
        {
            "metadata": {
                "name": name,
                "creationTimestamp": f"2026-01-0{name[-1]}T00:00:00Z",
                "annotations": annotations,
            },
            "spec": {"replicas": replicas},
            "status": {"replicas": replicas, "readyReplicas": count, "availableReplicas": count},
        },
    )


# value, of how many, rounded up
RESOLVED: dict[str, tuple[Any, int, bool, int]] = {
    "a number": (3, 10, True, 3),
    "a percentage up": ("25%", 10, True, 3),
    "a percentage down": ("25%", 10, False, 2),
    "nothing": (None, 10, True, 0),
    "nonsense": ("many", 10, True, 0),
}


@pytest.mark.parametrize("case", RESOLVED)
def test_numbers_and_percentages(case: str) -> None:
    value, total, up, expected = RESOLVED[case]
    assert rollout.resolved(value, total, up=up) == expected


# strategy, surge, unavailable
STRATEGIES: dict[str, tuple[dict[str, Any], int, int]] = {
    "by default a quarter of each": ({}, 3, 2),
    "neither would never move": (rolling(0, 0), 0, 1),
    "more than there are": (rolling(0, 99), 0, 10),
    "recreate": ({"type": "Recreate"}, 0, 0),
}


@pytest.mark.parametrize("case", STRATEGIES)
def test_how_many_more_and_fewer_there_may_be(case: str) -> None:
    strategy, surge, unavailable = STRATEGIES[case]
    sizes = RolloutSizes(deployment(strategy=strategy), None, [])
    assert (sizes.surge, sizes.unavailable) == (surge, unavailable)


# surge, unavailable, old (size, available), new (size, available): next sizes of old and new
STEPS: dict[str, tuple[int, int, tuple[int, int], tuple[int, int], dict[str, int], dict[str, int]]] = {
    "the surge first": (3, 2, (10, 10), (0, 0), {"rs-1": 8}, {"rs-2": 3}),
    "no room above: the new one waits": (3, 2, (10, 10), (3, 0), {"rs-1": 8}, {}),
    "the new ones do not come up: nothing more goes": (3, 2, (8, 8), (5, 0), {}, {}),
    "nor do unhealthy old ones while new ones are missing": (3, 2, (8, 6), (5, 0), {}, {}),
    "as many go as came up": (3, 2, (8, 8), (5, 5), {"rs-1": 3}, {}),
    "unhealthy old ones go first, whatever is available": (0, 2, (10, 7), (0, 0), {"rs-1": 8}, {}),
    "the last step": (3, 2, (1, 1), (10, 10), {"rs-1": 0}, {}),
    "a new one that is too large shrinks": (3, 2, (0, 0), (12, 12), {}, {"rs-2": 10}),
}


@pytest.mark.parametrize("case", STEPS)
def test_a_step_of_a_rollout(case: str) -> None:
    surge, unavailable, old, new, down, up = STEPS[case]
    sizes = RolloutSizes(
        deployment(strategy=rolling(surge, unavailable)), replica_set("rs-2", *new), [replica_set("rs-1", *old)]
    )
    assert (rollout.rolled_down(sizes), rollout.rolled_up(sizes)) == (down, up)


def test_a_rollout_ends_whatever_the_order_of_its_steps_and_never_leaves_its_bounds() -> None:
    """All new pods come up at once: every step of either side keeps the total and what is available within limits."""
    for surge, unavailable in ((3, 2), (0, 1), (1, 0), (10, 10)):
        made, old, new = deployment(strategy=rolling(surge, unavailable)), 10, 0
        for _ in range(50):
            for side in (rollout.rolled_up, rollout.rolled_down):
                sizes = RolloutSizes(made, replica_set("rs-2", new), [replica_set("rs-1", old)])
                changes = side(sizes)
                new, old = changes.get("rs-2", new), changes.get("rs-1", old)
                assert old + new <= 10 + surge
                assert old + new >= 10 - unavailable
        assert (old, new) == (0, 10), (surge, unavailable)


def test_a_change_of_replicas_in_the_middle_is_spread_in_proportion() -> None:
    marks = {rollout.DESIRED: "10", rollout.MAXIMUM: "13"}
    old, new = replica_set("rs-1", 8, **marks), replica_set("rs-2", 5, **marks)
    sizes = RolloutSizes(deployment(20, strategy=rolling(3, 2)), new, [old])
    assert rollout.is_rescaled(sizes)
    assert rollout.proportional(sizes) == {"rs-1": 14, "rs-2": 9}, "23 in all, as 20 and the surge allow"
    sizes = RolloutSizes(deployment(0, strategy=rolling(3, 2)), new, [old])
    assert rollout.proportional(sizes) == {"rs-1": 0, "rs-2": 0}
    sizes = RolloutSizes(deployment(10, strategy=rolling(3, 2)), new, [old])
    assert not rollout.is_rescaled(sizes)
    sizes = RolloutSizes(deployment(4), None, [replica_set("rs-1", 8, **marks)])
    assert rollout.proportional(sizes) == {"rs-1": 4}, "the only one follows at once"


def test_revisions_are_numbers_and_anything_else_is_none() -> None:
    marked = [replica_set(f"rs-{i}", 1, **{rollout.REVISION: text}) for i, text in enumerate(("2", "11", "x"), 1)]
    assert [rollout.revision(rs) for rs in marked] == [2, 11, 0]
    assert rollout.last_revision(marked) == 11


# ---- status


def condition(type_: str, status: str, reason: str, message: str = "", at: str = STARTED) -> dict[str, str]:
    times = {"lastTransitionTime": at, "lastUpdateTime": at}
    return {"type": type_, "status": status, **times, "reason": reason, "message": message}


def status(made: Workload, new: Workload | None, old: list[Workload], now: float = NOW, created: str = "") -> Any:
    world = ReconcileInput(Snapshot.empty(), Ownership.empty(), now)
    patch, again_s = rollout.status(world, made, new, old, created=created)
    conditions = {c["type"]: (c["status"], c["reason"]) for c in patch.pop("conditions", [])}
    return patch, conditions, again_s


def test_what_the_status_counts_and_says_at_the_start() -> None:
    made = deployment(progressDeadlineSeconds=600)
    counted, conditions, again_s = status(made, replica_set("rs-2", 3, 0), [replica_set("rs-1", 8)], created="rs-2")
    assert counted == {
        "replicas": 11,
        "readyReplicas": 8,
        "availableReplicas": 8,
        "updatedReplicas": 3,
        "unavailableReplicas": 3,
        "observedGeneration": 3,
    }
    assert conditions == {
        "Available": ("True", "MinimumReplicasAvailable"),
        "Progressing": ("True", "NewReplicaSetCreated"),
    }
    assert again_s == 601.0


BEFORE = {"replicas": 10, "readyReplicas": 7, "availableReplicas": 7, "updatedReplicas": 3, "observedGeneration": 3}
PROGRESSING = condition("Progressing", "True", "ReplicaSetUpdated")


# spec, old (size, available), new (size, available), seconds since the last progress: Progressing
PROGRESS: dict[str, tuple[dict[str, Any], tuple[int, int], tuple[int, int], float, tuple[str, str]]] = {
    "more came up": ({}, (7, 7), (3, 1), 900.0, ("True", "ReplicaSetUpdated")),
    "nothing moves yet": ({}, (7, 7), (3, 0), 599.0, ("True", "ReplicaSetUpdated")),
    "nothing moved in time": ({}, (7, 7), (3, 0), 601.0, ("False", "ProgressDeadlineExceeded")),
    "it is done": ({}, (0, 0), (10, 10), 900.0, ("True", "NewReplicaSetAvailable")),
    "paused": ({"paused": True}, (7, 7), (3, 0), 900.0, ("Unknown", "DeploymentPaused")),
}


@pytest.mark.parametrize("case", PROGRESS)
def test_how_far_a_rollout_is(case: str) -> None:
    spec, old, new, passed_s, expected = PROGRESS[case]
    made = deployment(status={**BEFORE, "conditions": [PROGRESSING]}, progressDeadlineSeconds=600, **spec)
    _, conditions, _ = status(made, replica_set("rs-2", *new), [replica_set("rs-1", *old)], NOW + passed_s)
    assert conditions["Progressing"] == expected


def test_the_deadline_is_looked_at_again_when_it_passes() -> None:
    made = deployment(status={**BEFORE, "conditions": [PROGRESSING]}, progressDeadlineSeconds=600)
    _, _, again_s = status(made, replica_set("rs-2", 3, 0), [replica_set("rs-1", 7)], NOW + 100)
    assert again_s == 501.0


def test_without_a_deadline_nothing_is_said_of_progress() -> None:
    made = deployment(status={**BEFORE, "conditions": [PROGRESSING]})
    _, conditions, again_s = status(made, replica_set("rs-2", 3, 0), [replica_set("rs-1", 7)])
    assert "Progressing" not in conditions
    assert again_s is None


def test_a_replica_set_that_cannot_create_pods_is_said_and_forgotten() -> None:
    failing = replica_set("rs-2", 3, 0)
    failing.status["conditions"] = [condition("ReplicaFailure", "True", "FailedCreate", "exceeded quota: q")]
    _, conditions, _ = status(deployment(), failing, [])
    assert conditions["ReplicaFailure"] == ("True", "FailedCreate")
    assert conditions["Available"] == ("False", "MinimumReplicasUnavailable")
    before = {"conditions": [condition("ReplicaFailure", "True", "FailedCreate")]}
    _, conditions, _ = status(deployment(status=before), replica_set("rs-2", 10), [])
    assert "ReplicaFailure" not in conditions
