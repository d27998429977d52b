"""What does the API server show at /metrics? Requests as they are answered; objects and watches when asked.

Names are listed in docs/reference/api.md. Never computes anything on the way of a request but one counter.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from dragoman.api.admission import qualified

if TYPE_CHECKING:
    from dragoman.apiserver.app import App

REQUESTS = "dragoman_apiserver_requests_total"


class StoreGauges(Collector):
    """Objects by resource, open watches, the store's version; computed on scrape."""

    def __init__(self, app: App) -> None:
        self._app = app

    def collect(self) -> Iterator[Metric]:
        """The families."""
        objects = GaugeMetricFamily("dragoman_apiserver_objects", "Stored objects.", labels=["resource"])
        store = self._app.registry.store
        for shelf in sorted(store.shelves(), key=lambda shelf: qualified(shelf.kind)):
            objects.add_metric([qualified(shelf.kind)], len(shelf.records))
        yield objects
        watches = GaugeMetricFamily("dragoman_apiserver_watches", "Open watches over HTTP.")
        watches.add_metric([], len(self._app.handlers.streams))
        yield watches
        version = GaugeMetricFamily("dragoman_apiserver_version", "The newest resourceVersion.")
        version.add_metric([], store.version)
        yield version
