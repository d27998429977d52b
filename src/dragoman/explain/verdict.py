"""What is said of a pod that was decided on, as JSON and as lines? The shape that simulate and explain share.

Takes verdicts of `schedule.whatif`; sentences come from `text`. Never decides.
"""

from __future__ import annotations

from typing import Any

from dragoman.api import codec
from dragoman.explain import text
from dragoman.schedule.decision import NodesRefused, Refused
from dragoman.schedule.whatif import ClaimVerdict, Verdict

NODES_SHOWN = 3


def as_json(verdict: Verdict, reader: str | None = None) -> dict[str, Any]:
    """One entry of `pods`: where the pod runs with which devices, which nodes refuse it, and why."""
    namespace, name = verdict.pod
    return {
        "namespace": namespace,
        "name": name,
        "node": verdict.node,
        "claims": [_claim(claim) for claim in verdict.claims],
        "nodes": [_nodes(nodes, reader) for nodes in verdict.nodes],
        "refusal": None if verdict.refused is None else _refusal(verdict.refused, reader),
    }


def _claim(claim: ClaimVerdict) -> dict[str, Any]:
    return {
        "podClaim": claim.pod_claim,
        "name": claim.name,
        "template": claim.template,
        "new": claim.new,
        "allocation": None if claim.allocation is None else codec.to_json(claim.allocation),
    }


def _nodes(refused: NodesRefused, reader: str | None) -> dict[str, Any]:
    return {
        "nodes": list(refused.nodes),
        "count": len(refused.nodes),
        "reasons": [text.as_json(reason, reader) for reason in refused.reasons],
    }


def _refusal(refused: Refused, reader: str | None) -> dict[str, Any]:
    return {
        "summary": text.message(refused, reader),
        "reasons": [text.as_json(reason, reader) for reason in refused.reasons],
        "gaveUp": refused.gave_up,
        "conflict": None,
        "hints": [],
    }


def devices(verdict: Verdict) -> list[str]:
    """One line a claim: `gpu: gpu-0, gpu-1 (claim one-gpu)`."""
    lines = []
    for claim in verdict.claims:
        if claim.allocation is None:
            continue
        names = ", ".join(result.device for result in claim.allocation.devices.results) or "no devices"
        kept = "" if claim.new else ", allocated before"
        lines.append(f"{claim.pod_claim or 'extended resources'}: {names} (claim {claim.name}{kept})")
    return lines


def why(verdict: Verdict, reader: str | None = None) -> list[str]:
    """Lines that say why a pod has no place: the summary's sentences, then each group of nodes."""
    refused = verdict.refused
    if refused is None:
        return []
    lines = [text.sentence(reason, reader) for reason in refused.reasons]
    for some in refused.nodes:
        shown = ", ".join(some.nodes[:NODES_SHOWN])
        rest = len(some.nodes) - NODES_SHOWN
        names = f"{shown} and {rest} more" if rest > 0 else shown
        lines += [f"{names}: {text.sentence(reason, reader)}" for reason in some.reasons]
    return lines
