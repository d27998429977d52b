"""`dragoman simulate`: where would the pods of these files run, with which devices, or why not? No cluster needed.

The state can be changed first: --add-node, --remove-node, --taint, --delete, in this order. What happens then is asked
of `whatif`. Imports stand in functions, so that --help is fast.
"""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING, Any

from dragoman.cli import output, source
from dragoman.errors import Invalid

if TYPE_CHECKING:
    from dragoman.allocate.allocator import AllocatorOptions
    from dragoman.cli.changes import ChangedSnapshot
    from dragoman.explain.explanation import Explanation

POLICIES = ("first-fit", "pack")
MOST_STEPS = 2_000_000


def arguments(parser: argparse.ArgumentParser) -> None:
    """Flags of simulate."""
    source.arguments(parser, live=False)
    parser.add_argument("-o", "--output", choices=["text", "json"], default="text")
    deciding(parser)
    parser.add_argument(
        "--replay",
        action="store_true",
        help="decide again what the scheduler of these files decided, one pod at a time in its order, and compare",
    )
    _changes(parser)


def deciding(parser: argparse.ArgumentParser) -> None:
    """The flags of commands that decide."""
    parser.add_argument(
        "--policy",
        choices=POLICIES,
        default="first-fit",
        help="placement policy: first-fit as Kubernetes, or pack; default: first-fit",
    )
    preemption(parser, "nodes")
    strict(parser)
    parser.add_argument(
        "--steps",
        type=int,
        default=MOST_STEPS,
        help="step limit of one search, beyond which it is undecided; default: %(default)s",
    )


def strict(parser: argparse.ArgumentParser) -> None:
    """The flag that makes refusals of warnings."""
    parser.add_argument(
        "--strict",
        action="store_true",
        help="refuse devices that may be in use under a name that is no longer published; default: warn, as upstream "
        "allocates them",
    )


def preemption(parser: argparse.ArgumentParser, default: str) -> None:
    """The flags that say who makes room for whom. default: the mode without any of them."""
    parser.add_argument(
        "--preemption",
        choices=["off", "nodes", "devices"],
        default=default,
        help=f"evict pods of lower priority: on nodes as kube-scheduler does, or for devices too; default: {default}",
    )
    parser.add_argument(
        "--dra-preemption",
        action="store_const",
        const="devices",
        dest="preemption",
        help="short for --preemption devices",
    )


def options_of(args: argparse.Namespace) -> AllocatorOptions:
    """What --policy, --steps and --feature-gates say. Raises Invalid."""
    from dragoman.allocate.allocator import AllocatorOptions, SearchLimits

    if args.steps < 1:
        raise Invalid("--steps", f"must be 1 or more, got {args.steps}")
    return AllocatorOptions(
        gates=source.gates(args), policy=args.policy, limits=SearchLimits(args.steps), strict=args.strict
    )


def run(args: argparse.Namespace) -> int:
    """Decide the unscheduled pods in file order; 1 if one cannot be scheduled, would lose its node, or is refused."""
    from dragoman.cli import changes
    from dragoman.explain import quotas, schedulers
    from dragoman.explain import report as say
    from dragoman.inspect.schedulers import written_by
    from dragoman.runtime.clock import Clock
    from dragoman.runtime.entropy import Entropy
    from dragoman.schedule.units import SchedulingContext
    from dragoman.whatif.cluster import bring
    from dragoman.whatif.settle import settled

    if not args.filename:
        raise Invalid("-f", "name the files to simulate; - reads standard input")
    if args.replay:
        return _replay(args)
    context = SchedulingContext(new_id=Entropy().uuid4, options=options_of(args), preemption=args.preemption)
    world = _read(args, context)
    clock = Clock()
    cluster = settled(bring(world.snapshot, clock.utc(), known=True))
    changed = changes.changed(cluster, args)
    explanations = _explanations(changed, world.order, context, clock)
    blocked = quotas.blocks(changed.cluster)
    writers = written_by(world.leases, world.events)
    if args.output == "json":
        errors = [refused.as_json() for refused in world.refused]
        after = changed.cluster.snapshot
        pods = [say.as_json(one) | schedulers.as_json(after, one.verdict.pod, writers) for one in explanations]
        shared = schedulers.shared_json(after, writers)
        limited_by = {"sharedDrivers": shared} if shared else {}
        limited = {"quota": [quotas.as_json(block) for block in blocked]} if blocked else {}
        warnings = [warning.as_json() for warning in world.warnings]
        body = {"pods": pods, **changed.as_json(), **limited, **limited_by, "errors": errors, "warnings": warnings}
        output.write_json(output.versioned("Simulation", body))
    else:
        _print(explanations, changed, world, writers)
        output.prose([line for block in blocked for line in quotas.block_lines(block)])
    placed = all(explanation.verdict.node for explanation in explanations)
    return 0 if placed and not changed.displaced and not world.refused and not blocked else 1


def _replay(args: argparse.Namespace) -> int:
    """Compare decision by decision; 1 if one differs although scores do not tie."""
    from dragoman.explain import comparison
    from dragoman.runtime.clock import Clock
    from dragoman.runtime.entropy import Entropy
    from dragoman.schedule.units import SchedulingContext
    from dragoman.whatif.replay import bound_in_order, replay

    if args.add_node or args.remove_node or args.taint or args.delete:
        raise Invalid("--replay", "cannot be combined with changes: it uses the recorded state")
    context = SchedulingContext(new_id=Entropy().uuid4, options=options_of(args))
    world = source.from_files(args.filename, context.gates)
    pods, skipped = bound_in_order(world.snapshot, world.events)
    clock = Clock()
    tally = comparison.AgreementCounts()
    tally.skipped.update(skipped)
    began = clock.monotonic()
    for found in replay(world.snapshot, pods, context, clock.utc()):
        tally.add(found, clock.monotonic() - began)
        began = clock.monotonic()
    report = comparison.as_json(tally)
    if args.output == "json":
        output.write_json(output.versioned("Replay", report))
    else:
        output.prose(comparison.lines(report))
    return 0 if tally.agreeing == tally.total else 1


def _read(args: argparse.Namespace, context: Any) -> source.ToolInput:
    try:
        return source.from_files(args.filename, context.gates)
    except Invalid:
        if args.output == "json" and "-" not in args.filename:  # standard input cannot be read twice
            errors = source.errors_in(args.filename)
            output.write_json(output.versioned("Simulation", {"pods": [], "errors": errors}))
        raise


def _explanations(changed: ChangedSnapshot, order: tuple[Any, ...], context: Any, clock: Any) -> list[Explanation]:
    from dragoman.explain.explanation import explain_unit
    from dragoman.whatif.budget import Budget
    from dragoman.whatif.decide import run

    budget = Budget(clock.monotonic)
    explanations: dict[Any, Explanation] = {}
    for step in run(changed.cluster, (*order, *changed.order), context):
        brief = budget.is_brief(step)
        with budget.spent(step) as over:
            found = explain_unit(step, changed.cluster.now, context, over, brief=brief)
            explanations |= {explanation.verdict.pod: explanation for explanation in found}
    return list(explanations.values())


def _print(
    explanations: list[Explanation], changed: ChangedSnapshot, world: source.ToolInput, writers: dict[str, str]
) -> None:
    from dragoman.cli import diagnostic
    from dragoman.explain import report as say
    from dragoman.explain import schedulers

    output.prose(changed.lines())
    diagnostic.show(world.diagnostics, sys.stdout)
    if not explanations:
        output.say("no unscheduled pods in these files")
        return
    output.write(table(explanations))
    warned = [line for explanation in explanations for line in say.warning_lines(explanation)]
    snapshot = changed.cluster.snapshot
    warned += schedulers.lines(snapshot, (one.verdict.pod for one in explanations), writers)
    warned += schedulers.shared_lines(snapshot, writers)
    if warned:
        output.write("")
        output.prose(warned)
    for explanation in explanations:
        verdict = explanation.verdict
        if verdict.node is None:
            output.write("")
            output.prose([say.headline(explanation), *(f"  {line}" for line in say.reason_lines(explanation))])


def table(explanations: list[Explanation]) -> str:
    """Where each pod goes and what it gets."""
    from dragoman.explain import report as say

    body: list[tuple[Any, ...]] = []
    for explanation in explanations:
        verdict = explanation.verdict
        place = verdict.node or ("not decided" if verdict.undecided is not None else "none")
        lines = say.devices(verdict) or [""]
        body.append((f"{verdict.pod[0]}/{verdict.pod[1]}", place, lines[0]))
        body += [("", "", line) for line in lines[1:]]
    return output.rows(("POD", "NODE", "DEVICES"), body)


def _changes(parser: argparse.ArgumentParser) -> None:
    """What if the cluster were different (`changes`)."""
    group = parser.add_argument_group("changes to the state, before deciding")
    group.add_argument(
        "--add-node",
        action="append",
        default=[],
        metavar="FILE|'shape-of NODE'",
        help="add the Node and slices of a file, or one more node like NODE",
    )
    group.add_argument(
        "--remove-node",
        action="append",
        default=[],
        metavar="NODE",
        help="remove the node; its pods are scheduled again",
    )
    group.add_argument(
        "--taint",
        action="append",
        default=[],
        metavar="FILE|DRIVER/POOL/DEVICE=KEY:EFFECT",
        help="add a DeviceTaintRule and show which pods it evicts",
    )
    group.add_argument(
        "--delete", action="append", default=[], metavar="POD", help="delete the pod NAME or NAMESPACE/NAME"
    )
