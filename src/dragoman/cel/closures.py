"""Which closures do nodes become? The shapes evaluation is made of, the common ones with a closure of their own."""

from __future__ import annotations

import operator as python
from collections.abc import Callable, Iterable
from operator import attrgetter
from typing import Final

from dragoman.cel.access import iterated, iterated_pairs, missing
from dragoman.cel.faults import EvalError, NoSuchOverload
from dragoman.cel.functions import Run
from dragoman.cel.stdlib.operators import greater, greater_equal, less, less_equal
from dragoman.cel.values import CelValue, equal

Frame = list[CelValue]
Closure = Callable[[Frame], CelValue]

UNSET: Final = object()


def raising(error: EvalError) -> Closure:
    def code(_: Frame) -> CelValue:
        raise error

    return code


def placed(error: EvalError, offset: int) -> EvalError:
    """The error with a position, if it had none."""
    if error.offset < 0:
        error.offset = offset
    return error


def placing(code: Closure, offset: int) -> Closure:
    """The same, with a position for errors that have none."""

    def wrapped(frame: Frame) -> CelValue:
        try:
            return code(frame)
        except EvalError as error:
            raise placed(error, offset) from None

    return wrapped


def attribute(operand: Closure, field: str) -> Closure:
    """A field of an object type: an attribute of the Python object, found by the name that its class gives."""
    get = attrgetter(field if field.islower() else _snake(field))

    def code(frame: Frame) -> CelValue:
        return get(operand(frame))

    return code


def _snake(field: str) -> str:
    return "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in field)


def entry(operand: Closure, key: str, offset: int) -> Closure:
    """An entry of a map under a constant string."""

    def code(frame: Frame) -> CelValue:
        entries = operand(frame)
        try:
            return entries[key]
        except KeyError:
            raise missing(entries, key, offset) from None

    return code


def called(run: Run, codes: list[Closure], offset: int) -> Closure:
    """A call of a function on evaluated arguments."""
    if len(codes) == 1:
        (only,) = codes

        def unary(frame: Frame) -> CelValue:
            value = only(frame)
            try:
                return run(value)
            except EvalError as error:
                raise placed(error, offset) from None

        return unary
    if len(codes) == 2:
        left, right = codes

        def binary(frame: Frame) -> CelValue:
            one = left(frame)
            two = right(frame)
            try:
                return run(one, two)
            except EvalError as error:
                raise placed(error, offset) from None

        return binary

    def code(frame: Frame) -> CelValue:
        values = [argument(frame) for argument in codes]
        try:
            return run(*values)
        except EvalError as error:
            raise placed(error, offset) from None

    return code


def all_of(codes: tuple[Closure, ...], offset: int) -> Closure:
    """`&&`: false wins over errors, wherever it stands."""
    if len(codes) == 2:
        left, right = codes

        def both(frame: Frame) -> CelValue:
            try:
                one = left(frame)
            except EvalError as error:
                if _is_false(right, frame):
                    return False
                raise error from None
            if one is False:
                return False
            two = right(frame)
            if two is False:
                return False
            if one is True and two is True:
                return True
            raise _no_logic("_&&_", offset)

        return both

    return _decided(codes, False, "_&&_", offset)


def _is_false(code: Closure, frame: Frame) -> bool:
    try:
        return code(frame) is False
    except EvalError:
        return False


def any_of(codes: tuple[Closure, ...], offset: int) -> Closure:
    """`||`: true wins over errors, wherever it stands."""
    return _decided(codes, True, "_||_", offset)


def _decided(codes: tuple[Closure, ...], wins: bool, function: str, offset: int) -> Closure:
    loses = not wins

    def code(frame: Frame) -> CelValue:
        failed: EvalError | None = None
        for term in codes:
            try:
                value = term(frame)
            except EvalError as error:
                failed = failed or error
                continue
            if value is wins:
                return wins
            if value is not loses:
                failed = failed or _no_logic(function, offset)
        if failed is not None:
            raise failed
        return loses

    return code


def _no_logic(function: str, offset: int) -> NoSuchOverload:
    return NoSuchOverload(f"no such overload: no matching overload for '{function}'", offset)


def equality(left: Closure, right: Closure, constant: CelValue, offset: int) -> Closure:
    """`==`; with a constant string, int or bool on the right it is one Python comparison."""
    if constant.__class__ is str or constant.__class__ is int or constant.__class__ is bool:
        kind = constant.__class__

        def quick(frame: Frame) -> CelValue:
            value = left(frame)
            if value.__class__ is kind:
                return value == constant
            try:
                return equal(value, constant)
            except EvalError as error:
                raise placed(error, offset) from None

        return quick
    return called(equal, [left, right], offset)


ORDERINGS: Final[dict[str, Callable[[CelValue, CelValue], bool]]] = {
    "_<_": less,
    "_<=_": less_equal,
    "_>_": greater,
    "_>=_": greater_equal,
}
_PYTHON: Final[dict[str, Callable[[CelValue, CelValue], bool]]] = {
    "_<_": python.lt,
    "_<=_": python.le,
    "_>_": python.gt,
    "_>=_": python.ge,
}


def ordering(function: str, left: Closure, right: Closure, constants: dict[Closure, CelValue], offset: int) -> Closure:
    """`<` and its like; with a constant int or string on the right it is one Python comparison."""
    constant = constants.get(right, UNSET)
    run = ORDERINGS[function]
    if constant.__class__ is not int and constant.__class__ is not str:
        return called(run, [left, right], offset)
    kind = constant.__class__
    direct = _PYTHON[function]

    def code(frame: Frame) -> CelValue:
        value = left(frame)
        if value.__class__ is kind:
            return direct(value, constant)
        try:
            return run(value, constant)
        except EvalError as error:
            raise placed(error, offset) from None

    return code


def among_strings(left: Closure, among: frozenset[str]) -> Closure:
    """`in` with a constant list of strings."""

    def code(frame: Frame) -> CelValue:
        value = left(frame)
        return value.__class__ is str and value in among

    return code


def with_pairs(values: CelValue, frame: Frame, second: int) -> Iterable[CelValue]:
    """The values of the first variable of a loop; the second one, if there is one, is put into its slot."""
    return iterated(values) if second < 0 else _paired(values, frame, second)


def _paired(values: CelValue, frame: Frame, second: int) -> Iterable[CelValue]:
    for one, frame[second] in iterated_pairs(values):
        yield one
