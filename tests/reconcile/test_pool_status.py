"""What is answered to a ResourcePoolStatusRequest?"""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from immutables import Map

from dragoman.api import codec
from dragoman.effects import Delete, Patch
from dragoman.reconcile import pool_status
from dragoman.reconcile.pool_status import KIND, PoolRequest

DRIVER = "gpu.example.com"


def ask(cluster: Any, **spec: Any) -> Any:
    """A request, and its first answer that is not "later"."""
    meta = {"name": "r", "uid": "u", "creationTimestamp": "2026-01-01T00:00:00Z"}
    request = {"metadata": meta, "spec": {"driver": DRIVER, **spec}}
    return steps(cluster, request)


def steps(cluster: Any, request: Any, age_s: float = 0.0, tries: int = pool_status.TRIES) -> Any:
    stored = codec.decode(PoolRequest, request)
    created = pool_status.parse_time(request["metadata"]["creationTimestamp"]).timestamp()
    others = Map({(KIND, "", "r"): stored})
    tally = {f"{KIND}/u": tries}
    return pool_status.sync(
        msgspec.structs.replace(cluster.world, others=others, tally=tally, now=created + age_s), "r"
    )


def pools(step: Any) -> list[Any]:
    [patch] = step.effects
    assert isinstance(patch, Patch)
    assert patch.subresource == "status"
    found: list[Any] = patch.patch["status"]["pools"]
    return found


def slices(
    cluster: Any, pool: str, *devices: Any, name: str = "", generation: int = 1, count: int = 1, **spec: Any
) -> None:
    body = {"driver": DRIVER, "pool": {"name": pool, "generation": generation, "resourceSliceCount": count}}
    where = {} if "nodeName" in spec or "allNodes" in spec else {"allNodes": True}
    cluster.add("ResourceSlice", name or pool, spec={**body, **where, "devices": list(devices), **spec})


def held(cluster: Any, pool: str, device: str, name: str = "c", **result: Any) -> None:
    given = {"request": "r", "driver": DRIVER, "pool": pool, "device": device, **result}
    cluster.add("ResourceClaim", name, spec={}, status={"allocation": {"devices": {"results": [given]}}})


def test_devices_are_counted_once_and_admin_access_does_not_hold(cluster: Any) -> None:
    taint = {"key": "k", "effect": "NoSchedule"}
    slices(cluster, "p", {"name": "a"}, {"name": "b"}, {"name": "c", "taints": [taint]}, nodeName="n")
    held(cluster, "p", "a", "one", shareID="1")
    held(cluster, "p", "a", "two", shareID="2")
    held(cluster, "p", "b", "admin", adminAccess=True)
    [pool] = pools(ask(cluster))
    assert pool == {
        "driver": DRIVER,
        "poolName": "p",
        "generation": 1,
        "nodeName": "n",
        "resourceSliceCount": 1,
        "totalDevices": 3,
        "allocatedDevices": 1,
        "unavailableDevices": 1,
        "availableDevices": 1,
    }


def test_rules_make_devices_unavailable(cluster: Any) -> None:
    slices(cluster, "p", {"name": "a"}, {"name": "b"})
    rule = {"deviceSelector": {"driver": DRIVER, "device": "b"}, "taint": {"key": "k", "effect": "NoExecute"}}
    cluster.add("DeviceTaintRule", "rule", spec=rule)
    [pool] = pools(ask(cluster))
    assert (pool["unavailableDevices"], pool["availableDevices"]) == (1, 1)


def test_a_pool_that_is_being_published_is_waited_for_then_reported_as_it_is(cluster: Any) -> None:
    slices(cluster, "old", {"name": "a"}, name="s0", generation=1)
    slices(cluster, "old", {"name": "a"}, name="s1", generation=2, count=3)
    meta = {"name": "r", "uid": "u", "creationTimestamp": "2026-01-01T00:00:00Z"}
    later = steps(cluster, {"metadata": meta, "spec": {"driver": DRIVER}}, tries=0)
    assert (later.effects, later.again_s, later.tally) == ((), pool_status.RETRY_S, (f"{KIND}/u",))
    [pool] = pools(ask(cluster))
    text = f"PoolIncomplete: pool {DRIVER}/old is incomplete: observed 1/3 slices at generation 2"
    assert (pool["validationError"], "totalDevices" in pool) == (text, False)


def test_pools_are_chosen_sorted_and_cut(cluster: Any) -> None:
    for name in ("b", "a", "c"):
        slices(cluster, name, {"name": "x"})
    assert [pool["poolName"] for pool in pools(ask(cluster))] == ["a", "b", "c"]
    assert [pool["poolName"] for pool in pools(ask(cluster, poolName="b"))] == ["b"]
    step = ask(cluster, limit=2)
    assert [pool["poolName"] for pool in pools(step)] == ["a", "b"]
    status = step.effects[0].patch["status"]
    assert status["poolCount"] == 3
    assert status["conditions"][0]["message"] == "Calculated status for 2 pools"


def partition(name: str, profile: str | None, memory: str) -> Any:
    attributes = {} if profile is None else {"profile": {"string": profile}}
    counters = [{"counterSet": "card", "counters": {"memory": {"value": memory}}}]
    return {"name": name, "attributes": attributes, "consumesCounters": counters}


def partitions(cluster: Any, *devices: Any) -> None:
    card = {"name": "card", "counters": {"memory": {"value": "40Gi"}}}
    slices(cluster, "p", name="counters", count=2, sharedCounters=[card])
    slices(cluster, "p", *devices, name="devices", count=2, partitionTypeAttribute=f"{DRIVER}/profile")


def test_partitions_are_allocatable_as_far_as_counters_reach(cluster: Any) -> None:
    small = [partition(f"s{n}", "small", "10Gi") for n in range(4)]
    partitions(cluster, *small, partition("l0", "large", "20Gi"), partition("l1", "large", "20Gi"))
    held(cluster, "p", "s0")
    [pool] = pools(ask(cluster))
    assert [(t["type"], t["total"], t["allocatable"]) for t in pool["partitionSummary"]] == [
        ("large", 2, 1),
        ("small", 4, 3),
    ]


@pytest.mark.parametrize(
    ("devices", "fault"),
    [
        ([partition("a", None, "1Gi")], "PartitionTypeMissing: device"),
        ([partition("a", "x", "1Gi"), partition("b", "x", "2Gi")], "PartitionCostMismatch:"),
        ([partition(f"d{n}", f"t{n}", "1Gi") for n in range(33)], "PartitionSummaryOverCap:"),
    ],
)
def test_partitions_that_cannot_be_summed_up_say_why(cluster: Any, devices: list[Any], fault: str) -> None:
    partitions(cluster, *devices)
    [pool] = pools(ask(cluster))
    assert pool["validationError"].startswith(fault)
    assert pool["totalDevices"] == len(devices)
    assert "partitionSummary" not in pool


def test_shared_devices_show_what_is_left_of_their_capacity(cluster: Any) -> None:
    device = {"allowMultipleAllocations": True, "capacity": {"memory": {"value": "40Gi"}}}
    slices(cluster, "p", {"name": "a", **device}, {"name": "b", **device})
    held(cluster, "p", "a", shareID="1", consumedCapacity={"memory": "10Gi"})
    [pool] = pools(ask(cluster))
    assert pool["shareableSummary"] == {
        "fullyAvailableDevices": 1,
        "partiallyAvailableDevices": 1,
        "capacity": [{"name": "memory", "total": "80Gi", "consumed": "10Gi", "available": "70Gi"}],
    }


def test_answers_stay_for_an_hour_and_requests_for_a_day(cluster: Any) -> None:
    meta = {"name": "r", "uid": "u", "creationTimestamp": "2026-01-01T00:00:00Z"}
    done = {"type": "Complete", "status": "True", "lastTransitionTime": "2026-01-01T00:10:00Z"}
    request = {"metadata": meta, "spec": {"driver": DRIVER}, "status": {"conditions": [done]}}
    assert steps(cluster, request, 4000).again_s == 200
    [gone] = steps(cluster, request, 4300).effects
    assert isinstance(gone, Delete)
    del request["status"]
    [late] = steps(cluster, request, 25 * 3600).effects
    assert isinstance(late, Delete)
