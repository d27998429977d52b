"""How is the GPU driver made? For a real node, for a simulated one, and for all machines of a profile.

The class is the same in each; what differs is the hardware, and where gates and options come from.
"""

from __future__ import annotations

import uuid
from argparse import Namespace
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path

import msgspec

from dragoman.api.shape import Object
from dragoman.drivers.entry import DriverFactory, MachineProfile, Site
from dragoman.drivers.nvidia import smi_script
from dragoman.drivers.nvidia.accounts import DCGM_ACCOUNT, account
from dragoman.drivers.nvidia.classes import GPU
from dragoman.drivers.nvidia.dcgm import DcgmExporter
from dragoman.drivers.nvidia.device_plugin.discovery import family_of, sanitised
from dragoman.drivers.nvidia.devices import NO_SHARES, Shares
from dragoman.drivers.nvidia.driver import DriverOptions, NvidiaDriver, made
from dragoman.drivers.nvidia.gates import gates_with, parse_gates
from dragoman.drivers.nvidia.hardware import Hardware
from dragoman.drivers.nvidia.health import IGNORED, HealthOptions, parse_xids
from dragoman.drivers.nvidia.images import MPS_IMAGE, MPS_NAMESPACE
from dragoman.drivers.nvidia.mps import Daemons
from dragoman.drivers.nvidia.simulated import SimulatedHardware
from dragoman.node.driver import Driver
from dragoman.node.plugin import Places

MPS_FOLDER = "mps"
"""Holds the folders of MPS daemons, in the plugin's folder."""


def driver(node_name: str, site: Site, hardware: Hardware, options: DriverOptions) -> NvidiaDriver:
    """The driver on that hardware. Raises Invalid as `made`."""
    daemons = None
    if options.gates.on("MPSSupport"):
        daemons = Daemons(
            site.client,
            site.clock,
            site.entropy,
            hardware,
            node_name=node_name,
            root=Places.under(site.root, GPU).data_dir / MPS_FOLDER,
            driver_root=options.driver_root,
            image=options.mps_image,
            namespace=options.mps_namespace,
            simulated=isinstance(hardware, SimulatedHardware),
        )
    return made(node_name, hardware, site.clock, options, daemons=daemons, metrics=site.metrics, kubelet_dir=site.root)


# ---- the command `dragoman driver nvidia`


def standalone(args: Namespace, machine: MachineProfile | None) -> DriverFactory:
    """On this machine's GPUs, or with --simulate on those of a profile. Raises Invalid."""
    gates = parse_gates(args.feature_gates)
    health = HealthOptions(
        xid_effect=args.xid_effect,
        ignored=IGNORED | parse_xids(args.additional_xids_to_ignore, "--additional-xids-to-ignore"),
        clear_on_recovery=args.clear_taints_on_recovery,
    )
    shares = Shares.parse(args.consumable_shares)
    if machine is not None:
        settings = MachineSettings(gates, health, shares, args.nvidia_driver_root, args.mps_image, args.mps_namespace)
        return on_machine(machine, settings, "--feature-gates")
    options = DriverOptions(
        gates_with(gates, "--feature-gates"),
        shares,
        health,
        args.nvidia_driver_root,
        args.mps_image,
        args.mps_namespace,
    )
    from dragoman.drivers.nvidia.nvml import NvmlHardware  # not for simulated GPUs

    hardware = NvmlHardware(driver_root=Path(args.driver_root_ctr_path or args.nvidia_driver_root))
    # A machine without the kernel driver is refused at once, not by a loop that fails again and again.
    hardware.open()

    def make(node_name: str, site: Site) -> Driver:
        return driver(node_name, site, hardware, options)

    return DriverFactory(make, metadata=options.gates.on("DeviceMetadata"))


# ---- simulated machines


class MachineSettings(msgspec.Struct, frozen=True):
    """How the driver behaves on simulated machines: changes of feature gates (over the profile's), and its options."""

    gates: dict[str, bool] = {}
    health: HealthOptions = HealthOptions(clear_on_recovery=True)
    shares: Shares = NO_SHARES
    driver_root: str = "/"
    mps_image: str = MPS_IMAGE
    mps_namespace: str = MPS_NAMESPACE
    dcgm: bool = False
    """Whether the DCGM exporter's counters are shown."""


MACHINE_SETTINGS = MachineSettings()


def up_settings(args: Namespace) -> MachineSettings:
    """From the flags of `dragoman up`. Raises Invalid."""
    health = HealthOptions(xid_effect=args.xid_effect, clear_on_recovery=True)
    gates = parse_gates(args.gpu_feature_gates, "--gpu-feature-gates")
    return MachineSettings(gates, health, dcgm=args.dcgm_exporter)


def on_machine(machine: MachineProfile, settings: MachineSettings, where: str = "") -> DriverFactory:
    """On the GPUs of a machine profile; where: whose gates are to blame. Raises Invalid."""
    from dragoman.drivers.nvidia import smi  # not for clusters without GPUs

    options = machine_options(machine, settings, where)

    def make(node_name: str, site: Site) -> Driver:
        hardware = SimulatedHardware(
            machine.catalog, machine.profile, node_name, site.simulated_dir, site.boot_id, durable=site.durable
        )
        hardware.check(shared=site.is_shared)
        return driver(node_name, site, hardware, options)

    metadata = options.gates.on("DeviceMetadata")
    return DriverFactory(
        make,
        lambda rack: labels(machine, rack),
        metadata=metadata,
        tools=smi.tools,
        scripts=_scripts,
        beside=_exporter if settings.dcgm else None,
    )


def _exporter(driver: NvidiaDriver, site: Site) -> Callable[[], Awaitable[None]]:
    assert isinstance(driver.hardware, SimulatedHardware)
    client = site.as_account(*DCGM_ACCOUNT)
    return DcgmExporter(driver.node_name, driver.hardware, site.root, site.clock, client, site.metrics).run


def installed() -> tuple[Object, ...]:
    """The account of the DCGM exporter, which reads the pods that use GPUs."""
    pods = {"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}
    return account(*DCGM_ACCOUNT, [pods], [])


def _scripts(driver: NvidiaDriver) -> Mapping[str, str]:
    hardware = driver.hardware
    assert isinstance(hardware, SimulatedHardware)
    return {smi_script.PATH: smi_script.script(hardware.gpus(), hardware.profile.driver)}


def machine_options(machine: MachineProfile, settings: MachineSettings, where: str = "") -> DriverOptions:
    """The driver's options: the profile's gates and shares apply where no others are given. Raises Invalid."""
    profile, shares = machine.profile, settings.shares
    where = where or f"driver of profile {profile.name}"
    gates = gates_with({**profile.feature_gates, **settings.gates}, where)
    if profile.consumable_shares and shares == NO_SHARES:
        shares = Shares.parse(profile.consumable_shares, f"profile {profile.name}: consumableShares")
    return DriverOptions(
        gates, shares, settings.health, settings.driver_root, settings.mps_image, settings.mps_namespace
    )


def cluster_uuid(rack: str) -> str:
    """The NVLink domain of a rack by its name."""
    return str(uuid.uuid5(uuid.NAMESPACE_DNS, f"{rack}.nvlink"))


def labels(machine: MachineProfile, rack: str = "") -> dict[str, str]:
    """Labels of a node by its profile, as GPU feature discovery and the driver set them before anything is changed.

    rack: the node group that shares its NVLink domain.
    """
    profile, models = machine.profile, machine.catalog.gpu_models(machine.profile)
    first = models[0]
    major, _, minor = first.compute_capability.partition(".")
    found = {
        "nvidia.com/gpu.present": "true",
        "nvidia.com/gpu.product": sanitised(first.name),
        "nvidia.com/gpu.count": str(sum(model.name == first.name for model in models)),
        "nvidia.com/gpu.memory": str(first.memory_mib),
        "nvidia.com/gpu.family": family_of(first.architecture),
        "nvidia.com/gpu.compute.major": major,
        "nvidia.com/gpu.compute.minor": minor or "0",
        "nvidia.com/mig.capable": "true" if first.mig else "false",
        "nvidia.com/cuda.driver-version.full": profile.driver.version,
        "nvidia.com/cuda.runtime-version.full": profile.driver.cuda,
    }
    if profile.node.product:
        found["nvidia.com/gpu.machine"] = sanitised(profile.node.product)
    return found | clique_labels(machine, rack)


def clique_labels(machine: MachineProfile, rack: str) -> dict[str, str]:
    """The NVLink clique of a node; none without a rack."""
    if not (rack and machine.profile.fabric.clique):
        return {}
    return {"nvidia.com/gpu.clique": f"{cluster_uuid(rack)}.{machine.profile.fabric.clique}"}
