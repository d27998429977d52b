"""Answers about one object or about everything: what is asked for, what is not there, what may not be seen."""

from __future__ import annotations

from datetime import UTC, datetime
from itertools import count
from typing import Any

import pytest

from dragoman.errors import Forbidden, Invalid, NotFound
from dragoman.explain.about import About, ExplainInput, about, hidden_basis, object_of, only_namespace
from dragoman.schedule.units import SchedulingContext
from dragoman.testing.build import allocated, claim, device_class, gpus, node, pod, snapshot_of
from dragoman.whatif.cluster import bring
from dragoman.whatif.settle import settled

NOW = datetime(2026, 1, 1, tzinfo=UTC)
WORLD = [node("a"), device_class(), gpus("a", 2)]


def scene(*objects: dict[str, Any], hidden: frozenset[str] = frozenset()) -> ExplainInput:
    raw = snapshot_of(*objects)
    numbers = count()
    context = SchedulingContext(new_id=lambda: f"{next(numbers):08d}")
    order = tuple(("Pod", *key) for key in sorted(raw.pods))
    return ExplainInput(raw, settled(bring(raw, NOW)), order, (), context, lambda: 0.0, hidden)


def asked(world: ExplainInput, word: str, namespace: str = "") -> About:
    return about(world, *object_of(word), namespace)


WORDS = {
    "pod/a": ("pod", "a"),
    "po/a": ("pod", "a"),
    "Pods/a": ("pod", "a"),
    "resourceclaims/c": ("claim", "c"),
    "no/n": ("node", "n"),
    "device/d/p/x": ("device", "d/p/x"),
    "": ("", ""),
}


@pytest.mark.parametrize("word", WORDS)
def test_words_for_objects(word: str) -> None:
    assert object_of(word) == WORDS[word]


@pytest.mark.parametrize("word", ["pod", "pod/", "gpu/x", "/x"])
def test_other_words_are_refused_with_those_that_there_are(word: str) -> None:
    with pytest.raises(Invalid, match="must be pod/NAME, claim/NAME, node/NAME or device/DRIVER/POOL/DEVICE"):
        object_of(word)


def test_one_namespace_need_not_be_said() -> None:
    world = scene(*WORLD, pod("p", namespace="ml"))
    assert only_namespace(world) == "ml"
    assert asked(world, "pod/p").lines[0] == "pod ml/p is pending; would fit on a"
    assert only_namespace(scene(*WORLD, pod("p", namespace="ml"), pod("q"))) == "default"


ABSENT = {
    "pod/trian": "pod default/trian does not exist; near: default/train",
    "claim/weights": "claim default/weights does not exist; near: ml/weights",
    "node/aa": "node aa does not exist; near: a",
    "device/gpu.example.com/a/gpu-7": (
        "device gpu.example.com/a/gpu-7 is neither published nor allocated; near: gpu.example.com/a/gpu-1, "
        "gpu.example.com/a/gpu-0"
    ),
}


@pytest.mark.parametrize("word", ABSENT)
def test_what_is_not_there_is_said_with_what_is_near(word: str) -> None:
    world = scene(*WORLD, pod("train"), claim("weights", namespace="ml"))
    with pytest.raises(NotFound) as error:
        asked(world, word)
    assert str(error.value) == ABSENT[word]


@pytest.mark.parametrize(("word", "kind"), [("pod/x", "Pod"), ("claim/x", "ResourceClaim"), ("node/x", "Node")])
def test_what_may_not_be_seen_is_not_said_to_be_absent(word: str, kind: str) -> None:
    with pytest.raises(Forbidden, match="not visible; ask for the right to list them"):
        asked(scene(*WORLD, hidden=frozenset({kind})), word)


def test_pods_before_it_are_decided_first() -> None:
    """The first pod takes both devices."""
    objects = [claim("c", count=2), claim("d"), pod("first", "c"), pod("second", "d")]
    world = scene(*WORLD, *objects)
    second = asked(world, "pod/second")
    assert not second.well
    assert second.lines[0] == "pod default/second cannot be scheduled:"
    world.order = world.order[::-1]
    assert asked(world, "pod/second").well


def test_without_nodes_to_see_nothing_is_decided_and_what_is_known_is_said() -> None:
    world = scene(*WORLD, claim("c"), pod("p", "c", "none"), hidden=frozenset({"Node", "ResourceSlice"}))
    assert hidden_basis(world) == ("nodes", "resourceslices")
    found = asked(world, "pod/p")
    assert found.lines == [
        "pod default/p is pending; why is not decided here: nodes, resourceslices not visible",
        "  claim c is not allocated yet",
        "  claim none does not exist",
        "  no scheduler has reported anything about it",
    ]
    assert found.body["pods"][0]["notVisible"] == ["nodes", "resourceslices"]
    assert not found.well


def test_a_claim_that_no_pod_uses_is_tried_alone() -> None:
    fits = asked(scene(*WORLD, claim("c")), "claim/c")
    assert fits.well
    large = asked(scene(*WORLD, claim("c", count=3)), "claim/c")
    assert not large.well
    assert any("for a pod with only this claim:" in line for line in large.lines)


def test_a_device_and_a_node() -> None:
    world = scene(*WORLD, allocated("c", "gpu-0", pool="a", pods=["p"]), pod("p", "c", nodeName="a"))
    held = asked(world, "device/gpu.example.com/a/gpu-0")
    assert held.body["devices"][0]["state"] == "held"
    assert asked(world, "device/gpu.example.com/a/gpu-1").body["devices"][0]["state"] == "free"
    with pytest.raises(Invalid, match="must be device/DRIVER/POOL/DEVICE"):
        asked(world, "device/gpu.example.com/a")
    assert asked(world, "node/a").well
    assert not asked(scene(node("a", unschedulable=True)), "node/a").well


def test_everything_is_of_one_namespace_or_of_all() -> None:
    objects = [claim("c", count=3), pod("p", "c"), pod("q", namespace="ml")]
    everything = about(scene(*WORLD, *objects), "", "", "")
    assert [entry["name"] for entry in everything.body["pods"]] == ["p", "q"]
    assert not everything.well
    ml = about(scene(*WORLD, *objects), "", "", "ml")
    assert [entry["name"] for entry in ml.body["pods"]] == ["q"]
    assert ml.well
    assert about(scene(*WORLD), "", "", "").lines == ["no pending pods"]
