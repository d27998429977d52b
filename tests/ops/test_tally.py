"""Sums over a cluster: right, kept up to date as if counted anew, bounded, and without names of tenants' objects."""

from __future__ import annotations

import random
import time
from datetime import UTC, datetime
from typing import Any

import pytest

from dragoman.inspect.inventory import inventory
from dragoman.ops.families import BY_NAME
from dragoman.ops.tally import ClusterTally
from dragoman.snapshot.change import Change, Gone, Put, Snapshot, apply_all
from dragoman.testing.build import DRIVER, claim, device, device_class, gpus, manifest, node, pod, pool, typed

NOW = datetime(2026, 1, 10, tzinfo=UTC)
Values = dict[tuple[str, ...], float]


def put(*manifests: dict[str, Any]) -> list[Change]:
    return [Put(made["kind"], typed(made)) for made in manifests]


def at(minutes_ago: float) -> dict[str, str]:
    then = datetime.fromtimestamp(NOW.timestamp() - 60 * minutes_ago, UTC)
    return {"creationTimestamp": then.strftime("%Y-%m-%dT%H:%M:%SZ")}


def held(name: str, on: str, *devices: str, namespace: str = "", **result: Any) -> dict[str, Any]:
    results = [{"request": "gpu", "driver": DRIVER, "pool": on, "device": d, **result} for d in devices]
    return claim(name, namespace=namespace, status={"allocation": {"devices": {"results": results}}})


class World:
    """A cluster, and its tally."""

    def __init__(self, *manifests: dict[str, Any]) -> None:
        self.snapshot = Snapshot.empty()
        self.tally = ClusterTally()
        self.step(put(*manifests))

    def step(self, changes: list[Change]) -> None:
        before, self.snapshot = self.snapshot, apply_all(self.snapshot, changes)
        self.tally.advance(before, self.snapshot, changes)

    def values(self, **more: Any) -> Values:
        asked = {"max_nodes": 200, "by_namespace": True} | more
        return {(family, *labels): value for family, labels, value in self.tally.values(NOW.timestamp(), **asked)}

    def counted(self) -> Values:
        fresh = ClusterTally()
        kinds = {
            "Node": self.snapshot.nodes,
            "Pod": self.snapshot.pods,
            "ResourceClaim": self.snapshot.claims,
            "DeviceClass": self.snapshot.classes,
            "ResourceSlice": self.snapshot.slices,
            "DeviceTaintRule": self.snapshot.taint_rules,
        }
        changes: list[Change] = [Put(kind, value) for kind, held_ in kinds.items() for value in held_.values()]
        fresh.advance(Snapshot.empty(), self.snapshot, changes)
        return {
            (family, *labels): value
            for family, labels, value in fresh.values(NOW.timestamp(), max_nodes=200, by_namespace=True)
        }


def test_the_promised_names() -> None:
    world = World(
        node("a"),
        gpus("a", 4),
        device_class(),
        held("h", "a", "gpu-0", "gpu-1"),
        held("admin", "a", "gpu-2", adminAccess=True),
        claim("open"),
    )
    found = world.values()
    assert found["dra_resource_claims_total",] == 3
    assert found["dra_resource_claims_pending",] == 1
    assert found["dra_resource_claims_allocated",] == 2
    assert found["dra_devices_allocated",] == 2
    assert found["dra_devices_available", DRIVER] == 2
    assert found["dragoman_class_devices", DRIVER] == 4


def test_available_leaves_out_what_nobody_can_get() -> None:
    tainted = {**device("gpu-0"), "taints": [{"key": "gpu.nvidia.com/xid", "value": "79", "effect": "NoSchedule"}]}
    noted = {**device("gpu-1"), "taints": [{"key": "note", "effect": "None"}]}
    not_ready = node("down")
    not_ready["status"] = {"conditions": [{"type": "Ready", "status": "Unknown"}]}
    partial = gpus("half", 3)
    partial["spec"]["pool"]["resourceSliceCount"] = 2
    world = World(
        device_class(),
        node("a", taints=["nvidia.com/gpu=present:NoSchedule"]),
        pool("a", [tainted, noted], node="a"),
        node("cordoned", unschedulable=True),
        gpus("cordoned", 2),
        not_ready,
        gpus("down", 2),
        node("half"),
        partial,
    )
    found = world.values()
    assert found["dra_devices_available", DRIVER] == 1, "gpu-1 of a: pods tolerate the taint of its node"
    assert found["dragoman_class_devices", DRIVER] == 9
    assert found["dragoman_pools", DRIVER, "incomplete"] == 1
    assert found["dragoman_device_taints", DRIVER, "gpu.nvidia.com/xid", "NoSchedule"] == 1
    assert found["dragoman_device_taints", DRIVER, "note", "None"] == 1
    assert found["dragoman_nodes", "not_ready"] == 1
    assert found["dragoman_node_problem", "down", "not_ready"] == 1


def test_claims_that_no_pod_uses_do_not_wait() -> None:
    gated = pod("gated", "g", metadata=at(50), schedulingGates=[{"name": "quota"}])
    world = World(
        claim("old", metadata=at(600)),
        claim("used", metadata=at(600)),
        pod("young", "used", metadata=at(2)),
        claim("g", metadata=at(60)),
        gated,
        claim("late", metadata=at(7)),
        pod("waits", "late", metadata=at(7)),
    )
    found = world.values()
    assert found["dragoman_claims", "unreferenced"] == 2
    assert found["dragoman_claims", "waiting"] == 2
    waiting = {age: found["dragoman_claims_waiting", age] for age in ("0s", "1m", "5m", "15m")}
    assert waiting == {"0s": 2, "1m": 2, "5m": 1, "15m": 0}, "the age is that of the claim or its first pod"


def test_what_cannot_fit_any_more() -> None:
    roots = [
        device(f"gpu-{i}", capacity={"memory": "80Gi"}, **{"resource.kubernetes.io/pcieRoot": f"pci{i // 2}"})
        for i in range(4)
    ]
    world = World(device_class(), node("a"), node("b"), pool("a", roots, node="a"), gpus("b", 3))
    found = world.values()
    assert found["dragoman_class_largest_group", DRIVER, "node"] == 4
    assert found["dragoman_class_largest_group", DRIVER, "pcie_root"] == 2
    assert found["dragoman_class_largest_memory_bytes", DRIVER] == 80 * 2**30
    world.step(put(held("h", "a", "gpu-0", "gpu-2")))
    found = world.values()
    assert found["dragoman_class_largest_group", DRIVER, "node"] == 3
    assert found["dragoman_class_largest_group", DRIVER, "pcie_root"] == 1


def test_stranded_devices() -> None:
    full = pod("greedy", cpu="4", nodeName="a")
    world = World(device_class(), node("a", cpu="4", memory="64Gi", pods="110"), gpus("a", 3), node("b"), gpus("b", 2))
    assert world.values()["dragoman_stranded_devices", DRIVER] == 0
    world.step(put(full))
    assert world.values()["dragoman_stranded_devices", DRIVER] == 3


def test_nodes_that_should_publish() -> None:
    labels = {"nvidia.com/gpu.present": "true"}
    plugin = node("plugin", labels=labels)
    plugin["status"] = {
        "capacity": {"nvidia.com/gpu": "8"},
        "allocatable": {"nvidia.com/gpu": "7"},
    }
    failed = node("mig", labels={**labels, "nvidia.com/mig.config.state": "failed"})
    world = World(
        node("bare", labels=labels), plugin, failed, gpus("mig", 1, driver="gpu.nvidia.com"), node("cpu-only")
    )
    found = world.values()
    problems = {key[1:] for key in found if key[0] == "dragoman_node_problem"}
    assert problems == {("bare", "no_slices"), ("mig", "mig_config_failed")}
    assert found["dragoman_extended_resources", "nvidia.com/gpu", "capacity"] == 8
    assert found["dragoman_extended_resources", "nvidia.com/gpu", "allocatable"] == 7


def test_series_are_bounded() -> None:
    classes = [device_class(f"class-{i:04}") for i in range(700)]
    world = World(*classes, *(node(f"n{i:03}") for i in range(30)), *(gpus(f"n{i:03}", 1) for i in range(30)))
    found = world.values(max_nodes=10)
    assert len({key[1] for key in found if key[0] == "dragoman_node_devices"}) == 10
    assert found["dragoman_exporter_left_out", "dragoman_node_devices"] == 20
    assert found["dragoman_exporter_left_out", "dra_devices_available"] == 200


def test_namespaces_only_if_asked() -> None:
    world = World(node("a"), gpus("a", 2), device_class(), held("secret-claim", "a", "gpu-0", namespace="team-x"))
    assert world.values()["dragoman_namespace_devices", "team-x", DRIVER] == 1
    assert not any("team-x" in part for key in world.values(by_namespace=False) for part in key)
    assert not any("secret" in part for key in world.values() for part in key)


def _random_step(draw: random.Random) -> list[Change]:
    on = f"n{draw.randrange(4)}"
    match draw.randrange(9):
        case 0:
            return put(node(on, unschedulable=draw.random() < 0.3, cpu="4", memory="8Gi", pods="9"))
        case 1:
            return [Gone("Node", "", on)]
        case 2:
            made = gpus(on, draw.randrange(1, 5))
            made["spec"]["pool"]["generation"] = draw.randrange(1, 3)
            made["spec"]["pool"]["resourceSliceCount"] = draw.choice((1, 1, 2))
            return put(made)
        case 3:
            return [Gone("ResourceSlice", "", f"{on}-{DRIVER}")]
        case 4:
            devices = [f"gpu-{i}" for i in range(4) if draw.random() < 0.3]
            return put(held(f"c{draw.randrange(6)}", on, *devices, namespace=draw.choice(("x", "y"))))
        case 5:
            return put(
                claim(f"c{draw.randrange(6)}", namespace=draw.choice(("x", "y")), metadata=at(draw.random() * 99))
            )
        case 6:
            kind = draw.choice(("ResourceClaim", "Pod"))
            return [Gone(kind, draw.choice(("x", "y")), f"{'c' if kind != 'Pod' else 'p'}{draw.randrange(6)}")]
        case 7:
            where = {"nodeName": on} if draw.random() < 0.5 else {}
            name = f"p{draw.randrange(6)}"
            spec = {"namespace": draw.choice(("x", "y")), "cpu": "4", "metadata": at(draw.random() * 99), **where}
            return put(pod(name, f"c{draw.randrange(6)}", **spec))
        case _:
            if draw.random() < 0.5:
                return put(device_class(draw.choice(("one", "two")), driver=draw.choice((DRIVER, "other"))))
            taint = {"key": "drain", "effect": draw.choice(("NoExecute", "None"))}
            return put(manifest("DeviceTaintRule", "r", spec={"deviceSelector": {"pool": on}, "taint": taint}))


@pytest.mark.parametrize("seed", range(40))
def test_kept_up_to_date_as_if_counted_again(seed: int) -> None:
    draw = random.Random(seed)
    world = World(device_class("one"))
    for _ in range(60):
        world.step([change for _ in range(draw.randrange(1, 4)) for change in _random_step(draw)])
        if draw.random() < 0.4:
            assert world.values() == world.counted()
    found = world.values()
    assert found == world.counted()
    counted = inventory(world.snapshot, ("class",), NOW).total.counts
    by_state = sum(value for key, value in found.items() if key[0] == "dragoman_driver_devices")
    assert by_state == counted.total
    assert all(key[0] in BY_NAME for key in found)
    for key in found:
        assert len(key) - 1 == len(BY_NAME[key[0]].labels), key


@pytest.mark.slow
def test_five_thousand_nodes() -> None:
    """40,000 devices: a few thousand series, and a scrape counts only what changed."""
    nodes = 5000
    world = World(
        *(device_class(f"class-{i}") for i in range(5)),
        *(node(f"n{i}", cpu="64", memory="512Gi", pods="110") for i in range(nodes)),
        *(gpus(f"n{i}", 8) for i in range(nodes)),
    )
    assert world.values()["dra_devices_available", "class-0"] == 8 * nodes
    counted: list[tuple[str, str]] = []
    whole = world.tally._count_pool

    def watched(driver: str, name: str) -> Any:
        counted.append((driver, name))
        return whole(driver, name)

    world.tally._count_pool = watched  # type: ignore[method-assign]
    world.step(put(held("h", "n17", "gpu-0", "gpu-1")))
    began = time.process_time()
    found = world.values()
    print(f"scrape: {time.process_time() - began:.3f} s, {len(found)} series")
    assert counted == [(DRIVER, "n17")]
    assert found["dra_devices_available", "class-0"] == 8 * nodes - 2
    assert len(found) < 3000
