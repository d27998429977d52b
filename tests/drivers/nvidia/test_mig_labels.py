"""MIG layouts by label on nodes with the device plugin, and the labels that describe GPUs; on a whole cluster."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from dragoman.api.kinds import kind_of
from dragoman.drivers.nvidia import mig_parted
from dragoman.drivers.nvidia.device_plugin.config import parse as parse_config
from dragoman.drivers.nvidia.device_plugin.discovery import differences, feature_labels
from dragoman.drivers.nvidia.device_plugin.factory import PluginSettings
from dragoman.drivers.nvidia.mig_parted import generated, is_applied, parse, placed_for, to_yaml, wanted
from dragoman.errors import Invalid
from dragoman.profiles import Catalog
from tests.daemon.lab import NODE, POD, Lab
from tests.drivers.nvidia.test_device_plugin import allocatable, hardware, mig, played, pod

CONFIG_MAP = kind_of("ConfigMap")


def models(profile: str) -> dict[str, Any]:
    catalog = Catalog.packaged()
    found = catalog.gpu_models(catalog.named(profile, "test"))
    return {mig_parted.pci_id(model.device_id): catalog.mig_shapes(model) for model in found}


# ---- labels of GPU feature discovery


def labels(machine: Any, text: str = "") -> dict[str, str]:
    found = feature_labels(machine, parse_config(text or "version: v1", "test"), "DGXH100 920-23687")
    return {name.removeprefix("nvidia.com/"): value for name, value in found.items()}


def test_whole_gpus_are_described(tmp_path: Path) -> None:
    found = labels(hardware("dgx-h100", tmp_path))
    assert found["gpu.product"] == "NVIDIA-H100-80GB-HBM3"
    assert (found["gpu.count"], found["gpu.replicas"], found["gpu.sharing-strategy"]) == ("8", "1", "none")
    assert (found["gpu.memory"], found["gpu.family"], found["gpu.machine"]) == ("81559", "hopper", "DGXH100-920-23687")
    assert found["cuda.driver-version.full"] == ".".join(
        found[f"cuda.driver-version.{part}"] for part in ("major", "minor", "revision")
    )
    assert (found["cuda.runtime-version.full"], found["cuda.runtime.major"]) == ("13.0", "13")
    assert (found["mig.capable"], found["mps.capable"]) == ("true", "false")
    assert "mig.strategy" not in found


SHARED = "version: v1\nsharing:\n  {kind}:\n    renameByDefault: {rename}\n    resources: [{{name: nvidia.com/gpu, replicas: 4}}]"


@pytest.mark.parametrize(
    ("kind", "rename", "product", "strategy"),
    [
        ("timeSlicing", "false", "-SHARED", "time-slicing"),
        ("timeSlicing", "true", "", "time-slicing"),
        ("mps", "false", "-SHARED", "mps"),
    ],
)
def test_sharing_is_described(kind: str, rename: str, product: str, strategy: str, tmp_path: Path) -> None:
    found = labels(hardware("dgx-h100", tmp_path), SHARED.format(kind=kind, rename=rename))
    assert found["gpu.product"] == "NVIDIA-H100-80GB-HBM3" + product
    assert (found["gpu.count"], found["gpu.replicas"], found["gpu.sharing-strategy"]) == ("8", "4", strategy)
    assert found["mps.capable"] == ("true" if kind == "mps" else "false")


SINGLE, MIXED = "version: v1\nflags: {migStrategy: single}", "version: v1\nflags: {migStrategy: mixed}"


def test_one_mig_profile_on_all_gpus_is_described_as_gpus(tmp_path: Path) -> None:
    found = labels(mig(hardware("dgx-h100", tmp_path), *[("3g.40gb", "3g.40gb")] * 8), SINGLE)
    assert found["gpu.product"] == "NVIDIA-H100-80GB-HBM3-MIG-3g.40gb"
    assert (found["gpu.count"], found["gpu.slices.gi"], found["mig.strategy"]) == ("16", "3", "single")
    assert int(found["gpu.memory"]) < 41_000


def test_an_unequal_layout_is_invalid_for_single(tmp_path: Path) -> None:
    found = labels(mig(hardware("dgx-h100", tmp_path), ("3g.40gb",), ("1g.10gb",)), SINGLE)
    assert found["gpu.product"] == "NVIDIA-H100-80GB-HBM3-MIG-INVALID"
    assert (found["gpu.count"], found["gpu.replicas"], found["gpu.memory"]) == ("0", "0", "0")


def test_mixed_describes_each_profile(tmp_path: Path) -> None:
    found = labels(mig(hardware("dgx-h100", tmp_path), ("3g.40gb", "1g.10gb")), MIXED)
    assert (found["mig-3g.40gb.count"], found["mig-1g.10gb.count"]) == ("1", "1")
    assert found["mig-1g.10gb.product"] == "NVIDIA-H100-80GB-HBM3-MIG-1g.10gb"
    assert found["gpu.count"] == "8"
    assert found["gpu.replicas"] == "0", "the first GPU is in MIG mode"


def test_only_labels_of_gpu_feature_discovery_are_removed() -> None:
    there = {
        "nvidia.com/mig-1g.10gb.count": "7",
        "nvidia.com/gpu.present": "true",
        "nvidia.com/gpu.deploy.dcgm": "false",
    }
    there |= {"nvidia.com/gpu.clique": "x.1", "nvidia.com/mig.config": "all", "team": "ml", "nvidia.com/gpu.count": "8"}
    assert differences(there, {"nvidia.com/gpu.count": "7"}) == {
        "nvidia.com/gpu.count": "7",
        "nvidia.com/mig-1g.10gb.count": None,
    }


# ---- files


BALANCED = {
    "dgx-a100-80": {"1g.10gb": 2, "2g.20gb": 1, "3g.40gb": 1},
    "dgx-h100": {"1g.10gb": 2, "2g.20gb": 1, "3g.40gb": 1},
    "dgx-b200": {"1g.23gb": 2, "2g.45gb": 1, "3g.90gb": 1},
}


@pytest.mark.parametrize("profile", BALANCED)
def test_the_generated_file_has_the_names_and_numbers_of_upstreams(profile: str) -> None:
    made = generated(models(profile))
    assert dict(made["all-balanced"][0].instances) == BALANCED[profile]
    small = min(BALANCED[profile])
    assert dict(made[f"all-{small}"][0].instances) == {small: 7}
    assert {"all-disabled", "all-enabled"} < set(made)
    assert parse(to_yaml(made), "generated") == made


GOOD = "{version: v1, mig-configs: {a: [{devices: all, mig-enabled: true, mig-devices: {1g.10gb: 2}}]}}"


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("version: v1, ", "", "version: must be v1"),
        ("version: v1", "version: v2", "version: must be v1, got 'v2'"),
        ("devices: all, ", "", "devices: must be all or a list"),
        ("devices: all", "devices: some", "devices: must be all or a list"),
        ("mig-enabled: true, ", "", "mig-enabled: must be true or false"),
        ("mig-enabled: true", "mig-enabled: false", "must be empty where mig-enabled is false"),
        (", mig-devices: {1g.10gb: 2}", "", "mig-devices: must be an object of profiles"),
        ("1g.10gb: 2", "10gb: 2", "'10gb' is no profile"),
        ("1g.10gb: 2", "1g.10gb: 0", "must be a number from 1 on"),
        ("devices: all", "device: all", "unknown field 'device'"),
        ("[{devices", "[", "is not YAML"),
    ],
)
def test_a_bad_file_is_refused_with_the_place(old: str, new: str, words: str) -> None:
    assert parse(GOOD, "f")
    with pytest.raises(Invalid) as caught:
        parse(GOOD.replace(old, new), "f")
    assert words in str(caught.value)
    assert str(caught.value).startswith("f")


def test_profiles_are_placed_together_or_not_at_all() -> None:
    (shapes,) = models("dgx-h100").values()
    placed = placed_for({"1g.10gb": 1, "3g.40gb": 1, "2g.20gb": 1}, shapes, "GPU 0")
    assert Counter(one.shape.name for one in placed) == Counter(["1g.10gb", "2g.20gb", "3g.40gb"])
    with pytest.raises(Invalid, match=r"GPU 0: cannot have 3x 3g\.40gb together"):
        placed_for({"3g.40gb": 3}, shapes, "GPU 0")
    with pytest.raises(Invalid, match=r"has no profile 1g\.5gb; it has: 1g\.10gb"):
        placed_for({"1g.5gb": 1}, shapes, "GPU 0")


def test_ampere_is_reset_for_the_mode(tmp_path: Path) -> None:
    machine = hardware("dgx-a100-80", tmp_path)
    entries = parse(GOOD.replace("devices: all", "devices: [0, 2]"), "f")["a"]
    assert len(wanted(machine, entries)) == 2
    for layout in wanted(machine, entries):
        mig_parted.apply(machine, layout, machine.reset)
    assert all(is_applied(machine, layout) for layout in wanted(machine, entries))
    assert [gpu.mig_enabled for gpu in machine.gpus()][:3] == [True, False, True]


# ---- a cluster


async def labelled(world: Lab, node: str, **wanted: str | None) -> dict[str, str]:
    async def right() -> dict[str, str] | None:
        there = (await world.client.get(NODE, node))["metadata"]["labels"]
        so = all(there.get(f"nvidia.com/{name}") == value for name, value in wanted.items())
        return dict(there) if so else None

    return dict(await world.until(right))


async def label(world: Lab, node: str, **labels: str | None) -> None:
    patch = {"metadata": {"labels": {f"nvidia.com/{name}": value for name, value in labels.items()}}}
    await world.client.patch(NODE, node, patch)


CONFIG, STATE, COUNT = "mig.config", "mig.config.state", "gpu.count"
DEPLOYED = "gpu.deploy.device-plugin"


@pytest.mark.slow
def test_a_label_makes_a_layout_and_pods_in_the_way_make_it_fail() -> None:
    async def scenario(world: Lab) -> None:
        await labelled(world, "a", **{CONFIG: "all-disabled", STATE: "success", COUNT: "8", DEPLOYED: "true"})
        await allocatable(world, "a", "nvidia.com/gpu", "8")

        await label(world, "a", **{CONFIG: "all-3g.40gb"})
        await labelled(world, "a", **{STATE: "success", DEPLOYED: "true", "mig-3g.40gb.count": "16"})
        await allocatable(world, "a", "nvidia.com/mig-3g.40gb", "16")

        await world.apply(pod("train", "nvidia.com/mig-3g.40gb"))
        await world.phase("train", "Running")
        await label(world, "a", **{CONFIG: "all-balanced"})
        await labelled(world, "a", **{STATE: "failed", DEPLOYED: "true"})
        assert "pod default/train" in await world.event("MIGConfigFailed", "a")
        await world.phase("train", "Running")  # pods are never evicted

        await label(world, "a", **{CONFIG: "no-such-layout"})
        await labelled(world, "a", **{STATE: "failed"})

        await world.client.delete(POD, "train", "default")
        await world.gone("train")
        await label(world, "a", **{CONFIG: "all-disabled"})
        await labelled(world, "a", **{STATE: "success", COUNT: "8", "mig-3g.40gb.count": None})
        await allocatable(world, "a", "nvidia.com/gpu", "8")

    played(scenario, ("a", "dgx-h100@device-plugin"), drivers={"nvidia-device-plugin": PluginSettings(MIXED)})


@pytest.mark.slow
def test_an_own_file_counts_and_a_user_may_switch_parts_off() -> None:
    async def scenario(world: Lab) -> None:
        await labelled(world, "a", **{STATE: "success", COUNT: "8"})
        own = {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": "nvidia-mig-config", "namespace": "kube-system"},
            "data": {"config.yaml": GOOD.replace("a:", "inference:")},
        }
        await world.client.create(CONFIG_MAP, own, "kube-system")
        await label(world, "a", **{CONFIG: "inference"})
        await labelled(world, "a", **{STATE: "success", "mig-1g.10gb.count": "16"})

        await allocatable(world, "a", "nvidia.com/mig-1g.10gb", "16")
        await label(world, "a", **{DEPLOYED: "false"})
        await allocatable(world, "a", "nvidia.com/mig-1g.10gb", "0")
        await label(world, "a", **{CONFIG: "nothing"})
        await labelled(world, "a", **{STATE: "failed", DEPLOYED: "false"})

    played(scenario, ("a", "dgx-h100@device-plugin"), drivers={"nvidia-device-plugin": PluginSettings(MIXED)})
