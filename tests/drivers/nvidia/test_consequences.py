"""Whom a fault hits is predicted, and then it happens so."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dragoman.drivers.nvidia.consequences import DeviceUser, holders, of_overrun, of_xid
from dragoman.drivers.nvidia.state import Done, UsedDevice

from .bench_of_gpus import Bench, opaque
from .cuda_clients import Clients

TOTAL_MIB = 1000


def mps(limit: str = "") -> dict[str, object]:
    settings = {"defaultPinnedDeviceMemoryLimit": limit} if limit else {}
    return {"sharing": {"strategy": "MPS", "mpsConfig": settings}}


SLICED = {"sharing": {"strategy": "TimeSlicing"}}


def used(name: str, gpu: str, gi: int | None = None, sharing: str = "") -> UsedDevice:
    return UsedDevice(name, "gpu" if gi is None else "mig", gpu, gi=gi, uuid=name, sharing=sharing)


# Claims of one machine: pods a alone on g0; b, c time-sliced on g1; d, e behind one MPS daemon on g2, f, g behind one
# with limits on g3; h and i on two instances of g4, j and k sharing a third.
CLAIMS = {
    "whole": Done((used("gpu-0", "g0"),)),
    "sliced": Done((used("gpu-1", "g1", sharing="TimeSlicing"),), configs={"gpu-1": SLICED}),
    "mps": Done((used("gpu-2", "g2", sharing="MPS"),), configs={"gpu-2": mps()}),
    "limited": Done((used("gpu-3", "g3", sharing="MPS"),), configs={"gpu-3": mps("100Mi")}),
    "mig-1": Done((used("mig-1", "g4", 1),)),
    "mig-2": Done((used("mig-2", "g4", 2),)),
    "mig-3": Done((used("mig-3", "g4", 3),)),
}
PODS = {
    "whole": ["a"],
    "sliced": ["b", "c"],
    "mps": ["d", "e"],
    "limited": ["f", "g"],
    "mig-1": ["h"],
    "mig-2": ["i"],
    "mig-3": ["j", "k"],
}
WHO = holders(CLAIMS, PODS)

XIDS = {
    "a GPU falls off the bus": (79, "g4", None, "", "hijk"),
    "the same while one instance is named": (79, "g4", 1, "", "hijk"),
    "a memory error in an instance": (48, "g4", 3, "", "jk"),
    "a memory error on a sliced GPU": (48, "g1", None, "", "bc"),
    "a page fault alone": (31, "g0", None, "a", "a"),
    "a page fault among time-slices": (31, "g1", None, "b", "b"),
    "a page fault behind MPS": (31, "g2", None, "d", "de"),
    "a page fault in an instance": (31, "g4", 1, "h", "h"),
    "a page fault by nobody known": (31, "g1", None, "", ""),
    "a contained memory error": (94, "g1", None, "c", "c"),
}


@pytest.mark.parametrize("case", XIDS)
def test_an_xid_hits_whom_the_mode_does_not_protect(case: str) -> None:
    number, gpu, gi, cause, expected = XIDS[case]
    assert "".join(hit.consumer for hit in of_xid(WHO, number, gpu, gi, cause)) == expected
    assert {context.client for context in machine(WHO).xid(number, gpu, gi, cause)} == set(expected)


OVERRUNS = {
    "alone": ("a", "gpu-0", "a"),
    "among time-slices": ("b", "gpu-1", "bc"),
    "behind MPS": ("d", "gpu-2", "de"),
    "behind MPS with limits": ("f", "gpu-3", "f"),
    "in an instance": ("h", "mig-1", "h"),
    "in a shared instance": ("k", "mig-3", "jk"),
    "on a device of others": ("a", "gpu-1", ""),
}


@pytest.mark.parametrize("case", OVERRUNS)
def test_a_memory_overrun_hits_whom_the_mode_does_not_protect(case: str) -> None:
    cause, device, expected = OVERRUNS[case]
    assert "".join(hit.consumer for hit in of_overrun(WHO, cause, device)) == expected
    if expected:
        assert {context.client for context in machine(WHO).overrun(cause, device)} == set(expected)


def machine(who: tuple[DeviceUser, ...]) -> Clients:
    """The clients that these holders run, each with some memory."""
    clients = Clients()
    for holder in who:
        context = clients.start(
            holder.consumer,
            holder.device,
            holder.gpu,
            holder.gi,
            TOTAL_MIB,
            daemon=holder.daemon,
            limit_mib=holder.limit_mib,
        )
        assert context.allocate(10)
    return clients


@st.composite
def worlds(draw: st.DrawFn) -> tuple[DeviceUser, ...]:
    """A machine: GPUs that are whole, sliced, behind MPS or cut up, with pods on them."""
    found: list[DeviceUser] = []
    for gpu in range(draw(st.integers(1, 3))):
        domains: list[int | None] = [None]
        if draw(st.booleans()):
            domains = list(range(draw(st.integers(1, 3))))
        for gi in domains:
            device = f"gpu-{gpu}-{gi}"
            strategy = draw(st.sampled_from(["", "sliced", "mps", "limited"]))
            daemon = f"claim-{device}" if strategy in ("mps", "limited") else ""
            pods = draw(st.integers(1, 1 if not strategy else 3))
            found += [
                DeviceUser(
                    f"p{gpu}{gi}{n}",
                    f"claim-{device}",
                    device,
                    f"g{gpu}",
                    gi,
                    daemon,
                    100 if strategy == "limited" else 0,
                )
                for n in range(pods)
            ]
    return tuple(found)


@settings(deadline=None)
@given(worlds(), st.data())
def test_the_prediction_of_an_xid_holds(who: tuple[DeviceUser, ...], data: st.DataObject) -> None:
    victim = data.draw(st.sampled_from(who))
    number = data.draw(st.sampled_from([13, 31, 48, 63, 79, 94, 95, 119]))
    gi = data.draw(st.sampled_from([victim.gi, None]))
    predicted = {(hit.consumer, hit.device) for hit in of_xid(who, number, victim.gpu, gi, victim.consumer)}
    happened = machine(who).xid(number, victim.gpu, gi, victim.consumer)
    assert {(context.client, context.device) for context in happened} == predicted


@settings(deadline=None)
@given(worlds(), st.data())
def test_the_prediction_of_an_overrun_holds(who: tuple[DeviceUser, ...], data: st.DataObject) -> None:
    greedy = data.draw(st.sampled_from(who))
    predicted = {(hit.consumer, hit.device) for hit in of_overrun(who, greedy.consumer, greedy.device)}
    happened = machine(who).overrun(greedy.consumer, greedy.device)
    assert {(context.client, context.device) for context in happened} == predicted


def test_what_is_held_is_known_from_what_is_prepared(tmp_path: Path) -> None:
    async def body() -> None:
        bench = Bench(tmp_path, "dgx-h100", "TimeSlicingSettings")
        entry = opaque("GpuConfig", sharing={"strategy": "TimeSlicing"})
        await bench.prepare("a", "gpu-1", config=(entry,))
        await bench.restart()
        gpu = bench.hardware.gpu_uuid(1)
        found = holders(bench.driver.claims, {"uid-a": ["one", "two"]})
        assert [(h.consumer, h.device, h.gpu) for h in found] == [("one", "gpu-1", gpu), ("two", "gpu-1", gpu)]

    asyncio.run(body())
