"""Time that can be run faster, moved on, or made by a loop."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from dragoman.runtime.clock import Clock


class Source:
    """A second hand that tests turn."""

    def __init__(self) -> None:
        self.seconds = 100.0

    def __call__(self) -> float:
        return self.seconds


def test_speed_scales_both_readings() -> None:
    source = Source()
    clock = Clock(speed=10, wall=source, steady=source)
    before, steady = clock.now(), clock.monotonic()
    source.seconds += 2
    assert clock.now() == before + 20
    assert clock.monotonic() == steady + 20
    clock.set_speed(1)
    source.seconds += 2
    assert clock.now() == before + 22
    clock.advance(300)
    assert clock.now() == before + 322


def test_sleepers_wake_in_order_when_time_is_moved_on() -> None:
    async def run() -> list[str]:
        clock = Clock()
        woken: list[str] = []

        async def sleeper(name: str, seconds: float) -> None:
            await clock.sleep(seconds)
            woken.append(name)

        async with asyncio.TaskGroup() as tasks:
            for name, seconds in {"late": 900.0, "early": 200.0, "until": 300.0}.items():
                tasks.create_task(sleeper(name, seconds))
            tasks.create_task(clock.wait_until(clock.now() + 1000))
            await asyncio.sleep(0)
            clock.advance(1001)
        return woken

    assert asyncio.run(run()) == ["early", "until", "late"]


def test_a_timeout_follows_the_clock() -> None:
    async def run() -> None:
        clock = Clock()

        async def body() -> None:
            async with clock.timeout(500):
                await asyncio.Event().wait()

        async with asyncio.TaskGroup() as tasks:
            task = tasks.create_task(body())
            await asyncio.sleep(0)
            assert not task.done()
            clock.advance(501)

    with pytest.raises(ExceptionGroup) as caught:
        asyncio.run(run())
    assert isinstance(caught.value.exceptions[0], TimeoutError)


def test_within_returns_the_result() -> None:
    async def answer() -> int:
        return 42

    async def run() -> int:
        clock = Clock()
        found = await clock.within(5, answer())
        assert not clock._timers
        return found

    assert asyncio.run(run()) == 42


def test_a_cancelled_timer_never_rings() -> None:
    async def run() -> list[str]:
        clock = Clock()
        rung: list[str] = []
        timer = clock.call_later(5, lambda: rung.append("cancelled"))
        clock.call_later(6, lambda: rung.append("kept"))
        timer.cancel()
        timer.cancel()
        clock.advance(10)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        return rung

    assert asyncio.run(run()) == ["kept"]


def test_virtual_time_takes_no_time() -> None:
    class Loop(asyncio.SelectorEventLoop):
        """Jumps to the next timer instead of waiting for it."""

        seconds = 0.0

        def time(self) -> float:
            return self.seconds

        def _run_once(self) -> None:
            scheduled: list[Any] = self._scheduled  # type: ignore[attr-defined]
            if not self._ready and scheduled:  # type: ignore[attr-defined]
                self.seconds = max(self.seconds, scheduled[0].when())
            super()._run_once()  # type: ignore[misc]

    async def run() -> float:
        clock = Clock.virtual(asyncio.get_running_loop(), epoch=1000.0)
        await clock.sleep(86_400)
        await clock.wait_until(1000.0 + 2 * 86_400)
        return clock.now()

    loop = Loop()
    try:
        assert loop.run_until_complete(run()) == pytest.approx(1000.0 + 2 * 86_400)
    finally:
        loop.close()


@pytest.mark.parametrize("speed", [0, -1])
def test_time_needs_a_direction(speed: float) -> None:
    with pytest.raises(ValueError, match="speed"):
        Clock(speed=speed)
    with pytest.raises(ValueError, match="back"):
        Clock().advance(-1)
