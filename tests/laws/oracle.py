"""A slow allocator written from the rules alone: plain depth first, everything recomputed at each step.

Shares no code with dragoman.allocate beyond the value types. All gates are on except derived attributes.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

from dragoman.api.core import Node
from dragoman.api.resource import Device, DeviceAttribute, ResourceClaim, ResourceSlice
from dragoman.api.selectors import compile_selector, device_view
from dragoman.snapshot.change import Snapshot


class Fatal(Exception):
    """Upstream would end the search here with an error."""


class TooLong(Exception):
    """The plain search takes too long for a test."""


@dataclass
class Dev:
    driver: str
    pool: str
    device: Device
    resource_slice: ResourceSlice

    @property
    def id(self) -> tuple[str, str, str]:
        return (self.driver, self.pool, self.device.name)


def devices_on(snapshot: Snapshot, node: Node) -> tuple[list[Dev], list[Dev], bool]:
    """Devices of good pools in order, all devices of these pools wherever they are, and whether a pool is bad."""
    pools: dict[tuple[str, str], list[ResourceSlice]] = {}
    for resource_slice in snapshot.slices.values():
        spec = resource_slice.spec
        here = spec.node_name == node.metadata.name if spec.node_name else bool(spec.all_nodes)
        if here:
            pools.setdefault((spec.driver, spec.pool.name), []).append(resource_slice)
    bad = False
    ordered = []
    every: list[Dev] = []
    for (driver, pool), resource_slices in sorted(pools.items()):
        newest = max(p.spec.pool.generation for p in resource_slices)
        mine = sorted((p for p in resource_slices if p.spec.pool.generation == newest), key=lambda p: p.metadata.name)
        if len(mine) != mine[0].spec.pool.resource_slice_count:
            bad = True
            continue
        found = [Dev(driver, pool, d, p) for p in mine for d in p.spec.devices]
        if len({d.id for d in found}) != len(found):
            bad = True
            continue
        ordered.append((any(d.device.binding_conditions for d in found), driver, pool, found))
        every += found
    return [d for *_, found in sorted(ordered, key=lambda x: x[:3]) for d in found], every, bad


@dataclass
class Take:
    claim: int
    request: str
    parent: str
    dev: Dev
    admin: bool
    consumed: dict[str, int]


def scalar_or_list(attribute: DeviceAttribute) -> frozenset[tuple[str, Any]]:
    for kind in ("int_", "bool_", "string", "version"):
        value = getattr(attribute, kind)
        if value is not None:
            return frozenset({(kind.strip("_"), value)})
    for kind in ("ints", "bools", "strings", "versions"):
        value = getattr(attribute, kind)
        if value is not None:
            return frozenset((kind[:-1], v) for v in value)
    return frozenset()


class Oracle:
    """allocate() gives one list of (request, device id) a claim, or None."""

    def __init__(self, snapshot: Snapshot, node: Node, claims: list[ResourceClaim], steps: int = 20000) -> None:
        self.snapshot = snapshot
        self.node = node
        self.claims = claims
        self.devices, self.every, self.bad = devices_on(snapshot, node)
        self.takes: list[Take] = []
        self.steps = steps

    def held(self, dev: Dev) -> tuple[Any, ...]:
        return self.snapshot.holders.get(dev.id, ())  # type: ignore[call-overload]

    def selectable(self, asked: Any, dev: Dev) -> bool:
        texts = [s.cel.expression for s in self.snapshot.classes[asked.device_class_name].spec.selectors]
        texts += [s.cel.expression for s in asked.selectors]
        view = device_view(dev.device, dev.driver)
        for text in texts:
            answer = compile_selector(text).match(view)
            if answer is not True and answer is not False:
                raise Fatal(text)
            if not answer:
                return False
        return True

    def consumed(self, asked: Any, dev: Dev) -> dict[str, int] | None:
        wanted = asked.capacity.requests if asked.capacity else {}
        if any(name not in dev.device.capacity for name in wanted):
            return None
        result = {}
        for name, entry in dev.device.capacity.items():
            policy = entry.request_policy
            if name not in wanted:
                amount = policy.default if policy and policy.default is not None else entry.value
            else:
                amount = wanted[name]
                if policy and policy.valid_values:
                    amount = min((v for v in policy.valid_values if v >= amount), default=amount)
            units = amount.nanos // 10**9
            if name in wanted and policy and policy.valid_range:
                low, step = policy.valid_range.min.nanos // 10**9, policy.valid_range.step.nanos // 10**9
                units = low if units < low else low + -(-(units - low) // step) * step
                if units > policy.valid_range.max.nanos // 10**9:
                    return None
            if policy and policy.valid_values and all(v.nanos != units * 10**9 for v in policy.valid_values):
                return None
            result[name] = units
        return result

    def room(self, dev: Dev, consumed: dict[str, int], takes: list[Take]) -> bool:
        for name, entry in dev.device.capacity.items():
            total = consumed[name]
            if dev.device.allow_multiple_allocations:
                total += sum(h.consumed[name].nanos // 10**9 for h in self.held(dev) if name in h.consumed)
                total += sum(t.consumed[name] for t in takes if t.dev.id == dev.id and not t.admin)
            if total > entry.value.nanos // 10**9:
                return False
        return True

    def counters_fit(self, dev: Dev) -> bool:
        limits = {
            (s.name, n): c.value.nanos
            for p in self.snapshot.slices.values()
            if (p.spec.driver, p.spec.pool.name) == (dev.driver, dev.pool)
            for s in p.spec.shared_counters
            for n, c in s.counters.items()
        }
        taken = {t.dev.id for t in self.takes if not t.admin}
        multi = bool(dev.device.allow_multiple_allocations)
        if multi and (self.held(dev) or dev.id in taken):
            return True
        drawn: Counter[tuple[str, str]] = Counter()
        for other in self.every:
            if (other.driver, other.pool) != (dev.driver, dev.pool):
                continue
            if other.id == dev.id or self.held(other) or other.id in taken:
                for use in other.device.consumes_counters:
                    for name, counter in use.counters.items():
                        drawn[use.counter_set, name] += counter.value.nanos
        return all(drawn[key] <= limit for key, limit in limits.items())

    def constraints_fit(self, claim: int, extra: Take) -> int:
        """-1 if all constraints accept the take, else the first that does not."""
        for index, constraint in enumerate(self.claims[claim].spec.devices.constraints):
            concerned = [
                t
                for t in [*self.takes, extra]
                if t.claim == claim and (not constraint.requests or {t.request, t.parent} & set(constraint.requests))
            ]
            if extra not in concerned:
                continue
            name = constraint.match_attribute or constraint.distinct_attribute
            sets = []
            for take in concerned:
                domain, _, bare = name.partition("/")
                attribute = take.dev.device.attributes.get(name)
                if attribute is None and domain == take.dev.driver:
                    attribute = take.dev.device.attributes.get(bare)
                if attribute is None:
                    return index
                sets.append(scalar_or_list(attribute))
            if constraint.match_attribute:
                if not frozenset.intersection(*sets):
                    return index
            elif len(sets) > 1 and any(n > 1 for n in Counter(v for s in sets for v in s).values()):
                return index
        return -1

    def usable(self, take: Take) -> bool:
        """Device checks without constraints."""
        dev = take.dev
        if take.admin:
            if any(t.dev.id == dev.id and t.claim == take.claim and not self.shares(t) for t in self.takes):
                return False
        else:
            held = self.held(dev)
            if dev.device.allow_multiple_allocations:
                if any(h.share_id is None for h in held):
                    return False
            elif held or any(t.dev.id == dev.id for t in self.takes):
                return False
        return True

    def shares(self, take: Take) -> bool:
        return bool(take.dev.device.allow_multiple_allocations)

    def try_take(self, claim: int, request: str, parent: str, asked: Any, dev: Dev, *, every: bool) -> bool:
        admin = bool(getattr(asked, "admin_access", None))
        take = Take(claim, request, parent, dev, admin, {})
        if not self.usable(take):
            return False
        if not every and not self.selectable(asked, dev):
            return False
        if not admin:
            consumed = self.consumed(asked, dev)
            if consumed is None or not self.room(dev, consumed, self.takes):
                return False
            take.consumed = consumed
            if dev.device.consumes_counters and not self.counters_fit(dev):
                return False
        if any(
            taint.effect in ("NoSchedule", "NoExecute")
            and not any(t.key == taint.key or t.key == "" for t in asked.tolerations)
            for taint in dev.device.taints
        ):
            return False
        broken = self.constraints_fit(claim, take)
        if broken >= 0:
            if every:
                raise Fatal("constraint")
            return False
        self.takes.append(take)
        return True

    def everything(self, asked: Any) -> list[Dev]:
        found = []
        for dev in self.devices:
            if not self.selectable(asked, dev):
                continue
            if not getattr(asked, "admin_access", None):
                consumed = self.consumed(asked, dev)
                if consumed is None or not self.room(dev, consumed, []):
                    continue
            found.append(dev)
        return found

    def allocate(self) -> list[list[tuple[str, tuple[str, str, str]]]] | None:
        self.all_sets: dict[tuple[int, int, int], list[Dev]] = {}
        for c, claim in enumerate(self.claims):
            least = 0
            for r, request in enumerate(claim.spec.devices.requests):
                sizes = []
                for o, asked in enumerate(request.first_available or (request.exactly,)):
                    if asked.allocation_mode == "All":
                        if self.bad:
                            raise Fatal("pool")
                        self.all_sets[c, r, o] = self.everything(asked)
                        sizes.append(len(self.all_sets[c, r, o]))
                    else:
                        sizes.append(asked.count)
                least += min(sizes)
            if least > 32:
                raise Fatal("limit")
        if not self.solve(0, 0, -1, 0, 0):
            return None
        return [[(t.request, t.dev.id) for t in self.takes if t.claim == c] for c in range(len(self.claims))]

    def solve(self, c: int, r: int, o: int, k: int, start: int) -> bool:
        self.steps -= 1
        if self.steps < 0:
            raise TooLong
        if c == len(self.claims):
            return True
        requests = self.claims[c].spec.devices.requests
        if r == len(requests):
            return self.solve(c + 1, 0, -1, 0, 0)
        request = requests[r]
        if request.first_available and o < 0:
            return any(self.solve(c, r, i, 0, 0) for i in range(len(request.first_available)))
        asked: Any = request.first_available[o] if request.first_available else request.exactly
        name = f"{request.name}/{asked.name}" if request.first_available else request.name
        every = asked.allocation_mode == "All"
        mine = self.all_sets.get((c, r, max(o, 0)), [])
        count = len(mine) if every else asked.count
        if every and not mine:
            return False
        if k == count:
            return self.solve(c, r + 1, -1, 0, 0)
        if sum(t.claim == c for t in self.takes) + count - k > 32:
            return False
        if every:
            if self.try_take(c, name, request.name, asked, mine[k], every=True):
                if self.solve(c, r, o, k + 1, 0):
                    return True
                self.takes.pop()
            return False
        for i in range(start, len(self.devices)):
            if self.try_take(c, name, request.name, asked, self.devices[i], every=False):
                if self.solve(c, r, o, k + 1, i + 1):
                    return True
                self.takes.pop()
        return False
