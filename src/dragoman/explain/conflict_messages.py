"""How are contradictions and hints said? Sentences and JSON for what `explain.conflict` and `explain.hints` found.

Beside `explain.text`, which says refusals. For readers who may see everything: tools run with the reader's own rights.
Never decides and never looks anything up.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from dragoman.allocate import refusal as device
from dragoman.api import codec
from dragoman.explain import messages
from dragoman.explain.conflict import Conflict, ConflictRequest, CounterUser, Fragment, RequestSets, Unpublished
from dragoman.explain.hints import Hint, Hints, Verified
from dragoman.explain.messages import plural
from dragoman.schedule.extended import SPECIAL_NAME
from dragoman.schedule.refusal import ReasonBase
from dragoman.snapshot.usage import DeviceId, Holder

SHOWN = 6


def listed(names: Sequence[str], most: int = SHOWN) -> str:
    """`a, b, c and 4 more`."""
    rest = len(names) - most
    return ", ".join(names[:most]) + (f" and {rest} more" if rest > 0 else "")


# ---- facts as JSON


def plain(value: Any) -> Any:
    """A value's facts: camelCase fields, devices as `driver/pool/device`, refusals with code and message."""
    if isinstance(value, DeviceId):
        return str(value)
    if isinstance(value, ReasonBase | device.Fact):
        return messages.as_json(value)  # type: ignore[arg-type]
    if isinstance(value, msgspec.Struct) and type(value).__module__.startswith("dragoman.explain"):
        return {messages.camel(name): plain(getattr(value, name)) for name in type(value).__struct_fields__}
    if isinstance(value, Holder):
        return {"namespace": value.namespace, "claim": value.claim, "request": value.request}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, dict):
        return {name: plain(item) for name, item in value.items()}
    return codec.to_json(value)


def conflict_json(conflict: Conflict) -> dict[str, Any]:
    """{"message", "node", "requests", "constraints", "reasons", "minimal", ...}."""
    facts = plain(conflict)
    facts["requests"] = facts.pop("parts")
    return {"message": conflict_text(conflict), **facts}


def hint_json(hint: Hint) -> dict[str, Any]:
    """{"kind", "message", facts, "verifiedWith": {"node", "devices"}}."""
    reported = {
        "kind": hint.kind,
        "message": hint_text(hint),
        **plain(hint.facts),
        "verifiedWith": plain(hint.verified),
    }
    if hint.parts:
        reported["parts"] = [{"kind": part.kind, "message": _change(part), **plain(part.facts)} for part in hint.parts]
    return reported


# ---- contradictions


def conflict_text(conflict: Conflict) -> str:
    """The most telling sentence about why the claims cannot be met, no full stop."""
    said = [
        *(_unpublished(entry) for entry in conflict.unpublished),
        *(_sets(sets, conflict.node) for sets in conflict.sets if not conflict.unpublished),
        *(fragment_text(fragment) for fragment in conflict.fragments[:2]),
    ]
    if not said:
        said = [_parts(conflict)]
    return "; ".join(dict.fromkeys(said))


def conflict_lines(conflict: Conflict) -> list[str]:
    """The contradiction for people: its sentence, and what belongs to it; [] where that is a single request's count."""
    core = _core(conflict)
    if not core and not (conflict.sets or conflict.unpublished or conflict.fragments):
        return []
    return [f"{conflict.node}: {conflict_text(conflict)}", *([core] if core else [])]


def nearest_text(conflict: Conflict) -> str:
    """The device that fails latest, with its reason; "" if there is none."""
    return messages.sentence(messages.without_node(conflict.nearest.reason)) if conflict.nearest is not None else ""


def _core(conflict: Conflict) -> str:
    names = list(dict.fromkeys(part.request.partition("/")[0] for part in conflict.parts))
    if len(names) + len(conflict.constraints) < 2:
        return ""
    reported = f"cannot be met together: requests {listed(names, 12)}"
    if conflict.constraints:
        reported += " with " + ", ".join(f"constraint {c.index} on {c.attribute}" for c in conflict.constraints)
    return reported if conflict.minimal else f"{reported} (there may be a smaller contradiction)"


def _parts(conflict: Conflict) -> str:
    by_class: dict[str, list[ConflictRequest]] = {}
    for part in conflict.parts:
        by_class.setdefault(part.class_name, []).append(part)
    reported = []
    for name, parts in by_class.items():
        wanted = "all" if any(not part.wanted for part in parts) else str(sum(part.wanted for part in parts))
        most = max(parts, key=lambda part: part.usable)
        noun = "device" if wanted == "1" else "devices"
        reported.append(f"{wanted} {noun} of class {name} requested, {most.matching} match, {most.usable} available")
    tail = "".join(f", {c.kind}ing {c.attribute}" for c in conflict.constraints)
    return " and ".join(reported) + tail if reported else messages.sentence(conflict.reasons[0])


def _sets(sets: RequestSets, node: str) -> str:
    is_pairs = len(sets.parts) == 2 and all(part.each == 1 for part in sets.parts)
    noun = "pairs" if is_pairs else "sets"
    what = "+".join(part.class_name if part.each == 1 else f"{part.each} {part.class_name}" for part in sets.parts)
    scarce = min(sets.parts, key=lambda part: part.usable // part.each)
    head = f"{sets.wanted} {what} {noun} wanted"
    if scarce.usable < sets.wanted * scarce.each:
        head += f", {plural(scarce.usable, 'device')} of class {scarce.class_name} on {node}"
    tight = [value for value in sets.values if len({count for _, count in value.devices}) > 1] or list(sets.values)
    rows = [f"{v.value} has " + ", ".join(f"{count} {name}" for name, count in v.devices) for v in tight]
    reported = f" ({'; '.join(rows[:SHOWN])})" if rows else ""
    return f"{head}; at most {sets.most} {noun} with one {sets.attribute}{reported}"


def _unpublished(entry: Unpublished) -> str:
    field = "matchAttribute" if entry.kind == "match" else "distinctAttribute"
    drivers = " and ".join(entry.drivers)
    count = (
        f"no device of driver {drivers} publishes it"
        if not entry.publishing
        else f"{entry.publishing} of {entry.matching} devices of driver {drivers} publish it"
    )
    near = f" (it publishes {', '.join(entry.near)})" if entry.near else ""
    match = [*entry.others, (entry.class_name, entry.matching)]
    rest = " and ".join(f"{count} of class {name}" for name, count in match)
    return f"constraint {entry.index}, {field} {entry.attribute}: {count}{near}; devices that match otherwise: {rest}"


def fragment_text(fragment: Fragment) -> str:
    """`profile half needs m 0-3 or 4-7 of gpu0 together; free are 2, 3, 4, 6, 7 (5 of 8): fragmented, not full`."""
    kind = ", ".join(f"{name} {value}" for name, value in fragment.profile) or f"request {fragment.request}"
    by = _by_users(fragment.users)
    if fragment.needs:
        stem = _stem([name for need in fragment.needs for name in need])
        needs = " or ".join(ranges(need, stem) for need in fragment.needs)
        free = ", ".join(slot[len(stem) :] for slot in fragment.free) or "none"
        state = "fragmented, not full" if fragment.fragmented else "used up"
        head = f"{kind} needs {stem.rstrip('-_') or 'counters'} {needs} of {fragment.counter_set} together"
        return f"{head}; free are {free} ({len(fragment.free)} of {fragment.slots}): {state}{by}"
    state = "is used up" if fragment.left.nanos <= 0 else f"has {fragment.left} of {fragment.total} left"
    return f"{kind} needs {fragment.want} of {fragment.counter_set}/{fragment.counter}, which {state}{by}"


def _by_users(users: Sequence[CounterUser]) -> str:
    by_holder: dict[str, list[str]] = {}
    for user in users:
        for holder in user.holders[:1]:
            whose = f"claim {holder.namespace}/{holder.claim} (request {holder.request})"
            by_holder.setdefault(whose, []).append(user.device.device)
    reported = [f"{listed(names)} of {whose}" for whose, names in by_holder.items()]
    return f"; in use by {listed(reported, 3)}" if reported else ""


def _stem(names: Sequence[str]) -> str:
    """What the names share before their numbers; "" if they are not numbered alike."""
    stems = {name.rstrip("0123456789") for name in names}
    return stems.pop() if len(stems) == 1 and all(name[-1:].isdigit() for name in names) else ""


def ranges(names: Sequence[str], stem: str) -> str:
    """Numbered names as ranges (`0-3, 6`), others listed."""
    if not stem:
        return "+".join(names)
    numbers = sorted(int(name[len(stem) :]) for name in names)
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return ", ".join(str(a) if a == b else f"{a}-{b}" for a, b in runs)


# ---- hints


def hints_lines(hints: Hints) -> list[str]:
    """A line a hint, and how many more were not tried."""
    lines = [hint_text(hint) for hint in hints.found]
    if hints.untried:
        lines.append(f"{plural(hints.untried, 'more change')} not tried: time limit reached")
    return lines


def hint_text(hint: Hint) -> str:
    """What to change, and what it was verified with."""
    return f"{_change(hint)}: {_verified(hint.verified)}"


def _verified(verified: Verified) -> str:
    names = [name.rpartition("/")[2] for name in verified.devices]
    return f"fits on {verified.node}" + (f" with {listed(names, 8)}" if names else "")


def _change(hint: Hint) -> str:
    facts = hint.facts
    whose = _whose(facts)
    what = f"request {facts.get('request')} of {whose}"
    match hint.kind:
        case "RemoveGates":
            return f"once the scheduling gates {', '.join(facts['gates'])} are removed"
        case "WaitForPool":
            slices = f"{facts['have']} of {facts['want']} slices"
            return f"wait until pool {facts['driver']}/{facts['pool']} is complete ({slices})"
        case "CorrectSliceCount":
            return (
                f"correct resourceSliceCount of pool {facts['driver']}/{facts['pool']}: {facts['want']} is published, "
                f"{facts['have']} would be right"
            )
        case "WaitForPods":
            return (
                f"wait until {_pods(facts['pods'])}, being deleted, {'is' if len(facts['pods']) == 1 else 'are'} gone"
            )
        case "ChangeSelector":
            return f"{what}, selector {facts['selector']}: {_from_to(facts)}"
        case "ChangeClassSelector":
            return f"device class {facts['class']}, selector {facts['selector']}: {_from_to(facts)}"
        case "ChangeCount":
            return f"{what}: ask for {facts['to']} instead of {facts['from']} devices"
        case "DropRequest":
            return f"{whose} without request {facts['request']}"
        case "ChangeConstraint":
            return f"{whose}, constraint {facts['constraint']}: {facts['to']} instead of {facts['attribute']}"
        case "DropConstraint":
            return f"{whose} without constraint {facts['constraint']} on {facts['attribute']}"
        case "ChangeCapacity":
            return f"{what}: ask for {facts['to']} instead of {facts['from']} of {facts['capacity']}"
        case "TolerateDeviceTaint":
            taints = ", ".join(_taint(taint) for taint in facts["taints"])
            return f"{what}: tolerate {taints} of the device"
        case _:
            return _change_beside(hint)


def _whose(facts: dict[str, Any]) -> str:
    return f"template {facts['template']}" if facts.get("template") else f"claim {facts.get('claim')}"


def _change_beside(hint: Hint) -> str:
    """Changes that are not of the own claim."""
    facts = hint.facts
    match hint.kind:
        case "TolerateNodeTaint":
            return f"tolerate {_taint(facts)} of node {facts['node']}"
        case "Together":
            return " and ".join(_change(part) for part in hint.parts)
        case "ChangeResources":
            return f"ask for {facts['to']} instead of {facts['from']} of {facts['resource']}"
        case "DropNodeSelector":
            return f"without the node selector (node {facts['node']} does not match {facts['wanted']})"
        case "Uncordon":
            return f"uncordon node {facts['node']}"
        case "OtherClass":
            return f"request {facts['request']} of {_whose(facts)}: class {facts['to']} instead of {facts['from']}"
        case "MoveDevices":
            whose = f"pod {facts['pod']}" if "pod" in facts else f"claim {facts['heldClaim']}"
            moves = ", ".join(_move(move) for move in facts["moves"])
            return f"would fit if {whose} were restarted on node {facts['node']} with other devices ({moves})"
        case "MovePod":
            return f"would fit if {_pods(facts['pods'])} were moved to {facts['toNode']}"
        case "RemovePods":
            note = "; preemption for DRA devices is off" if facts["forDevices"] else ""
            return f"would fit if {_pods(facts['pods'])} were removed{note}"
        case "RemoveClaim":
            return f"would fit if claim {', '.join(facts['claims'])} were removed (it holds {listed(facts['devices'])})"
        case "AddNode":
            return f"add one node like {facts['shape']}"
        case _:
            return hint.kind


def _from_to(facts: dict[str, Any]) -> str:
    return f"{facts['to']}   instead of   {facts['from']}" if facts["to"] else f"leave out {facts['from']}"


def _pods(pods: Iterable[dict[str, Any]]) -> str:
    return ", ".join(f"{pod['pod']} (priority {pod['priority']})" for pod in pods)


def _taint(facts: dict[str, Any]) -> str:
    value = f"={facts['value']}" if facts["value"] else ""
    return f"{facts['key']}{value}:{facts['effect']}"


def _move(move: dict[str, str]) -> str:
    name = "extended resources" if move["claim"] == SPECIAL_NAME else move["claim"]
    if move["request"] != move["toRequest"]:
        return f"{name}: {move['to']} for {move['toRequest']} instead of {move['from']} for {move['request']}"
    return f"{name}: {move['from']} to {move['to']}"
