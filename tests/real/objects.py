"""Objects that tests of real clusters use, as the API takes them."""

from __future__ import annotations

from typing import Any

Object = dict[str, Any]

DRIVER = "gpu.example.com"
API = "resource.k8s.io/v1"


def device_class(name: str = DRIVER, driver: str = DRIVER) -> Object:
    """A class of all devices of a driver."""
    selector = {"cel": {"expression": f'device.driver == "{driver}"'}}
    return {
        "apiVersion": API,
        "kind": "DeviceClass",
        "metadata": {"name": name},
        "spec": {"selectors": [selector]},
    }


def slice_of(node: str, *, devices: int, driver: str = DRIVER, **spec: Any) -> Object:
    """A node's whole pool of a driver: gpu-0, gpu-1, ..."""
    return {
        "apiVersion": API,
        "kind": "ResourceSlice",
        "metadata": {"name": f"{node}-{driver}"},
        "spec": {
            "driver": driver,
            "nodeName": node,
            "pool": {"name": node, "generation": 1, "resourceSliceCount": 1},
            "devices": [{"name": f"gpu-{number}"} for number in range(devices)],
            **spec,
        },
    }


def claim(name: str, *, count: int = 1, class_name: str = DRIVER, namespace: str = "default") -> Object:
    """A claim for some devices of a class."""
    return {
        "apiVersion": API,
        "kind": "ResourceClaim",
        "metadata": {"name": name, "namespace": namespace},
        "spec": claim_spec(count=count, class_name=class_name),
    }


def claim_spec(*, count: int = 1, class_name: str = DRIVER) -> Object:
    """The spec of such a claim."""
    exactly = {"deviceClassName": class_name, "count": count}
    return {"devices": {"requests": [{"name": "gpu", "exactly": exactly}]}}


def template(name: str, *, count: int = 1, class_name: str = DRIVER, namespace: str = "default") -> Object:
    """A template of such claims."""
    return {
        "apiVersion": API,
        "kind": "ResourceClaimTemplate",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"spec": claim_spec(count=count, class_name=class_name)},
    }


def pod(name: str, *, claims: dict[str, Object] | None = None, scheduler: str = "", **spec: Any) -> Object:
    """A pod with one container that uses its claims. claims: entry name to its source, as in spec.resourceClaims."""
    claims = claims or {}
    container = {
        "name": "main",
        "image": "localhost/busybox:1",
        "imagePullPolicy": "Never",
        "command": ["sleep", "3600"],
        "resources": {"claims": [{"name": entry} for entry in claims]},
    }
    body: Object = {
        "terminationGracePeriodSeconds": 1,
        "resourceClaims": [{"name": entry, **source} for entry, source in claims.items()],
        "containers": [container],
        **spec,
    }
    if scheduler:
        body["schedulerName"] = scheduler
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "default"}, "spec": body}


def pod_with_device(name: str, *, count: int = 1, scheduler: str = "", **spec: Any) -> list[Object]:
    """A pod and the template of its claim, both of this name."""
    claims = {"gpu": {"resourceClaimTemplateName": name}}
    return [template(name, count=count), pod(name, claims=claims, scheduler=scheduler, **spec)]
