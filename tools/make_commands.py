"""What does each command take? Writes docs/reference/commands.md from the parsers themselves: `make docs`."""

from __future__ import annotations

import argparse
import importlib
from collections.abc import Iterator
from pathlib import Path

from dragoman.cli.main import COMMANDS, Usage

TARGET = Path(__file__).resolve().parents[1] / "docs" / "reference" / "commands.md"
HEAD = """\
# Commands

Made from the commands' parsers by `make docs`. `kubectl dra COMMAND` is the same as `dragoman COMMAND` if `kubectl-dra`
is on the PATH. Exit status: 0 success, 1 the result is negative, 2 usage error or unreadable input. Results go to
stdout, messages to stderr. The daemons (scheduler, controllers, node-agent, driver) also read every flag from the
environment, as `DRAGOMAN_FLAG` with underscores for dashes; the flag takes precedence.
"""


def parsers() -> Iterator[tuple[str, argparse.ArgumentParser, str]]:
    """Each command and subcommand, its parser, and what it is for."""
    for name, (module, summary) in COMMANDS.items():
        parser = Usage(prog=f"dragoman {name}")
        importlib.import_module(f"dragoman.cli.{module}").arguments(parser)
        yield name, parser, summary
        yield from _below(name, parser)


def _below(name: str, parser: argparse.ArgumentParser) -> Iterator[tuple[str, argparse.ArgumentParser, str]]:
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            reported = {choice.dest: choice.help or "" for choice in action._choices_actions}
            for word, inner in action.choices.items():
                yield f"{name} {word}", inner, reported.get(word, "")


def text() -> str:
    """The whole page."""
    parts = [HEAD]
    for name, parser, summary in parsers():
        parts.append(f"\n## {name}\n\n{summary[0].upper() + summary[1:]}.\n" if summary else f"\n## {name}\n")
        rows = [row for row in map(_row, parser._actions) if row]
        if rows:
            parts.append("\n| flag | meaning |\n|---|---|\n" + "\n".join(rows) + "\n")
    return "".join(parts)


def _row(action: argparse.Action) -> str:
    if isinstance(action, argparse._HelpAction | argparse._SubParsersAction):
        return ""
    shown = action.metavar or ("{" + ",".join(map(str, action.choices)) + "}" if action.choices else "")
    if action.option_strings:
        value = shown or ("" if action.nargs == 0 else action.dest.upper())
        flag = ", ".join(f"`{option}`" for option in action.option_strings) + (f" `{value}`" if value else "")
    else:
        flag = f"`{shown or action.dest.upper()}`"
    needed = "; required" if action.required and action.option_strings else ""
    meaning = ((action.help or "") % vars(action) + needed).removeprefix("; ").replace("|", "\\|")
    return f"| {flag.replace('|', chr(92) + '|')} | {meaning} |".replace("  ", " ")


if __name__ == "__main__":
    TARGET.write_text(text(), encoding="utf-8")
