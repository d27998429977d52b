"""`dragoman explain`: why is it where it is, or pending, and what would help? Of files or a live cluster, read only.

    explain pod/NAME | claim/NAME | node/NAME | device/DRIVER/POOL/DEVICE     without: everything that waits

What to say is decided in `explain.about`. Imports stand in functions, so that --help is fast.
"""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

from dragoman.cli import connect, explain_watch, output, simulate, source
from dragoman.errors import Invalid

if TYPE_CHECKING:
    from dragoman.allocate.allocator import AllocatorOptions
    from dragoman.explain.about import ExplainInput
    from dragoman.schedule.units import PreemptionMode


def arguments(parser: argparse.ArgumentParser) -> None:
    """Flags of explain."""
    parser.add_argument(
        "object",
        nargs="*",
        default=[],
        help="pod/NAME, claim/NAME, node/NAME or device/DRIVER/POOL/DEVICE; default: everything pending",
    )
    source.arguments(parser)
    parser.add_argument("-o", "--output", choices=["text", "json"], default="text")
    simulate.deciding(parser)
    explain_watch.arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Print why; 1 if the object waits or is stuck."""
    if args.watch:
        return explain_watch.run(args)
    from dragoman.cli import diagnostic
    from dragoman.explain import about

    if len(args.object) > 2:
        raise Invalid(" ".join(args.object), "names more than one object; explain takes one, such as pod/NAME")
    kind, name = about.object_of("/".join(args.object))
    options = simulate.options_of(args)
    world = source.tool_input(args, options.gates)
    scene = _scene(world, options, args.preemption)
    namespace = args.namespace or ""
    if kind in ("pod", "claim") and not namespace and not args.filename:
        namespace = connect.namespace(args)
    found = about.about(scene, kind, name, namespace)
    if args.output == "json":
        errors = [refused.as_json() for refused in world.refused]
        warnings = [warning.as_json() for warning in world.warnings]
        output.write_json(output.versioned("Explanation", {**found.body, "errors": errors, "warnings": warnings}))
    else:
        diagnostic.show(world.diagnostics, sys.stdout)
        output.prose(found.lines)
    return 0 if found.well and not world.refused else 1


def _scene(world: source.ToolInput, options: AllocatorOptions, preemption: PreemptionMode) -> ExplainInput:
    from dragoman.explain.about import ExplainInput
    from dragoman.explain.state import events_of
    from dragoman.runtime.clock import Clock
    from dragoman.runtime.entropy import Entropy
    from dragoman.schedule.units import SchedulingContext
    from dragoman.whatif.cluster import bring
    from dragoman.whatif.settle import settled

    clock = Clock()
    context = SchedulingContext(new_id=Entropy().uuid4, options=options, preemption=preemption)
    cluster = settled(bring(world.snapshot, clock.utc(), known=True))
    events = events_of(world.events)
    return ExplainInput(world.snapshot, cluster, world.order, events, context, clock.monotonic, world.hidden)
