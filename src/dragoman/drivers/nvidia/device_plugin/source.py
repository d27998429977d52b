"""What does a container get of a resource? One resource of the device plugin: list, preference, health, allocation.

The ways of passing devices are those of NVIDIA/k8s-device-plugin: environment, volume mounts, CDI by annotation or by
field, device nodes. The CDI spec is written by `cdi`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path, PurePosixPath

from dragoman.drivers.nvidia import edits
from dragoman.drivers.nvidia.device_plugin import preference
from dragoman.drivers.nvidia.device_plugin.cdi import CHANNEL_KIND, KIND
from dragoman.drivers.nvidia.device_plugin.config import PREFIX, PluginConfig
from dragoman.drivers.nvidia.device_plugin.preference import Score
from dragoman.drivers.nvidia.device_plugin.resources import PhysicalDevice, ResourcePlan, physical
from dragoman.drivers.nvidia.hardware import Hardware
from dragoman.errors import Retry
from dragoman.node.cdi import qualified
from dragoman.node.device_plugin import ContainerDevices, HostDevice, HostMount, PluginDevice

VISIBLE = "NVIDIA_VISIBLE_DEVICES"
CHANNELS = "NVIDIA_IMEX_CHANNELS"
VOLUME_ROOT = "/var/run/nvidia-container-devices"
NULL = "/dev/null"
MPS_SHM = "/dev/shm"  # noqa: S108 - where CUDA looks inside containers
ANNOTATION = "nvidia-device-plugin"


class NvidiaSource:
    """A `DeviceSource`. withheld: UUIDs that somebody else uses now; they are unhealthy as long as that lasts."""

    pre_start = False

    def __init__(
        self,
        plan: ResourcePlan,
        config: PluginConfig,
        hardware: Hardware,
        *,
        new_id: Callable[[], str],
        score: Score = preference.place_score,
        withheld: Callable[[], frozenset[str]] = frozenset,
    ) -> None:
        self.plan = plan
        self.config = config
        self.hardware = hardware
        self.resource = plan.name
        self.socket_name = f"nvidia-{plan.name.removeprefix(PREFIX)}.sock"
        self._ids = plan.ids
        self._new_id = new_id
        self._score = score
        self._withheld = withheld
        self._unwell: set[str] = set()

    # ---- the list

    def devices(self) -> Sequence[PluginDevice]:
        """Every id, with the health of what it stands for."""
        bad = self._unwell | self._withheld()
        return [
            PluginDevice(
                id_,
                device.uuid not in bad and device.gpu.uuid not in bad,
                () if device.gpu.numa is None else (device.gpu.numa,),
            )
            for id_, device in self._ids.items()
        ]

    def mark(self, gpu: str, gi: int | None = None, ci: int | None = None) -> bool:
        """A GPU or an instance of it is ill from now on, "" for all; True if that is news. There is no recovery."""
        hit = {
            device.uuid
            for device in self.plan.devices
            if gpu in ("", device.gpu.uuid)
            and (gi is None or device.instance is None or (device.instance.gi, device.instance.ci) == (gi, ci or 0))
        }
        news = hit - self._unwell
        self._unwell |= hit
        return bool(news)

    # ---- choosing

    def preferred(self, available: Sequence[str], must_include: Sequence[str], size: int) -> Sequence[str]:
        """Linked GPUs; of replicas as the policy has it. Raises Retry for ids that are not there."""
        self._known([*available, *must_include])
        if self.plan.replicas > 1:
            return preference.shared(self._ids, available, must_include, size, self.config.policy)
        return preference.linked(self._ids, available, must_include, size, self._score)

    def _known(self, ids: Sequence[str]) -> list[PhysicalDevice]:
        if unknown := [id_ for id_ in ids if id_ not in self._ids]:
            raise Retry(f"invalid allocation request for '{self.resource}': unknown device: {unknown[0]}")
        return list({(device := self._ids[id_]).uuid: device for id_ in ids}.values())

    # ---- giving

    async def start(self, ids: Sequence[str]) -> None:
        """Nothing to do."""

    async def allocate(self, ids: Sequence[str]) -> ContainerDevices:
        """What a container gets. Raises Retry."""
        devices = self._known(ids)
        if self.plan.replicas > 1 and self.config.fails_greater_than_one and len(ids) > 1:
            raise Retry(
                f"invalid allocation request for '{self.resource}': request for '{self.resource}: {len(ids)}' too "
                f"large: maximum request size for shared resources is 1; found {len(ids)}"
            )
        if taken := sorted({physical(id_) for id_ in ids} & self._withheld()):
            raise Retry(f"device {taken[0]} is in use by a claim of the DRA driver until that is given back")
        config = self.config
        names = [device.index if config.id_strategy == "index" else device.uuid for device in devices]
        envs: dict[str, str] = {}
        mounts: list[HostMount] = []
        nodes: list[HostDevice] = []
        annotations: dict[str, str] = {}
        cdi: list[str] = []
        qualified_names = [qualified(KIND, name) for name in names]
        qualified_names += [qualified(CHANNEL_KIND, str(channel)) for channel in config.channels]
        if "envvar" in config.list_strategies:
            envs[VISIBLE] = ",".join(names)
            if config.channels:
                envs[CHANNELS] = ",".join(map(str, config.channels))
        if "volume-mounts" in config.list_strategies:
            envs[VISIBLE] = VOLUME_ROOT
            paths = [*names, *(f"imex/{channel}" for channel in config.channels)]
            mounts += [HostMount(str(PurePosixPath(VOLUME_ROOT) / name), NULL) for name in paths]
        if "cdi-annotations" in config.list_strategies:
            key = f"{config.annotation_prefix}{ANNOTATION}_{self._new_id()}"
            annotations[key] = ",".join(qualified_names)
        if "cdi-cri" in config.list_strategies:
            cdi += qualified_names
        if config.pass_device_specs:
            nodes = self._nodes(devices)
        if config.kind == "mps" and self.plan.replicas > 1:
            more_env, more_mounts = self._mps()
            envs |= more_env
            mounts += more_mounts
        for on, name in ((config.gdrcopy, "GDRCOPY"), (config.gds, "GDS"), (config.mofed, "MOFED")):
            if on:
                envs[f"NVIDIA_{name}"] = "enabled"
        return ContainerDevices(envs, tuple(mounts), tuple(nodes), annotations, tuple(cdi))

    def _nodes(self, devices: Sequence[PhysicalDevice]) -> list[HostDevice]:
        paths = dict.fromkeys(edits.CONTROL)
        for device in devices:
            gpu = device.gpu
            paths[f"/dev/nvidia{gpu.minor}"] = None
            if device.instance is not None:
                caps = self.hardware.cap_minors(gpu.minor, device.instance.gi, device.instance.ci)
                paths |= dict.fromkeys(f"/dev/nvidia-caps/nvidia-cap{number}" for number in caps)
        root = self.config.driver_root.rstrip("/")
        return [HostDevice(path, f"{root}{path}", "rw") for path in paths]

    def _mps(self) -> tuple[dict[str, str], list[HostMount]]:
        root = Path(self.config.mps_root)
        pipe = f"/mps/{self.resource}/pipe"
        envs = {"CUDA_MPS_PIPE_DIRECTORY": pipe}
        mounts = [HostMount(pipe, str(root / self.resource / "pipe")), HostMount(MPS_SHM, str(root / "shm"))]
        return envs, mounts
