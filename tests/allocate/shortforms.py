"""Short forms of objects for these tests: one driver, class `gpu`, pool and slice named after the node."""

from __future__ import annotations

import itertools
from typing import Any

from dragoman.allocate.allocator import Allocation, AllocatorOptions, Ask, allocate
from dragoman.allocate.candidates import DeviceFilter
from dragoman.allocate.device_state import device_states_of
from dragoman.allocate.fragmentation import Demand
from dragoman.allocate.match import Matcher
from dragoman.allocate.policy import FIRST_FIT
from dragoman.allocate.refusal import Refusals, Undecided
from dragoman.allocate.search import SearchRequest, number
from dragoman.allocate.slots import ClaimPlan, plan_claim, rules_of
from dragoman.api.codec import decode
from dragoman.api.core import Node
from dragoman.api.gates import gates_with
from dragoman.api.resource import DeviceClass, DeviceTaintRule, ResourceClaim, ResourceSlice
from dragoman.snapshot.change import Snapshot
from dragoman.snapshot.pools import pools_for

DRIVER = "gpu.example.com"
ALPHA = {
    "DRAListTypeAttributes": True,
    "DRADerivedAttributes": True,
    "DRADeviceCompatibilityGroups": True,
    "DRAOptionalNodeOperations": True,
}


def node(name: str = "n1", **labels: str) -> tuple[str, Any]:
    return "Node", decode(Node, {"metadata": {"name": name, "labels": labels}})


def device_class(name: str = "gpu", text: str = f"device.driver == '{DRIVER}'", **spec: Any) -> tuple[str, Any]:
    body = {"metadata": {"name": name}, "spec": {"selectors": [{"cel": {"expression": text}}], **spec}}
    return "DeviceClass", decode(DeviceClass, body)


def attributes(**values: Any) -> dict[str, Any]:
    kinds = {bool: "bool", int: "int", str: "string"}
    return {k: v if isinstance(v, dict) else {kinds[type(v)]: v} for k, v in values.items()}


def device(name: str, **fields: Any) -> dict[str, Any]:
    """attrs: plain values; other fields as in the API."""
    attrs = attributes(**fields.pop("attrs", {}))
    return {"name": name, "attributes": attrs, **fields}


def draws(group: str = "set", *, compatibility: list[str] | None = None, **amounts: int) -> dict[str, Any]:
    """A consumesCounters entry."""
    use: dict[str, Any] = {"counterSet": group, "counters": {k: {"value": str(v)} for k, v in amounts.items()}}
    return {**use, "compatibilityGroups": compatibility} if compatibility is not None else use


def counter_set(name: str = "set", **amounts: int) -> dict[str, Any]:
    return {"name": name, "counters": {k: {"value": str(v)} for k, v in amounts.items()}}


def resource_slice(
    devices: list[dict[str, Any]] | None = None,
    *,
    name: str = "s1",
    pool: str = "p1",
    driver: str = DRIVER,
    count: int = 1,
    generation: int = 1,
    **spec: Any,
) -> tuple[str, Any]:
    """A slice; on node n1 unless the spec says where."""
    if not spec.keys() & {"nodeName", "nodeSelector", "allNodes", "perDeviceNodeSelection", "nowhere"}:
        spec["nodeName"] = "n1"
    spec.pop("nowhere", None)
    body = {
        "metadata": {"name": name},
        "spec": {
            "driver": driver,
            "pool": {"name": pool, "generation": generation, "resourceSliceCount": count},
            "devices": devices or [],
            **spec,
        },
    }
    return "ResourceSlice", decode(ResourceSlice, body)


def wants(name: str = "r", count: int = 1, **fields: Any) -> dict[str, Any]:
    """A request for some devices of class gpu; select is CEL text, every=True means all."""
    return {"name": name, "exactly": asked(count, **fields)}


def asked(count: int = 1, *, select: str = "", every: bool = False, **fields: Any) -> dict[str, Any]:
    body: dict[str, Any] = {"deviceClassName": "gpu", "allocationMode": "All" if every else "ExactCount", **fields}
    if not every:
        body["count"] = count
    if select:
        body["selectors"] = [{"cel": {"expression": select}}]
    return body


def first_of(name: str, *options: dict[str, Any]) -> dict[str, Any]:
    return {"name": name, "firstAvailable": [{"name": f"s{i}", **option} for i, option in enumerate(options)]}


def claim(*requests: dict[str, Any], name: str = "c", **devices: Any) -> ResourceClaim:
    body = {
        "metadata": {"name": name, "namespace": "default", "uid": f"uid-{name}"},
        "spec": {"devices": {"requests": list(requests), **devices}},
    }
    return decode(ResourceClaim, body)


def held(name: str, pool: str = "p1", *, driver: str = DRIVER, claim_name: str = "", **fields: Any) -> tuple[str, Any]:
    """A claim of somebody else that holds a device."""
    result = {"request": "r", "driver": driver, "pool": pool, "device": name, **fields}
    body = {
        "metadata": {"name": claim_name or f"held-{name}", "namespace": "others"},
        "status": {"allocation": {"devices": {"results": [result]}}},
    }
    return "ResourceClaim", decode(ResourceClaim, body)


def rule(name: str, selector: dict[str, str] | None, **taint: str) -> tuple[str, Any]:
    spec: dict[str, Any] = {"taint": {"key": "k", "value": "v", "effect": "NoSchedule", **taint}}
    if selector is not None:
        spec["deviceSelector"] = selector
    return "DeviceTaintRule", decode(DeviceTaintRule, {"metadata": {"name": name}, "spec": spec})


def ids() -> Any:
    numbers = itertools.count(1)
    return lambda: f"00000000-0000-4000-8000-{next(numbers):012d}"


def options(*, policy: str = "first-fit", **gates: bool) -> AllocatorOptions:
    return AllocatorOptions(gates=gates_with({**ALPHA, **gates})[0], policy=policy)


def run(
    objects: list[tuple[str, Any]], *claims: ResourceClaim, on: str = "n1", policy: str = "first-fit", **gates: bool
) -> Allocation | Refusals | Undecided:
    """Allocates claims together on a node; class gpu and node n1 are there unless given."""
    kinds = {(kind, value.metadata.name) for kind, value in objects}
    base = [o for o in (node(), device_class()) if (o[0], o[1].metadata.name) not in kinds]
    snapshot = Snapshot.from_objects([*base, *objects])
    return allocate(snapshot, [Ask(claims, on)], options(policy=policy, **gates), share_id=ids())


def search_requests(objects: list[tuple[str, Any]], *claims: ResourceClaim, on: str = "n1") -> list[SearchRequest]:
    """What a search on a node is made of; class gpu and node n1 are there unless given."""
    kinds = {(kind, value.metadata.name) for kind, value in objects}
    base = [o for o in (node(), device_class()) if (o[0], o[1].metadata.name) not in kinds]
    snapshot = Snapshot.from_objects([*base, *objects])
    rules = rules_of(options().gates)
    states = device_states_of(snapshot, snapshot.nodes[on], pools_for(snapshot, snapshot.nodes[on]), rules)
    device_filter = DeviceFilter(rules, Matcher(), FIRST_FIT, Demand())
    requests = []
    for index, made in enumerate(claims):
        plan = plan_claim(made, snapshot, rules)
        assert isinstance(plan, ClaimPlan), plan
        requests += [
            SearchRequest(0, index, [device_filter.alternative(plan, want, states) for want in wants])
            for wants in plan.requests
        ]
    number(requests)
    return requests


def given(answer: Allocation | Refusals | Undecided) -> list[str]:
    """What was given as `request=pool/device`, claims after each other; the codes of a refusal as `!code`."""
    if not isinstance(answer, Allocation):
        return [f"!{reason.code}" for reason in answer.reasons]
    return [f"{r.request}={r.pool}/{r.device}" for a in answer.results[0] for r in a.devices.results]
