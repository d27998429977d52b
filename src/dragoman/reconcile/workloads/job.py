"""How does a Job run to completion? Counts pods exactly once, replaces failed ones later and later, ends.

Every pod carries a finalizer until the status has counted it, so that no outcome is lost or counted twice: first
the status names the pod's uid, then the finalizer goes, then the uid turns into a number. Source: the API's Job.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import msgspec

from dragoman.api.core import Pod, Workload
from dragoman.api.meta import NamespacedName, Ref
from dragoman.effects import Delete, Effect, Emit, Patch
from dragoman.reconcile.step import NOTHING, ReconcileInput, ReconcileResult, difference, ref_of
from dragoman.reconcile.workloads import pods as the_pods
from dragoman.reconcile.workloads.indexes import parsed, text_of
from dragoman.reconcile.workloads.podfailure import FAIL_INDEX, FAIL_JOB, IGNORE, success_rule, verdict
from dragoman.reconcile.workloads.replicaset import deletion_order
from dragoman.snapshot.change import Change, Gone, Put
from dragoman.snapshot.usage import is_finished

KIND = "Job"
COMPONENT = "job-controller"
TRACKING = "batch.kubernetes.io/job-tracking"
INDEX = "batch.kubernetes.io/job-completion-index"
INDEX_FAILURES = "batch.kubernetes.io/job-index-failure-count"
BACKOFF_S, BACKOFF_MAX_S = 10.0, 600.0


def keys(change: Change, before: ReconcileInput, after: ReconcileInput) -> list[NamespacedName]:
    """The Jobs to look at after a change."""
    return the_pods.owner_keys(KIND, "Pod", change, before, after)


# ---- counting


class Tally(msgspec.Struct):
    """Where a Job stands, everything seen so far counted in. `uncounted_*`: uids named in the status, not yet numbers.

    let_go: pods whose finalizer may go once the status is written.
    """

    succeeded: int
    failed: int
    uncounted_ok: list[str]
    uncounted_failed: list[str]
    completed: set[int]
    failed_indexes: set[int]
    active: list[Pod]
    terminating: int
    let_go: list[Pod]
    fail_job: str = ""


def tally(job: Workload, pods: list[Pod]) -> Tally:
    """Count pods into what the status says."""
    status = job.status or {}
    uncounted = status.get("uncountedTerminatedPods") or {}
    ok, bad = list(uncounted.get("succeeded") or []), list(uncounted.get("failed") or [])
    held = {pod.metadata.uid for pod in pods if TRACKING in pod.metadata.finalizers}
    indexed = job.spec.completion_mode == "Indexed"
    found = Tally(
        succeeded=int(status.get("succeeded") or 0) + (0 if indexed else sum(1 for uid in ok if uid not in held)),
        failed=int(status.get("failed") or 0) + sum(1 for uid in bad if uid not in held),
        uncounted_ok=[uid for uid in ok if uid in held],
        uncounted_failed=[uid for uid in bad if uid in held],
        completed=parsed(status.get("completedIndexes")),
        failed_indexes=parsed(status.get("failedIndexes")),
        active=[pod for pod in pods if the_pods.is_active(pod)],
        terminating=sum(1 for pod in pods if pod.metadata.deletion_timestamp and not is_finished(pod)),
        let_go=[],
    )
    for pod in pods:
        if TRACKING in pod.metadata.finalizers and len(found.let_go) < the_pods.BURST:
            _count(job, pod, found, indexed=indexed)
    if indexed:
        found.succeeded = len(found.completed)
    return found


def _count(job: Workload, pod: Pod, found: Tally, *, indexed: bool) -> None:
    uid = pod.metadata.uid
    if pod.status.phase == "Succeeded":
        found.let_go.append(pod)
        if indexed:
            index = index_of(pod)
            if index is not None and index < _completions(job):
                found.completed.add(index)
                found.failed_indexes.discard(index)
        elif uid not in found.uncounted_ok:
            found.uncounted_ok.append(uid)
        return
    if not _has_failed(job, pod):
        return
    found.let_go.append(pod)
    action, why = verdict(job.spec.pod_failure_policy, pod)
    if action == FAIL_JOB:
        found.fail_job = found.fail_job or why
    if action != IGNORE and uid not in found.uncounted_failed:
        found.uncounted_failed.append(uid)
    index = index_of(pod)
    limit = job.spec.backoff_limit_per_index
    if (
        indexed
        and index is not None
        and index not in found.completed
        and (action == FAIL_INDEX or (limit is not None and action != IGNORE and failures_of(pod) > limit))
    ):
        found.failed_indexes.add(index)


def _has_failed(job: Workload, pod: Pod) -> bool:
    if pod.status.phase == "Failed":
        return True
    # A pod that is being deleted counts as failed at once, unless only failed ones are to be replaced.
    return bool(pod.metadata.deletion_timestamp) and not _replaces_failed_only(job)


def _replaces_failed_only(job: Workload) -> bool:
    return job.spec.pod_replacement_policy == "Failed" or bool(job.spec.pod_failure_policy)


def index_of(pod: Pod) -> int | None:
    """The completion index of a pod of an Indexed Job."""
    text = pod.metadata.annotations.get(INDEX, "")
    return int(text) if text.isdecimal() else None


def failures_of(pod: Pod) -> int:
    """How often its index has failed, this pod included."""
    text = pod.metadata.annotations.get(INDEX_FAILURES, "0")
    return (int(text) if text.isdecimal() else 0) + 1


def _completions(job: Workload) -> int:
    return 1 if job.spec.completions is None else job.spec.completions


def _parallelism(job: Workload) -> int:
    return 1 if job.spec.parallelism is None else job.spec.parallelism


# ---- the door


def sync(world: ReconcileInput, key: NamespacedName) -> ReconcileResult:
    """One step of a Job."""
    job = world.snapshot.workloads.get((KIND, *key))
    if job is None:
        return NOTHING
    pods, adopted = the_pods.members(world, KIND, job)
    if adopted:
        return ReconcileResult(tuple(adopted))
    finished = _is_finished(job)
    if finished or job.metadata.deletion_timestamp:
        return _after(world, job, pods, finished=finished)
    found = tally(job, pods)
    conditions = list((job.status or {}).get("conditions") or [])
    outcome = _outcome(world, job, found, conditions)
    if outcome is not None:
        return _end(world, job, found, conditions, outcome)
    if job.spec.suspend:
        return _suspend(world, job, found, conditions)
    return _go_on(world, job, pods, found, conditions)


def _is_finished(job: Workload) -> bool:
    conditions = (job.status or {}).get("conditions") or []
    return any(c.get("type") in ("Complete", "Failed") and c.get("status") == "True" for c in conditions)


def _after(world: ReconcileInput, job: Workload, pods: list[Pod], *, finished: bool) -> ReconcileResult:
    """A Job that ended or is being deleted lets its pods go, and itself when its time is up."""
    effects: list[Effect] = [release(pod) for pod in pods if TRACKING in pod.metadata.finalizers]
    if finished and not job.metadata.deletion_timestamp:
        effects += [Delete(ref_of("Pod", pod.metadata)) for pod in pods if the_pods.is_active(pod)]
    ttl_s = job.spec.ttl_seconds_after_finished
    if effects or not finished or ttl_s is None or job.metadata.deletion_timestamp:
        return ReconcileResult(tuple(effects))
    times = [
        the_pods.seconds_of(c.get("lastTransitionTime"))
        for c in (job.status or {}).get("conditions") or []
        if c.get("type") in ("Complete", "Failed") and c.get("status") == "True"
    ]
    left_s = max(times) + ttl_s - world.now
    if left_s > 0:
        return ReconcileResult(again_s=left_s)
    return ReconcileResult((Delete(ref_of(KIND, job.metadata), propagation="Foreground"),))


def release(pod: Pod) -> Patch:
    """The pod without our finalizer."""
    rest = [finalizer for finalizer in pod.metadata.finalizers if finalizer != TRACKING]
    patch = {"metadata": {"finalizers": rest or None}}
    return Patch(ref_of("Pod", pod.metadata), patch, resource_version=pod.metadata.resource_version)


# ---- ending

JobOutcome: TypeAlias = tuple[bool, str, str]
"""(whether it succeeded, reason, message)."""


def _outcome(world: ReconcileInput, job: Workload, found: Tally, conditions: list[dict[str, Any]]) -> JobOutcome | None:
    for type_, good in (("FailureTarget", False), ("SuccessCriteriaMet", True)):
        decided = the_pods.condition(conditions, type_)
        if decided is not None and decided.get("status") == "True":
            return good, decided.get("reason", ""), decided.get("message", "")
    spec = job.spec
    succeeded = found.succeeded + len(found.uncounted_ok)
    failed = found.failed + len(found.uncounted_failed)
    if found.fail_job:
        return False, "PodFailurePolicy", found.fail_job
    limit = 6 if spec.backoff_limit is None else spec.backoff_limit
    if failed > limit or _restarts(job, found.active) > limit:
        return False, "BackoffLimitExceeded", "Job has reached the specified backoff limit"
    if (left_s := _deadline_s(world, job)) is not None and left_s <= 0:
        return False, "DeadlineExceeded", "Job was active longer than specified deadline"
    if spec.completion_mode == "Indexed" and spec.backoff_limit_per_index is not None:
        allowed = spec.max_failed_indexes
        if allowed is not None and len(found.failed_indexes) > allowed:
            return False, "MaxFailedIndexesExceeded", "Job has exceeded the specified maximal number of failed indexes"
        if found.failed_indexes and len(found.failed_indexes | found.completed) >= _completions(job):
            return False, "FailedIndexes", "Job has failed indexes"
    rule = success_rule(spec.success_policy, found.completed)
    if rule is not None:
        return True, "SuccessPolicy", f"Matched rules at index {rule}"
    if spec.completions is None:
        done = succeeded > 0 and not found.active and not found.terminating
    else:
        done = succeeded >= spec.completions and not (spec.suspend and not spec.completions)
    return (True, "CompletionsReached", "Reached expected number of succeeded pods") if done else None


def _restarts(job: Workload, active: list[Pod]) -> int:
    """Restarts of containers under restartPolicy OnFailure, which count like failed pods."""
    if (job.spec.template.spec or {}).get("restartPolicy") != "OnFailure":
        return -1
    return sum(
        int(status.get("restartCount") or 0)
        for pod in active
        for status in (*pod.status.container_statuses, *pod.status.init_container_statuses)
    )


def _deadline_s(world: ReconcileInput, job: Workload) -> float | None:
    started = (job.status or {}).get("startTime")
    if job.spec.active_deadline_seconds is None or not started or job.spec.suspend:
        return None
    return the_pods.seconds_of(started) + job.spec.active_deadline_seconds - world.now


def _end(
    world: ReconcileInput, job: Workload, found: Tally, conditions: list[dict[str, Any]], outcome: JobOutcome
) -> ReconcileResult:
    """Announce the outcome, let active pods end, then set it."""
    good, reason, message = outcome
    announced = "SuccessCriteriaMet" if good else "FailureTarget"
    conditions = the_pods.with_condition(
        conditions, world.now, announced, "True", reason, message, lastProbeTime=the_pods.time_text(world.now)
    )
    doomed = [Delete(ref_of("Pod", pod.metadata)) for pod in found.active]
    more: dict[str, Any] = {}
    events: list[Effect] = []
    if not found.active and not found.terminating and not _owes(found):
        final = "Complete" if good else "Failed"
        when = the_pods.time_text(world.now)
        conditions = the_pods.with_condition(conditions, world.now, final, "True", reason, message, lastProbeTime=when)
        owner = ref_of(KIND, job.metadata)
        if good:
            more["completionTime"] = when
            events.append(Emit(owner, "Normal", "Completed", "Job completed", COMPONENT))
        else:
            events.append(Emit(owner, "Warning", reason, message, COMPONENT))
    return ReconcileResult((*_record(job, found, conditions, more), *doomed, *events))


def _owes(found: Tally) -> bool:
    """Pods whose outcome is not a number in the status yet."""
    return bool(found.let_go or found.uncounted_ok or found.uncounted_failed)


# ---- suspending


def _suspend(world: ReconcileInput, job: Workload, found: Tally, conditions: list[dict[str, Any]]) -> ReconcileResult:
    known = the_pods.condition(conditions, "Suspended")
    events: list[Effect] = []
    if known is None or known.get("status") != "True":
        conditions = the_pods.with_condition(
            conditions, world.now, "Suspended", "True", "JobSuspended", "Job suspended",
            lastProbeTime=the_pods.time_text(world.now),
        )  # fmt: skip
        events.append(Emit(ref_of(KIND, job.metadata), "Normal", "Suspended", "Job suspended", COMPONENT))
    return ReconcileResult((*_record(job, found, conditions, {"startTime": None}), *_dismissed(found.active), *events))


def _dismissed(active: list[Pod]) -> list[Effect]:
    """Deletes pods that are not wanted now; without our finalizer they do not count as failed."""
    effects: list[Effect] = []
    for pod in active:
        effects += [release(pod)] if TRACKING in pod.metadata.finalizers else []
        effects.append(Delete(ref_of("Pod", pod.metadata)))
    return effects


# ---- going on


def _go_on(
    world: ReconcileInput, job: Workload, pods: list[Pod], found: Tally, conditions: list[dict[str, Any]]
) -> ReconcileResult:
    events: list[Effect] = []
    known = the_pods.condition(conditions, "Suspended")
    started = (job.status or {}).get("startTime")
    if known is not None and known.get("status") == "True":
        conditions = the_pods.with_condition(
            conditions, world.now, "Suspended", "False", "JobResumed", "Job resumed",
            lastProbeTime=the_pods.time_text(world.now),
        )  # fmt: skip
        events.append(Emit(ref_of(KIND, job.metadata), "Normal", "Resumed", "Job resumed", COMPONENT))
        started = None
    more = {"startTime": started or the_pods.time_text(world.now)}
    changes, again_s = _pods(world, job, pods, found)
    waits = [wait for wait in (again_s, _deadline_s(world, job)) if wait is not None]
    if not started and job.spec.active_deadline_seconds is not None:
        waits.append(float(job.spec.active_deadline_seconds))
    record = _record(job, found, conditions, more)
    return ReconcileResult((*record, *changes, *events), again_s=min(waits, default=None))


def _pods(world: ReconcileInput, job: Workload, pods: list[Pod], found: Tally) -> tuple[list[Effect], float | None]:
    """Pods to make or to delete, and how long to wait before making more."""
    succeeded = found.succeeded + len(found.uncounted_ok)
    active = len(found.active)
    if job.spec.completions is None:
        wanted = active if succeeded else _parallelism(job)
    else:
        wanted = min(max(0, job.spec.completions - succeeded), _parallelism(job))
    if active > wanted:
        return _dismissed(deletion_order(found.active, world.now)[: active - wanted]), None
    missing = wanted - active
    if _replaces_failed_only(job):
        missing -= found.terminating
    if missing <= 0:
        return [], None
    wait_s = backoff_s(world, pods)
    if wait_s > 0:
        return [], wait_s
    missing = min(missing, the_pods.BURST)
    if job.spec.completion_mode != "Indexed":
        return [the_pods.pod_from(job.spec.template, KIND, job.metadata, finalizers=[TRACKING])] * missing, None
    used = {index for pod in found.active if (index := index_of(pod)) is not None}
    if _replaces_failed_only(job):
        ending = (pod for pod in pods if pod.metadata.deletion_timestamp and not is_finished(pod))
        used |= {index for pod in ending if (index := index_of(pod)) is not None}
    used |= found.completed | found.failed_indexes
    free = [index for index in range(_completions(job)) if index not in used][:missing]
    return [_indexed_pod(job, index, pods) for index in free], None


def backoff_s(world: ReconcileInput, pods: list[Pod]) -> float:
    """How long to wait before the next pod: longer with each failure since the last success."""
    ends = [(_ended(pod), pod.status.phase) for pod in pods if is_finished(pod)]
    last_ok = max((when for when, phase in ends if phase == "Succeeded"), default=0.0)
    failures = [when for when, phase in ends if phase == "Failed" and when >= last_ok]
    if not failures:
        return 0.0
    wait_s = min(BACKOFF_S * 2.0 ** min(len(failures) - 1, 16), BACKOFF_MAX_S)
    return max(failures) + wait_s - world.now


def _ended(pod: Pod) -> float:
    ends = [
        the_pods.seconds_of(((status.get("state") or {}).get("terminated") or {}).get("finishedAt"))
        for status in pod.status.container_statuses
    ]
    ready = next((the_pods.seconds_of(c.last_transition_time) for c in pod.status.conditions if c.type == "Ready"), 0.0)
    return max(ends, default=0.0) or ready or the_pods.seconds_of(pod.metadata.creation_timestamp)


def _indexed_pod(job: Workload, index: int, pods: list[Pod]) -> Effect:
    annotations = {INDEX: str(index)}
    if job.spec.backoff_limit_per_index is not None:
        failed = [failures_of(pod) for pod in pods if pod.status.phase == "Failed" and index_of(pod) == index]
        annotations[INDEX_FAILURES] = str(max(failed, default=0))
    name = job.metadata.name

    def shape(spec: dict[str, Any]) -> dict[str, Any]:
        source = {"fieldRef": {"fieldPath": f"metadata.labels['{INDEX}']"}}
        variable = {"name": "JOB_COMPLETION_INDEX", "valueFrom": source}
        for group in ("initContainers", "containers"):
            if spec.get(group):
                spec[group] = [_with_variable(container, variable) for container in spec[group]]
        return {**spec, "hostname": f"{name}-{index}"}

    return the_pods.pod_from(
        job.spec.template,
        KIND,
        job.metadata,
        generate_name=f"{name}-{index}-",
        labels={INDEX: str(index)},
        annotations=annotations,
        finalizers=[TRACKING],
        shape=shape,
    )


def _with_variable(container: dict[str, Any], variable: dict[str, Any]) -> dict[str, Any]:
    env = [entry for entry in container.get("env") or [] if entry.get("name") != variable["name"]]
    return {**container, "env": [*env, variable]}


# ---- writing


def _record(job: Workload, found: Tally, conditions: list[dict[str, Any]], more: dict[str, Any]) -> list[Effect]:
    """The status, and after it the finalizers of pods that it counts."""
    old = job.status or {}
    new = {
        "active": len(found.active),
        "ready": sum(1 for pod in found.active if the_pods.ready_since(pod) is not None),
        "terminating": found.terminating,
        "succeeded": found.succeeded,
        "failed": found.failed,
        "completedIndexes": text_of(found.completed),
        "conditions": conditions,
        **more,
    }
    if job.spec.backoff_limit_per_index is not None:
        new["failedIndexes"] = text_of(found.failed_indexes)
    patch = difference(old, new)
    # Zeros count in these two: they are pointers.
    patch |= {field: new[field] for field in ("ready", "terminating") if old.get(field) != new[field]}
    uncounted = {"succeeded": found.uncounted_ok, "failed": found.uncounted_failed}
    inner = difference(old.get("uncountedTerminatedPods"), uncounted)
    if inner or old.get("uncountedTerminatedPods") is None:
        patch["uncountedTerminatedPods"] = inner
    effects: list[Effect] = []
    if patch:
        effects.append(Patch(ref_of(KIND, job.metadata), {"status": patch}, subresource="status"))
    return [*effects, *(release(pod) for pod in found.let_go)]


def write_events(
    world: ReconcileInput, key: NamespacedName, effect: Effect, written: dict[str, Any] | None, error: str
) -> tuple[Effect, ...]:
    """The event for a write."""
    job = world.snapshot.workloads.get((KIND, *key))
    return (
        () if job is None else the_pods.pod_write_events(ref_of(KIND, job.metadata), COMPONENT, effect, written, error)
    )


# ---- pods whose Job is gone


def orphan_keys(change: Change, before: ReconcileInput, after: ReconcileInput) -> list[NamespacedName]:
    """Pods that may be left with our finalizer and without a Job."""
    if isinstance(change, Put) and change.kind == "Pod":
        meta = change.object.metadata
        return [(meta.namespace, meta.name)] if TRACKING in meta.finalizers and _is_orphan(after, change.object) else []
    if isinstance(change, Gone) and change.kind == KIND:
        job = before.snapshot.workloads.get((KIND, change.namespace, change.name))
        if job is not None:
            refs = after.ownership.controlled(job.metadata.uid, "Pod")
            return [(ref.namespace, ref.name) for ref in refs]
    return []


def _is_orphan(world: ReconcileInput, pod: Pod) -> bool:
    owner = pod.metadata.controller
    if owner is None or owner.kind != KIND:
        return True
    job = world.snapshot.workloads.get((KIND, pod.metadata.namespace, owner.name))
    return job is None or job.metadata.uid != owner.uid


def sync_orphan(world: ReconcileInput, key: NamespacedName) -> ReconcileResult:
    """Take the finalizer off a pod whose Job is gone; the API is asked before believing it."""
    pod = world.snapshot.pods.get(key)
    if pod is None or TRACKING not in pod.metadata.finalizers or not _is_orphan(world, pod):
        return NOTHING
    owner = pod.metadata.controller
    if owner is not None and owner.kind == KIND and owner.uid not in world.gone:
        ref = Ref(KIND, pod.metadata.namespace, owner.name, owner.uid)
        if ref not in world.answers:
            return ReconcileResult(asks=(ref,))
        if world.answers[ref] == owner.uid:
            return NOTHING
    return ReconcileResult((release(pod),))
