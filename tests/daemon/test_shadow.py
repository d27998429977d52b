"""The shadow beside our own scheduler on the embedded API: it agrees, and it writes nothing."""

from __future__ import annotations

from typing import Any

from dragoman.api.kinds import kind_of
from dragoman.apiserver.bootstrap import bootstrap
from dragoman.apiserver.fields import fields_of
from dragoman.apiserver.inprocess import InProcessClient
from dragoman.apiserver.registry import Registry
from dragoman.apiserver.store import Store
from dragoman.daemon.scheduler import Scheduler, SchedulerSettings
from dragoman.daemon.shadow import Shadow, ShadowSettings
from dragoman.runtime.clock import Clock
from dragoman.runtime.entropy import Entropy
from dragoman.runtime.tasks import Tasks
from dragoman.testing.build import claim, device_class, gpus, node, pod
from dragoman.testing.loop import run
from dragoman.testing.wait import until


class ReadOnly:
    """A client without the calls that write."""

    def __init__(self, client: Any) -> None:
        self._client = client

    def __getattr__(self, name: str) -> Any:
        if name == "reach":  # no call: what the client knows of its connection
            raise AttributeError(name)
        assert name in ("get", "list", "watch", "pages", "access"), f"the shadow calls {name}"
        return getattr(self._client, name)


async def beside(clock: Clock, objects: list[dict[str, Any]], placements: int, refusals: int) -> Shadow:
    entropy = Entropy(3)
    registry = Registry(Store(fields_of), clock, entropy)
    bootstrap(registry)
    api = InProcessClient(registry)
    scheduler = Scheduler(api, clock, entropy, SchedulerSettings())
    reader: Any = ReadOnly(api)
    shadow = Shadow(reader, clock, entropy, ShadowSettings())
    async with Tasks("test", clock, entropy) as tasks:
        tasks.supervise("shadow", shadow.run)
        await until(lambda: shadow.ready)
        tasks.supervise("scheduler", scheduler.run)
        for made in objects:
            await api.create(kind_of(made["kind"]), made)
        await until(lambda: shadow.tally.total == placements, 120)
        await until(lambda: sum(shadow.tally.refusals.values()) == refusals, 120)
        tasks.stop()
    return shadow


def test_it_agrees_with_the_same_scheduler_and_writes_nothing() -> None:
    objects = [device_class(), *(node(name, cpu="8", memory="8Gi") for name in ("a", "b")), gpus("a", 3), gpus("b", 3)]
    for number in range(7):
        objects += [claim(f"c{number}"), pod(f"p{number}", f"c{number}", cpu=f"{number + 1}00m")]

    shadow = run(lambda clock: beside(clock, objects, 6, 1))
    assert shadow.tally.agreeing == 6
    assert (shadow.tally.claims, shadow.tally.claims_same) == (6, 6)
    assert dict(shadow.tally.refusals) == {"refused here too": 1}
