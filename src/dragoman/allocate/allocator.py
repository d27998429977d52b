"""Which devices do these claims get on this node? The door of `dragoman.allocate`: callers import only this.

    options = Options()                        # gates of 1.37, first-fit, 20,000 steps
    answer = allocate(snapshot, [Ask((claim,), "node-a")], options, share_id=entropy.uid)
    match answer:
        case Allocation(): answer.results[0][0]   # AllocationResult of the first ask's first claim
        case Refusals():   answer.reasons         # the decisive reason first; answer.gave_up: not decided

Never writes: the caller commits `status.allocation`, adds allocationTimestamp and reservations. Never draws ids:
`share_id` is called once for each share of a device that allows several allocations. Semantics: KEP-4381,
KEP-4816, KEP-4815, KEP-5075, KEP-5007, KEP-5055, KEP-5491, KEP-5963, KEP-6080; docs/reference/allocation.md.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import msgspec

from dragoman.allocate.decide import Answer, Decider, Unit, chosen_of, settled, unit_of
from dragoman.allocate.match import Matcher
from dragoman.allocate.refusal import Refusals
from dragoman.allocate.slots import Rules, rules_of
from dragoman.allocate.values import Allocation, Ask, Chosen
from dragoman.api.gates import DEFAULTS, Gates
from dragoman.api.resource import ResourceClaim
from dragoman.errors import Bug
from dragoman.snapshot.change import Snapshot


class Limits(msgspec.Struct, frozen=True):
    """search_steps: steps of one search before GaveUp; retry with ten times as many, up to 2,000,000."""

    search_steps: int = 20_000


class Options(msgspec.Struct, frozen=True):
    """How to decide. policy: "first-fit" (upstream's choice device by device) or "pack"."""

    gates: Gates = DEFAULTS
    policy: str = "first-fit"
    limits: Limits = Limits()


OPTIONS = Options()


class NodeClass(msgspec.Struct, frozen=True):
    """Nodes that are alike for these claims, sorted by name. outcome: what holds on each of them.

    A refusal's facts are those of nodes[0]. `allocation_on(node)` gives the node's own results.
    """

    nodes: Sequence[str]
    fits: bool
    chosen: tuple[Chosen, ...]
    refusals: Refusals | None
    allocation_on: Callable[[str, Callable[[], str]], Allocation]


class Survey(msgspec.Struct, frozen=True):
    """What holds on every node that was asked for, one entry a class of alike nodes."""

    classes: tuple[NodeClass, ...]


def allocate(
    snapshot: Snapshot, asks: Sequence[Ask], options: Options = OPTIONS, *, share_id: Callable[[], str]
) -> Allocation | Refusals:
    """Devices for all asks together, or why not; one ledger spans all of them (a gang is several asks).

    All or nothing. A claim that stands in several asks (shared by pods of a gang) is allocated for the first; the
    others must be on nodes that its allocation reaches. The hot path keeps one cause; `story` tells all.
    """
    rules = rules_of(options.gates)
    unit = unit_of(snapshot, asks, rules)
    if isinstance(unit, Refusals):
        return unit
    answer = Decider(snapshot, rules, Matcher(), options.limits.search_steps).decide(unit)
    if isinstance(answer, Refusals):
        return answer
    return settled(unit, answer, rules, share_id)


def survey(
    snapshot: Snapshot,
    claims: Sequence[ResourceClaim],
    options: Options = OPTIONS,
    *,
    nodes: Iterable[str] | None = None,
) -> Survey | Refusals:
    """The same question for many nodes (None: all), one search a class of alike nodes.

    Refusals: no node can help. Pick a node of a class with `fits`, then `node_class.allocation_on(node, share_id)`.
    """
    rules = rules_of(options.gates)
    decider = Decider(snapshot, rules, Matcher(), options.limits.search_steps)
    classes = []
    for name in sorted(snapshot.nodes) if nodes is None else nodes:
        unit = unit_of(snapshot, [Ask(tuple(claims), name)], rules)
        if isinstance(unit, Refusals):
            if unit.pod_wide:
                return unit
            classes.append(NodeClass((name,), False, (), unit, _nowhere))
            continue
        answer = decider.decide(unit)
        if isinstance(answer, Refusals):
            classes.append(NodeClass((name,), False, (), answer, _nowhere))
        else:
            classes.append(_yes(unit, answer, rules))
    return Survey(tuple(classes))


def _nowhere(node: str, share_id: Callable[[], str]) -> Allocation:
    raise Bug(f"claims were refused on node {node}: there is no allocation to ask for")


def _yes(unit: Unit, answer: Answer, rules: Rules) -> NodeClass:
    def on(node: str, share_id: Callable[[], str]) -> Allocation:
        return settled(unit, answer, rules, share_id)

    return NodeClass((unit.asks[0].node,), True, chosen_of(unit, answer), None, on)


def story(snapshot: Snapshot, ask: Ask, options: Options = OPTIONS) -> Refusals:
    """All facts about why an ask is refused on its node: every request, every device that matches or nearly does.

    Slower than `allocate`, for when somebody asks. Empty reasons: it is not refused.
    """
    raise NotImplementedError
