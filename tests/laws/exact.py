"""The same question as a model for an exact solver (CP-SAT): is there any allocation at all?

Written from the rules, with the oracle's reading of objects; shares no code with dragoman.allocate. Covers all but
admin access and selectors that fail; a constraint on a request for all devices is a plain constraint here.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from ortools.sat.python import cp_model

from tests.laws.oracle import Dev, Oracle, scalar_or_list

NANO = 10**9
BLOCKING = ("NoSchedule", "NoExecute")


class Model:
    """feasible(): True, False, or None when the solver has no answer in time."""

    def __init__(self, oracle: Oracle) -> None:
        self.oracle = oracle
        self.model = cp_model.CpModel()
        self.taking: dict[Any, list[Any]] = defaultdict(list)  # device -> its variables
        self.amounts: dict[Any, list[tuple[int, Any]]] = defaultdict(list)  # (device, capacity) -> amount, variable
        self.devices: dict[Any, Dev] = {dev.id: dev for dev in oracle.devices}
        self.concerned: dict[Any, list[tuple[Dev, Any]]] = defaultdict(list)  # (claim, constraint) -> device, variable

    def feasible(self, seconds: float = 10.0) -> bool | None:
        for number, claim in enumerate(self.oracle.claims):
            picked: list[Any] = []
            for request in claim.spec.devices.requests:
                self.request(number, claim, request, picked)
            self.model.add(sum(picked) <= 32)
        self.exclusive()
        self.capacities()
        self.counters()
        for (number, index), entries in self.concerned.items():
            self.constraint(self.oracle.claims[number].spec.devices.constraints[index], entries)
        solver = cp_model.CpSolver()
        solver.parameters.max_time_in_seconds = seconds
        solver.parameters.num_workers = 1
        status = solver.solve(self.model)
        if status in (cp_model.OPTIMAL, cp_model.FEASIBLE):
            return True
        return False if status == cp_model.INFEASIBLE else None

    def request(self, number: int, claim: Any, request: Any, picked: list[Any]) -> None:
        options = []
        for asked in request.first_available or (request.exactly,):
            chosen = self.model.new_bool_var("")
            options.append(chosen)
            name = f"{request.name}/{asked.name}" if request.first_available else request.name
            every = asked.allocation_mode == "All"
            wanted = self.oracle.everything(asked) if every else self.oracle.devices
            variables = []
            for dev in wanted:
                if not self.usable(asked, dev, every=every):
                    if every:
                        self.model.add(chosen == 0)
                    continue
                variable = chosen if every else self.model.new_bool_var("")
                variables.append(variable)
                self.take(number, claim, (name, request.name), asked, dev, variable)
            if every and not wanted:
                self.model.add(chosen == 0)
            if not every:
                self.model.add(sum(variables) == asked.count * chosen)
            picked += variables
        self.model.add(sum(options) == 1)

    def usable(self, asked: Any, dev: Dev, *, every: bool) -> bool:
        held = self.oracle.held(dev)
        if held and (not dev.device.allow_multiple_allocations or any(h.share_id is None for h in held)):
            return False
        if not every and not self.oracle.selectable(asked, dev):
            return False
        consumed = self.oracle.consumed(asked, dev)
        if consumed is None or not self.oracle.room(dev, consumed, []):
            return False
        return not any(
            taint.effect in BLOCKING and not any(t.key in (taint.key, "") for t in asked.tolerations)
            for taint in dev.device.taints
        )

    def take(self, number: int, claim: Any, names: tuple[str, str], asked: Any, dev: Dev, variable: Any) -> None:
        self.taking[dev.id].append(variable)
        if dev.device.allow_multiple_allocations:
            for capacity, amount in (self.oracle.consumed(asked, dev) or {}).items():
                self.amounts[dev.id, capacity].append((amount, variable))
        for index, constraint in enumerate(claim.spec.devices.constraints):
            if not constraint.requests or set(names) & set(constraint.requests):
                self.concerned[number, index].append((dev, variable))

    def exclusive(self) -> None:
        for device, variables in self.taking.items():
            if not self.devices[device].device.allow_multiple_allocations:
                self.model.add(sum(variables) <= 1)

    def capacities(self) -> None:
        for (device, name), entries in self.amounts.items():
            dev = self.devices[device]
            left = dev.device.capacity[name].value.nanos // NANO
            left -= sum(h.consumed[name].nanos // NANO for h in self.oracle.held(dev) if name in h.consumed)
            self.model.add(sum(amount * variable for amount, variable in entries) <= left)

    def counters(self) -> None:
        left: dict[Any, int] = {}
        for resource_slice in self.oracle.snapshot.slices.values():
            for group in resource_slice.spec.shared_counters:
                for name, counter in group.counters.items():
                    left[resource_slice.spec.driver, resource_slice.spec.pool.name, group.name, name] = (
                        counter.value.nanos // NANO
                    )
        drawing: dict[Any, list[tuple[int, Any]]] = defaultdict(list)
        for dev in self.oracle.every:
            for key, amount in self.draws(dev):
                if self.oracle.held(dev):
                    left[key] -= amount
        frozen = {key[:2] for key, amount in left.items() if amount < 0}
        for device, variables in self.taking.items():
            dev = self.devices[device]
            if not dev.device.consumes_counters or self.oracle.held(dev):
                continue
            used = self.model.new_bool_var("")
            for variable in variables:
                self.model.add(variable <= used)
            if device[:2] in frozen:
                self.model.add(used == 0)
            for key, amount in self.draws(dev):
                drawing[key].append((amount, used))
        for key, entries in drawing.items():
            if key[:2] not in frozen:
                self.model.add(sum(amount * used for amount, used in entries) <= left[key])

    def draws(self, dev: Dev) -> list[tuple[Any, int]]:
        return [
            ((dev.driver, dev.pool, use.counter_set, name), counter.value.nanos // NANO)
            for use in dev.device.consumes_counters
            for name, counter in use.counters.items()
        ]

    def constraint(self, constraint: Any, entries: list[tuple[Dev, Any]]) -> None:
        name = constraint.match_attribute or constraint.distinct_attribute
        by_value: dict[Any, list[Any]] = defaultdict(list)
        values: list[tuple[frozenset[Any], Any]] = []
        for dev, variable in entries:
            domain, _, bare = name.partition("/")
            attribute = dev.device.attributes.get(name)
            if attribute is None and domain == dev.driver:
                attribute = dev.device.attributes.get(bare)
            if attribute is None:
                self.model.add(variable == 0)
                continue
            values.append((scalar_or_list(attribute), variable))
            for value in scalar_or_list(attribute):
                by_value[value].append(variable)
        if constraint.distinct_attribute:
            for variables in by_value.values():
                self.model.add(sum(variables) <= 1)
            return
        common = {value: self.model.new_bool_var("") for value in by_value}
        self.model.add(sum(common.values()) <= 1)
        for token, variable in values:
            self.model.add(variable <= sum(common[value] for value in token))
