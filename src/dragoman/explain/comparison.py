"""How do our decisions compare with another scheduler's? Counts and sentences, for people and as JSON.

tally = AgreementCounts(); tally.add(comparison, seconds); lines(as_json(tally))
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterator, Mapping
from typing import Any, get_args

from dragoman.explain.messages import message, sentence
from dragoman.whatif.compare import AGREES, ClaimComparison, DecisionComparison, DeviceName, Outcome

DIFFERENCES_MAX = 500
"""Differences that are remembered with their reasons; the newest stay."""
OTHER_SCORES = (
    "kube-scheduler also scores images, topology spread and preferred inter-pod affinity, and in clusters of more than "
    "100 nodes samples them"
)
_WORDS: dict[Outcome, str] = {
    "same": "the same node and devices",
    "tie": "the same devices, on another node of the same score",
    "order": "the same, had pods that were decided at the same time been decided in another order",
    "score": "another node, which scores higher here",
    "devices": "other devices",
    "refused": "refused here",
}


class AgreementCounts:
    """Comparisons so far. refusals: pods that the other scheduler left unscheduled, by what they are here."""

    def __init__(self) -> None:
        self.outcomes: Counter[Outcome] = Counter()
        self.claims = self.claims_same = 0
        self.seconds: list[float] = []
        self.other_seconds: list[float] = []
        self.refusals: Counter[str] = Counter()
        self.skipped: Counter[str] = Counter()
        self.differences: deque[DecisionComparison] = deque(maxlen=DIFFERENCES_MAX)

    def add(self, found: DecisionComparison, seconds: float, other_seconds: float | None = None) -> None:
        """Count one. seconds: how long deciding took here; other_seconds: from the pod's arrival to its node there."""
        self.outcomes[found.outcome] += 1
        self.claims += len(found.claims)
        self.claims_same += sum(one.same for one in found.claims)
        self.seconds.append(seconds)
        if other_seconds is not None:
            self.other_seconds.append(other_seconds)
        if found.outcome != "same":
            self.differences.append(found)

    @property
    def total(self) -> int:
        """Placements compared."""
        return sum(self.outcomes.values())

    @property
    def agreeing(self) -> int:
        """Those that are the same wherever scores do not tie."""
        return sum(count for outcome, count in self.outcomes.items() if outcome in AGREES)


def lines(report: Mapping[str, Any]) -> Iterator[str]:
    """The report (`as_json`) for people: agreement, then each difference that is none of ties and orders."""
    total, claims = report["placements"], report["claims"]
    if not total:
        yield "no placement has been compared yet"
    else:
        yield f"{total} placements compared: {_share(report['agreeing'], total)} agree"
        for outcome in get_args(Outcome):
            if report["outcomes"].get(outcome):
                yield f"  {report['outcomes'][outcome]}  {_WORDS[outcome]}"
        if claims["total"]:
            yield f"{claims['total']} claims: {_share(claims['same'], claims['total'])} get the same devices there"
    for what, count in sorted(report["refusals"].items()):
        yield f"{count} pods without a node there: {what}"
    for what, count in sorted(report["skipped"].items()):
        yield f"{count} pods not compared: {what}"
    if "seconds" in report:
        took = report["seconds"]
        yield f"deciding took {took['median'] * 1000:.1f} ms in the median, {took['max'] * 1000:.1f} ms at most"
    if "otherSeconds" in report:
        took = report["otherSeconds"]
        yield f"the other scheduler took {took['median']:.2f} s in the median, {took['max']:.2f} s at most, for a pod"
    shown = [one for one in report["differences"] if one["outcome"] not in AGREES]
    if shown:
        yield ""
        for one in shown:
            yield f"{one['pod']}: {one['message']}"


def difference(found: DecisionComparison) -> str:
    """One comparison as a sentence, without a full stop."""
    match found.outcome:
        case "same":
            return f"{found.node} and the same devices"
        case "tie":
            return f"bound to {found.node}, here {found.our_node}: both score {found.scores[0]}"
        case "order":
            moved = ", ".join("/".join(pod) for pod in found.moved)
            return f"the same decision on {found.node}, in another order of the pods decided with it: {moved}"
        case "score":
            theirs, ours = found.scores
            return f"bound to {found.node}, which scores {theirs} here; {found.our_node} scores {ours}. {OTHER_SCORES}"
        case "devices":
            changed = [one for one in found.claims if not one.same]
            return "; ".join(_claim(one, found.node) for one in changed)
        case "refused":
            return f"bound to {found.node}; {_refused(found)}"


def _refused(found: DecisionComparison) -> str:
    if found.our_node:
        reasons = found.no_fit.reasons if found.no_fit is not None else ()
        for some in found.no_fit.nodes if found.no_fit is not None else ():
            if found.node in some.nodes:
                reasons = some.reasons
        why = "; ".join(sentence(reason) for reason in reasons) or "the search ended undecided"
        return f"here that node is refused ({why}), {found.our_node} chosen"
    why = message(found.refused, found.pod[0]) if found.refused is not None else "it is not decided"
    return f"here no node takes it: {why}"


def _claim(one: ClaimComparison, node: str) -> str:
    ours = _names(one.ours) or "nothing"
    return f"claim {one.claim[1]} got {_names(one.theirs)}; here, on {node} too, {ours}"


def _names(devices: tuple[DeviceName, ...]) -> str:
    return ", ".join(
        f"{driver}/{pool}/{device}" + (f" ({amount})" if amount else "") for _, driver, pool, device, amount in devices
    )


def as_json(tally: AgreementCounts) -> dict[str, Any]:
    """The report as JSON, without apiVersion and kind."""
    body: dict[str, Any] = {
        "placements": tally.total,
        "agreeing": tally.agreeing,
        "outcomes": {outcome: tally.outcomes[outcome] for outcome in get_args(Outcome)},
        "claims": {"total": tally.claims, "same": tally.claims_same},
        "refusals": dict(tally.refusals),
        "skipped": dict(tally.skipped),
        "differences": [_entry(one) for one in tally.differences],
    }
    for name, values in (("seconds", tally.seconds), ("otherSeconds", tally.other_seconds)):
        if values:
            middle, worst = middle_and_worst(values)
            body[name] = {"median": round(middle, 6), "max": round(worst, 6)}
    return body


def _entry(found: DecisionComparison) -> dict[str, Any]:
    return {
        "pod": "/".join(found.pod),
        "outcome": found.outcome,
        "node": found.node,
        "ourNode": found.our_node,
        "scores": list(found.scores),
        "message": difference(found),
    }


def middle_and_worst(values: list[float]) -> tuple[float, float]:
    """Median and maximum of some values."""
    ordered = sorted(values)
    return ordered[len(ordered) // 2], ordered[-1]


def _share(part: int, whole: int) -> str:
    return f"{part} ({100 * part / whole:.1f} %)"
