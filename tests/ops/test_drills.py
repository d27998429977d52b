"""Drills: each that comes with Dragoman runs as it should, one that should not is told from it, and files are checked."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from dragoman.cli import drill as command
from dragoman.cli.main import guarded
from dragoman.errors import Invalid
from dragoman.ops.drill import Drill, parse
from dragoman.ops.recording import STEP_S, Recording
from dragoman.ops.rules import ALERTS, rule_file
from tests.ops.prometheus import executable, promtool

ROOT = Path(__file__).resolve().parents[2]
RUNBOOKS = ROOT / "docs" / "runbooks"
DRILLS: dict[str, Drill] = {name: parse(text, name) for name, text in command.packaged().items()}


def play(monkeypatch: pytest.MonkeyPatch, *words: str) -> int:
    """`dragoman drill` with promtool and the kubectl of this environment."""
    import os

    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    return guarded(["drill", *words, "--promtool", str(executable("promtool"))])


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(DRILLS))
def test_drill(name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    status = play(monkeypatch, name)
    said = capsys.readouterr()
    assert status == 0, said.out + said.err
    assert "the state is as before" in said.out
    assert "ok   alerts" in said.out


def own(tmp_path: Path, **more: Any) -> str:
    file = tmp_path / "mine.yaml"
    stop = {"name": "stopped", "data": {"fault": "driver-stopped", "node": "gpu-0"}}
    body = {
        "apiVersion": "dragoman.dev/v1alpha1",
        "kind": "Drill",
        "metadata": {"name": "mine"},
        "summary": "the driver is gone",
        "up": ["--node", "gpu-0=dgx-h100"],
        "alsoFires": ["DRAClassNearlyFull"],
        "provoke": [{"fault": stop}, {"advance": "7m"}],
        "recover": [{"mend": "stopped"}],
    }
    file.write_text(yaml.safe_dump(body | more))
    return str(file)


@pytest.mark.slow
def test_an_alert_that_nobody_expected_fails_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert play(monkeypatch, "-f", own(tmp_path)) == 1
    assert "FAILED: alerts" in capsys.readouterr().out


@pytest.mark.slow
def test_a_state_that_is_not_as_before_fails_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    left = {"run": "kubectl cordon gpu-0"}
    assert play(monkeypatch, "-f", own(tmp_path, provoke=[left], recover=[])) == 1
    assert "the state is not as before" in capsys.readouterr().out


@pytest.mark.slow
def test_what_explain_does_not_say_fails_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = {"expect": {"explain": "node/gpu-0", "says": ["purple"], "within": "1s"}}
    assert play(monkeypatch, "-f", own(tmp_path, provoke=[asked], recover=[])) == 1
    assert "explain node/gpu-0 says" in capsys.readouterr().out


BROKEN = {
    "provoke[0]": [{"advance": "1m", "mend": "x"}],
    "provoke[0].run": [{"run": "rm -rf /"}],
    "provoke[0].expect.alert": [{"expect": {"alert": "NoSuchAlert", "state": "firing"}}],
    "provoke[0].expect.state": [{"expect": {"alert": "GPUHot", "state": "present"}}],
    "provoke[0].expect.says": [{"expect": {"explain": "pod/x"}}],
    "provoke[0]: ": [{"jump": "high"}],
}


@pytest.mark.parametrize("where", sorted(BROKEN))
def test_bad_files_are_refused_with_the_place(where: str, tmp_path: Path) -> None:
    file = own(tmp_path, provoke=BROKEN[where])
    with pytest.raises(Invalid) as refused:
        parse(Path(file).read_text(), "mine.yaml")
    assert f"mine.yaml: {where.rstrip(': ')}" in str(refused.value)


@pytest.mark.parametrize("text", ["a: [", "[]", "kind: Pod"])
def test_what_is_no_drill_is_refused(text: str) -> None:
    with pytest.raises(Invalid, match=r"mine\.yaml"):
        parse(text, "mine.yaml")


def test_every_drill_is_in_the_guide_and_in_its_runbook() -> None:
    guide = (ROOT / "docs/guides/drills.md").read_text()
    for name, drill in DRILLS.items():
        assert name == drill.name
        assert f"`{name}`" in guide
        assert f"    dragoman drill {name}\n" in (RUNBOOKS / f"{drill.runbook}.md").read_text()


def _shown(name: str) -> list[str]:
    page = (RUNBOOKS / f"{name}.md").read_text().partition("## Recover")[2]
    return re.findall(r"^    (kubectl .+)$", page, flags=re.MULTILINE)


@pytest.mark.parametrize("name", sorted({drill.runbook for drill in DRILLS.values()}))
def test_what_a_runbook_says_is_what_its_drills_do(name: str) -> None:
    done = [step.run for drill in DRILLS.values() if drill.runbook == name for step in drill.steps if step.run]
    for line in _shown(name):
        plain = re.sub(r" -n NAMESPACE", "", line)
        pattern = re.sub(r"[A-Z]{3,}", r"\\S+", plain)
        assert any(re.fullmatch(pattern, run) for run in done), f"no drill of {name} runs: {line}"


# ---- recordings


def test_a_recording_runs_rules_with_their_real_durations(tmp_path: Path) -> None:
    recording = Recording()
    alert = "GPUNodeNotReady"
    for tick in range(40):
        lines = ["# TYPE dragoman_node_problem gauge", "dragoman_exporter_synced 1.0", "unrelated 3"]
        if 4 <= tick < 20:
            lines.append('dragoman_node_problem{node="a",problem="not_ready"} 1.0')
        recording.add("\n".join(lines))
        if tick in (4, 4 + 120 // STEP_S - 1, 20):
            recording.expect(alert, firing=False)
        if tick in (4 + 120 // STEP_S, 19):
            recording.expect(alert, firing=True)
    body = recording.unit_test("rules.yaml", frozenset({alert}), frozenset())
    assert len(body["tests"][0]["input_series"]) == 2
    (tmp_path / "rules.yaml").write_text(yaml.safe_dump(rule_file()))
    (tmp_path / "test.yaml").write_text(yaml.safe_dump(body))
    promtool("test", "rules", str(tmp_path / "test.yaml"))
    wrong = recording.unit_test("rules.yaml", frozenset(), frozenset())
    (tmp_path / "test.yaml").write_text(yaml.safe_dump(wrong))
    with pytest.raises(AssertionError):
        promtool("test", "rules", str(tmp_path / "test.yaml"))


def test_alerts_that_drills_fire() -> None:
    """Those on metrics of ours and of the drivers, but such as need hardware counters or hours."""
    fired = frozenset().union(*(drill.expected for drill in DRILLS.values()))
    assert fired <= {alert.name for alert in ALERTS}
    assert {"DRAClaimPending", "GPUNodeNotReady", "GPUNodeWithoutSlices", "DRADeviceTainted"} <= fired
