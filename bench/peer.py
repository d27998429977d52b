"""The peers: Kubernetes' own allocator, selectors and apply code behind JSON lines, out of bench/upstream*.

`make peers` fetches their modules and builds them; tests use what is built, benchmarks build what they need.
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

FOLDER = Path(__file__).parent
BUILD_S = 480
LIBRARY = "k8s.io/dynamic-resource-allocation"
PEERS = {
    "allocator": ("upstream", ".", "DRAGOMAN_TEST_UPSTREAM"),
    "selectors": ("upstream", "./selectors", "DRAGOMAN_TEST_UPSTREAM_SELECTORS"),
    "api": ("upstream_api", ".", "DRAGOMAN_TEST_UPSTREAM_API"),
}
"""Name to module below bench/, package in it, and the variable that names an executable made elsewhere."""


@functools.cache
def peer(name: str = "allocator", *, build: bool = False, fetch: bool = False) -> str:
    """The executable's path, or "" where there is none.

    build: it may be built from modules at hand. fetch: these may be fetched.
    """
    module, package, variable = PEERS[name]
    named = os.environ.get(variable, "")
    if named:
        return named
    made = Path(tempfile.gettempdir()) / f"dragoman-{name}-{os.getuid()}-{_digest(module, package)}"
    go = shutil.which("go")
    if build and go is not None and not made.exists():
        with Path(f"{made}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not made.exists():
                _build(go, made, module, package, fetch=fetch)
    return str(made) if made.exists() else ""


def _build(go: str, made: Path, module: str, package: str, *, fetch: bool) -> None:
    fresh = made.with_suffix(".new")
    settings = {**os.environ, "GOFLAGS": "-mod=readonly -buildvcs=false"}
    if not fetch:
        settings["GOPROXY"] = "off"
    command = [go, "build", "-C", str(FOLDER / module), "-o", str(fresh), package]
    try:
        subprocess.run(command, env=settings, check=True, capture_output=not fetch, timeout=BUILD_S)
    except (subprocess.SubprocessError, OSError):
        return
    fresh.replace(made)


def _digest(module: str, package: str) -> str:
    texts = [(FOLDER / module / name).read_bytes() for name in (f"{package}/main.go", "go.mod", "go.sum")]
    return hashlib.sha256(b"".join(texts)).hexdigest()[:12]


def version(library: str = LIBRARY) -> str:
    """The version of the library that the peer is built of."""
    lines = (line.split() for line in (FOLDER / "upstream" / "go.mod").read_text().splitlines())
    return next(words[1] for words in lines if len(words) > 1 and words[0] == library)


def ask(cases: Iterable[dict[str, Any]], *, timeout_s: float = 5.0) -> list[dict[str, Any]]:
    """Upstream's answers, in order: {"error", "setupSeconds", "nodes": [{"results", "error", "timedOut", ...}]}."""
    lines = "".join(json.dumps({**case, "timeoutSeconds": timeout_s}) + "\n" for case in cases)
    return _answers(peer(), lines)


def ask_selectors(requests: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Answers of bench/upstream/selectors, in order; its head says what a request and an answer hold."""
    return _answers(peer("selectors"), "".join(json.dumps(request) + "\n" for request in requests))


def _answers(executable: str, lines: str) -> list[dict[str, Any]]:
    done = subprocess.run([executable], input=lines, capture_output=True, text=True, check=True)
    return [json.loads(line) for line in done.stdout.splitlines()]


if __name__ == "__main__":
    for name in PEERS:
        found = peer(name, build=True, fetch=True)
        if not found:
            raise SystemExit("error: no peer: install Go 1.26 or newer and let it reach a module proxy")
        print(found)
