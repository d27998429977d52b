"""What if the cluster were different? The flags that change a snapshot before it is decided on.

--add-node FILE|shape-of NODE   --remove-node NODE   --taint FILE|DRIVER/POOL/DEVICE=KEY[=VALUE]:EFFECT
--delete POD                    applied in this order, each may stand several times
"""

from __future__ import annotations

import argparse
import difflib
from pathlib import Path
from typing import Any

import msgspec

from dragoman.api.files import DEFAULT_NAMESPACE
from dragoman.api.meta import NamespacedName, ObjectMeta
from dragoman.api.resource import DeviceTaint, DeviceTaintRule, DeviceTaintRuleSpec, DeviceTaintSelector
from dragoman.cli import source
from dragoman.errors import Invalid, NotFound
from dragoman.explain import scenarios
from dragoman.explain.scenarios import Displaced
from dragoman.schedule.whatif import Named
from dragoman.snapshot.change import Change, Put, Snapshot, apply_all, keys_of
from dragoman.snapshot.taints import applies

SHAPE = "shape-of "
EFFECTS = ("NoSchedule", "NoExecute", "None")


class ChangedSnapshot(msgspec.Struct, frozen=True):
    """The snapshot after the changes. order: pods that lost their place and are decided again, after the files'."""

    snapshot: Snapshot
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


def changed(snapshot: Snapshot, args: argparse.Namespace) -> ChangedSnapshot:
    """The snapshot with what the flags say. Raises Invalid, NotFound."""
    order: list[Named] = []
    added: list[str] = []
    displaced: dict[NamespacedName, Displaced] = {}
    idle: list[str] = []
    for text in args.add_node:
        more, nodes = _more(snapshot, text)
        snapshot = apply_all(snapshot, more)
        added += nodes
    for name in args.remove_node:
        if name not in snapshot.nodes:
            raise NotFound(f"--remove-node: node {name} does not exist{_near(name, snapshot.nodes)}")
        order += [("Pod", *key) for key in keys_of(snapshot.pods_by_node, name)]
        snapshot = apply_all(snapshot, scenarios.without_node(snapshot, name))
    for text in args.taint:
        rules = _rules(text)
        if not any(_concerns(rule, snapshot) for rule in rules):
            idle.append(text)
        for rule in rules:
            displaced |= {entry.pod: entry for entry in scenarios.displaced(snapshot, rule)}
            snapshot = apply_all(snapshot, [Put("DeviceTaintRule", rule)])
    for key in displaced:
        snapshot = apply_all(snapshot, scenarios.pending_again(snapshot, key))
        order.append(("Pod", *key))
    deleted = [_pod(snapshot, text) for text in args.delete]
    for key in deleted:
        snapshot = apply_all(snapshot, scenarios.without_pod(snapshot, key))
    names = tuple("/".join(key) for key in deleted)
    removed = tuple(args.remove_node)
    return ChangedSnapshot(snapshot, tuple(order), tuple(added), removed, names, tuple(displaced.values()), tuple(idle))


def _concerns(rule: DeviceTaintRule, snapshot: Snapshot) -> bool:
    """Whether a published device is meant."""
    return any(
        applies(rule, driver=resource_slice.spec.driver, pool=resource_slice.spec.pool.name, device=device.name)
        for resource_slice in snapshot.slices.values()
        for device in resource_slice.spec.devices
    )


def _more(snapshot: Snapshot, text: str) -> tuple[list[Change], list[str]]:
    if text.startswith((SHAPE, "shape-of=")):
        shape = text[len(SHAPE) :].strip()
        if shape not in snapshot.nodes:
            raise NotFound(f"--add-node: node {shape} does not exist{_near(shape, snapshot.nodes)}")
        name = scenarios.free_name(snapshot, f"{shape}-new")
        return list(scenarios.node_like(snapshot, shape, name)), [name]
    world = source.from_files([text])
    nodes = sorted(world.snapshot.nodes)
    if not nodes:
        raise Invalid(f"--add-node {text}", "holds no Node")
    for name in nodes:
        if name in snapshot.nodes:
            raise Invalid(f"--add-node {text}", f"node {name} exists already")
    changes: list[Change] = [Put("Node", world.snapshot.nodes[name]) for name in nodes]
    changes += [Put("ResourceSlice", resource_slice) for _, resource_slice in sorted(world.snapshot.slices.items())]
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
