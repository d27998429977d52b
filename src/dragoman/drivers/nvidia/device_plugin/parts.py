"""What runs beside the device plugin on a simulated node, as the GPU operator's ClusterPolicy has it there?

GPU feature discovery and the MIG manager, each while its deploy label lets it; the device plugin, too. On real nodes
these are NVIDIA's own.
"""

from __future__ import annotations

from collections.abc import Mapping

from dragoman.api.kinds import kind_of
from dragoman.api.meta import Ref
from dragoman.cluster.events import Recorder
from dragoman.drivers.entry import MachineProfile, Site
from dragoman.drivers.nvidia import mig_parted
from dragoman.drivers.nvidia.device_plugin import other_path
from dragoman.drivers.nvidia.device_plugin.discovery import FeatureDiscovery
from dragoman.drivers.nvidia.device_plugin.mig_labels import EVENT_REASON, MigManager
from dragoman.drivers.nvidia.device_plugin.node_labels import DEPLOY, TRUE, NodeLabels
from dragoman.drivers.nvidia.device_plugin.service import DevicePluginService
from dragoman.drivers.nvidia.factory import clique_labels
from dragoman.drivers.nvidia.simulated import SimulatedHardware
from dragoman.effects import Emit
from dragoman.runtime.tasks import Tasks

NAMESPACE = "kube-system"
DISCOVERY_ACCOUNT, MIG_ACCOUNT = "nvidia-gpu-feature-discovery", "nvidia-mig-manager"
PLUGIN, DISCOVERY, MIG = "device-plugin", "gpu-feature-discovery", "mig-manager"
OPERANDS = (
    "driver",
    DISCOVERY,
    "container-toolkit",
    PLUGIN,
    "dcgm",
    "dcgm-exporter",
    "node-status-exporter",
    "operator-validator",
)
"""Parts that the operator switches on by label on a node whose containers use GPUs."""


def node_labels(machine: MachineProfile, rack: str = "") -> Mapping[str, str]:
    """What node feature discovery and the kernel driver's fabric say of a node with GPUs."""
    return {
        "feature.node.kubernetes.io/pci-10de.present": TRUE,
        "nvidia.com/gpu.present": TRUE,
        **clique_labels(machine, rack),
    }


class NodeParts:
    """The parts of one node. `run` them."""

    def __init__(self, service: DevicePluginService, site: Site, hardware: SimulatedHardware) -> None:
        assert site.nodes is not None
        self.service = service
        self.site = site
        self.hardware = hardware
        self.labels = NodeLabels(site.nodes, service.node_name)
        self.discovery = FeatureDiscovery(
            site.as_account(NAMESPACE, DISCOVERY_ACCOUNT),
            site.clock,
            service.node_name,
            hardware,
            lambda: service.config,
            hardware.profile.node.product,
        )
        client = site.as_account(NAMESPACE, MIG_ACCOUNT)
        self._events = Recorder(client, site.clock, site.entropy, site.metrics)
        self._holds = other_path.PluginHolds(site.root, site.clock)
        models = {
            mig_parted.pci_id(model.device_id): hardware.catalog.mig_shapes(model)
            for model in hardware.catalog.gpu_models(hardware.profile)
            if model.mig
        }
        has_layout = any(hardware.profile.mig_of(slot).enabled for slot in hardware.profile.gpus)
        self.mig = MigManager(
            client,
            site.clock,
            site.entropy,
            service.node_name,
            hardware,
            self.labels,
            stopped=lambda: not service.servers,
            held=self._held,
            changed=self.discovery.again,
            failed=self._failed,
            reset=hardware.reset,
            generated=mig_parted.generated(models),
            # A profile with a layout of its own keeps it; NVIDIA's operator begins with all-disabled.
            default="" if has_layout else mig_parted.DISABLED,
        )
        self._has_mig = bool(models)

    async def run(self) -> None:
        """Serve until cancelled."""
        clock, entropy, labels = self.site.clock, self.site.entropy, self.labels
        async with labels.followed(), Tasks("gpu parts", clock, entropy) as tasks:
            tasks.supervise("deploy labels", self._deploy)
            for part, run in ((PLUGIN, self.service.run), (DISCOVERY, self.discovery.run)):
                tasks.supervise(part, lambda part=part, run=run: labels.deployed(part, run, clock, entropy))  # type: ignore[misc]
            if self._has_mig:
                tasks.supervise("events", self._events.run)
                tasks.supervise(MIG, lambda: labels.deployed(MIG, self.mig.run, clock, entropy))

    async def _deploy(self) -> None:
        """Set the deploy labels that the node has none of, as the operator does; what a user set stays."""
        there = await self.labels.until(lambda labels: True)
        operands = [*OPERANDS, *([MIG] if self._has_mig else [])]
        missing = {DEPLOY + operand: TRUE for operand in operands if DEPLOY + operand not in there}
        if missing:
            patch = {"metadata": {"labels": missing}}
            await self.mig.client.patch(kind_of("Node"), self.service.node_name, patch)

    async def _held(self) -> Mapping[str, str]:
        """What containers and claims have of the GPUs now."""
        held = dict.fromkeys(await self._holds.held(), "a container of the device plugin")
        held |= await other_path.users_of_plugins(self.site.root)
        return held | dict.fromkeys(
            await other_path.held_by_claims(self.site.root, self.hardware), "a claim of a DRA driver"
        )

    def _failed(self, message: str) -> None:
        node = kind_of("Node")
        about = Ref(node.kind, "", self.service.node_name, self.labels.uid)
        self._events.emit(Emit(about, "Warning", EVENT_REASON, message, MIG_ACCOUNT))
