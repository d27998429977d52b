"""How are network adapters published and given to containers? Names and attributes of dranet, so that claims for a GPU
and an adapter under one PCIe root (or on one NUMA node) can be tried on machine profiles.

There is no network behind it: interfaces and RDMA devices are named in CDI edits and in the claim's status. A fault
injector calls `set_down`; nothing else of the hardware changes.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Callable, Mapping, Sequence

import msgspec

from dragoman.api.meta import format_time
from dragoman.api.resource import Device, DeviceTaint, NetworkDeviceData
from dragoman.drivers.nic.classes import NAME
from dragoman.errors import Invalid, Retry
from dragoman.node.cdi import DeviceNode, Edits, NetDevice
from dragoman.node.driver import ClaimToPrepare, DeviceHealth, DeviceSetup, Pool, PreparedClaim, Setup, device
from dragoman.profiles.machine import NicModel, NicSlot, Profile
from dragoman.runtime.clock import Clock

LINK_DOWN = f"{NAME}/link-down"
HEALTH_TIMEOUT_S = 300
BEAT_S = 120.0
"""Health is reported at once when it changes; in between so seldom that a thousand nodes cost next to nothing."""
MTU_ETHERNET, MTU_INFINIBAND = 1500, 4092
NAME_MAX = 15
"""Characters of an interface's name (IFNAMSIZ less the NUL)."""


class Interface(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How an interface looks in the pod: its name (default: the host's) and addresses in CIDR form."""

    name: str = ""
    addresses: tuple[str, ...] = ()


class NetworkConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Opaque parameters of this driver."""

    interface: Interface = Interface()


class Adapter(msgspec.Struct, frozen=True):
    """An adapter of the machine."""

    index: int
    slot: NicSlot
    model: NicModel
    mac: str

    @property
    def name(self) -> str:
        """Its device name: the PCI address with dashes."""
        return f"pci-{self.slot.bus_id.replace(':', '-').replace('.', '-')}"

    @property
    def is_infiniband(self) -> bool:
        """Whether the link is InfiniBand: interfaces on it are named ib..., or there is none."""
        return not self.slot.if_name or self.slot.if_name.startswith("ib")

    @property
    def title(self) -> str:
        """What people call it: the RDMA device, else the interface."""
        return self.slot.rdma_device or self.slot.if_name


class NicDriver:
    """The adapters of one simulated node, in a pool named like the node."""

    name = NAME

    def __init__(self, node_name: str, profile: Profile, models: Mapping[str, NicModel], clock: Clock) -> None:
        self.node_name = node_name
        self.clock = clock
        self.adapters = {
            made.name: made
            for index, slot in enumerate(profile.nics)
            for made in (Adapter(index, slot, models[slot.kind or profile.nic], _mac(node_name, index)),)
        }
        self._down: dict[str, DeviceTaint] = {}
        self._republish: Callable[[], None] = lambda: None
        self._changed = asyncio.Event()

    def connect(self, republish: Callable[[], None]) -> None:
        """Called by the plugin."""
        self._republish = republish

    # ---- publishing

    async def pools(self) -> Mapping[str, Pool]:
        """One pool, in the profile's order."""
        return {self.node_name: Pool(tuple(self._device(adapter) for adapter in self.adapters.values()))}

    def _device(self, adapter: Adapter) -> Device:
        slot, model = adapter.slot, adapter.model
        down = self._down.get(adapter.name)
        attributes: dict[str, str | int | bool] = {
            "rdma": model.rdma and bool(slot.rdma_device),
            "virtual": False,
            "pciAddress": slot.bus_id,
            "pciVendor": model.vendor,
            "pciDevice": model.device,
            "mac": adapter.mac,
            "mtu": MTU_INFINIBAND if adapter.is_infiniband else MTU_ETHERNET,
            "encapsulation": "infiniband" if adapter.is_infiniband else "ether",
            "state": "down" if down else "up",
            "type": "device",
            "resource.kubernetes.io/pciBusID": slot.bus_id,
        }
        if slot.rdma_device:
            attributes["rdmaDevice"] = slot.rdma_device
        if slot.if_name:
            attributes["ifName"] = slot.if_name
        if slot.pcie_root:
            attributes["resource.kubernetes.io/pcieRoot"] = slot.pcie_root
        if slot.numa is not None:
            attributes["numaNode"] = attributes["resource.kubernetes.io/numaNode"] = slot.numa
        return device(adapter.name, attributes, {"bandwidth": f"{model.gbps}G"}, [down] if down else [])

    # ---- preparing

    async def prepare(self, claim: ClaimToPrepare) -> Setup:
        """RDMA device files and interfaces of the allocated adapters."""
        return Setup([self._setup(claim, result.request, result.pool, result.device) for result in claim.results])

    def _setup(self, claim: ClaimToPrepare, request: str, pool: str, name: str) -> DeviceSetup:
        adapter = self.adapters.get(name) if pool == self.node_name else None
        if adapter is None:
            raise Invalid(f"device {pool}/{name}", f"{self.node_name} has no such network adapter")
        if name in self._down:
            raise Retry(f"the link of {adapter.title} ({adapter.slot.bus_id}) is down")
        config = _config(claim, request)
        interface = config.interface.name or adapter.slot.if_name
        if config.interface.name and not adapter.slot.if_name:
            raise Invalid("interface.name", f"{adapter.title} is an RDMA device without a network interface")
        moved = (NetDevice(adapter.slot.if_name, interface),) if adapter.slot.if_name else ()
        nodes: tuple[DeviceNode, ...] = ()
        if adapter.slot.rdma_device:
            verbs = f"/dev/infiniband/uverbs{adapter.index}"
            nodes = tuple(DeviceNode(path) for path in ("/dev/infiniband/rdma_cm", verbs))
        variable = f"NIC_{adapter.slot.bus_id.replace(':', '_').replace('.', '_').upper()}={adapter.title}"
        network = NetworkDeviceData(interface, config.interface.addresses, adapter.mac)
        edits = Edits(env=(variable,), device_nodes=nodes, net_devices=moved)
        return DeviceSetup(pool, name, edits, requests=(request,), network_data=network)

    async def unprepare(self, claim: PreparedClaim) -> None:
        """Interfaces come back by themselves when the pod's network namespace goes."""

    # ---- faults

    def set_down(self, title: str, *, down: bool) -> None:
        """A link goes down or comes up; title is an RDMA device, interface, PCI address or device name.

        Raises Invalid for an adapter that is not there.
        """
        adapter = self._find(title)
        if down == (adapter.name in self._down):
            return
        if down:
            added = format_time(self.clock.utc())
            self._down[adapter.name] = DeviceTaint(LINK_DOWN, effect="NoSchedule", time_added=added)
        else:
            del self._down[adapter.name]
        self._republish()
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    def _find(self, title: str) -> Adapter:
        for adapter in self.adapters.values():
            if title in (adapter.name, adapter.slot.bus_id, adapter.slot.rdma_device, adapter.slot.if_name):
                return adapter
        there = ", ".join(adapter.title for adapter in self.adapters.values()) or "none"
        raise Invalid(f"adapter {title}", f"is not on {self.node_name}, which has: {there}")

    async def health(self) -> AsyncIterator[Sequence[DeviceHealth]]:
        """All adapters, at the start, on changes, and within the timeout that they are given."""
        while True:
            changed = self._changed
            yield [self._health(adapter) for adapter in self.adapters.values()]
            try:
                await self.clock.within(BEAT_S, changed.wait())
            except TimeoutError:
                continue

    def _health(self, adapter: Adapter) -> DeviceHealth:
        if adapter.name in self._down:
            reported = f"the link of {adapter.title} is down"
            return DeviceHealth(self.node_name, adapter.name, "Unhealthy", reported, HEALTH_TIMEOUT_S)
        return DeviceHealth(self.node_name, adapter.name, "Healthy", timeout_s=HEALTH_TIMEOUT_S)


def _mac(node_name: str, index: int) -> str:
    """The same at every start; locally administered."""
    made = uuid.uuid5(uuid.NAMESPACE_DNS, f"{index}.{node_name}.nic").bytes[:5]
    return ":".join(f"{byte:02x}" for byte in (0x02, *made))


def _config(claim: ClaimToPrepare, request: str) -> NetworkConfig:
    found = claim.config_for(request)
    opaque = found[-1].opaque if found else None
    if opaque is None:
        return NetworkConfig()
    parameters = {key: value for key, value in opaque.parameters.items() if key not in ("apiVersion", "kind")}
    try:
        config = msgspec.convert(parameters, NetworkConfig)
    except msgspec.ValidationError as error:
        raise Invalid("network configuration", str(error)) from None
    name = config.interface.name
    if len(name) > NAME_MAX or "/" in name or any(sign.isspace() for sign in name):
        raise Invalid("interface.name", f"must be a name of at most {NAME_MAX} characters, got {name!r}")
    return config
