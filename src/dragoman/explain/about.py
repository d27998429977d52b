"""What is the answer to a question about an object, or about everything that waits? As JSON and as lines.

    scene = ExplainInput(raw, cluster, order, events, context, monotonic)
    answer = about_pod(scene, ("default", "train"))

Asks `whatif` what the scheduler would decide now and `explain` why; reads, prints and waits for nothing.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import msgspec

from dragoman.api.core import Pod
from dragoman.api.files import DEFAULT_NAMESPACE
from dragoman.api.kinds import kind_of
from dragoman.api.meta import NamespacedName
from dragoman.errors import Forbidden, Invalid, NotFound
from dragoman.explain import describe, messages, quotas, schedulers
from dragoman.explain import report as say
from dragoman.explain.conflict_messages import plain
from dragoman.explain.explanation import Explanation, explain_pod, explain_unit
from dragoman.explain.focus import claims_used
from dragoman.explain.hints import Hint
from dragoman.explain.objects import (
    choices_of,
    claim_facts,
    device_facts,
    node_facts,
    pod_facts,
    probe,
)
from dragoman.explain.state import EventInfo, deletion, stuck
from dragoman.explain.user_names import in_user_words
from dragoman.schedule.units import SchedulingContext
from dragoman.snapshot.change import Put, Snapshot
from dragoman.snapshot.usage import DeviceId, claim_names
from dragoman.whatif.budget import EXPLAIN_S, Budget, deadline
from dragoman.whatif.cluster import ClusterState
from dragoman.whatif.decide import DecidedUnit, run
from dragoman.whatif.settle import changed
from dragoman.whatif.units import Named, units

KINDS = {"pod": "pod", "pods": "pod", "po": "pod", "claim": "claim", "resourceclaim": "claim", "node": "node"}
KINDS |= {"resourceclaims": "claim", "nodes": "node", "no": "node", "device": "device", "devices": "device"}

BASIS = ("Node", "ResourceSlice", "DeviceClass")


class ExplainInput(msgspec.Struct):
    """What explanations draw on. raw: objects as they are; cluster: as controllers will have made them.

    monotonic: seconds of a clock that limits how long contradictions and hints are looked for.
    """

    raw: Snapshot
    cluster: ClusterState
    order: tuple[Named, ...]
    events: tuple[EventInfo, ...]
    context: SchedulingContext
    monotonic: Callable[[], float]
    hidden: frozenset[str] = frozenset()
    """Kinds of which nothing may be seen (rights): that an object of theirs is not in raw means nothing."""
    writers: Mapping[str, str] = {}
    """Who has written Leases and Events (`inspect.schedulers`)."""

    @property
    def settled(self) -> Snapshot:
        """The cluster's snapshot."""
        return self.cluster.snapshot


class About(msgspec.Struct, frozen=True):
    """An answer. body: parts of the JSON output; well: the object neither waits nor is stuck.

    Of everything that waits also: pending, shortly; hints of each pod that has some, verified.
    """

    body: dict[str, Any]
    lines: list[str]
    well: bool
    pending: tuple[say.Summary, ...] = ()
    hints: dict[NamespacedName, tuple[Hint, ...]] = {}


def about(scene: ExplainInput, kind: str, name: str, namespace: str) -> About:
    """The answer about one object, or with kind "" about everything that waits. Raises Invalid, NotFound."""
    match kind:
        case "":
            return about_everything(scene, namespace)
        case "pod":
            return about_pod(scene, (namespace or only_namespace(scene), name))
        case "claim":
            return about_claim(scene, (namespace or only_namespace(scene), name))
        case "node":
            return about_node(scene, name)
        case _:
            return about_device(scene, name)


def object_of(word: str) -> tuple[str, str]:
    """Kind and name of `pod/NAME` and the like; ("", "") for no word. Raises Invalid."""
    if not word:
        return "", ""
    kind, slash, name = word.partition("/")
    found = KINDS.get(kind.lower())
    if found is None or not slash or not name:
        raise Invalid(word, "must be pod/NAME, claim/NAME, node/NAME or device/DRIVER/POOL/DEVICE")
    return found, name


def only_namespace(scene: ExplainInput) -> str:
    """The namespace of all objects where they have but one, else default."""
    known = {key[0] for key in (*scene.settled.pods, *scene.settled.claims, *scene.raw.claims)}
    return known.pop() if len(known) == 1 else DEFAULT_NAMESPACE


def _missing(what: str, key: NamespacedName, known: Iterable[NamespacedName]) -> NotFound:
    names = list(dict.fromkeys("/".join(other) for other in known))
    other_space = [name for name in names if name.partition("/")[2] == key[1]]
    near = other_space or difflib.get_close_matches("/".join(key), names, 3)
    hint = f"; near: {', '.join(near[:3])}" if near else ""
    return NotFound(f"{what} {'/'.join(key)} does not exist{hint}")


# ---- pods


def about_pod(scene: ExplainInput, key: NamespacedName) -> About:
    """Why a pod is where it is, or where it would go now."""
    pod = scene.settled.pods.get(key) or scene.raw.pods.get(key)
    if pod is None:
        _require(scene, "Pod", f"pod {'/'.join(key)}")
        raise _missing("pod", key, scene.settled.pods)
    waiting = units(scene.cluster, [*scene.order, ("Pod", *key)])
    if not any(key in unit.pods for unit in waiting):
        snapshot = scene.raw if key in scene.raw.pods else scene.settled
        facts = pod_facts(snapshot, pod, scene.events, scene.cluster.now, scene.context, scene.hidden)
        return About({"pods": [describe.pod_json(facts)]}, describe.pod_lines(facts), not facts.reasons)
    if hidden_basis(scene):
        return _not_decided(scene, pod)
    return _pending_pod(scene, scene.cluster, [*scene.order, ("Pod", *key)], key)


def hidden_basis(scene: ExplainInput) -> tuple[str, ...]:
    """Kinds that may not be seen and without which nothing can be said about where a pod fits."""
    return tuple(kind_of(kind).plural for kind in BASIS if kind in scene.hidden)


def _not_decided(scene: ExplainInput, pod: Pod) -> About:
    """A pending pod of which only its own objects can be seen: they, and what its scheduler last reported."""
    namespace, name = key = (pod.metadata.namespace, pod.metadata.name)
    missing = ", ".join(hidden_basis(scene))
    lines = [f"pod {namespace}/{name} is pending; why is not decided here: {missing} not visible"]
    for used in claim_names(pod):
        claim = scene.settled.claims.get((namespace, used))
        if claim is None and "ResourceClaim" not in scene.hidden:
            lines.append(f"  claim {used} does not exist")
        elif claim is not None:
            held = "allocated" if claim.status.allocation is not None else "not allocated yet"
            lines.append(f"  claim {used} is {held}")
    mine = [e for e in scene.events if e.kind == "Pod" and e.key == key and e.reason == "FailedScheduling"]
    if mine:
        lines.append(f"  its scheduler last reported: {max(mine, key=lambda event: event.last).message}")
    elif "Event" not in scene.hidden:
        lines.append("  no scheduler has reported anything about it")
    body: dict[str, Any] = {
        "namespace": namespace,
        "name": name,
        "node": None,
        "claims": [],
        "nodes": [],
        "refusal": None,
    }
    body["notVisible"] = list(hidden_basis(scene))
    return About({"pods": [body]}, lines, False)


def _require(scene: ExplainInput, kind: str, what: str) -> None:
    """Raises Forbidden where what is not found may well be there."""
    if kind in scene.hidden:
        raise Forbidden(f"{what}: {kind_of(kind).plural} not visible; ask for the right to list them")


def _pending_pod(scene: ExplainInput, cluster: ClusterState, order: Sequence[Named], key: NamespacedName) -> About:
    """Decides those that stand before it, then the pod."""
    for step in run(cluster, order, scene.context):
        if key in step.unit.pods:
            break
    verdict = next(verdict for verdict in step.verdicts if verdict.pod == key)
    over = deadline(scene.monotonic, EXPLAIN_S)
    return _decided(scene, step, explain_pod(step, verdict, cluster.now, scene.context, over))


def scheduler_lines(scene: ExplainInput, keys: Iterable[NamespacedName]) -> list[str]:
    """What is to be known of the schedulers that decide these pods: one line each, with their pods."""
    return schedulers.lines(scene.settled, keys, scene.writers)


def _decided(scene: ExplainInput, step: DecidedUnit, explanation: Explanation) -> About:
    verdict = explanation.verdict
    entry = say.as_json(explanation)
    shared = schedulers.shared_lines(scene.settled, scene.writers)
    by = [f"  {line}" for line in (*scheduler_lines(scene, [verdict.pod]), *shared)]
    if verdict.node is None:
        entry |= schedulers.as_json(scene.settled, verdict.pod, scene.writers)
        return About(
            {"pods": [entry]},
            [say.headline(explanation), *(f"  {line}" for line in say.reason_lines(explanation)), *by],
            False,
        )
    claims = claims_used(step.after, step.after.pods[verdict.pod])
    entry |= schedulers.as_json(scene.settled, verdict.pod, scene.writers)
    choices = choices_of(step.after, claims, verdict.node, scene.context)
    entry["choices"] = [plain(choice) for choice in choices]
    lines = [f"pod {'/'.join(verdict.pod)} is pending; would fit on {verdict.node}"]
    lines += [f"  {in_user_words(line, explanation.names)}" for line in describe.choice_lines(choices)]
    lines += [f"  {line}" for line in say.warning_lines(explanation)]
    lines += by
    if verdict.nodes:
        lines.append("  other nodes cannot take it:")
        lines += [f"    {line}" for line in (*say.node_lines(verdict.nodes), *say.absent_lines(explanation))]
    return About({"pods": [entry]}, lines, True)


# ---- claims, devices, nodes


def about_claim(scene: ExplainInput, key: NamespacedName) -> About:
    """What a claim has and for whom, or why nothing yet."""
    snapshot = scene.raw if key in scene.raw.claims else scene.settled
    claim = snapshot.claims.get(key)
    if claim is None:
        _require(scene, "ResourceClaim", f"claim {'/'.join(key)}")
        raise _missing("claim", key, [*scene.raw.claims, *scene.settled.claims])
    facts = claim_facts(snapshot, claim, scene.cluster.now, scene.context)
    body: dict[str, Any] = {"claims": [describe.claim_json(facts)]}
    lines = describe.claim_lines(facts)
    if facts.state != "pending":
        return About(body, lines, facts.state != "deleting")
    users = [user for user in facts.users if user in scene.settled.pods]
    if users:
        more = about_pod(scene, users[0])
        pod_lines = more.lines
    else:
        probed, pod = probe(scene.settled, scene.settled.claims.get(key, claim))
        alone = changed(scene.cluster, [Put("Pod", probed.pods[pod])])
        more = _pending_pod(scene, alone, [("Pod", *pod)], pod)
        pod_lines = more.lines if more.well else ["for a pod with only this claim:", *more.lines[1:]]
    return About({**body, **more.body}, [*lines, *(f"  {line}" for line in pod_lines)], more.well)


def about_device(scene: ExplainInput, name: str) -> About:
    """Who holds a device, and what is wrong with it. name: DRIVER/POOL/DEVICE."""
    parts = name.split("/")
    if len(parts) < 3:
        raise Invalid(f"device/{name}", "must be device/DRIVER/POOL/DEVICE")
    device = DeviceId(parts[0], "/".join(parts[1:-1]), parts[-1])
    _require(scene, "ResourceSlice", f"device {name}")
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
    return About({"devices": [describe.device_json(facts)]}, describe.device_lines(facts), well)


def about_node(scene: ExplainInput, name: str) -> About:
    """What a node has, and what is wrong with it."""
    node = scene.raw.nodes.get(name)
    if node is None:
        _require(scene, "Node", f"node {name}")
        near = difflib.get_close_matches(name, list(scene.raw.nodes), 3)
        raise NotFound(f"node {name} does not exist" + (f"; near: {', '.join(near)}" if near else ""))
    facts = node_facts(scene.raw, node, scene.cluster.now)
    well = facts.ready in ("True", "unknown") and not facts.cordoned and not facts.absent
    well = well and all(pool[2] == "ok" for pool in facts.pools)
    return About({"nodes": [describe.node_json(facts)]}, describe.node_lines(facts), well)


# ---- everything that waits


def about_everything(scene: ExplainInput, namespace: str) -> About:
    """Of one namespace, or of all with ""; what stands before them in the order is decided first all the same."""
    pods: list[dict[str, Any]] = []
    claims: list[dict[str, Any]] = []
    pending: list[say.Summary] = []
    fits: list[tuple[str, str]] = []
    warned: list[str] = []
    waiting = units(scene.cluster, scene.order)
    undecided = (
        [key for unit in waiting for key in unit.pods if _is_asked(key, namespace)] if hidden_basis(scene) else []
    )
    for key in undecided:
        about_it = _not_decided(scene, scene.settled.pods[key])
        pods += about_it.body["pods"]
        pending.append(say.Summary(f"pod {'/'.join(key)}", tuple(about_it.lines), tuple(about_it.lines)))
    asked = sum(_is_asked(key, namespace) for unit in waiting for key in unit.pods)
    budget = Budget.shared(scene.monotonic, asked)
    now = scene.cluster.now
    explanations: dict[NamespacedName, Explanation] = {}
    for step in run(scene.cluster, scene.order, scene.context) if not hidden_basis(scene) else ():
        if not any(_is_asked(key, namespace) for key in step.unit.pods):
            continue
        brief = budget.is_brief(step)
        with budget.spent(step) as over:
            found = explain_unit(step, now, scene.context, over, brief=brief)
        explanations |= {explanation.verdict.pod: explanation for explanation in found}
    for explanation in explanations.values():
        verdict = explanation.verdict
        pods.append(say.as_json(explanation) | schedulers.as_json(scene.settled, verdict.pod, scene.writers))
        if verdict.node is None:
            pending.append(say.summary(explanation))
        else:
            fits.append(("/".join(verdict.pod), verdict.node))
            warned += say.warning_lines(explanation)
    for key in sorted(key for key in scene.raw.pods if _is_asked(key, namespace)):
        pod = scene.raw.pods[key]
        reasons = stuck(scene.raw, pod, scene.events, now, scene.hidden)
        if reasons:
            pods.append(describe.pod_json(pod_facts(scene.raw, pod, scene.events, now, scene.context, scene.hidden)))
            why = tuple(messages.sentence(reason) for reason in reasons)
            pending.append(say.Summary(f"pod {'/'.join(key)}", why, why))
    for key in sorted(key for key in scene.raw.claims if _is_asked(key, namespace)):
        kept = deletion(scene.raw, scene.raw.claims[key], now)
        if kept is not None:
            claims.append(describe.claim_json(claim_facts(scene.raw, scene.raw.claims[key], now, scene.context)))
            why = (messages.sentence(kept),)
            pending.append(say.Summary(f"claim {'/'.join(key)}", why, why))
    refused = quotas.blocks(scene.cluster, namespace)
    lines = [*say.summary_lines(pending), *(line for block in refused for line in quotas.block_lines(block))]
    warned += scheduler_lines(scene, explanations)
    warned += schedulers.shared_lines(scene.settled, scene.writers)
    lines = [*lines, *say.fit_lines(fits), *warned] or ["no pending pods"]
    body: dict[str, Any] = {"pods": pods, "claims": claims}
    if refused:
        body["quota"] = [quotas.as_json(block) for block in refused]
    hints = {key: explanation.hints.found for key, explanation in explanations.items() if explanation.hints.found}
    return About(body, lines, not pending and not refused, tuple(pending), hints)


def _is_asked(key: NamespacedName, namespace: str) -> bool:
    return not namespace or key[0] == namespace
