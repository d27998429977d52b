"""Which of the shell's programs deal with files? ls, stat, cat, cp, rm, find and their like, over the container's
files."""

from __future__ import annotations

import fnmatch
import posixpath
import re
from datetime import UTC, datetime

from dragoman.kubelet.shell.files import FileFault
from dragoman.kubelet.shell.language import ProgramCall, ShellProgram
from dragoman.kubelet.shell.process import Data, ThreadWork
from dragoman.kubelet.shell.reading import collect, each, options_of


def _cat(call: ProgramCall) -> int | ThreadWork:
    options, names = options_of(call, "nuvet")
    if "n" not in options and (not names or names == ["-"]):
        return through(call)

    def run() -> ThreadWork:
        code, number = 0, 1
        for name in names or ["-"]:
            try:
                data = (yield from collect(call)) if name == "-" else call.around.files.read(call.path(name))
            except FileFault as fault:
                code = call.fail(
                    f"can't open '{name}': {fault}" if fault.args[0] != "Is a directory" else f"{name}: {fault}"
                )
                continue
            if "n" in options:
                for line in data.decode("utf-8", "surrogateescape").splitlines(keepends=True):
                    call.say(f"{number:6}\t{line}")
                    number += 1
            else:
                call.output.write(data)
        return code

    return run()


def through(call: ProgramCall) -> ThreadWork:
    while not call.input.ended or call.input.data:
        yield Data(call.input)
        call.output.write(call.input.take())
    return 0


def _tee(call: ProgramCall) -> int | ThreadWork:
    options, names = options_of(call, "a")
    now = call.around.process.now
    if "a" not in options:
        for name in names:
            call.around.files.write(call.path(name), b"", now)

    def run() -> ThreadWork:
        while not call.input.ended or call.input.data:
            yield Data(call.input)
            data = call.input.take()
            call.output.write(data)
            for name in names:
                call.around.files.write(call.path(name), data, call.around.process.now, append=True)
        return 0

    return run()


def _ls(call: ProgramCall) -> int:
    options, names = options_of(call, "laA1Rdhrtn")
    files, code = call.around.files, 0
    targets = names or ["."]
    plain, folders = [], []
    for name in targets:
        found = files.find(call.path(name))
        if found is None:
            code = call.fail(f"{name}: No such file or directory")
        elif found.kind == "folder" and "d" not in options:
            folders.append(name)
        else:
            plain.append(name)
    _listed(call, options, [(name, call.path(name)) for name in plain])
    while folders:
        name = folders.pop(0)
        path = call.path(name)
        inside = files.names(path)
        shown = [n for n in inside if "a" in options or "A" in options or not n.startswith(".")]
        if len(targets) > 1 or "R" in options:
            call.say(f"{name}:\n")
        if "l" in options:
            call.say(f"total {len(shown) * 4}\n")
        special = [".", ".."] if "a" in options else []
        _listed(call, options, [(n, posixpath.join(path, n)) for n in [*special, *shown]])
        if "R" in options:
            folders += [posixpath.join(name, n) for n in shown if files.is_folder(posixpath.join(path, n))]
    return code


def _listed(call: ProgramCall, options: dict[str, str], entries: list[tuple[str, str]]) -> None:
    for name, path in entries:
        if "l" not in options:
            call.say(f"{name}\n")
            continue
        found = call.around.files.find(posixpath.normpath(path), follow=False)
        if found is None:
            continue
        kind = {"file": "-", "folder": "d", "device": "c", "link": "l"}[found.kind]
        when = datetime.fromtimestamp(found.changed, UTC).strftime("%b %e %H:%M")
        target = f" -> {found.data.decode()}" if found.kind == "link" else ""
        size = 4096 if found.kind == "folder" else len(found.data)
        call.say(f"{kind}{permissions(found.mode)}    1 root     root     {size:9} {when} {name}{target}\n")


def permissions(mode: int) -> str:
    """rw-r--r-- of 0o644."""
    return "".join(letter if mode >> (8 - index) & 1 else "-" for index, letter in enumerate("rwxrwxrwx"))


def _stat(call: ProgramCall) -> int:
    options, names = options_of(call, "Lf", "c")
    code = 0
    for name in names:
        found = call.around.files.find(call.path(name), follow="L" in options)
        if found is None:
            code = call.fail(f"can't stat '{name}': No such file or directory")
            continue
        described = {
            "file": "regular file",
            "folder": "directory",
            "device": "character special file",
            "link": "symbolic link",
        }
        if not found.data and found.kind == "file":
            described["file"] = "regular empty file"
        kind = {"file": "-", "folder": "d", "device": "c", "link": "l"}[found.kind]
        values = {
            "a": f"{found.mode:o}",
            "A": kind + permissions(found.mode),
            "F": described[found.kind],
            "n": name,
            "N": name,
            "s": str(len(found.data)),
            "u": "0",
            "g": "0",
            "U": "root",
            "G": "root",
            "Y": str(int(found.changed)),
        }
        if "c" in options:
            call.say(
                re.sub(r"%[a-zA-Z]", "{}", options["c"]).format(
                    *(values.get(letter, "?") for letter in re.findall(r"%([a-zA-Z])", options["c"]))
                )
                + "\n"
            )
        else:
            call.say(f"  File: {name}\n  Size: {len(found.data)}\t{described[found.kind]}\n")
            call.say(f"Access: ({found.mode:04o}/{values['A']})  Uid: (0/root)   Gid: (0/root)\n")
    return code


def _mkdir(call: ProgramCall) -> int:
    options, names = options_of(call, "p", "m")
    return each(
        call, names, lambda p: call.around.files.make_folder(p, call.around.process.now, parents="p" in options)
    )


def _rm(call: ProgramCall) -> int:
    options, names = options_of(call, "rRf")
    recursive, code = "r" in options or "R" in options, 0
    for name in names:
        path = call.path(name)
        found = call.around.files.find(path, follow=False)
        if found is None and "f" in options:
            continue
        if found is not None and found.kind == "folder" and not recursive:
            code = call.fail(f"'{name}' is a directory")
            continue
        code = each(call, [name], lambda p: call.around.files.remove(p, recursive=True)) or code
    return code


def _rmdir(call: ProgramCall) -> int:
    return each(call, list(call.args[1:]), call.around.files.remove)


def _touch(call: ProgramCall) -> int:
    _, names = options_of(call, "cam")
    return each(call, names, lambda p: call.around.files.write(p, b"", call.around.process.now, append=True))


def _cp(call: ProgramCall) -> int:
    options, names = options_of(call, "rRafpvLTn")
    return _transfer(call, options, names, move=False)


def _mv(call: ProgramCall) -> int:
    options, names = options_of(call, "fvnT")
    return _transfer(call, options, names, move=True)


def _transfer(call: ProgramCall, options: dict[str, str], names: list[str], *, move: bool) -> int:
    files, now = call.around.files, call.around.process.now
    if len(names) < 2:
        return call.fail("missing file operand")
    target = call.path(names[-1])
    if len(names) > 2 and not files.is_folder(target):
        return call.fail(f"target '{names[-1]}' is not a directory")
    for name in names[:-1]:
        source = call.path(name)
        into = posixpath.join(target, posixpath.basename(source)) if files.is_folder(target) else target
        if files.is_folder(source) and not move and not options.keys() & {"r", "R", "a"}:
            return call.fail(f"omitting directory '{name}'")
        for path in list(files.walk(source)):
            copy = posixpath.normpath(into + path[len(source) :])
            if files.is_folder(path):
                files.make_folder(copy, now, parents=True)
            else:
                files.write(copy, files.read(path), now)
                files.set_mode(copy, files.entry(path).mode)
        if move:
            files.remove(source, recursive=True)
    return 0


def _ln(call: ProgramCall) -> int:
    options, names = options_of(call, "sfn")
    if len(names) != 2 or "s" not in options:
        return call.fail("usage: ln -s TARGET NAME")
    path = call.path(names[1])
    if "f" in options and call.around.files.find(path, follow=False):
        call.around.files.remove(path)
    call.around.files.link(path, names[0], call.around.process.now)
    return 0


def _readlink(call: ProgramCall) -> int:
    options, names = options_of(call, "fn")
    code = 0 if names else call.fail("missing operand")
    for name in names:
        found = call.around.files.find(call.path(name), follow=False)
        if "f" in options:
            call.say(call.around.files.followed(call.path(name)) + "\n")
        elif found is not None and found.kind == "link":
            call.say(found.data.decode("utf-8", "surrogateescape") + "\n")
        else:
            code = 1
    return code


def _chmod(call: ProgramCall) -> int:
    words = [word for word in call.args[1:] if word not in ("-R", "-v")]
    if len(words) < 2:
        return call.fail("missing operand")
    changes, names = words[0], words[1:]

    def change(path: str) -> None:
        call.around.files.set_mode(path, _mode(changes, call.around.files.entry(path).mode))

    if not re.fullmatch(r"[0-7]{3,4}|([ugoa]*[-+=][rwx]*,?)+", changes):
        return call.fail(f"invalid mode '{changes}'")
    return each(call, names, change)


def _mode(text: str, mode: int) -> int:
    if text.isdecimal():
        return int(text, 8)
    for part in text.split(","):
        match = re.fullmatch(r"([ugoa]*)([-+=])([rwx]*)", part)
        assert match is not None
        bits = sum({"r": 4, "w": 2, "x": 1}[letter] for letter in set(match[3]))
        for who in "ugo" if match[1] in ("", "a") else match[1].replace("a", "ugo"):
            shift = {"u": 6, "g": 3, "o": 0}[who]
            if match[2] == "=":
                mode &= ~(7 << shift)
            mode = mode & ~(bits << shift) if match[2] == "-" else mode | bits << shift
    return mode


def _find(call: ProgramCall) -> int:
    words = list(call.args[1:])
    roots = []
    while words and not words[0].startswith("-"):
        roots.append(words.pop(0))
    only, pattern, deepest = "", "*", 99
    while words:
        word = words.pop(0)
        if word in ("-print", "-follow", "-L"):
            continue
        if word not in ("-name", "-type", "-maxdepth") or not words:
            return call.fail(f"unrecognized: {word} (known here: -name -type -maxdepth -print)")
        value = words.pop(0)
        if word == "-name":
            pattern = value
        elif word == "-type":
            only = {"f": "file", "d": "folder", "l": "link", "c": "device"}.get(value, value)
        else:
            deepest = int(value)
    files = call.around.files
    for root in roots or ["."]:
        base = call.path(root)
        if files.find(base) is None:
            return call.fail(f"{root}: No such file or directory")
        for path in files.walk(base):
            below = path[len(base) :].strip("/")
            entry = files.find(path, follow=False)
            if below.count("/") + bool(below) > deepest or (only and (entry is None or entry.kind != only)):
                continue
            if fnmatch.fnmatchcase(posixpath.basename(path), pattern):
                call.say(f"{root.rstrip('/') if below else root}{'/' if below else ''}{below}\n")
    return 0


def _basename(call: ProgramCall) -> int:
    if len(call.args) < 2:
        return call.fail("missing operand")
    name = posixpath.basename(call.args[1].rstrip("/")) or "/"
    suffix = call.args[2] if len(call.args) > 2 else ""
    call.say((name.removesuffix(suffix) or name) + "\n")
    return 0


def _dirname(call: ProgramCall) -> int:
    if len(call.args) < 2:
        return call.fail("missing operand")
    call.say((posixpath.dirname(call.args[1].rstrip("/")) or ("/" if call.args[1].startswith("/") else ".")) + "\n")
    return 0


PROGRAMS: dict[str, ShellProgram] = {
    "cat": _cat,
    "tee": _tee,
    "ls": _ls,
    "stat": _stat,
    "mkdir": _mkdir,
    "rm": _rm,
    "rmdir": _rmdir,
    "touch": _touch,
    "cp": _cp,
    "mv": _mv,
    "ln": _ln,
    "readlink": _readlink,
    "chmod": _chmod,
    "find": _find,
    "basename": _basename,
    "dirname": _dirname,
}
