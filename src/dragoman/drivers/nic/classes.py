"""What are the adapters' driver and its DeviceClass called? As dranet's."""

from __future__ import annotations

from typing import Any

NAME = "dra.net"
DEVICE_CLASSES: tuple[dict[str, Any], ...] = (
    {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "DeviceClass",
        "metadata": {"name": "dranet.net"},
        "spec": {"selectors": [{"cel": {"expression": f"device.driver == '{NAME}'"}}]},
    },
)
