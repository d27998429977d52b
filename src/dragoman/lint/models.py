"""Which GPUs does NVIDIA's driver publish, as far as selectors can tell: memory, and the MIG profiles each can have?

Typed from NVIDIA's MIG user guide and public nvidia-smi output; the tests hold it against the machine profiles.
A model that is missing here is unknown, never wrong.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from dragoman.api.selectors import DeviceView, Domains
from dragoman.values.quantity import Quantity
from dragoman.values.semver import Semver

DRIVER = "gpu.nvidia.com"

_Row = tuple[int, int, str]
# Compute slices, memory in eighths of the card, suffix.
_SEVEN: tuple[_Row, ...] = (
    (1, 1, ""),
    (1, 1, "+me"),
    (1, 2, ""),
    (2, 2, ""),
    (3, 4, ""),
    (4, 4, ""),
    (7, 8, ""),
)
_FOUR: tuple[_Row, ...] = ((1, 2, ""), (1, 2, "+me"), (2, 4, ""), (2, 4, "+me"), (4, 8, ""))
_PRO: tuple[_Row, ...] = (
    *((1, 2, suffix) for suffix in ("", "+me", "+gfx", "+me.all", "-me")),
    *((2, 4, suffix) for suffix in ("", "+gfx", "+me.all", "-me")),
    *((4, 8, suffix) for suffix in ("", "+gfx")),
)


class Model(msgspec.Struct, frozen=True):
    """A card: memory as NVML reports it, in MiB, and the rows of its MIG profiles."""

    memory_mib: int
    architecture: str
    rows: tuple[_Row, ...] = ()

    def profiles(self) -> tuple[str, ...]:
        """Names of its MIG profiles, smallest first."""
        total_gb = -(-self.memory_mib // 1024)
        return tuple(f"{compute}g.{(part * total_gb + 4) // 8}gb{suffix}" for compute, part, suffix in self.rows)


MODELS: dict[str, Model] = {
    "Tesla T4": Model(15360, "Turing"),
    "Tesla V100-SXM2-32GB": Model(32768, "Volta"),
    "NVIDIA A10G": Model(23028, "Ampere"),
    "NVIDIA A30": Model(24576, "Ampere", _FOUR),
    "NVIDIA A100-SXM4-40GB": Model(40960, "Ampere", _SEVEN),
    "NVIDIA A100-SXM4-80GB": Model(81920, "Ampere", _SEVEN),
    "NVIDIA A100-PCIE-40GB": Model(40960, "Ampere", _SEVEN),
    "NVIDIA A100 80GB PCIe": Model(81920, "Ampere", _SEVEN),
    "NVIDIA L4": Model(23034, "Ada Lovelace"),
    "NVIDIA L40S": Model(46068, "Ada Lovelace"),
    "NVIDIA H100 80GB HBM3": Model(81559, "Hopper", _SEVEN),
    "NVIDIA H100 PCIe": Model(81559, "Hopper", _SEVEN),
    "NVIDIA H100 NVL": Model(95830, "Hopper", _SEVEN),
    "NVIDIA GH200 480GB": Model(97871, "Hopper", _SEVEN),
    "NVIDIA H200": Model(143771, "Hopper", _SEVEN),
    "NVIDIA B200": Model(183359, "Blackwell", _SEVEN),
    "NVIDIA B300 SXM6 AC": Model(275040, "Blackwell", _SEVEN),
    "NVIDIA GB200": Model(189471, "Blackwell", _SEVEN),
    "NVIDIA GB300": Model(284208, "Blackwell", _SEVEN),
    "NVIDIA RTX PRO 6000 Blackwell Server Edition": Model(97887, "Blackwell", _PRO),
}
"""By the name that NVML reports, which is the attribute productName."""


def gpus() -> Iterator[DeviceView]:
    """A full GPU of each model."""
    for name, model in MODELS.items():
        yield _view(name, model, {"type": "gpu", "uuid": f"GPU-{name}"}, model.memory_mib)


def instance(name: str, profile: str) -> DeviceView:
    """A MIG device of a model with that profile, whether the model can have it or not."""
    own = {"type": "mig", "uuid": "MIG-0", "parentUUID": "GPU-0", "profile": profile}
    return _view(name, MODELS[name], own, MODELS[name].memory_mib)


def _view(name: str, model: Model, own: dict[str, str], memory_mib: int) -> DeviceView:
    shared = {
        "productName": name,
        "brand": "Nvidia",
        "architecture": model.architecture,
        "addressingMode": "None",
        "driverVersion": Semver.parse("580.126.20"),
        "cudaDriverVersion": Semver.parse("13.0.0"),
    }
    attributes = Domains()
    attributes[DRIVER] = {**own, **shared}
    capacity = Domains()
    capacity[DRIVER] = {"memory": Quantity.parse(f"{memory_mib}Mi")}
    return DeviceView(DRIVER, attributes, capacity)
