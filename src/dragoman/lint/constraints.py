"""Can the constraints of a claim be met by the devices at hand, on one node?

Looks at each constraint by itself and at what exists, free or held: what it says no arrangement could change.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence

import msgspec

from dragoman.api.files import Document
from dragoman.api.selectors import DeviceView
from dragoman.api.shape import Object, dig, items, objects, text
from dragoman.api.validate.field import path_text
from dragoman.lint import names
from dragoman.lint.chains import candidates, claims_of, exact_requests, selectors_of
from dragoman.lint.finding import Finding, ItemPath, found
from dragoman.lint.manifests import ManifestIndex
from dragoman.lint.names import Read

_SHOWN = 5


class _Wanted(msgspec.Struct, frozen=True):
    """A request under a constraint: so many (0: unknown) of these devices, by place; key is equal for equal ones."""

    name: str
    count: int
    key: Hashable
    views: Sequence[DeviceView]
    places: dict[str, list[DeviceView]]

    def at(self, place: str) -> list[DeviceView]:
        """Those that a pod on the node can use, as far as names tell."""
        everywhere = self.places.get("", [])
        return everywhere + self.places.get(place, []) if place else everywhere


def check(document: Document, world: ManifestIndex) -> Iterator[Finding]:
    """Findings on the constraints of a claim or template."""
    if document.value is None:
        return
    for path, devices in claims_of(document):
        for index, constraint in enumerate(objects(devices, "constraints")):
            for kind in ("matchAttribute", "distinctAttribute"):
                attribute = text(constraint, kind)
                if "/" in attribute:
                    at: ItemPath = (*path, "constraints", index, kind)
                    yield from _constraint(document, at, attribute, _wanted(devices, constraint, world), world)


def _wanted(devices: Object, constraint: Object, world: ManifestIndex) -> list[_Wanted]:
    covered = {str(request).partition("/")[0] for request in items(constraint, "requests")}
    return [
        _of(request, world)
        for request in objects(devices, "requests")
        if not covered or text(request, "name") in covered
    ]


def _of(request: Object, world: ManifestIndex) -> _Wanted:
    key = tuple(selectors_of(exact_request, world) for _, exact_request in exact_requests(request))
    views = candidates(request, world)
    places = world.once(("places", key), lambda: world.published.by_place(views))
    return _Wanted(text(request, "name"), _count(request), key, views, places)


def _count(request: Object) -> int:
    counts = set()
    for exact_request in [dig(request, "exactly")] if "exactly" in request else objects(request, "firstAvailable"):
        counts.add(
            (exact_request.get("count") or 1) if text(exact_request, "allocationMode") in ("", "ExactCount") else 0
        )
    return min(counts, default=0)


def _constraint(
    document: Document, path: ItemPath, attribute: str, wanted: list[_Wanted], world: ManifestIndex
) -> Iterator[Finding]:
    read = Read("attributes", *attribute.split("/", 1))
    domain_is_known = names.known_without_slices(read.domain, world.published) is not None
    drivers = {view.driver for entry in wanted for view in entry.views}
    if not names.is_published(read, world.published) and (domain_is_known or read.domain in drivers):
        yield names.finding(document, path, read, world.published)
    elif path[-1] == "matchAttribute" and (lacking := _lacking(read, wanted)):
        yield _not_shared(document, path, read, lacking, wanted, world)
    elif (where := _unmeetable(path[-1] == "matchAttribute", read, wanted, world)) is not None:
        yield _unmet(document, path, attribute, wanted, where, world)


def _lacking(read: Read, wanted: list[_Wanted]) -> set[str]:
    """Drivers none of whose devices has the attribute."""
    views = [view for entry in wanted for view in entry.views]
    having = {view.driver for view in views if read.name in view.attributes[read.domain]}
    return {view.driver for view in views} - having


def _not_shared(
    document: Document, path: ItemPath, read: Read, lacking: set[str], wanted: list[_Wanted], world: ManifestIndex
) -> Finding:
    views = [view for entry in wanted for view in entry.views]
    drivers = {view.driver for view in views}
    involved = f"{len(drivers)} driver{'s' if len(drivers) != 1 else ''} involved"
    message = f"{read.domain}/{read.name} is published by {len(drivers - lacking)} of the {involved}"
    message += f", not by {', '.join(sorted(lacking))}"
    near = _alternatives(lacking, read, views, world)
    fix = "match an attribute that all of them publish" + (f"; there is {near}" if near else "")
    return found(document, "ConstraintNotShared", path_text(path), message, fix)


def _alternatives(drivers: set[str], read: Read, views: list[DeviceView], world: ManifestIndex) -> str:
    """Attributes of these drivers with values of the one in question, or with a name like its."""
    values = {value for view in views for value in _values(view, read)}
    found: list[str] = []
    for domain in sorted(drivers):
        for name in sorted(world.published.attributes.get(domain, ())):
            other = Read(read.kind, domain, name)
            equivalent = name.lower() in read.name.lower() or read.name.lower() in name.lower()
            if equivalent or any(
                not values.isdisjoint(_values(view, other)) for view in views if view.driver in drivers
            ):
                found.append(f"{domain}/{name}")
    return ", ".join(found[:_SHOWN])


# ---- counting


def _unmeetable(match: bool, read: Read, wanted: list[_Wanted], world: ManifestIndex) -> str | None:
    """The node that comes nearest, if there is none on which the constraint can be met; else None.

    None too where a node without the constraint would not do: that is another finding.
    """
    question = ("unmeetable", match, read, tuple((entry.count, entry.key) for entry in wanted))
    return world.once(question, lambda: _nearest_place(match, read, wanted))


def _nearest_place(match: bool, read: Read, wanted: list[_Wanted]) -> str | None:
    places = sorted({place for entry in wanted for place in entry.places if place}) or [""]
    roomy = [place for place in places if all(0 < entry.count <= len(entry.at(place)) for entry in wanted)]
    if not wanted or not roomy or any(_meets(match, read, wanted, place) for place in roomy):
        return None
    return roomy[0]


def _meets(match: bool, read: Read, wanted: list[_Wanted], place: str) -> bool:
    here = [(entry.count, entry.at(place)) for entry in wanted]
    values = {value for _, views in here for view in views for value in _values(view, read)}
    if not match:
        return len(values) >= sum(count for count, _ in here) or any(
            view.allow_multiple_allocations for _, views in here for view in views
        )
    return any(_shared(here, read, value) for value in values)


def _shared(here: list[tuple[int, list[DeviceView]]], read: Read, value: object) -> bool:
    """Whether enough devices have the value, those that several requests could take counted once."""
    having = [(count, [view for view in views if value in _values(view, read)]) for count, views in here]
    distinct = {id(view) for _, views in having for view in views}
    enough = len(distinct) >= sum(count for count, _ in having)
    many = any(view.allow_multiple_allocations for _, views in having for view in views)
    return (enough or many) and all(len(views) >= (1 if many else count) for count, views in having)


def _values(view: DeviceView, read: Read) -> tuple[object, ...]:
    """The values of a device; of a list each element, for lists match if they overlap."""
    value = view.attributes[read.domain].get(read.name)
    if value is None:
        return ()
    return value if isinstance(value, tuple) else ((type(value).__name__, value),)


def _unmet(
    document: Document, path: ItemPath, attribute: str, wanted: list[_Wanted], place: str, world: ManifestIndex
) -> Finding:
    match = path[-1] == "matchAttribute"
    read = Read("attributes", *attribute.split("/", 1))
    asked = " and ".join(f"{entry.count} for {entry.name}" for entry in wanted)
    kind = "one value" if match else "different values"
    message = f"no node has devices ({asked}) with {kind} of {attribute}: {_shown(read, wanted, place)}"
    other = _meetable(match, attribute, wanted, world)
    fix = f"use {other}, which can be met here" if other else "drop the constraint, or ask for fewer devices"
    return found(document, "ConstraintUnmeetable", path_text(path), message, fix)


def _shown(read: Read, wanted: list[_Wanted], place: str) -> str:
    parts = []
    for entry in wanted:
        values = {str(view.attributes[read.domain].get(read.name)) for view in entry.at(place)}
        more = ", ..." if len(values) > _SHOWN else ""
        parts.append(f"{entry.name} has {', '.join(sorted(values)[:_SHOWN])}{more}")
    return (f"on {place} " if place else "") + "; ".join(parts)


def _meetable(match: bool, attribute: str, wanted: list[_Wanted], world: ManifestIndex) -> str:
    """An attribute that all devices in question publish and with which the constraint can be met; standard first."""
    views = [view for entry in wanted for view in entry.views]
    shared = set.intersection(*({f"{d}/{n}" for d, ns in view.attributes.items() for n in ns} for view in views))
    for name in sorted(shared - {attribute}, key=lambda name: (not name.startswith("resource.kubernetes.io/"), name)):
        read = Read("attributes", *name.split("/", 1))
        if _distinguishes(read, views) and _unmeetable(match, read, wanted, world) is None:
            return name
    return ""


def _distinguishes(read: Read, views: list[DeviceView]) -> bool:
    """An attribute that is equal everywhere, such as a driver's version, says nothing about where devices sit."""
    return len({value for view in views for value in _values(view, read)}) > 1
