"""Does this pod fit on this node, whoever sent it here? What a kubelet checks before it starts anything.

The scheduler has decided that before; pods with a nodeName of their own come unasked. Extended resources that the node
does not have are not counted, since DRA may serve them (KEP-5004). Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, cast

import msgspec

from dragoman.kubelet.plugin_devices import PluginDevices
from dragoman.kubelet.pod import KubeletPod
from dragoman.snapshot.usage import pod_requests
from dragoman.values.quantity import Quantity

ORDER = ("pods", "cpu", "memory", "ephemeral-storage")
NANO, MILLI_NANO = 10**9, 10**6


class Rejected(msgspec.Struct, frozen=True):
    """Why the pod fails: reason and message as a kubelet writes them."""

    reason: str
    message: str


def unexpected(error: Exception) -> Rejected:
    """A pod whose devices cannot be allocated."""
    text = f"Pod was rejected: Allocate failed due to {error}, which is unexpected"
    return Rejected("UnexpectedAdmissionError", text)


def rejection(
    pod: KubeletPod,
    others: Iterable[KubeletPod],
    capacity: Mapping[str, str],
    devices: PluginDevices | None = None,
) -> Rejected | None:
    """None if the pod fits beside the others that the node has admitted. devices: of device plugins, beside capacity;
    those that pods of the node have count also when their plugin has gone."""
    if devices is not None:
        counts, used_devices = devices.allocatable(), devices.used()
        plugged = {name: max(counts.get(name, 0), used_devices.get(name, 0)) for name in counts.keys() | used_devices}
        # A resource that is gone is one that the node does not have: DRA may serve it.
        capacity = {**capacity, **{name: str(count) for name, count in plugged.items() if devices.serves(name)}}
    wanted = pod_requests(cast(Any, pod))
    used: dict[str, int] = {}
    for other in others:
        for name, nanos in pod_requests(cast(Any, other)).items():
            used[name] = used.get(name, 0) + nanos
    for name in sorted(wanted, key=lambda name: (ORDER.index(name) if name in ORDER else len(ORDER), name)):
        if name not in capacity or not wanted[name]:
            continue
        total = Quantity.parse(capacity[name]).nanos
        if wanted[name] + used.get(name, 0) > total:
            numbers = (_shown(name, nanos) for nanos in (wanted[name], used.get(name, 0), total))
            requested, in_use, whole = numbers
            text = (
                f"Node didn't have enough resource: {name}, requested: {requested}, used: {in_use}, capacity: {whole}"
            )
            return Rejected(f"OutOf{name}", f"Pod was rejected: {text}")
    return None


def _shown(name: str, nanos: int) -> int:
    # The kubelet counts cpu in thousandths and everything else whole.
    return -(-nanos // (MILLI_NANO if name == "cpu" else NANO))
