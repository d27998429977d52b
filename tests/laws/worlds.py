"""Small random clusters with every feature, made from a seed."""

from __future__ import annotations

import json
from random import Random
from typing import Any

from dragoman.api.codec import decode, to_json
from dragoman.api.core import Node
from dragoman.api.resource import DeviceClass, ResourceClaim, ResourceSlice
from dragoman.snapshot.change import Snapshot

SHARE = "00000000-0000-4000-8000-{:012d}"


SMALL: dict[str, list[int]] = {"devices": [0, 2, 3, 4, 5, 6, 7], "requests": [1, 2, 3], "claims": [1, 2]}
MIDDLE: dict[str, list[int]] = {"devices": [6, 8, 10, 12, 16], "requests": [2, 3, 4, 5, 6], "claims": [1, 2, 3, 4]}


def world(
    seed: int, *, nodes: int = 1, size: dict[str, list[int]] = SMALL
) -> tuple[list[tuple[str, Any]], list[ResourceClaim]]:
    """Objects (nodes node-0.., slices, classes, claims that hold) and claims to allocate together."""
    draw = Random(seed)
    features = {
        name for name in ("lists", "counters", "shares", "taints", "binding", "admin", "all") if draw.random() < 0.35
    }
    objects: list[tuple[str, Any]] = [("Node", decode(Node, {"metadata": {"name": f"node-{i}"}})) for i in range(nodes)]
    for name, text in (("any", "true"), ("a", "device.driver == 'a.example'"), ("b", "device.driver == 'b.example'")):
        objects.append(
            (
                "DeviceClass",
                decode(
                    DeviceClass, {"metadata": {"name": name}, "spec": {"selectors": [{"cel": {"expression": text}}]}}
                ),
            )
        )
    held = []
    for node in range(nodes):
        for p in range(draw.randint(1, 2)):
            driver = draw.choice(["a.example", "a.example", "b.example"])
            count = draw.choice(size["devices"])
            resource_slices, holding = _pool(draw, features, driver, f"pool-{node}-{p}", f"node-{node}", count)
            objects += resource_slices
            held += holding
    for i, result in enumerate(held):
        claim = {
            "metadata": {"name": f"held-{i}", "namespace": "others"},
            "status": {"allocation": {"devices": {"results": [result]}}},
        }
        objects.append(("ResourceClaim", decode(ResourceClaim, claim)))
    number = draw.choice(size["claims"])
    claims = [decode(ResourceClaim, _claim(draw, features, i, size["requests"])) for i in range(number)]
    return objects, claims


def _pool(
    draw: Random, features: set[str], driver: str, pool: str, node: str, count: int
) -> tuple[list[tuple[str, Any]], list[dict[str, Any]]]:
    devices = [_device(draw, features, f"d{i}") for i in range(count)]
    for device in devices:
        if device["attributes"].get("numa") != {"int": 1} or draw.random() < 0.9:
            device["attributes"]["uuid"] = {"string": f"UID-{pool}-{device['name']}"}
    split = draw.random() < 0.3
    parts = [devices[: len(devices) // 2], devices[len(devices) // 2 :]] if split else [devices]
    slices_in_all = len(parts) + ("counters" in features) + (draw.random() < 0.05)
    where: dict[str, Any] = {"allNodes": True} if draw.random() < 0.15 else {"nodeName": node}
    spec = {"driver": driver, "pool": {"name": pool, "generation": 1, "resourceSliceCount": slices_in_all}, **where}
    slices = [{"metadata": {"name": f"{pool}-{i}"}, "spec": {**spec, "devices": part}} for i, part in enumerate(parts)]
    if "counters" in features:
        sets = [
            {
                "name": f"set-{s}",
                "counters": {"mem": {"value": str(draw.randint(4, 12))}, "cpu": {"value": str(draw.randint(4, 9))}},
            }
            for s in range(2)
        ]
        slices.append({"metadata": {"name": f"{pool}-counters"}, "spec": {**spec, "sharedCounters": sets}})
    held = []
    for device in devices:
        if draw.random() < 0.15:
            result: dict[str, Any] = {"request": "r", "driver": driver, "pool": pool, "device": device["name"]}
            if device.get("allowMultipleAllocations") and draw.random() < 0.8:
                result["shareID"] = SHARE.format(draw.randint(0, 10**9))
                result["consumedCapacity"] = dict.fromkeys(device["capacity"], "1")
            held.append(result)
    return [("ResourceSlice", decode(ResourceSlice, resource_slice)) for resource_slice in slices], held


def _device(draw: Random, features: set[str], name: str) -> dict[str, Any]:
    attributes: dict[str, Any] = {}
    if draw.random() < 0.9:
        attributes["numa"] = {"int": draw.randint(0, 2)}
    if draw.random() < 0.9:
        if "lists" in features and draw.random() < 0.5:
            attributes["root"] = {"strings": draw.sample(["x", "y", "z"], draw.randint(1, 2))}
        else:
            attributes["root"] = {"string": draw.choice(["x", "y", "z"])}
    attributes["model"] = {"string": draw.choice(["small", "big"])}
    device: dict[str, Any] = {"name": name, "attributes": attributes, "capacity": {}}
    if "shares" in features:
        device["allowMultipleAllocations"] = draw.random() < 0.6
        for capacity in ("mem", "bw")[: draw.choice([0, 1, 1, 2, 2])]:
            entry: dict[str, Any] = {"value": str(draw.randint(1, 6))}
            if device["allowMultipleAllocations"] and draw.random() < 0.5:
                entry["value"] = "6"
                entry["requestPolicy"] = draw.choice(
                    [
                        {"default": "2", "validRange": {"min": "2", "max": "6", "step": "2"}},
                        {"default": "1", "validValues": ["1", "3"]},
                        {"default": "0", "validValues": ["0", "2"]},
                    ]
                )
            device["capacity"][capacity] = entry
    if "counters" in features and draw.random() < 0.8:
        device["consumesCounters"] = [
            {
                "counterSet": f"set-{s}",
                "counters": {"mem": {"value": str(draw.randint(0, 4))}, "cpu": {"value": str(draw.randint(0, 3))}},
            }
            for s in draw.sample([0, 1], draw.randint(1, 2))
        ]
    if "taints" in features and draw.random() < 0.25:
        device["taints"] = [
            {"key": draw.choice(["k1", "k2"]), "value": "v", "effect": draw.choice(["NoSchedule", "NoExecute", "None"])}
        ]
    if "binding" in features and draw.random() < 0.3:
        device["bindingConditions"], device["bindingFailureConditions"] = ["ready"], ["failed"]
    return device


def _asked(draw: Random, features: set[str]) -> dict[str, Any]:
    asked: dict[str, Any] = {
        "deviceClassName": draw.choice(["any"] * 6 + ["a", "a", "b"]),
        "allocationMode": "ExactCount",
    }
    if draw.random() < 0.3:
        text = draw.choice(
            [
                "device.attributes[device.driver].model == 'big'",
                "has(device.attributes[device.driver].numa) && device.attributes[device.driver].numa > 0",
                "has(device.attributes['a.example'].uuid) && device.attributes['a.example'].uuid != 'UID-pool-0-0-d1'",
                "device.attributes['a.example'].?uuid.orValue('').endsWith('d0')",
                "!(has(device.attributes['a.example'].uuid) && device.attributes['a.example'].uuid in ['UID-pool-1-0-d0'])",
                "device.attributes['a.example'].uuid < 'UID-pool-2'",
            ]
        )
        asked["selectors"] = [{"cel": {"expression": text}}]
    if draw.random() < 0.03:
        asked["selectors"] = [{"cel": {"expression": "device.attributes[device.driver].numa > 0"}}]
    asked["count"] = draw.choice([1, 1, 1, 2, 2, 3])
    if "all" in features and draw.random() < 0.25:
        asked["allocationMode"] = "All"
        del asked["count"]
    if "shares" in features and draw.random() < 0.6:
        asked["capacity"] = {"requests": {draw.choice(["mem", "mem", "bw"]): str(draw.choice([1, 1, 2, 3]))}}
    if "taints" in features and draw.random() < 0.5:
        asked["tolerations"] = [{"key": draw.choice(["k1", "k2"]), "operator": "Exists"}]
    return asked


def _claim(draw: Random, features: set[str], number: int, sizes: list[int]) -> dict[str, Any]:
    requests: list[dict[str, Any]] = []
    names = []
    for i in range(draw.choice(sizes)):
        name = f"r{i}"
        if draw.random() < 0.3:
            options = [{"name": f"s{j}", **_asked(draw, features)} for j in range(draw.randint(1, 3))]
            requests.append({"name": name, "firstAvailable": options})
            names += [f"{name}/s{j}" for j in range(len(options))]
        else:
            exactly = _asked(draw, features)
            if "admin" in features and draw.random() < 0.3:
                exactly["adminAccess"] = True
            requests.append({"name": name, "exactly": exactly})
        names.append(name)
    constraints = []
    while draw.random() < 0.4:
        kind = draw.choice(["matchAttribute", "matchAttribute", "distinctAttribute"])
        attribute = draw.choice(["a.example/numa", "a.example/root", "a.example/model", "a.example/uuid"])
        some = draw.sample(names, draw.randint(1, len(names))) if draw.random() < 0.4 else []
        constraints.append({kind: attribute, "requests": some})
    return {
        "metadata": {"name": f"claim-{number}", "namespace": "default"},
        "spec": {"devices": {"requests": requests, "constraints": constraints}},
    }


def snapshot_of(objects: list[tuple[str, Any]]) -> Snapshot:
    return Snapshot.from_objects(objects)


def cluster(seed: int) -> tuple[list[tuple[str, Any]], list[ResourceClaim]]:
    """Four nodes made after two moulds, so that some are alike until something changes, and claims."""
    draw = Random(seed)
    objects: dict[tuple[str, str], tuple[str, Any]] = {}
    claims: list[ResourceClaim] = []
    for i in range(4):
        template_spec, claims = world(seed + draw.randint(0, 1))
        for kind, value in template_spec:
            body = json.dumps(to_json(value)).replace("node-0", f"node-{i}").replace("pool-0-", f"pool-{i}-")
            made = decode(type(value), body)
            name = made.metadata.name
            if kind == "ResourceClaim":
                made = decode(type(value), body.replace(f'"{name}"', f'"{name}-{i}"', 1))
                name = made.metadata.name
            objects[kind, name] = (kind, made)
    return list(objects.values()), claims
