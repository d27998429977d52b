"""What people ask of NVIDIA GPUs, through a real kubectl, on simulated machines under the real driver."""

from __future__ import annotations

import json
import re
import shlex
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests.e2e.conftest import Cluster
from tests.e2e.test_kill import Daemon

pytestmark = pytest.mark.slow

GPU, MIG = "gpu.nvidia.com", "mig.nvidia.com"
GATES = "TimeSlicingSettings=true,MPSSupport=true,FabricManagerPartitioning=true"


@pytest.fixture(scope="module")
def machines(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A DGX H100, a node with two A100, one with a T4, one with an A100 cut by MIG."""
    folder = tmp_path_factory.mktemp("nvidia")
    nodes = ("h=dgx-h100", "a=a100-pcie-2", "t=t4-4", "m=a100-40-mig")
    flags = [part for node in nodes for part in ("--node", node)]
    made = Cluster(folder, *flags, "--gpu-feature-gates", GATES)
    made.start()
    yield made
    made.stop()


@pytest.fixture
def cluster(machines: Cluster) -> Iterator[Cluster]:
    """The same machines, empty again after each test."""
    yield machines
    machines.kubectl("delete", "pods,resourceclaims,resourceclaimtemplates", "--all", "--force", "--grace-period=0")
    machines.gone("pods")
    machines.gone("resourceclaims")


def claim(name: str, requests: str, more: str = "") -> str:
    return (
        "apiVersion: resource.k8s.io/v1\nkind: ResourceClaim\n"
        f"metadata: {{name: {name}}}\nspec:\n  devices:\n    requests: {requests}\n{more}---\n"
    )


def request(name: str = "r", cel: str = "", count: int = 1, device_class: str = GPU) -> str:
    chosen = f', selectors: [{{cel: {{expression: "{cel}"}}}}]' if cel else ""
    return f"{{name: {name}, exactly: {{deviceClassName: {device_class}, count: {count}{chosen}}}}}"


def pod(name: str, claim_name: str) -> str:
    return (
        f"apiVersion: v1\nkind: Pod\nmetadata: {{name: {name}}}\nspec:\n  terminationGracePeriodSeconds: 0\n"
        f"  resourceClaims: [{{name: gpu, resourceClaimName: {claim_name}}}]\n"
        "  containers: [{name: main, image: app, resources: {claims: [{name: gpu}]}}]\n---\n"
    )


def config(kind: str, body: str) -> str:
    parameters = f"{{apiVersion: resource.nvidia.com/v1beta1, kind: {kind}, {body}}}"
    return f"    config: [{{opaque: {{driver: {GPU}, parameters: {parameters}}}}}]\n"


def node_of(cluster: Cluster, name: str) -> str:
    return str(cluster.get("pod", name)["spec"]["nodeName"])


def test_memory_is_asked_for_by_capacity(cluster: Cluster) -> None:
    cel = f"device.capacity['{GPU}'].memory.compareTo(quantity('80Gi')) >= 0"
    cluster.apply(claim("big", f"[{request(cel=cel)}]") + pod("p", "big"))
    cluster.running("p")
    # An "80GB" H100 has 79.65 GiB.
    assert node_of(cluster, "p") == "a"


def test_a_product_is_asked_for_by_name(cluster: Cluster) -> None:
    cel = f"device.attributes['{GPU}'].productName == 'Tesla T4'"
    cluster.apply(claim("t4", f"[{request(cel=cel)}]") + pod("p", "t4"))
    cluster.running("p")
    assert node_of(cluster, "p") == "t"
    text = cluster.kubectl("logs", "p").stdout
    assert "NVIDIA_VISIBLE_DEVICES=void" in text
    assert "/dev/nvidia0" in text
    assert "libcuda.so.580.95.05" in text


def test_two_mig_devices_of_one_gpu(cluster: Cluster) -> None:
    def of(name: str, profile: str) -> str:
        return request(name, f"device.attributes['{GPU}'].profile == '{profile}'", device_class=MIG)

    requests = f"[{of('small', '1g.5gb')}, {of('large', '2g.10gb')}]"
    constraint = f"    constraints: [{{matchAttribute: {GPU}/parentUUID}}]\n"
    cluster.apply(claim("pair", requests, constraint) + pod("p", "pair"))
    cluster.running("p")
    assert cluster.devices("pair") == ["gpu-0-mig-1g5gb-19-2", "gpu-0-mig-2g10gb-14-0"]
    text = cluster.kubectl("logs", "p").stdout
    # 1g.5gb at 2 is instance 9, 2g.10gb at 0 instance 3: capability devices by the driver's numbering.
    for cap in (3 + 9 * 9, 4 + 9 * 9, 3 + 3 * 9, 4 + 3 * 9):
        assert f"/dev/nvidia-caps/nvidia-cap{cap}" in text


def test_time_slicing_and_mps_are_configured_by_claims(cluster: Cluster) -> None:
    slicing = config("GpuConfig", "sharing: {strategy: TimeSlicing, timeSlicingConfig: {interval: Long}}")
    limits = "{defaultActiveThreadPercentage: 50, defaultPinnedDeviceMemoryLimit: 10Gi}"
    mps = config("GpuConfig", f"sharing: {{strategy: MPS, mpsConfig: {limits}}}")
    cluster.apply(
        claim("slices", f"[{request()}]", slicing)
        + claim("mps", f"[{request()}]", mps)
        + pod("s1", "slices")
        + pod("s2", "slices")
        + pod("m1", "mps")
        + pod("m2", "mps")
    )
    cluster.running("s1", "s2", "m1", "m2")
    assert len({*cluster.devices("slices"), *cluster.devices("mps")}) == 2
    assert "CUDA_MPS_PIPE_DIRECTORY=/tmp/nvidia-mps" in cluster.kubectl("logs", "m1").stdout
    assert "CUDA_MPS" not in cluster.kubectl("logs", "s1").stdout
    daemons = cluster.get("deployments", "-n", "dra-driver-nvidia-gpu")["items"]
    assert len(daemons) == 1
    command = daemons[0]["spec"]["template"]["spec"]["containers"][0]["command"][-1]
    assert "set_default_active_thread_percentage 50" in command
    assert "10240M" in command
    cluster.kubectl("delete", "pod", "m1", "m2")
    cluster.gone("deployments", "-n", "dra-driver-nvidia-gpu")


def test_a_bad_configuration_is_reported_on_the_pod(cluster: Cluster) -> None:
    cluster.apply(claim("bad", f"[{request()}]", config("GpuConfig", "sharing: {strategy: Turns}")) + pod("p", "bad"))

    def look() -> str:
        events = cluster.get("events", "--field-selector", "involvedObject.name=p")["items"]
        return next((event["message"] for event in events if "Turns" in event["message"]), "")

    text = str(cluster.until(look, "an event about the configuration"))
    assert "sharing.strategy: must be TimeSlicing or MPS, got 'Turns'" in text


def test_two_gpus_of_one_fabric_manager_partition(cluster: Cluster) -> None:
    constraint = f"    constraints: [{{matchAttribute: {GPU}/partition2}}]\n"
    cluster.apply(claim("pair", f"[{request(count=2)}]", constraint) + pod("p", "pair"))
    cluster.running("p")
    assert cluster.devices("pair") in ([f"gpu-{i}", f"gpu-{i + 1}"] for i in (0, 2, 4, 6))


def test_an_h100_or_else_an_a100(cluster: Cluster) -> None:
    def alternative(name: str, product: str) -> str:
        cel = f"device.attributes['{GPU}'].productName.startsWith('{product}')"
        return f'{{name: {name}, deviceClassName: {GPU}, selectors: [{{cel: {{expression: "{cel}"}}}}], count: 8}}'

    eight = alternative("h100", "NVIDIA H100")
    two = alternative("a100", "NVIDIA A100").replace("count: 8", "count: 2")
    wish = f"[{{name: r, firstAvailable: [{eight}, {two}]}}]"
    cluster.apply(claim("first", wish) + pod("p1", "first"))
    cluster.running("p1")
    cluster.apply(claim("second", wish) + pod("p2", "second"))
    cluster.running("p2")
    assert (node_of(cluster, "p1"), len(cluster.devices("first"))) == ("h", 8)
    assert (node_of(cluster, "p2"), len(cluster.devices("second"))) == ("a", 2)


RESOURCES = ("nvidia.com/gpu", "deviceclass.resource.kubernetes.io/gpu.nvidia.com")


@pytest.mark.parametrize("resource", RESOURCES)
def test_an_extended_resource_is_served(cluster: Cluster, resource: str) -> None:
    cluster.apply(
        "apiVersion: v1\nkind: Pod\nmetadata: {name: old}\nspec:\n  terminationGracePeriodSeconds: 0\n"
        f"  containers: [{{name: main, image: app, resources: {{limits: {{{resource}: 1}}}}}}]\n"
    )
    cluster.running("old")
    status = cluster.get("pod", "old")["status"]["extendedResourceClaimStatus"]
    assert len(cluster.devices(status["resourceClaimName"])) == 1
    assert "/dev/nvidia" in cluster.kubectl("logs", "old").stdout


EXAMPLES = sorted((Path(__file__).parents[2] / "examples/nvidia").glob("*.yaml"))


@pytest.mark.parametrize("file", EXAMPLES, ids=[path.stem for path in EXAMPLES])
def test_an_example_runs_on_the_line_that_it_gives(tmp_path: Path, file: Path) -> None:
    text = file.read_text()
    (line,) = re.findall(r"^#   dragoman up (.+)$", text, flags=re.MULTILINE)
    made = Cluster(tmp_path, *shlex.split(line))
    made.start()
    try:
        made.kubectl("apply", "-f", str(file))
        kinds = {doc["metadata"]["name"]: doc["kind"] for doc in yaml.safe_load_all(text)}
        pods = [name for name, kind in kinds.items() if kind == "Pod"]
        jobs = [name for name, kind in kinds.items() if kind == "Job"]
        assert pods or jobs
        for job in jobs:
            made.kubectl("wait", "--for=condition=Complete", f"job/{job}", "--timeout=60s")
        if pods:
            # Ready, and not only Running: a container whose command has ended is started again and again.
            made.kubectl("wait", "--for=condition=Ready", *(f"pod/{name}" for name in pods), "--timeout=60s")
            assert [made.phase(name) for name in pods] == ["Running"] * len(pods)
    finally:
        made.stop()


def test_four_shares_fit_and_a_fifth_waits(tmp_path: Path) -> None:
    own = tmp_path / "shared.yaml"
    own.write_text("name: shared\nbase: a2-highgpu-1g\nfeatureGates: {ConsumableShares: true}\nconsumableShares: '4'\n")
    cluster = Cluster(tmp_path, "--node", "s=shared", "--profile", str(own))
    cluster.start()
    try:
        names = [f"p{number}" for number in range(5)]
        cluster.apply("".join(claim(name, f"[{request()}]") + pod(name, name) for name in names))
        cluster.until(lambda: [cluster.phase(name) for name in names].count("Running") == 4, "four pods to run")
        waiting = [name for name in names if cluster.phase(name) == "Pending"]
        assert len(waiting) == 1
        cluster.kubectl("delete", "pod", next(name for name in names if name not in waiting))
        cluster.running(*waiting)
    finally:
        cluster.stop()


def test_dynamic_mig_makes_and_removes_instances(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path, "--node", "d=dgx-h100-dynamic")
    cluster.start()
    try:
        cel = f"device.attributes['{GPU}'].profile == '3g.40gb'"
        cluster.apply(claim("one", f"[{request(cel=cel, device_class=MIG)}]") + pod("p", "one"))
        cluster.running("p")
        (device,) = cluster.devices("one")
        assert device.startswith("gpu-0-mig-3g40gb-9-")
        slices = cluster.get("resourceslices", "--field-selector", f"spec.driver={GPU}")["items"]
        assert {item["spec"]["pool"]["resourceSliceCount"] for item in slices} == {9}
        # The full GPU 0 is blocked by its partition: seven are left.
        cluster.apply(claim("all", f"[{request(count=8)}]") + pod("q", "all"))
        cluster.apply(claim("seven", f"[{request(count=7)}]") + pod("r", "seven"))
        cluster.running("r")
        assert "gpu-0" not in cluster.devices("seven")
        assert cluster.phase("q") == "Pending"
    finally:
        cluster.stop()


def instances(root: str) -> list[str]:
    """UUIDs of the MIG devices on the simulated machine."""
    state = json.loads((Path(root) / "plugins" / GPU / "simulated" / "hardware.json").read_text())
    return [instance["uuid"] for gpu in state["gpus"] for instance in gpu["instances"]]


def test_the_driver_alone_is_killed_and_instances_and_pods_stay(tmp_path: Path) -> None:
    """Driver and agent as processes of their own; the driver dies by kill -9 between and during claims."""
    cluster = Cluster(tmp_path, "--without", "nodes")
    cluster.start()
    with tempfile.TemporaryDirectory(prefix="dra-") as root:
        place = ("--node-name", "lonely", "--root-dir", root)
        flags = ("--simulate", "dgx-h100", "--feature-gates", "DynamicMIG=true", "--boot-id", "one")
        agent = Daemon(cluster, "node-agent", *place, "--boot-id", "one")
        driver = Daemon(cluster, "driver", "nvidia", *place, *flags)
        cel = f"device.attributes['{GPU}'].profile == '1g.10gb'"
        small = request(cel=cel, device_class=MIG)
        try:
            agent.start()
            driver.start()
            cluster.apply(claim("a", f"[{small}]") + pod("a", "a"))
            cluster.running("a")
            (first,) = instances(root)
            driver.kill()
            cluster.apply(claim("b", f"[{small}]") + pod("b", "b"))
            driver.start()
            cluster.running("a", "b")
            assert cluster.devices("a") != cluster.devices("b")
            assert first in instances(root)
            assert len(instances(root)) == 2
            driver.kill()
            cluster.kubectl("delete", "pod", "a", "--wait=false")
            driver.start()
            cluster.gone("pod", "a")
            cluster.apply(claim("seven", f"[{small.replace('count: 1', 'count: 7')}]") + pod("c", "seven"))
            cluster.running("c")
            assert first not in instances(root)
            assert len(instances(root)) == 8
        finally:
            driver.kill()
            agent.kill()
            cluster.stop()
