"""Which GPUs are in use by the other way of giving them to containers? Device plugin and DRA driver on one node.

Both ask the kubelet, which alone knows what runs: its podresources service. While that does not answer, its checkpoint
counts for what may be in use. Decides nothing and changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from grpc import aio

from dragoman.drivers.nvidia.classes import GPU
from dragoman.drivers.nvidia.device_plugin.config import PREFIX
from dragoman.drivers.nvidia.device_plugin.resources import physical
from dragoman.drivers.nvidia.devices import mig_name
from dragoman.drivers.nvidia.hardware import Hardware
from dragoman.errors import Invalid, Retry
from dragoman.kubelet import device_checkpoint, state
from dragoman.kubelet.podresources import SOCKET
from dragoman.node import rpc
from dragoman.node.device_plugin import FOLDER
from dragoman.profiles.mig import PlacedInstance

TIMEOUT_S = 5.0


async def held_by_plugin(root: Path) -> frozenset[str]:
    """UUIDs of GPUs and MIG devices that containers have from a device plugin of NVIDIA resources.

    Costs nothing where no such plugin has ever given anything away.
    """
    path = root / FOLDER / device_checkpoint.FILE
    try:
        record = device_checkpoint.read_of_any(path)
    except Invalid:
        record = None
    else:
        if record is None:
            return frozenset()
    recorded = {
        physical(id_)
        for entry in (record.pod_device_entries if record else ())
        if entry.resource_name.startswith(PREFIX)
        for id_ in entry.devices
    }
    if record is not None and not recorded:
        return frozenset()
    pods = await _pods(root)
    if pods is None:
        return frozenset(recorded)
    return frozenset(
        physical(id_)
        for pod in pods
        for container in pod.containers
        for devices in container.devices
        if devices.resource_name.startswith(PREFIX)
        for id_ in devices.device_ids
    )


async def served_by_plugin(root: Path) -> frozenset[str]:
    """UUIDs of GPUs and MIG devices that a device plugin offers on this node now."""
    if not (root / FOLDER / device_checkpoint.FILE).exists():
        return frozenset()
    request = rpc.POD_RESOURCES.messages.AllocatableResourcesRequest()
    answer = await _asked(root, "GetAllocatableResources", request)
    return frozenset(
        physical(id_)
        for devices in (answer.devices if answer is not None else ())
        if devices.resource_name.startswith(PREFIX)
        for id_ in devices.device_ids
    )


async def held_by_claims(root: Path, hardware: Hardware) -> frozenset[str]:
    """UUIDs of GPUs and MIG devices that claims of the DRA driver have or are about to get, by the kubelet's record.

    A GPU of which a MIG device is held counts as held itself. All, where the record cannot be read.
    """
    try:
        names = state.devices_of(root / state.FILE, GPU)
    except Invalid:
        names = None
    return frozenset(_uuids(hardware, names))


def _uuids(hardware: Hardware, names: frozenset[str] | None) -> Iterator[str]:
    if names is not None and not names:
        return
    for gpu in hardware.gpus():
        if names is None or f"gpu-{gpu.minor}" in names:
            yield gpu.uuid
        try:
            instances = hardware.instances(gpu.uuid)
        except Retry:
            continue
        for instance in instances:
            if names is None or mig_name(gpu, PlacedInstance(instance.shape, instance.start)) in names:
                yield instance.uuid
                yield gpu.uuid


async def _pods(root: Path) -> list[Any] | None:
    """What the kubelet says of its pods; None while it does not answer."""
    answer = await _asked(root, "List", rpc.POD_RESOURCES.messages.ListPodResourcesRequest())
    return list(answer.pod_resources) if answer is not None else None


async def _asked(root: Path, method: str, request: Any) -> Any:
    socket = root / SOCKET
    if not socket.exists():
        return None
    async with rpc.dial(socket) as channel:
        try:
            return await rpc.call(channel, rpc.POD_RESOURCES, method, request, timeout_s=TIMEOUT_S)
        except aio.AioRpcError:
            return None
