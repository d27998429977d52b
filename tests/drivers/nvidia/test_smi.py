"""What nvidia-smi and nvidia-ctk show in a container: its devices and no others, in the shape of the real tools."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

from dragoman.drivers.nvidia.classes import GPU as DRIVER
from dragoman.drivers.nvidia.devices import mig_name
from dragoman.drivers.nvidia.driver import NvidiaDriver
from dragoman.drivers.nvidia.simulated import SimulatedHardware
from dragoman.drivers.nvidia.smi import tools
from dragoman.kubelet.programs import Place, SimulatedCommand
from dragoman.node.driver import PreparedDevice
from dragoman.profiles.mig import PlacedInstance
from dragoman.runtime.clock import Clock
from dragoman.testing.loop import run
from tests.drivers.nvidia.bench_of_gpus import NODE, hardware


def shown(machine: SimulatedHardware, devices: tuple[str, ...], *command: str) -> tuple[str, int | None]:
    """(output, exit code) of a command in a container with those devices."""

    async def main(clock: Clock) -> tuple[str, int | None]:
        driver = NvidiaDriver(NODE, machine, clock)
        held = tuple((DRIVER, PreparedDevice(("r",), NODE, name, (f"k8s.gpu/claim={name}",))) for name in devices)
        here = {name: made for name, tool in tools(driver).items() if (made := tool(held)) is not None}
        out, codes = bytearray(), []
        place = Place(env={}, hostname="h", tools=here, now=clock.now())
        SimulatedCommand(
            clock,
            place,
            command,
            lambda n, data: out.extend(data if n == 1 else b""),
            codes.append,
            started_at=clock.now(),
        )
        return out.decode(), codes[0] if codes else None

    return run(main)


@pytest.fixture
def dgx(tmp_path: Path) -> SimulatedHardware:
    return hardware("dgx-h100", tmp_path)


def test_a_container_sees_its_gpus_numbered_from_zero(dgx: SimulatedHardware) -> None:
    gpus = {gpu.minor: gpu for gpu in dgx.gpus()}
    out, code = shown(dgx, ("gpu-5", "gpu-2"), "nvidia-smi", "-L")
    assert code == 0
    assert out.splitlines() == [
        f"GPU 0: NVIDIA H100 80GB HBM3 (UUID: {gpus[2].uuid})",
        f"GPU 1: NVIDIA H100 80GB HBM3 (UUID: {gpus[5].uuid})",
    ]


def test_without_a_device_there_is_no_such_program(dgx: SimulatedHardware) -> None:
    out, code = shown(dgx, (), "sh", "-c", "nvidia-smi || echo $?; which nvidia-ctk")
    assert (out, code) == ("127\n", 1)


def test_the_table_has_its_columns_in_place(dgx: SimulatedHardware) -> None:
    out, code = shown(dgx, ("gpu-0", "gpu-7"), "nvidia-smi")
    rows = [line for line in out.splitlines() if line[:1] in "|+" and line]
    assert code == 0
    assert {len(row) for row in rows} == {91}
    bars = [index for index, char in enumerate(rows[4]) if char == "|"]
    gpu = next(row for row in rows if "NVIDIA H100" in row)
    assert [index for index, char in enumerate(gpu) if char == "|"] == bars
    assert out.splitlines()[-1].startswith("Simulated by Dragoman")


def test_queries_answer_in_the_order_asked(dgx: SimulatedHardware) -> None:
    asked = "nvidia-smi --query-gpu=name,index,memory.total,power.limit --format=csv"
    assert shown(dgx, ("gpu-3",), *asked.split()) == (
        "name, index, memory.total [MiB], power.limit [W]\nNVIDIA H100 80GB HBM3, 0, 81559 MiB, 700.00 W\n",
        0,
    )
    assert shown(dgx, ("gpu-3",), *f"{asked},noheader,nounits".split()) == (
        "NVIDIA H100 80GB HBM3, 0, 81559, 700.00\n",
        0,
    )
    out, code = shown(dgx, ("gpu-3",), "nvidia-smi", "--query-gpu=colour", "--format=csv")
    assert (out.strip(), code) == ('Field "colour" is not a valid field to query.', 2)


def test_instances_alone_are_seen_with_their_parent(dgx: SimulatedHardware) -> None:
    gpu = dgx.gpus()[1]
    dgx.set_mig_mode(gpu.uuid, True)
    shapes = {shape.name: shape for shape in dgx.shapes(gpu.uuid)}
    mine = dgx.create_instance(gpu.uuid, shapes["2g.20gb"], 0)
    dgx.create_instance(gpu.uuid, shapes["1g.10gb"], 4)
    name = mig_name(gpu, PlacedInstance(mine.shape, mine.start))
    out, _ = shown(dgx, (name,), "nvidia-smi", "-L")
    assert out.splitlines() == [
        f"GPU 0: NVIDIA H100 80GB HBM3 (UUID: {gpu.uuid})",
        f"  MIG 2g.20gb     Device  0: (UUID: {mine.uuid})",
    ]
    for verb, width in (("-lgi", 59), ("-lci", 70)):
        out, code = shown(dgx, (name,), "nvidia-smi", "mig", verb)
        assert code == 0
        assert "2g.20gb" in out
        assert "1g.10gb" not in out
        assert {len(line) for line in out.splitlines()} == {width}
    table, _ = shown(dgx, (name,), "nvidia-smi")
    assert {len(line) for line in table.splitlines() if line[:1] and line[:1] in "|+"} == {91}


def test_xml_and_text_tell_the_same(dgx: SimulatedHardware) -> None:
    out, _ = shown(dgx, ("gpu-0", "gpu-1"), "nvidia-smi", "-q", "-x")
    root = ElementTree.fromstring(out[out.index("<nvidia_smi_log>") :])
    assert [gpu.findtext("product_name") for gpu in root.findall("gpu")] == ["NVIDIA H100 80GB HBM3"] * 2
    assert root.findtext("attached_gpus") == "2"
    text, _ = shown(dgx, ("gpu-0", "gpu-1"), "nvidia-smi", "-q")
    for gpu in root.findall("gpu"):
        assert f": {gpu.findtext('uuid')}" in text


def test_topology_is_the_machine_s(dgx: SimulatedHardware, tmp_path: Path) -> None:
    out, _ = shown(dgx, ("gpu-0", "gpu-7"), "nvidia-smi", "topo", "-m")
    head, first, second = out.splitlines()[:3]
    assert head.split("\t")[1:3] == ["GPU0", "GPU1"]
    assert first.split("\t")[1:3] == [" X ", "NV18"]
    assert second.split("\t")[1:3] == ["NV18", " X "]
    plain = hardware("nc-a100-v4", tmp_path / "other")
    out, _ = shown(plain, ("gpu-0", "gpu-3"), "nvidia-smi", "topo", "-m")
    assert out.splitlines()[1].split("\t")[2] in ("SYS", "NODE", "PHB") or out.splitlines()[1].split("\t")[
        2
    ].startswith("NV")


def test_a_lost_gpu_is_an_error(dgx: SimulatedHardware) -> None:
    dgx.lose(0)
    out, code = shown(dgx, ("gpu-0",), "nvidia-smi")
    assert code == 15
    assert "GPU is lost" in out


def test_ctk_lists_the_container_s_cdi_devices(dgx: SimulatedHardware) -> None:
    assert shown(dgx, ("gpu-1", "gpu-0"), "nvidia-ctk", "cdi", "list") == (
        "k8s.gpu/claim=gpu-0\nk8s.gpu/claim=gpu-1\n",
        0,
    )


def test_what_is_not_known_is_refused(dgx: SimulatedHardware) -> None:
    out, code = shown(dgx, ("gpu-1",), "nvidia-smi", "--gpu-reset")
    assert code == 2
    assert out.startswith("Invalid combination of input arguments")
