"""Which of the shell's programs deal with text? grep, sed, cut, sort and their like, over lines of UTF-8."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Callable
from typing import Any

from dragoman.kubelet.shell.files import FileFault
from dragoman.kubelet.shell.filetools import through
from dragoman.kubelet.shell.language import ProgramCall, ShellProgram, read_line
from dragoman.kubelet.shell.process import ThreadWork, Until, forever
from dragoman.kubelet.shell.reading import collect, on_text, options_of, unescaped

POLL_S = 1.0


_GREP = ("EFPGivqcnowxlhsrH", "em")


def _grep_files(call: ProgramCall) -> int | ThreadWork:
    """grep of one input, or of several files one after the other, each under its name."""
    options, operands = options_of(call, *_GREP)
    names = operands if "e" in options else operands[1:]
    if len(names) < 2 and "H" not in options:
        return on_text(_grep, *_GREP, 1)(call)
    code = 1
    for name in names:
        try:
            text = call.around.files.read(call.path(name)).decode("utf-8", "surrogateescape")
        except FileFault as fault:
            call.fail(f"{name}: {fault}")
            code = 2
            continue
        found = _grep(call, options, operands, text, name)
        code = found if found < code or found == 2 else code
    return code


def _grep(call: ProgramCall, options: dict[str, str], operands: list[str], text: str, name: str = "") -> int:
    patterns = options.get("e", operands[0] if operands else "").split("\n")
    if "F" in options:
        patterns = [re.escape(pattern) for pattern in patterns]
    elif "E" not in options and "P" not in options:
        patterns = [_basic(pattern) for pattern in patterns]
    pattern = "|".join(patterns)
    label = f"{name}:" if name and "h" not in options else ""
    if "w" in options:
        pattern = rf"\b(?:{pattern})\b"
    if "x" in options:
        pattern = f"^(?:{pattern})$"
    try:
        wanted = re.compile(pattern, re.IGNORECASE if "i" in options else 0)
    except re.error as error:
        return call.fail(f"bad regex '{pattern}': {error}", 2)
    lines = text.split("\n")
    if lines and not lines[-1]:
        lines.pop()
    hits = [(n, line) for n, line in enumerate(lines, 1) if bool(wanted.search(line)) != ("v" in options)]
    hits = hits[: int(options["m"])] if "m" in options else hits
    if "c" in options:
        call.say(f"{label}{len(hits)}\n")
    elif "o" in options and "q" not in options:
        call.say("".join(f"{label}{found[0]}\n" for _, line in hits for found in wanted.finditer(line) if found[0]))
    elif "l" in options and "q" not in options:
        named = name or next(iter(operands if "e" in options else operands[1:]), "(standard input)")
        call.say(f"{named}\n" if hits else "")
    elif "q" not in options:
        call.say(
            "".join(f"{label}{number}:{line}\n" if "n" in options else f"{label}{line}\n" for number, line in hits)
        )
    return 0 if hits else 1


def _basic(pattern: str) -> str:
    """A basic regular expression as an extended one."""
    return re.sub(r"\\([(){}|+?])|([(){}|+?])", lambda m: m[1] if m[1] else f"\\{m[2]}", pattern)


def _lines(text: str) -> list[str]:
    return text.splitlines(keepends=True)


def _count(options: dict[str, str]) -> int:
    return int(options.get("n", "10").lstrip("+-") or 0)


def _head(call: ProgramCall, options: dict[str, str], operands: list[str], text: str) -> int:
    if "c" in options:
        call.say(text[: int(options["c"])])
    elif options.get("n", "").startswith("-"):
        call.say("".join(_lines(text)[: -_count(options) or None]))
    else:
        call.say("".join(_lines(text)[: _count(options)]))
    return 0


def _head_early(call: ProgramCall) -> int | ThreadWork:
    """head of the input stops reading once it has what it wants."""
    words = tuple("-n" + w[1:] if re.fullmatch(r"-\d+", w) else w for w in call.args)
    call = _with(call, words)
    options, operands = options_of(call, "q", "nc")
    if operands or "c" in options or options.get("n", "").startswith("-"):
        return _HEAD(call)

    def run() -> ThreadWork:
        for _ in range(_count(options)):
            line, complete = yield from read_line(call.input)
            if complete or line:
                call.output.write(line + (b"\n" if complete else b""))
            if not complete:
                break
        return 0

    return run()


def _with(call: ProgramCall, words: tuple[str, ...]) -> ProgramCall:
    return ProgramCall(words, call.env, call.cwd, call.input, call.output, call.errors, call.around, call.run)


def _tail_of(call: ProgramCall, options: dict[str, str], operands: list[str], text: str) -> int:
    if "c" in options:
        call.say(text[-int(options["c"].lstrip("+")) :])
    elif options.get("n", "").startswith("+"):
        call.say("".join(_lines(text)[max(0, _count(options) - 1) :]))
    else:
        call.say("".join(_lines(text)[-_count(options) :] if _count(options) else []))
    return 0


def _tail(call: ProgramCall) -> int | ThreadWork:
    words = tuple("-n" + w[1:] if re.fullmatch(r"-\d+", w) else w for w in call.args if w != "--follow")
    call = _with(call, words)
    options, names = options_of(call, "fFqv", "nc")
    if not options.keys() & {"f", "F"}:
        return _TAIL(call)
    if names == ["/dev/null"] or (not names and call.input.ended):
        return forever()
    return _following(call, options, names)


def _following(call: ProgramCall, options: dict[str, str], names: list[str]) -> ThreadWork:
    """A growing file is looked at every second, as tail does."""
    files, seen = call.around.files, dict.fromkeys(names, 0)
    first = True
    if not names:
        return (yield from through(call))
    while True:
        for name in names:
            entry = files.find(call.path(name))
            data = entry.data if entry is not None else b""
            if first and "n" in options and options["n"].startswith("+"):
                skip = len("".join(_lines(data.decode("utf-8", "surrogateescape"))[: max(0, _count(options) - 1)]))
                call.output.write(data[skip:])
            elif first:
                lines = data.decode("utf-8", "surrogateescape").splitlines(keepends=True)
                call.say("".join(lines[-_count(options) :]))
            elif len(data) > seen[name]:
                call.output.write(data[seen[name] :])
            elif len(data) < seen[name]:
                call.output.write(data)
            seen[name] = len(data)
        first = False
        yield Until(call.around.process.now + POLL_S)


def _wc(call: ProgramCall, options: dict[str, str], operands: list[str], text: str) -> int:
    counts = {"l": text.count("\n"), "w": len(text.split()), "c": len(text.encode("utf-8", "surrogateescape"))}
    counts["m"] = len(text)
    shown = [counts[letter] for letter in "lwcm" if letter in options] or [counts[letter] for letter in "lwc"]
    name = f" {operands[0]}" if operands else ""
    call.say(" ".join(f"{n:9}" if len(shown) > 1 else str(n) for n in shown) + name + "\n")
    return 0


def _sort(call: ProgramCall, options: dict[str, str], operands: list[str], text: str) -> int:
    lines = text.splitlines()
    column = int(re.match(r"\d+", options.get("k", "1")).group()) - 1 if re.match(r"\d", options.get("k", "1")) else 0  # type: ignore[union-attr]

    def key(line: str) -> Any:
        parts = line.split(options.get("t")) if "k" in options else [line]
        part = parts[column] if column < len(parts) else ""
        if "n" in options:
            found = re.match(r"\s*-?\d+(?:\.\d+)?", part)
            return (float(found[0]) if found else 0.0, line)
        return part

    lines = sorted(dict.fromkeys(lines) if "u" in options else lines, key=key, reverse="r" in options)
    call.say("".join(f"{line}\n" for line in lines))
    return 0


def _uniq(call: ProgramCall, options: dict[str, str], operands: list[str], text: str) -> int:
    groups: list[tuple[str, int]] = []
    for line in text.splitlines():
        if groups and groups[-1][0] == line:
            groups[-1] = (line, groups[-1][1] + 1)
        else:
            groups.append((line, 1))
    kept = [(line, n) for line, n in groups if ("d" not in options or n > 1) and ("u" not in options or n == 1)]
    call.say("".join(f"{n:7} {line}\n" if "c" in options else f"{line}\n" for line, n in kept))
    return 0


def _cut(call: ProgramCall, options: dict[str, str], operands: list[str], text: str) -> int:
    by = "f" if "f" in options else "c"
    if by not in options:
        return call.fail("specify a list of characters or fields: -c or -f")
    wanted: list[tuple[int, int]] = []
    for part in options[by].split(","):
        first, dash, last = part.partition("-")
        wanted.append((int(first or 1), int(last or 10**6) if dash else int(first)))
    delimiter = options.get("d", "\t")
    for line in text.splitlines():
        resource_slices = list(line) if by == "c" else line.split(delimiter)
        if by == "f" and len(resource_slices) == 1:
            call.say(f"{line}\n" if "s" not in options else "")
            continue
        chosen = [p for n, p in enumerate(resource_slices, 1) if any(a <= n <= b for a, b in wanted)]
        call.say(("" if by == "c" else delimiter).join(chosen) + "\n")
    return 0


def _tr(call: ProgramCall) -> int | ThreadWork:
    options, sets = options_of(call, "dsc")
    if not sets or (len(sets) < 2 and not options.keys() & {"d", "s"}):
        return call.fail("missing operand")
    first = _characters(sets[0])
    second = _characters(sets[1]) if len(sets) > 1 else ""

    def run() -> ThreadWork:
        text = (yield from collect(call)).decode("utf-8", "surrogateescape")

        def hit(letter: str) -> bool:
            return (letter in first) != ("c" in options)

        if "d" in options:
            text = "".join(c for c in text if not hit(c))
        elif second:
            padded = second + second[-1] * max(0, len(first) - len(second))
            text = "".join((padded[-1] if "c" in options else padded[first.index(c)]) if hit(c) else c for c in text)
        if "s" in options:
            squeezed = second or first
            text = re.sub(r"(.)\1+", lambda m: m[1] if m[1] in squeezed else m[0], text, flags=re.DOTALL)
        call.say(text)
        return 0

    return run()


_CLASSES = {
    "[:lower:]": "abcdefghijklmnopqrstuvwxyz",
    "[:upper:]": "ABCDEFGHIJKLMNOPQRSTUVWXYZ",
    "[:digit:]": "0123456789",
    "[:space:]": " \t\n\r\v\f",
}
_CLASSES["[:alpha:]"] = _CLASSES["[:lower:]"] + _CLASSES["[:upper:]"]
_CLASSES["[:alnum:]"] = _CLASSES["[:alpha:]"] + _CLASSES["[:digit:]"]


def _characters(text: str) -> str:
    for name, letters in _CLASSES.items():
        text = text.replace(name, letters)
    text = unescaped(text)
    return re.sub(r"(.)-(.)", lambda m: "".join(chr(c) for c in range(ord(m[1]), ord(m[2]) + 1)), text)


def _sed(call: ProgramCall, options: dict[str, str], operands: list[str], text: str) -> int:
    script = options.get("e", operands[0] if operands else "")
    extended = options.keys() & {"E", "r"}
    steps = []
    for part in re.split(r"\s*;\s*(?=(?:[^/]|$))|\n", script):
        match = re.fullmatch(r"(?:(\d+|\$)(?:,(\d+|\$))?|/((?:[^/\\]|\\.)*)/)?\s*([pdq]|s(.)(.*))", part.strip())
        if match is None:
            return call.fail(f"unsupported command: {part} (known here: s, d, p, q)")
        steps.append(match)
    lines, out = text.splitlines(), []
    for number, line in enumerate(lines, 1):
        kept, stop = True, False
        for match in steps:
            if not _addressed(match, number, len(lines), line, bool(extended)):
                continue
            if match[4] == "d":
                kept = False
                break
            if match[4] == "p":
                out.append(line)
            elif match[4] == "q":
                stop = True
            else:
                resource_slices = re.split(rf"(?<!\\){re.escape(match[5])}", match[6])
                if len(resource_slices) != 3:
                    return call.fail(f"bad substitution: {match[4]}")
                pattern = resource_slices[0] if extended else _basic(resource_slices[0])
                template = (
                    re.sub(r"(?<!\\)&", r"\\g<0>", resource_slices[1])
                    .replace("\\&", "&")
                    .replace(f"\\{match[5]}", match[5])
                )
                flags = re.IGNORECASE if "i" in resource_slices[2].lower() else 0
                changed, count = re.subn(
                    pattern, template, line, count=0 if "g" in resource_slices[2] else 1, flags=flags
                )
                line = changed
                if count and "p" in resource_slices[2]:
                    out.append(line)
        if kept and "n" not in options:
            out.append(line)
        if stop:
            break
    made = "".join(f"{line}\n" for line in out)
    if "i" in options and len(operands) > 1:
        call.around.files.write(
            call.path(operands[-1]), made.encode("utf-8", "surrogateescape"), call.around.process.now
        )
    else:
        call.say(made)
    return 0


def _addressed(match: re.Match[str], number: int, total: int, line: str, extended: bool) -> bool:
    if match[3] is not None:
        return re.search(match[3] if extended else _basic(match[3]), line) is not None
    if match[1] is None:
        return True
    first = total if match[1] == "$" else int(match[1])
    last = first if match[2] is None else total if match[2] == "$" else int(match[2])
    return first <= number <= last


def _awk(call: ProgramCall, options: dict[str, str], operands: list[str], text: str) -> int:
    """`[/pattern/] {print $1, "text", $NF}` alone."""
    match = re.fullmatch(
        r"\s*(?:/((?:[^/\\]|\\.)*)/|NR\s*==\s*(\d+))?\s*(?:\{\s*print\s*(.*?)\s*;?\s*\})?\s*", operands[0]
    )
    if match is None:
        return call.fail("only [/pattern/|NR==N] {print ...} is simulated")
    separator = options.get("F")
    for number, line in enumerate(text.splitlines(), 1):
        if (match[1] and not re.search(match[1], line)) or (match[2] and int(match[2]) != number):
            continue
        fields = (
            re.split(separator if len(separator) > 1 else re.escape(separator), line) if separator else line.split()
        )
        resource_slices = []
        for joined in re.findall(r'((?:"[^"]*"|[^,"])+)', match[3] or "$0"):
            found = re.findall(r'"([^"]*)"|\$(\d+|NF)|(NR|NF)', joined)
            values = {"NR": str(number), "NF": str(len(fields))}
            text_ = ""
            for literal, field, special in found:
                index = len(fields) if field == "NF" else int(field or 0)
                text_ += (
                    values[special]
                    if special
                    else literal
                    if not field
                    else line
                    if index == 0
                    else fields[index - 1]
                    if index <= len(fields)
                    else ""
                )
            resource_slices.append(text_)
        call.say(" ".join(resource_slices) + "\n")
    return 0


def _base64(call: ProgramCall, options: dict[str, str], operands: list[str], text: str) -> int:
    data = text.encode("utf-8", "surrogateescape")
    try:
        if options.keys() & {"d", "D"}:
            call.output.write(base64.b64decode(data))
            return 0
    except ValueError:
        return call.fail("invalid input")
    made = base64.b64encode(data).decode()
    width = int(options.get("w", "76")) or len(made) or 1
    call.say("".join(f"{made[at : at + width]}\n" for at in range(0, len(made), width)))
    return 0


def _sum(algorithm: str) -> Callable[[ProgramCall, dict[str, str], list[str], str], int]:
    def work(call: ProgramCall, options: dict[str, str], operands: list[str], text: str) -> int:
        digest = hashlib.new(algorithm, text.encode("utf-8", "surrogateescape"), usedforsecurity=False).hexdigest()
        call.say(f"{digest}  {operands[0] if operands else '-'}\n")
        return 0

    return work


def _expr(call: ProgramCall) -> int:
    from dragoman.errors import Invalid
    from dragoman.kubelet.shell.arithmetic import evaluate

    try:
        value = evaluate(" ".join(word.replace("\\", "") for word in call.args[1:]), {})
    except Invalid as error:
        return call.fail(error.what, 2)
    call.say(f"{value}\n")
    return 0 if value else 1


_HEAD = on_text(_head, "q", "nc")
_TAIL = on_text(_tail_of, "qv", "nc")

PROGRAMS: dict[str, ShellProgram] = {
    "grep": _grep_files,
    "head": _head_early,
    "tail": _tail,
    "wc": on_text(_wc, "lwcm", ""),
    "sort": on_text(_sort, "nrufhV", "kt"),
    "uniq": on_text(_uniq, "cdu", ""),
    "cut": on_text(_cut, "s", "fcd"),
    "tr": _tr,
    "sed": on_text(_sed, "nEri", "e", 1),
    "awk": on_text(_awk, "", "F", 1),
    "base64": on_text(_base64, "dD", "w"),
    "md5sum": on_text(_sum("md5"), "", ""),
    "sha256sum": on_text(_sum("sha256"), "", ""),
    "expr": _expr,
}
