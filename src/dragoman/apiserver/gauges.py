"""What does the API server show at /metrics? Requests as they are answered; objects and watches when asked.

Names are listed in docs/reference/api.md. Never computes anything on the way of a request but one counter.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from dragoman.api.admission import qualified
from dragoman.api.gates import GATES, Gates, stage
from dragoman.apiserver.store import Store

REQUESTS = "dragoman_apiserver_requests_total"


class StoreGauges(Collector):
    """Objects by resource, open watches, the store's version; computed on scrape."""

    def __init__(self, store: Store, watches: Callable[[], int], gates: Gates) -> None:
        self._store = store
        self._watches = watches
        self._gates = gates

    def collect(self) -> Iterator[Metric]:
        """The families."""
        objects = GaugeMetricFamily("dragoman_apiserver_objects", "Stored objects.", labels=["resource"])
        store = self._store
        for shelf in sorted(store.shelves(), key=lambda shelf: qualified(shelf.kind)):
            objects.add_metric([qualified(shelf.kind)], len(shelf.records))
        yield objects
        watches = GaugeMetricFamily("dragoman_apiserver_watches", "Open watches over HTTP.")
        watches.add_metric([], self._watches())
        yield watches
        version = GaugeMetricFamily("dragoman_apiserver_version", "The newest resourceVersion.")
        version.add_metric([], store.version)
        yield version
        features = GaugeMetricFamily(
            "kubernetes_feature_enabled",
            "[BETA] This metric records the data about the stage and enablement of a k8s feature.",
            labels=["name", "stage"],
        )
        for name in sorted(GATES):
            features.add_metric([name, stage(name)], float(self._gates.on(name)))
        yield features
