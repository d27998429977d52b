"""What is published: names, attributes, capacities, counters, with the types and units that people rely on."""

from __future__ import annotations

import uuid
from pathlib import Path

import pytest

from dragoman.api import codec
from dragoman.drivers.nvidia.devices import GpuInventory, Shares, take
from dragoman.drivers.nvidia.gates import gates_with, parse_gates
from dragoman.errors import Invalid
from dragoman.node.slices import PublisherScope, layout

from .bench_of_gpus import NODE, hardware

STANDARD = "resource.kubernetes.io"


def inventory(folder: Path, profile: str, *gates: str, shares: Shares = Shares()) -> GpuInventory:  # noqa: B008
    return take(hardware(profile, folder), gates_with(dict.fromkeys(gates, True)), shares)


def shape(made: GpuInventory, name: str) -> dict[str, dict[str, object]]:
    device = next(device for device in made.pool.devices if device.name == name)
    found: dict[str, dict[str, object]] = codec.to_json(device)
    return found


def test_a_full_gpu(tmp_path: Path) -> None:
    made = shape(inventory(tmp_path, "dgx-a100"), "gpu-6")
    identity = made["attributes"].pop("uuid")
    assert str(identity["string"]).startswith("GPU-")  # type: ignore[index]
    assert made == {
        "name": "gpu-6",
        "attributes": {
            "type": {"string": "gpu"},
            "productName": {"string": "NVIDIA A100-SXM4-80GB"},
            "brand": {"string": "Nvidia"},
            "architecture": {"string": "Ampere"},
            "cudaComputeCapability": {"version": "8.0.0"},
            "driverVersion": {"version": "580.95.5"},
            "cudaDriverVersion": {"version": "13.0.0"},
            "addressingMode": {"string": "None"},
            f"{STANDARD}/pciBusID": {"string": "0000:b7:00.0"},
            f"{STANDARD}/pcieRoot": {"string": "pci0000:b0"},
            f"{STANDARD}/numaNode": {"int": 5},
        },
        "capacity": {"memory": {"value": "80Gi"}},
    }


def test_a_numa_node_that_is_unknown_is_left_out_and_may_be_a_list(tmp_path: Path) -> None:
    vm = shape(inventory(tmp_path / "vm", "a2-highgpu-1g"), "gpu-0")
    assert f"{STANDARD}/numaNode" not in vm["attributes"]
    listed = shape(inventory(tmp_path / "dgx", "dgx-a100", "DRAListTypeAttributes"), "gpu-6")
    assert listed["attributes"][f"{STANDARD}/numaNode"] == {"ints": [5]}


def test_a_static_mig_device(tmp_path: Path) -> None:
    made = inventory(tmp_path, "a100-40-mig")
    assert list(made.devices) == [
        "gpu-0-mig-1g5gb-19-2",
        "gpu-0-mig-1g5gb-19-3",
        "gpu-0-mig-2g10gb-14-0",
        "gpu-0-mig-3g20gb-9-4",
    ]
    device = shape(made, "gpu-0-mig-3g20gb-9-4")
    attributes = device["attributes"]
    assert str(attributes["uuid"]["string"]).startswith("MIG-")  # type: ignore[index]
    assert str(attributes["parentUUID"]["string"]).startswith("GPU-")  # type: ignore[index]
    assert attributes["profile"] == {"string": "3g.20gb"}
    assert attributes["type"] == {"string": "mig"}
    assert attributes["productName"] == {"string": "NVIDIA A100-PCIE-40GB"}
    assert {key: value["value"] for key, value in device["capacity"].items()} == {  # type: ignore[index]
        "multiprocessors": "42",
        "copyEngines": "3",
        "decoders": "2",
        "encoders": "0",
        "jpegEngines": "0",
        "ofaEngines": "0",
        "memory": "19968Mi",
        **{f"memorySlice{at}": "1" for at in (4, 5, 6, 7)},
    }
    assert "consumesCounters" not in device


def test_partitions_of_an_h100_and_their_counters(tmp_path: Path) -> None:
    made = inventory(tmp_path, "dgx-h100", "DynamicMIG")
    names = [name for name in made.devices if name.startswith("gpu-0")]
    assert len(names) == 1 + 7 + 7 + 4 + 3 + 2 + 1 + 1
    whole = shape(made, "gpu-0")
    (drawn,) = whole["consumesCounters"]
    (counters,) = [one for one in made.pool.shared_counters if one.name == "gpu-0-counter-set"]
    amounts = {name: str(counter.value) for name, counter in counters.counters.items()}
    assert amounts == {
        "multiprocessors": "132",
        "copy-engines": "8",
        "decoders": "7",
        "encoders": "0",
        "jpeg-engines": "7",
        "ofa-engines": "1",
        "memory": "81152Mi",
        **{f"memory-slice-{at}": "1" for at in range(8)},
    }
    assert {key: value["value"] for key, value in drawn["counters"].items()} == amounts  # type: ignore[index]
    assert whole["capacity"]["memory"] == {"value": "81152Mi"}
    part = shape(made, "gpu-0-mig-1g20gb-15-6")
    assert "uuid" not in part["attributes"]
    assert not [name for name in part["capacity"] if name.startswith("memorySlice")]
    (drawn,) = part["consumesCounters"]
    assert [name for name in drawn["counters"] if name.startswith("memory-slice")] == [  # type: ignore[index]
        "memory-slice-6",
        "memory-slice-7",
    ]


B200 = {"1g.23gb": 7, "1g.23gb+me": 7, "1g.45gb": 4, "2g.45gb": 3, "3g.90gb": 2, "4g.90gb": 1, "7g.180gb": 1}


def test_a_b200_has_twenty_five_partitions(tmp_path: Path) -> None:
    made = inventory(tmp_path, "hgx-b200", "DynamicMIG")
    profiles = [d.placed.shape.name for d in made.devices.values() if d.placed and d.name.startswith("gpu-3-")]
    assert {name: profiles.count(name) for name in profiles} == B200


def test_counters_come_first_and_each_gpu_has_its_slice(tmp_path: Path) -> None:
    pool = inventory(tmp_path, "dgx-h100", "DynamicMIG").pool
    specs = layout(PublisherScope("gpu.nvidia.com", NODE), NODE, pool)
    assert [(len(spec.shared_counters), len(spec.devices)) for spec in specs] == [(8, 0)] + [(0, 26)] * 8
    assert {device.name.split("-")[1] for device in specs[1].devices} == {"0"}


def test_ampere_shows_partitions_in_mig_mode_only(tmp_path: Path) -> None:
    off = inventory(tmp_path / "off", "dgx-a100-40", "DynamicMIG")
    assert list(off.devices) == [f"gpu-{index}" for index in range(8)]
    assert not off.pool.shared_counters
    on = inventory(tmp_path / "on", "dgx-a100-40-dynamic", "DynamicMIG")
    assert {known.kind for known in on.devices.values()} == {"mig"}
    assert len(on.pool.shared_counters) == 8


def test_a_gpu_in_mig_mode_without_devices_is_not_published(tmp_path: Path) -> None:
    made = inventory(tmp_path, "dgx-a100-40-dynamic")
    assert not made.devices
    assert len(made.empty_mig) == 8


def test_a_gpu_to_pass_through(tmp_path: Path) -> None:
    made = shape(inventory(tmp_path, "dgx-h100", "PassthroughSupport", "FabricManagerPartitioning"), "gpu-vfio-2")
    assert made["attributes"].pop("uuid") == {"string": str(uuid.uuid5(uuid.NAMESPACE_DNS, "0000:52:00.0"))}
    assert made["attributes"] == {
        "type": {"string": "vfio"},
        "deviceID": {"string": "0x2330"},
        "vendorID": {"string": "0x10de"},
        "productName": {"string": "GH100 [H100 SXM5 80GB]"},
        "iommuFDEnabled": {"bool": True},
        f"{STANDARD}/pciBusID": {"string": "0000:52:00.0"},
        f"{STANDARD}/pcieRoot": {"string": "pci0000:48"},
        f"{STANDARD}/numaNode": {"int": 0},
        "gpuModuleID": {"int": 3},
        "partition1": {"int": 10},
        "partition2": {"int": 5},
        "partition4": {"int": 2},
        "partition8": {"int": 1},
    }
    assert made["capacity"] == {"addressableMemory": {"value": "128Gi"}}


def test_fabric_partitions_by_module(tmp_path: Path) -> None:
    made = inventory(tmp_path, "dgx-h100", "FabricManagerPartitioning")
    attributes = shape(made, "gpu-0")["attributes"]
    numbers = {name: attributes[name]["int"] for name in attributes if name.startswith(("partition", "gpuModule"))}  # type: ignore[index]
    assert numbers == {"gpuModuleID": 1, "partition8": 1, "partition4": 2, "partition2": 4, "partition1": 8}


SHARES = {
    "memory": ({"default": "81559Mi", "validRange": {"min": "1Mi", "max": "81559Mi", "step": "1Mi"}}, None),
    "unlimited": ({"default": "0", "validRange": {"min": "0", "max": "81559Mi", "step": "1Mi"}}, None),
    "4": (
        {"default": "0", "validRange": {"min": "0", "max": "81559Mi", "step": "1Mi"}},
        {"default": "1", "validRange": {"min": "1", "max": "4", "step": "1"}},
    ),
}


@pytest.mark.parametrize("mode", SHARES)
def test_consumable_shares(tmp_path: Path, mode: str) -> None:
    memory, count = SHARES[mode]
    made = shape(inventory(tmp_path, "dgx-h100", "ConsumableShares", shares=Shares.parse(mode)), "gpu-0")
    assert made["allowMultipleAllocations"] is True
    assert made["capacity"]["memory"] == {"value": "81559Mi", "requestPolicy": memory}
    assert made["capacity"].get("shares") == (count and {"value": "4", "requestPolicy": count})


def test_shares_need_their_gate(tmp_path: Path) -> None:
    made = shape(inventory(tmp_path, "dgx-h100", shares=Shares.parse("4")), "gpu-0")
    assert "allowMultipleAllocations" not in made
    with pytest.raises(Invalid, match="must be disabled, memory, unlimited or a number above 0, got '0'"):
        Shares.parse("0")


EXCLUDED = {
    "DynamicMIG=true,PassthroughSupport=true": "DynamicMIG and PassthroughSupport exclude each other",
    "DynamicMIG=true,NVMLDeviceHealthCheck=true": "exclude each other",
    "DynamicMIG=true,MPSSupport=true": "exclude each other",
    "PassthroughSupport=true,NVMLDeviceHealthCheck=true": "exclude each other",
    "DeviceMetadata=true": "DeviceMetadata needs PassthroughSupport",
    "IMEXDaemonsWithDNSNames=false": "ComputeDomainCliques needs IMEXDaemonsWithDNSNames",
    "Dynamic=true": "unknown feature gate 'Dynamic'",
    "DynamicMIG": "'DynamicMIG' must be NAME=true or NAME=false",
}


@pytest.mark.parametrize("text", EXCLUDED)
def test_gates_that_cannot_be_together_are_refused(text: str) -> None:
    with pytest.raises(Invalid, match=EXCLUDED[text]):
        gates_with(parse_gates(text))
