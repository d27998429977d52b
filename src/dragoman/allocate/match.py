"""Does a device pass a request's selectors? The adapter to the selector language, with a memo.

A costly selector is evaluated once for each device; the memo keeps the failure, not a bool. Never
asks who holds a device. Source: KEP-4381 (selectors), KEP-6080 (derived attributes).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from dragoman.allocate.constraint import ValueSet
from dragoman.allocate.pace import Check, unlimited
from dragoman.api import selectors
from dragoman.api.resource import Device
from dragoman.api.selectors import (
    STORED,
    DeviceView,
    MatchResult,
    SelectorCompileError,
    SelectorFailed,
    compile_selector,
    device_view,
    environment,
)
from dragoman.api.selectors import Selector as Compiled
from dragoman.cel.expression import Expression, compile_expression
from dragoman.cel.faults import EvalError, NoSuchKey
from dragoman.snapshot.pools import SeenDevice
from dragoman.values.semver import Semver

if TYPE_CHECKING:
    from dragoman.allocate.slots import Derived, RequestSelector

MEMO_MAX = 200_000
"""Devices whose views a Matcher keeps before it starts again."""

COSTLY = 1_000
"""Worst-case cost of a selector (CEL units) from which its outcome on a device is kept: some 50 microseconds."""

CHECK_EVERY = 10_000
"""Worst-case cost that may add up before somebody is asked whether there is time for more: below half a millisecond."""


class Failure(NamedTuple):
    """A selector (or derived attribute) that failed on a device. missing: the name that it lacks, if that is why."""

    selector: RequestSelector | None
    derived: Derived | None
    seen: SeenDevice
    error: str
    missing: str


SelectorVerdict: TypeAlias = "bool | RequestSelector | Failure"


def compile_text(text: str) -> Compiled | str:
    """A selector, or why it does not compile."""
    found = compile_selector(text)
    return found.message if isinstance(found, SelectorCompileError) else found


def compile_derived(text: str) -> Expression | str:
    """A derived attribute's expression, or why it does not compile or has no type that an attribute can have."""
    checked = selectors.compile_derived(text)
    return (
        checked.message if isinstance(checked, SelectorCompileError) else compile_expression(text, environment(STORED))
    )


class Matcher:
    """Evaluates selectors on devices; keep one as long as its memo is worth it. check: see dragoman.allocate.pace."""

    def __init__(self, check: Check = unlimited) -> None:
        self.check = check
        self._unchecked = 0
        self._views: dict[int, tuple[Device, DeviceView, dict[Compiled, MatchResult]]] = {}

    def beside(self) -> Matcher:
        """One for another thread: what either finds out both know, but each has its own check."""
        other = Matcher()
        other._views = self._views
        return other

    def passes(self, asked: tuple[RequestSelector, ...], seen: SeenDevice) -> SelectorVerdict:
        """True, or the first selector that is false, or how the first one fails."""
        view, known = self._view(seen)
        for selector in asked:
            compiled = selector.compiled
            found = known.get(compiled)
            if found is None:
                found = self._match(compiled, view)
                if compiled.max_cost > COSTLY:
                    known[compiled] = found
            if found is True:
                continue
            if isinstance(found, SelectorFailed):
                return Failure(selector, None, seen, found.message, found.attribute or "")
            return selector
        return True

    def _match(self, compiled: Compiled, view: DeviceView) -> MatchResult:
        self._unchecked += compiled.max_cost + 100
        if self._unchecked > CHECK_EVERY:
            self._unchecked = 0
            self.check(compiled.max_cost)
        return compiled.match(view)

    def derive(self, derived: Derived, seen: SeenDevice, *, lists: bool) -> ValueSet | Failure:
        """A derived attribute's value as constraints see it."""
        view, _ = self._view(seen)
        self.check(0)
        if view.fault is not None:
            return Failure(None, derived, seen, view.fault, "")
        try:
            value = derived.compiled.program(view)
        except EvalError as error:
            missing = error.key if isinstance(error, NoSuchKey) else ""
            return Failure(None, derived, seen, error.message, missing)
        many = isinstance(value, list | tuple)
        items = list(value) if isinstance(value, list | tuple) else [value]
        pairs = [_pair(item) for item in items]
        kinds = {pair[0] for pair in pairs if pair is not None}
        if None in pairs or len(kinds) != 1 or (many and not lists):
            error_text = (
                f"a derived attribute must be int, bool, string, semver or a list of one of them, not {value!r}"
            )
            return Failure(None, derived, seen, error_text, "")
        return frozenset(pair for pair in pairs if pair is not None)

    def _view(self, seen: SeenDevice) -> tuple[DeviceView, dict[Compiled, MatchResult]]:
        key = id(seen.device)
        found = self._views.get(key)
        if found is None:
            if len(self._views) >= MEMO_MAX:
                self._views.clear()
            found = self._views[key] = (seen.device, device_view(seen.device, seen.id.driver), {})
        return found[1], found[2]


def _pair(value: object) -> tuple[str, int | bool | str] | None:
    if isinstance(value, bool):
        return ("bool", value)
    if isinstance(value, int):
        return ("int", value)
    if isinstance(value, str):
        return ("string", value)
    if isinstance(value, Semver):
        return ("version", str(value))
    return None
