"""How much do nodes and pods use now? The group metrics.k8s.io, answered from whoever runs pods in this process.

Nothing is stored: each request asks the hosts. Served once a host is there; `kubectl top` and the autoscaler read it.
Source: metrics.k8s.io/v1beta1 of k8s.io/metrics.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from typing import Final, Protocol

import msgspec

from dragoman.api.kinds import BY_NAME, Kind
from dragoman.api.meta import format_time
from dragoman.api.shape import Object
from dragoman.apiserver.printers.column import Printer, columns, name_of
from dragoman.apiserver.selectors import Requirements, accepts
from dragoman.apiserver.served import METRICS, METRICS_GROUP, METRICS_VERSION
from dragoman.apiserver.status import StatusError
from dragoman.apiserver.store import Store
from dragoman.values.quantity import BINARY_SI, Quantity

WINDOW_S: Final = 15


class ContainerUsage(msgspec.Struct, frozen=True):
    """What a container uses: billionths of a CPU, bytes of memory."""

    name: str
    cpu_nanos: int
    memory_bytes: int


class PodResourceUsage(msgspec.Struct, frozen=True):
    """A running pod."""

    namespace: str
    name: str
    node: str
    containers: tuple[ContainerUsage, ...]


class UsageHost(Protocol):
    """Somebody who runs pods."""

    def nodes(self) -> Iterable[ContainerUsage]:
        """The nodes by name, with what runs on them beside pods included."""
        ...

    def pods(self) -> Iterable[PodResourceUsage]:
        """The pods that run."""
        ...


class ResourceMetrics:
    """The objects of the group over a store."""

    def __init__(self, store: Store) -> None:
        self.hosts: list[UsageHost] = []
        self._store = store

    def listed(self, plural: str, namespace: str, labels: Requirements, now: float) -> list[Object]:
        """All of a resource whose objects have such labels, sorted by namespace and name."""
        found = sorted(self._objects(plural, now), key=lambda o: (o["metadata"].get("namespace", ""), _name(o)))
        return [
            obj
            for obj in found
            if namespace in ("", obj["metadata"].get("namespace", ""))
            and accepts(labels, obj["metadata"].get("labels") or {})
        ]

    def one(self, plural: str, namespace: str, name: str, now: float) -> Object:
        """The metrics of one object. Raises 404."""
        for obj in self._objects(plural, now):
            if _name(obj) == name and obj["metadata"].get("namespace", "") == namespace:
                return obj
        whole = f"{namespace}/{name}" if namespace else name
        details: Object = {"name": whole, "group": METRICS_GROUP, "kind": plural}
        raise StatusError(404, "NotFound", f'{plural}.{METRICS_GROUP} "{whole}" not found', details)

    def _objects(self, plural: str, now: float) -> Iterator[Object]:
        head = {"timestamp": format_time(datetime.fromtimestamp(now, UTC)), "window": f"{WINDOW_S}s"}
        for host in self.hosts:
            if plural == "nodes":
                for node in host.nodes():
                    if (meta := self._meta(BY_NAME["Node"], "", node.name, head)) is not None:
                        yield {**_typed(plural), "metadata": meta, **head, "usage": _usage(node)}
                continue
            for pod in host.pods():
                if (meta := self._meta(BY_NAME["Pod"], pod.namespace, pod.name, head)) is not None:
                    containers = [{"name": c.name, "usage": _usage(c)} for c in pod.containers]
                    yield {**_typed(plural), "metadata": meta, **head, "containers": containers}

    def _meta(self, kind: Kind, namespace: str, name: str, head: Object) -> Object | None:
        record = self._store.get(kind, namespace, name)
        if record is None:
            return None
        meta: Object = {"name": name, "creationTimestamp": head["timestamp"]}
        if namespace:
            meta["namespace"] = namespace
        if record.labels:
            meta["labels"] = dict(record.labels)
        return meta


PRINTER: Final = {
    "nodes": Printer(
        columns("Name", "CPU", "Memory", "Window"),
        lambda obj, now: [name_of(obj), obj["usage"]["cpu"], obj["usage"]["memory"], obj["window"]],
    ),
    "pods": Printer(
        columns("Name", "CPU", "Memory", "Window"),
        lambda obj, now: [name_of(obj), *(str(total) for total in totals(obj)), obj["window"]],
    ),
}


def totals(pod: Object) -> tuple[Quantity, Quantity]:
    """CPU and memory of all containers of a PodMetrics."""
    cpu, memory = Quantity(0), Quantity(0, BINARY_SI)
    for container in pod["containers"]:
        cpu += Quantity.parse(container["usage"]["cpu"])
        memory += Quantity.parse(container["usage"]["memory"])
    return cpu, memory


def _typed(plural: str) -> Object:
    return {"kind": METRICS[plural][0], "apiVersion": f"{METRICS_GROUP}/{METRICS_VERSION}"}


def _name(obj: Object) -> str:
    return str(obj["metadata"]["name"])


def _usage(used: ContainerUsage) -> Object:
    kibibytes = -(-used.memory_bytes // 1024)
    return {"cpu": f"{used.cpu_nanos}n" if used.cpu_nanos else "0", "memory": f"{kibibytes}Ki"}
