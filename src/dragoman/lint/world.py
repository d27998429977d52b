"""What do lint's families know? The documents by kind and name, the target version, its gates.

Documents of the background (a dump, a live cluster) are looked up and never judged.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from difflib import get_close_matches

import msgspec

from dragoman.api.files import Document
from dragoman.api.gates import Gates
from dragoman.api.resource import ResourceSlice
from dragoman.lint.catalogue import CLASSES
from dragoman.lint.published import Published


class World(msgspec.Struct, frozen=True):
    """All documents, indexed by kind, namespace and name; what is linted wins over the background.

    knows_cluster: the background is a whole cluster, so that what is not there does not exist.
    """

    documents: tuple[Document, ...]
    named: dict[tuple[str, str, str], Document]
    minor: int
    gates: Gates
    published: Published
    knows_cluster: bool = False

    @classmethod
    def of(
        cls, documents: Iterable[Document], background: Iterable[Document] = (), *, minor: int, gates: Gates
    ) -> World:
        """Indexes the documents."""
        kept = tuple(documents)
        behind = tuple(background)
        named = {_key(d): d for d in (*behind, *kept) if d.kind is not None}
        unnamed = [d for d in kept if d.kind is not None and not d.name]
        together = (*named.values(), *unnamed)
        slices = (d.value for d in together if isinstance(d.value, ResourceSlice))
        return cls(together, named, minor, gates, Published.of(slices), bool(behind))

    def find(self, kind: str, namespace: str, name: str) -> Document | None:
        """The document of an object, if it is there."""
        return self.named.get((kind, namespace, name))

    def names(self, kind: str, namespace: str = "") -> list[str]:
        """Names of the objects of a kind in a namespace, sorted."""
        return sorted(name for k, n, name in self.named if (k, n) == (kind, namespace))

    def near(self, kind: str, namespace: str, name: str) -> str:
        """The name of an object of that kind that looks alike, "" if there is none."""
        known = self.names(kind, namespace) + (list(CLASSES) if kind == "DeviceClass" else [])
        return next(iter(get_close_matches(name, known, n=1, cutoff=0.6)), "")

    def of_kind(self, *kinds: str) -> Iterator[Document]:
        """All documents of these kinds."""
        return (document for document in self.documents if document.kind_name in kinds)


def _key(document: Document) -> tuple[str, str, str]:
    return document.kind_name, document.namespace, document.name
