"""A situation for every refusal code: objects, and how to ask. Tests and docs/reference/refusals.md use it.

python tests/explain/codes.py        prints the table of docs/reference/refusals.md
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from typing import Any

from dragoman.allocate.allocator import AllocatorOptions, Ask, SearchLimits, allocate
from dragoman.allocate.refusal import Refusals, Undecided
from dragoman.api import codec
from dragoman.api.core import NodeAffinity
from dragoman.api.gates import gates_with
from dragoman.explain import messages
from dragoman.explain.explanation import explain_pod
from dragoman.explain.state import deletion, events_of, stuck
from dragoman.schedule.cycle import decide
from dragoman.schedule.profile import SchedulerProfile
from dragoman.schedule.topology import TOPOLOGY_REQUIRED
from dragoman.schedule.units import SchedulingContext, SchedulingUnit, unit_of
from dragoman.snapshot.change import Snapshot
from dragoman.snapshot.usage import GANG_MIN_COUNT
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
)
from dragoman.whatif.cluster import bring
from dragoman.whatif.decide import steps
from dragoman.whatif.settle import settled
from dragoman.whatif.units import units_of

NOW = datetime(2026, 1, 1, tzinfo=UTC)
ATTRIBUTE = f"device.attributes['{DRIVER}']"
Reasons = Iterable[Any]


def pods(*made: dict[str, Any], gates: dict[str, bool] | None = None, strict: bool = False, **context: Any) -> Reasons:
    """All reasons that the pods of these objects are refused for; a node with two GPUs unless some are given."""
    kinds = {obj["kind"] for obj in made}
    base = [node("node-a")] if "Node" not in kinds else []
    base += [device_class()] if "DeviceClass" not in kinds else []
    base += [gpus("node-a", 2, model="A")] if "ResourceSlice" not in kinds else []
    snapshot = settled(bring(snapshot_of(*base, *made), NOW)).snapshot
    options = AllocatorOptions(gates=gates_with(gates or {})[0], strict=strict)
    asked = SchedulingContext(new_id=iter(map(str, range(10_000))).__next__, options=options, **context)
    order = [(obj["metadata"]["namespace"], obj["metadata"]["name"]) for obj in made if obj["kind"] == "Pod"]
    found: list[Any] = []
    for step in steps(snapshot, units_of(snapshot, order), NOW, asked):
        for verdict in step.verdicts:
            answer = explain_pod(step, verdict, NOW, asked, lambda: True)
            found += verdict.refused.reasons if verdict.refused is not None else ()
            found += [reason for some in answer.nodes for reason in some.reasons]
    return found


def asked(request: dict[str, Any], *more: dict[str, Any], constraints: Any = (), **rest: Any) -> Reasons:
    """A pod with one claim of this request."""
    return pods(claim("train", request, constraints=constraints), pod("p", "train"), *more, **rest)


def held(name: str, device_name: str, namespace: str = "default", **result: Any) -> dict[str, Any]:
    given = {"request": "gpu", "driver": DRIVER, "pool": "node-a", "device": device_name, **result}
    return claim(name, namespace=namespace, status={"allocation": {"devices": {"results": [given]}}})


def draws(amount: int, **more: Any) -> dict[str, Any]:
    return {"consumesCounters": [{"counterSet": "card-0", "counters": {"memory": {"value": str(amount)}}, **more}]}


def partitions(*devices: dict[str, Any]) -> list[dict[str, Any]]:
    """A pool of devices that draw on a counter of 4."""
    body = {
        "driver": DRIVER,
        "nodeName": "node-a",
        "pool": {"name": "node-a", "generation": 1, "resourceSliceCount": 2},
    }
    counters = [{"name": "card-0", "counters": {"memory": {"value": "4"}}}]
    return [
        manifest("ResourceSlice", "devices", spec={**body, "devices": list(devices)}),
        manifest("ResourceSlice", "counters", spec={**body, "sharedCounters": counters}),
    ]


def shareable(**policy: Any) -> dict[str, Any]:
    capacity = {"memory": {"value": "8Gi", **({"requestPolicy": policy} if policy else {})}}
    return pool("node-a", [{"name": "gpu-0", "allowMultipleAllocations": True, "capacity": capacity}], node="node-a")


def bound(*made: dict[str, Any]) -> Reasons:
    """What keeps a bound pod `p` from running."""
    snapshot = snapshot_of(*(obj for obj in made if obj["kind"] != "Event"))
    raw = [obj for obj in made if obj["kind"] == "Event"]
    return stuck(snapshot, snapshot.pods["default", "p"], events_of(raw), NOW)


def event(message: str) -> dict[str, Any]:
    about = {"kind": "Pod", "namespace": "default", "name": "p", "uid": "uid-p"}
    times = {"firstTimestamp": "2025-12-31T23:59:10Z", "lastTimestamp": "2025-12-31T23:59:50Z", "count": 4}
    return manifest(
        "Event", "p.1", involvedObject=about, reason="FailedPrepareDynamicResources", message=message, **times
    )


def given(name: str = "train", *, reserved: bool = True, device_name: str = "gpu-0", **meta: Any) -> dict[str, Any]:
    """A claim allocated on node-a, for pod p."""
    result = {"request": "gpu", "driver": DRIVER, "pool": "node-a", "device": device_name}
    where = {"nodeSelectorTerms": [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["node-a"]}]}]}
    consumer = {"resource": "pods", "name": "p" if reserved else "other", "uid": "uid-p" if reserved else "uid-other"}
    status = {"allocation": {"devices": {"results": [result]}, "nodeSelector": where}, "reservedFor": [consumer]}
    return claim(name, status=status, metadata=meta)


def replaced() -> dict[str, Any]:
    """The claim, whose driver wrote down which card it prepared."""
    made = given()
    about = {"driver": DRIVER, "pool": "node-a", "device": "gpu-0", "data": {"uuid": "card-1"}}
    made["status"]["devices"] = [about]
    return made


def running(*claims: str, **rest: Any) -> dict[str, Any]:
    return pod("p", *claims, nodeName="node-a", status={"phase": "Pending"}, **rest)


def failing_binding() -> Reasons:
    result = {
        "request": "gpu",
        "driver": DRIVER,
        "pool": "node-a",
        "device": "gpu-0",
        "bindingConditions": ["attached"],
        "bindingFailureConditions": ["broken"],
    }
    reported = {"type": "broken", "status": "True", "reason": "NoSwitch", "message": "switch is off"}
    devices = [{"driver": DRIVER, "pool": "node-a", "device": "gpu-0", "conditions": [reported]}]
    status = {
        "allocation": {"devices": {"results": [result]}},
        "reservedFor": [{"resource": "pods", "name": "p", "uid": "uid-p"}],
        "devices": devices,
    }
    snapshot = snapshot_of(
        node("node-a"), device_class(), gpus("node-a", 1), claim("train", status=status), pod("p", "train")
    )
    unit = SchedulingUnit(("Pod", "default", "p"), (("default", "p"),))
    (refused,) = decide(snapshot, unit, NOW, SchedulingContext(new_id=lambda: "")).refused
    return refused.reasons


def group(wanted: int) -> dict[str, Any]:
    return manifest("PodGroup", "team", spec={"schedulingPolicy": {"gang": {"minCount": wanted}}})


def together(snapshot: Snapshot, asks: list[Ask], steps_max: int = 20_000) -> Reasons:
    answer = allocate(snapshot, asks, AllocatorOptions(limits=SearchLimits(steps_max)), share_id=lambda: "")
    assert isinstance(answer, Refusals | Undecided)
    return answer.reasons if isinstance(answer, Refusals) else (answer.limit,)


def shared_by_two_nodes() -> Reasons:
    everywhere = pool("fabric", [device("gpu-0", index=0), device("gpu-1", index=1)])
    wanted = claim("train", count=2, constraints=[{"matchAttribute": f"{DRIVER}/index"}])
    snapshot = snapshot_of(node("node-a"), node("node-b"), device_class(), everywhere, wanted)
    one = (snapshot.claims["default", "train"],)
    return together(snapshot, [Ask(one, "node-a"), Ask(one, "node-b")])


def given_up() -> Reasons:
    devices = [device(f"gpu-{i}", a=i % 3, b=i % 5) for i in range(20)]
    constraints = [{"distinctAttribute": f"{DRIVER}/b", "requests": ["x"]}, {"matchAttribute": f"{DRIVER}/a"}]
    wanted = claim("train", request("x", count=2), request("y", count=5), constraints=constraints)
    snapshot = snapshot_of(node("node-a"), device_class(), pool("node-a", devices, node="node-a"), wanted)
    return together(snapshot, [Ask((snapshot.claims["default", "train"],), "node-a")], 3)


def no_combination() -> Reasons:
    """Three pairs that each exclude one choice: counting sees nothing, the search comes to an end."""
    values = [(0, 0, 0), (0, 1, 2), (3, 0, 4), (5, 1, 4)]
    devices = [device(f"gpu-{i}", a=a, b=b, c=c) for i, (a, b, c) in enumerate(values)]
    constraints = [
        {"matchAttribute": f"{DRIVER}/a", "requests": ["x", "y"]},
        {"matchAttribute": f"{DRIVER}/b", "requests": ["y", "z"]},
        {"matchAttribute": f"{DRIVER}/c", "requests": ["x", "z"]},
    ]
    wanted = claim("train", *(request(name) for name in "xyz"), constraints=constraints)
    snapshot = snapshot_of(node("node-a"), device_class(), pool("node-a", devices, node="node-a"), wanted)
    return together(snapshot, [Ask((snapshot.claims["default", "train"],), "node-a")])


def two_terms() -> Reasons:
    terms = [{"matchExpressions": [{"key": key, "operator": "Exists"}]} for key in ("kubernetes.io/hostname", "rack")]
    everywhere = manifest(
        "ResourceSlice",
        "fabric",
        spec={
            "driver": DRIVER,
            "pool": {"name": "fabric", "generation": 1, "resourceSliceCount": 1},
            "nodeSelector": {"nodeSelectorTerms": terms},
            "devices": [{"name": "gpu-0"}],
        },
    )
    return asked(request(), everywhere)


def deleting() -> Reasons:
    wanted = given(deletionTimestamp="2025-12-31T22:00:00Z", finalizers=["resource.kubernetes.io/delete-protection"])
    snapshot = snapshot_of(wanted)
    found = deletion(snapshot, snapshot.claims["default", "train"], NOW)
    return () if found is None else (found,)


def anti(key: str, **selector: str) -> dict[str, Any]:
    term = {"labelSelector": {"matchLabels": selector}, "topologyKey": key}
    return {"requiredDuringSchedulingIgnoredDuringExecution": [term]}


NO_SPREAD = {
    "maxSkew": 1,
    "topologyKey": "rack",
    "whenUnsatisfiable": "DoNotSchedule",
    "labelSelector": {"matchLabels": {"app": "web"}},
}
PORT = [{"name": "main", "image": "app", "ports": [{"containerPort": 80, "hostPort": 80}]}]
TAINTED = [{**device("gpu-0"), "taints": [{"key": "example.com/xid", "value": "79", "effect": "NoExecute"}]}]


ZONE = "topology.kubernetes.io/zone"
ELSEWHERE = {"nodeSelectorTerms": [{"matchExpressions": [{"key": "rack", "operator": "In", "values": ["r7"]}]}]}


def mounting(name: str = "p", **spec: Any) -> dict[str, Any]:
    return pod(name, volumes=[{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}], **spec)


def storage_claim(name: str = "data", status: Any = None, metadata: Any = None, **spec: Any) -> dict[str, Any]:
    asked = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "10Gi"}}, **spec}
    return manifest("PersistentVolumeClaim", name, spec=asked, status=status or {}, metadata=metadata or {})


def on_disk(metadata: Any = None, **spec: Any) -> list[dict[str, Any]]:
    """Claim data bound to a volume."""
    modes = {"accessModes": spec.pop("accessModes", ["ReadWriteOnce"])}
    done = {"annotations": {"pv.kubernetes.io/bind-completed": "yes"}}
    kept = {"namespace": "default", "name": "data"}
    volume = {"capacity": {"storage": "10Gi"}, "claimRef": kept, **modes, **spec}
    return [
        storage_claim(volumeName="disk-7", status={"phase": "Bound"}, metadata=done, **modes),
        manifest("PersistentVolume", "disk-7", spec=volume, metadata=metadata or {}),
    ]


def required(key: str, value: str) -> NodeAffinity:
    term = {"matchExpressions": [{"key": key, "operator": "In", "values": [value]}]}
    return codec.decode(NodeAffinity, {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}})


CODES: dict[str, Callable[[], Reasons]] = {
    # the pod
    "SchedulingGated": lambda: pods(pod("p", schedulingGates=[{"name": "quota"}])),
    "ClaimNotCreated": lambda: pods(pod("p", templates=["one-gpu"])),
    "ClaimNotFound": lambda: pods(pod("p", "train")),
    "ClaimDeleting": lambda: pods(
        claim(
            "train",
            metadata={"deletionTimestamp": "2025-12-31T22:00:00Z"},
            status={"reservedFor": [{"resource": "pods", "name": "other"}]},
        ),
        pod("p", "train"),
    ),
    "ClaimNotOwned": lambda: pods(
        claim("train"),
        pod("p", templates=["t"], status={"resourceClaimStatuses": [{"name": "t", "resourceClaimName": "train"}]}),
    ),
    "ClaimUnknown": lambda: pods(pod("p", resourceClaims=[{"name": "gpu"}])),
    "ClaimInFlight": lambda: pods(claim("train"), pod("p", "train"), in_flight={("default", "train")}),
    "ClaimFull": lambda: pods(
        claim(
            "train",
            status={**given()["status"], "reservedFor": [{"resource": "pods", "name": f"p-{i}"} for i in range(256)]},
        ),
        pod("p", "train"),
    ),
    "PodGroupTooSmall": lambda: pods(group(3), pod("p", schedulingGroup={"podGroupName": "team"})),
    "PodGroupNotFound": lambda: pods(pod("p", schedulingGroup={"podGroupName": "team"})),
    "PodGroupDoesNotFit": lambda: pods(
        claim("a", count=2),
        claim("b"),
        pod("p", "a", metadata={"labels": {"gang": "team"}}),
        pod("q", "b", metadata={"labels": {"gang": "team"}}),
    ),
    "PodGroupTopologyMismatch": lambda: list(one_rack_each()),
    "VolumeClaimNotFound": lambda: pods(mounting()),
    "VolumeClaimDeleting": lambda: pods(
        storage_claim(metadata={"deletionTimestamp": "2025-12-31T22:00:00Z"}), mounting()
    ),
    "VolumeClaimNotOwned": lambda: pods(
        storage_claim("p-scratch"), pod("p", volumes=[{"name": "scratch", "ephemeral": {"volumeClaimTemplate": {}}}])
    ),
    "VolumeClaimLost": lambda: pods(storage_claim(volumeName="disk-7", status={"phase": "Lost"}), mounting()),
    "VolumeClaimUnbound": lambda: pods(storage_claim(storageClassName="fast"), mounting()),
    "NoNodes": lambda: list(pods_without_nodes()),
    # the node
    "NodeUnschedulable": lambda: pods(node("node-a", unschedulable=True), pod("p")),
    "UntoleratedTaint": lambda: pods(node("node-a", taints=["team=ml:NoSchedule"]), pod("p")),
    "NodeAffinityMismatch": lambda: pods(pod("p", nodeSelector={"zone": "eu-1"})),
    "AddedAffinityMismatch": lambda: pods(pod("p"), profile=SchedulerProfile(added=required("stage", "gpu"))),
    "InsufficientResource": lambda: pods(node("node-a", cpu="4", pods="9"), pod("p", cpu="8")),
    "TooManyPods": lambda: pods(node("node-a", cpu="4", pods="0"), pod("p")),
    "UnknownResource": lambda: pods(node("node-a", cpu="4", pods="9"), pod("p", extended={"example.com/fpga": "1"})),
    "PortConflict": lambda: pods(pod("other", containers=PORT, nodeName="node-a"), pod("p", containers=PORT)),
    "PodAffinity": lambda: pods(pod("p", affinity={"podAffinity": anti("kubernetes.io/hostname", app="web")})),
    "PodAntiAffinity": lambda: pods(
        pod("other", nodeName="node-a", metadata={"labels": {"app": "web"}}),
        pod("p", affinity={"podAntiAffinity": anti("kubernetes.io/hostname", app="web")}),
    ),
    "TopologySpread": lambda: pods(
        pod("p", topologySpreadConstraints=[NO_SPREAD], metadata={"labels": {"app": "web"}})
    ),
    "VolumeClaimInUse": lambda: pods(
        *on_disk(accessModes=["ReadWriteOncePod"]), mounting("other", nodeName="node-a"), mounting()
    ),
    "VolumeAffinityMismatch": lambda: pods(*on_disk(nodeAffinity={"required": ELSEWHERE}), mounting()),
    "VolumeZone": lambda: pods(
        node("node-a", labels={ZONE: "eu-1"}), *on_disk(metadata={"labels": {ZONE: "eu-2"}}), mounting()
    ),
    "VolumeNotAvailable": lambda: pods(
        manifest(
            "StorageClass",
            "local",
            provisioner="kubernetes.io/no-provisioner",
            volumeBindingMode="WaitForFirstConsumer",
        ),
        storage_claim(storageClassName="local"),
        mounting(),
    ),
    "ClaimNotAvailableOnNode": lambda: pods(
        node("node-b"), given(reserved=False), pod("p", "train", nodeSelector={"kubernetes.io/hostname": "node-b"})
    ),
    "NodeAllocatableClaimShared": lambda: mapped(MAPPED, pod("q", "train", nodeName="node-a")),
    "NodeAllocatableAmountUnknown": lambda: mapped({"capacityKey": "memory", "capacityMultiplier": "1"}),
    "InsufficientPodLevelResource": lambda: mapped(MAPPED, resources={"requests": {"memory": "4Gi"}}),
    "BindingFailed": failing_binding,
    # the claim
    "FeatureGateDisabled": lambda: asked(
        {"name": "gpu", "firstAvailable": [{"name": "big", "deviceClassName": DRIVER}]},
        gates={"DRAPrioritizedList": False},
    ),
    "UnsupportedRequest": lambda: asked({"name": "gpu"}),
    "UnsupportedMode": lambda: asked(request(allocationMode="Some")),
    "ClassNotSpecified": lambda: asked(request(device_class="")),
    "ClassNotFound": lambda: asked(request(device_class="gpu.example.con")),
    "UnsupportedSelector": lambda: asked(request(selectors=[{}])),
    "SelectorInvalid": lambda: asked(request(select="devise.driver == 'x'")),
    "EmptyConstraint": lambda: asked(request(), constraints=[{"requests": ["gpu"]}]),
    "TooManyDevices": lambda: asked(request(count=33)),
    # pools and devices
    "SelectorError": lambda: asked(request(select=f"{ATTRIBUTE}.type == 'gpu'")),
    "PoolIncomplete": lambda: asked(
        request(),
        pool(
            "node-a",
            [device("gpu-0")],
            node="node-a",
            pool={"name": "node-a", "generation": 3, "resourceSliceCount": 2},
        ),
    ),
    "PoolInvalid": lambda: asked(request(), pool("node-a", [device("gpu-0"), device("gpu-0")], node="node-a")),
    "AllModeConstraintUnsatisfied": lambda: asked(
        request(allocationMode="All"), constraints=[{"matchAttribute": f"{DRIVER}/index"}]
    ),
    "InsufficientDevices": lambda: asked(request(count=3)),
    "SelectorFalse": lambda: asked(request(select=f"{ATTRIBUTE}.model == 'B'")),
    "DeviceInUse": lambda: asked(request(count=2), held("other", "gpu-0")),
    "UnpublishedOverlap": lambda: asked(
        request(), held("other", "old"), *partitions({**device("whole"), **draws(4)}), strict=True
    ),
    "DeviceTainted": lambda: asked(request(), pool("node-a", TAINTED, node="node-a")),
    "InsufficientCounter": lambda: asked(
        request(), held("other", "half"), *partitions({**device("half"), **draws(3)}, {**device("rest"), **draws(2)})
    ),
    "CompatibilityGroupConflict": lambda: asked(
        request(),
        held("other", "a", compatibilityGroups={"card-0": ["red"]}),
        *partitions(
            {**device("a"), **draws(1, compatibilityGroups=["red"])},
            {**device("b"), **draws(1, compatibilityGroups=["blue"])},
        ),
        gates={"DRADeviceCompatibilityGroups": True},
    ),
    "InsufficientCapacity": lambda: asked(request(capacity={"requests": {"memory": "9Gi"}}), shareable()),
    "CapacityPolicyViolated": lambda: asked(
        request(capacity={"requests": {"memory": "6Gi"}}),
        shareable(default="1Gi", validRange={"min": "1Gi", "max": "4Gi"}),
    ),
    "CapacityNotFound": lambda: asked(request(capacity={"requests": {"bandwidth": "1Gi"}}), shareable()),
    "DeviceFeatureGateDisabled": lambda: asked(
        request(),
        pool(
            "node-a",
            [{**device("gpu-0"), "bindingConditions": ["attached"], "bindingFailureConditions": ["broken"]}],
            node="node-a",
        ),
        gates={"DRADeviceBindingConditions": False},
    ),
    "ConstraintUnsatisfied": lambda: asked(request(count=2), constraints=[{"matchAttribute": f"{DRIVER}/index"}]),
    "RequestsContended": lambda: pods(claim("train", request("a", count=2), request("b")), pod("p", "train")),
    "NoCombination": no_combination,
    "SearchLimitReached": given_up,
    "AllocatedElsewhere": shared_by_two_nodes,
    "NodeNotFound": lambda: together(snapshot_of(node("node-a")), [Ask((), "node-x")]),
    "MultipleSelectorTerms": two_terms,
    # pods that have their node, deletions
    "DriverNotRegistered": lambda: bound(
        node("node-a"),
        gpus("node-a", 1),
        given(),
        running("train"),
        event(f"Failed to prepare dynamic resources: prepare dynamic resources: DRA driver {DRIVER} is not registered"),
    ),
    "NoResourceSlices": lambda: bound(node("node-a"), given(), running("train")),
    "DeviceNotPublished": lambda: bound(
        node("node-a"), gpus("node-a", 1), given(device_name="gpu-7"), running("train")
    ),
    "DeviceReplaced": lambda: bound(
        node("node-a"),
        gpus("node-a", 1, uuid="card-2"),
        replaced(),
        running("train"),
    ),
    "PrepareResourcesFailed": lambda: bound(
        node("node-a"),
        gpus("node-a", 1),
        given(),
        running("train"),
        event("Failed to prepare dynamic resources: gpu-0 is still prepared for claim u-old"),
    ),
    "ClaimNotAllocated": lambda: bound(node("node-a"), claim("train"), running("train")),
    "ClaimNotReserved": lambda: bound(node("node-a"), gpus("node-a", 1), given(reserved=False), running("train")),
    "PodClaimNotFound": lambda: bound(node("node-a"), running("train")),
    "PodNodeNotFound": lambda: bound(running()),
    "NodeNotReady": lambda: bound(
        manifest(
            "Node",
            "node-a",
            status={"conditions": [{"type": "Ready", "status": "Unknown", "reason": "NodeStatusUnknown"}]},
        ),
        running(),
    ),
    "Starting": lambda: bound(node("node-a"), running()),
    "DeviceTaintEviction": lambda: bound(
        node("node-a"),
        gpus("node-a", 1),
        manifest(
            "DeviceTaintRule",
            "ecc",
            spec={
                "deviceSelector": {"driver": DRIVER},
                "taint": {"key": "example.com/sick", "value": "ecc", "effect": "NoExecute"},
            },
        ),
        given(),
        running("train"),
    ),
    "DeletionBlocked": deleting,
}


MAPPED = {"deviceMultiplier": "8Gi"}


def mapped(mapping: dict[str, str], *others: dict[str, Any], **spec: Any) -> Reasons:
    """A pod with a device that needs memory of its node (KEP-5517)."""
    gpu = device("gpu-0", capacity={"memory": "80Gi"}) | {"nodeAllocatableResources": {"memory": {"mapping": mapping}}}
    gates = {"DRANodeAllocatableResources": True}
    made = pool("node-a", [gpu], node="node-a")
    held = given() if others else claim("train")
    return pods(made, held, *others, pod("p", "train", **spec), gates=gates)


def one_rack_each() -> Reasons:
    """Two pods that need a rack of their own, and two racks of one node each, each with a device."""
    meta = {"annotations": {TOPOLOGY_REQUIRED: "rack", GANG_MIN_COUNT: "2"}, "labels": {"ray.io/cluster": "team"}}
    made = [device_class(), claim("a"), claim("b"), pod("p", "a", metadata=meta), pod("q", "b", metadata=meta)]
    for name in ("r1", "r2"):
        made += [node(f"node-{name}", labels={"rack": name}), gpus(f"node-{name}", 1)]
    snapshot = snapshot_of(*made)
    context = SchedulingContext(new_id=lambda: "")
    (refused, _) = decide(
        snapshot, unit_of(snapshot, snapshot.pods["default", "p"], context.gates), NOW, context
    ).refused
    return refused.reasons


def pods_without_nodes() -> Reasons:
    snapshot = snapshot_of(pod("p"))
    context = SchedulingContext(new_id=lambda: "")
    (step,) = steps(snapshot, units_of(snapshot, [("default", "p")]), NOW, context)
    refused = step.verdicts[0].refused
    assert refused is not None
    return refused.reasons


def situation(code: str) -> Any:
    """The situation's reason with that code."""
    return next(reason for reason in CODES[code]() if messages.code(reason) == code)


def row(code: str) -> tuple[str, str, str]:
    """What the reference says of a code: what it means, its facts in JSON, an example (its first line)."""
    reason = situation(code)
    means = " ".join((type(reason).__doc__ or "").split())
    for field in type(reason).__struct_fields__:
        means = means.replace(field, messages.camel(field)) if "_" in field else means
    facts = ", ".join(f"`{name}`" for name in messages.as_json(reason) if name not in ("code", "message"))
    return means, facts or "none", messages.sentence(reason).partition("\n")[0]


if __name__ == "__main__":
    for name in CODES:
        sys.stdout.write(f"| `{name}` | {' | '.join(row(name))} |\n")
