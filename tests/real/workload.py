"""A few hundred pods of mixed kinds, for comparing schedulers: what a fleet with several kinds of devices runs."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

from tests.real.objects import API, Object, pod

GPU, SLICED, NIC = "gpu.example.com", "sliced.example.com", "nic.example.com"
EXTENDED = "example.com/gpu"


def _class(name: str, expression: str, **spec: Any) -> Object:
    selectors = [{"cel": {"expression": expression}}]
    body = {"selectors": selectors, **spec}
    return {"apiVersion": API, "kind": "DeviceClass", "metadata": {"name": name}, "spec": body}


def _slice(node: str, driver: str, devices: list[Object], *, name: str = "", count: int = 1, **spec: Any) -> Object:
    pool = {"name": node, "generation": 1, "resourceSliceCount": count}
    body = {"driver": driver, "nodeName": node, "pool": pool, **({"devices": devices} if devices else {}), **spec}
    meta = {"name": f"{node}-{name or driver.partition('.')[0]}"}
    return {"apiVersion": API, "kind": "ResourceSlice", "metadata": meta, "spec": body}


def fleet(nodes: int) -> Iterator[Object]:
    """Classes, and the devices of the nodes node-0, node-1, ...: whole GPUs of two models, partitioned and shared ones."""
    yield _class("gpu", f'device.driver == "{GPU}"', extendedResourceName=EXTENDED)
    yield _class("large", f'device.driver == "{GPU}" && device.attributes["{GPU}"].model == "large"')
    yield _class("small", f'device.driver == "{GPU}" && device.attributes["{GPU}"].model == "small"')
    yield _class("part", f'device.driver == "{SLICED}"')
    yield _class("nic", f'device.driver == "{NIC}"')
    for number in range(nodes):
        node = f"node-{number}"
        model, memory = ("large", "80Gi") if number % 2 else ("small", "40Gi")
        gpus = [
            {
                "name": f"gpu-{index}",
                "attributes": {"model": {"string": model}, "rail": {"int": index % 2}},
                "capacity": {"memory": {"value": memory}},
            }
            for index in range(8)
        ]
        yield _slice(node, GPU, gpus)
        counters = [{"name": f"card-{card}", "counters": {"slices": {"value": "4"}}} for card in range(2)]
        parts = [
            {
                "name": f"card-{card}-{size}-{start}",
                "attributes": {"size": {"int": size}},
                "consumesCounters": [{"counterSet": f"card-{card}", "counters": {"slices": {"value": str(size)}}}],
            }
            for card in range(2)
            for size in (1, 2, 4)
            for start in range(0, 4, size)
        ]
        yield _slice(node, SLICED, [], name="counters", count=2, sharedCounters=counters)
        yield _slice(node, SLICED, parts, name="parts", count=2)
        shared = [
            {
                "name": f"nic-{index}",
                "allowMultipleAllocations": True,
                "capacity": {
                    "bandwidth": {
                        "value": "100",
                        "requestPolicy": {"default": "10", "validRange": {"min": "10", "step": "10"}},
                    }
                },
            }
            for index in range(2)
        ]
        yield _slice(node, NIC, shared)


def _exactly(name: str, class_name: str, **fields: Any) -> Object:
    return {"name": name, "exactly": {"deviceClassName": class_name, **fields}}


def _template(name: str, *requests: Object, **devices: Any) -> Object:
    spec = {"devices": {"requests": list(requests), **devices}}
    meta = {"name": name, "namespace": "default"}
    return {"apiVersion": API, "kind": "ResourceClaimTemplate", "metadata": meta, "spec": {"spec": spec}}


def templates() -> Iterator[Object]:
    """Templates of claims by kind."""
    size = f'device.attributes["{SLICED}"].size == '
    yield _template("one", _exactly("gpu", "gpu"))
    yield _template(
        "two-rails",
        _exactly("gpu", "gpu", count=2),
        constraints=[{"requests": ["gpu"], "distinctAttribute": f"{GPU}/rail"}],
    )
    yield _template(
        "same-rail",
        _exactly("gpu", "gpu", count=2),
        constraints=[{"requests": ["gpu"], "matchAttribute": f"{GPU}/rail"}],
    )
    yield _template("large", _exactly("gpu", "large"))
    memory = f'device.capacity["{GPU}"].memory.compareTo(quantity("60Gi")) >= 0'
    yield _template("memory", _exactly("gpu", "gpu", selectors=[{"cel": {"expression": memory}}]))
    alternatives = [
        {"name": "large", "deviceClassName": "large", "count": 2},
        {"name": "small", "deviceClassName": "small"},
    ]
    yield _template("either", {"name": "gpu", "firstAvailable": alternatives})
    for number in (1, 2, 4):
        yield _template(
            f"part-{number}", _exactly("part", "part", selectors=[{"cel": {"expression": f"{size}{number}"}}])
        )
    yield _template("nic", _exactly("nic", "nic", capacity={"requests": {"bandwidth": "30"}}))
    yield _template("both", _exactly("gpu", "gpu"), _exactly("nic", "nic"))


KINDS = (
    "one",
    "two-rails",
    "same-rail",
    "large",
    "memory",
    "either",
    "part-1",
    "part-2",
    "part-4",
    "nic",
    "both",
    "extended",
    "plain",
)


def pods(count: int, seed: int, scheduler: str = "") -> Iterator[Object]:
    """Pods of these kinds in random order, each with some processor and memory."""
    draw = random.Random(seed)
    for number in range(count):
        kind = draw.choice(KINDS)
        claims = {} if kind in ("extended", "plain") else {"device": {"resourceClaimTemplateName": kind}}
        made = pod(f"{kind}-{number}", claims=claims, scheduler=scheduler)
        container = made["spec"]["containers"][0]
        requests = {"cpu": f"{draw.randrange(1, 9) * 50}m", "memory": f"{draw.randrange(1, 9) * 64}Mi"}
        container["resources"]["requests"] = requests
        if kind == "extended":
            container["resources"]["requests"] = {**requests, EXTENDED: "1"}
            container["resources"]["limits"] = {EXTENDED: "1"}
        yield made
