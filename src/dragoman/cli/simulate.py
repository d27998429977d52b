"""`dragoman simulate`: where would the pods of these files run, with which devices, or why not? No cluster needed."""

from __future__ import annotations

import argparse
import json

from dragoman.allocate.allocator import Limits, Options
from dragoman.cli import output, source
from dragoman.errors import Invalid
from dragoman.explain import verdict as say
from dragoman.runtime.clock import Clock
from dragoman.runtime.entropy import Entropy
from dragoman.schedule.units import Context
from dragoman.schedule.whatif import Verdict, expanded, settled, simulate, units

POLICIES = ("first-fit", "pack")
MOST_STEPS = 2_000_000


def arguments(parser: argparse.ArgumentParser) -> None:
    """Flags of simulate."""
    source.arguments(parser, live=False)
    parser.add_argument("-o", "--output", choices=["text", "json"], default="text")
    parser.add_argument("--policy", choices=POLICIES, default="first-fit", help="which of the devices that fit")
    parser.add_argument("--steps", type=int, default=MOST_STEPS, help="limit of one search; beyond it: not decided")


def run(args: argparse.Namespace) -> int:
    """Decide the unscheduled pods in file order; 1 if one of them has no place."""
    if not args.filename:
        raise Invalid("-f", "name the files to simulate; - reads standard input")
    options = Options(gates=source.gates(args), policy=args.policy, limits=Limits(args.steps))
    world = source.from_files(args.filename)
    snapshot = settled(expanded(world.snapshot))
    context = Context(new_id=Entropy().uuid4, options=options)
    verdicts = list(simulate(snapshot, units(snapshot, world.order), Clock().utc(), context))
    if args.output == "json":
        output.write(json.dumps({"pods": [say.as_json(verdict) for verdict in verdicts], "errors": []}, indent=2))
    else:
        _print(verdicts)
    return 0 if all(verdict.node for verdict in verdicts) else 1


def _print(verdicts: list[Verdict]) -> None:
    if not verdicts:
        output.say("no unscheduled pods in these files")
        return
    body = []
    for verdict in verdicts:
        place = verdict.node or ("not decided" if verdict.refused and verdict.refused.gave_up else "none")
        lines = say.devices(verdict) or [""]
        body.append((f"{verdict.pod[0]}/{verdict.pod[1]}", place, lines[0]))
        body += [("", "", line) for line in lines[1:]]
    output.write(output.rows(("POD", "NODE", "DEVICES"), body))
    for verdict in verdicts:
        if verdict.node is None:
            output.write(f"\n{verdict.pod[0]}/{verdict.pod[1]} has no place:")
            for line in say.why(verdict):
                output.write(f"  {line}")
