"""The peer of bench/upstream: Kubernetes' own allocator behind JSON lines. Found, or built where Go can.

`make peers` fetches its modules and builds it; later builds need no network.
"""

from __future__ import annotations

import fcntl
import functools
import hashlib
import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

SOURCE = Path(__file__).parent / "upstream"
BUILD_S = 480
VERSION = "k8s.io/dynamic-resource-allocation"


@functools.cache
def peer(*, fetch: bool = False) -> str:
    """The executable's path, or "" where there is none: DRAGOMAN_TEST_UPSTREAM, or built from modules at hand.

    fetch: modules may be fetched.
    """
    named = os.environ.get("DRAGOMAN_TEST_UPSTREAM", "")
    if named:
        return named
    go = shutil.which("go")
    if go is None:
        return ""
    made = Path(tempfile.gettempdir()) / f"dragoman-upstream-{os.getuid()}-{_digest()}"
    with Path(f"{made}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # tests run in several processes
        if not made.exists() and not _build(go, made, fetch=fetch):
            return ""
    return str(made)


def _build(go: str, made: Path, *, fetch: bool) -> bool:
    fresh = made.with_suffix(".new")
    settings = {**os.environ, "GOFLAGS": "-mod=readonly -buildvcs=false"}
    if not fetch:
        settings["GOPROXY"] = "off"
    command = [go, "build", "-C", str(SOURCE), "-o", str(fresh), "."]
    try:
        subprocess.run(command, env=settings, check=True, capture_output=not fetch, timeout=BUILD_S)
    except (subprocess.SubprocessError, OSError):
        return False
    fresh.replace(made)
    return True


def _digest() -> str:
    texts = [(SOURCE / name).read_bytes() for name in ("main.go", "go.mod", "go.sum")]
    return hashlib.sha256(b"".join(texts)).hexdigest()[:12]


def version() -> str:
    """The version of the library that the peer is built of."""
    lines = (line.split() for line in (SOURCE / "go.mod").read_text().splitlines())
    return next(words[1] for words in lines if len(words) > 1 and words[0] == VERSION)


def ask(cases: Iterable[dict[str, Any]], *, timeout_s: float = 5.0) -> list[dict[str, Any]]:
    """Upstream's answers, in order: {"error", "setupSeconds", "nodes": [{"results", "error", "timedOut", ...}]}."""
    lines = "".join(json.dumps({**case, "timeoutSeconds": timeout_s}) + "\n" for case in cases)
    done = subprocess.run([peer()], input=lines, capture_output=True, text=True, check=True)
    return [json.loads(line) for line in done.stdout.splitlines()]


if __name__ == "__main__":
    found = peer(fetch=True)
    if not found:
        raise SystemExit("error: no peer: install Go 1.26 or newer and let it reach a module proxy")
    print(found)
