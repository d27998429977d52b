"""What lint knows of the GPU driver is what the driver publishes on simulated machines."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

import pytest

from dragoman.drivers.nvidia.classes import GPU
from dragoman.drivers.registry import known_drivers
from dragoman.profiles import Catalog

from .bench_of_gpus import Bench

CATALOG = Catalog.packaged()
GATES: dict[str, tuple[str, ...]] = {
    "as it comes": (),
    "partitions on demand": ("DynamicMIG",),
    "with standard attributes as lists": ("DRAListTypeAttributes",),
    "shared, in fabric partitions": ("ConsumableShares", "FabricManagerPartitioning"),
}


@pytest.mark.parametrize("gates", GATES.values(), ids=GATES)
@pytest.mark.parametrize("profile", ["dgx-a100-40-mig", "dgx-h100", "gb200-nvl72", "t4-4"])
def test_every_published_name_is_known(tmp_path: Path, profile: str, gates: tuple[str, ...]) -> None:
    known = known_drivers().get(GPU)
    assert known is not None
    pools = asyncio.run(Bench(tmp_path, profile, *gates).driver.pools())
    devices = [device for pool in pools.values() for device in pool.devices]
    assert devices
    for device in devices:
        own = [name for name in device.attributes if "/" not in name]
        assert [name for name in own if not known.has("attributes", name)] == []
        assert [name for name in device.capacity if not known.has("capacity", name)] == []


def test_cards_are_those_of_the_machine_profiles() -> None:
    known = known_drivers().get(GPU)
    assert known is not None
    assert known.cards is not None
    cards = {card.name: card for card in known.cards.models()}
    assert list(cards) == list(CATALOG.gpus)
    a100 = cards["NVIDIA A100-SXM4-40GB"]
    assert a100.profiles[0] == "1g.5gb"
    assert all(re.fullmatch(known.cards.profile, name) for card in cards.values() for name in card.profiles)
    assert str(a100.whole.capacity[GPU]["memory"]) == "40Gi"
    assert a100.partition("1g.5gb").attributes[GPU]["profile"] == "1g.5gb"
    assert cards["NVIDIA L4"].profiles == ()
