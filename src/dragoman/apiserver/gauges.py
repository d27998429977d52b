"""What does the API server show at /metrics? Requests as they are answered; objects and watches when asked.

Names are listed in docs/reference/api.md. Never computes anything on the way of a request but one counter.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from dragoman.api.admission import qualified
from dragoman.apiserver.store import Store

REQUESTS = "dragoman_apiserver_requests_total"


class StoreGauges(Collector):
    """Objects by resource, open watches, the store's version; computed on scrape."""

    def __init__(self, store: Store, watches: Callable[[], int]) -> None:
        self._store = store
        self._watches = watches

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
