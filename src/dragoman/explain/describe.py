"""How is an object's state said? JSON and lines for what `explain.objects` found.

Facts of refusals are said by `explain.text`. Never decides.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dragoman.allocate.refusal import FilterStep
from dragoman.api import codec
from dragoman.explain import messages
from dragoman.explain.conflict_messages import listed, plain
from dragoman.explain.messages import plural
from dragoman.explain.objects import (
    Choice,
    ClaimDescription,
    DeviceDescription,
    DeviceHolder,
    NodeDescription,
    PodDescription,
)
from dragoman.inspect.inventory import Row
from dragoman.values.quantity import Quantity

_STEPS: dict[str, str] = {
    "": "free now",
    "chosen": "allocated to the same claim",
    FilterStep.SELECTOR: "not matching",
    FilterStep.LACKING: "without a requested capacity",
    FilterStep.GATED: "ruled out by a feature gate",
    FilterStep.HELD: "held",
    FilterStep.CAPACITY: "with too little capacity left",
    FilterStep.COUNTERS: "with too little of a shared counter left",
    FilterStep.GROUPS: "incompatible with present users",
    FilterStep.TAINT: "tainted",
}


def device_name(full: str) -> str:
    """The device's own name of `driver/pool/device`."""
    return full.rpartition("/")[2]


# ---- why this device


def choice_lines(choices: Sequence[Choice], *, claims: bool = True) -> list[str]:
    """Why these devices; those of one request that were found in the same way in one line. claims: name the claim."""
    groups: dict[tuple[Any, ...], list[Choice]] = {}
    for choice in choices:
        same = (choice.claim, choice.request, choice.node, choice.class_name, choice.admin, _before(choice))
        groups.setdefault(same, []).append(choice)
    return [
        _choice(equivalent, whose=f" (claim {equivalent[0].claim})" if claims else "") for equivalent in groups.values()
    ]


def _before(choice: Choice) -> tuple[tuple[str, int], ...]:
    """What stands before it, but for those that the same claim was given."""
    return tuple((step, count) for step, count in choice.passed if step != "chosen")


def _choice(equivalent: Sequence[Choice], whose: str) -> str:
    """`gpu-1, gpu-2 for request g: 2 of 8 matching of 8 devices on node-a, class gpu; before them 1 held`."""
    first = equivalent[0]
    names = listed([device_name(choice.device) for choice in equivalent], 8)
    head = f"{names}{' (admin access)' if first.admin else ''} for request {first.request}"
    if not first.node:
        return head + whose
    before = ", ".join(f"{count} {_STEPS[step]}" for step, count in _before(first))
    count = "one" if len(equivalent) == 1 else str(len(equivalent))
    reported = f"; before {'it' if len(equivalent) == 1 else 'them'} {before}" if before else ", the first in order"
    return (
        f"{head}: {count} of {first.matching} matching of {plural(first.seen, 'device')} on {first.node}, "
        f"class {first.class_name}{reported}{whose}"
    )


# ---- pods


def pod_json(facts: PodDescription) -> dict[str, Any]:
    """An entry of `pods` as simulate has it, with state, reasons and choices."""
    return {
        "namespace": facts.key[0],
        "name": facts.key[1],
        "node": facts.node,
        "claims": [
            {
                "podClaim": entry,
                "name": name,
                "template": template,
                "new": False,
                "allocation": codec.to_json(claim.status.allocation)
                if claim is not None and claim.status.allocation is not None
                else None,
            }
            for entry, name, template, claim in facts.claims
        ],
        "nodes": [],
        "refusal": None,
        "state": facts.state,
        "reasons": [messages.as_json(reason) for reason in facts.reasons],
        "choices": [plain(choice) for choice in facts.choices],
    }


def pod_lines(facts: PodDescription) -> list[str]:
    """For people."""
    lines = [f"pod {'/'.join(facts.key)} is {facts.state} on {facts.node}"]
    lines += [f"  {messages.sentence(reason)}" for reason in facts.reasons]
    return lines + [f"  {line}" for line in choice_lines(facts.choices)]


# ---- claims


def claim_json(facts: ClaimDescription) -> dict[str, Any]:
    """State, allocation, consumers and reasons of a claim."""
    status = facts.claim.status
    return {
        "namespace": facts.key[0],
        "name": facts.key[1],
        "state": facts.state,
        "node": facts.node or None,
        "allocation": codec.to_json(status.allocation) if status.allocation is not None else None,
        "consumers": [plain(consumer) for consumer in facts.consumers],
        "users": ["/".join(key) for key in facts.users],
        "reasons": [messages.as_json(reason) for reason in facts.reasons],
        "choices": [plain(choice) for choice in facts.choices],
        "conditions": [
            {"device": device, "type": kind, "status": status, "message": reported}
            for device, kind, status, reported in facts.conditions
        ],
    }


def claim_lines(facts: ClaimDescription) -> list[str]:
    """For people."""
    where = f" on {facts.node}" if facts.node else ""
    lines = [f"claim {'/'.join(facts.key)} is {facts.state}{where}"]
    lines += [f"  {messages.sentence(reason)}" for reason in facts.reasons]
    lines += [f"  {line}" for line in choice_lines(facts.choices, claims=False)]
    lines += [
        f"  reserved for {consumer.namespace}/{consumer.name} ({consumer.state})"
        for consumer in facts.consumers
        if facts.state != "deleting"
    ]
    lines += [
        f"  {device_name(d)}: {kind} is {status}{f' ({reported})' if reported else ''}"
        for d, kind, status, reported in facts.conditions
    ]
    if not facts.users and facts.state == "pending":
        lines.append("  no pod uses it; devices are allocated when one does")
    return lines


# ---- devices


def device_json(facts: DeviceDescription) -> dict[str, Any]:
    """Everything that is known of a device."""
    reported: dict[str, Any] = plain(facts)
    reported |= {"driver": facts.id.driver, "pool": facts.id.pool, "device": facts.id.device}
    reported |= {"slices": facts.slices[0], "resourceSliceCount": facts.slices[1]}
    reported["counters"] = [
        {
            "set": group,
            "counter": name,
            **{k: str(Quantity(v)) for k, v in zip(("consumes", "available", "total"), numbers, strict=True)},
        }
        for group, name, *numbers in facts.counters
    ]
    del reported["id"]
    reported["reasons"] = [messages.as_json(reason) for reason in facts.reasons]
    return reported


def device_lines(facts: DeviceDescription) -> list[str]:
    """For people."""
    where = f" on {listed(facts.nodes, 3)}" if facts.nodes else ""
    lines = [f"device {facts.id} is {facts.state}{where}"]
    if facts.state == "gone":
        verb = "held" if any(not holder.admin for holder in facts.holders) else "in an allocation"
        lines[0] = f"device {facts.id} is {verb}, and no longer published"
    lines += [f"  {messages.sentence(reason)}" for reason in facts.reasons]
    lines += [f"  {_held(holder)}" for holder in facts.holders]
    lines += [
        f"  taint {t.key}{'=' + t.value if t.value else ''}:{t.effect}" + (f" by rule {t.rule}" if t.rule else "")
        for t in facts.taints
    ]
    for one in facts.overlapping:
        name, claims = device_name(one.device), listed(one.claims, 3)
        lines.append(f"  may overlap with {name}, which claim {claims} holds and no ResourceSlice shows any longer")
    if facts.state == "unusable":
        have, expected = facts.slices
        lines.append(f"  its pool is {facts.pool_state}: {have} of {expected} slices of generation {facts.generation}")
    for group, name, drawn, left, total in facts.counters:
        if drawn > left or facts.state != "blocked":
            amounts = f"draws {Quantity(drawn)} of {group}/{name}, {Quantity(left)} of {Quantity(total)} left"
            lines.append(f"  {amounts}")
    within = [entry.name for entry in facts.classes if entry.matches]
    lines.append(f"  in class {listed(within)}" if within else "  in no class")
    for entry in facts.classes:
        if not entry.matches:
            why = f" fails: {entry.error}" if entry.error else " is false"
            lines.append(f"  not in class {entry.name}: selector {entry.selector}{why} ({entry.expression})")
    for name, value in facts.attributes.items():
        lines.append(f"  {name} = {next(iter(value.values()), '')}")
    return lines + [f"  capacity {name} = {value}" for name, value in facts.capacity.items()]


def _held(holder: DeviceHolder) -> str:
    pods = f", used by {listed(holder.pods)}" if holder.pods else ", used by no pod"
    verb = "seen with admin access by" if holder.admin else "shared with" if holder.share else "held by"
    return f"{verb} claim {holder.namespace}/{holder.claim}, request {holder.request}{pods}"


# ---- nodes


def node_json(facts: NodeDescription) -> dict[str, Any]:
    """Everything that is known of a node's devices."""
    names = ("driver", "pool", "state", "slices", "resourceSliceCount", "devices", "held", "shared", "unpublished")
    return {
        "name": facts.name,
        "ready": facts.ready,
        "cordoned": facts.cordoned,
        "taints": list(facts.taints),
        "pools": [dict(zip(names, pool, strict=True)) for pool in facts.pools],
        "classes": [
            {"class": row.terms[0], **plain_counts(row.counts), "fits": row.fits, "capacity": capacity_json(row)}
            for row in facts.devices.rows
        ],
        "pods": [
            {"namespace": ns, "name": name, "devices": list(devices), "adminAccess": list(admin)}
            for ns, name, devices, admin in facts.pods
        ],
        "driversWithoutSlices": list(facts.absent),
    }


def capacity_json(row: Row) -> dict[str, dict[str, str]]:
    """{name: {"used", "total"}} of devices that may be shared."""
    return {name: {"used": str(use.used), "total": str(use.total)} for name, use in row.capacity.items()}


def plain_counts(counts: Any) -> dict[str, int]:
    """Counts by state."""
    return {name: getattr(counts, name) for name in type(counts).__struct_fields__ if name != "held_tainted"}


def node_lines(facts: NodeDescription) -> list[str]:
    """For people."""
    state = [] if facts.ready in ("True", "unknown") else [f"not ready ({facts.ready})"]
    state += ["cordoned"] if facts.cordoned else []
    lines = [f"node {facts.name}" + (f" is {' and '.join(state)}" if state else "")]
    lines += [f"  taint {taint}" for taint in facts.taints]
    for driver, pool, condition, have, expected, devices, held, shared, gone in facts.pools:
        bad = "" if condition == "ok" else f"; {condition}: {have} of {expected} slices"
        used = f"{held} held" + (f", {shared} shared" if shared else "")
        also = f", {gone} of them not published any longer" if gone else ""
        lines.append(f"  pool {driver}/{pool}: {plural(devices, 'device')}, {used}{also}{bad}")
    if not facts.pools:
        lines.append("  no ResourceSlice is for this node")
    lines += [f"  no ResourceSlice of driver {driver}, of which running pods have devices" for driver in facts.absent]
    for row in facts.devices.rows:
        counts = row.counts
        fits = ", ".join(f"{number} x {kind or 'device'}" for kind, number in sorted(row.fits.items()))
        more = f"; still fit: {fits}" if fits else ""
        others = [
            f"{getattr(counts, s)} {s}"
            for s in ("shared", "unavailable", "tainted", "blocked", "unusable")
            if getattr(counts, s)
        ]
        others += [f"{counts.admin} with admin access"] if counts.admin else []
        others += [f"{use.used} of {use.total} {name} used" for name, use in row.capacity.items()]
        reported = ", ".join([f"{counts.free} of {counts.total} free", f"{counts.held} held", *others])
        lines.append(f"  class {row.terms[0]}: {reported}{more}")
    for namespace, name, names, admin in facts.pods:
        own = [device_name(d) for d in names if d not in admin]
        has = [f"has {listed(own)}"] if own else []
        has += [f"has admin access to {listed([device_name(d) for d in admin])}"] if admin else []
        lines.append(f"  {namespace}/{name} {' and '.join(has)}")
    return lines
