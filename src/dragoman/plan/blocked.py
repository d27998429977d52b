"""What keeps the next copy out? Refusals of pods by kind of cause: device, link, node resource, node, quota.

Never judges: it counts the nodes behind each reason that the scheduler gave.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Literal, TypeAlias, get_args

import msgspec

from dragoman.allocate import refusal as device
from dragoman.explain import messages
from dragoman.schedule import refusal as pod
from dragoman.schedule.decision import NodesRefused
from dragoman.whatif.cluster import Rejection
from dragoman.whatif.decide import PodPrediction

BlockCause: TypeAlias = Literal["device", "link", "node resource", "node", "quota", "pod", "undecided"]
CAUSES: tuple[BlockCause, ...] = get_args(BlockCause)
_RESOURCES = (pod.InsufficientResource, pod.TooManyPods, pod.UnknownResource, pod.InsufficientPodLevelResource)
_LINKS = (device.ConstraintUnsatisfied, device.AllModeConstraintUnsatisfied)
_POD = get_args(pod.PodReason)
_NODE = get_args(pod.NodeReason)


class Block(msgspec.Struct, frozen=True):
    """One cause: the code of its reason (docs/reference/refusals.md), an example as a sentence, on how many nodes.

    device_class: the class whose devices are short, "" for other causes. names: some of the nodes.
    """

    cause: BlockCause
    code: str
    message: str
    device_class: str
    nodes: int
    names: tuple[str, ...]


NAMES_MAX = 5


def blocks_of(refused: Iterable[PodPrediction], rejected: Iterable[Rejection]) -> tuple[Block, ...]:
    """What blocks these pods, the cause on most nodes first. Of several pods the first counts."""
    found: dict[tuple[BlockCause, str, str], tuple[str, dict[str, None]]] = {}

    def add(reason: Any, nodes: Sequence[str]) -> None:
        key = (cause_of(reason), messages.code(reason), getattr(reason, "class_name", "") or "")
        _, names = found.setdefault(key, (messages.sentence(reason), {}))
        names.update(dict.fromkeys(nodes))

    for prediction in list(refused)[:1]:
        if prediction.undecided is not None:
            for some in prediction.undecided.undecided:
                key: tuple[BlockCause, str, str] = ("undecided", messages.code(some.limit), "")
                found.setdefault(key, (messages.sentence(some.limit), {}))[1].update(dict.fromkeys(some.nodes))
        for reason in prediction.refused.reasons if prediction.refused is not None else ():
            add(reason, ())
        for some_nodes in prediction.nodes:
            for reason in some_nodes.reasons:
                add(reason, some_nodes.nodes)
    blocks = [
        Block(cause, code, message, name, len(nodes), tuple(sorted(nodes)[:NAMES_MAX]))
        for (cause, code, name), (message, nodes) in found.items()
    ]
    blocks += [
        Block("quota", "Rejected", rejection.message, "", 0, ())
        for rejection in {r.message: r for r in rejected}.values()
    ]
    return tuple(sorted(blocks, key=lambda block: (-block.nodes, CAUSES.index(block.cause), block.code)))


def cause_of(reason: object) -> BlockCause:
    """The kind of cause that a reason belongs to."""
    if isinstance(reason, _RESOURCES):
        return "node resource"
    if isinstance(reason, _LINKS):
        return "link"
    if isinstance(reason, _NODE):
        return "node"
    return "pod" if isinstance(reason, _POD) else "device"


def refused_by_resources(nodes: Iterable[NodesRefused]) -> tuple[str, ...]:
    """Nodes that have too little of a resource, and no other reason against them."""
    return tuple(
        sorted(
            name
            for some in nodes
            if some.reasons and all(cause_of(reason) == "node resource" for reason in some.reasons)
            for name in some.nodes
        )
    )
