"""The scheduler's metrics under kube-scheduler's names, in virtual time."""

from __future__ import annotations

from dragoman.runtime.metrics import Metrics
from dragoman.testing.build import claim, device_class, gpus, node, pod
from tests.daemon.test_scheduler import Stage, staged
from tests.ops.prometheus import promtool


def test_attempts_and_queues() -> None:
    metrics = Metrics()

    def value(name: str, **labels: str) -> float | None:
        return metrics.registry.get_sample_value(name, labels)

    profile = {"profile": "default-scheduler"}

    async def scenario(stage: Stage) -> None:
        await stage.apply(device_class(), node("a"), claim("train"), pod("p", "train"))
        await stage.apply(pod("gated", schedulingGates=[{"name": "quota"}]))
        await stage.event("FailedScheduling", "p")
        await stage.clock.sleep(1)
        assert value("scheduler_schedule_attempts_total", result="unschedulable", **profile) == 1
        assert value("scheduler_pending_pods", queue="unschedulable") == 1
        assert value("scheduler_pending_pods", queue="gated") == 1
        assert value("scheduler_queued_entities", queue="unschedulable", type="pod") == 1
        assert value("scheduler_pod_scheduling_sli_duration_seconds_count", attempts="2") is None
        await stage.clock.sleep(20)
        await stage.apply(gpus("a", 1))
        await stage.bound("p")
        await stage.clock.sleep(1)
        assert value("scheduler_schedule_attempts_total", result="scheduled", **profile) == 1
        assert value("scheduler_pod_scheduling_attempts_sum") == 2
        sli = value("scheduler_pod_scheduling_sli_duration_seconds_sum", attempts="2")
        assert sli is not None
        assert 20 <= sli <= 40
        assert value("scheduler_pending_pods", queue="unschedulable") == 0
        assert value("scheduler_scheduling_algorithm_duration_seconds_count") == 2
        assert value("scheduler_scheduling_attempt_duration_seconds_count", result="scheduled", **profile) == 1

    staged(scenario, metrics=metrics)
    lines = [line for line in metrics.text().decode().splitlines() if "scheduler" in line]
    promtool("check", "metrics", stdin="\n".join(lines) + "\n")
