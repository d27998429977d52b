"""How much of Kubernetes' own conformance suite passes against `dragoman up`? e2e.test, and a table as the result.

    python -m tests.real.conformance [--sig api-machinery,...] [--focus TEXT] [--skip TEXT] [--limit S] [--out FILE]
    python -m tests.real.conformance --results FILE --report docs/reference/conformance.md

Builds e2e.test and agnhost once, starts a cluster with two simulated nodes in which containers of the image agnhost
run that program as a process, runs the tests (those marked Conformance, unless --all), and prints a line a test:
result, seconds, name, and for a failure its first sentence. Serial and disruptive tests run alone, after the others; a
test that failed beside others runs once more alone. --results keeps every result in a file, so that the suite can be
run group by group; --report makes the page of all tests from it. Ends with 1 if a test failed.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path

from tests.real import build
from tests.real.conformance_reasons import not_run

START_S = 60
KUBECTL = Path(sys.executable).parent / "kubectl"
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


def agnhost() -> Path:
    """The program of the image that most tests use, built when it is missing."""
    part = build.kubernetes()
    target = build.cache() / f"e2e-v{part.version}" / "agnhost"
    if not target.exists():
        print("building agnhost ...", flush=True)
        target.parent.mkdir(parents=True, exist_ok=True)
        module = build.prepare(part)
        fresh = target.with_suffix(".new")
        build.go(module, "build", "-trimpath", "-o", str(fresh), f"{part.module}/test/images/agnhost")
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


class Kept:
    """Results in a file, the newest of each test; in memory without one."""

    def __init__(self, file: Path | None) -> None:
        self.file = file
        self.results: dict[str, Result] = {}
        if file is not None and file.exists():
            self.results = {entry["name"]: Result(**entry) for entry in json.loads(file.read_text())}

    def add(self, result: Result) -> None:
        """Keep one."""
        self.results[result.name] = result
        if self.file is not None:
            fresh = self.file.with_suffix(".new")
            fresh.write_text(json.dumps([asdict(r) for r in sorted(self.results.values(), key=lambda r: r.name)]))
            fresh.replace(self.file)


class Run:
    """Tests against one cluster. keep(result) is called after each."""

    def __init__(self, program: Path, kubeconfig: Path, folder: Path, limit_s: float, kept: Kept) -> None:
        self.program, self.kubeconfig, self.folder, self.limit_s, self.kept = program, kubeconfig, folder, limit_s, kept

    def together(self, tests: list[str], workers: int) -> list[Result]:
        """Some at once; what fails, once more alone."""
        with ThreadPoolExecutor(max(1, workers)) as pool:
            results = list(pool.map(self.one, tests))
        if workers < 2:
            return results
        return [self.one(result.name) if result.failure else result for result in results]

    def one(self, test: str) -> Result:
        """One test."""
        with tempfile.TemporaryDirectory(dir=self.folder) as own:
            report = Path(own) / "report.xml"
            began = time.monotonic()
            command = [
                str(self.program),
                f"--kubeconfig={self.kubeconfig}",
                "--provider=local",
                "--disable-log-dump",
                "--minStartupPods=0",
                f"--kubectl-path={KUBECTL if KUBECTL.exists() else 'kubectl'}",
                f"--ginkgo.focus={re.escape(test)}$",
                f"--ginkgo.junit-report={report}",
                "--ginkgo.silence-skips",
            ]
            with contextlib.suppress(subprocess.TimeoutExpired):
                subprocess.run(command, cwd=own, capture_output=True, timeout=self.limit_s, check=False)
            result = _result(test, report, time.monotonic() - began)
        print(line(result), flush=True)
        self.kept.add(result)
        return result


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


def page(every: list[str], results: dict[str, Result]) -> str:
    """The page of the whole suite: counts by group, then what failed and what was not run, each with its reason."""
    groups: dict[str, list[str]] = {}
    for name in every:
        groups.setdefault(name.partition("]")[0].lstrip("["), []).append(name)
    failed = [results[name] for name in every if name in results and results[name].failure]
    rest = [name for name in every if name not in results]
    rows = ["| group | passed | failed | not run | of |", "|---|---|---|---|---|"]
    counted = [*sorted(groups.items()), ("all", every)]
    for group, members in counted:
        ran = [results[name] for name in members if name in results]
        passed = sum(not result.failure for result in ran)
        rows.append(f"| {group} | {passed} | {len(ran) - passed} | {len(members) - len(ran)} | {len(members)} |")
    rows += ["", "## Failed", "", "| test | how it ended |", "|---|---|"]
    rows += [f"| {_cell(r.name)} | {_cell(not_run(r.name) or r.failure[:160])} |" for r in failed]
    rows += ["", "## Not run", "", "| test | why |", "|---|---|"]
    rows += [f"| {_cell(name)} | {_cell(not_run(name) or 'not tried yet')} |" for name in rest]
    rows += ["", "## Passed", ""]
    rows += [f"- {_plain(name)}" for name in every if name in results and not results[name].failure]
    return PAGE.format(version=build.kubernetes().version) + "\n".join(rows) + "\n"


PAGE = """# How much of Kubernetes' conformance suite passes?

Every test of `e2e.test` v{version} that is marked Conformance, run against `dragoman up` with two simulated nodes by

    python -m tests.real.conformance --results FILE --report docs/reference/conformance.md

which makes this page. Containers of the image agnhost run that program as a process of the machine (`--runtime process`);
all other containers are simulated. The figures are of several runs on a busy machine with two cores (sig-apps partly with
`--simulated`): a test counts as passed that passed in one of them. "ended after" is a limit of time of 120 to 330 s.

"""


def _plain(name: str) -> str:
    return name.removesuffix(" [Conformance]").replace("[", "\\[")


def _cell(text: str) -> str:
    return _plain(text).replace("|", "/").replace("<", "&lt;")


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
    parser.add_argument("--workers", type=int, default=1, metavar="N", help="tests at once; default: 1")
    parser.add_argument("--results", type=Path, metavar="FILE", help="keep results there, over several runs")
    parser.add_argument("--again", choices=("all", "failed", "new"), default="all", help="which of those in --results")
    parser.add_argument("--report", type=Path, metavar="FILE", help="write the page of all results there; run nothing")
    parser.add_argument("--possible", action="store_true", help="leave out tests that are known to be impossible")
    parser.add_argument("--simulated", action="store_true", help="simulate agnhost, too, instead of running it")
    args = parser.parse_args(argv)
    program = executable()
    kept = Kept(args.results)
    with tempfile.TemporaryDirectory(prefix="dragoman-e2e-") as made:
        folder = Path(made)
        tests = names(program, folder, args)
        if args.report:
            args.report.write_text(page(tests, kept.results))
            return 0
        if args.possible:
            tests = [name for name in tests if not not_run(name)]
        if args.again == "new":
            tests = [name for name in tests if name not in kept.results]
        elif args.again == "failed":
            tests = [name for name in tests if name in kept.results and kept.results[name].failure]
        if args.list:
            print("\n".join(tests))
            return 0
        flags = args.up.split()
        if not args.simulated:
            flags += ["--runtime", "process", "--image-map", f"*/agnhost={agnhost()}"]
        alone = [name for name in tests if "[Serial]" in name or "[Disruptive]" in name]
        together = [name for name in tests if name not in alone]
        print(f"{len(tests)} tests", flush=True)
        with contextlib.ExitStack() as stack:
            kubeconfig = args.kubeconfig or stack.enter_context(cluster(folder, flags))
            running = Run(program, kubeconfig, folder, args.limit, kept)
            results = [*running.together(together, args.workers), *running.together(alone, 1)]
    shown = table(results)
    print(shown)
    if args.out:
        args.out.write_text(shown)
    return int(any(result.failure for result in results))


if __name__ == "__main__":
    os.environ.pop("KUBECONFIG", None)
    raise SystemExit(main(sys.argv[1:]))
