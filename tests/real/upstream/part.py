"""One part of ours for a test of Kubernetes: told as a line of JSON on standard input, ended by the end of that.

Started by seam/seam.go. Any gate may be set, locked ones too, since such tests set them.
"""

from __future__ import annotations

import asyncio
import base64
import json
import sys
from collections.abc import Awaitable, Callable
from typing import Any

import yaml

from dragoman.allocate.allocator import AllocatorOptions
from dragoman.api.gates import GATES, Gates, gates_with
from dragoman.cluster.http import HttpClient
from dragoman.cluster.kubeconfig import Access
from dragoman.daemon.controllers import Controllers, ControllerSettings
from dragoman.daemon.scheduler import Scheduler, SchedulerSettings
from dragoman.daemon.scheduler_config import API_VERSION, KIND, read_config
from dragoman.runtime import log
from dragoman.runtime.clock import Clock
from dragoman.runtime.entropy import Entropy
from dragoman.runtime.tasks import Tasks


def gates_of(order: dict[str, Any]) -> Gates:
    """The gates as they are in the test's process; those that it does not have are off."""
    return gates_with({name: order["gates"].get(name, False) for name in GATES})[0]


def settings_of(order: dict[str, Any]) -> SchedulerSettings:
    """What the test's KubeSchedulerConfiguration says, read as `dragoman scheduler --config` does."""
    options = AllocatorOptions(gates=gates_of(order))
    value = yaml.safe_load(order["settings"])
    if not value:
        return SchedulerSettings(options=options)
    value = {"apiVersion": API_VERSION, "kind": KIND, **value}
    found = read_config(value, "configuration", options.gates, "off")
    return SchedulerSettings(tuple(found.profiles), options, found.limits, profiles=found.profiles)


def made(order: dict[str, Any], client: HttpClient, clock: Clock, entropy: Entropy) -> Callable[[], Awaitable[None]]:
    """What runs the part."""
    if order["part"] == "scheduler":
        return Scheduler(client, clock, entropy, settings_of(order)).run
    return Controllers(client, clock, entropy, ControllerSettings(controllers=("claims",))).run


async def main() -> None:
    order = json.loads(sys.stdin.readline())
    log.setup(level="info", format="human")
    pem = {name: base64.b64decode(order[name] or "") or None for name in ("ca", "cert", "key")}
    access = Access(
        order["server"],
        ca_pem=pem["ca"],
        insecure=order["insecure"],
        tls_server_name=order["name"],
        cert_pem=pem["cert"],
        key_pem=pem["key"],
        token=order["token"],
    )
    clock, entropy = Clock(), Entropy()
    client = HttpClient(access, clock, entropy, manager="dragoman")
    async with Tasks("part", clock, entropy) as tasks:
        tasks.supervise(order["part"], made(order, client, clock, entropy))
        print("ready", flush=True)
        await asyncio.to_thread(sys.stdin.read)
        tasks.stop()
    await client.close()


if __name__ == "__main__":
    asyncio.run(main())
