"""What may the page of an embedded cluster do? Apply, delete, faults and the clock, and it shows what came of them."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from dragoman.cli import up
from dragoman.daemon.allinone import Cluster, ClusterSettings
from tests.web.page import Browser

pytestmark = pytest.mark.slow

PATIENCE_S = 60.0
CLAIMED = """\
apiVersion: resource.k8s.io/v1
kind: ResourceClaim
metadata: {name: one}
spec: {devices: {requests: [{name: gpu, exactly: {deviceClassName: gpu.example.com}}]}}
---
apiVersion: v1
kind: Pod
metadata: {name: uses-one}
spec:
  containers: [{name: c, image: registry.example/app:1, command: [sleep, infinity]}]
  resourceClaims: [{name: gpu, resourceClaimName: one}]
"""


async def shown(browser: Browser, counts: dict[str, int]) -> None:
    """Waits until the fleet has these counts."""
    async with asyncio.timeout(PATIENCE_S):
        while (found := (await browser.get("fleet"))["counts"]) != counts:
            assert isinstance(found, dict)
            await asyncio.sleep(0.1)


def test_the_page_changes_an_embedded_cluster_and_follows_it(tmp_path: Path) -> None:
    async def run() -> None:
        settings = ClusterSettings(kubeconfig=tmp_path / "kubeconfig")
        jar = aiohttp.CookieJar(unsafe=True)
        async with (
            Cluster(settings) as cluster,
            up._page(cluster, 0) as page,
            aiohttp.ClientSession(cookie_jar=jar) as session,
        ):
            browser: Any = await Browser(page, session).opened()
            state = await browser.get("state")
            assert [fault["name"] for fault in state["actions"]["faults"]]
            await shown(browser, {"free": 8})

            applied = await browser.post("actions/apply", {"text": CLAIMED})
            assert applied["lines"] == ["resourceclaim/one applied", "pod/uses-one applied"]
            await shown(browser, {"free": 7, "held": 1})
            assert (await browser.get("holders"))["holders"][0]["pods"] == ["uses-one"]

            broken = await browser.post("actions/apply", {"text": CLAIMED.replace("exactly", "exactlyy")})
            assert "exactlyy" in str(broken)

            clock = await browser.post("actions/clock", {"advance": "1h"})
            assert clock["status"] == 200
            assert (await browser.get("state"))["now"][:13] != state["now"][:13]
            assert (await browser.post("actions/clock", {"advance": "an hour"}))["status"] == 400

            slow = {"fault": "slow-prepare", "node": "node-0", "delay": "20s"}
            assert (await browser.post("actions/fault", {"data": slow}))["status"] == 200
            (fault,) = (await browser.post("actions/faults", {}))["faults"]
            assert fault["state"] == "active"
            assert (await browser.post("actions/recover", {"name": fault["name"]}))["status"] == 200
            assert (await browser.post("actions/faults", {}))["faults"] == []
            assert (await browser.post("actions/fault", {"data": {**slow, "node": "node-9"}}))["status"] == 400
            assert (await browser.post("actions/recover", {"name": "kube-root-ca.crt"}))["status"] == 404

            deleted = await browser.post("actions/delete", {"kind": "Pod", "name": "uses-one"})
            assert deleted["lines"] == ["pod/uses-one deleted"]
            await shown(browser, {"free": 8})
            assert (await browser.post("actions/delete", {"kind": "Secret", "name": "x"}))["status"] == 400

    asyncio.run(run())
