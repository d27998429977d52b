"""Does the bench tell sound drivers from broken ones? Real processes, a real API server, one defect at a time."""

from __future__ import annotations

import asyncio
import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from dragoman.daemon.driver_bench import examine
from dragoman.node.bench import report
from dragoman.node.bench.bed import BenchSettings
from dragoman.node.bench.catalogue import CASES, named
from dragoman.node.bench.report import CaseResult, Report
from tests.node.bench.broken_driver import DEFECTS

BROKEN = Path(__file__).parent / "broken_driver.py"
FLAGS = (
    *("--kubeconfig", "{kubeconfig}", "--node", "{node}", "--root", "{root}", "--cdi", "{cdi}"),
    *("--boot-id", "{boot_id}", "--pod-uid={pod_uid}"),
)
OURS = (
    *("--log-level", "warning", "--kubeconfig", "{kubeconfig}", "--node-name", "{node}", "--root-dir", "{root}"),
    *("--cdi-dir", "{cdi}", "--boot-id", "{boot_id}", "--pod-uid={pod_uid}"),
)
EXAMPLE = (sys.executable, "-m", "dragoman.cli", "driver", "example", "--count", "140", *OURS)


@pytest.fixture
def folder() -> Iterator[Path]:
    made = Path(tempfile.mkdtemp(prefix="db-", dir="/tmp"))  # short: sockets lie below it
    try:
        yield made
    finally:
        shutil.rmtree(made)


def examined(folder: Path, command: tuple[str, ...], *names: str, patience_s: float = 30.0, points: int = 3) -> Report:
    settings = BenchSettings(folder, folder / "kubeconfig", command, patience_s=patience_s, crash_points=points)
    return asyncio.run(examine(settings, named(names)))


def verdicts(found: Report) -> dict[str, str]:
    return {outcome.case: outcome.verdict for outcome in found.outcomes}


ALL = {case.name for case in CASES}
SOME = {"registration", "kubelet-restart", "health", "prepare-twice", "unknown-device", "batch", "held-device", "kill"}
SOME |= {"crash-preparing", "reboot", "rolling-update"}
# words after `dragoman driver`, names of devices to use, cases
DRIVERS: dict[str, tuple[list[str], str, set[str]]] = {
    "example": (["example", "--count", "140"], "*", ALL),
    "partitions made as claims come": (
        ["nvidia", "--simulate", "dgx-h100-dynamic", "--feature-gates", "DynamicMIG=true"],
        "*-mig-*",
        ALL,
    ),
    "whole GPUs with health": (
        ["nvidia", "--simulate", "dgx-h100", "--feature-gates", "NVMLDeviceHealthCheck=true"],
        "gpu-*",
        SOME,
    ),
    "network adapters": (["nic", "--simulate", "dgx-h100"], "*", SOME),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", DRIVERS)
def test_our_drivers_pass_all(name: str, folder: Path) -> None:
    words, devices, cases = DRIVERS[name]
    command = (sys.executable, "-m", "dragoman.cli", "driver", *words, *OURS)
    settings = BenchSettings(
        folder, folder / "kubeconfig", command, patience_s=30.0, crash_points=3, devices=(devices,)
    )
    found = asyncio.run(examine(settings, named(sorted(cases))))
    assert verdicts(found) == dict.fromkeys(cases, "pass"), report.text(found)


# defect: (cases that must fail, cases of the same run that must not)
BLAME: dict[str, tuple[set[str], set[str]]] = {
    "none": (set(), {"registration", "health", "prepare-twice", "held-device", "many-devices", "sigterm", "reboot"}),
    "not_idempotent": ({"prepare-twice", "kubelet-restart", "versions"}, {"prepare", "unprepare-twice"}),
    "gives_twice": ({"held-device"}, {"prepare", "prepare-twice", "batch"}),
    "unknown_is_an_error": ({"unprepare-unknown", "unprepare-twice"}, {"prepare", "held-device"}),
    "unprepare_reads_the_api": ({"unprepare-claim-gone"}, {"prepare", "unprepare-twice"}),
    "forgets_an_entry": ({"batch", "bad-among-good"}, {"prepare"}),
    "one_fails_all": ({"bad-among-good"}, {"prepare", "batch", "prepare-missing"}),
    "believes_the_name": ({"prepare-replaced"}, {"prepare", "prepare-missing"}),
    "believes_the_call": ({"unknown-device"}, {"prepare", "other-drivers-part"}),
    "keeps_nothing": ({"kill"}, {"prepare-twice", "held-device"}),
    "writes_in_place": ({"crash-preparing"}, {"kill"}),
    "starts_empty": ({"corrupt-checkpoint"}, {"kill"}),
    "leaves_cdi": ({"prepare", "unprepare-twice"}, {"prepare-missing"}),
    "wrong_cdi_name": ({"prepare"}, {"unprepare-unknown"}),
    "blind_to_reboots": ({"reboot"}, {"kill"}),
    "publishes_once": ({"slice-deleted", "slice-changed"}, {"publish", "prepare"}),
    "wrong_count": ({"publish", "many-devices"}, {"prepare-missing"}),
    "leaves_sockets": ({"sigterm"}, {"kill"}),
    "health_only_once": ({"health"}, {"registration", "prepare"}),
    "health_of_ghosts": ({"health"}, {"registration"}),
    "shares_its_socket": ({"rolling-update"}, {"sigterm"}),
}


@pytest.mark.slow
@pytest.mark.parametrize("defect", BLAME)
def test_a_defect_fails_the_right_cases(defect: str, folder: Path) -> None:
    failing, passing = BLAME[defect]
    # A defect shows as something that never comes true, too: then the patience is waited for.
    patience_s = 15.0 if defect in ("publishes_once", "wrong_count") else 60.0
    command = (sys.executable, str(BROKEN), defect, *FLAGS)
    found = examined(folder, command, *sorted(failing | passing), patience_s=patience_s, points=8)
    expected = dict.fromkeys(failing, "fail") | dict.fromkeys(passing, "pass")
    assert verdicts(found) == expected, report.text(found)
    assert found.is_clean == (not failing)


@pytest.mark.slow
def test_a_driver_that_must_be_killed(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dragoman.node.bench.bed.TERM_S", 1.0)
    found = examined(folder, (sys.executable, str(BROKEN), "deaf_to_sigterm", *FLAGS), "sigterm")
    assert verdicts(found) == {"sigterm": "fail"}
    assert "did not end within 1 s of SIGTERM" in found.outcomes[0].reason


def test_every_defect_is_blamed_on_something() -> None:
    assert DEFECTS.keys() - BLAME.keys() == {"deaf_to_sigterm"}


@pytest.mark.slow
def test_a_driver_that_ends_at_once_fails_with_its_words(folder: Path) -> None:
    found = examined(folder, (sys.executable, "-c", "raise SystemExit('no GPU here')"), "registration", "kill")
    assert verdicts(found) == {"registration": "fail", "kill": "skip"}
    assert found.outcomes[1].reason == "the driver never registered: see registration"
    assert "exit status 1; it printed: no GPU here" in found.outcomes[0].reason


@pytest.mark.slow
def test_a_driver_without_the_means_is_skipped_with_the_reason(folder: Path) -> None:
    plain = tuple(word for word in EXAMPLE if word not in ("--boot-id", "{boot_id}", "--pod-uid={pod_uid}"))
    command = tuple("1" if word == "140" else word for word in plain)
    found = examined(folder, command, "reboot", "rolling-update", "batch", "many-devices")
    assert set(verdicts(found).values()) == {"skip"}
    reasons = {outcome.case: outcome.reason for outcome in found.outcomes}
    assert reasons["rolling-update"] == "the command does not take {pod_uid}"
    assert reasons["batch"] == "needs 2 devices that can be held at a time; the driver publishes 1"
    assert not found.is_clean, "nothing was shown"


# ---- the command


def dragoman(*words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "dragoman.cli", "driver", "bench", *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=120)


@pytest.mark.slow
def test_the_command_reports_and_tells_by_its_exit_status(folder: Path) -> None:
    cases = ["--case", "held-device", "--case", "prepare"]
    sound = dragoman("--socket-dir", str(folder / "a"), *cases, "--", *EXAMPLE)
    assert sound.returncode == 0, sound.stderr
    assert sound.stdout.rstrip().endswith("gpu.example.com: 2 passed, 0 failed, 0 skipped")
    broken = dragoman(
        "--socket-dir",
        str(folder / "b"),
        *cases,
        "-o",
        "json",
        "--",
        sys.executable,
        str(BROKEN),
        "gives_twice",
        *FLAGS,
    )
    assert broken.returncode == 1
    reported = json.loads(broken.stdout)
    assert (reported["driver"], reported["passed"], reported["failed"]) == ("broken.example.com", 1, 1)
    (fault,) = [case for case in reported["cases"] if case["verdict"] == "fail"]
    assert fault["case"] == "held-device"
    assert "is prepared for bench-1-claim-" in fault["reason"]
    assert fault["demand"]


BAD_USE: dict[str, tuple[list[str], str]] = {
    "an unknown case": (["--case", "nonsense", "--", "true"], "no such case; there are: registration, "),
    "a command that is not there": (["--", "/no/such/driver"], "cannot be run: No such file or directory"),
    "too few crash points": (["--crash-points", "1", "--", "true"], "must be at least 2, got 1"),
    "a patience that is none": (["--patience", "long", "--", "true"], "must be a duration"),
}


@pytest.mark.slow
@pytest.mark.parametrize(("words", "said"), BAD_USE.values(), ids=BAD_USE)
def test_bad_use_is_one_line(words: list[str], said: str) -> None:
    done = dragoman(*words)
    assert done.returncode == 2
    assert said in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.slow
def test_a_driver_that_runs_already(folder: Path) -> None:
    async def both() -> Report:
        settings = BenchSettings(folder, folder / "kubeconfig", node="n1", patience_s=30.0)
        examining = asyncio.create_task(examine(settings, named(["registration", "prepare", "kill"])))
        while not (folder / "kubeconfig").exists():
            assert not examining.done()
            await asyncio.sleep(0.01)
        values = {"kubeconfig": folder / "kubeconfig", "node": "n1", "root": folder, "cdi": folder / "cdi"}
        words = [w.format(**values, boot_id="b", pod_uid="") for w in EXAMPLE]
        driver = await asyncio.create_subprocess_exec(*words)
        try:
            return await examining
        finally:
            driver.kill()
            await driver.wait()

    found = asyncio.run(both())
    assert verdicts(found) == {"registration": "pass", "prepare": "pass", "kill": "skip"}, report.text(found)


# ---- the report


def test_text_names_demand_deed_and_reason() -> None:
    good = CaseResult("a", "it works", "works", "KEP", "pass", ("did it",))
    bad = CaseResult("b", "it holds", "holds", "KEP", "fail", (), "did not")
    none = CaseResult("c", "it flies", "flies", "KEP", "skip", (), "no wings")
    found = Report("d.example.com", (good, bad, none))
    assert report.text(found) == (
        "PASS  a: it works\n      demanded  works [KEP]\n      did       did it\n\n"
        "FAIL  b: it holds\n      demanded  holds [KEP]\n      failed    did not\n\n"
        "SKIP  c: it flies\n      demanded  flies [KEP]\n      skipped   no wings\n\n"
        "d.example.com: 1 passed, 1 failed, 1 skipped; failed: b"
    )
    assert not found.is_clean


def test_the_reference_lists_every_case_with_its_demand() -> None:
    page = (Path(__file__).parents[3] / "docs" / "reference" / "driver-bench.md").read_text()
    rows = [line for line in page.splitlines() if line.startswith("| `") and line.count("|") == 4]
    wanted = [f"| `{case.name}`: {case.title} | {case.demand} | {case.source} |" for case in CASES]
    assert [row for row in rows if "`: " in row] == wanted
