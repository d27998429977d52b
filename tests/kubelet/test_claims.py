"""The kubelet's state of claims: its file, and calls that are made, shared, batched or skipped."""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from dragoman.api import codec
from dragoman.api.shape import Object
from dragoman.errors import Invalid, NotFound, Retry
from dragoman.kubelet.claims import Claims
from dragoman.kubelet.connections import Connection
from dragoman.kubelet.pod import KubeletPod
from dragoman.kubelet.state import ClaimState, ClaimStates, DriverState, PreparedDeviceState
from dragoman.node.driver import ClaimRef, DeviceHealth, PreparedDevice

# As a kubelet of 1.37 writes it.
DATA = (
    '{"kind":"DRACheckpoint","apiVersion":"checkpoint.dra.kubelet.k8s.io/v1","ClaimInfoStateList":[{"ClaimUID":"u1",'
    '"ClaimName":"one","Namespace":"ns","PodUIDs":{"p1":{}},"DriverState":{"d.example.com":{"Devices":[{"PoolName":"n1",'
    '"DeviceName":"gpu-0","ShareID":null,"RequestNames":["r"],"CDIDeviceIDs":["v/c=gpu-0"]}]},'
    '"none.example.com":{"Devices":null}}}]}'
)


def test_the_file_is_the_kubelets_own(tmp_path: Path) -> None:
    path = tmp_path / "dra_manager_state"
    path.write_bytes(msgspec.json.encode({"Data": DATA, "Checksum": zlib.crc32(DATA.encode())}))
    states = ClaimStates(path)
    states.load()
    (claim,) = states.claims.values()
    assert claim.ref == ClaimRef("ns", "one", "u1")
    assert claim.driver_state["d.example.com"].devices == [
        PreparedDeviceState("n1", "gpu-0", None, ["r"], ["v/c=gpu-0"])
    ]
    assert claim.driver_state["none.example.com"].devices is None
    assert not states.prepared, "what was prepared before is prepared again"
    states.save()
    written = msgspec.json.decode(path.read_bytes())
    assert written == {"Data": DATA, "Checksum": zlib.crc32(DATA.encode())}


@pytest.mark.parametrize(
    ("content", "words"),
    {
        "wrong sum": ({"Data": DATA, "Checksum": 1}, "the checksum does not match"),
        "other kind": ({"Data": '{"kind":"X","apiVersion":"v1"}', "Checksum": None}, "is a X of v1"),
        "no data": ({"Checksum": 1}, "is not a DRA checkpoint"),
    }.values(),
)
def test_a_file_that_cannot_be_trusted_is_refused(tmp_path: Path, content: Any, words: str) -> None:
    if content["Checksum"] is None:
        content["Checksum"] = zlib.crc32(content["Data"].encode())
    path = tmp_path / "dra_manager_state"
    path.write_bytes(msgspec.json.encode(content))
    with pytest.raises(Invalid) as error:
        ClaimStates(path).load()
    assert words in str(error.value)
    assert "drain the node and remove the file" in str(error.value)


class OneNamespace:
    """A server that has these claims and nothing else."""

    def __init__(self, *claims: Object) -> None:
        self.claims = {claim["metadata"]["name"]: claim for claim in claims}

    async def get(self, kind: Any, name: str, namespace: str = "") -> Object:
        if name not in self.claims:
            raise NotFound(f'resourceclaims "{name}" not found')
        return self.claims[name]


class Line:
    """A connection whose other end answers with one device for each claim."""

    endpoint = "here"
    connected = True
    offers_health = False

    def __init__(self, driver: str) -> None:
        self.driver = driver
        self.calls: list[tuple[str, tuple[str, ...]]] = []
        self.fails = ""
        self.called = asyncio.Event()
        self.gate: asyncio.Event | None = None

    async def prepare(self, claims: Sequence[ClaimRef]) -> Any:
        self.calls.append(("prepare", tuple(claim.name for claim in claims)))
        self.called.set()
        if self.gate:
            await self.gate.wait()
        return {c.uid: self.fails or (PreparedDevice(("r",), "n1", "x", (f"v/c={c.name}",)),) for c in claims}

    async def unprepare(self, claims: Sequence[ClaimRef]) -> Any:
        self.calls.append(("unprepare", tuple(claim.name for claim in claims)))
        return {c.uid: self.fails for c in claims}

    async def health(self) -> AsyncIterator[tuple[DeviceHealth, ...]]:
        return
        yield ()

    async def watch(self, changed: Callable[[], None]) -> None:
        """Never changes."""

    async def close(self) -> None:
        """Nothing."""


def claim(name: str, *drivers: str, skip: tuple[str, ...] = (), pods: Sequence[str] = ("p1", "p2")) -> Object:
    results = [
        {"request": "r", "driver": d, "pool": "n1", "device": "x", "skipNodeOperations": list(skip)} for d in drivers
    ]
    reserved = [{"resource": "pods", "name": pod, "uid": pod} for pod in pods]
    return {
        "metadata": {"namespace": "ns", "name": name, "uid": f"u-{name}"},
        "status": {"allocation": {"devices": {"results": results}}, "reservedFor": reserved},
    }


def pod(uid: str, *claims: str) -> KubeletPod:
    entries = [{"name": f"e{n}", "resourceClaimName": c} for n, c in enumerate(claims)]
    return codec.decode(
        KubeletPod, {"metadata": {"namespace": "ns", "name": uid, "uid": uid}, "spec": {"resourceClaims": entries}}
    )


class World:
    def __init__(self, folder: Path, *claims: Object, drivers: Sequence[str] = ("a", "b")) -> None:
        self.path = folder / "dra_manager_state"
        self.states = ClaimStates(self.path, durable=False)
        self.lines = {name: Line(name) for name in drivers}
        self.api = OneNamespace(*claims)
        self.claims = self.process()

    def process(self) -> Claims:
        self.states = ClaimStates(self.path, durable=False)
        self.states.load()
        found: Callable[[str], Connection | None] = lambda driver: self.lines.get(driver)  # noqa: E731
        self.claims = Claims(self.api, self.states, found)  # type: ignore[arg-type]
        return self.claims


def test_one_call_for_each_driver_with_all_its_claims(tmp_path: Path) -> None:
    async def main() -> None:
        world = World(tmp_path, claim("one", "a", "b"), claim("two", "b"))
        await world.claims.prepare(pod("p1", "one", "two"))
        assert world.lines["a"].calls == [("prepare", ("one",))]
        assert world.lines["b"].calls == [("prepare", ("one", "two"))]
        await world.claims.prepare(pod("p1", "one", "two"))
        await world.claims.prepare(pod("p2", "one"))
        assert len(world.lines["b"].calls) == 1, "prepared is prepared"
        await world.claims.unprepare("p1")
        assert world.lines["a"].calls == [("prepare", ("one",))]
        assert world.lines["b"].calls[1:] == [("unprepare", ("two",))]
        await world.claims.unprepare("p1")
        assert len(world.lines["b"].calls) == 2, "a second call gives nothing of others back"
        await world.claims.unprepare("p2")
        assert world.states.claims == {}

    asyncio.run(main())


def test_a_claim_named_twice_is_one(tmp_path: Path) -> None:
    world = World(tmp_path, claim("one", "a"))
    asyncio.run(world.claims.prepare(pod("p1", "one", "one")))
    assert world.lines["a"].calls == [("prepare", ("one",))]


def test_after_a_restart_it_is_prepared_again(tmp_path: Path) -> None:
    async def main() -> None:
        world = World(tmp_path, claim("one", "a"))
        await world.claims.prepare(pod("p1", "one"))
        again = world.process()
        assert again.devices("ns", "one", "r")
        await again.prepare(pod("p1", "one"))
        assert world.lines["a"].calls == [("prepare", ("one",))] * 2
        (state,) = world.states.claims.values()
        assert len(state.driver_state["a"].devices or ()) == 1, "answers replace, they do not pile up"

    asyncio.run(main())


def test_evidence_is_on_disk_before_the_call(tmp_path: Path) -> None:
    async def main() -> None:
        world = World(tmp_path, claim("one", "a"))
        world.lines["a"].gate = asyncio.Event()
        task = asyncio.ensure_future(world.claims.prepare(pod("p1", "one")))
        await world.lines["a"].called.wait()
        task.cancel()
        again = world.process()
        assert again.states.of_pod("p1"), "the pod is known to hold it"
        await again.unprepare("p1")
        assert world.lines["a"].calls[-1] == ("unprepare", ("one",))

    asyncio.run(main())


def test_unprepare_and_the_next_prepare_do_not_overlap(tmp_path: Path) -> None:
    async def main() -> None:
        world = World(tmp_path, claim("one", "a"))
        await world.claims.prepare(pod("p1", "one"))
        world.lines["a"].fails = "busy"
        with pytest.raises(Retry, match="NodeUnprepareResources failed for ResourceClaim one: busy"):
            await world.claims.unprepare("p1")
        world.lines["a"].fails = ""
        await world.claims.prepare(pod("p2", "one"))
        assert [call for call, _ in world.lines["a"].calls] == ["prepare", "unprepare", "prepare"], "half undone: again"

    asyncio.run(main())


SKIPS: dict[str, tuple[tuple[str, ...], list[str]]] = {
    "nothing": ((), ["prepare", "unprepare"]),
    "all": (("*",), []),
    "unprepare": (("NodeUnprepareResources",), ["prepare"]),
    "both": (("NodePrepareResources", "NodeUnprepareResources"), []),
    "unknown words": (("NodeJuggle",), ["prepare", "unprepare"]),
}


@pytest.mark.parametrize(("skip", "calls"), SKIPS.values(), ids=SKIPS)
def test_operations_to_skip_call_nobody(tmp_path: Path, skip: tuple[str, ...], calls: list[str]) -> None:
    """KEP-5945: a driver that wants no calls need not even be registered; the wish is kept over a restart."""

    async def main() -> None:
        world = World(tmp_path, claim("one", "a", skip=skip), drivers=["a"] if calls else [])
        await world.claims.prepare(pod("p1", "one"))
        await world.process().unprepare("p1")
        assert [call for line in world.lines.values() for call, _ in line.calls] == calls
        assert world.states.claims == {}

    asyncio.run(main())


def test_mixed_requests_are_calls(tmp_path: Path) -> None:
    mixed = claim("one", "a", skip=("*",))
    plain = {"request": "r", "driver": "a", "pool": "n1", "device": "x"}
    mixed["status"]["allocation"]["devices"]["results"].append(plain)
    world = World(tmp_path, mixed)
    asyncio.run(world.claims.prepare(pod("p1", "one")))
    assert world.lines["a"].calls == [("prepare", ("one",))]


REFUSED: dict[str, tuple[Object, str]] = {
    "not reserved": (
        claim("one", "a", pods=["other"]),
        r"pod p1 \(p1\) is not allowed to use ResourceClaim one \(u-one\)",
    ),
    "unknown driver": (claim("one", "nobody"), "DRA driver nobody is not registered"),
    "another claim": (claim("two", "a"), "fetch ResourceClaim one: "),
}


@pytest.mark.parametrize(("found", "words"), REFUSED.values(), ids=REFUSED)
def test_what_is_refused_leaves_no_trace(tmp_path: Path, found: Object, words: str) -> None:
    world = World(tmp_path, found)
    with pytest.raises(Retry, match=words):
        asyncio.run(world.claims.prepare(pod("p1", "one")))
    assert world.states.claims == {}
    assert not world.path.exists()


def test_group_reservations_count_for_members(tmp_path: Path) -> None:
    grouped = claim("one", "a", pods=[])
    grouped["status"]["reservedFor"] = [
        {"apiGroup": "scheduling.k8s.io", "resource": "podgroups", "name": "gang", "uid": "g"}
    ]
    member = codec.decode(
        KubeletPod,
        {
            "metadata": {"namespace": "ns", "name": "p1", "uid": "p1"},
            "spec": {
                "schedulingGroup": {"podGroupName": "gang"},
                "resourceClaims": [{"name": "e", "resourceClaimName": "one"}],
            },
        },
    )
    world = World(tmp_path, grouped)
    asyncio.run(world.claims.prepare(member))
    assert world.states.claims
    with pytest.raises(Retry, match="is not allowed"):
        asyncio.run(World(tmp_path / "x", grouped).claims.prepare(pod("p2", "one")))


def test_devices_follow_the_requests(tmp_path: Path) -> None:
    world = World(tmp_path)
    parts = {
        "a": DriverState(
            [PreparedDeviceState("p", "1", None, ["r"], []), PreparedDeviceState("p", "2", None, ["s"], [])]
        ),
        "b": DriverState([PreparedDeviceState("p", "3", None, [], [])]),
        "c": DriverState(None),
    }
    world.states.claims["ns", "one"] = ClaimState("u", "one", "ns", {"p1": {}}, parts)

    def names(request: str) -> list[str]:
        return [device.device for _, device in world.claims.devices("ns", "one", request)]

    assert names("") == ["1", "2", "3"]
    assert names("r") == ["1", "3"], "a device without request names is everybody's"
    assert names("t") == ["3"]
    with pytest.raises(NotFound, match="unable to get claim info for ResourceClaim two in namespace ns"):
        world.claims.devices("ns", "two", "")
    assert world.claims.pods_with("a", "p", "2") == {"p1"}
    assert world.claims.pods_with("a", "p", "9") == set()
