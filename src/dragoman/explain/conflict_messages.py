"""How are contradictions and hints said? Sentences and JSON for what `explain.conflict` and `explain.hints` found.

Beside `explain.text`, which says refusals. For readers who may see everything: tools run with the reader's own rights.
Never decides and never looks anything up.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, TypeAlias, assert_never

import msgspec

from dragoman.allocate import refusal as device
from dragoman.api import codec
from dragoman.explain import hint_changes as hints
from dragoman.explain import messages
from dragoman.explain.conflict import Conflict, ConflictRequest, CounterUser, Fragment, RequestSets, Unpublished
from dragoman.explain.hint_changes import DeviceMove, HintChange, PodPriority, Together
from dragoman.explain.hints import Hint, Hints, Verified
from dragoman.explain.messages import plural
from dragoman.schedule.extended import SPECIAL_NAME
from dragoman.schedule.refusal import ReasonBase
from dragoman.snapshot.usage import DeviceId, Holder

SHOWN = 6

_OfClaim: TypeAlias = (
    hints.ChangeSelector
    | hints.ChangeCount
    | hints.ChangeCapacity
    | hints.DropRequest
    | hints.ChangeConstraint
    | hints.DropConstraint
    | hints.TolerateDeviceTaint
    | hints.OtherClass
)
_OfOthers: TypeAlias = hints.MoveDevices | hints.MovePod | hints.RemovePods | hints.RemoveClaim | hints.AddNode


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
    """{"kind", "message", the fields of the change, "verifiedWith": {"node", "devices"}}; parts of two together."""
    reported = {**_change_json(hint.change), "message": hint_text(hint), "verifiedWith": plain(hint.verified)}
    if isinstance(hint.change, Together):
        reported["parts"] = [_change_json(part) for part in hint.change.parts]
    return reported


def _change_json(change: HintChange) -> dict[str, Any]:
    fields = {} if isinstance(change, Together) else msgspec.to_builtins(change)
    return {"kind": change.kind, "message": _change(change), **fields}


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
        wanted = "all" if any(not part.requested for part in parts) else str(sum(part.requested for part in parts))
        most = max(parts, key=lambda part: part.available)
        noun = "device" if wanted == "1" else "devices"
        reported.append(f"{wanted} {noun} of class {name} requested, {most.matching} match, {most.available} available")
    tail = "".join(f", {c.kind}ing {c.attribute}" for c in conflict.constraints)
    return " and ".join(reported) + tail if reported else messages.sentence(conflict.reasons[0])


def _sets(sets: RequestSets, node: str) -> str:
    is_pairs = len(sets.parts) == 2 and all(part.count == 1 for part in sets.parts)
    noun = "pairs" if is_pairs else "sets"
    what = "+".join(part.class_name if part.count == 1 else f"{part.count} {part.class_name}" for part in sets.parts)
    scarce = min(sets.parts, key=lambda part: part.available // part.count)
    head = f"{sets.requested} {what} {noun} wanted"
    if scarce.available < sets.requested * scarce.count:
        head += f", {plural(scarce.available, 'device')} of class {scarce.class_name} on {node}"
    tight = [value for value in sets.values if len({count for _, count in value.devices}) > 1] or list(sets.values)
    rows = [f"{v.value} has " + ", ".join(f"{count} {name}" for name, count in v.devices) for v in tight]
    reported = f" ({'; '.join(rows[:SHOWN])})" if rows else ""
    return f"{head}; at most {sets.available} {noun} with one {sets.attribute}{reported}"


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
        free = ", ".join(slot[len(stem) :] for slot in fragment.free_slots) or "none"
        state = "fragmented, not full" if fragment.fragmented else "used up"
        head = f"{kind} needs {stem.rstrip('-_') or 'counters'} {needs} of {fragment.counter_set} together"
        return f"{head}; free are {free} ({len(fragment.free_slots)} of {fragment.slots}): {state}{by}"
    state = "is used up" if fragment.available.nanos <= 0 else f"has {fragment.available} of {fragment.total} left"
    return f"{kind} needs {fragment.requested} of {fragment.counter_set}/{fragment.counter}, which {state}{by}"


def _by_users(users: Sequence[CounterUser]) -> str:
    by_holder: dict[str, list[str]] = {}
    for user in users:
        for holder in user.holders[:1]:
            whose = f"claim {holder.namespace}/{holder.claim} (request {holder.request})"
            by_holder.setdefault(whose, []).append(user.device.device)
    reported = [f"{listed(names)} of {whose}" for whose, names in by_holder.items()]
    return f"; in use by {listed(reported, 3)}" if reported else ""


def _stem(names: Sequence[str]) -> str:
    """What the names share before their numbers; "" if they are not numbered in the same way."""
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


def hints_lines(found: Hints) -> list[str]:
    """A line a hint, and how many more were not tried."""
    lines = [hint_text(hint) for hint in found.found]
    if found.untried:
        lines.append(f"{plural(found.untried, 'more change')} not tried: time limit reached")
    return lines


def hint_text(hint: Hint) -> str:
    """What to change, and what it was verified with."""
    return f"{_change(hint.change)}: {_verified(hint.verified)}"


def _verified(verified: Verified) -> str:
    names = [name.rpartition("/")[2] for name in verified.devices]
    return f"fits on {verified.node}" + (f" with {listed(names, 8)}" if names else "")


def _change(change: HintChange) -> str:
    match change:
        case Together(parts):
            return " and ".join(_change(part) for part in parts)
        case (
            hints.ChangeSelector()
            | hints.ChangeCount()
            | hints.ChangeCapacity()
            | hints.DropRequest()
            | hints.ChangeConstraint()
            | hints.DropConstraint()
            | hints.TolerateDeviceTaint()
            | hints.OtherClass()
        ):
            return _change_of_claim(change)
        case hints.MoveDevices() | hints.MovePod() | hints.RemovePods() | hints.RemoveClaim() | hints.AddNode():
            return _change_of_others(change)
        case hints.RemoveGates(gates):
            return f"once the scheduling gates {', '.join(gates)} are removed"
        case hints.WaitForPool(driver, pool, have, expected):
            return f"wait until pool {driver}/{pool} is complete ({have} of {expected} slices)"
        case hints.CorrectSliceCount(driver, pool, have, expected):
            return f"correct resourceSliceCount of pool {driver}/{pool}: {expected} is published, {have} would be right"
        case hints.WaitForPods(pods):
            return f"wait until {_pods(pods)}, being deleted, {'is' if len(pods) == 1 else 'are'} gone"
        case hints.TolerateNodeTaint(node, key, value, effect):
            return f"tolerate {_taint(key, value, effect)} of node {node}"
        case hints.ChangeResources(resource, before, after):
            return f"ask for {after} instead of {before} of {resource}"
        case hints.DropNodeSelector(node, wanted):
            return f"without the node selector (node {node} does not match {wanted})"
        case hints.Uncordon(node):
            return f"uncordon node {node}"
        case hints.ChangeClassSelector(class_name, selector, before, after):
            return f"device class {class_name}, selector {selector}: {_from_to(before, after)}"
        case _ as never:
            assert_never(never)


def _change_of_claim(change: _OfClaim) -> str:
    whose = f"template {change.template}" if change.template else f"claim {change.claim}"
    match change:
        case hints.ChangeSelector():
            what = f"request {change.request} of {whose}, selector {change.selector}"
            return f"{what}: {_from_to(change.before, change.after)}"
        case hints.ChangeCount():
            what = f"request {change.request} of {whose}"
            return f"{what}: ask for {change.after} instead of {change.before} devices"
        case hints.ChangeCapacity():
            amounts = f"{change.after} instead of {change.before} of {change.capacity}"
            return f"request {change.request} of {whose}: ask for {amounts}"
        case hints.DropRequest():
            return f"{whose} without request {change.request}"
        case hints.ChangeConstraint():
            return f"{whose}, constraint {change.constraint}: {change.after} instead of {change.attribute}"
        case hints.DropConstraint():
            return f"{whose} without constraint {change.constraint} on {change.attribute}"
        case hints.TolerateDeviceTaint():
            taints = ", ".join(_taint(taint.key, taint.value, taint.effect) for taint in change.taints)
            return f"request {change.request} of {whose}: tolerate {taints} of the device"
        case hints.OtherClass():
            return f"request {change.request} of {whose}: class {change.after} instead of {change.before}"
        case _ as never:
            assert_never(never)


def _change_of_others(change: _OfOthers) -> str:
    match change:
        case hints.MoveDevices():
            whose = f"pod {change.pod}" if change.pod else f"claim {change.held_claim}"
            moves = ", ".join(_move(move) for move in change.moves)
            return f"would fit if {whose} were restarted on node {change.node} with other devices ({moves})"
        case hints.MovePod():
            return f"would fit if {_pods(change.pods)} were moved to {change.to_node}"
        case hints.RemovePods():
            note = "; preemption for DRA devices is off" if change.for_devices else ""
            return f"would fit if {_pods(change.pods)} were removed{note}"
        case hints.RemoveClaim():
            held = listed(change.devices)
            return f"would fit if claim {', '.join(change.claims)} were removed (it holds {held})"
        case hints.AddNode():
            return f"add one node like {change.shape}"
        case _ as never:
            assert_never(never)


def _from_to(before: str, after: str) -> str:
    return f"{after}   instead of   {before}" if after else f"leave out {before}"


def _pods(pods: Iterable[PodPriority]) -> str:
    return ", ".join(f"{pod.pod} (priority {pod.priority})" for pod in pods)


def _taint(key: str, value: str, effect: str) -> str:
    return f"{key}={value}:{effect}" if value else f"{key}:{effect}"


def _move(move: DeviceMove) -> str:
    name = "extended resources" if move.claim == SPECIAL_NAME else move.claim
    if move.request != move.to_request:
        return f"{name}: {move.after} for {move.to_request} instead of {move.before} for {move.request}"
    return f"{name}: {move.before} to {move.after}"
