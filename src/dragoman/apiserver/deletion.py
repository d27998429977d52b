"""When is a deleted object really gone? Finalizers, grace periods and the propagation that the caller asks for.

Owners' dependants are collected elsewhere (a controller); here only the finalizers are set that it works off.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from dragoman.api.meta import format_time
from dragoman.api.shape import Object
from dragoman.apiserver.request import DeleteOptions
from dragoman.apiserver.status import bad_request
from dragoman.apiserver.strategies.base import Strategy

FOREGROUND = "foregroundDeletion"
ORPHAN = "orphan"


def mark(strategy: Strategy, obj: Object, options: DeleteOptions, now: datetime) -> Object | None:
    """The object marked as being deleted, or None when it can go at once. Changes `obj`."""
    meta = obj["metadata"]
    _propagate(meta, options)
    grace_s = strategy.grace_s(obj, options)
    held = bool(meta.get("finalizers")) or not strategy.is_finalized(obj)
    if not held and not grace_s:
        return None
    before = meta.get("deletionGracePeriodSeconds")
    if "deletionTimestamp" not in meta:
        meta["deletionTimestamp"] = format_time(now + timedelta(seconds=grace_s or 0))
        meta["deletionGracePeriodSeconds"] = grace_s or 0
        if "generation" in meta:
            meta["generation"] += 1
    elif before is not None and grace_s is not None and grace_s < before:
        meta["deletionTimestamp"] = format_time(now + timedelta(seconds=grace_s))
        meta["deletionGracePeriodSeconds"] = grace_s
    return obj


def _propagate(meta: Object, options: DeleteOptions) -> None:
    if options.propagation not in ("", "Background", "Foreground", "Orphan"):
        raise bad_request(
            f"invalid propagationPolicy {options.propagation!r}: must be one of Background, Foreground, Orphan"
        )
    finalizers = list(meta.get("finalizers") or [])
    if options.propagation:
        wanted = {"Foreground": FOREGROUND, "Orphan": ORPHAN}.get(options.propagation)
        finalizers = [f for f in finalizers if f not in (FOREGROUND, ORPHAN) or f == wanted]
        if wanted and wanted not in finalizers:
            finalizers.append(wanted)
    if finalizers:
        meta["finalizers"] = finalizers
    else:
        meta.pop("finalizers", None)


def is_due(strategy: Strategy, obj: Object) -> bool:
    """Whether an object being deleted can go now that its finalizers are worked off."""
    meta = obj["metadata"]
    return (
        "deletionTimestamp" in meta
        and not meta.get("finalizers")
        and not meta.get("deletionGracePeriodSeconds")
        and strategy.is_finalized(obj)
    )
