"""Simulated drivers beside a real container runtime: whatever a CDI spec names is there."""

from __future__ import annotations

import asyncio
import stat
import subprocess
from argparse import ArgumentParser
from pathlib import Path

import pytest

from dragoman.api import codec
from dragoman.api.resource import ResourceClaim
from dragoman.daemon.machines import node_properties
from dragoman.drivers.entry import DriverEntry, MachineProfile, Site
from dragoman.drivers.nvidia.driver import NvidiaDriver
from dragoman.drivers.nvidia.simulated import SimulatedHardware
from dragoman.drivers.registry import DRIVERS, catalog_with
from dragoman.drivers.stand_ins import NULL, SIMULATED, StandIns
from dragoman.errors import Invalid
from dragoman.node.cdi import DeviceNode, Edits, Hook, Mount, NetDevice
from dragoman.node.driver import ClaimRef, ClaimToPrepare, DeviceSetup, Setup
from dragoman.profiles import Catalog
from dragoman.runtime.clock import Clock
from dragoman.runtime.entropy import Entropy
from dragoman.runtime.metrics import Metrics

CATALOG = Catalog.packaged()


def entry(command: str) -> DriverEntry:
    return next(entry for entry in DRIVERS if entry.command == command)


def site(folder: Path) -> Site:
    return Site(folder, "boot-1", None, Clock(), Entropy(), Metrics(), hardware_dir=folder / "hardware")  # type: ignore[arg-type]


def test_only_what_exists_is_left(tmp_path: Path) -> None:
    own = tmp_path / "plugin"
    pipe = own / "mps" / "pipe"
    pipe.mkdir(parents=True)
    edits = Edits(
        env=("A=b",),
        device_nodes=(DeviceNode("/dev/npu/0", permissions="rw"),),
        net_devices=(NetDevice("eth9", "eth0"),),
        mounts=(
            Mount("/usr/lib/libnpu.so", "/usr/lib/libnpu.so"),
            Mount("/usr/bin/npu-ls", "/usr/bin/npu-ls"),
            Mount(str(pipe), "/tmp/pipe", options=("rw",)),
        ),
        hooks=(Hook("createContainer", "/usr/bin/npu-hook"),),
    )
    stand_ins = StandIns(own / "stand-ins", {"/usr/bin/npu-ls": "#!/bin/sh\necho one npu\n"}, own)
    for _ in range(2):  # again for the next claim
        made = stand_ins.of(Setup([DeviceSetup("n", "npu-0", edits)], Edits(env=("C=d",))))
    (device,) = made.devices
    assert device.edits.env == ("A=b",)
    assert made.edits.env == ("C=d", SIMULATED)
    assert not device.edits.hooks
    assert not device.edits.net_devices
    mounts = {mount.container_path: Path(mount.host_path) for mount in device.edits.mounts}
    assert mounts["/tmp/pipe"] == pipe
    assert subprocess.run([mounts["/usr/bin/npu-ls"]], capture_output=True, text=True, check=True).stdout == "one npu\n"
    assert "/usr/lib/libnpu.so" not in mounts
    if device.edits.device_nodes:
        (node,) = device.edits.device_nodes
        assert (node.path, node.type, node.major, node.minor, node.permissions) == ("/dev/npu/0", "c", *NULL, "rw")
        assert stat.S_ISCHR(Path(node.host_path).stat().st_mode)
    else:  # without the right to make device nodes
        assert mounts["/dev/npu/0"].is_file()


def test_without_the_right_to_make_device_nodes_a_file_is_mounted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*arguments: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr("os.mknod", refuse)
    made = StandIns(tmp_path / "s", {}, tmp_path).of(
        Setup([DeviceSetup("n", "d", Edits(device_nodes=(DeviceNode("/dev/npu/0"),)))])
    )
    (mount,) = made.devices[0].edits.mounts
    assert not made.devices[0].edits.device_nodes
    assert mount.container_path == "/dev/npu/0"
    assert Path(mount.host_path).is_file()


@pytest.mark.parametrize(("command", "profile"), [("nvidia", "dgx-h100"), ("nic", "dgx-a100")])
def test_what_a_simulated_driver_names_is_there(tmp_path: Path, command: str, profile: str) -> None:
    made = entry(command)
    machine = MachineProfile(CATALOG, CATALOG.named(profile, ""))
    factory = made.standalone(parsed(made, "--simulate", profile), machine)
    driver = factory.make("n1", site(tmp_path))

    async def setup() -> Setup:
        pools = await driver.pools()  # type: ignore[misc]
        device = pools["n1"].devices[0].name
        result = {"request": "r", "driver": made.name, "pool": "n1", "device": device}
        claim = codec.decode(ResourceClaim, {"status": {"allocation": {"devices": {"results": [result]}}}})
        assert claim.status.allocation
        results = claim.status.allocation.devices.results
        work = ClaimToPrepare(ClaimRef("d", "c", "u"), results, (), claim, lambda state: None)
        return await driver.prepare(work)  # type: ignore[misc]

    found = StandIns(tmp_path / "s", factory.scripts(driver), tmp_path).of(asyncio.run(setup()))
    every = [found.edits, *(device.edits for device in found.devices)]
    paths = [node.host_path for edits in every for node in edits.device_nodes]
    paths += [mount.host_path for edits in every for mount in edits.mounts]
    assert paths
    assert [path for path in paths if not Path(path).exists()] == []
    assert not any(edits.hooks or edits.net_devices for edits in every)


def test_nvidia_smi_lists_the_gpus_of_the_container(tmp_path: Path) -> None:
    made = entry("nvidia")
    machine = MachineProfile(CATALOG, CATALOG.named("t4-4", ""))
    factory = made.standalone(parsed(made, "--simulate", "t4-4"), machine)
    (text,) = factory.scripts(factory.make("n1", site(tmp_path))).values()
    (tmp_path / "nvidia2").touch()  # the one that the container was given
    script = tmp_path / "nvidia-smi"
    script.write_text(text.replace("/dev/nvidia", str(tmp_path / "nvidia")))
    said = subprocess.run(["sh", script, "-L"], capture_output=True, text=True, check=True).stdout
    assert said.startswith("GPU 2: Tesla T4 (UUID: GPU-")
    assert len(said.splitlines()) == 1
    said = subprocess.run(
        ["sh", script, "--query-gpu=name", "--format=csv,noheader"], capture_output=True, text=True, check=True
    ).stdout
    assert "15360 MiB" in said


# ---- profiles, states, instances


def parsed(made: DriverEntry, *words: str) -> object:
    parser = ArgumentParser()
    parser.add_argument("--simulate", default="")
    made.flags(parser)
    return parser.parse_args(words)


def test_the_gates_of_a_profile_are_those_of_a_driver_of_its_own(tmp_path: Path) -> None:
    file = tmp_path / "own.yaml"
    file.write_text("name: cut\nbase: dgx-h100\nfeatureGates: {DynamicMIG: true}\n")
    catalog = catalog_with((file,))
    made = entry("nvidia")
    for words, expected in ((), True), (("--feature-gates", "DynamicMIG=false"), False):
        factory = made.standalone(parsed(made, *words), MachineProfile(catalog, catalog.named("cut", "")))  # type: ignore[arg-type]
        driver = factory.make("n1", site(tmp_path / str(expected)))
        assert isinstance(driver, NvidiaDriver)
        assert driver.gates.on("DynamicMIG") is expected


def hardware(folder: Path, profile: str, node: str = "n1", *, shared: bool = False) -> SimulatedHardware:
    made = SimulatedHardware(CATALOG, CATALOG.named(profile, ""), node, folder, "boot-1")
    made.check(shared=shared)
    return made


def test_the_state_of_another_machine_is_refused(tmp_path: Path) -> None:
    first = hardware(tmp_path, "dgx-h100")
    first.set_time_slice(first.gpu_uuid(0), 2)
    again = hardware(tmp_path, "dgx-h100")
    assert again.sharing_of(again.gpu_uuid(0)) == (False, 2)
    for profile, node in ("dgx-a100", "n1"), ("dgx-h100", "n2"):
        with pytest.raises(Invalid, match="holds the state of node n1 simulated as dgx-h100"):
            hardware(tmp_path, profile, node)


def test_two_instances_keep_each_others_mig_devices(tmp_path: Path) -> None:
    one, other = (hardware(tmp_path, "dgx-h100", shared=True) for _ in range(2))
    gpu = one.gpu_uuid(0)
    one.set_mig_mode(gpu, True)
    shape = next(shape for shape in one.shapes(gpu) if shape.name == "1g.10gb")
    made = [each.create_instance(gpu, shape, start) for start, each in enumerate((one, other, one))]
    for each in (one, other):
        assert [instance.uuid for instance in each.instances(gpu)] == [instance.uuid for instance in made]
    other.destroy_instance(gpu, made[0].gi)
    assert len(one.instances(gpu)) == 2


def test_a_node_agent_of_a_profile_reports_its_cpu_and_memory(tmp_path: Path) -> None:
    file = tmp_path / "own.yaml"
    file.write_text("name: small\nbase: t4-4\nnode: {cpu: 6, memory: 20Gi}\n")
    found = node_properties("small", (file,), "--simulate small")
    assert (found.capacity["cpu"], found.capacity["memory"]) == ("6", "20Gi")
    assert found.labels["nvidia.com/gpu.product"] == "Tesla-T4"
    with pytest.raises(Invalid, match="did you mean t4-4"):
        node_properties("t4-5", (), "--simulate t4-5")
