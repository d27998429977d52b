"""What do the kinds that own pods look like in a table?"""

from __future__ import annotations

from typing import Any

from dragoman.api.shape import Object
from dragoman.apiserver.printers.column import (
    NONE,
    UNSET,
    Cell,
    Column,
    Printer,
    age,
    at,
    columns,
    containers_text,
    entries,
    human_duration,
    labels_text,
    name_of,
    number,
    seconds_of,
    selector_text,
    since,
    text,
)


def _template(obj: Object) -> Any:
    return at(obj, "spec", "template")


def _deployment(obj: Object, now: float) -> list[Cell]:
    return [
        name_of(obj),
        f"{number(obj, 'status', 'readyReplicas')}/{number(obj, 'spec', 'replicas')}",
        number(obj, "status", "updatedReplicas"),
        number(obj, "status", "availableReplicas"),
        age(obj, now),
        *containers_text(_template(obj)),
        selector_text(at(obj, "spec", "selector")),
    ]


def _replicas(obj: Object, now: float) -> list[Cell]:
    return [
        name_of(obj),
        number(obj, "spec", "replicas"),
        number(obj, "status", "replicas"),
        number(obj, "status", "readyReplicas"),
        age(obj, now),
        *containers_text(_template(obj)),
    ]


def _replica_set(obj: Object, now: float) -> list[Cell]:
    return [*_replicas(obj, now), selector_text(at(obj, "spec", "selector"))]


def _replication_controller(obj: Object, now: float) -> list[Cell]:
    return [*_replicas(obj, now), labels_text(at(obj, "spec", "selector"))]


def _stateful_set(obj: Object, now: float) -> list[Cell]:
    ready = f"{number(obj, 'status', 'readyReplicas')}/{number(obj, 'spec', 'replicas')}"
    return [name_of(obj), ready, age(obj, now), *containers_text(_template(obj))]


def _daemon_set(obj: Object, now: float) -> list[Cell]:
    return [
        name_of(obj),
        number(obj, "status", "desiredNumberScheduled"),
        number(obj, "status", "currentNumberScheduled"),
        number(obj, "status", "numberReady"),
        number(obj, "status", "updatedNumberScheduled"),
        number(obj, "status", "numberAvailable"),
        labels_text(at(_template(obj), "spec", "nodeSelector")),
        age(obj, now),
        *containers_text(_template(obj)),
        selector_text(at(obj, "spec", "selector")),
    ]


def _job(obj: Object, now: float) -> list[Cell]:
    return [
        name_of(obj),
        _job_status(obj),
        _completions(obj),
        _job_duration(obj, now),
        age(obj, now),
        *containers_text(_template(obj)),
        selector_text(at(obj, "spec", "selector")),
    ]


def _job_status(obj: Object) -> str:
    true = {c.get("type") for c in entries(obj, "status", "conditions") if c.get("status") == "True"}
    for status in ("Complete", "Failed"):
        if status in true:
            return status
    if at(obj, "metadata", "deletionTimestamp"):
        return "Terminating"
    return next((s for s in ("Suspended", "FailureTarget", "SuccessCriteriaMet") if s in true), "Running")


def _completions(obj: Object) -> str:
    succeeded = number(obj, "status", "succeeded")
    wanted = at(obj, "spec", "completions")
    if wanted is not None:
        return f"{succeeded}/{wanted}"
    parallelism = number(obj, "spec", "parallelism")
    return f"{succeeded}/1 of {parallelism}" if parallelism > 1 else f"{succeeded}/1"


def _job_duration(obj: Object, now: float) -> str:
    start = seconds_of(at(obj, "status", "startTime"))
    if start is None:
        return ""
    end = seconds_of(at(obj, "status", "completionTime"))
    return human_duration((now if end is None else end) - start)


def _cron_job(obj: Object, now: float) -> list[Cell]:
    last = at(obj, "status", "lastScheduleTime")
    suspend = at(obj, "spec", "suspend")
    job = at(obj, "spec", "jobTemplate", "spec")
    return [
        name_of(obj),
        text(obj, "spec", "schedule"),
        text(obj, "spec", "timeZone") or NONE,
        UNSET if suspend is None else "True" if suspend else "False",
        len(entries(obj, "status", "active")),
        since(last, now) if last else NONE,
        age(obj, now),
        *containers_text(at(job, "template")),
        selector_text(at(job, "selector")),
    ]


def _pod_template(obj: Object, now: float) -> list[Cell]:
    template = at(obj, "template")
    return [name_of(obj), *containers_text(template), labels_text(at(template, "metadata", "labels"))]


def _controller_revision(obj: Object, now: float) -> list[Cell]:
    owner = next((o for o in entries(obj, "metadata", "ownerReferences") if o.get("controller")), None)
    controller = NONE
    if owner:
        group = text(owner, "apiVersion").rpartition("/")[0]
        kind = text(owner, "kind").lower()
        controller = f"{kind}.{group}/{text(owner, 'name')}" if group else f"{kind}/{text(owner, 'name')}"
    return [name_of(obj), controller, number(obj, "revision"), age(obj, now)]


def _disruption_budget(obj: Object, now: float) -> list[Cell]:
    least, most = at(obj, "spec", "minAvailable"), at(obj, "spec", "maxUnavailable")
    return [
        name_of(obj),
        "N/A" if least is None else str(least),
        "N/A" if most is None else str(most),
        number(obj, "status", "disruptionsAllowed"),
        age(obj, now),
    ]


_WIDE = ("Containers", "Images", "Selector")


def _replica_columns() -> tuple[Column, ...]:
    counts = ("Desired", "Current", "Ready")
    return columns("Name", *counts, "Age", *_WIDE, integers=counts, wide=_WIDE)


_DAEMON_COUNTS = ("Desired", "Current", "Ready", "Up-to-date", "Available")

PRINTERS = {
    ("apps", "Deployment"): Printer(
        columns(
            *("Name", "Ready", "Up-to-date", "Available", "Age"),
            *_WIDE,
            integers=("Up-to-date", "Available"),
            wide=_WIDE,
        ),
        _deployment,
    ),
    ("apps", "ReplicaSet"): Printer(_replica_columns(), _replica_set),
    ("", "ReplicationController"): Printer(_replica_columns(), _replication_controller),
    ("apps", "StatefulSet"): Printer(columns("Name", "Ready", "Age", *_WIDE[:2], wide=_WIDE), _stateful_set),
    ("apps", "DaemonSet"): Printer(
        columns("Name", *_DAEMON_COUNTS, "Node Selector", "Age", *_WIDE, integers=_DAEMON_COUNTS, wide=_WIDE),
        _daemon_set,
    ),
    ("batch", "Job"): Printer(
        columns("Name", "Status", "Completions", "Duration", "Age", *_WIDE, wide=_WIDE),
        _job,
    ),
    ("batch", "CronJob"): Printer(
        columns(
            *("Name", "Schedule", "Timezone", "Suspend", "Active", "Last Schedule", "Age"),
            *_WIDE,
            integers=("Active",),
            booleans=("Suspend",),
            wide=_WIDE,
        ),
        _cron_job,
    ),
    ("", "PodTemplate"): Printer(columns("Name", "Containers", "Images", "Pod Labels"), _pod_template),
    ("apps", "ControllerRevision"): Printer(
        columns("Name", "Controller", "Revision", "Age", integers=("Revision",)), _controller_revision
    ),
    ("policy", "PodDisruptionBudget"): Printer(
        columns(
            *("Name", "Min Available", "Max Unavailable", "Allowed Disruptions", "Age"),
            integers=("Allowed Disruptions",),
        ),
        _disruption_budget,
    ),
}
