"""Is this a kind that somebody serves? Unknown kinds are named, with the one that was probably meant."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from difflib import SequenceMatcher, get_close_matches

from dragoman.api.files import Document
from dragoman.api.kinds import KINDS
from dragoman.api.shape import dig, text
from dragoman.lint.finding import Finding, SetValue, found
from dragoman.lint.manifests import ManifestIndex
from dragoman.lint.versions import REMOVED

GROUPS = frozenset(kind.group for kind in KINDS)
CUTOFF = 0.8
OWN_CUTOFF = 0.6
"""Among the few kinds of one group."""
NO_OBJECTS = frozenset({"Binding", "ComponentStatus", "Scale", "Eviction", "DeleteOptions", "Status", "APIGroup"})
"""Of the API, and never stored."""


def check(document: Document, world: ManifestIndex) -> Iterator[Finding]:
    """The kind of a document that no server of Kubernetes and no known driver has."""
    kind, version = document.kind_name, str(document.raw.get("apiVersion") or "")
    group = version.rpartition("/")[0]
    if document.kind is not None or not kind or not version or kind in REMOVED or kind.endswith("List"):
        return
    defined = world.once("defined kinds", lambda: _defined(world))
    if (group, kind) in defined:
        return
    own = {name for g, name in defined if g == group}
    builtin = {k.kind: k for k in KINDS}
    if kind in builtin and group in GROUPS and builtin[kind].group != group:
        right = builtin[kind]
        full = f"{right.group}/{right.versions[0]}" if right.group else right.versions[0]
        message = f"{kind} is not in {version}: a server with these objects refuses it"
        yield found(document, "UnknownKind", "apiVersion", message, f"write {full}", SetValue(("apiVersion",), full))
        return
    if kind in builtin:
        return  # a version that is not served: said elsewhere; or another project's kind of that name
    if group in GROUPS and kind not in NO_OBJECTS:
        near = get_close_matches(kind, sorted(builtin), n=1, cutoff=CUTOFF)
        yield from _unknown(document, near, builtin[near[0]].group if near else "", group)
    elif own:
        yield from _unknown(document, get_close_matches(kind, sorted(own), n=1, cutoff=OWN_CUTOFF), group, group)
    else:  # a group that nearly is a known one
        for other, name in sorted(defined):
            if ratio(group, other) >= CUTOFF and ratio(kind, name) >= CUTOFF:
                yield from _unknown(document, [name], other, group)
                return


def _unknown(document: Document, near: list[str], owner: str, group: str) -> Iterator[Finding]:
    version = str(document.raw.get("apiVersion"))
    message = f"there is no kind {document.kind_name} in {version}: it is not judged, and a server refuses it"
    if near and owner == group:
        edit = SetValue(("kind",), near[0])
        yield found(document, "UnknownKind", "kind", message, f"write {near[0]}", edit)
    elif near:
        yield found(document, "UnknownKind", "kind", message, f"{near[0]} is in {owner}")
    else:
        yield found(document, "UnknownKind", "kind", message, "correct kind or apiVersion")


def ratio(one: str, other: str) -> float:
    """How near two words are, 1 for equal ones."""
    return SequenceMatcher(None, one, other).ratio()


def _defined(world: ManifestIndex) -> frozenset[tuple[str, str]]:
    """(group, kind) of custom kinds: of known drivers, and of definitions among the documents."""
    found_ = {(m.group, m.kind) for driver in world.published.known.drivers.values() for m in driver.makers}
    for driver in world.published.known.drivers.values():
        found_ |= set(driver.kinds)
    for document in world.documents:
        if document.kind_name == "CustomResourceDefinition":
            spec = dig(document.raw, "spec")
            found_.add((text(spec, "group"), text(dig(spec, "names"), "kind")))
    for document in world.documents:  # a server has such objects: it serves the kind
        if document.kind is None and not world.is_given(document):
            found_.add((str(document.raw.get("apiVersion") or "").rpartition("/")[0], document.kind_name))
    return frozenset(found_)


def not_judged(documents: Iterable[Document]) -> dict[str, int]:
    """Kinds of other projects, as `Kind (group)`, with how many objects there are: nothing is known of them."""
    counts: dict[str, int] = {}
    for document in documents:
        group = str(document.raw.get("apiVersion") or "").rpartition("/")[0]
        if document.kind is None and document.kind_name not in ("", *REMOVED) and group and group not in GROUPS:
            name = f"{document.kind_name} ({group})"
            counts[name] = counts.get(name, 0) + 1
    return counts
