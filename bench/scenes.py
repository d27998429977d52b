"""Made-up clusters and claims for the benchmarks, as JSON. Same arguments, same scene."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any, NamedTuple

GPU, NIC = "gpu.example.com", "nic.example.com"
ROOT = "resource.kubernetes.io/pcieRoot"
GATES = (
    "AdminAccess", "ConsumableCapacity", "DeviceBindingAndStatus", "DeviceTaints", "FractionalCapacityRange",
    "PartitionableDevices", "PrioritizedList",
)  # fmt: skip

Json = dict[str, Any]


class Scene(NamedTuple):
    """nodes and slices of a cluster, claims that hold devices there, and the claim that comes n-th. kinds: how many
    kinds of claims take turns."""

    nodes: list[Json]
    slices: list[Json]
    claim: Callable[[int], Json]
    kinds: int = 1
    holding: list[Json] = []


def classes() -> list[Json]:
    """DeviceClasses gpu and nic."""
    made = []
    for name, driver in (("gpu", GPU), ("nic", NIC)):
        spec = {"selectors": [{"cel": {"expression": f"device.driver == '{driver}'"}}]}
        made.append({"metadata": {"name": name}, "spec": spec})
    return made


def node(index: int, **labels: str) -> Json:
    name = f"node-{index:05d}"
    return {"metadata": {"name": name, "labels": {"kubernetes.io/hostname": name, **labels}}}


def resource_slice(
    node: Json, devices: list[Json] | None, driver: str = GPU, *, part: int = 0, parts: int = 1, **spec: Any
) -> Json:
    """A ResourceSlice of a node's pool."""
    name = node["metadata"]["name"]
    body = {"driver": driver, "nodeName": name, "pool": {"name": name, "generation": 1, "resourceSliceCount": parts}}
    if devices is not None:
        body["devices"] = devices
    return {"metadata": {"name": f"{name}-{driver}-{part}"}, "spec": {**body, **spec}}


def gpu(node: int, index: int, model: str = "LATEST-GPU-MODEL", memory: str = "80Gi") -> Json:
    """A device as a driver publishes it: uuid and bus id are its own."""
    return {
        "name": f"gpu-{index}",
        "attributes": {
            "index": {"int": index},
            "uuid": {"string": f"GPU-{node:08x}-0000-4000-8000-{index:012x}"},
            "model": {"string": model},
            "driverVersion": {"version": "580.65.6"},
            "numa": {"int": index // 4},
            ROOT: {"string": f"pci0000:{index // 2 + 1:02x}"},
        },
        "capacity": {"memory": {"value": memory}, "compute": {"value": "100"}},
    }


def request(name: str = "gpu", count: int = 1, device_class: str = "gpu", select: str = "", **more: Any) -> Json:
    return {"name": name, "exactly": _asked(count, device_class, select, **more)}


def _asked(count: int, device_class: str, select: str, **more: Any) -> Json:
    asked = {"deviceClassName": device_class, "allocationMode": "ExactCount", "count": count, **more}
    if select:
        asked["selectors"] = [{"cel": {"expression": select}}]
    return asked


def claim(index: int, requests: list[Json], constraints: list[Json] | None = None) -> Json:
    devices: Json = {"requests": requests}
    if constraints:
        devices["constraints"] = constraints
    return {"metadata": {"name": f"claim-{index}", "namespace": "default"}, "spec": {"devices": devices}}


def equivalent(nodes: int) -> Scene:
    """(a) alike GPUs, claims of one."""
    made = [node(n) for n in range(nodes)]
    slices = [resource_slice(made[n], [gpu(n, d) for d in range(8)]) for n in range(nodes)]
    return Scene(made, slices, lambda n: claim(n, [request()]))


MODELS = (("M0", "16Gi"), ("M1", "24Gi"), ("M2", "40Gi"), ("M3", "80Gi"), ("M4", "141Gi"))


def mixed(nodes: int) -> Scene:
    """(b) five models, claims by model and memory, and prioritized lists."""
    made = [node(n) for n in range(nodes)]
    slices = [resource_slice(made[n], [gpu(n, d, *MODELS[n % 5]) for d in range(8)]) for n in range(nodes)]

    def by_memory(size: str) -> str:
        return f"device.capacity['{GPU}'].memory.compareTo(quantity('{size}')) >= 0"

    def by_model(model: str) -> str:
        return f"device.attributes['{GPU}'].model == '{model}'"

    def nth(index: int) -> Json:
        kind = index % 5
        if kind == 3:
            subs = [
                {"name": f"s{i}", **_asked(1, "gpu", by_model(model))} for i, model in enumerate(("M4", "M2", "M0"))
            ]
            return claim(index, [{"name": "gpu", "firstAvailable": subs}])
        if kind == 4:
            subs = [{"name": f"s{i}", **_asked(count, "gpu", by_memory("40Gi"))} for i, count in enumerate((4, 2))]
            return claim(index, [{"name": "gpu", "firstAvailable": subs}])
        select = (by_model("M1"), by_memory("80Gi"), f"{by_model('M3')} && {by_memory('40Gi')}")[kind]
        return claim(index, [request(select=select)])

    return Scene(made, slices, nth, kinds=5)


def pairs(nodes: int, wanted: int) -> Scene:
    """(c) GPU and NIC on one PCIe root each, 1 to 8 pairs; NICs are published in another order than GPUs."""
    made = [node(n) for n in range(nodes)]
    slices = []
    for n in range(nodes):
        order = random.Random(n % 3).sample(range(8), 8)
        gpus = [gpu(n, d) | {"attributes": {ROOT: {"string": f"pci{d}"}}} for d in range(8)]
        nics = [{"name": f"nic-{d}", "attributes": {ROOT: {"string": f"pci{d}"}}} for d in order]
        slices += [resource_slice(made[n], gpus), resource_slice(made[n], nics, NIC)]
    requests, constraints = [], []
    for i in range(wanted):
        requests += [request(f"g{i}"), request(f"n{i}", device_class="nic")]
        constraints.append({"matchAttribute": ROOT, "requests": [f"g{i}", f"n{i}"]})
    return Scene(made, slices, lambda n: claim(n, requests, constraints))


PROFILES = (("1g", 7, 1, 1), ("2g", 3, 2, 2), ("3g", 2, 4, 3), ("4g", 1, 4, 4), ("7g", 1, 8, 7))
"""Profile, partitions a GPU publishes, memory slices and processors each."""


def partitions(nodes: int) -> Scene:
    """(d) GPUs cut like MIG: every partition published, counters allow some of them at once."""
    made = [node(n) for n in range(nodes)]
    slices = []
    for n in range(nodes):
        devices, sets = [], []
        for g in range(8):
            sets.append({"name": f"gpu-{g}", "counters": {"memory": {"value": "8"}, "processors": {"value": "7"}}})
            for profile, number, memory, processors in PROFILES:
                counters = {"memory": {"value": str(memory)}, "processors": {"value": str(processors)}}
                devices += [
                    {
                        "name": f"gpu-{g}-{profile}-{i}",
                        "attributes": {"profile": {"string": profile}, "parent": {"int": g}},
                        "consumesCounters": [{"counterSet": f"gpu-{g}", "counters": counters}],
                    }
                    for i in range(number)
                ]
        slices.append(resource_slice(made[n], devices, parts=2))
        slices.append(resource_slice(made[n], None, part=1, parts=2, sharedCounters=sets))
    draw = random.Random(1)
    drawn = draw.choices([profile for profile, *_ in PROFILES], weights=[50, 20, 15, 5, 10], k=4096)

    def nth(index: int) -> Json:
        return claim(index, [request(select=f"device.attributes['{GPU}'].profile == '{drawn[index]}'")])

    return Scene(made, slices, nth, kinds=1)


def shares(nodes: int) -> Scene:
    """(e) network adapters of 100G each, claims of 1G."""
    made = [node(n) for n in range(nodes)]
    policy = {"default": "1G", "validRange": {"min": "1G", "step": "1G"}}
    capacity = {"bandwidth": {"value": "100G", "requestPolicy": policy}}
    nics = [{"name": f"nic-{d}", "allowMultipleAllocations": True, "capacity": capacity} for d in range(8)]
    slices = [resource_slice(made[n], nics, NIC) for n in range(nodes)]
    wanted = [request("nic", device_class="nic", capacity={"requests": {"bandwidth": "1G"}})]
    return Scene(made, slices, lambda n: claim(n, wanted))


def different(nodes: int, select: str = "") -> Scene:
    """(g) every node has its own labels, uuids and free devices."""
    draw = random.Random(1)
    scene = equivalent(nodes)
    holding = [
        {
            "metadata": {"name": f"held-{n}-{d}", "namespace": "others"},
            "status": {
                "allocation": {
                    "devices": {
                        "results": [{"request": "gpu", "driver": GPU, "pool": f"node-{n:05d}", "device": f"gpu-{d}"}]
                    }
                }
            },
        }
        for n in range(nodes)
        for d in range(8)
        if draw.random() < 0.4
    ]
    made = [node(n, rack=f"r{n // 7}", serial=f"s{n}") for n in range(nodes)]
    return Scene(made, scene.slices, lambda n: claim(n, [request(select=select)]), holding=holding)


UUID = f"device.attributes['{GPU}'].uuid"
IDENTIFIERS = {
    "free sets": "",
    "free sets, uuid compared": f"{UUID} != 'GPU-00000000-0000-4000-8000-000000000000'",
    "free sets, uuid by its beginning": f"!{UUID}.startsWith('GPU-00000000')",
}
