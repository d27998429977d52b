"""The example of a repository's CI runs as it stands: every step of its workflow but the installation."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests.e2e.conftest import kubectls

pytestmark = pytest.mark.skipif(not kubectls(), reason="needs kubectl")
EXAMPLE = Path(__file__).parents[2] / "docs" / "examples" / "ci"


def test_the_workflow_runs(tmp_path: Path) -> None:
    shutil.copytree(EXAMPLE, tmp_path / "ci")
    job = yaml.safe_load((EXAMPLE / ".github" / "workflows" / "manifests.yml").read_text())["jobs"]["test"]
    environment = {
        **os.environ,
        **job["env"],
        "HOME": str(tmp_path),
        "DRAGOMAN_HOME": str(tmp_path / "home"),
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        # An installation has the plugin by its entry point; a checkout may be older than that.
        "PYTEST_ADDOPTS": "-p dragoman.testing.fixtures" if not _is_registered() else "",
    }
    steps = {step["name"]: step["run"] for step in job["steps"] if "run" in step}
    assert list(steps) == ["install", "start", "apply", "test", "stop"]
    try:
        for name in ("start", "apply", "test"):
            done = subprocess.run(
                ["bash", "-e", "-c", steps[name]],
                cwd=tmp_path / "ci",
                env=environment,
                capture_output=True,
                text=True,
                timeout=240,
                check=False,
            )
            assert done.returncode == 0, f"{name}: {done.stdout}{done.stderr}"
    finally:
        subprocess.run(["bash", "-c", steps["stop"]], cwd=tmp_path / "ci", env=environment, timeout=60, check=True)


def _is_registered() -> bool:
    from importlib.metadata import entry_points

    return any(point.name == "dragoman" for point in entry_points(group="pytest11"))
