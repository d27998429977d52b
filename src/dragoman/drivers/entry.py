"""What does the rest of Dragoman have to know of a driver? One `DriverEntry` each, in its own package's `entry` module.

An entry is cheap to import: what serves, reads hardware or speaks gRPC is imported by its functions. `drivers.registry`
lists the entries; the daemons, the commands and lint ask that table and name no driver.
"""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from dragoman.known_drivers import KnownDriver
from dragoman.kubelet.faults import FaultKind

if TYPE_CHECKING:
    import asyncio

    from dragoman.api.shape import Object as Object
    from dragoman.cluster.client import Client
    from dragoman.kubelet.containers import Tool
    from dragoman.kubelet.injection import Injector
    from dragoman.node.driver import Driver
    from dragoman.node.routes import Routes
    from dragoman.profiles import Catalog, Profile
    from dragoman.runtime.clock import Clock
    from dragoman.runtime.entropy import Entropy
    from dragoman.runtime.metrics import Metrics


class Site(msgspec.Struct, frozen=True):
    """Where a driver runs: the kubelet's folder, that of the simulated hardware, the boot, and what reaches the API.

    nodes: a watch of nodes that is there already.
    """

    root: Path
    boot_id: str
    client: Client
    clock: Clock
    entropy: Entropy
    metrics: Metrics
    durable: bool = False
    hardware_dir: Path | None = None
    accounts: Callable[[str, str], Client] | None = None
    nodes: Routes | None = None

    @property
    def is_shared(self) -> bool:
        """Whether two instances of the driver may work on one simulated machine, as in a rolling update."""
        return self.hardware_dir is not None

    def as_account(self, namespace: str, name: str) -> Client:
        """The API with the rights of a service account; those of the driver itself where it runs as one."""
        return self.accounts(namespace, name) if self.accounts else self.client

    @property
    def simulated_dir(self) -> Path:
        """Where simulated hardware keeps its state."""
        return self.hardware_dir or self.root


class ClusterSite(msgspec.Struct, frozen=True):
    """Where what a driver runs once for a cluster reaches the API; accounts as of `Site`."""

    client: Client
    clock: Clock
    entropy: Entropy
    metrics: Metrics
    accounts: Callable[[str, str], Client] | None = None

    def as_account(self, namespace: str, name: str) -> Client:
        """The API with the rights of a service account; the caller's own where there are no others."""
        return self.accounts(namespace, name) if self.accounts else self.client


class MachineProfile(msgspec.Struct, frozen=True):
    """A machine profile, and the catalogue that has the models it names."""

    catalog: Catalog
    profile: Profile


def _no_labels(rack: str) -> Mapping[str, str]:
    return {}


def _no_tools(driver: Any) -> Mapping[str, Tool]:
    return {}


def _no_site_tools(driver: Any, site: Any) -> Mapping[str, Tool]:
    return {}


def _no_scripts(driver: Any) -> Mapping[str, str]:
    return {}


class DriverFactory(msgspec.Struct, frozen=True):
    """How to make one driver on machines of a kind.

    make(node name, site): raises Invalid. labels(rack): of the node; rack is the name of the node group that shares a
    fabric, "" for none. direct: the embedded cluster calls it without sockets. metadata: it writes metadata files
    (KEP-5304). tools(driver): programs that its devices bring into simulated containers, by name.
    site_tools(driver, site): the same of programs that reach the API or the host.
    scripts(driver): what stands in for programs in real containers beside simulated hardware, by the path there.
    beside(driver, site): what else runs on a node of an embedded cluster while the driver does, such as an exporter.
    """

    make: Callable[[str, Site], Driver]
    labels: Callable[[str], Mapping[str, str]] = _no_labels
    direct: bool = False
    metadata: bool = False
    tools: Callable[[Any], Mapping[str, Tool]] = _no_tools
    site_tools: Callable[[Any, Site], Mapping[str, Tool]] = _no_site_tools
    scripts: Callable[[Any], Mapping[str, str]] = _no_scripts
    beside: Callable[[Any, Site], Callable[[], Awaitable[None]]] | None = None


class GateCatalogue(msgspec.Struct, frozen=True):
    """Feature gates of the driver's own: defaults by name. check(changes, where): raises Invalid."""

    defaults: Mapping[str, bool]
    check: Callable[[Mapping[str, bool], str], object]


class Workloads(Protocol):
    """What runs on a node, as a fault needs it; a node agent is one."""

    def users(self, claim_uid: str) -> Mapping[str, list[str]]:
        """Running containers that use a claim: names by pod uid."""
        ...

    def pod_named(self, uid: str) -> str:
        """`namespace/name` of a pod."""
        ...

    def fail(self, uid: str, containers: Sequence[str], message: str) -> None:
        """Let containers of a pod end with an error."""
        ...


def _stays(driver: Any, fault: Any) -> None:
    return None


class DriverFault(msgspec.Struct, frozen=True):
    """A fault of the driver's simulated hardware.

    inject(driver, workloads, fault): break it; answers what happened, as a sentence without full stop. recover(driver,
    fault): mend it. Both raise Invalid for what is not there, naming the entry of the fault's data.
    """

    kind: FaultKind
    inject: Callable[[Any, Workloads, Any], str]
    recover: Callable[[Any, Any], None] = _stays


def _no_flags(parser: ArgumentParser) -> None:
    return None


def _no_settings(args: Namespace) -> Any:
    return None


def _nothing() -> tuple[Object, ...]:
    return ()


def _none_known() -> tuple[KnownDriver, ...]:
    return ()


class DriverPlan(msgspec.Struct, frozen=True):
    """A plan of `dragoman plan NAME` that belongs to one kind of device. kind: of its JSON; result: its type there.

    run(args) gives the result, its sections for people, a file that others take, and whether the answer is yes.
    """

    name: str
    summary: str
    kind: str
    flags: Callable[[ArgumentParser], None]
    run: Callable[[Namespace], tuple[Any, list[Any], str, bool]]


class DriverEntry(msgspec.Struct, frozen=True):
    """A driver.

    command: `dragoman driver COMMAND`; name: spec.driver of its slices; classes: DeviceClasses that it brings.
    simulate: help of --simulate, "" where no hardware is simulated. only_simulated: there is nothing else.
    flags: of its command; standalone(args, machine): how it is made for these, the machine with --simulate.
    up_flags, up_settings: of `dragoman up`, and what they come to. on_machine(machine, settings): how it is made on
    such machines in an embedded cluster, None where it has no devices; settings None are the defaults.
    gates, faults: its own. known: facts for manifests, without slices at hand. installed: objects that a cluster must
    have before it works, such as kinds of its own and rights. control(site, up_settings): what it runs once for a
    cluster, until cancelled. control_settings(args): of its own command, from the flags of the driver's.
    before(args): what must hold on the node before the driver starts; raises Denied. plans: of `dragoman plan`, about
    devices of its kind only.
    """

    command: str
    name: str
    summary: str
    standalone: Callable[[Namespace, MachineProfile | None], DriverFactory]
    on_machine: Callable[[MachineProfile, Any], DriverFactory | None]
    classes: tuple[Object, ...] = ()
    simulate: str = ""
    only_simulated: bool = False
    flags: Callable[[ArgumentParser], None] = _no_flags
    up_flags: Callable[[ArgumentParser], None] = _no_flags
    up_settings: Callable[[Namespace], Any] = _no_settings
    gates: GateCatalogue | None = None
    faults: tuple[DriverFault, ...] = ()
    known: Callable[[], tuple[KnownDriver, ...]] = _none_known
    installed: Callable[[], tuple[Object, ...]] = _nothing
    plans: tuple[DriverPlan, ...] = ()
    control: Callable[[ClusterSite, Any], Awaitable[None]] | None = None
    control_settings: Callable[[Namespace], Any] = _no_settings
    before: Callable[[Namespace], Awaitable[None]] | None = None


# ---- device plugins


class RunningDevicePlugin(Protocol):
    """The device plugin of one node. hardware: what it serves; registered: set while the kubelet knows it."""

    registered: asyncio.Event
    hardware: Any

    async def run(self) -> None:
        """Serve until cancelled."""
        ...

    def restart(self) -> None:
        """Begin again, as after SIGHUP."""
        ...


class MakePlugin(Protocol):
    """How a device plugin is made."""

    def __call__(self, node_name: str, site: Site, cdi_dir: Path, adapted: bool) -> RunningDevicePlugin:
        """cdi_dir: of its specs; adapted: simulated hardware beside a real container runtime. Raises Invalid."""
        ...


class DevicePluginFactory(msgspec.Struct, frozen=True):
    """How to make one device plugin on machines of a kind. name: of its process; injector(plugin): what is installed
    beside the runtime of a simulated node; labels as of `DriverFactory`."""

    name: str
    make: MakePlugin
    labels: Callable[[str], Mapping[str, str]] = _no_labels
    injector: Callable[[Any], Injector] | None = None


class DevicePluginEntry(msgspec.Struct, frozen=True):
    """A device plugin. instead_of: the driver that gives the same devices to containers by DRA; on one node only one of
    them does. longest_socket: the name of a socket file. flags, standalone: of `dragoman device-plugin`; the others as
    of `DriverEntry`."""

    name: str
    instead_of: str
    longest_socket: str
    standalone: Callable[[Namespace, MachineProfile | None], DevicePluginFactory]
    on_machine: Callable[[MachineProfile, Any], DevicePluginFactory | None]
    flags: Callable[[ArgumentParser], None] = _no_flags
    up_flags: Callable[[ArgumentParser], None] = _no_flags
    up_settings: Callable[[Namespace], Any] = _no_settings
    installed: Callable[[], tuple[Object, ...]] = _nothing
    before: Callable[[Namespace], Awaitable[None]] | None = None
