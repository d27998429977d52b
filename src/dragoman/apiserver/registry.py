"""What happens to a read or a write of any kind? The generic machinery of the API, free of transports.

Create, get, list, update, patch, apply, delete and their rules that hold for every kind: names, versions,
preconditions, dry run, finalizers, generation, no-op writes, status isolation. What kinds do differently stands in
`strategies`, what looks at other objects in `admission`; who may do what is the transport's work. Refusals are raised
as `status.Refused`.

A write is decided and stored in one step, so two writes never interleave. Only external admission (webhooks,
policies) may wait; then the object is looked at again before it is stored. Transports call the coroutines
(`creating`, `updating`, ...); the server's own writes the plain functions, which ask no external admission.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

import msgspec

from dragoman.api.gated import gates_drop
from dragoman.api.gates import DEFAULTS, Gates
from dragoman.api.kinds import BY_NAME, Kind
from dragoman.api.meta import format_time, parse_time
from dragoman.api.shape import Object
from dragoman.apiserver import admission, deletion, fields, metadata, tracking
from dragoman.apiserver.access.authorizer import AuthorizationMode, Authorizer
from dragoman.apiserver.access.tokens import PrivateKey, Tokens, new_key
from dragoman.apiserver.admission import Attributes, External
from dragoman.apiserver.custom.kind import CustomKind
from dragoman.apiserver.logs import Logs
from dragoman.apiserver.paging import Pages
from dragoman.apiserver.patch import copy_json, json_patch, merge_patch, strategic_patch
from dragoman.apiserver.patch_failed import PatchFailed
from dragoman.apiserver.quota import QuotaLedger
from dragoman.apiserver.request import INTERNAL, DeleteOptions, Page, RequestOutcome, Write
from dragoman.apiserver.resource_metrics import ResourceMetrics, UsageHost
from dragoman.apiserver.selectors import parse_fields, parse_labels
from dragoman.apiserver.served import Served
from dragoman.apiserver.sessions import Sessions
from dragoman.apiserver.shape import complete, skeleton
from dragoman.apiserver.status import (
    StatusError,
    already_exists,
    bad_request,
    conflict,
    invalid,
    not_found,
    stale,
    success,
)
from dragoman.apiserver.store import EVERYTHING, Selection, Store, StoredObject, Watcher
from dragoman.apiserver.strategies import strategy_of
from dragoman.apiserver.strategies.base import STATUS_KEEPS, Strategy
from dragoman.apiserver.validation import validate_create, validate_update
from dragoman.apiserver.versions import config_to_stored, from_stored, to_stored, type_text
from dragoman.errors import Bug
from dragoman.runtime.clock import Clock
from dragoman.runtime.entropy import Entropy

NAME_TRIES = 8
CHANGED_TRIES = 5
EVENT_S = 3600
ObjectChange = Callable[[Object], Object]
PatchCheck = Callable[[Object, Object | None], list[str]]
Follower = Callable[[StoredObject | None, StoredObject | None], None]
"""Called in the step of a write with the record before and after it; None for none."""
T = TypeVar("T")


class Registry:
    """All kinds of one embedded cluster over one store."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        entropy: Entropy,
        gates: Gates = DEFAULTS,
        served: Served | None = None,
        *,
        mode: AuthorizationMode = "rbac",
        key: PrivateKey | None = None,
    ) -> None:
        """served: what transports offer; everything unless given. mode: of authorization. key: signs tokens."""
        self.served = served or Served(everything=True)
        self.store = store
        self.clock = clock
        self.entropy = entropy
        self.gates = gates
        self.pages = Pages()
        self.logs = Logs()
        self.sessions = Sessions()
        self.metrics = ResourceMetrics(store)
        self.external: External | None = None
        self.followers: dict[Kind, Follower] = {}
        self.quota = QuotaLedger(self)
        self.when_removed: Callable[[StoredObject], None] = _nothing
        self.authorizer = Authorizer(store, mode)
        self.tokens = Tokens(store, clock, entropy, key or new_key())
        self.ca_text = ""
        self._next_ip = 1
        self._second = 0, ""

    def add_usage_host(self, host: UsageHost) -> None:
        """Serve metrics.k8s.io, also of the pods that this host runs."""
        self.metrics.hosts.append(host)
        self.served.serve_metrics()

    def now_text(self) -> str:
        """Now as metav1.Time."""
        second = int(self.clock.now())
        if second != self._second[0]:
            self._second = second, format_time(self.clock.utc())
        return self._second[1]

    def suffix(self) -> str:
        """Random characters for a generated name."""
        return self.entropy.suffix()

    def free_cluster_ip(self) -> str:
        """An address of 10.96.0.0/16 that no service has."""
        service = BY_NAME["Service"]
        in_use = {record.fields.get("spec.clusterIP") for record in self.store.select(service)}
        for _ in range(65533):
            self._next_ip = self._next_ip % 65533 + 1
            address = f"10.96.{self._next_ip >> 8}.{self._next_ip & 255}"
            if address not in in_use:
                return address
        raise StatusError(500, "InternalError", "all addresses for services are in use")

    def sweep(self) -> None:
        """Delete events that nobody repeated for an hour (upstream's default), let go of expired pages."""
        self.pages.sweep(self.clock.now())
        kind = BY_NAME["Event"]
        oldest = self.clock.now() - EVENT_S
        for record in self.store.select(kind):
            seen = event_time(record.decode())
            if seen is not None and seen < oldest:
                self.store.remove(record)
                self.quota.changed(record, None)

    # ---- reading

    def find(self, kind: Kind, name: str, namespace: str = "") -> StoredObject | None:
        """The record of an object, if it is there."""
        return self.store.get(kind, namespace, name)

    def select(self, kind: Kind, selection: Selection = EVERYTHING) -> list[StoredObject]:
        """All records of the selection, ordered by namespace and name."""
        return self.store.select(kind, selection)

    def get(self, kind: Kind, name: str, namespace: str = "") -> StoredObject:
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

    # ---- admission

    async def _admit_change(self, attributes: Attributes, *, external: bool) -> External | None:
        """The mutating phase; returns who is to be asked again in the validating one."""
        admission.mutate(self, attributes)
        outside = self.external if external else None
        if outside is None or not outside.handles(attributes):
            return None
        await outside.mutate(attributes)
        return outside

    async def _admit_outcome(self, attributes: Attributes, outside: External | None) -> None:
        """The validating phase, over what will be stored."""
        admission.validate(self, attributes)
        if outside is not None:
            await outside.validate(attributes)
        self.quota.admit(attributes)

    async def connecting(self, attributes: Attributes) -> None:
        """Ask webhooks and policies whether a session with a pod may be opened. Raises Refused."""
        outside = self.external
        if outside is not None and outside.handles(attributes):
            await outside.mutate(attributes)
            await outside.validate(attributes)

    # ---- create

    def create(self, kind: Kind, body: Object, namespace: str = "", write: Write = INTERNAL) -> RequestOutcome:
        """Store a new object, for the server's own parts. Raises 409 where the name exists, 422, 403, 404."""
        return at_once(self.creating(kind, body, namespace, write, external=False))

    async def creating(
        self, kind: Kind, body: Object, namespace: str = "", write: Write = INTERNAL, *, external: bool = True
    ) -> RequestOutcome:
        """Store a new object. Raises 409 where the name exists, 422 where it is invalid, 403, 404."""
        strategy = strategy_of(kind)
        metadata.check_type(kind, write.version, body)
        refuse_terminating(kind)
        obj = self._gated(kind, to_stored(kind, write.version, body, self.clock.utc()), None)
        if kind.namespaced and not namespace:
            raise bad_request(f"an empty namespace may not be set during creation of {kind.plural}")
        meta = metadata.begin(kind, obj, namespace)
        if "status" in kind.subresources and strategy.has_status:
            obj.pop("status", None)
        generated = not meta.get("name") and meta.get("generateName")
        if not meta.get("name") and not generated:
            raise invalid(
                kind, "", [("FieldValueRequired", "Required value: name or generateName is required", "metadata.name")]
            )
        if generated:
            meta["name"] = self._free_name(kind, str(generated), namespace)
        attributes = Attributes(kind, "CREATE", namespace, meta["name"], obj, None, write)
        outside = await self._admit_change(attributes, external=external)
        obj = attributes.obj or obj
        meta = obj["metadata"]
        metadata.stamp(meta, uid=self.entropy.uuid4(), now=self.now_text(), generation=strategy.keeps_generation)
        attributes.warnings += strategy.prepare_create(self, obj, write)
        complete(obj, skeleton((kind.group, kind.versions[0], kind.kind)))
        self._check(kind, meta["name"], validate_create(kind, obj, self.gates, write.version))
        await self._admit_outcome(attributes, outside)
        obj = tracking.track(kind, None, obj, write, subresource="", now=self.now_text())
        if self.store.get(kind, meta.get("namespace") or "", meta["name"]) is not None:
            raise already_exists(kind, meta["name"])
        if write.dry_run:
            return RequestOutcome(kind, msgspec.json.encode(obj), True, attributes.warnings)
        return RequestOutcome(kind, self._put(kind, obj, None).body, True, attributes.warnings)

    def _gated(self, kind: Kind, obj: Object, old: Object | None) -> Object:
        return obj if isinstance(kind, CustomKind) else gates_drop(kind.kind, obj, old, self.gates)

    def adopt(self, kind: Kind) -> None:
        """Objects of a custom resource are of this kind from now on."""
        self.store.adopt(kind)

    def _free_name(self, kind: Kind, prefix: str, namespace: str) -> str:
        for _ in range(NAME_TRIES):
            name = metadata.generate(prefix, self.entropy)
            if self.store.get(kind, namespace if kind.namespaced else "", name) is None:
                return name
        raise already_exists(kind, name)

    def _check(self, kind: Kind, name: str, causes: list[tuple[str, str, str]]) -> None:
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
    ) -> RequestOutcome:
        """Replace an object, for the server's own parts. Raises 404, 409 for a stale version, 422."""
        return at_once(self.updating(kind, body, name, namespace, subresource=subresource, write=write, external=False))

    async def updating(
        self,
        kind: Kind,
        body: Object,
        name: str,
        namespace: str = "",
        *,
        subresource: str = "",
        write: Write = INTERNAL,
        external: bool = True,
    ) -> RequestOutcome:
        """Replace an object (or its status). Raises 404, 409 for a stale version, 422."""
        metadata.check_type(kind, write.version, body)
        record = self.store.get(kind, namespace, name)
        if record is None:
            if strategy_of(kind).create_on_update and not subresource:
                return await self.creating(kind, body, namespace, write, external=external)
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

        async def attempt(live: StoredObject) -> RequestOutcome | None:
            again = copy_json(obj) if self.external else obj
            return await self._replace(live, again, subresource, write, external=external)

        return await self._until_stored(record, attempt)

    async def _until_stored(
        self, record: StoredObject, attempt: Callable[[StoredObject], Coroutine[Any, Any, RequestOutcome | None]]
    ) -> RequestOutcome:
        """Try until nothing else has written meanwhile (None), which only happens while external admission waits."""
        for _ in range(CHANGED_TRIES):
            outcome = await attempt(record)
            if outcome is not None:
                return outcome
            record = self.get(record.kind, record.name, record.namespace)
        raise stale(record.kind, record.name)

    def change(
        self, record: StoredObject, change: ObjectChange, *, subresource: str = "", write: Write = INTERNAL
    ) -> RequestOutcome:
        """Update by a function over the stored object, for the server's own parts."""
        return at_once(self.changing(record, change, subresource=subresource, write=write, external=False))

    async def changing(
        self,
        record: StoredObject,
        change: ObjectChange,
        *,
        subresource: str = "",
        write: Write = INTERNAL,
        external: bool = True,
    ) -> RequestOutcome:
        """Update by a function over the stored object, called again where the object has changed meanwhile."""

        async def attempt(live: StoredObject) -> RequestOutcome | None:
            return await self._replace(live, change(live.decode()), subresource, write, external=external)

        return await self._until_stored(record, attempt)

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
        patch_check: PatchCheck | None = None,
    ) -> RequestOutcome:
        """Patch an object, for the server's own parts."""
        return at_once(
            self.patching(
                kind,
                name,
                patch,
                namespace,
                type=type,
                subresource=subresource,
                write=write,
                patch_check=patch_check,
                external=False,
            )
        )

    async def patching(
        self,
        kind: Kind,
        name: str,
        patch: Any,
        namespace: str = "",
        *,
        type: str = "merge",
        subresource: str = "",
        write: Write = INTERNAL,
        patch_check: PatchCheck | None = None,
        external: bool = True,
    ) -> RequestOutcome:
        """Patch an object; type is merge, json, strategic or apply. Apply creates what is not there.

        `patch_check(patched, live)` sees both in the request's version, returns warnings or raises (strict decoding).
        """
        record = self.store.get(kind, namespace, name)
        if type == "apply":
            config, warnings = self._config(kind, name, patch, namespace, write, patch_check)
            if record is None:
                return await self._apply_new(kind, config, namespace, subresource, write, warnings, external=external)
        elif record is None:
            raise not_found(kind, name)

        async def attempt(live: StoredObject) -> RequestOutcome | None:
            old = live.decode()
            if type == "apply":
                now = self.now_text()
                merged = tracking.apply(kind, old, config, write, subresource=subresource, now=now)
                new, said = to_stored(kind, "", merged, self.clock.utc()), warnings
                storing = tracking.applied(write)
                outcome = await self._replace(live, new, subresource, storing, external=external)
            else:
                new, said = self._patched(kind, name, patch, namespace, type, subresource, write, patch_check, old)
                outcome = await self._replace(live, new, subresource, write, old, external=external)
            if outcome is not None:
                outcome.warnings = said + outcome.warnings
            return outcome

        return await self._until_stored(record, attempt)

    def _patched(
        self,
        kind: Kind,
        name: str,
        patch: Any,
        namespace: str,
        type: str,
        subresource: str,
        write: Write,
        patch_check: PatchCheck | None,
        stored: Object,
    ) -> tuple[Object, list[str]]:
        """The stored form of an object after a patch, and warnings."""
        version = write.version or kind.versions[0]
        live = {**type_text(kind, version), **from_stored(kind, version, stored)}
        if subresource == "status" and type != "json":
            live.pop("spec", None)  # a status write does not touch it, so it need not be copied and defaulted
        patched = patched_by(type, live, patch, (kind.group, version, kind.kind))
        if not isinstance(patched, dict) or not isinstance(patched.get("metadata"), dict):
            raise StatusError(422, "Invalid", "the patch leaves no object behind")
        warnings = patch_check(patched, live) if patch_check else []
        metadata.check_type(kind, version, patched)
        metadata.check_identity(kind, patched["metadata"], name, namespace)
        return to_stored(kind, version, patched, self.clock.utc()), warnings

    def patched(
        self,
        kind: CustomKind,
        name: str,
        namespace: str,
        type: str,
        patch: Any,
        *,
        subresource: str,
        write: Write,
        patch_check: PatchCheck,
        live: Object | None,
    ) -> tuple[Object, list[str]]:
        """An object after a patch, in the version of `write` as `live` is (None: it is not there), and warnings."""
        typed = type_text(kind, write.version)
        if type != "apply":
            assert live is not None, "only an apply makes objects"
            new = patched_by(type, {**typed, **live}, patch, (kind.group, write.version, kind.kind))
            if not isinstance(new, dict) or not isinstance(new.get("metadata"), dict):
                raise StatusError(422, "Invalid", "the patch leaves no object behind")
            metadata.check_identity(kind, new["metadata"], name, namespace)
            return new, patch_check(new, {**typed, **live})
        config, warnings = self._config(kind, name, patch, namespace, write, patch_check)
        merged = tracking.apply(kind, live, config, write, subresource=subresource, now=self.now_text())
        return {**typed, **merged}, warnings

    def _config(
        self, kind: Kind, name: str, applied: Any, namespace: str, write: Write, patch_check: PatchCheck | None
    ) -> tuple[Object, list[str]]:
        """The stored form of an apply configuration, and warnings."""
        if not isinstance(applied, dict):
            raise bad_request("an apply patch must be an object")
        applied = {**applied}
        warnings = patch_check(applied, None) if patch_check else []
        metadata.check_type(kind, write.version, applied, required=True)
        meta = metadata.own(applied)
        meta.setdefault("name", name)
        if kind.namespaced:
            meta.setdefault("namespace", namespace)
        metadata.check_identity(kind, meta, name, namespace)
        if meta.get("managedFields"):
            raise bad_request("metadata.managedFields must be nil")
        return config_to_stored(kind, write.version, applied), warnings

    async def _apply_new(
        self,
        kind: Kind,
        config: Object,
        namespace: str,
        subresource: str,
        write: Write,
        warnings: list[str],
        *,
        external: bool,
    ) -> RequestOutcome:
        """Apply what is not there yet."""
        meta = config["metadata"]
        if subresource or meta.get("uid"):
            raise not_found(kind, meta["name"])
        merged = tracking.apply(kind, None, config, write, subresource=subresource, now=self.now_text())
        body = self._typed(kind, merged)
        outcome = await self.creating(kind, body, namespace, tracking.applied(write), external=external)
        outcome.warnings = warnings + outcome.warnings
        return outcome

    def _typed(self, kind: Kind, obj: Object) -> Object:
        return {**type_text(kind, kind.versions[0]), **obj}

    async def _replace(
        self,
        record: StoredObject,
        new: Object,
        subresource: str,
        write: Write,
        old: Object | None = None,
        *,
        external: bool,
    ) -> RequestOutcome | None:
        """Store `new` in the place of a record; None where something else has written while admission waited."""
        kind = record.kind
        strategy = strategy_of(kind)
        old = record.decode() if old is None else old
        sent = new["metadata"].get("resourceVersion")
        if sent and sent != str(record.version):
            raise stale(kind, record.name)
        metadata.carry_over(kind, new["metadata"], old["metadata"], self._kept(strategy, subresource))
        new = self._gated(kind, self._isolated(kind, new, old, subresource), old)
        attributes = Attributes(kind, "UPDATE", record.namespace, record.name, new, old, write, subresource)
        outside = await self._admit_change(attributes, external=external)
        new = attributes.obj or new
        attributes.warnings += strategy.prepare_update(self, new, old, subresource, write)
        complete(new, skeleton((kind.group, kind.versions[0], kind.kind)))
        if strategy.keeps_generation and strategy.counts(new, old):
            new["metadata"]["generation"] = old["metadata"].get("generation", 0) + 1
        self._check(kind, record.name, validate_update(kind, new, old, subresource, self.gates, write.version))
        await self._admit_outcome(attributes, outside)
        if outside is not None and self.store.get(kind, record.namespace, record.name) is not record:
            return None
        new = tracking.track(kind, old, new, write, subresource=subresource, now=self.now_text())
        new["metadata"]["resourceVersion"] = old["metadata"]["resourceVersion"]
        if metadata.same(new, old):
            return RequestOutcome(kind, record.body, False, attributes.warnings)
        if write.dry_run:
            return RequestOutcome(kind, msgspec.json.encode(new), False, attributes.warnings)
        if deletion.is_due(strategy, new):
            return RequestOutcome(kind, self._removed(record, new).body, False, attributes.warnings)
        return RequestOutcome(kind, self._put(kind, new, record).body, False, attributes.warnings)

    def _isolated(self, kind: Kind, new: Object, old: Object, subresource: str) -> Object:
        """What a write of an object leaves of its status, and a write of the status of everything else."""
        if subresource in ("status", "approval"):
            status = new.get("status")
            new = {**old, "metadata": new["metadata"]}
            new.pop("status", None)
            if status is not None:
                new["status"] = status
        elif "status" in kind.subresources and not subresource:
            new.pop("status", None)
            if "status" in old:
                new["status"] = old["status"]
        return new

    def _put(self, kind: Kind, obj: Object, old: StoredObject | None) -> StoredObject:
        record = self.store.put(kind, obj, old)
        self.quota.changed(old, record)
        if (follower := self.followers.get(kind)) is not None:
            follower(old, record)
        return record

    def _removed(self, record: StoredObject, last: Object | None = None) -> StoredObject:
        gone = self.store.remove(record, last)
        self.quota.changed(record, None)
        self.logs.forget(record.uid)
        if (follower := self.followers.get(record.kind)) is not None:
            follower(record, None)
        self.when_removed(gone)
        return gone

    def _kept(self, strategy: Strategy, subresource: str) -> tuple[str, ...]:
        """Metadata that this write may not change."""
        if subresource == "ephemeralcontainers":
            return STATUS_KEEPS
        return strategy.status_keeps if subresource == "status" else ()

    # ---- delete

    def delete(
        self,
        kind: Kind,
        name: str,
        namespace: str = "",
        options: DeleteOptions = DeleteOptions(),  # noqa: B008
    ) -> RequestOutcome:
        """Delete an object, for the server's own parts. Raises 404, 409."""
        return at_once(self.deleting(kind, name, namespace, options, external=False))

    async def deleting(
        self,
        kind: Kind,
        name: str,
        namespace: str = "",
        options: DeleteOptions = DeleteOptions(),  # noqa: B008
        *,
        write: Write = INTERNAL,
        external: bool = True,
    ) -> RequestOutcome:
        """Delete an object, or mark it where finalizers or a grace period hold it. Raises 404, 409.

        write: who asks (its user); what else it holds does not count.
        """

        async def attempt(record: StoredObject) -> RequestOutcome | None:
            return await self._delete(record, options, write, external=external)

        return await self._until_stored(self.get(kind, name, namespace), attempt)

    async def _delete(
        self, record: StoredObject, options: DeleteOptions, write: Write, *, external: bool
    ) -> RequestOutcome | None:
        kind, name = record.kind, record.name
        if options.uid and options.uid != record.uid:
            raise conflict(
                kind, name, f"Precondition failed: UID in precondition: {options.uid}, UID in object meta: {record.uid}"
            )
        if options.resource_version and options.resource_version != str(record.version):
            raise conflict(
                kind,
                name,
                f"Precondition failed: ResourceVersion in precondition: {options.resource_version}, ResourceVersion in "
                f"object meta: {record.version}",
            )
        strategy = strategy_of(kind)
        obj = record.decode()
        strategy.before_delete(self, obj, options)
        write = msgspec.structs.replace(write, dry_run=options.dry_run)
        attributes = Attributes(kind, "DELETE", record.namespace, name, None, record.decode(), write)
        outside = await self._admit_change(attributes, external=external)
        await self._admit_outcome(attributes, outside)
        if outside is not None and self.store.get(kind, record.namespace, name) is not record:
            return None
        marked = deletion.mark(strategy, obj, options, self.clock.utc())
        if marked is None:
            if not options.dry_run:
                record = self._removed(record)
            if strategy.returns_deleted:
                return RequestOutcome(kind, record.body, warnings=attributes.warnings)
            details: Object = {"name": name, "kind": kind.plural, "uid": record.uid}
            if kind.group:
                details["group"] = kind.group
            return RequestOutcome(kind, None, status=success(details), warnings=attributes.warnings)
        if options.dry_run or metadata.same(marked, record.decode()):
            return RequestOutcome(kind, msgspec.json.encode(marked), warnings=attributes.warnings)
        return RequestOutcome(kind, self._put(kind, marked, record).body, warnings=attributes.warnings)

    def delete_collection(self, kind: Kind, selection: Selection, options: DeleteOptions = DeleteOptions()) -> Page:  # noqa: B008
        """Delete all of a selection, for the server's own parts; returns what was there."""
        return at_once(self.deleting_collection(kind, selection, options, external=False))

    async def deleting_collection(
        self,
        kind: Kind,
        selection: Selection,
        options: DeleteOptions = DeleteOptions(),  # noqa: B008
        *,
        write: Write = INTERNAL,
        external: bool = True,
    ) -> Page:
        """Delete all of a selection; returns what was there."""
        records = self.store.select(kind, selection)
        for record in records:
            try:
                await self.deleting(kind, record.name, record.namespace, options, write=write, external=external)
            except StatusError as refused:
                if refused.code != 404:
                    raise
        return Page(records, self.store.version)


def _nothing(record: StoredObject) -> None:
    """Nobody follows."""


def refuse_terminating(kind: Kind) -> None:
    """No new object of a definition that is being deleted."""
    if isinstance(kind, CustomKind) and kind.definition.terminating:
        raise StatusError(405, "MethodNotAllowed", "create not allowed while custom resource definition is terminating")


def at_once(steps: Coroutine[Any, Any, T]) -> T:
    """The result of a coroutine that has nothing to wait for."""
    try:
        steps.send(None)
    except StopIteration as done:
        value: T = done.value
        return value
    steps.close()
    raise Bug("a write of the server itself waited for something")


def patched_by(type: str, live: Object, patch: Any, gvk: tuple[str, str, str]) -> Any:
    """The object after a patch. Raises 400 for what is no patch, 422 for one that does not fit."""
    try:
        if type == "json":
            return json_patch(live, patch)
        if type == "strategic":
            return strategic_patch(live, patch, gvk)
        return merge_patch(live, patch)
    except PatchFailed as failed:
        if failed.too_large:
            raise StatusError(413, "RequestEntityTooLarge", f"Request entity too large: {failed.what}") from failed
        if failed.malformed:
            raise bad_request(failed.what) from failed
        raise StatusError(
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
