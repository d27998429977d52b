"""NVIDIA's device plugin on simulated GPUs: resources, configuration, allocation, health; then on a whole cluster."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from dragoman.api.shape import Object
from dragoman.drivers.nvidia.device_plugin.config import PluginConfig, parse
from dragoman.drivers.nvidia.device_plugin.factory import CONFIG_MAP, PluginSettings, profile_score
from dragoman.drivers.nvidia.device_plugin.health import HealthChecks, from_environment
from dragoman.drivers.nvidia.device_plugin.node_config import chosen_key
from dragoman.drivers.nvidia.device_plugin.resources import mig_resource, planned
from dragoman.drivers.nvidia.device_plugin.source import NvidiaSource
from dragoman.drivers.nvidia.hardware import Lost, XidError
from dragoman.drivers.nvidia.simulated import SimulatedHardware
from dragoman.drivers.nvidia.toolkit import ToolkitOptions
from dragoman.errors import Invalid, Retry
from dragoman.node.device_plugin import ContainerDevices
from dragoman.profiles import Catalog
from tests.daemon.lab import NODE, POD, Lab, lab

SHARED_4 = """
version: v1
sharing:
  timeSlicing:
    {more}
    resources: [{{name: nvidia.com/gpu, replicas: 4}}]
"""


def hardware(profile: str, folder: Path, node: str = "n1") -> SimulatedHardware:
    catalog = Catalog.packaged()
    return SimulatedHardware(catalog, catalog.named(profile, "test"), node, folder, "boot-1")


def source(machine: SimulatedHardware, config: PluginConfig, number: int = 0, **more: Any) -> NvidiaSource:
    plan = planned(machine, config).resources[number]
    return NvidiaSource(plan, config, machine, new_id=lambda: "1-2", score=profile_score(machine.profile), **more)


def mig(machine: SimulatedHardware, *layouts: tuple[str, ...]) -> SimulatedHardware:
    """GPUs in MIG mode with these profiles; GPUs beyond the layouts stay as they are."""
    for gpu, names in zip(machine.gpus(), layouts, strict=False):
        machine.set_mig_mode(gpu.uuid, True)
        used = 0
        for name in names:
            shape = next(shape for shape in machine.shapes(gpu.uuid) if shape.name == name)
            start = next(start for start in shape.starts if start >= used)
            machine.create_instance(gpu.uuid, shape, start)
            used = start + shape.size
    return machine


# ---- resources


def test_whole_gpus(tmp_path: Path) -> None:
    machine = hardware("dgx-h100", tmp_path)
    (plan,) = planned(machine, PluginConfig()).resources
    assert (plan.name, list(plan.ids)) == ("nvidia.com/gpu", [gpu.uuid for gpu in machine.gpus()])


@pytest.mark.parametrize(
    ("strategy", "layouts", "expected"),
    [
        ("none", (("3g.40gb",), ("1g.10gb",)), {"nvidia.com/gpu": 8}),
        ("mixed", (("3g.40gb", "1g.10gb"), ("3g.40gb",)), {"gpu": 6, "mig-3g.40gb": 2, "mig-1g.10gb": 1}),
        ("mixed", ((),), {"gpu": 7}),
        ("single", (), {"gpu": 8}),
        ("single", (("1g.10gb",) * 3,) * 8, {"gpu": 24}),
    ],
)
def test_mig_strategies(
    strategy: Any, layouts: tuple[tuple[str, ...], ...], expected: dict[str, int], tmp_path: Path
) -> None:
    machine = mig(hardware("dgx-h100", tmp_path), *layouts)
    found = planned(machine, PluginConfig(mig_strategy=strategy))
    counts = {plan.name.removeprefix("nvidia.com/"): len(plan.ids) for plan in found.resources}
    assert counts == {name.removeprefix("nvidia.com/"): count for name, count in expected.items()}
    assert bool(found.warnings) == (layouts == ((),))


@pytest.mark.parametrize(
    ("layouts", "words"),
    [
        ((("3g.40gb",),), "same migEnabled value"),
        ((("3g.40gb",), *((("1g.10gb",),) * 7)), "more than one MIG device type"),
        ((*((("1g.10gb",),) * 7), ()), "not configured correctly"),
    ],
)
def test_strategy_single_wants_equal_gpus(layouts: Any, words: str, tmp_path: Path) -> None:
    machine = mig(hardware("dgx-h100", tmp_path), *layouts)
    with pytest.raises(Invalid, match=words):
        planned(machine, PluginConfig(mig_strategy="single"))


def test_names_of_mig_resources() -> None:
    assert mig_resource("1g.10gb+me") == "nvidia.com/mig-1g.10gb.me"


@pytest.mark.parametrize(("more", "name"), [("", "nvidia.com/gpu"), ("renameByDefault: true", "nvidia.com/gpu.shared")])
def test_replicas(more: str, name: str, tmp_path: Path) -> None:
    machine = hardware("dgx-a100-40", tmp_path)
    config = parse(SHARED_4.format(more=more), "file")
    (plan,) = planned(machine, config).resources
    assert (plan.name, len(plan.ids)) == (name, 4 * len(machine.gpus()))
    first = machine.gpus()[0].uuid
    assert list(plan.ids)[:4] == [f"{first}::{number}" for number in range(4)]


# ---- configuration


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("version: v2", "must be v1"),
        ("a: [", "is not YAML"),
        ("flags: {migStrategy: some}", "one of none, single, mixed"),
        ("flags: {plugin: {deviceListStrategy: [envvar, smoke]}}", "cdi-cri, got 'smoke'"),
        ("sharing: {timeSlicing: {resources: [{name: nvidia.com/gpu, replicas: 1}]}}", "2 or more, got 1"),
        ("sharing: {timeSlicing: {resources: [{name: amd.com/gpu, replicas: 2}]}}", "begin with nvidia.com/"),
        (
            "flags: {migStrategy: mixed}\nsharing: {mps: {resources: [{name: nvidia.com/gpu, replicas: 2}]}}",
            "cannot be used with MIG strategy mixed",
        ),
        ("imex: {channelIDs: [1]}", r"must be \[\] or \[0\]"),
    ],
)
def test_configurations_that_are_refused(text: str, words: str) -> None:
    with pytest.raises(Invalid, match=words):
        parse(text, "file")


def test_flags_stand_over_the_file() -> None:
    config = parse(
        "flags: {migStrategy: single, plugin: {deviceListStrategy: volume-mounts}}",
        "file",
        {"mig_strategy": "mixed", "device_id_strategy": None},
    )
    assert (config.mig_strategy, config.list_strategies) == ("mixed", ("volume-mounts",))


def test_mps_wins_and_allows_one_replica() -> None:
    text = """
sharing:
  timeSlicing: {resources: [{name: nvidia.com/gpu, replicas: 4}]}
  mps: {resources: [{name: nvidia.com/gpu, replicas: 2, rename: x}]}
"""
    config = parse(text, "file")
    assert (config.kind, config.replicas("nvidia.com/gpu"), config.fails_greater_than_one) == ("mps", 2, True)
    assert config.warnings == (
        "sharing.mps.resources[0].rename is ignored, as in released builds of the device plugin",
    )


@pytest.mark.parametrize(
    ("label", "data", "default", "key"),
    [
        ("a100", {"a100": "", "t4": ""}, "", "a100"),
        ("none", {"a100": ""}, "", None),
        (None, {"a100": "", "t4": ""}, "t4", "t4"),
        (None, {"a100": "", "default": ""}, "", "default"),
        (None, {"a100": ""}, "", "a100"),
        (None, {"a100": "", "t4": ""}, "", ""),
        (None, {}, "", ""),
    ],
)
def test_the_key_of_a_nodes_configuration(label: str | None, data: dict[str, str], default: str, key: Any) -> None:
    assert chosen_key(label, data, default) == key


# ---- allocation


def given(one: NvidiaSource, ids: list[str]) -> ContainerDevices:
    return asyncio.run(one.allocate(ids))


def test_ways_of_passing_devices(tmp_path: Path) -> None:
    machine = hardware("dgx-h100", tmp_path)
    uuids = [gpu.uuid for gpu in machine.gpus()][:2]

    def by(*strategies: Any, **more: Any) -> ContainerDevices:
        return given(source(machine, PluginConfig(list_strategies=strategies, **more)), uuids)

    assert by("envvar").envs == {"NVIDIA_VISIBLE_DEVICES": ",".join(uuids)}
    assert by("envvar", id_strategy="index").envs == {"NVIDIA_VISIBLE_DEVICES": "0,1"}
    assert by("envvar", channels=(0,)).envs["NVIDIA_IMEX_CHANNELS"] == "0"
    mounted = by("volume-mounts", channels=(0,))
    root = "/var/run/nvidia-container-devices"
    assert mounted.envs == {"NVIDIA_VISIBLE_DEVICES": root}
    paths = [f"{root}/{uuids[0]}", f"{root}/{uuids[1]}", f"{root}/imex/0"]
    assert [(m.container_path, m.host_path) for m in mounted.mounts] == [(path, "/dev/null") for path in paths]
    names = [f"k8s.device-plugin.nvidia.com/gpu={uuid}" for uuid in uuids]
    assert by("cdi-annotations").annotations == {"cdi.k8s.io/nvidia-device-plugin_1-2": ",".join(names)}
    assert by("cdi-cri").cdi_devices == tuple(names)
    nodes = by("envvar", pass_device_specs=True).devices
    assert [n.container_path for n in nodes][-2:] == ["/dev/nvidia0", "/dev/nvidia1"]
    assert {n.permissions for n in nodes} == {"rw"}
    assert by("envvar", gds=True).envs["NVIDIA_GDS"] == "enabled"


def test_mps_clients(tmp_path: Path) -> None:
    config = parse("sharing: {mps: {resources: [{name: nvidia.com/gpu, replicas: 2}]}}", "file")
    one = source(hardware("dgx-h100", tmp_path), config)
    answer = given(one, [one.devices()[0].id])
    assert answer.envs["CUDA_MPS_PIPE_DIRECTORY"] == "/mps/nvidia.com/gpu/pipe"
    assert [m.container_path for m in answer.mounts] == ["/mps/nvidia.com/gpu/pipe", "/dev/shm"]


@pytest.mark.parametrize("fails", [True, False])
def test_two_shared_devices(fails: bool, tmp_path: Path) -> None:
    text = SHARED_4.format(more=f"failRequestsGreaterThanOne: {str(fails).lower()}")
    one = source(hardware("dgx-h100", tmp_path), parse(text, "file"))
    ids = [device.id for device in one.devices()][:2]
    if fails:
        with pytest.raises(Retry, match="maximum request size for shared resources is 1; found 2"):
            given(one, ids)
        return
    # Two replicas of one GPU are one GPU.
    assert given(one, ids).envs["NVIDIA_VISIBLE_DEVICES"] == ids[0].partition("::")[0]


@pytest.mark.parametrize(("policy", "gpus"), [("distributed", 3), ("packed", 1)])
def test_replicas_are_spread_or_packed(policy: Any, gpus: int, tmp_path: Path) -> None:
    config = parse(SHARED_4.format(more=""), "file", {"shared_devices_allocation_policy": policy})
    one = source(hardware("dgx-h100", tmp_path), config)
    ids = [device.id for device in one.devices()]
    chosen = one.preferred(ids, [], 3)
    assert len({id_.partition("::")[0] for id_ in chosen}) == gpus


def test_close_gpus_are_preferred(tmp_path: Path) -> None:
    machine = hardware("dgx-h100", tmp_path)
    one = source(machine, PluginConfig())
    by_id = {gpu.uuid: gpu for gpu in machine.gpus()}
    chosen = one.preferred(list(by_id), [], 4)
    assert len({by_id[id_].numa for id_ in chosen}) == 1
    must = list(by_id)[5]
    assert must in one.preferred(list(by_id), [must], 2)


# ---- health


def test_an_xid_that_counts_stays(tmp_path: Path) -> None:
    machine = hardware("dgx-h100", tmp_path)
    one = source(machine, parse(SHARED_4.format(more=""), "file"))
    gpu = machine.gpus()[3].uuid
    checks = HealthChecks()
    assert checks.note(XidError(gpu, 31), [one]) == []
    assert checks.note(XidError(gpu, 79), [one]) == [one]
    ill = [device.id for device in one.devices() if not device.healthy]
    assert ill == [f"{gpu}::{number}" for number in range(4)]  # all replicas of the GPU
    assert checks.note(XidError(gpu, 79), [one]) == []  # known already
    checks.note(Lost(""), [one])
    assert not any(device.healthy for device in one.devices())


def test_an_xid_on_an_instance_hits_that_one(tmp_path: Path) -> None:
    machine = mig(hardware("dgx-h100", tmp_path), ("3g.40gb", "3g.40gb"))
    one = source(machine, PluginConfig(mig_strategy="mixed"), 1)
    first, second = machine.instances(machine.gpus()[0].uuid)
    HealthChecks().note(XidError(first.parent, 79, first.gi, first.ci), [one])
    assert {d.id: d.healthy for d in one.devices()} == {first.uuid: False, second.uuid: True}


@pytest.mark.parametrize(
    ("environment", "off", "ignored", "counts"),
    [
        ({}, False, 31, 79),
        ({"DP_DISABLE_HEALTHCHECKS": "all"}, True, 31, 79),
        ({"DP_DISABLE_HEALTHCHECKS": "xids"}, True, 31, 79),
        ({"DP_DISABLE_HEALTHCHECKS": "74,79"}, False, 79, 48),
        ({"DP_ENABLE_HEALTHCHECKS": "31"}, False, 43, 31),
    ],
)
def test_which_xids_count(environment: dict[str, str], off: bool, ignored: int, counts: int) -> None:
    checks = from_environment(environment)
    assert checks.off == off
    assert ignored in checks.ignored
    assert counts not in checks.ignored


# ---- a whole cluster


def played(scenario: Callable[[Lab], Awaitable[None]], *nodes: tuple[str, str], **settings: Any) -> None:
    async def main() -> None:
        async with lab(*nodes, **settings) as world:
            await scenario(world)

    asyncio.run(main())


def pod(name: str, resource: str = "nvidia.com/gpu", count: int = 1, *, node: str = "", **container: Any) -> Object:
    spec: Object = {
        "terminationGracePeriodSeconds": 0,
        "containers": [
            {
                "name": "main",
                "image": "app",
                "command": ["sh", "-c", "env; nvidia-smi -L; sleep infinity"],
                "resources": {"limits": {resource: str(count)}} if count else {},
                **container,
            }
        ],
    }
    if node:
        spec["nodeSelector"] = {"kubernetes.io/hostname": node}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "default"}, "spec": spec}


async def allocatable(world: Lab, node: str, resource: str, count: str | None) -> None:
    async def so() -> bool:
        return bool((await world.client.get(NODE, node))["status"]["allocatable"].get(resource) == count)

    await world.until(so)


async def listed(world: Lab, name: str) -> list[str]:
    """UUIDs that nvidia-smi -L shows in the pod's container."""

    async def there() -> str:
        log = await world.logs(name)
        return log if "GPU 0:" in log or "No devices" in log or "not found" in log else ""

    log = await world.until(there)
    return [line.rpartition("UUID: ")[2].rstrip(")") for line in log.splitlines() if "UUID: " in line]


@pytest.mark.slow
def test_pods_count_gpus_and_each_has_its_own() -> None:
    async def scenario(world: Lab) -> None:
        await allocatable(world, "a", "nvidia.com/gpu", "8")
        await world.apply(pod("p", count=4), pod("q", count=4), pod("late"))
        for name in ("p", "q"):
            await world.phase(name, "Running")
        one, other = await listed(world, "p"), await listed(world, "q")
        assert (len(one), len(other)) == (4, 4)
        assert not set(one) & set(other)
        message = await world.event("FailedScheduling", "late")
        assert message.startswith("0/1 nodes are available: 1 Insufficient nvidia.com/gpu.")
        assert not await world.devices("gpu.nvidia.com", "a")
        await world.client.delete(POD, "p", "default")
        await world.phase("late", "Running")

    played(scenario, ("a", "dgx-a100-40@device-plugin"))


@pytest.mark.slow
def test_a_label_chooses_the_nodes_configuration() -> None:
    async def scenario(world: Lab) -> None:
        namespace, name = CONFIG_MAP
        more = "renameByDefault: true\n    failRequestsGreaterThanOne: true"
        data = {"default": "version: v1", "shared": SHARED_4.format(more=more)}
        await world.apply(
            {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": namespace}, "data": data}
        )
        await allocatable(world, "a", "nvidia.com/gpu", "8")
        await world.client.patch(NODE, "a", {"metadata": {"labels": {"nvidia.com/device-plugin.config": "shared"}}})
        await allocatable(world, "a", "nvidia.com/gpu.shared", "32")
        await allocatable(world, "a", "nvidia.com/gpu", "0")
        await allocatable(world, "b", "nvidia.com/gpu", "8")
        await world.apply(pod("two", "nvidia.com/gpu.shared", 2))
        failed = await world.phase("two", "Failed")
        assert failed["status"]["reason"] == "UnexpectedAdmissionError"
        assert "maximum request size for shared resources is 1; found 2" in failed["status"]["message"]
        await world.client.patch(NODE, "a", {"metadata": {"labels": {"nvidia.com/device-plugin.config": "typo"}}})
        await asyncio.sleep(0.3)
        await allocatable(world, "a", "nvidia.com/gpu.shared", "32")  # an unknown key changes nothing

    played(scenario, ("a", "dgx-a100-40@device-plugin"), ("b", "dgx-a100-40@device-plugin"))


@pytest.mark.slow
def test_both_paths_serve_one_extended_resource_on_different_nodes() -> None:
    async def scenario(world: Lab) -> None:
        await allocatable(world, "a", "nvidia.com/gpu", "8")
        await world.apply(pod("plugged", node="a"), pod("claimed", node="h"))
        for name in ("plugged", "claimed"):
            await world.phase(name, "Running")
            assert len(await listed(world, name)) == 1
        found = {
            n: (await world.pod(n) or {})["status"].get("extendedResourceClaimStatus") for n in ("plugged", "claimed")
        }
        assert found["plugged"] is None
        assert found["claimed"]["requestMappings"][0]["resourceName"] == "nvidia.com/gpu"

    played(scenario, ("a", "dgx-a100-40@device-plugin"), ("h", "dgx-h100"))


@pytest.mark.slow
def test_an_xid_makes_a_gpu_unhealthy_until_the_plugin_starts_again() -> None:
    async def scenario(world: Lab) -> None:
        await allocatable(world, "a", "nvidia.com/gpu", "8")
        machine = world.cluster.nodes["a"].device_plugins["gpu.nvidia.com"].hardware
        machine.inject_xid(2, 31)
        machine.inject_xid(2, 79)
        await allocatable(world, "a", "nvidia.com/gpu", "7")
        assert (await world.client.get(NODE, "a"))["status"]["capacity"]["nvidia.com/gpu"] == "8"
        machine.recover(2)
        await asyncio.sleep(0.3)
        await allocatable(world, "a", "nvidia.com/gpu", "7")
        await world.cluster.nodes["a"].stop_driver("nvidia-device-plugin")
        await allocatable(world, "a", "nvidia.com/gpu", "0")
        await world.cluster.nodes["a"].start_driver("nvidia-device-plugin")
        await allocatable(world, "a", "nvidia.com/gpu", "8")

    played(scenario, ("a", "dgx-a100-40@device-plugin"))


@pytest.mark.slow
@pytest.mark.parametrize("strategy", ["cdi-cri", "cdi-annotations", "volume-mounts"])
def test_containers_see_their_gpus_in_every_way(strategy: str) -> None:
    settings = PluginSettings(
        over={"device_list_strategy": strategy},
        toolkit=ToolkitOptions(volume_mounts=strategy == "volume-mounts"),
    )

    async def scenario(world: Lab) -> None:
        await allocatable(world, "a", "nvidia.com/gpu", "8")
        await world.apply(pod("p", count=2))
        await world.phase("p", "Running")
        assert len(await listed(world, "p")) == 2

    played(scenario, ("a", "dgx-a100-40@device-plugin"), drivers={"nvidia-device-plugin": settings})


@pytest.mark.slow
def test_mig_devices_by_name() -> None:
    settings = PluginSettings(over={"mig_strategy": "mixed"})

    async def scenario(world: Lab) -> None:
        node = await world.client.get(NODE, "m")
        names = [name for name in node["status"]["allocatable"] if name.startswith("nvidia.com/mig-")]
        assert names
        await world.apply(pod("p", names[0]))
        await world.phase("p", "Running")
        log = await world.logs("p")
        await listed(world, "p")
        assert log.count("  MIG ") <= 1

    played(scenario, ("m", "dgx-a100-40-mig@device-plugin"), drivers={"nvidia-device-plugin": settings})
