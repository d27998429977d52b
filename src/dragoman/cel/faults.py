"""What can go wrong with an expression: issues found before running it, and errors while running it.

Texts follow cel-go, because people search for them. Never decides what an error means for a device.
"""

from __future__ import annotations

import msgspec


class Issue(msgspec.Struct, frozen=True):
    """A reason why an expression is refused; offset counts code points from 0."""

    offset: int
    message: str

    def line_and_column(self, text: str) -> tuple[int, int]:
        """Line and column, both from 1."""
        before = text[: self.offset]
        return before.count("\n") + 1, self.offset - (before.rfind("\n") + 1) + 1

    def show(self, text: str) -> str:
        """The message with its position, the line it is in and a caret below."""
        line, column = self.line_and_column(text)
        shown = text.split("\n")[line - 1].replace("\t", " ")
        return f"ERROR: <input>:{line}:{column}: {self.message}\n | {shown}\n | {'.' * (column - 1)}^"


class CompileError(Exception):
    """The expression does not compile; issues holds at least one reason, in order of position."""

    def __init__(self, text: str, issues: list[Issue]) -> None:
        self.text = text
        self.issues = sorted(issues, key=lambda issue: issue.offset)
        super().__init__("\n".join(issue.show(text) for issue in self.issues))


class EvalError(Exception):
    """The expression cannot be evaluated on this input; offset says where, -1 if unknown."""

    def __init__(self, message: str, offset: int = -1) -> None:
        super().__init__(message)
        self.message = message
        self.offset = offset


class NoSuchKey(EvalError):
    """A map has no such key; `known` are the keys that it has, for suggestions."""

    def __init__(self, key: str, offset: int = -1, known: tuple[str, ...] = ()) -> None:
        super().__init__(f"no such key: {key}", offset)
        self.key = key
        self.known = known


class NoSuchOverload(EvalError):
    """The function or operator does not exist for values of these kinds."""

    def __init__(self, message: str = "no such overload", offset: int = -1) -> None:
        super().__init__(message, offset)


class CostExceeded(EvalError):
    """The run-time cost limit is used up. Absorbed by no operator."""

    def __init__(self) -> None:
        super().__init__("operation cancelled: actual cost limit exceeded")
