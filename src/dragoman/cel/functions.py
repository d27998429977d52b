"""What functions are there, and which of a function's overloads serve given values? Declarations and dispatch.

An overload's `run` takes values and returns a value or raises EvalError. Never sees syntax.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

import msgspec

from dragoman.cel.faults import NoSuchOverload
from dragoman.cel.types import Type
from dragoman.cel.values import TYPE_OF, CelValue, map_keys

Run = Callable[..., CelValue]


class Overload(msgspec.Struct, frozen=True):
    """One signature of a function. args include the receiver of a member overload."""

    function: str
    id: str
    args: tuple[Type, ...]
    result: Type
    run: Run
    member: bool = False


def free(function: str, id: str, args: Iterable[Type], result: Type, run: Run) -> Overload:
    """Declares `function(args)`."""
    return Overload(function, id, tuple(args), result, run)


def member(function: str, id: str, args: Iterable[Type], result: Type, run: Run) -> Overload:
    """Declares `args[0].function(args[1:])`."""
    return Overload(function, id, tuple(args), result, run, member=True)


Functions = Mapping[str, tuple[Overload, ...]]


def table(*groups: Iterable[Overload]) -> dict[str, tuple[Overload, ...]]:
    """Overloads by function, in the order they were declared."""
    found: dict[str, list[Overload]] = {}
    for group in groups:
        for overload in group:
            found.setdefault(overload.function, []).append(overload)
    return {name: tuple(overloads) for name, overloads in found.items()}


_ANYTHING: Final = frozenset(("dyn", "any", "param", "error"))


def classes_of(kind: Type) -> frozenset[type] | None:
    """The Python classes whose values are of a type; None if all are."""
    if kind.kind in _ANYTHING:
        return None
    return frozenset(cls for cls, found in TYPE_OF.items() if found.kind == kind.kind and found.name == kind.name)


def fitting(kind: Type) -> Callable[[CelValue], bool] | None:
    """Whether a value is of a type, judging lists and maps by what they hold first; None if everything is."""
    classes = classes_of(kind)
    if classes is None:
        return None
    inner = [fitting(param) for param in kind.params] if kind.kind in ("list", "map") else []
    if not any(inner):
        return lambda value: value.__class__ in classes
    if kind.kind == "list":
        (element,) = inner
        assert element is not None
        return lambda value: _is(value, classes) and (not value or element(value[0]))
    key, entry = inner

    def fits_map(value: Any) -> bool:
        if not _is(value, classes):
            return False
        if not value:
            return True
        first = map_keys(value)[0]
        return (key is None or key(first)) and (entry is None or entry(next(iter(value.values()))))

    return fits_map


def _is(value: CelValue, classes: frozenset[type]) -> bool:
    return value.__class__ in classes


def dispatch(overloads: tuple[Overload, ...]) -> Run:
    """A function that runs the first overload whose parameters fit the values, all of one number."""
    rows = [(overload.run, tuple(fitting(kind) for kind in overload.args)) for overload in overloads]

    def run(*values: CelValue) -> CelValue:
        for call, checks in rows:
            for value, fits in zip(values, checks, strict=True):
                if fits is not None and not fits(value):
                    break
            else:
                return call(*values)
        raise NoSuchOverload

    return run
