"""What are the example driver and its DeviceClass called?"""

from __future__ import annotations

from typing import Any

NAME = "gpu.example.com"
DEVICE_CLASS: dict[str, Any] = {
    "apiVersion": "resource.k8s.io/v1",
    "kind": "DeviceClass",
    "metadata": {"name": NAME},
    "spec": {"selectors": [{"cel": {"expression": f"device.driver == '{NAME}'"}}]},
}
