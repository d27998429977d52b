"""Is this worse than a commit before? Processor time of commands and of the embedded cluster, side by side.

    python bench/against.py COMMIT [--runs 7] [--embedded]

Both sides use the same interpreter and libraries, in turn, with bytecode written before. One JSON line a command: least
processor seconds (user and system) of each side and the ratio. --embedded adds what bench/embedded.py of each side says
of `first`, `throughput` and `nodes`, as it says it.
"""

from __future__ import annotations

import argparse
import compileall
import json
import os
import platform
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
FILES = ["-f", "examples/cluster.yaml", "-f", "examples/one-device.yaml"]
COMMANDS = (
    ["up", "--help"],
    ["simulate", *FILES],
    ["explain", *FILES],
    ["devices", "-f", "examples/cluster.yaml"],
    ["lint", "-f", "examples/one-device.yaml"],
    ["-c", "import dragoman.daemon.allinone"],
)
START = "import sys; from dragoman.cli.main import main; sys.exit(main(sys.argv[1:]))"


def environment(tree: Path) -> dict[str, str]:
    """The sources of a tree in front of those that are installed."""
    found = {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}
    return found | {"PYTHONPATH": str(tree / "src")}


def cpu_s(tree: Path, command: list[str]) -> float:
    """Processor seconds of one run; raises where the command breaks (exit status over 1)."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    line = command if command[0] == "-c" else ["-c", START, *command]
    done = subprocess.run(
        [sys.executable, *line], cwd=ROOT, env=environment(tree), capture_output=True, text=True, check=False
    )
    if done.returncode > 1:
        raise SystemExit(f"{' '.join(command)} in {tree}: exit {done.returncode}\n{done.stderr}")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="bench/against.py", allow_abbrev=False)
    parser.add_argument("commit")
    parser.add_argument("--runs", type=int, default=7)
    parser.add_argument("--embedded", action="store_true")
    args = parser.parse_args(argv)
    with tempfile.TemporaryDirectory(prefix="against-") as folder:
        before = Path(folder)
        archive = subprocess.run(["git", "archive", args.commit], cwd=ROOT, capture_output=True, check=True).stdout
        subprocess.run(["tar", "-x", "-C", folder], input=archive, check=True)
        for tree in (before, ROOT):
            compileall.compile_dir(tree / "src", quiet=2)
        machine = f"{os.cpu_count()} cores, {platform.machine()}, Python {platform.python_version()}"
        for command in COMMANDS:
            runs = [(cpu_s(before, command), cpu_s(ROOT, command)) for _ in range(args.runs)]
            then, now = (round(min(side), 3) for side in zip(*runs, strict=True))
            found = {"bench": " ".join(command), "before_cpu_s": then, "now_cpu_s": now, "ratio": round(now / then, 2)}
            print(json.dumps(found | {"commit": args.commit, "machine": machine}), flush=True)
        for name in ("first", "throughput", "nodes") if args.embedded else ():
            for side, tree in (("before", before), ("now", ROOT)):
                print(side, flush=True)
                subprocess.run([sys.executable, "bench/embedded.py", name], cwd=tree, env=environment(tree), check=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
