"""What can go wrong with simulated NVIDIA GPUs on purpose? XIDs, GPUs that are lost, memory that runs out."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from dragoman.drivers.entry import DriverFault, Workloads
from dragoman.errors import Invalid
from dragoman.kubelet.faults import FOR, Fault, FaultData, FaultField, FaultKind

if TYPE_CHECKING:
    from dragoman.drivers.nvidia.driver import NvidiaDriver
    from dragoman.drivers.nvidia.simulated import SimulatedHardware

XID_MAX = 999
DEGREES_MAX, HOT_C = 150, 95
INSTANCE_MAX = 14


class XidFault(Fault, frozen=True, kw_only=True):
    """A critical XID on a GPU (`3`, `gpu-3` or its UUID), or on a GPU instance of it; pod: whose work raised it."""

    kind: ClassVar[str] = "xid"
    gpu: str
    number: int
    instance: int | None = None
    pod: str = ""


class GpuLostFault(Fault, frozen=True, kw_only=True):
    """A GPU falls off the bus."""

    kind: ClassVar[str] = "gpu-lost"
    again_after_boot: ClassVar[bool] = True
    gpu: str


class MemoryOverrun(Fault, frozen=True, kw_only=True):
    """A pod takes all the memory that it gets on a GPU."""

    kind: ClassVar[str] = "memory-overrun"
    once: ClassVar[bool] = True
    gpu: str
    pod: str


class GpuHot(Fault, frozen=True, kw_only=True):
    """A GPU is hotter than its load makes it."""

    kind: ClassVar[str] = "gpu-hot"
    gpu: str
    degrees: int


class RowRemapFailure(Fault, frozen=True, kw_only=True):
    """A GPU has no spare memory rows left."""

    kind: ClassVar[str] = "row-remap-failure"
    gpu: str


def _read_hot(node: str, for_s: float | None, entries: FaultData) -> Fault:
    degrees = entries.number("degrees", 1, DEGREES_MAX) if entries.has("degrees") else HOT_C
    return GpuHot(node, for_s, gpu=entries.text("gpu"), degrees=degrees)


def _read_remap(node: str, for_s: float | None, entries: FaultData) -> Fault:
    return RowRemapFailure(node, for_s, gpu=entries.text("gpu"))


def _read_xid(node: str, for_s: float | None, entries: FaultData) -> Fault:
    instance = entries.number("instance", 0, INSTANCE_MAX) if entries.has("instance") else None
    number = entries.number("xid", 1, XID_MAX)
    return XidFault(node, for_s, gpu=entries.text("gpu"), number=number, instance=instance, pod=entries.pod(""))


def _read_lost(node: str, for_s: float | None, entries: FaultData) -> Fault:
    return GpuLostFault(node, for_s, gpu=entries.text("gpu"))


def _read_overrun(node: str, for_s: float | None, entries: FaultData) -> Fault:
    return MemoryOverrun(node, for_s, gpu=entries.text("gpu"), pod=entries.pod())


GpuFault = XidFault | GpuLostFault | MemoryOverrun | GpuHot | RowRemapFailure

# ---- what happens


def _xid(driver: NvidiaDriver, workloads: Workloads, fault: XidFault) -> str:
    from dragoman.drivers.nvidia.scene import Scene

    hardware, index = _gpu(driver, fault)
    scene = Scene(workloads, driver)
    hardware.inject_xid(index, fault.number, fault.instance)
    outcome = scene.xid(fault.number, hardware.gpu_uuid(index), fault.instance, fault.pod)
    where = "" if fault.instance is None else f", instance {fault.instance}"
    return f"XID {fault.number} on GPU gpu-{index}{where} of node {fault.node}{_unheard(driver)}{outcome}"


def _lost(driver: NvidiaDriver, workloads: Workloads, fault: GpuLostFault) -> str:
    from dragoman.drivers.nvidia.scene import Scene

    hardware, index = _gpu(driver, fault)
    scene = Scene(workloads, driver)
    hardware.lose(index)
    outcome = scene.lost(hardware.gpu_uuid(index))
    return f"GPU gpu-{index} on node {fault.node} is lost{_unheard(driver)}{outcome}"


def _overrun(driver: NvidiaDriver, workloads: Workloads, fault: MemoryOverrun) -> str:
    from dragoman.drivers.nvidia.scene import Scene

    hardware, index = _gpu(driver, fault)
    outcome = Scene(workloads, driver).overrun(fault.pod, hardware.gpu_uuid(index))
    return f"{fault.pod} uses all memory that it can get on GPU gpu-{index} of node {fault.node}{outcome}"


_SEEN = "; the DCGM exporter shows it: dragoman up --dcgm-exporter"


def _hot(driver: NvidiaDriver, workloads: Workloads, fault: GpuHot) -> str:
    hardware, index = _gpu(driver, fault)
    hardware.heat(index, fault.degrees)
    return f"GPU gpu-{index} of node {fault.node} has {fault.degrees} C{_SEEN}"


def _cool(driver: NvidiaDriver, fault: GpuHot) -> None:
    hardware, index = _gpu(driver, fault)
    hardware.heat(index, 0)


def _fail_remap(driver: NvidiaDriver, workloads: Workloads, fault: RowRemapFailure) -> str:
    hardware, index = _gpu(driver, fault)
    hardware.fail_row_remap(index, True)
    return f"GPU gpu-{index} of node {fault.node} cannot remap memory rows any more{_SEEN}"


def _replace(driver: NvidiaDriver, fault: RowRemapFailure) -> None:
    hardware, index = _gpu(driver, fault)
    hardware.fail_row_remap(index, False)


def _mend(driver: NvidiaDriver, fault: XidFault | GpuLostFault) -> None:
    hardware, index = _gpu(driver, fault)
    hardware.recover(index)


def _gpu(driver: NvidiaDriver, fault: GpuFault) -> tuple[SimulatedHardware, int]:
    from dragoman.drivers.nvidia.simulated import SimulatedHardware

    hardware = driver.hardware
    if not isinstance(hardware, SimulatedHardware):
        raise Invalid("data.gpu", f"node {fault.node} has no simulated GPUs")
    uuids = [hardware.gpu_uuid(index) for index in range(len(hardware.profile.gpus))]
    if fault.gpu in uuids:
        return hardware, uuids.index(fault.gpu)
    index = fault.gpu.removeprefix("gpu-")
    if not index.isdecimal() or int(index) >= len(uuids):
        raise Invalid("data.gpu", f"{fault.node} has gpu-0 to gpu-{len(uuids) - 1}, got {fault.gpu!r}")
    return hardware, int(index)


def _unheard(driver: NvidiaDriver) -> str:
    if driver.gates.on("NVMLDeviceHealthCheck"):
        return ""
    return (
        "; the driver does not watch for this: start it with its feature gate NVMLDeviceHealthCheck=true "
        "(dragoman up --gpu-feature-gates NVMLDeviceHealthCheck=true)"
    )


_GPU = FaultField("gpu", "GPU", "as 3, gpu-3, or a UUID", in_name=True)
_DEGREES = FaultField("degrees", "C", f"temperature; default: {HOT_C}")
_POD = FaultField("pod", "POD", "pod that causes it: NAMESPACE/NAME, or NAME in namespace default")
_XID = (_GPU, FaultField("xid", "N", "the XID"), FaultField("instance", "GI", "a GPU instance of the GPU"), _POD, FOR)

FAULTS: tuple[DriverFault, ...] = (
    DriverFault(FaultKind("xid", "a critical XID on a GPU", _XID, _read_xid, "--gpu 3 --xid 79 --for 5m"), _xid, _mend),
    DriverFault(FaultKind("gpu-lost", "a GPU falls off the bus", (_GPU, FOR), _read_lost, "--gpu 3"), _lost, _mend),
    DriverFault(
        FaultKind("gpu-hot", "a GPU is too hot", (_GPU, _DEGREES, FOR), _read_hot, "--gpu 3 --for 10m"), _hot, _cool
    ),
    DriverFault(
        FaultKind("row-remap-failure", "a GPU has no spare memory rows", (_GPU, FOR), _read_remap, "--gpu 3"),
        _fail_remap,
        _replace,
    ),
    DriverFault(
        FaultKind(
            "memory-overrun",
            "a pod uses all the memory that it can get on a GPU",
            (_GPU, _POD),
            _read_overrun,
            "--gpu 3 --pod default/train",
        ),
        _overrun,
    ),
)
