"""What can an expression read of a variable? The constant paths that it follows into it.

`v.a["b"].c` reads the path (a, b, c); `has()`, `in`, `.?` and `[?]` with a constant read the same path; whatever is
done with a path otherwise reads all that is below it. Names bound by cel.bind() are seen through. Never evaluates.
"""

from __future__ import annotations

from dragoman.cel.ast import Call, Comprehension, Const, Expr, Ident, ListLit, Select
from dragoman.cel.walk import children

AccessPath = tuple[str, ...]


def paths_read(tree: Expr, variable: str) -> tuple[frozenset[AccessPath], dict[int, AccessPath]]:
    """All paths read, shortest covering ones only; and for offsets of nodes the path that the node stands for."""
    reader = _Reader(variable)
    reader.visit(tree, {})
    found = {path for path in reader.found if not any(path[:n] in reader.found for n in range(len(path)))}
    return frozenset(found), reader.places


def texts_compared(tree: Expr, variable: str) -> dict[AccessPath, frozenset[str]]:
    """Paths that are only ever compared with constant texts (`==`, `!=`, `in` a list), or tested with has().

    An expression cannot tell apart two texts at such a path that are not among those given here.
    """
    reader = _Comparer(variable)
    reader.visit(tree, {})
    open_ = reader.found
    return {
        path: frozenset(texts)
        for path, texts in reader.texts.items()
        if not any(path[: n + 1] in open_ for n in range(-1, len(path)))
    }


class _Reader:
    __slots__ = ("found", "places", "variable")

    def __init__(self, variable: str) -> None:
        self.variable = variable
        self.found: set[AccessPath] = set()
        self.places: dict[int, AccessPath] = {}

    def visit(self, node: Expr, bound: dict[str, AccessPath | None]) -> None:
        path = self.path(node, bound)
        if path is not None:
            self.found.add(path)
            return
        if isinstance(node, Call) and node.function == "@in":
            key, within = node.args
            outer = self.path(within, bound)
            if outer is not None and isinstance(key, Const) and isinstance(key.value, str):
                self.found.add((*outer, key.value))
                return
        if isinstance(node, Comprehension):
            self.fold(node, bound)
            return
        for part in children(node):
            self.visit(part, bound)

    def fold(self, node: Comprehension, bound: dict[str, AccessPath | None]) -> None:
        self.visit(node.range, bound)
        alias = self.path(node.init, bound) if node.macro == "bind" else None
        if alias is None:
            self.visit(node.init, bound)
        inner = {**bound, node.accu: alias}
        if node.macro != "bind":
            looped = {**inner, node.var: None, node.var2: None}
            self.visit(node.condition, looped)
            self.visit(node.step, looped)
        self.visit(node.result, inner)

    def path(self, node: Expr, bound: dict[str, AccessPath | None]) -> AccessPath | None:
        """The constant path that a node stands for, if it does."""
        if isinstance(node, Ident):
            if node.name in bound:
                return bound[node.name]
            return () if node.name.removeprefix(".") == self.variable else None
        operand: Expr
        if isinstance(node, Select):
            operand, step = node.operand, node.field
        elif isinstance(node, Call) and node.function in ("_[_]", "_[?_]", "_?._"):
            operand, key = node.args
            if not isinstance(key, Const) or not isinstance(key.value, str):
                return None
            step = key.value
        else:
            return None
        outer = self.path(operand, bound)
        if outer is None:
            return None
        self.places[node.offset] = (*outer, step)
        return (*outer, step)


class _Comparer(_Reader):
    """texts: what paths are compared with; found: paths that are read otherwise, too."""

    __slots__ = ("texts",)

    def __init__(self, variable: str) -> None:
        super().__init__(variable)
        self.texts: dict[AccessPath, set[str]] = {}

    def visit(self, node: Expr, bound: dict[str, AccessPath | None]) -> None:
        if isinstance(node, Comprehension):
            reader = _Reader(self.variable)
            reader.visit(node, bound)
            self.found |= reader.found
            return
        compared = self._compared(node, bound)
        if compared is None:
            super().visit(node, bound)
        else:
            path, texts = compared
            self.texts.setdefault(path, set()).update(texts)

    def _compared(self, node: Expr, bound: dict[str, AccessPath | None]) -> tuple[AccessPath, list[str]] | None:
        """The path and the texts, if the node compares one with constant texts or tests whether it is there."""
        if isinstance(node, Select) and node.test_only:
            path = self.path(node, bound)
            return None if path is None else (path, [])
        if not isinstance(node, Call) or len(node.args) != 2:
            return None
        left, right = node.args
        if node.function in ("_==_", "_!=_"):
            for one, other in ((left, right), (right, left)):
                path = self.path(one, bound)
                if path is not None and isinstance(other, Const) and isinstance(other.value, str):
                    return path, [other.value]
        if node.function == "@in" and isinstance(right, ListLit) and not right.optional:
            path = self.path(left, bound)
            texts = [item.value for item in right.elements if isinstance(item, Const) and isinstance(item.value, str)]
            if path is not None and len(texts) == len(right.elements):
                return path, texts
        return None
