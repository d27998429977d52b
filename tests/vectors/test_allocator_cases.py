"""Upstream's allocator cases under first-fit: the same devices, selectors and configuration, or the same cause.

Each file holds one call on one node; where the folder is absent the test is skipped by name. Differences that
docs/reference/allocation.md lists are asserted the other way round in test_allocator.py.
"""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import pytest

from dragoman.allocate.allocator import Allocation, Ask, Options, allocate
from dragoman.allocate.refusal import Refusals
from dragoman.api.codec import decode, to_json
from dragoman.api.core import Node
from dragoman.api.gates import gates_with
from dragoman.api.resource import DeviceClass, ResourceClaim, ResourceSlice
from dragoman.snapshot.change import Snapshot

FOLDER = Path(__file__).parents[3] / "shared" / "cases" / "allocator"
GATES = {
    "AdminAccess": ("DRAAdminAccess",),
    "PrioritizedList": ("DRAPrioritizedList",),
    "PartitionableDevices": ("DRAPartitionableDevices",),
    "DeviceTaints": ("DRADeviceTaints", "DRADeviceTaintRules"),
    "DeviceBindingAndStatus": ("DRADeviceBindingConditions", "DRAResourceClaimDeviceStatus"),
    "ConsumableCapacity": ("DRAConsumableCapacity",),
    "ListTypeAttributes": ("DRAListTypeAttributes",),
}
SHARE = "aaaaaaaa-aaaa-aaaa-aaaa-aaaaaaaaaaaa"
CAUSES = {  # a part of upstream's text -> the code that must be the first reason
    "admin access is requested, but the feature is disabled": "FeatureOff",
    "is currently being updated": "PoolIncomplete",
    "has capacity requests, but": "FeatureOff",
    "has subrequests, but": "FeatureOff",
    "invalid resource pools were encountered": "PoolInvalid",
    "CEL compile error": "SelectorInvalid",
    "CEL runtime error": "SelectorError",
    "could not retrieve device class": "MissingClass",
    "exceeds the claim limit": "TooManyDevices",
    "unsupported count mode": "UnsupportedMode",
    "empty constraint": "EmptyConstraint",
    "CEL expression empty": "UnsupportedSelector",
    "because a claim constraint would not be satisfied": "AllConstraint",
}
CASES = sorted(FOLDER.glob("*.json"))


def held_claims(case: dict[str, Any]) -> list[dict[str, Any]]:
    """Claims that hold what the case says is allocated."""
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
    return [
        {
            "metadata": {"name": f"held-{i}", "namespace": "others"},
            "status": {"allocation": {"devices": {"results": [result]}}},
        }
        for i, result in enumerate(results)
    ]


def run(case: dict[str, Any]) -> Allocation | Refusals:
    changes = {gate: on for feature, on in case["features"].items() for gate in GATES[feature]}
    objects: list[tuple[str, Any]] = [("Node", decode(Node, case["node"]))]
    objects += [("DeviceClass", decode(DeviceClass, c)) for c in case["classes"]]
    objects += [("ResourceSlice", decode(ResourceSlice, s)) for s in case["slices"]]
    objects += [("ResourceClaim", decode(ResourceClaim, c)) for c in held_claims(case)]
    claims = tuple(decode(ResourceClaim, claim) for claim in case["claims"])
    ask = Ask(claims, case["node"]["metadata"]["name"])
    numbers = itertools.count()
    options = Options(gates=gates_with(changes)[0])
    return allocate(Snapshot.from_objects(objects), [ask], options, share_id=lambda: f"share-{next(numbers)}")


def plain(result: dict[str, Any]) -> dict[str, Any]:
    """A result with what is not significant taken out: order of results, of terms and of values."""

    def by_text(value: Any) -> str:
        return json.dumps(value, sort_keys=True)

    for entry in result["devices"].get("results", []):
        if "shareID" in entry:
            entry["shareID"] = SHARE
    selector = result.get("nodeSelector")
    terms = [
        {
            kind: sorted(({**r, "values": sorted(r.get("values", []))} for r in term.get(kind, [])), key=by_text)
            for kind in ("matchFields", "matchExpressions")
        }
        for term in (selector or {}).get("nodeSelectorTerms", [])
    ]
    return {
        "results": sorted(result["devices"].get("results", []), key=by_text),
        "config": result["devices"].get("config", []),
        "terms": sorted(terms, key=by_text),
    }


@pytest.mark.skipif(not CASES, reason="the folder ../shared/cases/allocator is not there")
@pytest.mark.parametrize("path", CASES, ids=lambda path: path.stem)
def test_case(path: Path) -> None:
    case = json.loads(path.read_text())
    answer = run(case)
    if case["error"]:
        assert isinstance(answer, Refusals)
        code = next(code for text, code in CAUSES.items() if text in case["error"])
        assert code in [reason.code for reason in answer.reasons]
        return
    if not case["results"]:
        if case["claims"]:
            assert isinstance(answer, Refusals), answer
            assert not answer.gave_up
        else:
            assert answer == Allocation(results=((),), steps=answer.steps)
        return
    assert isinstance(answer, Allocation), answer
    got = [plain(to_json(result)) for result in answer.results[0]]
    assert got == [plain(result) for result in case["results"]]
