"""How is a page kept current where a cluster can only be listed? By lists; a server that is away is said on the page."""

from __future__ import annotations

import asyncio
from typing import Any

from dragoman.api.core import Node
from dragoman.api.meta import ObjectMeta
from dragoman.errors import Retry
from dragoman.runtime.clock import Clock
from dragoman.snapshot.change import Snapshot
from dragoman.web.state import PageState, PolledState, order_of

EVENT = {"metadata": {"name": "e"}, "reason": "Tested"}


def seen(*nodes: tuple[str, str]) -> tuple[PageState, tuple[dict[str, Any], ...]]:
    """A state with nodes of these names and resource versions."""
    objects = [("Node", Node(metadata=ObjectMeta(name=name, resource_version=version))) for name, version in nodes]
    snapshot = Snapshot.from_objects(objects)
    return PageState(1, snapshot, order_of(snapshot)), (EVENT,)


def test_only_what_differs_is_a_new_state_and_errors_are_said_until_they_are_over() -> None:
    answers: list[Any] = [seen(("a", "1")), Retry("no route to it"), Retry("no route to it"), seen(("a", "1"))]
    answers += [seen(("a", "2"), ("b", "1"))]

    async def read() -> tuple[PageState, tuple[dict[str, Any], ...]]:
        if not answers:
            await asyncio.get_running_loop().create_future()
        answer = answers.pop(0)
        if isinstance(answer, Retry):
            raise answer
        found: tuple[PageState, tuple[dict[str, Any], ...]] = answer
        return found

    async def run() -> list[tuple[int, int, str]]:
        polled = PolledState("server", seen(("a", "1")), read, Clock(speed=1000))
        states = [polled.current]
        async with asyncio.timeout(20), asyncio.TaskGroup() as tasks:
            running = tasks.create_task(polled.run())
            while len(states[-1].snapshot.nodes) < 2:
                states.append(await polled.after(states[-1].number))
            running.cancel()
        assert await polled.events() == (EVENT,)
        return [(state.number, len(state.snapshot.nodes), state.problem) for state in states]

    assert asyncio.run(run()) == [(1, 1, ""), (2, 1, "no route to it"), (3, 1, ""), (4, 2, "")]
