"""How does a script run? Trees of `syntax` as threads of a process: expansion, redirection, control flow, built-ins.

What a shell cannot do without changing itself (cd, export, read, trap, ...) is here; everything that is a program of
its own is in `commands` or comes from outside (`Programs`).
"""

from __future__ import annotations

import fnmatch
import posixpath
import re
from collections.abc import Callable, Generator, Mapping
from typing import Any, Protocol, TypeAlias

import msgspec

from dragoman.errors import Invalid
from dragoman.kubelet.shell.arithmetic import evaluate
from dragoman.kubelet.shell.files import FileFault, Files
from dragoman.kubelet.shell.process import (
    PIPE_BYTES,
    TURN,
    Data,
    Pipe,
    PipeSpace,
    Signal,
    SimulatedProcess,
    Thread,
    ThreadsEnded,
    ThreadWork,
)
from dragoman.kubelet.shell.syntax import (
    AndOr,
    Arithmetic,
    CaseClause,
    CommandSubstitution,
    For,
    FunctionDefinition,
    Group,
    If,
    Literal,
    Loop,
    Parameter,
    Part,
    Pipeline,
    Redirect,
    ScriptNode,
    Sequence,
    Simple,
    SyntaxFault,
    Word,
    parse,
)

NOT_FOUND, NOT_EXECUTABLE, MISUSE = 127, 126, 2
SIGNALS = {
    "HUP": 1,
    "INT": 2,
    "QUIT": 3,
    "KILL": 9,
    "USR1": 10,
    "USR2": 12,
    "PIPE": 13,
    "ALRM": 14,
    "TERM": 15,
    "EXIT": 0,
}
CALLS_DEEP = 60
NO_INPUT = Pipe()
NO_INPUT.ended = True


class Sink(Protocol):
    """Where output goes."""

    def write(self, data: bytes) -> None:
        """Take bytes. Raises FileFault."""
        ...


class FileSink:
    """A file that is written to."""

    def __init__(self, files: Files, path: str, process: SimulatedProcess) -> None:
        self.files, self.path, self.process = files, path, process

    def write(self, data: bytes) -> None:
        """Append."""
        self.files.write(self.path, data, self.process.now, append=True)


class Nowhere:
    """/dev/null."""

    def write(self, data: bytes) -> None:
        """Lost."""


class ShellSurroundings(msgspec.Struct, frozen=True):
    """What a process is in. programs: those beside the built-in ones, by name."""

    process: SimulatedProcess
    files: Files
    programs: Mapping[str, ShellProgram]
    hostname: str = ""
    user: int = 0
    log: Sink | None = None
    """The output of the container's own process."""
    signal: Callable[[int], None] | None = None
    """Sends a signal to the container's own process, for those that are not it."""


class ProgramCall(msgspec.Struct, frozen=True):
    """One program that is called: args[0] is its name."""

    args: tuple[str, ...]
    env: Mapping[str, str]
    cwd: str
    input: Pipe
    output: Sink
    errors: Sink
    around: ShellSurroundings
    run: Callable[[tuple[str, ...]], ThreadWork]
    """Runs another program with the same input and output."""

    def say(self, text: str) -> None:
        """Write text to the output."""
        self.output.write(text.encode("utf-8", "surrogateescape"))

    def fail(self, text: str, code: int = 1) -> int:
        """Write `name: text` to the errors; returns the exit code."""
        self.errors.write(f"{self.args[0]}: {text}\n".encode("utf-8", "surrogateescape"))
        return code

    def path(self, name: str) -> str:
        """A path as an absolute one."""
        return posixpath.normpath(posixpath.join(self.cwd, name))


ShellProgram: TypeAlias = Callable[[ProgramCall], "int | ThreadWork"]


class Leaving(Exception):
    """`exit`, with its code."""

    def __init__(self, code: int) -> None:
        super().__init__(str(code))
        self.code = code


class Returning(Leaving):
    """`return`, with its code."""


class LeavingLoop(Exception):
    """`break` and `continue`."""

    def __init__(self, levels: int, *, go_on: bool) -> None:
        super().__init__(str(levels))
        self.levels = levels
        self.go_on = go_on


class _Fault(Exception):
    """An expansion that ends the script."""


Steps: TypeAlias = Generator[Any, None, Any]
_Field: TypeAlias = list[tuple[str, bool]]


class ScriptShell:
    """One shell; `copy` makes a subshell. fds: 0 is a Pipe, the others are sinks."""

    def __init__(
        self,
        around: ShellSurroundings,
        env: Mapping[str, str],
        fds: Mapping[int, Any],
        *,
        name: str = "sh",
        args: tuple[str, ...] = (),
        cwd: str = "/",
    ) -> None:
        self.around = around
        self.variables = dict(env)
        self.exported = set(env)
        self.fds = dict(fds)
        self.name = name
        self.args = args
        self.cwd = cwd
        self.functions: dict[str, ScriptNode] = {}
        self.last = 0
        self.jobs: list[Thread] = []
        self.last_job = 0
        self.errexit = self.nounset = self.pipefail = self.trace = False
        self.depth = 0
        self._guarded = 0
        self.exit_trap = ""
        self.drawn = int(around.process.now * 1000)

    def copy(self, fds: Mapping[int, Any] | None = None) -> ScriptShell:
        """A subshell."""
        made = ScriptShell(self.around, {}, fds or self.fds, name=self.name, args=self.args, cwd=self.cwd)
        made.variables, made.exported = dict(self.variables), set(self.exported)
        made.functions, made.last, made.depth = dict(self.functions), self.last, self.depth + 1
        made.errexit, made.nounset, made.pipefail = self.errexit, self.nounset, self.pipefail
        made._guarded = self._guarded
        if made.depth > CALLS_DEEP:
            raise Signal(11)
        return made

    # ---- scripts

    def script(self, text: str) -> ThreadWork:
        """Run a script to its end; the exit code."""
        try:
            tree = parse(text)
        except SyntaxFault as fault:
            self.complain(str(fault))
            return MISUSE
        return (yield from self.whole(tree))

    def whole(self, tree: ScriptNode) -> ThreadWork:
        """Run a tree as a script of its own."""
        try:
            code = yield from self.node(tree)
        except Leaving as exit_:
            code = exit_.code
        except LeavingLoop:
            code = self.last
        except _Fault as fault:
            self.complain(str(fault))
            code = MISUSE
        if self.exit_trap:
            trap, self.exit_trap = self.exit_trap, ""
            self.last = int(code)  # what $? is in the trap
            try:
                yield from self.node(parse(trap))
            except Leaving as exit_:
                code = exit_.code
            except (SyntaxFault, LeavingLoop):
                pass
        return int(code)

    def handler(self, text: str) -> Callable[[], Generator[Any, None, int | None]]:
        """A trap; its value is the exit code, or None to go on."""

        def run() -> Generator[Any, None, int | None]:
            kept = self.last
            try:
                yield from self.node(parse(text))
            except Leaving as exit_:
                if self.exit_trap:
                    final, self.exit_trap = self.exit_trap, ""
                    self.last = exit_.code
                    yield from self.node(parse(final))
                return exit_.code
            except (SyntaxFault, LeavingLoop):
                pass
            self.last = kept
            return None

        return run

    def complain(self, text: str) -> None:
        """Write to the errors."""
        self.fds[2].write(f"{self.name}: {text}\n".encode("utf-8", "surrogateescape"))

    # ---- trees

    def node(self, node: ScriptNode) -> Steps:
        """Run a tree; the exit code."""
        match node:
            case Simple():
                code = yield from self._simple(node)
            case Sequence(nodes, background):
                code = 0
                for part, behind in zip(nodes, background, strict=True):
                    if behind:
                        self._behind(part)
                        code = self.last = 0
                    else:
                        code = yield from self.node(part)
            case AndOr(left, op, right):
                code = yield from self._guarding(left)
                if (code == 0) == (op == "&&"):
                    code = yield from self.node(right)
                    self.last = code
                    return code
                self.last = code
                return code
            case Pipeline(commands, negated):
                if negated:
                    code = yield from self._guarding(commands[0] if len(commands) == 1 else Pipeline(commands, False))
                    self.last = int(code == 0)
                    return self.last
                code = yield from self._pipeline(commands)
            case If(branches, otherwise):
                code = yield from self._if(branches, otherwise)
                return code
            case For() | Loop():
                code = yield from self._loop(node)
                return code
            case CaseClause(word, arms):
                code = yield from self._case(word, arms)
                return code
            case Group():
                code = yield from self._group(node)
            case FunctionDefinition(name, body):
                self.functions[name] = body
                code = 0
        self.last = code
        if code and self.errexit and not self._guarded and isinstance(node, Simple | Pipeline | Group):
            raise Leaving(code)
        return code

    def _guarding(self, node: ScriptNode) -> Steps:
        """Run what `set -e` does not end."""
        self._guarded += 1
        try:
            return (yield from self.node(node))
        finally:
            self._guarded -= 1

    def _if(self, branches: tuple[tuple[ScriptNode, ScriptNode], ...], otherwise: ScriptNode | None) -> Steps:
        for condition, body in branches:
            if (yield from self._guarding(condition)) == 0:
                return (yield from self.node(body))
        if otherwise is not None:
            return (yield from self.node(otherwise))
        self.last = 0
        return 0

    def _loop(self, node: For | Loop) -> Steps:
        code = 0
        if isinstance(node, For):
            words = list(self.args) if node.words is None else (yield from self.expand(node.words))
            for word in words:
                self.variables[node.name] = word
                done, code = yield from self._body(node.body)
                if done:
                    break
            return code
        while ((yield from self._guarding(node.condition)) == 0) != node.until:
            done, code = yield from self._body(node.body)
            if done:
                break
        self.last = code
        return code

    def _body(self, body: ScriptNode) -> Steps:
        yield TURN
        try:
            return False, (yield from self.node(body))
        except LeavingLoop as leave:
            if leave.levels > 1:
                raise LeavingLoop(leave.levels - 1, go_on=leave.go_on) from None
            return not leave.go_on, 0

    def _case(self, word: Word, arms: tuple[tuple[tuple[Word, ...], ScriptNode], ...]) -> Steps:
        text = yield from self.one(word)
        for patterns, body in arms:
            for pattern in patterns:
                if _matches(text, (yield from self._pattern(pattern))):
                    return (yield from self.node(body))
        self.last = 0
        return 0

    def _group(self, node: Group) -> Steps:
        fds = yield from self._redirected(node.redirects)
        if fds is None:
            return 1
        if node.subshell:
            inner = self.copy(fds)
            thread = self.around.process.spawn(inner.whole(node.body))
            yield ThreadsEnded((thread,))
            return thread.code or 0
        kept, self.fds = self.fds, fds
        try:
            return (yield from self.node(node.body))
        finally:
            self.fds = kept

    def _pipeline(self, commands: tuple[ScriptNode, ...]) -> Steps:
        threads: list[Thread] = []
        source: Pipe = self.fds[0]
        for index, command in enumerate(commands):
            last = index == len(commands) - 1
            pipe = Pipe()
            fds = {**self.fds, 0: source, 1: self.fds[1] if last else pipe}
            threads.append(self.around.process.spawn(self.copy(fds).whole(command), _ender(pipe, source, self.fds[0])))
            source = pipe
        yield ThreadsEnded(tuple(threads))
        codes = [thread.code or 0 for thread in threads]
        if self.pipefail:
            return next((code for code in reversed(codes) if code), 0)
        return codes[-1]

    def _behind(self, node: ScriptNode) -> None:
        shell = self.copy({**self.fds, 0: NO_INPUT})
        self.jobs.append(self.around.process.spawn(shell.whole(node)))
        self.last_job = 100 + len(self.jobs)

    # ---- one command

    def _simple(self, node: Simple) -> Steps:
        yield TURN
        words = yield from self.expand(node.words)
        fds = yield from self._redirected(node.redirects)
        if fds is None:
            return 1
        given: dict[str, str] = {}
        self.last, before = 0, self.last
        for name, word in node.assignments:
            self.variables.update(given)
            given[name] = yield from self.one(word)
        if self.trace:
            shown = [*(f"{name}={value}" for name, value in given.items()), *words]
            self.fds[2].write(f"+ {' '.join(shown)}\n".encode())
        if not words:
            self.variables.update(given)
            return self.last
        self.last = before
        from dragoman.kubelet.shell.builtins import SPECIAL  # which needs ScriptShell

        name, special = words[0], SPECIAL.get(words[0])
        if name in self.functions:
            return (yield from self._function(name, words, given, fds))
        if special is not None:
            self.variables.update(given)
            kept, self.fds = self.fds, fds
            try:
                return (yield from special(self, words))
            except FileFault as fault:
                self.complain(f"{name}: {fault}")
                return 1
            finally:
                # What `exec` redirects stays so.
                self.fds = self.fds if words == ["exec"] else kept
        env = {**{key: self.variables[key] for key in self.exported if key in self.variables}, **given}
        code = yield from self.call(tuple(words), env, fds)
        out = fds[1]
        if isinstance(out, Pipe):
            if out.closed:
                raise Signal(SIGNALS["PIPE"])
            if len(out.data) > PIPE_BYTES:
                yield PipeSpace(out)
        return code

    def _function(self, name: str, words: list[str], given: dict[str, str], fds: dict[int, Any]) -> Steps:
        if self.depth > CALLS_DEEP:
            raise Signal(11)
        kept = (self.args, self.fds)
        old = {key: self.variables.get(key) for key in given}
        self.variables.update(given)
        self.args, self.fds, self.depth = tuple(words[1:]), fds, self.depth + 1
        try:
            return (yield from self.node(self.functions[name]))
        except Returning as back:
            return back.code
        finally:
            self.args, self.fds = kept
            self.depth -= 1
            for key, value in old.items():
                if value is None:
                    self.variables.pop(key, None)
                else:
                    self.variables[key] = value

    def call(self, words: tuple[str, ...], env: Mapping[str, str], fds: Mapping[int, Any]) -> Steps:
        """Run a program; its exit code."""

        def again(other: tuple[str, ...]) -> ThreadWork:
            return self.call(other, env, fds)

        call = ProgramCall(words, env, self.cwd, fds[0], fds[1], fds[2], self.around, again)
        program = find(self.around, words[0], self.cwd)
        try:
            if isinstance(program, str):
                fds[2].write(f"{self.name}: {words[0]}: {program}\n".encode())
                return NOT_EXECUTABLE if program == "Permission denied" else NOT_FOUND
            outcome = program(call)
            return outcome if isinstance(outcome, int) else (yield from outcome)
        except FileFault as fault:
            return call.fail(str(fault))

    # ---- redirections

    def _redirected(self, redirects: tuple[Redirect, ...]) -> Steps:
        """The file descriptors with those redirections; None where one fails, which is said."""
        if not redirects:
            return self.fds
        fds = dict(self.fds)
        for redirect in redirects:
            text = yield from self.one(redirect.word)
            try:
                self._redirect(fds, redirect, text)
            except FileFault as fault:
                self.complain(f"can't {'open' if redirect.op == '<' else 'create'} {text}: {fault}")
                return None
        return fds

    def _redirect(self, fds: dict[int, Any], redirect: Redirect, text: str) -> None:
        match redirect.op:
            case "<":
                fds[redirect.fd] = fds[0] if text == "/dev/stdin" else _full(self._read(text))
            case "<<":
                fds[redirect.fd] = _full(text.encode())
            case "<<<":
                fds[redirect.fd] = _full(f"{text}\n".encode())
            case ">&" | "<&":
                if text == "-":
                    fds[redirect.fd] = NO_INPUT if redirect.fd == 0 else Nowhere()
                elif text.isdecimal():
                    if int(text) not in fds:
                        raise FileFault("bad file descriptor")
                    fds[redirect.fd] = fds[int(text)]
                else:
                    fds[1] = fds[2] = self._sink(text, append=False)
            case op:
                fds[redirect.fd] = self._sink(text, append=op == ">>")

    def _read(self, name: str) -> bytes:
        return self.around.files.read(posixpath.join(self.cwd, name))

    def _sink(self, name: str, *, append: bool) -> Sink:
        path = posixpath.normpath(posixpath.join(self.cwd, name))
        standard = {"/dev/stdout": 1, "/dev/stderr": 2, "/proc/self/fd/1": 1, "/proc/self/fd/2": 2}
        if path in standard:
            sink: Sink = self.fds[standard[path]]
            return sink
        if path in ("/proc/1/fd/1", "/proc/1/fd/2") and self.around.log is not None:
            return self.around.log
        found = self.around.files.find(path)
        if found is not None and found.kind == "device":
            return Nowhere()
        self.around.files.write(path, b"", self.around.process.now, append=append)
        return FileSink(self.around.files, path, self.around.process)

    # ---- words

    def expand(self, words: tuple[Word, ...]) -> Steps:
        """The fields that words stand for: expanded, split, matched against file names."""
        found: list[str] = []
        for word in words:
            for field in (yield from self._fields(word)):
                found += self._globbed(field)
        return found

    def one(self, word: Word) -> Steps:
        """A word as one text, neither split nor matched."""
        texts: list[str] = []
        for part in word:
            texts.append((yield from self._text(part)))  # noqa: PERF401
        text = "".join(texts)
        if word and isinstance(word[0], Literal) and not word[0].quoted and re.match(r"~(/|$)", text):
            text = self.variables.get("HOME", "/root") + text[1:]
        return text

    def _fields(self, word: Word) -> Steps:
        fields: list[_Field] = []
        current: _Field | None = None
        for part in word:
            if isinstance(part, Parameter) and part.name == "@" and part.quoted and not part.op:
                for index, argument in enumerate(self.args):
                    if index or current is None:
                        if current is not None:
                            fields.append(current)
                        current = []
                    current.append((argument, True))
                continue
            text = yield from self._text(part)
            if isinstance(part, Literal) or part.quoted:
                quoted = part.quoted
                if not quoted and current is None and re.match(r"~(/|$)", text):
                    text = self.variables.get("HOME", "/root") + text[1:]
                current = [*(current or []), (text, quoted)]
                continue
            separators = self.variables.get("IFS", " \t\n")
            if not separators:
                if text:
                    current = [*(current or []), (text, False)]
                continue
            at = 0
            for match in delimiter(separators).finditer(text):
                if match.start() > at:
                    current = [*(current or []), (text[at : match.start()], False)]
                if current is not None or match["hard"]:
                    fields.append(current or [])
                    current = None
                at = match.end()
            if at < len(text):
                current = [*(current or []), (text[at:], False)]
        if current is not None:
            fields.append(current)
        return fields

    def _globbed(self, field: _Field) -> list[str]:
        plain = "".join(text for text, _ in field)
        if not any(not quoted and re.search(r"[*?\[]", text) for text, quoted in field):
            return [plain]
        pattern = "".join(re.sub(r"([*?\[])", r"[\1]", text) if quoted else text for text, quoted in field)
        return self._matching(pattern) or [plain]

    def _matching(self, pattern: str) -> list[str]:
        files = self.around.files
        found = ["/" if pattern.startswith("/") else ""]
        for part in (part for part in pattern.split("/") if part):
            onward: list[str] = []
            for base in found:
                folder = posixpath.join(self.cwd, base)
                if not re.search(r"[*?\[]", part):
                    onward += [posixpath.join(base, part)] if files.find(posixpath.join(folder, part)) else []
                elif files.is_folder(folder):
                    names = [name for name in files.names(folder) if fnmatch.fnmatchcase(name, part)]
                    onward += [posixpath.join(base, n) for n in names if part.startswith(".") or not n.startswith(".")]
            found = onward
        return sorted(found)

    def _pattern(self, word: Word) -> Steps:
        texts: list[str] = []
        for part in word:
            text = yield from self._text(part)
            literal = part.quoted
            texts.append(re.sub(r"([*?\[])", r"[\1]", text) if literal else text)
        return "".join(texts)

    def _text(self, part: Part) -> Steps:
        match part:
            case Literal(text):
                return text
            case Parameter():
                return (yield from self._parameter(part))
            case CommandSubstitution(script):
                return (yield from self._output(script))
            case Arithmetic(word):
                text = yield from self.one(word)
                try:
                    return str(evaluate(text, self.variables))
                except Invalid as error:
                    raise _Fault(f"arithmetic: {error.what}") from None

    def _output(self, script: ScriptNode) -> Steps:
        pipe = Pipe()
        inner = self.copy({**self.fds, 1: pipe})
        collected = bytearray()
        thread = self.around.process.spawn(inner.whole(script), _ender(pipe, None, None))
        while not pipe.ended or pipe.data:
            yield Data(pipe)
            collected += pipe.take()
        yield ThreadsEnded((thread,))
        self.last = thread.code or 0
        return collected.decode("utf-8", "surrogateescape").rstrip("\n")

    def value(self, name: str) -> str | None:
        """A variable or special parameter."""
        match name:
            case "?":
                return str(self.last)
            case "#":
                return str(len(self.args))
            case "@" | "*":
                return " ".join(self.args) if self.args else None
            case "$":
                return "1"
            case "!":
                return str(self.last_job) if self.last_job else None
            case "0":
                return self.name
            case "-":
                return "e" if self.errexit else ""
        if name.isdecimal():
            return self.args[int(name) - 1] if int(name) <= len(self.args) else None
        if name == "RANDOM":
            self.drawn = (self.drawn * 1103515245 + 12345) % 2**31
            return str(self.drawn >> 16)
        if name == "SECONDS":
            return str(int(self.around.process.now))
        return self.variables.get(name)

    def _parameter(self, part: Parameter) -> Steps:
        value = self.value(part.name)
        op = part.op
        if not op or op == "length":
            if value is None and self.nounset and part.name not in "@*":
                raise _Fault(f"{part.name}: parameter not set")
            return str(len(value or "")) if op else value or ""
        word = part.word or ()
        missing = value is None or (op.startswith(":") and value == "")
        match op.lstrip(":"):
            case "-":
                return (yield from self.one(word)) if missing else value
            case "=":
                if missing:
                    self.variables[part.name] = value = yield from self.one(word)
                return value
            case "?":
                if missing:
                    text = yield from self.one(word)
                    raise _Fault(f"{part.name}: {text or 'parameter not set'}")
                return value
            case "+":
                return "" if missing else (yield from self.one(word))
        pattern = yield from self.one(word)
        return _trimmed(value or "", op, pattern)


def _ender(pipe: Pipe, source: Pipe | None, outer: Pipe | None) -> Callable[[], None]:
    def end() -> None:
        pipe.ended = True
        if source is not None and source is not outer:
            source.closed = True

    return end


def _full(data: bytes) -> Pipe:
    pipe = Pipe()
    pipe.write(data)
    pipe.ended = True
    return pipe


def _matches(text: str, pattern: str) -> bool:
    return fnmatch.fnmatchcase(text, pattern)


def _trimmed(value: str, op: str, pattern: str) -> str:
    ends = range(len(value) + 1) if op in ("#", "%%") else range(len(value), -1, -1)
    for end in ends:
        if op[0] == "#" and _matches(value[:end], pattern):
            return value[end:]
        if op[0] == "%" and _matches(value[end:], pattern):
            return value[:end]
    return value


def find(around: ShellSurroundings, name: str, cwd: str) -> ShellProgram | str:
    """The program of that name or path, or why there is none."""
    from dragoman.kubelet.shell.commands import PROGRAMS, absent

    if "/" in name:
        path = posixpath.normpath(posixpath.join(cwd, name))
        entry = around.files.find(path)
        base = posixpath.basename(path)
        known = around.programs.get(base) or PROGRAMS.get(base)
        if known is not None and (entry is None or not entry.data):
            return known
        if entry is None:
            return absent(base) or "not found"
        if entry.kind == "folder":
            return "Permission denied"
        if not entry.mode & 0o111:
            return "Permission denied"
        return _script_of(path)
    known = around.programs.get(name) or PROGRAMS.get(name)
    return known if known is not None else absent(name) or "not found"


def _script_of(path: str) -> ShellProgram:
    def run(call: ProgramCall) -> ThreadWork:
        text = call.around.files.read(path).decode("utf-8", "replace")
        first, _, _ = text.partition("\n")
        interpreter = first[2:].split()[-1] if first.startswith("#!") and first[2:].split() else "sh"
        return call.run((posixpath.basename(interpreter), path, *call.args[1:]))

    return run


def delimiter(separators: str) -> re.Pattern[str]:
    """What ends a field: any run of the blanks among the separators; each other one by itself ("hard"), with the blanks
    around it."""
    blank = re.escape("".join(c for c in separators if c in " \t\n"))
    hard = re.escape("".join(c for c in separators if c not in " \t\n"))
    blanks = f"[{blank}]" if blank else "(?!)"
    return re.compile(f"{blanks}*(?P<hard>[{hard}]){blanks}*|{blanks}+" if hard else f"{blanks}+(?P<hard>(?!))?")


def read_line(pipe: Pipe) -> Generator[Any, None, tuple[bytes, bool]]:
    """The next line without its end, and whether it had one."""
    while b"\n" not in pipe.data and not pipe.ended:
        size = len(pipe.data)
        yield Data(pipe) if not size else TURN
        if size and len(pipe.data) == size and not pipe.ended:
            yield from _grown(pipe, size)
    at = pipe.data.find(b"\n")
    if at < 0:
        return pipe.take(), False
    return pipe.take(at + 1)[:-1], True


def _grown(pipe: Pipe, size: int) -> Steps:
    """Wait until there is more than so much."""
    kept = pipe.take()
    yield Data(pipe)
    pipe.data[:0] = kept
    return size
