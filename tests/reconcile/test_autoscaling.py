"""How many replicas an autoscaler sets: usage, tolerance, pods that say nothing, bounds, policies, stabilization."""

from __future__ import annotations

from typing import Any

import pytest

from dragoman.api import codec
from dragoman.api.core import Pod
from dragoman.reconcile.autoscaling import limits
from dragoman.reconcile.autoscaling.limits import Memory
from dragoman.reconcile.autoscaling.replicas import (
    ContainerAmounts,
    NoReplicas,
    PodUsage,
    Tolerances,
    by_amount,
    by_utilization,
)
from dragoman.reconcile.autoscaling.step import ScaleDecision, ScaleInput, judged, settled
from dragoman.reconcile.workloads.pods import time_text

NOW = 1_800_000_000.0


def pod(name: str, *, cpu: str = "200m", phase: str = "Running", ready: bool = True, age_s: float = 3600) -> Pod:
    since = time_text(NOW - age_s)
    condition = {"type": "Ready", "status": str(ready), "lastTransitionTime": since}
    container = {"name": "main", "resources": {"requests": {"cpu": cpu}}}
    status = {"phase": phase, "startTime": since, "conditions": [condition]}
    meta = {"name": name, "namespace": "shop"}
    return codec.decode(Pod, {"metadata": meta, "spec": {"containers": [container]}, "status": status})


def used(name: str, cpu: int, *, at: float = NOW) -> PodUsage:
    return PodUsage(name, at, 15.0, (ContainerAmounts("main", {"cpu": cpu}),))


def utilization(pods: list[Pod], usages: list[PodUsage], target: int = 50, current: int | None = None) -> Any:
    return by_utilization(current or len(pods), target, "cpu", "", pods, usages, Tolerances(), NOW)


def test_replicas_follow_the_ratio_of_use_to_target() -> None:
    pods = [pod("a"), pod("b"), pod("c")]
    found = utilization(pods, [used("a", 200), used("b", 180), used("c", 220)])
    assert (found.replicas, found.utilization, found.average) == (6, 100, 200)


@pytest.mark.parametrize(("cpu", "replicas"), [(110, 2), (112, 3), (90, 2), (40, 1)])
def test_ten_percent_around_the_target_change_nothing(cpu: int, replicas: int) -> None:
    assert utilization([pod("a"), pod("b")], [used("a", cpu), used("b", cpu)]).replicas == replicas


def test_missing_pods_count_as_idle_when_there_is_too_much_work() -> None:
    pods = [pod("a"), pod("b"), pod("c")]
    # 100 percent on two pods; with the third at 0 it is 66 percent of 600m asked for: 1.32 times the target.
    assert utilization(pods, [used("a", 200), used("b", 200)]).replicas == 4


def test_missing_pods_count_as_busy_when_there_is_too_little_work() -> None:
    pods = [pod("a"), pod("b"), pod("c")]
    assert utilization(pods, [used("a", 20), used("b", 20)]).replicas == 3
    assert utilization([pod("a"), pod("b")], [used("a", 20), used("b", 20)]).replicas == 1


def test_pods_that_start_do_not_count() -> None:
    pods = [pod("a"), pod("new", age_s=10.0, ready=False)]
    found = utilization(pods, [used("a", 200), used("new", 2000)])
    assert found.utilization == 100
    assert found.replicas == 2  # 200 percent of the target over two pods, one of them idle


@pytest.mark.parametrize(
    ("pods", "usages", "message"),
    [
        ([], [used("a", 1)], "no pods returned by selector while calculating replica count"),
        (
            [pod("a")],
            [],
            "unable to get metrics for resource cpu: no metrics returned from resource metrics API",
        ),
        (
            [pod("a", phase="Pending")],
            [used("a", 1)],
            "did not receive metrics for targeted pods (pods might be unready)",
        ),
    ],
)
def test_what_cannot_be_measured_is_said_in_kubernetes_words(
    pods: list[Pod], usages: list[PodUsage], message: str
) -> None:
    with pytest.raises(NoReplicas) as raised:
        utilization(pods, usages, current=1)
    assert str(raised.value) == message


def test_a_pod_without_a_request_has_no_utilization() -> None:
    without = codec.decode(
        Pod,
        {
            "metadata": {"name": "bare"},
            "spec": {"containers": [{"name": "x"}]},
            "status": {
                "phase": "Running",
                "startTime": time_text(NOW - 900),
                "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": time_text(NOW - 900)}],
            },
        },
    )
    with pytest.raises(NoReplicas, match="missing request for cpu in container x of Pod bare"):
        utilization([without], [used("bare", 5)])


def test_plain_amounts() -> None:
    pods = [pod("a"), pod("b")]
    found = by_amount(2, 100, "cpu", "", pods, [used("a", 300), used("b", 100)], Tolerances(), NOW)
    assert (found.replicas, found.average, found.utilization) == (4, 200, None)


# ---- limits


def test_without_behavior_replicas_at_most_double_or_reach_four() -> None:
    spec = {"maxReplicas": 100}
    assert limits.limited(spec, Memory(), 1, 50, 1, NOW).replicas == 4
    allowed = limits.limited(spec, Memory(), 10, 50, 1, NOW)
    assert (allowed.replicas, allowed.limited, allowed.why[0]) == (20, True, "ScaleUpLimit")


def test_the_highest_recommendation_of_five_minutes_holds() -> None:
    spec, memory = {"maxReplicas": 100}, Memory()
    limits.limited(spec, memory, 8, 8, 1, NOW)
    soon = limits.limited(spec, memory, 8, 2, 1, NOW + 299)
    assert (soon.replicas, soon.able[0]) == (8, "ScaleDownStabilized")
    later = limits.limited(spec, memory, 8, 2, 1, NOW + 301)
    assert (later.replicas, later.able[0]) == (2, "ReadyForNewScale")


def behavior(**rules: Any) -> dict[str, Any]:
    every = {"type": "Percent", "value": 100, "periodSeconds": 15}
    up = {"stabilizationWindowSeconds": 0, "selectPolicy": "Max", "policies": [every]}
    return {
        "maxReplicas": 100,
        "behavior": {"scaleUp": up, "scaleDown": {"selectPolicy": "Max", "policies": [every]}, **rules},
    }


def test_policies_limit_what_changes_in_a_period() -> None:
    policy = {"type": "Pods", "value": 3, "periodSeconds": 60}
    spec = behavior(scaleUp={"stabilizationWindowSeconds": 0, "selectPolicy": "Max", "policies": [policy]})
    memory = Memory()
    assert limits.limited(spec, memory, 5, 50, 1, NOW).replicas == 8
    memory.changed(spec["behavior"], 5, 8, NOW)
    assert limits.limited(spec, memory, 8, 50, 1, NOW + 30).replicas == 8
    assert limits.limited(spec, memory, 8, 50, 1, NOW + 61).replicas == 11


def test_a_disabled_direction_stays() -> None:
    rules = {
        "stabilizationWindowSeconds": 0,
        "selectPolicy": "Disabled",
        "policies": [{"type": "Pods", "value": 1, "periodSeconds": 15}],
    }
    allowed = limits.limited(behavior(scaleDown=rules), Memory(), 9, 2, 1, NOW)
    assert (allowed.replicas, allowed.why[0]) == (9, "ScaleDownLimit")


# ---- a look


def scaler(metrics: list[dict[str, Any]] | None = None, **spec: Any) -> dict[str, Any]:
    target = {"type": "Utilization", "averageUtilization": 50}
    cpu = {"type": "Resource", "resource": {"name": "cpu", "target": target}}
    reference = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}
    whole = {"scaleTargetRef": reference, "maxReplicas": 10, "minReplicas": 1, "metrics": metrics or [cpu], **spec}
    return {"metadata": {"name": "web", "namespace": "shop", "generation": 3}, "spec": whole}


def look(
    hpa: dict[str, Any], replicas: int, cpu: int = 200, memory: Memory | None = None, **more: Any
) -> ScaleDecision:
    names = [f"web-{number}" for number in range(replicas)]
    scale = {"metadata": {}, "spec": {"replicas": replicas}, "status": {"selector": "app=web", "replicas": replicas}}
    world = ScaleInput(hpa, NOW, scale, "", [pod(n) for n in names], [used(n, cpu) for n in names], **more)
    memory = memory or Memory()
    return settled(world, memory, judged(world, memory))


def conditions(decision: ScaleDecision) -> dict[str, tuple[str, str]]:
    return {c["type"]: (c["status"], c["reason"]) for c in decision.status["conditions"]}


def test_a_look_sets_replicas_status_and_event() -> None:
    decision = look(scaler(), 2)
    assert decision.replicas == 4
    assert decision.events == [
        (
            "Normal",
            "SuccessfulRescale",
            "New size: 4; reason: cpu resource utilization (percentage of request) above target",
        )
    ]
    assert conditions(decision) == {
        "AbleToScale": ("True", "SucceededRescale"),
        "ScalingActive": ("True", "ValidMetricFound"),
        "ScalingLimited": ("False", "DesiredWithinRange"),
        "ScaledToZero": ("False", "NotScaledToZero"),
    }
    status = decision.status
    assert (status["currentReplicas"], status["desiredReplicas"], status["observedGeneration"]) == (2, 4, 3)
    now = {"averageUtilization": 100, "averageValue": "200m"}
    assert status["currentMetrics"] == [{"type": "Resource", "resource": {"name": "cpu", "current": now}}]


def test_a_second_look_with_the_same_outcome_changes_no_status() -> None:
    memory = Memory()
    first = look(scaler(), 2, 100, memory)
    assert first.replicas is None
    assert look({**scaler(), "status": first.status}, 2, 100, memory).status == first.status


def test_out_of_bounds_is_put_right_without_metrics() -> None:
    decision = look(scaler(maxReplicas=3), 8, 1)
    assert (decision.replicas, decision.reason) == (3, "Current number of replicas above Spec.MaxReplicas")
    decision = look(scaler(minReplicas=5), 2, 1)
    assert (decision.replicas, decision.reason) == (5, "Current number of replicas below Spec.MinReplicas")


def test_zero_replicas_turn_an_autoscaler_off() -> None:
    decision = look(scaler(), 0)
    assert decision.replicas is None
    assert conditions(decision)["ScalingActive"] == ("False", "ScalingDisabled")


@pytest.mark.parametrize(
    ("metric", "reason", "message"),
    [
        (
            {"type": "Pods", "pods": {"metric": {"name": "hits"}}},
            "FailedGetPodsMetric",
            "unable to get metric hits: unable to fetch metrics from custom metrics API: no custom metrics API "
            "(custom.metrics.k8s.io) registered",
        ),
        (
            {"type": "External", "external": {"metric": {"name": "queue"}}},
            "FailedGetExternalMetric",
            "unable to get external metric shop/queue/nil: unable to fetch metrics from external metrics API: the server "
            "could not find the requested resource (get queue.external.metrics.k8s.io)",
        ),
    ],
)
def test_metrics_of_apis_that_are_not_there(metric: dict[str, Any], reason: str, message: str) -> None:
    decision = look(scaler([metric]), 2)
    assert decision.replicas is None
    assert decision.events[0] == ("Warning", reason, message)
    assert decision.events[1][1] == "FailedComputeMetricsReplicas"
    assert conditions(decision)["ScalingActive"] == ("False", reason)


def test_one_metric_that_fails_does_not_keep_another_from_scaling_up_but_from_scaling_down() -> None:
    broken = {"type": "Pods", "pods": {"metric": {"name": "hits"}}}
    metrics = [*scaler()["spec"]["metrics"], broken]
    assert look(scaler(metrics), 2, 200).replicas == 4
    assert look(scaler(metrics), 4, 10).replicas is None


def test_two_autoscalers_of_the_same_pods_do_nothing() -> None:
    decision = look(scaler(), 2, rivals=["shop/other"])
    assert decision.replicas is None
    assert conditions(decision)["ScalingActive"] == ("False", "AmbiguousSelector")


def test_a_scale_that_cannot_be_written() -> None:
    world = ScaleInput(
        scaler(),
        NOW,
        {"metadata": {}, "spec": {"replicas": 1}, "status": {"selector": "a=b"}},
        "",
        [pod("x")],
        [used("x", 200)],
    )
    memory = Memory()
    decision = settled(world, memory, judged(world, memory), "quota says no")
    assert decision.events[-1][1] == "FailedRescale"
    assert conditions(decision)["AbleToScale"] == ("False", "FailedUpdateScale")
