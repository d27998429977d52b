"""Which programs does the shell have? Those that container commands of tutorials and tests call, in their plain uses.

Options that are not known are refused with what is; a program that is not here says so by name (`absent`). Text tools
work on lines of UTF-8. None of them reaches a network.
"""

from __future__ import annotations

import posixpath
import re
from datetime import UTC, datetime

from dragoman.kubelet.shell import filetools, python, text
from dragoman.kubelet.shell.language import Leaving, ProgramCall, ScriptShell, ShellProgram, read_line
from dragoman.kubelet.shell.process import TURN, Pipe, PipeSpace, Signal, ThreadWork, Until, forever
from dragoman.kubelet.shell.reading import UsageFault, collect, options_of, unescaped
from dragoman.kubelet.shell.syntax import SyntaxFault, parse
from dragoman.kubelet.shell.tests import check

_OUTSIDE = (
    "torchrun mpirun mpiexec deepspeed accelerate horovodrun srun ray vllm trtllm-serve tritonserver python2 pip pip3",
    "jupyter curl wget nc telnet ping dig nslookup ssh git make gcc nvcc apt apt-get apk yum dnf npm node java go",
    "ruby perl nginx redis-server redis-cli mysqld mysql postgres psql httpd etcd etcdctl kubectl helm vectorAdd",
    "deviceQuery nbody all_reduce_perf dcgmi nsys ncu ib_write_bw ibv_devinfo stress stress-ng fio iperf openssl",
)
OUTSIDE = frozenset(" ".join(_OUTSIDE).split())
"""Programs that people expect in images and that nothing here stands in for."""
REMEDY = "dragoman.dev/run-seconds and dragoman.dev/exit-code stand in for it, or `up --runtime process` runs it"
_UNITS = {"": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
POLL_S = 1.0


def absent(name: str) -> str:
    """What to say of a program that is not here; "" for one that nobody expects."""
    if posixpath.basename(name) in OUTSIDE:
        return f"not simulated: programs of images do not run in simulated containers ({REMEDY})"
    return "not found (only the programs of the simulated shell exist)"


# ---- plain output


def _echo(call: ProgramCall) -> int:
    words, newline, escapes = list(call.args[1:]), True, False
    while words and re.fullmatch(r"-[neE]+", words[0]):
        newline = newline and "n" not in words[0]
        escapes = "e" in words[0] or escapes
        words.pop(0)
    text = " ".join(words)
    call.say((unescaped(text) if escapes else text) + ("\n" if newline else ""))
    return 0


def _printf(call: ProgramCall) -> int:
    if len(call.args) < 2:
        return call.fail("usage: printf FORMAT [ARGUMENT]...", 2)
    format_, values = unescaped(call.args[1]), list(call.args[2:])
    while True:
        before = len(values)

        def replace(match: re.Match[str]) -> str:
            if match[0] == "%%":
                return "%"
            value: str = values.pop(0) if values else ""
            if match[2] == "b":
                return unescaped(value)
            if match[2] in "diuxXo":
                return f"%{match[1]}{match[2].replace('u', 'd')}" % int(value or "0", 0)
            if match[2] in "feg":
                return f"%{match[1]}{match[2]}" % float(value or "0")
            return f"%{match[1]}{'s' if match[2] in 'sqc' else match[2]}" % (value[:1] if match[2] == "c" else value)

        try:
            call.say(re.sub(r"%([-+ 0#]*\d*(?:\.\d+)?)([sdiuxXofegbqc])|%%", replace, format_))
        except ValueError as error:
            return call.fail(f"invalid number: {error}")
        if not values or len(values) == before:
            return 0


def _true(call: ProgramCall) -> int:
    return 0


def _false(call: ProgramCall) -> int:
    return 1


def _yes(call: ProgramCall) -> ThreadWork:
    text = " ".join(call.args[1:]) or "y"
    while True:
        call.say(f"{text}\n" * 64)
        if not isinstance(call.output, Pipe):
            yield Until(call.around.process.now + POLL_S)
        elif call.output.closed:
            raise Signal(13)
        else:
            yield PipeSpace(call.output)
            yield TURN


def _seq(call: ProgramCall) -> int:
    words, separator = list(call.args[1:]), "\n"
    if words and words[0].startswith("-s"):
        separator = words.pop(0)[2:] or (words.pop(0) if words else "")
    try:
        numbers = [int(word) for word in words]
    except ValueError:
        return call.fail("needs whole numbers")
    if not 1 <= len(numbers) <= 3:
        return call.fail("usage: seq [FIRST [INC]] LAST")
    first = numbers[0] if len(numbers) > 1 else 1
    step = numbers[1] if len(numbers) == 3 else 1
    if step == 0:
        return call.fail("the increment must not be 0")
    span = range(first, numbers[-1] + (1 if step > 0 else -1), step)
    if len(span) > 1_000_000:
        return call.fail("more than a million numbers")
    call.say(separator.join(map(str, span)) + "\n" if span else "")
    return 0


# ---- time


def seconds_of(text: str) -> float | None:
    """A duration as sleep takes it; inf for ever, None for no duration."""
    if text in ("infinity", "inf"):
        return float("inf")
    match = re.fullmatch(r"(\d+(?:\.\d*)?|\.\d+)([smhd]?)", text)
    return float(match[1]) * _UNITS[match[2]] if match else None


def _sleep(call: ProgramCall) -> int | ThreadWork:
    total = 0.0
    for word in call.args[1:]:
        seconds = seconds_of(word)
        if seconds is None:
            return call.fail(f"invalid time interval '{word}'")
        total += seconds
    if len(call.args) < 2:
        return call.fail("missing operand")
    return _pause(call, total)


def _pause(call: ProgramCall, seconds: float) -> ThreadWork:
    yield Until(None if seconds == float("inf") else call.around.process.now + seconds)
    return 0


def _pause_forever(call: ProgramCall) -> ThreadWork:
    return forever()


def _timeout(call: ProgramCall) -> int | ThreadWork:
    words = list(call.args[1:])
    while words and words[0].startswith("-"):
        if words.pop(0) in ("-s", "-k") and words:
            words.pop(0)
    seconds = seconds_of(words[0]) if words else None
    if seconds is None or len(words) < 2:
        return call.fail("usage: timeout SECONDS PROGRAM [ARGUMENT]...", 125)
    return _limited(call, seconds, tuple(words[1:]))


def _limited(call: ProgramCall, seconds: float, words: tuple[str, ...]) -> ThreadWork:
    process = call.around.process
    end = process.now + seconds
    thread = process.spawn(call.run(words))
    clock = process.spawn(_pause(call, seconds))
    while thread.code is None and clock.code is None:
        yield TURN if thread.wait == TURN else Until(min(end, process.now + 0.1))
    if thread.code is not None:
        clock.work = _finished()
        clock.wait = TURN
        return thread.code
    thread.work.close()
    thread.work, thread.wait = _finished(), TURN
    return 124


def _finished() -> ThreadWork:
    return 0
    yield  # pragma: no cover


def _date(call: ProgramCall) -> int:
    now = datetime.fromtimestamp(call.around.process.now, UTC)
    words = [word for word in call.args[1:] if word not in ("-u", "--utc")]
    if words and words[0] == "-d":
        text = words[1] if len(words) > 1 else ""
        if not re.fullmatch(r"@\d{1,11}", text):
            return call.fail(f"invalid date '{text}' (known here: @SECONDS)")
        now, words = datetime.fromtimestamp(int(text[1:]), UTC), words[2:]
    if words and words[0].startswith("+"):
        text = words[0][1:].replace("%s", str(int(now.timestamp()))).replace("%N", f"{now.microsecond * 1000:09d}")
        call.say(now.strftime(text.replace("%F", "%Y-%m-%d").replace("%T", "%H:%M:%S")) + "\n")
    elif words and (words[0].startswith("-I") or words[0] == "--iso-8601=seconds"):
        call.say(now.strftime("%Y-%m-%dT%H:%M:%S+00:00\n" if "s" in words[0] else "%Y-%m-%d\n"))
    elif words:
        return call.fail(f"invalid date '{words[0]}'")
    else:
        call.say(now.strftime("%a %b %e %H:%M:%S UTC %Y\n"))
    return 0


# ---- who and where


def _env(call: ProgramCall) -> int | ThreadWork:
    words = list(call.args[1:])
    env = dict(call.env)
    while words and (words[0] in ("-i", "-u") or "=" in words[0]):
        word = words.pop(0)
        if word == "-i":
            env = {}
        elif word == "-u":
            env.pop(words.pop(0) if words else "", None)
        else:
            name, _, value = word.partition("=")
            env[name] = value
    if words:
        shell = ScriptShell(call.around, env, {0: call.input, 1: call.output, 2: call.errors}, cwd=call.cwd)
        return shell.call(tuple(words), env, shell.fds)
    call.say("".join(f"{name}={value}\n" for name, value in env.items()))
    return 0


def _printenv(call: ProgramCall) -> int:
    if len(call.args) == 1:
        call.say("".join(f"{name}={value}\n" for name, value in call.env.items()))
        return 0
    missing = [name for name in call.args[1:] if name not in call.env]
    call.say("".join(f"{call.env[name]}\n" for name in call.args[1:] if name in call.env))
    return 1 if missing else 0


def _hostname(call: ProgramCall) -> int:
    words = call.args[1:]
    if words and words[0] in ("-i", "-I"):
        hosts = call.around.files.read("/etc/hosts").decode()
        ips = [line.split()[0] for line in hosts.splitlines() if call.around.hostname in line.split()[1:]]
        call.say(f"{' '.join(ips)}\n")
    else:
        call.say(f"{call.around.hostname}\n")
    return 0


def _pwd(call: ProgramCall) -> int:
    call.say(f"{call.cwd}\n")
    return 0


def _id(call: ProgramCall) -> int:
    user = call.around.user
    words = call.args[1:]
    if words and words[0] in ("-u", "-g", "-G"):
        call.say(f"{user if words[0] == '-u' else 0}\n")
    else:
        name = "(root)" if user == 0 else ""
        call.say(f"uid={user}{name} gid=0(root) groups=0(root)\n")
    return 0


def _whoami(call: ProgramCall) -> int:
    if call.around.user:
        return call.fail(f"unknown uid {call.around.user}")
    call.say("root\n")
    return 0


def _uname(call: ProgramCall) -> int:
    options, _ = options_of(call, "asnrvmpio")
    parts = {
        "s": "Linux",
        "n": call.around.hostname,
        "r": "6.8.0-dragoman",
        "v": "#1 SMP simulated by Dragoman",
        "m": "x86_64",
        "o": "GNU/Linux",
    }
    wanted = "snrvmo" if "a" in options else "".join(options) or "s"
    call.say(" ".join(parts[letter] for letter in parts if letter in wanted.replace("p", "m").replace("i", "m")) + "\n")
    return 0


def _nproc(call: ProgramCall) -> int:
    call.say("1\n")
    return 0


def _ps(call: ProgramCall) -> int:
    call.say("PID   USER     TIME  COMMAND\n    1 root      0:00 (simulated by Dragoman)\n")
    return 0


def _mount(call: ProgramCall) -> int:
    for mount in sorted(call.around.files.mounts, key=lambda m: m.path):
        call.say(f"simulated on {mount.path} type tmpfs ({'ro' if mount.read_only else 'rw'},relatime)\n")
    return 0


# ---- programs that run programs


def _sh(call: ProgramCall) -> int | ThreadWork:
    words, flags, text = list(call.args[1:]), "", None
    while words and words[0].startswith(("-", "+")) and words[0] not in ("-", "--"):
        word = words.pop(0)
        if word in ("--login", "--noprofile", "--norc", "--posix"):
            continue
        flags += word[1:].replace("c", "").replace("l", "").replace("i", "")
        if "o" in word[1:] and words:
            flags = flags.replace("o", "")
            if words.pop(0) == "pipefail":
                flags += "P"
        if "c" in word[1:]:
            if not words:
                return call.fail("-c requires an argument", 2)
            text = words.pop(0)
            break
    name = call.args[0]
    if words and words[0] in ("-", "--"):
        words.pop(0)
    if text is None and words:
        text = call.around.files.read(call.path(words[0])).decode("utf-8", "replace")
        name = words.pop(0)
    elif text is not None and words:
        name = words.pop(0)
    fds = {0: call.input, 1: call.output, 2: call.errors}
    shell = ScriptShell(call.around, call.env, fds, name=name, args=tuple(words), cwd=call.cwd)
    shell.errexit, shell.nounset, shell.trace = "e" in flags, "u" in flags, "x" in flags
    shell.pipefail = "P" in flags
    return shell.script(text) if text is not None else _interactive(call, shell)


def _interactive(call: ProgramCall, shell: ScriptShell) -> ThreadWork:
    """Lines from the input, one after the other."""
    pending, prompt = "", bool(call.env.get("TERM"))
    while True:
        if prompt:
            call.say("> " if pending else f"{shell.cwd} # ")
        line, complete = yield from read_line(call.input)
        if not complete and not line:
            break
        pending += line.decode("utf-8", "surrogateescape").rstrip("\r") + "\n"
        try:
            tree = parse(pending)
        except SyntaxFault as fault:
            if complete and any(word in str(fault) for word in ("end of file", "unterminated")):
                continue
            shell.complain(str(fault))
            pending = ""
            continue
        pending = ""
        try:
            yield from shell.node(tree)
        except Leaving as exit_:
            return exit_.code
        if not complete:
            break
    return shell.last


def _busybox(call: ProgramCall) -> int | ThreadWork:
    return call.run(call.args[1:]) if len(call.args) > 1 else 0


def _nice(call: ProgramCall) -> int | ThreadWork:
    words = list(call.args[1:])
    while words and words[0].startswith("-"):
        if words.pop(0) in ("-n", "-k", "-s", "-oL") and words and not words[0].isalpha():
            words.pop(0)
    return call.run(tuple(words)) if words else 0


def _xargs(call: ProgramCall) -> int | ThreadWork:
    options, words = {}, list(call.args[1:])
    while words and words[0].startswith("-"):
        word = words.pop(0)
        if word[:2] in ("-n", "-I", "-P", "-L"):
            options[word[1]] = word[2:] or (words.pop(0) if words else "1")

    def run() -> ThreadWork:
        text = (yield from collect(call)).decode("utf-8", "surrogateescape")
        items = [line.strip() for line in text.splitlines() if line.strip()] if "I" in options else text.split()
        size = 1 if "I" in options else int(options.get("n", "0")) or len(items) or 1
        code = 0
        for at in range(0, len(items), size):
            batch = items[at : at + size]
            if "I" in options:
                command = tuple(word.replace(options["I"], batch[0]) for word in words)
            else:
                command = (*(words or ["echo"]), *batch)
            code = (yield from call.run(command)) or code
        return 123 if code else 0

    return run()


def _test(call: ProgramCall) -> int:
    return check(call)


def _clear(call: ProgramCall) -> int:
    call.say("\x1b[H\x1b[J")
    return 0


def _tar(call: ProgramCall) -> int | ThreadWork:
    from dragoman.kubelet.shell import archive  # `kubectl cp` only

    return archive.tar(call)


_TABLE: dict[str, ShellProgram] = {
    "tar": _tar,
    **filetools.PROGRAMS,
    **text.PROGRAMS,
    "echo": _echo,
    "printf": _printf,
    "true": _true,
    ":": _true,
    "false": _false,
    "sync": _true,
    "chown": _true,
    "chgrp": _true,
    "sysctl": _true,
    "stty": _true,
    "yes": _yes,
    "seq": _seq,
    "sleep": _sleep,
    "pause": _pause_forever,
    "timeout": _timeout,
    "date": _date,
    "env": _env,
    "printenv": _printenv,
    "hostname": _hostname,
    "pwd": _pwd,
    "id": _id,
    "whoami": _whoami,
    "uname": _uname,
    "nproc": _nproc,
    "ps": _ps,
    "mount": _mount,
    "sh": _sh,
    "bash": _sh,
    "ash": _sh,
    "dash": _sh,
    "busybox": _busybox,
    "nice": _nice,
    "nohup": _nice,
    "stdbuf": _nice,
    "tini": _nice,
    "dumb-init": _nice,
    "xargs": _xargs,
    "test": _test,
    "[": _test,
    "[[": _test,
    "clear": _clear,
    "python": python.run,
    "python3": python.run,
}


def _careful(program: ShellProgram) -> ShellProgram:
    """Wrong options are said and end with 1, as do numbers that are none."""

    def run(call: ProgramCall) -> int | ThreadWork:
        try:
            return program(call)
        except UsageFault as usage:
            return call.fail(str(usage))
        except ValueError as error:
            return call.fail(str(error))

    return run


PROGRAMS: dict[str, ShellProgram] = {name: _careful(program) for name, program in _TABLE.items()}
