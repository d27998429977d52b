"""Can the remaining requests be met at all? Counting arguments that answer "certainly not" without a search.

Each is a relaxation: it forgets some rules, so that its no is certain and its yes means nothing. Per request, and
over all of them: devices (a flow from requests to groups of devices, groups limited by their counters, shareable
devices by their capacity), values of a distinct attribute, values of a match attribute, equal sets of requests that
each need one value, and sums of counters and capacities. Never chooses a device.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict, deque
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import msgspec

from dragoman.allocate import constraint
from dragoman.allocate.candidates import Candidate, RequestCandidates
from dragoman.allocate.constraint import ValueSet
from dragoman.allocate.device_state import DeviceState
from dragoman.allocate.ledger import Ledger
from dragoman.snapshot.usage import DeviceId

if TYPE_CHECKING:
    from dragoman.allocate.search import SearchRequest

PLENTY = 1 << 30
SUMS_MAX = 4096
"""Units of a device for which sums of parts are worth their time."""

WHOLE = 1_000_000
"""A device, where fractions of it count."""

RequestCells: TypeAlias = "Mapping[frozenset[int], tuple[int, int]]"
"""Requests that can use the devices -> how many of them there are for these (shares count each), and how many of them
one request can use."""

Shortage: TypeAlias = tuple[tuple[int, ...], int, int]
"""Requests, how many devices they need and how many there are."""


class Scarce(NamedTuple):
    """These requests (indexes) together need more devices than there are for them."""

    requests: tuple[int, ...]
    wanted: int
    have: int


class UnsatisfiedConstraint(NamedTuple):
    """No value of a constraint's attribute will do. values: (value as text, usable devices that have it)."""

    claim: int
    constraint: int
    requests: tuple[int, ...]
    wanted: int
    values: tuple[tuple[str, int], ...]


Infeasibility: TypeAlias = Scarce | UnsatisfiedConstraint


class _Left(NamedTuple):
    """The remaining requests in one state: what each needs at least, and which groups can serve it now.

    apart: requests that take no part in the competition for devices: with admin access, or for all devices of
    theirs, which are taken off beforehand.
    """

    need: dict[int, int]
    usable: dict[int, dict[int, Candidate]]
    apart: set[int]
    free: dict[int, int]
    ledger: Ledger


class Bounds:
    """Bounds for the requests of one search."""

    def __init__(self, requests: Sequence[SearchRequest]) -> None:
        self.requests = requests
        self.members: dict[int, list[DeviceState]] = {}
        self.equivalents: dict[DeviceId, int] = {}
        for request in requests:
            for alternative in request.alternatives:
                for candidate in alternative.candidates:
                    if candidate.device_state.id not in self.equivalents:
                        self.equivalents[candidate.device_state.id] = candidate.equivalent
                        self.members.setdefault(candidate.equivalent, []).append(candidate.device_state)
        self.groups: list[list[list[Candidate]]] = [[_one_a_group(v) for v in r.alternatives] for r in requests]

    def cause(self, index: int, ledger: Ledger) -> Infeasibility | None:
        """Why the requests from index on cannot be met in this state; None if that is not known."""
        left = self._left(index, ledger)
        if isinstance(left, Scarce):
            return left
        return self._devices(left) or self._constraints(left) or self._sums(left)

    def _left(self, index: int, ledger: Ledger) -> _Left | Scarce:
        touched = Counter(
            self.equivalents[device] for device in (*ledger.whole, *ledger.used) if device in self.equivalents
        )
        free = {group: len(device_states) - touched[group] for group, device_states in self.members.items()}
        left = _Left({}, {}, set(), free, ledger)
        for number in range(index, len(self.requests)):
            request = self.requests[number]
            admin = request.alternatives[0].request_plan.admin
            if admin:
                left.apart.add(number)
            elif request.alternatives[0].every and len(request.alternatives) == 1:
                left.apart.add(number)
                for candidate in request.alternatives[0].candidates:
                    if not candidate.device_state.multi:
                        free[candidate.equivalent] -= 1
                        if free[candidate.equivalent] < 0:
                            return Scarce((number,), request.least, 0)
            alive = []
            for alternative, groups in zip(request.alternatives, self.groups[number], strict=True):
                apart = number in left.apart
                usable = {c.equivalent: c for c in groups if self._fits(c, request.claim, left, apart=apart)}
                some = sum(
                    len(self.members[g]) if c.device_state.multi or apart else free[g] for g, c in usable.items()
                )
                if some >= max(alternative.count, 1):
                    alive.append((alternative.count, usable))
            if not alive:
                return Scarce((number,), request.least, 0)
            left.need[number] = min(count for count, _ in alive)
            left.usable[number] = {g: c for _, usable in alive for g, c in usable.items()}
        return left

    def _fits(self, candidate: Candidate, claim: int, left: _Left, *, apart: bool) -> bool:
        """Whether some device of the group can be taken now."""
        ledger, device_state = left.ledger, candidate.device_state
        if candidate.failure is not None:
            return False
        for index, kind, token in candidate.joins:
            state = ledger.states.get((claim, index))
            if constraint.joined(kind, state, token, lists=ledger.lists) is None:
                return False
        if device_state.multi or apart:
            return True
        return left.free[candidate.equivalent] > 0 and ledger.counters_allow(device_state)

    # ---- devices

    def _devices(self, left: _Left) -> Scarce | None:
        short = self._short(left, left.need, left.usable) or self._all_together(left)
        return None if short is None else Scarce(*short)

    def _all_together(self, left: _Left) -> Shortage | None:
        """All remaining requests, in fractions of devices, against what the counters of each pool allow in total."""
        numbers = [number for number in left.need if number not in left.apart]
        groups = {group: candidate for number in numbers for group, candidate in left.usable[number].items()}
        pools: dict[Any, list[Candidate]] = defaultdict(list)
        have = 0
        for group, candidate in groups.items():
            if candidate.device_state.multi:
                have += sum(_budget(left, device_state) for device_state in self.members[group])
            else:
                pools[candidate.device_state.id[:2]].append(candidate)
        have += sum(WHOLE * _fitting(left, candidates) for candidates in pools.values())
        wanted = sum(left.need[n] * min(_fraction(c) for c in left.usable[n].values()) for n in numbers)
        if wanted <= have:
            return None
        devices = sum(left.need[number] for number in numbers)
        return tuple(numbers), devices, devices * have // wanted

    def _short(
        self, left: _Left, need: Mapping[int, int], usable: Mapping[int, Mapping[int, Candidate]]
    ) -> Shortage | None:
        """Requests that together need more than they can use; those apart each on its own."""
        for number in left.apart.intersection(need):
            have = sum(len(self.members[group]) for group in usable[number])
            if have < need[number]:
                return (number,), need[number], have
        rest = {number: count for number, count in need.items() if number not in left.apart}
        return _shortage(rest, self._cells(left, usable))

    def _cells(self, left: _Left, usable: Mapping[int, Mapping[int, Candidate]]) -> RequestCells:
        """Devices by the requests that can use them, counters and capacities limiting how many of them."""
        users: dict[int, list[int]] = defaultdict(list)
        for number, groups in usable.items():
            for group in groups if number not in left.apart else ():
                users[group].append(number)
        cells: Counter[frozenset[int]] = Counter()
        devices: Counter[frozenset[int]] = Counter()
        drawing: dict[tuple[frozenset[int], Any], list[Candidate]] = defaultdict(list)
        for group, numbers in users.items():
            key = frozenset(numbers)
            candidate = usable[numbers[0]][group]
            device_state = candidate.device_state
            devices[key] += len(self.members[group]) if device_state.multi else left.free[group]
            if device_state.multi:
                cells[key] += self._shares(left, group, [usable[n][group] for n in numbers])
            elif device_state.uses:
                drawing[key, tuple(use.key for use in device_state.uses)].append(candidate)
            else:
                cells[key] += left.free[group]
        for (key, _), candidates in drawing.items():
            cells[key] += _fitting(left, candidates)
        return {key: (spare, devices[key]) for key, spare in cells.items()}

    def _shares(self, left: _Left, group: int, users: list[Candidate]) -> int:
        """How many of the smallest shares that are asked for fit on the devices of a group."""
        least = tuple(min(amounts) for amounts in zip(*(user.amounts for user in users), strict=True))
        if not any(least):
            return PLENTY
        total = 0
        for device_state in self.members[group]:
            used = left.ledger.used.get(device_state.id)
            gone = used[1] if used is not None else (0,) * len(least)
            total += min(
                max(have - drawn, 0) // amount
                for have, drawn, amount in zip(device_state.left.values(), gone, least, strict=True)
                if amount
            )
        return total

    # ---- constraints

    def _constraints(self, left: _Left) -> Infeasibility | None:
        spans: dict[tuple[int, int], list[int]] = defaultdict(list)
        for number in left.need:
            alternatives = self.requests[number].alternatives
            for index in alternatives[0].request_plan.constraints:
                if all(index in alternative.request_plan.constraints for alternative in alternatives):
                    spans[self.requests[number].claim, index].append(number)
        sets: dict[Any, list[tuple[tuple[int, int], list[int]]]] = defaultdict(list)
        for (claim, index), numbers in spans.items():
            values = _values(left, numbers, index)
            kind = next((kind for kind, _ in values.values()), "")
            found: Infeasibility | None = (
                self._distinct(left, claim, index, numbers)
                if kind == "distinct"
                else self._match(left, claim, index, numbers)
            )
            if found is not None:
                return found
            if kind == "match":
                state_key = tuple(sorted((left.need[n], _choice_key(left, n, index)) for n in numbers))
                state = left.ledger.states.get((claim, index))
                sets[state_key, state].append(((claim, index), numbers))
        for equivalent in sets.values():
            found = self._equivalent_sets(left, _disjoint(equivalent))
            if found is not None:
                return found
        return None

    def _distinct(self, left: _Left, claim: int, index: int, numbers: list[int]) -> UnsatisfiedConstraint | None:
        """Each device needs a value of its own."""
        users: dict[ValueSet, set[int]] = defaultdict(set)
        devices: Counter[ValueSet] = Counter()
        for number in numbers:
            for group, candidate in left.usable[number].items():
                token = _token(candidate, index)
                if number not in users[token]:
                    users[token].add(number)
                devices[token] += left.free[group] if not candidate.device_state.multi else len(self.members[group])
        values: Counter[frozenset[int]] = Counter(frozenset(found) for found in users.values())
        cells = {key: (spare, spare) for key, spare in values.items()}
        need = {number: left.need[number] for number in numbers}
        if _shortage(need, cells) is None:
            return None
        return UnsatisfiedConstraint(claim, index, tuple(numbers), sum(need.values()), _reported(devices))

    def _match(self, left: _Left, claim: int, index: int, numbers: list[int]) -> UnsatisfiedConstraint | None:
        """Some value must serve all requests that the constraint spans."""
        by_value = self._by_value(left, numbers, index)
        need = {number: left.need[number] for number in numbers}
        wanted = sum(need.values())
        counts: Counter[ValueSet] = Counter()
        for value, usable in by_value.items():
            if self._short(left, need, usable) is None:
                return None
            devices = {g: c for groups in usable.values() for g, c in groups.items()}
            counts[frozenset((value,))] = sum(
                left.free[g] if not c.device_state.multi else 1 for g, c in devices.items()
            )
        if wanted == 1 and any(not _token(c, index) for n in numbers for c in left.usable[n].values()):
            return None
        return UnsatisfiedConstraint(claim, index, tuple(numbers), wanted, _reported(counts))

    def _by_value(
        self, left: _Left, numbers: Iterable[int], index: int
    ) -> dict[tuple[str, int | bool | str], dict[int, dict[int, Candidate]]]:
        """For each value: what each request can use that has it. Values that some request cannot use are left out."""
        numbers = list(numbers)
        found: dict[Any, dict[int, dict[int, Candidate]]] = {}
        for number in numbers:
            for group, candidate in left.usable[number].items():
                for value in _token(candidate, index):
                    found.setdefault(value, {}).setdefault(number, {})[group] = candidate
        state = left.ledger.states.get((self.requests[numbers[0]].claim, index))
        return {
            value: usable
            for value, usable in found.items()
            if len(usable) == len(numbers) and (state is None or value in state)
        }

    def _equivalent_sets(self, left: _Left, equivalent: list[tuple[tuple[int, int], list[int]]]) -> Scarce | None:
        """Equal sets of requests, each within one value: how many can each value serve?"""
        if len(equivalent) < 2 or not left.apart.isdisjoint(equivalent[0][1]):
            return None
        (_, index), numbers = equivalent[0]
        size = sum(left.need[number] for number in numbers)
        spare = 0
        for usable in self._by_value(left, numbers, index).values():
            cells = self._cells(left, usable)
            times = 0
            while times < len(equivalent) - spare:
                need = {number: left.need[number] * (times + 1) for number in numbers}
                if _shortage(need, cells) is not None:
                    break
                times += 1
            spare += times
            if spare >= len(equivalent):
                return None
        if size == 1 and any(not _token(c, index) for n in numbers for c in left.usable[n].values()):
            return None
        requests = tuple(number for _, numbers in equivalent for number in numbers)
        return Scarce(requests, size * len(equivalent), size * spare)

    # ---- sums

    def _sums(self, left: _Left) -> Scarce | None:
        """What all requests draw at least, against what is left in total, by name of counter or capacity."""
        wanted: dict[Any, list[tuple[int, int]]] = defaultdict(list)
        have: dict[Any, dict[Any, int]] = defaultdict(dict)
        for number, usable in left.usable.items():
            if number in left.apart:
                continue
            least: dict[Any, int] | None = None
            for group, candidate in usable.items():
                draws = self._draws(left, group, candidate, have)
                least = (
                    draws
                    if least is None
                    else {key: min(amount, draws[key]) for key, amount in least.items() if key in draws}
                )
            for key, amount in (least or {}).items():
                if amount > 0:
                    wanted[key].append((number, amount * left.need[number]))
        parts = _parts(left)
        for key, draws_of in wanted.items():
            total, limit = sum(amount for _, amount in draws_of), _filled(have[key].values(), parts.get(key))
            if total > limit:
                numbers = tuple(number for number, _ in draws_of)
                devices = sum(left.need[number] for number in numbers)
                return Scarce(numbers, devices, devices * limit // total)
        return None

    def _draws(self, left: _Left, group: int, candidate: Candidate, have: dict[Any, dict[Any, int]]) -> dict[Any, int]:
        """What a device of the group draws, by name; notes what is left of it."""
        device_state, ledger = candidate.device_state, left.ledger
        draws: dict[Any, int] = {}
        if device_state.multi:
            for position, (name, amount) in enumerate(zip(device_state.left, candidate.amounts, strict=True)):
                draws["capacity", device_state.driver, name] = amount
                for member in self.members[group]:
                    used = ledger.used.get(member.id)
                    gone = used[1][position] if used is not None else 0
                    have["capacity", device_state.driver, name][member.id] = max(member.left[name] - gone, 0)
            return draws
        for use in device_state.uses:
            for name, amount in use.amounts:
                key = ("counter", device_state.driver, name)
                draws[key] = draws.get(key, 0) + amount
                have[key][use.key] = max(ledger.counter_left(device_state, use.key, name), 0)
        return draws


def _parts(left: _Left) -> dict[Any, list[set[int]]]:
    """The amounts of each capacity that a request may take of one device, request by request."""
    parts: dict[Any, list[set[int]]] = defaultdict(list)
    for number, usable in left.usable.items():
        if number in left.apart:
            continue
        amounts: dict[Any, set[int]] = defaultdict(set)
        for candidate in usable.values():
            if candidate.device_state.multi:
                for name, amount in zip(candidate.device_state.left, candidate.amounts, strict=True):
                    amounts["capacity", candidate.device_state.driver, name].add(amount)
        for key, some in amounts.items():
            parts[key].append(some)
    return parts


def _filled(free_amounts: Iterable[int], parts: list[set[int]] | None) -> int:
    """How much of these rooms can be used at most, where each part is one of some amounts: what no sum of parts
    comes to stays empty."""
    free_amounts = list(free_amounts)
    if parts is None:
        return sum(free_amounts)
    unit = math.gcd(*(amount for some in parts for amount in some))
    most = max(free_amounts, default=0) // unit if unit else 0
    if not unit or most > SUMS_MAX:
        return sum(free_amounts)
    within = (1 << (most + 1)) - 1
    sums = 1  # bit n: n units can be filled
    for some in parts:
        before = sums
        for amount in some:
            sums |= before << (amount // unit) & within
    return sum(((sums & ((1 << (spare // unit + 1)) - 1)).bit_length() - 1) * unit for spare in free_amounts)


def _one_a_group(alternative: RequestCandidates) -> list[Candidate]:
    found: dict[int, Candidate] = {}
    for candidate in alternative.candidates:
        found.setdefault(candidate.equivalent, candidate)
    return list(found.values())


def _disjoint(sets: list[tuple[tuple[int, int], list[int]]]) -> list[tuple[tuple[int, int], list[int]]]:
    """Leaves out sets that share a request with an earlier one (several constraints on the same requests)."""
    drawn: set[int] = set()
    found = []
    for key, numbers in sets:
        if drawn.isdisjoint(numbers):
            drawn.update(numbers)
            found.append((key, numbers))
    return found


def _token(candidate: Candidate, index: int) -> ValueSet:
    return next((token for number, _, token in candidate.joins if number == index), constraint.ODD)


def _values(left: _Left, numbers: Iterable[int], index: int) -> dict[int, tuple[str, ValueSet]]:
    """Kind and value of the first device that the constraint concerns."""
    for number in numbers:
        for group, candidate in left.usable[number].items():
            for position, kind, token in candidate.joins:
                if position == index:
                    return {group: (kind, token)}
    return {}


def _choice_key(left: _Left, number: int, index: int) -> tuple[Any, ...]:
    """What distinguishes a request's choice under a constraint."""
    return tuple(sorted((group, str(sorted(_token(c, index)))) for group, c in left.usable[number].items()))


def _reported(counts: Mapping[ValueSet, int]) -> tuple[tuple[str, int], ...]:
    return tuple(
        sorted(
            (
                (", ".join(str(value) for _, value in sorted(token, key=str)), count)
                for token, count in counts.items()
                if token
            ),
            key=lambda pair: (-pair[1], pair[0]),
        )
    )


def _fraction(candidate: Candidate) -> int:
    """What a candidate takes of its device, as mean over the capacities, rounded down."""
    device_state = candidate.device_state
    if not device_state.multi:
        return WHOLE
    shares = [
        WHOLE * amount // have
        for have, amount in zip(device_state.left.values(), candidate.amounts, strict=True)
        if have
    ]
    return sum(shares) // len(shares) if shares else 0


def _budget(left: _Left, device_state: DeviceState) -> int:
    """What is left of a shared device, as mean over the capacities, rounded up."""
    used = left.ledger.used.get(device_state.id)
    gone = used[1] if used is not None else (0,) * len(device_state.left)
    shares = [
        -(-WHOLE * (have - drawn) // have) for have, drawn in zip(device_state.left.values(), gone, strict=True) if have
    ]
    return -(-sum(shares) // len(shares)) if shares else 0


def _fitting(left: _Left, candidates: list[Candidate]) -> int:
    """How many devices of one pool fit into what is left of each counter, smallest first."""
    most = sum(left.free[candidate.equivalent] for candidate in candidates)
    first = candidates[0].device_state
    amounts: dict[Any, list[tuple[int, int]]] = defaultdict(list)
    for candidate in candidates:
        for use in candidate.device_state.uses:
            for name, amount in use.amounts:
                amounts[use.key, name].append((amount, left.free[candidate.equivalent]))
    every = most
    for (key, name), draws in amounts.items():
        spare = left.ledger.counter_left(first, key, name)
        fits = every - sum(count for _, count in draws)  # these draw nothing here
        for amount, count in sorted(draws):
            some = count if amount <= 0 else min(count, max(spare, 0) // amount)
            fits += some
            spare -= some * max(amount, 0)
            if some < count:
                break
        most = min(most, fits)
    return most


def _shortage(need: Mapping[int, int], cells: RequestCells) -> Shortage | None:
    """Requests that together need more than their cells hold, with both numbers; None if a flow meets all needs."""
    flows: Counter[tuple[int, frozenset[int]]] = Counter()
    spare = {cell: total for cell, (total, _) in cells.items()}
    of = {number: [cell for cell in spare if number in cell] for number in need}
    for number in sorted(need):
        missing = need[number]
        while missing:
            path = _augmenting(number, spare, of, flows, cells)
            if isinstance(path, frozenset):
                cut = tuple(sorted(path))
                wanted = sum(need[n] for n in cut)
                return cut, wanted, wanted - missing if len(cut) == 1 else _held(cut, of, cells, wanted - missing)
            pushed = min(missing, path.width)
            for source, cell in path.steps:
                flows[source, cell] += pushed
            for (_, cell), (later, _) in pairwise(path.steps):
                flows[later, cell] -= pushed
            spare[path.steps[-1][1]] -= pushed
            missing -= pushed
    return None


class _Path(msgspec.Struct, frozen=True, gc=False):
    """A way for more devices: each request of steps gets them from its cell, and gives the next request's back there.
    The last cell has room. width: how many can go this way."""

    steps: tuple[tuple[int, frozenset[int]], ...]
    width: int


def _augmenting(
    start: int,
    spare: Mapping[frozenset[int], int],
    of: Mapping[int, list[frozenset[int]]],
    flows: Counter[tuple[int, frozenset[int]]],
    cells: RequestCells,
) -> _Path | frozenset[int]:
    """The shortest augmenting path from a request; where there is none, the requests that it can reach."""
    reached = {start}
    queue = deque([(start, _Path((), PLENTY))])
    while queue:
        number, path = queue.popleft()
        for cell in of[number]:
            width = min(path.width, cells[cell][1] - flows[number, cell])
            if width <= 0:
                continue
            steps = (*path.steps, (number, cell))
            if spare[cell] > 0:
                return _Path(steps, min(width, spare[cell]))
            for other in sorted(cell):
                carried = flows[other, cell]
                if carried > 0 and other not in reached:
                    reached.add(other)
                    queue.append((other, _Path(steps, min(width, carried))))
    return frozenset(reached)


def _held(cut: Iterable[int], of: Mapping[int, list[frozenset[int]]], cells: RequestCells, at_most: int) -> int:
    """How many devices there are for these requests together."""
    return min(sum(cells[cell][0] for cell in {cell for number in cut for cell in of[number]}), at_most)
