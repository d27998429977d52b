"""Which nodes does a tree have? Every node once, parents before children."""

from __future__ import annotations

from collections.abc import Iterator

from dragoman.cel.ast import Call, Comprehension, Expr, ListLit, MapLit, Select, StructLit


def children(node: Expr) -> list[Expr]:
    """The direct parts of a node, in the order they stand."""
    match node:
        case Select():
            return [node.operand]
        case Call():
            return node.operands()
        case ListLit():
            return node.elements
        case MapLit():
            return [part for entry in node.entries for part in entry]
        case StructLit():
            return node.values
        case Comprehension():
            return [node.range, node.init, node.condition, node.step, node.result]
    return []


def nodes(tree: Expr) -> Iterator[Expr]:
    """All nodes of a tree."""
    left = [tree]
    while left:
        node = left.pop()
        yield node
        left.extend(reversed(children(node)))
