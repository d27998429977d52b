"""Where do objects hold the specs of pods, and which of its devices does each container of a pod have?

Device plugins give an init container devices that the containers after it have again: a pod needs the larger of the two
sums. In DRA containers share what they name, so the devices are cut into requests along the containers' bounds.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any, NamedTuple

import msgspec

from dragoman.migrate.resources import DeviceKind, PluginUse
from dragoman.migrate.yamledit import Path

TEMPLATES: dict[str, Path] = {
    "Pod": ("spec",),
    "PodTemplate": ("template", "spec"),
    "Deployment": ("spec", "template", "spec"),
    "StatefulSet": ("spec", "template", "spec"),
    "DaemonSet": ("spec", "template", "spec"),
    "ReplicaSet": ("spec", "template", "spec"),
    "ReplicationController": ("spec", "template", "spec"),
    "Job": ("spec", "template", "spec"),
    "CronJob": ("spec", "jobTemplate", "spec", "template", "spec"),
}
LISTS = ("initContainers", "containers")


def specs(value: dict[str, Any]) -> Iterator[Path]:
    """Paths of the pod specs in an object: of kinds that are known, and of others whatever has
    `template.spec.containers` (JobSet, PyTorchJob, RayCluster, LeaderWorkerSet, ...)."""
    path = TEMPLATES.get(str(value.get("kind")))
    if path is not None:
        spec = at(value, path)
        if isinstance(spec, dict) and isinstance(spec.get("containers"), list):
            yield path
        return
    yield from _templates(value, ())


def _templates(value: Any, path: Path) -> Iterator[Path]:
    if isinstance(value, list):
        for number, inner in enumerate(value):
            yield from _templates(inner, (*path, number))
    elif isinstance(value, dict):
        for key, inner in value.items():
            spec = inner.get("spec") if isinstance(inner, dict) else None
            if "emplate" in key and isinstance(spec, dict) and isinstance(spec.get("containers"), list):
                yield (*path, key, "spec")
            else:
                yield from _templates(inner, (*path, key))


def containers(spec: dict[str, Any]) -> Iterator[tuple[Path, dict[str, Any]]]:
    """Init containers and containers with their paths, in the order in which they start."""
    for name in LISTS:
        listed = spec.get(name)
        for number, container in enumerate(listed if isinstance(listed, list) else ()):
            if isinstance(container, dict):
                yield (name, number), container


def at(value: Any, path: Path) -> Any:
    """The value at the path, None where there is none."""
    for step in path:
        try:
            value = value[step]
        except (KeyError, IndexError, TypeError):
            return None
    return value


class DeviceRange(NamedTuple):
    """A container's devices of one kind: those from start up to end, of all of the pod in a row."""

    container: Path
    name: str
    start: int
    end: int


def spans(spec: dict[str, Any], counts: dict[Path, int]) -> list[DeviceRange]:
    """Which devices each container has, as the kubelet shares them between init and other containers."""
    found, held = [], 0
    for path, container in containers(spec):
        count = counts.get(path, 0)
        if not count:
            continue
        found.append(DeviceRange(path, str(container.get("name", "")), held, held + count))
        if path[0] == "containers" or container.get("restartPolicy") == "Always":
            held += count
    return found


class SharedDevices(msgspec.Struct, frozen=True):
    """Devices that the same containers have: one request. name: of the request."""

    name: str
    count: int
    containers: tuple[Path, ...]


def segments(kind: DeviceKind, found: list[DeviceRange]) -> list[SharedDevices]:
    """The requests that give each container exactly its devices."""
    cuts = sorted({bound for span in found for bound in (span.start, span.end)})
    parts = []
    for start, end in pairwise(cuts):
        having = [span for span in found if span.start <= start and end <= span.end]
        parts.append((end - start, having))
    if len(parts) == 1:
        count, having = parts[0]
        return [SharedDevices(kind.base, count, tuple(span.container for span in having))]
    alone = {span.container: sum(span in having for _, having in parts) for span in found}
    made = []
    for number, (count, having) in enumerate(parts):
        single = len(having) == 1 and alone[having[0].container] == 1 and having[0].container[0] == "containers"
        name = having[0].name if single else f"{kind.base}-{number}"
        made.append(SharedDevices(name, count, tuple(span.container for span in having)))
    return made


def by_kind(found: dict[Path, list[PluginUse]]) -> dict[DeviceKind, dict[Path, int]]:
    """Devices per container of each kind, kinds in the order in which they appear."""
    kinds: dict[DeviceKind, dict[Path, int]] = {}
    for path, asked in found.items():
        for ask in asked:
            counts = kinds.setdefault(ask.kind, {})
            counts[path] = counts.get(path, 0) + ask.count
    return kinds
