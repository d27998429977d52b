"""What are NVIDIA's drivers and their DeviceClasses called? Names and selectors, as their charts have them."""

from __future__ import annotations

from typing import Any

GPU = "gpu.nvidia.com"
COMPUTE_DOMAIN = "compute-domain.nvidia.com"


def class_selector(driver: str, kind: str, more: str = "") -> str:
    """The selector of a DeviceClass of one type of device."""
    return f"device.driver == '{driver}' && device.attributes['{driver}'].type == '{kind}'{more}"


GPU_CLASSES: dict[str, str] = {
    GPU: class_selector(GPU, "gpu"),
    "mig.nvidia.com": class_selector(GPU, "mig"),
    "vfio.gpu.nvidia.com": class_selector(GPU, "vfio"),
}
"""Selectors of the GPU driver's classes, by name."""
COMPUTE_DOMAIN_CLASSES: dict[str, str] = {
    "compute-domain-daemon.nvidia.com": class_selector(COMPUTE_DOMAIN, "daemon"),
    "compute-domain-default-channel.nvidia.com": class_selector(
        COMPUTE_DOMAIN, "channel", f" && device.attributes['{COMPUTE_DOMAIN}'].id == 0"
    ),
}


def device_class(name: str, selector: str, **spec: Any) -> dict[str, Any]:
    """A DeviceClass with one selector."""
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "DeviceClass",
        "metadata": {"name": name},
        "spec": {"selectors": [{"cel": {"expression": selector}}], **spec},
    }


EXTENDED = {GPU: {"extendedResourceName": "nvidia.com/gpu"}}
DEVICE_CLASSES: tuple[dict[str, Any], ...] = tuple(
    device_class(name, selector, **EXTENDED.get(name, {})) for name, selector in GPU_CLASSES.items()
)
"""What the GPU driver brings."""
