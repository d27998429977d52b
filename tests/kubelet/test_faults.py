"""ConfigMaps read as faults and as wishes for the clock."""

from __future__ import annotations

from pathlib import Path

import pytest

from dragoman.drivers.nic.entry import NicDown
from dragoman.drivers.nvidia.faults import GpuLostFault, MemoryOverrun, XidFault
from dragoman.drivers.registry import fault_kinds
from dragoman.errors import Invalid
from dragoman.kubelet.faults import (
    Advance,
    DriverStopped,
    Fault,
    NodeRebooted,
    SlowPrepare,
    Speed,
    clock_request_of,
    fault_of,
)

KINDS = fault_kinds()
READ: dict[str, tuple[dict[str, str], Fault]] = {
    "an XID": ({"fault": "xid", "node": "n", "gpu": "3", "xid": "79"}, XidFault("n", gpu="3", number=79)),
    "an XID of an instance, for a while": (
        {"fault": "xid", "node": "n", "gpu": "3", "xid": "94", "instance": "7", "for": "90s"},
        XidFault("n", 90.0, gpu="3", number=94, instance=7),
    ),
    "a lost GPU": ({"fault": "gpu-lost", "node": "n", "gpu": "gpu-3"}, GpuLostFault("n", gpu="gpu-3")),
    "memory": (
        {"fault": "memory-overrun", "node": "n", "gpu": "0", "pod": "train"},
        MemoryOverrun("n", gpu="0", pod="default/train"),
    ),
    "a link": ({"fault": "nic-down", "node": "n", "nic": "mlx5_0", "for": "1h"}, NicDown("n", 3600.0, nic="mlx5_0")),
    "all drivers": ({"fault": "driver-stopped", "node": "n"}, DriverStopped("n")),
    "one driver": ({"fault": "driver-stopped", "node": "n", "driver": "d"}, DriverStopped("n", driver="d")),
    "a reboot": ({"fault": "node-rebooted", "node": "n"}, NodeRebooted("n", downtime_s=10.0)),
    "a long reboot": ({"fault": "node-rebooted", "node": "n", "downtime": "5m"}, NodeRebooted("n", downtime_s=300.0)),
    "slowness": ({"fault": "slow-prepare", "node": "n", "delay": "1m"}, SlowPrepare("n", delay_s=60.0)),
    "blanks and empty entries": (
        {"fault": " slow-prepare ", "node": "n", "delay": " 1s\n", "driver": "", "for": ""},
        SlowPrepare("n", delay_s=1.0),
    ),
}


@pytest.mark.parametrize(("data", "expected"), READ.values(), ids=READ)
def test_reading(data: dict[str, str], expected: Fault) -> None:
    assert fault_of(data, KINDS) == expected


WRONG: dict[str, tuple[dict[str, str], str]] = {
    "nothing": ({}, "data.fault: must be set"),
    "no node": ({"fault": "xid"}, "data.node: must be set"),
    "no GPU": ({"fault": "xid", "node": "n", "xid": "1"}, "data.gpu: must be set"),
    "an XID of 0": (
        {"fault": "xid", "node": "n", "gpu": "0", "xid": "0"},
        "data.xid: must be a whole number from 1 to 999",
    ),
    "a negative time": ({"fault": "gpu-lost", "node": "n", "gpu": "0", "for": "-5"}, "data.for: must not be negative"),
    "no delay": ({"fault": "slow-prepare", "node": "n"}, "data.delay: must be set"),
    "an entry of another fault": ({"fault": "driver-stopped", "node": "n", "gpu": "0"}, "data.gpu: is not known here"),
    "what lasts no time": (
        {"fault": "node-rebooted", "node": "n", "for": "5m"},
        "data.for: node-rebooted happens once",
    ),
}


@pytest.mark.parametrize(("data", "said"), WRONG.values(), ids=WRONG)
def test_what_is_wrong_is_named(data: dict[str, str], said: str) -> None:
    with pytest.raises(Invalid) as caught:
        fault_of(data, KINDS)
    assert str(caught.value).startswith(said)


def test_requests_for_the_clock() -> None:
    assert clock_request_of({"advance": "1h30m"}) == Advance(5400.0)
    assert clock_request_of({"speed": "0.5"}) == Speed(0.5)
    for data in ({}, {"advance": "1m", "speed": "2"}, {"speed": "nan"}, {"speed": "fast"}, {"advance": "-1"}):
        with pytest.raises(Invalid):
            clock_request_of(data)


def test_the_reference_knows_every_fault() -> None:
    page = (Path(__file__).parents[2] / "docs" / "reference" / "faults.md").read_text()
    rows = {line.split("`")[1] for line in page.splitlines() if line.startswith("| `")}
    assert rows == {"fault", *KINDS}


@pytest.mark.parametrize("kind", KINDS)
def test_the_command_has_every_fault_and_its_entries_are_taken(kind: str) -> None:
    given = {"gpu": "0", "xid": "79", "instance": "1", "nic": "x", "driver": "d", "downtime": "1s", "delay": "1s"}
    given |= {"for": "5m", "pod": "p", "mode": "crash", "degrees": "96"}
    data = {"fault": kind, "node": "n", **{field.name: given[field.name] for field in KINDS[kind].fields}}
    assert fault_of(data, KINDS).node == "n"
    assert KINDS[kind].summary
    assert all(field.help and field.placeholder for field in KINDS[kind].fields)
