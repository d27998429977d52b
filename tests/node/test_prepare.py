"""Prepare and unprepare: never two claims on a device, never half a state after a crash, no late calls."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dragoman.errors import Invalid, Retry, Stale
from dragoman.node import cdi
from dragoman.node.checkpoint import PrepareState
from dragoman.node.driver import ClaimToPrepare, DeviceSetup, NotYet, PreparedClaim, Setup
from dragoman.node.prepare import STEPS, PrepareStep
from tests.node.bench_of_lamps import Bench, Crash, Lamps, lamps_claim, ref


async def crash_everywhere(folder: Path, operation: str) -> int:
    """Let the operation die at its 1st, 2nd, ... step; the number of steps it has."""
    at = 0
    while True:
        at += 1
        bench = Bench(folder / f"{operation}-{at}")
        bench.folder.mkdir()
        if operation == "unprepare":
            await bench.preparer.prepare(ref("a"), lamps_claim("a", "lamp-0", "lamp-1"))
        bench.fuse.arm(at)
        try:
            if operation == "prepare":
                await bench.preparer.prepare(ref("a"), lamps_claim("a", "lamp-0", "lamp-1"))
            else:
                await bench.preparer.unprepare(ref("a"))
            burnt = False
        except Crash:
            burnt = True
        bench.fuse.arm(0)
        await bench.restart()
        states = {record.state for record in bench.preparer.checkpoint.claims.values()}
        assert states <= {PrepareState.READY}, "recovery leaves nothing in between"
        prepared = set(bench.preparer.checkpoint.claims)
        assert set(bench.lamps.lit.values()) == prepared, "what is on is what is known"
        assert bench.specs() == prepared
        if operation == "prepare":
            # Without prepared state another claim may have the lamp, with it not.
            if prepared:
                with pytest.raises(Retry, match=r"lamp-1 is still prepared for claim default/a \(uid-a\)"):
                    await bench.preparer.prepare(ref("b"), lamps_claim("b", "lamp-1"))
            devices = await bench.preparer.prepare(ref("a"), lamps_claim("a", "lamp-0", "lamp-1"))
            assert [device.device for device in devices] == ["lamp-0", "lamp-1"]
            assert bench.lamps.lit == {"lamp-0": "uid-a", "lamp-1": "uid-a"}
        await bench.preparer.unprepare(ref("a"))
        assert bench.lamps.lit == {}
        assert bench.specs() == set()
        await bench.preparer.prepare(ref("b"), lamps_claim("b", "lamp-1"))
        assert not bench.lamps.double
        if not burnt:
            return at - 1


@pytest.mark.parametrize("operation", ["prepare", "unprepare"])
def test_a_crash_at_any_step_resumes_or_rolls_back(operation: str, tmp_path: Path) -> None:
    steps = asyncio.run(crash_everywhere(tmp_path, operation))
    # Checkpoints before and after, hardware and CDI in between.
    assert steps >= 7


Moves = st.lists(
    st.tuples(
        st.sampled_from(["prepare", "unprepare", "crash", "reboot"]),
        st.sampled_from(["a", "b", "c"]),
        st.integers(0, 12),
    ),
    max_size=30,
)
WANTS = {"a": ("lamp-0", "lamp-1"), "b": ("lamp-1",), "c": ("lamp-2",)}


@pytest.mark.slow
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(moves=Moves)
def test_no_order_of_calls_and_crashes_lights_a_lamp_twice(
    moves: list[tuple[str, str, int]], tmp_path_factory: Any
) -> None:
    async def play() -> None:
        bench = Bench(tmp_path_factory.mktemp("bench"))
        for consumers, (move, name, at) in enumerate(moves):
            bench.fuse.arm(at)
            try:
                match move:
                    case "prepare":
                        wanted = lamps_claim(name, *WANTS[name], pods=(f"pod-{consumers}",))
                        await bench.preparer.prepare(ref(name), wanted)
                    case "unprepare":
                        await bench.preparer.unprepare(ref(name))
                    case "reboot":
                        bench.reboot()
                        await bench.restart()
                    case "crash":
                        raise Crash
            except Retry:
                pass
            except Crash:
                bench.fuse.arm(0)
                await bench.restart()
            assert not bench.lamps.double
            for record in bench.preparer.checkpoint.claims.values():
                assert record.state is PrepareState.READY
                assert all(bench.lamps.lit[held.device] == record.uid for held in record.held)
            assert set(bench.lamps.lit.values()) == set(bench.preparer.checkpoint.claims)
            assert bench.specs() == set(bench.preparer.checkpoint.claims)

    asyncio.run(play())


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def test_prepare_twice_answers_the_same_and_touches_nothing(bench: Bench) -> None:
    async def main() -> None:
        first = await bench.preparer.prepare(ref("a"), lamps_claim("a", "lamp-0"))
        bench.lamps.lit.clear()
        assert await bench.preparer.prepare(ref("a"), lamps_claim("a", "lamp-0")) == first
        assert bench.lamps.lit == {}
        assert first[0].cdi_ids == ("k8s.lamp.example.com/claim=uid-a-lamp-0",)
        assert first[0].requests == ("r0",)

    asyncio.run(main())


def test_a_lost_cdi_file_is_written_again(bench: Bench) -> None:
    async def main() -> None:
        await bench.preparer.prepare(ref("a"), lamps_claim("a", "lamp-0"))
        path = cdi.claim_path(bench.folder / "cdi", Lamps.name, "uid-a")
        before = path.read_bytes()
        path.unlink()
        await bench.preparer.prepare(ref("a"), lamps_claim("a", "lamp-0"))
        assert path.read_bytes() == before
        path.unlink()
        orphan = cdi.claim_path(bench.folder / "cdi", Lamps.name, "uid-x")
        orphan.write_bytes(before)
        await bench.restart()
        assert path.read_bytes() == before
        assert not orphan.exists()

    asyncio.run(main())


def test_unprepare_of_an_unknown_claim_is_success(bench: Bench) -> None:
    assert asyncio.run(bench.preparer.unprepare(ref("never"))) is None


LATE = {
    "the same pods as before: late": (("p",), ("p",), True),
    "nobody any more: late": (("p",), (), True),
    "another pod: allowed": (("p",), ("q",), False),
    "one of two pods left: allowed": (("p", "q"), ("q",), False),
    "one pod more: allowed": (("p",), ("p", "q"), False),
}


@pytest.mark.parametrize(("before", "after", "late"), LATE.values(), ids=LATE)
def test_late_prepare_after_unprepare(
    bench: Bench, before: tuple[str, ...], after: tuple[str, ...], late: bool
) -> None:
    async def main() -> None:
        await bench.preparer.prepare(ref("a"), lamps_claim("a", "lamp-0", pods=before))
        await bench.preparer.unprepare(ref("a"))
        await bench.restart()  # it is remembered over a restart
        again = lamps_claim("a", "lamp-0", pods=after)
        if late:
            with pytest.raises(Stale, match=r"default/a \(uid-a\) was unprepared"):
                await bench.preparer.prepare(ref("a"), again)
            assert bench.lamps.lit == {}
        else:
            assert await bench.preparer.prepare(ref("a"), again)

    asyncio.run(main())


def test_a_group_may_come_again(bench: Bench) -> None:
    """The reservation of a pod group stays while its pods come and go."""

    async def main() -> None:
        grouped = lamps_claim("a", "lamp-0")
        group = msgspec.structs.replace(
            grouped.status.reserved_for[0], resource="podgroups", api_group="scheduling.k8s.io", uid="g"
        )
        grouped = msgspec.structs.replace(
            grouped, status=msgspec.structs.replace(grouped.status, reserved_for=(group,))
        )
        await bench.preparer.prepare(ref("a"), grouped)
        await bench.preparer.unprepare(ref("a"))
        assert await bench.preparer.prepare(ref("a"), grouped)

    asyncio.run(main())


CONFLICTS: dict[str, tuple[dict[str, Any], dict[str, Any], bool]] = {
    "one device": ({}, {}, True),
    "two shares": ({"shareID": "s1"}, {"shareID": "s2"}, False),
    "one share": ({"shareID": "s1"}, {"shareID": "s1"}, True),
    "a share and the whole": ({"shareID": "s1"}, {}, True),
    "admin access beside": ({}, {"adminAccess": True}, False),
    "admin access first": ({"adminAccess": True}, {}, False),
}


@pytest.mark.parametrize(("first", "second", "conflict"), CONFLICTS.values(), ids=CONFLICTS)
def test_who_may_share(bench: Bench, first: dict[str, Any], second: dict[str, Any], conflict: bool) -> None:
    async def main() -> None:
        bench.lamps.prepare = _dark  # type: ignore[method-assign]
        await bench.preparer.prepare(ref("a"), lamps_claim("a", "lamp-0", **first))
        if conflict:
            with pytest.raises(Retry, match=r"p/lamp-0 is still prepared for claim default/a \(uid-a\)"):
                await bench.preparer.prepare(ref("b"), lamps_claim("b", "lamp-0", **second))
        else:
            await bench.preparer.prepare(ref("b"), lamps_claim("b", "lamp-0", **second))

    asyncio.run(main())


async def _dark(work: ClaimToPrepare) -> Setup:
    return Setup([DeviceSetup(r.pool, r.device) for r in work.results])


def test_a_claim_of_the_same_name_is_another_claim(bench: Bench) -> None:
    async def main() -> None:
        await bench.preparer.prepare(ref("a", "uid-1"), lamps_claim("a", "lamp-0", uid="uid-1"))
        with pytest.raises(Retry, match="uid-1"):
            await bench.preparer.prepare(ref("a", "uid-2"), lamps_claim("a", "lamp-0", uid="uid-2"))

    asyncio.run(main())


def test_a_new_allocation_of_a_prepared_claim_waits_for_the_unprepare(bench: Bench) -> None:
    async def main() -> None:
        await bench.preparer.prepare(ref("a"), lamps_claim("a", "lamp-0"))
        moved = lamps_claim("a", "lamp-1", pods=("other",))
        with pytest.raises(Retry, match="was allocated again and must be unprepared first"):
            await bench.preparer.prepare(ref("a"), moved)
        await bench.preparer.unprepare(ref("a"))
        devices = await bench.preparer.prepare(ref("a"), moved)
        assert [device.device for device in devices] == ["lamp-1"]

    asyncio.run(main())


def test_results_of_other_drivers_are_not_ours(bench: Bench) -> None:
    async def main() -> None:
        devices = await bench.preparer.prepare(ref("a"), lamps_claim("a", "other.example.com:lamp-0", "lamp-1"))
        assert [device.device for device in devices] == ["lamp-1"]
        assert bench.lamps.lit == {"lamp-1": "uid-a"}

    asyncio.run(main())


def test_a_device_that_was_not_given_is_refused_and_rolled_back(bench: Bench) -> None:
    async def wrong(work: ClaimToPrepare) -> Setup:
        return Setup([DeviceSetup("p", "lamp-9")])

    async def main() -> None:
        bench.lamps.prepare = wrong  # type: ignore[method-assign]
        with pytest.raises(Invalid, match="prepared p/lamp-9, which claim default/a was not given"):
            await bench.preparer.prepare(ref("a"), lamps_claim("a", "lamp-0"))
        assert bench.preparer.checkpoint.claims == {}

    asyncio.run(main())


def test_a_roll_back_that_fails_keeps_the_device_held(bench: Bench) -> None:
    """Until the sweep gets it done, nobody else may have the device."""

    async def broken(*work: Any) -> Setup:
        raise Retry("no power")

    async def main() -> None:
        healthy = bench.lamps.prepare, bench.lamps.unprepare
        bench.lamps.prepare = bench.lamps.unprepare = broken  # type: ignore[method-assign, assignment]
        with pytest.raises(Retry, match="no power"):
            await bench.preparer.prepare(ref("a"), lamps_claim("a", "lamp-0"))
        with pytest.raises(Retry, match="still prepared for claim default/a"):
            await bench.preparer.prepare(ref("b"), lamps_claim("b", "lamp-0"))
        bench.lamps.prepare, bench.lamps.unprepare = healthy  # type: ignore[method-assign]
        (left,) = bench.preparer.unfinished()
        assert left.state is PrepareState.ROLLBACK
        await bench.preparer.finish(left)
        assert await bench.preparer.prepare(ref("b"), lamps_claim("b", "lamp-0"))
        # A roll back is no unprepare: the claim itself may come again.
        await bench.preparer.unprepare(ref("b"))
        assert await bench.preparer.prepare(ref("a"), lamps_claim("a", "lamp-0"))

    asyncio.run(main())


def test_remembered_state_survives_and_reaches_unprepare(bench: Bench) -> None:
    async def main() -> None:
        bench.fuse.arm(5)  # after the first lamp is on
        with pytest.raises(Crash):
            await bench.preparer.prepare(ref("a"), lamps_claim("a", "lamp-0", "lamp-1"))
        bench.fuse.arm(0)
        seen: list[Any] = []

        async def look(work: Any) -> None:
            seen.append((work.state, work.complete))
            bench.lamps.lit.clear()

        bench.lamps.unprepare = look  # type: ignore[method-assign]
        await bench.restart()
        assert seen == [({"on": ["lamp-0"]}, False)]

    asyncio.run(main())


def test_plain_functions_are_drivers_too(bench: Bench) -> None:
    """Blocking hardware code runs in a thread."""
    threads = []

    def prepare(work: ClaimToPrepare) -> Setup:
        threads.append(threading.current_thread())
        work.remember({"by": "thread"})
        return Setup([DeviceSetup(r.pool, r.device) for r in work.results])

    async def main() -> None:
        bench.lamps.prepare = prepare  # type: ignore[method-assign, assignment]
        await bench.preparer.prepare(ref("a"), lamps_claim("a", "lamp-0"))
        assert threads[0] is not threading.main_thread()
        assert bench.preparer.checkpoint.claims["uid-a"].driver_state == {"by": "thread"}

    asyncio.run(main())


def test_every_state_has_a_way_out() -> None:
    for state in PrepareState:
        assert any(source is state for source, _ in STEPS)
        assert any(target is state for target in STEPS.values())
    assert {target for (_, step), target in STEPS.items() if step is PrepareStep.UNDONE} == {None}


def test_a_driver_that_waits_is_asked_again_and_what_it_did_stays(bench: Bench) -> None:
    calls: list[str] = []

    async def prepare(work: ClaimToPrepare) -> Setup:
        calls.append("prepare")
        work.remember({"asked": calls.count("prepare")})
        if calls.count("prepare") < 3:
            raise NotYet("the other one is not ready", lasting=True)
        return Setup([DeviceSetup(r.pool, r.device) for r in work.results])

    async def unprepare(work: PreparedClaim) -> None:
        calls.append("unprepare")

    async def main() -> None:
        bench.lamps.prepare = prepare  # type: ignore[method-assign]
        bench.lamps.unprepare = unprepare  # type: ignore[method-assign]
        claim, preparer = lamps_claim("a", "lamp-0"), bench.preparer
        for _ in range(2):
            with pytest.raises(NotYet):
                await preparer.prepare(ref("a"), claim)
        record = preparer.checkpoint.claims["uid-a"]
        assert (record.state, record.waiting) == (PrepareState.STARTED, True)
        assert preparer.unfinished() == []
        with pytest.raises(Retry, match="still prepared for claim"):
            await preparer.prepare(ref("b"), lamps_claim("b", "lamp-0"))
        await preparer.prepare(ref("a"), claim)
        assert preparer.checkpoint.claims["uid-a"].state is PrepareState.READY
        assert calls == ["prepare"] * 3

    asyncio.run(main())


def test_who_is_unprepared_while_its_driver_waits_is_aborted_for_a_while(bench: Bench) -> None:
    async def prepare(work: ClaimToPrepare) -> Setup:
        raise NotYet("not yet", lasting=True)

    now = [1000.0]

    async def main() -> None:
        bench.lamps.prepare = prepare  # type: ignore[method-assign]
        claim, preparer = lamps_claim("a", "lamp-0"), bench.preparer
        preparer.now = lambda: now[0]
        with pytest.raises(NotYet):
            await preparer.prepare(ref("a"), claim)
        await preparer.unprepare(ref("a"))
        assert preparer.checkpoint.claims["uid-a"].state is PrepareState.ABORTED
        assert await preparer.unprepare(ref("a")) is None
        with pytest.raises(Stale, match="already aborted"):
            await preparer.prepare(ref("a"), claim)
        now[0] += 91
        preparer.forget_aborted()
        assert "uid-a" not in preparer.checkpoint.claims
        with pytest.raises(Stale, match="was unprepared"):
            await preparer.prepare(ref("a"), claim)

    asyncio.run(main())
