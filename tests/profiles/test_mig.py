"""MIG arithmetic against the published counts and names."""

from __future__ import annotations

from collections import Counter

import pytest

from dragoman.profiles import Catalog
from dragoman.profiles.mig import (
    InstanceProfile,
    PlacedInstance,
    by_preference,
    is_maximal,
    layouts,
    misfit,
    parse_instance,
    profile_name,
    token,
)

CATALOG = Catalog.packaged()


def shapes(model: str) -> tuple[InstanceProfile, ...]:
    return CATALOG.mig_shapes(CATALOG.gpus[model])


PLAIN = ("1g.10gb", "2g.20gb", "3g.40gb", "4g.40gb", "7g.80gb")
COUNTS = {
    "seven slices": ("NVIDIA H100 80GB HBM3", PLAIN, 297, 37, 19),
    "seven slices with double memory": ("NVIDIA H100 80GB HBM3", (*PLAIN, "1g.20gb"), 722, 77, 78),
    "A100 with its other engines": ("NVIDIA A100-SXM4-80GB", PLAIN, 297, 37, 19),
    "B200": ("NVIDIA B200", ("1g.23gb", "2g.45gb", "3g.90gb", "4g.90gb", "7g.180gb"), 297, 37, 19),
    "four slices": ("NVIDIA A30", ("1g.6gb", "2g.12gb", "4g.24gb"), 25, 9, 5),
    "four slices, RTX PRO": (
        "NVIDIA RTX PRO 6000 Blackwell Server Edition",
        ("1g.24gb", "2g.48gb", "4g.96gb"),
        25,
        9,
        5,
    ),
}


@pytest.mark.parametrize("case", COUNTS)
def test_the_numbers_of_layouts_are_the_published_ones(case: str) -> None:
    model, names, placed, multisets, maximal = COUNTS[case]
    chosen = [shape for shape in shapes(model) if shape.name in names]
    assert len(chosen) == len(names)
    found = list(layouts(chosen))
    assert len(found) == placed
    kinds = {tuple(sorted(Counter(p.shape.name for p in layout).items())) for layout in found}
    assert len(kinds) == multisets
    assert sum(is_maximal(layout, chosen) for layout in found) == maximal


# instance sizes in eighths of the GPU: 1, 2, 4, 8
NAMES = {
    "NVIDIA A100-SXM4-40GB": ("1g.5gb", "1g.10gb", "2g.10gb", "3g.20gb", "4g.20gb", "7g.40gb"),
    "NVIDIA A100-SXM4-80GB": ("1g.10gb", "1g.20gb", "2g.20gb", "3g.40gb", "4g.40gb", "7g.80gb"),
    "NVIDIA H100 80GB HBM3": ("1g.10gb", "1g.20gb", "2g.20gb", "3g.40gb", "4g.40gb", "7g.80gb"),
    "NVIDIA H100 NVL": ("1g.12gb", "1g.24gb", "2g.24gb", "3g.47gb", "4g.47gb", "7g.94gb"),
    "NVIDIA GH200 480GB": ("1g.12gb", "1g.24gb", "2g.24gb", "3g.48gb", "4g.48gb", "7g.96gb"),
    "NVIDIA H200": ("1g.18gb", "1g.35gb", "2g.35gb", "3g.71gb", "4g.71gb", "7g.141gb"),
    "NVIDIA B200": ("1g.23gb", "1g.45gb", "2g.45gb", "3g.90gb", "4g.90gb", "7g.180gb"),
    "NVIDIA GB200": ("1g.23gb", "1g.47gb", "2g.47gb", "3g.93gb", "4g.93gb", "7g.186gb"),
    "NVIDIA B300 SXM6 AC": ("1g.34gb", "1g.67gb", "2g.67gb", "3g.135gb", "4g.135gb", "7g.269gb"),
    "NVIDIA GB300": ("1g.35gb", "1g.70gb", "2g.70gb", "3g.139gb", "4g.139gb", "7g.278gb"),
    "NVIDIA A30": ("1g.6gb", "1g.6gb+me", "2g.12gb", "2g.12gb+me", "4g.24gb"),
    "NVIDIA RTX PRO 6000 Blackwell Server Edition": (
        "1g.24gb", "1g.24gb+me", "1g.24gb+gfx", "1g.24gb+me.all", "1g.24gb-me",
        "2g.48gb", "2g.48gb+gfx", "2g.48gb+me.all", "2g.48gb-me", "4g.96gb", "4g.96gb+gfx",
    ),
}  # fmt: skip


@pytest.mark.parametrize("model", NAMES)
def test_profiles_have_the_names_that_nvidia_smi_prints(model: str) -> None:
    names = [shape.name for shape in shapes(model)]
    if len(NAMES[model]) == 6:
        names.remove(next(name for name in names if name.endswith("+me")))
    assert tuple(names) == NAMES[model]


def test_every_model_with_mig_has_a_table_and_unique_names() -> None:
    with_mig = [model for model in CATALOG.gpus.values() if model.mig]
    assert len(with_mig) >= 13
    for model in with_mig:
        made = CATALOG.mig_shapes(model)
        assert len({shape.name for shape in made}) == len(made)
        assert max(shape.amounts.memory_mib for shape in made) < model.memory_mib
        assert max(shape.amounts.multiprocessors for shape in made) <= model.sms or model.name == "NVIDIA H100 PCIe"


def test_an_early_gb200_driver_with_a_larger_total_gives_other_names() -> None:
    total = 189 * 1024
    assert profile_name(1, 20480, total) == "1g.24gb"
    assert profile_name(2, 46592, total) == "2g.47gb"
    assert profile_name(3, 94208, total) == "3g.95gb"
    assert profile_name(7, 188416, total) == "7g.189gb"


FITS = {
    "3g at 0 leaves three 1g": (["3g.40gb@0", "1g.10gb@4", "1g.10gb@5", "1g.10gb@6"], ""),
    "3g at 4 leaves four 1g": (["3g.40gb@4", "1g.10gb@0", "1g.10gb@1", "1g.10gb@2", "1g.10gb@3"], ""),
    "1g cannot start at 7": (["3g.40gb@0", "1g.10gb@7"], "1g.10gb can start at 0, 1, 2, 3, 4, 5, 6, not at 7"),
    "double memory may start at 6": (["3g.40gb@0", "1g.20gb@4", "1g.20gb@6"], ""),
    "two 3g block everything": (["3g.40gb@0", "3g.40gb@4", "1g.10gb@6"], "both need memory slice 6"),
    "a 1g forbids 4g": (["1g.10gb@0", "4g.40gb@0"], "both need memory slice 0"),
    "one media engine": (["1g.10gb+me@0", "1g.10gb+me@1"], "2 ofa engines are wanted, the GPU has 1"),
}


@pytest.mark.parametrize("case", FITS)
def test_instances_fit_or_say_why_not(case: str) -> None:
    texts, reason = FITS[case]
    placed = [parse_instance(text, shapes("NVIDIA H100 80GB HBM3")) for text in texts]
    assert (reason in misfit(placed)) if reason else not misfit(placed)


def test_all_media_engines_exclude_every_other_instance_with_media() -> None:
    rtx = {shape.name: shape for shape in shapes("NVIDIA RTX PRO 6000 Blackwell Server Edition")}
    every = PlacedInstance(rtx["1g.24gb+me.all"], 0)
    assert misfit([every, PlacedInstance(rtx["1g.24gb"], 1)])
    assert not misfit([every, PlacedInstance(rtx["1g.24gb-me"], 1), PlacedInstance(rtx["2g.48gb-me"], 2)])


PREFERRED = {
    "NVIDIA H100 80GB HBM3": {"1g.10gb": [6, 5, 4, 3, 2, 1, 0], "2g.20gb": [4, 2, 0], "3g.40gb": [4, 0]},
    "NVIDIA A30": {"1g.6gb": [3, 2, 1, 0], "2g.12gb": [2, 0]},
}


@pytest.mark.parametrize("model", PREFERRED)
def test_starts_that_leave_most_room_come_first(model: str) -> None:
    ranked = by_preference(shapes(model))
    assert len(ranked) == sum(len(shape.starts) for shape in shapes(model))
    for name, starts in PREFERRED[model].items():
        assert [placed.start for placed in ranked if placed.shape.name == name] == starts


def first_fit(wanted: list[str]) -> list[str]:
    """What somebody gets who takes the first placement that is free, one after the other."""
    layout: list[PlacedInstance] = []
    for name in wanted:
        ranked = [placed for placed in by_preference(shapes("NVIDIA H100 80GB HBM3")) if placed.shape.name == name]
        layout += next(([placed] for placed in ranked if not misfit([*layout, placed])), [])
    return [str(placed) for placed in layout]


SEQUENCES = {
    "a small one, then the largest that can be": ["1g.10gb", "4g.40gb"],
    "two small ones, then a large": ["1g.10gb", "1g.10gb", "4g.40gb"],
    "three small ones and a large": ["1g.10gb", "1g.10gb", "1g.10gb", "4g.40gb"],
    "small and middle, then a large": ["1g.10gb", "2g.20gb", "4g.40gb"],
    "three and four": ["3g.40gb", "4g.40gb"],
    "three and four small ones": ["3g.40gb", "1g.10gb", "1g.10gb", "1g.10gb", "1g.10gb"],
}


@pytest.mark.parametrize("case", SEQUENCES)
def test_who_comes_first_does_not_keep_out_who_comes_later(case: str) -> None:
    wanted = SEQUENCES[case]
    assert len(first_fit(wanted)) == len(wanted)


TOKENS = {"1g.5gb": "1g5gb", "1g.10gb+me": "1g10gb-me", "1g.24gb-me": "1g24gb-me", "1g.24gb+me.all": "1g24gb-meall"}


def test_names_become_parts_of_device_names() -> None:
    assert {name: token(name) for name in TOKENS} == TOKENS
