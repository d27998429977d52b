"""Where can one pod go, and with which devices? Node checks, devices and scores brought together.

Under a policy that ranks places its say replaces the scores for room on nodes; what the pod prefers still comes first.

Uses `schedule.equivalence` for what nodes are and `allocate.survey` for devices, each handling equivalent nodes once.
Gives the best place or the reasons node by node. Never writes and never looks at the clock.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple, assert_never

import msgspec

from dragoman.allocate.allocator import (
    OPTIONS,
    AllocatorOptions,
    NodeClass,
    Supply,
    TaskType,
    Weight,
    policy_of,
    survey,
)
from dragoman.allocate.allocator import AllocationCache as DeviceMemory
from dragoman.allocate.device_state import SKIP_OPERATIONS
from dragoman.allocate.match import Matcher
from dragoman.allocate.refusal import Refusal, Refusals, Undecided
from dragoman.api.core import Node
from dragoman.api.resource import AllocationResult
from dragoman.schedule.decision import AnyReason, NodesRefused, NodesUndecided
from dragoman.schedule.equivalence import NodeEquivalence, NodeGroup, lone
from dragoman.schedule.extended import Special, served_by_devices, special_claim, special_requests
from dragoman.schedule.filter import insufficient_resources, static_reason
from dragoman.schedule.needs import ResourceAmounts
from dragoman.schedule.node_allocatable import NodeAllocatableDemand, node_allocatable_demand, why_not
from dragoman.schedule.pod_info import PodInfo
from dragoman.schedule.profile import Weights
from dragoman.schedule.refusal import ClaimNotAvailableOnNode, NodeAffinityMismatch, NodeReason, NoNodes
from dragoman.schedule.score import Raw, alternative_score, resource_score, static_scores, totals
from dragoman.schedule.volumes import VolumeChoice
from dragoman.snapshot.change import Snapshot
from dragoman.snapshot.selection import selects

MAX_SHAPES = 256
NODE_ALLOCATABLE_GATE = "DRANodeAllocatableResources"


class ScheduleResult(msgspec.Struct, frozen=True):
    """A yes: the node, results for the claims to allocate (the special one last), and what the special one asks.

    kind: the pod as one to expect again, for policies that learn. node_allocatable: what the devices need of the node.
    warnings: what the devices may share with others that are held and no longer published. volumes: what its
    PersistentVolumeClaims get there.
    """

    node: str
    results: tuple[AllocationResult, ...] = ()
    special: Special | None = None
    kind: TaskType | None = None
    node_allocatable: NodeAllocatableDemand = ()
    warnings: tuple[Refusal, ...] = ()
    volumes: tuple[VolumeChoice, ...] = ()


class NoFit(msgspec.Struct, frozen=True):
    """A no. reasons hold for every node."""

    reasons: tuple[AnyReason, ...] = ()
    nodes: tuple[NodesRefused, ...] = ()


class UndecidedFit(msgspec.Struct, frozen=True):
    """Neither a place nor a no: the search stopped on some nodes, and the others refuse."""

    undecided: tuple[NodesUndecided, ...]
    nodes: tuple[NodesRefused, ...] = ()


class _Verdict(NamedTuple):
    """Of node checks on one group: reasons, or the scores so far and which resources devices serve."""

    reasons: tuple[NodeReason, ...]
    raw: Raw
    served: tuple[str, ...]


class PlacementCache:
    """What earlier decisions found out about nodes, for one line of snapshots; leaving it out changes no answer."""

    def __init__(self, matcher: Matcher | None = None) -> None:
        self.equivalent = NodeEquivalence()
        self.devices = DeviceMemory(matcher)
        self._verdicts: dict[bytes, dict[NodeGroup, _Verdict]] = {}

    @property
    def matcher(self) -> Matcher:
        """What is known of selectors, and the check that bounds the work (dragoman.allocate.pace)."""
        return self.devices.matcher

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
    pod_info: PodInfo
    options: AllocatorOptions
    by_resource: dict[str, str]

    @property
    def ranks(self) -> bool:
        """Whether the policy has a say about nodes."""
        return policy_of(self.options.policy).rank is not None


class _Option(NamedTuple):
    """Nodes that can take the pod and have equal scores; name is the smallest of them.

    rank: of the policy, least is best, where it has a say. brought: what the devices need of the node.
    """

    raw: Raw
    name: str
    devices: NodeClass | None
    special: Special | None
    rank: Weight = ()
    node_allocatable: NodeAllocatableDemand = ()


class _Seen(NamedTuple):
    """Where the pod can go, and what refuses it elsewhere."""

    options: list[_Option]
    refused: list[NodesRefused]
    undecided: list[NodesUndecided]


def find_node(
    snapshot: Snapshot,
    pod_info: PodInfo,
    options: AllocatorOptions,
    by_resource: dict[str, str],
    memory: PlacementCache,
    share_id: Callable[[], str],
) -> ScheduleResult | NoFit | UndecidedFit:
    """The best node for a pod by upstream's scores or the policy's rank, ties by name."""
    seen = _see(_Search(snapshot, pod_info, options, by_resource), memory, whole=False)
    if isinstance(seen, NoFit):
        return seen
    if not snapshot.nodes:
        return NoFit((NoNodes(),))
    if not seen.options:
        refused = tuple(seen.refused)
        return UndecidedFit(tuple(seen.undecided), refused) if seen.undecided else NoFit((), refused)
    best = _best(seen.options, pod_info.profile.weights)
    volumes = pod_info.volumes.choose(snapshot.nodes[best.name]) if pod_info.volumes is not None else ()
    assert isinstance(volumes, tuple), "the node was checked for its volumes"
    if best.devices is None:
        return ScheduleResult(best.name, (), best.special, None, best.node_allocatable, volumes=volumes)
    allocation = best.devices.allocation_on(best.name, share_id)
    results = allocation.results[0]
    kind = _kind(best, pod_info) if results else None
    return ScheduleResult(best.name, results, best.special, kind, best.node_allocatable, allocation.warnings, volumes)


def all_refusals(
    snapshot: Snapshot,
    pod_info: PodInfo,
    options: AllocatorOptions,
    by_resource: dict[str, str],
    memory: PlacementCache,
) -> tuple[NodesRefused, ...]:
    """The nodes that cannot take the pod, whether or not others can."""
    seen = _see(_Search(snapshot, pod_info, options, by_resource), memory, whole=True)
    return () if isinstance(seen, NoFit) else tuple(seen.refused)


def node_scores(
    snapshot: Snapshot,
    pod_info: PodInfo,
    options: AllocatorOptions,
    by_resource: dict[str, str],
    memory: PlacementCache,
) -> dict[str, int]:
    """The weighted total of every node that can take the pod, node by node. For questions about single decisions."""
    search = _Search(snapshot, pod_info, options, by_resource)
    named: dict[str, Raw] = {}
    fitting = [(group, verdict) for group, verdict in _checked(search, memory) if not verdict.reasons]
    for served in dict.fromkeys(verdict.served for _, verdict in fitting):
        some = [(group, verdict) for group, verdict in fitting if verdict.served == served]
        special = special_requests(pod_info.pod.spec, served, by_resource) if served else None
        own = (special_claim(pod_info.pod, special.requests),) if special is not None else ()
        of = {name: verdict.raw for group, verdict in some for name in group.members}
        if not (*pod_info.to_allocate, *own):
            named |= of
            continue
        seen = survey(snapshot, (*pod_info.to_allocate, *own), options, nodes=sorted(of), memory=memory.devices)
        if isinstance(seen, Refusals):
            return {}
        for devices in seen.classes:
            if devices.fits:
                liked = alternative_score([chosen.index for chosen in devices.chosen])
                named |= {name: of[name]._replace(devices=liked) for name in devices.nodes if name in of}
    return dict(zip(named, totals(list(named.values()), pod_info.profile.weights), strict=True))


def feasible_nodes(
    snapshot: Snapshot, pod_info: PodInfo, memory: PlacementCache, first: Sequence[str], limit: int
) -> list[str]:
    """Names of nodes that pass node checks, devices aside: those of `first`, then the best others, at most `limit`."""
    checked = _checked(_Search(snapshot, pod_info, OPTIONS, {}), memory)
    fitting = [(group, verdict) for group, verdict in checked if not verdict.reasons]
    scores = totals([verdict.raw for _, verdict in fitting], pod_info.profile.weights)
    named = {name: -score for score, (group, _) in zip(scores, fitting, strict=True) for name in group.members}
    best = heapq.nsmallest(limit, named, key=lambda name: (named[name], name))
    return [name for name in dict.fromkeys([*first, *best]) if name in named][:limit]


def _see(search: _Search, memory: PlacementCache, *, whole: bool) -> _Seen | NoFit:
    """Every node seen with checks and devices. whole: also why nodes cannot while others can."""
    checked = _checked(search, memory)
    pod_info = search.pod_info
    fitting = [(group, verdict) for group, verdict in checked if not verdict.reasons]
    if not fitting and pod_info.to_allocate:
        # What is wrong with the claims themselves comes before what is wrong with nodes.
        asked = survey(search.snapshot, pod_info.to_allocate, search.options, nodes=(), memory=memory.devices)
        if isinstance(asked, Refusals):
            return NoFit(asked.reasons)
    seen = _Seen([], [], [])
    for served in dict.fromkeys(verdict.served for _, verdict in fitting):
        some = [(group, verdict) for group, verdict in fitting if verdict.served == served]
        surveyed = _with_devices(search, served, some, memory, whole=whole)
        if isinstance(surveyed, Refusals):
            return NoFit(surveyed.reasons)
        seen = _Seen(
            seen.options + surveyed.options, seen.refused + surveyed.refused, seen.undecided + surveyed.undecided
        )
    if whole or not seen.options:
        return seen._replace(refused=[*_refused_by_checks(search, checked), *seen.refused])
    return seen


def _best(found: list[_Option], weights: Weights) -> _Option:
    if len(found) == 1:
        return found[0]
    scores = totals([option.raw for option in found], weights)
    # Of equal ones first the node that serves extended resources itself: claims need the devices of the others.
    return min(zip(scores, found, strict=True), key=_order)[1]


def _order(pair: tuple[int, _Option]) -> tuple[int, Weight, int, str]:
    score, option = pair
    return -score, option.rank, _served(option), option.name


def _served(option: _Option) -> int:
    return len(option.special.requests) if option.special is not None else 0


# ---- node checks


def _checked(search: _Search, memory: PlacementCache) -> list[tuple[NodeGroup, _Verdict]]:
    pod_info = search.pod_info
    if pod_info.pinned is not None or pod_info.within is not None:
        names = pod_info.pinned if pod_info.pinned is not None else sorted(pod_info.within or ())
        if pod_info.within is not None:
            names = [name for name in names if name in pod_info.within]
        nodes = [search.snapshot.nodes[name] for name in names if name in search.snapshot.nodes]
        groups: Iterable[NodeGroup] = [lone(search.snapshot, node) for node in nodes]
        return [(group, _verdict(search, group)) for group in groups]
    all_groups = tuple(memory.equivalent.groups(search.snapshot, pod_info.projection))
    # What other pods and volumes mean changes with them, so such verdicts are not kept.
    lasting = pod_info.inter_pod is None and pod_info.volumes is None
    known = memory.verdicts(pod_info.shape, len(all_groups)) if lasting else {}
    checked = []
    for group in all_groups:
        verdict = known.get(group)
        if verdict is None:
            verdict = known[group] = _verdict(search, group)
        checked.append((group, verdict))
    return checked


def _verdict(search: _Search, group: NodeGroup) -> _Verdict:
    pod_info, node = search.pod_info, group.node
    reason = static_reason(pod_info.pod.spec, node, pod_info.profile) or _reaches_claims(pod_info, node)
    if reason is not None:
        return _Verdict((reason,), Raw(0), ())
    served = served_by_devices(pod_info.extended_resources, group.allocatable) if pod_info.extended_resources else ()
    needs = pod_info.needs
    if served:
        needs = {name: nanos for name, nanos in needs.items() if name not in served}
    fits = "NodeResourcesFit" not in pod_info.profile.off
    reasons = insufficient_resources(needs, group.allocatable, group.used) if fits else []
    if reasons:
        return _Verdict(tuple(reasons), Raw(0), ())
    for others in (pod_info.volumes, pod_info.inter_pod):
        reason = others.reason(node) if others is not None else None
        if reason is not None:
            return _Verdict((reason,), Raw(0), ())
    affinity, taints = static_scores(pod_info.pod.spec, node, pod_info.profile)
    weights = pod_info.profile.weights
    resources = resource_score(pod_info.needs, pod_info.extra, group.allocatable, group.used, group.extra, weights)
    return _Verdict((), Raw(resources, affinity, taints), served)


def _reaches_claims(pod_info: PodInfo, node: Node) -> ClaimNotAvailableOnNode | None:
    for claim, selector in pod_info.selectors:
        if not selects(selector, node):
            return ClaimNotAvailableOnNode(claim)
    for claim in pod_info.skipping:
        if SKIP_OPERATIONS not in node.status.declared_features:
            return ClaimNotAvailableOnNode(claim, SKIP_OPERATIONS)
    return None


def _refused_by_checks(search: _Search, checked: list[tuple[NodeGroup, _Verdict]]) -> Iterable[NodesRefused]:
    names: dict[tuple[NodeReason, ...], list[str]] = {}
    for group, verdict in checked:
        if verdict.reasons:
            names.setdefault(verdict.reasons, []).extend(group.members)
    pinned = search.pod_info.pinned
    if pinned is not None:
        others = [name for name in search.snapshot.nodes if name not in pinned]
        if others and not search.pod_info.selectors:
            names.setdefault((_why_pinned(search, others[0]),), []).extend(others)
        elif others:  # by its claims: what is wrong with the node itself comes first, as upstream's filters stand
            for name in others:
                node, info = search.snapshot.nodes[name], search.pod_info
                reason = static_reason(info.pod.spec, node, info.profile) or _why_pinned(search, name)
                names.setdefault((reason,), []).append(name)
    for reasons, members in names.items():
        yield NodesRefused(tuple(sorted(members)), reasons)


def _why_pinned(search: _Search, other: str) -> NodeReason:
    node = search.snapshot.nodes[other]
    return _reaches_claims(search.pod_info, node) or NodeAffinityMismatch(
        f"metadata.name in ({', '.join(search.pod_info.pinned or ())})"
    )


# ---- devices


def _with_devices(
    search: _Search,
    served: tuple[str, ...],
    some: list[tuple[NodeGroup, _Verdict]],
    memory: PlacementCache,
    *,
    whole: bool,
) -> _Seen | Refusals:
    """Groups that pass node checks, seen with devices. served: resources that devices provide there."""
    pod_info = search.pod_info
    special = special_requests(pod_info.pod.spec, served, search.by_resource) if served else None
    own = (special_claim(pod_info.pod, special.requests),) if special is not None else ()
    claims = (*pod_info.to_allocate, *own)
    maps = search.options.gates.on(NODE_ALLOCATABLE_GATE) and bool(claims or pod_info.claims)
    if not claims and not search.ranks and not maps:
        return _Seen([_Option(verdict.raw, group.first(), None, None) for group, verdict in some], [], [])
    many = sum(len(group.members) for group, _ in some)  # of thousands of nodes names are not listed for each pod
    few = sorted(_names(some)) if 2 * many < len(search.snapshot.nodes) else None
    surveyed = survey(search.snapshot, claims, search.options, nodes=few, memory=memory.devices)
    if isinstance(surveyed, Refusals):
        return surveyed
    fitting = [devices for devices in surveyed.classes if devices.fits]
    short: list[NodesRefused] = []
    if maps:
        options, short = _with_node_allocatable(search, fitting, some, special)
    elif search.ranks:
        options = _ranked(search, fitting, some, special)
    else:
        options = _options(fitting, some, special)
    if options and not whole:  # nobody asks why other nodes cannot
        return _Seen(options, [], [])
    refused, undecided = _refused_by_devices(surveyed.classes, _names(some))
    return _Seen(options, refused + short, undecided)


def _names(some: list[tuple[NodeGroup, _Verdict]]) -> frozenset[str]:
    return frozenset(name for group, _ in some for name in group.members)


def _options(
    classes: list[NodeClass], some: list[tuple[NodeGroup, _Verdict]], special: Special | None
) -> list[_Option]:
    """Every way to fit that may be the best one."""
    if not any(devices.chosen for devices in classes) and all(_only_resources(verdict.raw) for _, verdict in some):
        return _most_free(classes, some, special)
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


def _with_node_allocatable(
    search: _Search, classes: list[NodeClass], some: list[tuple[NodeGroup, _Verdict]], special: Special | None
) -> tuple[list[_Option], list[NodesRefused]]:
    """Node by node, since equivalent ones may differ in what their devices need of them: options, and who has too
    little."""
    of = {name: entry for entry in some for name in entry[0].members}
    found: list[_Option] = []
    short: dict[tuple[NodeReason, ...], list[str]] = {}
    for devices in classes:
        for name in devices.nodes:
            if name not in of:
                continue
            group, verdict = of[name]
            results = devices.allocation_on(name, str).results[0]
            node_allocatable = node_allocatable_demand(search.snapshot, search.pod_info, results, special)
            if not isinstance(node_allocatable, tuple):
                short.setdefault((node_allocatable,), []).append(name)
            elif reasons := why_not(search.pod_info, node_allocatable, group.allocatable, group.used):
                short.setdefault(tuple(reasons), []).append(name)
            else:
                option = _on_node(search, devices, group, verdict, name, special)
                found.append(option._replace(node_allocatable=node_allocatable))
    return found, [NodesRefused(tuple(sorted(names)), reasons) for reasons, names in short.items()]


def _on_node(
    search: _Search, devices: NodeClass, group: NodeGroup, verdict: _Verdict, name: str, special: Special | None
) -> _Option:
    """One way to fit, with the policy's rank where it has a say."""
    raw = verdict.raw._replace(devices=alternative_score([chosen.index for chosen in devices.chosen]))
    if not search.ranks:
        return _Option(raw, name, devices, special)
    needs = search.pod_info.needs
    rank = devices.rank(_supply(group, needs, "cpu"), _supply(group, needs, "memory"))
    return _Option(raw._replace(resources=0), name, devices, special, rank)


def _supply(group: NodeGroup, needs: ResourceAmounts, resource: str) -> Supply | None:
    allocatable = group.allocatable
    if allocatable is None:
        return None
    total = allocatable.get(resource)
    free = (total.nanos if total is not None else 0) - group.used.get(resource, 0)
    return Supply(free, needs.get(resource, 0))


def _kind(option: _Option, pod_info: PodInfo) -> TaskType | None:
    if option.devices is None:
        return None
    return option.devices.kind(pod_info.needs.get("cpu", 0), pod_info.needs.get("memory", 0))


def _only_resources(raw: Raw) -> bool:
    return not (raw.affinity or raw.taints)


def _most_free(
    classes: list[NodeClass], some: list[tuple[NodeGroup, _Verdict]], special: Special | None
) -> list[_Option]:
    """Where only room is scored the order of groups is known before: the first that fits ends the search."""
    best: _Option | None = None
    for group, verdict in sorted(some, key=_by_resources):
        if best is not None and verdict.raw.resources < best.raw.resources:
            break
        for devices in classes:
            name = group.first_of(devices.nodes, best.name if best is not None else "")
            if name is not None:
                best = _Option(verdict.raw, name, devices, special)
    return [best] if best is not None else []


def _by_resources(entry: tuple[NodeGroup, _Verdict]) -> tuple[int, int]:
    # Of equal ones the largest group most likely has the node, and then bounds the search in the others.
    return -entry[1].raw.resources, -len(entry[0].members)


def _refused_by_devices(
    classes: Sequence[NodeClass], allowed: frozenset[str]
) -> tuple[list[NodesRefused], list[NodesUndecided]]:
    refused: list[NodesRefused] = []
    undecided: list[NodesUndecided] = []
    for devices in classes:
        names = tuple(name for name in devices.nodes if name in allowed)
        if not names:
            continue
        match devices.refusals:
            case Refusals(reasons):
                refused.append(NodesRefused(names, reasons))
            case Undecided(limit):
                undecided.append(NodesUndecided(names, limit))
            case None:
                pass
            case _ as never:
                assert_never(never)
    return refused, undecided
