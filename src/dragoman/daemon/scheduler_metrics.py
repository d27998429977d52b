"""How does the scheduler do, under kube-scheduler's names? Attempts, their time, what waits in the queue.

Names, labels and buckets: pkg/scheduler/metrics/metrics.go of Kubernetes 1.37. There are no plugins here to be timed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from dragoman.runtime.metrics import Metrics
from dragoman.schedule.queue import QueuedUnit, UnitKey, UnitState

SCHEDULED, UNSCHEDULABLE, ERROR = "scheduled", "unschedulable", "error"
_QUEUES = {
    UnitState.QUEUED: "active",
    UnitState.DECIDING: "active",
    UnitState.BACKOFF: "backoff",
    UnitState.UNSCHEDULABLE: "unschedulable",
    UnitState.GATED: "gated",
}


def _exponential(first: float, factor: float, count: int) -> tuple[float, ...]:
    return tuple(first * factor**step for step in range(count))


class SchedulerMetrics:
    """The scheduler_ metrics of one scheduler. units: what is in its queue. pods: how many of a unit's wait."""

    def __init__(
        self, metrics: Metrics, units: Callable[[], Iterator[QueuedUnit]], pods: Callable[[UnitKey], int]
    ) -> None:
        labels = ["result", "profile"]
        self._attempts = metrics.counter(
            "scheduler_schedule_attempts_total",
            "Attempts to schedule pods by result: scheduled, unschedulable, or error (nothing was decided or written).",
            labels,
        )
        self._attempt_s = metrics.histogram(
            "scheduler_scheduling_attempt_duration_seconds",
            "Time of an attempt, decision and writes.",
            labels,
            _exponential(0.001, 2, 15),
        )
        self._algorithm_s = metrics.histogram(
            "scheduler_scheduling_algorithm_duration_seconds", "Time of a decision.", (), _exponential(0.001, 2, 15)
        )
        self._sli_s = metrics.histogram(
            "scheduler_pod_scheduling_sli_duration_seconds",
            "Time from a pod's arrival in the queue to its binding, by attempts (16 stands for more, too).",
            ["attempts"],
            _exponential(0.01, 2, 20),
        )
        self._tries = metrics.histogram(
            "scheduler_pod_scheduling_attempts", "Attempts until a pod was bound.", (), _exponential(1, 2, 5)
        )
        self._preemptions = metrics.counter("scheduler_preemption_attempts_total", "Preemptions that were decided on.")
        self._victims = metrics.histogram(
            "scheduler_preemption_victims", "Pods displaced by one preemption.", (), _exponential(1, 2, 7)
        )
        metrics.collector(_Queues(units, pods))

    def decided(self, seconds: float) -> None:
        """A decision took so long."""
        self._algorithm_s.observe(seconds)

    def ended(self, result: str, profile: str, seconds: float, pods: int = 1) -> None:
        """An attempt is over, for so many pods."""
        for _ in range(pods):
            self._attempts.labels(result, profile).inc()
            self._attempt_s.labels(result, profile).observe(seconds)

    def bound(self, seconds: float, attempts: int, pods: int = 1) -> None:
        """Pods are bound, so long after they came, with so many attempts."""
        for _ in range(pods):
            self._sli_s.labels(str(min(attempts, 16))).observe(seconds)
            self._tries.observe(attempts)

    def preempted(self, victims: int) -> None:
        """Room is made."""
        self._preemptions.inc()
        self._victims.observe(victims)


class _Queues(Collector):
    """What waits, counted when somebody asks."""

    def __init__(self, units: Callable[[], Iterator[QueuedUnit]], pods: Callable[[UnitKey], int]) -> None:
        self._units = units
        self._pods = pods

    def describe(self) -> Iterator[GaugeMetricFamily]:
        """Registered without counting."""
        return iter(())

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """scheduler_pending_pods and scheduler_queued_entities."""
        pods = dict.fromkeys(_QUEUES.values(), 0)
        entities = {(queue, kind): 0 for queue in pods for kind in ("pod", "podgroup")}
        for unit in self._units():
            queue = _QUEUES.get(unit.state)
            if queue is not None:
                pods[queue] += self._pods(unit.key)
                entities[queue, "pod" if unit.key[0] == "Pod" else "podgroup"] += 1
        pending = GaugeMetricFamily("scheduler_pending_pods", "Pods that wait, by queue.", labels=["queue"])
        for queue, number in pods.items():
            pending.add_metric([queue], number)
        yield pending
        queued = GaugeMetricFamily(
            "scheduler_queued_entities", "Pods alone and pod groups that wait, by queue.", labels=["queue", "type"]
        )
        for labels, number in entities.items():
            queued.add_metric(labels, number)
        yield queued
