"""What of these claims cannot be met together on this node, and what comes nearest?

An irreducible contradiction: requests and constraints of which each is needed for the "no", found by leaving out
one after the other. Beside it what counting tells: sets of devices with one value of an attribute, attributes that a
driver does not publish, counters that are fragmented. Bounded by the caller's deadline; never makes sentences.
"""

from __future__ import annotations

import difflib
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from itertools import count
from typing import TypeAlias

import msgspec

from dragoman.allocate import refusal
from dragoman.allocate.allocator import (
    AllocatorOptions,
    Ask,
    DeviceInspection,
    RequestInspection,
    SearchLimits,
    allocate,
    inspect_claims,
)
from dragoman.allocate.refusal import FilterStep, Refusal, Refusals
from dragoman.api.resource import DeviceConstraint, ResourceClaim
from dragoman.snapshot.change import Snapshot, keys_of
from dragoman.snapshot.usage import DeviceId, Holder
from dragoman.values.names import split_qualified
from dragoman.values.quantity import Quantity

Expired: TypeAlias = Callable[[], bool]
"""True once the time is used up; who calls the core reads the clock."""

STEPS = 5_000
"""Of the search for each subset that is tried."""
ELEMENTS_MAX = 96
NEAR_MAX = 5
VALUES_MAX = 16
PROFILE_MAX = 2

_MISMATCHED = frozenset({FilterStep.SELECTOR, FilterStep.LACKING, FilterStep.GATED})
_ORDER: tuple[FilterStep | None, ...] = (*FilterStep, None)


class ConflictRequest(msgspec.Struct, frozen=True):
    """A request of the contradiction. wanted 0: all. matching, usable: devices of the node."""

    claim: str
    request: str
    class_name: str
    requested: int
    matching: int
    available: int


class ConflictConstraint(msgspec.Struct, frozen=True):
    """A constraint of the contradiction."""

    claim: str
    index: int
    kind: str
    attribute: str
    requests: tuple[str, ...]


class SetPart(msgspec.Struct, frozen=True):
    """What each set needs of a class, and how many devices of it are usable."""

    class_name: str
    count: int
    available: int


class AtValue(msgspec.Struct, frozen=True):
    """How many devices of each class have one value, and how many sets they make."""

    value: str
    devices: tuple[tuple[str, int], ...]
    sets: int


class RequestSets(msgspec.Struct, frozen=True):
    """Equal sets of requests, each within one value of an attribute: `wanted` of them, at most `most` possible."""

    attribute: str
    requested: int
    available: int
    parts: tuple[SetPart, ...]
    values: tuple[AtValue, ...]


class Unpublished(msgspec.Struct, frozen=True):
    """A constraint's attribute that devices of a request do not have. near: what they publish instead, full names."""

    claim: str
    index: int
    kind: str
    attribute: str
    request: str
    class_name: str
    drivers: tuple[str, ...]
    matching: int
    publishing: int
    near: tuple[str, ...]
    others: tuple[tuple[str, int], ...]


class CounterUser(msgspec.Struct, frozen=True):
    """A held device that draws on a counter set."""

    device: DeviceId
    counters: tuple[str, ...]
    holders: tuple[Holder, ...]


class Fragment(msgspec.Struct, frozen=True):
    """A counter set on which devices of a request cannot draw enough.

    needs: for each device the counters it must have whole (slots), where there are some; free_slots and slots: which of
    them are free, and how many there are. available and requested: amounts of the counter that is short, if it is no
    slot. fragmented: enough is available in total, but not together.
    """

    claim: str
    request: str
    driver: str
    pool: str
    counter_set: str
    profile: tuple[tuple[str, str], ...]
    devices: tuple[str, ...]
    needs: tuple[tuple[str, ...], ...]
    free_slots: tuple[str, ...]
    slots: int
    counter: str
    available: Quantity
    requested: Quantity
    total: Quantity
    fragmented: bool
    users: tuple[CounterUser, ...]


class Nearest(msgspec.Struct, frozen=True):
    """The device that fails latest, and why it does."""

    node: str
    request: str
    device: DeviceId
    reason: Refusal


class Conflict(msgspec.Struct, frozen=True):
    """Why claims cannot be met on a node. minimal: leaving out any part or constraint would make it possible.

    reasons: the decisive ones for exactly these parts. tried: subsets that were tried.
    """

    node: str
    parts: tuple[ConflictRequest, ...]
    constraints: tuple[ConflictConstraint, ...]
    reasons: tuple[Refusal, ...]
    minimal: bool
    tried: int
    sets: tuple[RequestSets, ...] = ()
    unpublished: tuple[Unpublished, ...] = ()
    fragments: tuple[Fragment, ...] = ()
    nearest: Nearest | None = None


def conflict_on(
    snapshot: Snapshot,
    claims: Sequence[ResourceClaim],
    node: str,
    options: AllocatorOptions,
    diagnosis: Sequence[Refusal],
    over: Expired,
) -> Conflict | None:
    """The contradiction on one node; None if the claims cannot be read or fit there. diagnosis: the facts of the
    node."""
    seen = inspect_claims(snapshot, Ask(tuple(claims), node), options)
    if isinstance(seen, Refusals):
        return None
    trial = _Trial(snapshot, claims, node, options, over)
    reasons = trial.reasons(trial.elements)
    if reasons is None:
        return None
    kept, reasons, minimal = trial.minimise(reasons)
    return Conflict(
        node,
        tuple(_part(found) for found in seen if (found.claim, found.parent) in _requests(kept)),
        tuple(_constrained(trial, entry) for entry in kept if entry[0] == "constraint"),
        reasons,
        minimal,
        trial.tried,
        tuple(_sets(trial, seen)),
        tuple(_unpublished(trial, seen)),
        tuple(_fragments(snapshot, seen)),
        _nearest(seen, diagnosis, node),
    )


# ---- the irreducible part

_Element: TypeAlias = tuple[str, str, str | int]
"""("request", claim key, name) or ("constraint", claim key, index)."""


class _Trial:
    """Tries subsets of the requests and constraints."""

    def __init__(
        self, snapshot: Snapshot, claims: Sequence[ResourceClaim], node: str, options: AllocatorOptions, over: Expired
    ) -> None:
        self.snapshot = snapshot
        self.node = node
        self.over = over
        self.options = msgspec.structs.replace(options, limits=SearchLimits(STEPS))
        self.claims = {_key(claim): claim for claim in claims}
        self.tried = 0
        self.elements: list[_Element] = []
        for key, claim in self.claims.items():
            self.elements += [("constraint", key, i) for i in range(len(claim.spec.devices.constraints))]
        for key, claim in self.claims.items():
            self.elements += [("request", key, request.name) for request in claim.spec.devices.requests]

    def reasons(self, kept: Iterable[_Element]) -> tuple[Refusal, ...] | None:
        """Why these elements alone cannot be met; None if they can, or nobody knows."""
        self.tried += 1
        claims = tuple(self._reduced(kept))
        if not claims:
            return None
        ids = map("trial-{}".format, count())
        outcome = allocate(self.snapshot, [Ask(claims, self.node)], self.options, share_id=lambda: next(ids))
        return outcome.reasons if isinstance(outcome, Refusals) else None

    def minimise(self, reasons: tuple[Refusal, ...]) -> tuple[list[_Element], tuple[Refusal, ...], bool]:
        """An irreducible subset, its reasons, and whether it was proved to be one within time."""
        kept = list(self.elements)
        for guess in self._guesses(reasons):
            if len(guess) < len(kept) and not self.over():
                found = self.reasons(guess)
                if found is not None:
                    kept, reasons = guess, found
        for element in list(kept):
            if self.over() or len(kept) > ELEMENTS_MAX:
                return kept, reasons, False
            rest = [other for other in kept if other != element]
            found = self.reasons(rest)
            if found is not None:
                kept, reasons = rest, found
        return kept, reasons, True

    def _guesses(self, reasons: Sequence[Refusal]) -> Iterable[list[_Element]]:
        yield [element for element in self.elements if element[0] == "request"]
        named = _named(reasons)
        if named:
            yield [element for element in self.elements if element in named]

    def _reduced(self, kept: Iterable[_Element]) -> Iterable[ResourceClaim]:
        wanted = set(kept)
        for key, claim in self.claims.items():
            devices = claim.spec.devices
            requests = tuple(request for request in devices.requests if ("request", key, request.name) in wanted)
            if not requests:
                continue
            names = {request.name for request in requests}
            constraints = tuple(
                fewer
                for index, constraint in enumerate(devices.constraints)
                if ("constraint", key, index) in wanted and (fewer := _over(constraint, names)) is not None
            )
            spec = msgspec.structs.replace(
                claim.spec,
                devices=msgspec.structs.replace(devices, requests=requests, constraints=constraints, config=()),
            )
            yield msgspec.structs.replace(claim, spec=spec)


def _over(constraint: DeviceConstraint, names: set[str]) -> DeviceConstraint | None:
    if not constraint.requests:
        return constraint
    left = tuple(name for name in constraint.requests if name.partition("/")[0] in names)
    return msgspec.structs.replace(constraint, requests=left) if left else None


def _named(reasons: Sequence[Refusal]) -> set[_Element]:
    """What the first reasons speak of."""
    found: set[_Element] = set()
    for reason in reasons[:1]:
        match reason:
            case refusal.RequestsContended():
                found |= {("request", claim, name.partition("/")[0]) for claim, name in reason.requests}
            case refusal.ConstraintUnsatisfied():
                found.add(("constraint", reason.claim, reason.index))
                found |= {("request", reason.claim, name.partition("/")[0]) for name in reason.requests}
            case refusal.InsufficientDevices() | refusal.SelectorError() | refusal.AllModeConstraintUnsatisfied():
                found.add(("request", reason.claim, reason.request.partition("/")[0]))
    return found


def _key(claim: ResourceClaim) -> str:
    meta = claim.metadata
    return f"{meta.namespace}/{meta.name}" if meta.namespace else meta.name


def _requests(kept: Iterable[_Element]) -> set[tuple[str, str]]:
    return {(key, str(name)) for kind, key, name in kept if kind == "request"}


def _part(found: RequestInspection) -> ConflictRequest:
    return ConflictRequest(
        found.claim, found.request, found.class_name, found.wanted, len(_matching(found)), len(found.usable)
    )


def _matching(found: RequestInspection) -> list[DeviceInspection]:
    return [device for device in found.devices if device.step not in _MISMATCHED]


def _constrained(trial: _Trial, entry: _Element) -> ConflictConstraint:
    _, key, index = entry
    constraint = trial.claims[key].spec.devices.constraints[int(index)]
    kind = "match" if constraint.match_attribute else "distinct"
    return ConflictConstraint(key, int(index), kind, _attribute(constraint), constraint.requests)


def _attribute(constraint: DeviceConstraint) -> str:
    return constraint.match_attribute or constraint.distinct_attribute or ""


# ---- sets within one value


def _sets(trial: _Trial, seen: Sequence[RequestInspection]) -> Iterable[RequestSets]:
    """Equal sets of requests (GPU and NIC under one root), where counting by value shows too few."""
    for key, claim in trial.claims.items():
        by_parent = {found.parent: found for found in seen if found.claim == key and found.request == found.parent}
        groups: dict[tuple[str, tuple[tuple[str, int], ...]], list[list[RequestInspection]]] = {}
        for constraint in claim.spec.devices.constraints:
            names = constraint.requests or tuple(by_parent)
            members = [by_parent[name] for name in names if name in by_parent and by_parent[name].wanted]
            if constraint.match_attribute and len(members) == len(names) and len(names) > 1:
                groups.setdefault((constraint.match_attribute, _needs(members)), []).append(members)
        for (attribute, needs), sets in groups.items():
            found = _count_sets(attribute, needs, sets)
            if found.available < found.requested:
                yield found


def _needs(members: Sequence[RequestInspection]) -> tuple[tuple[str, int], ...]:
    needs: Counter[str] = Counter()
    for member in members:
        needs[member.class_name] += member.wanted
    return tuple(needs.items())


def _count_sets(
    attribute: str, needs: tuple[tuple[str, int], ...], sets: Sequence[Sequence[RequestInspection]]
) -> RequestSets:
    have: dict[str, Counter[str]] = {name: Counter() for name, _ in needs}
    usable: dict[str, set[DeviceId]] = {name: set() for name, _ in needs}
    for member in (member for members in sets for member in members):
        for device in member.usable:
            value = device.values.get(attribute)
            if device.id not in usable[member.class_name]:
                usable[member.class_name].add(device.id)
                if value is not None:
                    have[member.class_name][value] += 1
    values = sorted({value for counts in have.values() for value in counts})
    rows = [
        AtValue(
            value,
            tuple((name, have[name][value]) for name, _ in needs),
            min(have[name][value] // each for name, each in needs),
        )
        for value in values
    ]
    rows.sort(key=lambda row: (_balanced(row, needs), row.value))
    parts = tuple(SetPart(name, each, len(usable[name])) for name, each in needs)
    return RequestSets(attribute, len(sets), sum(row.sets for row in rows), parts, tuple(rows[:VALUES_MAX]))


def _balanced(row: AtValue, needs: tuple[tuple[str, int], ...]) -> bool:
    each = dict(needs)
    return len({count // each[name] for name, count in row.devices}) == 1


# ---- attributes that are not there


def _unpublished(trial: _Trial, seen: Sequence[RequestInspection]) -> Iterable[Unpublished]:
    for key, claim in trial.claims.items():
        inspected = [found for found in seen if found.claim == key]
        for index, constraint in enumerate(claim.spec.devices.constraints):
            attribute = _attribute(constraint)
            kind = "match" if constraint.match_attribute else "distinct"
            spanned = [found for found in inspected if index in found.constraints]
            for found in spanned:
                matching = _matching(found)
                publishing = sum(device.values.get(attribute) is not None for device in matching)
                if matching and publishing < max(found.wanted, 1):
                    yield Unpublished(
                        key,
                        index,
                        kind,
                        attribute,
                        found.request,
                        found.class_name,
                        tuple(dict.fromkeys(device.id.driver for device in matching)),
                        len(matching),
                        publishing,
                        _near(attribute, matching),
                        tuple((other.class_name, len(_matching(other))) for other in spanned if other is not found),
                    )


def _near(attribute: str, devices: Sequence[DeviceInspection]) -> tuple[str, ...]:
    """Attributes that the devices publish, those with a similar name first or alone."""
    names = dict.fromkeys(
        "/".join(split_qualified(name, device.id.driver)) for device in devices for name in device.device.attributes
    )
    last = attribute.rpartition("/")[2].lower()
    near = [name for name in names if _similar(name.rpartition("/")[2].lower(), last)]
    return tuple((near or list(names))[:NEAR_MAX])


def _similar(one: str, other: str) -> bool:
    return one in other or other in one or difflib.SequenceMatcher(None, one, other).ratio() >= 0.6


# ---- counters


def _fragments(snapshot: Snapshot, seen: Sequence[RequestInspection]) -> Iterable[Fragment]:
    for found in seen:
        short = [device for device in found.devices if device.step is FilterStep.COUNTERS]
        if not short or len(found.usable) >= max(found.wanted, 1):
            continue
        groups: dict[tuple[str, str, str], list[DeviceInspection]] = {}
        for device in short:
            sets = dict.fromkeys(entry[0] for entry in device.counters)
            for name in sets:
                groups.setdefault((device.id.driver, device.id.pool, name), []).append(device)
        for (driver, pool, name), devices in groups.items():
            yield _fragment(snapshot, found, driver, pool, name, devices)


def _fragment(
    snapshot: Snapshot, found: RequestInspection, driver: str, pool: str, name: str, devices: Sequence[DeviceInspection]
) -> Fragment:
    slots: dict[str, bool] = {}
    needs: list[tuple[str, ...]] = []
    worst = ("", 0, 0, 0)
    for device in devices:
        mine = [entry for entry in device.counters if entry[0] == name]
        whole = [(counter, left >= drawn) for _, counter, drawn, left, total in mine if drawn and drawn == total]
        slots.update(whole)
        needs.append(tuple(counter for counter, _ in whole))
        for _, counter, drawn, left, total in mine:
            if left < drawn and (not worst[0] or drawn < worst[2]):
                worst = (counter, left, drawn, total)
    free = tuple(slot for slot, is_free in slots.items() if is_free)
    slotted = [need for need in needs if len(need) > 1]
    fragmented = bool(slotted) and len(free) >= min(len(need) for need in slotted)
    counter, left, needed, total = worst
    return Fragment(
        found.claim,
        found.request,
        driver,
        pool,
        name,
        _profile(devices, found.devices),
        tuple(device.id.device for device in devices),
        tuple(dict.fromkeys(slotted)),
        tuple(sorted(free, key=_numbered)) if slotted else (),
        len(set(slots) | _all_slots(snapshot, driver, pool, name)) if slotted else 0,
        counter,
        Quantity(left),
        Quantity(needed),
        Quantity(total),
        fragmented,
        tuple(_users(snapshot, driver, pool, name)),
    )


def _profile(devices: Sequence[DeviceInspection], others: Sequence[DeviceInspection]) -> tuple[tuple[str, str], ...]:
    """Text attributes that set these devices apart from the others: what people call the partition."""
    return tuple(
        (name, attribute.string)
        for name, attribute in sorted(devices[0].device.attributes.items())
        if attribute.string is not None
        and all(device.device.attributes.get(name) == attribute for device in devices)
        and any(other.device.attributes.get(name) not in (None, attribute) for other in others)
    )[:PROFILE_MAX]


def _all_slots(snapshot: Snapshot, driver: str, pool: str, name: str) -> set[str]:
    """Counters of the set that some device draws whole."""
    return {
        counter
        for resource_slice in keys_of(snapshot.slices_by_pool, (driver, pool))
        for group in snapshot.slices[resource_slice].spec.shared_counters
        if group.name == name
        for counter, amount in group.counters.items()
        if amount.value == Quantity.of(1)
    }


def _users(snapshot: Snapshot, driver: str, pool: str, name: str) -> Iterable[CounterUser]:
    for resource_slice in keys_of(snapshot.slices_by_pool, (driver, pool)):
        for device in snapshot.slices[resource_slice].spec.devices:
            held = snapshot.holders.get(DeviceId(driver, pool, device.name))
            drawn = next((use for use in device.consumes_counters if use.counter_set == name), None)
            if held and drawn is not None:
                yield CounterUser(DeviceId(driver, pool, device.name), tuple(drawn.counters), held)


def _numbered(name: str) -> tuple[str, int]:
    head = name.rstrip("0123456789")
    return head, int(name[len(head) :] or 0)


# ---- the nearest miss


def _nearest(seen: Sequence[RequestInspection], diagnosis: Sequence[Refusal], node: str) -> Nearest | None:
    """Among the devices that a request cannot use, the one that passes most steps; its reason is in the diagnosis."""
    best: tuple[int, RequestInspection, DeviceInspection] | None = None
    for found in seen:
        if len(found.usable) >= max(found.wanted, 1):
            continue
        for device in found.devices:
            rank = _ORDER.index(device.step)
            if device.step and (best is None or rank > best[0]):
                best = (rank, found, device)
    if best is None:
        return None
    _, found, device = best
    for fact in diagnosis:
        if getattr(fact, "device", None) == device.id and getattr(fact, "request", "") == found.request:
            return Nearest(node, found.request, device.id, fact)
    return None
