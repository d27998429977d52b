"""Which container has which devices of device plugins, as the kubelet's own checkpoint says it?

The file is kubelet_internal_checkpoint in the folder of the plugins' sockets. Its fields are the kubelet's; its
checksum is that of the data's JSON. It never calls plugins.
"""

from __future__ import annotations

import zlib
from pathlib import Path

import msgspec

from dragoman.errors import Invalid
from dragoman.node.device_plugin import ContainerDevices, from_wire, on_wire
from dragoman.node.files import write_atomically
from dragoman.node.rpc import DEVICE_PLUGIN

FILE = "kubelet_internal_checkpoint"
NO_NUMA = -1
"""Stands for devices that are close to no NUMA node."""


class DeviceEntry(msgspec.Struct, rename="pascal"):
    """What one container has of one resource. device_ids: by NUMA node; answer: the plugin's, as a message."""

    pod_uid: str = msgspec.field(name="PodUID")
    container_name: str
    resource_name: str
    device_ids: dict[int, list[str]] = msgspec.field(name="DeviceIDs", default_factory=dict)
    answer: bytes = msgspec.field(name="AllocResp", default=b"")

    @property
    def key(self) -> tuple[str, str, str]:
        """Pod uid, container, resource."""
        return self.pod_uid, self.container_name, self.resource_name

    @property
    def devices(self) -> frozenset[str]:
        """The ids."""
        return frozenset(one for ids in self.device_ids.values() for one in ids)

    @property
    def given(self) -> ContainerDevices:
        """What the plugin gave the container."""
        return from_wire(DEVICE_PLUGIN.messages.ContainerAllocateResponse.FromString(self.answer))

    def numa_of(self, device: str) -> tuple[int, ...]:
        """The NUMA nodes of a device as they were when it was allocated."""
        return tuple(sorted(n for n, ids in self.device_ids.items() if device in ids and n != NO_NUMA))


def answer_of(given: ContainerDevices) -> bytes:
    """A plugin's answer, as an entry has it."""
    return bytes(on_wire(given).SerializeToString(deterministic=True))


class DeviceRecord(msgspec.Struct, rename="pascal"):
    """The file's data: entries, and ids of healthy devices by registered resource."""

    pod_device_entries: list[DeviceEntry] = []
    registered_devices: dict[str, list[str]] = {}


class _File(msgspec.Struct, rename="pascal"):
    data: msgspec.Raw
    checksum: int


def read(path: Path) -> DeviceRecord | None:
    """What the file says; None without one. Raises Invalid when it cannot be trusted."""
    try:
        file = msgspec.json.decode(path.read_bytes(), type=_File)
    except FileNotFoundError:
        return None
    except msgspec.MsgspecError as error:
        raise Invalid(str(path), f"is not a checkpoint of devices: {error}") from None
    if zlib.crc32(bytes(file.data)) != file.checksum:
        raise Invalid(str(path), "the checksum does not match, the checkpoint of devices is corrupt")
    return _decoded(path, bytes(file.data))


def read_of_any(path: Path) -> DeviceRecord | None:
    """The same of any kubelet's file, whose checksum is not ours to judge. Raises Invalid."""
    try:
        file = msgspec.json.decode(path.read_bytes(), type=_File)
    except FileNotFoundError:
        return None
    except msgspec.MsgspecError as error:
        raise Invalid(str(path), f"is not a checkpoint of devices: {error}") from None
    return _decoded(path, bytes(file.data))


def _decoded(path: Path, data: bytes) -> DeviceRecord:
    try:
        return msgspec.json.decode(data, type=_Loose).record()
    except msgspec.MsgspecError as error:
        raise Invalid(str(path), f"is not a checkpoint of devices: {error}") from None


class _Loose(msgspec.Struct, rename="pascal"):
    """As Go writes it: what is empty may be null."""

    pod_device_entries: list[DeviceEntry] | None = None
    registered_devices: dict[str, list[str] | None] | None = None

    def record(self) -> DeviceRecord:
        """Without nulls."""
        registered = {name: ids or [] for name, ids in (self.registered_devices or {}).items()}
        return DeviceRecord(self.pod_device_entries or [], registered)


def write(path: Path, record: DeviceRecord, *, durable: bool) -> None:
    """Write the file, whole or not at all. Raises OSError."""
    data = msgspec.json.encode(record)
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o755)
    write_atomically(path, msgspec.json.encode(_File(msgspec.Raw(data), zlib.crc32(data))), durable=durable)
