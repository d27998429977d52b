"""What does the author of a driver write, and in which words do driver and SDK talk?

A driver is one class with `name`, `pools`, `prepare` and `unprepare`; each method may be a plain function (it then
runs in a thread, so hardware calls may block) or a coroutine. Sockets, checkpoints, CDI files, slices and retries are
the SDK's (`plugin.Plugin`). Nothing here does anything.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any, Literal, Protocol, TypeAlias, runtime_checkable

import msgspec

from dragoman.api.core import NodeSelector
from dragoman.api.meta import Condition
from dragoman.api.resource import (
    CounterSet,
    Device,
    DeviceAllocationConfiguration,
    DeviceAttribute,
    DeviceCapacity,
    DeviceRequestAllocationResult,
    DeviceTaint,
    NetworkDeviceData,
    ResourceClaim,
)
from dragoman.errors import Retry
from dragoman.node.cdi import Edits
from dragoman.values.quantity import Quantity
from dragoman.values.semver import Semver

Scalar: TypeAlias = str | int | bool | Semver


class ClaimRef(msgspec.Struct, frozen=True, order=True):
    """One incarnation of a claim."""

    namespace: str
    name: str
    uid: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


class Pool(msgspec.Struct, frozen=True):
    """What a driver publishes under one pool name; list order is the order of preference.

    The SDK splits it over slices; slice_starts names devices that begin one in any case. With neither node_selector nor
    all_nodes the pool belongs to the plugin's node. generation 0: counted by the SDK. Devices with a node selection of
    their own make the pool's selection per device.
    """

    devices: tuple[Device, ...] = ()
    shared_counters: tuple[CounterSet, ...] = ()
    node_selector: NodeSelector | None = None
    all_nodes: bool = False
    generation: int = 0
    partition_type_attribute: str | None = None
    skip_node_operations: tuple[str, ...] = ()
    slice_starts: tuple[str, ...] = ()


class HeldDevice(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """A device, or with share_id a share of it, that a claim was given."""

    pool: str
    device: str
    share_id: str | None = None
    admin_access: bool = False

    def collides(self, other: HeldDevice) -> bool:
        """True if both cannot be prepared at a time: the same device, unless shares differ or one only watches."""
        same = (self.pool, self.device) == (other.pool, other.device)
        watching = self.admin_access or other.admin_access
        shared = self.share_id is not None and other.share_id is not None and self.share_id != other.share_id
        return same and not watching and not shared


class ClaimToPrepare(msgspec.Struct, frozen=True):
    """An allocated claim, reduced to this driver's part; `claim` is the whole.

    config keeps the API's order: class first, then claim; later entries win. An entry without requests is for all.
    remember(state) stores JSON-shaped state at once, which `unprepare` gets back even after a crash.
    """

    ref: ClaimRef
    results: tuple[DeviceRequestAllocationResult, ...]
    config: tuple[DeviceAllocationConfiguration, ...]
    claim: ResourceClaim
    remember: Callable[[Any], None]

    def config_for(self, request: str) -> tuple[DeviceAllocationConfiguration, ...]:
        """Entries for that result's request (`name` or `name/subrequest`), in order of rising precedence."""
        top = request.partition("/")[0]
        return tuple(c for c in self.config if not c.requests or request in c.requests or top in c.requests)


class DeviceSetup(msgspec.Struct, frozen=True):
    """How one device of a claim is used.

    edits go into a CDI device that the SDK writes; cdi_ids name devices of specs that the driver keeps itself.
    requests empty: those of the allocation; share_id only for claims with several shares of the device. attributes and
    network_data are for metadata files, network_data is also written to the claim's status.devices.
    """

    pool: str
    device: str
    edits: Edits = Edits()
    cdi_ids: tuple[str, ...] = ()
    requests: tuple[str, ...] = ()
    share_id: str | None = None
    attributes: dict[str, DeviceAttribute] | None = None
    network_data: NetworkDeviceData | None = None


class Setup(msgspec.Struct, frozen=True):
    """What prepare answers; `edits` are applied once to each container that uses any of the devices."""

    devices: Sequence[DeviceSetup] = ()
    edits: Edits = Edits()


class PreparedDevice(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """A prepared device as the kubelet learns it; requests are top-level names."""

    requests: tuple[str, ...]
    pool: str
    device: str
    cdi_ids: tuple[str, ...] = ()
    share_id: str | None = None


class DeviceMetadata(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """What a metadata file tells the container about one device; request is `name` or `name/subrequest`."""

    request: str
    pool: str
    device: str
    attributes: dict[str, DeviceAttribute] = {}
    network_data: NetworkDeviceData | None = None


class PreparedClaim(msgspec.Struct, frozen=True):
    """What the checkpoint knows of a claim: its devices, and what the driver asked to remember.

    complete is False for a preparation that was interrupted.
    """

    ref: ClaimRef
    held: tuple[HeldDevice, ...]
    state: Any = None
    complete: bool = True


class DeviceHealth(msgspec.Struct, frozen=True):
    """Health of one device as pod status shows it (KEP-4680); timeout 0 is the kubelet's default, 30 s."""

    pool: str
    device: str
    health: Literal["Healthy", "Unhealthy", "Unknown"]
    message: str = ""
    timeout_s: int = 0


class DeviceStatus(msgspec.Struct, frozen=True):
    """What a driver reports about an allocated device in the claim's status.devices (KEP-4817)."""

    pool: str
    device: str
    share_id: str | None = None
    conditions: tuple[Condition, ...] = ()
    data: Any = None
    network_data: NetworkDeviceData | None = None


class NotYet(Retry):
    """Preparing goes on by itself, as an image is pulled or a daemon starts: what was done stays, nothing is undone.

    Raised by `prepare`, which must be repeatable then: the SDK calls it again after after_s seconds, and prepares other
    claims meanwhile. lasting: what was done outlives this process, so that nothing is undone at its next start either;
    unprepared in this state, the claim counts as aborted for a while, and late calls for it are refused.
    """

    def __init__(self, message: str, *, after_s: float | None = None, lasting: bool = False) -> None:
        super().__init__(message, after_s=after_s)
        self.lasting = lasting


class Driver(Protocol):
    """The one class of a driver."""

    @property
    def name(self) -> str:
        """The driver's name, a DNS subdomain; spec.driver of its slices."""
        ...

    def pools(self) -> Mapping[str, Pool] | Awaitable[Mapping[str, Pool]]:
        """All pools by name, complete; asked for at the start and after `Plugin.republish()`."""
        ...

    def prepare(self, claim: ClaimToPrepare) -> Setup | Awaitable[Setup]:
        """Make the devices usable. One call at a time (but see WorksConcurrently); may be repeated after a failure.

        Raise anything to fail (Retry for "not now"): the SDK then calls unprepare and reports the text. Raise NotYet
        rather than wait: other claims would wait too.
        """
        ...

    def unprepare(self, claim: PreparedClaim) -> Awaitable[None] | None:
        """Undo prepare, completely or partly done, or never begun. Must succeed when there is nothing to undo."""
        ...


@runtime_checkable
class ReportsHealth(Protocol):
    """A driver with a health stream: every item is the complete list."""

    def health(self) -> AsyncIterator[Sequence[DeviceHealth]]:
        """Yield at the start, on changes, and within the timeout given."""
        ...


@runtime_checkable
class Restores(Protocol):
    """A driver that wants to know at its start what was prepared before."""

    def restore(self, claims: Sequence[PreparedClaim]) -> Awaitable[None] | None:
        """Called once before anything else; claims that did not survive a reboot are not among them."""
        ...


@runtime_checkable
class WorksConcurrently(Protocol):
    """A driver whose `prepare` and `unprepare`, plain functions, may be called for several claims at a time.

    Each call has a thread, and never two of them the same claim: slow work for one claim delays no other.
    """

    @property
    def concurrent(self) -> bool:
        """Whether it is so."""
        ...


@runtime_checkable
class FollowsClaims(Protocol):
    """A driver that keeps what is prepared in mind, and so must learn what another instance of it did."""

    def follow(self, claims: Sequence[PreparedClaim]) -> None:
        """Called before a call of the kubelet when the other instance of a rolling update changed the checkpoint."""
        ...


@runtime_checkable
class Republishes(Protocol):
    """A driver whose pools change by themselves."""

    def connect(self, republish: Callable[[], None]) -> None:
        """Called once, when the plugin is made: call `republish` whenever `pools` would answer something else."""
        ...


def device(
    name: str,
    attributes: Mapping[str, Scalar | Sequence[Scalar]] | None = None,
    capacity: Mapping[str, str | int | DeviceCapacity] | None = None,
    taints: Sequence[DeviceTaint] = (),
    **fields: Any,
) -> Device:
    """A device from plain values: str, int, bool and Semver become attributes of that type, sequences list ones.

    `fields` are further fields of api.resource.Device.
    """
    return Device(
        name=name,
        attributes={key: _attribute(value) for key, value in (attributes or {}).items()},
        capacity={key: _capacity(value) for key, value in (capacity or {}).items()},
        taints=tuple(taints),
        **fields,
    )


def _attribute(value: Scalar | Sequence[Scalar]) -> DeviceAttribute:
    match value:
        case bool() | int() | str():
            return _plain(value)
        case Semver():
            return DeviceAttribute(version=str(value))
    items = tuple(value)
    if all(isinstance(item, bool) for item in items):
        return DeviceAttribute(bools=tuple(bool(item) for item in items))
    match items[0]:
        case int():
            return DeviceAttribute(ints=tuple(item for item in items if isinstance(item, int)))
        case Semver():
            return DeviceAttribute(versions=tuple(str(item) for item in items))
    return DeviceAttribute(strings=tuple(str(item) for item in items))


@lru_cache(maxsize=8192, typed=True)
def _plain(value: bool | int | str) -> DeviceAttribute:
    """Kept once, since thousands of simulated devices are equal."""
    match value:
        case bool():
            return DeviceAttribute(bool_=value)
        case int():
            return DeviceAttribute(int_=value)
    return DeviceAttribute(string=value)


def _capacity(value: str | int | DeviceCapacity) -> DeviceCapacity:
    return value if isinstance(value, DeviceCapacity) else DeviceCapacity(value=Quantity.parse(value))
