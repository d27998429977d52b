"""How are the pools of a driver doing? Answers ResourcePoolStatusRequests (KEP-5677) from slices, claims and taints.

A request is answered once; its status never changes after that. Pools that are still being published are waited for, a
few times. Answers go after an hour, requests that nobody could answer after a day.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from dragoman.api.meta import Condition, ObjectMeta, Value, parse_time
from dragoman.api.resource import Device, DeviceCounterConsumption, ResourceSlice
from dragoman.effects import Delete, Patch
from dragoman.reconcile.step import NOTHING, ReconcileInput, ReconcileResult, ref_of
from dragoman.reconcile.workloads.pods import time_text
from dragoman.snapshot.change import Change, Gone, Snapshot
from dragoman.snapshot.taints import rules_of_pool, taints_of
from dragoman.values.quantity import Quantity

KIND = "ResourcePoolStatusRequest"
TRIES = 5
RETRY_S = 2.0
ANSWERED_S = 3600.0
PENDING_S = 24 * 3600.0
ITEMS_MAX = 32
ERROR_BYTES = 256
LIMIT = 100
_UNAVAILABLE = ("NoSchedule", "NoExecute")
_ZERO = Quantity(0)


class PoolRequestSpec(Value, frozen=True):
    """What is asked."""

    driver: str = ""
    pool_name: str | None = None
    limit: int | None = None
    default_partition_type_attribute: str | None = None


class PoolRequestStatus(Value, frozen=True):
    """What of an answer tells how old it is."""

    conditions: tuple[Condition, ...] = ()


class PoolRequest(Value, frozen=True):
    """A ResourcePoolStatusRequest."""

    metadata: ObjectMeta = ObjectMeta()
    spec: PoolRequestSpec = PoolRequestSpec()
    status: PoolRequestStatus | None = None


def keys(change: Change, before: ReconcileInput, after: ReconcileInput) -> list[str]:
    """Names of the requests to look at after a change."""
    if change.kind != KIND:
        return []
    return [change.name if isinstance(change, Gone) else change.object.metadata.name]


def sync(world: ReconcileInput, name: str) -> ReconcileResult:
    """One step of a request."""
    request: PoolRequest | None = world.other(KIND, "", name)
    if request is None or request.metadata.deletion_timestamp:
        return NOTHING
    ref = ref_of(KIND, request.metadata)
    left_s = _left_s(request, world.now)
    if left_s <= 0:
        return ReconcileResult((Delete(ref),))
    if request.status is not None:
        return ReconcileResult(again_s=left_s)
    pools, incomplete = _pools(world.snapshot, request.spec)
    tried = f"{KIND}/{request.metadata.uid}"
    if incomplete and world.tally.get(tried, 0) < TRIES:
        return ReconcileResult(again_s=RETRY_S, tally=(tried,))
    status = _status(pools, request.spec.limit or LIMIT, world.now)
    return ReconcileResult((Patch(ref, {"status": status}, subresource="status"),), again_s=ANSWERED_S)


def _left_s(request: PoolRequest, now: float) -> float:
    """How long the request still stays."""
    created = request.metadata.creation_timestamp or ""
    if request.status is None:
        return _since(created, now, PENDING_S)
    ended = next((c.last_transition_time for c in request.status.conditions if c.type in ("Complete", "Failed")), None)
    return _since(ended or created, now, ANSWERED_S)


def _since(stamp: str, now: float, stays_s: float) -> float:
    try:
        return parse_time(stamp).timestamp() + stays_s - now
    except ValueError:
        return stays_s


def _status(pools: list[dict[str, Any]], limit: int, now: float) -> dict[str, Any]:
    shown = pools[:limit]
    incomplete = sum("validationError" in pool for pool in shown)
    message = f"Calculated status for {len(shown)} pools" + (f" ({incomplete} incomplete)" if incomplete else "")
    condition = {
        "type": "Complete",
        "status": "True",
        "reason": "CalculationComplete",
        "message": message,
        "lastTransitionTime": time_text(now),
    }
    return {"poolCount": len(pools), "pools": shown, "conditions": [condition]}


# ---- pools


class _Pool(msgspec.Struct):
    """The slices of a pool at its newest generation, and what claims hold of it."""

    driver: str
    name: str
    slices: list[ResourceSlice]
    in_use: set[str]
    consumed: dict[str, Quantity]

    @property
    def devices(self) -> Iterator[tuple[Device, ResourceSlice]]:
        return ((device, found) for found in self.slices for device in found.spec.devices)


def _pools(snapshot: Snapshot, spec: PoolRequestSpec) -> tuple[list[dict[str, Any]], bool]:
    """The pools asked for, sorted by name, and whether one of them is still being published."""
    found: dict[str, list[ResourceSlice]] = {}
    for resource_slice in snapshot.slices.values():
        name = resource_slice.spec.pool.name
        if resource_slice.spec.driver == spec.driver and spec.pool_name in (None, "", name):
            found.setdefault(name, []).append(resource_slice)
    in_use, consumed = _held(snapshot, spec.driver)
    answers = []
    incomplete = False
    for name, slices in sorted(found.items()):
        newest = max(s.spec.pool.generation for s in slices)
        current = sorted((s for s in slices if s.spec.pool.generation == newest), key=lambda s: s.metadata.name)
        pool = _Pool(spec.driver, name, current, in_use.get(name, set()), consumed.get(name, {}))
        answer, fault = _answer(snapshot, pool, newest, spec.default_partition_type_attribute)
        incomplete = incomplete or fault
        answers.append(answer)
    return answers, incomplete


def _held(snapshot: Snapshot, driver: str) -> tuple[dict[str, set[str]], dict[str, dict[str, Quantity]]]:
    """By pool: devices that a claim holds, and capacity consumed; admin access holds nothing."""
    in_use: dict[str, set[str]] = {}
    consumed: dict[str, dict[str, Quantity]] = {}
    for claim in snapshot.claims.values():
        allocation = claim.status.allocation
        for result in allocation.devices.results if allocation is not None else ():
            if result.admin_access or result.driver != driver:
                continue
            in_use.setdefault(result.pool, set()).add(result.device)
            amounts = consumed.setdefault(result.pool, {})
            for name, amount in (result.consumed_capacity or {}).items():
                amounts[name] = amounts.get(name, Quantity(0, amount.format)) + amount
    return in_use, consumed


def _answer(snapshot: Snapshot, pool: _Pool, generation: int, attribute: str | None) -> tuple[dict[str, Any], bool]:
    answer: dict[str, Any] = {"driver": pool.driver, "poolName": pool.name, "generation": generation}
    nodes = {s.spec.node_name for s in pool.slices}
    node = next(iter(nodes))
    if len(nodes) == 1 and node:
        answer["nodeName"] = node
    have, expected = len(pool.slices), pool.slices[0].spec.pool.resource_slice_count
    if have < expected:
        slices = f"observed {have}/{expected} slices at generation {generation}"
        text = f"pool {pool.driver}/{pool.name} is incomplete: {slices}"
        return {**answer, "validationError": _cut(f"PoolIncomplete: {text}")}, True
    rules = rules_of_pool(snapshot, pool.driver, pool.name)
    total = unavailable = 0
    for device, _ in pool.devices:
        total += 1
        tainted = any(taint.effect in _UNAVAILABLE for _, taint in taints_of(device, pool.driver, pool.name, rules))
        unavailable += tainted and device.name not in pool.in_use
    answer |= {
        "resourceSliceCount": have,
        "totalDevices": total,
        "allocatedDevices": len(pool.in_use),
        "unavailableDevices": unavailable,
        "availableDevices": max(0, total - len(pool.in_use) - unavailable),
    }
    summary, fault = _partitions(pool, attribute)
    shareable, second = _shareable(pool)
    fault = fault or second
    if fault:
        answer["validationError"] = _cut(fault)
    elif summary:
        answer["partitionSummary"] = summary
    if shareable and not second:
        answer["shareableSummary"] = shareable
    return answer, False


def _cut(text: str) -> str:
    return text.encode()[:ERROR_BYTES].decode(errors="ignore")


# ---- partitions (KEP-4815): how many more of each type fit into the counters


def _partitions(pool: _Pool, attribute: str | None) -> tuple[list[dict[str, Any]], str]:
    declared = any(s.spec.partition_type_attribute for s in pool.slices)
    grouped = [
        (device, s.spec.partition_type_attribute or ("" if declared else attribute or "")) for device, s in pool.devices
    ]
    if not any(by for _, by in grouped):
        return [], ""
    where = f"pool {pool.driver}/{pool.name}"
    if not any(s.spec.shared_counters for s in pool.slices):
        return [], f"PartitionTypeMissing: {where} declares partitionTypeAttribute but publishes no sharedCounters"
    groups: dict[tuple[str, str], list[Device]] = {}
    for device, by in grouped:
        if not device.consumes_counters or not by:
            continue
        type_ = _text(device, by, pool.driver)
        if type_ is None:
            text = f'device "{device.name}" in {where} does not carry partition type attribute "{by}"'
            return [], f"PartitionTypeMissing: {text}"
        group = groups.setdefault((by, type_), [])
        if group and _cost(group[0]) != _cost(device):
            text = f'devices of partition type "{type_}" in {where} consume different counters'
            return [], f"PartitionCostMismatch: {text}"
        group.append(device)
    if len(groups) > ITEMS_MAX:
        text = f"{where} has {len(groups)} partition types, exceeding the maximum of {ITEMS_MAX}"
        return [], f"PartitionSummaryOverCap: {text}"
    free = _free_counters(pool)
    return [
        {
            "attribute": by,
            "type": type_,
            "total": len(devices),
            "allocatable": _fitting([d for d in devices if d.name not in pool.in_use], free),
        }
        for (by, type_), devices in sorted(groups.items())
    ], ""


def _text(device: Device, name: str, driver: str) -> str | None:
    """A text attribute by its full name; one of the driver's own domain may be published without it."""
    found = device.attributes.get(name) or device.attributes.get(name.removeprefix(f"{driver}/"))
    return found.string if found is not None else None


def _cost(device: Device) -> list[tuple[str, str, int]]:
    return sorted(_amounts(device.consumes_counters))


def _amounts(consumed: Iterable[DeviceCounterConsumption]) -> Iterator[tuple[str, str, int]]:
    for entry in consumed:
        for name, counter in entry.counters.items():
            yield entry.counter_set, name, (counter.value or _ZERO).nanos


def _free_counters(pool: _Pool) -> dict[tuple[str, str], int]:
    """Counters less what devices in use draw, each once."""
    free = {
        (counters.name, name): (counter.value or _ZERO).nanos
        for s in pool.slices
        for counters in s.spec.shared_counters
        for name, counter in counters.counters.items()
    }
    for device, _ in pool.devices:
        if device.name in pool.in_use:
            _draw(device, free)
    return free


def _draw(device: Device, free: dict[tuple[str, str], int]) -> None:
    for counters, name, nanos in _amounts(device.consumes_counters):
        if (counters, name) in free:
            free[counters, name] -= nanos


def _fitting(devices: list[Device], free: dict[tuple[str, str], int]) -> int:
    """How many of these devices fit at once, one after the other."""
    left = dict(free)
    count = 0
    for device in devices:
        if all(left.get((counters, name), -1) >= n for counters, name, n in _amounts(device.consumes_counters)):
            _draw(device, left)
            count += 1
    return count


# ---- devices for several consumers (KEP-5075)


def _shareable(pool: _Pool) -> tuple[dict[str, Any] | None, str]:
    devices = [device for device, _ in pool.devices if device.allow_multiple_allocations]
    if not devices:
        return None, ""
    totals: dict[str, Quantity] = {}
    for device in devices:
        for name, published in device.capacity.items():
            amount = published.value or _ZERO
            totals[name] = totals.get(name, Quantity(0, amount.format)) + amount
    if len(totals) > ITEMS_MAX:
        text = f"has {len(totals)} shareable capacity keys, exceeding the maximum of {ITEMS_MAX}"
        return None, f"ShareableSummaryOverCap: pool {pool.driver}/{pool.name} {text}"
    used = sum(device.name in pool.in_use for device in devices)
    capacity = []
    for name, total in sorted(totals.items()):
        consumed = pool.consumed.get(name, Quantity(0, total.format))
        left = total - consumed
        available = left if left.sign() >= 0 else Quantity(0, total.format)
        amounts = {"total": str(total), "consumed": str(consumed), "available": str(available)}
        capacity.append({"name": name, **amounts})
    found: dict[str, Any] = {"fullyAvailableDevices": len(devices) - used, "partiallyAvailableDevices": used}
    return {**found, **({"capacity": capacity} if capacity else {})}, ""
