"""How fast and how large is an embedded cluster? Start-up, first pod, pods a second, and 1,000 nodes.

    .venv/bin/python bench/embedded.py [first|throughput|nodes]... [flags of `dragoman up`, e.g. --authorization allow]

Prints one JSON line a measurement. `dragoman up` runs as a process of its own; everything goes
through its API over TLS, and nodes and drivers talk gRPC over real Unix sockets.
"""

from __future__ import annotations

import asyncio
import json
import os
import platform
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import takewhile
from pathlib import Path

import dragoman
from dragoman.api.kinds import kind_of
from dragoman.cluster import kubeconfig
from dragoman.cluster.http import HttpClient
from dragoman.runtime.clock import Clock
from dragoman.runtime.entropy import Entropy

POD, TEMPLATE = kind_of("Pod"), kind_of("ResourceClaimTemplate")
TICKS = os.sysconf("SC_CLK_TCK")


def report(name: str, **figures: object) -> None:
    """One line."""
    machine = f"{os.cpu_count()} cores, {platform.machine()}, Python {platform.python_version()}"
    print(json.dumps({"bench": name, **figures, "machine": machine, "version": dragoman.__version__}), flush=True)


@contextmanager
def up(*arguments: str) -> Iterator[tuple[subprocess.Popen[bytes], Path, float]]:
    """A running cluster: process, kubeconfig, and the moment it was started."""
    with tempfile.TemporaryDirectory(prefix="dra-") as folder:
        config = Path(folder) / "kubeconfig"
        begin = time.monotonic()
        command = [sys.executable, "-m", "dragoman.cli", "up", "--kubeconfig", str(config), *arguments]
        process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
        try:
            while not config.exists():
                assert process.poll() is None, "dragoman up ended"
                time.sleep(0.01)
            yield process, config, begin
        finally:
            process.send_signal(signal.SIGINT)
            process.wait(60)


def template() -> dict[str, object]:
    """One device of the example class."""
    requests = [{"name": "gpu", "exactly": {"deviceClassName": "gpu.example.com"}}]
    spec = {"spec": {"devices": {"requests": requests}}}
    return {
        "apiVersion": TEMPLATE.api_version,
        "kind": "ResourceClaimTemplate",
        "metadata": {"name": "one"},
        "spec": spec,
    }


def pod(name: str) -> dict[str, object]:
    """A pod with a claim from the template."""
    container = {"name": "main", "image": "app", "resources": {"claims": [{"name": "gpu"}]}}
    claims = [{"name": "gpu", "resourceClaimTemplateName": "one"}]
    spec = {"containers": [container], "resourceClaims": claims}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "default"}, "spec": spec}


async def all_running(config: Path, count: int) -> tuple[float, float]:
    """Create that many pods at once; (seconds until all are created, seconds until all run)."""
    client = HttpClient(kubeconfig.load([config]), Clock(), Entropy())
    try:
        await client.create(TEMPLATE, template(), "default")
        since = (await client.list(POD, "default")).resource_version
        running: set[str] = set()
        begin = time.monotonic()

        async def create(numbers: Iterator[int]) -> None:
            for number in numbers:
                await client.create(POD, pod(f"p-{number}"), "default")

        async def follow() -> None:
            async for event in client.watch(POD, since, "default"):
                if (event.object.get("status") or {}).get("phase") == "Running":
                    running.add(event.object["metadata"]["name"])
                    if len(running) == count:
                        return

        following = asyncio.create_task(follow())
        numbers = iter(range(count))
        await asyncio.gather(*(create(numbers) for _ in range(16)))
        created = time.monotonic() - begin
        await following
        return created, time.monotonic() - begin
    finally:
        await client.close()


def first(*flags: str) -> None:
    """From the command to a pod with a claim that runs."""
    for attempt in range(3):
        with up("--node", "worker=example", *flags) as (process, config, begin):
            ready, spent = time.monotonic() - begin, cpu_s(process.pid)
            at_first = memory_mb(process.pid, "VmRSS")
            asyncio.run(all_running(config, 1))
            seconds = time.monotonic() - begin
            memory = memory_mb(process.pid, "VmRSS")
        report(
            "up until a pod with a claim runs",
            attempt=attempt,
            ready_s=round(ready, 2),
            ready_cpu_s=round(spent, 2),
            seconds=round(seconds, 2),
            ready_rss_mb=at_first,
            rss_mb=memory,
        )


def throughput(*flags: str) -> None:
    """50 nodes of 8 devices, all filled with one-device pods."""
    with up("--node", "n=example*50", *flags) as (process, config, _begin):
        before = cpu_s(process.pid)
        created, seconds = asyncio.run(all_running(config, 400))
        spent = cpu_s(process.pid) - before
        memory = memory_mb(process.pid, "VmRSS")
    report(
        "apply to Running, 50 nodes, 400 pods",
        created_s=round(created, 2),
        seconds=round(seconds, 2),
        pods_per_s=round(400 / seconds),
        cpu_ms_per_pod=round(1000 * spent / 400, 1),
        rss_mb=memory,
    )


def memory_mb(pid: int, field: str) -> int:
    """VmRSS or VmHWM."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) // 1024 for line in lines if line.startswith(field))


def cpu_s(pid: int) -> float:
    """CPU seconds of a process so far."""
    parts = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(parts[11]) + int(parts[12])) / TICKS


def nodes(*flags: str) -> None:
    """1,000 nodes of 8 devices in one process."""
    with up("--node", "n=example*1000", *flags) as (process, _, begin):
        ready, spent = time.monotonic() - begin, cpu_s(process.pid)
        time.sleep(5)
        before = cpu_s(process.pid)
        time.sleep(20)
        idle = (cpu_s(process.pid) - before) / 20
        report(
            "1,000 nodes of 8 devices",
            ready_s=round(ready, 2),
            ready_cpu_s=round(spent, 2),
            rss_mb=memory_mb(process.pid, "VmRSS"),
            peak_mb=memory_mb(process.pid, "VmHWM"),
            idle_core_percent=round(100 * idle, 1),
        )


ALL = {"first": first, "throughput": throughput, "nodes": nodes}

if __name__ == "__main__":
    given = sys.argv[1:]
    names = [*takewhile(lambda word: not word.startswith("-"), given)]
    for wanted in names or ALL:
        ALL[wanted](*given[len(names) :])
