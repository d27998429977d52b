"""How do the shell's programs read what they are called with? Options, operands, input and escapes, in one way for
all."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from dragoman.kubelet.shell.files import FileFault
from dragoman.kubelet.shell.language import ProgramCall, ShellProgram
from dragoman.kubelet.shell.process import Data, ThreadWork


class UsageFault(Exception):
    pass


def options_of(call: ProgramCall, flags: str, valued: str = "") -> tuple[dict[str, str], list[str]]:
    """Options by letter, and operands. Raises UsageFault."""
    found: dict[str, str] = {}
    operands: list[str] = []
    rest = list(call.args[1:])
    while rest:
        word = rest.pop(0)
        if word == "--":
            return found, operands + rest
        if not word.startswith("-") or word == "-" or word.startswith("--"):
            if word.startswith("--"):
                raise UsageFault(f"unrecognized option '{word}'")
            operands.append(word)
            continue
        letters = word[1:]
        while letters:
            letter, letters = letters[0], letters[1:]
            if letter in valued:
                if not letters and not rest:
                    raise UsageFault(f"option requires an argument -- '{letter}'")
                value, letters = letters or rest.pop(0), ""
                # Several patterns or scripts count together, as lines of one.
                found[letter] = f"{found[letter]}\n{value}" if letter == "e" and letter in found else value
            elif letter in flags:
                found[letter] = ""
            else:
                raise UsageFault(f"unrecognized option: {letter} (known here: {' '.join(flags + valued)})")
    return found, operands


def unescaped(text: str) -> str:
    known = {"n": "\n", "t": "\t", "r": "\r", "\\": "\\", "a": "\a", "e": "\x1b", "b": "\b", "v": "\v", "f": "\f"}

    def replace(match: re.Match[str]) -> str:
        body: str = match[1]
        if body in known:
            return known[body]
        return chr(int(body[1:], 16)) if body[0] == "x" else chr(int(body, 8) % 256)

    return re.sub(r"\\(x[0-9A-Fa-f]{1,2}|0?[0-7]{1,3}|[ntr\\aebvf])", replace, text)


def collect(call: ProgramCall) -> Any:
    """All of the input."""
    collected = bytearray()
    while not call.input.ended or call.input.data:
        yield Data(call.input)
        collected += call.input.take()
    return bytes(collected)


def on_text(
    work: Callable[[ProgramCall, dict[str, str], list[str], str], int], flags: str, valued: str, before: int = 0
) -> ShellProgram:
    """A program over the text of its files, or of its input; `before` operands come before the files."""

    def program(call: ProgramCall) -> int | ThreadWork:
        options, operands = options_of(call, flags, valued)
        leading = 0 if before and ("e" in options or "f" in options) and call.args[0] in ("grep", "sed") else before
        if len(operands) < leading:
            return call.fail("missing operand", 2)
        names = [name for name in operands[leading:] if name != "-"]

        def run() -> ThreadWork:
            if names:
                texts, code = [], 0
                for name in names:
                    try:
                        texts.append(call.around.files.read(call.path(name)))
                    except FileFault as fault:
                        code = call.fail(f"{name}: {fault}", 2 if call.args[0] == "grep" else 1)
                text = b"".join(texts)
                if code and not texts:
                    return code
            else:
                text, code = (yield from collect(call)), 0
            return work(call, options, operands, text.decode("utf-8", "surrogateescape")) or code

        return run()

    return program


def each(call: ProgramCall, names: list[str], work: Callable[[str], None]) -> int:
    code = 0 if names else call.fail("missing operand")
    for name in names:
        try:
            work(call.path(name))
        except FileFault as fault:
            code = call.fail(f"{name}: {fault}")
    return code
