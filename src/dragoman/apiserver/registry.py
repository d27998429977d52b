"""What happens to a read or a write of any kind? The generic machinery of the API, free of transports.

Create, get, list, update, patch, apply, delete and their rules that hold for every kind: names, versions,
preconditions, dry run, finalizers, generation, no-op writes, status isolation. What kinds do differently stands in
`strategies`; who may do what is the transport's work. Nothing here waits: a write is decided and stored in one
step, so two writes never interleave. Refusals are raised as `status.Refused`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from dragoman.api.gated import gates_drop
from dragoman.api.gates import DEFAULTS, Gates
from dragoman.api.kinds import BY_NAME, Kind
from dragoman.api.meta import format_time, parse_time
from dragoman.apiserver import admit, deletion, fields, metadata, tracking
from dragoman.apiserver.logs import Logs
from dragoman.apiserver.paging import Pages
from dragoman.apiserver.patch import json_patch, merge_patch, strategic_patch
from dragoman.apiserver.patch_failed import PatchFailed
from dragoman.apiserver.request import INTERNAL, DeleteWish, Outcome, Page, Write
from dragoman.apiserver.selectors import parse_fields, parse_labels
from dragoman.apiserver.status import (
    Object,
    Refused,
    already_exists,
    bad_request,
    conflict,
    invalid,
    not_found,
    stale,
    success,
)
from dragoman.apiserver.store import Record, Selection, Store, Watcher
from dragoman.apiserver.strategies import strategy_of
from dragoman.apiserver.versions import config_to_stored, from_stored, to_stored, type_text
from dragoman.runtime.clock import Clock
from dragoman.runtime.entropy import Entropy

NAME_TRIES = 8
EVENT_S = 3600
Change = Callable[[Object], Object]


class Registry:
    """All kinds of one embedded cluster over one store."""

    def __init__(self, store: Store, clock: Clock, entropy: Entropy, gates: Gates = DEFAULTS) -> None:
        self.store = store
        self.clock = clock
        self.entropy = entropy
        self.gates = gates
        self.pages = Pages()
        self.logs = Logs()
        self.tokens_secret = entropy.token(32)
        self.ca_text = ""
        self._next_ip = 1
        self._second = 0, ""

    @classmethod
    def in_memory(cls, clock: Clock, entropy: Entropy, gates: Gates = DEFAULTS) -> Registry:
        """A registry that forgets everything with the process."""
        registry = cls(Store(fields.fields_of), clock, entropy, gates)
        registry.bootstrap()
        return registry

    def bootstrap(self) -> None:
        """Make what every cluster has: its namespaces and their default service accounts."""
        admit.bootstrap(self)

    def now_text(self) -> str:
        """Now as metav1.Time."""
        second = int(self.clock.now())
        if second != self._second[0]:
            self._second = second, format_time(self.clock.utc())
        return self._second[1]

    def free_cluster_ip(self) -> str:
        """An address of 10.96.0.0/16 that no service has."""
        service = BY_NAME["Service"]
        taken = {record.fields.get("spec.clusterIP") for record in self.store.select(service)}
        for _ in range(65533):
            self._next_ip = self._next_ip % 65533 + 1
            address = f"10.96.{self._next_ip >> 8}.{self._next_ip & 255}"
            if address not in taken:
                return address
        raise Refused(500, "InternalError", "all addresses for services are in use")

    def sweep(self) -> None:
        """Delete events that nobody repeated for an hour (upstream's default), let go of expired pages."""
        self.pages.sweep(self.clock.now())
        kind = BY_NAME["Event"]
        oldest = self.clock.now() - EVENT_S
        for record in self.store.select(kind):
            seen = event_time(record.decode())
            if seen is not None and seen < oldest:
                self.store.remove(record)

    # ---- reading

    def find(self, kind: Kind, name: str, namespace: str = "") -> Record | None:
        """The record of an object, if it is there."""
        return self.store.get(kind, namespace, name)

    def get(self, kind: Kind, name: str, namespace: str = "") -> Record:
        """The record of an object. Raises 404."""
        record = self.store.get(kind, namespace, name)
        if record is None:
            raise not_found(kind, name)
        return record

    def selection(
        self, kind: Kind, namespace: str = "", *, labels: str = "", selected: str = "", version: str = ""
    ) -> Selection:
        """The selection of a list or watch. Raises 400 for selectors that cannot be understood."""
        terms = parse_fields(selected) if selected else ()
        fields.check(kind, version, terms)
        return Selection(namespace if kind.namespaced else "", parse_labels(labels) if labels else (), terms)

    def page(self, kind: Kind, selection: Selection, *, limit: int = 0, token: str = "") -> Page:
        """A consistent list or a page of it."""
        records = self.store.select(kind, selection)
        version = self.store.version
        if not limit and not token:
            return Page(records, version)
        scope = f"{kind.group}/{kind.plural}/{selection!r}"
        now = self.clock.now()
        if token:
            return self.pages.next(token, records, version, limit, scope, now)
        return self.pages.first(records, version, limit, scope, now)

    def watch(self, kind: Kind, selection: Selection, since: int | None) -> Watcher:
        """Changes of the selection after a version (None: from now on). Raises 410, 504."""
        return self.store.watch(kind, selection, since)

    # ---- create

    def create(self, kind: Kind, body: Object, namespace: str = "", write: Write = INTERNAL) -> Outcome:
        """Store a new object. Raises 409 where the name exists, 422 where it is invalid, 403, 404."""
        strategy = strategy_of(kind)
        warnings: list[str] = []
        metadata.check_type(kind, write.version, body)
        obj = gates_drop(kind.kind, to_stored(kind, write.version, body, self.clock.utc()), None, self.gates)
        if kind.namespaced and not namespace:
            raise bad_request(f"an empty namespace may not be set during creation of {kind.plural}")
        meta = metadata.begin(kind, obj, namespace)
        if kind.subresources and "status" in kind.subresources and strategy.has_status:
            obj.pop("status", None)
        generated = not meta.get("name") and meta.get("generateName")
        if not meta.get("name") and not generated:
            raise invalid(
                kind, "", [("FieldValueRequired", "Required value: name or generateName is required", "metadata.name")]
            )
        tries = NAME_TRIES if generated else 1
        for _ in range(tries):
            if generated:
                meta["name"] = metadata.generate(str(generated), self.entropy)
            if self.store.get(kind, meta.get("namespace") or "", meta["name"]) is None:
                break
        else:
            raise already_exists(kind, meta["name"])
        metadata.stamp(meta, uid=self.entropy.uuid4(), now=self.now_text(), generation=strategy.keeps_generation)
        warnings += strategy.prepare_create(self, obj, write)
        admit.create(self, kind, obj, write)
        self._check(kind, meta["name"], admit.validate_create(kind, obj, self.gates))
        obj = tracking.track(kind, None, obj, write, subresource="", now=self.now_text())
        if write.dry_run:
            return Outcome(kind, msgspec.json.encode(obj), True, warnings)
        record = self.store.put(kind, obj, None)
        admit.created(self, kind, record)
        return Outcome(kind, record.body, True, warnings)

    def _check(self, kind: Kind, name: str, causes: list[admit.Cause]) -> None:
        if causes:
            raise invalid(kind, name, causes)

    # ---- update

    def update(
        self,
        kind: Kind,
        body: Object,
        name: str,
        namespace: str = "",
        *,
        subresource: str = "",
        write: Write = INTERNAL,
    ) -> Outcome:
        """Replace an object (or its status). Raises 404, 409 for a stale version, 422."""
        metadata.check_type(kind, write.version, body)
        record = self.store.get(kind, namespace, name)
        if record is None:
            if strategy_of(kind).create_on_update and not subresource:
                return self.create(kind, body, namespace, write)
            raise not_found(kind, name)
        obj = to_stored(kind, write.version, body, self.clock.utc())
        meta = metadata.own(obj)
        sent = meta.setdefault("name", name)
        if sent != name:
            raise bad_request(f"the name of the object ({sent}) does not match the name on the URL ({name})")
        if kind.namespaced and (meta.get("namespace") or namespace) != namespace:
            raise bad_request(
                f"the namespace of the provided object does not match the namespace sent on the request: "
                f"{meta['namespace']!r} and {namespace!r}"
            )
        return self._replace(record, obj, subresource, write)

    def change(self, record: Record, change: Change, *, subresource: str = "", write: Write = INTERNAL) -> Outcome:
        """Update by a function over the stored object; for parts of the server itself."""
        return self._replace(record, change(record.decode()), subresource, write)

    def patch(
        self,
        kind: Kind,
        name: str,
        patch: Any,
        namespace: str = "",
        *,
        type: str = "merge",
        subresource: str = "",
        write: Write = INTERNAL,
        judge: Callable[[Object, Object | None], list[str]] | None = None,
    ) -> Outcome:
        """Patch an object; type is merge, json, strategic or apply. Apply creates what is not there.

        `judge(patched, live)` sees both in the request's version and returns warnings or raises (strict decoding).
        """
        record = self.store.get(kind, namespace, name)
        if type == "apply":
            return self._apply(kind, name, patch, namespace, record, subresource, write, judge)
        if record is None:
            raise not_found(kind, name)
        version = write.version or kind.versions[0]
        stored = record.decode()
        live = {**type_text(kind, version), **from_stored(kind, version, stored)}
        if subresource == "status" and type != "json":
            live.pop("spec", None)  # a status write does not touch it, so it need not be copied and defaulted
        patched = patched_by(type, live, patch, (kind.group, version, kind.kind))
        if not isinstance(patched, dict) or not isinstance(patched.get("metadata"), dict):
            raise Refused(422, "Invalid", "the patch leaves no object behind")
        warnings = judge(patched, live) if judge else []
        metadata.check_type(kind, version, patched)
        metadata.check_identity(kind, patched["metadata"], name, namespace)
        new = to_stored(kind, version, patched, self.clock.utc())
        outcome = self._replace(record, new, subresource, write, stored)
        outcome.warnings = warnings + outcome.warnings
        return outcome

    def _apply(
        self,
        kind: Kind,
        name: str,
        applied: Any,
        namespace: str,
        record: Record | None,
        subresource: str,
        write: Write,
        judge: Callable[[Object, Object | None], list[str]] | None,
    ) -> Outcome:
        if not isinstance(applied, dict):
            raise bad_request("an apply patch must be an object")
        applied = {**applied}
        warnings = judge(applied, None) if judge else []
        metadata.check_type(kind, write.version, applied, required=True)
        meta = metadata.own(applied)
        meta.setdefault("name", name)
        if kind.namespaced:
            meta.setdefault("namespace", namespace)
        metadata.check_identity(kind, meta, name, namespace)
        if meta.get("managedFields"):
            raise bad_request("metadata.managedFields must be nil")
        config = config_to_stored(kind, write.version, applied)
        if record is None and (subresource or meta.get("uid")):
            raise not_found(kind, name)
        live = record.decode() if record else None
        merged = tracking.apply(kind, live, config, write, subresource=subresource, now=self.now_text())
        if record is None:
            outcome = self.create(kind, self._typed(kind, merged), namespace, tracking.applied(write))
        else:
            merged = to_stored(kind, "", merged, self.clock.utc())
            outcome = self._replace(record, merged, subresource, tracking.applied(write))
        outcome.warnings = warnings + outcome.warnings
        return outcome

    def _typed(self, kind: Kind, obj: Object) -> Object:
        return {**type_text(kind, kind.versions[0]), **obj}

    def _replace(
        self, record: Record, new: Object, subresource: str, write: Write, old: Object | None = None
    ) -> Outcome:
        kind = record.kind
        strategy = strategy_of(kind)
        old = record.decode() if old is None else old
        sent = new["metadata"].get("resourceVersion")
        if sent and sent != str(record.version):
            raise stale(kind, record.name)
        metadata.carry_over(kind, new["metadata"], old["metadata"], status=self._keeps_metadata(strategy, subresource))
        if subresource == "status":
            status = new.get("status")
            new = {**old, "metadata": new["metadata"]}
            new.pop("status", None)
            if status is not None:
                new["status"] = status
        elif "status" in kind.subresources and not subresource:
            new.pop("status", None)
            if "status" in old:
                new["status"] = old["status"]
        new = gates_drop(kind.kind, new, old, self.gates)
        warnings = strategy.prepare_update(self, new, old, subresource, write)
        if strategy.keeps_generation and new.get("spec") != old.get("spec"):
            new["metadata"]["generation"] = old["metadata"].get("generation", 0) + 1
        self._check(kind, record.name, admit.validate_update(kind, new, old, subresource, self.gates))
        new = tracking.track(kind, old, new, write, subresource=subresource, now=self.now_text())
        new["metadata"]["resourceVersion"] = old["metadata"]["resourceVersion"]
        if metadata.same(new, old):
            return Outcome(kind, record.body, False, warnings)
        if write.dry_run:
            return Outcome(kind, msgspec.json.encode(new), False, warnings)
        if deletion.is_due(strategy, new):
            return Outcome(kind, self.store.remove(record, new).body, False, warnings)
        return Outcome(kind, self.store.put(kind, new, record).body, False, warnings)

    def _keeps_metadata(self, strategy: Any, subresource: str) -> bool:
        return subresource == "status" and not strategy.status_changes_metadata

    # ---- delete

    def delete(self, kind: Kind, name: str, namespace: str = "", wish: DeleteWish = DeleteWish()) -> Outcome:  # noqa: B008
        """Delete an object, or mark it where finalizers or a grace period hold it. Raises 404, 409."""
        record = self.get(kind, name, namespace)
        if wish.uid and wish.uid != record.uid:
            raise conflict(
                kind, name, f"Precondition failed: UID in precondition: {wish.uid}, UID in object meta: {record.uid}"
            )
        if wish.resource_version and wish.resource_version != str(record.version):
            raise conflict(
                kind,
                name,
                f"Precondition failed: ResourceVersion in precondition: {wish.resource_version}, ResourceVersion in "
                f"object meta: {record.version}",
            )
        strategy = strategy_of(kind)
        obj = record.decode()
        strategy.before_delete(self, obj, wish)
        marked = deletion.mark(strategy, obj, wish, self.clock.utc())
        if marked is None:
            if not wish.dry_run:
                record = self.store.remove(record)
                admit.deleted(self, kind, record)
            if strategy.returns_deleted:
                return Outcome(kind, record.body)
            details: Object = {"name": name, "kind": kind.plural, "uid": record.uid}
            if kind.group:
                details["group"] = kind.group
            return Outcome(kind, None, status=success(details))
        if wish.dry_run or metadata.same(marked, record.decode()):
            return Outcome(kind, msgspec.json.encode(marked))
        return Outcome(kind, self.store.put(kind, marked, record).body)

    def delete_collection(self, kind: Kind, selection: Selection, wish: DeleteWish = DeleteWish()) -> Page:  # noqa: B008
        """Delete all of a selection; returns what was there."""
        records = self.store.select(kind, selection)
        for record in records:
            try:
                self.delete(kind, record.name, record.namespace, wish)
            except Refused as refused:
                if refused.code != 404:
                    raise
        return Page(records, self.store.version)


def patched_by(type: str, live: Object, patch: Any, gvk: tuple[str, str, str]) -> Any:
    """The object after a patch. Raises 400 for what is no patch, 422 for one that does not fit."""
    try:
        if type == "json":
            return json_patch(live, patch)
        if type == "strategic":
            return strategic_patch(live, patch, gvk)
        return merge_patch(live, patch)
    except PatchFailed as failed:
        if failed.malformed:
            raise bad_request(failed.what) from failed
        raise Refused(
            422, "Invalid", f"the server rejected our request due to an error in our request: {failed.what}"
        ) from failed


def event_time(event: Object) -> float | None:
    """When an event was last seen, in epoch seconds."""
    series: Object = event.get("series") or {}
    text = series.get("lastObservedTime") or event.get("lastTimestamp") or event.get("eventTime")
    text = text or event["metadata"].get("creationTimestamp")
    try:
        return parse_time(text).timestamp() if text else None
    except ValueError:
        return None
