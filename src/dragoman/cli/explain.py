"""`dragoman explain`: why is it where it is, or pending, and what would help? Of files or a live cluster, read only.

    explain pod/NAME | claim/NAME | node/NAME | device/DRIVER/POOL/DEVICE     without: everything that waits
    explain KIND/NAME of a custom kind: does anything reconcile it?

What to say is decided in `explain.about`. Imports stand in functions, so that --help is fast.
"""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING, Any

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
        help="pod/NAME, claim/NAME, node/NAME, device/DRIVER/POOL/DEVICE, or KIND/NAME of a custom kind (does anything "
        "reconcile it?); default: everything pending",
    )
    source.arguments(parser)
    parser.add_argument("-o", "--output", choices=["text", "json"], default="text")
    simulate.deciding(parser)
    explain_watch.arguments(parser)
    parser.add_argument(
        "--shadow",
        metavar="URL|FILE",
        help="report of `dragoman scheduler --shadow`: the URL that it prints when it starts, or a file with its JSON",
    )


def run(args: argparse.Namespace) -> int:
    """Print why; 1 if the object waits or is stuck."""
    if args.watch:
        return explain_watch.run(args)
    if args.shadow:
        return _shadow(args)
    from dragoman.cli import diagnostic
    from dragoman.explain import about

    if len(args.object) > 2:
        raise Invalid(" ".join(args.object), "names more than one object; explain takes one, such as pod/NAME")
    word = "/".join(args.object)
    try:
        kind, name = about.object_of(word)
    except Invalid as unknown:
        if args.filename:
            raise
        from dragoman.cli import explain_custom  # with files only it is not needed

        return explain_custom.run(args, word, unknown)
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


def _shadow(args: argparse.Namespace) -> int:
    """Print the comparison with another scheduler; 1 if decisions differ although scores do not tie."""
    from dragoman.explain import comparison

    if args.object or args.filename:
        raise Invalid("--shadow", "shows the whole report: it cannot be combined with -f or an object")
    report = _report(args.shadow)
    if args.output == "json":
        output.write_json(report)
    else:
        output.prose(comparison.lines(report))
    return 0 if report["agreeing"] == report["placements"] else 1


def _report(place: str) -> dict[str, Any]:
    import json
    import urllib.error
    import urllib.request
    from pathlib import Path

    from dragoman.errors import NotFound

    try:
        if place.startswith(("http://", "https://")):
            url = place if place.endswith("/shadow") else f"{place.rstrip('/')}/shadow"
            with urllib.request.urlopen(url, timeout=10) as answer:  # noqa: S310
                text = answer.read().decode()
        else:
            text = Path(place).read_text(encoding="utf-8")
    except (OSError, urllib.error.URLError) as error:
        raise NotFound(
            f"{place}: no report found ({getattr(error, 'reason', None) or error}): "
            "is `dragoman scheduler --shadow` running?"
        ) from None
    try:
        report: dict[str, Any] = json.loads(text)
    except ValueError as error:
        raise Invalid(place, f"must be JSON: {error}") from None
    if not isinstance(report, dict) or report.get("kind") not in ("ShadowReport", "Replay"):
        raise Invalid(place, "is no report of `dragoman scheduler --shadow` or `simulate --replay -o json`")
    return report


def _scene(world: source.ToolInput, options: AllocatorOptions, preemption: PreemptionMode) -> ExplainInput:
    from dragoman.explain.about import ExplainInput
    from dragoman.explain.state import events_of
    from dragoman.inspect.schedulers import written_by
    from dragoman.runtime.clock import Clock
    from dragoman.runtime.entropy import Entropy
    from dragoman.schedule.units import SchedulingContext
    from dragoman.whatif.cluster import bring
    from dragoman.whatif.settle import settled

    clock = Clock()
    context = SchedulingContext(new_id=Entropy().uuid4, options=options, preemption=preemption)
    cluster = settled(bring(world.snapshot, clock.utc(), known=True))
    events = events_of(world.events)
    writers = written_by(world.leases, world.events, None if world.documents else clock.utc())
    return ExplainInput(world.snapshot, cluster, world.order, events, context, clock.monotonic, world.hidden, writers)
