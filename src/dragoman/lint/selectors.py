"""Do the selectors of classes and claims fit what drivers publish?

Judges against the slices at hand; of known drivers without slices by what is known, and of others it says
nothing: an expression may be meant for devices that are somewhere else. Reading what only some devices have is
judged with slices only.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from difflib import get_close_matches
from typing import Any

from dragoman.api.files import Document
from dragoman.api.selectors import DeviceView, Selector, SelectorFailed, compile_selector
from dragoman.api.validate.field import path_text
from dragoman.known_drivers import Cards
from dragoman.lint import names, thresholds
from dragoman.lint.chains import Chain, chains, matching, selected
from dragoman.lint.finding import Finding, ItemPath, ReplaceText, found
from dragoman.lint.manifests import ManifestIndex
from dragoman.lint.names import Read
from dragoman.lint.partitions import misfit
from dragoman.lint.published import Published
from dragoman.lint.unknown import as_written

_SHOWN = 5
_TEXTS = re.compile(r"[\"']([^\"']{4,})[\"']")


def check(document: Document, world: ManifestIndex) -> Iterator[Finding]:
    """Findings on the expressions of one document."""
    if document.value is None:
        return
    for chain in chains(document, world):
        yield from _chain(document, chain, world)


def _chain(document: Document, chain: Chain, world: ManifestIndex) -> Iterator[Finding]:
    if not chain.own:
        return
    views = list(world.published.views) if chain.before is None else matching(chain.before, world)
    passed = list(chain.before or ())
    for place, expression in chain.own:
        path = as_written(document, place)
        wrong = [
            names.finding(document, path, read, world.published, expression)
            for read in _unheard(expression, world.published)
        ]
        yield from wrong
        selector = compile_selector(_corrected(expression, wrong))
        if not isinstance(selector, Selector) or any(not finding.edits for finding in wrong):
            return
        bad = misfit(selector.expression, passed, world.published.known)
        if bad is not None:
            edits = (ReplaceText(path, bad.profile, bad.instead),) if bad.instead else ()
            yield found(document, "WrongPartitionProfile", path_text(path), bad.message, bad.fix, *edits)
            return
        if not wrong and views:
            yield from _checked(document, path, selector, _meant(selector, views, chain), world, chain)
        for driver in world.published.known.drivers.values():
            if driver.cards is not None and names.known_without_slices(driver.domain, world.published) is not None:
                yield from _just_missed_cards(document, path, selector, passed, world, driver.cards)
        views = world.published.run(selector, views).matched
        passed.append(selector.expression)


def _unheard(expression: str, published: Published) -> list[Read]:
    """What an expression reads of a known driver without slices at hand, and that driver never publishes."""
    selector = compile_selector(expression)
    if not isinstance(selector, Selector):
        return []
    return [
        read
        for read in names.unpublished(selector, published)
        if names.known_without_slices(read.domain, published) is not None
    ]


def _corrected(expression: str, findings: Iterable[Finding]) -> str:
    for finding in findings:
        for edit in finding.edits:
            if isinstance(edit, ReplaceText):
                expression = expression.replace(edit.old, edit.new)
    return expression


def _meant(selector: Selector, views: list[DeviceView], chain: Chain) -> list[DeviceView]:
    """The devices to judge by: of a class that nobody knows, those of the drivers that the selector reads."""
    return views if chain.before is not None else _concerned(selector, views)


def _concerned(selector: Selector, views: list[DeviceView]) -> list[DeviceView]:
    """Devices of the drivers whose domains are read; all, if none is."""
    domains = {domain for read in (selector.reads.attributes, selector.reads.capacity) for domain, _ in read or ()}
    return [view for view in views if view.driver in domains] or views


# ---- by the devices at hand


def _checked(
    document: Document, path: ItemPath, selector: Selector, views: list[DeviceView], world: ManifestIndex, chain: Chain
) -> Iterator[Finding]:
    published = world.published
    outcome = published.run(selector, views)
    misread = list(names.unpublished(selector, published))
    for attribute, (count, failure) in sorted(outcome.failed.items()):
        lacking = next((read for read in misread if f"{read.domain}/{read.name}" == attribute), None)
        if lacking is not None:
            yield names.finding(document, path, lacking, published, selector.expression)
        elif chain.before is not None:
            yield _failure(document, path, attribute, count, len(views), failure)
    if outcome.failed:
        return
    if outcome.matched:
        yield from _just_missed(document, path, selector, views, published)
    elif misread:
        yield names.finding(document, path, misread[0], published, selector.expression)
    else:
        yield _never(document, path, selector, views, published)


def _failure(
    document: Document, path: ItemPath, attribute: str, count: int, total: int, failure: SelectorFailed
) -> Finding:
    domain, slash, name = attribute.rpartition("/")
    field = path_text(path)
    if not slash:
        message = f"fails on {count} of {total} devices: {failure.message}"
        return found(document, "SelectorFails", field, message, "guard what may be missing or of another type")
    kind = "capacity" if _reads_capacity(failure.expression, domain, name) else "attributes"
    message = f"fails on {count} of {total} devices, which have no {attribute}; one failing device can refuse a node"
    fix = f"check device.driver first, or read it as device.{kind}['{domain}'].?{name}"
    return found(document, "UnguardedAttribute", field, message, fix)


def _reads_capacity(expression: str, domain: str, name: str) -> bool:
    selector = compile_selector(expression)
    if not isinstance(selector, Selector):
        return False
    read = (domain, name)
    return read in (selector.reads.capacity or ()) and read not in (selector.reads.attributes or ())


def _never(
    document: Document, path: ItemPath, selector: Selector, views: list[DeviceView], published: Published
) -> Finding:
    concerned = _concerned(selector, views)
    message = f"matches 0 of {len(concerned)} devices" + _values(selector, concerned)
    fix = "compare with values that are published"
    near = _near_value(selector, concerned)
    short = next(thresholds.missed(selector, concerned, published), None)
    if short is not None:
        fix = f"{short.capacity} of {len(short.views)} is up to {thresholds.shown(short.has)}, just under "
        fix += f"{short.threshold}: write {short.instead}"
    elif near:
        fix = f"write {near!r}"
    return found(document, "NeverTrue", path_text(path), message, fix)


def _near_value(selector: Selector, views: list[DeviceView]) -> str:
    """A text that devices have and that looks like one of the expression's, which none has."""
    values = (view.attributes[domain].get(name) for domain, name in _attributes(selector) for view in views)
    seen = {value for value in values if isinstance(value, str)}
    for written in _TEXTS.findall(selector.expression):
        if written not in seen and (near := get_close_matches(written, sorted(seen), n=1, cutoff=0.6)):
            return str(near[0])
    return ""


def _attributes(selector: Selector) -> list[tuple[str, str]]:
    return sorted((domain, name) for domain, name in selector.reads.attributes or () if name is not None)


def _values(selector: Selector, views: list[DeviceView]) -> str:
    """The values of what the selector reads, as far as they are few."""
    parts = []
    for kind, read in (("attributes", selector.reads.attributes), ("capacity", selector.reads.capacity)):
        for domain, name in sorted(read or (), key=str):
            seen = {str(v) for view in views if (v := _value(view, kind, domain, name)) is not None}
            if seen:
                shown = sorted(seen)
                more = f" and {len(shown) - _SHOWN} more" if len(shown) > _SHOWN else ""
                parts.append(f"{domain}/{name} is {', '.join(shown[:_SHOWN])}{more}")
    return f"; {'; '.join(parts)}" if parts else ""


def _value(view: DeviceView, kind: str, domain: str, name: str | None) -> Any:
    domains = view.attributes if kind == "attributes" else view.capacity
    return domains[domain].get(name) if name is not None else None


# ---- thresholds


def _just_missed(
    document: Document, path: ItemPath, selector: Selector, views: list[DeviceView], published: Published
) -> Iterator[Finding]:
    total = len(_concerned(selector, views))
    for short in thresholds.missed(selector, views, published):
        message = (
            f"leaves out {len(short.views)} of {total} devices by little: their {short.capacity} is up to "
            f"{thresholds.shown(short.has)}, just under {short.threshold}"
        )
        yield found(document, "JustMissed", path_text(path), message, f"write {short.instead} to take them too")


def _just_missed_cards(
    document: Document, path: ItemPath, selector: Selector, passed: list[str], world: ManifestIndex, cards: Cards
) -> Iterator[Finding]:
    if "quantity" not in selector.expression:
        return  # nothing to read the cards for
    models = cards.models()
    names_of = {id(card.whole): card.name for card in models}
    left = selected(tuple(passed), [card.whole for card in models], world)
    for short in thresholds.missed(selector, left, world.published):
        titles = [names_of[id(view)] for view in short.views]
        message = (
            f"leaves out {', '.join(titles[:_SHOWN])} by little: {short.capacity} is up to "
            f"{thresholds.shown(short.has)}, just under {short.threshold}"
        )
        yield found(document, "JustMissed", path_text(path), message, f"write {short.instead} to take them too")
