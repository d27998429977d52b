"""What does the text say? Tokens to a syntax tree, macros expanded.

Precedence climbing with explicit depth: deep nesting is refused with a message, long `&&` and `||` chains are flat.
Never resolves names and never judges types.
"""

from __future__ import annotations

from typing import Final

from dragoman.cel.ast import Call, Const, Ident, ListLit, MapLit, Node, Select, StructLit
from dragoman.cel.faults import Issue, Refused
from dragoman.cel.lex import Token, tokens_of
from dragoman.cel.macros import MACROS, MacroError
from dragoman.cel.values import INT_MAX

DEPTH_MAX: Final = 250

_BINARY: Final[dict[str, int]] = {
    "==": 3,
    "!=": 3,
    "<": 3,
    "<=": 3,
    ">": 3,
    ">=": 3,
    "in": 3,
    "+": 4,
    "-": 4,
    "*": 5,
    "/": 5,
    "%": 5,
}
_FUNCTION: Final[dict[str, str]] = {sign: f"_{sign}_" for sign in _BINARY} | {"in": "@in"}
_RESERVED: Final = frozenset(
    (
        *("as", "break", "const", "continue", "else", "for", "function", "if", "import", "let", "loop", "package"),
        *("namespace", "return", "var", "void", "while"),
    )
)
_LITERALS: Final = frozenset(("uint", "double", "string", "bytes"))
_WORDS: Final = {"true": True, "false": False, "null": None}


def parse(text: str) -> Node:
    """The tree of an expression. Raises Refused."""
    return _Parser(text).whole()


class _Parser:
    __slots__ = ("at", "depth", "text", "token", "tokens")

    def __init__(self, text: str) -> None:
        self.text = text
        self.tokens = tokens_of(text)
        self.at = 0
        self.token = self.tokens[0]
        self.depth = 0

    def whole(self) -> Node:
        node = self.expression()
        if self.token.kind != "end":
            raise self.unexpected()
        return node

    # ---- tokens

    def advance(self) -> Token:
        token = self.token
        self.at += 1
        self.token = self.tokens[self.at]
        return token

    def accept(self, kind: str) -> Token | None:
        return self.advance() if self.token.kind == kind else None

    def expect(self, kind: str) -> Token:
        if self.token.kind != kind:
            raise self.unexpected(f", expecting '{kind}'")
        return self.advance()

    def unexpected(self, more: str = "") -> Refused:
        return self.refused(self.token.offset, f"Syntax error: unexpected '{self.token.text[:40]}'{more}")

    def refused(self, offset: int, message: str) -> Refused:
        return Refused(self.text, [Issue(offset, message)])

    def deeper(self, levels: int = 1) -> None:
        self.depth += levels
        if self.depth > DEPTH_MAX:
            raise self.refused(self.token.offset, f"expression recursion limit exceeded: {DEPTH_MAX}")

    # ---- expressions

    def expression(self) -> Node:
        """conditionalOr, or `a ? b : c` (where b is no ternary itself and c may be one)."""
        depth = self.depth
        self.deeper()
        tests: list[tuple[Node, Token, Node]] = []
        node = self.logical()
        while self.token.kind == "?":
            mark = self.advance()
            then = self.logical()
            self.expect(":")
            self.deeper()
            tests.append((node, mark, then))
            node = self.logical()
        for test, mark, then in reversed(tests):
            node = Call(mark.offset, "_?_:_", [test, then, node])
        self.depth = depth
        return node

    def logical(self) -> Node:
        """`||` over `&&` over relations, each chain one flat node."""
        alternatives = [self.conjunction()]
        first = self.token.offset
        while self.accept("||"):
            alternatives.append(self.conjunction())
        return alternatives[0] if len(alternatives) == 1 else Call(first, "_||_", alternatives)

    def conjunction(self) -> Node:
        terms = [self.binary(3)]
        first = self.token.offset
        while self.accept("&&"):
            terms.append(self.binary(3))
        return terms[0] if len(terms) == 1 else Call(first, "_&&_", terms)

    def binary(self, level: int) -> Node:
        depth = self.depth
        node = self.unary()
        while True:
            found = _BINARY.get(self.token.kind)
            if found is None or found < level:
                self.depth = depth
                return node
            sign = self.advance()
            self.deeper()
            node = Call(sign.offset, _FUNCTION[sign.kind], [node, self.binary(found + 1)])

    def unary(self) -> Node:
        if self.token.kind == "!":
            first = self.token
            count = 0
            while self.accept("!"):
                count += 1
            node = self.signed()
            return Call(first.offset, "!_", [node]) if count % 2 else node
        if self.token.kind == "-":
            first = self.token
            count = 1
            self.advance()
            while self.accept("-"):
                count += 1
            if count == 1 and self.token.kind in ("int", "double"):
                return self.member(self.literal(first))
            node = self.member()
            return Call(first.offset, "-_", [node]) if count % 2 else node
        return self.member()

    def signed(self) -> Node:
        """A member, or a number with its minus sign."""
        if self.token.kind != "-":
            return self.member()
        minus = self.advance()
        if self.token.kind not in ("int", "double"):
            raise self.unexpected()
        return self.member(self.literal(minus))

    def member(self, node: Node | None = None) -> Node:
        node = self.primary() if node is None else node
        depth = self.depth
        while True:
            if self.token.kind == ".":
                self.deeper()
                node = self.selection(node, self.advance())
            elif self.token.kind == "[":
                self.deeper()
                bracket = self.advance()
                function = "_[?_]" if self.accept("?") else "_[_]"
                node = Call(bracket.offset, function, [node, self.expression()])
                self.expect("]")
            else:
                self.depth = depth
                return node

    def selection(self, operand: Node, dot: Token) -> Node:
        optional = self.accept("?")
        quoted = self.accept("quoted")
        name = quoted or self.expect("name")
        field: str = name.value if quoted else name.text
        if optional:
            return Call(dot.offset, "_?._", [operand, Const(name.offset, field)])
        if self.token.kind == "(" and not quoted:
            opened = self.advance()
            return self.call(opened, field, self.arguments(")"), operand)
        return Select(dot.offset, operand, field)

    # ---- primaries

    def primary(self) -> Node:
        token = self.token
        kind = token.kind
        if kind == "name" or kind == ".":
            return self.name()
        if kind == "int":
            return self.literal(None)
        if kind in _LITERALS:
            return Const(self.advance().offset, token.value)
        if kind in _WORDS:
            return Const(self.advance().offset, _WORDS[kind])
        if kind == "(":
            self.advance()
            node = self.expression()
            self.expect(")")
            return node
        if kind == "[":
            return self.list_literal()
        if kind == "{":
            return self.map_literal()
        raise self.unexpected()

    def literal(self, minus: Token | None) -> Node:
        """A number with its sign, which is a part of it."""
        token = self.advance()
        offset = minus.offset if minus else token.offset
        if minus:
            return Const(offset, -token.value)
        if token.kind == "int" and token.value > INT_MAX:
            raise self.refused(offset, "invalid int literal")
        return Const(offset, token.value)

    def name(self) -> Node:
        dot = self.accept(".")
        token = self.expect("name")
        if token.text in _RESERVED:
            raise self.refused(token.offset, f"reserved identifier: {token.text}")
        name = f".{token.text}" if dot else token.text
        if self.token.kind == "(":
            opened = self.advance()
            return self.call(opened, name, self.arguments(")"), None)
        struct = self.struct_literal(name)
        return struct or Ident(token.offset, name)

    def struct_literal(self, name: str) -> Node | None:
        """`a.b.C{...}`, told from a selection by looking ahead for the brace."""
        at = self.at
        while self.tokens[at].kind == "." and self.tokens[at + 1].kind == "name":
            name += f".{self.tokens[at + 1].text}"
            at += 2
        if self.tokens[at].kind != "{":
            return None
        self.at = at
        self.token = self.tokens[at]
        brace = self.advance()
        values: list[Node] = []
        while self.token.kind != "}":
            self.accept("?")
            if not self.accept("quoted"):
                self.expect("name")
            self.expect(":")
            values.append(self.expression())
            if not self.accept(","):
                break
        self.expect("}")
        return StructLit(brace.offset, name, values)

    def list_literal(self) -> Node:
        bracket = self.advance()
        elements: list[Node] = []
        optional: list[int] = []
        while self.token.kind != "]":
            if self.accept("?"):
                optional.append(len(elements))
            elements.append(self.expression())
            if not self.accept(","):
                break
        self.expect("]")
        return ListLit(bracket.offset, elements, frozenset(optional))

    def map_literal(self) -> Node:
        brace = self.advance()
        entries: list[tuple[Node, Node]] = []
        optional: list[int] = []
        while self.token.kind != "}":
            if self.accept("?"):
                optional.append(len(entries))
            key = self.expression()
            self.expect(":")
            entries.append((key, self.expression()))
            if not self.accept(","):
                break
        self.expect("}")
        return MapLit(brace.offset, entries, frozenset(optional))

    def arguments(self, closing: str) -> list[Node]:
        arguments: list[Node] = []
        while self.token.kind != closing or arguments:
            arguments.append(self.expression())
            if not self.accept(","):
                break
        self.expect(closing)
        return arguments

    def call(self, opened: Token, function: str, arguments: list[Node], target: Node | None) -> Node:
        macro = MACROS.get((function, len(arguments), target is not None))
        if macro:
            try:
                expanded = macro(opened.offset, target, arguments)
            except MacroError as error:
                raise self.refused(error.offset, error.message) from None
            if expanded is not None:
                return expanded
        return Call(opened.offset, function, arguments, target)
