"""The NVML side, on the real nvidia-ml-py over a fake library."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from pathlib import Path

import pynvml
import pytest

from dragoman.drivers.nvidia import devices
from dragoman.drivers.nvidia.gates import gates_with
from dragoman.drivers.nvidia.hardware import GpuUnreachable, HardwareEvent, Lost, Recovered, Unmonitored, XidError
from dragoman.drivers.nvidia.host import Host
from dragoman.drivers.nvidia.nvml import NvmlHardware
from dragoman.errors import Denied, Invalid, Retry

from .fake_nvml import FakeGpu, FakeLibrary, gpu, loaded

H100, A100, T4 = "NVIDIA H100 80GB HBM3", "NVIDIA A100-SXM4-40GB", "Tesla T4"


def machine(root: Path, gpus: list[FakeGpu]) -> Host:
    """Sysfs and files of a machine with these GPUs."""
    for one in gpus:
        place = root / "sys/devices/pci0000:15/0000:15:01.0" / one.bus_id
        place.mkdir(parents=True)
        (place / "numa_node").write_text("-1\n" if one.minor == 1 else "0\n")
        (place / "drm" / "card0").mkdir(parents=True)
        (place / "drm" / f"renderD{128 + one.minor}").mkdir()
        (place / "vendor").write_text("0x10de\n")
        (place / "class").write_text("0x030200\n")
        (place / "device").write_text("0x2330\n")
        (place / "resource").write_text(
            "0x00000000a0000000 0x00000000a0ffffff 0x0000000000040200\n"
            "0x000000e000000000 0x000000ffffffffff 0x000000000014220c\n"
        )
        group = root / "sys/kernel/iommu_groups" / str(20 + one.minor)
        group.mkdir(parents=True)
        (place / "iommu_group").symlink_to(group)
        link = root / "sys/bus/pci/devices" / one.bus_id
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(place)
    caps = root / "proc/driver/nvidia-caps/mig-minors"
    caps.parent.mkdir(parents=True)
    caps.write_text("config 1\nmonitor 2\ngpu0/gi1/access 12\ngpu0/gi1/ci0/access 13\n")
    lib = root / "usr/lib/x86_64-linux-gnu"
    lib.mkdir(parents=True)
    for name in ("libcuda.so.580.95.05", "libnvidia-ml.so.580.95.05", "libother.so.1"):
        (lib / name).touch()
    (root / "usr/bin").mkdir(parents=True)
    (root / "usr/bin/nvidia-smi").touch()
    (root / "usr/share/misc").mkdir(parents=True)
    (root / "usr/share/misc/pci.ids").write_text("10de  NVIDIA Corporation\n\t2330  GH100 [H100 SXM5 80GB]\n")
    return Host(root, root)


class Bench:
    """A fake library, the hardware on it, and the commands that were called."""

    def __init__(self, root: Path, gpus: list[FakeGpu]) -> None:
        self.library = FakeLibrary(gpus)
        self.commands: list[list[str]] = []
        self.hardware = NvmlHardware(machine(root, gpus), run_command=self.commands.append, wait_ms=50)


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    """An H100, an A100 in MIG mode, a T4."""
    made = Bench(tmp_path, [gpu(0, H100, module_id=3), gpu(1, A100, mig=True, mig_pending=True), gpu(2, T4)])
    with loaded(made.library):
        yield made
        made.hardware.close()


def test_gpus_are_described_as_the_driver_publishes_them(bench: Bench) -> None:
    h100, a100, t4 = bench.hardware.gpus()
    assert (h100.name, h100.brand, h100.architecture, h100.compute_capability) == (H100, "Nvidia", "Hopper", "9.0")
    assert (h100.pci_bus_id, h100.pcie_root, h100.numa, h100.module_id) == ("0000:1b:00.0", "pci0000:15", 0, 3)
    assert h100.memory_bytes == 81559 * 2**20
    assert (h100.addressing_mode, a100.addressing_mode) == ("None", "")
    assert (h100.toggles_mig, a100.toggles_mig, t4.toggles_mig) == (True, False, False)
    assert (h100.mig_enabled, a100.mig_enabled, t4.mig_capable) == (False, True, False)
    assert a100.numa is None
    assert t4.brand == "Tesla"


def test_the_profiles_are_those_of_the_tables(bench: Bench) -> None:
    from .fake_nvml import CATALOG

    for one in bench.library.gpus:
        made = {shape.name: shape for shape in bench.hardware.shapes(one.uuid)}
        assert made == {shape.name: shape for shape in CATALOG.mig_shapes(one.model)}


def test_an_ampere_gpu_outside_mig_mode_tells_no_placements(tmp_path: Path) -> None:
    made = Bench(tmp_path, [gpu(0, A100)])
    with loaded(made.library):
        assert made.hardware.shapes(made.library.gpus[0].uuid) == ()
        inventory = devices.take(made.hardware, gates_with({"DynamicMIG": True}))
    (device,) = inventory.pool.devices
    assert device.name == "gpu-0"
    assert not device.consumes_counters
    assert str(device.capacity["memory"].value) == "40Gi"


def test_an_instance_is_made_found_and_removed(bench: Bench) -> None:
    uuid = bench.library.gpus[1].uuid
    shapes = {shape.name: shape for shape in bench.hardware.shapes(uuid)}
    made = bench.hardware.create_instance(uuid, shapes["3g.20gb"], 4)
    assert made.uuid.startswith("MIG-")
    assert bench.hardware.instances(uuid) == (made,)
    with pytest.raises(Retry, match="insufficient resources"):
        bench.hardware.create_instance(uuid, shapes["1g.5gb"], 4)
    again = bench.hardware.create_instance(uuid, shapes["1g.5gb"], 0)
    bench.hardware.destroy_instance(uuid, made.gi)
    bench.hardware.destroy_instance(uuid, made.gi)
    assert bench.hardware.instances(uuid) == (again,)
    bench.hardware.destroy_instance(uuid, again.gi)
    assert not bench.library.gpus[1].instances


FAILING = {
    "no compute instance": ("nvmlGpuInstanceCreateComputeInstance", pynvml.NVML_ERROR_INSUFFICIENT_RESOURCES),
    "no answer about it": ("nvmlComputeInstanceGetInfo_v2", pynvml.NVML_ERROR_UNKNOWN),
    "no uuid": ("nvmlDeviceGetUUID", pynvml.NVML_ERROR_UNKNOWN),
}


@pytest.mark.parametrize("case", FAILING)
def test_a_half_made_instance_is_rolled_back(bench: Bench, case: str) -> None:
    name, code = FAILING[case]
    uuid = bench.library.gpus[1].uuid
    shape = bench.hardware.shapes(uuid)[0]
    bench.library.fail(name, code)
    with pytest.raises(Retry):
        bench.hardware.create_instance(uuid, shape, 0)
    assert not bench.library.gpus[1].instances
    assert bench.hardware.create_instance(uuid, shape, 0).uuid


def test_an_instance_without_its_compute_instance_is_seen_but_is_nobodys_device(bench: Bench) -> None:
    uuid = bench.library.gpus[1].uuid
    made = bench.hardware.create_instance(uuid, bench.hardware.shapes(uuid)[0], 0)
    bench.library.gpus[1].instances[0].compute.clear()
    (bare,) = bench.hardware.instances(uuid)
    assert (bare.gi, bare.uuid) == (made.gi, "")
    assert [known.name for known in devices.take(bench.hardware, gates_with({})).devices.values()] == ["gpu-0", "gpu-2"]


def test_a_device_that_does_not_fill_its_instance_is_not_published(bench: Bench) -> None:
    uuid = bench.library.gpus[1].uuid
    shapes = {shape.name: shape for shape in bench.hardware.shapes(uuid)}
    bench.hardware.create_instance(uuid, shapes["2g.10gb"], 0)
    bench.library.gpus[1].instances[0].compute[0].profile = 0
    assert not [known for known in devices.take(bench.hardware, gates_with({})).devices.values() if known.kind == "mig"]


def test_mig_mode_changes_at_once_from_hopper_on_and_with_a_reset_before(bench: Bench) -> None:
    h100, a100, t4 = bench.library.gpus
    bench.hardware.set_mig_mode(h100.uuid, True)
    assert h100.mig
    with pytest.raises(Retry, match="reset"):
        bench.hardware.set_mig_mode(a100.uuid, False)
    h100.clients = 1
    with pytest.raises(Retry):
        bench.hardware.set_mig_mode(h100.uuid, False)
    with pytest.raises(Invalid, match="has no MIG"):
        bench.hardware.set_mig_mode(t4.uuid, True)


def test_missing_rights_and_a_missing_driver_are_reported(bench: Bench, tmp_path: Path) -> None:
    bench.library.denied = True
    with pytest.raises(Denied, match="root"):
        bench.hardware.set_exclusive(bench.library.gpus[0].uuid, True)
    with loaded(None), pytest.raises(Denied, match=r"libnvidia-ml\.so\.1 was not found"):
        NvmlHardware(Host(tmp_path, tmp_path)).open()


def test_sharing_uses_compute_mode_and_nvidia_smi(bench: Bench) -> None:
    one = bench.library.gpus[0]
    bench.hardware.set_exclusive(one.uuid, True)
    assert one.exclusive == pynvml.NVML_COMPUTEMODE_EXCLUSIVE_PROCESS
    bench.hardware.set_time_slice(one.uuid, 3)
    (command,) = bench.commands
    assert command[0].endswith("/usr/bin/nvidia-smi")
    assert command[1:] == ["compute-policy", "-i", one.uuid, "--set-timeslice", "3"]


def test_memory_of_unknown_size_is_left_out(tmp_path: Path) -> None:
    made = Bench(tmp_path, [gpu(0, T4, memory_known=False)])
    with loaded(made.library):
        assert made.hardware.gpus()[0].memory_bytes is None
        (device,) = devices.take(made.hardware, gates_with({})).pool.devices
    assert not device.capacity


def test_files_capabilities_and_functions_come_from_the_host(bench: Bench) -> None:
    files = bench.hardware.driver_files()
    names = [f"/usr/lib/x86_64-linux-gnu/{name}.so.580.95.05" for name in ("libcuda", "libnvidia-ml")]
    assert list(files.libraries) == names
    assert files.binaries == ("/usr/bin/nvidia-smi",)
    assert bench.hardware.drm_nodes("0000:1b:00.0") == ("/dev/dri/card0", "/dev/dri/renderD128")
    assert bench.hardware.cap_minors(0, 1, 0) == (12, 13)
    with pytest.raises(Retry, match="gpu0/gi2/access"):
        bench.hardware.cap_minors(0, 2, 0)
    function = bench.hardware.functions()[0]
    assert (function.pci_bus_id, function.product) == ("0000:1b:00.0", "GH100 [H100 SXM5 80GB]")
    assert (function.addressable_bytes, function.iommu_group) == (2**37, 20)
    assert bench.hardware.has_iommu()
    assert not bench.hardware.has_iommufd()


def test_a_function_in_use_is_not_given_away(bench: Bench, tmp_path: Path) -> None:
    bench.hardware.gpus()
    drivers = tmp_path / "sys/bus/pci/drivers"
    (drivers / "nvidia").mkdir(parents=True)
    place = (tmp_path / "sys/bus/pci/devices/0000:1b:00.0").resolve()
    (place / "driver").symlink_to(drivers / "nvidia")
    fds = tmp_path / "proc/77/fd"
    fds.mkdir(parents=True)
    (fds / "3").symlink_to("/dev/nvidia0")
    with pytest.raises(Retry, match="process 77 has /dev/nvidia0 open"):
        bench.hardware.bind("0000:1b:00.0", "vfio-pci")
    (fds / "3").unlink()
    bench.hardware.bind("0000:1b:00.0", "vfio-pci")
    assert (place / "driver_override").read_text() == "vfio-pci"
    assert (drivers / "nvidia/unbind").read_text() == "0000:1b:00.0"
    assert (tmp_path / "sys/bus/pci/drivers_probe").read_text() == "0000:1b:00.0"
    assert os.path.realpath(place / "driver").endswith("nvidia")


# ---- events


def happens(bench: Bench) -> HardwareEvent:
    """The next event."""
    return asyncio.run(asyncio.wait_for(bench.hardware.next_event(), 10))


def test_xids_come_with_gpu_and_instance(bench: Bench) -> None:
    h100, a100, _ = bench.library.gpus
    bench.hardware._wait()  # begins to watch
    bench.library.xid(h100, 79)
    assert happens(bench) == XidError(h100.uuid, 79)
    bench.library.xid(a100, 31, gi=2, ci=0)
    assert happens(bench) == XidError(a100.uuid, 31, 2, 0)


def test_a_lost_gpu_is_named_keeps_its_place_and_comes_back(bench: Bench) -> None:
    h100 = bench.library.gpus[0]
    bench.hardware._wait()
    bench.library.lose(h100)
    assert happens(bench) == Lost(h100.uuid)
    assert bench.hardware.gpus()[0].uuid == h100.uuid
    with pytest.raises(GpuUnreachable):
        bench.hardware.instances(h100.uuid)
    h100.lost = False
    assert happens(bench) == Recovered(h100.uuid)


def test_an_unplugged_gpu_is_lost(bench: Bench) -> None:
    h100 = bench.library.gpus[0]
    bench.hardware._wait()
    bench.library.unplug(h100)
    assert happens(bench) == Lost(h100.uuid)
    assert len(bench.hardware.gpus()) == 3


def test_a_reset_that_nvml_asked_for_is_a_recovery(bench: Bench) -> None:
    h100 = bench.library.gpus[0]
    bench.hardware._wait()
    h100.recovery = pynvml.NVML_GPU_RECOVERY_ACTION_GPU_RESET
    bench.library.xid(h100, 95)
    assert happens(bench) == XidError(h100.uuid, 95)
    h100.recovery = 0
    assert happens(bench) == Recovered(h100.uuid)


def test_a_gpu_without_events_is_unmonitored(tmp_path: Path) -> None:
    made = Bench(tmp_path, [gpu(0, T4, events=False)])
    with loaded(made.library):
        assert happens(made) == Unmonitored(made.library.gpus[0].uuid)
