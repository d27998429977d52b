"""Is it so? `test`, `[` and `[[`: files, texts, numbers, `!`, `-a`, `-o` and brackets."""

from __future__ import annotations

import fnmatch
import re

from dragoman.kubelet.shell.language import ProgramCall

_NUMBERS = {
    "-eq": lambda a, b: a == b,
    "-ne": lambda a, b: a != b,
    "-lt": lambda a, b: a < b,
    "-le": lambda a, b: a <= b,
    "-gt": lambda a, b: a > b,
    "-ge": lambda a, b: a >= b,
}
_FILES = "bcdefghkprsuwxLSO"
MISUSE = 2


class _Wrong(Exception):
    pass


def check(call: ProgramCall) -> int:
    """0 yes, 1 no, 2 that is no question."""
    words = list(call.args[1:])
    closing = {"[": "]", "[[": "]]"}.get(call.args[0])
    if closing is not None and (not words or words.pop() != closing):
        return call.fail(f"missing {closing}", MISUSE)
    if not words:
        return 1
    reader = _Reader(call, words, double=call.args[0] == "[[")
    try:
        answer = reader.either()
        if reader.words:
            raise _Wrong(f"{reader.words[0]}: unknown operand")
    except _Wrong as wrong:
        return call.fail(str(wrong), MISUSE)
    return 0 if answer else 1


class _Reader:
    def __init__(self, call: ProgramCall, words: list[str], *, double: bool) -> None:
        self.call = call
        self.words = words
        self.double = double

    def either(self) -> bool:
        answer = self.both()
        while self.words[:1] in (["-o"], ["||"]):
            self.words.pop(0)
            answer = self.both() or answer
        return answer

    def both(self) -> bool:
        answer = self.one()
        while self.words[:1] in (["-a"], ["&&"]):
            self.words.pop(0)
            answer = self.one() and answer
        return answer

    def one(self) -> bool:
        words = self.words
        if not words:
            raise _Wrong("argument expected")
        if len(words) >= 3 and self._is_binary(words[1]):
            left, op, right = words[:3]
            del words[:3]
            return self._binary(left, op, right)
        first = words.pop(0)
        if first == "!" and words:
            return not self.one()
        if first == "(" and words:
            answer = self.either()
            if words[:1] != [")"]:
                raise _Wrong("closing paren expected")
            words.pop(0)
            return answer
        if len(first) == 2 and first[0] == "-" and words and first[1] in _FILES + "nzt":
            return self._unary(first[1], words.pop(0))
        return bool(first)

    def _is_binary(self, op: str) -> bool:
        return op in _NUMBERS or op in ("=", "==", "!=", "<", ">", "-nt", "-ot") or (self.double and op == "=~")

    def _binary(self, left: str, op: str, right: str) -> bool:
        if op in _NUMBERS:
            try:
                return bool(_NUMBERS[op](int(left), int(right)))
            except ValueError:
                wrong = left if not left.strip().lstrip("+-").isdecimal() else right
                raise _Wrong(f"{wrong}: bad number") from None
        if op == "=~":
            return re.search(right, left) is not None
        if op in ("=", "==", "!="):
            same = fnmatch.fnmatchcase(left, right) if self.double else left == right
            return same != (op == "!=")
        if op in ("-nt", "-ot"):
            a, b = (self.call.around.files.find(self.call.path(name)) for name in (left, right))
            newer = a is not None and (b is None or a.changed > b.changed)
            return newer if op == "-nt" else not newer and a is not None
        return left < right if op == "<" else left > right

    def _unary(self, letter: str, word: str) -> bool:
        if letter in "nz":
            return bool(word) == (letter == "n")
        if letter == "t":
            return False
        found = self.call.around.files.find(self.call.path(word), follow=letter not in "Lh")
        if found is None:
            return False
        match letter:
            case "f":
                return found.kind == "file"
            case "d":
                return found.kind == "folder"
            case "c":
                return found.kind == "device"
            case "L" | "h":
                return found.kind == "link"
            case "s":
                return bool(found.data) or found.kind == "folder"
            case "x":
                return bool(found.mode & 0o111)
            case "b" | "p" | "S" | "u" | "g" | "k":
                return False
        return True
