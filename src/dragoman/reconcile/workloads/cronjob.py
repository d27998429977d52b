"""When does a CronJob start its next Job, and which old ones go? Schedule, concurrency, deadline, history.

A run's Job is named after its time, so that the same run is never started twice, whoever tries.
Source: the CronJob API.
"""

from __future__ import annotations

from typing import Any

from dragoman.api.core import Workload
from dragoman.api.meta import NamespacedName
from dragoman.effects import Create, Delete, Effect, Emit, Patch
from dragoman.errors import Invalid
from dragoman.reconcile.step import NOTHING, ReconcileInput, ReconcileResult, difference, owned_by, ref_of
from dragoman.reconcile.workloads import pods as the_pods
from dragoman.reconcile.workloads.schedules import Schedule, parse, zone_of
from dragoman.snapshot.change import Change

KIND, JOB = "CronJob", "Job"
COMPONENT = "cronjob-controller"
MISSED_MAX = 100
"""More missed runs than this are not counted one by one."""
SCHEDULED = "batch.kubernetes.io/cronjob-scheduled-timestamp"


def keys(change: Change, before: ReconcileInput, after: ReconcileInput) -> list[NamespacedName]:
    """The CronJobs to look at after a change."""
    return the_pods.owner_keys(KIND, JOB, change, before, after)


def sync(world: ReconcileInput, key: NamespacedName) -> ReconcileResult:
    """Start what is due, forget what is old, say what runs."""
    cron = world.snapshot.workloads.get((KIND, *key))
    if cron is None or cron.metadata.deletion_timestamp:
        return NOTHING
    jobs: list[Workload] = [
        job for ref in world.ownership.controlled(cron.metadata.uid, JOB) if (job := the_pods.find(world, ref))
    ]
    owner = ref_of(KIND, cron.metadata)
    active = [job for job in jobs if not _finished(job)]
    effects: list[Effect] = [*_history(cron, jobs)]
    status: dict[str, Any] = {"active": [_reference(job) for job in active]}
    done = [t for job in jobs if _finished(job) == "Complete" and (t := (job.status or {}).get("completionTime"))]
    if done:
        newest = max(done, key=the_pods.seconds_of)
        known = (cron.status or {}).get("lastSuccessfulTime")
        if the_pods.seconds_of(newest) > the_pods.seconds_of(known):
            status["lastSuccessfulTime"] = newest
    again_s: float | None = None
    if not cron.spec.suspend:
        try:
            schedule, zone = parse(cron.spec.schedule), zone_of(cron.spec.time_zone)
        except Invalid as error:
            effects.append(Emit(owner, "Warning", "UnparseableSchedule", f"unparseable schedule: {error}", COMPONENT))
            return ReconcileResult((*_patched(owner, cron, status), *effects))
        due, following = _due(cron, schedule, zone, world.now)
        again_s = None if following is None else max(0.0, following - world.now) + 0.1
        if due is not None:
            made, last = _start(world, cron, active, due)
            effects += made
            if last:
                status["lastScheduleTime"] = the_pods.time_text(due)
    return ReconcileResult((*_patched(owner, cron, status), *effects), again_s=again_s)


def write_events(
    world: ReconcileInput, key: NamespacedName, effect: Effect, written: dict[str, Any] | None, error: str
) -> tuple[Effect, ...]:
    """The event for a write."""
    cron = world.snapshot.workloads.get((KIND, *key))
    if cron is None or not isinstance(effect, Create | Delete):
        return ()
    owner = ref_of(KIND, cron.metadata)
    if isinstance(effect, Create):
        name = effect.body["metadata"]["name"]
        if error:
            if "already exists" in error:
                return ()
            return (Emit(owner, "Warning", "FailedCreate", f"Error creating job: {error}", COMPONENT),)
        return (Emit(owner, "Normal", "SuccessfulCreate", f"Created job {name}", COMPONENT),)
    if error:
        return (Emit(owner, "Warning", "FailedDelete", f"Deleted job: {error}", COMPONENT),)
    return (Emit(owner, "Normal", "SuccessfulDelete", f"Deleted job {effect.ref.name}", COMPONENT),)


def _finished(job: Workload) -> str:
    conditions = (job.status or {}).get("conditions") or []
    return next(
        (c["type"] for c in conditions if c.get("type") in ("Complete", "Failed") and c.get("status") == "True"), ""
    )


def _due(cron: Workload, schedule: Schedule, zone: Any, now: float) -> tuple[float | None, float | None]:
    """(the latest run that is due and was not started, the next one)."""
    last = (cron.status or {}).get("lastScheduleTime")
    since = the_pods.seconds_of(last or cron.metadata.creation_timestamp) or now
    deadline = cron.spec.starting_deadline_seconds
    if deadline is not None:
        since = max(since, now - deadline)
    due: float | None = None
    for _ in range(MISSED_MAX):
        following = schedule.next(since if due is None else due, zone)
        if following is None or following > now:
            return due, following
        due = following
    # So many were missed that only the latest counts: found from shortly before now.
    at = now - 60.0
    while (following := schedule.next(at, zone)) is not None and following <= now:
        due = at = following
    return due, schedule.next(now, zone)


def _start(world: ReconcileInput, cron: Workload, active: list[Workload], due: float) -> tuple[list[Effect], bool]:
    """The writes that start the run of that time, and whether it counts as scheduled."""
    name = f"{cron.metadata.name}-{int(due // 60)}"
    if any(job.metadata.name == name for job in active):
        return [], True
    policy = cron.spec.concurrency_policy or "Allow"
    owner = ref_of(KIND, cron.metadata)
    if policy == "Forbid" and active:
        text = "Not starting job because prior execution is running and concurrency policy is Forbid"
        return [Emit(owner, "Normal", "JobAlreadyActive", text, COMPONENT)], False
    effects: list[Effect] = []
    if policy == "Replace":
        effects += [Delete(ref_of(JOB, job.metadata), propagation="Background") for job in active]
    template = cron.spec.job_template or {}
    given = template.get("metadata") or {}
    annotations = {**(given.get("annotations") or {}), SCHEDULED: the_pods.time_text(due)}
    metadata: dict[str, Any] = {
        "name": name,
        "namespace": cron.metadata.namespace,
        "annotations": annotations,
        "ownerReferences": [owned_by(KIND, cron.metadata)],
    }
    if given.get("labels"):
        metadata["labels"] = given["labels"]
    body = {"apiVersion": "batch/v1", "kind": JOB, "metadata": metadata, "spec": template.get("spec") or {}}
    if world.ownership.find(JOB, cron.metadata.namespace, name) is None:
        effects.append(Create(body))
    return effects, True


def _history(cron: Workload, jobs: list[Workload]) -> list[Effect]:
    """Finished Jobs beyond the limits, oldest first."""
    limits = (
        ("Complete", cron.spec.successful_jobs_history_limit, 3),
        ("Failed", cron.spec.failed_jobs_history_limit, 1),
    )
    doomed: list[Effect] = []
    for state, limit, default in limits:
        kept = default if limit is None else limit
        old = sorted((job for job in jobs if _finished(job) == state), key=_started, reverse=True)[kept:]
        doomed += [
            Delete(ref_of(JOB, job.metadata), propagation="Background")
            for job in reversed(old)
            if not job.metadata.deletion_timestamp
        ]
    return doomed


def _started(job: Workload) -> tuple[float, str]:
    return the_pods.seconds_of((job.status or {}).get("startTime")), job.metadata.name


def _reference(job: Workload) -> dict[str, Any]:
    meta = job.metadata
    return {
        "apiVersion": "batch/v1",
        "kind": JOB,
        "name": meta.name,
        "namespace": meta.namespace,
        "uid": meta.uid,
        "resourceVersion": meta.resource_version,
    }


def _patched(owner: Any, cron: Workload, status: dict[str, Any]) -> list[Effect]:
    old = cron.status or {}
    known = {entry.get("uid") for entry in old.get("active") or []}
    if known == {entry["uid"] for entry in status["active"]}:
        status = {key: value for key, value in status.items() if key != "active"}
    patch = difference(old, status)
    return [Patch(owner, {"status": patch}, subresource="status")] if patch else []
