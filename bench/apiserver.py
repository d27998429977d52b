"""How many writes and reads a second does the embedded API take, in process and over TLS, in memory and on disk?

    .venv/bin/python bench/apiserver.py

Prints one JSON line a measurement; client and server share one process and one core. Compare ratios only.
"""

from __future__ import annotations

import asyncio
import json
import os
import platform
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import uvloop

import dragoman
from dragoman.api.kinds import kind_of
from dragoman.apiserver.inprocess import InProcessClient
from dragoman.apiserver.server import ServerConfig, serving
from dragoman.cluster.client import Client
from dragoman.cluster.http import HttpClient
from dragoman.runtime.clock import Clock
from dragoman.runtime.entropy import Entropy

POD, LEASE, SLICE = kind_of("Pod"), kind_of("Lease"), kind_of("ResourceSlice")
COUNT, LANES = 1000, 16


def pod(name: str) -> dict[str, Any]:
    spec = {
        "containers": [{"name": "c", "image": "i", "resources": {"claims": [{"name": "gpu"}]}}],
        "resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "one"}],
    }
    return {"metadata": {"name": name}, "spec": spec}


def published(name: str) -> dict[str, Any]:
    devices = [
        {
            "name": f"gpu-{at}",
            "attributes": {"index": {"int": at}, "model": {"string": "LATEST-GPU-MODEL"}},
            "capacity": {"memory": {"value": "80Gi"}},
        }
        for at in range(8)
    ]
    pool = {"name": name, "generation": 1, "resourceSliceCount": 1}
    spec = {"driver": "gpu.example.com", "nodeName": name, "pool": pool, "devices": devices}
    return {"metadata": {"name": name}, "spec": spec}


async def rate(work: Callable[[int], Awaitable[object]]) -> float:
    """Calls a second, LANES at a time."""
    numbers = iter(range(COUNT))

    async def lane() -> None:
        for number in numbers:
            await work(number)

    began = time.perf_counter()
    async with asyncio.TaskGroup() as tasks:
        for _ in range(LANES):
            tasks.create_task(lane())
    return COUNT / (time.perf_counter() - began)


async def measure(client: Client, tag: str) -> dict[str, float]:
    """Rates of one client."""
    running = {"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}}
    renew = {"spec": {"renewTime": "2026-01-01T00:00:00.000000Z"}}
    lease = {"spec": {"holderIdentity": "n", "leaseDurationSeconds": 40}}
    home = "kube-node-lease"
    works: dict[str, Callable[[int], Awaitable[object]]] = {
        "create_pod": lambda at: client.create(POD, pod(f"{tag}{at}"), "default"),
        "patch_status": lambda at: client.patch(POD, f"{tag}{at}", running, "default", subresource="status"),
        "get_pod": lambda at: client.get(POD, f"{tag}{at}", "default"),
        "create_slice": lambda at: client.create(SLICE, published(f"{tag}{at}")),
        "create_lease": lambda at: client.create(LEASE, {"metadata": {"name": f"{tag}{at}"}, **lease}, home),
        "renew_lease": lambda at: client.patch(LEASE, f"{tag}{at}", renew, home),
    }
    return {f"{name}_per_s": round(await rate(work)) for name, work in works.items()}


async def main() -> None:
    machine = f"{os.cpu_count()} cores, {platform.machine()}, Python {platform.python_version()}"
    with tempfile.TemporaryDirectory() as folder:
        for store, data in (("memory", None), ("files", Path(folder))):
            async with serving(ServerConfig(data=data), Clock(), Entropy()) as server:
                http = HttpClient(server.access, Clock(), Entropy())
                clients: dict[str, Client] = {"in process": InProcessClient(server.registry), "https": http}
                for transport, client in clients.items():
                    figures = await measure(client, transport[0])
                    line = {"bench": "apiserver", "store": store, "transport": transport, **figures}
                    print(json.dumps({**line, "machine": machine, "version": dragoman.__version__}), flush=True)
                await http.close()


uvloop.run(main())
