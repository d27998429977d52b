"""`dragoman migrate --against`: do the same pods fit on the same kinds of devices before and after?"""

from __future__ import annotations

import argparse
import asyncio
import json
from collections.abc import Sequence
from typing import Any

import msgspec

from dragoman.api import yamltext
from dragoman.cli import connect, manifests, output, record, source
from dragoman.migrate import proof
from dragoman.migrate.rewrite import DRA, Migration
from dragoman.runtime.clock import Clock
from dragoman.runtime.entropy import Entropy
from dragoman.schedule.units import SchedulingContext
from dragoman.whatif.cluster import ClusterState, bring
from dragoman.whatif.decide import DecidedUnit, run
from dragoman.whatif.settle import settled
from dragoman.whatif.units import Named


class Proof(msgspec.Struct, frozen=True):
    """What the simulations of both sides say."""

    workloads: tuple[proof.WorkloadProof, ...]
    labels: tuple[proof.LabelProof, ...]

    @property
    def same(self) -> bool:
        """Whether nothing differs."""
        return not self.labels and all(workload.same for workload in self.workloads)

    def as_json(self) -> dict[str, Any]:
        """The parts of the JSON."""
        return {
            "proof": {
                "same": self.same,
                "workloads": [
                    {
                        "kind": w.kind,
                        "namespace": w.namespace,
                        "name": w.name,
                        "same": w.same,
                        "before": w.before,
                        "after": w.after,
                    }
                    for w in self.workloads
                ],
                "labels": [msgspec.to_builtins(entry) for entry in self.labels],
            }
        }

    def lines(self) -> list[str]:
        """For people."""
        lines = []
        for w in self.workloads:
            before, after = (_pods(side) for side in (w.before, w.after))
            what = f"same: {before}" if w.same else f"differs: {before} before, {after} after"
            lines.append(f"{w.kind} {w.namespace}/{w.name}: {what}")
        for entry in self.labels:
            how = (
                "has the label, but the selector differs on" if entry.matches else "lacks it, but the selector matches"
            )
            lines.append(f"{entry.requirement}: node {entry.node} {how} {', '.join(entry.devices)}")
        lines.append("proof: all GPUs counted as free; " + ("nothing differs" if self.same else "something differs"))
        return lines


def _pods(side: dict[str, int]) -> str:
    return ", ".join(f"{count} with {what}" for what, count in side.items()) or "no pods"


def prove(args: argparse.Namespace, texts: Sequence[tuple[str, str]], made: Migration) -> Proof:
    """Both sides of the cluster with the manifests of each. Raises Invalid, NotFound, Denied, Retry."""
    objects = [chunk.value for name, text in manifests.texts(args.against) for chunk in yamltext.chunks(text, name)]
    if args.live or args.kubeconfig or args.context:
        objects += asyncio.run(objects_of_cluster(args))
    plugin, dra = proof.sides(objects)
    there, here = [(name, made.texts[name]) for name, _ in texts], list(texts)
    before, after = (plugin, here), (dra, there)
    if made.path != DRA:
        before, after = (dra, here), (plugin, there)
    moved = {(m.namespace, *m.object.split(" ", 1)) for m in made.moved}
    names, *outcomes = _outcomes(before, moved)
    _, *others = _outcomes(after, moved)
    compared = proof.compared(names, (outcomes[0], outcomes[1]), (others[0], others[1]))
    snapshot = source.from_texts([("the cluster", _list(objects))]).snapshot
    wanted = [requirement for entry in made.moved for requirement in entry.labels]
    return Proof(tuple(compared), tuple(proof.labels_proved(snapshot, wanted)))


def _outcomes(side: tuple[Any, Sequence[tuple[str, str]]], moved: set[Any]) -> Any:
    objects, texts = side
    world = source.from_texts([("the cluster", _list(objects)), *texts])
    for refused in world.refused:
        output.say(f"warning: {refused.document.subject}: {refused.rejection.message}")
    context = SchedulingContext(new_id=Entropy().uuid4)
    names: list[Named] = [name for name in world.order if (name[1], name[0], name[2]) in moved]
    cluster: ClusterState = settled(bring(world.snapshot, Clock().utc(), known=True))
    steps: list[DecidedUnit] = list(run(cluster, names, context))
    return names, (steps[-1].cluster if steps else cluster), steps


def _list(objects: Any) -> str:
    return json.dumps({"apiVersion": "v1", "kind": "List", "items": objects})


async def objects_of_cluster(args: argparse.Namespace) -> list[dict[str, Any]]:
    """What `dragoman record` would save."""
    async with connect.client(args) as client:
        items, _ = await record.recorded(client, own=connect.namespace(args))
    return items
