"""Which labels describe a node's GPUs? Those of GPU feature discovery, made from the hardware and the configuration.

`feature_labels` is pure; `FeatureDiscovery` keeps a Node's labels as it says, and removes those of its own that are no
longer right. Labels of others are never touched. Rules: NVIDIA/k8s-device-plugin v0.20, `internal/lm`.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Iterable, Mapping

from dragoman.api.kinds import kind_of
from dragoman.cluster.client import Client
from dragoman.drivers.nvidia.device_plugin.config import PREFIX, PluginConfig
from dragoman.drivers.nvidia.device_plugin.resources import (
    GPU_RESOURCE,
    PhysicalDevice,
    mig_instances,
    mig_resource,
    planned,
)
from dragoman.drivers.nvidia.hardware import Gpu, Hardware
from dragoman.errors import Denied, DragomanError, Invalid, Retry
from dragoman.runtime.clock import Clock
from dragoman.runtime.log import get

INTERVAL_S = 60.0
FAMILIES = {"Ada": "ada-lovelace", "Ada Lovelace": "ada-lovelace"}
NODE = kind_of("Node")
TIMESTAMP = f"{PREFIX}gfd.timestamp"
_GENERAL = r"gfd\.timestamp|cuda\..+|mig\.(capable|strategy)|mps\.capable"
_OF_RESOURCE = (
    r"(gpu|mig-[\w.-]+)\.(product|count|replicas|sharing-strategy|memory|multiprocessors|slices\.\w+|engines\.\w+"
    r"|machine|family|compute\.\w+|mode)"
)
OWN = re.compile(rf"{re.escape(PREFIX)}({_GENERAL}|{_OF_RESOURCE})")
"""Labels that GPU feature discovery writes; those of the operator (gpu.present, gpu.deploy...) are not among them."""


def sanitised(text: str) -> str:
    """A label value: spaces as dashes, other signs that are not allowed left out."""
    return "".join(sign for sign in text.replace(" ", "-") if sign.isalnum() or sign in "-_.")


def family_of(architecture: str) -> str:
    """The architecture as a label has it."""
    return FAMILIES.get(architecture, architecture.lower()) or "undefined"


def feature_labels(hardware: Hardware, config: PluginConfig, machine: str = "") -> dict[str, str]:
    """The labels, without a timestamp. machine: the DMI product's name. No GPU gives none. Raises Retry."""
    gpus = hardware.gpus()
    if not gpus:
        return {}
    first = gpus[0]
    found = {**_versions(hardware), **_machine(machine)}
    found["mig.capable"] = _boolean(any(gpu.mig_capable for gpu in gpus))
    found["mps.capable"] = _boolean(config.kind == "mps")
    if config.mig_strategy != "none" and any(gpu.mig_capable for gpu in gpus):
        found["mig.strategy"] = config.mig_strategy
    same = [gpu for gpu in gpus if gpu.name == first.name]
    match config.mig_strategy:
        case "single":
            found |= _single(hardware, config, same)
        case "mixed":
            found |= _whole(config, same)
            for name, parts in _by_profile(hardware, same).items():
                resource = mig_resource(name)
                found |= _of_instances(resource.removeprefix(PREFIX), resource, config, parts)
        case _:
            found |= _whole(config, same)
    return {f"{PREFIX}{name}": value for name, value in found.items()}


def _versions(hardware: Hardware) -> dict[str, str]:
    versions = hardware.versions()
    major, minor, revision = [*versions.driver.split("."), "", ""][:3]
    cuda_major, cuda_minor = str(versions.cuda // 1000), str(versions.cuda % 1000 // 10)
    found = {
        "cuda.driver-version.major": major,
        "cuda.driver-version.minor": minor,
        "cuda.driver-version.revision": revision,
        "cuda.driver-version.full": versions.driver,
        "cuda.runtime-version.major": cuda_major,
        "cuda.runtime-version.minor": cuda_minor,
        "cuda.runtime-version.full": f"{cuda_major}.{cuda_minor}",
        "cuda.driver.major": major,
        "cuda.driver.minor": minor,
        "cuda.driver.rev": revision,
        "cuda.runtime.major": cuda_major,
        "cuda.runtime.minor": cuda_minor,
    }
    return {name: value for name, value in found.items() if value}


def _machine(machine: str) -> dict[str, str]:
    return {"gpu.machine": sanitised(machine)} if machine else {}


def _whole(config: PluginConfig, gpus: list[Gpu]) -> dict[str, str]:
    """Of whole GPUs; those in MIG mode are nobody's as a whole, so that they have no replicas."""
    first = gpus[0]
    replicas = config.replicas(GPU_RESOURCE)
    return {
        **_of_model(first),
        "gpu.product": _product(first.name, config, GPU_RESOURCE),
        "gpu.count": str(len(gpus)),
        "gpu.replicas": "0" if first.mig_enabled else str(replicas),
        "gpu.sharing-strategy": _strategy(config, replicas),
        "gpu.memory": str((first.memory_bytes or 0) // 2**20),
    }


def _of_model(gpu: Gpu) -> dict[str, str]:
    major, _, minor = gpu.compute_capability.partition(".")
    return {
        "gpu.family": family_of(gpu.architecture),
        "gpu.compute.major": major,
        "gpu.compute.minor": minor or "0",
        "gpu.mode": "compute",
    }


def _single(hardware: Hardware, config: PluginConfig, gpus: list[Gpu]) -> dict[str, str]:
    if not any(gpu.mig_enabled for gpu in gpus):
        return _whole(config, gpus)
    try:
        planned(hardware, config)
    except Invalid:
        invalid = {"gpu.count": "0", "gpu.replicas": "0", "gpu.memory": "0"}
        return {**_whole(config, gpus), **invalid, "gpu.product": f"{sanitised(gpus[0].name)}-MIG-INVALID"}
    (parts,) = _by_profile(hardware, gpus).values()
    return {**_of_model(gpus[0]), **_of_instances("gpu", GPU_RESOURCE, config, parts)}


def _by_profile(hardware: Hardware, gpus: Iterable[Gpu]) -> dict[str, list[PhysicalDevice]]:
    found: dict[str, list[PhysicalDevice]] = {}
    for gpu in gpus:
        for part in mig_instances(hardware, gpu) if gpu.mig_enabled else ():
            assert part.instance is not None
            found.setdefault(part.instance.shape.name, []).append(part)
    return found


def _of_instances(prefix: str, resource: str, config: PluginConfig, parts: list[PhysicalDevice]) -> dict[str, str]:
    first = parts[0]
    assert first.instance is not None
    shape = first.instance.shape
    amounts = shape.amounts
    replicas = config.replicas(resource)
    product = f"{sanitised(first.gpu.name)}-MIG-{shape.name.replace('+', '.')}"
    values = {
        "product": product + _shared(config, resource),
        "count": str(len(parts)),
        "replicas": str(replicas),
        "sharing-strategy": _strategy(config, replicas),
        "memory": str(amounts.memory_mib),
        "multiprocessors": str(amounts.multiprocessors),
        "slices.gi": str(shape.compute),
        "slices.ci": str(shape.compute),
        "engines.copy": str(amounts.copy_engines),
        "engines.decoder": str(amounts.decoders),
        "engines.encoder": str(amounts.encoders),
        "engines.jpeg": str(amounts.jpeg_engines),
        "engines.ofa": str(amounts.ofa_engines),
    }
    return {f"{prefix}.{name}": value for name, value in values.items()}


def _product(name: str, config: PluginConfig, resource: str) -> str:
    return sanitised(name) + _shared(config, resource)


def _shared(config: PluginConfig, resource: str) -> str:
    return "-SHARED" if config.replicas(resource) > 1 and not config.sharing.rename_by_default else ""


def _strategy(config: PluginConfig, replicas: int) -> str:
    return config.kind if replicas > 1 else "none"


def _boolean(value: bool) -> str:
    return "true" if value else "false"


# ---- the labels of a Node


class FeatureDiscovery:
    """Keeps the labels of one Node. `run` it; `again` when the hardware or the configuration changed."""

    def __init__(
        self,
        client: Client,
        clock: Clock,
        node_name: str,
        hardware: Hardware,
        config: Callable[[], PluginConfig],
        machine: str = "",
    ) -> None:
        self.client = client
        self.clock = clock
        self.node_name = node_name
        self.hardware = hardware
        self._config = config
        self._machine = machine
        self._changed = asyncio.Event()
        self._log = get("gpu-feature-discovery", node=node_name)

    def again(self) -> None:
        """Look at once."""
        self._changed.set()

    async def run(self) -> None:
        """Look every minute, for ever."""
        started = str(int(self.clock.now()))
        while True:
            self._changed.clear()
            try:
                await self._write(started)
            except (Retry, Denied, DragomanError) as error:
                self._log.warning("labels were not written", error=str(error))
            try:
                await self.clock.within(INTERVAL_S, self._changed.wait())
            except TimeoutError:
                continue

    async def _write(self, started: str) -> None:
        wanted = feature_labels(self.hardware, self._config(), self._machine)
        if wanted:
            wanted[TIMESTAMP] = started
        node = await self.client.get(NODE, self.node_name)
        changes = differences(node["metadata"].get("labels") or {}, wanted)
        if changes:
            await self.client.patch(NODE, self.node_name, {"metadata": {"labels": changes}})
            self._log.info("labels written", changed=len(changes))


def differences(there: Mapping[str, str], wanted: Mapping[str, str]) -> dict[str, str | None]:
    """What to patch: labels that are wrong or missing, and None for those of ours that are no longer right."""
    changes: dict[str, str | None] = {name: value for name, value in wanted.items() if there.get(name) != value}
    return changes | {name: None for name in there if OWN.fullmatch(name) and name not in wanted}
