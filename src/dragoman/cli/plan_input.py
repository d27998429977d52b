"""What is planned for, and on which cluster? The flags of plan commands as a cluster at rest and a demand.

Pods, workloads, groups and claims of the files that no server has taken yet are the demand; all else is the cluster.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

from dragoman.cli import output, source
from dragoman.errors import Invalid

if TYPE_CHECKING:
    from dragoman.plan.demand import PlannedDemand
    from dragoman.plan.report import Section
    from dragoman.schedule.units import SchedulingContext
    from dragoman.whatif.cluster import ClusterState
    from dragoman.whatif.units import Named

FORMATS = ("text", "json", "markdown")


class PlanInput(NamedTuple):
    """A settled cluster, what is planned for, how to decide, and the pods of the files in their order."""

    cluster: ClusterState
    wanted: tuple[tuple[str, Any], ...]
    context: SchedulingContext
    order: tuple[Named, ...]

    def demand(self) -> PlannedDemand:
        """All that is wanted as one. Raises Invalid without any."""
        from dragoman.plan.demand import demand_of

        return demand_of(self.wanted)


def arguments(parser: argparse.ArgumentParser) -> None:
    """-f, --live and the cluster, -o, and how to decide."""
    source.arguments(parser)
    parser.add_argument("--live", action="store_true", help="plan for the cluster of the kubeconfig; -f are manifests")
    formats(parser)
    parser.add_argument("--policy", choices=("first-fit", "pack"), default="first-fit", help="placement policy")
    parser.add_argument("--steps", type=int, default=2_000_000, help="step limit of one search; default: %(default)s")


def formats(parser: argparse.ArgumentParser) -> None:
    """-o."""
    parser.add_argument("-o", "--output", choices=FORMATS, default="text", help="default: text")


def read(args: argparse.Namespace) -> PlanInput:
    """What the flags say. Raises Invalid, NotFound, Denied, Retry."""
    from dragoman.allocate.allocator import AllocatorOptions, SearchLimits
    from dragoman.runtime.clock import Clock
    from dragoman.runtime.entropy import Entropy
    from dragoman.schedule.units import SchedulingContext
    from dragoman.snapshot.change import Put, apply_all
    from dragoman.whatif.cluster import bring, objects
    from dragoman.whatif.settle import settled

    if args.steps < 1:
        raise Invalid("--steps", f"must be 1 or more, got {args.steps}")
    is_live = args.live or args.kubeconfig or args.context
    if not args.filename and not is_live:
        raise Invalid("-f", "name a dump of the cluster (`dragoman record -o FILE` writes one), or use --live")
    gates = source.gates(args)
    files = source.from_files(args.filename, gates) if args.filename else None
    wanted: tuple[tuple[str, Any], ...] = ()
    order: tuple[Named, ...] = ()
    if files is not None:
        for refused in files.refused:
            document = refused.document
            raise Invalid(f"{document.file}, {document.subject}", refused.rejection.message)
        wanted, snapshot = _parted(files)
        order = files.order
    if is_live:
        seen = asyncio.run(source.from_cluster(args))
        own = [Put(kind, value) for kind, value in objects(snapshot)] if files is not None else []
        snapshot, order = apply_all(seen.snapshot, own), seen.order
    options = AllocatorOptions(gates=gates, policy=args.policy, limits=SearchLimits(args.steps))
    context = SchedulingContext(new_id=Entropy().uuid4, options=options)
    cluster = settled(bring(snapshot, Clock().utc(), known=not is_live))
    return PlanInput(cluster, wanted, context, order)


def _parted(files: source.ToolInput) -> tuple[tuple[tuple[str, Any], ...], Any]:
    """The demand of the files, and the snapshot without it."""
    from dragoman.plan.demand import COPIED
    from dragoman.snapshot.change import Gone, apply_all
    from dragoman.whatif.cluster import find

    wanted, gone = [], []
    for document in files.documents:
        kind, meta = document.kind_name, document.object.get("metadata") or {}
        if kind not in COPIED or document.value is None or meta.get("uid") or document.item is not None:
            continue
        namespace, name = document.namespace, document.name
        value = find(files.snapshot, kind, namespace, name)
        placed = value is not None and (
            (kind == "Pod" and (value.spec.node_name or value.status.phase not in ("", "Pending")))
            or (kind == "ResourceClaim" and value.status.allocation is not None)
        )
        if value is not None and not placed:
            wanted.append((kind, value))
            gone.append(Gone(kind, namespace, name))
    return tuple(wanted), apply_all(files.snapshot, gone)


def show(args: argparse.Namespace, kind: str, result: Any, sections: list[Section]) -> None:
    """The result in the format of -o."""
    from dragoman.plan import report

    if args.output == "json":
        output.write_json(output.versioned(kind, report.as_json(result)))
    elif args.output == "markdown":
        output.write(report.markdown(sections))
    else:
        for number, section in enumerate(sections):
            if number:
                output.write("")
            if section.title:
                output.write(section.title)
            output.prose(section.lines)
            if section.rows:
                output.write(output.rows(section.header, section.rows))
            if section.code:
                output.write(section.code.rstrip())


@contextmanager
def counting(what: str) -> Iterator[Callable[[int], None]]:
    """Gives what is to be called with how far it is; shown on a terminal only."""
    shown = False

    def reported(done: int) -> None:
        nonlocal shown
        if sys.stderr.isatty():
            shown = True
            print(f"\r{what}: {done}", end="", file=sys.stderr, flush=True)

    yield reported
    if shown:
        print("\r" + " " * (len(what) + 12) + "\r", end="", file=sys.stderr, flush=True)
