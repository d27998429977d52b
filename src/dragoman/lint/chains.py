"""Which selectors stand one behind the other? A class's are asked first, then those of the request that names it."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from dragoman.api.files import Document
from dragoman.api.selectors import DeviceView, Selector, compile_selector
from dragoman.api.shape import Object, dig, objects, text
from dragoman.lint.finding import ItemPath
from dragoman.lint.manifests import ManifestIndex


class Chain(msgspec.Struct, frozen=True):
    """The selectors of a class, or of one request with those of its class before.

    own: path in the stored version and text of the document's own selectors. before: those of the class, None if
    nothing is known of the class.
    """

    own: tuple[tuple[ItemPath, str], ...]
    before: tuple[str, ...] | None = ()


def chains(document: Document, world: ManifestIndex) -> Iterator[Chain]:
    """All chains of a class, claim or template."""
    if document.kind_name == "DeviceClass":
        yield Chain(tuple(_selectors(dig(document.object, "spec"), ("spec",))))
    for path, devices in claims_of(document):
        for index, request in enumerate(objects(devices, "requests")):
            for place, exact_request in exact_requests(request):
                place = (*path, "requests", index, *place)
                yield Chain(
                    tuple(_selectors(exact_request, place)),
                    class_selectors(text(exact_request, "deviceClassName"), world),
                )


def claims_of(document: Document) -> Iterator[tuple[ItemPath, Object]]:
    """Path and value of spec.devices of a claim or a template, in the stored version."""
    if document.kind_name == "ResourceClaim":
        yield ("spec", "devices"), dig(document.object, "spec", "devices")
    elif document.kind_name == "ResourceClaimTemplate":
        yield ("spec", "spec", "devices"), dig(document.object, "spec", "spec", "devices")


def exact_requests(request: Object) -> Iterator[tuple[ItemPath, Object]]:
    """What a request asks for, with the path in it: `exactly`, each alternative, or (misplaced) the request itself."""
    if "exactly" in request:
        yield ("exactly",), dig(request, "exactly")
    elif "deviceClassName" in request:
        yield (), request
    for number, exact_request in enumerate(objects(request, "firstAvailable")):
        yield ("firstAvailable", number), exact_request


def class_selectors(name: str, world: ManifestIndex) -> tuple[str, ...] | None:
    """The selectors of a DeviceClass that is at hand, or that a known driver brings; None of others."""
    owner = world.find("DeviceClass", "", name)
    if owner is not None:
        return tuple(expression for _, expression in _selectors(dig(owner.object, "spec"), ()))
    known = world.published.known.classes
    return (known[name],) if name in known and not world.knows_cluster else None


def _selectors(holder: Object, path: ItemPath) -> Iterator[tuple[ItemPath, str]]:
    for index, selector in enumerate(objects(holder, "selectors")):
        if expression := text(dig(selector, "cel"), "expression"):
            yield (*path, "selectors", index, "cel", "expression"), expression


def selected(expressions: tuple[str, ...], views: list[DeviceView], world: ManifestIndex) -> list[DeviceView]:
    """The devices that match all of the selectors; none if one does not compile."""
    for expression in expressions:
        selector = compile_selector(expression)
        views = world.published.run(selector, views).matched if isinstance(selector, Selector) else []
    return views


def matching(expressions: tuple[str, ...], world: ManifestIndex) -> list[DeviceView]:
    """The devices at hand that match all of the selectors."""
    return world.once(("matching", expressions), lambda: selected(expressions, list(world.published.views), world))


def selectors_of(exact_request: Object, world: ManifestIndex) -> tuple[str, ...] | None:
    """All selectors of a request, its class's first; None if the class is unknown."""
    before = class_selectors(text(exact_request, "deviceClassName"), world)
    return None if before is None else (*before, *(expression for _, expression in _selectors(exact_request, ())))


def candidates(request: Object, world: ManifestIndex) -> list[DeviceView]:
    """Devices that the request's class and selectors take, of any alternative; none if the class is unknown."""
    every = [
        selectors
        for _, exact_request in exact_requests(request)
        if (selectors := selectors_of(exact_request, world)) is not None
    ]
    if len(every) == 1:
        return matching(every[0], world)
    return list({id(view): view for selectors in every for view in matching(selectors, world)}.values())
