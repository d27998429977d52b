"""What surrounds the objects of a snapshot for `quota.usage`, and what a namespace's quotas have in use."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from dragoman.api.core import ResourceQuota
from dragoman.api.kinds import Kind
from dragoman.api.resource import ResourceClaim
from dragoman.quota.evaluate import concerns, total
from dragoman.quota.usage import Amounts, UsageContext, is_for_extended, usage
from dragoman.snapshot.change import Snapshot, keys_of


def around(snapshot: Snapshot, value: Any, *, extended: bool = True) -> UsageContext:
    """What the usage of one object of the snapshot depends on beside it."""
    if not isinstance(value, ResourceClaim) or not is_for_extended(value):
        return UsageContext(snapshot.classes, extended)
    owner = value.metadata.controller
    if owner is None:
        return UsageContext(snapshot.classes, extended)
    pod = snapshot.pods.get((value.metadata.namespace, owner.name))
    claims = tuple(snapshot.claims[key] for key in keys_of(snapshot.claims_by_owner, owner.uid))
    return UsageContext(snapshot.classes, extended, {owner.name: pod} if pod is not None else {}, claims)


def recount(
    snapshot: Snapshot, quota: ResourceQuota, content: Iterable[tuple[Kind, Any]], *, extended: bool = True
) -> Amounts:
    """What a quota has in use. content: the objects of its namespace as `usage` takes them."""
    found: list[Amounts] = []
    for kind, value in content:
        beside = around(snapshot, value, extended=extended)
        if concerns(quota, kind, value, beside):
            found.append(usage(kind, value, beside))
    return total(quota, found)
