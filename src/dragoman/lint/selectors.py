"""Do the selectors and constraints of classes and claims fit what drivers publish?

Judges against the slices at hand and says nothing where there are none: an expression may be meant for devices that
are somewhere else.
"""

from __future__ import annotations

from collections.abc import Iterator
from difflib import get_close_matches
from typing import Any

from dragoman.api.files import Document
from dragoman.api.selectors import DeviceView, Selector, SelectorFailed, compile_selector
from dragoman.api.shape import Object, dig, items, objects, text
from dragoman.lint.catalogue import CATALOGUE, KnownDriver
from dragoman.lint.finding import Finding, Steps, found
from dragoman.lint.published import Outcome, Published
from dragoman.lint.rewrite import path_text
from dragoman.lint.unknown import as_written
from dragoman.lint.world import World

_SHOWN = 5


def check(document: Document, world: World) -> Iterator[Finding]:
    """Findings on the expressions and constraints of one document."""
    if document.value is None:
        return
    for path, expression in expressions(document):
        selector = compile_selector(expression)
        if isinstance(selector, Selector):
            field = path_text(as_written(document, path))
            catalogued = [_unknown(document, field, *read, world.published) for read in _uncatalogued(selector, world)]
            yield from catalogued
            if world.published.views and not catalogued:
                yield from _judged(document, field, selector, world.published)
    for path, devices in claims_of(document):
        for index, constraint in enumerate(objects(devices, "constraints")):
            at: Steps = (*path, "constraints", index)
            for kind in ("matchAttribute", "distinctAttribute"):
                yield from _attribute(document, path_text((*at, kind)), text(constraint, kind), world)
            place = path_text((*at, "matchAttribute"))
            yield from _constraint(document, place, devices, constraint, world)


def claims_of(document: Document) -> Iterator[tuple[Steps, Object]]:
    """Path and value of spec.devices of a claim or a template, in the stored version."""
    if document.kind_name == "ResourceClaim":
        yield ("spec", "devices"), dig(document.object, "spec", "devices")
    elif document.kind_name == "ResourceClaimTemplate":
        yield ("spec", "spec", "devices"), dig(document.object, "spec", "spec", "devices")


def expressions(document: Document) -> Iterator[tuple[Steps, str]]:
    """Path in the stored version and text of each selector of a class, claim or template."""
    if document.kind_name == "DeviceClass":
        yield from _selectors(dig(document.object, "spec"), ("spec",))
    for path, devices in claims_of(document):
        for index, request in enumerate(objects(devices, "requests")):
            at: Steps = (*path, "requests", index)
            yield from _selectors(dig(request, "exactly"), (*at, "exactly"))
            for number, subrequest in enumerate(objects(request, "firstAvailable")):
                yield from _selectors(subrequest, (*at, "firstAvailable", number))


def _selectors(holder: Object, path: Steps) -> Iterator[tuple[Steps, str]]:
    for index, selector in enumerate(objects(holder, "selectors")):
        if expression := text(dig(selector, "cel"), "expression"):
            yield (*path, "selectors", index, "cel", "expression"), expression


# ---- one expression


def _uncatalogued(selector: Selector, world: World) -> Iterator[tuple[str, str, str]]:
    """What the selector reads of a well-known driver without slices at hand, and that driver never publishes."""
    for kind, read in (("attributes", selector.reads.attributes), ("capacity", selector.reads.capacity)):
        for domain, name in sorted(read or (), key=str):
            known = _catalogued(domain, world.published)
            if known is not None and name is not None and not known.has(kind, name):
                yield kind, domain, name


def _catalogued(domain: str, published: Published) -> KnownDriver | None:
    if domain in published.attributes or domain in published.capacity:
        return None
    return CATALOGUE.get(domain)


def _judged(document: Document, field: str, selector: Selector, published: Published) -> Iterator[Finding]:
    outcome = published.run(selector)
    for attribute, (count, failure) in sorted(outcome.failed.items()):
        yield _failure(document, field, attribute, count, failure, outcome, published)
    if not outcome.failed and not outcome.matched:
        misread = list(_misread(selector, published))
        message = f"is false for all {len(published.views)} devices" + _values(selector, published)
        if misread:
            kind, domain, name = misread[0]
            yield _unknown(document, field, kind, domain, name, published)
        else:
            yield found(document, "NeverTrue", field, message, "compare with values that are published")


def _misread(selector: Selector, published: Published) -> Iterator[tuple[str, str, str]]:
    """What the selector reads and nobody publishes: kind (attributes, capacity), domain, name."""
    for kind, read, known in (
        ("attributes", selector.reads.attributes, published.attributes),
        ("capacity", selector.reads.capacity, published.capacity),
    ):
        for domain, name in sorted(read or (), key=str):
            if name is not None and name not in known.get(domain, ()):
                yield kind, domain, name


def _failure(
    document: Document,
    field: str,
    attribute: str,
    count: int,
    failure: SelectorFailed,
    outcome: Outcome,
    published: Published,
) -> Finding:
    domain, slash, name = attribute.rpartition("/")
    total = len(published.views)
    if not slash:
        message = f"fails on {count} of {total} devices: {failure.message}"
        return found(document, "SelectorFails", field, message, "guard what may be missing or of another type")
    kind = "capacity" if _reads_capacity(failure.expression, domain, name) else "attributes"
    known = published.attributes if kind == "attributes" else published.capacity
    if name not in known.get(domain, ()):
        return _unknown(document, field, kind, domain, name, published)
    message = f"fails on {count} of {total} devices, which have no {attribute}; one failing device can refuse a node"
    fix = f"check device.driver first, or read it as device.{kind}['{domain}'].?{name}"
    return found(document, "UnguardedAttribute", field, message, fix)


def _reads_capacity(expression: str, domain: str, name: str) -> bool:
    selector = compile_selector(expression)
    if not isinstance(selector, Selector):
        return False
    read = (domain, name)
    return read in (selector.reads.capacity or ()) and read not in (selector.reads.attributes or ())


def _unknown(document: Document, field: str, kind: str, domain: str, name: str, published: Published) -> Finding:
    """Something that nobody publishes, at least not there."""
    is_attribute = kind == "attributes"
    catalogued = _catalogued(domain, published)
    attributes = published.attributes.get(domain, set()) if catalogued is None else catalogued.attributes
    capacity = published.capacity.get(domain, set()) if catalogued is None else catalogued.capacity
    here, there = (attributes, capacity) if is_attribute else (capacity, attributes)
    if name in there:
        code = "AttributeIsCapacity" if is_attribute else "CapacityIsAttribute"
        words = (
            ("a capacity, not an attribute", "capacity")
            if is_attribute
            else ("an attribute, not a capacity", "attributes")
        )
        message = f"{name!r} is published as {words[0]}"
        return found(document, code, field, message, f"use device.{words[1]}['{domain}'].{name}")
    known = sorted(here)
    word = "attribute" if is_attribute else "capacity"
    if not known:
        domains = sorted({*published.attributes, *published.capacity, *published.drivers()})
        near = get_close_matches(domain, domains, n=1)
        message = f"no driver here publishes {'attributes' if is_attribute else 'capacity'} of {domain!r}"
        fix = f"write {near[0]!r}" if near else f"published here: {', '.join(domains[:_SHOWN])}"
        return found(document, "UnknownDomain", field, message, fix)
    near = get_close_matches(name.lower(), [k.lower() for k in known], n=1, cutoff=0.6)
    meant = next((k for k in known if near and k.lower() == near[0]), None)
    message = f"no device of {domain!r} has the {word} {name!r}"
    fix = f"write {meant}" if meant else f"it has {', '.join(known[:_SHOWN])}{', ...' if len(known) > _SHOWN else ''}"
    return found(document, "UnknownAttribute", field, message, fix)


def _values(selector: Selector, published: Published) -> str:
    """The values of what the selector reads, as far as they are few."""
    parts = []
    for kind, read in (("attributes", selector.reads.attributes), ("capacity", selector.reads.capacity)):
        for domain, name in sorted(read or (), key=str):
            seen = {str(v) for view in published.views if (v := _value(view, kind, domain, name)) is not None}
            if seen:
                shown = sorted(seen)
                more = f" and {len(shown) - _SHOWN} more" if len(shown) > _SHOWN else ""
                parts.append(f"{domain}/{name} is {', '.join(shown[:_SHOWN])}{more}")
    return f"; {'; '.join(parts)}" if parts else ""


def _value(view: DeviceView, kind: str, domain: str, name: str | None) -> Any:
    domains = view.attributes if kind == "attributes" else view.capacity
    return domains[domain].get(name) if name is not None else None


# ---- constraints


def _attribute(document: Document, place: str, attribute: str, world: World) -> Iterator[Finding]:
    """An attribute of a well-known driver without slices at hand."""
    domain, slash, name = attribute.partition("/")
    known = _catalogued(domain, world.published) if slash else None
    if known is not None and not known.has("attributes", name):
        yield _unknown(document, place, "attributes", domain, name, world.published)


def _constraint(document: Document, place: str, devices: Object, constraint: Object, world: World) -> Iterator[Finding]:
    attribute = text(constraint, "matchAttribute")
    if "/" not in attribute:
        return
    domain, name = attribute.split("/", 1)
    covered = {str(request).partition("/")[0] for request in items(constraint, "requests")}
    having: set[str] = set()
    lacking: set[str] = set()
    for request in objects(devices, "requests"):
        if covered and text(request, "name") not in covered:
            continue
        for view in candidates(request, world):
            (having if name in view.attributes[domain] else lacking).add(view.driver)
    lacking -= having
    if not lacking:
        return
    involved = len(having | lacking)
    drivers = f"{involved} driver{'s' if involved != 1 else ''} involved"
    message = f"{attribute} is published by {len(having)} of the {drivers}, not by {', '.join(sorted(lacking))}"
    near = _alternatives(lacking, name, world.published)
    fix = "match an attribute that all of them publish" + (f"; there is {near}" if near else "")
    yield found(document, "ConstraintNotShared", place, message, fix)


def _alternatives(drivers: set[str], name: str, published: Published) -> str:
    """Attributes of these drivers that look alike."""
    known = {f"{domain}/{n}": n for domain in drivers for n in published.attributes.get(domain, ())}
    near = [full for full, n in sorted(known.items()) if n.lower() in name.lower() or name.lower() in n.lower()]
    return ", ".join(near[:_SHOWN])


def candidates(request: Object, world: World) -> list[DeviceView]:
    """Devices that the request's class and selectors take; none if the class is not at hand."""
    views: list[DeviceView] = []
    for wish in (dig(request, "exactly"), *objects(request, "firstAvailable")):
        owner = world.find("DeviceClass", "", text(wish, "deviceClassName"))
        if owner is None:
            continue
        taken = list(world.published.views)
        for _, expression in (*_selectors(dig(owner.object, "spec"), ()), *_selectors(wish, ())):
            selector = compile_selector(expression)
            taken = world.published.run(selector, taken).matched if isinstance(selector, Selector) else []
        views += taken
    return views
