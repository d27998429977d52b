"""How long do decisions about devices take, beside Kubernetes' own allocator? JSON lines.

    python bench/allocate.py [a b c d e f g load ...] [--quick] [--no-upstream] [--check]

Seconds are processor seconds of one thread, for both. Here a decision is a survey of all nodes, the first that fits
and its checked allocation, with what is remembered from the decisions before; upstream (bench/upstream) sets its
allocator up and asks it for every node, as a filter does, in the state that our decisions made. Ratios are ours over
upstream's. --check compares ratios and steps with bounds.toml and exits with 1 if one is over its bound.

a alike nodes; b five models, selectors, prioritized lists; c aligned GPU and NIC pairs; d MIG-like partitions until
full; e many small shares; f impossible claims; g no two nodes alike; load a cluster read into memory.
"""

from __future__ import annotations

import argparse
import gc
import itertools
import json
import os
import platform
import resource
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import peer
import scenes
from impossible import SHAPES, objects_of
from scenes import GATES, Scene, classes

from dragoman import __version__
from dragoman.allocate.allocator import OPTIONS, AllocationCache, Survey, survey
from dragoman.api.codec import decode, to_json
from dragoman.api.core import Node
from dragoman.api.resource import AllocationResult, DeviceClass, ResourceClaim, ResourceSlice
from dragoman.snapshot.change import Put, Snapshot, apply

_IDS = (f"00000000-0000-4000-8000-{n:012d}" for n in itertools.count())
BOUNDS = Path(__file__).parent / "bounds.toml"
Line = dict[str, Any]


class Bench:
    """What was asked for on the command line, and the lines printed so far."""

    def __init__(self, *, quick: bool, upstream: bool) -> None:
        self.quick = quick
        self.upstream = upstream
        self.lines: list[Line] = []

    def report(self, name: str, **figures: Any) -> None:
        """One line of output."""
        machine = {"python": platform.python_version(), "machine": platform.machine(), "cores": os.cpu_count()}
        line = {"bench": name, **figures, **machine, "dragoman": __version__}
        if self.upstream:
            line["upstream_version"] = peer.version()
        self.lines.append(line)
        print(json.dumps(line), flush=True)

    def ask(self, case: Line, *, timeout_s: float = 10.0) -> Line:
        """Upstream's answer to one call, with one processor."""
        os.environ["GOMAXPROCS"] = "1"
        (answer,) = peer.ask([{**case, "brief": True, "warm": True}], timeout_s=timeout_s)
        assert not answer["error"], answer["error"]
        return answer


def objects(scene: Scene) -> list[tuple[str, Any]]:
    """The scene as a snapshot takes it."""
    return [
        *(("DeviceClass", decode(DeviceClass, item)) for item in classes()),
        *(("Node", decode(Node, item)) for item in scene.nodes),
        *(("ResourceSlice", decode(ResourceSlice, item)) for item in scene.slices),
        *(("ResourceClaim", decode(ResourceClaim, item)) for item in scene.holding),
    ]


def decide(snapshot: Snapshot, wanted: ResourceClaim, memory: AllocationCache) -> tuple[AllocationResult | None, int]:
    """One decision as a scheduler makes it: survey, the first node that fits, its allocation; and the steps."""
    found = survey(snapshot, [wanted], OPTIONS, memory=memory)
    assert isinstance(found, Survey)
    for one in found.classes:
        if one.fits:
            allocation = one.allocation_on(one.nodes[0], lambda: next(_IDS))
            return allocation.results[0][0], allocation.steps
    return None, sum(one.refusals.steps for one in found.classes if one.refusals is not None)


class Filled:
    """What decisions one after the other came to. claims: allocated ones."""

    def __init__(self, scene: Scene, most: int) -> None:
        self.scene = scene
        self.seconds: list[float] = []
        self.steps = 0
        self.claims: list[Line] = list(scene.holding)
        self.placed = 0
        snapshot = Snapshot.from_objects(objects(scene))
        memory = AllocationCache()
        gc.collect()
        gc.freeze()
        failed = 0
        for n in range(most):
            wanted = decode(ResourceClaim, scene.claim(n))
            start = time.process_time()
            result, steps = decide(snapshot, wanted, memory)
            self.seconds.append(time.process_time() - start)
            self.steps += steps
            if result is None:
                failed += 1
                if failed == 20:  # full
                    break
                continue
            self.placed += 1
            given = msgspec.structs.replace(wanted, status=msgspec.structs.replace(wanted.status, allocation=result))
            snapshot = apply(snapshot, Put("ResourceClaim", given))
            self.claims.append(to_json(given))
        gc.unfreeze()

    def case(self, index: int) -> Line:
        """The index-th decision as a call of upstream's allocator, in the state that it met."""
        known = self.claims[: len(self.scene.holding) + index]
        devices, shares, consumed = [], [], {}
        for result in (r for c in known for r in c["status"]["allocation"]["devices"]["results"]):
            device = {key: result[key] for key in ("driver", "pool", "device")}
            if "shareID" not in result:
                devices.append(device)
                continue
            shares.append({**device, "shareID": result["shareID"]})
            consumed.setdefault(tuple(device.values()), []).append(result["consumedCapacity"])
        return {
            "name": str(index),
            "features": dict.fromkeys(GATES, True),
            "nodes": self.scene.nodes,
            "claims": [self.scene.claim(index)],
            "classes": classes(),
            "slices": self.scene.slices,
            "allocatedDevices": devices,
            "allocatedShares": shares,
            "consumedCapacity": [
                {"driver": driver, "pool": pool, "device": device, "consumed": amounts}
                for (driver, pool, device), several in consumed.items()
                for amounts in several
            ],
        }


def fill(bench: Bench, name: str, scene: Scene, most: int, *, nth: int = 100, timeout_s: float = 10.0) -> None:
    """Decisions one after the other; the first and the nth of its kind also by upstream."""
    filled = Filled(scene, most)
    later = (nth - 1) * scene.kinds
    figures: Line = {"nodes": len(scene.nodes), "decisions": len(filled.seconds), "placed": filled.placed}
    figures["first_ms"] = round(filled.seconds[0] * 1e3, 3)
    if later < len(filled.seconds):
        figures["nth"] = nth
        figures["nth_ms"] = round(filled.seconds[later] * 1e3, 3)
    figures["mean_ms"] = round(sum(filled.seconds[1:]) / max(1, len(filled.seconds) - 1) * 1e3, 3)
    figures["steps"] = round(filled.steps / len(filled.seconds), 1)
    if bench.upstream:
        places = {"first": 0} | ({"nth": later} if later < filled.placed else {})
        for key, index in places.items():
            answer = bench.ask(filled.case(index), timeout_s=timeout_s)
            figures[f"upstream_{key}_ms"] = round(answer["cpuSeconds"] * 1e3, 2)
            late = sum(one["timedOut"] for one in answer["nodes"])
            if late:
                figures[f"upstream_{key}_given_up_nodes"] = late
            figures[f"ratio_{key}"] = round(figures[f"{key}_ms"] / figures[f"upstream_{key}_ms"], 4)
    bench.report(name, **figures)


def sizes(bench: Bench) -> tuple[int, ...]:
    return (100, 1000) if bench.quick else (100, 1000, 5000)


def case_a(bench: Bench) -> None:
    for nodes in sizes(bench):
        fill(bench, "a alike", scenes.equivalent(nodes), 200)


def case_b(bench: Bench) -> None:
    for nodes in sizes(bench):
        fill(bench, "b mixed", scenes.mixed(nodes), 500)


def case_c(bench: Bench) -> None:
    for wanted in (1, 2, 4, 8) if bench.quick else range(1, 9):
        fill(bench, f"c {wanted} pairs", scenes.pairs(100, wanted), 40, nth=20, timeout_s=1.0)


def case_d(bench: Bench) -> None:
    fill(bench, "d partitions", scenes.partitions(4 if bench.quick else 20), 4096)


def case_e(bench: Bench) -> None:
    fill(bench, "e shares", scenes.shares(100), 200 if bench.quick else 2000)


def case_f(bench: Bench) -> None:
    """A certain no, on one node and on 500 alike ones; upstream on one."""
    for name, shape in SHAPES.items():
        figures: Line = {}
        for nodes in (1, 50 if bench.quick else 500):
            made, claims = objects_of(shape, nodes)
            snapshot = Snapshot.from_objects(made)
            start = time.process_time()
            found = survey(snapshot, claims, OPTIONS)
            seconds = time.process_time() - start
            assert isinstance(found, Survey)
            (refused,) = found.classes
            assert refused.refusals is not None
            figures |= {f"ms_{nodes}": round(seconds * 1e3, 2), "steps": refused.refusals.steps}
            figures["codes"] = [reason.code for reason in refused.refusals.reasons]
        if bench.upstream:
            made, claims = objects_of(shape)
            kinds: dict[str, list[Line]] = {"DeviceClass": [], "Node": [], "ResourceSlice": []}
            for kind, value in made:
                kinds[kind].append(to_json(value))
            limit = 1.0 if bench.quick else 10.0
            answer = bench.ask(
                {
                    "features": dict.fromkeys(GATES, True),
                    "nodes": kinds["Node"],
                    "claims": [to_json(claim) for claim in claims],
                    "classes": kinds["DeviceClass"],
                    "slices": kinds["ResourceSlice"],
                },
                timeout_s=limit,
            )
            (one,) = answer["nodes"]
            figures["upstream_ms_1"] = round(answer["cpuSeconds"] * 1e3, 2)
            figures["upstream"] = f"given up after {limit:g} s" if one["timedOut"] else one["error"] or "no"
            assert not one["fits"], name
            figures["ratio"] = round(figures["ms_1"] / figures["upstream_ms_1"], 4)
        bench.report("f impossible", shape=name, **figures)


def case_g(bench: Bench) -> None:
    for name, select in scenes.IDENTIFIERS.items():
        for nodes in sizes(bench)[1:]:
            fill(bench, f"g {name}", scenes.different(nodes, select), 110)


def case_load(bench: Bench) -> None:
    """In a process of its own, so that the memory is that of the cluster."""
    for nodes in sizes(bench)[1:]:
        scene = scenes.equivalent(nodes)
        with tempfile.NamedTemporaryFile("w", suffix=".jsonl") as lines:
            for kind, items in (("Node", scene.nodes), ("ResourceSlice", scene.slices)):
                lines.writelines(f"{kind} {json.dumps(item)}\n" for item in items)
            lines.flush()
            command = [sys.executable, __file__, "--load", lines.name]
            done = subprocess.run(command, capture_output=True, text=True, check=True)
        bench.report("load", nodes=nodes, devices=8 * nodes, **json.loads(done.stdout))


def load(path: str) -> None:
    """Reads a cluster from lines of kind and JSON into a snapshot; prints seconds and memory."""
    kinds = {"Node": Node, "ResourceSlice": ResourceSlice}
    before = peak_mb()
    start = time.process_time()
    with Path(path).open() as lines:
        pairs = (line.split(" ", 1) for line in lines)
        made = [(kind, decode(kinds[kind], text)) for kind, text in pairs]
    decoded = time.process_time() - start
    snapshot = Snapshot.from_objects(made)
    seconds = time.process_time() - start
    figures = {"json_mb": round(Path(path).stat().st_size / 1e6, 1), "decode_s": round(decoded, 2)}
    figures |= {"load_s": round(seconds, 2), "peak_mb": peak_mb(), "empty_mb": before}
    assert snapshot.nodes
    print(json.dumps(figures))


def peak_mb() -> int:
    """The most memory that this process had. (Linux: ru_maxrss may be that of the process which started this one.)"""
    status = Path("/proc/self/status")
    if status.exists():
        words = next(line.split() for line in status.read_text().splitlines() if line.startswith("VmHWM"))
        return round(int(words[1]) / 1024)
    return round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20)


CASES: dict[str, Callable[[Bench], None]] = {
    "a": case_a,
    "b": case_b,
    "c": case_c,
    "d": case_d,
    "e": case_e,
    "f": case_f,
    "g": case_g,
    "load": case_load,
}


def over(lines: list[Line]) -> Iterator[str]:
    """Bounds that were broken."""
    for bound in tomllib.loads(BOUNDS.read_text())["bound"]:
        named = {key: bound[key] for key in ("bench", "nodes", "shape") if key in bound}
        for line in lines:
            found = line.get(bound["figure"])
            if found is not None and all(line.get(key) == value for key, value in named.items()):
                most = bound["measured"] * bound["margin"]
                if found > most:
                    yield f"{named}: {bound['figure']} is {found}, at most {most:g} ({bound['reason']})"


def main() -> int:
    """Runs what is asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", nargs="*", metavar="CASE", help="default: all")
    parser.add_argument("--quick", action="store_true", help="fewer nodes and less patience with upstream")
    parser.add_argument("--no-upstream", action="store_true", help="ours only")
    parser.add_argument("--check", action="store_true", help="compare with bounds.toml")
    parser.add_argument("--load", metavar="FILE", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.load:
        load(args.load)
        return 0
    unknown = [name for name in args.cases if name not in CASES]
    if unknown:
        parser.error(f"no case {unknown[0]!r}; there are {' '.join(CASES)}")
    with_upstream = not args.no_upstream and bool(peer.peer(build=True))
    if not with_upstream and not args.no_upstream:
        print("note: no peer to compare with; `make peers` builds it", file=sys.stderr)
    Filled(scenes.equivalent(10), 20)  # imports and caches
    bench = Bench(quick=args.quick, upstream=with_upstream)
    for name in args.cases or CASES:
        CASES[name](bench)
    broken = list(over(bench.lines)) if args.check else []
    for text in broken:
        print(f"error: over its bound: {text}", file=sys.stderr)
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
