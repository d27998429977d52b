"""What does `dragoman explain` do? Finds the object, asks the core why, prints what it answers."""

from __future__ import annotations

import argparse
import difflib
import json
from collections import Counter
from collections.abc import Iterable
from datetime import datetime
from typing import Any

import msgspec

from dragoman.api.files import DEFAULT_NAMESPACE
from dragoman.api.meta import NamespacedName
from dragoman.cli import connect, output, simulate, simulation, source
from dragoman.errors import Invalid, NotFound
from dragoman.explain import describe, messages
from dragoman.explain import report as say
from dragoman.explain.conflict_messages import plain
from dragoman.explain.explanation import Explanation, explain_pod, explain_unit
from dragoman.explain.objects import (
    choices_of,
    claim_facts,
    device_facts,
    node_facts,
    pod_facts,
    probe,
)
from dragoman.explain.scenarios import claims_used
from dragoman.explain.state import EventInfo, deletion, events_of, stuck
from dragoman.runtime.clock import Clock
from dragoman.runtime.entropy import Entropy
from dragoman.schedule.units import SchedulingContext, SchedulingUnit
from dragoman.schedule.whatif import DecidedUnit, Named, expanded, settled, steps, units
from dragoman.snapshot.change import Snapshot
from dragoman.snapshot.usage import DeviceId

KINDS = {"pod": "pod", "pods": "pod", "po": "pod", "claim": "claim", "resourceclaim": "claim", "node": "node"}
KINDS |= {"resourceclaims": "claim", "nodes": "node", "no": "node", "device": "device", "devices": "device"}
EACH_S = 0.05
"""What one of many waiting pods may take at least for its contradiction and hints, while all have time."""


class ExplainInput(msgspec.Struct):
    """What explanations draw on. now: raw objects as they are; settled: as controllers will have made them."""

    raw: Snapshot
    settled: Snapshot
    order: tuple[Named, ...]
    events: tuple[EventInfo, ...]
    now: datetime
    context: SchedulingContext
    clock: Clock


def run(args: argparse.Namespace) -> int:
    """Print why; 1 if the object waits or is stuck."""
    kind, name = _object(args.object)
    world = source.tool_input(args)
    clock = Clock()
    scene = ExplainInput(
        world.snapshot,
        settled(expanded(world.snapshot)),
        world.order,
        events_of(world.events),
        clock.utc(),
        SchedulingContext(new_id=Entropy().uuid4, options=simulate.options_of(args)),
        clock,
    )
    if not kind:
        reported, lines, well = _everything(scene, args.namespace or "")
    elif kind == "pod":
        reported, lines, well = _pod(scene, (_namespace(args, scene), name))
    elif kind == "claim":
        reported, lines, well = _claim(scene, (_namespace(args, scene), name))
    elif kind == "node":
        reported, lines, well = _node(scene, name)
    else:
        reported, lines, well = _device(scene, name)
    if args.output == "json":
        output.write(json.dumps({**reported, "errors": []}, indent=2))
    else:
        output.prose(lines)
    return 0 if well else 1


_Answered = tuple[dict[str, Any], list[str], bool]


def _object(word: str) -> tuple[str, str]:
    if not word:
        return "", ""
    kind, slash, name = word.partition("/")
    found = KINDS.get(kind.lower())
    if found is None or not slash or not name:
        raise Invalid(word, "must be pod/NAME, claim/NAME, node/NAME or device/DRIVER/POOL/DEVICE")
    return found, name


def _namespace(args: argparse.Namespace, scene: ExplainInput) -> str:
    """The flag's; of a live cluster the context's; else default, or the only one that there is."""
    if args.namespace:
        return str(args.namespace)
    if not args.filename:
        return connect.namespace(args)
    known = {key[0] for key in (*scene.settled.pods, *scene.settled.claims, *scene.raw.claims)}
    return known.pop() if len(known) == 1 else DEFAULT_NAMESPACE


def _missing(what: str, key: NamespacedName, known: Iterable[NamespacedName]) -> NotFound:
    names = ["/".join(other) for other in known]
    other_space = [name for name in names if name.partition("/")[2] == key[1]]
    near = other_space or difflib.get_close_matches("/".join(key), names, 3)
    hint = f"; near: {', '.join(near[:3])}" if near else ""
    return NotFound(f"{what} {'/'.join(key)} does not exist{hint}")


# ---- pods


def _pod(scene: ExplainInput, key: NamespacedName) -> _Answered:
    pod = scene.settled.pods.get(key)
    if pod is None:
        raise _missing("pod", key, scene.settled.pods)
    waiting = units(scene.settled, [*scene.order, ("Pod", *key)])
    if not any(key in unit.pods for unit in waiting):
        facts = pod_facts(
            scene.raw if key in scene.raw.pods else scene.settled, pod, scene.events, scene.now, scene.context
        )
        return {"pods": [describe.pod_json(facts)]}, describe.pod_lines(facts), not facts.reasons
    return _waiting_pod(scene, scene.settled, waiting, key)


def _waiting_pod(
    scene: ExplainInput, snapshot: Snapshot, waiting: list[SchedulingUnit], key: NamespacedName
) -> _Answered:
    """Decides those that stand before it, then the pod."""
    for step in steps(snapshot, waiting, scene.now, scene.context):
        if key in step.unit.pods:
            break
    verdict = next(verdict for verdict in step.verdicts if verdict.pod == key)
    over = simulation.deadline(scene.clock, simulation.EXPLAIN_S)
    answer = explain_pod(step, verdict, scene.now, scene.context, over)
    return _reported(scene, step, answer)


def _reported(scene: ExplainInput, step: DecidedUnit, answer: Explanation) -> _Answered:
    verdict = answer.verdict
    entry = say.as_json(answer)
    name = "/".join(verdict.pod)
    if verdict.node is None:
        refused = verdict.refused
        decided = "is not decided" if refused is not None and refused.undecided else "has no place"
        return {"pods": [entry]}, [f"pod {name} {decided}:", *(f"  {line}" for line in say.reason_lines(answer))], False
    claims = claims_used(step.after, step.after.pods[verdict.pod])
    choices = choices_of(step.after, claims, verdict.node, scene.context)
    entry["choices"] = [plain(choice) for choice in choices]
    lines = [f"pod {name} waits and fits on {verdict.node}"]
    lines += [f"  {line}" for line in describe.choice_lines(choices)]
    if verdict.nodes:
        lines.append("  other nodes cannot take it:")
        lines += [f"    {line}" for line in (*say.node_lines(verdict.nodes), *say.absent_lines(answer))]
    return {"pods": [entry]}, lines, True


# ---- claims, devices, nodes


def _claim(scene: ExplainInput, key: NamespacedName) -> _Answered:
    snapshot = scene.raw if key in scene.raw.claims else scene.settled
    claim = snapshot.claims.get(key)
    if claim is None:
        raise _missing("claim", key, [*scene.raw.claims, *scene.settled.claims])
    facts = claim_facts(snapshot, claim, scene.now, scene.context)
    reported: dict[str, Any] = {"claims": [describe.claim_json(facts)]}
    lines = describe.claim_lines(facts)
    if facts.state != "pending":
        return reported, lines, facts.state != "deleting"
    users = [user for user in facts.users if user in scene.settled.pods]
    if users:
        more, pod_lines, well = _pod(scene, users[0])
    else:
        probed, pod = probe(scene.settled, scene.settled.claims.get(key, claim))
        more, pod_lines, well = _waiting_pod(scene, probed, [SchedulingUnit(("Pod", *pod), (pod,))], pod)
        pod_lines = ["a pod with this claim alone:", *pod_lines[1:]] if not well else pod_lines
    return {**reported, **more}, [*lines, *(f"  {line}" for line in pod_lines)], well


def _device(scene: ExplainInput, name: str) -> _Answered:
    parts = name.split("/")
    if len(parts) < 3:
        raise Invalid(f"device/{name}", "must be device/DRIVER/POOL/DEVICE")
    device = DeviceId(parts[0], "/".join(parts[1:-1]), parts[-1])
    facts = device_facts(scene.raw, device, scene.context)
    if facts is None:
        known = [
            f"{s.spec.driver}/{s.spec.pool.name}/{d.name}" for s in scene.raw.slices.values() for d in s.spec.devices
        ]
        near = difflib.get_close_matches(name, known, 3)
        raise NotFound(
            f"device {name} is neither published nor allocated" + (f"; near: {', '.join(near)}" if near else "")
        )
    well = facts.state in ("free", "held", "shared")
    return {"devices": [describe.device_json(facts)]}, describe.device_lines(facts), well


def _node(scene: ExplainInput, name: str) -> _Answered:
    node = scene.raw.nodes.get(name)
    if node is None:
        near = difflib.get_close_matches(name, list(scene.raw.nodes), 3)
        raise NotFound(f"node {name} does not exist" + (f"; near: {', '.join(near)}" if near else ""))
    facts = node_facts(scene.raw, node, scene.now)
    well = facts.ready in ("True", "unknown") and not facts.cordoned and not facts.absent
    well = well and all(pool[2] == "ok" for pool in facts.pools)
    return {"nodes": [describe.node_json(facts)]}, describe.node_lines(facts), well


# ---- everything that waits


def _everything(scene: ExplainInput, namespace: str) -> _Answered:
    """Of one namespace, or of all with ""; what stands before them in the order is decided first all the same."""
    pods: list[dict[str, Any]] = []
    claims: list[dict[str, Any]] = []
    waits: list[say.Summary] = []
    explained: Counter[bool] = Counter()
    fits: list[tuple[str, str]] = []
    waiting = units(scene.settled, scene.order)
    asked = sum(_is_asked(key, namespace) for unit in waiting for key in unit.pods)
    budget = simulation.Budget(scene.clock, max(EACH_S, simulation.EXPLAIN_S / max(asked, 1)))
    for step in steps(scene.settled, waiting, scene.now, scene.context):
        if not any(_is_asked(key, namespace) for key in step.unit.pods):
            continue
        brief = simulation.is_brief(step, explained)
        with budget.spent(step) as over:
            answers = explain_unit(step, scene.now, scene.context, over, brief=brief)
        for answer in answers:
            verdict = answer.verdict
            pods.append(say.as_json(answer))
            if verdict.node is None:
                waits.append(say.summary(answer))
            else:
                fits.append(("/".join(verdict.pod), verdict.node))
    for key in sorted(key for key in scene.raw.pods if _is_asked(key, namespace)):
        pod = scene.raw.pods[key]
        reasons = stuck(scene.raw, pod, scene.events, scene.now)
        if reasons:
            facts = pod_facts(scene.raw, pod, scene.events, scene.now, scene.context)
            pods.append(describe.pod_json(facts))
            why = tuple(messages.sentence(reason) for reason in reasons)
            waits.append(say.Summary(f"pod {'/'.join(key)}", why, why))
    for key in sorted(key for key in scene.raw.claims if _is_asked(key, namespace)):
        kept = deletion(scene.raw, scene.raw.claims[key], scene.now)
        if kept is not None:
            claims.append(describe.claim_json(claim_facts(scene.raw, scene.raw.claims[key], scene.now, scene.context)))
            why = (messages.sentence(kept),)
            waits.append(say.Summary(f"claim {'/'.join(key)}", why, why))
    lines = [*say.summary_lines(waits), *say.fit_lines(fits)] or ["nothing waits"]
    return {"pods": pods, "claims": claims}, lines, not waits


def _is_asked(key: NamespacedName, namespace: str) -> bool:
    return not namespace or key[0] == namespace
