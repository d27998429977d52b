"""Does an expression make sense before it runs? Names resolved, types inferred, overloads narrowed down.

Reports every problem it finds, with cel-go's texts. Never evaluates anything.
"""

from __future__ import annotations

from dragoman.cel import types as t
from dragoman.cel.ast import Call, Comprehension, Const, Expr, Ident, ListLit, MapLit, Select, StructLit
from dragoman.cel.environment import Environment
from dragoman.cel.faults import Issue
from dragoman.cel.functions import Overload
from dragoman.cel.types import Bindings, Type
from dragoman.cel.values import TYPE_OF, CelValue


def check(node: Expr, environment: Environment) -> tuple[Expr, list[Issue]]:
    """The tree with types, and what is wrong with it. Nodes are changed in place, names may be replaced."""
    checker = _Checker(environment)
    root = checker.visit(node)
    for seen in checker.seen:
        seen.type = checker.bindings.substitute(seen.type, free_to_dyn=True)
    return root, checker.issues


def type_of_const(value: CelValue) -> Type:
    """The static type of a literal."""
    if value is None:
        return t.NULL
    if isinstance(value, Type):
        return t.type_of(value)
    return TYPE_OF[value.__class__]


class _Checker:
    __slots__ = ("bindings", "environment", "fresh", "issues", "scopes", "seen")

    def __init__(self, environment: Environment) -> None:
        self.environment = environment
        self.bindings = Bindings()
        self.issues: list[Issue] = []
        self.scopes: list[dict[str, Type]] = []
        self.seen: list[Expr] = []
        self.fresh = 0

    def visit(self, node: Expr) -> Expr:
        match node:
            case Const():
                node.type = type_of_const(node.value)
            case Ident():
                node = self.ident(node)
            case Select():
                node = self.select(node)
            case Call():
                self.call(node)
            case ListLit():
                self.list_literal(node)
            case MapLit():
                self.map_literal(node)
            case Comprehension():
                self.fold(node)
            case StructLit():
                node = self.object_literal(node)
        self.seen.append(node)
        return node

    def issue(self, node: Expr, message: str) -> None:
        self.issues.append(Issue(node.offset, message))

    def undeclared(self, node: Expr, name: str) -> None:
        self.issue(node, f"undeclared reference to '{name}' (in container '{self.environment.container}')")

    def variable(self) -> Type:
        self.fresh += 1
        return Type("param", f"_var{self.fresh}")

    # ---- names

    def local(self, name: str) -> Type | None:
        for scope in reversed(self.scopes):
            if name in scope:
                return scope[name]
        return None

    def named(self, name: str, offset: int) -> Expr | None:
        """The variable or type that a global name stands for."""
        for candidate in self.environment.candidates(name):
            kind = self.environment.variables.get(candidate)
            if kind is not None:
                found: Expr = Ident(offset, f".{candidate}" if self.local(candidate) else candidate)
                found.type = kind
                return found
            denoted = self.environment.type_names.get(candidate)
            if denoted is not None:
                found = Const(offset, denoted)
                found.type = t.type_of(denoted)
                return found
        return None

    def ident(self, node: Ident) -> Expr:
        kind = self.local(node.name)
        if kind is not None:
            node.type = kind
            return node
        found = self.named(node.name, node.offset)
        if found is not None:
            return found
        self.undeclared(node, node.name)
        node.type = t.ERROR
        return node

    def select(self, node: Select) -> Expr:
        path = None if node.test_only else dotted(node)
        if path is not None and self.local(path.partition(".")[0]) is None:
            found = self.named(path, node.offset)
            if found is not None:
                return found
        node.operand = self.visit(node.operand)
        kind = self.field(node, node.operand, node.field, optional=False)
        node.type = t.BOOL if node.test_only else self.bindings.substitute(kind)
        return node

    def field(self, node: Expr, operand: Expr, field: str, *, optional: bool) -> Type:
        """The type of operand.field."""
        target, was_optional = t.unwrap_optional(self.bindings.substitute(operand.type))
        found = t.ERROR
        if target.kind == "map":
            found = target.params[1]
        elif target.kind == "struct":
            declared = self.environment.fields.get(target.name, {})
            if field in declared:
                found = declared[field]
            else:
                self.issue(node, f"undefined field '{field}'")
        elif target.kind == "param":
            self.bindings.assign(t.DYN, target)
            found = t.DYN
        else:
            if not t.is_dyn_or_error(target):
                self.issue(node, f"type '{t.show(target)}' does not support field selection")
            found = t.DYN
        return t.optional_of(found) if optional or was_optional else found

    # ---- calls

    def call(self, node: Call) -> None:
        if node.function == "_?._":
            operand = self.visit(node.args[0])
            field = node.args[1]
            assert isinstance(field, Const)
            self.visit(field)
            node.args[0] = operand
            node.type = self.bindings.substitute(self.field(node, operand, field.value, optional=True))
            node.overloads = ("select_optional_field",)
            return
        for index, arg in enumerate(node.args):
            node.args[index] = self.visit(arg)
        if node.target is not None:
            if self.namespaced(node):
                return
            node.target = self.visit(node.target)
        function = self.function(node.function)
        if function is None:
            self.undeclared(node, node.function)
            node.type = t.ERROR
            return
        node.function = function[0].function
        self.resolve(node, function)

    def function(self, name: str) -> tuple[Overload, ...] | None:
        for candidate in self.environment.candidates(name):
            found = self.environment.functions.get(candidate)
            if found is not None:
                return found
        return None

    def namespaced(self, node: Call) -> bool:
        """Whether `a.b.c()` calls a function of that very name; then it is made a call without receiver."""
        prefix = dotted(node.target)
        if prefix is None:
            return False
        function = self.function(f"{prefix}.{node.function}")
        if function is None:
            return False
        node.function = function[0].function
        node.target = None
        self.resolve(node, function)
        return True

    def resolve(self, node: Call, function: tuple[Overload, ...]) -> None:
        """Narrows the overloads down to those that the static types allow."""
        types = tuple(operand.type for operand in node.operands())
        if node.function in ("_&&_", "_||_"):
            self.logical(node, types)
            return
        result: Type | None = None
        fitting: list[str] = []
        for overload in function:
            if overload.member != (node.target is not None):
                continue
            wanted, returned = self.instantiated(overload)
            if not self.bindings.assign_all(types, wanted):
                continue
            fitting.append(overload.id)
            returned = self.bindings.substitute(returned)
            if result is None:
                result = returned
            elif not t.is_dyn(result) and returned != result:
                result = t.DYN
        if result is None:
            shown = [t.show(self.bindings.substitute(kind, free_to_dyn=True)) for kind in types]
            signature = f"{shown[0]}.({', '.join(shown[1:])})" if node.target else f"({', '.join(shown)})"
            self.issue(node, f"found no matching overload for '{node.function}' applied to '{signature}'")
            result = t.ERROR
        node.overloads = tuple(fitting)
        node.type = result

    def logical(self, node: Call, types: tuple[Type, ...]) -> None:
        node.type = t.BOOL
        for operand, kind in zip(node.args, types, strict=True):
            if not self.bindings.assign(kind, t.BOOL):
                self.mismatch(operand, t.BOOL, kind)
                node.type = t.ERROR

    def instantiated(self, overload: Overload) -> tuple[tuple[Type, ...], Type]:
        """Parameter and result types with fresh variables."""
        fresh: dict[str, Type] = {}
        wanted = tuple(self.freshened(kind, fresh) for kind in overload.args)
        return wanted, self.freshened(overload.result, fresh)

    def freshened(self, kind: Type, fresh: dict[str, Type]) -> Type:
        if kind.kind == "param":
            if kind.name not in fresh:
                fresh[kind.name] = self.variable()
            return fresh[kind.name]
        if not kind.params:
            return kind
        return t.compound(kind.kind, kind.name, tuple(self.freshened(p, fresh) for p in kind.params))

    def mismatch(self, node: Expr, expected: Type, found: Type) -> None:
        expected, found = self.bindings.substitute(expected), self.bindings.substitute(found)
        self.issue(node, f"expected type '{t.show(expected)}' but found '{t.show(found)}'")

    # ---- literals and loops

    def element(self, node: Expr, *, optional: bool) -> Type:
        """The type of a list element or map value; `?` takes it out of an optional."""
        if not optional:
            return node.type
        kind, was_optional = t.unwrap_optional(self.bindings.substitute(node.type))
        if not was_optional and not t.is_dyn(kind):
            self.mismatch(node, t.optional_of(kind), kind)
        return kind

    def joined(self, node: Expr, previous: Type | None, current: Type) -> Type:
        """The common type of what came before and what comes now."""
        if previous is None:
            return current
        if self.bindings.assign(previous, current):
            return t.most_general(previous, current)
        return t.DYN

    def list_literal(self, node: ListLit) -> None:
        kind: Type | None = None
        for index, element in enumerate(node.elements):
            node.elements[index] = element = self.visit(element)
            kind = self.joined(element, kind, self.element(element, optional=index in node.optional))
        node.type = t.list_of(kind if kind is not None else self.variable())

    def map_literal(self, node: MapLit) -> None:
        key_type: Type | None = None
        value_type: Type | None = None
        for index, (key, value) in enumerate(node.entries):
            key, value = self.visit(key), self.visit(value)
            node.entries[index] = (key, value)
            key_type = self.joined(key, key_type, key.type)
            value_type = self.joined(value, value_type, self.element(value, optional=index in node.optional))
        if key_type is None or value_type is None:
            key_type, value_type = self.variable(), self.variable()
        node.type = t.map_of(key_type, value_type)

    def object_literal(self, node: StructLit) -> Expr:
        """A map of the fields, with the type of the object."""
        declared = self.environment.literal_fields(node.name)
        if declared is None:
            self.undeclared(node, node.name)
            node.type = t.ERROR
            return node
        entries: list[tuple[Expr, Expr]] = []
        for index, (field, value) in enumerate(zip(node.fields, node.values, strict=True)):
            self.matches_place(f"{node.name}.{field}", value)
            value = self.visit(value)
            kind = self.element(value, optional=index in node.optional)
            if field in declared:
                if not self.bindings.assign(declared[field], kind):
                    self.mismatch(value, declared[field], kind)
            elif declared:
                self.issue(node, f"undefined field '{field}'")
            key = Const(node.offset, field)
            key.type = t.STRING
            entries.append((key, value))
        made = MapLit(node.offset, entries, node.optional)
        made.type = t.struct(node.name)
        return made

    def matches_place(self, place: str, value: Expr) -> None:
        """An object of the open family is named after the field that it stands in."""
        root = self.environment.open_literals
        if not root or not place.startswith(root):
            return
        for part in value.elements if isinstance(value, ListLit) else [value]:
            if isinstance(part, StructLit) and part.name != place and self.environment.literal_fields(part.name) == {}:
                self.issue(part, f'type mismatch: unexpected type name "{part.name}", expected "{place}"')

    def fold(self, node: Comprehension) -> None:
        node.range = self.visit(node.range)
        node.init = self.visit(node.init)
        one, two = self.ranged(node)
        accu = node.init.type
        self.scopes.append({node.accu: accu})
        self.scopes.append({node.var: one} | ({node.var2: two} if node.var2 else {}))
        node.condition = self.visit(node.condition)
        if not self.bindings.assign(t.BOOL, node.condition.type):
            self.mismatch(node.condition, t.BOOL, node.condition.type)
        node.step = self.visit(node.step)
        if not self.bindings.assign(accu, node.step.type):
            self.mismatch(node.step, accu, node.step.type)
        self.scopes.pop()
        node.result = self.visit(node.result)
        self.scopes.pop()
        node.type = self.bindings.substitute(node.result.type)

    def ranged(self, node: Comprehension) -> tuple[Type, Type]:
        """The types of the iteration variables."""
        kind = self.bindings.substitute(node.range.type)
        if kind.kind == "list":
            return (t.INT, kind.params[0]) if node.var2 else (kind.params[0], t.ERROR)
        if kind.kind == "map":
            return kind.params[0], kind.params[1]
        if kind.kind in ("dyn", "error", "param"):
            self.bindings.assign(t.DYN, kind)
            return t.DYN, t.DYN
        message = f"expression of type '{t.show(kind)}' cannot be range of a comprehension"
        self.issue(node.range, f"{message} (must be list, map, or dynamic)")
        return t.ERROR, t.ERROR


def dotted(node: Expr | None) -> str | None:
    """`a.b.c` if the node is made of names only."""
    parts: list[str] = []
    while isinstance(node, Select) and not node.test_only:
        parts.append(node.field)
        node = node.operand
    if not isinstance(node, Ident):
        return None
    return ".".join([node.name, *reversed(parts)])
