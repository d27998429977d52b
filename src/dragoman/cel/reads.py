"""What can an expression read of a variable? The constant paths that it follows into it.

`v.a["b"].c` reads the path (a, b, c); `has()`, `in`, `.?` and `[?]` with a constant read the same path; whatever is
done with a path otherwise reads all that is below it. Names bound by cel.bind() are seen through. Never evaluates.
"""

from __future__ import annotations

from dragoman.cel.ast import Call, Const, Fold, Ident, Node, Select
from dragoman.cel.walk import children

Path = tuple[str, ...]


def paths_read(tree: Node, variable: str) -> tuple[frozenset[Path], dict[int, Path]]:
    """All paths read, shortest covering ones only; and for offsets of nodes the path that the node stands for."""
    reader = _Reader(variable)
    reader.visit(tree, {})
    found = {path for path in reader.found if not any(path[:n] in reader.found for n in range(len(path)))}
    return frozenset(found), reader.places


class _Reader:
    __slots__ = ("found", "places", "variable")

    def __init__(self, variable: str) -> None:
        self.variable = variable
        self.found: set[Path] = set()
        self.places: dict[int, Path] = {}

    def visit(self, node: Node, bound: dict[str, Path | None]) -> None:
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
        if isinstance(node, Fold):
            self.fold(node, bound)
            return
        for part in children(node):
            self.visit(part, bound)

    def fold(self, node: Fold, bound: dict[str, Path | None]) -> None:
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

    def path(self, node: Node, bound: dict[str, Path | None]) -> Path | None:
        """The constant path that a node stands for, if it does."""
        if isinstance(node, Ident):
            if node.name in bound:
                return bound[node.name]
            return () if node.name.removeprefix(".") == self.variable else None
        operand: Node
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
