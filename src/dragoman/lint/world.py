"""What do lint's families know? The documents by kind and name, the target version, its gates."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from dragoman.api.files import Document
from dragoman.api.gates import Gates
from dragoman.api.resource import ResourceSlice
from dragoman.lint.published import Published


class World(msgspec.Struct, frozen=True):
    """All documents, indexed by kind, namespace and name."""

    documents: tuple[Document, ...]
    named: dict[tuple[str, str, str], Document]
    minor: int
    gates: Gates
    published: Published

    @classmethod
    def of(cls, documents: Iterable[Document], *, minor: int, gates: Gates) -> World:
        """Indexes the documents."""
        kept = tuple(documents)
        named = {(d.kind_name, d.namespace, d.name): d for d in kept if d.kind is not None}
        slices = (d.value for d in kept if isinstance(d.value, ResourceSlice))
        return cls(kept, named, minor, gates, Published.of(slices))

    def find(self, kind: str, namespace: str, name: str) -> Document | None:
        """The document of an object, if it is there."""
        return self.named.get((kind, namespace, name))
