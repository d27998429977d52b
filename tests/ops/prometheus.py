"""Where are promtool and prometheus? Built by `make real`, or installed; tests that need them are skipped without."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.real.build import found


def executable(name: str) -> Path:
    """promtool or prometheus; skips the test where there is none."""
    path = found(name) or (Path(there) if (there := shutil.which(name)) else None)
    if path is None:
        pytest.skip(f"no {name}: `make real` builds it, or install Debian's package prometheus")
    return path


def promtool(*arguments: str, stdin: str | None = None) -> str:
    """What promtool says; its refusal fails the test."""
    done = subprocess.run(
        [executable("promtool"), *arguments], input=stdin, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
