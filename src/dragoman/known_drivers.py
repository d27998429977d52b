"""What is known of a driver when no slice of its is at hand? Names, classes, configuration and cards, as values.

The types alone: each driver says its facts in its own package, with where they are from, and whoever judges manifests
is given them (`drivers.registry`). A driver that publishes slices among the documents is judged by those instead.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

import msgspec

if TYPE_CHECKING:  # commands list drivers for their flags, and --help needs no selector language
    from dragoman.api.selectors import DeviceView

# ---- opaque configuration


class OneOf(msgspec.Struct, frozen=True):
    """One of these words."""

    words: tuple[str, ...]


class WholeNumber(msgspec.Struct, frozen=True):
    """A number between bounds, these included."""

    low: int
    high: int


class MemoryQuantity(msgspec.Struct, frozen=True):
    """A quantity of at least 1 MiB."""


class TrueOrFalse(msgspec.Struct, frozen=True):
    """true or false."""


class NonEmpty(msgspec.Struct, frozen=True):
    """Any text but the empty one."""


class MapOf(msgspec.Struct, frozen=True):
    """Any keys, with values of one kind."""

    value: MemoryQuantity


class ConfigFields(msgspec.Struct, frozen=True):
    """An object with these fields and no others. only_with: field -> (another field, the one value it needs there)."""

    fields: Mapping[str, FieldRule]
    required: tuple[str, ...] = ()
    only_with: Mapping[str, tuple[str, str]] = {}


FieldRule: TypeAlias = OneOf | WholeNumber | MemoryQuantity | TrueOrFalse | NonEmpty | MapOf | ConfigFields


class NeededGate(msgspec.Struct, frozen=True):
    """A gate of the driver's own, off by default, that a configuration needs: path of a field, and its value."""

    path: tuple[str, ...]
    value: str
    gate: str


class Configs(msgspec.Struct, frozen=True):
    """Opaque parameters that a driver decodes: apiVersion, rules by kind, gates. fitting: kind by class name."""

    api_version: str
    kinds: Mapping[str, ConfigFields]
    fitting: Mapping[str, str] = {}
    gates: tuple[NeededGate, ...] = ()


# ---- cards


class Card(msgspec.Struct, frozen=True):
    """A model as selectors see it: whole, and as a partition of any profile. profiles: those it can have."""

    name: str
    whole: DeviceView
    profiles: tuple[str, ...]
    partition: Callable[[str], DeviceView]


class Cards(msgspec.Struct, frozen=True):
    """All models of a driver, read when they are asked for.

    profile: pattern of the names of partition profiles; a profile may stand for another if the pattern's groups are
    equal. title: what people call such a profile.
    """

    models: Callable[[], tuple[Card, ...]]
    profile: str
    title: str


# ---- kinds of drivers


class Warned(msgspec.Struct, frozen=True):
    """A value at a path that is allowed and rarely meant: why, and what to write."""

    path: tuple[str, ...]
    value: Any
    message: str
    fix: str


class TemplateMaker(msgspec.Struct, frozen=True):
    """A custom kind of a driver whose objects make a claim template for a workload.

    template: path of the template's name. together: the node label whose value the workload's pods must share, "" for
    none. nodes: path of the number of nodes that are waited for, () for none.
    """

    group: str
    kind: str
    template: tuple[str, ...]
    together: str = ""
    nodes: tuple[str, ...] = ()
    warned: tuple[Warned, ...] = ()


# ---- drivers


class KnownDriver(msgspec.Struct, frozen=True):
    """Names under the domain of a driver; patterns are for numbered names.

    absent: patterns of names that people expect there, with what to do instead. pools_are_nodes: it names its pools
    after nodes. plugin_resource: pattern of extended resources under which a device plugin advertises the same
    hardware. classes: selectors of the DeviceClasses that it brings, by name. own_classes: those of them that only the
    driver's own pods ask for. makers: kinds of its own that make claim templates. kinds: (group, kind) of all its own.
    node_labels: patterns of labels that the vendor's parts give nodes, with what to do where they are missing.
    """

    domain: str
    attributes: frozenset[str]
    capacity: frozenset[str] = frozenset()
    numbered_attributes: str = ""
    numbered_capacity: str = ""
    absent: tuple[tuple[str, str], ...] = ()
    pools_are_nodes: bool = False
    plugin_resource: str = ""
    classes: Mapping[str, str] = {}
    configs: Configs | None = None
    cards: Cards | None = None
    own_classes: frozenset[str] = frozenset()
    makers: tuple[TemplateMaker, ...] = ()
    kinds: frozenset[tuple[str, str]] = frozenset()
    node_labels: tuple[tuple[str, str], ...] = ()

    def instead(self, name: str) -> str:
        """What to do in place of a name that people expect, "" if nothing is known."""
        return next((advice for pattern, advice in self.absent if re.fullmatch(pattern, name)), "")

    def has(self, kind: str, name: str) -> bool:
        """Whether the driver may publish the name; kind is attributes or capacity."""
        if kind == "attributes":
            return name in self.attributes or _matches(self.numbered_attributes, name)
        return name in self.capacity or _matches(self.numbered_capacity, name)


def _matches(pattern: str, name: str) -> bool:
    return bool(pattern) and re.fullmatch(pattern, name) is not None


STANDARD = KnownDriver("resource.kubernetes.io", frozenset({"pcieRoot", "pciBusID", "numaNode"}))
"""Attributes of no single driver: KEP-6072 and k8s.io/dynamic-resource-allocation/deviceattribute."""


class KnownDrivers(msgspec.Struct, frozen=True):
    """Known drivers by the domain of their attributes, which is the driver's name, and their classes' selectors."""

    drivers: Mapping[str, KnownDriver]
    classes: Mapping[str, str]

    @classmethod
    def of(cls, drivers: Iterable[KnownDriver]) -> KnownDrivers:
        """These, and what no driver owns."""
        known = {driver.domain: driver for driver in (*drivers, STANDARD)}
        return cls(known, {name: text for driver in known.values() for name, text in driver.classes.items()})

    def get(self, domain: str) -> KnownDriver | None:
        """The driver of a domain."""
        return self.drivers.get(domain)


NONE_KNOWN = KnownDrivers.of(())
"""No driver is known; standard attributes are."""
