"""What does Kubernetes' own DRA test suite say of our parts? Its test/integration/dra, with them in the place of its own.

    python -m tests.real.upstream.suite --part scheduler --configuration all [--configuration GA]...

A changed copy of the suite is made in the cache at run time from the module cache: none of its text is kept here. Each
change is made where a pattern occurs exactly once, so that another release fails loudly. Prints a table of the
sub-tests that did not pass, and how many did. `--part ""` runs the suite with Kubernetes' own parts.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from tests.real import build

MODULE = "dragoman.test/upstream"
SUITE = "test/integration/dra"
HERE = Path(__file__).resolve().parent
CONFIGURATIONS = ("default", "GA", "all", "GA-1.36", "GA-1.35", "v1beta1", "v1beta2")
IMPORT = (r"^import \($", f'import (\n\t"{MODULE}/seam"')
CHANGES = {
    "dra.go": (
        IMPORT,
        (
            r"^\tcfg := newSchedulerComponentConfig\(",
            '\tif stop := seam.Start(tCtx, "scheduler", tCtx.RESTConfig(), config); stop != nil {\n'
            "\t\tscheduler.cancel = stop\n\t\treturn\n\t}\n\\g<0>",
        ),
        (
            r"^\tclient := claimControllerCtx\.Client\(\)$",
            '\tif stop := seam.Start(tCtx, "controllers", tCtx.RESTConfig(), ""); stop != nil {\n'
            "\t\tclaimController.cancel = stop\n\t\treturn\n\t}\n\\g<0>",
        ),
    ),
}
MAIN = f"""package one

import (
	"os"
	"testing"

	"k8s.io/kubernetes/test/integration/framework"

	"{MODULE}/dra"
)

func TestMain(m *testing.M) {{ framework.EtcdMain(m.Run) }}

func TestDRA(t *testing.T) {{ dra.Run(t, os.Getenv("SEAM_CONFIGURATION")) }}
"""


def derive() -> Path:
    """The module with the changed suite; made again each time."""
    kubernetes = build.kubernetes()
    base = build.prepare(kubernetes)
    source = Path(build.go(base, "list", "-m", "-f", "{{.Dir}}", kubernetes.module).strip())
    folder = build.cache() / "modules" / "upstream"
    shutil.rmtree(folder, ignore_errors=True)
    (folder / "dra" / "one").mkdir(parents=True)
    (folder / "go.mod").write_text(re.sub(r"(?m)^module .*", f"module {MODULE}", (base / "go.mod").read_text()))
    shutil.copy(base / "go.sum", folder / "go.sum")
    shutil.copytree(HERE / "seam", folder / "seam")
    for file in sorted((source / SUITE).glob("*.go")):
        if file.name.endswith("_test.go"):
            continue
        text = file.read_text()
        for pattern, new in CHANGES.get(file.name, ()):
            text, times = re.subn(pattern, new, text, flags=re.MULTILINE)
            if times != 1:
                raise SystemExit(f"error: {pattern!r} occurs {times} times in {SUITE}/{file.name}: another release?")
        (folder / "dra" / file.name).write_text(text.replace(f"{kubernetes.module}/{SUITE}", f"{MODULE}/dra"))
    (folder / "dra" / "one" / "one_test.go").write_text(MAIN)
    return folder


def compile_suite(folder: Path) -> Path:
    """The suite as an executable."""
    target = build.cache() / "upstream" / "dra.test"
    target.parent.mkdir(exist_ok=True)
    build.go(folder, "test", "-c", "-trimpath", "-ldflags", "-s -w", "-o", str(target), "./dra/one")
    return target


def run(executable: Path, folder: Path, parts: str, configuration: str, *, timeout_s: int) -> dict[str, str]:
    """Sub-test to PASS, FAIL or SKIP; only those without sub-tests of their own."""
    etcd = build.found("etcd")
    if etcd is None:
        raise SystemExit("error: etcd is not built: `make real` does")
    logs = build.cache() / "upstream" / f"{parts or 'kubernetes'}-{configuration}"
    shutil.rmtree(logs, ignore_errors=True)
    logs.mkdir(parents=True)
    # Whoever kills this process leaves nothing behind: the suite ends with it, and the suite's etcd with the suite.
    ended_with_parent = ["setpriv", "--pdeathsig", "KILL"] if shutil.which("setpriv") else []
    wrapper = build.cache() / "upstream" / "bin" / "etcd"
    wrapper.parent.mkdir(exist_ok=True)
    wrapper.write_text(f'#!/bin/sh\nexec {" ".join([*ended_with_parent, str(etcd)])} "$@"\n')
    wrapper.chmod(0o755)
    settings = {
        **os.environ,
        "PATH": f"{wrapper.parent}:{os.environ['PATH']}",
        "SEAM_PARTS": parts,
        "SEAM_PYTHON": sys.executable,
        "SEAM_ROOT": str(HERE.parents[2]),
        "SEAM_LOGS": str(logs),
        "SEAM_CONFIGURATION": f"^{re.escape(configuration)}$",
        # How a test server that was built with -trimpath finds its certificates.
        "TEST_SRCDIR": build.go(folder, "env", "GOMODCACHE").strip(),
        "TEST_WORKSPACE": ".",
    }
    command = [*ended_with_parent, str(executable), "-test.v", "-test.parallel", "8", "-test.timeout", f"{timeout_s}s"]
    with (logs / "test.log").open("w") as log:
        subprocess.run(command, cwd=folder / "dra" / "one", env=settings, stdout=log, stderr=log, check=False)
    return results((logs / "test.log").read_text(errors="replace"))


def results(log: str) -> dict[str, str]:
    """Sub-test to outcome, from the log of `go test -v`. One that was running when the time ended is missing."""
    found = {name: outcome for outcome, name in re.findall(r"^ *--- (\w+): TestDRA/(\S+) ", log, flags=re.MULTILINE)}
    return {name: outcome for name, outcome in found.items() if not any(one.startswith(f"{name}/") for one in found)}


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.real.upstream.suite")
    parser.add_argument("--part", default="scheduler", help='scheduler, controllers, both with a comma, or "" for none')
    parser.add_argument(
        "--configuration", action="append", metavar="NAME", help=f"default: {', '.join(CONFIGURATIONS)}"
    )
    parser.add_argument("--timeout", type=int, default=900, metavar="SECONDS", help="for each configuration")
    args = parser.parse_args(argv)
    folder = derive()
    executable = compile_suite(folder)
    failed = False
    print("| configuration | passed | not passed |\n|---|---|---|", flush=True)
    for configuration in args.configuration or CONFIGURATIONS:
        outcome = run(executable, folder, args.part, configuration, timeout_s=args.timeout)
        passed = sum(one == "PASS" for one in outcome.values())
        others = [name.partition("/")[2] for name, one in sorted(outcome.items()) if one != "PASS"]
        print(f"| {configuration} | {passed}/{len(outcome)} | {', '.join(others) or '-'} |", flush=True)
        failed = failed or bool(others) or not outcome
    return int(failed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
