"""What does an autoscaler do now? One look: the replicas to set, the status and the events that say why.

First `judged` from what was read, then `settled` once the new scale is written or refused.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import msgspec

from dragoman.api.core import Pod
from dragoman.api.shape import Object
from dragoman.reconcile.autoscaling import limits
from dragoman.reconcile.autoscaling.limits import Memory
from dragoman.reconcile.autoscaling.replicas import (
    NoReplicas,
    PodUsage,
    ReplicaProposal,
    Tolerances,
    by_amount,
    by_utilization,
)
from dragoman.reconcile.workloads.pods import time_text
from dragoman.values.quantity import BINARY_SI, DECIMAL_SI, Quantity

EventType = Literal["Normal", "Warning"]
_UNABLE = "the HPA was unable to compute the replica count: "
_SCALE = "the HPA controller was unable to get the target's current scale: "
_CUSTOM = "unable to fetch metrics from custom metrics API: no custom metrics API (custom.metrics.k8s.io) registered"
_NO_API = {
    "Pods": _CUSTOM,
    "Object": _CUSTOM,
    "External": "unable to fetch metrics from external metrics API: the server could not find the requested resource "
    "(get {name}.external.metrics.k8s.io)",
}


class ScaleInput(msgspec.Struct, frozen=True):
    """What was read for one look. scale: autoscaling/v1 Scale; no_scale: why there is none. rivals: other autoscalers
    whose selector has pods of this one, as namespace/name."""

    hpa: Object
    now: float
    scale: Object | None = None
    no_scale: str = ""
    pods: Sequence[Pod] = ()
    usages: Sequence[PodUsage] = ()
    rivals: Sequence[str] = ()


class ScaleDecision(msgspec.Struct):
    """What to do. replicas: None to leave the scale as it is. events: (type, reason, message)."""

    status: Object
    current: int = 0
    replicas: int | None = None
    reason: str = ""
    events: list[tuple[EventType, str, str]] = []


class _Conditions:
    def __init__(self, status: Object, now: float) -> None:
        self.now = now
        self.all: list[Object] = [dict(condition) for condition in status.get("conditions") or ()]

    def set(self, type_: str, status: bool, reason: str, message: str) -> None:
        value = "True" if status else "False"
        found = next((condition for condition in self.all if condition["type"] == type_), None)
        if found is None:
            found = {"type": type_, "status": ""}
            self.all.append(found)
        if found["status"] != value:
            found["lastTransitionTime"] = time_text(self.now)
        found |= {"status": value, "reason": reason, "message": message}

    def is_true(self, type_: str) -> bool:
        return any(c["type"] == type_ and c["status"] == "True" for c in self.all)


def judged(world: ScaleInput, memory: Memory) -> ScaleDecision:
    """The replicas to set. Changes the memory."""
    hpa, now = world.hpa, world.now
    spec, old = hpa["spec"], hpa.get("status") or {}
    decision = ScaleDecision(status=dict(old))
    conditions = _Conditions(old, now)
    decision.status["conditions"] = conditions.all
    if world.scale is None:
        decision.events.append(("Warning", "FailedGetScale", world.no_scale))
        conditions.set("AbleToScale", False, "FailedGetScale", _SCALE + world.no_scale)
        return decision
    conditions.set(
        "AbleToScale", True, "SucceededGetScale", "the HPA controller was able to get the target's current scale"
    )
    decision.current = current = int(world.scale["spec"].get("replicas") or 0)
    if not memory.recommended:
        memory.recommended.append((now, current))
    low = 1 if spec.get("minReplicas") is None else int(spec["minReplicas"])
    high = int(spec["maxReplicas"])
    if current == 0 and not (conditions.is_true("ScaledToZero") and (low != 0 or _reads_elsewhere(spec))):
        text = "scaling is disabled since the replica count of the target is zero"
        conditions.set("ScalingActive", False, "ScalingDisabled", text)
        _report(decision, world, 0, ())
        return decision
    if current > high:
        return _rescale(decision, world, high, "Current number of replicas above Spec.MaxReplicas", ())
    if 0 < current < low:
        return _rescale(decision, world, low, "Current number of replicas below Spec.MinReplicas", ())
    wanted, name, measured, fault = _measure(decision, conditions, world)
    if wanted < 0:
        _report(decision, world, int(old.get("desiredReplicas") or 0), measured)
        decision.events.append(("Warning", "FailedComputeMetricsReplicas", fault))
        return decision
    reason = ""
    if wanted > current:
        reason = f"{name} above target"
    elif wanted < current:
        reason = "All metrics below target"
    allowed = limits.limited(spec, memory, current, wanted, low, now)
    conditions.set("AbleToScale", True, *allowed.able)
    conditions.set("ScalingLimited", allowed.limited, *allowed.why)
    replicas = allowed.replicas
    if current == 0 and replicas < low:
        replicas, reason = low, reason or "Current number of replicas below Spec.MinReplicas"
    if replicas == current:
        _report(decision, world, current, measured)
        return decision
    return _rescale(decision, world, replicas, reason, measured)


def settled(world: ScaleInput, memory: Memory, decision: ScaleDecision, error: str = "") -> ScaleDecision:
    """The decision once its scale is written, or refused with an error."""
    if decision.replicas is None:
        return decision
    conditions = _Conditions(decision.status, world.now)
    decision.status["conditions"] = conditions.all
    size = f"New size: {decision.replicas}; reason: {decision.reason}"
    if error:
        decision.events.append(("Warning", "FailedRescale", f"{size}; error: {error}"))
        text = f"the HPA controller was unable to update the target scale: {error}"
        conditions.set("AbleToScale", False, "FailedUpdateScale", text)
        decision.status["desiredReplicas"] = int((world.hpa.get("status") or {}).get("desiredReplicas") or 0)
        return decision
    text = f"the HPA controller was able to update the target scale to {decision.replicas}"
    conditions.set("AbleToScale", True, "SucceededRescale", text)
    decision.events.append(("Normal", "SuccessfulRescale", size))
    spec = world.hpa["spec"]
    memory.changed(spec.get("behavior"), decision.current, decision.replicas, world.now)
    if decision.current > 0 and decision.replicas == 0 and spec.get("minReplicas") == 0 and _reads_elsewhere(spec):
        conditions.set("ScaledToZero", True, "ScaledToZero", "the HPA controller scaled the workload to zero")
    else:
        text = "the HPA controller did not scale the workload to zero"
        conditions.set("ScaledToZero", False, "NotScaledToZero", text)
    decision.status["lastScaleTime"] = time_text(world.now)
    return decision


def _rescale(
    decision: ScaleDecision, world: ScaleInput, replicas: int, reason: str, measured: Sequence[Object]
) -> ScaleDecision:
    decision.replicas, decision.reason = replicas, reason
    _report(decision, world, replicas, measured)
    return decision


def _report(decision: ScaleDecision, world: ScaleInput, desired: int, measured: Sequence[Object]) -> None:
    status = decision.status
    status |= {"currentReplicas": decision.current, "desiredReplicas": desired}
    status["observedGeneration"] = world.hpa["metadata"].get("generation", 0)
    status["currentMetrics"] = list(measured) or None


def _reads_elsewhere(spec: Any) -> bool:
    """Whether a metric does not come from the pods themselves."""
    return any(metric.get("type") in ("Object", "External") for metric in spec.get("metrics") or ())


# ---- metrics


def _measure(decision: ScaleDecision, conditions: _Conditions, world: ScaleInput) -> tuple[int, str, list[Object], str]:
    """(replicas or -1, which metric asked for them, statuses, what went wrong)."""
    assert world.scale is not None
    text = (world.scale.get("status") or {}).get("selector") or ""
    if not text:
        decision.events.append(("Warning", "SelectorRequired", "selector is required"))
        conditions.set("ScalingActive", False, "InvalidSelector", "the HPA target's scale is missing a selector")
        return -1, "", [], "selector is required"
    if world.rivals:
        own = f"{world.hpa['metadata']['namespace']}/{world.hpa['metadata']['name']}"
        named = " ".join([own, *world.rivals][:2])
        fault = f"pods by selector {text} are controlled by more than one HPA (e.g. [{named}])"
        decision.events.append(("Warning", "AmbiguousSelector", fault))
        conditions.set("ScalingActive", False, "AmbiguousSelector", fault)
        return -1, "", [], fault
    metrics = world.hpa["spec"].get("metrics") or []
    statuses: list[Object] = []
    faults: list[tuple[str, str, str]] = []
    replicas, name = 0, ""
    for metric in metrics:
        try:
            proposal, proposed, status = _of_metric(metric, world, decision.current)
        except _Unmeasured as fault:
            faults.append((fault.reason, fault.message, fault.whole))
            decision.events.append(("Warning", fault.reason, fault.message))
            statuses.append({"type": ""})
            continue
        statuses.append(status)
        if replicas == 0 or proposal.replicas > replicas:
            replicas, name = proposal.replicas, proposed
    whole = (
        f"invalid metrics ({len(faults)} invalid out of {len(metrics)}), first error is: {faults[0][2]}"
        if faults
        else ""
    )
    if len(faults) >= len(metrics) or (faults and replicas < decision.current):
        reason, message = (faults[0][0], _UNABLE + faults[0][1]) if faults else ("InvalidMetricSourceType", _UNABLE)
        conditions.set("ScalingActive", False, reason, message)
        return -1, "", statuses, whole
    conditions.set(
        "ScalingActive",
        True,
        "ValidMetricFound",
        f"the HPA was able to successfully calculate a replica count from {name}",
    )
    return replicas, name, statuses, ""


class _Unmeasured(Exception):
    """reason of the condition, what went wrong, and the same with the metric in front."""

    def __init__(self, reason: str, message: str, whole: str) -> None:
        super().__init__(message)
        self.reason, self.message, self.whole = reason, message, whole


def _of_metric(metric: Any, world: ScaleInput, current: int) -> tuple[ReplicaProposal, str, Object]:
    """(what it asks for, its name in events, its status)."""
    match metric.get("type"):
        case "Resource":
            source = metric["resource"]
            what = f"failed to get {source['name']} resource metric value"
            return _of_resource("Resource", "resource", "FailedGetResourceMetric", what, source, "", world, current)
        case "ContainerResource":
            source = metric["containerResource"]
            container = source["container"]
            what = f"failed to get {container} container metric value"
            reason = "FailedGetContainerResourceMetric"
            return _of_resource(
                "ContainerResource", "containerResource", reason, what, source, container, world, current
            )
        case "Pods" | "Object" | "External" as kind:
            raise _absent(kind, metric, world)
        case other:
            text = f'unknown metric source type "{other}"'
            raise _Unmeasured("InvalidMetricSourceType", text, text)


def _of_resource(
    type_: str, field: str, reason: str, what: str, source: Any, container: str, world: ScaleInput, current: int
) -> tuple[ReplicaProposal, str, Object]:
    resource, target = source["name"], source.get("target") or {}
    average, percent = target.get("averageValue"), target.get("averageUtilization")
    tolerances = tolerances_of(world.hpa["spec"].get("behavior") or {})
    name = f"{resource} resource"
    try:
        if average is not None:
            how = f"failed to get {resource} usage"
            goal = Quantity.parse(average).milli()
            proposal = by_amount(current, goal, resource, container, world.pods, world.usages, tolerances, world.now)
        elif percent is not None:
            how = f"failed to get {resource} utilization"
            name = f"{resource} {'container ' if container else ''}resource utilization (percentage of request)"
            proposal = by_utilization(
                current, percent, resource, container, world.pods, world.usages, tolerances, world.now
            )
        else:
            text = (
                "invalid resource metric source: neither an average utilization target nor an average value (usage) "
                "target was set"
            )
            raise _Unmeasured(reason, text, f"{what}: {text}")
    except NoReplicas as error:
        raise _Unmeasured(reason, f"{how}: {error}", f"{what}: {how}: {error}") from None
    form = BINARY_SI if resource == "memory" else DECIMAL_SI
    now: Object = {"averageValue": str(Quantity(proposal.average * 10**6, form))}
    if proposal.utilization is not None:
        now["averageUtilization"] = proposal.utilization
    status: Object = {"name": resource, "current": now}
    if container:
        status["container"] = container
    return proposal, name, {"type": type_, field: status}


def _absent(kind: str, metric: Any, world: ScaleInput) -> _Unmeasured:
    """A metric of an API that the cluster does not serve."""
    source: Mapping[str, Any] = metric.get(kind.lower()) or {}
    name, space = (source.get("metric") or {}).get("name", ""), world.hpa["metadata"].get("namespace", "")
    why = _NO_API[kind].format(name=name)
    if kind == "Pods":
        return _Unmeasured(
            "FailedGetPodsMetric",
            f"unable to get metric {name}: {why}",
            f"failed to get pods metric value: unable to get metric {name}: {why}",
        )
    if kind == "Object":
        about = source.get("describedObject") or {}
        text = f"unable to get metric {name} on {about.get('kind')} {space}/{about.get('name')}: {why}"
        return _Unmeasured("FailedGetObjectMetric", text, f"failed to get object metric value: {text}")
    text = f"unable to get external metric {space}/{name}/nil: {why}"
    whole = f"failed to get {name} external metric value: {text}"
    return _Unmeasured("FailedGetExternalMetric", text, whole)


def tolerances_of(behavior: Mapping[str, Any]) -> Tolerances:
    """Those of an autoscaler, 10 percent where it says nothing."""
    found = {}
    for field, side in (("scaleDown", "down"), ("scaleUp", "up")):
        text = (behavior.get(field) or {}).get("tolerance")
        if text is not None:
            found[side] = Quantity.parse(text).as_float()
    return Tolerances(**found)
