"""`dragoman web`: a read-only page of a cluster or its dump in the browser, on this machine alone.

Flags only and the reading of the cluster; the page is made in `dragoman.web`. Imports stand in functions, so that
--help is fast.
"""

from __future__ import annotations

import argparse
import asyncio
from typing import TYPE_CHECKING, Any

from dragoman.cli import connect, output, simulate, source

if TYPE_CHECKING:
    from dragoman.web.server import PageSettings
    from dragoman.web.state import PageState

PORT_HELP = "port of the page on 127.0.0.1; default: any free one"


def arguments(parser: argparse.ArgumentParser) -> None:
    """Flags of web."""
    source.arguments(parser)
    simulate.deciding(parser)
    parser.add_argument("--port", type=int, default=0, help=PORT_HELP)


def run(args: argparse.Namespace) -> int:
    """Serve until Ctrl-C."""
    from dragoman.cli import signals
    from dragoman.runtime import log

    log.setup(level="WARNING", format="human")
    settings = settings_of(args)
    if args.filename:
        world = source.from_files(args.filename, settings.gates)
        return signals.run(lambda stop: _of_files(args, world, settings, stop))
    return signals.run(lambda stop: _of_cluster(args, settings, stop))


def settings_of(args: argparse.Namespace) -> PageSettings:
    """What the flags say. Raises Invalid."""
    from dragoman.drivers.registry import known_drivers
    from dragoman.runtime.entropy import Entropy
    from dragoman.schedule.units import SchedulingContext
    from dragoman.web.server import PageSettings

    options = simulate.options_of(args)
    context = SchedulingContext(new_id=Entropy().uuid4, options=options, preemption=args.preemption)
    return PageSettings(context, args.port, gates=options.gates, known=known_drivers(), applied=source.applied)


def say_address(address: str) -> None:
    """The address, and what it is good for."""
    output.write(address)
    output.say("open it in a browser on this machine; it works once")


def _state(world: source.ToolInput, number: int, notes: tuple[str, ...]) -> PageState:
    from dragoman.web.state import PageState

    return PageState(number, world.snapshot, world.order, world.hidden, notes)


async def _of_files(
    args: argparse.Namespace, world: source.ToolInput, settings: PageSettings, stop: asyncio.Event
) -> None:
    from dragoman.runtime.clock import Clock
    from dragoman.runtime.entropy import Entropy
    from dragoman.web.server import serving
    from dragoman.web.state import FixedState

    notes = tuple(f"{entry.where}: {entry.message}" for entry in world.diagnostics)
    fixed = FixedState(", ".join(args.filename), _state(world, 1, notes), world.events)
    async with serving(fixed, settings, Clock(), Entropy(), say=output.say) as page:
        say_address(page.access.address())
        await stop.wait()


async def _of_cluster(args: argparse.Namespace, settings: PageSettings, stop: asyncio.Event) -> None:
    from dragoman.api.kinds import kind_of
    from dragoman.cluster.watch import Informers
    from dragoman.runtime.clock import Clock
    from dragoman.runtime.entropy import Entropy
    from dragoman.runtime.metrics import Metrics
    from dragoman.runtime.tasks import Tasks
    from dragoman.snapshot.change import HELD
    from dragoman.web.server import serving
    from dragoman.web.state import PolledState, WatchedState, events_of

    clock, entropy = Clock(), Entropy()
    notes: list[str] = []
    limited: list[str] = []
    async with connect.client(args) as client:
        own = args.namespace or client.access.namespace
        title = client.access.server

        async def read() -> tuple[PageState, tuple[dict[str, Any], ...]]:
            notes.clear()
            world = await source.seen_through(client, own, notes.append, limited)
            return _state(world, 1, tuple(notes)), world.events

        first = await read()
        for note in notes:
            output.say(note)
        shown: WatchedState | PolledState
        async with Tasks("page", clock, entropy) as tasks:
            if limited:
                shown = PolledState(title, first, read, clock)
            else:
                informers = Informers(client, clock, entropy, Metrics())
                kinds = tuple(sorted(HELD - source.NOT_ASKED_FOR - first[0].hidden))
                shown = WatchedState(
                    title, informers, kinds, lambda: events_of(client, kind_of("Event")), clock, first[0]
                )
                informers.start(tasks)
                await shown.synced()
            tasks.supervise("state", shown.run)
            async with serving(shown, settings, clock, entropy, say=output.say) as page:
                say_address(page.access.address())
                await stop.wait()
            tasks.stop()
