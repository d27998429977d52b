"""Made-up fleets for the benchmarks: nodes with devices, classes, claims. Same arguments, same fleet."""

from __future__ import annotations

from typing import Any

from dragoman.api.codec import decode
from dragoman.api.core import Node
from dragoman.api.resource import DeviceClass, ResourceClaim, ResourceSlice

DRIVER = "gpu.example.com"


def alike(nodes: int, devices: int = 8) -> list[tuple[str, Any]]:
    """Nodes with the same devices, as a driver publishes them: uuid and bus id differ, the rest does not."""
    objects: list[tuple[str, Any]] = [
        ("DeviceClass", _class("gpu", f"device.driver == '{DRIVER}'")),
    ]
    for n in range(nodes):
        name = f"node-{n:05d}"
        objects.append(("Node", decode(Node, {"metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}}})))
        published = [_gpu(n, d) for d in range(devices)]
        objects.append(("ResourceSlice", _slice(name, published)))
    return objects


def _gpu(node: int, index: int) -> dict[str, Any]:
    return {
        "name": f"gpu-{index}",
        "attributes": {
            "index": {"int": index},
            "uuid": {"string": f"GPU-{node:08x}-0000-4000-8000-{index:012x}"},
            "model": {"string": "LATEST-GPU-MODEL"},
            "driverVersion": {"version": "580.65.6"},
            "numa": {"int": index // 4},
            "resource.kubernetes.io/pcieRoot": {"string": f"pci0000:{index // 2 + 1:02x}"},
        },
        "capacity": {"memory": {"value": "80Gi"}, "compute": {"value": "100"}},
    }


def _slice(node: str, devices: list[dict[str, Any]]) -> ResourceSlice:
    return decode(
        ResourceSlice,
        {
            "metadata": {"name": f"{node}-{DRIVER}"},
            "spec": {
                "driver": DRIVER,
                "nodeName": node,
                "pool": {"name": node, "generation": 1, "resourceSliceCount": 1},
                "devices": devices,
            },
        },
    )


def _class(name: str, text: str) -> DeviceClass:
    spec = {"selectors": [{"cel": {"expression": text}}]}
    return decode(DeviceClass, {"metadata": {"name": name}, "spec": spec})


def claim(name: str, *, count: int = 1, selector: str = "") -> ResourceClaim:
    """A claim for some GPUs."""
    exactly: dict[str, Any] = {"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": count}
    if selector:
        exactly["selectors"] = [{"cel": {"expression": selector}}]
    body = {
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"devices": {"requests": [{"name": "gpu", "exactly": exactly}]}},
    }
    return decode(ResourceClaim, body)


def holding(node: str, device: int) -> ResourceClaim:
    """A claim that holds a GPU of a node."""
    result = {"request": "gpu", "driver": DRIVER, "pool": node, "device": f"gpu-{device}"}
    body = {
        "metadata": {"name": f"{node}-{device}", "namespace": "others"},
        "status": {"allocation": {"devices": {"results": [result]}}},
    }
    return decode(ResourceClaim, body)
