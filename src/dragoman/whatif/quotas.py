"""What do quotas of the cluster make of a write? The part of ResourceQuota admission and accounting in what-if.

A file may show a part of a namespace, so what is used starts from the quota's status where it has one, and follows
every change from there. Never decides what to write.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from dragoman.api.core import LimitRange, ResourceQuota
from dragoman.api.kinds import kind_of
from dragoman.api.resource import ResourceClaim
from dragoman.quota.evaluate import Exceeded, QuotaRefusal, concerns, refused
from dragoman.quota.recount import around, recount
from dragoman.quota.usage import DEVICES_SUFFIX, ZERO, Amounts, usage
from dragoman.snapshot.change import Change, Gone, Put, Snapshot

_COUNTED = ("Pod", "ResourceClaim")


def quotas_of(snapshot: Snapshot, namespace: str) -> list[ResourceQuota]:
    """The quotas of a namespace, sorted by name."""
    if not snapshot.quotas:
        return []
    return [quota for key, quota in sorted(snapshot.quotas.items()) if key[0] == namespace]


def limit_ranges_of(snapshot: Snapshot, namespace: str) -> list[LimitRange]:
    """The LimitRanges of a namespace, sorted by name."""
    if not snapshot.limit_ranges:
        return []
    return [found for key, found in sorted(snapshot.limit_ranges.items()) if key[0] == namespace]


def refusal(snapshot: Snapshot, kind: str, value: Any) -> QuotaRefusal | None:
    """The first quota's no to a new object, None if all admit it."""
    for quota in quotas_of(snapshot, value.metadata.namespace):
        beside = around(snapshot, value)
        wanted = usage(kind_of(kind), value, beside)
        why = refused(quota, quota.status.used, kind_of(kind), value, wanted, beside)
        if why is not None:
            return why
    return None


def dispensable(snapshot: Snapshot, claim: ResourceClaim, why: Exceeded) -> tuple[str, ...]:
    """Alternatives of firstAvailable without which every quota admits the claim; () where that does not help.

    A claim is charged for every class that an alternative names, though only one of them will be used.
    """
    short = {name.removesuffix(DEVICES_SUFFIX) for name in (s.resource for s in why.shortages)}
    dropped: list[str] = []
    requests = []
    for request in claim.spec.devices.requests:
        kept = tuple(sub for sub in request.first_available if sub.device_class_name not in short)
        if kept and len(kept) < len(request.first_available):
            dropped += [f"{request.name}/{sub.name}" for sub in request.first_available if sub not in kept]
            request = msgspec.structs.replace(request, first_available=kept)
        requests.append(request)
    devices = msgspec.structs.replace(claim.spec.devices, requests=tuple(requests))
    changed = msgspec.structs.replace(claim, spec=msgspec.structs.replace(claim.spec, devices=devices))
    return tuple(dropped) if dropped and refusal(snapshot, "ResourceClaim", changed) is None else ()


def counted(snapshot: Snapshot) -> Iterator[Change]:
    """Quotas of which the status does not say what is used, or less than what is shown: recounted."""
    for (namespace, _), quota in sorted(snapshot.quotas.items()):
        content = [
            (kind_of(kind), value)
            for kind, store in (("Pod", snapshot.pods), ("ResourceClaim", snapshot.claims))
            for key, value in store.items()
            if key[0] == namespace
        ]
        shown = recount(snapshot, quota, content)
        used = {n: max(amount, quota.status.used.get(n, ZERO)) for n, amount in shown.items()}
        if used != quota.status.used:
            yield Put("ResourceQuota", _with_used(quota, used))


def charged(before: Snapshot, after: Snapshot, changes: Iterable[Change]) -> Iterator[Change]:
    """The quotas after these changes, which lead from one snapshot to the other."""
    keys: dict[tuple[str, str, str], None] = {}
    for change in changes:
        if change.kind in _COUNTED or change.kind.endswith("Set") or change.kind in ("Job", "Deployment"):
            meta = change if isinstance(change, Gone) else change.object.metadata
            keys[change.kind, meta.namespace, meta.name] = None
    spaces = sorted({namespace for _, namespace, _ in keys})
    for namespace in spaces:
        for quota in quotas_of(after, namespace):
            used = dict(quota.status.used)
            for key in keys:
                if key[1] == namespace:
                    for snapshot, sign in ((before, -1), (after, 1)):
                        for name, amount in _charge(snapshot, quota, key).items():
                            used[name] = used.get(name, ZERO) + amount * sign
            if used != quota.status.used:
                yield Put("ResourceQuota", _with_used(quota, used))


def _charge(snapshot: Snapshot, quota: ResourceQuota, key: tuple[str, str, str]) -> Amounts:
    kind = kind_of(key[0])
    if key[0] == "Pod":
        value: Any = snapshot.pods.get(key[1:])
    elif key[0] == "ResourceClaim":
        value = snapshot.claims.get(key[1:])
    else:
        value = snapshot.workloads.get(key)
    if value is None:
        return {}
    beside = around(snapshot, value)
    if not concerns(quota, kind, value, beside):
        return {}
    return {name: amount for name, amount in usage(kind, value, beside).items() if name in quota.spec.hard}


def _with_used(quota: ResourceQuota, used: Amounts) -> ResourceQuota:
    return msgspec.structs.replace(quota, status=msgspec.structs.replace(quota.status, used=used))
