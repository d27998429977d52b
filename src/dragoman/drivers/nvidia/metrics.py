"""How is the driver doing? `nvidia_dra_*`, by upstream's names.

Successes are counted and timed, errors counted by type. It never decides anything.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from dragoman.runtime.clock import Clock
from dragoman.runtime.metrics import Metrics

BUCKETS = tuple(0.05 * 2**step for step in range(9))


class Measures:
    """The metrics of one driver on one node."""

    def __init__(self, metrics: Metrics, clock: Clock, driver: str, node_name: str) -> None:
        labels = ["driver", "operation"]
        self._clock = clock
        self._driver = driver
        self._node = node_name
        self._requests = metrics.counter("nvidia_dra_requests_total", "Successful requests.", labels)
        self._seconds = metrics.histogram(
            "nvidia_dra_request_duration_seconds", "Time of successful requests.", labels, BUCKETS
        )
        self._inflight = metrics.gauge("nvidia_dra_requests_inflight", "Requests under way.", labels)
        self._prepared = metrics.gauge(
            "nvidia_dra_prepared_devices", "Devices that are prepared.", ["node", "driver", "device_type"]
        )
        errors = ["driver", "error_type"]
        self._errors = {
            "prepare": metrics.counter("nvidia_dra_node_prepare_errors_total", "Failed preparations.", errors),
            "unprepare": metrics.counter("nvidia_dra_node_unprepare_errors_total", "Failed unpreparations.", errors),
        }
        self._reported: dict[str, int] = {}

    @contextmanager
    def operation(self, name: str) -> Iterator[None]:
        """Measure one prepare or unprepare."""
        inflight = self._inflight.labels(self._driver, name)
        began = self._clock.monotonic()
        inflight.inc()
        try:
            yield
        except Exception:
            self._errors[name].labels(self._driver, f"{name}_devices").inc()
            raise
        finally:
            inflight.dec()
        self._requests.labels(self._driver, name).inc()
        self._seconds.labels(self._driver, name).observe(self._clock.monotonic() - began)

    def prepared(self, counts: Mapping[str, int]) -> None:
        """How many devices are prepared, by type; types never seen get no series."""
        for kind, count in counts.items():
            if count != self._reported.get(kind, 0):
                self._reported[kind] = count
                self._prepared.labels(self._node, self._driver, kind).set(count)
