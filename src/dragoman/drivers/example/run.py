"""How does the example driver get to a node? Its plugin, and its DeviceClass.

`plugin` is hosted by whoever embeds a cluster; `run` is the driver as a process beside a kubelet.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from dragoman.cluster.client import Client
from dragoman.drivers.example.driver import DEVICE_CLASS, DRIVER, ExampleDriver
from dragoman.node.classes import install_classes
from dragoman.node.paths import CDI, KUBELET
from dragoman.node.plugin import Places, Plugin
from dragoman.runtime.clock import Clock
from dragoman.runtime.entropy import Entropy


def plugin(
    client: Client,
    clock: Clock,
    entropy: Entropy,
    *,
    node_name: str,
    root_dir: Path = KUBELET,
    cdi_dir: Path = CDI,
    count: int = 8,
    **options: Any,
) -> Plugin:
    """The driver for that node; options are those of Plugin (boot_id, routes, metrics, durable, pod_uid, ...)."""
    places = Places.under(root_dir, DRIVER, cdi_dir)
    return Plugin(
        ExampleDriver(node_name, count), client, clock, entropy, node_name=node_name, places=places, **options
    )


async def install(client: Client) -> None:
    """Create the DeviceClass unless it is there. Raises as Client does."""
    await install_classes(client, (DEVICE_CLASS,))


async def run(
    client: Client, clock: Clock, entropy: Entropy, *, node_name: str, root_dir: Path = KUBELET, **options: Any
) -> None:
    """Serve until cancelled. Raises Invalid for folders or checkpoints that cannot be used."""
    await plugin(client, clock, entropy, node_name=node_name, root_dir=root_dir, **options).run()
