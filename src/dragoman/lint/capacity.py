"""Can this ever be satisfied by the devices at hand? Claims larger than any node, rollouts without a spare device,
devices that are advertised twice.

Counts, and so speaks only of what no arrangement could change; whether things fit just now is `simulate`'s work.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from dragoman.allocate.slots import MAX_RESULTS
from dragoman.api.core import Node
from dragoman.api.files import Document
from dragoman.api.resource import ResourceSlice
from dragoman.api.selectors import DeviceView
from dragoman.api.shape import Object, dig, objects, text
from dragoman.inspect.advertised_twice import OwnDevice, advertised_twice_on, amounts_of
from dragoman.lint.chains import candidates, claims_of, exact_requests, matching, selectors_of
from dragoman.lint.finding import Finding, found
from dragoman.lint.manifests import ManifestIndex


def check(document: Document, world: ManifestIndex) -> Iterator[Finding]:
    """Findings that come from counting."""
    if document.value is None:
        return
    for _path, devices in claims_of(document):
        most = _over_limit(devices)
        if most:
            message = f"asks for {most} devices, and one claim can hold {MAX_RESULTS} at most: it is never allocated"
            yield found(document, "OverClaimLimit", _first_count(document), message, "spread them over several claims")
        elif world.published.views:
            yield from _too_large(document, devices, world)
    if isinstance(document.value, Node) and world.published.views:
        yield from _advertised_twice(document, document.value, world)


# ---- claims


def _over_limit(devices: Object) -> int:
    """The least that a claim asks for in all, if that is more than it can hold; else 0."""
    total = 0
    for request in objects(devices, "requests"):
        counts = [
            count if isinstance(count := exact.get("count"), int) else 1
            for _, exact in exact_requests(request)
            if text(exact, "allocationMode") in ("", "ExactCount")
        ]
        total += min(counts, default=0)
    return total if total > MAX_RESULTS else 0


_Wanted = tuple[int, tuple[str, ...]]
"""How many devices, that match these selectors."""


class ClaimDemand:
    """What a claim's plain requests take together: devices that each could get, and how many."""

    def __init__(self, devices: Object, world: ManifestIndex) -> None:
        self.known = True
        self.wanted: list[_Wanted] = []
        for request in objects(devices, "requests"):
            exactly = dig(request, "exactly")
            takes = text(exactly, "allocationMode") in ("", "ExactCount") and not exactly.get("adminAccess")
            selectors = selectors_of(exactly, world) if takes else None
            if selectors is None or not _is_exclusive(selectors, world):
                # Alternatives, All, admin access and shared devices do not add up so simply.
                self.known = False
                return
            self.wanted.append((exactly.get("count") or 1, selectors))

    @property
    def total(self) -> int:
        """Devices of all requests."""
        return sum(count for count, _ in self.wanted)

    def exist(self, world: ManifestIndex) -> int:
        """Devices that any of the requests could get, anywhere."""
        return len({id(view) for _, selectors in self.wanted for view in matching(selectors, world)})

    def supply(self, world: ManifestIndex) -> dict[str, int]:
        """The same by node ("": any), for one request; for several, which may want different devices, the sum."""
        if len(self.wanted) > 1:
            return {"": self.exist(world)}
        ((_, selectors),) = self.wanted
        return {place: len(views) for place, views in world.published.by_place(matching(selectors, world)).items()}


def exclusive_by_place(views: list[DeviceView], world: ManifestIndex) -> dict[str, int]:
    """How many devices that are for one claim each stand where; "" for any node."""
    alone = [view for view in views if not view.allow_multiple_allocations]
    return {place: len(there) for place, there in world.published.by_place(alone).items()}


def _is_exclusive(selectors: tuple[str, ...], world: ManifestIndex) -> bool:
    """Whether there are such devices, and each is for one claim."""
    views = matching(selectors, world)
    return world.once(
        ("exclusive", selectors), lambda: bool(views) and not any(v.allow_multiple_allocations for v in views)
    )


def _too_large(document: Document, devices: Object, world: ManifestIndex) -> Iterator[Finding]:
    demand = ClaimDemand(devices, world)
    if not demand.known or not demand.wanted:
        return
    most, best = world.once(("most", tuple(demand.wanted)), lambda: _most_on_one_node(demand.wanted, world))
    if most >= demand.total:
        return
    where = f"node {best}" if best else "any node"
    message = f"asks for {demand.total} devices, and no node has more than {most} that would do ({where})"
    fix = "ask for fewer, or spread the work over several pods"
    yield found(document, "LargerThanAnyNode", _first_count(document), message, fix)


def _most_on_one_node(wanted: list[_Wanted], world: ManifestIndex) -> tuple[int, str]:
    """How many of the wanted devices a node could give at most, and which."""
    places = [(count, world.published.by_place(matching(selectors, world))) for count, selectors in wanted]
    best = (-1, "")
    for place in sorted({place for _, there in places for place in there}):
        sources = (place, "") if place else ("",)
        here = [(count, {id(view) for at in sources for view in there.get(at, ())}) for count, there in places]
        most = min(sum(min(count, len(ids)) for count, ids in here), len(set().union(*(ids for _, ids in here))))
        if most > best[0]:
            best = (most, place)
    return best


def _first_count(document: Document) -> str:
    path = "spec.spec" if document.kind_name == "ResourceClaimTemplate" else "spec"
    return f"{path}.devices.requests"


# ---- devices


def _advertised_twice(document: Document, node: Node, world: ManifestIndex) -> Iterator[Finding]:
    amounts = amounts_of(node)
    if not amounts:
        return
    places = world.once("views by place", lambda: world.published.by_place(world.published.views))
    views = places.get(document.name, [])
    slices = world.once("devices by place", lambda: _devices_by_place(world))
    field = "allocatable" if dig(document.object, "status", "allocatable") else "capacity"

    def serves(resource: str, driver: str) -> bool:
        return _serves(resource, driver, views, world)

    for double in advertised_twice_on(
        document.name, node.metadata.labels, amounts, slices.get(document.name, ()), serves
    ):
        message = (
            f"{double.driver} publishes {double.devices} devices of this node and a device plugin advertises "
            f"{double.amount} {double.resource}: the same hardware can be allocated twice"
        )
        fix = "run the device plugin or the driver on a node, not both"
        yield found(document, "AdvertisedTwice", f"status.{field}", message, fix)


def _devices_by_place(world: ManifestIndex) -> dict[str, list[OwnDevice]]:
    found: dict[str, list[OwnDevice]] = {}
    for document in world.documents:
        if isinstance(document.value, ResourceSlice):
            spec = document.value.spec
            for device in spec.devices:
                found.setdefault(device.node_name or spec.node_name or "", []).append((spec.driver, device))
    return found


def _serves(resource: str, driver: str, here: list[DeviceView], world: ManifestIndex) -> bool:
    """Whether the resource is known to stand for devices of the driver: by its plugin's names, or by a class."""
    known = world.published.known.get(driver)
    if known is not None and known.plugin_resource and re.fullmatch(known.plugin_resource, resource):
        return True
    mine = {id(view) for view in here if view.driver == driver}
    return any(
        id(view) in mine
        for name in world.once("class resources", lambda: _class_resources(world)).get(resource, ())
        for view in candidates({"exactly": {"deviceClassName": name}}, world)
    )


def _class_resources(world: ManifestIndex) -> dict[str, list[str]]:
    """Classes by the extended resource that they serve."""
    found: dict[str, list[str]] = {}
    for name in world.names("DeviceClass"):
        owner = world.find("DeviceClass", "", name)
        resource = text(dig(owner.object, "spec"), "extendedResourceName") if owner is not None else ""
        if resource:
            found.setdefault(resource, []).append(name)
    return found
