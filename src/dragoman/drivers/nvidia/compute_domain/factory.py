"""How is the ComputeDomain driver made? On a real node through NVML, on simulated machines from their profile."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from dragoman.drivers.entry import ClusterSite, DriverFactory, MachineProfile, Site
from dragoman.drivers.nvidia.classes import COMPUTE_DOMAIN
from dragoman.drivers.nvidia.compute_domain import fabric as fabrics
from dragoman.drivers.nvidia.compute_domain import imex
from dragoman.drivers.nvidia.compute_domain.controlling import DomainController
from dragoman.drivers.nvidia.compute_domain.driver import ComputeDomainDriver, NodeFabric
from dragoman.drivers.nvidia.compute_domain.fabric import GpuFabric, clique_of
from dragoman.drivers.nvidia.compute_domain.names import (
    CONTROLLER_ACCOUNT,
    DAEMON_ACCOUNT,
    MAX_NODES,
    NAMESPACE,
    NODE_CLIQUE,
    PLUGIN_ACCOUNT,
)
from dragoman.drivers.nvidia.compute_domain.objects import MakeSettings
from dragoman.drivers.nvidia.compute_domain.program import NodePrograms
from dragoman.drivers.nvidia.factory import cluster_uuid, labels
from dragoman.drivers.nvidia.gates import GATES, DriverGates, gates_with, parse_gates
from dragoman.errors import Invalid
from dragoman.node.plugin import Places

if TYPE_CHECKING:
    from dragoman.kubelet.containers import Tool
    from dragoman.node.driver import Driver

HOST_FILE = "imex-host.json"
"""What of the simulated host bears on IMEX, in its folder."""
IMEX_GATES = ("IMEXDaemonsWithDNSNames", "ComputeDomainCliques", "HostManagedIMEXDaemon", "CrashOnNVLinkFabricErrors")
CHANNEL_MAJOR, MANAGEMENT_MINOR = 506, 2
"""Of simulated hosts; the kernel chooses them on real ones."""


class DomainSettings(msgspec.Struct, frozen=True):
    """machines: auto (those of a rack with one fabric), all with NVIDIA GPUs, or off. gates: changes of them."""

    machines: str = "auto"
    gates: dict[str, bool] = {}
    max_nodes: int = MAX_NODES


SETTINGS = DomainSettings()


def up_settings(args: Namespace) -> DomainSettings:
    """From the flags of `dragoman up`. Raises Invalid."""
    gates = parse_gates(args.gpu_feature_gates, "--gpu-feature-gates")
    if args.max_nodes_per_imex_domain < 1:
        raise Invalid("--max-nodes-per-imex-domain", f"must be at least 1, got {args.max_nodes_per_imex_domain}")
    return DomainSettings(args.compute_domains, gates, args.max_nodes_per_imex_domain)


def effective(changes: Mapping[str, bool], where: str) -> DriverGates:
    """The gates that apply: HostManagedIMEXDaemon turns the two of daemons off. Raises Invalid as `gates_with`."""
    gates = gates_with(changes, where)
    if not gates.on("HostManagedIMEXDaemon"):
        return gates
    return DriverGates(gates.enabled - {"IMEXDaemonsWithDNSNames", "ComputeDomainCliques"})


def on_machine(machine: MachineProfile, settings: DomainSettings) -> DriverFactory | None:
    """On the machines of a profile, None where they take no part. Raises Invalid."""
    profile = machine.profile
    if settings.machines == "off" or not profile.gpus:
        return None
    if settings.machines == "auto" and not profile.fabric.clique:
        return None
    gates = effective({**profile.feature_gates, **settings.gates}, f"driver of profile {profile.name}")

    def make(node_name: str, site: Site) -> Driver:
        folder = Places.under(site.root, COMPUTE_DOMAIN).data_dir
        return ComputeDomainDriver(
            node_name,
            site.as_account(NAMESPACE, PLUGIN_ACCOUNT),
            _simulated_fabric(machine, node_name, site, gates),
            folder,
            gates,
            host=site.simulated_dir / HOST_FILE,
        )

    def tools(driver: ComputeDomainDriver, site: Site) -> Mapping[str, Tool]:
        host = site.simulated_dir / HOST_FILE
        client = site.as_account(NAMESPACE, DAEMON_ACCOUNT)
        return NodePrograms(client, site.clock, site.entropy, driver.folder / "domains", host).tools()

    def node_labels(rack: str) -> Mapping[str, str]:
        found = labels(machine, rack).get(NODE_CLIQUE)
        return {NODE_CLIQUE: found} if found else {}

    return DriverFactory(make, node_labels, direct=True, site_tools=tools)


def rack_of(machine: MachineProfile, node_name: str) -> str:
    """The rack of a tray: trays are named RACK-N. A machine that is none stands alone."""
    return node_name.rpartition("-")[0] if machine.profile.rack is not None else node_name


def _simulated_fabric(machine: MachineProfile, node_name: str, site: Site, gates: DriverGates) -> NodeFabric:
    host = site.simulated_dir / HOST_FILE
    clique = machine.profile.fabric.clique

    def gpus() -> list[GpuFabric]:
        if not machine.profile.fabric.gpu_links:
            return []
        state = imex.host_state(host).fabric
        rack = cluster_uuid(rack_of(machine, node_name)) if clique else fabrics.NO_UUID
        return [
            GpuFabric(slot.bus_id, state, 0, rack, int(clique) if clique.isdecimal() else 0)
            for slot in machine.profile.gpus
        ]

    def host_ready() -> str:
        state = imex.host_state(host)
        if state.service == "active" and state.ready:
            return ""
        answer = imex.INITIALIZING if state.service == "active" else imex.UNAVAILABLE
        return f"host nvidia-imex daemon not ready: nvidia-imex-ctl reports {answer}"

    return NodeFabric(
        lambda: clique_of(gpus(), gates),
        lambda: CHANNEL_MAJOR,
        lambda: MANAGEMENT_MINOR,
        host_ready,
        machine.profile.driver.version,
    )


# ---- the controller


async def control(site: ClusterSite, settings: Any) -> None:
    """Run the controller until cancelled."""
    settings = settings or SETTINGS
    gates = effective(settings.gates, "feature gates")
    await controller(site, gates, settings.max_nodes).run()


def controller(site: ClusterSite, gates: DriverGates, max_nodes: int = MAX_NODES) -> DomainController:
    """The controller with those gates."""
    made = MakeSettings(
        max_nodes=max_nodes,
        gates=_texts(gates),
        host_managed=gates.on("HostManagedIMEXDaemon"),
    )
    client = site.as_account(NAMESPACE, CONTROLLER_ACCOUNT)
    cliques = gates.on("ComputeDomainCliques")
    return DomainController(client, site.clock, site.entropy, made, site.metrics, cliques=cliques)


def _texts(gates: DriverGates) -> str:
    """What daemons must know of the gates: those of IMEX that are not as they come."""
    changed = [name for name in IMEX_GATES if gates.on(name) != GATES[name]]
    return ",".join(f"{name}={str(gates.on(name)).lower()}" for name in changed)


def standalone_settings(args: Namespace) -> DomainSettings:
    """From the flags of `dragoman driver compute-domain`. Raises Invalid."""
    return DomainSettings("all", parse_gates(args.feature_gates))
