"""MIG layouts against brute force, and files that mig-parted takes."""

from __future__ import annotations

import random
from functools import cache
from itertools import combinations

import pytest
import yaml

from dragoman.errors import Invalid
from dragoman.plan.mig import MigPlan, mig_plan, placeable
from dragoman.profiles import Catalog
from dragoman.profiles.mig import InstanceProfile, misfit, parse_instance, placements
from tests.plan.cases import SEEDS

CATALOG = Catalog.packaged()


def shapes_of(model: str) -> tuple[InstanceProfile, ...]:
    return CATALOG.mig_shapes(CATALOG.gpus[model])


MODELS = sorted(name for name, model in CATALOG.gpus.items() if model.mig)


@cache
def layouts_by_force(shapes: tuple[InstanceProfile, ...]) -> frozenset[tuple[int, ...]]:
    """Every set of placed instances that fits, by trying all sets."""
    possible = placements(shapes)
    found = set()
    for size in range(1, 8):
        sets = [some for some in combinations(possible, size) if not misfit(some)]
        if not sets:
            break
        found |= {tuple(sum(one.shape is shape for one in some) for shape in shapes) for some in sets}
    return frozenset(found)


def fewest(patterns: frozenset[tuple[int, ...]], wanted: tuple[int, ...]) -> int:
    """The fewest GPUs, by trying one more each time."""
    states, gpus = {wanted}, 0
    while not any(not any(state) for state in states):
        states = {tuple(max(0, a - b) for a, b in zip(s, p, strict=True)) for s in states for p in patterns}
        gpus += 1
    return gpus


@pytest.mark.parametrize("seed", SEEDS)
def test_small_mixes_against_brute_force(seed: int) -> None:
    draw = random.Random(seed)
    model = draw.choice(MODELS)
    shapes = tuple(s for s in shapes_of(model) if "+" not in s.name and "-" not in s.name)
    chosen = tuple(shape for shape in shapes if shape in draw.sample(shapes, min(3, len(shapes))))
    demand = {shape.name: draw.randint(1, 4) for shape in chosen}
    best = fewest(layouts_by_force(chosen), tuple(demand.values()))
    found = mig_plan(shapes_of(model), demand, model, per_node=draw.randint(1, 8))
    assert (found.gpus, found.exact) == (best, True)
    check(found)
    greedy = mig_plan(shapes_of(model), demand, model, solver=False)
    assert greedy.least <= best <= greedy.gpus
    check(greedy)


def check(found: MigPlan) -> None:
    """Every layout is valid, they serve the demand, and the file says the same."""
    shapes = shapes_of(found.model)
    given: dict[str, int] = {}
    for layout in found.layouts:
        assert not misfit([parse_instance(text, shapes) for text in layout.instances])
        for text in layout.instances:
            name = text.partition("@")[0]
            given[name] = given.get(name, 0) + layout.gpus
    assert all(given[name] >= number for name, number in found.demand.items())
    config = yaml.safe_load(found.config)
    assert config["version"] == "v1"
    said: dict[str, int] = {}
    gpus = 0
    for node in found.nodes:
        for entry in config["mig-configs"][node.name]:
            assert set(entry) == {"devices", "mig-enabled", "mig-devices"}
            gpus += len(entry["devices"]) * node.nodes
            for name, number in entry["mig-devices"].items():
                said[name] = said.get(name, 0) + number * len(entry["devices"]) * node.nodes
    assert (said, gpus) == (given, found.gpus)


def test_three_slices_and_four_small_ones_share_a_gpu() -> None:
    found = mig_plan(shapes_of("NVIDIA H100 80GB HBM3"), {"1g.10gb": 4, "3g.40gb": 1}, "H100")
    assert found.gpus == 1
    assert "3g.40gb@4" in found.layouts[0].instances, "at 0 only three small ones fit beside it"


def test_one_media_engine_a_gpu() -> None:
    found = mig_plan(shapes_of("NVIDIA H100 80GB HBM3"), {"1g.10gb+me": 3}, "NVIDIA H100 80GB HBM3")
    assert found.gpus == 3


def test_large_mixes_end() -> None:
    demand = {"1g.10gb": 700, "2g.20gb": 300, "3g.40gb": 250, "7g.80gb": 40}
    found = mig_plan(shapes_of("NVIDIA H100 80GB HBM3"), demand, "NVIDIA H100 80GB HBM3")
    assert found.exact
    check(found)


def test_profiles_that_the_model_does_not_have_are_named() -> None:
    with pytest.raises(Invalid, match=r"no profile 1g\.5gb; it has: 1g\.10gb"):
        mig_plan(shapes_of("NVIDIA H100 80GB HBM3"), {"1g.5gb": 1}, "NVIDIA H100 80GB HBM3")
    with pytest.raises(Invalid, match="cannot be partitioned"):
        mig_plan(shapes_of("Tesla T4"), {"1g.5gb": 1}, "Tesla T4")


def test_every_multiset_has_a_placement() -> None:
    for counts, layout in placeable(shapes_of("NVIDIA A30")).items():
        assert sum(counts) == len(layout)
        assert not misfit(layout)
