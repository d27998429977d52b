"""The driver on a simulated machine whose every step can be the last one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from dragoman.api.resource import ResourceClaim
from dragoman.drivers.nvidia.classes import GPU as DRIVER
from dragoman.drivers.nvidia.driver import DriverOptions, NvidiaDriver, made
from dragoman.drivers.nvidia.gates import gates_with
from dragoman.drivers.nvidia.hardware import GpuInstance, PciDriver
from dragoman.drivers.nvidia.health import HealthOptions
from dragoman.drivers.nvidia.simulated import SimulatedHardware
from dragoman.node import cdi
from dragoman.node.driver import ClaimRef
from dragoman.node.prepare import Preparer
from dragoman.profiles import Catalog
from dragoman.profiles.mig import InstanceProfile
from dragoman.runtime.clock import Clock
from dragoman.testing.build import allocated, typed
from tests.node.bench_of_lamps import Fuse, FusedCheckpoint, FusedPreparer

CATALOG = Catalog.packaged()
NODE = "n1"


def profile(name: str) -> Any:
    """A packaged profile."""
    found = CATALOG.profile(name)
    assert found is not None
    return found


def hardware(name: str, folder: Path, boot_id: str = "boot-1") -> SimulatedHardware:
    """A simulated machine."""
    return SimulatedHardware(CATALOG, profile(name), NODE, folder, boot_id)


class FusedHardware(SimulatedHardware):
    """Burns before and after every change."""

    fuse: Fuse

    def create_instance(self, gpu: str, shape: InstanceProfile, start: int) -> GpuInstance:
        self.fuse.step()
        made = super().create_instance(gpu, shape, start)
        self.fuse.step()
        return made

    def destroy_instance(self, gpu: str, gi: int) -> None:
        self.fuse.step()
        super().destroy_instance(gpu, gi)
        self.fuse.step()

    def set_mig_mode(self, gpu: str, enabled: bool) -> None:
        self.fuse.step()
        super().set_mig_mode(gpu, enabled)
        self.fuse.step()

    def set_time_slice(self, gpu: str, level: int) -> None:
        self.fuse.step()
        super().set_time_slice(gpu, level)
        self.fuse.step()

    def bind(self, pci_bus_id: str, driver: PciDriver) -> None:
        self.fuse.step()
        super().bind(pci_bus_id, driver)
        self.fuse.step()

    def activate_partition(self, number: int) -> None:
        self.fuse.step()
        super().activate_partition(number)
        self.fuse.step()


def ref(name: str) -> ClaimRef:
    return ClaimRef("default", name, f"uid-{name}")


def gpus_claim(name: str, *devices: str, config: tuple[dict[str, Any], ...] = (), **result: Any) -> ResourceClaim:
    """An allocated claim. config: entries of the allocation."""
    made: ResourceClaim = typed(
        allocated(name, *devices, driver=DRIVER, pool=NODE, pods=[f"pod-{name}"], config=config, **result)
    )
    return made


def opaque(kind: str, *requests: str, source: str = "FromClaim", **fields: Any) -> dict[str, Any]:
    """An entry of the allocation's configuration."""
    parameters = {"apiVersion": "resource.nvidia.com/v1beta1", "kind": kind, **fields}
    return {"source": source, "requests": list(requests), "opaque": {"driver": DRIVER, "parameters": parameters}}


class Bench:
    """A machine, a disk, and the process that runs just now."""

    def __init__(
        self, folder: Path, name: str, *gates: str, health: HealthOptions | None = None, **options: Any
    ) -> None:
        self.folder = folder
        self.profile = name
        self.options = DriverOptions(
            gates_with(dict.fromkeys(gates, True)), health=health or HealthOptions(), **options
        )
        self.fuse = Fuse()
        self.boot = "boot-1"
        self.clock = Clock()
        self.start()

    def start(self) -> None:
        """A process on this boot."""
        self.hardware = FusedHardware(CATALOG, profile(self.profile), NODE, self.folder, self.boot)
        self.hardware.fuse = self.fuse
        checkpoint = FusedCheckpoint(self.folder / "checkpoint.json", self.boot, durable=False)
        checkpoint.fuse = self.fuse
        checkpoint.load()
        self.driver: NvidiaDriver = made(NODE, self.hardware, self.clock, self.options)
        preparer = FusedPreparer(self.driver, checkpoint, self.folder / "cdi")
        preparer.fuse = self.fuse
        self.preparer: Preparer = preparer

    async def restart(self) -> None:
        """A new process, which recovers as a plugin does."""
        self.start()
        await self.driver.restore([record.as_prepared() for record in self.preparer.checkpoint.claims.values()])
        for record in self.preparer.unfinished():
            await self.preparer.finish(record)
        self.preparer.sweep_cdi()

    async def prepare(self, name: str, *devices: str, **options: Any) -> list[list[str]]:
        """Prepare; the device nodes of each prepared device."""
        made = await self.preparer.prepare(ref(name), gpus_claim(name, *devices, **options))
        nodes = {device.name: device.container_edits for device in self.spec(name).devices}
        return [[node.path for node in nodes[device.cdi_ids[0].partition("=")[2]].device_nodes] for device in made]

    async def unprepare(self, name: str) -> None:
        await self.preparer.unprepare(ref(name))

    def spec(self, name: str) -> cdi.Spec:
        """The CDI file of a claim."""
        return cdi.read(cdi.claim_path(self.folder / "cdi", DRIVER, f"uid-{name}"))

    async def published(self) -> list[str]:
        """Names of the devices in the pool."""
        return [device.name for device in (await self.driver.pools())[NODE].devices]

    def instances(self, index: int = 0) -> list[str]:
        """`profile@start` of each instance on a GPU."""
        made = self.hardware.instances(self.hardware.gpu_uuid(index))
        return [f"{instance.shape.name}@{instance.start}" for instance in made]
