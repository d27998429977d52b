"""Dashboards: every expression is PromQL, over metrics and labels that exist."""

from __future__ import annotations

import json
import re
from pathlib import Path

import make_metrics
import pytest
import yaml

from dragoman.cli.main import guarded
from dragoman.ops.dashboards import DASHBOARDS, NAMES, dashboard
from dragoman.ops.families import FAMILIES
from tests.ops.prometheus import promtool

PREFIXES = ("dra_", "dragoman_", "scheduler_", "nvidia_dra_")


@pytest.mark.slow
def test_metrics_and_labels_exist() -> None:
    known = {family.name: set(family.labels) for family in FAMILIES}
    known |= {row.name: set(row.labels) for row in make_metrics.rows()}
    for board in DASHBOARDS:
        for panel in board.panels:
            for expr, legend in panel.series:
                names = [name for name in re.findall(r"[a-z]\w+", expr) if name.startswith(PREFIXES)]
                labels: set[str] = set()
                for name in names:
                    plain = name.removesuffix("_bucket")
                    assert plain in known, f"{board.name}: {panel.title}: no metric {name}"
                    labels |= known[plain]
                if names:
                    shown = set(re.findall(r"{{(\w+)}}", legend)) | set(re.findall(r"(\w+)=~", expr))
                    assert shown <= labels, f"{board.name}: {panel.title}: {shown - labels}"
        for choice in board.choices:
            assert not choice.metric or choice.name in known[choice.metric]


@pytest.mark.parametrize("name", NAMES)
def test_expressions_are_promql(name: str, tmp_path: Path) -> None:
    rules = [
        {"record": f"panel:{panel['id']}:{target['refId']}", "expr": target["expr"].replace("$price", "2.5")}
        for panel in dashboard(name)["panels"]
        for target in panel["targets"]
    ]
    file = tmp_path / "panels.yaml"
    file.write_text(yaml.safe_dump({"groups": [{"name": name, "rules": rules}]}))
    promtool("check", "rules", str(file))


@pytest.mark.parametrize("name", NAMES)
def test_printed(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert guarded(["monitoring", "dashboard", name]) == 0
    body = json.loads(capsys.readouterr().out)
    assert body["uid"] == f"dragoman-{name}"
    assert len({panel["id"] for panel in body["panels"]}) == len(body["panels"])


def test_another_name_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert guarded(["monitoring", "dashboard", "nope"]) == 2
    assert "fleet" in capsys.readouterr().err
