"""What does a container get of a GPU? CDI edits: the driver's files, control devices, device nodes.

Asks the hardware for paths, answers with edits as `nvidia-ctk cdi generate` writes them; changes nothing.
`NVIDIA_VISIBLE_DEVICES=void` keeps an older runtime from injecting GPUs a second time.
"""

from __future__ import annotations

from pathlib import PurePosixPath

from dragoman.drivers.nvidia.config import VfioDeviceConfig
from dragoman.drivers.nvidia.hardware import DriverFiles, Function, GpuInstance, Hardware
from dragoman.node.cdi import DeviceNode, Edits, Hook, Mount

CONTROL = ("/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools", "/dev/nvidia-modeset")
READ_ONLY = ("ro", "nosuid", "nodev", "rbind", "rprivate")
VOID = "NVIDIA_VISIBLE_DEVICES=void"
MPS_PIPE, SHM = "/tmp/nvidia-mps", "/dev/shm"  # noqa: S108 - where CUDA looks inside containers


def common(files: DriverFiles, driver_version: str, root: str = "/") -> Edits:
    """Once for each container: libraries, binaries, control devices. root: where the driver's files are on the host."""
    folders = sorted({str(PurePosixPath(path).parent) for path in files.libraries})
    env = [VOID]
    if folders:
        env.append(f"NVIDIA_CTK_LIBCUDA_DIR={folders[0]}")
    paths = (*files.libraries, *files.firmware, *files.binaries)
    mounts = [Mount(_host(path, root), path, options=READ_ONLY) for path in paths]
    mounts += [Mount(_host(path, root), path, options=(*READ_ONLY, "noexec")) for path in files.sockets]
    return Edits(
        env=tuple(env),
        device_nodes=tuple(_node(path, root) for path in CONTROL),
        mounts=tuple(mounts),
        hooks=_hooks(files, driver_version, folders),
    )


def _hooks(files: DriverFiles, version: str, folders: list[str]) -> tuple[Hook, ...]:
    if not files.hook:
        return ()
    links = [
        argument
        for path in files.libraries
        for argument in ("--link", f"{PurePosixPath(path).name}::{path.removesuffix('.' + version)}.1")
    ]
    calls = (
        ("create-symlinks", *links),
        ("enable-cuda-compat", f"--host-driver-version={version}"),
        ("update-ldcache", *(argument for folder in folders for argument in ("--folder", folder))),
        ("disable-device-node-modification",),
    )
    name = PurePosixPath(files.hook).name
    return tuple(Hook("createContainer", files.hook, (name, *call), ("NVIDIA_CTK_DEBUG=false",)) for call in calls)


def full_gpu(hardware: Hardware, minor: int, bus_id: str, root: str = "/") -> Edits:
    """The GPU's node and its DRM nodes."""
    paths = (f"/dev/nvidia{minor}", *hardware.drm_nodes(bus_id))
    return Edits(device_nodes=tuple(_node(path, root) for path in paths))


def mig_device(hardware: Hardware, minor: int, bus_id: str, instance: GpuInstance, root: str = "/") -> Edits:
    """The parent's node and the two capability devices; DRM nodes only for graphics profiles."""
    caps = hardware.cap_minors(minor, instance.gi, instance.ci)
    paths = [f"/dev/nvidia{minor}", *(f"/dev/nvidia-caps/nvidia-cap{number}" for number in caps)]
    if instance.shape.name.endswith("+gfx"):
        paths += hardware.drm_nodes(bus_id)
    return Edits(device_nodes=tuple(_node(path, root) for path in paths))


def passthrough(function: Function, config: VfioDeviceConfig, iommufd: bool) -> tuple[Edits, Edits]:
    """(of the device, of the container): VFIO nodes by the newer or the older interface."""
    newer = config.iommu.backend_policy == "PreferIommuFD" and iommufd
    node = f"/dev/vfio/devices/vfio{function.vfio_index}" if newer else f"/dev/vfio/{function.iommu_group}"
    api = (DeviceNode("/dev/iommu" if newer else "/dev/vfio/vfio"),) if config.iommu.enable_api_device else ()
    return Edits(device_nodes=(DeviceNode(node),)), Edits(env=(VOID,), device_nodes=api)


def mps(pipe: str, shm: str) -> Edits:
    """What clients of an MPS daemon need: its pipes and its shared memory."""
    return Edits(
        env=(f"CUDA_MPS_PIPE_DIRECTORY={MPS_PIPE}",),
        mounts=(
            Mount(shm, SHM, options=("rw", "nosuid", "nodev", "bind")),
            Mount(pipe, MPS_PIPE, options=("rw", "nosuid", "nodev", "bind")),
        ),
    )


def _host(path: str, root: str) -> str:
    return path if root == "/" else root.rstrip("/") + path


def _node(path: str, root: str) -> DeviceNode:
    host = _host(path, root)
    return DeviceNode(path, host_path=host if host != path else "")
