"""Which quota keeps objects from being created, how much is missing, what would fit, and who has the rest?

From the refusals that what-if met when controllers created what workloads and pods ask for: nobody need have failed
yet, and a Deployment is found although it has no pod. Read only; decides nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from dragoman.api.core import ResourceQuota
from dragoman.api.kinds import kind_of
from dragoman.api.meta import Ref
from dragoman.quota.evaluate import Exceeded, QuotaShortage, concerns
from dragoman.quota.recount import around
from dragoman.quota.usage import ZERO, usage
from dragoman.snapshot.change import Snapshot
from dragoman.values.quantity import Quantity
from dragoman.whatif.cluster import ClusterState, Rejection

SHOWN_MAX = 3


class QuotaUser(msgspec.Struct, frozen=True):
    """What one owner's objects, or one object, use of a quota resource. name: `Kind/name`."""

    name: str
    amount: Quantity
    objects: int


class QuotaBlock(msgspec.Struct, frozen=True):
    """An object that is not created. wanted_by: the workload or pod for which it would be, None for an object of a
    file. users: by quota resource, the largest first."""

    rejection: Rejection
    wanted_by: Ref | None
    users: tuple[tuple[str, tuple[QuotaUser, ...]], ...]


def blocks(cluster: ClusterState, namespace: str = "") -> tuple[QuotaBlock, ...]:
    """What quotas and LimitRanges refuse, by namespace and name; one entry for each owner and quota."""
    found: dict[tuple[Any, ...], QuotaBlock] = {}
    for rejection in cluster.rejected:
        if namespace and rejection.namespace != namespace:
            continue
        wanted_by = _workload(cluster, rejection.owner)
        if rejection.quota is None and (wanted_by is None or rejection.kind != "Pod"):
            continue
        quota = rejection.quota.quota if rejection.quota is not None else ""
        key = (rejection.namespace, str(wanted_by or rejection.name), rejection.kind, quota)
        shortages = rejection.quota.shortages if isinstance(rejection.quota, Exceeded) else ()
        users = tuple((s.resource, _users(cluster, rejection.namespace, quota, s.resource)) for s in shortages)
        found.setdefault(key, QuotaBlock(rejection, wanted_by, users))
    return tuple(found[key] for key in sorted(found))


def block_lines(block: QuotaBlock) -> list[str]:
    """For people: the API server's words, then numbers for each resource."""
    rejection = block.rejection
    who = f" for {_named(block.wanted_by)}" if block.wanted_by is not None else ""
    lines = [f"{rejection.kind} {rejection.namespace}/{rejection.name}{who} is not created: {rejection.message}"]
    if isinstance(rejection.quota, Exceeded):
        users = dict(block.users)
        lines += ["  " + _short_text(short, users.get(short.resource, ())) for short in rejection.quota.shortages]
    if rejection.fits_without:
        listed = ", ".join(rejection.fits_without)
        lines.append(f"  every alternative is charged: without {listed} the quota admits the claim")
    return lines


def as_json(block: QuotaBlock) -> dict[str, Any]:
    """An entry of `quota` in outputs."""
    rejection = block.rejection
    body: dict[str, Any] = {
        "kind": rejection.kind,
        "namespace": rejection.namespace,
        "name": rejection.name,
        "message": rejection.message,
    }
    if block.wanted_by is not None:
        body["wantedBy"] = {"kind": block.wanted_by.kind, "name": block.wanted_by.name}
    if rejection.quota is not None:
        body["quota"] = rejection.quota.quota
    if rejection.fits_without:
        body["fitsWithout"] = list(rejection.fits_without)
    if isinstance(rejection.quota, Exceeded):
        users = dict(block.users)
        body["shortages"] = [
            {
                "resource": short.resource,
                "requested": str(short.requested),
                "used": str(short.used),
                "hard": str(short.hard),
                "missing": str(short.missing),
                "left": str(short.left),
                "users": [
                    {"name": user.name, "amount": str(user.amount), "objects": user.objects}
                    for user in users.get(short.resource, ())
                ],
            }
            for short in rejection.quota.shortages
        ]
    return body


def _short_text(short: QuotaShortage, users: tuple[QuotaUser, ...]) -> str:
    text = (
        f"{short.resource}: {short.requested} more needed, {short.used} of {short.hard} in use: "
        f"{short.missing} missing, {short.left} would fit"
    )
    if users:
        listed = [f"{user.name} {user.amount}" for user in users[:SHOWN_MAX]]
        rest = len(users) - SHOWN_MAX
        text += f"; used by {', '.join(listed)}" + (f" and {rest} more" if rest > 0 else "")
    return text


def _named(ref: Ref | None) -> str:
    return f"{ref.kind}/{ref.name}" if ref is not None else ""


def _workload(cluster: ClusterState, owner: Ref | None) -> Ref | None:
    """The topmost owner that is shown: the Deployment of a ReplicaSet."""
    seen = owner
    while seen is not None:
        known = cluster.ownership.find(seen.kind, seen.namespace, seen.name)
        above = next((o for o in known.owners if o.controller), None) if known is not None else None
        if above is None or cluster.ownership.find(above.kind, seen.namespace, above.name) is None:
            return seen
        seen = Ref(above.kind, seen.namespace, above.name, above.uid)
    return None


def _users(cluster: ClusterState, namespace: str, quota: str, resource: str) -> tuple[QuotaUser, ...]:
    found = cluster.snapshot.quotas.get((namespace, quota))
    if found is None:
        return ()
    sums: dict[str, tuple[Quantity, int]] = {}
    for name, amount in _amounts(cluster, found, resource):
        before, count = sums.get(name, (ZERO, 0))
        sums[name] = before + amount, count + 1
    ordered = sorted(sums.items(), key=lambda entry: (-entry[1][0].nanos, entry[0]))
    return tuple(QuotaUser(name, amount, count) for name, (amount, count) in ordered)


def _amounts(cluster: ClusterState, quota: ResourceQuota, resource: str) -> Iterator[tuple[str, Quantity]]:
    namespace = quota.metadata.namespace
    for kind, value in _objects(cluster.snapshot, namespace):
        beside = around(cluster.snapshot, value)
        if not concerns(quota, kind_of(kind), value, beside):
            continue
        amount = usage(kind_of(kind), value, beside).get(resource)
        if not amount:
            continue
        owner = value.metadata.controller
        top = _workload(cluster, Ref(owner.kind, namespace, owner.name, owner.uid)) if owner is not None else None
        yield _named(top) or f"{kind}/{value.metadata.name}", amount


def _objects(snapshot: Snapshot, namespace: str) -> Iterable[tuple[str, Any]]:
    for kind, store in (("Pod", snapshot.pods), ("ResourceClaim", snapshot.claims)):
        for key, value in sorted(store.items()):
            if key[0] == namespace:
                yield kind, value
