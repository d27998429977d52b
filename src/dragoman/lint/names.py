"""What if a selector or a constraint reads what nobody publishes? Which name was meant, and how is the text put right?

Names are those of the slices at hand; of known drivers without slices, what is known.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from difflib import get_close_matches

import msgspec

from dragoman.api.files import Document
from dragoman.api.selectors import Selector
from dragoman.api.validate.field import path_text
from dragoman.known_drivers import KnownDriver
from dragoman.lint.finding import Finding, ItemPath, ReplaceText, found
from dragoman.lint.published import Published

_SHOWN = 5


class Read(msgspec.Struct, frozen=True):
    """Something that is read of a device: kind is attributes or capacity."""

    kind: str
    domain: str
    name: str


def unpublished(selector: Selector, published: Published) -> Iterator[Read]:
    """What the selector reads and nobody publishes."""
    for kind, read in (("attributes", selector.reads.attributes), ("capacity", selector.reads.capacity)):
        for domain, name in sorted(read or (), key=str):
            if name is not None and not is_published(Read(kind, domain, name), published):
                yield Read(kind, domain, name)


def is_published(read: Read, published: Published) -> bool:
    """Whether some device has it, or could, as far as is known."""
    known = known_without_slices(read.domain, published)
    if known is not None:
        return known.has(read.kind, read.name)
    names = published.attributes if read.kind == "attributes" else published.capacity
    return read.name in names.get(read.domain, ())


def known_without_slices(domain: str, published: Published) -> KnownDriver | None:
    """The known driver of a domain, if no slice at hand tells more."""
    if domain in published.attributes or domain in published.capacity:
        return None
    return published.known.get(domain)


def finding(document: Document, path: ItemPath, read: Read, published: Published, expression: str = "") -> Finding:
    """The finding on something that nobody publishes; expression is the text that reads it, if it is a selector."""
    field = path_text(path)
    known = known_without_slices(read.domain, published)
    attributes = published.attributes.get(read.domain, set()) if known is None else known.attributes
    capacity = published.capacity.get(read.domain, set()) if known is None else known.capacity
    is_attribute = read.kind == "attributes"
    here, there = (attributes, capacity) if is_attribute else (capacity, attributes)
    if read.name in there and expression:
        other = "capacity" if is_attribute else "attributes"
        what = "a capacity, not an attribute" if is_attribute else "an attribute, not a capacity"
        edits = _edits(path, expression, read, Read(other, read.domain, read.name))
        code = "AttributeIsCapacity" if is_attribute else "CapacityIsAttribute"
        fix = f"use device.{other}['{read.domain}'].{read.name}"
        return found(document, code, field, f"{read.name!r} is published as {what}", fix, *edits)
    if not here:
        return _unknown_domain(document, field, read, published)
    message = f"no device of {read.domain!r} has the {'attribute' if is_attribute else 'capacity'} {read.name!r}"
    meant = _meant(read.name, here)
    own = published.known.get(read.domain)
    if own is not None and (advice := own.instead(read.name)):
        return found(document, "UnknownAttribute", field, message, advice)
    edits = _edits(path, expression, read, Read(read.kind, read.domain, meant)) if meant and expression else ()
    shown = sorted(here)
    more = ", ..." if len(shown) > _SHOWN else ""
    fix = f"write {meant}" if meant else f"it has {', '.join(shown[:_SHOWN])}{more}"
    return found(document, "UnknownAttribute", field, message, fix, *edits)


def _unknown_domain(document: Document, field: str, read: Read, published: Published) -> Finding:
    domains = sorted({*published.attributes, *published.capacity, *published.drivers()})
    near = get_close_matches(read.domain, domains, n=1)
    message = f"no driver here publishes {read.kind} of {read.domain!r}"
    fix = f"write {near[0]!r}" if near else f"published here: {', '.join(domains[:_SHOWN])}"
    return found(document, "UnknownDomain", field, message, fix)


def _meant(name: str, known: set[str] | frozenset[str]) -> str:
    """A known name that is similar, or that the name ends with."""
    lowered = {one.lower(): one for one in sorted(known)}
    near = get_close_matches(name.lower(), lowered, n=1, cutoff=0.6)
    return lowered[near[0]] if near else ""


def _edits(path: ItemPath, expression: str, read: Read, meant: Read) -> tuple[ReplaceText, ...]:
    """The places where the expression reads it, put right; () if it is written in no usual way."""
    pattern = re.compile(
        rf"\b{read.kind}(\[([\"']){re.escape(read.domain)}\2\])(\.\??|\[\??[\"'])({re.escape(read.name)})\b"
    )
    places = dict.fromkeys(place[0] for place in pattern.finditer(expression))
    return tuple(ReplaceText(path, place, pattern.sub(rf"{meant.kind}\1\3{meant.name}", place)) for place in places)
