"""The plugin around a driver: socket names and limits, what it refuses to prepare, metadata files, device status."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest

from dragoman.api.kinds import kind_of
from dragoman.api.meta import Condition
from dragoman.api.resource import DeviceAttribute, NetworkDeviceData
from dragoman.errors import DragomanError, Invalid, NotFound, Stale
from dragoman.node import metadata
from dragoman.node.cdi import read
from dragoman.node.driver import (
    ClaimRef,
    ClaimToPrepare,
    DeviceMetadata,
    DeviceSetup,
    DeviceStatus,
    NotYet,
    Pool,
    PreparedClaim,
    PreparedDevice,
    Setup,
    device,
)
from dragoman.node.plugin import Places, Plugin, PluginOptions, registration_socket
from dragoman.runtime.clock import Clock
from dragoman.testing.loop import run
from dragoman.testing.wait import until
from tests.kubelet.fakes import Lamps
from tests.kubelet.stage import CLAIM, Stage, stage


def in_virtual_time(scenario: Any) -> None:
    async def main(clock: Clock) -> None:
        async with stage(clock) as world:
            await world.client.create(kind_of("Node"), {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"}})
            await scenario(world)

    run(main)


def ref(claim: Any) -> ClaimRef:
    return ClaimRef(claim["metadata"]["namespace"], claim["metadata"]["name"], claim["metadata"]["uid"])


def contents(path: Path) -> Any:
    return metadata.read(path.read_bytes())


def inode_of(path: Path) -> int:
    return path.stat().st_ino


def exists(path: Path) -> bool:
    return path.exists()


def test_socket_names_give_way_to_hashes_when_they_are_too_long() -> None:
    uid = "6a1b2c3d-0000-1111-2222-333344445555"
    short = registration_socket(Path("/r"), "gpu.example.com", uid)
    assert short.name == f"gpu.example.com-{uid}-reg.sock"
    folder = Path("/" + "f" * 60)
    middle = registration_socket(folder, "gpu.example.com", uid)
    assert len(str(middle)) <= 107
    assert middle.name.startswith("gpu.example.com-")
    assert middle != short
    long = registration_socket(Path("/" + "f" * 64), "a-very-long-driver-name.example.com", uid)
    assert len(str(long)) <= 107
    assert long.name.startswith("dra-")
    assert long.name.endswith("-reg.sock")
    with pytest.raises(Invalid, match="at most 107 bytes"):
        registration_socket(Path("/" + "f" * 90), "gpu.example.com", uid)
    assert registration_socket(Path("/r"), "gpu.example.com").name == "gpu.example.com-reg.sock"


def test_a_folder_too_deep_for_sockets_is_refused_before_anything_is_served() -> None:
    async def scenario(world: Stage) -> None:
        places = Places.under(world.folder / ("d" * 100), "lamp.example.com", world.folder / "cdi")
        plugin = Plugin(
            Lamps(),
            world.client,
            world.clock,
            world.entropy,
            node_name="n1",
            places=places,
            options=PluginOptions(boot_id="b"),
        )
        with pytest.raises(Invalid, match="use a shorter folder"):
            await plugin.run()
        assert not plugin.is_running

    in_virtual_time(scenario)


def test_what_is_in_the_way_of_a_socket_stays() -> None:
    async def scenario(world: Stage) -> None:
        plugin = world.plugin(driver=Lamps())
        plugin.dra_socket.parent.mkdir(parents=True)
        plugin.dra_socket.write_text("precious")
        with pytest.raises(Invalid, match="is in the way of a socket"):
            await plugin.run()
        assert plugin.dra_socket.read_text() == "precious"

    in_virtual_time(scenario)


def test_claims_are_checked_against_the_api() -> None:
    async def scenario(world: Stage) -> None:
        plugin = await world.run_plugin(world.plugin(driver=Lamps(), sockets=False))
        good = ref(await world.claim("good", "lamp-1", driver="lamp.example.com"))
        bare = await world.new_claim("bare", "r")
        missing, replaced = ClaimRef("default", "missing", "u"), ClaimRef("default", "good", "other")
        answers = await plugin.prepare_claims([missing, replaced, ref(bare), good])
        assert list(answers) == ["u", "other", ref(bare).uid, good.uid]
        assert isinstance(answers["u"], NotFound)
        assert str(answers["u"]).startswith("retrieve claim default/missing: ")
        assert str(answers["other"]) == "claim default/good got replaced"
        assert str(answers[ref(bare).uid]) == "claim default/bare not allocated"
        assert isinstance(answers[good.uid], tuple), "one bad claim does not hold up another"

    in_virtual_time(scenario)


def test_a_prepare_that_waited_behind_the_unprepare_is_late() -> None:
    """The call read its claim before, and gets its turn after: what it read no longer counts."""

    async def scenario(world: Stage) -> None:
        lamps = Lamps()
        plugin = await world.run_plugin(world.plugin(driver=lamps, sockets=False))
        claim = ref(await world.claim("one", "lamp-1", driver="lamp.example.com"))
        await plugin.prepare_claims([claim])
        lamps.calls.clear()
        held = plugin._exclusive()
        async with held:
            late = asyncio.ensure_future(plugin.prepare_claims([claim]))
            await world.clock.sleep(1)
            await plugin.preparer.unprepare(claim)
            await world.release("one")
        answer = (await late)[claim.uid]
        assert isinstance(answer, Stale)
        assert lamps.lit == {}
        assert lamps.calls == [("unprepare", "one")]

    in_virtual_time(scenario)


def test_a_bug_in_the_driver_reaches_the_kubelet_as_text() -> None:
    class Broken(Lamps):
        async def prepare(self, claim: ClaimToPrepare) -> Setup:
            raise KeyError("gpu")

    async def scenario(world: Stage) -> None:
        plugin = await world.run_plugin(world.plugin(driver=Broken(), sockets=False))
        claim = ref(await world.claim("one", "lamp-1", driver="lamp.example.com"))
        answer = (await plugin.prepare_claims([claim]))[claim.uid]
        assert isinstance(answer, DragomanError)
        assert str(answer) == "KeyError: 'gpu'"
        assert plugin.checkpoint.claims == {}

    in_virtual_time(scenario)


class Warming(Lamps):
    """lamp-1 becomes ready by itself, at a time."""

    ready_at = 0.0

    def __init__(self, clock: Clock) -> None:
        super().__init__()
        self.clock = clock

    async def prepare(self, claim: ClaimToPrepare) -> Setup:
        if any(result.device == "lamp-1" for result in claim.results) and self.clock.monotonic() < self.ready_at:
            raise NotYet("lamp-1 warms up", after_s=2.0)
        return await super().prepare(claim)


def test_a_claim_that_goes_on_by_itself_holds_up_no_other_and_is_not_undone() -> None:
    async def scenario(world: Stage) -> None:
        lamps = Warming(world.clock)
        plugin = await world.run_plugin(world.plugin(driver=lamps, sockets=False))
        slow = ref(await world.claim("slow", "lamp-1", driver="lamp.example.com"))
        fast = ref(await world.claim("fast", "lamp-2", driver="lamp.example.com"))
        began = world.clock.monotonic()
        lamps.ready_at = began + 90
        waiting = asyncio.ensure_future(plugin.prepare_claims([slow]))
        await world.clock.sleep(1)
        answer = (await plugin.prepare_claims([fast]))[fast.uid]
        assert isinstance(answer, tuple)
        assert world.clock.monotonic() - began < 2, "the other claim did not wait"
        assert isinstance((await waiting)[slow.uid], NotYet)
        assert 30 < world.clock.monotonic() - began < 45, "the kubelet gets its answer in time"
        await world.clock.sleep(70)  # past the sweep
        assert ("unprepare", "slow") not in lamps.calls
        answer = (await plugin.prepare_claims([slow]))[slow.uid]
        assert isinstance(answer, tuple)

    in_virtual_time(scenario)


def test_a_claim_that_goes_on_by_itself_can_be_given_up() -> None:
    async def scenario(world: Stage) -> None:
        lamps = Warming(world.clock)
        lamps.ready_at = world.clock.monotonic() + 10
        plugin = await world.run_plugin(world.plugin(driver=lamps, sockets=False))
        claim = ref(await world.claim("slow", "lamp-1", driver="lamp.example.com"))
        waiting = asyncio.ensure_future(plugin.prepare_claims([claim]))
        await world.clock.sleep(3)
        assert (await plugin.unprepare_claims([claim]))[claim.uid] is None
        assert isinstance((await waiting)[claim.uid], Stale)
        assert plugin.checkpoint.claims == {}
        assert lamps.lit == {}

    in_virtual_time(scenario)


def test_device_status_is_written_for_our_devices_only() -> None:
    async def scenario(world: Stage) -> None:
        plugin = world.plugin(driver=Lamps(), sockets=False)
        claim = ref(await world.claim("one", "lamp-1", "lamp-2", driver="lamp.example.com"))
        when = "2026-01-01T00:00:00Z"
        ready = Condition("Ready", "True", "Lit", "shines", when)
        network = NetworkDeviceData("eth7", ("10.0.0.7/24",), "aa:bb:cc:dd:ee:ff")
        status = DeviceStatus("n1", "lamp-1", conditions=(ready,), data={"watts": 40}, network_data=network)
        await plugin.report_status(claim, [status])
        found = (await world.client.get(CLAIM, "one", "default"))["status"]["devices"]
        assert [(d["driver"], d["pool"], d["device"]) for d in found] == [("lamp.example.com", "n1", "lamp-1")]
        assert found[0]["data"] == {"watts": 40}
        assert found[0]["networkData"]["interfaceName"] == "eth7"
        assert found[0]["conditions"][0]["reason"] == "Lit"
        other = DeviceStatus("n1", "lamp-2", data={"watts": 60})
        await plugin.report_status(claim, [other])
        found = (await world.client.get(CLAIM, "one", "default"))["status"]["devices"]
        assert [d["device"] for d in found] == ["lamp-2"], "the list given is the whole list"

    in_virtual_time(scenario)


class Ports(Lamps):
    """Ports with metadata."""

    name = "port.example.com"

    async def pools(self) -> Mapping[str, Pool]:
        return {"n1": Pool(tuple(device(f"port-{n}", {"speed": 100, "rail": f"r{n}"}) for n in range(3)))}

    async def prepare(self, claim: ClaimToPrepare) -> Setup:
        network = NetworkDeviceData("eth0")
        return Setup([DeviceSetup(r.pool, r.device, network_data=network) for r in claim.results])

    async def unprepare(self, claim: PreparedClaim) -> None:
        pass


def test_metadata_files_live_as_long_as_the_claim() -> None:
    async def scenario(world: Stage) -> None:
        plugin = await world.run_plugin(world.plugin(driver=Ports(), sockets=False, metadata=True))
        made = await world.claim("net", "left/port-0", "left/port-1", "right/port-2", driver="port.example.com")
        annotated = {"metadata": {"annotations": {"resource.kubernetes.io/pod-claim-name": "ports"}}}
        made = await world.client.patch(CLAIM, "net", annotated, "default")
        claim = ref(made)
        answer = (await plugin.prepare_claims([claim]))[claim.uid]
        assert isinstance(answer, tuple)
        extra = [[i for i in d.cdi_ids if "/metadata=" in i] for d in answer]
        assert extra == [
            [f"port.example.com/metadata={claim.uid}_left"],
            [],
            [f"port.example.com/metadata={claim.uid}_right"],
        ]
        spec = read(world.folder / "n1" / "cdi" / f"port.example.com_metadata_{claim.uid}_left.json")
        (mount,) = spec.devices[0].container_edits.mounts
        assert mount.container_path == (
            "/var/run/kubernetes.io/dra-device-attributes/resourceclaimtemplates/ports/left/port.example.com-metadata.json"
        )
        host = Path(mount.host_path)
        assert host == plugin.places.data_dir / "dra-device-metadata" / "default_net" / "left" / "metadata.json"
        found = contents(host)
        assert found["metadata"] == {"name": "net", "namespace": "default", "uid": claim.uid, "generation": 1}
        assert found["podClaimName"] == "ports"
        assert found["requests"] == [
            {
                "name": "left",
                "devices": [
                    {
                        "driver": "port.example.com",
                        "pool": "n1",
                        "name": name,
                        "attributes": {"rail": {"string": rail}, "speed": {"int": 100}},
                        "networkData": {"interfaceName": "eth0"},
                    }
                    for name, rail in (("port-0", "r0"), ("port-1", "r1"))
                ],
            }
        ]
        inode = inode_of(host)
        later = DeviceMetadata("left", "n1", "port-0", {"speed": DeviceAttribute(int_=400)})
        await plugin.update_metadata(claim, "left", [later])
        found = contents(host)
        assert (found["metadata"]["generation"], found["podClaimName"]) == (2, "ports")
        assert inode_of(host) == inode, "the bind mount keeps working"
        with pytest.raises(NotFound, match="request 'none'"):
            await plugin.update_metadata(claim, "none", [later])
        # Asked again, the file keeps what it says by now.
        assert (await plugin.prepare_claims([claim]))[claim.uid] == answer
        assert contents(host)["metadata"]["generation"] == 2
        assert await plugin.unprepare_claims([claim]) == {claim.uid: None}
        assert not exists(host.parent.parent)
        assert list((world.folder / "n1" / "cdi").iterdir()) == []

    in_virtual_time(scenario)


def test_readers_take_the_first_version_they_know() -> None:
    known = {"apiVersion": metadata.API_VERSION, "kind": "DeviceMetadata", "requests": []}
    stream = msgspec.json.encode({"apiVersion": "metadata.resource.k8s.io/v9"}) + b"\n" + msgspec.json.encode(known)
    assert metadata.read(stream) == known
    with pytest.raises(Invalid, match="no compatible metadata version found in stream"):
        metadata.read(b'{"apiVersion":"x/v9"}\n')


def test_ids_go_to_the_first_device_of_each_request() -> None:
    devices = (PreparedDevice(("a", "b"), "p", "1"), PreparedDevice(("b",), "p", "2"), PreparedDevice(("c",), "p", "3"))
    done = metadata.with_ids(devices, {"a": "A", "b": "B", "c": "C"})
    assert [d.cdi_ids for d in done] == [("A", "B"), (), ("C",)]


def test_republish_shows_what_changed() -> None:
    async def scenario(world: Stage) -> None:
        lamps = Lamps(count=1)
        plugin = await world.run_plugin(world.plugin(driver=lamps, sockets=False))
        lamps.count = 3
        plugin.republish()

        async def three() -> bool:
            return [len(s["spec"]["devices"]) for s in await world.slices()] == [3]

        await world.until(three)

    in_virtual_time(scenario)


@pytest.mark.slow
def test_a_driver_in_the_docs_is_short_and_works() -> None:
    """The whole of a driver: see examples/drivers/lamp.py."""
    path = Path(__file__).parents[2] / "examples" / "drivers" / "lamp.py"
    lines = [line for line in path.read_text().splitlines() if line.strip()]
    assert len(lines) < 60
    names: dict[str, Any] = {"__name__": "lamp"}
    exec(compile(path.read_text(), str(path), "exec"), names)

    async def main() -> None:
        async with stage() as world:
            agent = await world.agent()
            await world.driver(driver=names["Lamps"]("n1"))
            await world.claim("one", "lamp-1", driver="lamp.example.com", pool="n1")
            await world.pod("p", claims={"lamp": "one"})
            await world.phase("p", "Running")
            assert "LAMP=lamp-1" in agent.logs("default", "p")

    asyncio.run(main())


async def lamp(world: Stage, name: str, number: int) -> ClaimRef:
    return ref(await world.claim(name, f"lamp-{number}", driver="lamp.example.com"))


class BlockedLamps:
    """A driver whose plain functions block their thread for the claims named."""

    name = "lamp.example.com"
    concurrent = True

    def __init__(self, *blocked: str) -> None:
        self.blocked = set(blocked)
        self.go = threading.Event()
        self.began: list[str] = []
        self.undone: list[str] = []
        self.states: dict[str, object] = {}

    def pools(self) -> Mapping[str, Pool]:
        return {"n1": Pool(tuple(device(f"lamp-{n}") for n in range(4)))}

    def prepare(self, claim: ClaimToPrepare) -> Setup:
        self.began.append(claim.ref.name)
        claim.remember({"of": claim.ref.name})
        if claim.ref.name in self.blocked:
            assert self.go.wait(30)
        return Setup([DeviceSetup(r.pool, r.device) for r in claim.results])

    def unprepare(self, claim: PreparedClaim) -> None:
        self.undone.append(claim.ref.name)
        self.states[claim.ref.name] = claim.state


def test_a_blocking_prepare_delays_no_other_claim() -> None:
    async def scenario() -> None:
        async with stage() as world:
            await world.client.create(kind_of("Node"), {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"}})
            driver = BlockedLamps("slow")
            plugin = await world.run_plugin(world.plugin(driver=driver, sockets=False))
            slow, fast = [await lamp(world, name, n) for n, name in enumerate(("slow", "fast"))]
            # Both in one call, which waits for the slow one, and a call of its own for another.
            both = asyncio.ensure_future(plugin.prepare_claims([slow, fast]))
            await until(lambda: "slow" in driver.began and plugin.preparer.checkpoint.claims[fast.uid].devices)
            other = await lamp(world, "other", 2)
            assert isinstance((await plugin.prepare_claims([other]))[other.uid], tuple)
            assert await plugin.unprepare_claims([other]) == {other.uid: None}
            assert driver.states == {"other": {"of": "other"}}
            # Nobody works on the slow claim meanwhile: a second call and the sweep leave it alone.
            await plugin._finish_interrupted()
            again = asyncio.ensure_future(plugin.prepare_claims([slow]))
            taken = await lamp(world, "taken", 0)
            assert "still prepared for claim default/slow" in str((await plugin.prepare_claims([taken]))[taken.uid])
            assert driver.undone == ["other"]
            driver.go.set()
            answers = await both
            assert all(isinstance(answer, tuple) for answer in answers.values())
            assert (await again)[slow.uid] == answers[slow.uid]
            assert driver.began.count("slow") == 1

    asyncio.run(scenario())


def test_claims_of_another_call_come_between_those_of_a_long_one() -> None:
    async def scenario(world: Stage) -> None:
        driver = Lamps()
        driver.gate = asyncio.Event()
        plugin = await world.run_plugin(world.plugin(driver=driver, sockets=False))
        one, two, three = [await lamp(world, name, n) for n, name in enumerate("abc")]
        first = asyncio.ensure_future(plugin.prepare_claims([one, two]))
        await until(lambda: driver.calls)
        second = asyncio.ensure_future(plugin.prepare_claims([three]))
        await asyncio.sleep(1)
        driver.gate.set()
        await asyncio.gather(first, second)
        assert [name for _, name in driver.calls] == ["a", "c", "b"]

    in_virtual_time(scenario)
