"""What does Dragoman have to know of the example driver? Made-up GPUs, on any machine that is asked to have them."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from typing import TYPE_CHECKING, Any

from dragoman.drivers.entry import DriverEntry, DriverFactory, MachineProfile, Site
from dragoman.drivers.example.classes import DEVICE_CLASS, NAME

if TYPE_CHECKING:
    from dragoman.node.driver import Driver


def _flags(parser: ArgumentParser) -> None:
    parser.add_argument("--count", type=int, default=8, metavar="N", help="devices; default 8")


def _factory(count: int) -> DriverFactory:
    def make(node_name: str, site: Site) -> Driver:
        from dragoman.drivers.example.driver import ExampleDriver

        return ExampleDriver(node_name, count)

    return DriverFactory(make)


def _standalone(args: Namespace, machine: MachineProfile | None) -> DriverFactory:
    return _factory(args.count)


def _on_machine(machine: MachineProfile, settings: Any) -> DriverFactory | None:
    count = machine.profile.example_devices
    return _factory(count) if count else None


ENTRY = DriverEntry(
    "example",
    NAME,
    "made-up GPUs, gpu.example.com",
    standalone=_standalone,
    on_machine=_on_machine,
    classes=(DEVICE_CLASS,),
    flags=_flags,
)
