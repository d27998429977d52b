"""Which CDI specs does the device plugin write? Its GPUs and MIG devices by name, and its IMEX channels.

A file in the CDI folder of dynamic specs, recreated when the devices change. Kinds are those of NVIDIA's plugin.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

from dragoman.drivers.nvidia import edits
from dragoman.drivers.nvidia.device_plugin.config import PluginConfig
from dragoman.drivers.nvidia.device_plugin.resources import PhysicalDevice
from dragoman.drivers.nvidia.hardware import Hardware
from dragoman.node.cdi import CdiDevice, DeviceNode, Edits, made, write
from dragoman.node.driver import DeviceSetup, Setup

VENDOR = "k8s.device-plugin.nvidia.com"
KIND, CHANNEL_KIND = f"{VENDOR}/gpu", f"{VENDOR}/imex-channel"
FILES = {KIND: f"{VENDOR}-gpu.json", CHANNEL_KIND: f"{VENDOR}-imex-channel.json"}

Adapt = Callable[[Setup], Setup]


def write_specs(
    folder: Path, hardware: Hardware, devices: Iterable[PhysicalDevice], config: PluginConfig, adapt: Adapt | None
) -> None:
    """Write the files. adapt: what stands in for hardware that is simulated beside a real runtime. Raises OSError."""
    named = {device.index if config.id_strategy == "index" else device.uuid: device for device in devices}
    parts = {name: device_edits(hardware, device, config.driver_root) for name, device in named.items()}
    common = edits.common(hardware.driver_files(), hardware.versions().driver, config.driver_root)
    _write(folder, KIND, parts, common, adapt)
    if config.channels:
        channels = {
            str(number): Edits(device_nodes=(DeviceNode(f"/dev/nvidia-caps-imex-channels/channel{number}"),))
            for number in config.channels
        }
        _write(folder, CHANNEL_KIND, channels, Edits(env=(edits.VOID,)), adapt)


def device_edits(hardware: Hardware, device: PhysicalDevice, root: str) -> Edits:
    """The device nodes of one GPU or MIG device."""
    gpu = device.gpu
    if device.instance is not None:
        return edits.mig_device(hardware, gpu.minor, gpu.pci_bus_id, device.instance, root)
    return edits.full_gpu(hardware, gpu.minor, gpu.pci_bus_id, root)


def _write(folder: Path, kind: str, parts: dict[str, Edits], common: Edits, adapt: Adapt | None) -> None:
    if not parts:
        (folder / FILES[kind]).unlink(missing_ok=True)
        return
    if adapt is not None:
        setup = adapt(Setup([DeviceSetup("", name, part) for name, part in parts.items()], common))
        parts = {device.device: device.edits for device in setup.devices}
        common = setup.edits
    devices = (CdiDevice(name, container_edits=part) for name, part in parts.items())
    write(folder / FILES[kind], made(kind, devices, common))
