"""`dragoman drill`: break a cluster on purpose, see alerts and explanations, mend it, and be where one was."""

from __future__ import annotations

import argparse
from pathlib import Path

from dragoman.errors import Invalid, NotFound

EXAMPLES = """\
examples:
  dragoman drill                 list the drills
  dragoman drill gpu-lost        run one in a cluster of its own
  dragoman drill -f mine.yaml    run your own
"""


def arguments(parser: argparse.ArgumentParser) -> None:
    """Which drills."""
    parser.epilog = EXAMPLES
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("names", nargs="*", metavar="NAME", help="drills to run; default: list them")
    parser.add_argument(
        "-f", "--filename", action="append", type=Path, default=[], metavar="FILE", help="a drill of yours"
    )
    parser.add_argument("--print", action="store_true", help="print the drill instead of running it")
    parser.add_argument(
        "--promtool", metavar="PATH", help="promtool, which evaluates the alert rules; default: the one in PATH"
    )


def run(args: argparse.Namespace) -> int:
    """0 if all went as expected, 1 if not."""
    from dragoman.cli import output
    from dragoman.ops.drill import parse

    texts = [(str(file), _read(file)) for file in args.filename]
    known = packaged()
    for name in args.names:
        if name not in known:
            raise NotFound(f"no drill {name!r}; there are: {', '.join(sorted(known))}")
        texts.append((f"{name}.yaml", known[name]))
    if not texts:
        drills = [parse(text, name) for name, text in sorted(known.items())]
        output.write(output.rows(["NAME", "SUMMARY"], [[drill.name, drill.summary] for drill in drills]))
        return 0
    if args.print:
        output.write("---\n".join(text for _, text in texts).rstrip())
        return 0
    from dragoman.cli import drill_run

    drills = [parse(text, name) for name, text in texts]
    return max(drill_run.run(drill, args.promtool or "") for drill in drills)


def packaged() -> dict[str, str]:
    """The drills that come with Dragoman: name to text."""
    from importlib.resources import files

    folder = files("dragoman.ops") / "drills"
    return {
        file.name.removesuffix(".yaml"): file.read_text(encoding="utf-8")
        for file in folder.iterdir()
        if file.name.endswith(".yaml")
    }


def _read(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except OSError as error:
        raise Invalid(str(file), error.strerror or "cannot be read") from None
    except UnicodeDecodeError:
        raise Invalid(str(file), "is not UTF-8 text") from None
