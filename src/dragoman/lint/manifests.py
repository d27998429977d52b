"""What do lint's families know? The documents by kind and name, the target version, its gates.

Documents of the background (a dump, a live cluster) are looked up and never judged.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from difflib import get_close_matches
from typing import Any, TypeVar

import msgspec

from dragoman.api.codec import TYPES
from dragoman.api.files import Document, ObjectId
from dragoman.api.gates import Gates
from dragoman.api.resource import ResourceSlice
from dragoman.api.shape import dig, text
from dragoman.known_drivers import NONE_KNOWN, KnownDrivers, TemplateMaker
from dragoman.lint.pods import users_of
from dragoman.lint.published import Published
from dragoman.whatif.updates import Applied

T = TypeVar("T")

TEMPLATE = "ResourceClaimTemplate"
COMPARED_MAX = 1000
"""So many names are looked through for one with a similar name."""


class ManifestIndex(msgspec.Struct, frozen=True):
    """All documents, indexed by kind, namespace and name; what is linted wins over the background.

    users: of shared claims, see `pods.users_of`. elsewhere: namespaces that have an object of that kind and name.
    listed: names by kind and namespace. memory: answers to questions that many documents share.
    made: by namespace and name of a claim template, the object of a driver's kind that makes it.
    earlier: by id of a document, the one that has its object before it. given: ids of documents that are linted.
    applied: what `kubectl apply` makes of an object; None where changes are not judged.
    knows_cluster: the background is a whole cluster, so that what is not there does not exist.
    """

    documents: tuple[Document, ...]
    named: dict[tuple[str, str, str], Document]
    minor: int
    gates: Gates
    published: Published
    users: dict[tuple[str, str], dict[int, int]]
    elsewhere: dict[tuple[str, str], tuple[str, ...]]
    listed: dict[tuple[str, str], list[str]]
    memory: dict[Any, Any]
    made: dict[tuple[str, str], tuple[Document, TemplateMaker]] = {}
    knows_cluster: bool = False
    earlier: dict[int, Document] = {}
    given: frozenset[int] = frozenset()
    applied: Applied | None = None

    @classmethod
    def of(
        cls,
        documents: Iterable[Document],
        background: Iterable[Document] = (),
        *,
        minor: int,
        gates: Gates,
        known: KnownDrivers = NONE_KNOWN,
        applied: Applied | None = None,
    ) -> ManifestIndex:
        """Indexes the documents."""
        kept = tuple(documents)
        behind = tuple(background)
        named = {_key(d): d for d in (*behind, *kept) if d.kind is not None}
        unnamed = [d for d in kept if d.kind is not None and not d.name]
        together = (*named.values(), *unnamed)
        slices = (d.value for d in together if isinstance(d.value, ResourceSlice))
        elsewhere: dict[tuple[str, str], tuple[str, ...]] = {}
        listed: dict[tuple[str, str], list[str]] = {}
        for kind, namespace, name in sorted(named):
            listed.setdefault((kind, namespace), []).append(name)
            elsewhere[kind, name] = (*elsewhere.get((kind, name), ()), namespace)
        makers = _made((*behind, *kept), known)
        for namespace, name in makers:
            listed.setdefault((TEMPLATE, namespace), []).append(name)
            elsewhere[TEMPLATE, name] = (*elsewhere.get((TEMPLATE, name), ()), namespace)
        published, users = Published.of(slices, known), users_of(together)
        return cls(
            together, named, minor, gates, published, users, elsewhere, listed, {}, makers, bool(behind),
            _earlier(kept, behind), frozenset(map(id, kept)), applied,
        )  # fmt: skip

    def before(self, document: Document) -> Document | None:
        """The document that has the same object before: in the cluster, or in a file read earlier."""
        return self.earlier.get(id(document))

    def serves(self, kind: str) -> bool:
        """Whether the cluster is seen to serve the kind: it has such an object."""
        return any(d.kind_name == kind and id(d) not in self.given for d in self.named.values())

    def is_given(self, document: Document) -> bool:
        """Whether it is linted, and not of the background."""
        return id(document) in self.given

    def find(self, kind: str, namespace: str, name: str) -> Document | None:
        """The document of an object, if it is there."""
        return self.named.get((kind, namespace, name))

    def names(self, kind: str, namespace: str = "") -> list[str]:
        """Names of the objects of a kind in a namespace, sorted."""
        return self.listed.get((kind, namespace), [])

    def once(self, question: Hashable, answer: Callable[[], T]) -> T:
        """The answer to a question, found once; it must depend on the world alone."""
        if question not in self.memory:
            self.memory[question] = answer()
        found: T = self.memory[question]
        return found

    def near(self, kind: str, namespace: str, name: str) -> str:
        """The name of an object of that kind with a similar name, "" if there is none."""
        known = self.names(kind, namespace) + (list(self.published.known.classes) if kind == "DeviceClass" else [])
        if len(known) > COMPARED_MAX:
            return ""
        return next(iter(get_close_matches(name, known, n=1, cutoff=0.6)), "")


def _made(documents: Iterable[Document], known: KnownDrivers) -> dict[tuple[str, str], tuple[Document, TemplateMaker]]:
    makers = {(maker.group, maker.kind): maker for driver in known.drivers.values() for maker in driver.makers}
    found: dict[tuple[str, str], tuple[Document, TemplateMaker]] = {}
    for document in documents:
        group = str(document.raw.get("apiVersion") or "").partition("/")[0]
        maker = makers.get((group, document.kind_name))
        if maker is not None and (name := text(dig(document.raw, *maker.template[:-1]), maker.template[-1])):
            found[namespace_of(document), name] = document, maker
    return found


def _earlier(kept: Iterable[Document], behind: Iterable[Document]) -> dict[int, Document]:
    last: dict[ObjectId, Document] = {}
    found: dict[int, Document] = {}
    there = {key: document for document in behind if (key := _object_id(document)) is not None}
    for document in kept:
        key = _object_id(document)
        if key is None:
            continue
        before = last.get(key)
        if before is None:
            before = there.get(key)
        elif before.file == document.file:
            before = None  # that is a DuplicateObject
        if before is not None:
            found[id(document)] = before
        last[key] = document
    return found


def _object_id(document: Document) -> ObjectId | None:
    """What may be there once, of a document that could be read."""
    readable = document.kind is not None and (document.value is not None or document.kind_name not in TYPES)
    return document.identity if readable else None


def namespace_of(document: Document) -> str:
    """The namespace of an object of a namespaced custom kind."""
    return document.namespace or "default"


def _key(document: Document) -> tuple[str, str, str]:
    return document.kind_name, document.namespace, document.name
