"""Claims that cannot be met, made to be hard: each is a certain no, and a plain search takes very long to say so."""

from __future__ import annotations

from typing import Any

from dragoman.api.codec import decode
from dragoman.api.core import Node
from dragoman.api.resource import DeviceClass, ResourceClaim, ResourceSlice

Shape = tuple[list[dict[str, Any]], list[dict[str, Any]], list[dict[str, Any]]]
"""Devices, counter sets, specs of claims."""

GPU, NIC = "gpu.example.com", "nic.example.com"


def objects_of(shape: Shape, nodes: int = 1) -> tuple[list[tuple[str, Any]], tuple[ResourceClaim, ...]]:
    """Objects for a snapshot (nodes alike) and the claims to allocate together."""
    devices, counters, specs = shape
    objects: list[tuple[str, Any]] = []
    for name, text in (("gpu", "device.driver == 'gpu.example.com'"), ("nic", "device.driver == 'nic.example.com'")):
        body = {"metadata": {"name": name}, "spec": {"selectors": [{"cel": {"expression": text}}]}}
        objects.append(("DeviceClass", decode(DeviceClass, body)))
    for n in range(nodes):
        node = f"node-{n:04d}"
        objects.append(("Node", decode(Node, {"metadata": {"name": node}})))
        for driver in (GPU, NIC):
            mine = [
                {k: v for k, v in device.items() if k != "driver"} for device in devices if device["driver"] == driver
            ]
            extra = bool(counters) and driver == GPU
            spec = {
                "driver": driver,
                "nodeName": node,
                "pool": {"name": node, "generation": 1, "resourceSliceCount": 1 + extra},
            }
            bodies: list[dict[str, Any]] = [{**spec, "devices": mine}]
            if extra:
                bodies.append({**spec, "sharedCounters": counters})
            for i, body in enumerate(bodies):
                resource_slice = {"metadata": {"name": f"{node}-{driver}-{i}"}, "spec": body}
                objects.append(("ResourceSlice", decode(ResourceSlice, resource_slice)))
    claims = tuple(
        decode(ResourceClaim, {"metadata": {"name": f"claim-{i}", "namespace": "default"}, "spec": {"devices": spec}})
        for i, spec in enumerate(specs)
    )
    return objects, claims


def device(name: str, driver: str = GPU, **attributes: str | int) -> dict[str, Any]:
    """A device with attributes."""
    values = {k: {"int" if isinstance(v, int) else "string": v} for k, v in attributes.items()}
    return {"name": name, "driver": driver, "attributes": values}


def want(name: str, count: int = 1, device_class: str = "gpu", select: str = "") -> dict[str, Any]:
    """A request."""
    exactly: dict[str, Any] = {"deviceClassName": device_class, "allocationMode": "ExactCount", "count": count}
    if select:
        exactly["selectors"] = [{"cel": {"expression": f"device.attributes['gpu.example.com'].{select}"}}]
    return {"name": name, "exactly": exactly}


def one_too_many(devices: int) -> Shape:
    """n + 1 of n devices, all different to a constraint, spread over requests and claims."""
    specs = []
    left = devices + 1
    while left:
        some = min(left, 32)
        requests = [want(f"r{i}", min(4, some - 4 * i)) for i in range(-(-some // 4))]
        constraint = {"distinctAttribute": f"{GPU}/serial"}
        specs.append({"requests": requests, "constraints": [constraint]})
        left -= some
    return [device(f"g{i}", serial=i) for i in range(devices)], [], specs


def pairs(gpus: int, nics: int, wanted: int) -> Shape:
    """GPU and NIC pairs by PCIe root, of which too few have a NIC."""
    devices = [device(f"g{i}", root=f"pci{i}") for i in range(gpus)]
    devices += [{**device(f"n{i}", NIC), "attributes": {f"{GPU}/root": {"string": f"pci{i}"}}} for i in range(nics)]
    requests, constraints = [], []
    for i in range(wanted):
        requests += [want(f"g{i}"), want(f"n{i}", device_class="nic")]
        constraints.append({"matchAttribute": f"{GPU}/root", "requests": [f"g{i}", f"n{i}"]})
    return devices, [], [{"requests": requests, "constraints": constraints}]


def stray_nic(wanted: int) -> Shape:
    """As many NICs as GPUs, but one NIC is on a root without GPU."""
    devices, counters, specs = pairs(wanted, wanted - 1, wanted)
    orphan = {**device("stray", NIC), "attributes": {f"{GPU}/root": {"string": "elsewhere"}}}
    return [*devices, orphan], counters, specs


def groups_of_three(wanted: int = 11, devices: int = 24) -> Shape:
    """A count over devices in groups of three, with a constraint that no two groups meet."""
    made = [device(f"g{i}", group=i // 3, lane=i % 3, serial=i) for i in range(devices)]
    constraints = [{"matchAttribute": f"{GPU}/lane"}, {"distinctAttribute": f"{GPU}/serial"}]
    return made, [], [{"requests": [want("r", wanted)], "constraints": constraints}]


def halves(gpus: int = 8, wanted: int = 17) -> Shape:
    """Half partitions of GPUs with counters for two halves each; whole, half and quarter partitions are published."""
    devices, counters = [], []
    for g in range(gpus):
        counters.append({"name": f"gpu-{g}", "counters": {"memory": {"value": "4"}}})
        for kind, size, number in (("whole", 4, 1), ("half", 2, 4), ("quarter", 1, 8)):
            for i in range(number):
                made = device(f"g{g}-{kind}-{i}", profile=kind, parent=g)
                made["consumesCounters"] = [{"counterSet": f"gpu-{g}", "counters": {"memory": {"value": str(size)}}}]
                devices.append(made)
    requests = [want(f"r{i}", 1, select="profile == 'half'") for i in range(wanted)]
    return devices, counters, [{"requests": requests}]


def halves_in_one(gpus: int = 8, wanted: int = 17) -> Shape:
    """The same with one request."""
    devices, counters, _ = halves(gpus, 1)
    return devices, counters, [{"requests": [want("r", wanted, select="profile == 'half'")]}]


def too_few_values(devices: int = 24, values: int = 5) -> Shape:
    """One device for each of more requests than an attribute has values."""
    made = [device(f"g{i}", group=i % values, serial=i) for i in range(devices)]
    requests = [want(f"r{i}", select=f"serial >= {i}") for i in range(values + 1)]
    return made, [], [{"requests": requests, "constraints": [{"distinctAttribute": f"{GPU}/group"}]}]


def not_together() -> Shape:
    """Two claims that fit alone: five of the small and four of any, of eight."""
    made = [device(f"g{i}", model="small" if i < 6 else "big", serial=i) for i in range(8)]
    first = {
        "requests": [want("r", 5, select="model == 'small'")],
        "constraints": [{"distinctAttribute": f"{GPU}/serial"}],
    }
    second = {"requests": [want("r", 4)], "constraints": [{"distinctAttribute": f"{GPU}/serial"}]}
    return made, [], [first, second]


def bins() -> Shape:
    """Claims of three within one group, one more than groups can hold, the leftovers being enough in number."""
    made = [device(f"g{i}", group=i // 5, serial=i) for i in range(25)]
    spec = {
        "requests": [want("r", 3)],
        "constraints": [{"matchAttribute": f"{GPU}/group"}, {"distinctAttribute": f"{GPU}/serial"}],
    }
    return made, [], [spec] * 6


def failing_alternatives(requests: int = 6, options: int = 8) -> Shape:
    """Prioritized lists that all fail in the end: the last request has no alternative left."""
    made = [device(f"g{i}", group=i % 4, serial=i) for i in range(20)]
    entries = []
    for r in range(requests):
        subs = [{"name": f"s{o}", **want("x", 4, select=f"serial >= {o}")["exactly"]} for o in range(options)]
        entries.append({"name": f"r{r}", "firstAvailable": subs})
    constraint = {"distinctAttribute": f"{GPU}/serial"}
    return made, [], [{"requests": entries, "constraints": [constraint]}]


def shares(devices: int = 16, wanted: int = 33) -> Shape:
    """Halves of shareable devices, one more than fit, over two claims."""
    made = []
    for i in range(devices):
        one = device(f"g{i}", serial=i)
        one["allowMultipleAllocations"] = True
        one["capacity"] = {"memory": {"value": str(10 + i % 3)}}
        made.append(one)
    specs = []
    for some in (wanted - wanted // 2, wanted // 2):
        requests = []
        for i in range(some):
            request = want(f"r{i}", select=f"serial < {devices}")
            request["exactly"]["capacity"] = {"requests": {"memory": "5"}}
            requests.append(request)
        specs.append({"requests": requests})
    return made, [], specs


SHAPES: dict[str, Shape] = {
    **{f"one too many of {n}": one_too_many(n) for n in (8, 16, 31, 64, 128)},
    "8 pairs with 7 NICs": pairs(8, 7, 8),
    "8 pairs, one NIC astray": stray_nic(8),
    "12 pairs, one NIC astray": stray_nic(12),
    "11 of 24 in groups of 3": groups_of_three(),
    "17 halves of 16": halves(),
    "17 halves of 16 in one request": halves_in_one(),
    "too few values": too_few_values(),
    "two claims, not together": not_together(),
    "six threes in five fives": bins(),
    "alternatives that all fail": failing_alternatives(),
    "33 shares of 32": shares(),
}
