"""What circulating articles on DRA get wrong, in minimal manifests of our own: found with the right fix, and no more.

Each case names the fault in words; `fixed` is what the text looks like when all is put right, and must be clean.
"""

from __future__ import annotations

import pytest

from dragoman.api import files
from dragoman.drivers.registry import known_drivers
from dragoman.lint.finding import Finding
from dragoman.lint.fix import fixed
from dragoman.lint.linter import LintTarget, lint

NV = "gpu.nvidia.com"
HEAD = "apiVersion: resource.k8s.io/{version}\nkind: {kind}\nmetadata: {{name: {name}}}\nspec:\n"


def head(kind: str, name: str, version: str = "v1") -> str:
    return HEAD.format(version=version, kind=kind, name=name)


def tier(name: str, condition: str, version: str = "v1", more: str = "") -> str:
    """A class that selects devices of NVIDIA's driver, the expression in a block of its own."""
    return (
        head("DeviceClass", name, version)
        + "  selectors:\n  - cel:\n      expression: |  # what this tier is\n"
        + f"        device.driver == '{NV}' &&\n        {condition}\n"
        + more
    )


def flat(name: str, class_name: str, count: int, kind: str = "ResourceClaim", version: str = "v1") -> str:
    """A claim or template whose request is flat, as v1beta1 has it."""
    pad = "  " if kind.endswith("Template") else ""
    lines = ["devices:", "  requests:", "  - name: gpu", f"    deviceClassName: {class_name}  # the tier"]
    lines += [f"    count: {count}"]
    outer = "  spec:\n" if pad else ""
    return head(kind, name, version) + outer + "".join(f"  {pad}{line}\n" for line in lines)


MEMORY = "device.attributes['gpu.nvidia.com'].memory.compareTo(quantity('{}')) >= 0"
CAPACITY = "device.capacity['gpu.nvidia.com'].memory.compareTo(quantity('{}')) >= 0"
FULL = "device.attributes['gpu.nvidia.com'].type == 'gpu' && "
OLD_CONFIG = (
    "  config:\n  - opaque:\n      driver: gpu.nvidia.com\n      parameters:\n        apiVersion: gpu.nvidia.com/v1alpha1\n"
    "        kind: GpuConfig\n        sharing: {strategy: TimeSlicing, timeSlicingConfig: {interval: Long}}\n"
)
A100 = "device.attributes['gpu.nvidia.com'].productName == 'NVIDIA A100 80GB PCIe'"

# fault: manifest, the findings as (code, part of the fix), what --fix must have written ("" where people must)
FAULTS: dict[str, tuple[str, list[tuple[str, str]], str]] = {
    "memory read as an attribute": (
        tier("big", MEMORY.format("40Gi")),
        [("AttributeIsCapacity", "use device.capacity['gpu.nvidia.com'].memory")],
        "expression: |  # what this tier is\n        device.driver == 'gpu.nvidia.com' &&\n        "
        + CAPACITY.format("40Gi"),
    ),
    "memory read as an attribute, and a threshold that leaves out 80 GB cards": (
        tier("large", MEMORY.format("80Gi")),
        [("AttributeIsCapacity", "use device.capacity"), ("JustMissed", "write 75Gi")],
        CAPACITY.format("80Gi"),
    ),
    "a flat request in v1": (
        tier("big", FULL + CAPACITY.format("40Gi")) + "---\n" + flat("llm", "big", 1),
        [("FlatRequest", "move them under `exactly`")],
        "  - name: gpu\n      exactly:\n        deviceClassName: big # the tier\n        count: 1\n",
    ),
    "a flat request in a template of v1": (
        tier("big", FULL + CAPACITY.format("40Gi")) + "---\n" + flat("llm", "big", 1, "ResourceClaimTemplate"),
        [("FlatRequest", "move them under `exactly`")],
        "exactly:\n          deviceClassName: big # the tier\n          count: 1\n",
    ),
    "a class and an attribute that tell of NVLink": (
        tier("big", FULL + CAPACITY.format("40Gi"))
        + "---\n"
        + flat("training", "distributed-training-nvlink", 4)
        + "    constraints:\n    - {requests: [gpu], matchAttribute: gpu.nvidia.com/nvlink-domain}\n",
        [
            ("FlatRequest", "move them"),
            ("UnknownClass", "create the DeviceClass"),
            ("UnknownAttribute", "there is no attribute for NVLink: drop it"),
        ],
        "exactly:",
    ),
    "another attribute that tells of NVLink, in v1beta1": (
        flat("training", "gpu.nvidia.com", 4, version="v1beta1")
        + "    constraints:\n    - {requests: [gpu], matchAttribute: gpu.nvidia.com/nvlinkInterconnect}\n",
        [("OldVersion", "write it as resource.k8s.io/v1"), ("UnknownAttribute", "the label nvidia.com/gpu.clique")],
        "apiVersion: resource.k8s.io/v1\n",
    ),
    "a configuration of an API that never was": (
        tier("shared", f"{FULL}{A100}", more=OLD_CONFIG),
        [("WrongConfig", "write apiVersion: resource.nvidia.com/v1beta1")],
        "apiVersion: resource.nvidia.com/v1beta1",
    ),
    "time-slicing without the driver's gate": (
        tier(
            "shared", f"{FULL}{A100}", more=OLD_CONFIG.replace("gpu.nvidia.com/v1alpha1", "resource.nvidia.com/v1beta1")
        ),
        [("NeedsDriverGate", "set TimeSlicingSettings=true for the driver")],
        "",
    ),
    "an attribute that is called otherwise, and a profile of another card": (
        tier("mig", f"{A100} && device.attributes['gpu.nvidia.com'].migProfile == '3g.20gb'"),
        [("UnknownAttribute", "write profile"), ("WrongPartitionProfile", "write 3g.40gb")],
        "device.attributes['gpu.nvidia.com'].profile == '3g.40gb'",
    ),
    "devices asked for in the pod itself": (
        "apiVersion: v1\nkind: Pod\nmetadata: {name: quick}\nspec:\n"
        "  containers: [{name: c, image: i, resources: {claims: [{name: gpu}]}}]\n  resourceClaims:\n  - name: gpu\n"
        "    resourceClaimTemplateName: ''\n    source:\n      devices:\n        requests:\n"
        "        - {name: gpu, deviceClassName: gpu.nvidia.com-h100, count: 1}\n",
        [("InlineClaim", "name a claim or a template; devices are asked for there")],
        "",
    ),
    "a class of classic DRA": (
        "apiVersion: resource.k8s.io/v1alpha2\nkind: ResourceClass\nmetadata: {name: gpu}\ndriverName: gpu.nvidia.com\n",
        [("RemovedKind", "a DeviceClass names kinds of devices now")],
        "",
    ),
    "a slice with a pool of its own and nested attributes": (
        head("ResourceSlice", "gpu-node1-slice-0")
        + "  driver: gpu.nvidia.com\n  nodeName: node1\n  pool: {name: nvidia-gpu, generation: 1, resourceSliceCount: 1}\n"
        "  devices:\n  - name: gpu-0\n    attributes:\n      gpu.nvidia.com:\n        productName: {stringValue: X}\n",
        [
            ("ForeignPool", "write node1"),
            ("UnknownField", "keys are flat: write gpu.nvidia.com/productName"),
        ],
        "pool: {name: node1,",
    ),
    "value fields of no version of the API": (
        head("ResourceSlice", "s")
        + "  driver: gpu.nvidia.com\n  nodeName: node1\n  pool: {name: node1, generation: 1, resourceSliceCount: 1}\n"
        "  devices:\n  - name: gpu-0\n    attributes:\n      productName: {stringValue: X}\n      memory: {quantityValue: 80Gi}\n",
        [
            ("UnknownField", "write string"),
            ("UnknownField", "quantities are capacity: write it under capacity, memory: {value: ...}"),
        ],
        "productName: {string: X}",
    ),
    "a GPU in requests only": (
        "apiVersion: v1\nkind: Pod\nmetadata: {name: smoke}\nspec:\n  containers:\n"
        "  - {name: cuda, image: i, resources: {requests: {nvidia.com/gpu: 1}}}\n",
        [("RequestsWithoutLimits", "put it into limits")],
        "",
    ),
}


def run(text: str) -> list[Finding]:
    return lint(files.scan([("f.yaml", text)]), LintTarget(known=known_drivers()))


@pytest.mark.parametrize("name", FAULTS)
def test_each_fault_is_found_with_its_fix_and_nothing_else(name: str) -> None:
    text, expected, after = FAULTS[name]
    findings = run(text)
    assert [f.code for f in findings] == [code for code, _ in expected]
    for finding, (_, fix) in zip(findings, expected, strict=True):
        assert fix in finding.fix
    new, _ = fixed(text, findings)
    assert after in new
    if not after:
        assert new == text


def migs(count: int) -> str:
    """A node with so many MIG devices 3g.40gb of two A100."""
    devices = "".join(
        f"  - {{name: gpu-{i // 2}-mig-3g40gb-9-{i % 2 * 4}, attributes: {{type: {{string: mig}}, profile: {{string: 3g.40gb}}}}}}\n"
        for i in range(count)
    )
    return (
        head("ResourceSlice", "s")
        + "  driver: gpu.nvidia.com\n  nodeName: node1\n  pool: {name: node1, generation: 1, resourceSliceCount: 1}\n  devices:\n"
        + devices
        + "---\n"
    )


def service(replicas: int) -> str:
    return (
        head("ResourceClaimTemplate", "mig")
        + "  spec: {devices: {requests: [{name: mig, exactly: {deviceClassName: mig.nvidia.com}}]}}\n---\n"
        "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: service}\nspec:\n"
        f"  replicas: {replicas}\n  strategy: {{type: Recreate}}\n  selector: {{matchLabels: {{app: s}}}}\n"
        "  template:\n    metadata: {labels: {app: s}}\n    spec:\n"
        "      containers: [{name: c, image: i, resources: {claims: [{name: gpu}]}}]\n"
        "      resourceClaims: [{name: gpu, resourceClaimTemplateName: mig}]\n"
    )


def test_six_pods_do_not_fit_on_two_cards_cut_in_two() -> None:
    (finding,) = run(migs(4) + service(6))
    assert (finding.code, finding.fix) == ("MoreThanExist", "run at most 4 pods, ask for less in each, or add a node")
    assert run(migs(4) + service(4)) == []


def h100(selector: str, count: int = 8) -> str:
    devices = "".join(
        f"  - {{name: gpu-{i}, attributes: {{type: {{string: gpu}}}}, capacity: {{memory: {{value: 81559Mi}}}}}}\n"
        for i in range(count)
    )
    return (
        head("ResourceSlice", "s")
        + "  driver: gpu.nvidia.com\n  nodeName: node1\n  pool: {name: node1, generation: 1, resourceSliceCount: 1}\n  devices:\n"
        + f"{devices}---\n{tier('big', selector)}"
    )


def test_a_threshold_of_80_gb_cards_is_said_to_miss_them() -> None:
    (finding,) = run(h100(FULL + CAPACITY.format("80Gi")))
    assert finding.code == "NeverTrue"
    assert finding.message.startswith("matches 0 of 8 devices; ")
    assert finding.fix == "gpu.nvidia.com/memory of 8 is up to 79.64Gi, just under 80Gi: write 75Gi"
    assert run(h100(FULL + CAPACITY.format("75Gi"))) == []


def test_the_same_gpus_from_a_plugin_and_a_driver() -> None:
    node = "---\napiVersion: v1\nkind: Node\nmetadata: {name: node1}\nstatus: {capacity: {nvidia.com/gpu: '8'}}\n"
    (finding,) = run(h100(FULL + CAPACITY.format("75Gi")) + node)
    assert (finding.code, finding.fix) == ("AdvertisedTwice", "run the device plugin or the driver on a node, not both")
    assert run(h100(FULL + CAPACITY.format("75Gi")) + node.replace("node1", "node2")) == []


RIGHT: dict[str, str] = {
    "tiers by capacity": "---\n".join(
        tier(name, FULL + CAPACITY.format(least))
        for name, least in (("small", "9Gi"), ("mid", "40Gi"), ("large", "75Gi"))
    ),
    "a MIG tier": tier(
        "mig",
        f"{A100} && device.attributes['gpu.nvidia.com'].type == 'mig' && device.attributes['gpu.nvidia.com'].profile == '3g.40gb'",
    ),
    "two MIG devices of one card": head("ResourceClaimTemplate", "migs")
    + "  spec:\n    devices:\n      requests:\n"
    + "".join(
        f"      - name: r{i}\n        exactly:\n          deviceClassName: mig.nvidia.com\n"
        f"          selectors: [{{cel: {{expression: \"device.attributes['gpu.nvidia.com'].profile == '{p}'\"}}}}]\n"
        for i, p in enumerate(("1g.5gb", "2g.10gb"))
    )
    + "      constraints: [{requests: [], matchAttribute: gpu.nvidia.com/parentUUID}]\n",
    "a GPU and a NIC under one root": head("ResourceClaim", "pair")
    + "  devices:\n    requests:\n    - {name: gpu, exactly: {deviceClassName: gpu.nvidia.com}}\n"
    "    - {name: nic, exactly: {deviceClassName: efa.networking.k8s.aws}}\n"
    "    constraints: [{requests: [gpu, nic], matchAttribute: resource.kubernetes.io/pcieRoot}]\n",
    "two GPUs of one partition of a shared switch": head("ResourceClaimTemplate", "two") + "  spec:\n    devices:\n"
    "      requests: [{name: gpus, exactly: {deviceClassName: vfio.gpu.nvidia.com, allocationMode: ExactCount, count: 2}}]\n"
    "      constraints: [{requests: [gpus], matchAttribute: gpu.nvidia.com/partition2}]\n",
    "a compute domain and a pod with its channel": "apiVersion: resource.nvidia.com/v1beta1\nkind: ComputeDomain\n"
    "metadata: {name: domain}\nspec: {numNodes: 1, channel: {resourceClaimTemplate: {name: channel}}}\n---\n"
    "apiVersion: v1\nkind: Pod\nmetadata: {name: p}\nspec:\n"
    "  containers: [{name: c, image: i, resources: {claims: [{name: channel}]}}]\n"
    "  resourceClaims: [{name: channel, resourceClaimTemplateName: channel}]\n",
    "a memory threshold and a module": "---\n".join(
        (
            tier("a", "device.capacity['gpu.nvidia.com'].memory.isGreaterThan(quantity('40Gi'))"),
            tier("b", "device.attributes['gpu.nvidia.com'].gpuModuleID == 1"),
        )
    ),
    "GPUs of a device plugin, whole and cut": "---\n".join(
        f"apiVersion: v1\nkind: Pod\nmetadata: {{name: p{i}}}\nspec:\n  nodeSelector: {{nvidia.com/gpu.present: 'true'}}\n"
        "  tolerations: [{key: nvidia.com/gpu, operator: Exists, effect: NoSchedule}]\n"
        f"  containers: [{{name: c, image: i, resources: {{limits: {{{resource}: 1}}}}}}]\n"
        for i, resource in enumerate(
            ("nvidia.com/gpu", "nvidia.com/mig-1g.10gb", "deviceclass.resource.kubernetes.io/x")
        )
    ),
    "the plugin's settings and nodes of an autoscaler": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: plugin}\n"
    "data: {config.yaml: 'version: v1'}\n---\napiVersion: karpenter.sh/v1\nkind: NodePool\nmetadata: {name: gpus}\n"
    "spec: {limits: {nvidia.com/gpu: '64'}}\n",
    "a claim by class and count": tier("big", FULL + CAPACITY.format("40Gi"))
    + "---\n"
    + head("ResourceClaim", "four")
    + "  devices: {requests: [{name: gpu, exactly: {deviceClassName: big, count: 4}}]}\n",
}


@pytest.mark.parametrize("name", RIGHT)
def test_what_is_right_is_left_alone(name: str) -> None:
    assert [(f.code, f.message) for f in run(RIGHT[name])] == []
