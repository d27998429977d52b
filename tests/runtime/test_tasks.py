"""Supervised loops and queues of keys."""

from __future__ import annotations

import asyncio

import pytest

from dragoman.errors import Retry
from dragoman.runtime import log
from dragoman.runtime.clock import Clock
from dragoman.runtime.entropy import SUFFIX_ALPHABET, Entropy
from dragoman.runtime.retry import Backoff, ItemBackoff, retried
from dragoman.runtime.tasks import KeyQueue, Tasks, work
from dragoman.testing.wait import until

QUICK = Backoff(initial_s=0.0)


def test_a_supervised_loop_starts_again_until_it_returns() -> None:
    tries: list[int] = []

    async def flaky() -> None:
        tries.append(1)
        if len(tries) < 4:
            raise [RuntimeError("bug"), Retry("later"), KeyError("x")][len(tries) - 1]

    async def run() -> None:
        async with Tasks("test", Clock(), Entropy(1)) as tasks:
            tasks.supervise("flaky", flaky, QUICK)

    asyncio.run(run())
    assert len(tries) == 4


def test_stop_ends_all_tasks_of_the_group() -> None:
    async def run() -> None:
        async with Tasks("test", Clock(), Entropy(1)) as tasks:
            tasks.start("for ever", asyncio.Event().wait())
            tasks.supervise("for ever too", lambda: Clock().sleep(1e6))
            await asyncio.sleep(0)
            tasks.stop()

    asyncio.run(run())


def test_a_key_is_worked_on_once_at_a_time_and_again_when_added_meanwhile() -> None:
    async def run() -> list[str]:
        clock = Clock()
        queue: KeyQueue[str] = KeyQueue("test", clock)
        seen: list[str] = []
        gate = asyncio.Event()

        async def step(key: str) -> None:
            seen.append(f"+{key}")
            await gate.wait()
            seen.append(f"-{key}")

        async with Tasks("test", clock, Entropy(1)) as tasks:
            for number in range(3):
                tasks.start(f"worker {number}", work(queue, step, log.get("test")))
            queue.add("a")
            queue.add("a")
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            queue.add("a")
            assert len(queue) == 1
            gate.set()
            await until(lambda: not len(queue))
            tasks.stop()
        return seen

    assert asyncio.run(run()) == ["+a", "-a", "+a", "-a"]


def test_a_failed_key_comes_back_after_its_backoff() -> None:
    async def run() -> int:
        clock = Clock()
        queue: KeyQueue[str] = KeyQueue("test", clock, Backoff(initial_s=50, max_s=1000))
        tries = 0
        ok = asyncio.Event()

        async def step(key: str) -> None:
            nonlocal tries
            tries += 1
            if tries < 3:
                raise Retry("not yet")
            ok.set()

        async with Tasks("test", clock, Entropy(1)) as tasks:
            tasks.start("worker", work(queue, step, log.get("test")))
            queue.add("a")
            await until(lambda: tries >= 1 and queue.delayed == 1)
            clock.advance(51)
            await until(lambda: tries >= 2 and queue.delayed == 1)
            clock.advance(51)
            for _ in range(10):
                await asyncio.sleep(0)
            assert tries == 2  # the second wait is longer
            clock.advance(50)
            await ok.wait()
            tasks.stop()
        assert queue.backoff.failures("a") in (0, 2)
        return tries

    assert asyncio.run(run()) == 3


def test_the_earliest_of_several_delays_counts() -> None:
    async def run() -> None:
        clock = Clock()
        queue: KeyQueue[str] = KeyQueue("test", clock)
        queue.add_after("a", 100)
        queue.add_after("a", 10)
        queue.add_after("a", 1000)
        assert queue.delayed == 1
        clock.advance(11)
        assert await asyncio.wait_for(queue.take(), 5) == "a"
        queue.close()

    asyncio.run(run())


def test_retried_waits_as_long_as_asked_and_gives_up() -> None:
    async def run() -> None:
        clock = Clock()
        calls = 0

        async def call() -> str:
            nonlocal calls
            calls += 1
            raise Retry("busy", after_s=0)

        with pytest.raises(Retry):
            await retried(call, clock=clock, entropy=Entropy(1), backoff=QUICK, attempts=3)
        assert calls == 3

    asyncio.run(run())


def test_backoff_grows_to_its_ceiling() -> None:
    backoff = Backoff(initial_s=1, factor=2, max_s=10)
    assert [backoff.wait_s(n) for n in (1, 2, 3, 4, 5, 10_000)] == [1, 2, 4, 8, 10, 10]
    items = ItemBackoff(backoff)
    assert [items.failed("a"), items.failed("a"), items.failed("b")] == [1, 2, 1]
    items.forget("a")
    assert items.failed("a") == 1


def test_a_seed_repeats_every_draw() -> None:
    def draws(entropy: Entropy) -> list[object]:
        return [entropy.uuid4(), entropy.suffix(), entropy.token(), entropy.jitter(1.0), entropy.fork().suffix(9)]

    assert draws(Entropy(7)) == draws(Entropy(7))
    assert draws(Entropy(7)) != draws(Entropy(8))
    assert Entropy().uuid4() != Entropy().uuid4()
    assert set(Entropy().suffix(500)) <= set(SUFFIX_ALPHABET)


def test_a_key_whose_work_takes_long_rests_and_sees_all_changes_at_once() -> None:
    async def run() -> list[str]:
        clock = Clock()
        queue: KeyQueue[str] = KeyQueue("test", clock)
        seen: list[str] = []

        async def step(key: str) -> None:
            seen.append(key)
            if len(seen) == 1:
                clock.advance(0.4)

        async with Tasks("test", clock, Entropy(1)) as tasks:
            tasks.start("worker", work(queue, step, log.get("test")))
            queue.add("large")
            await until(lambda: len(seen) == 1 and "large" not in queue._working)
            for _ in range(5):
                queue.add("large")
                await asyncio.sleep(0)
            queue.add("small")
            await until(lambda: len(seen) == 2)
            assert len(queue) >= 1
            clock.advance(0.7)
            for _ in range(10):
                await asyncio.sleep(0)
            assert seen == ["large", "small"]
            clock.advance(0.2)
            await until(lambda: len(queue) == 0)
            tasks.stop()
        queue.close()
        return seen

    assert asyncio.run(run()) == ["large", "small", "large"]


def test_a_loop_that_breaks_while_it_is_cancelled_ends_all_the_same() -> None:
    async def run() -> int:
        runs = 0

        async def stubborn() -> None:
            try:
                await asyncio.Event().wait()
            finally:
                raise RuntimeError("broke while ending")

        async def inner() -> None:
            nonlocal runs
            runs += 1
            async with asyncio.TaskGroup() as group:
                group.create_task(stubborn())

        async with Tasks("test", Clock(), Entropy(1)) as tasks:
            tasks.supervise("inner", inner, QUICK)
            await until(lambda: runs == 1)
            await asyncio.sleep(0)
            tasks.stop()
        return runs

    assert asyncio.run(asyncio.wait_for(run(), 10)) == 1
