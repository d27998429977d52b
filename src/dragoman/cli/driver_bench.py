"""`dragoman driver bench`: does a driver, in whatever language, do what the kubelet relies on?"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from dragoman.cli import output
from dragoman.errors import Invalid
from dragoman.runtime.config import duration_s

if TYPE_CHECKING:
    from dragoman.node.bench.report import CaseResult

DESCRIPTION = """\
Plays kubelet and API server for a driver and runs life-cycle and fault cases against it.

COMMAND starts the driver in the foreground. In its words these are filled in: {kubeconfig} {node} {root} (the
kubelet's folder) {cdi} {boot_id} {boot_id_file} {pod_uid}. Without COMMAND, start the driver yourself once this one
waits; cases that kill it are skipped. Exit status: 0 nothing failed, 1 something did, 2 it could not be tried.
"""


def arguments(parser: argparse.ArgumentParser) -> None:
    """Flags of the bench."""
    parser.description = DESCRIPTION
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument(
        "--socket-dir",
        type=Path,
        metavar="DIR",
        help="folder to use as the kubelet's; keep the path short, since it holds sockets; default: a temporary one",
    )
    parser.add_argument(
        "--kubeconfig", type=Path, metavar="FILE", help="kubeconfig to write for the driver; default: in DIR"
    )
    parser.add_argument("--node-name", default="bench", metavar="NAME", help="name of the node, or prefix of names")
    parser.add_argument(
        "--case", action="append", default=[], metavar="NAME", help="run only this case; may be repeated"
    )
    parser.add_argument(
        "--device",
        action="append",
        default=[],
        metavar="PATTERN",
        help="allocate only devices with matching names, such as gpu-*; may be repeated; default: all",
    )
    parser.add_argument("--patience", default="60s", metavar="TIME", help="time limit of each wait; default: 60s")
    parser.add_argument(
        "--crash-points",
        type=int,
        default=6,
        metavar="N",
        help="number of points in a call at which the driver is killed; default: 6",
    )
    parser.add_argument("-o", "--output", choices=["text", "json"], default="text")
    parser.add_argument("--list", action="store_true", help="list the cases and what they require")
    parser.add_argument("command", nargs="*", metavar="COMMAND", help="command line of the driver, after --")


def run(args: argparse.Namespace) -> int:
    """Examine a driver."""
    import asyncio  # other drivers' commands, and --help, start faster without all these
    import tempfile

    from dragoman.daemon.driver_bench import examine
    from dragoman.node.bench import report
    from dragoman.node.bench.bed import BenchSettings
    from dragoman.node.bench.catalogue import CASES, named
    from dragoman.runtime import log

    cases = named(args.case)
    if args.list:
        for case in CASES:
            output.write(f"{case.name}: {case.title}\n    {case.demand} [{case.source}]")
        return 0
    if args.crash_points < 2:
        raise Invalid("--crash-points", f"must be at least 2, got {args.crash_points}")
    log.setup(level="ERROR", format="human")
    patience_s = duration_s(args.patience, "--patience")
    with tempfile.TemporaryDirectory(prefix="bench-") as temporary:
        folder = (args.socket_dir or Path(temporary)).absolute()
        settings = BenchSettings(
            folder=folder,
            kubeconfig=(args.kubeconfig or folder / "kubeconfig").absolute(),
            command=tuple(args.command),
            node=args.node_name,
            patience_s=patience_s,
            crash_points=args.crash_points,
            devices=tuple(args.device) or ("*",),
        )
        if not settings.command:
            output.say(f"start the driver: KUBECONFIG={settings.kubeconfig} NODE_NAME={settings.node}")
            output.say(f"kubelet's folder: {folder}, CDI files in {folder / 'cdi'}")
        found = asyncio.run(examine(settings, cases, _report))
    if args.output == "json":
        output.write_json(output.versioned("DriverBenchReport", report.as_json(found)))
    else:
        output.write(report.text(found))
    return 0 if found.is_clean else 1


def _report(outcome: CaseResult) -> None:
    from dragoman.node.bench import report

    output.say(f"{report.WORDS[outcome.verdict]}  {outcome.case} ({outcome.seconds:.1f} s)")
