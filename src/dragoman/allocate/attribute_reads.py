"""By what do claims tell devices apart that differ in identifying attributes (a uuid)? By their selectors' verdicts.

Attributes that constraints, derived attributes or the policy read count by value. An identifying attribute that only
selectors read counts by what they make of it, so that thousands of nodes of which each has its own uuids are a few
classes. Never decides for a claim.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple, TypeAlias

from dragoman.allocate.slots import ClaimPlan
from dragoman.api.resource import DeviceAttribute
from dragoman.api.selectors import DeviceView, Domains, Selector, attribute_value
from dragoman.cel.reads import paths_read
from dragoman.snapshot.views import Attribute, NodeView, SliceShape, is_read
from dragoman.values.names import split_qualified
from dragoman.values.quantity import Quantity

AttributeNames: TypeAlias = "frozenset[tuple[str, str | None]] | None"
"""(domain, name) pairs, name None for a whole domain; None for everything."""

OTHER = "\0"
"""Stands for every text that a selector does not name."""

MEMO_MAX = 4_096


class AttributeReads(NamedTuple):
    """What claims read: attributes by value, selectors by verdict, and in all (`every`)."""

    attributes: AttributeNames
    selectors: tuple[Selector, ...]
    every: AttributeNames


def attribute_reads_of(plans: Iterable[ClaimPlan], read: Iterable[tuple[str, str | None]] = ()) -> AttributeReads:
    """What plans read, and the policy (read)."""
    attributes: set[tuple[str, str | None]] = set(read)
    selectors: dict[str, Selector] = {}
    for plan in plans:
        for constraint in plan.constraints:
            domain, _, name = constraint.attribute.partition("/")
            attributes.add((domain, name))
        for request_plans in plan.requests:
            for request_plan in request_plans:
                for selector in request_plan.selectors:
                    if selector.compiled.reads.attributes is None:
                        return AttributeReads(None, (), None)
                    if selector.compiled.reads.attributes:
                        selectors[selector.text] = selector.compiled
                for derived in request_plan.derived:
                    paths, _ = paths_read(derived.compiled.tree, "device")
                    if () in paths or ("attributes",) in paths:
                        return AttributeReads(None, (), None)
                    attributes |= {(p[1], p[2] if len(p) > 2 else None) for p in paths if p[0] == "attributes"}
    every = set(attributes)
    for compiled in selectors.values():
        every |= compiled.reads.attributes or frozenset()
    ordered = tuple(selectors[text] for text in sorted(selectors))
    return AttributeReads(frozenset(attributes), ordered, frozenset(every))


COSTLY = 1_000
"""Worst-case cost of a selector (CEL units) from which nodes are distinguished by what it reads, not by its results."""


class Identities:
    """What the identifying attributes of nodes with one `base` come to. shapes: for each slice the columns that count
    by value, and each selector on that shape."""

    def __init__(self, view: NodeView, reading: AttributeReads) -> None:
        self.shapes = [self._parts(shape, reading) for shape in view.shapes]
        self.any = any(values or on_shape for values, on_shape in self.shapes)

    def _parts(self, shape: SliceShape, reading: AttributeReads) -> tuple[list[Attribute], list[_SelectorOnShape]]:
        values = {name for name in shape.rare if is_read(name, reading.attributes)}
        on_shape = []
        for selector in reading.selectors:
            mine = [name for name in shape.columns if is_read(name, selector.reads.attributes)]
            if any(name in shape.rare and name not in values for name in mine):
                one = _SelectorOnShape(shape, selector, mine)
                if one.able:
                    on_shape.append(one)
                else:
                    values |= {name for name in mine if name in shape.rare}
        return sorted(values), on_shape

    def of(self, view: NodeView) -> tuple[Any, ...]:
        """Equal for nodes of the base that the reading does not tell apart."""
        return tuple(
            (tuple([shape.columns[name] for name in values]), *[one.verdicts(shape) for one in on_shape])
            for shape, (values, on_shape) in zip(view.shapes, self.shapes, strict=True)
        )


class _SelectorOnShape:
    """A selector on the devices of slices that differ in identifying attributes alone."""

    def __init__(self, shape: SliceShape, selector: Selector, names: Sequence[Attribute]) -> None:
        self.selector = selector
        self.driver = shape.pool[0]
        self.rare = [name for name in names if name in shape.rare]
        self.named = [selector.compared.get(name) for name in self.rare]
        self.memo: list[dict[Any, Any]] = [{} for _ in shape.names]
        common = [(name, shape.columns[name].value) for name in names if name not in shape.rare]
        devices = shape.structure.value[3]
        # A faulty device fails as a whole, and a name published twice is rare enough to be distinguished by value.
        columns = [shape.columns[name].value for name in names]
        # Nor is a costly selector evaluated here, where nothing bounds the time (dragoman.allocate.pace).
        self.able = (
            selector.max_cost <= COSTLY
            and not any(device[5] for device in devices)
            and not any(value.__class__ is tuple for column in columns for value in column)
        )
        self.templates: list[tuple[list[tuple[Attribute, Any]], Domains, bool]] = []
        if self.able:
            for index, device in enumerate(devices):
                fixed = [(name, attribute_value(c[index])) for name, c in common if c[index] is not None]
                self.templates.append((fixed, self._capacity(device[0]), device[3]))

    def _capacity(self, published: Iterable[tuple[str, Any]]) -> Domains:
        found = Domains()
        if self.selector.reads.capacity is None or self.selector.reads.capacity:
            for key, amount in published:
                domain, name = split_qualified(key, self.driver)
                found.setdefault(domain, {})[name] = amount.value or Quantity(0)
        return found

    def verdicts(self, shape: SliceShape) -> tuple[Any, ...]:
        """For each device whether the selector is true, or what makes it fail."""
        columns = [shape.columns[name].value for name in self.rare]
        if len(columns) == 1 and self.named[0] is not None:
            return self._compared(columns[0], self.named[0])
        return tuple([self._verdict(index, values) for index, values in enumerate(zip(*columns, strict=True))])

    def _compared(self, column: Sequence[DeviceAttribute | None], named: frozenset[str]) -> tuple[Any, ...]:
        """The quick way where the one attribute is only compared with texts."""
        found: list[Any] = []
        for memo, attribute in zip(self.memo, column, strict=True):
            text = None if attribute is None else attribute.string
            if text is not None and text not in named:
                text = OTHER
            verdict = memo.get(text)
            if verdict is None:
                verdict = memo[text] = self._evaluated(len(found), (text,))
            found.append(verdict)
        return tuple(found)

    def _verdict(self, index: int, attributes: Sequence[DeviceAttribute | None]) -> Any:
        values = tuple([None if attribute is None else attribute.string for attribute in attributes])
        memo = self.memo[index]
        found = memo.get(values)
        if found is None:
            if len(memo) >= MEMO_MAX:
                memo.clear()
            found = memo[values] = self._evaluated(index, values)
        return found

    def _evaluated(self, index: int, values: Sequence[str | None]) -> Any:
        fixed, capacity, shared = self.templates[index]
        attributes = Domains()
        for (domain, name), value in fixed:
            attributes.setdefault(domain, {})[name] = value
        for (domain, name), text in zip(self.rare, values, strict=True):
            if text is not None:
                attributes.setdefault(domain, {})[name] = text
        view = DeviceView(self.driver, attributes, capacity, allow_multiple_allocations=shared)
        found = self.selector.match(view)
        return found if found is True or found is False else ("fails", *values)
