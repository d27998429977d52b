"""What does a container see by NVIDIA_VISIBLE_DEVICES? The judge is nvidia-smi -L in the simulated container."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from dragoman.api.shape import Object
from dragoman.drivers.nvidia.simulated import SimulatedHardware
from dragoman.drivers.nvidia.toolkit import Toolkit, ToolkitOptions, parse_options
from dragoman.errors import Invalid
from dragoman.kubelet.injection import ContainerRequest
from dragoman.node.cdi import merged
from dragoman.node.device_plugin import HostMount
from dragoman.profiles import Catalog
from tests.daemon.lab import Lab, lab

VISIBLE = "NVIDIA_VISIBLE_DEVICES"
ROOT = "/var/run/nvidia-container-devices"
ALL = list(range(8))
STRICT = ToolkitOptions(envvar_when_unprivileged=False, volume_mounts=True)


@pytest.fixture
def machine(tmp_path: Path) -> SimulatedHardware:
    catalog = Catalog.packaged()
    return SimulatedHardware(catalog, catalog.named("dgx-h100", "test"), "n1", tmp_path, "boot-1")


def uuid(machine: SimulatedHardware, index: int) -> str:
    return machine.gpus()[index].uuid


def seen(machine: SimulatedHardware, container: ContainerRequest, options: ToolkitOptions) -> list[int] | None:
    """Indexes of the GPUs that nvidia-smi shows; None where the container has none of the driver's files."""
    toolkit = Toolkit(machine, options)
    injection = toolkit.inject(container)
    if "nvidia-smi" not in injection.tools:
        return None
    return [shown.gpu.index for shown in toolkit.shown(merged((container.edits, injection.edits)))]


@pytest.mark.parametrize(
    ("env", "expected"),
    [
        ({}, None),
        ({VISIBLE: ""}, None),
        ({VISIBLE: "void"}, None),
        ({VISIBLE: "0,void"}, None),
        ({VISIBLE: "none"}, []),
        ({VISIBLE: "all"}, ALL),
        ({VISIBLE: "3"}, [3]),
        ({VISIBLE: "5,1,5"}, [1, 5]),
        ({VISIBLE: "{1}"}, [1]),
        ({VISIBLE: "{0}, 2"}, [0, 2]),
        ({VISIBLE: "nvidia.com/gpu=4"}, [4]),
        ({VISIBLE: "nvidia.com/gpu={2},runtime.nvidia.com/gpu=6"}, [2, 6]),
        ({"CUDA_VERSION": "9.0"}, ALL),
        ({"CUDA_VERSION": "12.4", "NVIDIA_REQUIRE_CUDA": "cuda>=12.4"}, None),
        ({"CUDA_VERSION": "9.0", VISIBLE: "void"}, None),
        ({"CUDA_VERSION": "9.0", VISIBLE: "none"}, []),
    ],
)
def test_the_variable(machine: SimulatedHardware, env: dict[str, str], expected: list[int] | None) -> None:
    filled = {key: value.format(*(uuid(machine, index) for index in ALL)) for key, value in env.items()}
    assert seen(machine, ContainerRequest("app", filled), ToolkitOptions()) == expected
    # Where the variable does not count in unprivileged containers nothing is given, whatever it says.
    assert seen(machine, ContainerRequest("app", filled), STRICT) is None


def test_privileged_containers_have_every_device_node(machine: SimulatedHardware) -> None:
    asking = ContainerRequest("app", {VISIBLE: "0"}, privileged=True)
    assert seen(machine, asking, ToolkitOptions()) == ALL
    assert seen(machine, asking, STRICT) == ALL  # of them the variable counts
    silent = ContainerRequest("app", {}, privileged=True)
    assert seen(machine, silent, ToolkitOptions()) is None
    nodes = {node.path for node in Toolkit(machine, STRICT).inject(silent).edits.device_nodes}
    assert {f"/dev/nvidia{index}" for index in ALL} <= nodes


def test_a_list_of_mounts_counts_before_the_variable(machine: SimulatedHardware) -> None:
    mounts = tuple(HostMount(f"{ROOT}/{uuid(machine, index)}", "/dev/null") for index in (2, 6))
    both = ContainerRequest("app", {VISIBLE: "all"}, mounts=mounts)
    assert seen(machine, both, STRICT) == [2, 6]
    assert seen(machine, both, ToolkitOptions(volume_mounts=True)) == [2, 6]
    assert seen(machine, both, ToolkitOptions()) == ALL  # the mounts mean nothing where they are not accepted
    other = (HostMount(f"{ROOT}/{uuid(machine, 2)}", "/host/file"),)
    assert seen(machine, ContainerRequest("app", {}, mounts=other), STRICT) is None


def test_the_runtime_may_be_for_its_class_alone(machine: SimulatedHardware) -> None:
    options = ToolkitOptions(default_runtime=False)
    assert seen(machine, ContainerRequest("app", {VISIBLE: "all"}), options) is None
    assert seen(machine, ContainerRequest("app", {VISIBLE: "all"}, runtime_class="nvidia"), options) == ALL


def test_an_unknown_device_keeps_the_container_from_starting(machine: SimulatedHardware) -> None:
    with pytest.raises(Invalid, match="device error: 8: unknown device"):
        seen(machine, ContainerRequest("app", {VISIBLE: "8"}), ToolkitOptions())


def test_mig_devices(machine: SimulatedHardware) -> None:
    gpu = machine.gpus()[0]
    machine.set_mig_mode(gpu.uuid, True)
    shape = next(shape for shape in machine.shapes(gpu.uuid) if shape.name == "3g.40gb")
    made = [machine.create_instance(gpu.uuid, shape, start) for start in (0, 4)]

    def instances(value: str) -> list[str]:
        toolkit = Toolkit(machine, ToolkitOptions())
        edits = toolkit.inject(ContainerRequest("app", {VISIBLE: value})).edits
        return [instance.uuid for shown in toolkit.shown(edits) for instance in shown.instances]

    assert instances("0:1") == [made[1].uuid]
    assert instances(made[0].uuid) == [made[0].uuid]
    assert instances("all") == [made[0].uuid, made[1].uuid]
    assert instances("0") == []  # the GPU alone gives access to no instance


@pytest.mark.parametrize(
    ("image", "visible"),
    [
        ("nvidia/cuda:12.4.1-base-ubuntu22.04", "all"),
        ("docker.io/nvidia/cuda:11.8.0-runtime", "all"),
        ("nvcr.io/nvidia/pytorch:24.05-py3", "all"),
        ("registry.example.com/nvidia/cuda:12", None),
        ("nvidia/cudagl", None),
        ("app:1", None),
    ],
)
def test_images_that_set_all(machine: SimulatedHardware, image: str, visible: str | None) -> None:
    assert Toolkit(machine, ToolkitOptions()).image_env(image).get(VISIBLE) == visible


def test_options() -> None:
    text = "accept-nvidia-visible-devices-as-volume-mounts=true, default-runtime=false"
    assert parse_options(text, "flag") == ToolkitOptions(volume_mounts=True, default_runtime=False)
    with pytest.raises(Invalid, match="flag: must be of"):
        parse_options("volume-mounts=true", "flag")


def plain(name: str, image: str = "app", annotations: dict[str, str] | None = None, **container: Any) -> Object:
    command = ["sh", "-c", "nvidia-smi -L || echo no driver; sleep infinity"]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default", "annotations": annotations or {}},
        "spec": {"containers": [{"name": "main", "image": image, "command": command, **container}]},
    }


@pytest.mark.slow
def test_what_pods_see_that_ask_for_no_gpu() -> None:
    """The trap of `all` in an image, on a running node."""

    async def main() -> None:
        async with lab(("a", "dgx-a100-40@device-plugin"), ("h", "dgx-h100")) as world:
            await scenario(world)

    async def scenario(world: Lab) -> None:
        on_a = {"kubernetes.io/hostname": "a"}
        pods = {
            "silent": (plain("silent"), 0),
            "image": (plain("image", "nvidia/cuda:12.4.1-base-ubuntu22.04"), 8),
            "annotated": (plain("annotated", annotations={"dragoman.dev/image-env": f"{VISIBLE}=1,2"}), 2),
            "own": (plain("own", env=[{"name": VISIBLE, "value": "3"}]), 1),
            "none": (plain("none", env=[{"name": VISIBLE, "value": "none"}]), 0),
        }
        for body, _ in pods.values():
            body["spec"]["nodeSelector"] = on_a
        await world.apply(*(body for body, _ in pods.values()))
        dra = plain("dra", "nvidia/cuda:12.4.1-base-ubuntu22.04")
        dra["spec"]["nodeSelector"] = {"kubernetes.io/hostname": "h"}
        unknown = plain("unknown", env=[{"name": VISIBLE, "value": "77"}])
        unknown["spec"]["nodeSelector"] = on_a
        await world.apply(dra, unknown)
        for name, (_, count) in pods.items():
            await world.phase(name, "Running")
            log = await world.until(lambda name=name: _log(world, name))
            assert log.count("UUID: ") == count, (name, log)
            assert ("no driver" in log) == (name == "silent"), (name, log)
        # A node of the DRA driver needs no toolkit: what an image says gives nothing.
        await world.phase("dra", "Running")
        assert "no driver" in await world.until(lambda: _log(world, "dra"))
        assert "unknown device" in await world.event("Failed", "unknown")

    asyncio.run(main())


async def _log(world: Lab, name: str) -> str:
    log = await world.logs(name)
    return log if any(word in log for word in ("UUID", "No devices", "no driver")) else ""
