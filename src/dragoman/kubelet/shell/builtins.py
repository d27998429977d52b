"""What can only the shell itself do? cd, export, read, trap, set and the other built-ins that change the shell they
run in."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable

from dragoman.kubelet.shell.language import (
    MISUSE,
    NOT_FOUND,
    SIGNALS,
    Leaving,
    LeavingLoop,
    Returning,
    ScriptShell,
    Steps,
    delimiter,
    find,
    read_line,
)
from dragoman.kubelet.shell.process import TURN, Signal, ThreadsEnded, ThreadWork, Until
from dragoman.kubelet.shell.syntax import SyntaxFault, is_name, parse


def _cd(shell: ScriptShell, words: list[str]) -> Steps:
    yield TURN
    target = words[1] if len(words) > 1 else shell.variables.get("HOME", "/root")
    if target == "-":
        target = shell.variables.get("OLDPWD", shell.cwd)
    path = posixpath.normpath(posixpath.join(shell.cwd, target))
    if not shell.around.files.is_folder(path):
        shell.complain(f"cd: can't cd to {target}: No such file or directory")
        return 2
    shell.variables["OLDPWD"], shell.cwd = shell.cwd, path
    shell.variables["PWD"] = path
    return 0


def _exit(shell: ScriptShell, words: list[str]) -> Steps:
    yield TURN
    text = words[1] if len(words) > 1 else str(shell.last)
    if not text.lstrip("-").isdecimal():
        shell.complain(f"exit: Illegal number: {text}")
        raise Leaving(MISUSE)
    raise (Leaving if words[0] == "exit" else Returning)(int(text) % 256)


def _leave(shell: ScriptShell, words: list[str]) -> Steps:
    yield TURN
    raise LeavingLoop(int(words[1]) if len(words) > 1 and words[1].isdecimal() else 1, go_on=words[0] == "continue")


def _export(shell: ScriptShell, words: list[str]) -> Steps:
    yield TURN
    for word in words[1:]:
        if word.startswith("-"):
            continue
        name, equals, value = word.partition("=")
        if not is_name(name):
            shell.complain(f"{words[0]}: {word}: bad variable name")
            return 2
        if equals:
            shell.variables[name] = value
        elif words[0] == "local":
            shell.variables.setdefault(name, "")
        if words[0] == "export":
            shell.exported.add(name)
    if len(words) == 1 or words[1:] == ["-p"]:
        lines = [f"export {k}='{shell.variables[k]}'\n" for k in sorted(shell.exported & shell.variables.keys())]
        shell.fds[1].write("".join(lines).encode())
    return 0


def _unset(shell: ScriptShell, words: list[str]) -> Steps:
    yield TURN
    for name in words[1:]:
        shell.variables.pop(name, None)
        shell.exported.discard(name)
        shell.functions.pop(name, None)
    return 0


def _set(shell: ScriptShell, words: list[str]) -> Steps:
    yield TURN
    rest = words[1:]
    names = {"errexit": "e", "nounset": "u", "xtrace": "x", "pipefail": "pipefail"}
    while rest and rest[0][:1] in ("-", "+") and len(rest[0]) > 1:
        word, rest = rest[0], rest[1:]
        if word == "--":
            break
        on = word[0] == "-"
        for letter in word[1:]:
            flag = letter
            if letter == "o" and rest:
                flag, rest = names.get(rest[0], ""), rest[1:]
            match flag:
                case "e":
                    shell.errexit = on
                case "u":
                    shell.nounset = on
                case "x":
                    shell.trace = on
                case "pipefail":
                    shell.pipefail = on
    else:
        if not rest:
            return 0
    shell.args = tuple(rest)
    return 0


def _shift(shell: ScriptShell, words: list[str]) -> Steps:
    yield TURN
    count = int(words[1]) if len(words) > 1 and words[1].isdecimal() else 1
    if count > len(shell.args):
        return 1
    shell.args = shell.args[count:]
    return 0


def _read(shell: ScriptShell, words: list[str]) -> Steps:
    names = [word for word in words[1:] if not word.startswith("-")] or ["REPLY"]
    line, complete = yield from read_line(shell.fds[0])
    text, escaped = line.decode("utf-8", "surrogateescape"), ""
    if "-r" in words[1:]:
        escaped = text
    else:  # an escaped character is no separator
        escaped = re.sub(r"\\.", "\0", text, flags=re.S)
        text = re.sub(r"\\(.)", r"\1", text, flags=re.S)
    values = _values(text, escaped, shell.variables.get("IFS", " \t\n"), len(names))
    for index, name in enumerate(names):
        shell.variables[name] = values[index] if index < len(values) else ""
    return 0 if complete else 1


def _values(text: str, escaped: str, separators: str, most: int) -> list[str]:
    """The first fields of a line, and the rest. escaped: the line with what separates nothing left out."""
    if not separators:
        return [text]
    blanks = "".join(c for c in separators if c in " \t\n")
    found: list[str] = []
    start, end = len(escaped) - len(escaped.lstrip(blanks)), len(escaped.rstrip(blanks))
    ends = delimiter(separators)
    while len(found) < most - 1:
        match = ends.search(escaped, start, end)
        if match is None:
            break
        found.append(text[start : match.start()])
        start = match.end()
    last = ends.search(escaped, start, end)
    if last is not None and last.end() == end:  # one that ends the last field, with nothing behind it
        end = last.start()
    return [*found, text[start:end]] if start < end or not found else found


def _eval(shell: ScriptShell, words: list[str]) -> Steps:
    yield TURN
    try:
        tree = parse(" ".join(words[1:]))
    except SyntaxFault as fault:
        shell.complain(str(fault))
        return MISUSE
    return (yield from shell.node(tree))


def _source(shell: ScriptShell, words: list[str]) -> Steps:
    yield TURN
    text = shell.around.files.read(posixpath.join(shell.cwd, words[1])).decode("utf-8", "replace")
    try:
        return (yield from shell.node(parse(text)))
    except Returning as back:
        return back.code
    except SyntaxFault as fault:
        shell.complain(str(fault))
        return MISUSE


def _trap(shell: ScriptShell, words: list[str]) -> Steps:
    yield TURN
    if len(words) < 3:
        return 0
    for name in words[2:]:
        number = SIGNALS.get(name.upper().removeprefix("SIG"), int(name) if name.isdecimal() else -1)
        if number < 0:
            shell.complain(f"trap: {name}: bad trap")
            return 1
        if number == 0:
            shell.exit_trap = "" if words[1] == "-" else words[1]
        elif words[1] == "-":
            shell.around.process.traps.pop(number, None)
        else:
            shell.around.process.traps[number] = shell.handler(words[1]) if words[1] else None
    return 0


def _wait(shell: ScriptShell, words: list[str]) -> Steps:
    wanted = [shell.jobs[int(w) - 101] for w in words[1:] if w.isdecimal() and 0 < int(w) - 100 <= len(shell.jobs)]
    threads = tuple(wanted or shell.jobs)
    yield ThreadsEnded(threads)
    return (threads[-1].code or 0) if wanted else 0


def _exec(shell: ScriptShell, words: list[str]) -> Steps:
    yield TURN
    if len(words) == 1:
        return 0
    env = {key: shell.variables[key] for key in shell.exported if key in shell.variables}
    code = yield from shell.call(tuple(words[1:]), env, shell.fds)
    shell.exit_trap = ""
    raise Leaving(code)


def _command(shell: ScriptShell, words: list[str]) -> Steps:
    yield TURN
    rest = words[1:]
    if words[0] in ("type", "which") or (rest and rest[0] in ("-v", "-V")):
        code = 0
        for name in (word for word in rest if not word.startswith("-")):
            if name in SPECIAL or name in shell.functions:
                shell.fds[1].write(f"{name}\n".encode())
            elif isinstance(find(shell.around, name, shell.cwd), str):
                code = 1 if words[0] == "which" else NOT_FOUND
            else:
                shell.fds[1].write(f"{name if '/' in name else f'/usr/bin/{name}'}\n".encode())
        return code
    env = {key: shell.variables[key] for key in shell.exported if key in shell.variables}
    return (yield from shell.call(tuple(rest), env, shell.fds)) if rest else 0


def _kill(shell: ScriptShell, words: list[str]) -> Steps:
    yield TURN
    number, targets = 15, words[1:]
    if targets and targets[0].startswith("-"):
        name = targets[1] if targets[0] == "-s" and len(targets) > 1 else targets[0][1:]
        number = SIGNALS.get(name.upper().removeprefix("SIG"), int(name) if name.isdecimal() else 15)
        targets = targets[2 if targets[0] == "-s" else 1 :]
    for target in targets:
        index = int(target) - 101 if target.isdecimal() else -1
        if target == "1":
            _hit(shell, number)
        elif 0 <= index < len(shell.jobs) and shell.jobs[index].code is None:
            thread = shell.jobs[index]
            if number:
                thread.wait = Until(0.0)
                thread.work = _killed(number)
        else:
            shell.complain(f"kill: can't kill pid {target}: No such process")
            return 1
    return 0


def _hit(shell: ScriptShell, number: int) -> None:
    if shell.around.signal is not None:
        shell.around.signal(number)
    elif number and not shell.around.process.signal(number) and number == 9:
        raise Signal(number)


def _killed(number: int) -> ThreadWork:
    yield TURN
    raise Signal(number)


def _nothing(shell: ScriptShell, words: list[str]) -> Steps:
    yield TURN
    return 0


SPECIAL: dict[str, Callable[[ScriptShell, list[str]], Steps]] = {
    "cd": _cd,
    "exit": _exit,
    "return": _exit,
    "break": _leave,
    "continue": _leave,
    "export": _export,
    "readonly": _export,
    "local": _export,
    "declare": _export,
    "unset": _unset,
    "set": _set,
    "shift": _shift,
    "read": _read,
    "eval": _eval,
    ".": _source,
    "source": _source,
    "trap": _trap,
    "wait": _wait,
    "exec": _exec,
    "command": _command,
    "type": _command,
    "which": _command,
    "kill": _kill,
    "ulimit": _nothing,
    "umask": _nothing,
    "hash": _nothing,
    "shopt": _nothing,
}
