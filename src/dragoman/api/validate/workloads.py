"""Are Deployment, ReplicaSet, StatefulSet, DaemonSet, Job, CronJob and the gang kinds valid, and may they change so?"""

from __future__ import annotations

from typing import Any

from dragoman.api.gates import Gates
from dragoman.api.shape import Object, dig, items, objects, sub, text
from dragoman.api.validate.field import (
    Errors,
    FieldPath,
    at_least,
    by_name,
    each,
    immutable,
    number,
    one_of,
    same,
    unique,
)
from dragoman.api.validate.label_selector import label_selector, matches
from dragoman.api.validate.meta import annotation_map, label_map
from dragoman.api.validate.pods import pod_claims, pod_spec
from dragoman.values import names

GROUP_CLAIMS_MAX = 4
GROUP_TEMPLATES_MAX = 8
_JOB_RESTART = ("OnFailure", "Never")
_STATEFUL_MAY_CHANGE = (
    "replicas",
    "ordinals",
    "template",
    "updateStrategy",
    "revisionHistoryLimit",
    "persistentVolumeClaimRetentionPolicy",
    "minReadySeconds",
)
_SCHEDULE_NAMES = frozenset({"@yearly", "@annually", "@monthly", "@weekly", "@daily", "@midnight", "@hourly"})


def template_spec(template: Object, path: FieldPath) -> Errors:
    """The pod template of a workload."""
    errors = label_map(dig(template, "metadata"), path / "metadata")
    errors += annotation_map(dig(template, "metadata"), path / "metadata")
    errors += pod_spec(dig(template, "spec"), path / "spec")
    if items(dig(template, "spec"), "ephemeralContainers"):
        place = path / "spec" / "ephemeralContainers"
        errors.append(place.forbidden("ephemeral containers not allowed in pod template"))
    return errors


def _selected_template(spec: Object, path: FieldPath, owner: str) -> Errors:
    """A selector that is needed, and a template that it selects."""
    selector, place = sub(spec, "selector"), path / "selector"
    errors: Errors = []
    if selector is None:
        errors.append(place.required())
    else:
        errors += label_selector(selector, place)
        if not items(selector, "matchExpressions") and not dig(selector, "matchLabels"):
            errors.append(place.invalid(selector, f"empty selector is invalid for {owner}"))
    labels = dig(spec, "template", "metadata", "labels")
    if selector is not None and not errors and not matches(selector, labels):
        at = path / "template" / "metadata" / "labels"
        errors.append(at.invalid(labels, "`selector` does not match template `labels`"))
    return errors + template_spec(dig(spec, "template"), path / "template")


def _runs_always(spec: Object, path: FieldPath) -> Errors:
    """Pods of these kinds are restarted for ever and have no deadline."""
    inner, place = dig(spec, "template", "spec"), path / "template" / "spec"
    errors: Errors = []
    policy = text(inner, "restartPolicy")
    if policy in _JOB_RESTART:
        errors.append((place / "restartPolicy").not_supported(policy, ("Always",)))
    if number(inner, "activeDeadlineSeconds") is not None:
        errors.append((place / "activeDeadlineSeconds").forbidden("activeDeadlineSeconds is not supported here"))
    return errors


def _counts(spec: Object, path: FieldPath, *fields: str) -> Errors:
    return [error for field in fields for error in at_least(spec.get(field), path / field)]


# ---- Deployment, ReplicaSet, DaemonSet, StatefulSet


def deployment(obj: Object, gates: Gates) -> Errors:
    """A Deployment, new or changed."""
    spec, path = dig(obj, "spec"), FieldPath("spec")
    errors = _selected_template(spec, path, "deployment") + _runs_always(spec, path)
    errors += _counts(spec, path, "replicas", "minReadySeconds", "revisionHistoryLimit", "progressDeadlineSeconds")
    progress, ready = number(spec, "progressDeadlineSeconds"), number(spec, "minReadySeconds") or 0
    if progress is not None and progress <= ready:
        errors.append((path / "progressDeadlineSeconds").invalid(progress, "must be greater than minReadySeconds"))
    return errors + _rolling(dig(spec, "strategy"), path / "strategy", "Recreate")


def _rolling(strategy: Object, path: FieldPath, other: str) -> Errors:
    kind, rolling = strategy.get("type"), sub(strategy, "rollingUpdate")
    if kind == other:
        if rolling is None:
            return []
        return [(path / "rollingUpdate").forbidden(f"may not be specified when strategy `type` is '{other}'")]
    if kind != "RollingUpdate":
        return one_of(kind, path / "type", (other, "RollingUpdate"))
    place, fields = path / "rollingUpdate", ("maxUnavailable", "maxSurge")
    if rolling is None:
        return [place.required("this should be defaulted and never be nil")]
    errors = [error for field in fields for error in int_or_percent(rolling.get(field), place / field)]
    if not errors and all(rolling.get(field) in (0, "0", "0%", None) for field in fields):
        errors.append(
            (place / "maxUnavailable").invalid(rolling.get("maxUnavailable"), "may not be 0 when `maxSurge` is 0")
        )
    return errors


def int_or_percent(value: Any, path: FieldPath) -> Errors:
    """A count, or a share like 25%."""
    if value is None:
        return []
    if isinstance(value, str):
        if value.endswith("%") and value[:-1].isdigit():
            return []
        detail = (
            "a valid percent string must be a numeric string followed by an ending '%' "
            "(e.g. '1%', or '93%', regex used for validation is '[0-9]+%')"
        )
        return [path.invalid(value, detail)]
    return at_least(value, path)


def replica_set(obj: Object, gates: Gates) -> Errors:
    """A ReplicaSet, new or changed."""
    spec, path = dig(obj, "spec"), FieldPath("spec")
    errors = _counts(spec, path, "replicas", "minReadySeconds")
    return errors + _selected_template(spec, path, "replicaset") + _runs_always(spec, path)


def daemon_set(obj: Object, gates: Gates) -> Errors:
    """A DaemonSet, new or changed."""
    spec, path = dig(obj, "spec"), FieldPath("spec")
    errors = _selected_template(spec, path, "daemonset") + _runs_always(spec, path)
    errors += _counts(spec, path, "minReadySeconds", "revisionHistoryLimit")
    return errors + _rolling(dig(spec, "updateStrategy"), path / "updateStrategy", "OnDelete")


def stateful_set(obj: Object, gates: Gates) -> Errors:
    """A StatefulSet, new or changed."""
    spec, path = dig(obj, "spec"), FieldPath("spec")
    errors = _selected_template(_with_claims(spec), path, "statefulset") + _runs_always(spec, path)
    errors += _counts(spec, path, "replicas", "minReadySeconds", "revisionHistoryLimit")
    errors += one_of(spec.get("podManagementPolicy"), path / "podManagementPolicy", ("OrderedReady", "Parallel"))
    return errors + one_of(
        dig(spec, "updateStrategy").get("type"), path / "updateStrategy" / "type", ("RollingUpdate", "OnDelete")
    )


def _with_claims(spec: Object) -> Object:
    """The spec with the volumes that each pod gets for the claim templates, so that containers may mount them."""
    names = [text(dig(template, "metadata"), "name") for template in items(spec, "volumeClaimTemplates")]
    inner = dig(spec, "template", "spec")
    own = items(inner, "volumes")
    known = {text(volume, "name") for volume in own if isinstance(volume, dict)}
    made = [{"name": name, "persistentVolumeClaim": {"claimName": name}} for name in names if name not in known]
    if not made or not inner:
        return spec
    template = {**dig(spec, "template"), "spec": {**inner, "volumes": [*own, *made]}}
    return {**spec, "template": template}


def replication_controller(obj: Object, gates: Gates) -> Errors:
    """A ReplicationController, new or changed: its selector is a plain map."""
    spec, path = dig(obj, "spec"), FieldPath("spec")
    selector, labels = dig(spec, "selector"), dig(spec, "template", "metadata", "labels")
    errors = _counts(spec, path, "replicas", "minReadySeconds")
    if not selector:
        errors.append((path / "selector").required())
    elif any(labels.get(key) != value for key, value in selector.items()):
        at = path / "template" / "metadata" / "labels"
        errors.append(at.invalid(labels, "`selector` does not match template `labels`"))
    return errors + template_spec(dig(spec, "template"), path / "template") + _runs_always(spec, path)


def selector_kept(new: Object, old: Object) -> Errors:
    """The selector of a workload never changes."""
    return immutable(dig(new, "spec").get("selector"), dig(old, "spec").get("selector"), FieldPath("spec") / "selector")


def stateful_set_update(new: Object, old: Object, gates: Gates) -> Errors:
    """Little of a StatefulSet may change."""
    after, before = dig(new, "spec"), dig(old, "spec")
    changed = [f for f in after.keys() | before.keys() if not same(after.get(f), before.get(f))]
    if any(field not in _STATEFUL_MAY_CHANGE for field in changed):
        *most, last = (f"'{field}'" for field in _STATEFUL_MAY_CHANGE)
        detail = f"updates to statefulset spec for fields other than {', '.join(most)} and {last} are forbidden"
        return [FieldPath("spec").forbidden(detail)]
    return stateful_set(new, gates)


# ---- Job, CronJob


def job(obj: Object, gates: Gates) -> Errors:
    """A Job to be created, its selector and labels already set."""
    path = FieldPath("spec")
    return _job_spec(dig(obj, "spec"), path, selects=True)


def _job_spec(spec: Object, path: FieldPath, *, selects: bool) -> Errors:
    errors = _counts(
        spec,
        path,
        "parallelism",
        "completions",
        "activeDeadlineSeconds",
        "backoffLimit",
        "ttlSecondsAfterFinished",
        "backoffLimitPerIndex",
        "maxFailedIndexes",
    )
    mode = text(spec, "completionMode")
    if mode and mode not in ("NonIndexed", "Indexed"):
        errors.append((path / "completionMode").not_supported(mode, ("NonIndexed", "Indexed")))
    if mode == "Indexed" and number(spec, "completions") is None:
        errors.append((path / "completions").required("when completion mode is Indexed"))
    if selects:
        selector, place = sub(spec, "selector"), path / "selector"
        if selector is None:
            errors.append(place.required())
        else:
            errors += label_selector(selector, place)
            labels = dig(spec, "template", "metadata", "labels")
            if not matches(selector, labels):
                at = path / "template" / "metadata" / "labels"
                errors.append(at.invalid(labels, "`selector` does not match template `labels`"))
    errors += template_spec(dig(spec, "template"), path / "template")
    policy, place = text(dig(spec, "template", "spec"), "restartPolicy"), path / "template" / "spec" / "restartPolicy"
    if policy == "Always":
        errors.append(place.not_supported(policy, _JOB_RESTART))
    return errors


def job_update(new: Object, old: Object, gates: Gates) -> Errors:
    """What a Job runs never changes; scheduling fields may while it is suspended and has not started."""
    spec, before, path = dig(new, "spec"), dig(old, "spec"), FieldPath("spec")
    errors: Errors = []
    elastic = spec.get("completionMode") == "Indexed" and spec.get("completions") == spec.get("parallelism")
    if not elastic:
        errors += immutable(spec.get("completions"), before.get("completions"), path / "completions")
    for field in ("selector", "completionMode", "podFailurePolicy", "backoffLimitPerIndex", "manualSelector"):
        errors += immutable(spec.get(field), before.get(field), path / field)
    template, earlier = dig(spec, "template"), dig(before, "template")
    if before.get("suspend") is True and not dig(old, "status").get("startTime"):
        template, earlier = _unscheduled(template), _unscheduled(earlier)
    if not same(template, earlier):
        errors.append((path / "template").invalid(dig(spec, "template"), "field is immutable"))
    return errors + _counts(spec, path, "parallelism", "completions", "activeDeadlineSeconds", "backoffLimit")


def _unscheduled(template: Object) -> Object:
    """A template without what a queue of jobs may set before the start (KEP-2926)."""
    spec = {
        field: value
        for field, value in dig(template, "spec").items()
        if field not in ("nodeSelector", "affinity", "tolerations", "schedulingGates")
    }
    meta = {field: v for field, v in dig(template, "metadata").items() if field not in ("labels", "annotations")}
    return {**template, "metadata": meta, "spec": spec}


def cron_job(obj: Object, gates: Gates) -> Errors:
    """A CronJob, new or changed."""
    spec, path = dig(obj, "spec"), FieldPath("spec")
    errors: Errors = []
    schedule = text(spec, "schedule")
    if not schedule:
        errors.append((path / "schedule").required())
    elif "TZ" in schedule:
        errors.append(
            (path / "schedule").invalid(schedule, "cannot use TZ or CRON_TZ in schedule, use timeZone field instead")
        )
    elif why := _schedule(schedule):
        errors.append((path / "schedule").invalid(schedule, why))
    policies = ("Allow", "Forbid", "Replace")
    errors += one_of(spec.get("concurrencyPolicy"), path / "concurrencyPolicy", policies)
    errors += _counts(spec, path, "startingDeadlineSeconds", "successfulJobsHistoryLimit", "failedJobsHistoryLimit")
    if len(text(dig(obj, "metadata"), "name")) > 52:
        place = FieldPath("metadata") / "name"
        errors.append(place.invalid(obj["metadata"]["name"], "must be no more than 52 characters"))
    return errors + _job_spec(dig(spec, "jobTemplate", "spec"), path / "jobTemplate" / "spec", selects=False)


def _schedule(text: str) -> str | None:
    if text in _SCHEDULE_NAMES or text.startswith("@every "):
        return None
    fields = text.split()
    if len(fields) != 5:
        return f"expected exactly 5 fields, found {len(fields)}: {fields}"
    allowed = set("0123456789*/,-?ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz")
    return next((f"failed to parse {field}" for field in fields if set(field) - allowed), None)


# ---- PodGroup and Workload (scheduling.k8s.io)


def pod_group(obj: Object, gates: Gates) -> Errors:
    """A PodGroup to be created."""
    return _group(dig(obj, "spec"), FieldPath("spec"))


def _group(spec: Object, path: FieldPath) -> Errors:
    policy, place = dig(spec, "schedulingPolicy"), path / "schedulingPolicy"
    given = [field for field in ("basic", "gang") if policy.get(field) is not None]
    errors: Errors = []
    if not given:
        errors.append(place.required("exactly one of `basic` or `gang` is required"))
    elif len(given) > 1:
        errors.append(place.invalid(None, "exactly one of `basic` or `gang` is required, but multiple fields are set"))
    if (gang := sub(policy, "gang")) is not None:
        count = number(gang, "minCount") or 0
        if count < 1:
            errors.append((place / "gang" / "minCount").invalid(count, "must be greater than or equal to 1"))
    if len(items(spec, "resourceClaims")) > GROUP_CLAIMS_MAX:
        errors.append((path / "resourceClaims").too_many(len(items(spec, "resourceClaims")), GROUP_CLAIMS_MAX))
    return errors + pod_claims(spec, path)


def pod_group_update(new: Object, old: Object, gates: Gates) -> Errors:
    """Policy and claims of a group never change."""
    spec, before, path = dig(new, "spec"), dig(old, "spec"), FieldPath("spec")
    fields = ("schedulingPolicy", "resourceClaims", "schedulingConstraints", "workloadRef")
    return [error for field in fields for error in immutable(spec.get(field), before.get(field), path / field)]


def pod_group_status_update(new: Object, old: Object, gates: Gates) -> Errors:
    """Claims made for the group belong to its entries."""
    known = {text(entry, "name") for entry in objects(dig(old, "spec"), "resourceClaims")}
    place = FieldPath("status") / "resourceClaimStatuses"
    detail = "must match the name of an entry in `spec.resourceClaims`"
    return [
        (place[index] / "name").invalid(entry.get("name") or "", detail)
        for index, entry in enumerate(objects(dig(new, "status"), "resourceClaimStatuses"))
        if text(entry, "name") not in known
    ]


def gang_workload(obj: Object, gates: Gates) -> Errors:
    """A Workload (templates of PodGroups) to be created."""
    spec, path = dig(obj, "spec"), FieldPath("spec")
    values, place = items(spec, "podGroupTemplates"), path / "podGroupTemplates"

    def one(value: Any, at: FieldPath) -> Errors:
        template = value if isinstance(value, dict) else {}
        return by_name(template.get("name"), at / "name", names.dns_label) + _group(template, at)

    errors = [] if values else [place.required("must have at least one item")]
    errors += each(values, place, one, limit=GROUP_TEMPLATES_MAX)
    return errors + unique(values, place, lambda v: v.get("name") if isinstance(v, dict) else None, "name")


def gang_workload_update(new: Object, old: Object, gates: Gates) -> Errors:
    """Templates never change."""
    field = "podGroupTemplates"
    return immutable(dig(new, "spec").get(field), dig(old, "spec").get(field), FieldPath("spec") / field)
