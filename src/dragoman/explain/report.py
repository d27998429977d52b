"""What is shown of a pod that was decided on, as JSON and as lines? The shape that simulate and explain share.

Takes verdicts of `whatif.decide`, explained by `why`; sentences come from `text` and `phrases`. Never decides.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple, cast

import msgspec

from dragoman.allocate.refusal import FilterStep, InsufficientDevices, SearchLimitReached, SelectorError, SelectorFalse
from dragoman.api import codec
from dragoman.api.resource import DeviceRequestAllocationResult
from dragoman.explain import conflict_messages, messages
from dragoman.explain.closest import nearest_first
from dragoman.explain.explanation import Explanation
from dragoman.explain.user_names import in_user_words, json_in_user_words
from dragoman.schedule.decision import AnyReason, NodesRefused, Preemption, Refused, UndecidedPod
from dragoman.schedule.extended import SPECIAL_NAME
from dragoman.whatif.cluster import Rejection
from dragoman.whatif.decide import ClaimVerdict, PodPrediction

NODES_SHOWN = 3
GROUPS_SHOWN = 8
DEVICES_SHOWN = 8
FITS_SHOWN = 20
_TAKING = (FilterStep.HELD, FilterStep.CAPACITY, FilterStep.COUNTERS, FilterStep.GROUPS, FilterStep.TAINT)


def as_json(explanation: Explanation, reader: str | None = None) -> dict[str, Any]:
    """One entry of `pods`: where the pod runs with which devices, which nodes refuse it, and why."""
    verdict = explanation.verdict
    namespace, name = verdict.pod
    body: dict[str, Any] = {
        "namespace": namespace,
        "name": name,
        "node": verdict.node,
        "claims": [_claim(claim) for claim in verdict.claims],
        "nodes": [*(_nodes(nodes, explanation, reader) for nodes in explanation.nodes), *_undecided(verdict.undecided)],
        "refusal": _refusal(explanation, verdict.refused or verdict.undecided, reader),
    }
    if verdict.warnings:
        body["warnings"] = [messages.as_json(fact, reader) for fact in verdict.warnings]
    return cast("dict[str, Any]", json_in_user_words(body, explanation.names))


def _claim(claim: ClaimVerdict) -> dict[str, Any]:
    return {
        "podClaim": claim.pod_claim,
        "name": claim.name,
        "template": claim.template,
        "new": claim.new,
        "allocation": None if claim.allocation is None else codec.to_json(claim.allocation),
    }


def _nodes(refused: NodesRefused, explanation: Explanation, reader: str | None) -> dict[str, Any]:
    absent = [fact for fact in explanation.absent if fact.node == refused.nodes[0]]
    return {
        "nodes": list(refused.nodes),
        "count": len(refused.nodes),
        "reasons": [messages.as_json(reason, reader) for reason in (*refused.reasons, *absent)],
    }


def _undecided(one: UndecidedPod | None) -> list[dict[str, Any]]:
    """Nodes for which it is not decided, among those that refuse."""
    return [
        {"nodes": list(some.nodes), "count": len(some.nodes), "reasons": [messages.as_json(some.limit)]}
        for some in (one.undecided if one is not None else ())
    ]


def _refusal(
    explanation: Explanation, refused: Refused | UndecidedPod | None, reader: str | None
) -> dict[str, Any] | None:
    """Why the pod cannot be scheduled; None if it can. undecided: it may fit, the search stopped."""
    if refused is None:
        return None
    return {
        "summary": messages.message(refused, reader),
        "reasons": [messages.as_json(reason, reader) for reason in refused.reasons],
        "rejected": [_rejection(rejection) for rejection in explanation.verdict.rejected],
        **_preemption(explanation.verdict.preemption),
        "undecided": isinstance(refused, UndecidedPod),
        "conflict": None if explanation.conflict is None else conflict_messages.conflict_json(explanation.conflict),
        "hints": [conflict_messages.hint_json(hint) for hint in explanation.hints.found],
        "hintsTried": explanation.hints.tried,
        "hintsUntried": explanation.hints.untried,
    }


def _preemption(found: Preemption | None) -> dict[str, Any]:
    if found is None:
        return {}
    victims = [{"namespace": v.pod[0], "name": v.pod[1], "node": v.node, "priority": v.priority} for v in found.victims]
    return {"preemption": {"node": found.node, "victims": victims, "budgetViolations": found.violations}}


def _rejection(rejection: Rejection) -> dict[str, Any]:
    return {
        "kind": rejection.kind,
        "namespace": rejection.namespace,
        "name": rejection.name,
        "field": rejection.field,
        "message": rejection.message,
    }


def devices(verdict: PodPrediction) -> list[str]:
    """One line a claim: `gpu: gpu-0, gpu-1 (claim one-gpu)`."""
    lines = []
    for claim in verdict.claims:
        if claim.allocation is None:
            continue
        names = ", ".join(map(_result, claim.allocation.devices.results)) or "no devices"
        kept = "" if claim.new else ", allocated before"
        if claim.name == SPECIAL_NAME:
            lines.append(f"extended resources: {names}")
        else:
            lines.append(f"{claim.pod_claim or 'extended resources'}: {names} (claim {claim.name}{kept})")
    return lines


def _result(result: DeviceRequestAllocationResult) -> str:
    """`gpu-0`, with what is special about it: admin access, a share and how much of the device it has."""
    if result.admin_access:
        return f"{result.device} [admin access]"
    amounts = ", ".join(f"{amount} {name}" for name, amount in sorted((result.consumed_capacity or {}).items()))
    if result.share_id is None:
        return f"{result.device} [{amounts}]" if amounts else result.device
    return f"{result.device} [share: {amounts}]" if amounts else f"{result.device} [share]"


def warning_lines(explanation: Explanation, reader: str | None = None) -> list[str]:
    """What does not forbid a pod's place and should be known."""
    verdict = explanation.verdict
    found = dict.fromkeys(messages.sentence(messages.without_node(fact), reader) for fact in verdict.warnings)
    return [f"warning: pod {'/'.join(verdict.pod)}: {in_user_words(line, explanation.names)}" for line in found]


def headline(explanation: Explanation) -> str:
    """What became of a pod without a place, in one line."""
    decided = "is not decided" if explanation.verdict.undecided is not None else "cannot be scheduled"
    return f"pod {'/'.join(explanation.verdict.pod)} {decided}:"


def reason_lines(explanation: Explanation, reader: str | None = None) -> list[str]:
    """Lines that say why a pod cannot be scheduled: what holds everywhere, nodes by reason, contradiction, hints."""
    refused = explanation.verdict.refused or explanation.verdict.undecided
    if refused is None:
        return []
    lines = [messages.sentence(reason, reader) for reason in refused.reasons]
    lines += [f"the API server would refuse this: {rejection.message}" for rejection in explanation.verdict.rejected]
    nearest, *others = _node_blocks(explanation.verdict.nodes, reader) or [[]]
    lines += [*nearest, *(f"  {line}" for line in device_lines(explanation, reader))]
    lines += [line for block in others for line in block]
    lines += _undecided_lines(explanation.verdict.undecided)
    lines += absent_lines(explanation)
    conflict = explanation.conflict
    if conflict is not None:
        reported = conflict_messages.conflict_lines(conflict)
        lines += [f"contradiction on {line}" if i == 0 else f"  {line}" for i, line in enumerate(reported)]
        miss = conflict_messages.nearest_text(conflict)
        repeats = isinstance(conflict.nearest and conflict.nearest.reason, SelectorError) and _names_selector(
            explanation
        )
        if miss and not repeats and not any(miss in line for line in lines):
            lines.append(f"nearest miss on {conflict.node}: {miss}")
    lines += preemption_lines(explanation)
    lines += [f"help: {line}" for line in conflict_messages.hints_lines(explanation.hints)]
    return [in_user_words(line, explanation.names) for line in lines]


def _undecided_lines(one: UndecidedPod | None) -> list[str]:
    """Where the search stopped, for the first nodes."""
    groups = one.undecided if one is not None else ()
    lines = [f"{_named(some.nodes)}: {messages.sentence(_without_node(some.limit))}" for some in groups[:GROUPS_SHOWN]]
    rest = sum(len(some.nodes) for some in groups[GROUPS_SHOWN:])
    return [*lines, f"{messages.plural(rest, 'node')} more, not decided either"] if rest else lines


def _without_node(limit: SearchLimitReached) -> SearchLimitReached:
    return msgspec.structs.replace(limit, node="")


def preemption_lines(explanation: Explanation) -> list[str]:
    """Which pods would be preempted for a refused pod; [] for none."""
    found = explanation.verdict.preemption
    if found is None:
        return []
    named = [f"{'/'.join(victim.pod)} (priority {victim.priority}, on {victim.node})" for victim in found.victims]
    broken = f"; {found.violations} of them against a disruption budget" if found.violations else ""
    return [f"preemption: {found.node} takes it once these end: {', '.join(named)}{broken}"]


class Summary(msgspec.Struct, frozen=True):
    """An object that waits, shortly. equivalent: the same without names that only this object has. hint: may be ""."""

    name: str
    why: tuple[str, ...]
    equivalent: tuple[str, ...]
    hint: str = ""


def summary(explanation: Explanation) -> Summary:
    """A pod without a place: the contradiction or the nearest node's reasons, and the first hint."""
    verdict = explanation.verdict
    refused = verdict.refused or verdict.undecided
    lines = [messages.sentence(reason) for reason in refused.reasons[:2]] if refused is not None else []
    reported = conflict_messages.conflict_lines(explanation.conflict) if explanation.conflict is not None else []
    lines += reported[:1] or [*_undecided_lines(verdict.undecided), *node_lines(verdict.nodes)][:2]
    why = equivalent = (*lines[:2], *_selector_fault(explanation))
    for claim in verdict.claims:  # pods of one template, or of claims that ask for the same, wait for the same
        whose = f"claim of template {claim.template}" if claim.template else f"claim {claim.pod_claim} of each"
        equivalent = tuple(line.replace(f"claim {claim.name}", whose) for line in equivalent)
    hint = conflict_messages.hint_text(explanation.hints.found[0]) if explanation.hints.found else ""
    why, equivalent = (tuple(in_user_words(line, explanation.names) for line in some) for some in (why, equivalent))
    return Summary(f"pod {'/'.join(verdict.pod)}", why, equivalent, in_user_words(hint, explanation.names))


def _selector_fault(explanation: Explanation) -> list[str]:
    """A selector that fails on the nearest device: counts alone would hide that it is misspelt."""
    conflict = explanation.conflict
    if conflict is None or conflict.nearest is None or not isinstance(conflict.nearest.reason, SelectorError):
        return []
    return (
        []
        if _names_selector(explanation)
        else [f"nearest miss on {conflict.node}: {conflict_messages.nearest_text(conflict)}"]
    )


def _names_selector(explanation: Explanation) -> bool:
    return any(isinstance(reason, SelectorError) for some in explanation.verdict.nodes for reason in some.reasons)


class SummaryGroup(NamedTuple):
    """Objects that wait for the same reason. helped: the first of them that has a hint."""

    why: tuple[str, ...]
    entries: tuple[Summary, ...]
    helped: Summary | None


def summary_groups(reported: Sequence[Summary]) -> list[SummaryGroup]:
    """Objects that wait for the same reason together, in the order in which the reasons come up."""
    groups: dict[tuple[str, ...], list[Summary]] = {}
    for entry in reported:
        groups.setdefault(entry.equivalent, []).append(entry)
    return [
        SummaryGroup(
            entries[0].why if len(entries) == 1 else equivalent,
            tuple(entries),
            next((entry for entry in entries if entry.hint), None),
        )
        for equivalent, entries in groups.items()
    ]


def summary_lines(reported: Sequence[Summary]) -> list[str]:
    """Objects that wait for the same reason together: names, reasons, and a hint for the first that has one."""
    lines = []
    for why, entries, helped in summary_groups(reported):
        names = conflict_messages.listed([entry.name for entry in entries], NODES_SHOWN)
        lines += [f"{names}:", *(f"  {line}" for line in why)]
        if helped is not None:
            whose = f"for {helped.name}: " if len(entries) > 1 else ""
            lines.append(f"  help: {whose}{helped.hint}")
    return lines


def fit_lines(places: Sequence[tuple[str, str]]) -> list[str]:
    """Pods (name, node) that wait and have a place: a line for each of the first, of more their number."""
    lines = [f"pod {name} is pending; would fit on {node}" for name, node in places[:FITS_SHOWN]]
    rest = places[FITS_SHOWN:]
    if rest:
        nodes = len({node for _, node in rest})
        more = messages.plural(len(rest), "more pod")
        lines.append(f"{more} that are pending and would fit, on {messages.plural(nodes, 'node')}")
    return lines


def node_lines(nodes: Sequence[NodesRefused], reader: str | None = None) -> list[str]:
    """Nodes that refuse for the same kind of reasons in one line, those nearest to a yes first."""
    return [line for block in _node_blocks(nodes, reader) for line in block]


def _node_blocks(nodes: Sequence[NodesRefused], reader: str | None) -> list[list[str]]:
    groups: dict[tuple[tuple[str, ...], ...], list[NodesRefused]] = {}
    for some in nearest_first(nodes):
        groups.setdefault(tuple(map(_kind, some.reasons)), []).append(some)
    blocks = []
    for together in list(groups.values())[:GROUPS_SHOWN]:
        names = sorted(name for some in together for name in some.nodes)
        best = together[0]
        head = _named(names) if len(together) == 1 else f"{_named(names)}, the nearest {best.nodes[0]}"
        sentences = [messages.sentence(messages.without_node(reason), reader) for reason in best.reasons]
        blocks.append([f"{head}: {sentence}" for sentence in dict.fromkeys(sentences)])
    rest = sum(len(some.nodes) for together in list(groups.values())[GROUPS_SHOWN:] for some in together)
    return [*blocks, [f"{messages.plural(rest, 'node')} more, for other reasons"]] if rest else blocks


def _kind(reason: AnyReason) -> tuple[str, ...]:
    """What the reason is about; for counts also the step that took most of the devices that match.

    A node without a matching device, one whose devices are held and one whose are tainted are different matters.
    """
    if not isinstance(reason, InsufficientDevices):
        return messages.topic(reason)
    dropped = reason.dropped
    most = max(_TAKING, key=lambda step: getattr(dropped, step))
    step = FilterStep.SELECTOR if not dropped.matched else most if getattr(dropped, most) else ""
    return (*messages.topic(reason), step)


def absent_lines(explanation: Explanation) -> list[str]:
    """Drivers of the classes asked for that publish nothing for nodes."""
    nodes: dict[str, list[str]] = {}
    members = {some.nodes[0]: some.nodes for some in explanation.nodes}
    for fact in explanation.absent:
        nodes.setdefault(fact.driver, []).extend(members.get(fact.node, (fact.node,)))
    return [f"no ResourceSlice of driver {driver} for {_named(sorted(names))}" for driver, names in nodes.items()]


def _named(names: Sequence[str]) -> str:
    shown = ", ".join(names[:NODES_SHOWN])
    if len(names) <= NODES_SHOWN:
        return shown
    return f"{len(names)} nodes ({shown} and {len(names) - NODES_SHOWN} more)"


def device_lines(explanation: Explanation, reader: str | None = None) -> list[str]:
    """What is wrong with the devices of the nearest node, equal ones together."""
    if not explanation.nodes:
        return []
    nearest = nearest_first(explanation.verdict.nodes)[0].nodes
    best = next(some for some in explanation.nodes if some.nodes == nearest)
    counts = {(fact.claim, fact.request): fact for fact in best.reasons if isinstance(fact, InsufficientDevices)}
    groups: dict[tuple[Any, ...], list[AnyReason]] = {}
    for reason in best.reasons:
        if hasattr(reason, "device") and not isinstance(reason, SelectorError) and _matters(reason, counts):
            groups.setdefault(_equivalent(reason), []).append(reason)
    lines = []
    for reasons in list(groups.values())[:DEVICES_SHOWN]:
        more = len(reasons) - 1
        also = f" (and {messages.plural(more, 'device')} for the same reason)" if more else ""
        lines.append(messages.sentence(messages.without_node(reasons[0]), reader) + also)
    rest = sum(map(len, list(groups.values())[DEVICES_SHOWN:]))
    return [*lines, f"and {messages.plural(rest, 'other device')}"] if rest else lines


def _matters(reason: AnyReason, counts: dict[tuple[str, str], InsufficientDevices]) -> bool:
    """Devices of requests that are short; devices that do not match only where too few do."""
    few = counts.get((getattr(reason, "claim", ""), getattr(reason, "request", "")))
    if few is None or few.dropped.available >= max(few.requested, 1):
        return False
    return not isinstance(reason, SelectorFalse) or few.dropped.matched < max(few.requested, 1)


def _equivalent(reason: AnyReason) -> tuple[Any, ...]:
    values: Iterable[Any] = (
        getattr(reason, f) for f in type(reason).__struct_fields__ if f not in ("device", "holders")
    )
    return (
        type(reason).__name__,
        *(value if not isinstance(value, msgspec.Struct) else str(value) for value in values),
    )
