"""`dragoman web`: a read-only page of a cluster or its dump in the browser, on this machine alone.

Flags only and the reading of the cluster; the page is made in `dragoman.web`. Imports stand in functions, so that
--help is fast.
"""

from __future__ import annotations

import argparse
import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from dragoman.cli import connect, output, simulate, source
from dragoman.cli.versions import NEWEST

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from datetime import datetime

    from dragoman.allocate.allocator import AllocatorOptions
    from dragoman.cluster.http import HttpClient
    from dragoman.schedule.units import PreemptionMode
    from dragoman.web.actions import Actions
    from dragoman.web.server import PageSettings, WebPage
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
    return page_settings(simulate.options_of(args), args.preemption, args.port)


def page_settings(
    options: AllocatorOptions, preemption: PreemptionMode, port: int, minor: int = NEWEST
) -> PageSettings:
    """For decisions with these options."""
    from dragoman.drivers.registry import known_drivers
    from dragoman.runtime.entropy import Entropy
    from dragoman.schedule.units import SchedulingContext
    from dragoman.web.server import PageSettings

    context = SchedulingContext(new_id=Entropy().uuid4, options=options, preemption=preemption)
    return PageSettings(context, port, minor, options.gates, known_drivers(), source.applied)


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
    async with (
        connect.client(args) as client,
        page_of_cluster(client, args.namespace or client.access.namespace, settings) as page,
    ):
        say_address(page.access.address())
        await stop.wait()


@asynccontextmanager
async def page_of_cluster(
    client: HttpClient,
    own: str,
    settings: PageSettings,
    *,
    actions: Actions | None = None,
    now: Callable[[], datetime] | None = None,
) -> AsyncIterator[WebPage]:
    """A page that is kept up to date while the body runs: by watches, or by lists where only `own` may be seen."""
    from dragoman.api.kinds import kind_of
    from dragoman.cluster.watch import Informers
    from dragoman.runtime.clock import Clock
    from dragoman.runtime.entropy import Entropy
    from dragoman.runtime.metrics import Metrics
    from dragoman.runtime.tasks import Tasks
    from dragoman.snapshot.change import HELD
    from dragoman.web.server import serving
    from dragoman.web.state import PolledState, WatchedState, events_of

    clock, entropy, title = Clock(), Entropy(), client.access.server
    limited: list[str] = []

    async def read() -> tuple[PageState, tuple[dict[str, Any], ...]]:
        notes: list[str] = []
        world = await source.seen_through(client, own, notes.append, limited)
        return _state(world, 1, tuple(notes)), world.events

    first = await read()
    for note in first[0].notes:
        output.say(note)
    shown: WatchedState | PolledState
    async with Tasks("page", clock, entropy) as tasks:
        if limited:
            shown = PolledState(title, first, read, clock)
        else:
            informers = Informers(client, clock, entropy, Metrics())
            kinds = tuple(sorted(HELD - source.NOT_ASKED_FOR - first[0].hidden))
            event = kind_of("Event")
            shown = WatchedState(title, informers, kinds, lambda: events_of(client, event), clock, first[0])
            informers.start(tasks)
            await shown.synced()
        tasks.supervise("state", shown.run)
        async with serving(shown, settings, clock, entropy, actions=actions, say=output.say, now=now) as page:
            yield page
        tasks.stop()
