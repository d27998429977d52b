"""How everything of ours reaches an API server: one protocol, two transports (HTTP, in process).

Objects are plain JSON-shaped dicts here; typed values are decoded by those who want them. There is no PUT of
objects that others own: they are changed by patches with preconditions.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any, Literal, Protocol, TypedDict, Unpack

import msgspec

from dragoman.api.kinds import Kind
from dragoman.api.shape import Object


class Listed(msgspec.Struct):
    """A consistent list: the objects and the version from which a watch continues without a gap."""

    items: list[Object]
    resource_version: str


class WatchEvent(msgspec.Struct):
    """type is ADDED, MODIFIED, DELETED or BOOKMARK (which carries only a resourceVersion)."""

    type: str
    object: Object


class PatchOptions(TypedDict, total=False):
    """How an object is patched. type: merge unless given; manager: field manager, the client's own unless given.

    force: an apply takes fields over from other managers.
    """

    type: Literal["merge", "json", "strategic", "apply"]
    subresource: str
    manager: str
    force: bool


class Client(Protocol):
    """Raises Retry (transport, 429, 5xx), Stale (409, 410), NotFound (404), Invalid (400, 422), Denied (401, 403)"""

    async def get(self, kind: Kind, name: str, namespace: str = "") -> Object:
        """One object."""
        ...

    async def list(
        self, kind: Kind, namespace: str = "", *, field_selector: str = "", label_selector: str = ""
    ) -> Listed:
        """All objects of the kind (in the namespace, if given)."""
        ...

    def watch(
        self,
        kind: Kind,
        resource_version: str,
        namespace: str = "",
        *,
        field_selector: str = "",
        label_selector: str = "",
    ) -> AsyncIterator[WatchEvent]:
        """Changes after that version. Ends when the server ends it; raises Stale when the version is too old."""
        ...

    async def create(
        self, kind: Kind, obj: Object, namespace: str = "", *, subresource: str = "", name: str = ""
    ) -> Object:
        """Create; with subresource (`binding`, `eviction`) POST to that of object `name`."""
        ...

    async def replace(self, kind: Kind, obj: Object, *, subresource: str = "") -> Object:
        """PUT an object that we own whole (our slices, leases), with its resourceVersion."""
        ...

    async def patch(
        self, kind: Kind, name: str, patch: Any, namespace: str = "", **options: Unpack[PatchOptions]
    ) -> Object:
        """Patch; an apply patch gets apiVersion and kind if it has none."""
        ...

    async def delete(
        self,
        kind: Kind,
        name: str,
        namespace: str = "",
        *,
        uid: str = "",
        resource_version: str = "",
        grace_period_s: int | None = None,
        propagation: str = "",
    ) -> None:
        """Delete one object, with preconditions where given."""
        ...

    async def delete_collection(
        self, kind: Kind, namespace: str = "", *, field_selector: str = "", label_selector: str = ""
    ) -> None:
        """Delete all that match."""
        ...

    async def close(self) -> None:
        """Release connections."""
        ...
