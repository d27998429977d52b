"""Which hardware is advertised twice: by a device plugin as an extended resource, and by a DRA driver as devices?

Kubelet and scheduler count the two apart, so both can be given to pods at once. Names of known drivers decide first,
then classes that serve the resource, then, for drivers that nobody knows here, one vendor's domain in both names with a
word in common or equal counts, or a label of the node that says what the devices are. Never writes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from dragoman.api.core import Node
from dragoman.api.resource import Device
from dragoman.api.selectors import Selector, compile_selector, device_view
from dragoman.snapshot.change import Snapshot, keys_of
from dragoman.values.quantity import Quantity

OwnDevice = tuple[str, Device]
"""A device of one node and its driver."""
Serves = Callable[[str, str], bool]
"""Whether a resource stands for devices of a driver, as far as somebody knows: resource, driver."""

_WORD = re.compile(r"[a-z0-9]+")
_OWN_RESOURCE = re.compile(r"(cpu|memory|pods|ephemeral-storage|hugepages-.*|attachable-volumes-.*|storage)")
_LABEL_MIN = 2
"""Shorter values of labels say nothing of a device."""


class Double(NamedTuple):
    """A resource of a node and the driver that publishes the same hardware there. amount: allocatable of it."""

    node: str
    resource: str
    amount: Quantity
    driver: str
    devices: int


def advertised_twice_on(
    node: str, labels: Mapping[str, str], amounts: Mapping[str, Quantity], devices: Sequence[OwnDevice], serves: Serves
) -> Iterator[Double]:
    """What one node has twice, by resource."""
    by_driver: dict[str, list[Device]] = {}
    for driver, device in devices:
        by_driver.setdefault(driver, []).append(device)
    for resource, amount in sorted(amounts.items()):
        if amount.nanos <= 0 or "/" not in resource or _OWN_RESOURCE.fullmatch(resource):
            continue
        for driver, own in sorted(by_driver.items()):
            known = serves(resource, driver)
            if known or _one_vendor(resource, driver, amount, own) or _labelled(resource, labels, own, amount):
                yield Double(node, resource, amount, driver, len(own))
                break


def advertised_twice(snapshot: Snapshot, patterns: Mapping[str, str]) -> tuple[Double, ...]:
    """All doubles of a cluster, by node. patterns: of the resources of a driver's device plugin, by driver."""
    by_class = {
        found.spec.extended_resource_name: name
        for name, found in sorted(snapshot.classes.items())
        if found.spec.extended_resource_name
    }
    found: list[Double] = []
    for name, node in sorted(snapshot.nodes.items()):
        amounts = amounts_of(node)
        if not amounts:
            continue
        devices = [
            (snapshot.slices[key].spec.driver, device)
            for key in keys_of(snapshot.slices_by_node, name)
            for device in snapshot.slices[key].spec.devices
        ]

        def serves(resource: str, driver: str, devices: Sequence[OwnDevice] = devices) -> bool:
            if driver in patterns and re.fullmatch(patterns[driver], resource):
                return True
            of_class = by_class.get(resource)
            return of_class is not None and _in_class(snapshot, of_class, (d for d in devices if d[0] == driver))

        found += advertised_twice_on(name, node.metadata.labels, amounts, devices, serves) if devices else ()
    return tuple(found)


def amounts_of(node: Node) -> dict[str, Quantity]:
    """The extended resources of a node: what is allocatable, else its capacity."""
    amounts = node.status.allocatable or node.status.capacity or {}
    return {name: amount for name, amount in amounts.items() if "/" in name and amount.nanos > 0}


def _in_class(snapshot: Snapshot, name: str, devices: Iterable[OwnDevice]) -> bool:
    texts = [s.cel.expression for s in snapshot.classes[name].spec.selectors if s.cel is not None]
    selectors = [compile_selector(text) for text in texts]
    views = (device_view(device, driver) for driver, device in devices)
    return any(all(isinstance(s, Selector) and s.match(view) is True for s in selectors) for view in views)


def _vendor(domain: str) -> str:
    return ".".join(domain.split(".")[-2:])


def _one_vendor(resource: str, driver: str, amount: Quantity, own: Sequence[Device]) -> bool:
    """`amd.com/gpu` and `gpu.amd.com`: one vendor, and a word in common or as many devices."""
    domain, _, name = resource.partition("/")
    if _vendor(domain) != _vendor(driver):
        return False
    words = set(_WORD.findall(f"{domain.removesuffix(_vendor(domain))} {name}".lower()))
    own_words = set(_WORD.findall(driver.removesuffix(_vendor(driver)).lower()))
    return bool(words & own_words) or amount.nanos == len(own) * 10**9


def _labelled(resource: str, labels: Mapping[str, str], own: Sequence[Device], amount: Quantity) -> bool:
    """A label under the resource's domain that says what the devices say of themselves, and as many of them."""
    if amount.nanos != len(own) * 10**9:
        return False
    vendor = _vendor(resource.partition("/")[0])
    values = {
        _plain(value)
        for key, value in labels.items()
        if "/" in key and _vendor(key.partition("/")[0]) == vendor and len(value) > _LABEL_MIN and not value.isdigit()
    } - {"true", "false"}
    return bool(values) and all(
        any(attribute.string and _plain(attribute.string) in values for attribute in device.attributes.values())
        for device in own
    )


def _plain(text: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")
