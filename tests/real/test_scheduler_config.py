"""A configuration that kube-scheduler refuses is refused here with the same findings."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import Any

from dragoman.api.gates import DEFAULTS
from dragoman.daemon.scheduler_config import read_config
from dragoman.errors import Invalid
from tests.real.cluster import executable

BAD: dict[str, Any] = {
    "apiVersion": "kubescheduler.config.k8s.io/v1",
    "kind": "KubeSchedulerConfiguration",
    "parallelism": -3,
    "percentageOfNodesToScore": 101,
    "podInitialBackoffSeconds": 20,
    "leaderElection": {"leaderElect": True, "resourceLock": "endpoints"},
    "clientConnection": {"burst": -1},
    "profiles": [
        {
            "schedulerName": "one",
            "percentageOfNodesToScore": -1,
            "plugins": {"filter": {"enabled": [{"name": "EBSLimits"}]}},
            "pluginConfig": [
                {"name": "DynamicResources", "args": {"filterTimeout": "-2s", "bindingTimeout": "20ms"}},
                {"name": "NodeResourcesBalancedAllocation", "args": {"resources": [{"name": "cpu", "weight": 3}]}},
                {"name": "PodTopologySpread", "args": {"defaultingType": "Some"}},
            ],
        },
        {"schedulerName": "one"},
        {},
    ],
}


def findings(text: str) -> set[str]:
    """Paths with the kind of finding."""
    return set(re.findall(r"(\w[\w.\[\]]+): (?:Invalid|Required|Duplicate|Unsupported) value", text))


def test_findings_are_those_of_kube_scheduler(tmp_path: Path) -> None:
    file = tmp_path / "config.yaml"
    file.write_text(json.dumps(BAD))
    command = [executable("kube-scheduler"), "--config", str(file)]
    theirs = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False).stderr
    try:
        read_config(BAD, "file", DEFAULTS, "off")
    except Invalid as error:
        ours = str(error)
    else:
        raise AssertionError("accepted")
    wanted = findings(theirs)
    assert len(wanted) == 13, theirs
    assert findings(ours) == wanted
