"""Which numbers does this process show at /metrics? One registry for each process part; it never computes them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar, cast

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.metrics import MetricWrapperBase
from prometheus_client.registry import Collector

M = TypeVar("M", bound=MetricWrapperBase)
C = TypeVar("C", bound=Collector)

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
SECONDS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0)


class Metrics:
    """A registry; asking twice for a name gives the same metric, so that parts in one process share it."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._known: dict[str, MetricWrapperBase] = {}
        self._shared: dict[str, Collector] = {}

    def counter(self, name: str, help: str, labels: Sequence[str] = ()) -> Counter:
        """Only grows."""
        return self._metric(Counter, name, help, labels)

    def gauge(self, name: str, help: str, labels: Sequence[str] = ()) -> Gauge:
        """Goes up and down."""
        return self._metric(Gauge, name, help, labels)

    def histogram(
        self, name: str, help: str, labels: Sequence[str] = (), buckets: Sequence[float] = SECONDS
    ) -> Histogram:
        """A distribution, by default of seconds."""
        known = self._known.get(name)
        if known is None:
            known = Histogram(name, help, labels, registry=self.registry, buckets=buckets)
            self._known[name] = known
        assert isinstance(known, Histogram), f"{name} is no histogram"
        return known

    def collector(self, collector: Collector) -> None:
        """Compute on scrape."""
        self.registry.register(collector)

    def shared(self, name: str, make: Callable[[], C]) -> C:
        """A collector that several parts fill together: made when it is first asked for."""
        known = self._shared.get(name)
        if known is None:
            known = self._shared[name] = make()
            self.registry.register(known)
        return cast(C, known)

    def text(self) -> bytes:
        """The exposition format of Prometheus."""
        return generate_latest(self.registry)

    def _metric(self, kind: type[M], name: str, help: str, labels: Sequence[str]) -> M:
        known = self._known.get(name)
        if known is None:
            known = kind(name, help, labels, registry=self.registry)
            self._known[name] = known
        assert isinstance(known, kind), f"{name} is no {kind.__name__}"
        return known
