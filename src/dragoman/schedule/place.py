"""Where can one pod go, and with which devices? Node checks, devices and scores brought together.

Under a policy that ranks places its say replaces the scores for room on nodes; what the pod prefers still comes first.

Uses `schedule.alike` for what nodes are and `allocate.survey` for devices, each handling alike nodes once. Gives the
best place or the reasons node by node. Never writes and never looks at the clock.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import msgspec

from dragoman.allocate.allocator import OPTIONS, Kind, NodeClass, Options, Supply, Weight, policy_of, survey
from dragoman.allocate.allocator import Memory as DeviceMemory
from dragoman.allocate.refusal import Refusals
from dragoman.api.core import Node
from dragoman.api.resource import AllocationResult
from dragoman.schedule.alike import Alike, NodeGroup, lone
from dragoman.schedule.decision import AnyReason, NodesRefused
from dragoman.schedule.extended import Special, served_by_devices, special_claim, special_requests
from dragoman.schedule.filter import room_reasons, static_reason
from dragoman.schedule.mapped import Brought, brought_by, why_not
from dragoman.schedule.needs import Amounts
from dragoman.schedule.refusal import AffinityMismatch, ClaimElsewhere, NodeReason, NoNodes
from dragoman.schedule.score import Raw, alternative_score, room_score, static_scores, totals
from dragoman.schedule.wish import Wish
from dragoman.snapshot.change import Snapshot
from dragoman.snapshot.selection import selects

MAX_SHAPES = 256
MAPPED_GATE = "DRANodeAllocatableResources"


class Place(msgspec.Struct, frozen=True):
    """A yes: the node, results for the claims to allocate (the special one last), and what the special one asks.

    kind: the pod as one to expect again, for policies that learn. brought: what the devices need of the node.
    """

    node: str
    results: tuple[AllocationResult, ...] = ()
    special: Special | None = None
    kind: Kind | None = None
    brought: Brought = ()


class NoPlace(msgspec.Struct, frozen=True):
    """A no, or not decided. reasons hold for every node."""

    reasons: tuple[AnyReason, ...] = ()
    nodes: tuple[NodesRefused, ...] = ()
    gave_up: bool = False


class _Verdict(NamedTuple):
    """Of node checks on one group: reasons, or the scores so far and which resources devices serve."""

    reasons: tuple[NodeReason, ...]
    raw: Raw
    served: tuple[str, ...]


class Memory:
    """What earlier decisions found out about nodes, for one line of snapshots; leaving it out changes no answer."""

    def __init__(self) -> None:
        self.alike = Alike()
        self.devices = DeviceMemory()
        self._verdicts: dict[bytes, dict[NodeGroup, _Verdict]] = {}

    def verdicts(self, shape: bytes, groups: int) -> dict[NodeGroup, _Verdict]:
        """Verdicts on groups, for pods of that shape; forgets what outgrew its use."""
        known = self._verdicts.pop(shape, None)
        if known is None or len(known) > 4 * groups + 64:
            known = {}
        if len(self._verdicts) >= MAX_SHAPES:
            self._verdicts.pop(next(iter(self._verdicts)))
        self._verdicts[shape] = known
        return known


class _Search(NamedTuple):
    """The question that one pod asks."""

    snapshot: Snapshot
    wish: Wish
    options: Options
    by_resource: dict[str, str]

    @property
    def ranks(self) -> bool:
        """Whether the policy has a say about nodes."""
        return policy_of(self.options.policy).rank is not None


class _Option(NamedTuple):
    """Nodes that can take the pod and are alike in every score; name is the smallest of them.

    rank: of the policy, least is best, where it has a say. brought: what the devices need of the node.
    """

    raw: Raw
    name: str
    devices: NodeClass | None
    special: Special | None
    rank: Weight = ()
    brought: Brought = ()


class _Seen(NamedTuple):
    """Where the pod can go, and what refuses it elsewhere."""

    options: list[_Option]
    refused: list[NodesRefused]
    gave_up: bool


def find_place(
    snapshot: Snapshot,
    wish: Wish,
    options: Options,
    by_resource: dict[str, str],
    memory: Memory,
    share_id: Callable[[], str],
) -> Place | NoPlace:
    """The best node for a pod by upstream's scores or the policy's rank, ties by name."""
    seen = _see(_Search(snapshot, wish, options, by_resource), memory, whole=False)
    if isinstance(seen, NoPlace):
        return seen
    if not snapshot.nodes:
        return NoPlace((NoNodes(),))
    if not seen.options:
        return NoPlace((), tuple(seen.refused), seen.gave_up)
    best = _best(seen.options)
    results = best.devices.allocation_on(best.name, share_id).results[0] if best.devices is not None else ()
    return Place(best.name, results, best.special, _kind(best, wish) if results else None, best.brought)


def all_refusals(
    snapshot: Snapshot, wish: Wish, options: Options, by_resource: dict[str, str], memory: Memory
) -> tuple[NodesRefused, ...]:
    """The nodes that cannot take the pod, whether or not others can."""
    seen = _see(_Search(snapshot, wish, options, by_resource), memory, whole=True)
    return () if isinstance(seen, NoPlace) else tuple(seen.refused)


def rooms(snapshot: Snapshot, wish: Wish, memory: Memory, first: Sequence[str], limit: int) -> list[str]:
    """Names of nodes that pass node checks, devices aside: those of `first`, then the best others, at most `limit`."""
    judged = _judge(_Search(snapshot, wish, OPTIONS, {}), memory)
    fitting = [(group, verdict) for group, verdict in judged if not verdict.reasons]
    scores = totals([verdict.raw for _, verdict in fitting])
    named = {name: -score for score, (group, _) in zip(scores, fitting, strict=True) for name in group.members}
    best = heapq.nsmallest(limit, named, key=lambda name: (named[name], name))
    return [name for name in dict.fromkeys([*first, *best]) if name in named][:limit]


def _see(search: _Search, memory: Memory, *, whole: bool) -> _Seen | NoPlace:
    """Every node seen with checks and devices. whole: also why nodes cannot while others can."""
    judged = _judge(search, memory)
    wish = search.wish
    fitting = [(group, verdict) for group, verdict in judged if not verdict.reasons]
    if not fitting and wish.to_allocate:
        # What is wrong with the claims themselves comes before what is wrong with nodes.
        asked = survey(search.snapshot, wish.to_allocate, search.options, nodes=(), memory=memory.devices)
        if isinstance(asked, Refusals):
            return NoPlace(asked.reasons)
    seen = _Seen([], [], False)
    for served in dict.fromkeys(verdict.served for _, verdict in fitting):
        some = [(group, verdict) for group, verdict in fitting if verdict.served == served]
        answer = _with_devices(search, served, some, memory, whole=whole)
        if isinstance(answer, Refusals):
            return NoPlace(tuple(answer.reasons), gave_up=answer.gave_up)
        seen = _Seen(seen.options + answer.options, seen.refused + answer.refused, seen.gave_up or answer.gave_up)
    if whole or not seen.options:
        return seen._replace(refused=[*_refused_by_checks(search, judged), *seen.refused])
    return seen


def _best(found: list[_Option]) -> _Option:
    if len(found) == 1:
        return found[0]
    scores = totals([option.raw for option in found])
    # Of equal ones first the node that serves extended resources itself: claims need the devices of the others.
    return min(zip(scores, found, strict=True), key=_order)[1]


def _order(pair: tuple[int, _Option]) -> tuple[int, Weight, int, str]:
    score, option = pair
    return -score, option.rank, _served(option), option.name


def _served(option: _Option) -> int:
    return len(option.special.requests) if option.special is not None else 0


# ---- node checks


def _judge(search: _Search, memory: Memory) -> list[tuple[NodeGroup, _Verdict]]:
    wish = search.wish
    if wish.pinned is not None:
        nodes = [search.snapshot.nodes[name] for name in wish.pinned if name in search.snapshot.nodes]
        groups: Iterable[NodeGroup] = [lone(search.snapshot, node) for node in nodes]
        return [(group, _verdict(search, group)) for group in groups]
    all_groups = tuple(memory.alike.groups(search.snapshot, wish.sight))
    # What other pods mean changes with them, so such verdicts are not kept.
    known = memory.verdicts(wish.shape, len(all_groups)) if wish.neighbours is None else {}
    judged = []
    for group in all_groups:
        verdict = known.get(group)
        if verdict is None:
            verdict = known[group] = _verdict(search, group)
        judged.append((group, verdict))
    return judged


def _verdict(search: _Search, group: NodeGroup) -> _Verdict:
    wish, node = search.wish, group.node
    reason = static_reason(wish.pod.spec, node) or _reaches_claims(wish, node)
    if reason is not None:
        return _Verdict((reason,), Raw(0), ())
    served = served_by_devices(wish.mapped, group.allocatable) if wish.mapped else ()
    needs = wish.needs
    if served:
        needs = {name: nanos for name, nanos in needs.items() if name not in served}
    reasons = room_reasons(needs, group.allocatable, group.used)
    if reasons:
        return _Verdict(tuple(reasons), Raw(0), ())
    if wish.neighbours is not None:
        reason = wish.neighbours.reason(node)
        if reason is not None:
            return _Verdict((reason,), Raw(0), ())
    affinity, taints = static_scores(wish.pod.spec, node)
    room = room_score(wish.needs, wish.extra, group.allocatable, group.used, group.extra)
    return _Verdict((), Raw(room, affinity, taints), served)


def _reaches_claims(wish: Wish, node: Node) -> ClaimElsewhere | None:
    for claim, selector in wish.selectors:
        if not selects(selector, node):
            return ClaimElsewhere(claim)
    return None


def _refused_by_checks(search: _Search, judged: list[tuple[NodeGroup, _Verdict]]) -> Iterable[NodesRefused]:
    names: dict[tuple[NodeReason, ...], list[str]] = {}
    for group, verdict in judged:
        if verdict.reasons:
            names.setdefault(verdict.reasons, []).extend(group.members)
    pinned = search.wish.pinned
    if pinned is not None:
        others = [name for name in search.snapshot.nodes if name not in pinned]
        if others:
            names.setdefault((_why_pinned(search, others[0]),), []).extend(others)
    for reasons, members in names.items():
        yield NodesRefused(tuple(sorted(members)), reasons)


def _why_pinned(search: _Search, other: str) -> NodeReason:
    node = search.snapshot.nodes[other]
    return _reaches_claims(search.wish, node) or AffinityMismatch(
        f"metadata.name in ({', '.join(search.wish.pinned or ())})"
    )


# ---- devices


def _with_devices(
    search: _Search,
    served: tuple[str, ...],
    some: list[tuple[NodeGroup, _Verdict]],
    memory: Memory,
    *,
    whole: bool,
) -> _Seen | Refusals:
    """Groups that pass node checks, seen with devices. served: resources that devices provide there."""
    wish = search.wish
    special = special_requests(wish.pod.spec, served, search.by_resource) if served else None
    own = (special_claim(wish.pod, special.requests),) if special is not None else ()
    claims = (*wish.to_allocate, *own)
    maps = search.options.gates.on(MAPPED_GATE) and bool(claims or wish.claims)
    if not claims and not search.ranks and not maps:
        return _Seen([_Option(verdict.raw, group.first(), None, None) for group, verdict in some], [], False)
    names = frozenset(name for group, _ in some for name in group.members)
    few = sorted(names) if 2 * len(names) < len(search.snapshot.nodes) else None
    answer = survey(search.snapshot, claims, search.options, nodes=few, memory=memory.devices)
    if isinstance(answer, Refusals):
        return answer
    fitting = [devices for devices in answer.classes if devices.fits]
    short: list[NodesRefused] = []
    if maps:
        options, short = _with_brought(search, fitting, some, special)
    elif search.ranks:
        options = _ranked(search, fitting, some, special)
    else:
        options = _options(fitting, some, special)
    if options and not whole:  # nobody asks why other nodes cannot
        return _Seen(options, [], False)
    refused, gave_up = _refused_by_devices(answer.classes, names)
    return _Seen(options, refused + short, gave_up)


def _options(
    classes: list[NodeClass], some: list[tuple[NodeGroup, _Verdict]], special: Special | None
) -> list[_Option]:
    """Every way to fit that may be the best one."""
    if not any(devices.chosen for devices in classes) and all(_only_room(verdict.raw) for _, verdict in some):
        return _best_rooms(classes, some, special)
    found = []
    for devices in classes:
        liked = alternative_score([chosen.index for chosen in devices.chosen])
        for group, verdict in some:
            name = group.first_of(devices.nodes)
            if name is not None:
                found.append(_Option(verdict.raw._replace(devices=liked), name, devices, special))
    return found


def _ranked(
    search: _Search, classes: list[NodeClass], some: list[tuple[NodeGroup, _Verdict]], special: Special | None
) -> list[_Option]:
    """Every way to fit with the policy's rank in place of the scores for room."""
    of = {name: entry for entry in some for name in entry[0].members}
    found = []
    for devices in classes:
        firsts: dict[NodeGroup, str] = {}
        for name in devices.nodes:
            if name in of:
                firsts.setdefault(of[name][0], name)
        found += [_on_node(search, devices, *of[name], name, special) for name in firsts.values()]
    return found


def _with_brought(
    search: _Search, classes: list[NodeClass], some: list[tuple[NodeGroup, _Verdict]], special: Special | None
) -> tuple[list[_Option], list[NodesRefused]]:
    """Node by node, for alike ones may differ in what their devices need of them: options, and who has too little."""
    of = {name: entry for entry in some for name in entry[0].members}
    found: list[_Option] = []
    short: dict[tuple[NodeReason, ...], list[str]] = {}
    for devices in classes:
        for name in devices.nodes:
            if name not in of:
                continue
            group, verdict = of[name]
            results = devices.allocation_on(name, str).results[0]
            brought = brought_by(search.snapshot, search.wish, results, special)
            if not isinstance(brought, tuple):
                short.setdefault((brought,), []).append(name)
            elif reasons := why_not(search.wish, brought, group.allocatable, group.used):
                short.setdefault(tuple(reasons), []).append(name)
            else:
                option = _on_node(search, devices, group, verdict, name, special)
                found.append(option._replace(brought=brought))
    return found, [NodesRefused(tuple(sorted(names)), reasons) for reasons, names in short.items()]


def _on_node(
    search: _Search, devices: NodeClass, group: NodeGroup, verdict: _Verdict, name: str, special: Special | None
) -> _Option:
    """One way to fit, with the policy's rank where it has a say."""
    raw = verdict.raw._replace(devices=alternative_score([chosen.index for chosen in devices.chosen]))
    if not search.ranks:
        return _Option(raw, name, devices, special)
    needs = search.wish.needs
    rank = devices.rank(_supply(group, needs, "cpu"), _supply(group, needs, "memory"))
    return _Option(raw._replace(room=0), name, devices, special, rank)


def _supply(group: NodeGroup, needs: Amounts, resource: str) -> Supply | None:
    allocatable = group.allocatable
    if allocatable is None:
        return None
    total = allocatable.get(resource)
    free = (total.nanos if total is not None else 0) - group.used.get(resource, 0)
    return Supply(free, needs.get(resource, 0))


def _kind(option: _Option, wish: Wish) -> Kind | None:
    if option.devices is None:
        return None
    return option.devices.kind(wish.needs.get("cpu", 0), wish.needs.get("memory", 0))


def _only_room(raw: Raw) -> bool:
    return not (raw.affinity or raw.taints)


def _best_rooms(
    classes: list[NodeClass], some: list[tuple[NodeGroup, _Verdict]], special: Special | None
) -> list[_Option]:
    """Where only room is scored the order of groups is known before: the first that fits ends the search."""
    best: _Option | None = None
    for group, verdict in sorted(some, key=_by_room):
        if best is not None and verdict.raw.room < best.raw.room:
            break
        for devices in classes:
            name = group.first_of(devices.nodes, best.name if best is not None else "")
            if name is not None:
                best = _Option(verdict.raw, name, devices, special)
    return [best] if best is not None else []


def _by_room(entry: tuple[NodeGroup, _Verdict]) -> tuple[int, int]:
    # Of equal ones the largest group most likely has the node, and then bounds the search in the others.
    return -entry[1].raw.room, -len(entry[0].members)


def _refused_by_devices(classes: Sequence[NodeClass], allowed: frozenset[str]) -> tuple[list[NodesRefused], bool]:
    refused: list[NodesRefused] = []
    gave_up = False
    for devices in classes:
        names = tuple(name for name in devices.nodes if name in allowed)
        if names and devices.refusals is not None:
            refused.append(NodesRefused(names, devices.refusals.reasons))
            gave_up = gave_up or devices.refusals.gave_up
    return refused, gave_up
