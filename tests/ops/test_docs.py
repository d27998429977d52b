"""Are metrics, runbooks and the exporter's manifest as the code has them?"""

from __future__ import annotations

import asyncio
from pathlib import Path

import make_metrics
import pytest
import yaml

from dragoman.cluster.cache import DECIDED_ON
from dragoman.daemon.allinone import Cluster, ClusterSettings
from dragoman.ops.rules import ALERTS
from tests.ops.prometheus import promtool

ROOT = Path(__file__).resolve().parents[2]
RUNBOOKS = ROOT / "docs" / "runbooks"


@pytest.mark.slow
def test_metrics_page_is_what_the_code_shows() -> None:
    assert make_metrics.TARGET.read_text() == make_metrics.text(), "`make docs` writes metrics.md again"


@pytest.mark.slow
def test_the_whole_page_of_up_passes_promtool() -> None:
    async def page() -> str:
        async with Cluster(ClusterSettings(nodes=(("gpu-0", "dgx-h100"), ("example", "example")))) as cluster:
            return cluster.metrics.text().decode()

    # The one name that is against the conventions is one that platforms promise.
    kept = [line for line in asyncio.run(page()).splitlines() if "dra_resource_claims_total" not in line]
    assert len(kept) > 100
    promtool("check", "metrics", stdin="\n".join(kept) + "\n")


def test_every_alert_has_a_runbook_that_names_it() -> None:
    for alert in ALERTS:
        page = (RUNBOOKS / f"{alert.runbook}.md").read_text()
        known = "GPUOperator" if alert.name.startswith("GPUOperator") else alert.name
        assert f"`{known}" in page, f"{alert.runbook}.md does not name {alert.name}"


def test_manifest_grants_what_is_read_and_no_more() -> None:
    objects = list(yaml.safe_load_all((ROOT / "deploy/exporter.yaml").read_text()))
    (role,) = (body for body in objects if body["kind"] == "ClusterRole")
    assert {verb for rule in role["rules"] for verb in rule["verbs"]} == {"list", "watch"}
    granted = {resource for rule in role["rules"] for resource in rule["resources"]}
    plurals = {f"{kind.lower()}{'es' if kind.endswith('Class') else 's'}" for kind in DECIDED_ON}
    assert granted == plurals | {"events"}
