"""Which command was meant? Parses the first word, imports that command alone, and turns errors into one line.

A command module has `SUMMARY`-free code only: `arguments(parser)` and `run(args) -> int` (0 yes or done, 1 the
answer is no, 2 bad usage or unreadable input). The table below says what there is without importing it, so that
`--help` of any command stays fast.
"""

from __future__ import annotations

import argparse
import errno
import importlib
import os
import sys
from collections.abc import Sequence
from typing import Any

from dragoman import __version__
from dragoman.cli import output
from dragoman.errors import Bug, DragomanError

# command -> (module, one line); the order is the order of the help.
COMMANDS: dict[str, tuple[str, str]] = {
    "up": ("up", "run an embedded cluster in the foreground"),
    "clusters": ("clusters", "list, stop or delete embedded clusters, or print their kubeconfig"),
    "demo": ("demo", "take a guided tour on an embedded cluster"),
    "apply": ("apply", "create or update objects from files"),
    "get": ("get", "list objects as tables, YAML or JSON"),
    "describe": ("describe", "show one object and its events"),
    "delete": ("delete", "delete objects"),
    "scheduler": ("scheduler", "run the scheduler as a daemon"),
    "controllers": ("controllers", "run the controllers as a daemon"),
    "exporter": ("exporter", "serve metrics of a cluster's devices and claims as a daemon"),
    "monitoring": ("monitoring", "print alert rules and dashboards for the metrics of the exporter"),
    "node-agent": ("node_agent", "run the agent of one simulated node as a daemon"),
    "driver": ("driver", "run a driver as a daemon, or test any driver with bench"),
    "device-plugin": ("device_plugin", "run a device plugin as a daemon: GPUs as an extended resource"),
    "node": ("node", "add simulated nodes to a running embedded cluster, or remove them"),
    "fault": ("fault", "inject faults into simulated machines of an embedded cluster, and recover them"),
    "drill": ("drill", "break a cluster of its own on purpose, see alerts and explanations, and mend it"),
    "clock": ("clock", "show, advance or speed up the time of an embedded cluster"),
    "profiles": ("profiles", "list the machines that can be simulated, with their GPUs and network adapters"),
    "explain": (
        "explain",
        "explain why a pod is pending, or the state of a claim, node or device",
    ),
    "devices": ("devices", "list devices: how many exist, are held and are free, and what still fits"),
    "web": ("web", "show a cluster or its dump as a read-only page in the browser"),
    "lint": ("lint", "check manifests against the API, the drivers and each other, and fix them with --fix"),
    "migrate": ("migrate", "rewrite manifests from device plugins to DRA or back, keeping comments"),
    "doctor": ("doctor", "check whether a cluster is ready for DRA, and what in it contradicts what"),
    "record": ("record", "save a cluster's DRA state in a file, for commands that take -f"),
    "plan": ("plan", "plan capacity, purchases, changes and layouts: what fits, what to buy, which pods move"),
    "simulate": ("simulate", "show where the pods of these files would run and with which devices, or why they cannot"),
}


class Usage(argparse.ArgumentParser):
    """An argument parser whose errors are one line with the way to help, and that takes flags whole: an abbreviation
    that works today would mean another flag once one more begins like it."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **{"allow_abbrev": False, **kwargs})

    def error(self, message: str) -> None:  # type: ignore[override]
        """Exit with 2 and one line on stderr."""
        output.error(message, f"{self.prog} --help")
        sys.exit(2)


def _overview(prog: str) -> str:
    width = max(len(name) for name in COMMANDS)
    lines = [f"usage: {prog} COMMAND [OPTIONS]", "", "Dynamic Resource Allocation for Kubernetes.", ""]
    lines += [f"  {name:<{width}}  {summary}" for name, (_, summary) in COMMANDS.items()]
    lines += ["", f"{prog} COMMAND --help shows the options of a command. Version {__version__}."]
    return "\n".join(lines)


def main(argv: Sequence[str], prog: str = "dragoman") -> int:
    """Run one command line; returns the exit status."""
    if len(argv) == 2 and argv[0] == "help":
        argv = (argv[1], "--help")
    if not argv or argv[0] in ("-h", "--help", "help"):
        output.write(_overview(prog))
        return 0 if argv else 2
    if argv[0] in ("--version", "version"):
        output.write(f"dragoman {__version__}")
        return 0
    name = argv[0]
    if name not in COMMANDS:
        near = _near(name)
        hint = f"did you mean {near}?" if near else f"{prog} --help lists the commands"
        output.error(f"no command {name!r}", hint)
        return 2
    module_name, summary = COMMANDS[name]
    module = importlib.import_module(f"dragoman.cli.{module_name}")
    parser = Usage(prog=f"{prog} {name}", description=summary[0].upper() + summary[1:] + ".")
    module.arguments(parser)
    args = parser.parse_args(_joined(argv[1:], getattr(module, "DASHED", ())))
    return int(module.run(args))


def _joined(argv: Sequence[str], dashed: Sequence[str]) -> list[str]:
    """Values that begin with a hyphen joined to their flags, which argparse takes for flags otherwise."""
    words: list[str] = []
    for word in argv:
        if words and words[-1] in dashed and word.startswith("-") and not word.startswith("--"):
            words[-1] += f"={word}"
        else:
            words.append(word)
    return words


def _near(word: str) -> str:
    import difflib  # only on the way to an error

    return next(iter(difflib.get_close_matches(word, COMMANDS, 1)), "")


def guarded(argv: Sequence[str], prog: str = "dragoman") -> int:
    """`main` with every error as one line on stderr and exit status 2."""
    try:
        return main(argv, prog)
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        # The reader of our output went away (`| head`): nothing to say, and nothing more to flush.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except Bug as error:
        output.error(f"a defect of dragoman: {error}", "please report it with the input")
        return 2
    except DragomanError as error:
        if not _shown(error):
            output.error(str(error))
        return 2
    except OSError as error:
        if error.errno != errno.ENOSPC:
            return _defect(error)
        output.error(f"{error.filename or 'the output'} cannot be written: {error.strerror}")
        return 2
    except Exception as error:
        return _defect(error)


def _shown(error: DragomanError) -> bool:
    """A document that cannot be read, with its line of the file; False for other errors."""
    from dragoman.api import remedies
    from dragoman.api.files import DocumentInvalid  # only on the way to an error
    from dragoman.api.yamltext import Broken
    from dragoman.cli.diagnostic import Diagnostic, show

    match error:
        case Broken():
            where, help_ = f"document {error.document}", remedies.of_syntax(error.what)
            found = Diagnostic("error", error.what, error.file, error.line, where=where, help=help_)
        case DocumentInvalid():
            where = ": ".join(filter(None, (error.subject or f"document {error.document}", error.field)))
            _, start, end = error.span
            found = Diagnostic(
                "error", error.message, error.file, error.line, "", where, error.help, start=start, end=end
            )
        case _:
            return False
    show([found], sys.stderr)
    return True


def _defect(error: Exception) -> int:
    if os.environ.get("DRAGOMAN_TRACEBACK"):
        raise error
    output.error(
        f"a defect of dragoman: {type(error).__name__}: {error}",
        "please report it with the input; DRAGOMAN_TRACEBACK=1 shows where",
    )
    return 2


def run() -> None:
    """Entry of the command `dragoman`."""
    sys.exit(guarded(sys.argv[1:]))


def run_as_plugin() -> None:
    """Entry of `kubectl-dra`, which kubectl calls for `kubectl dra ...`."""
    sys.exit(guarded(sys.argv[1:], "kubectl dra"))
