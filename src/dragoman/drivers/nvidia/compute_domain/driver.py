"""How does a node take part in a ComputeDomain? Channels and the daemon, published and prepared.

A channel's claim labels the node, so that a daemon of its domain is started there, and waits until that daemon is
ready; only this node is looked at. Preparing touches the API and files of its own alone. Sockets, checkpoints, CDI
files and slices are the SDK's.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec

from dragoman.api import codec
from dragoman.api.kinds import kind_of
from dragoman.api.resource import Device
from dragoman.cluster.client import Client
from dragoman.drivers.nvidia.classes import COMPUTE_DOMAIN
from dragoman.drivers.nvidia.compute_domain import imex
from dragoman.drivers.nvidia.compute_domain.config import ChannelConfig, DomainDeviceType, resolved
from dragoman.drivers.nvidia.compute_domain.names import (
    CHANNEL,
    CHANNELS,
    CLIQUE,
    DAEMON,
    DOMAIN,
    LABEL,
    NAMESPACE,
    READY,
    Clique,
    ComputeDomain,
    clique_name,
)
from dragoman.drivers.nvidia.gates import DEFAULTS, DriverGates
from dragoman.errors import Denied, Invalid, NotFound, Retry, Stale
from dragoman.node.cdi import DeviceNode, Edits, Mount
from dragoman.node.driver import ClaimToPrepare, DeviceSetup, NotYet, Pool, PreparedClaim, Setup, device
from dragoman.node.files import write_atomically

NODE = kind_of("Node")
AGAIN_S = 0.5
TYPES: Mapping[str, DomainDeviceType] = {CHANNEL: "channel", DAEMON: "daemon"}
CONTROL = ("/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools", "/dev/nvidia-modeset")
CHANNEL_PATH = "/dev/nvidia-caps-imex-channels/channel"
VOID = "NVIDIA_VISIBLE_DEVICES=void"
OLDEST_DRIVER = (570, 158, 1)
"""Of NVIDIA's kernel driver, for daemons with DNS names."""


class NodeFabric(msgspec.Struct, frozen=True):
    """What the machine says of NVLink between nodes: the clique, "" without; how channels and the fabric's management
    device are found; whether the host's own IMEX daemon is ready ("" or why not)."""

    clique: Callable[[], str]
    channel_major: Callable[[], int]
    management_minor: Callable[[], int]
    host_ready: Callable[[], str]
    driver_version: str = ""


class ComputeDomainDriver:
    """One node's channels and daemon device, in a pool named like the node.

    client: with the rights of the kubelet plugin. folder: the plugin's own, of the host. namespace: the driver's.
    host: the file of a simulated host's state.
    """

    name = COMPUTE_DOMAIN

    def __init__(
        self,
        node_name: str,
        client: Client,
        fabric: NodeFabric,
        folder: Path,
        gates: DriverGates = DEFAULTS,
        namespace: str = NAMESPACE,
        host: Path | None = None,
    ) -> None:
        self.node_name = node_name
        self.client = client
        self.fabric = fabric
        self.folder = folder
        self.gates = gates
        self.namespace = namespace
        self.host = host
        self.host_managed = gates.on("HostManagedIMEXDaemon")
        self.clique = ""
        self._places: dict[str, tuple[str, str]] = {}
        """Namespace and name of domains that were seen, by uid."""
        self._check_version()

    def _check_version(self) -> None:
        if self.host_managed or not self.gates.on("IMEXDaemonsWithDNSNames") or not self.fabric.driver_version:
            return
        version = tuple(int(part) for part in self.fabric.driver_version.split(".") if part.isdecimal())
        if version < OLDEST_DRIVER:
            oldest = "570.158.01"
            raise Invalid(
                f"NVIDIA driver {self.fabric.driver_version}",
                f"IMEX daemons with DNS names need {oldest} or newer: update it, or turn off the feature gates "
                "IMEXDaemonsWithDNSNames and ComputeDomainCliques",
            )

    # ---- publishing

    async def pools(self) -> Mapping[str, Pool]:
        """The one channel that is offered, and the daemon."""
        names = (CHANNEL,) if self.host_managed else (CHANNEL, DAEMON)
        return {self.node_name: Pool(tuple(self._device(name) for name in names))}

    def _device(self, name: str) -> Device:
        return device(name, {"type": TYPES[name], "id": 0})

    # ---- preparing

    async def prepare(self, claim: ClaimToPrepare) -> Setup:
        """Raises NotYet until this node's daemon is ready, Invalid for what can never be."""
        made: list[DeviceSetup] = []
        common = Edits()
        for result in claim.results:
            kind = TYPES.get(result.device) if result.pool == self.node_name else None
            if kind is None:
                raise Invalid(f"device {result.pool}/{result.device}", f"is not on {self.node_name}")
            config = resolved(claim, result.request, kind)
            if isinstance(config, ChannelConfig):
                edits = await self._channel(claim, config)
            else:
                edits = await self._daemon(claim, config.domain_id)
                common = Edits(env=(VOID,), device_nodes=tuple(DeviceNode(path) for path in CONTROL))
            made.append(DeviceSetup(result.pool, result.device, edits, requests=(result.request,)))
        return Setup(made, common)

    async def _domain(self, claim: ClaimToPrepare, uid: str) -> ComputeDomain:
        """The domain of that uid. Raises NotYet where there is none."""
        domain = await self._found(uid)
        if domain is None:
            raise _not_yet(f"ComputeDomain not found: {uid}")
        if domain.is_ending:
            raise _not_yet(f"ComputeDomain {domain} ({uid}) is being deleted")
        return domain

    async def _found(self, uid: str) -> ComputeDomain | None:
        if place := self._places.get(uid):
            try:
                found = await self.client.get(DOMAIN, place[1], place[0])
            except NotFound:
                found = {"metadata": {"uid": ""}}
            if found["metadata"]["uid"] == uid:
                return codec.decode(ComputeDomain, found)
        listed = await self.client.list(DOMAIN)
        self._places = {
            item["metadata"]["uid"]: (item["metadata"]["namespace"], item["metadata"]["name"]) for item in listed.items
        }
        same = [item for item in listed.items if item["metadata"]["uid"] == uid]
        return codec.decode(ComputeDomain, same[0]) if same else None

    async def _channel(self, claim: ClaimToPrepare, config: ChannelConfig) -> Edits:
        domain = await self._domain(claim, config.domain_id)
        if domain.metadata.namespace != claim.ref.namespace:
            raise Invalid(
                f"claim {claim.ref}",
                "the ResourceClaim's namespace is different than the ComputeDomain's namespace: "
                f"ComputeDomain {domain} is in {domain.metadata.namespace}",
            )
        if self.host_managed:
            if self.clique and (problem := self.fabric.host_ready()):
                raise _not_yet(problem)
            return self._channels(ChannelConfig(config.domain_id))
        # Remembered before the label is there, so that it is taken away whatever happens.
        claim.remember({"channel": config.domain_id})
        await self._label(config.domain_id)
        if not await self._is_ready(domain):
            raise _not_yet(f"current node not ready in ComputeDomain {domain}: {await self._why(domain)}")
        return self._channels(config)

    def _channels(self, config: ChannelConfig) -> Edits:
        if not self.clique:
            return Edits()
        major = self.fabric.channel_major()
        count = CHANNELS if config.allocation_mode == "All" else 1
        nodes = (DeviceNode(f"{CHANNEL_PATH}{number}", "", "c", major, number, 0o666, "rw") for number in range(count))
        return Edits(device_nodes=tuple(nodes))

    async def _daemon(self, claim: ClaimToPrepare, uid: str) -> Edits:
        if self.host_managed:
            raise Invalid(f"claim {claim.ref}", "daemon claims are not served: IMEX is managed by the host")
        domain = await self._domain(claim, uid)
        claim.remember({"daemon": uid})
        with suppress(Retry, Denied):
            await self.sweep()
        folder = self.folder / "domains" / uid
        folder.mkdir(parents=True, exist_ok=True, mode=0o755)
        write_atomically(folder / imex.TEMPLATE, imex.template().encode(), durable=False, mode=0o644)
        env = (
            f"CLIQUE_ID={self.clique}",
            f"COMPUTE_DOMAIN_UUID={uid}",
            f"COMPUTE_DOMAIN_NAME={domain.metadata.name}",
            f"COMPUTE_DOMAIN_NAMESPACE={domain.metadata.namespace}",
        )
        nodes: tuple[DeviceNode, ...] = ()
        if self.clique:
            minor = self.fabric.management_minor()
            nodes = (DeviceNode(f"/dev/nvidia-caps/nvidia-cap{minor}", permissions="rw"),)
        mount = Mount(str(folder), "/imexd", options=("rw", "nosuid", "nodev", "bind"))
        return Edits(env=env, device_nodes=nodes, mounts=(mount,))

    async def unprepare(self, claim: PreparedClaim) -> None:
        """Take the label away with the channel's claim; a daemon's folder stays, a successor may use it already."""
        uid = claim.state.get("channel") if isinstance(claim.state, dict) else None
        if not uid:
            return
        while True:
            try:
                node = await self.client.get(NODE, self.node_name)
            except NotFound:
                return
            if (node["metadata"].get("labels") or {}).get(LABEL) != uid:
                return
            try:
                await self._patch(node, None)
            except Stale:
                continue
            return

    # ---- the label, and readiness

    async def _label(self, uid: str) -> None:
        node = await self.client.get(NODE, self.node_name)
        present = (node["metadata"].get("labels") or {}).get(LABEL, "")
        if present == uid:
            return
        if present:
            raise _not_yet(
                f"label already exists for a different ComputeDomain: node {self.node_name} serves {present}"
            )
        try:
            await self._patch(node, uid)
        except Stale:
            raise _not_yet(f"node {self.node_name} has just changed") from None

    async def _patch(self, node: Any, value: str | None) -> None:
        meta = {"resourceVersion": node["metadata"]["resourceVersion"], "labels": {LABEL: value}}
        await self.client.patch(NODE, self.node_name, {"metadata": meta}, manager="compute-domain-kubelet-plugin")

    async def _clique(self, uid: str) -> Clique | None:
        if not self.clique or not self.gates.on("ComputeDomainCliques"):
            return None
        try:
            found = await self.client.get(CLIQUE, clique_name(uid, self.clique), self.namespace)
        except NotFound:
            return None
        return codec.decode(Clique, found)

    async def _is_ready(self, domain: ComputeDomain) -> bool:
        if clique := await self._clique(domain.metadata.uid):
            entries = [entry for entry in clique.daemons if entry.node_name == self.node_name]
            if entries:
                return entries[0].status == READY
        return any(node.name == self.node_name and node.status == READY for node in domain.status.nodes)

    async def _why(self, domain: ComputeDomain) -> str:
        """What is missing, as far as the API says."""
        clique = await self._clique(domain.metadata.uid)
        joined = {entry.node_name for entry in clique.daemons} if clique else set()
        joined |= {node.name for node in domain.status.nodes}
        if self.node_name in joined:
            return f"its daemon on {self.node_name} has joined and is not Ready"
        return f"its daemon on {self.node_name} has not joined yet"

    async def sweep(self) -> None:
        """Delete folders of domains that do not exist any more. Raises as Client does."""
        folder = self.folder / "domains"
        present = [path for path in folder.glob("*") if path.is_dir()] if folder.is_dir() else []
        if not present:
            return
        listed = await self.client.list(DOMAIN)
        alive = {item["metadata"]["uid"] for item in listed.items}
        for path in present:
            if path.name not in alive:
                shutil.rmtree(path, ignore_errors=True)

    # ---- the start

    async def restore(self, claims: Sequence[PreparedClaim]) -> None:
        """Read the fabric, and take away the label that a claim lost to a reboot has left: nothing else would while its
        domain lives. Raises Invalid for a fabric that is not as it must be."""
        self.clique = self.fabric.clique()
        held = {claim.state.get("channel") for claim in claims if isinstance(claim.state, dict)}
        try:
            node = await self.client.get(NODE, self.node_name)
        except (NotFound, Retry, Denied):
            return
        label = (node["metadata"].get("labels") or {}).get(LABEL)
        if label and label not in held:
            try:
                await self._patch(node, None)
            except (Stale, NotFound, Retry):
                return


def _not_yet(message: str) -> NotYet:
    return NotYet(message, after_s=AGAIN_S, lasting=True)
