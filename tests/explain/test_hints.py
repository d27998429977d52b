"""Hints are true: on random clusters a pod fits with each hint that is given. And the hints that must be there are."""

from __future__ import annotations

import random
from datetime import UTC, datetime
from itertools import count
from typing import Any

import pytest

from dragoman.explain.conflict_messages import hint_json
from dragoman.explain.explanation import Explanation, explain_pod
from dragoman.explain.hint_changes import HINT_KINDS
from dragoman.schedule.units import SchedulingContext
from dragoman.snapshot.change import Snapshot, apply_all
from dragoman.testing.build import (
    DRIVER,
    claim,
    device,
    device_class,
    gpus,
    manifest,
    node,
    pod,
    pool,
    request,
    snapshot_of,
    template,
)
from dragoman.whatif.cluster import bring
from dragoman.whatif.decide import DecidedUnit, steps
from dragoman.whatif.settle import settled
from dragoman.whatif.units import units_of

NOW = datetime(2026, 1, 1, tzinfo=UTC)
ATTRIBUTE = f"device.attributes['{DRIVER}']"


def at_rest(snapshot: Snapshot) -> Snapshot:
    return settled(bring(snapshot, NOW)).snapshot


def context() -> SchedulingContext:
    numbers = count()
    return SchedulingContext(new_id=lambda: f"{next(numbers):08d}")


def explained(snapshot: Snapshot, *names: str) -> list[tuple[DecidedUnit, Explanation]]:
    """The pods of the default namespace, decided in this order and explained without a limit of time."""
    world, asked = at_rest(snapshot), context()
    wanted = units_of(world, [("default", name) for name in names])
    return [
        (step, explain_pod(step, verdict, NOW, asked, lambda: False))
        for step in steps(world, wanted, NOW, asked)
        for verdict in step.verdicts
    ]


def holds(step: DecidedUnit, answer: Explanation) -> None:
    """Each hint, applied, lets the pod fit."""
    for hint in answer.hints.found:
        assert hint.change.kind in HINT_KINDS
        reported = hint_json(hint)
        assert reported["verifiedWith"]["node"]
        changed = apply_all(step.before, hint.changes)
        again = next(steps(changed, [step.unit], NOW, context()))
        verdict = next(verdict for verdict in again.verdicts if verdict.pod == answer.verdict.pod)
        assert verdict.node is not None, f"{reported['message']} does not help"


# ---- random clusters


class World:
    """A random cluster with pods that mostly cannot be placed."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.names: list[str] = []
        self.made: list[dict[str, Any]] = [device_class(), device_class("gpu.example.org"), self._wrong_class()]
        for index in range(self.rng.randint(1, 4)):
            self._node(f"node-{index}")
        for index in range(4):
            self._pending(f"p{index}")

    def _wrong_class(self) -> dict[str, Any]:
        return device_class("wrong", selectors=[{"cel": {"expression": f"{ATTRIBUTE}.memory == 'A'"}}])

    def snapshot(self) -> Snapshot:
        return snapshot_of(*self.made)

    def _node(self, name: str) -> None:
        rng = self.rng
        taints = ["team=ml:NoSchedule"] if rng.random() < 0.2 else []
        self.made.append(
            node(name, cpu=str(rng.randint(1, 8)), pods="10", taints=taints, unschedulable=rng.random() < 0.1)
        )
        number = rng.randint(1, 4)
        devices = [self._device(i) for i in range(number)]
        shared = rng.random() < 0.4
        if shared:
            for entry in devices:
                draws = {"memory": {"value": str(rng.randint(1, 3))}}
                entry["consumesCounters"] = [{"counterSet": "card", "counters": draws}]
        count_of = 2 if shared else 1
        if rng.random() < 0.15:
            count_of += 1
        body = {"name": name, "generation": 1, "resourceSliceCount": count_of}
        self.made.append(pool(name, devices, node=name, pool=body))
        if shared:
            card = {"name": "card", "counters": {"memory": {"value": "4"}}}
            spec = {"driver": DRIVER, "nodeName": name, "pool": body, "sharedCounters": [card]}
            self.made.append(manifest("ResourceSlice", f"{name}-counters", spec=spec))
        left = 4
        for entry in devices:
            drawn = int(entry["consumesCounters"][0]["counters"]["memory"]["value"]) if shared else 0
            if rng.random() < 0.6 and drawn <= left:
                left -= drawn
                self._holder(name, entry["name"])

    def _device(self, index: int) -> dict[str, Any]:
        rng = self.rng
        capacity = {"memory": rng.choice(["10Gi", "40Gi", "80Gi"])}
        made = device(f"gpu-{index}", model=rng.choice("AB"), numa=rng.randint(0, 1), capacity=capacity)
        if rng.random() < 0.2:
            made["taints"] = [{"key": "example.com/bad", "value": rng.choice("xy"), "effect": "NoSchedule"}]
        return made

    def _holder(self, on: str, device_name: str) -> None:
        rng, name = self.rng, f"user-{len(self.made)}"
        result = {"request": "gpu", "driver": DRIVER, "pool": on, "device": device_name}
        where = {"nodeSelectorTerms": [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": [on]}]}]}
        allocation = {"devices": {"results": [result]}, "nodeSelector": where}
        if rng.random() < 0.2:
            self.made.append(claim(name, status={"allocation": allocation}))
            return
        consumer = {"resource": "pods", "name": name, "uid": f"uid-{name}"}
        self.made.append(claim(name, status={"allocation": allocation, "reservedFor": [consumer]}))
        meta = {"deletionTimestamp": "2026-01-01T00:00:00Z"} if rng.random() < 0.1 else {}
        self.made.append(
            pod(
                name,
                name,
                nodeName=on,
                priority=rng.randint(-1, 1),
                cpu="1",
                metadata=meta,
                status={"phase": "Running"},
            )
        )

    def _pending(self, name: str) -> None:
        rng = self.rng
        wanted = [self._request(f"r{i}") for i in range(rng.randint(1, 2))]
        constraints = [{"matchAttribute": f"{DRIVER}/numa"}] if rng.random() < 0.3 else []
        spec: dict[str, Any] = {"nodeSelector": {"zone": "eu"}} if rng.random() < 0.1 else {}
        if rng.random() < 0.1:
            spec["schedulingGates"] = [{"name": "quota"}]
        if rng.random() < 0.3:
            self.made += [template(name, *wanted), pod(name, templates=[name], cpu=str(rng.randint(1, 6)), **spec)]
        else:
            self.made += [claim(name, *wanted, constraints=constraints), pod(name, name, **spec)]
        self.names.append(name)

    def _request(self, name: str) -> dict[str, Any]:
        rng = self.rng
        if rng.random() < 0.15:
            subs = [{"name": s, "deviceClassName": DRIVER, "count": rng.randint(1, 3)} for s in ("big", "small")]
            return {"name": name, "firstAvailable": subs}
        select = rng.choice(
            [
                "",
                f"{ATTRIBUTE}.model == 'A'",
                f"{ATTRIBUTE}.model == 'C'",
                f"{ATTRIBUTE}.numa >= 1 && {ATTRIBUTE}.model == 'B'",
                f"device.capacity['{DRIVER}'].memory.compareTo(quantity('60Gi')) >= 0",
                f"{ATTRIBUTE}.memory == 'A'",
                f"{ATTRIBUTE}.modell == 'A'",
            ]
        )
        kind = rng.choices([DRIVER, "gpu.example.con", "wrong"], [8, 1, 1])[0]
        return request(name, device_class=kind, select=select, count=rng.randint(1, 3))


def check(seed: int) -> int:
    """How many hints held on the cluster of a seed."""
    world = World(seed)
    number = 0
    for step, answer in explained(world.snapshot(), *world.names):
        holds(step, answer)
        number += len(answer.hints.found)
    return number


@pytest.mark.parametrize("seed", range(20))
def test_no_hint_fails_when_it_is_applied(seed: int) -> None:
    check(seed)


@pytest.mark.slow
def test_no_hint_fails_on_many_clusters() -> None:
    assert sum(check(seed) for seed in range(1000, 1150)) > 150


# ---- hints that must be there


def hints(snapshot: Snapshot, *names: str) -> dict[str, str]:
    """Kind and message of each hint for the last pod."""
    step, answer = explained(snapshot, *names)[-1]
    assert answer.verdict.node is None
    holds(step, answer)
    found: dict[str, str] = {}
    for hint in answer.hints.found:
        found.setdefault(hint.change.kind, hint_json(hint)["message"])
    return found


def held(name: str, on: str, index: int, **spec: Any) -> list[dict[str, Any]]:
    result = {"request": "gpu", "driver": DRIVER, "pool": on, "device": f"gpu-{index}"}
    consumer = {"resource": "pods", "name": name, "uid": f"uid-{name}"}
    status = {"allocation": {"devices": {"results": [result]}}, "reservedFor": [consumer]}
    return [claim(name, status=status), pod(name, name, nodeName=on, status={"phase": "Running"}, **spec)]


FULL = [node("a"), gpus("a", 1), device_class(), claim("c"), pod("p", "c")]


def test_the_least_important_pod_is_named_first() -> None:
    objects = [
        node("a"),
        gpus("a", 2),
        device_class(),
        *held("low", "a", 0, priority=-5),
        *held("high", "a", 1, priority=5),
    ]
    found = hints(snapshot_of(*objects, claim("c"), pod("p", "c", priority=9)), "p")
    assert found["RemovePods"] == (
        "would fit if default/low (priority -5) were removed; preemption for DRA devices is off: fits on a with gpu-0"
    )


def test_more_important_pods_are_not_to_be_removed() -> None:
    assert "RemovePods" not in hints(snapshot_of(*FULL, *held("high", "a", 0, priority=5)), "p")


def test_a_pod_that_fits_elsewhere_is_to_be_moved() -> None:
    other = [node("b", labels={"zone": "b"}), gpus("b", 1)]
    snapshot = snapshot_of(
        *FULL[:-1], *other, *held("u", "a", 0), pod("p", "c", nodeSelector={"kubernetes.io/hostname": "a"})
    )
    found = hints(snapshot, "p")
    assert found["MovePod"] == "would fit if default/u (priority 0) were moved to b: fits on a with gpu-0"


def test_several_pods_may_have_to_go_together() -> None:
    objects = [node("a"), gpus("a", 2), device_class(), *held("u", "a", 0), *held("v", "a", 1)]
    found = hints(snapshot_of(*objects, claim("c", count=2), pod("p", "c")), "p")
    assert "default/u (priority 0), default/v (priority 0)" in found["RemovePods"]


def test_pods_on_their_way_out_are_waited_for() -> None:
    snapshot = snapshot_of(*FULL, *held("u", "a", 0, metadata={"deletionTimestamp": "2026-01-01T00:00:00Z"}))
    assert hints(snapshot, "p")["WaitForPods"].startswith("wait until default/u (priority 0), being deleted, is gone")


def test_no_hint_starts_from_a_search_that_gave_up() -> None:
    devices = [device(f"gpu-{i}", a=i % 3, b=i % 5) for i in range(20)]
    constraints = [{"distinctAttribute": f"{DRIVER}/b", "requests": ["x"]}, {"matchAttribute": f"{DRIVER}/a"}]
    wanted = claim("c", request("x", count=2), request("y", count=5), constraints=constraints)
    from dragoman.allocate.allocator import AllocatorOptions, SearchLimits

    world = at_rest(snapshot_of(node("a"), device_class(), pool("a", devices, node="a"), wanted, pod("p", "c")))
    asked = SchedulingContext(new_id=lambda: "", options=AllocatorOptions(limits=SearchLimits(3)))
    (step,) = steps(world, units_of(world, [("default", "p")]), NOW, asked)
    answer = explain_pod(step, step.verdicts[0], NOW, asked, lambda: False)
    assert answer.verdict.refused is None
    assert answer.verdict.undecided is not None
    assert answer.hints.found == ()
    assert answer.conflict is None


def test_what_was_not_tried_is_counted() -> None:
    world, asked = at_rest(snapshot_of(*FULL, *held("u", "a", 0))), context()
    (step,) = steps(world, units_of(world, [("default", "p")]), NOW, asked)
    answer = explain_pod(step, step.verdicts[0], NOW, asked, lambda: True)
    assert answer.hints.found == ()
    assert answer.hints.tried == 0
    assert answer.hints.untried > 0


CHANGES: dict[str, tuple[list[dict[str, Any]], str, str]] = {
    "a model that is there": (
        [claim("c", select=f"{ATTRIBUTE}.model == 'B'")],
        "ChangeSelector",
        "== 'A'   instead of",
    ),
    "a misspelt attribute": ([claim("c", select=f"{ATTRIBUTE}.modell == 'A'")], "ChangeSelector", ".model == 'A'"),
    "fewer devices": ([claim("c", count=7)], "ChangeCount", "ask for 2 instead of 7 devices"),
    "without the constraint": (
        [claim("c", count=2, constraints=[{"matchAttribute": f"{DRIVER}/index"}])],
        "DropConstraint",
        f"without constraint 0 on {DRIVER}/index",
    ),
    "a class with a near name": (
        [claim("c", request(device_class="gpu.example.con"))],
        "OtherClass",
        "class gpu.example.com instead of gpu.example.con",
    ),
    "one more node": ([claim("c", count=2), *held("u", "a", 0)], "AddNode", "add one node like a: fits on a-new"),
}


@pytest.mark.parametrize("name", CHANGES)
def test_changes(name: str) -> None:
    objects, kind, reported = CHANGES[name]
    found = hints(snapshot_of(node("a"), gpus("a", 2, model="A"), device_class(), *objects, pod("p", "c")), "p")
    assert reported in found[kind]


def test_devices_without_a_common_root_may_share_a_numa_node() -> None:
    root, numa = "resource.kubernetes.io/pcieRoot", "resource.kubernetes.io/numaNode"
    devices = [device(f"gpu-{index}", **{root: f"pci0000:0{index}", numa: 0}) for index in range(2)]
    asked = claim("c", count=2, constraints=[{"matchAttribute": root}])
    found = hints(snapshot_of(node("a"), pool("a", devices, node="a"), device_class(), asked, pod("p", "c")), "p")
    assert found["ChangeConstraint"] == f"claim c, constraint 0: {numa} instead of {root}: fits on a with gpu-0, gpu-1"
    assert "DropConstraint" in found


def test_two_changes_where_none_helps_alone() -> None:
    objects = [
        node("a", taints=["team=ml:NoSchedule"]),
        gpus("a", 2),
        device_class(),
        claim("c", count=3),
        pod("p", "c"),
    ]
    found = hints(snapshot_of(*objects), "p")
    assert found == {
        "Together": "request gpu of claim c: ask for 2 instead of 3 devices and tolerate team=ml:NoSchedule of node a: "
        "fits on a with gpu-0, gpu-1"
    }


def test_a_pod_may_ask_for_less_of_a_resource() -> None:
    found = hints(snapshot_of(node("a", cpu="4", pods="9"), pod("p", cpu="6")), "p")
    assert found["ChangeResources"] == "ask for 4 instead of 6 of cpu: fits on a"
