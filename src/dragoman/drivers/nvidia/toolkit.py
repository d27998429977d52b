"""Which GPUs does a container see by `NVIDIA_VISIBLE_DEVICES`? The NVIDIA container toolkit of a simulated node.

| value | what the container gets |
|---|---|
| unset, empty, `void`, or `void` in a list | nothing, as with plain runc |
| `none` | libraries and control nodes, no GPU |
| `all` | everything |
| a list | index `0`, MIG index `0:1`, UUID `GPU-...` or `MIG-...`, or CDI names |
| unset, and the image is a legacy CUDA image | `all` |

A list by volume mounts counts before the variable where that is switched on; the variable does not count in
unprivileged containers where that is switched off. Privileged containers have all device nodes of the host. Rules:
NVIDIA/nvidia-container-toolkit v1.20.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import PurePosixPath

import msgspec

from dragoman.drivers.nvidia import edits
from dragoman.drivers.nvidia.device_plugin.cdi import device_edits
from dragoman.drivers.nvidia.device_plugin.resources import PhysicalDevice
from dragoman.drivers.nvidia.device_plugin.source import CHANNELS, NULL, VISIBLE, VOLUME_ROOT
from dragoman.drivers.nvidia.simulated import SimulatedHardware
from dragoman.drivers.nvidia.smi import Shown, program
from dragoman.errors import Invalid, Retry
from dragoman.kubelet.injection import ContainerRequest, Injection
from dragoman.kubelet.shell.language import ShellProgram
from dragoman.node.cdi import DeviceNode, Edits, merged

ENVVAR_UNPRIVILEGED = "accept-nvidia-visible-devices-envvar-when-unprivileged"
VOLUME_MOUNTS = "accept-nvidia-visible-devices-as-volume-mounts"
DEFAULT_RUNTIME = "default-runtime"
RUNTIME_CLASS = "nvidia"
VOID, NONE, ALL = "void", "none", "all"
SMI = "/usr/bin/nvidia-smi"
CHANNEL = "/dev/nvidia-caps-imex-channels/channel"
_CDI = re.compile(r"[A-Za-z][\w.-]*/[A-Za-z][\w.-]*=(.+)")
_CUDA_TAG = re.compile(r"(\d+)\.(\d+)(?:\.(\d+))?")
_CUDA_IMAGES = re.compile(
    r"(?:docker\.io/|nvcr\.io/)?nvidia/(?:cuda|k8s/cuda-sample|pytorch|tensorflow|tritonserver|cloud-native/dcgm)"
    r"(?:[:@].*)?"
)


class ToolkitOptions(msgspec.Struct, frozen=True):
    """Of the toolkit's config.toml. default_runtime: every container runs with it, not only runtimeClassName nvidia."""

    envvar_when_unprivileged: bool = True
    volume_mounts: bool = False
    default_runtime: bool = True


def parse_options(text: str, where: str) -> ToolkitOptions:
    """`accept-nvidia-visible-devices-as-volume-mounts=true,...`. Raises Invalid."""
    names = {
        ENVVAR_UNPRIVILEGED: "envvar_when_unprivileged",
        VOLUME_MOUNTS: "volume_mounts",
        DEFAULT_RUNTIME: "default_runtime",
    }
    found: dict[str, bool] = {}
    for part in filter(None, (part.strip() for part in text.split(","))):
        name, _, value = part.partition("=")
        if name not in names or value not in ("true", "false"):
            raise Invalid(where, f"must be of {', '.join(f'{n}=true|false' for n in names)}, got {part!r}")
        found[names[name]] = value == "true"
    return ToolkitOptions(**found)


class Toolkit:
    """The toolkit beside one simulated node's runtime."""

    def __init__(self, hardware: SimulatedHardware, options: ToolkitOptions) -> None:
        self.hardware = hardware
        self.options = options

    def image_env(self, image: str) -> Mapping[str, str]:
        """What NVIDIA's CUDA images set."""
        if not _CUDA_IMAGES.fullmatch(image):
            return {}
        version = _CUDA_TAG.search(image.rpartition(":")[2])
        cuda = f"{version[1]}.{version[2]}" if version else "12.0"
        return {
            "CUDA_VERSION": version[0] if version else cuda,
            "NVIDIA_REQUIRE_CUDA": f"cuda>={cuda}",
            "NVIDIA_DRIVER_CAPABILITIES": "compute,utility",
            VISIBLE: ALL,
        }

    def inject(self, container: ContainerRequest) -> Injection:
        """Devices as the container asks, and the tools that come with the driver's files. Raises Invalid."""
        added: list[Edits] = []
        if container.privileged:
            nodes = (*edits.CONTROL, *(path for device in self._devices() for path in self._nodes(device)))
            added.append(Edits(device_nodes=tuple(DeviceNode(path) for path in dict.fromkeys(nodes))))
        if self.options.default_runtime or container.runtime_class == RUNTIME_CLASS:
            wanted = self.wanted(container)
            if wanted is not None:
                added.append(self._edits(wanted))
                added.append(self._channels(container))
        total = merged((container.edits, *added))
        tools: dict[str, ShellProgram] = {}
        if any(mount.container_path == SMI for mount in total.mounts):
            tools["nvidia-smi"] = program(self.hardware, lambda: self.shown(total))
        return Injection(merged(added), tools)

    # ---- what is wanted

    def wanted(self, container: ContainerRequest) -> list[str] | None:
        """Device names, `all` or `none`; None: the container is not touched."""
        if container.env.get(VISIBLE) == VOID:  # what a CDI spec sets, so that nothing is injected twice
            return None
        if self.options.volume_mounts and (mounted := list(_mounted(container))):
            return _listed(mounted)
        if not (self.options.envvar_when_unprivileged or container.privileged):
            return None
        if VISIBLE in container.env:
            return _listed(container.env[VISIBLE].split(","))
        legacy = container.env.get("CUDA_VERSION") and not container.env.get("NVIDIA_REQUIRE_CUDA")
        return [ALL] if legacy else None

    # ---- what is given

    def _devices(self) -> Iterator[PhysicalDevice]:
        """Every GPU, each followed by its MIG devices."""
        for gpu in self.hardware.gpus():
            yield PhysicalDevice(gpu.uuid, str(gpu.index), gpu)
            try:
                instances = self.hardware.instances(gpu.uuid)
            except Retry:
                continue  # the GPU is lost
            for number, instance in enumerate(instances):
                yield PhysicalDevice(instance.uuid, f"{gpu.index}:{number}", gpu, instance)

    def _edits(self, wanted: list[str]) -> Edits:
        common = edits.common(self.hardware.driver_files(), self.hardware.versions().driver)
        # The variable stays as the container has it; `void` is of CDI specs.
        common = msgspec.structs.replace(common, env=tuple(e for e in common.env if not e.startswith(f"{VISIBLE}=")))
        if wanted == [NONE]:
            return common
        there = list(self._devices())
        if wanted == [ALL]:
            # GPUs in MIG mode come with all of their MIG devices.
            return merged((common, *(device_edits(self.hardware, device, "/") for device in there)))
        by_name = {name: device for device in there for name in (device.index, device.uuid)}
        chosen = []
        for name in wanted:
            match = _CDI.fullmatch(name)
            device = by_name.get(match[1] if match else name)
            if device is None:
                raise Invalid(
                    "",
                    "failed to create containerd task: failed to create shim task: OCI runtime create failed: "
                    f"nvidia-container-cli: device error: {name}: unknown device: unknown",
                )
            chosen.append(device_edits(self.hardware, device, "/"))
        return merged((common, *chosen))

    def _channels(self, container: ContainerRequest) -> Edits:
        numbers = [part for part in container.env.get(CHANNELS, "").split(",") if part.isdecimal()]
        return Edits(device_nodes=tuple(DeviceNode(f"{CHANNEL}{number}") for number in numbers))

    def _nodes(self, device: PhysicalDevice) -> list[str]:
        return [node.path for node in device_edits(self.hardware, device, "/").device_nodes]

    # ---- what is seen

    def shown(self, total: Edits) -> list[Shown]:
        """The GPUs whose device nodes are in a container, numbered as it counts them."""
        paths = {node.path for node in total.device_nodes}
        found: list[Shown] = []
        for gpu in self.hardware.gpus():
            if f"/dev/nvidia{gpu.minor}" not in paths:
                continue
            lost = False
            try:
                instances = self.hardware.instances(gpu.uuid)
            except Retry:
                instances, lost = (), True
            seen = tuple(i for i in instances if self._caps(gpu.minor, i.gi, i.ci) <= paths)
            found.append(Shown(len(found), gpu, seen, self.hardware.power_w(gpu.index), lost))
        return found

    def _caps(self, minor: int, gi: int, ci: int) -> set[str]:
        return {f"/dev/nvidia-caps/nvidia-cap{number}" for number in self.hardware.cap_minors(minor, gi, ci)}


def _mounted(container: ContainerRequest) -> Iterator[str]:
    for mount in container.mounts:
        path = PurePosixPath(mount.container_path)
        if mount.host_path == NULL and path.parent == PurePosixPath(VOLUME_ROOT):
            yield path.name


def _listed(names: Iterable[str]) -> list[str] | None:
    words = [name.strip() for name in names if name.strip()]
    if not words or VOID in words:
        return None
    for special in (NONE, ALL):
        if special in words:
            return [special]
    return list(dict.fromkeys(words))
