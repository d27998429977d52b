"""What does Dragoman have to know of the adapters' driver? It is there on machines whose profile has adapters."""

from __future__ import annotations

from argparse import Namespace
from typing import TYPE_CHECKING, Any, ClassVar

from dragoman.drivers.entry import DriverEntry, DriverFactory, DriverFault, MachineProfile, Site, Workloads
from dragoman.drivers.nic.classes import DEVICE_CLASSES, NAME
from dragoman.kubelet.faults import FOR, Fault, FaultData, FaultField, FaultKind

if TYPE_CHECKING:
    from dragoman.drivers.nic.driver import NicDriver
    from dragoman.node.driver import Driver


def _on_machine(machine: MachineProfile, settings: Any) -> DriverFactory | None:
    if not machine.profile.nics:
        return None

    def make(node_name: str, site: Site) -> Driver:
        from dragoman.drivers.nic.driver import NicDriver

        return NicDriver(node_name, machine.profile, machine.catalog.nics, site.clock)

    return DriverFactory(make, direct=True)


def _standalone(args: Namespace, machine: MachineProfile | None) -> DriverFactory:
    from dragoman.errors import Invalid

    assert machine is not None
    made = _on_machine(machine, None)
    if made is None:
        raise Invalid(f"--simulate {args.simulate}", "this machine has no network adapters")
    return made


# ---- faults


class NicDown(Fault, frozen=True, kw_only=True):
    """A network adapter (RDMA device, interface, PCI address or device name) has no link."""

    kind: ClassVar[str] = "nic-down"
    again_after_boot: ClassVar[bool] = True
    again_after_restart: ClassVar[bool] = True
    nic: str


def _read(node: str, for_s: float | None, entries: FaultData) -> Fault:
    return NicDown(node, for_s, nic=entries.text("nic"))


def _inject(driver: NicDriver, workloads: Workloads, fault: NicDown) -> str:
    driver.set_down(fault.nic, down=True)
    return f"the link of {fault.nic} on node {fault.node} is down"


def _recover(driver: NicDriver, fault: NicDown) -> None:
    driver.set_down(fault.nic, down=False)


_NIC = FaultField("nic", "NIC", "RDMA device, interface, PCI address or device name", in_name=True)

ENTRY = DriverEntry(
    "nic",
    NAME,
    "network adapters of simulated machines, dra.net",
    standalone=_standalone,
    on_machine=_on_machine,
    classes=DEVICE_CLASSES,
    simulate="the adapters of this machine profile",
    only_simulated=True,
    faults=(
        DriverFault(
            FaultKind("nic-down", "a network adapter has no link", (_NIC, FOR), _read, "--nic mlx5_0"),
            _inject,
            _recover,
        ),
    ),
)
