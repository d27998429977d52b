"""What is `$((...))`? Whole numbers with C's operators. It assigns to the variables that it is given."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable

from dragoman.errors import Invalid

_TOKEN = re.compile(r"\s*(\d+|[A-Za-z_]\w*|\$\w+|<<|>>|<=|>=|==|!=|&&|\|\||[-+*/%]=|\+\+|--|[-+*/%<>!~&|^()?:=,])")
_LEVELS: tuple[tuple[str, ...], ...] = (
    ("||",),
    ("&&",),
    ("|",),
    ("^",),
    ("&",),
    ("==", "!="),
    ("<=", ">=", "<", ">"),
    ("<<", ">>"),
    ("+", "-"),
    ("*", "/", "%"),
)
LARGEST_SHIFT = 63


def _divide(a: int, b: int) -> int:
    if b == 0:
        raise Invalid("arithmetic", "division by zero")
    return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


_APPLY: dict[str, Callable[[int, int], int]] = {
    "||": lambda a, b: int(bool(a or b)),
    "&&": lambda a, b: int(bool(a and b)),
    "|": operator.or_,
    "^": operator.xor,
    "&": operator.and_,
    "==": lambda a, b: int(a == b),
    "!=": lambda a, b: int(a != b),
    "<=": lambda a, b: int(a <= b),
    ">=": lambda a, b: int(a >= b),
    "<": lambda a, b: int(a < b),
    ">": lambda a, b: int(a > b),
    "<<": lambda a, b: a << (b & LARGEST_SHIFT),
    ">>": lambda a, b: a >> (b & LARGEST_SHIFT),
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": _divide,
    "%": lambda a, b: a - _divide(a, b) * b,
}


def evaluate(text: str, variables: dict[str, str]) -> int:
    """The value, as a signed number of 64 bits. Raises Invalid."""
    words: list[str] = []
    at, text = 0, text.rstrip()
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None:
            raise Invalid("arithmetic", f"syntax error at {text[at:]!r}")
        words.append(match[1].lstrip("$"))
        at = match.end()
    if not words:
        return 0
    reader = _Reader(words, variables)
    value = reader.assignment()
    if reader.words:
        raise Invalid("arithmetic", f"unexpected {reader.words[0]!r}")
    return value


class _Reader:
    def __init__(self, words: list[str], variables: dict[str, str]) -> None:
        self.words = words
        self.variables = variables

    def assignment(self) -> int:
        if len(self.words) > 2 and self.words[0].isidentifier():
            op = self.words[1]
            if op == "=" or (len(op) == 2 and op[1] == "=" and op[0] in "+-*/%"):
                name = self.words[0]
                del self.words[:2]
                value = self.assignment()
                if op != "=":
                    value = _APPLY[op[0]](self._variable(name), value)
                self.variables[name] = str(_wrapped(value))
                return _wrapped(value)
        condition = self.level(0)
        if self.words[:1] == ["?"]:
            self.words.pop(0)
            yes = self.assignment()
            if self.words[:1] != [":"]:
                raise Invalid("arithmetic", "missing ':'")
            self.words.pop(0)
            no = self.assignment()
            return yes if condition else no
        return condition

    def level(self, number: int) -> int:
        if number == len(_LEVELS):
            return self.unary()
        value = self.level(number + 1)
        while self.words and self.words[0] in _LEVELS[number]:
            op = self.words.pop(0)
            value = _wrapped(_APPLY[op](value, self.level(number + 1)))
        return value

    def unary(self) -> int:
        if not self.words:
            raise Invalid("arithmetic", "a number is missing")
        word = self.words.pop(0)
        if word in ("++", "--"):
            return self._step(self.words.pop(0), word)
        if word in ("-", "+", "!", "~"):
            value = self.unary()
            return {"-": -value, "+": value, "!": int(not value), "~": ~value}[word]
        if word == "(":
            value = self.assignment()
            if self.words[:1] != [")"]:
                raise Invalid("arithmetic", "missing ')'")
            self.words.pop(0)
            return value
        if word.isdecimal():
            return _wrapped(int(word, 8 if word.startswith("0") and word.strip("01234567") == "" else 10))
        if word.isidentifier():
            if self.words[:1] in (["++"], ["--"]):
                value = self._variable(word)
                self._step(word, self.words.pop(0))
                return value
            return self._variable(word)
        raise Invalid("arithmetic", f"unexpected {word!r}")

    def _variable(self, name: str) -> int:
        text = self.variables.get(name, "0").strip() or "0"
        if not text.lstrip("-").isdecimal():
            raise Invalid("arithmetic", f"{name}={text!r} is not a number")
        return int(text)

    def _step(self, name: str, op: str) -> int:
        value = self._variable(name) + (1 if op == "++" else -1)
        self.variables[name] = str(value)
        return value


def _wrapped(value: int) -> int:
    value &= (1 << 64) - 1
    return value - (1 << 64) if value >> 63 else value
