"""How does a checked tree become something that runs fast? One Python closure for each node.

Closures instead of generated source, since CPython refuses deeply nested source. Constant parts are evaluated once,
attribute paths and comparisons with constants have closures of their own, chains of `&&` are flat. Never counts
cost: `meter` does, for the few expressions whose cost is not known to be small beforehand.

A closure takes the frame, a list with one slot for each variable, and returns a value or raises EvalError.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from dragoman.cel.access import iterated, iterated_pairs, present, put_entry, select_optional, selected
from dragoman.cel.ast import Call, Comprehension, Const, Expr, Ident, ListLit, MapLit, Select
from dragoman.cel.closures import (
    ORDERINGS,
    UNSET,
    Closure,
    Frame,
    all_of,
    among_strings,
    any_of,
    attribute,
    called,
    entry,
    equality,
    ordering,
    placed,
    placing,
    raising,
    with_pairs,
)
from dragoman.cel.environment import Environment
from dragoman.cel.faults import EvalError, NoSuchOverload
from dragoman.cel.functions import Overload, Run, dispatch
from dragoman.cel.stdlib.operators import index
from dragoman.cel.stdlib.optionals import index_optional
from dragoman.cel.types import Type, is_dyn_or_error
from dragoman.cel.values import NONE, CelValue, Optional, equal

_ANYTHING: Final = frozenset(("dyn", "any", "param"))


class Program:
    """A compiled expression: call it with the values of the environment's variables, in that order."""

    __slots__ = ("code", "slots", "variables")

    def __init__(self, code: Closure, variables: int, slots: int) -> None:
        self.code = code
        self.variables = variables
        self.slots = [None] * (slots - variables)

    def __call__(self, *values: CelValue) -> CelValue:
        return self.code([*values, *self.slots])


def compile_program(node: Expr, environment: Environment) -> Program:
    """Closures for a tree that `check` has annotated."""
    compiler = _Compiler(environment)
    code = compiler.code(node)
    return Program(code, len(environment.variables), compiler.slots)


def _is_certain(wanted: Type, given: Type) -> bool:
    if wanted.kind in _ANYTHING:
        return True
    if is_dyn_or_error(given) or given.kind == "null":
        return False
    return all(_is_certain(one, two) for one, two in zip(wanted.params, given.params, strict=False))


def _appended(step: Expr) -> tuple[Expr | None, Expr]:
    """The test (None: always) and the item of a macro's step: `accu + [item]`, or `test ? accu + [item] : accu`."""
    assert isinstance(step, Call)
    test = None
    if step.function == "_?_:_":
        test, step = step.args[0], step.args[1]
        assert isinstance(step, Call)
    added = step.args[1]
    assert isinstance(added, ListLit)
    return test, added.elements[0]


class _Compiler:
    __slots__ = ("constants", "environment", "lazy", "scopes", "slots")

    def __init__(self, environment: Environment) -> None:
        self.environment = environment
        self.scopes: list[dict[str, int]] = [{name: slot for slot, name in enumerate(environment.variables)}]
        self.slots = len(environment.variables)
        self.constants: dict[Closure, CelValue] = {}
        self.lazy: dict[int, Closure] = {}

    def code(self, node: Expr) -> Closure:
        match node:
            case Const():
                return self.constant(node.value)
            case Ident():
                return self.ident(node)
            case Select():
                return self.select(node)
            case Call():
                return self.call(node)
            case ListLit():
                return self.list_literal(node)
            case MapLit():
                return self.map_literal(node)
            case Comprehension():
                return _FOLDS.get(node.macro, _Compiler.fold)(self, node)
        return raising(EvalError(f"unknown type: {type(node).__name__}", node.offset))

    def constant(self, value: CelValue) -> Closure:
        def code(_: Frame) -> CelValue:
            return value

        self.constants[code] = value
        return code

    def folded(self, run: Run, *codes: Closure) -> Closure | None:
        """A constant if all arguments are, and computing it works."""
        if not all(code in self.constants for code in codes):
            return None
        try:
            return self.constant(run(*(self.constants[code] for code in codes)))
        except EvalError:
            return None

    def slot(self) -> int:
        self.slots += 1
        return self.slots - 1

    # ---- names and fields

    def ident(self, node: Ident) -> Closure:
        name = node.name
        scopes = self.scopes[:1] if name.startswith(".") else self.scopes
        for scope in reversed(scopes):
            slot = scope.get(name.removeprefix("."))
            if slot is not None:
                return self.variable(slot)
        return raising(EvalError(f"no such attribute(s): {name}: undeclared reference", node.offset))

    def variable(self, slot: int) -> Closure:
        init = self.lazy.get(slot)
        if init is None:
            return lambda frame: frame[slot]

        def code(frame: Frame) -> CelValue:
            value = frame[slot]
            if value is UNSET:
                value = frame[slot] = init(frame)
            return value

        return code

    def select(self, node: Select) -> Closure:
        operand = self.code(node.operand)
        field, offset = node.field, node.offset
        if node.test_only:
            return self.presence(operand, field, offset)
        kind = node.operand.type
        if kind.kind == "struct" and not self.environment.objects_are_maps:
            return attribute(operand, field)
        if kind.kind == "map":
            return entry(operand, field, offset)

        def code(frame: Frame) -> CelValue:
            return selected(operand(frame), field, offset)

        return code

    def presence(self, operand: Closure, field: str, offset: int) -> Closure:
        def code(frame: Frame) -> CelValue:
            value = operand(frame)
            if value.__class__ is dict:
                return field in value
            try:
                return present(value, field)
            except EvalError as error:
                raise placed(error, offset) from None

        return code

    # ---- calls

    def call(self, node: Call) -> Closure:
        special = _SPECIAL.get(node.function)
        if special is not None:
            return special(self, node)
        if node.target is not None and len(node.args) == 1 and node.function in ("or", "orValue"):
            return self.optional_or(node)
        codes = list(map(self.code, node.operands()))
        run = self.run(node, len(codes))
        if run is None:
            return raising(EvalError(f"unbound function: {node.function}: no such overload", node.offset))
        return self.folded(run, *codes) or called(run, codes, node.offset)

    def run(self, node: Call, count: int) -> Run | None:
        """What to run: directly where the static types leave no choice, by the kinds of values otherwise."""
        declared = self.environment.functions.get(node.function, ())
        is_member = node.target is not None
        overloads = tuple(
            overload
            for overload in declared
            if len(overload.args) == count
            and overload.member == is_member
            and (not node.overloads or overload.id in node.overloads)
        )
        if not overloads:
            return None
        runs = {overload.run for overload in overloads}
        if len(runs) == 1 and node.overloads and self.is_safe(overloads, node):
            return overloads[0].run
        return dispatch(overloads)

    def is_safe(self, overloads: tuple[Overload, ...], node: Call) -> bool:
        """Whether the static types make checks of the kinds at run time superfluous."""
        operands = node.operands()
        return all(
            wanted.kind in _ANYTHING or (_is_certain(wanted, operand.type) and self.is_trusted(operand))
            for overload in overloads
            for wanted, operand in zip(overload.args, operands, strict=True)
        )

    def is_trusted(self, node: Expr) -> bool:
        """Whether a static type is more than a guess: type variables may have been bound by what follows."""
        match node:
            case Const():
                return True
            case Ident():
                return node.name in self.scopes[0] and len(self.scopes) == 1
            case Select():
                return node.test_only or self.is_trusted(node.operand)
            case ListLit():
                return not node.optional and all(self.is_trusted(element) for element in node.elements)
            case Call(function="_[_]"):
                return self.is_trusted(node.args[0])
            case Call():
                declared = self.environment.functions.get(node.function, ())
                results = [overload.result for overload in declared if overload.id in node.overloads]
                return bool(results) and all(result.kind != "param" and not result.params for result in results)
        return False

    def optional_or(self, node: Call) -> Closure:
        assert node.target is not None
        left, right = self.code(node.target), self.code(node.args[0])
        offset = node.offset
        unwrap = node.function == "orValue"

        def code(frame: Frame) -> CelValue:
            value = left(frame)
            if value.__class__ is not Optional:
                raise NoSuchOverload(offset=offset)
            if value.present:
                return value.value if unwrap else value
            return right(frame)

        return code

    def conjunction(self, node: Call) -> Closure:
        return self.chain(node, all_of, stop=False)

    def disjunction(self, node: Call) -> Closure:
        return self.chain(node, any_of, stop=True)

    def chain(self, node: Call, join: Callable[[tuple[Closure, ...], int], Closure], *, stop: bool) -> Closure:
        """A flat chain without its constant terms: one that decides alone is the answer, the others say nothing."""
        codes = list(map(self.code, node.args))
        if any(self.constants.get(code) is stop for code in codes):
            return self.constant(stop)
        left = tuple(code for code in codes if self.constants.get(code) is not (not stop))
        if not left:
            return self.constant(not stop)
        return join(left, node.offset)

    def conditional(self, node: Call) -> Closure:
        test, then, other = map(self.code, node.args)
        if test in self.constants:
            decided = self.constants[test]
            if decided is True or decided is False:
                return then if decided else other
        offset = node.offset

        def code(frame: Frame) -> CelValue:
            decided = test(frame)
            if decided is True:
                return then(frame)
            if decided is False:
                return other(frame)
            raise NoSuchOverload("no such overload: no matching overload for '_?_:_'", offset)

        return code

    def equality(self, node: Call) -> Closure:
        left, right = map(self.code, node.args)
        return self.folded(equal, left, right) or equality(left, right, self.constants.get(right, UNSET), node.offset)

    def ordering(self, node: Call) -> Closure:
        left, right = map(self.code, node.args)
        run = self.run(node, 2)
        if run is None:
            return raising(NoSuchOverload(offset=node.offset))
        run = ORDERINGS[node.function]
        return self.folded(run, left, right) or ordering(node.function, left, right, self.constants, node.offset)

    def membership(self, node: Call) -> Closure:
        left, right = map(self.code, node.args)
        run = next(iter(self.environment.functions["@in"])).run
        found = self.folded(run, left, right)
        if found:
            return found
        among = self.constants.get(right, UNSET)
        literal = node.args[1]
        if isinstance(literal, ListLit) and not literal.elements and node.overloads == ("in_list",):
            # Decided beforehand, as upstream does: what stands on the left is not even evaluated.
            return self.constant(False)
        if among.__class__ is tuple and all(element.__class__ is str for element in among):
            return among_strings(left, frozenset(among))
        return called(run, [left, right], node.offset)

    def indexing(self, node: Call) -> Closure:
        left, right = map(self.code, node.args)
        operand, key = node.args
        offset = node.offset
        if operand.type.kind == "map" and isinstance(key, Const) and key.value.__class__ is str:
            return self.folded(index, left, right) or entry(left, key.value, offset)
        if operand.type.kind == "opaque":
            return called(index_optional, [left, right], offset)

        def run(one: CelValue, two: CelValue) -> CelValue:
            if one.__class__ is Optional:
                return index_optional(one, two)
            return index(one, two)

        return self.folded(run, left, right) or called(run, [left, right], offset)

    def optional_select(self, node: Call) -> Closure:
        operand = self.code(node.args[0])
        field = node.args[1]
        assert isinstance(field, Const)
        name: str = field.value
        offset = node.offset

        def code(frame: Frame) -> CelValue:
            value = operand(frame)
            if value.__class__ is dict:
                return Optional(value[name]) if name in value else NONE
            try:
                return select_optional(value, name)
            except EvalError as error:
                raise placed(error, offset) from None

        return code

    # ---- literals

    def list_literal(self, node: ListLit) -> Closure:
        codes = list(map(self.code, node.elements))
        if not node.optional:
            return self.folded(lambda *values: values, *codes) or (lambda frame: tuple([code(frame) for code in codes]))
        marked = [(code, at in node.optional) for at, code in enumerate(codes)]
        offset = node.offset

        def code(frame: Frame) -> CelValue:
            found: list[CelValue] = []
            for element, optional in marked:
                value = element(frame)
                if not optional:
                    found.append(value)
                elif value.__class__ is not Optional:
                    raise EvalError("cannot initialize optional list element from non-optional value", offset)
                elif value.present:
                    found.append(value.value)
            return tuple(found)

        return code

    def map_literal(self, node: MapLit) -> Closure:
        entries = [
            (self.code(key), self.code(value), at in node.optional) for at, (key, value) in enumerate(node.entries)
        ]
        offset = node.offset

        def code(frame: Frame) -> CelValue:
            found: dict[CelValue, CelValue] = {}
            for key_code, value_code, optional in entries:
                key = key_code(frame)
                value = value_code(frame)
                put_entry(found, key, value, optional=optional, offset=offset)
            return found

        if not node.optional and all(key in self.constants and value in self.constants for key, value, _ in entries):
            try:
                return self.constant(code([]))
            except EvalError:
                return code
        return code

    # ---- loops

    def within(self, names: dict[str, int], node: Expr) -> Closure:
        self.scopes.append(names)
        code = self.code(node)
        self.scopes.pop()
        return code

    def fold(self, node: Comprehension) -> Closure:
        """Any loop, as the language defines it."""
        values, init = self.code(node.range), self.code(node.init)
        one, two, accu = self.slot(), self.slot(), self.slot()
        names = {node.accu: accu, node.var: one} | ({node.var2: two} if node.var2 else {})
        condition = self.within(names, node.condition)
        step = self.within(names, node.step)
        result = self.within({node.accu: accu}, node.result)
        pairs = bool(node.var2)

        def code(frame: Frame) -> CelValue:
            frame[accu] = init(frame)
            if pairs:
                for key, element in iterated_pairs(values(frame)):
                    frame[one], frame[two] = key, element
                    if not condition(frame):
                        break
                    frame[accu] = step(frame)
            else:
                for element in iterated(values(frame)):
                    frame[one] = element
                    if not condition(frame):
                        break
                    frame[accu] = step(frame)
            return result(frame)

        return placing(code, node.offset)

    def quantifier(self, node: Comprehension) -> Closure:
        """all and exists: an error counts only if no element decides."""
        assert isinstance(node.step, Call)
        stop = node.macro == "exists"
        values, one, two, predicate = self.loop(node, node.step.args[1])
        pairs = two if node.var2 else -1
        offset = node.offset

        def code(frame: Frame) -> CelValue:
            failed: EvalError | None = None
            for item in with_pairs(values(frame), frame, pairs):
                frame[one] = item
                try:
                    value = predicate(frame)
                except EvalError as error:
                    failed = failed or error
                    continue
                if value is stop:
                    return stop
                if value is not (not stop):
                    failed = failed or NoSuchOverload(offset=offset)
            if failed is not None:
                raise failed
            return not stop

        return placing(code, offset)

    def loop(self, node: Comprehension, body: Expr) -> tuple[Closure, int, int, Closure]:
        """Range, slots of the variables, and body."""
        values = self.code(node.range)
        one, two = self.slot(), self.slot()
        names = {node.var: one} | ({node.var2: two} if node.var2 else {})
        return values, one, two, self.within(names, body)

    def exists_one(self, node: Comprehension) -> Closure:
        assert isinstance(node.step, Call)
        values, one, two, predicate = self.loop(node, node.step.args[0])
        pairs = two if node.var2 else -1
        offset = node.offset

        def code(frame: Frame) -> CelValue:
            count = 0
            for item in with_pairs(values(frame), frame, pairs):
                frame[one] = item
                value = predicate(frame)
                if value is True:
                    count += 1
                elif value is not False:
                    raise NoSuchOverload(offset=offset)
            return count == 1

        return placing(code, offset)

    def collected(self, node: Comprehension) -> Closure:
        """map, filter and transformList: macros that append to a list, with or without a test."""
        test, item = _appended(node.step)
        values, one, two, element = self.loop(node, item)
        names = {node.var: one} | ({node.var2: two} if node.var2 else {})
        keeps = self.within(names, test) if test is not None else self.constant(True)
        pairs = two if node.var2 else -1
        offset = node.offset

        def code(frame: Frame) -> CelValue:
            found: list[CelValue] = []
            for item in with_pairs(values(frame), frame, pairs):
                frame[one] = item
                kept = keeps(frame)
                if kept is True:
                    found.append(element(frame))
                elif kept is not False:
                    raise NoSuchOverload(offset=offset)
            return tuple(found)

        return placing(code, offset)

    def bind(self, node: Comprehension) -> Closure:
        """cel.bind: evaluated when first used, and only then."""
        init = self.code(node.init)
        if init in self.constants:
            slot = self.slot()
            value = self.constants[init]
            result = self.within({node.accu: slot}, node.result)
            if result in self.constants:
                return result

            def known(frame: Frame) -> CelValue:
                frame[slot] = value
                return result(frame)

            return known
        slot = self.slot()
        self.lazy[slot] = init
        result = self.within({node.accu: slot}, node.result)

        def code(frame: Frame) -> CelValue:
            frame[slot] = UNSET
            return result(frame)

        return code


_FOLDS: Final[dict[str, Callable[[_Compiler, Comprehension], Closure]]] = {
    "all": _Compiler.quantifier,
    "exists": _Compiler.quantifier,
    "exists_one": _Compiler.exists_one,
    "map": _Compiler.collected,
    "filter": _Compiler.collected,
    "bind": _Compiler.bind,
}

_SPECIAL: Final[dict[str, Callable[[_Compiler, Call], Closure]]] = {
    "_&&_": _Compiler.conjunction,
    "_||_": _Compiler.disjunction,
    "_?_:_": _Compiler.conditional,
    "_==_": _Compiler.equality,
    "_<_": _Compiler.ordering,
    "_<=_": _Compiler.ordering,
    "_>_": _Compiler.ordering,
    "_>=_": _Compiler.ordering,
    "@in": _Compiler.membership,
    "_[_]": _Compiler.indexing,
    "_?._": _Compiler.optional_select,
}
