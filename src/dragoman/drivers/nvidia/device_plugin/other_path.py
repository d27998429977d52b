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
from dragoman.errors import Denied, Invalid, Retry
from dragoman.kubelet import device_checkpoint, state
from dragoman.kubelet.podresources import SOCKET
from dragoman.node import rpc
from dragoman.node.device_plugin import FOLDER
from dragoman.node.paths import PLUGINS_REGISTRY
from dragoman.profiles.mig import PlacedInstance
from dragoman.runtime.clock import Clock

TIMEOUT_S = 5.0
SURE_S = 15.0
"""So long a kubelet must have left out what its checkpoint names before that counts as free."""


class PluginHolds:
    """What containers have from a device plugin, remembered between looks.

    A kubelet that has just started does not know its pods yet: what its checkpoint names counts as free only when the
    kubelet has left it out of its answers for a while. Costs nothing where no plugin has given anything away.
    """

    def __init__(self, root: Path, clock: Clock) -> None:
        self.root = root
        self.clock = clock
        self._missing: dict[str, float] = {}

    @property
    def may_hold(self) -> bool:
        """Whether a device plugin was ever here."""
        return (self.root / FOLDER / device_checkpoint.FILE).exists()

    async def held(self) -> frozenset[str]:
        """UUIDs of GPUs and MIG devices that are in use."""
        recorded = _recorded(self.root)
        if recorded is not None and not recorded:
            self._missing.clear()
            return frozenset()
        pods = await pods_of(self.root)
        if pods is None:
            return recorded or frozenset()
        listed = {
            physical(id_)
            for pod in pods
            for container in pod.containers
            for devices in container.devices
            if devices.resource_name.startswith(PREFIX)
            for id_ in devices.device_ids
        }
        now = self.clock.monotonic()
        left_out = (recorded or frozenset()) - listed
        self._missing = {uuid: self._missing.get(uuid, now) for uuid in left_out}
        return frozenset(listed | {uuid for uuid, since in self._missing.items() if now - since < SURE_S})


def _recorded(root: Path) -> frozenset[str] | None:
    """What the kubelet's checkpoint says that plugins of NVIDIA resources gave away; None if it cannot be read."""
    try:
        record = device_checkpoint.read_of_any(root / FOLDER / device_checkpoint.FILE)
    except Invalid:
        return None
    return frozenset(
        physical(id_)
        for entry in (record.pod_device_entries if record else ())
        if entry.resource_name.startswith(PREFIX)
        for id_ in entry.devices
    )


async def users_of_plugins(root: Path) -> dict[str, str]:
    """`pod NAMESPACE/NAME` by UUID of what it has from a device plugin, as far as the kubelet answers."""
    return {
        physical(id_): f"pod {pod.namespace}/{pod.name}"
        for pod in await pods_of(root) or ()
        for container in pod.containers
        for devices in container.devices
        if devices.resource_name.startswith(PREFIX)
        for id_ in devices.device_ids
    }


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


async def refuse_plugin(root: Path) -> None:
    """Whether a device plugin of NVIDIA resources serves this node. Raises Denied."""
    if served := await served_by_plugin(root):
        shown = ", ".join(sorted(served)[:3]) + (", ..." if len(served) > 3 else "")
        raise Denied(
            f"a device plugin offers GPUs of this node ({shown}): a GPU must never be given to containers in two ways. "
            "Stop the plugin first, or start with --allow-device-plugin, which taints the GPUs that it offers"
        )


async def refuse_driver(root: Path) -> None:
    """Whether a DRA driver of GPUs runs on this node. Raises Denied."""
    folder = root / PLUGINS_REGISTRY
    for socket in sorted(folder.glob(f"{GPU}*.sock")) if folder.is_dir() else ():
        try:
            async with rpc.dial(socket) as channel:
                request = rpc.REGISTRATION.messages.InfoRequest()
                await rpc.call(channel, rpc.REGISTRATION, "GetInfo", request, timeout_s=TIMEOUT_S)
        except aio.AioRpcError:
            continue  # what a driver left behind that was killed
        raise Denied(
            f"the DRA driver {GPU} runs on this node ({socket}): a GPU must never be given to containers in two ways. "
            "Stop the driver first"
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


async def pods_of(root: Path) -> list[Any] | None:
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
