"""How large should each ReplicaSet of a rollout be, and how far is it? The arithmetic of Deployments.

Source: the API's DeploymentStrategy and DeploymentStatus. Never makes effects.
"""

from __future__ import annotations

from typing import Any

from dragoman.api.core import Workload
from dragoman.reconcile.step import ReconcileInput, difference
from dragoman.reconcile.workloads.pods import (
    condition,
    seconds_of,
    time_text,
    with_condition,
    without_condition,
)

REVISION = "deployment.kubernetes.io/revision"
REVISIONS = "deployment.kubernetes.io/revision-history"
DESIRED = "deployment.kubernetes.io/desired-replicas"
MAXIMUM = "deployment.kubernetes.io/max-replicas"
FOR_EVER_S = 2**31 - 1


def replicas(rs: Workload) -> int:
    """spec.replicas."""
    return 1 if rs.spec.replicas is None else rs.spec.replicas


def available(rs: Workload) -> int:
    """status.availableReplicas."""
    return int((rs.status or {}).get("availableReplicas") or 0)


def by_age(rs: Workload) -> tuple[float, str]:
    """Sort key: oldest first."""
    return seconds_of(rs.metadata.creation_timestamp), rs.metadata.name


def revision(rs: Workload) -> int:
    """The revision a ReplicaSet is marked with, 0 if none."""
    text = rs.metadata.annotations.get(REVISION, "")
    return int(text) if text.isdecimal() else 0


def last_revision(old: list[Workload]) -> int:
    """The highest revision."""
    return max((revision(rs) for rs in old), default=0)


def resolved(value: Any, total: int, *, up: bool) -> int:
    """A number, or a percentage of the total, rounded up or down; nonsense counts as 0."""
    if isinstance(value, int):
        return value
    text = str(value or "").removesuffix("%")
    if not text.isdecimal():
        return 0
    return (int(text) * total + 99) // 100 if up else int(text) * total // 100


class RolloutSizes:
    """The numbers of one Deployment: wanted, surge, unavailable, and its ReplicaSets (old ones oldest first)."""

    def __init__(self, deployment: Workload, new: Workload | None, old: list[Workload]) -> None:
        self.new = new
        self.old = old
        self.all = [*old, new] if new is not None else list(old)
        self.wanted = 1 if deployment.spec.replicas is None else deployment.spec.replicas
        strategy = deployment.spec.strategy or {}
        self.rolling = strategy.get("type", "RollingUpdate") == "RollingUpdate"
        rolling = strategy.get("rollingUpdate") or {}
        surge = resolved(rolling.get("maxSurge", "25%"), self.wanted, up=True) if self.rolling else 0
        spare = resolved(rolling.get("maxUnavailable", "25%"), self.wanted, up=False) if self.rolling else 0
        if self.rolling and not surge and not spare:
            spare = 1  # otherwise nothing could ever move
        self.surge = surge
        self.unavailable = min(spare, self.wanted)
        self.status_replicas = int((deployment.status or {}).get("replicas") or 0)

    @property
    def total(self) -> int:
        """Pods asked for by all ReplicaSets."""
        return sum(replicas(rs) for rs in self.all)

    @property
    def marks(self) -> dict[str, str]:
        """The annotations that say what a ReplicaSet's size was decided for."""
        return {DESIRED: str(self.wanted), MAXIMUM: str(self.wanted + self.surge)}


def new_size(sizes: RolloutSizes) -> int:
    """How large the current ReplicaSet may be now."""
    have = replicas(sizes.new) if sizes.new is not None else 0
    if not sizes.rolling:
        return sizes.wanted
    surge_left = sizes.wanted + sizes.surge - sizes.total
    return have if surge_left <= 0 else have + min(surge_left, sizes.wanted - have)


def rolled_up(sizes: RolloutSizes) -> dict[str, int]:
    """The current ReplicaSet's next size, if it changes."""
    assert sizes.new is not None
    have = replicas(sizes.new)
    target = sizes.wanted if have > sizes.wanted else new_size(sizes) if have < sizes.wanted else have
    return {sizes.new.metadata.name: target} if target != have else {}


def rolled_down(sizes: RolloutSizes) -> dict[str, int]:
    """The old ReplicaSets' next sizes: unhealthy pods go first, then as many as stay available without."""
    assert sizes.new is not None
    if not any(replicas(rs) for rs in sizes.old):
        return {}
    least = sizes.wanted - sizes.unavailable
    new_missing = replicas(sizes.new) - available(sizes.new)
    spare = sizes.total - least - new_missing
    if spare <= 0:
        return {}
    left = {rs.metadata.name: replicas(rs) for rs in sizes.old}
    for rs in sizes.old:
        sick = min(spare, max(0, left[rs.metadata.name] - available(rs)))
        left[rs.metadata.name] -= sick
        spare -= sick
    healthy = sum(available(rs) for rs in sizes.all) - least
    for rs in sizes.old:
        less = min(left[rs.metadata.name], max(0, healthy))
        left[rs.metadata.name] -= less
        healthy -= less
    return {rs.metadata.name: left[rs.metadata.name] for rs in sizes.old if left[rs.metadata.name] != replicas(rs)}


# ---- scaling while a rollout is under way


def is_rescaled(sizes: RolloutSizes) -> bool:
    """Whether spec.replicas changed since the ReplicaSets' sizes were decided."""
    return any(
        rs.metadata.annotations.get(DESIRED, sizes.marks[DESIRED]) != sizes.marks[DESIRED]
        for rs in sizes.all
        if replicas(rs)
    )


def proportional(sizes: RolloutSizes) -> dict[str, int]:
    """Sizes after a change of spec.replicas: spread over the ReplicaSets in proportion to what they have."""
    active = [rs for rs in sizes.all if replicas(rs)]
    if len(active) <= 1:
        only = active[0] if active else sizes.new
        return {only.metadata.name: sizes.wanted} if only is not None and replicas(only) != sizes.wanted else {}
    new = sizes.new
    if new is not None and replicas(new) == available(new) == sizes.wanted and not is_rescaled(sizes):
        return {rs.metadata.name: 0 for rs in sizes.old if replicas(rs)}
    if not sizes.rolling:
        return {}
    allowed = sizes.wanted + sizes.surge if sizes.wanted else 0
    change = allowed - sizes.total
    # The largest first; of equal ones the newer gains and the older loses.
    order = sorted(active, key=lambda rs: by_age(rs)[0], reverse=change > 0)
    order = sorted(order, key=lambda rs: -replicas(rs))
    size: dict[str, int] = {}
    done = 0
    for rs in order:
        part = _share(rs, sizes)
        part = min(part, change - done) if change > 0 else max(part, change - done)
        size[rs.metadata.name] = max(0, replicas(rs) + part)
        done += part
    first = order[0].metadata.name
    size[first] = max(0, size[first] + change - done)
    return {rs.metadata.name: size[rs.metadata.name] for rs in order if size[rs.metadata.name] != replicas(rs)}


def _share(rs: Workload, sizes: RolloutSizes) -> int:
    if not sizes.wanted:
        return -replicas(rs)
    text = rs.metadata.annotations.get(MAXIMUM, "")
    whole = int(text) if text.isdecimal() and int(text) else sizes.status_replicas
    if not whole:
        return 0
    grown = replicas(rs) * (sizes.wanted + sizes.surge)
    return (2 * grown + whole) // (2 * whole) - replicas(rs)  # rounded to the nearest


# ---- status


def is_complete(deployment: Workload, status: dict[str, Any]) -> bool:
    """Everything is updated, available, and nothing old is left."""
    wanted = 1 if deployment.spec.replicas is None else deployment.spec.replicas
    counts = {int(status.get(field) or 0) for field in ("updatedReplicas", "replicas", "availableReplicas")}
    return counts == {wanted} and int(status.get("observedGeneration") or 0) >= deployment.metadata.generation


def status(
    world: ReconcileInput, deployment: Workload, new: Workload | None, old: list[Workload], *, created: str
) -> tuple[dict[str, Any], float | None]:
    """The merge patch of the status ({} if it is right), and in how many seconds the deadline may pass."""
    before = deployment.status or {}
    everything = [*old, new] if new is not None else old
    sums = {field: _sum(everything, field) for field in ("replicas", "readyReplicas", "availableReplicas")}
    now: dict[str, Any] = {
        **sums,
        "updatedReplicas": _sum([new], "replicas") if new is not None else 0,
        "unavailableReplicas": max(0, sum(replicas(rs) for rs in everything) - sums["availableReplicas"]),
        "observedGeneration": deployment.metadata.generation,
    }
    conditions = list(before.get("conditions") or [])
    conditions = _availability(world, deployment, conditions, now)
    conditions, again_s = _progress(world, deployment, new, conditions, now, created)
    failed = next((c for rs in everything if (c := _failure(rs)) is not None), None)
    if failed is None:
        conditions = without_condition(conditions, "ReplicaFailure")
    else:
        reason, message = failed.get("reason", ""), failed.get("message", "")
        conditions = _set(conditions, world.now, "ReplicaFailure", "True", reason, message)
    return difference(before, {**now, "conditions": conditions}), again_s


def _sum(sets: list[Workload], field: str) -> int:
    return sum(int((rs.status or {}).get(field) or 0) for rs in sets)


def _failure(rs: Workload) -> dict[str, Any] | None:
    found = condition((rs.status or {}).get("conditions") or [], "ReplicaFailure")
    return found if found is not None and found.get("status") == "True" else None


def _set(
    conditions: list[dict[str, Any]], now: float, type_: str, status: str, reason: str, message: str
) -> list[dict[str, Any]]:
    return with_condition(conditions, now, type_, status, reason, message, lastUpdateTime=time_text(now))


def _availability(
    world: ReconcileInput, deployment: Workload, conditions: list[dict[str, Any]], now: dict[str, Any]
) -> list[dict[str, Any]]:
    sizes = RolloutSizes(deployment, None, [])
    if now["availableReplicas"] >= sizes.wanted - sizes.unavailable:
        reason, message = "MinimumReplicasAvailable", "Deployment has minimum availability."
        return _set(conditions, world.now, "Available", "True", reason, message)
    reason, message = "MinimumReplicasUnavailable", "Deployment does not have minimum availability."
    return _set(conditions, world.now, "Available", "False", reason, message)


def _progress(
    world: ReconcileInput,
    deployment: Workload,
    new: Workload | None,
    conditions: list[dict[str, Any]],
    now: dict[str, Any],
    created: str,
) -> tuple[list[dict[str, Any]], float | None]:
    limit_s = deployment.spec.progress_deadline_seconds
    if limit_s is None or limit_s >= FOR_EVER_S:
        return without_condition(conditions, "Progressing"), None
    known = condition(conditions, "Progressing")
    if deployment.spec.paused:
        if known is not None and known.get("reason") == "ProgressDeadlineExceeded":
            return conditions, None
        return _set(conditions, world.now, "Progressing", "Unknown", "DeploymentPaused", "Deployment is paused"), None
    if created:
        message = f'Created new replica set "{created}"'
        conditions = _set(conditions, world.now, "Progressing", "True", "NewReplicaSetCreated", message)
        return conditions, limit_s + 1.0
    if known is not None and known.get("reason") == "DeploymentPaused":
        message = "Deployment is resumed"
        conditions = _set(conditions, world.now, "Progressing", "Unknown", "DeploymentResumed", message)
        return conditions, limit_s + 1.0
    if new is None:
        return conditions, None
    name = new.metadata.name
    if known is None:
        message = f'Found new replica set "{name}"'
        conditions = _set(conditions, world.now, "Progressing", "True", "FoundNewReplicaSet", message)
        known = condition(conditions, "Progressing")
    assert known is not None
    if known.get("reason") == "NewReplicaSetAvailable" and now["replicas"] == now["updatedReplicas"]:
        return conditions, None
    if is_complete(deployment, now):
        message = f'ReplicaSet "{name}" has successfully progressed.'
        return _set(conditions, world.now, "Progressing", "True", "NewReplicaSetAvailable", message), None
    if _has_moved(deployment.status or {}, now):
        message = f'ReplicaSet "{name}" is progressing.'
        # Set again even if it reads the same: its update time restarts the deadline.
        rest = without_condition(conditions, "Progressing")
        fresh = _set(rest, world.now, "Progressing", "True", "ReplicaSetUpdated", message)
        if known.get("status") == "True":
            fresh[-1]["lastTransitionTime"] = known.get("lastTransitionTime", fresh[-1]["lastTransitionTime"])
        return fresh, limit_s + 1.0
    due = seconds_of(known.get("lastUpdateTime")) + limit_s
    if known.get("reason") == "ProgressDeadlineExceeded" or known.get("reason") == "NewReplicaSetAvailable":
        return conditions, None
    if world.now > due:
        message = f'ReplicaSet "{name}" has timed out progressing.'
        return _set(conditions, world.now, "Progressing", "False", "ProgressDeadlineExceeded", message), None
    return conditions, due - world.now + 1.0


def _has_moved(before: dict[str, Any], now: dict[str, Any]) -> bool:
    def count(status: dict[str, Any], field: str) -> int:
        return int(status.get(field) or 0)

    old_before = count(before, "replicas") - count(before, "updatedReplicas")
    old_now = count(now, "replicas") - count(now, "updatedReplicas")
    more = ("updatedReplicas", "readyReplicas", "availableReplicas")
    return old_now < old_before or any(count(now, field) > count(before, field) for field in more)
