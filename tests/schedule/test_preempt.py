"""Who is displaced for whom? Upstream's rules for node resources; for devices the least cost, against brute force."""

from __future__ import annotations

import random
from datetime import UTC, datetime
from itertools import chain, combinations, count
from typing import Any

import pytest

from dragoman.api.core import Pod
from dragoman.effects import Bind, Delete, Emit, Patch
from dragoman.schedule.cycle import SchedulingContext, decide, unit_of
from dragoman.schedule.decision import Decision
from dragoman.schedule.preempt import TRIES_MAX
from dragoman.schedule.units import PreemptionMode
from dragoman.snapshot.change import Gone, Put, Snapshot, apply_all
from dragoman.snapshot.usage import claim_names
from dragoman.testing.build import claim, device_class, gpus, manifest, node, pod, snapshot_of

NOW = datetime(2026, 1, 1, tzinfo=UTC)
SHORT = 60


def context(preemption: PreemptionMode = "nodes") -> SchedulingContext:
    numbers = count()
    return SchedulingContext(new_id=lambda: f"{next(numbers):08d}", preemption=preemption)


def asked(snapshot: Snapshot, name: str, preemption: PreemptionMode = "nodes") -> Decision:
    one = snapshot.pods["default", name]
    use = context(preemption)
    return decide(snapshot, unit_of(snapshot, one, use.gates), NOW, use)


def victims(decision: Decision) -> list[str]:
    return sorted(victim.pod[1] for victim in decision.preemption.victims) if decision.preemption else []


def runs(name: str, on: str, priority: int, start: int = 0, labels: dict[str, str] | None = None, **more: Any) -> Any:
    made = pod(name, **more)
    made["spec"] |= {"nodeName": on, "priority": priority}
    made["metadata"] |= {"uid": f"uid-{name}", "labels": labels or {}}
    made["status"] = {"phase": "Running", "startTime": f"2025-01-01T00:00:{start:02}Z"}
    return made


def comes(name: str, priority: int, *claims: str, **more: Any) -> Any:
    made = pod(name, *claims, **more)
    made["spec"]["priority"] = priority
    made["metadata"]["uid"] = f"uid-{name}"
    return made


def test_the_least_important_pods_of_the_best_node_go_gracefully() -> None:
    objects = [
        node("a", cpu="4"),
        node("b", cpu="4"),
        runs("a1", "a", 10, cpu="2"),
        runs("a2", "a", 5, cpu="2"),
        runs("b1", "b", 1, cpu="2"),
        runs("b2", "b", 20, cpu="2"),
        comes("p", 100, cpu="2"),
    ]
    found = asked(snapshot_of(*objects), "p")
    assert victims(found) == ["b1"]
    assert found.preemption is not None
    assert found.preemption.node == "b"
    first, condition, gone, event = found.effects
    assert isinstance(first, Patch)
    assert first.patch == {"status": {"nominatedNodeName": "b"}}
    assert isinstance(condition, Patch)
    assert condition.patch["status"]["conditions"][0]["reason"] == "PreemptionByScheduler"
    assert gone == Delete(gone.ref)  # with the pod's own grace period
    assert gone.ref.uid == "uid-b1"
    assert isinstance(event, Emit)
    assert event.message == "Preempted by pod uid-p on node b"
    assert not found.placements
    assert not found.assumed


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"preemptionPolicy": "Never"}, []),
        ({"priority": 5}, []),
        ({"priority": 6}, ["low"]),
    ],
)
def test_only_lower_priorities_and_only_where_the_pod_may(change: dict[str, Any], expected: list[str]) -> None:
    coming = comes("p", 100, cpu="2")
    coming["spec"] |= change
    assert victims(asked(snapshot_of(node("a", cpu="2"), runs("low", "a", 5, cpu="2"), coming), "p")) == expected


def test_nobody_goes_where_the_pod_would_still_not_fit() -> None:
    objects = [node("a", cpu="4"), runs("low", "a", 1, cpu="2"), runs("high", "a", 900, cpu="2")]
    assert victims(asked(snapshot_of(*objects, comes("p", 100, cpu="4")), "p")) == []


def test_budgets_are_kept_where_another_node_does() -> None:
    budget = manifest(
        "PodDisruptionBudget",
        "b",
        spec={"selector": {"matchLabels": {"app": "db"}}},
        status={"disruptionsAllowed": 0},
    )
    objects = [
        node("a", cpu="2"),
        node("b", cpu="2"),
        runs("a1", "a", 1, cpu="2", labels={"app": "db"}),
        runs("b1", "b", 50, cpu="2"),
        comes("p", 100, cpu="2"),
    ]
    assert victims(asked(snapshot_of(*objects, budget), "p")) == ["b1"]
    assert victims(asked(snapshot_of(*objects), "p")) == ["a1"]


def test_who_started_last_goes_first_among_equals() -> None:
    objects = [node("a", cpu="1"), node("b", cpu="1")]
    objects += [runs("a1", "a", 1, start=10, cpu="1"), runs("b1", "b", 1, start=20, cpu="1")]
    assert victims(asked(snapshot_of(*objects, comes("p", 9, cpu="1")), "p")) == ["b1"]


def test_while_victims_end_on_the_nominated_node_nobody_else_goes() -> None:
    ending = runs("a1", "a", 1, cpu="1")
    ending["metadata"] |= {"deletionTimestamp": "2026-01-01T00:00:00Z", "deletionGracePeriodSeconds": 30}
    coming = comes("p", 9, cpu="1")
    coming["status"] = {"nominatedNodeName": "a"}
    objects = [node("a", cpu="1"), node("b", cpu="1"), ending, runs("b1", "b", 1, cpu="1"), coming]
    assert asked(snapshot_of(*objects), "p").effects == ()


# ---- devices


def held(name: str, on: str, device: str, *users: str) -> Any:
    made = claim(name)
    result = {"request": "r", "driver": "gpu.example.com", "pool": on, "device": device}
    made["metadata"] |= {"uid": f"uid-{name}"}
    made["status"] = {
        "allocation": {"devices": {"results": [result]}},
        "reservedFor": [{"resource": "pods", "name": user, "uid": f"uid-{user}"} for user in users],
    }
    return made


def test_devices_come_free_only_when_that_is_asked_for() -> None:
    objects = [node("a"), gpus("a", 1), device_class(), claim("mine"), held("c", "a", "gpu-0", "low")]
    objects += [_user("low", "a", 1, "c"), comes("p", 9, "mine")]
    assert asked(snapshot_of(*objects), "p").effects == ()
    assert victims(asked(snapshot_of(*objects), "p", "devices")) == ["low"]


def _user(name: str, on: str, priority: int, *claims: str) -> Any:
    made = pod(name, *claims)
    made["spec"] |= {"nodeName": on, "priority": priority}
    made["metadata"]["uid"] = f"uid-{name}"
    made["status"] = {"phase": "Running", "startTime": "2025-01-01T00:00:00Z"}
    return made


def test_all_users_of_a_shared_claim_go_or_none() -> None:
    base = [node("a"), gpus("a", 1), device_class(), claim("mine"), held("c", "a", "gpu-0", "one", "two")]
    low = [_user("one", "a", 1, "c"), _user("two", "a", 2, "c"), comes("p", 9, "mine")]
    assert victims(asked(snapshot_of(*base, *low), "p", "devices")) == ["one", "two"]
    high = [_user("one", "a", 1, "c"), _user("two", "a", 50, "c"), comes("p", 9, "mine")]
    assert victims(asked(snapshot_of(*base, *high), "p", "devices")) == []


# ---- brute force


def cluster(seed: int) -> Snapshot:
    """A few nodes full of pods with devices, some of them shared, and one that comes."""
    draw = random.Random(seed)
    objects: list[Any] = [device_class(), claim("mine", count=draw.choice([1, 1, 2]))]
    for name in "ab"[: draw.choice([1, 2])]:
        size = draw.choice([1, 2, 3])
        objects += [node(name, cpu="4"), gpus(name, size)]
        for index in range(size):
            key = f"{name}{index}"
            users = [f"{key}-{n}" for n in range(draw.choice([0, 1, 1, 2]))]
            if users:
                objects.append(held(key, name, f"gpu-{index}", *users))
            for user in users:
                made = _user(user, name, draw.choice([0, 1, 2, 3, 12]), key)
                made["spec"]["containers"][0]["resources"] = {"requests": {"cpu": draw.choice(["0", "1"])}}
                made["status"]["startTime"] = f"2025-01-01T00:00:{draw.randrange(60):02}Z"
                objects.append(made)
    objects.append(comes("p", 10, "mine", cpu=draw.choice(["1", "3"])))
    return snapshot_of(*objects)


def cost(pods: tuple[Pod, ...]) -> tuple[int, int, int, int]:
    priorities = [one.spec.priority or 0 for one in pods]
    highest = max(priorities)
    starts = [datetime.fromisoformat(one.status.start_time).timestamp() for one in pods if one.spec.priority == highest]
    return highest, sum(p + 2**31 for p in priorities), len(pods), -int(min(starts))


def after(snapshot: Snapshot, pods: tuple[Pod, ...]) -> Snapshot:
    gone = {one.metadata.name for one in pods}
    free = []
    for one in snapshot.claims.values():
        users = {entry.name for entry in one.status.reserved_for}
        if users and users <= gone:
            bare = claim(one.metadata.name)
            bare["metadata"]["uid"] = one.metadata.uid
            free.append(Put("ResourceClaim", snapshot_of(bare).claims["default", one.metadata.name]))
    return apply_all(snapshot, [*(Gone("Pod", "default", name) for name in gone), *free])


def brute(snapshot: Snapshot) -> tuple[int, int, int, int] | None:
    """The least cost of any set of pods, whole by shared claims, that lets the pod in."""
    low = [one for one in snapshot.pods.values() if one.spec.node_name and (one.spec.priority or 0) < 10]
    best: tuple[int, int, int, int] | None = None
    for some in chain.from_iterable(combinations(low, size) for size in range(1, len(low) + 1)):
        names = {one.metadata.name for one in some}
        shared = {user for one in some for c in claim_names(one) for user in _users(snapshot, c)}
        if shared - names or (best is not None and cost(some) >= best):
            continue
        decision = asked(after(snapshot, some), "p", "off")
        if any(isinstance(effect, Bind) for effect in decision.effects):
            best = cost(some)
    return best


def _users(snapshot: Snapshot, name: str) -> set[str]:
    return {entry.name for entry in snapshot.claims["default", name].status.reserved_for}


@pytest.mark.parametrize("start", range(0, SHORT, 20))
def test_no_set_of_victims_costs_less(start: int) -> None:
    for seed in range(start, start + 20):
        check(seed)


def check(seed: int) -> bool:
    snapshot = cluster(seed)
    decision = asked(snapshot, "p", "devices")
    if decision.placements:
        return False
    expected = brute(snapshot)
    if expected is None:
        assert decision.preemption is None, seed
        return False
    assert decision.preemption is not None, seed
    chosen = tuple(snapshot.pods[victim.pod] for victim in decision.preemption.victims)
    assert cost(chosen) == expected, (seed, [one.metadata.name for one in chosen])
    assert decision == asked(snapshot, "p", "devices"), seed
    return True


def test_the_random_cases_try_something() -> None:
    assert sum(check(seed) for seed in range(SHORT)) > SHORT // 5
    assert TRIES_MAX > 2**6
