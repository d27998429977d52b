"""From text to something that runs: parse, check, compile, in one step."""

from __future__ import annotations

from dragoman.cel.ast import Expr
from dragoman.cel.check import check
from dragoman.cel.compile import Program, compile_program
from dragoman.cel.environment import Environment
from dragoman.cel.faults import CompileError, Issue
from dragoman.cel.parse import parse
from dragoman.cel.types import DYN, WEIGHT_MAX, Type, TypeTooLarge
from dragoman.cel.validate import validate
from dragoman.cel.walk import nodes


class Expression:
    """A compiled expression: `program` runs it, `type` is its static type, `tree` its checked syntax."""

    __slots__ = ("program", "text", "tree", "type")

    def __init__(self, text: str, tree: Expr, program: Program) -> None:
        self.text = text
        self.tree = tree
        self.type: Type = tree.type
        self.program = program


def checked(text: str, environment: Environment) -> Expr:
    """The tree with types. Raises Refused."""
    try:
        tree, issues = check(parse(text), environment)
    except RecursionError:
        raise CompileError(text, [Issue(0, "expression is nested too deeply")]) from None
    except TypeTooLarge:
        raise CompileError(text, [Issue(0, f"a type in the expression has more than {WEIGHT_MAX} parts")]) from None
    if not issues and environment.strict:
        issues = validate(tree)
    if issues:
        raise CompileError(text, issues)
    return tree


def compile_expression(text: str, environment: Environment) -> Expression:
    """Raises Refused with all problems found."""
    tree = checked(text, environment)
    return Expression(text, tree, compile_program(tree, environment))


def compile_unchecked(text: str, environment: Environment) -> Expression:
    """Names are resolved, types are not: what does not fit is an error at run time. Raises Refused for syntax."""
    tree, _ = check(parse(text), environment)
    _forget_types(tree)
    return Expression(text, tree, compile_program(tree, environment))


def _forget_types(tree: Expr) -> None:

    for node in nodes(tree):
        node.type = DYN
