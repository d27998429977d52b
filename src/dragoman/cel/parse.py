"""What does the text say? Tokens to a syntax tree, macros expanded.

Precedence climbing with explicit depth: deep nesting is refused with a message, long `&&` and `||` chains are flat.
Never resolves names and never judges types.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from dragoman.cel.ast import Call, Const, Expr, Ident, ListLit, MapLit, Select, StructLit
from dragoman.cel.faults import CompileError, Issue
from dragoman.cel.lex import Token, tokens_of
from dragoman.cel.macros import MACROS, MacroError
from dragoman.cel.values import INT_MAX

DEPTH_MAX: Final = 250

_LEVEL: Final[dict[str, int]] = {
    "||": 1,
    "&&": 2,
    **dict.fromkeys(("==", "!=", "<", "<=", ">", ">=", "in"), 3),
    "+": 4,
    "-": 4,
    **dict.fromkeys(("*", "/", "%"), 5),
}
"""How tightly an operator binds; all of them group to the left."""

_FUNCTION: Final[dict[str, str]] = {sign: f"_{sign}_" for sign in _LEVEL} | {"in": "@in"}
RESERVED: Final = frozenset(
    (
        *("as", "break", "const", "continue", "else", "for", "function", "if", "import", "let", "loop", "package"),
        *("namespace", "return", "var", "void", "while"),
    )
)
_LITERALS: Final = frozenset(("uint", "double", "string", "bytes"))
_WORDS: Final = {"true": True, "false": False, "null": None}


def parse(text: str) -> Expr:
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

    def whole(self) -> Expr:
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

    def unexpected(self, more: str = "") -> CompileError:
        return self.refused(self.token.offset, f"Syntax error: unexpected '{self.token.text[:40]}'{more}")

    def refused(self, offset: int, message: str) -> CompileError:
        return CompileError(self.text, [Issue(offset, message)])

    def deeper(self, levels: int = 1) -> None:
        self.depth += levels
        if self.depth > DEPTH_MAX:
            raise self.refused(self.token.offset, f"expression recursion limit exceeded: {DEPTH_MAX}")

    # ---- expressions: few frames for each level, since Python's stack is short

    def expression(self, *, ternary: bool = True) -> Expr:
        """Operators over operands, then `a ? b : c` (where b is no ternary itself and c may be one)."""
        depth = self.depth
        self.deeper()
        tests: list[tuple[Expr, Token, Expr]] = []
        while True:
            node = _Operators(self)
            node.operand(self.operand())
            while self.token.kind in _LEVEL:
                node.operator(self.advance())
                node.operand(self.operand())
            if not ternary or self.token.kind != "?":
                break
            mark = self.advance()
            then = self.expression(ternary=False)
            self.expect(":")
            self.deeper()
            tests.append((node.whole(), mark, then))
        found = node.whole()
        for test, mark, then in reversed(tests):
            found = Call(mark.offset, "_?_:_", [test, then, found])
        self.depth = depth
        return found

    def operand(self) -> Expr:
        """Signs before, a primary, fields, indices and calls behind."""
        first = self.token
        count = 0
        while self.token.kind == first.kind and first.kind in ("!", "-"):
            self.advance()
            count += 1
        node = self.signed(first, count)
        if node is not None:
            count = 0
        elif self.accept("("):
            node = self.expression()
            self.expect(")")
        else:
            node = _STARTS.get(self.token.kind, _Parser.primary)(self)
        depth = self.depth
        while self.token.kind == "." or self.token.kind == "[":
            self.deeper()
            if self.token.kind == ".":
                node = self.selection(node, self.advance())
                continue
            bracket = self.advance()
            function = "_[?_]" if self.accept("?") else "_[_]"
            node = Call(bracket.offset, function, [node, self.expression()])
            self.expect("]")
        self.depth = depth
        return Call(first.offset, f"{first.kind}_", [node]) if count % 2 else node

    def signed(self, first: Token, count: int) -> Expr | None:
        """A number whose minus sign is a part of it: after one minus, or after exclamation marks."""
        minus: Token | None = None
        if first.kind == "-" and count == 1:
            minus = first
        elif first.kind == "!" and self.token.kind == "-":
            minus = self.advance()
            if self.token.kind not in ("int", "double"):
                raise self.unexpected()
            return Call(first.offset, "!_", [self.literal(minus)]) if count % 2 else self.literal(minus)
        if minus is None or self.token.kind not in ("int", "double"):
            return None
        return self.literal(minus)

    def selection(self, operand: Expr, dot: Token) -> Expr:
        optional = self.accept("?")
        quoted = self.accept("quoted")
        name = quoted or self.expect("name")
        field: str = name.value if quoted else name.text
        if optional:
            return Call(dot.offset, "_?._", [operand, Const(name.offset, field)])
        if self.token.kind == "(" and not quoted:
            opened = self.advance()
            arguments = [] if self.token.kind == ")" else [self.expression()]
            while self.accept(","):
                arguments.append(self.expression())
            self.expect(")")
            return self.call(opened, field, arguments, operand)
        return Select(dot.offset, operand, field)

    # ---- primaries

    def primary(self) -> Expr:
        token = self.token
        kind = token.kind
        if kind == "int":
            return self.literal(None)
        if kind in _LITERALS:
            return Const(self.advance().offset, token.value)
        if kind in _WORDS:
            return Const(self.advance().offset, _WORDS[kind])
        raise self.unexpected()

    def literal(self, minus: Token | None) -> Expr:
        """A number with its sign, which is a part of it."""
        token = self.advance()
        offset = minus.offset if minus else token.offset
        if minus:
            return Const(offset, -token.value)
        if token.kind == "int" and token.value > INT_MAX:
            raise self.refused(offset, "invalid int literal")
        return Const(offset, token.value)

    def name(self) -> Expr:
        dot = self.accept(".")
        token = self.expect("name")
        if token.text in RESERVED:
            raise self.refused(token.offset, f"reserved identifier: {token.text}")
        name = f".{token.text}" if dot else token.text
        if self.token.kind == "(":
            opened = self.advance()
            arguments = [] if self.token.kind == ")" else [self.expression()]
            while self.accept(","):
                arguments.append(self.expression())
            self.expect(")")
            return self.call(opened, name, arguments, None)
        struct = self.struct_literal(name)
        return struct or Ident(token.offset, name)

    def struct_literal(self, name: str) -> Expr | None:
        """`a.b.C{...}`, distinguished from a selection by looking ahead for the brace."""
        at = self.at
        while self.tokens[at].kind == "." and self.tokens[at + 1].kind == "name":
            name += f".{self.tokens[at + 1].text}"
            at += 2
        if self.tokens[at].kind != "{":
            return None
        self.at = at
        self.token = self.tokens[at]
        brace = self.advance()
        fields: list[str] = []
        values: list[Expr] = []
        optional: list[int] = []
        while self.token.kind != "}":
            if self.accept("?"):
                optional.append(len(values))
            field = self.accept("quoted") or self.expect("name")
            fields.append(field.text.strip("`"))
            self.expect(":")
            values.append(self.expression())
            if not self.accept(","):
                break
        self.expect("}")
        return StructLit(brace.offset, name, fields, values, frozenset(optional))

    def list_literal(self) -> Expr:
        bracket = self.advance()
        elements: list[Expr] = []
        optional: list[int] = []
        bare = self.accept(",")  # a comma alone is an empty literal
        while not bare and self.token.kind != "]":
            if self.accept("?"):
                optional.append(len(elements))
            elements.append(self.expression())
            if not self.accept(","):
                break
        self.expect("]")
        return ListLit(bracket.offset, elements, frozenset(optional))

    def map_literal(self) -> Expr:
        brace = self.advance()
        entries: list[tuple[Expr, Expr]] = []
        optional: list[int] = []
        bare = self.accept(",")  # a comma alone is an empty literal
        while not bare and self.token.kind != "}":
            if self.accept("?"):
                optional.append(len(entries))
            key = self.expression()
            self.expect(":")
            entries.append((key, self.expression()))
            if not self.accept(","):
                break
        self.expect("}")
        return MapLit(brace.offset, entries, frozenset(optional))

    def call(self, opened: Token, function: str, arguments: list[Expr], target: Expr | None) -> Expr:
        macro = MACROS.get((function, len(arguments), target is not None))
        if macro:
            try:
                expanded = macro(opened.offset, target, arguments)
            except MacroError as error:
                raise self.refused(error.offset, error.message) from None
            if expanded is not None:
                return expanded
        return Call(opened.offset, function, arguments, target)


_STARTS: Final[dict[str, Callable[[_Parser], Expr]]] = {
    "name": _Parser.name,
    ".": _Parser.name,
    "[": _Parser.list_literal,
    "{": _Parser.map_literal,
}


class _Operators:
    """Operands and operators of one chain, reduced as soon as the next operator binds no tighter."""

    __slots__ = ("flat", "operands", "operators", "parser", "run")

    def __init__(self, parser: _Parser) -> None:
        self.parser = parser
        self.operands: list[Expr] = []
        self.operators: list[Token] = []
        self.flat: set[int] = set()
        """Chains of `&&` and `||` made here, which take further operands in."""
        self.run = 0

    def operand(self, node: Expr) -> None:
        self.operands.append(node)

    def operator(self, sign: Token) -> None:
        level = _LEVEL[sign.kind]
        self.reduce(level)
        self.run = self.run + 1 if level > 2 else 0
        if self.parser.depth + self.run > DEPTH_MAX:
            self.parser.deeper(self.run)
        self.operators.append(sign)

    def whole(self) -> Expr:
        self.reduce(0)
        (node,) = self.operands
        return node

    def reduce(self, level: int) -> None:
        while self.operators and _LEVEL[self.operators[-1].kind] >= level:
            sign = self.operators.pop()
            right = self.operands.pop()
            left = self.operands.pop()
            if isinstance(left, Call) and id(left) in self.flat and left.function == _FUNCTION[sign.kind]:
                left.args.append(right)
                self.operands.append(left)
                continue
            node = Call(sign.offset, _FUNCTION[sign.kind], [left, right])
            if sign.kind in ("&&", "||"):
                self.flat.add(id(node))
            self.operands.append(node)
