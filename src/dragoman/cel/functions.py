"""What functions are there, and which of a function's overloads serve given values? Declarations and dispatch.

An overload's `run` takes values and returns a value or raises EvalError. Never sees syntax.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Final

import msgspec

from dragoman.cel.faults import NoSuchOverload
from dragoman.cel.types import Type
from dragoman.cel.values import TYPE_OF, Value

Run = Callable[..., Value]


class Overload(msgspec.Struct, frozen=True):
    """One signature of a function. args include the receiver of a member overload."""

    function: str
    id: str
    args: tuple[Type, ...]
    result: Type
    run: Run
    member: bool = False

    def accepts(self, values: tuple[Value, ...]) -> bool:
        """Whether the kinds of the values fit."""
        return all(
            (classes := classes_of(kind)) is None or value.__class__ in classes
            for kind, value in zip(self.args, values, strict=True)
        )


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


def dispatch(overloads: tuple[Overload, ...]) -> Run:
    """A function that runs the first overload whose parameters fit the values, all of one number."""
    table = [(overload.run, tuple(classes_of(kind) for kind in overload.args)) for overload in overloads]

    def run(*values: Value) -> Value:
        for call, classes in table:
            for value, allowed in zip(values, classes, strict=True):
                if allowed is not None and value.__class__ not in allowed:
                    break
            else:
                return call(*values)
        raise NoSuchOverload

    return run
