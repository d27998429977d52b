"""What does Dragoman have to know of the ComputeDomain driver? Its classes and kinds, its controller, where it runs."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from typing import TYPE_CHECKING, Any

from dragoman.drivers.entry import ClusterSite, DriverEntry, DriverFactory, MachineProfile
from dragoman.drivers.nvidia.classes import COMPUTE_DOMAIN, COMPUTE_DOMAIN_CLASSES, device_class
from dragoman.drivers.nvidia.compute_domain.faults import FAULTS

if TYPE_CHECKING:
    from dragoman.api.shape import Object


def _up_flags(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--compute-domains",
        choices=["auto", "all", "off"],
        default="auto",
        help="machines that take part in ComputeDomains: auto (racks with one NVLink fabric), all with NVIDIA GPUs, or "
        "off; default: auto",
    )
    parser.add_argument(
        "--max-nodes-per-imex-domain",
        type=int,
        default=18,
        metavar="N",
        help="maximum number of nodes in one clique; default: 18",
    )


def _up_settings(args: Namespace) -> Any:
    from dragoman.drivers.nvidia.compute_domain import factory

    return factory.up_settings(args)


def _on_machine(machine: MachineProfile, settings: Any) -> DriverFactory | None:
    if not machine.profile.gpus:
        return None
    from dragoman.drivers.nvidia.compute_domain import factory

    return factory.on_machine(machine, settings or factory.SETTINGS)


def _standalone(args: Namespace, machine: MachineProfile | None) -> DriverFactory:
    from dragoman.drivers.nvidia.compute_domain import factory
    from dragoman.errors import Invalid

    assert machine is not None
    made = factory.on_machine(machine, factory.standalone_settings(args))
    if made is None:
        raise Invalid(f"--simulate {args.simulate}", "this machine has no NVIDIA GPUs")
    return made


def _flags(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--feature-gates",
        default="",
        metavar="NAME=true,...",
        help="feature gates of the driver, with upstream's names",
    )


def _installed() -> tuple[Object, ...]:
    from dragoman.drivers.nvidia.compute_domain import objects

    return objects.installed()


def _control_settings(args: Namespace) -> Any:
    from dragoman.drivers.nvidia.compute_domain import factory

    return factory.standalone_settings(args)


async def _control(site: ClusterSite, settings: Any) -> None:
    from dragoman.drivers.nvidia.compute_domain import factory

    await factory.control(site, settings)


ENTRY = DriverEntry(
    "compute-domain",
    COMPUTE_DOMAIN,
    "IMEX channels of ComputeDomains on simulated machines, compute-domain.nvidia.com",
    standalone=_standalone,
    on_machine=_on_machine,
    classes=tuple(device_class(name, selector) for name, selector in COMPUTE_DOMAIN_CLASSES.items()),
    simulate="the machine of this profile",
    only_simulated=True,
    flags=_flags,
    up_flags=_up_flags,
    up_settings=_up_settings,
    faults=FAULTS,
    installed=_installed,
    control=_control,
    control_settings=_control_settings,
)
