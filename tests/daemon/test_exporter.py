"""The exporter against the embedded API in process, in virtual time: values, restarts, failures, and nothing written."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from dragoman.api.kinds import kind_of
from dragoman.daemon.exporter import Exporter, ExporterSettings
from dragoman.daemon.scheduler import Scheduler
from dragoman.runtime.clock import Clock
from dragoman.runtime.metrics import Metrics
from dragoman.runtime.tasks import Tasks
from dragoman.testing.build import claim, device_class, gpus, node, pod
from dragoman.testing.loop import run
from tests.daemon.test_scheduler import Stage
from tests.ops.prometheus import promtool

EVENT = kind_of("Event")


class ReadOnly:
    """A client that may only list and watch."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner

    def __getattr__(self, name: str) -> Any:
        if name == "reach":  # no call: what the client knows of its connection
            raise AttributeError(name)
        assert name in ("list", "watch", "close"), f"{name} is not among its rights"
        return getattr(self._inner, name)


class Page:
    """What one exporter shows."""

    def __init__(self, metrics: Metrics) -> None:
        self.metrics = metrics

    def value(self, name: str, **labels: str) -> float | None:
        return self.metrics.registry.get_sample_value(name, labels)

    @property
    def text(self) -> str:
        return self.metrics.text().decode()


class Exporting:
    """Starts exporters on a stage."""

    def __init__(self, stage: Stage, tasks: Tasks) -> None:
        self.stage = stage
        self.tasks = tasks

    async def start(self, settings: ExporterSettings | None = None) -> Page:
        metrics = Metrics()
        client: Any = ReadOnly(self.stage.api)
        exporter = Exporter(client, self.stage.clock, self.stage.entropy, settings, metrics)
        self.tasks.supervise(f"exporter {id(exporter)}", exporter.run)

        async def ready() -> bool:
            return exporter.ready

        await self.stage.until(ready)
        return Page(metrics)

    def schedule(self) -> None:
        self.tasks.supervise("scheduler", Scheduler(self.stage.api, self.stage.clock, self.stage.entropy).run)


def staged(scenario: Callable[[Stage, Exporting], Awaitable[None]]) -> None:
    async def main(clock: Clock) -> None:
        stage = Stage(clock)
        async with Tasks("test", clock, stage.entropy) as tasks:
            await scenario(stage, Exporting(stage, tasks))
            tasks.stop()

    run(main)


async def failed(stage: Stage, name: str, count: int) -> None:
    """An event as kubelets write it."""
    body = {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": name, "namespace": "default"},
        "involvedObject": {"kind": "Pod", "namespace": "default", "name": "p"},
        "reason": "FailedPrepareDynamicResources",
        "type": "Warning",
        "count": count,
    }
    if count > 1:
        await stage.api.patch(EVENT, name, {"count": count}, "default")
    else:
        await stage.api.create(EVENT, body, "default")


def test_allocations_are_timed_once_and_not_again_after_a_restart() -> None:
    async def scenario(stage: Stage, exporting: Exporting) -> None:
        first = await exporting.start()
        await stage.apply(device_class(), node("a"), claim("early"), claim("train"))
        await stage.clock.sleep(600)
        await stage.apply(pod("p", "train"))
        await stage.clock.sleep(40)
        exporting.schedule()
        await stage.apply(gpus("a", 2))
        await stage.bound("p")
        await stage.clock.sleep(1)
        assert first.value("dra_allocation_duration_seconds_count") == 1
        spent = first.value("dra_allocation_duration_seconds_sum")
        assert spent is not None
        assert 39 <= spent <= 60, "from the pod, not from the claim that stood there before"
        second = await exporting.start()
        assert second.value("dra_allocation_duration_seconds_count") == 0
        assert second.value("dra_resource_claims_allocated") == first.value("dra_resource_claims_allocated") == 1
        assert second.value("dragoman_claims", state="unreferenced") == 1

    staged(scenario)


def test_ages_are_the_same_after_a_restart() -> None:
    async def scenario(stage: Stage, exporting: Exporting) -> None:
        await stage.apply(device_class(), node("a"), claim("train"), pod("p", "train"))
        first = await exporting.start()
        await stage.clock.sleep(310)
        second = await exporting.start()
        for page in (first, second):
            assert page.value("dragoman_claims_waiting", older_than="5m") == 1
            assert page.value("dragoman_claims_waiting", older_than="15m") == 0

    staged(scenario)


def test_failures_to_prepare_count_from_the_start_on() -> None:
    async def scenario(stage: Stage, exporting: Exporting) -> None:
        await failed(stage, "before", 1)
        await failed(stage, "before", 7)
        page = await exporting.start()
        await stage.clock.sleep(1)
        assert page.value("dra_plugin_errors_total") == 0
        await failed(stage, "before", 9)
        await failed(stage, "after", 1)
        await stage.clock.sleep(1)
        assert page.value("dra_plugin_errors_total") == 3
        again = await exporting.start()
        await stage.clock.sleep(1)
        assert again.value("dra_plugin_errors_total") == 0

    staged(scenario)


def test_why_pods_wait() -> None:
    async def scenario(stage: Stage, exporting: Exporting) -> None:
        await stage.apply(device_class(), node("a"), gpus("a", 1), claim("two", count=2), pod("p", "two"))
        await stage.apply(pod("held-back", schedulingGates=[{"name": "quota"}]), claim("one"), pod("fits", "one"))
        page = await exporting.start()
        page.text  # noqa: B018 - a scrape, which makes it ask
        await stage.clock.sleep(15)
        assert page.value("dragoman_pending_pods", reason="InsufficientDevices") == 1
        assert page.value("dragoman_pending_pods", reason="SchedulingGated") == 1
        assert page.value("dragoman_pending_pods", reason="Schedulable") == 1

    staged(scenario)


def test_names_of_namespaces_only_where_asked_for() -> None:
    async def scenario(stage: Stage, exporting: Exporting) -> None:
        exporting.schedule()
        await stage.api.create(
            kind_of("Namespace"), {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team-x"}}
        )
        await stage.apply(device_class(), node("a"), gpus("a", 1))
        await stage.apply(claim("their-claim", namespace="team-x"), pod("their-pod", "their-claim", namespace="team-x"))
        closed, open_ = await exporting.start(), await exporting.start(ExporterSettings(by_namespace=True))

        async def allocated() -> bool:
            return open_.value("dra_resource_claims_allocated") == 1

        await stage.until(allocated)
        assert "team-x" in open_.text
        assert "team-x" not in closed.text
        assert "their-" not in open_.text

    staged(scenario)


def test_nothing_is_shown_before_everything_is_known() -> None:
    metrics = Metrics()
    clock = Clock()
    Exporter(ReadOnly(None), clock, Stage(clock).entropy, None, metrics)  # type: ignore[arg-type]
    assert metrics.registry.get_sample_value("dragoman_exporter_synced") == 0
    assert "dra_" not in metrics.text().decode()


def test_page_passes_promtool() -> None:
    pages: list[str] = []

    async def scenario(stage: Stage, exporting: Exporting) -> None:
        await stage.apply(device_class(), node("a"), gpus("a", 3), claim("train"), pod("p", "train"))
        page = await exporting.start()
        page.text  # noqa: B018
        await stage.clock.sleep(15)
        pages.append(page.text)

    staged(scenario)
    # The one name that is against the conventions is one that platforms promise.
    kept = [line for line in pages[0].splitlines() if "dra_resource_claims_total" not in line]
    promtool("check", "metrics", stdin="\n".join(kept) + "\n")
