from __future__ import annotations

from typing import Any

import pytest

from dragoman.api import files
from dragoman.api.gates import gates_with
from dragoman.apiserver.client_apply import applied
from dragoman.drivers.registry import known_drivers
from dragoman.lint.finding import CODES, Finding, as_json
from dragoman.lint.linter import LintTarget, lint
from tests.lint.test_sharing import PROVOKED

G = "apiVersion: resource.k8s.io"
POD = "apiVersion: v1\nkind: Pod\nmetadata: {name: p}\nspec:\n"


def claim(request: str, version: str = "v1", more: str = "") -> str:
    return f"{G}/{version}\nkind: ResourceClaim\nmetadata: {{name: c}}\nspec:\n  devices:\n    requests:\n    - {request}\n{more}"


EXACT = "{name: r, exactly: {deviceClassName: c}}"


# sentence: code, text, line, field, part of the message
def compute_domain(mode: str = "Single", more: str = "") -> str:
    return (
        "apiVersion: resource.nvidia.com/v1beta1\nkind: ComputeDomain\nmetadata: {name: d}\nspec:\n  channel:\n"
        f"    resourceClaimTemplate: {{name: t}}\n    allocationMode: {mode}\n{more}---\n"
    )


def domain_job(pods: int) -> str:
    return (
        f"apiVersion: batch/v1\nkind: Job\nmetadata: {{name: j}}\nspec: {{parallelism: {pods}, template: {{spec: {{"
        "restartPolicy: Never, containers: [{name: c, image: a, resources: {claims: [{name: x}]}}], "
        "resourceClaims: [{name: x, resourceClaimTemplateName: t}]}}}\n"
    )


CASES: dict[str, tuple[str, str, int, str, str]] = {
    "a text that is not YAML": ("BrokenSyntax", "a: b: c\n", 1, "", "mapping values are not allowed"),
    "a word for a number": (
        "WrongType",
        claim("{name: r, exactly: {deviceClassName: c, count: two}}"),
        7,
        "spec.devices.requests[0].exactly.count",
        "must be an integer",
    ),
    "an unquoted on": (
        "YamlBoolean",
        "apiVersion: v1\nkind: Node\nmetadata:\n  name: n1\n  labels:\n    gpu: on\n",
        6,
        "metadata.labels[gpu]",
        "YAML takes on for true or false",
    ),
    "a key that is defined twice": (
        "DuplicateKey",
        POD + "  containers: [{name: c, image: i}]\n  nodeName: a\n  nodeName: b\n",
        7,
        "spec.nodeName",
        "'nodeName' is defined twice",
    ),
    "an object that is defined twice": (
        "DuplicateObject",
        f"{claim(EXACT)}---\n{claim(EXACT)}",
        11,
        "metadata.name",
        "already defined in f.yaml, document 1, line 1",
    ),
    "an object that two files have": (
        "RedefinedObject",
        f"{claim(EXACT)}# another file\n{claim(EXACT)}",
        3,
        "metadata.name",
        "earlier-0.yaml, document 1 has this object too",
    ),
    "a kind of a gate that is off": (
        "GatedKind",
        "apiVersion: scheduling.k8s.io/v1beta1\nkind: PodGroup\nmetadata: {name: g}\n"
        "spec: {schedulingPolicy: {gang: {minCount: 2}}}\n",
        2,
        "kind",
        "the server could not find the requested resource (post podgroups.scheduling.k8s.io)",
    ),
    "a kind of classic DRA": (
        "RemovedKind",
        f"{G}/v1alpha2\nkind: ResourceClass\nmetadata: {{name: c}}\n",
        2,
        "kind",
        "ResourceClass was removed",
    ),
    "a version that is gone": (
        "VersionNotServed",
        claim(EXACT, "v1alpha3"),
        1,
        "apiVersion",
        "1.37 does not serve ResourceClaim in resource.k8s.io/v1alpha3, which exists in 1.31 only",
    ),
    "a version that is deprecated": (
        "OldVersion",
        claim("{name: r, deviceClassName: c}", "v1beta1"),
        1,
        "apiVersion",
        "Kubernetes 1.38 no longer has it",
    ),
    "a flat request in v1": (
        "FlatRequest",
        claim("{name: r, deviceClassName: c, count: 2}"),
        7,
        "spec.devices.requests[0].deviceClassName",
        "deviceClassName, count of a request: only v1beta1 has them there",
    ),
    "a nested request in v1beta1": (
        "NestedRequest",
        claim(EXACT, "v1beta1"),
        7,
        "spec.devices.requests[0].exactly",
        "v1beta1 has no `exactly`",
    ),
    "a wrapped device in v1": (
        "WrappedDevice",
        f"{G}/v1\nkind: ResourceSlice\nmetadata: {{name: s}}\nspec:\n  driver: d\n  allNodes: true\n"
        "  pool: {name: p, generation: 1, resourceSliceCount: 1}\n  devices:\n  - name: g\n    basic: {attributes: {a: {int: 1}}}\n",
        10,
        "spec.devices[0].basic",
        "only v1beta1 has `basic`",
    ),
    "a bare device in v1beta1": (
        "BareDevice",
        f"{G}/v1beta1\nkind: ResourceSlice\nmetadata: {{name: s}}\nspec:\n  driver: d\n  allNodes: true\n"
        "  pool: {name: p, generation: 1, resourceSliceCount: 1}\n  devices:\n  - name: g\n    attributes: {a: {int: 1}}\n",
        10,
        "spec.devices[0].attributes",
        "v1beta1 has them under `basic`",
    ),
    "a claim entry with source": (
        "InlineClaim",
        POD
        + "  containers: [{name: c, image: i, resources: {claims: [{name: g}]}}]\n"
        + "  resourceClaims:\n  - name: g\n    source: {resourceClaimTemplateName: t}\n",
        8,
        "spec.resourceClaims[0].source",
        "went with Kubernetes 1.31",
    ),
    "a misspelt field": (
        "UnknownField",
        claim("{name: r, exactly: {deviceClassname: c}}"),
        7,
        "spec.devices.requests[0].exactly.deviceClassname",
        "the API has no field 'deviceClassname' here",
    ),
    "a field whose gate is off": (
        "GatedField",
        f"{G}/v1\nkind: ResourceSlice\nmetadata: {{name: s}}\nspec:\n  driver: d\n  allNodes: true\n"
        "  pool: {name: p, generation: 1, resourceSliceCount: 1}\n  devices:\n  - name: g\n    attributes:\n      a: {ints: [1]}\n",
        11,
        "spec.devices[0].attributes.a.ints",
        "unless DRAListTypeAttributes is on",
    ),
    "a value that the server refuses": (
        "InvalidField",
        claim("{name: r, exactly: {deviceClassName: c, selectors: [{cel: {expression: device.foo}}]}}"),
        7,
        "spec.devices.requests[0].exactly.selectors[0].cel.expression",
        "undefined field 'foo'",
    ),
    "a pool without slices": (
        "NeverComplete",
        f"{G}/v1\nkind: ResourceSlice\nmetadata: {{name: s}}\nspec:\n  driver: d\n  allNodes: true\n"
        "  pool: {name: p, generation: 1, resourceSliceCount: 0}\n  devices: [{name: a}, {name: b}]\n",
        7,
        "spec.pool.resourceSliceCount",
        "pool.resourceSliceCount is 0, the pool can never be complete; its 2 devices are ignored",
    ),
    "an extended resource in requests only": (
        "RequestsWithoutLimits",
        POD + "  containers:\n  - name: c\n    image: i\n    resources: {requests: {example.com/gpu: 1}}\n",
        8,
        "spec.containers[0].resources.limits",
        "in requests only",
    ),
    "an empty device selector": (
        "TaintsEverything",
        f"{G}/v1\nkind: DeviceTaintRule\nmetadata: {{name: t}}\nspec:\n  deviceSelector: {{}}\n  taint: {{key: k, effect: NoExecute}}\n",
        5,
        "spec.deviceSelector",
        "every device of every driver and evicts the pods that use them",
    ),
    "no device selector": (
        "TaintsNothing",
        f"{G}/v1\nkind: DeviceTaintRule\nmetadata: {{name: t}}\nspec:\n  taint: {{key: k, effect: NoExecute}}\n",
        4,
        "spec.deviceSelector",
        "taints nothing",
    ),
    "a claim that no container names": (
        "UnusedClaim",
        POD + "  containers: [{name: c, image: i}]\n  resourceClaims:\n  - {name: g, resourceClaimName: c}\n",
        7,
        "spec.resourceClaims[0]",
        "no container names this claim",
    ),
    "a request that the claim lacks": (
        "UnknownRequest",
        claim(EXACT)
        + "---\n"
        + POD
        + "  containers: [{name: c, image: i, resources: {claims: [{name: g, request: gpu}]}}]\n"
        + "  resourceClaims: [{name: g, resourceClaimName: c}]\n",
        13,
        "spec.containers[0].resources.claims[0].request",
        "the claim has no request 'gpu', it has r",
    ),
    "a claim for too many pods": (
        "TooManyConsumers",
        "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: d}\nspec:\n  replicas: 300\n"
        "  selector: {matchLabels: {a: b}}\n  template:\n    metadata: {labels: {a: b}}\n    spec:\n"
        "      containers: [{name: c, image: i, resources: {claims: [{name: g}]}}]\n"
        "      resourceClaims: [{name: g, resourceClaimName: c}]\n",
        11,
        "spec.template.spec.resourceClaims[0].resourceClaimName",
        "300 pods share claim c, at most 256",
    ),
}

DEVICES = (
    f"{G}/v1\nkind: ResourceSlice\nmetadata: {{name: s}}\nspec:\n  driver: gpu.example.com\n  nodeName: n1\n"
    "  pool: {name: n1, generation: 1, resourceSliceCount: 1}\n  devices:\n"
    "  - {name: a, attributes: {model: {string: X-80}, ready: {bool: true}}, capacity: {memory: {value: 79Gi}}}\n"
    "  - {name: b, attributes: {model: {string: X-40}}, capacity: {memory: {value: 40Gi}}}\n---\n"
    f"{G}/v1\nkind: ResourceSlice\nmetadata: {{name: t}}\nspec:\n  driver: nic.example.com\n  nodeName: n1\n"
    "  pool: {name: n1, generation: 1, resourceSliceCount: 1}\n  devices: [{name: nic, attributes: {modelName: {string: Z-1}}}]\n---\n"
)
GPU = "device.driver == 'gpu.example.com'"
GPUS = "device.attributes['gpu.example.com']"


def selecting(expression: str) -> str:
    """A class with that selector, beside two GPUs and a NIC; its expression stands in line 24."""
    return (
        DEVICES
        + f'{G}/v1\nkind: DeviceClass\nmetadata: {{name: c}}\nspec: {{selectors: [{{cel: {{expression: "{expression}"}}}}]}}\n'
    )


SELECTOR = "spec.selectors[0].cel.expression"
CASES |= {
    "memory read as attribute": (
        "AttributeIsCapacity",
        selecting(f"{GPU} && {GPUS}.memory.compareTo(quantity('40Gi')) >= 0"),
        24,
        SELECTOR,
        "'memory' is published as a capacity, not an attribute",
    ),
    "a model read as capacity": (
        "CapacityIsAttribute",
        selecting(f"{GPU} && device.capacity['gpu.example.com'].model.compareTo(quantity('1')) > 0"),
        24,
        SELECTOR,
        "'model' is published as an attribute, not a capacity",
    ),
    "a misspelt attribute": (
        "UnknownAttribute",
        selecting(f"{GPU} && {GPUS}.modle == 'X-80'"),
        24,
        SELECTOR,
        "no device of 'gpu.example.com' has the attribute 'modle'",
    ),
    "a misspelt domain": (
        "UnknownDomain",
        selecting(f"{GPU} && device.attributes['gpus.example.com'].model == 'X-80'"),
        24,
        SELECTOR,
        "no driver here publishes attributes of 'gpus.example.com'",
    ),
    "an attribute that some devices lack": (
        "UnguardedAttribute",
        selecting(f"{GPU} && {GPUS}.ready"),
        24,
        SELECTOR,
        "fails on 1 of 3 devices, which have no gpu.example.com/ready",
    ),
    "a value of another type": (
        "SelectorFails",
        selecting(f"{GPU} && {GPUS}.model > 1"),
        24,
        SELECTOR,
        "fails on 2 of 3 devices",
    ),
    "a threshold that nothing reaches": (
        "NeverTrue",
        selecting(f"{GPU} && device.capacity['gpu.example.com'].memory.compareTo(quantity('80Gi')) >= 0"),
        24,
        SELECTOR,
        "matches 0 of 2 devices; gpu.example.com/memory is 40Gi, 79Gi",
    ),
    "an attribute that one of two drivers publishes": (
        "ConstraintNotShared",
        DEVICES
        + f"{G}/v1\nkind: DeviceClass\nmetadata: {{name: any}}\nspec: {{}}\n---\n"
        + claim(
            "{name: r, exactly: {deviceClassName: any, count: 2}}",
            more="    constraints: [{matchAttribute: gpu.example.com/model}]\n",
        ),
        33,
        "spec.devices.constraints[0].matchAttribute",
        "gpu.example.com/model is published by 1 of the 2 drivers involved, not by nic.example.com",
    ),
}

NVIDIA = "device.attributes['gpu.nvidia.com']"
CONFIG = "    config: [{{opaque: {{driver: gpu.nvidia.com, parameters: {}}}}}]\n"
CASES |= {
    "a configuration of an API that the driver lacks": (
        "WrongConfig",
        claim(EXACT, more=CONFIG.format("{apiVersion: gpu.nvidia.com/v1alpha1, kind: GpuConfig}")),
        8,
        "spec.devices.config[0].opaque.parameters.apiVersion",
        "the driver does not know gpu.nvidia.com/v1alpha1",
    ),
    "time-slicing": (
        "NeedsDriverGate",
        claim(
            EXACT,
            more=CONFIG.format(
                "{apiVersion: resource.nvidia.com/v1beta1, kind: GpuConfig, sharing: {strategy: TimeSlicing}}"
            ),
        ),
        8,
        "spec.devices.config[0].opaque.parameters.sharing.strategy",
        "needs the driver's feature gate TimeSlicingSettings",
    ),
}

GPU_CLASS = f'{G}/v1\nkind: DeviceClass\nmetadata: {{name: gpu}}\nspec: {{selectors: [{{cel: {{expression: "{GPU}"}}}}], extendedResourceName: example.com/gpu}}\n---\n'


def asking(count: int) -> str:
    """Two GPUs and a NIC on node n1, a class, a template that asks for GPUs."""
    return (
        DEVICES
        + GPU_CLASS
        + f"{G}/v1\nkind: ResourceClaimTemplate\nmetadata: {{name: t}}\nspec:\n  spec:\n    devices:\n"
        + f"      requests: [{{name: r, exactly: {{deviceClassName: gpu, count: {count}}}}}]\n"
    )


def deployment(replicas: int, strategy: str = "{}") -> str:
    return (
        f"---\napiVersion: apps/v1\nkind: Deployment\nmetadata: {{name: d}}\nspec:\n  replicas: {replicas}\n"
        f"  strategy: {strategy}\n"
        "  selector: {matchLabels: {a: b}}\n  template:\n    metadata: {labels: {a: b}}\n    spec:\n"
        "      containers: [{name: c, image: i, resources: {claims: [{name: g}]}}]\n"
        "      resourceClaims: [{name: g, resourceClaimTemplateName: t}]\n"
    )


ZONES = "apiVersion: v1\nkind: Node\nmetadata:\n  name: n1\n  labels: {zone: east}\n---\n"
ZONE_POD = "apiVersion: v1\nkind: Pod\nmetadata: {name: p}\nspec:\n  nodeSelector: {zone: west}\n  containers: [{name: c, image: i}]\n"
CASES |= {
    "a node selector that no node meets": (
        "NodeLabelMissing",
        ZONES + ZONE_POD,
        11,
        "spec.nodeSelector.zone",
        "no node has zone of west; there are: east",
    ),
}
CASES |= {
    "a claim larger than any node": (
        "LargerThanAnyNode",
        asking(3),
        32,
        "spec.spec.devices.requests",
        "asks for 3 devices, and no node has more than 2 that would do (node n1)",
    ),
    "a rollout without a spare device": (
        "RolloutStuck",
        asking(1) + deployment(2),
        39,
        "spec.strategy",
        "(maxUnavailable is 0 of 2) and needs 3 devices, there are 2: it never finishes",
    ),
    "the same devices from a plugin and a driver": (
        "AdvertisedTwice",
        DEVICES
        + GPU_CLASS
        + "apiVersion: v1\nkind: Node\nmetadata: {name: n1}\nstatus: {allocatable: {example.com/gpu: 2}}\n",
        29,
        "status.allocatable",
        "gpu.example.com publishes 2 devices of this node and a device plugin advertises 2 example.com/gpu",
    ),
}


GPU_VIEW = "device.driver == 'gpu.nvidia.com' && device.attributes['gpu.nvidia.com']"


def rack(pool: str = "tray") -> str:
    """A tray with two GPUs and a NIC: none shares a PCIe root with another, a GPU and the NIC share a NUMA node."""
    gpus = "".join(
        f"  - {{name: gpu-{i}, attributes: {{resource.kubernetes.io/pcieRoot: {{string: pci000{i}:00}}, "
        f"resource.kubernetes.io/numaNode: {{int: {i}}}}}, capacity: {{memory: {{value: 81559Mi}}}}}}\n"
        for i in range(2)
    )
    head = f"{G}/v1\nkind: ResourceSlice\nmetadata: {{name: %s}}\nspec:\n  driver: %s\n  nodeName: tray\n"
    head += f"  pool: {{name: {pool}, generation: 1, resourceSliceCount: 1}}\n  devices:\n"
    nic = (
        "  - {name: nic, attributes: {resource.kubernetes.io/pcieRoot: {string: pci0010:00}, "
        "resource.kubernetes.io/numaNode: {int: 1}}}\n---\n"
    )
    return head % ("g", "gpu.nvidia.com") + gpus + "---\n" + head % ("nics", "nic.example.com") + nic


NIC_CLASS = f"{G}/v1\nkind: DeviceClass\nmetadata: {{name: nic}}\nspec: {{selectors: [{{cel: {{expression: \"device.driver == 'nic.example.com'\"}}}}]}}\n---\n"
NVIDIA_CLASS = f"{G}/v1\nkind: DeviceClass\nmetadata: {{name: gpu}}\nspec: {{selectors: [{{cel: {{expression: \"device.driver == 'gpu.nvidia.com'\"}}}}]}}\n---\n"
CASES |= {
    "a class that the files do not have": (
        "UnknownClass",
        GPU_CLASS + claim("{name: r, exactly: {deviceClassName: gpus}}"),
        12,
        "spec.devices.requests[0].exactly.deviceClassName",
        "there is no DeviceClass gpus in these files",
    ),
    "a claim of another namespace": (
        "UnknownClaim",
        claim(EXACT).replace("name: c}", "name: c, namespace: team}")
        + "---\n"
        + POD
        + "  containers: [{name: c, image: i, resources: {claims: [{name: g}]}}]\n"
        + "  resourceClaims: [{name: g, resourceClaimName: c}]\n",
        14,
        "spec.resourceClaims[0].resourceClaimName",
        "there is no ResourceClaim c in namespace default",
    ),
    "a pool that is not named after its node": (
        "ForeignPool",
        rack("nvidia-gpu").replace("nic.example.com", "other.example.com"),
        7,
        "spec.pool.name",
        "gpu.nvidia.com names its pools after nodes",
    ),
    "more pods than devices": (
        "MoreThanExist",
        asking(1) + deployment(3),
        38,
        "spec.replicas",
        "3 pods ask for 3 devices, and only 2 exist",
    ),
    "a threshold just above what a card has": (
        "JustMissed",
        selecting("device.capacity['gpu.nvidia.com'].memory.compareTo(quantity('80Gi')) >= 0").removeprefix(DEVICES),
        4,
        SELECTOR,
        "leaves out NVIDIA H100 80GB HBM3, NVIDIA H100 PCIe by little: gpu.nvidia.com/memory is up to 79.64Gi",
    ),
    "a profile that the card cannot have": (
        "WrongPartitionProfile",
        selecting(
            f"{GPU_VIEW}.productName == 'NVIDIA A100 80GB PCIe' && {GPU_VIEW[36:]}.profile == '3g.20gb'"
        ).removeprefix(DEVICES),
        4,
        SELECTOR,
        "NVIDIA A100 80GB PCIe cannot have the MIG profile 3g.20gb",
    ),
    "a GPU and a NIC that never share a root": (
        "ConstraintUnmeetable",
        rack()
        + NIC_CLASS
        + NVIDIA_CLASS
        + claim(
            "{name: gpu, exactly: {deviceClassName: gpu}}\n    - {name: nic, exactly: {deviceClassName: nic}}",
            more="    constraints: [{matchAttribute: resource.kubernetes.io/pcieRoot}]\n",
        ),
        40,
        "spec.devices.constraints[0].matchAttribute",
        "no node has devices (1 for gpu and 1 for nic) with one value of resource.kubernetes.io/pcieRoot: on tray gpu "
        "has pci0000:00, pci0001:00; nic has pci0010:00",
    ),
    "pods of a domain that nothing keeps together": (
        "NotTogether",
        compute_domain() + domain_job(3),
        12,
        "spec.template.spec",
        "nothing keeps these 3 pods in one nvidia.com/gpu.clique: ComputeDomain d does not",
    ),
    "a domain that waits for more nodes than pods": (
        "NodesNeverThere",
        compute_domain(more="  numNodes: 5\n") + domain_job(1),
        8,
        "spec.numNodes",
        "ComputeDomain waits for 5 nodes and its workload here has 1 pods",
    ),
    "all channels": (
        "RarelyMeant",
        compute_domain(mode="All"),
        7,
        "spec.channel.allocationMode",
        "every container gets all 2048 channels",
    ),
    "a class for daemons": (
        "DriversOwnClass",
        claim("{name: r, exactly: {deviceClassName: compute-domain-daemon.nvidia.com}}"),
        7,
        "spec.devices.requests[0].exactly.deviceClassName",
        "is for pods that compute-domain.nvidia.com makes itself",
    ),
}


HOLDING = (
    f"{G}/v1\nkind: ResourceClaim\nmetadata: {{name: h}}\n"
    "spec: {devices: {requests: [{name: r, exactly: {deviceClassName: gpu}}]}}\nstatus:\n"
    "  allocation: {devices: {results: [{request: r, driver: gpu.example.com, pool: n1, device: %s}]}}\n"
)
CASES |= {
    "a held device that no slice shows": (
        "HeldNotPublished",
        DEVICES + GPU_CLASS + HOLDING % "old-2",
        31,
        "status.allocation.devices.results",
        "holds old-2 of pool n1, which no ResourceSlice shows any longer",
    ),
    "another card under the name of the one that is held": (
        "DeviceReplaced",
        DEVICES.replace("{name: b, attributes: {", "{name: b, attributes: {serial: {string: s-9}, ")
        + GPU_CLASS
        + HOLDING % "b"
        + "  devices: [{driver: gpu.example.com, pool: n1, device: b, data: {serial: s-3}}]\n",
        31,
        "status.allocation.devices.results",
        "its serial is s-9, it was s-3 when it was allocated",
    ),
}


def run(text: str, **target: Any) -> list[Finding]:
    *earlier, last = text.split("# another file\n")
    texts = [*((f"earlier-{i}.yaml", one) for i, one in enumerate(earlier)), ("f.yaml", last)]
    return lint(files.scan(texts, changes=True), LintTarget(known=known_drivers(), applied=applied, **target))


@pytest.mark.parametrize(("code", "text", "line", "field", "message"), CASES.values(), ids=CASES)
def test_each_code(code: str, text: str, line: int, field: str, message: str) -> None:
    found = [f for f in run(text) if f.code == code or f.code != "OldVersion"]
    assert [f.code for f in found] == [code], "this finding and nothing else"
    (finding,) = found
    assert (finding.file, finding.line, finding.field) == ("f.yaml", line, field)
    assert message in finding.message
    assert finding.severity == CODES[code].severity


def test_every_code_is_provoked_and_has_a_meaning() -> None:
    elsewhere = PROVOKED | {"UpdateRefused"}  # test_sharing.py, test_updates.py
    assert {case[0] for case in CASES.values()} == set(CODES) - elsewhere
    assert all(code.meaning.endswith(".") for code in CODES.values())


CLEAN: dict[str, str] = {
    "a node as a kubelet reports it": "apiVersion: v1\nkind: Node\nmetadata: {name: n1, labels: {a: b}}\nspec: {podCIDR: 10.0.0.0/24, providerID: 'x://n1'}\n"
    "status: {nodeInfo: {kubeletVersion: v1.37.1}, images: [{names: [i], sizeBytes: 1}], capacity: {cpu: 8}}\n",
    "a workload with more than decisions read": "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: d}\nspec:\n"
    "  minReadySeconds: 5\n  revisionHistoryLimit: 2\n  selector: {matchLabels: {a: b}}\n  template:\n"
    "    metadata: {labels: {a: b}}\n    spec: {dnsPolicy: Default, containers: [{name: c, image: i, env: [{name: A, value: b}]}]}\n",
    "a namespace, a priority and a quota": "apiVersion: v1\nkind: Namespace\nmetadata: {name: team}\n---\n"
    "apiVersion: scheduling.k8s.io/v1\nkind: PriorityClass\nmetadata: {name: high}\nvalue: 10\ndescription: x\n---\n"
    "apiVersion: v1\nkind: ResourceQuota\nmetadata: {name: q}\nspec: {hard: {requests.nvidia.com/gpu: '8'}}\n",
    "a claim as large as a node": asking(2),
    "a rollout with a spare device": asking(1) + deployment(1),
    "a rollout that may stop a pod first": asking(1) + deployment(2, "{rollingUpdate: {maxUnavailable: 1}}"),
    "a deployment that recreates": asking(1) + deployment(2, "{type: Recreate}"),
    "a node whose plugin advertises nothing": DEVICES
    + GPU_CLASS
    + "apiVersion: v1\nkind: Node\nmetadata: {name: n1}\nstatus: {allocatable: {example.com/gpu: 0, cpu: 1}}\n",
    "a plugin on another node": DEVICES
    + GPU_CLASS
    + "apiVersion: v1\nkind: Node\nmetadata: {name: n2}\nstatus: {allocatable: {example.com/gpu: 2}}\n",
    "a guarded attribute": selecting(f"{GPU} && {GPUS}.?ready.orValue(false)"),
    "an attribute asked for with has": selecting(f"{GPU} || has({GPUS}.nothing)"),
    "a threshold that is reached": selecting(
        "device.capacity['gpu.example.com'].?memory.orValue(quantity('0')).compareTo(quantity('40Gi')) >= 0"
    ),
    "a selector without any devices at hand": selecting(f"{GPUS}.anything == 1").removeprefix(DEVICES),
    "a constraint within one driver": DEVICES
    + f'{G}/v1\nkind: DeviceClass\nmetadata: {{name: any}}\nspec: {{selectors: [{{cel: {{expression: "{GPU}"}}}}]}}\n---\n'
    + claim(
        "{name: r, exactly: {deviceClassName: any}}",
        more="    constraints: [{matchAttribute: gpu.example.com/model}]\n",
    ),
    "a claim and a pod that uses it": claim(EXACT)
    + "---\n"
    + POD
    + "  containers: [{name: c, image: i, resources: {claims: [{name: g, request: r}]}}]\n"
    + "  resourceClaims: [{name: g, resourceClaimName: c}]\n",
    "a job, whose selector the server makes": "apiVersion: batch/v1\nkind: Job\nmetadata: {name: j}\nspec:\n  template:\n"
    "    spec: {restartPolicy: Never, containers: [{name: c, image: i}]}\n",
    "a kind of somebody's own": "apiVersion: a.io/v1\nkind: Workload\nmetadata: {name: w}\nspec: {x: 1}\n",
    "a stored object with all its metadata": f"{G}/v1\nkind: DeviceClass\nmetadata:\n  name: c\n  uid: u\n  generation: 1\n"
    "  resourceVersion: '5'\n  creationTimestamp: '2026-01-01T00:00:00Z'\n  managedFields: [{manager: m}]\nspec: {}\n",
    "opaque parameters may hold anything": claim(
        EXACT, more="    config:\n    - opaque: {driver: d, parameters: {kind: X, exactly: 1, sharing: {a: [b]}}}\n"
    ),
}


@pytest.mark.parametrize("text", CLEAN.values(), ids=CLEAN)
def test_nothing_else_is_flagged(text: str) -> None:
    assert run(text) == []


def test_what_is_new_is_not_served_by_an_older_target() -> None:
    (finding,) = run(claim(EXACT), minor=33)
    assert (finding.code, finding.fix) == ("VersionNotServed", "write it as resource.k8s.io/v1beta2")
    assert "which exists from 1.34 on" in finding.message
    assert run(claim("{name: r, deviceClassName: c}", "v1beta1"), minor=32) == []


def test_a_gate_that_is_on_is_not_spoken_of() -> None:
    text = CASES["a field whose gate is off"][1]
    gates, _ = gates_with({"DRAListTypeAttributes": True})
    assert run(text, gates=gates) == []


def test_paths_of_old_versions_are_as_written() -> None:
    found = run(claim("{name: r, deviceClassName: c, count: -1}", "v1beta1"))
    assert [(f.code, f.field) for f in found] == [
        ("OldVersion", "apiVersion"),
        ("InvalidField", "spec.devices.requests[0].count"),
    ]


def test_findings_of_lists_say_the_item() -> None:
    text = "apiVersion: v1\nkind: List\nitems:\n- {apiVersion: v1, kind: Pod, metadata: {name: p}, spec: {}}\n"
    (finding,) = run(text)
    shown = as_json(finding)
    assert (shown["document"], shown["item"], shown["line"], shown["field"]) == (1, 0, 4, "spec.containers")
    assert shown["fixable"] is False


def class_of(expression: str) -> str:
    return selecting(expression).removeprefix(DEVICES)


# expression: code, fix
WELL_KNOWN = {
    f"{NVIDIA}.memory.compareTo(quantity('40Gi')) >= 0": (
        "AttributeIsCapacity",
        "use device.capacity['gpu.nvidia.com'].memory",
    ),
    f"{NVIDIA}.migProfile == '3g.20gb'": ("UnknownAttribute", "write profile"),
    f"{NVIDIA}.productname == 'x'": ("UnknownAttribute", "write productName"),
    "device.attributes['resource.kubernetes.io'].pciRoot == 'x'": ("UnknownAttribute", "write pcieRoot"),
}


@pytest.mark.parametrize("expression", WELL_KNOWN)
def test_well_known_drivers_are_judged_without_their_slices(expression: str) -> None:
    for text in (class_of(expression), selecting(expression)):
        (finding,) = run(text)
        assert (finding.code, finding.fix) == WELL_KNOWN[expression]


def test_what_well_known_drivers_publish_is_fine() -> None:
    expression = f"{NVIDIA}.profile == '1g.5gb' && {NVIDIA}.partition4 == 1 && 'memorySlice0' in device.capacity['gpu.nvidia.com']"
    assert run(class_of(expression)) == []


def test_constraints_on_well_known_drivers_are_judged() -> None:
    more = "    constraints:\n    - matchAttribute: gpu.nvidia.com/nvlinkInterconnect\n    - distinctAttribute: gpu.nvidia.com/uuid\n"
    (finding,) = run(claim("{name: r, exactly: {deviceClassName: c, count: 2}}", more=more))
    assert (finding.code, finding.field, finding.line) == (
        "UnknownAttribute",
        "spec.devices.constraints[0].matchAttribute",
        9,
    )


def test_fixes_name_what_was_meant() -> None:
    def fix_of(name: str) -> str:
        return next(f.fix for f in run(CASES[name][1]))

    assert fix_of("memory read as attribute") == "use device.capacity['gpu.example.com'].memory"
    assert fix_of("a misspelt attribute") == "write model"
    assert fix_of("a misspelt domain") == "write 'gpu.example.com'"
    assert fix_of("an attribute that one of two drivers publishes").endswith("there is nic.example.com/modelName")


def test_findings_stand_in_the_order_of_files_and_lines() -> None:
    bad = claim("{name: r, count: 1}")
    scan = files.scan([("b.yaml", bad), ("a.yaml", f"x: y: z\n---\n{bad.replace('name: c', 'name: d')}")])
    assert [(f.file, f.number, f.code) for f in lint(scan)] == [
        ("b.yaml", 1, "FlatRequest"),
        ("a.yaml", 1, "BrokenSyntax"),
        ("a.yaml", 2, "FlatRequest"),
    ]
