"""How long does one decision about devices take? JSON lines with seconds, search steps, machine and versions.

    python bench/allocate.py [--quick]

alike: one-device claims on nodes with 8 alike devices, first decision and the hundredth of its kind (each decision
is committed to the snapshot). free sets: the same where nodes have different devices held. impossible: a certain no,
on one node and on 500 alike ones.
"""

from __future__ import annotations

import argparse
import gc
import itertools
import json
import platform
import random
import time
from typing import Any

import msgspec
from fleet import alike, claim, holding
from impossible import SHAPES, objects_of

from dragoman import __version__
from dragoman.allocate.allocator import OPTIONS, Memory, Survey, survey
from dragoman.api.resource import ResourceClaim
from dragoman.snapshot.change import Put, Snapshot, apply

_IDS = (f"00000000-0000-4000-8000-{n:012d}" for n in itertools.count())


def report(name: str, **figures: Any) -> None:
    """One line of output."""
    machine = {"python": platform.python_version(), "machine": platform.machine(), "dragoman": __version__}
    print(json.dumps({"bench": name, **figures, **machine}))


def decide(snapshot: Snapshot, wanted: ResourceClaim, memory: Memory) -> tuple[Snapshot, float]:
    """One decision as a scheduler makes it: survey, the first node that fits, its allocation; then the commit."""
    start = time.perf_counter()
    found = survey(snapshot, [wanted], OPTIONS, memory=memory)
    assert isinstance(found, Survey)
    fitting = next(c for c in found.classes if c.fits)
    allocation = fitting.allocation_on(fitting.nodes[0], lambda: next(_IDS))
    seconds = time.perf_counter() - start
    status = msgspec.structs.replace(wanted.status, allocation=allocation.results[0][0])
    return apply(snapshot, Put("ResourceClaim", msgspec.structs.replace(wanted, status=status))), seconds


def fill(nodes: int, decisions: int) -> None:
    """Decisions one after the other on a fleet of alike nodes."""
    objects = alike(nodes)
    start = time.perf_counter()
    snapshot = Snapshot.from_objects(objects)
    load = time.perf_counter() - start
    memory = Memory()
    took = []
    for n in range(decisions):
        snapshot, seconds = decide(snapshot, claim(f"claim-{n}"), memory)
        took.append(seconds)
    report(
        "alike",
        nodes=nodes,
        load_s=round(load, 4),
        first_ms=round(took[0] * 1e3, 3),
        hundredth_ms=round(took[99] * 1e3, 3),
        mean_ms=round(sum(took[1:]) / len(took[1:]) * 1e3, 3),
    )


def refuse(nodes: int) -> None:
    """A certain no for claims made to be hard, on one node and on many alike ones."""
    for name, shape in SHAPES.items():
        objects, claims = objects_of(shape, nodes)
        snapshot = Snapshot.from_objects(objects)
        start = time.perf_counter()
        found = survey(snapshot, claims, OPTIONS)
        seconds = time.perf_counter() - start
        assert isinstance(found, Survey)
        (refused,) = found.classes
        assert refused.refusals is not None
        codes = [reason.code for reason in refused.refusals.reasons]
        report(
            "impossible", shape=name, nodes=nodes, ms=round(seconds * 1e3, 1), steps=refused.refusals.steps, codes=codes
        )


def different(nodes: int, decisions: int) -> None:
    """Nodes with different devices held."""
    draw = random.Random(1)
    objects = alike(nodes)
    for n in range(nodes):
        objects += [("ResourceClaim", holding(f"node-{n:05d}", d)) for d in range(8) if draw.random() < 0.4]
    snapshot = Snapshot.from_objects(objects)
    memory = Memory()
    took = []
    for n in range(decisions):
        snapshot, seconds = decide(snapshot, claim(f"claim-{n}"), memory)
        took.append(seconds)
    report("free sets", nodes=nodes, first_ms=round(took[0] * 1e3, 3), hundredth_ms=round(took[99] * 1e3, 3))


def main() -> None:
    """Runs all."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--quick", action="store_true", help="fewer nodes")
    quick = arguments.parse_args().quick
    gc.freeze()
    fill(100, 110)  # warms up imports and caches
    for nodes in (100, 1000) if quick else (100, 1000, 5000):
        fill(nodes, 200)
        different(nodes, 110)
    refuse(1)
    refuse(50 if quick else 500)


if __name__ == "__main__":
    main()
