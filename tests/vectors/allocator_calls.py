"""One call of the allocator, as JSON: how it is run here, and what of two answers has to be equal.

Keys: features (FEATURES of upstream_cases.py, upstream's names of gates), node, claims, classes, slices,
allocatedDevices, allocatedShares, consumedCapacity.
"""

from __future__ import annotations

import hashlib
import itertools
import json
from typing import Any

from dragoman.allocate.allocator import Allocation, AllocatorOptions, Ask, SearchLimits, allocate
from dragoman.allocate.refusal import Refusals, Undecided
from dragoman.api.codec import decode
from dragoman.api.core import Node
from dragoman.api.gates import gates_with
from dragoman.api.resource import DeviceClass, ResourceClaim, ResourceSlice
from dragoman.snapshot.change import Snapshot

Case = dict[str, Any]

GATES = {
    "AdminAccess": ("DRAAdminAccess",),
    "PrioritizedList": ("DRAPrioritizedList",),
    "PartitionableDevices": ("DRAPartitionableDevices",),
    "DeviceTaints": ("DRADeviceTaints", "DRADeviceTaintRules"),
    "DeviceBindingAndStatus": ("DRADeviceBindingConditions", "DRAResourceClaimDeviceStatus"),
    "ConsumableCapacity": ("DRAConsumableCapacity",),
    "FractionalCapacityRange": ("DRAFractionalCapacityRange",),
    "ListTypeAttributes": ("DRAListTypeAttributes",),
    "CompatibilityGroups": ("DRADeviceCompatibilityGroups",),
    "DerivedAttributes": ("DRADerivedAttributes",),
    "OptionalNodeOperations": ("DRAOptionalNodeOperations",),
}
SHARE = "aaaaaaaa-aaaa-aaaa-aaaa-aaaaaaaaaaaa"
CAUSES = {  # a part of upstream's text -> the code of the reason
    "admin access is requested, but the feature is disabled": "FeatureGateDisabled",
    "is currently being updated": "PoolIncomplete",
    "is currently invalid": "PoolInvalid",
    "has capacity requests, but": "FeatureGateDisabled",
    "has subrequests, but": "FeatureGateDisabled",
    "request with derived attributes, the feature is disabled": "FeatureGateDisabled",
    "invalid resource pools were encountered": "PoolInvalid",
    "CEL compile error": "SelectorInvalid",
    "CEL runtime error": "SelectorError",
    "evaluate derived attribute": "SelectorError",
    "compile derived attribute": "SelectorInvalid",
    "could not retrieve device class": "ClassNotFound",
    "missing device class name": "ClassNotSpecified",
    "exceeds the claim limit": "TooManyDevices",
    "unsupported count mode": "UnsupportedMode",
    "empty constraint": "EmptyConstraint",
    "CEL expression empty": "UnsupportedSelector",
    "because a claim constraint would not be satisfied": "AllModeConstraintUnsatisfied",
    "unsupported ResourceSlice.NodeSelector": "MultipleSelectorTerms",
}


def code_of(error: str) -> str:
    """The code that stands for an error of upstream's; raises for one that nobody has classified."""
    return next(code for text, code in CAUSES.items() if text in error)


def held_claims(case: Case) -> list[dict[str, Any]]:
    """Claims that hold what the case says is allocated. Groups are recorded as the slices publish them."""
    results: list[dict[str, Any]] = [
        {"request": "r", "driver": d["driver"], "pool": d["pool"], "device": d["device"]}
        for d in case["allocatedDevices"]
    ]
    consumed = {(c["driver"], c["pool"], c["device"]): c for c in case["consumedCapacity"]}
    for share in case["allocatedShares"]:
        amounts = consumed.pop((share["driver"], share["pool"], share["device"]), {})
        results.append({"request": "r", **{k: share[k] for k in ("driver", "pool", "device", "shareID")}})
        results[-1]["consumedCapacity"] = amounts.get("consumed", {})
    for (driver, pool, device), amounts in consumed.items():
        results.append({"request": "r", "driver": driver, "pool": pool, "device": device, "shareID": SHARE})
        results[-1]["consumedCapacity"] = amounts.get("consumed", {})
    groups = {}
    for resource_slice in case["slices"]:
        for device in resource_slice["spec"].get("devices") or ():
            found = {
                use["counterSet"]: use["compatibilityGroups"]
                for use in device.get("consumesCounters") or ()
                if use.get("compatibilityGroups")
            }
            if found:
                groups[resource_slice["spec"]["driver"], resource_slice["spec"]["pool"]["name"], device["name"]] = found
    for result in results:
        known = groups.get((result["driver"], result["pool"], result["device"]))
        if known:
            result["compatibilityGroups"] = known
    return [
        {
            "metadata": {"name": f"held-{i}", "namespace": "others"},
            "status": {"allocation": {"devices": {"results": [result]}}},
        }
        for i, result in enumerate(results)
    ]


def digest(case: Case) -> str:
    """Says whether a recorded answer is one to this very call."""
    return hashlib.sha256(json.dumps(case, sort_keys=True).encode()).hexdigest()[:12]


def gate_changes(case: Case) -> dict[str, bool]:
    """Kubernetes' gates as the case sets them."""
    return {gate: on for feature, on in case["features"].items() for gate in GATES[feature]}


def objects_of(case: Case) -> list[tuple[str, Any]]:
    """The cluster of a case, without the claims to allocate."""
    objects: list[tuple[str, Any]] = [("Node", decode(Node, case["node"]))]
    objects += [("DeviceClass", decode(DeviceClass, c)) for c in case["classes"]]
    objects += [("ResourceSlice", decode(ResourceSlice, s)) for s in case["slices"]]
    objects += [("ResourceClaim", decode(ResourceClaim, c)) for c in held_claims(case)]
    return objects


def run(case: Case, *, steps: int = 20_000) -> Allocation | Refusals | Undecided:
    """Our answer."""
    claims = tuple(decode(ResourceClaim, claim) for claim in case["claims"])
    ask = Ask(claims, case["node"]["metadata"]["name"])
    numbers = itertools.count()
    options = AllocatorOptions(gates=gates_with(gate_changes(case))[0], limits=SearchLimits(steps))
    return allocate(Snapshot.from_objects(objects_of(case)), [ask], options, share_id=lambda: f"share-{next(numbers)}")


def plain(result: dict[str, Any]) -> dict[str, Any]:
    """A result with what is not significant taken out: order of results, of terms and of values."""

    def by_text(value: Any) -> str:
        return json.dumps(value, sort_keys=True)

    entries = []
    for entry in result["devices"].get("results") or []:
        kept = {key: value for key, value in entry.items() if key != "compatibilityGroups" and value not in (None, [])}
        if "shareID" in kept:
            kept["shareID"] = SHARE
        if "tolerations" in kept:  # an absent operator is Equal
            kept["tolerations"] = [{"operator": "Equal", **toleration} for toleration in kept["tolerations"]]
        entries.append(kept)
    selector = result.get("nodeSelector")
    terms = [
        {
            kind: sorted(({**r, "values": sorted(r.get("values", []))} for r in term.get(kind) or []), key=by_text)
            for kind in ("matchFields", "matchExpressions")
        }
        for term in (selector or {}).get("nodeSelectorTerms", [])
    ]
    config = [
        {key: value for key, value in entry.items() if value not in (None, [])}
        for entry in result["devices"].get("config") or []
    ]
    return {"results": sorted(entries, key=by_text), "config": config, "terms": sorted(terms, key=by_text)}
