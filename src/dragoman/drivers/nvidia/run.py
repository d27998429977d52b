"""How does the NVIDIA driver get to a node? Its plugin, its DeviceClasses, and what a profile says of its node."""

from __future__ import annotations

import uuid
from contextlib import suppress
from pathlib import Path
from typing import Any

from dragoman.api.kinds import kind_of
from dragoman.cluster.client import Client
from dragoman.drivers.nvidia.devices import NO_SHARES, Shares
from dragoman.drivers.nvidia.driver import DRIVER, OPTIONS, DriverOptions, NvidiaDriver, made, mps_root
from dragoman.drivers.nvidia.hardware import Hardware
from dragoman.drivers.nvidia.mps import Daemons
from dragoman.errors import NotFound, Stale
from dragoman.node.paths import CDI, KUBELET
from dragoman.node.plugin import Places, Plugin
from dragoman.profiles.machine import GpuModel, Profile
from dragoman.runtime.clock import Clock
from dragoman.runtime.entropy import Entropy
from dragoman.runtime.metrics import Metrics

FAMILIES = {"Ada Lovelace": "ada-lovelace"}


def _class(name: str, kind: str, **spec: Any) -> dict[str, Any]:
    expression = f"device.driver == '{DRIVER}' && device.attributes['{DRIVER}'].type == '{kind}'"
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "DeviceClass",
        "metadata": {"name": name},
        "spec": {"selectors": [{"cel": {"expression": expression}}], **spec},
    }


DEVICE_CLASSES: tuple[dict[str, Any], ...] = (
    _class(DRIVER, "gpu", extendedResourceName="nvidia.com/gpu"),
    _class("mig.nvidia.com", "mig"),
    _class("vfio.gpu.nvidia.com", "vfio"),
)


async def install(client: Client) -> None:
    """Create the DeviceClasses that are not there. Raises as Client does."""
    kind = kind_of("DeviceClass")
    for body in DEVICE_CLASSES:
        try:
            await client.get(kind, body["metadata"]["name"])
        except NotFound:
            with suppress(Stale):
                await client.create(kind, body)


def driver(
    client: Client,
    clock: Clock,
    entropy: Entropy,
    hardware: Hardware,
    *,
    node_name: str,
    data_dir: Path,
    options: DriverOptions = OPTIONS,
    metrics: Metrics | None = None,
) -> NvidiaDriver:
    """The driver on that hardware; data_dir is the plugin's folder. Raises Invalid as `made`."""
    daemons = None
    if options.gates.on("MPSSupport"):
        daemons = Daemons(
            client,
            clock,
            entropy,
            hardware,
            node_name=node_name,
            root=mps_root(data_dir),
            driver_root=options.driver_root,
        )
    return made(node_name, hardware, clock, options, daemons=daemons, metrics=metrics)


def plugin(
    client: Client,
    clock: Clock,
    entropy: Entropy,
    hardware: Hardware,
    *,
    node_name: str,
    root_dir: Path = KUBELET,
    cdi_dir: Path = CDI,
    options: DriverOptions = OPTIONS,
    metrics: Metrics | None = None,
    **plugin_options: Any,
) -> Plugin:
    """The driver for that node; plugin_options are those of Plugin."""
    places = Places.under(root_dir, DRIVER, cdi_dir)
    inner = driver(
        client,
        clock,
        entropy,
        hardware,
        node_name=node_name,
        data_dir=places.data_dir,
        options=options,
        metrics=metrics,
    )
    return Plugin(
        inner,
        client,
        clock,
        entropy,
        node_name=node_name,
        places=places,
        metrics=metrics,
        metadata=options.gates.on("DeviceMetadata"),
        **plugin_options,
    )


# ---- simulated machines


def options_of(profile: Profile, options: DriverOptions) -> DriverOptions:
    """The driver's options on that machine: a profile's shares apply where none are given."""
    if profile.consumable_shares and options.shares == NO_SHARES:
        shares = Shares.parse(profile.consumable_shares, f"profile {profile.name}: consumableShares")
        return DriverOptions(options.gates, shares, options.health, options.driver_root)
    return options


def cluster_uuid(rack: str) -> str:
    """The NVLink domain of a rack by its name."""
    return str(uuid.uuid5(uuid.NAMESPACE_DNS, f"{rack}.nvlink"))


def labels(profile: Profile, models: list[GpuModel], domain: str = "") -> dict[str, str]:
    """Labels of a node, as GPU Feature Discovery and clouds set them; domain: the cluster UUID of its rack."""
    found = dict(profile.labels)
    node = profile.node
    if node.instance_type:
        found["node.kubernetes.io/instance-type"] = node.instance_type
    if node.architecture:
        found["kubernetes.io/arch"] = found["beta.kubernetes.io/arch"] = node.architecture
    if not models:
        return found
    first = models[0]
    major, _, minor = first.compute_capability.partition(".")
    found |= {
        "nvidia.com/gpu.present": "true",
        "nvidia.com/gpu.product": _sanitised(first.name),
        "nvidia.com/gpu.count": str(sum(model.name == first.name for model in models)),
        "nvidia.com/gpu.memory": str(first.memory_mib),
        "nvidia.com/gpu.family": FAMILIES.get(first.architecture, first.architecture.lower()),
        "nvidia.com/gpu.compute.major": major,
        "nvidia.com/gpu.compute.minor": minor or "0",
        "nvidia.com/mig.capable": "true" if first.mig else "false",
        "nvidia.com/cuda.driver-version.full": profile.driver.version,
        "nvidia.com/cuda.runtime-version.full": profile.driver.cuda,
    }
    if node.product:
        found["nvidia.com/gpu.machine"] = _sanitised(node.product)
    if domain and profile.fabric.clique:
        found["nvidia.com/gpu.clique"] = f"{domain}.{profile.fabric.clique}"
    return found


def _sanitised(text: str) -> str:
    return "".join(sign for sign in text.replace(" ", "-") if sign.isalnum() or sign in "-_.")
