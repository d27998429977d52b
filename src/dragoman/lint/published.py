"""What do the drivers publish, as far as the slices at hand tell? Devices that a selector cannot distinguish count
once.

What is known of drivers without slices is kept beside.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec

from dragoman.api.resource import ResourceSlice
from dragoman.api.selectors import DeviceView, Selector, SelectorFailed, device_view
from dragoman.known_drivers import NONE_KNOWN, KnownDrivers


class SelectorOutcome(msgspec.Struct):
    """A selector over all devices. failed: attribute that is missing ("" for other failures) to devices, and a text."""

    matched: list[DeviceView]
    false: int
    failed: dict[str, tuple[int, SelectorFailed]]


class Published(msgspec.Struct, frozen=True):
    """Views of all devices, and which names each domain has."""

    views: tuple[DeviceView, ...]
    attributes: dict[str, set[str]]
    capacity: dict[str, set[str]]
    # By identity of the view: the node that its slice is tied to.
    nodes: dict[int, str]
    known: KnownDrivers = NONE_KNOWN

    @classmethod
    def of(cls, slices: Iterable[ResourceSlice], known: KnownDrivers = NONE_KNOWN) -> Published:
        """Collects the devices."""
        placed = [
            (device_view(device, s.spec.driver), device.node_name or s.spec.node_name or "")
            for s in slices
            for device in s.spec.devices
        ]
        views = tuple(view for view, _ in placed)
        attributes: dict[str, set[str]] = {}
        capacity: dict[str, set[str]] = {}
        for view in views:
            for names, domains in ((attributes, view.attributes), (capacity, view.capacity)):
                for domain, values in domains.items():
                    names.setdefault(domain, set()).update(values)
        return cls(views, attributes, capacity, {id(view): node for view, node in placed}, known)

    def drivers(self) -> set[str]:
        """All drivers that publish devices."""
        return {view.driver for view in self.views}

    def by_place(self, views: Iterable[DeviceView]) -> dict[str, list[DeviceView]]:
        """The devices by the node that they are tied to; "" for those tied to none."""
        found: dict[str, list[DeviceView]] = {}
        for view in views:
            found.setdefault(self.nodes[id(view)], []).append(view)
        return found

    def run(self, selector: Selector, views: Iterable[DeviceView] | None = None) -> SelectorOutcome:
        """Evaluates the selector once for each kind of device that it can tell apart."""
        outcome = SelectorOutcome([], 0, {})
        for equivalent in _equivalent(selector, self.views if views is None else views):
            answer = selector.match(equivalent[0])
            if isinstance(answer, SelectorFailed):
                count, first = outcome.failed.get(answer.attribute or "", (0, answer))
                outcome.failed[answer.attribute or ""] = (count + len(equivalent), first)
            elif answer:
                outcome.matched += equivalent
            else:
                outcome.false += len(equivalent)
        return outcome


def _equivalent(selector: Selector, views: Iterable[DeviceView]) -> Iterator[list[DeviceView]]:
    groups: dict[tuple[object, ...], list[DeviceView]] = {}
    for view in views:
        groups.setdefault(selector.reads.key(view), []).append(view)
    yield from groups.values()
