"""How does a part of the same process reach the API? The Client protocol of `cluster.client`, straight on the registry.

No HTTP and no authentication; the user's rights, admission, validation and conflicts are the same. Objects are fresh
dicts that the caller may keep. Refusals become the exceptions of `dragoman.errors`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from typing import Any, Unpack

import msgspec

from dragoman.api.kinds import Kind
from dragoman.api.shape import Object
from dragoman.apiserver import subresources
from dragoman.apiserver.access.attributes import Attributes
from dragoman.apiserver.options import version_of
from dragoman.apiserver.registry import Registry
from dragoman.apiserver.request import ADMIN, DeleteOptions, User, Write
from dragoman.apiserver.selectors import FieldTerm
from dragoman.apiserver.status import StatusError
from dragoman.apiserver.versions import render
from dragoman.cluster.client import Listed, PatchOptions, WatchEvent
from dragoman.errors import Stale


class InProcessClient:
    """A Client of one registry. `manager` names its writes in managedFields."""

    def __init__(self, registry: Registry, manager: str = "dragoman", user: User = ADMIN) -> None:
        self.registry = registry
        self._user = user
        self._write = Write(manager=manager, user=user)
        self._closed = False
        self._watches: set[asyncio.Event] = set()

    async def get(self, kind: Kind, name: str, namespace: str = "") -> Object:
        """One object."""
        kind = self._served(kind)
        with _errors():
            self._may("get", kind, namespace, name)
            return _whole(kind, self.registry.get(kind, name, namespace).body)

    async def list(
        self, kind: Kind, namespace: str = "", *, field_selector: str = "", label_selector: str = ""
    ) -> Listed:
        """All objects of the kind (in the namespace, if given)."""
        kind = self._served(kind)
        with _errors():
            selection = self.registry.selection(kind, namespace, labels=label_selector, selected=field_selector)
            self._may("list", kind, namespace, fields=selection.fields)
            page = self.registry.page(kind, selection)
        return Listed([_whole(kind, record.body) for record in page.records], str(page.version))

    async def watch(
        self,
        kind: Kind,
        resource_version: str,
        namespace: str = "",
        *,
        field_selector: str = "",
        label_selector: str = "",
    ) -> AsyncIterator[WatchEvent]:
        """Changes after that version; raises Stale when the version is too old or the reader too slow.

        Without a version (or "0") what exists comes first, as ADDED.
        """
        kind = self._served(kind)
        with _errors():
            selection = self.registry.selection(kind, namespace, labels=label_selector, selected=field_selector)
            self._may("watch", kind, namespace, fields=selection.fields)
            since = version_of(resource_version)
            watcher = self.registry.watch(kind, selection, since or None)
        existing = [] if since else self.registry.store.select(kind, selection)
        ready = asyncio.Event()
        watcher.wake = ready.set
        self._watches.add(ready)
        try:
            for record in existing:
                yield WatchEvent("ADDED", _whole(kind, record.body))
            while not self._closed:
                seen = watcher.take()
                for change in seen:
                    yield WatchEvent(change.type, _whole(kind, change.record.body))
                if seen:
                    continue
                if watcher.lost:
                    raise Stale("the watch fell behind history: list again")
                ready.clear()
                if not watcher.queue and not self._closed:
                    await ready.wait()
        finally:
            self._watches.discard(ready)
            watcher.close()

    async def create(
        self, kind: Kind, obj: Object, namespace: str = "", *, subresource: str = "", name: str = ""
    ) -> Object:
        """Create; with subresource (`binding`, `eviction`, `token`) POST to that of object `name`."""
        kind = self._served(kind)
        registry = self.registry
        namespace = namespace or (obj.get("metadata") or {}).get("namespace", "")
        with _errors():
            self._may("create", kind, namespace, name, subresource)
            match subresource:
                case "":
                    outcome = await registry.creating(kind, obj, namespace, self._versioned(kind, obj))
                    reply = _whole(kind, outcome.body or b"{}")
                case "binding":
                    reply = await subresources.bind(registry, name, namespace, obj, self._write)
                case "eviction":
                    options = subresources.eviction_options(obj)
                    reply = await subresources.evict(registry, name, namespace, options, self._write)
                case "token":
                    reply = registry.tokens.issue(registry.get(kind, name, namespace), obj)
                case _:
                    raise StatusError(404, "NotFound", f"{kind.plural} has no {subresource} to create")
        await self._durable()
        return reply

    async def replace(self, kind: Kind, obj: Object, *, subresource: str = "") -> Object:
        """PUT an object that we own whole (our slices, leases), with its resourceVersion."""
        kind = self._served(kind)
        meta = obj["metadata"]
        with _errors():
            self._may("update", kind, meta.get("namespace", ""), meta["name"], subresource)
            outcome = await self.registry.updating(
                kind,
                obj,
                meta["name"],
                meta.get("namespace", ""),
                subresource=subresource,
                write=self._versioned(kind, obj),
            )
        await self._durable()
        return _whole(kind, outcome.body or b"{}")

    async def patch(
        self, kind: Kind, name: str, patch: Any, namespace: str = "", **options: Unpack[PatchOptions]
    ) -> Object:
        """Patch; an apply patch gets apiVersion and kind if it has none."""
        kind = self._served(kind)
        type, subresource = options.get("type", "merge"), options.get("subresource", "")
        manager, force = options.get("manager", "dragoman"), options.get("force", False)
        write = msgspec.structs.replace(self._write, manager=manager, force=force, verb="patch")
        if type == "apply":
            patch = {"apiVersion": kind.api_version, "kind": kind.kind, **patch}
            write = msgspec.structs.replace(write, version=_version_of(kind, patch))
        registry = self.registry
        with _errors():
            self._may("patch", kind, namespace, name, subresource)
            if subresource == "scale":
                record = registry.get(kind, name, namespace)
                wanted = subresources.patched_scale(type, subresources.scale_of(record), patch)
                reply = await subresources.set_scale(registry, record, wanted, write)
            else:
                outcome = await registry.patching(
                    kind, name, patch, namespace, type=type, subresource=subresource, write=write
                )
                reply = _whole(kind, outcome.body or b"{}")
        await self._durable()
        return reply

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
        kind = self._served(kind)
        options = DeleteOptions(grace_period_s, propagation, uid, resource_version)
        with _errors():
            self._may("delete", kind, namespace, name)
            await self.registry.deleting(kind, name, namespace, options, write=self._write)
        await self._durable()

    async def delete_collection(
        self, kind: Kind, namespace: str = "", *, field_selector: str = "", label_selector: str = ""
    ) -> None:
        """Delete all that match."""
        kind = self._served(kind)
        with _errors():
            selection = self.registry.selection(kind, namespace, labels=label_selector, selected=field_selector)
            self._may("deletecollection", kind, namespace, fields=selection.fields)
            await self.registry.deleting_collection(kind, selection, write=self._write)
        await self._durable()

    async def close(self) -> None:
        """End the watches."""
        self._closed = True
        for ready in self._watches:
            ready.set()

    def _may(
        self,
        verb: str,
        kind: Kind,
        namespace: str,
        name: str = "",
        subresource: str = "",
        fields: tuple[FieldTerm, ...] = (),
    ) -> None:
        """Raises 403 where the user has not the right."""
        if self._user is ADMIN:
            return
        if not name and verb in ("list", "watch"):
            name = next((term.value for term in fields if term.key == "metadata.name" and term.equal), "")
        place = namespace if kind.namespaced else name if kind.kind == "Namespace" else ""
        asked = Attributes(
            self._user, verb, kind.group, kind.versions[0], kind.plural, subresource, place, name, fields=fields
        )
        self.registry.authorizer.check(asked)

    def _served(self, kind: Kind) -> Kind:
        """The kind as it is served: callers know of custom resources only how to address them."""
        return (self.registry.store.kind_of(kind.group, kind.plural) or kind) if "/" in kind.kind else kind

    def _versioned(self, kind: Kind, obj: Object) -> Write:
        version = _version_of(kind, obj)
        return msgspec.structs.replace(self._write, version=version) if version else self._write

    async def _durable(self) -> None:
        journal = self.registry.store.journal
        if journal is not None:
            await journal.durable()


def _version_of(kind: Kind, obj: Any) -> str:
    text = str(obj.get("apiVersion") or "") if isinstance(obj, dict) else ""
    return text.rpartition("/")[2] if text != kind.api_version else ""


def _whole(kind: Kind, body: bytes) -> Object:
    obj: Object = msgspec.json.decode(render(kind, "", body))
    return obj


@contextmanager
def _errors() -> Iterator[None]:
    try:
        yield
    except StatusError as refused:
        raise refused.as_error() from refused
