"""Claims made to be hard, from a seed: pigeonholes, near-misses, tight packings. About half of them can be met."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

from dragoman.api.codec import decode
from dragoman.api.core import Node
from dragoman.api.resource import DeviceClass, ResourceClaim, ResourceSlice

A = "a.example"
Shape = tuple[list[dict[str, Any]], list[dict[str, Any]], list[dict[str, Any]]]
"""Devices, counter sets, specs of claims."""


def device(
    name: str, capacity: int = 0, draws: dict[str, dict[str, int]] | None = None, **values: Any
) -> dict[str, Any]:
    kinds = {int: "int", str: "string", list: "strings"}
    made: dict[str, Any] = {"name": name, "attributes": {k: {kinds[type(v)]: v} for k, v in values.items()}}
    if capacity:
        made |= {"allowMultipleAllocations": True, "capacity": {"mem": {"value": str(capacity)}}}
    if draws:
        made["consumesCounters"] = [
            {"counterSet": group, "counters": {k: {"value": str(v)} for k, v in counters.items()}}
            for group, counters in draws.items()
        ]
    return made


def want(name: str, count: int = 1, select: str = "", mem: int = 0) -> dict[str, Any]:
    return {"name": name, "exactly": asked(count, select, mem)}


def asked(count: int = 1, select: str = "", mem: int = 0) -> dict[str, Any]:
    body: dict[str, Any] = {"deviceClassName": "any", "allocationMode": "ExactCount", "count": count}
    if select:
        body["selectors"] = [{"cel": {"expression": f"device.attributes['{A}'].{select}"}}]
    if mem:
        body["capacity"] = {"requests": {"mem": str(mem)}}
    return body


def pigeonholes(draw: Random) -> Shape:
    """Requests for ranges of devices: a matching that may just not exist."""
    number = draw.randint(6, 28)
    devices = [device(f"d{i}", serial=i) for i in range(number)]
    draw.shuffle(devices)
    requests, wanted = [], 0
    while wanted < number + draw.choice([-2, -1, 0, 0, 1]) and len(requests) < 32:
        low = draw.randint(0, number - 1)
        high = min(number - 1, low + draw.randint(0, 1 + number // 3))
        count = draw.randint(1, max(1, min(3, high - low)))
        serials = f"serial >= {low} && device.attributes['{A}'].serial <= {high}"
        requests.append(want(f"r{len(requests)}", count, serials))
        wanted += count
    return devices, [], _claims(draw, requests)


def pairs(draw: Random) -> Shape:
    """Pairs on one root each, with about as many roots as pairs."""
    wanted = draw.randint(3, 10)
    roots = wanted + draw.randint(-1, 2)
    devices = [device(f"g{i}", kind="gpu", root=f"p{i}") for i in range(roots)]
    devices += [
        device(f"n{i}", kind="nic", root=f"p{draw.randrange(roots)}" if draw.random() < 0.2 else f"p{i}")
        for i in range(roots)
    ]
    draw.shuffle(devices)
    requests, constraints = [], []
    for i in range(wanted):
        requests += [want(f"g{i}", 1, "kind == 'gpu'"), want(f"n{i}", 1, "kind == 'nic'")]
        constraints.append({"matchAttribute": f"{A}/root", "requests": [f"g{i}", f"n{i}"]})
    return devices, [], [{"requests": requests, "constraints": constraints}]


def groups(draw: Random) -> Shape:
    """Several of one group each, with little left over."""
    sizes = [draw.randint(2, 6) for _ in range(draw.randint(3, 6))]
    devices = [device(f"d{g}-{i}", group=g, serial=10 * g + i) for g, size in enumerate(sizes) for i in range(size)]
    draw.shuffle(devices)
    requests, constraints = [], []
    left = sum(sizes)
    while left > 1 and len(requests) < 9:
        count = draw.choice([2, 3, 3, 4])
        left -= count
        name = f"r{len(requests)}"
        requests.append(want(name, count))
        constraints.append({"matchAttribute": f"{A}/group", "requests": [name]})
    return devices, [], [{"requests": requests, "constraints": constraints}]


def partitions(draw: Random) -> Shape:
    """A mix of partitions that fills GPUs to the brim, or one more."""
    gpus = draw.randint(2, 5)
    sets = [{"name": f"g{g}", "counters": {"mem": {"value": "8"}, "sms": {"value": "7"}}} for g in range(gpus)]
    profiles = (("1g", 7, 1, 1), ("2g", 3, 2, 2), ("3g", 2, 4, 3), ("4g", 1, 4, 4))
    devices = [
        device(f"g{g}-{profile}-{i}", draws={f"g{g}": {"mem": mem, "sms": sms}}, profile=profile, parent=g)
        for g in range(gpus)
        for profile, number, mem, sms in profiles
        for i in range(number)
    ]
    requests, mem, sms = [], 8 * gpus + draw.choice([-2, 0, 0, 1]), 7 * gpus
    while len(requests) < 32:
        profile, _, more, slots = draw.choice(profiles)
        if more > mem or slots > sms:
            if mem <= 1 or sms <= 1 or draw.random() < 0.2:
                break
            continue
        mem, sms = mem - more, sms - slots
        requests.append(want(f"r{len(requests)}", 1, f"profile == '{profile}'"))
    return devices, sets, _claims(draw, requests or [want("r0")])


def shares(draw: Random) -> Shape:
    """Bins: amounts that add up to about what there is."""
    devices = [device(f"d{i}", draw.randint(8, 14), serial=i) for i in range(draw.randint(3, 6))]
    total = sum(int(d["capacity"]["mem"]["value"]) for d in devices) - draw.choice([0, 0, 1, 2, 4])
    requests = []
    while total > 2 and len(requests) < 24:
        amount = min(total, draw.randint(3, 7))
        total -= amount
        requests.append(want(f"r{len(requests)}", mem=amount))
    return devices, [], _claims(draw, requests)


def distinct(draw: Random) -> Shape:
    """A different value for each request, of few values, with selectors that leave each a few."""
    number, values = draw.randint(8, 24), draw.randint(4, 9)
    devices = [device(f"d{i}", serial=i, group=draw.randrange(values)) for i in range(number)]
    requests = []
    for i in range(values + draw.choice([-2, -1, 0, 0, 1])):
        low = draw.randint(0, number - 2)
        requests.append(want(f"r{i}", 1, f"serial >= {low}"))
    return devices, [], [{"requests": requests, "constraints": [{"distinctAttribute": f"{A}/group"}]}]


def alternatives(draw: Random) -> Shape:
    """Prioritized lists that get in each other's way."""
    number = draw.randint(8, 20)
    devices = [device(f"d{i}", serial=i, group=i % draw.randint(2, 5)) for i in range(number)]
    requests: list[dict[str, Any]] = []
    for r in range(draw.randint(3, 7)):
        subs = [
            {"name": f"s{o}", **asked(draw.randint(2, 5), f"serial >= {draw.randint(0, number - 1)}")}
            for o in range(draw.randint(1, 5))
        ]
        requests.append({"name": f"r{r}", "firstAvailable": subs})
    constraints = [{"matchAttribute": f"{A}/group", "requests": [f"r{draw.randrange(len(requests))}"]}]
    return devices, [], [{"requests": requests, "constraints": constraints if draw.random() < 0.6 else []}]


def lists(draw: Random) -> Shape:
    """Lists of roots that have to have one in common, device by device."""
    number = draw.randint(6, 14)
    devices = [
        device(f"d{i}", serial=i, roots=draw.sample(["p", "q", "r", "s", "t"], draw.randint(1, 3)))
        for i in range(number)
    ]
    requests = [
        want(f"r{i}", draw.randint(1, 3), f"serial >= {draw.randint(0, number // 2)}")
        for i in range(draw.randint(2, 5))
    ]
    names = [request["name"] for request in requests]
    kinds = ["matchAttribute", "matchAttribute", "distinctAttribute"]
    constraints = [
        {draw.choice(kinds): f"{A}/roots", "requests": draw.sample(names, draw.randint(1, len(names)))}
        for _ in range(draw.randint(1, 3))
    ]
    return devices, [], [{"requests": requests, "constraints": constraints}]


FAMILIES: tuple[Callable[[Random], Shape], ...] = (
    pigeonholes,
    pairs,
    groups,
    partitions,
    shares,
    distinct,
    alternatives,
    lists,
)


def _claims(draw: Random, requests: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The requests in one claim, or in two."""
    if len(requests) < 2 or (len(requests) < 32 and draw.random() < 0.5):
        return [{"requests": requests}]
    cut = draw.randint(1, len(requests) - 1)
    return [{"requests": requests[:cut]}, {"requests": requests[cut:]}]


def hard(seed: int) -> tuple[str, list[tuple[str, Any]], list[ResourceClaim]]:
    """The family, the objects of a node node-0, and the claims to allocate together."""
    draw = Random(seed)
    family = FAMILIES[seed % len(FAMILIES)]
    devices, counters, specs = family(draw)
    pool = {"name": "pool", "generation": 1, "resourceSliceCount": 2 if counters else 1}
    spec = {"driver": A, "nodeName": "node-0", "pool": pool}
    slices = [{"metadata": {"name": "s0"}, "spec": {**spec, "devices": devices}}]
    if counters:
        slices.append({"metadata": {"name": "s1"}, "spec": {**spec, "sharedCounters": counters}})
    every = {"metadata": {"name": "any"}, "spec": {"selectors": [{"cel": {"expression": "true"}}]}}
    objects: list[tuple[str, Any]] = [
        ("Node", decode(Node, {"metadata": {"name": "node-0"}})),
        ("DeviceClass", decode(DeviceClass, every)),
        *(("ResourceSlice", decode(ResourceSlice, resource_slice)) for resource_slice in slices),
    ]
    claims = [
        decode(ResourceClaim, {"metadata": {"name": f"claim-{i}", "namespace": "default"}, "spec": {"devices": body}})
        for i, body in enumerate(specs)
    ]
    return family.__name__, objects, claims
