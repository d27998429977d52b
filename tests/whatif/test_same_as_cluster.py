"""What-if on a dump and the embedded cluster given the same objects come to the same cluster.

Random clusters, damage while the daemons are down, manifests (some refused by the API server), changes. Leaving any one
controller out of what-if makes it differ. DRAGOMAN_WHATIF_SEEDS=N asks for N seeds.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections import Counter
from collections.abc import Sequence
from datetime import datetime
from functools import cache
from typing import Any

import pytest

from dragoman.api import codec, files
from dragoman.api.core import Pod
from dragoman.api.kinds import kind_of
from dragoman.apiserver.client_apply import applied
from dragoman.reconcile.table import Controller
from dragoman.runtime.clock import Clock
from dragoman.schedule.units import SchedulingContext, is_waiting
from dragoman.snapshot.change import WORKLOADS, Snapshot
from dragoman.testing.build import snapshot_of
from dragoman.testing.loop import run as in_virtual_time
from dragoman.whatif import changes as whatif
from dragoman.whatif.admit import admitted
from dragoman.whatif.cluster import ClusterState, bring, find, identified
from dragoman.whatif.decide import run, steps
from dragoman.whatif.settle import CONTROLLERS, settled
from dragoman.whatif.units import units_of

from .embedded import GATES, KINDS, SCHEDULER, Embedded, Object
from .scenarios import Operation, Scenario, scenario

SEEDS = range(int(os.environ.get("DRAGOMAN_WHATIF_SEEDS", "12")))
COMPLETE = frozenset(KINDS)


# ---- the two ways


class Outcome:
    """What the embedded cluster came to: its dump before, what it refused, and how it ended."""

    def __init__(self, dump: list[Object], refused: dict[Any, str], end: Snapshot, now: datetime) -> None:
        self.dump = dump
        self.refused = refused
        self.end = end
        self.now = now


@cache
def embedded(seed: int) -> Outcome:
    """The embedded cluster's way, once for all tests."""
    return in_virtual_time(lambda clock: _embedded(clock, seed, scenario(seed)))


async def _embedded(clock: Clock, seed: int, given: Scenario) -> Outcome:
    cluster = Embedded(clock, seed)
    try:
        await cluster.start("leases", "kubelets", "controllers", "scheduler")
        assert await cluster.create(given.base) == {}
        await cluster.calm()
        await cluster.stop()
        for operation in given.damage:
            await _carry_out(cluster, operation)
        dump, now = await cluster.objects(), clock.utc()
        await cluster.start("leases")
        await asyncio.sleep(0.1)
        refused = await cluster.create(given.manifests) | await cluster.apply(_applied(given, dump))
        await cluster.start("kubelets", "controllers")
        await cluster.calm()
        before = await cluster.objects()
        for operation in given.changes:
            await _carry_out(cluster, operation)
        await cluster.calm()
        if any(operation.what in ("remove node", "taint") for operation in given.changes):
            await cluster.create(_created(before, await cluster.objects()))
        await cluster.start("scheduler")
        await cluster.calm()
        return Outcome(dump, refused, await cluster.snapshot(), now)
    finally:
        await cluster.stop()


def _applied(given: Scenario, dump: list[Object]) -> list[Object]:
    """Without what was deleted before: files do not show whether such an object comes anew or was left out of a dump."""
    there, once = {_name_of(one) for one in dump}, {_name_of(one) for one in given.base}
    return [one for one in given.applied if _name_of(one) in there or _name_of(one) not in once]


def _name_of(one: Object) -> tuple[str, str, str]:
    return one["kind"], one["metadata"].get("namespace", ""), one["metadata"]["name"]


async def _carry_out(cluster: Embedded, operation: Operation) -> None:
    what, kind, name, namespace, patch = operation
    pods = [o for o in await cluster.objects() if o["kind"] == "Pod" and _is_of(o, kind, name, namespace)]
    match what:
        case "delete":  # what-if leaves pods alone that are on their way out: a pod goes at once here
            await cluster.delete(kind, name, namespace, **({"grace_period_s": 0} if kind == "Pod" else {}))
        case "orphan":
            await cluster.delete(kind, name, namespace, propagation="Orphan")
        case "lose":
            job = next(o for o in await cluster.objects() if (o["kind"], o["metadata"]["name"]) == (kind, name))
            await cluster.patch(kind, name, namespace, {"metadata": {"finalizers": None}})
            await cluster.delete(kind, name, namespace, uid=job["metadata"]["uid"])
        case "finish":
            for one in pods:
                status = {"status": {"phase": "Succeeded"}}
                await cluster.patch("Pod", one["metadata"]["name"], namespace, status, "status")
        case "delete pods":
            for one in pods:
                await cluster.delete("Pod", one["metadata"]["name"], namespace, grace_period_s=0)
        case "rule" | "taint":
            assert patch is not None
            await cluster.create([patch])
        case "image":
            assert patch is not None
            owner = next(
                (o for o in await cluster.objects() if (o["kind"], o["metadata"]["name"]) == (kind, name)), None
            )
            if owner is not None:
                container = {**owner["spec"]["template"]["spec"]["containers"][0], "image": "registry.example/app:2"}
                changed = {"spec": {"template": {"spec": {"containers": [container]}}}}
                await cluster.patch(kind, name, namespace, changed)
        case "remove node":
            for piece in await cluster.objects():
                if piece["kind"] == "ResourceSlice" and piece["spec"].get("nodeName") == name:
                    await cluster.delete("ResourceSlice", piece["metadata"]["name"])
            await cluster.delete("Node", name)
        case "add node":
            shown = await cluster.snapshot()
            if name in shown.nodes:
                await cluster.create(_like(await cluster.objects(), name, f"{name}-new"))
        case "put":
            assert patch is not None
            await cluster.apply([patch])
        case _:
            assert patch is not None
            await cluster.patch(kind, name, namespace, patch)


def _is_of(pod: Object, kind: str, name: str, namespace: str) -> bool:
    meta = pod["metadata"]
    if kind == "Pod":
        return (meta["name"], meta.get("namespace")) == (name, namespace)
    return meta.get("namespace") == namespace and meta["name"].startswith(f"{name}-")


def _like(objects: list[Object], shape: str, name: str) -> list[Object]:
    """One more node as `node_like` makes it, for the API."""
    made: list[Object] = []
    for one in objects:
        meta = one["metadata"]
        if one["kind"] == "Node" and meta["name"] == shape:
            labels = {**meta.get("labels", {}), "kubernetes.io/hostname": name}
            made.insert(0, {**one, "metadata": {"name": name, "labels": labels}})
        elif one["kind"] == "ResourceSlice" and one["spec"].get("nodeName") == shape:
            pool = {**one["spec"]["pool"], "name": one["spec"]["pool"]["name"].replace(shape, name)}
            spec = {**one["spec"], "nodeName": name, "pool": pool}
            made.append({**one, "metadata": {"name": f"{meta['name']}-{name}"}, "spec": spec})
    return made


def _created(before: list[Object], after: list[Object]) -> list[Object]:
    """Pods that ran without a workload and are gone, as their users create them again."""
    there = {(o["metadata"].get("namespace"), o["metadata"]["name"]) for o in after if o["kind"] == "Pod"}
    made: list[Object] = []
    for one in before:
        meta = one["metadata"]
        if one["kind"] != "Pod" or (meta.get("namespace"), meta["name"]) in there:
            continue
        if any(o.get("controller") for o in meta.get("ownerReferences", ())) or not one["spec"].get("nodeName"):
            continue
        if one["status"].get("phase") in ("Succeeded", "Failed") or meta.get("deletionTimestamp"):
            continue
        spec = {key: value for key, value in one["spec"].items() if key not in ("nodeName", "priority")}
        kept = {key: meta[key] for key in ("name", "namespace", "labels") if key in meta}
        made.append({"apiVersion": "v1", "kind": "Pod", "metadata": kept, "spec": spec})
    return made


def predicted(seed: int, controllers: Sequence[Controller] = CONTROLLERS) -> tuple[ClusterState, dict[Any, str]]:
    """What-if's way, from the dump and the manifests as `simulate -f dump -f manifests` reads them."""
    given, found = scenario(seed), embedded(seed)
    manifests = [
        {**m, "metadata": {k: v for k, v in m["metadata"].items() if k != "uid"}}
        for m in (*given.manifests, *_applied(given, found.dump))
    ]
    dump = json.dumps({"apiVersion": "v1", "kind": "List", "items": found.dump})
    documents = files.read(dump, "dump")
    for number, made in enumerate(manifests):
        documents += files.read(json.dumps(made), f"manifest-{number}")
    taken, rejected = admitted(documents, found.now, GATES, applied=applied)
    refused = {(r.kind, r.name): r.message.partition(" is invalid")[2] or r.message for _, r in rejected}
    snapshot = Snapshot.from_objects(identified([(d.kind_name, value) for d, value in taken], found.now))
    cluster = settled(bring(snapshot, found.now, complete=COMPLETE), controllers=controllers)
    refused |= {
        (r.kind, r.name): r.message for r in cluster.rejected if r.owner is None and (r.kind, r.name) in found.refused
    }
    for operation in given.changes:
        made = _changes(cluster, operation)
        cluster = whatif.apply(cluster, made, controllers=controllers).cluster
    order = [(d.kind_name, d.namespace, d.name) for d, _ in taken if d.kind_name == "Pod" or d.kind_name in WORKLOADS]
    for step in run(cluster, order, context(), controllers=controllers):
        assert step.cluster is not None
        cluster = step.cluster
    return cluster, refused


def _changes(cluster: ClusterState, operation: Operation) -> list[whatif.WhatIfChange]:
    what, kind, name, namespace, patch = operation
    snapshot = cluster.snapshot
    match what:
        case "remove node":
            return [whatif.RemoveNode(name)]
        case "taint":
            assert patch is not None
            return [whatif.TaintDevices(next(iter(snapshot_of(patch).taint_rules.values())))]
        case "delete pods":
            root = [key for key in sorted(snapshot.pods) if _is_of(_raw(snapshot.pods[key]), kind, name, namespace)]
            return [whatif.RemoveObject("Pod", *key) for key in root]
        case "put":
            assert patch is not None
            return [_put(snapshot, patch)]
        case _:
            return list(whatif.node_like(snapshot, name, f"{name}-new")) if name in snapshot.nodes else []


def _put(snapshot: Snapshot, patch: Object) -> whatif.WhatIfChange:
    """The object as it is once the patch is made, or the new one."""
    kind, meta = kind_of(patch["kind"]), patch["metadata"]
    old = find(snapshot, kind.kind, meta.get("namespace", ""), meta["name"])
    body = {key: value for key, value in patch.items() if key != "status"}
    body["metadata"] = {key: value for key, value in meta.items() if key != "uid"}
    if old is not None:
        body = applied(codec.to_json(old), {}, body, (kind.group, kind.versions[0], kind.kind))
    return whatif.PutObject(kind.kind, codec.decode(codec.TYPES[kind.kind], body))


def _raw(pod: Pod) -> Object:
    return {"metadata": {"name": pod.metadata.name, "namespace": pod.metadata.namespace}}


def context() -> SchedulingContext:
    numbers = iter(range(1_000_000))
    return SchedulingContext(new_id=lambda: f"00000000-0000-4000-8000-{next(numbers):012d}", options=SCHEDULER.options)


# ---- what is compared


def picture(snapshot: Snapshot, now: datetime) -> dict[str, Any]:
    """A cluster without names and uids that chance gives: pods and claims by the object that a user wrote."""
    roots = {key: _root(snapshot, pod.metadata) for key, pod in snapshot.pods.items()}
    pods = Counter(
        (roots[key], pod.spec.node_name, bool(pod.metadata.deletion_timestamp)) for key, pod in snapshot.pods.items()
    )
    claims: Counter[Any] = Counter()
    for claim in snapshot.claims.values():
        allocation = claim.status.allocation
        results = allocation.devices.results if allocation is not None else ()
        devices = tuple(sorted(Counter((r.driver, r.pool) for r in results).items()))
        claims[_root(snapshot, claim.metadata), devices, len(claim.status.reserved_for)] += 1
    waiting = [key for key in sorted(snapshot.pods) if is_waiting(snapshot.pods[key])]
    refusals: set[Any] = set()
    for unit in units_of(snapshot, waiting):
        (step,) = steps(snapshot, [unit], now, context())
        for verdict in step.verdicts:
            if verdict.refused is not None:
                reasons = [*verdict.refused.reasons, *(r for some in verdict.refused.nodes for r in some.reasons)]
                refusals.add((roots[verdict.pod], tuple(sorted({type(reason).__name__ for reason in reasons}))))
            elif verdict.node is not None:
                refusals.add((roots[verdict.pod], f"would fit on {verdict.node}"))
    return {
        "pods": pods,
        "claims": claims,
        "refusals": refusals,
        "workloads": Counter((kind, namespace) for kind, namespace, _ in snapshot.workloads),
        "namespaces": {name for name, n in snapshot.namespaces.items()},
        "taints": {(name, t.key, t.effect) for name, n in snapshot.nodes.items() for t in n.spec.taints},
        "nodes": set(snapshot.nodes),
        "budgets": {key: _allowed(budget.status or {}) for key, budget in snapshot.budgets.items()},
    }


def _allowed(status: Object) -> tuple[int, ...]:
    return tuple(
        status.get(field, 0) for field in ("disruptionsAllowed", "currentHealthy", "desiredHealthy", "expectedPods")
    )


def _root(snapshot: Snapshot, meta: Any) -> tuple[str, ...]:
    namespace = meta.namespace
    owner, name = meta.controller, ("", meta.name)
    while owner is not None:
        name = (owner.kind, owner.name if owner.kind != "ReplicaSet" else owner.name.partition("-")[0])
        parent: Any = snapshot.workloads.get((owner.kind, namespace, owner.name))
        if owner.kind == "Pod":
            parent = snapshot.pods.get((namespace, owner.name))
        owner = parent.metadata.controller if parent is not None else None
    return (namespace, *name)


def differences(seed: int, controllers: Sequence[Controller] = CONTROLLERS) -> dict[str, Any]:
    """Where the two ways differ, {} where they do not."""
    found = embedded(seed)
    cluster, refused = predicted(seed, controllers)
    ours, theirs = picture(cluster.snapshot, found.now), picture(found.end, found.now)
    apart = {key: (ours[key], theirs[key]) for key in ours if ours[key] != theirs[key]}
    if refused != found.refused:
        apart["refused by the server"] = (refused, found.refused)
    return apart


@pytest.mark.slow
@pytest.mark.parametrize("seed", SEEDS)
def test_simulate_and_the_embedded_cluster_come_to_the_same(seed: int) -> None:
    assert differences(seed) == {}


@pytest.mark.slow
@pytest.mark.parametrize("name", [controller.name for controller in CONTROLLERS])
def test_without_any_one_controller_they_do_not(name: str) -> None:
    fewer = [controller for controller in CONTROLLERS if controller.name != name]
    assert any(differences(seed, fewer) for seed in SEEDS), f"no seed needs {name}"
