"""The peers of bench/upstream: Kubernetes' own allocator and selectors behind JSON lines. Found, or built where Go can.

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
LIBRARY = "k8s.io/dynamic-resource-allocation"
NAMED = {".": "DRAGOMAN_TEST_UPSTREAM", "./selectors": "DRAGOMAN_TEST_UPSTREAM_SELECTORS"}


@functools.cache
def peer(package: str = ".", *, fetch: bool = False) -> str:
    """The executable's path, or "" where there is none: DRAGOMAN_TEST_UPSTREAM, or built from modules at hand.

    package: "." the allocator, "./selectors" the selectors. fetch: modules may be fetched.
    """
    named = os.environ.get(NAMED[package], "")
    if named:
        return named
    go = shutil.which("go")
    if go is None:
        return ""
    name = "upstream" if package == "." else package.removeprefix("./")
    made = Path(tempfile.gettempdir()) / f"dragoman-{name}-{os.getuid()}-{_digest(package)}"
    with Path(f"{made}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # tests run in several processes
        if not made.exists() and not _build(go, made, package, fetch=fetch):
            return ""
    return str(made)


def _build(go: str, made: Path, package: str, *, fetch: bool) -> bool:
    fresh = made.with_suffix(".new")
    settings = {**os.environ, "GOFLAGS": "-mod=readonly -buildvcs=false"}
    if not fetch:
        settings["GOPROXY"] = "off"
    command = [go, "build", "-C", str(SOURCE), "-o", str(fresh), package]
    try:
        subprocess.run(command, env=settings, check=True, capture_output=not fetch, timeout=BUILD_S)
    except (subprocess.SubprocessError, OSError):
        return False
    fresh.replace(made)
    return True


def _digest(package: str) -> str:
    texts = [(SOURCE / name).read_bytes() for name in (f"{package}/main.go", "go.mod", "go.sum")]
    return hashlib.sha256(b"".join(texts)).hexdigest()[:12]


def version(library: str = LIBRARY) -> str:
    """The version of the library that the peer is built of."""
    lines = (line.split() for line in (SOURCE / "go.mod").read_text().splitlines())
    return next(words[1] for words in lines if len(words) > 1 and words[0] == library)


def ask(cases: Iterable[dict[str, Any]], *, timeout_s: float = 5.0) -> list[dict[str, Any]]:
    """Upstream's answers, in order: {"error", "setupSeconds", "nodes": [{"results", "error", "timedOut", ...}]}."""
    lines = "".join(json.dumps({**case, "timeoutSeconds": timeout_s}) + "\n" for case in cases)
    return _answers(peer(), lines)


def ask_selectors(requests: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Answers of bench/upstream/selectors, in order; its head says what a request and an answer hold."""
    return _answers(peer("./selectors"), "".join(json.dumps(request) + "\n" for request in requests))


def _answers(executable: str, lines: str) -> list[dict[str, Any]]:
    done = subprocess.run([executable], input=lines, capture_output=True, text=True, check=True)
    return [json.loads(line) for line in done.stdout.splitlines()]


if __name__ == "__main__":
    for package in NAMED:
        found = peer(package, fetch=True)
        if not found:
            raise SystemExit("error: no peer: install Go 1.26 or newer and let it reach a module proxy")
        print(found)
