"""What can go wrong with IMEX on a simulated machine on purpose? Daemons that fail, a host service that is in the way,
a fabric that is not ready. Each is a change of the simulated host's file, which daemons and plugin read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from dragoman.drivers.entry import DriverFault, Workloads
from dragoman.errors import Invalid
from dragoman.kubelet.faults import FOR, Fault, FaultData, FaultField, FaultKind

if TYPE_CHECKING:
    from dragoman.drivers.nvidia.compute_domain.driver import ComputeDomainDriver

MODES: dict[str, dict[str, Any]] = {
    "never-ready": {"failure": "never-ready"},
    "crash": {"failure": "crash"},
    "host-service": {"service": "active"},
    "fabric": {"fabric": "IN_PROGRESS"},
}
"""What of the host changes, by the fault's mode."""
_SAID = {
    "never-ready": "nvidia-imex stays in INITIALIZING",
    "crash": "nvidia-imex ends as soon as it is started",
    "host-service": "nvidia-imex.service runs on the host and has the ports",
    "fabric": "the NVLink fabric is not ready; the driver finds out when it starts",
}


class ImexFault(Fault, frozen=True, kw_only=True):
    """IMEX does not work on the machine; mode is one of MODES."""

    kind: ClassVar[str] = "imex"
    again_after_boot: ClassVar[bool] = True
    mode: str


def _read(node: str, for_s: float | None, entries: FaultData) -> Fault:
    mode = entries.text("mode")
    if mode not in MODES:
        raise Invalid("data.mode", f"must be one of {', '.join(MODES)}, got {mode!r}")
    return ImexFault(node, for_s, mode=mode)


def _inject(driver: ComputeDomainDriver, workloads: Workloads, fault: ImexFault) -> str:
    _change(driver, MODES[fault.mode])
    return f"{_SAID[fault.mode]} on node {fault.node}"


def _recover(driver: ComputeDomainDriver, fault: ImexFault) -> None:
    from dragoman.drivers.nvidia.compute_domain.imex import HostState

    healthy = HostState()
    _change(driver, {field: getattr(healthy, field) for field in MODES[fault.mode]})


def _change(driver: ComputeDomainDriver, fields: dict[str, Any]) -> None:
    import msgspec

    from dragoman.drivers.nvidia.compute_domain import imex

    if driver.host is None:
        raise Invalid("data.node", "is no simulated machine")
    imex.set_host_state(driver.host, msgspec.structs.replace(imex.host_state(driver.host), **fields))


_MODE = FaultField("mode", "MODE", ", ".join(MODES), in_name=True)
FAULTS: tuple[DriverFault, ...] = (
    DriverFault(
        FaultKind("imex", "IMEX does not work on a machine", (_MODE, FOR), _read, "--mode never-ready --for 5m"),
        _inject,
        _recover,
    ),
)
