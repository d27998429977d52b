"""How does our answer to a call differ from upstream's, and is the difference one that docs/reference/allocation.md lists?"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

from dragoman.allocate.allocator import Allocation
from dragoman.allocate.refusal import Refusals, Undecided
from dragoman.api.codec import decode, to_json
from dragoman.api.core import Node
from dragoman.api.resource import ResourceSlice
from dragoman.snapshot.pools import device_targets

from .allocator_calls import Case, code_of, plain, run
from .upstream_cases import BROKEN

STEPS = 2_000_000
SEVERE = {"SelectorError", "AllModeConstraintUnsatisfied", "MultipleSelectorTerms"}


def requests_of(case: Case) -> Iterator[dict[str, Any]]:
    """Every request and alternative."""
    for claim in case["claims"]:
        for request in claim["spec"]["devices"]["requests"]:
            yield from request.get("firstAvailable") or [request["exactly"]]


def devices_of(case: Case) -> Iterator[dict[str, Any]]:
    for resource_slice in case["slices"]:
        yield from resource_slice["spec"].get("devices") or ()


def admin(case: Case, theirs: str, ours: str) -> bool:
    """Admin access to a device with counters or capacity draws on neither here."""
    admins = [asked for asked in requests_of(case) if asked.get("adminAccess")]
    return any(asked.get("capacity") for asked in admins) or (
        bool(admins)
        and any(
            device.get("consumesCounters") or device.get("capacity") or device.get("allowMultipleAllocations")
            for device in devices_of(case)
        )
    )


def elsewhere(case: Case, theirs: str, ours: str) -> bool:
    """Upstream evaluates a selector on a device that targets another node, and it fails there."""
    node = decode(Node, case["node"])
    return theirs == "error SelectorError" and any(
        not device_targets(resource_slice, device, node)
        for resource_slice in (decode(ResourceSlice, resource_slice) for resource_slice in case["slices"])
        for device in resource_slice.spec.devices
    )


def pruned(case: Case, theirs: str, ours: str) -> bool:
    """Upstream runs into an error on a branch that cannot succeed, which is not entered here."""
    return theirs in ("error SelectorError", "error AllModeConstraintUnsatisfied") and ours == "no"


def mixed_groups(case: Case, theirs: str, ours: str) -> bool:
    """Devices with and without compatibility groups are held together, which should not be: nobody may join here."""
    held = {tuple(d[key] for key in ("driver", "pool", "device")) for d in case["allocatedDevices"]}
    held |= {tuple(d[key] for key in ("driver", "pool", "device")) for d in case["allocatedShares"]}
    kinds: dict[tuple[str, str, str], set[bool]] = {}
    for resource_slice in case["slices"]:
        driver, pool = resource_slice["spec"]["driver"], resource_slice["spec"]["pool"]["name"]
        for device in resource_slice["spec"].get("devices") or ():
            for use in device.get("consumesCounters") or ():
                if (driver, pool, device["name"]) in held:
                    kinds.setdefault((driver, pool, use["counterSet"]), set()).add(bool(use.get("compatibilityGroups")))
    return any(len(found) > 1 for found in kinds.values())


def reported_first(case: Case, theirs: str, ours: str) -> bool:
    """Several things are wrong with the claims, and another one is reported first."""
    return theirs.startswith("error ") and (ours == "pod" or (theirs, ours) == TWO_ERRORS)


TWO_ERRORS = ("error TooManyDevices", "error SelectorError")
"""An earlier claim asks for more than 32 devices of the node, a later claim's selector fails on a device there."""


def does_not_compile(case: Case, theirs: str, ours: str) -> bool:
    """A selector that does not compile refuses the pod; upstream compiles it only when it comes to a device."""
    return ours == "pod" and any(
        selector.get("cel", {}).get("expression", "") == BROKEN
        for asked in requests_of(case)
        for selector in asked.get("selectors", ())
    )


def all_in_use(case: Case, theirs: str, ours: str) -> bool:
    """A request for all with capacity leaves out a device that has too little left; upstream's newest refuses it, and
    goes on to the next alternative where there is one.
    """
    every = [asked for asked in requests_of(case) if asked.get("allocationMode") == "All"]
    if not every or not case["consumedCapacity"]:
        return False
    if theirs == ours == "fits":
        return any("name" in asked for asked in every)  # only alternatives have names here
    return theirs in ("no", "error TooManyDevices") and ours in ("fits", "no")


def exclusive_with_shares(case: Case, theirs: str, ours: str) -> bool:
    """A device that no longer allows several allocations still has a share: it is in use here."""
    shared = {(d["driver"], d["pool"], d["device"]) for d in case["allocatedShares"]}
    return theirs == "fits" and any(
        (one["spec"]["driver"], one["spec"]["pool"]["name"], device["name"]) in shared
        and not device.get("allowMultipleAllocations")
        for one in case["slices"]
        for device in one["spec"].get("devices") or ()
    )


KNOWN: dict[str, Callable[[Case, str, str], bool]] = {
    "admin access draws on nothing": admin,
    "an error on a device of another node": elsewhere,
    "an error on a branch that cannot succeed": pruned,
    "held devices with and without groups": mixed_groups,
    "of several errors in claims another first": reported_first,
    "a selector that does not compile": does_not_compile,
    "an exclusive device that still has shares": exclusive_with_shares,
    "a request for all leaves out devices with too little left": all_in_use,
}


def their_outcome(case: Case, answer: dict[str, Any]) -> str:
    """fits, no, error CODE, or late."""
    assert not answer["error"], (case["name"], answer["error"])
    (node,) = answer["nodes"]
    if node["timedOut"]:
        return "late"
    if node["error"]:
        return f"error {code_of(node['error'])}"
    return "fits" if node["results"] is not None else "no"


def our_outcome(answer: Allocation | Refusals | Undecided, theirs: str) -> str:
    """fits, no, pod (something in the claims), error CODE (upstream's where we name it, too), or gave up."""
    if isinstance(answer, Allocation):
        return "fits"
    if isinstance(answer, Undecided):
        return "gave up"
    codes = [reason.code for reason in answer.reasons]
    if theirs.removeprefix("error ") in codes:
        return theirs
    if answer.pod_wide:
        return "pod"
    # A selector that fails on some device may be told with a no, which stays a no.
    halted = len(codes) == 1 and codes[0] in SEVERE
    return f"error {codes[0]}" if halted and theirs != "no" else "no"


def same_devices(ours: Allocation, theirs: dict[str, Any]) -> bool:
    mine = [plain(to_json(result)) for result in ours.results[0]]
    return mine == [plain(result) for result in theirs["nodes"][0]["results"]]


def difference(case: Case, theirs: dict[str, Any], counts: Counter[str]) -> str:
    """What differs, "" if nothing does or nothing that is not known."""
    outcome = their_outcome(case, theirs)
    if outcome == "late":
        counts["late"] += 1
        return ""
    answer = run(case, steps=STEPS)
    ours = our_outcome(answer, outcome)
    reported = f"{case['name']}: upstream {outcome}, here {ours}"
    if ours == outcome:
        if not isinstance(answer, Allocation) or same_devices(answer, theirs):
            counts[outcome.split()[0]] += 1
            return ""
        reported = f"{case['name']}: other devices"
    for name, is_known in KNOWN.items():
        if is_known(case, outcome, ours):
            counts[name] += 1
            return ""
    return reported
