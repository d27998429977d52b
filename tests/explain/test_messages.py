"""Sentences: every refusal has one, with its facts, and events name nothing of other namespaces."""

from __future__ import annotations

import typing
from typing import Any

import pytest

from dragoman.allocate import refusal as device
from dragoman.explain.messages import as_json, code, fragment, message, sentence
from dragoman.schedule import refusal as pod
from dragoman.schedule.decision import NodesRefused, Refused
from dragoman.snapshot.usage import DeviceId, Holder
from dragoman.values.quantity import Quantity

GPU0 = DeviceId("gpu.example.com", "node-a", "gpu-0")
SAMPLES: dict[type, Any] = {
    str: "thing",
    int: 3,
    bool: True,
    Quantity: Quantity.parse("2Gi"),
    DeviceId: GPU0,
    pod.DomainCount: pod.DomainCount("rack-1", 3),
    device.Dropped: device.Dropped(seen=8, selector=5, held=2, available=1),
}


def every() -> dict[str, Any]:
    """One value of each kind of refusal, fields filled by their types."""
    found = {}
    for kind in [*typing.get_args(pod.ScheduleReason), *typing.get_args(device.Refusal), device.SearchLimitReached]:
        hints = typing.get_type_hints(kind)
        values = {}
        for field in kind.__struct_fields__:
            hint = hints[field]
            if typing.get_origin(hint) is tuple:
                inner = typing.get_args(hint)[0]
                if inner is Holder:
                    values[field] = (Holder("other-team", "secret-claim", "u", "r"), Holder("mine", "own", "u", "r"))
                elif typing.get_origin(inner) is tuple:
                    values[field] = (tuple(SAMPLES[part] for part in typing.get_args(inner)),)
                else:
                    values[field] = (SAMPLES[inner],)
            else:
                values[field] = SAMPLES[hint]
        found[kind.__name__] = kind(**values)
    return found


EVERY = every()


@pytest.mark.parametrize("name", EVERY)
def test_every_refusal_has_a_sentence_a_fragment_and_a_code(name: str) -> None:
    reason = EVERY[name]
    text = sentence(reason)
    assert text
    assert text == text.strip()
    assert not text.endswith(".")
    assert "object at 0x" not in text
    assert fragment(reason)
    reported = as_json(reason)
    assert reported["code"] == code(reason) == name
    assert reported["message"] == text
    assert set(reported) > {"code", "message"} or not reason.__struct_fields__


@pytest.mark.parametrize("name", EVERY)
def test_no_object_of_another_namespace_is_named_to_a_reader(name: str) -> None:
    reason = EVERY[name]
    assert "other-team" not in sentence(reason, "mine")
    assert "secret-claim" not in sentence(reason, "mine")
    assert "secret-claim" not in str(as_json(reason, "mine"))


def too_few(**dropped: int) -> device.InsufficientDevices:
    return device.InsufficientDevices(
        claim="default/train",
        request="gpu",
        class_name="gpu.example.com",
        requested=2,
        dropped=device.Dropped(**dropped),
        node="node-a",
    )


NUMBERS: dict[str, tuple[Any, str]] = {
    "how many match, are free and were requested": (
        too_few(seen=8, held=7, available=1),
        "claim train, request gpu: 2 devices of class gpu.example.com requested on node node-a, 8 devices match, 1 of them free",
    ),
    "none matches": (
        too_few(seen=8, selector=8),
        "claim train, request gpu: 2 devices of class gpu.example.com requested on node node-a, none of 8 devices matches",
    ),
    "nothing there": (
        too_few(),
        "claim train, request gpu: 2 devices of class gpu.example.com requested on node node-a, no devices there",
    ),
    "what else was lost on the way": (
        too_few(seen=4, selector=1, held=1, taint=2, available=0),
        "claim train, request gpu: 2 devices of class gpu.example.com requested on node node-a, "
        "3 devices match, 2 of them free (2 tainted)",
    ),
    "a resource in people's units": (
        pod.InsufficientResource("memory", Quantity.parse("4Gi"), Quantity.parse("1Gi"), Quantity.parse("8Gi")),
        "4Gi of memory requested, 1Gi of 8Gi free",
    ),
    "a selector that reads what is not there": (
        device.SelectorError(
            claim="default/c",
            request="r",
            class_name="gpu",
            index=0,
            expression="x",
            device=GPU0,
            error="no such key: type",
            attribute="gpu.example.com/type",
            lacking=2,
            seen=2,
        ),
        "device class gpu, selector 0 on device gpu.example.com/node-a/gpu-0: CEL runtime error: no such key: type; "
        "2 of 2 devices without gpu.example.com/type",
    ),
}


@pytest.mark.parametrize("name", NUMBERS)
def test_numbers_and_names_in_sentences(name: str) -> None:
    reason, expected = NUMBERS[name]
    assert sentence(reason) == expected


def refused(*nodes: NodesRefused, reasons: tuple[Any, ...] = (), total: int = 3) -> Refused:
    return Refused(("default", "p"), "uid", reasons, nodes, total)


def test_a_pending_pod_is_described_in_upstreams_words_then_in_numbers() -> None:
    text = message(
        refused(
            NodesRefused(("a",), (too_few(seen=8, held=8),)),
            NodesRefused(("b",), (too_few(seen=8, held=7, available=1),)),
            NodesRefused(("c",), (pod.NodeUnschedulable(),)),
        )
    )
    assert text == (
        "0/3 nodes are available: 1 node(s) were unschedulable, 2 cannot allocate all claims. "
        "preemption: 0/3 nodes are available: 3 Preemption is not helpful for scheduling. On 2 nodes, the best: claim "
        "train, request gpu: 2 devices of class gpu.example.com requested, 8 devices match, 1 of them free."
    )


def test_what_holds_everywhere_is_said_once() -> None:
    assert message(refused(reasons=(device.ClassNotFound(claim="default/c", request="r", class_name="gpu"),))) == (
        "0/3 nodes are available: request r: device class gpu does not exist."
    )
    assert message(refused(reasons=(pod.NoNodes(),), total=0)) == "no nodes available to schedule pods."
    assert message(refused(reasons=(pod.SchedulingGated(("quota",)),))) == (
        "Scheduling is blocked due to non-empty scheduling gates: quota."
    )


def test_several_resources_of_one_node_are_counted_each() -> None:
    one = Quantity.parse("1")
    short = (pod.InsufficientResource("cpu", one, one, one), pod.InsufficientResource("memory", one, one, one))
    text = message(refused(NodesRefused(("a", "b"), short), NodesRefused(("c",), short[:1])))
    assert text.startswith(
        "0/3 nodes are available: 2 Insufficient memory, 3 Insufficient cpu. preemption: not attempted."
    )


def test_nodes_with_an_invalid_pool_are_counted_once() -> None:
    invalid = device.PoolInvalid(driver="gpu.example.com", pool="a", claim="", request="", what="x", names=())
    text = message(refused(NodesRefused(("a",), (invalid, too_few(seen=1))), NodesRefused(("b", "c"), (too_few(),))))
    assert text.startswith("0/3 nodes are available: 1 invalid resource pools were encountered, 2 cannot allocate all")


def test_a_message_fits_into_an_event() -> None:
    many = [
        NodesRefused(
            (f"n{i}",),
            (
                device.PoolInvalid(
                    claim="",
                    request="",
                    driver="d" * 60,
                    pool=f"p{i}" * 20,
                    what="duplicate device",
                    names=("x" * 200,),
                ),
            ),
        )
        for i in range(20)
    ]
    text = message(refused(*many, total=20))
    assert len(text) <= 1024
    assert "other reasons" in text or text.endswith("…")
