"""The peer of bench/upstream: Kubernetes' own allocator behind JSON lines. Found, or built where Go can."""

from __future__ import annotations

import functools
import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

SOURCE = Path(__file__).parents[2] / "bench" / "upstream"
BUILD_S = 240


@functools.cache
def peer() -> str:
    """The executable's path, or "" where there is none: DRAGOMAN_TEST_UPSTREAM, or built from cached modules."""
    named = os.environ.get("DRAGOMAN_TEST_UPSTREAM", "")
    if named:
        return named
    go = shutil.which("go")
    if go is None:
        return ""
    made = Path(tempfile.gettempdir()) / f"dragoman-upstream-{os.getuid()}-{_digest()}"
    if made.exists():
        return str(made)
    with tempfile.TemporaryDirectory() as folder:
        fresh = Path(folder) / "upstream"
        # Only what is there already: a test downloads nothing. `make peers` does.
        settings = {**os.environ, "GOFLAGS": "-mod=readonly -buildvcs=false", "GOPROXY": "off"}
        command = [go, "build", "-C", str(SOURCE), "-o", str(fresh), "."]
        try:
            subprocess.run(command, env=settings, check=True, capture_output=True, timeout=BUILD_S)
        except (subprocess.SubprocessError, OSError):
            return ""
        shutil.copy(fresh, f"{made}.{os.getpid()}")
        Path(f"{made}.{os.getpid()}").replace(made)
    return str(made)


def _digest() -> str:
    import hashlib

    texts = [(SOURCE / name).read_bytes() for name in ("main.go", "go.mod", "go.sum")]
    return hashlib.sha256(b"".join(texts)).hexdigest()[:12]


def ask(cases: Iterable[dict[str, Any]], *, timeout_s: float = 5.0) -> list[dict[str, Any]]:
    """Upstream's answers: for each case {"error", "nodes": [{"results", "error", "onlyNode", "timedOut", "seconds"}]}."""
    lines = "".join(json.dumps({**case, "timeoutSeconds": timeout_s}) + "\n" for case in cases)
    done = subprocess.run([peer()], input=lines, capture_output=True, text=True, check=True)
    return [json.loads(line) for line in done.stdout.splitlines()]
