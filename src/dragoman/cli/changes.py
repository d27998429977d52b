"""What if the cluster were different? The flags that change a snapshot before it is decided on.

--add-node FILE|shape-of NODE   --remove-node NODE   --taint FILE|DRIVER/POOL/DEVICE=KEY[=VALUE]:EFFECT
--delete POD                    applied in this order, each may stand several times
"""

from __future__ import annotations

import argparse
import difflib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from dragoman.api.files import DEFAULT_NAMESPACE
from dragoman.api.meta import NamespacedName, ObjectMeta
from dragoman.api.resource import DeviceTaint, DeviceTaintRule, DeviceTaintRuleSpec, DeviceTaintSelector
from dragoman.cli import source
from dragoman.errors import Invalid, NotFound
from dragoman.snapshot.change import Snapshot
from dragoman.snapshot.taints import applies
from dragoman.whatif.changes import (
    Displaced,
    PutObject,
    RemoveNode,
    RemoveObject,
    TaintDevices,
    WhatIfChange,
    apply,
    free_name,
    node_like,
)
from dragoman.whatif.cluster import ClusterState
from dragoman.whatif.units import Named

SHAPE = "shape-of "
EFFECTS = ("NoSchedule", "NoExecute", "None")


class ChangedSnapshot(msgspec.Struct, frozen=True):
    """The cluster after the changes. order: pods that their users create again, to be decided after the files'."""

    cluster: ClusterState
    order: tuple[Named, ...] = ()
    added: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    deleted: tuple[str, ...] = ()
    displaced: tuple[Displaced, ...] = ()
    idle: tuple[str, ...] = ()
    """--taint flags that concern no published device."""

    def as_json(self) -> dict[str, Any]:
        """The part of simulate's JSON that tells of changes; {} without any."""
        if not (self.added or self.removed or self.deleted or self.displaced):
            return {}
        return {
            "changes": {"addedNodes": self.added, "removedNodes": self.removed, "deletedPods": self.deleted},
            "displaced": [
                {
                    "namespace": entry.pod[0],
                    "name": entry.pod[1],
                    "node": entry.node,
                    "claim": entry.claim,
                    "device": str(entry.device),
                    "afterSeconds": entry.after_s,
                }
                for entry in self.displaced
            ],
        }

    def lines(self) -> list[str]:
        """The same for people."""
        reported = [
            f"{what} {', '.join(names)}"
            for what, names in (
                ("added nodes:", self.added),
                ("removed nodes:", self.removed),
                ("deleted pods:", self.deleted),
            )
            if names
        ]
        reported += [f"no device is tainted by {text}" for text in self.idle]
        for entry in self.displaced:
            when = f" after {entry.after_s} s" if entry.after_s else ""
            pod = "/".join(entry.pod)
            reported.append(f"displaced{when}: {pod} on {entry.node}, device {entry.device} (claim {entry.claim})")
        return reported


def changed(cluster: ClusterState, args: argparse.Namespace) -> ChangedSnapshot:
    """The cluster with what the flags say, controllers at rest. Raises Invalid, NotFound."""
    created: dict[Named, None] = {}
    added: list[str] = []
    deleted: list[str] = []
    displaced: dict[NamespacedName, Displaced] = {}
    idle: list[str] = []

    def made(steps: Sequence[WhatIfChange]) -> None:
        nonlocal cluster
        after = apply(cluster, steps)
        cluster = after.cluster
        displaced.update((entry.pod, entry) for entry in after.displaced)
        created.update((("Pod", *key), None) for key in after.created)

    for text in args.add_node:
        more, nodes = _more(cluster, text)
        made(more)
        added += nodes
    for name in args.remove_node:
        if name not in cluster.snapshot.nodes:
            raise NotFound(f"--remove-node: node {name} does not exist{_near(name, cluster.snapshot.nodes)}")
        made([RemoveNode(name)])
    for text in args.taint:
        rules = _rules(text)
        if not any(_concerns(rule, cluster.snapshot) for rule in rules):
            idle.append(text)
        made([TaintDevices(rule) for rule in rules])
    for text in args.delete:
        key = _pod(cluster.snapshot, text)
        made([RemoveObject("Pod", *key)])
        deleted.append("/".join(key))
    listed = tuple(displaced[key] for key in sorted(displaced))
    return ChangedSnapshot(
        cluster, tuple(created), tuple(added), tuple(args.remove_node), tuple(deleted), listed, tuple(idle)
    )


def _concerns(rule: DeviceTaintRule, snapshot: Snapshot) -> bool:
    """Whether a published device is meant."""
    return any(
        applies(rule, driver=resource_slice.spec.driver, pool=resource_slice.spec.pool.name, device=device.name)
        for resource_slice in snapshot.slices.values()
        for device in resource_slice.spec.devices
    )


def _more(cluster: ClusterState, text: str) -> tuple[list[WhatIfChange], list[str]]:
    snapshot = cluster.snapshot
    if text.startswith((SHAPE, "shape-of=")):
        shape = text[len(SHAPE) :].strip()
        if shape not in snapshot.nodes:
            raise NotFound(f"--add-node: node {shape} does not exist{_near(shape, snapshot.nodes)}")
        name = free_name(snapshot, f"{shape}-new")
        return list(node_like(snapshot, shape, name)), [name]
    world = source.from_files([text])
    nodes = sorted(world.snapshot.nodes)
    if not nodes:
        raise Invalid(f"--add-node {text}", "holds no Node")
    for name in nodes:
        if name in snapshot.nodes:
            raise Invalid(f"--add-node {text}", f"node {name} exists already")
    for refused in world.refused:
        raise Invalid(f"--add-node {text}", refused.rejection.message)
    changes: list[WhatIfChange] = [PutObject("Node", world.snapshot.nodes[name]) for name in nodes]
    changes += [
        PutObject("ResourceSlice", resource_slice) for _, resource_slice in sorted(world.snapshot.slices.items())
    ]
    return changes, nodes


def _rules(text: str) -> list[DeviceTaintRule]:
    if Path(text).is_file():
        rules = [rule for _, rule in sorted(source.from_files([text]).snapshot.taint_rules.items())]
        if not rules:
            raise Invalid(f"--taint {text}", "holds no DeviceTaintRule")
        return rules
    device, equals, taint = text.partition("=")
    pair, colon, effect = taint.rpartition(":")
    key, _, value = pair.partition("=")
    parts = device.split("/")
    if not (equals and colon and key) or len(parts) < 3:
        raise Invalid(f"--taint {text}", "must be a file or DRIVER/POOL/DEVICE=KEY[=VALUE]:EFFECT, * for any")
    if effect not in EFFECTS:
        raise Invalid(f"--taint {text}", f"the effect must be one of {', '.join(EFFECTS)}, got {effect!r}")
    driver, pool, name = parts[0], "/".join(parts[1:-1]), parts[-1]
    selector = DeviceTaintSelector(*(None if part in ("", "*") else part for part in (driver, pool, name)))
    spec = DeviceTaintRuleSpec(selector, DeviceTaint(key=key, value=value, effect=effect))
    return [DeviceTaintRule(metadata=ObjectMeta(name=f"flag --taint {text}"), spec=spec)]


def _pod(snapshot: Snapshot, text: str) -> NamespacedName:
    namespace, slash, name = text.removeprefix("pod/").rpartition("/")
    key = (namespace if slash else DEFAULT_NAMESPACE, name)
    if key not in snapshot.pods:
        near = _near("/".join(key), ["/".join(known) for known in snapshot.pods])
        raise NotFound(f"--delete: pod {'/'.join(key)} does not exist{near}")
    return key


def _near(name: str, known: Any) -> str:
    found = difflib.get_close_matches(name, list(known), 3)
    return f"; near: {', '.join(found)}" if found else ""
