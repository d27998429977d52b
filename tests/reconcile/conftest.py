"""Worlds for controllers: objects as JSON in, a little cluster that carries effects out in memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from immutables import Map

from dragoman.api import codec
from dragoman.api.kinds import kind_of
from dragoman.api.meta import Ref, format_time
from dragoman.cluster.cache import merged
from dragoman.cluster.watch import as_typed
from dragoman.effects import Bind, Create, Delete, Effect, Emit, Patch
from dragoman.reconcile import ownership as ownerships
from dragoman.reconcile.ownership import Ownership
from dragoman.reconcile.step import OTHERS, ReconcileInput, ReconcileResult
from dragoman.snapshot import change as changes
from dragoman.snapshot.change import HELD, Change, Gone, Put, Snapshot

Object = dict[str, Any]


def _name(change: Change) -> tuple[str, str]:
    if isinstance(change, Gone):
        return change.namespace, change.name
    return change.object.metadata.namespace, change.object.metadata.name


class Cluster:
    """Objects in memory, as a server keeps them, without its checks: enough to follow controllers step by step."""

    def __init__(self) -> None:
        self.objects: dict[tuple[str, str, str], Object] = {}
        self.snapshot = Snapshot.empty()
        self.ownership = Ownership.empty()
        self.others: Map[tuple[str, str, str], Any] = Map()
        self.seconds = 1_800_000_000.0
        self.count = 0
        self.events: list[Emit] = []
        self.effects: list[Effect] = []

    # ---- objects

    def add(self, kind: str, name: str, namespace: str = "default", **fields: Any) -> Object:
        from datetime import UTC, datetime

        self.count += 1
        meta = fields.pop("metadata", {})
        if kind_of(kind).namespaced:
            meta = {"namespace": namespace, **meta}
        when = format_time(datetime.fromtimestamp(self.seconds, UTC))
        meta = {"uid": f"uid-{self.count}", "creationTimestamp": when, "generation": 1, **meta, "name": name}
        obj = {"apiVersion": kind_of(kind).api_version, "kind": kind, "metadata": meta, **fields}
        self._store(obj)
        return obj

    def _store(self, obj: Object) -> None:
        self.count += 1
        obj["metadata"]["resourceVersion"] = str(self.count)
        meta = obj["metadata"]
        kind = obj["kind"]
        self.objects[kind, meta.get("namespace", ""), meta["name"]] = obj
        self._report(Put(kind, as_typed(kind, obj)))

    def _report(self, change: Change) -> None:
        if change.kind in HELD:
            self.snapshot = changes.apply(self.snapshot, change)
        self.ownership = ownerships.apply_all(self.ownership, [change])
        if change.kind in OTHERS:
            key = (change.kind, *_name(change))
            self.others = self.others.delete(key) if isinstance(change, Gone) else self.others.set(key, change.object)

    def get(self, kind: str, name: str, namespace: str = "default") -> Object:
        return self.objects[kind, namespace if kind_of(kind).namespaced else "", name]

    def has(self, kind: str, name: str, namespace: str = "default") -> bool:
        return (kind, namespace if kind_of(kind).namespaced else "", name) in self.objects

    def all(self, kind: str) -> list[Object]:
        return [obj for (k, _, _), obj in sorted(self.objects.items()) if k == kind]

    def edit(self, kind: str, name: str, patch: Object, namespace: str = "default") -> Object:
        old = self.get(kind, name, namespace)
        new = merged(old, patch)
        new["metadata"] = {**new["metadata"]}
        if old.get("spec") != new.get("spec"):
            new["metadata"]["generation"] = old["metadata"].get("generation", 0) + 1
        self._store(new)
        self._finish(new)
        return new

    def remove(self, kind: str, name: str, namespace: str = "default") -> None:
        key = (kind, namespace if kind_of(kind).namespaced else "", name)
        del self.objects[key]
        self._report(Gone(*key))

    def delete(self, kind: str, name: str, namespace: str = "default", propagation: str = "") -> None:
        from datetime import UTC, datetime

        obj = self.get(kind, name, namespace)
        finalizers = list(obj["metadata"].get("finalizers") or [])
        wanted = {"Foreground": "foregroundDeletion", "Orphan": "orphan"}.get(propagation)
        if wanted and wanted not in finalizers:
            finalizers.append(wanted)
        running = kind == "Pod" and obj.get("spec", {}).get("nodeName") and not obj["metadata"].get("finalizers")
        if finalizers or (running and obj.get("status", {}).get("phase") == "Running"):
            when = format_time(datetime.fromtimestamp(self.seconds, UTC))
            self._store(merged(obj, {"metadata": {"deletionTimestamp": when, "finalizers": finalizers or None}}))
        else:
            self.remove(kind, name, namespace)

    def _finish(self, obj: Object) -> None:
        meta = obj["metadata"]
        if meta.get("deletionTimestamp") and not meta.get("finalizers") and obj["kind"] != "Namespace":
            self.remove(obj["kind"], meta["name"], meta.get("namespace", ""))

    # ---- controllers

    @property
    def world(self) -> ReconcileInput:
        return ReconcileInput(self.snapshot, self.ownership, self.seconds, others=self.others)

    def carry_out(self, effects: tuple[Effect, ...]) -> None:
        for effect in effects:
            self.effects.append(effect)
            match effect:
                case Create(body):
                    meta = dict(body["metadata"])
                    name = meta.get("name") or f"{meta['generateName']}{self.count:05}"
                    fields = {k: v for k, v in body.items() if k not in ("apiVersion", "kind", "metadata")}
                    self.add(body["kind"], name, meta.get("namespace", ""), metadata=meta, **fields)
                case Patch(ref, patch):
                    assert isinstance(patch, dict)
                    self._check(ref)
                    if effect.type in ("strategic", "apply"):
                        patch = self._by_type(self.get(ref.kind, ref.name, ref.namespace), patch)
                    self.edit(ref.kind, ref.name, patch, ref.namespace)
                case Delete(ref):
                    self._check(ref)
                    self.delete(ref.kind, ref.name, ref.namespace, effect.propagation)
                case Bind(ref, node):
                    self.edit(ref.kind, ref.name, {"spec": {"nodeName": node}}, ref.namespace)
                case Emit():
                    self.events.append(effect)
                case _:
                    raise AssertionError(effect)

    def _by_type(self, obj: Object, patch: Object) -> Object:
        """Conditions are merged by type, as these kinds of patch do."""
        status = patch.get("status", {})
        if "conditions" not in status:
            return patch
        new = {c["type"]: c for c in (obj.get("status") or {}).get("conditions") or []}
        for condition in status["conditions"]:
            new[condition["type"]] = {**new.get(condition["type"], {}), **condition}
        return {**patch, "status": {**status, "conditions": list(new.values())}}

    def _check(self, ref: Ref) -> None:
        assert ref.uid in ("", self.get(ref.kind, ref.name, ref.namespace)["metadata"]["uid"])

    def settle(self, *syncs: Callable[[ReconcileInput], ReconcileResult]) -> ReconcileResult:
        """Run controllers until none has anything to write; the last one's last answer."""
        for _ in range(200):
            steps = []
            for sync in syncs:
                step = sync(self.world)
                while step.asks:
                    answers = {ref: self._uid(ref) for ref in step.asks}
                    step = sync(msgspec.structs.replace(self.world, answers=answers))
                steps.append(step)
                self.carry_out(step.effects)
            if not any(step.effects for step in steps) or steps[-1].problem:
                return steps[-1]
        raise AssertionError(f"never settled: {self.effects[-4:]}")

    def _uid(self, ref: Ref) -> str:
        obj = self.objects.get((ref.kind, ref.namespace, ref.name))
        return obj["metadata"]["uid"] if obj else ""

    def typed(self, kind: str, name: str, namespace: str = "default") -> Any:
        return codec.decode(codec.TYPES[kind], self.get(kind, name, namespace))


@pytest.fixture
def cluster() -> Cluster:
    return Cluster()
