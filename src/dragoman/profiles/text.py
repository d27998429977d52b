"""How does a machine profile look to people? Rows of the list, and all of one profile."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

from dragoman.profiles.load import Catalog
from dragoman.profiles.machine import Profile


def row(catalog: Catalog, profile: Profile) -> dict[str, Any]:
    """A profile's entry in the list, for programs too."""
    counts = Counter(model.name.removeprefix("NVIDIA ") for model in catalog.gpu_models(profile))
    trays = f"{profile.rack.trays} nodes x " if profile.rack else ""
    gpus = ", ".join(f"{count} {name}" for name, count in counts.items())
    return {
        "name": profile.name,
        "gpus": trays + (gpus or (f"{profile.example_devices} made-up" if profile.example_devices else "")),
        "nics": len(profile.nics),
        "summary": profile.summary,
        "aliases": list(profile.aliases),
        "origin": catalog.origins.get(profile.name, "packaged"),
    }


def lines(catalog: Catalog, profile: Profile) -> Iterator[str]:
    """All of one profile: where its devices sit, and what its GPUs can be cut into."""
    yield f"{profile.name}: {profile.summary}"
    if profile.source:
        yield f"source: {profile.source}"
    if profile.example_devices:
        yield f"\n{profile.example_devices} devices of gpu.example.com"
    if profile.gpus:
        yield from _gpus(profile)
    for kind in {model.name: model for model in catalog.gpu_models(profile)}.values():
        if shapes := catalog.mig_shapes(kind):
            yield f"\nMIG profiles of {kind.name}: {', '.join(shape.name for shape in shapes)}"


def _gpus(profile: Profile) -> Iterator[str]:
    yield f"\n{'GPU':<4} {'MODEL':<28} {'BUS':<13} {'PCIE ROOT':<13} {'NUMA':>4}  {'MODULE':>6}  NICS ON THAT ROOT"
    for index, slot in enumerate(profile.gpus):
        nics = [nic.rdma_device or nic.if_name for nic in profile.nics if nic.pcie_root == slot.pcie_root]
        numa = "-" if slot.numa is None else slot.numa
        model = profile.model_of(slot)
        yield (
            f"{index:<4} {model:<28} {slot.bus_id:<13} {slot.pcie_root:<13} {numa:>4}  {slot.module_id or '-':>6}  "
            f"{', '.join(nics) or '-'}"
        )
