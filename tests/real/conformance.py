"""How much of Kubernetes' own conformance suite passes against `dragoman up`? e2e.test, and a table as the result.

    python -m tests.real.conformance [--sig api-machinery,...] [--focus TEXT] [--skip TEXT] [--limit S] [--out FILE]

Builds e2e.test once, starts a cluster with two simulated nodes, runs the tests (those marked Conformance, unless
--all), and prints a line a test: result, seconds, name, and for a failure its first sentence. Serial and disruptive
tests run alone, after the others. Ends with 1 if a test failed.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import re
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.real import build

START_S = 60
TEST_S = 900
"""A test that takes longer is ended: most wait five minutes for what will not come, one ten for a compaction."""


@dataclass(frozen=True)
class Result:
    """One test. failure: its first sentence; empty for one that passed."""

    name: str
    seconds: float
    failure: str = ""


def executable() -> Path:
    """e2e.test, built when it is missing."""
    part = build.kubernetes()
    target = build.cache() / f"e2e-v{part.version}" / "e2e.test"
    if not target.exists():
        print("building e2e.test (minutes) ...", flush=True)
        target.parent.mkdir(parents=True, exist_ok=True)
        module = build.prepare(part)
        fresh = target.with_suffix(".new")
        stamp = part.stamp.format(version=part.version, minor=part.version.split(".")[1])
        package = f"{part.module}/test/e2e"
        build.go(module, "test", "-c", "-trimpath", "-ldflags", f"-s -w {stamp}", "-o", str(fresh), package)
        fresh.replace(target)
    return target


def names(program: Path, folder: Path, wanted: argparse.Namespace) -> list[str]:
    """The tests of the suite that were asked for."""
    report = folder / "all.xml"
    command = [program, "--ginkgo.dry-run", "--ginkgo.silence-skips", f"--ginkgo.junit-report={report}"]
    subprocess.run([*map(str, command), "--provider=local"], check=True, capture_output=True, cwd=folder)
    found = [case.get("name", "") for case in ElementTree.parse(report).iter("testcase")]
    tests = [plain(name) for name in found if name.startswith("[It] ")]
    sigs = [f"[sig-{sig}]" for sig in wanted.sig.split(",") if sig]
    return sorted(
        name
        for name in tests
        if ("[Conformance]" in name or wanted.all)
        and (not sigs or any(name.startswith(sig) for sig in sigs))
        and re.search(wanted.focus, name)
        and not (wanted.skip and re.search(wanted.skip, name))
    )


def plain(name: str) -> str:
    """A test's text, as --ginkgo.focus finds it: reports add its labels."""
    return re.sub(r" \[[^][]*\]$", "", name.removeprefix("[It] "))


@contextlib.contextmanager
def cluster(folder: Path, flags: list[str]) -> Iterator[Path]:
    """`dragoman up` while the body runs; yields its kubeconfig."""
    kubeconfig = folder / "kubeconfig"
    nodes = ["--node", "node-a=example", "--node", "node-b=example"]
    command = [sys.executable, "-m", "dragoman.cli", "up", *nodes, "--kubeconfig", str(kubeconfig), *flags]
    with (folder / "up.log").open("w") as log, subprocess.Popen(command, stdout=log, stderr=log) as process:
        try:
            for _ in range(START_S * 10):
                if kubeconfig.exists():
                    break
                if process.poll() is not None:
                    raise SystemExit(f"error: dragoman up ended:\n{(folder / 'up.log').read_text()}")
                time.sleep(0.1)
            yield kubeconfig
        finally:
            process.terminate()
            process.wait(30)


def run(program: Path, kubeconfig: Path, tests: list[str], folder: Path, limit_s: float) -> list[Result]:
    """Some tests, one after the other."""
    results = []
    for test in tests:
        report = folder / "report.xml"
        report.unlink(missing_ok=True)
        began = time.monotonic()
        command = [
            str(program),
            f"--kubeconfig={kubeconfig}",
            "--provider=local",
            "--disable-log-dump",
            "--minStartupPods=0",
            f"--ginkgo.focus={re.escape(test)}$",
            f"--ginkgo.junit-report={report}",
            "--ginkgo.silence-skips",
        ]
        with contextlib.suppress(subprocess.TimeoutExpired):
            subprocess.run(command, cwd=folder, capture_output=True, timeout=limit_s, check=False)
        result = _result(test, report, time.monotonic() - began)
        print(line(result), flush=True)
        results.append(result)
    return results


def _result(test: str, report: Path, seconds: float) -> Result:
    if not report.exists():
        return Result(test, seconds, f"ended after {seconds:.0f} s")
    for case in ElementTree.parse(report).iter("testcase"):
        if plain(case.get("name", "")) != test or case.get("status") == "skipped":
            continue
        failed = case.find("failure")
        if failed is None:
            failed = case.find("error")
        text = " ".join((failed.get("message") or failed.text or "failed").split()) if failed is not None else ""
        return Result(test, seconds, text)
    return Result(test, seconds, "did not run")


def line(result: Result) -> str:
    """A row of the table."""
    verdict = "FAIL" if result.failure else "ok"
    shown = f"\n      {result.failure[:300]}" if result.failure else ""
    return f"{verdict:4} {result.seconds:4.0f} s  {result.name}{shown}"


def table(results: list[Result]) -> str:
    """Markdown: passed of run by special interest group, then what failed."""
    groups: dict[str, list[Result]] = {}
    for result in results:
        found = re.match(r"\[(sig-[\w-]+)\]", result.name)
        groups.setdefault(found[1] if found else "other", []).append(result)
    rows = ["| group | passed | of |", "|---|---|---|"]
    for group, members in sorted(groups.items()):
        rows.append(f"| {group} | {sum(not r.failure for r in members)} | {len(members)} |")
    rows.append(f"| all | {sum(not r.failure for r in results)} | {len(results)} |")
    failed = [result for result in results if result.failure]
    if failed:
        rows += ["", "| failed | why |", "|---|---|"]
        rows += [f"| {r.name} | {r.failure[:200].replace('|', '/')} |" for r in failed]
    return "\n".join(rows) + "\n"


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.real.conformance", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("--sig", default="", metavar="NAME,...", help="such as api-machinery; default: all")
    parser.add_argument("--focus", default="", metavar="REGEX")
    parser.add_argument("--skip", default="", metavar="REGEX")
    parser.add_argument("--all", action="store_true", help="tests that are not marked Conformance, too")
    parser.add_argument("--list", action="store_true", help="only print the names")
    parser.add_argument("--out", type=Path, metavar="FILE", help="write the table there, too")
    parser.add_argument("--kubeconfig", type=Path, help="of a cluster that runs already; default: start one")
    parser.add_argument("--limit", type=float, default=TEST_S, metavar="S", help=f"for one test; default: {TEST_S}")
    parser.add_argument("--up", default="", metavar="FLAGS", help="further flags of dragoman up")
    args = parser.parse_args(argv)
    program = executable()
    with tempfile.TemporaryDirectory(prefix="dragoman-e2e-") as made:
        folder = Path(made)
        tests = names(program, folder, args)
        if args.list:
            print("\n".join(tests))
            return 0
        alone = [name for name in tests if "[Serial]" in name or "[Disruptive]" in name]
        ordered = [*(name for name in tests if name not in alone), *alone]
        print(f"{len(ordered)} tests", flush=True)
        with contextlib.ExitStack() as stack:
            kubeconfig = args.kubeconfig or stack.enter_context(cluster(folder, args.up.split()))
            results = run(program, kubeconfig, ordered, folder, args.limit)
    shown = table(results)
    print(shown)
    if args.out:
        args.out.write_text(shown)
    return int(any(result.failure for result in results))


if __name__ == "__main__":
    os.environ.pop("KUBECONFIG", None)
    raise SystemExit(main(sys.argv[1:]))
