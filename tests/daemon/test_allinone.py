"""The parts of a whole cluster in one process, as `dragoman up` wires them."""

from __future__ import annotations

import asyncio

import pytest

from dragoman.api.kinds import kind_of
from tests.daemon.lab import lab

CONFIG_MAP = kind_of("ConfigMap")
ROOT_CA = "kube-root-ca.crt"


@pytest.mark.slow
def test_the_root_certificate_is_made_again_and_every_kind_is_listed_once() -> None:
    async def body() -> None:
        async with lab() as here:
            before = await here.client.get(CONFIG_MAP, ROOT_CA, "default")
            await here.client.delete(CONFIG_MAP, ROOT_CA, "default")

            async def again() -> bool:
                maps = (await here.client.list(CONFIG_MAP, "default")).items
                return any(m["metadata"]["name"] == ROOT_CA and m["data"] == before["data"] for m in maps)

            await here.until(again)
            assert "BEGIN CERTIFICATE" in before["data"]["ca.crt"]
            text = here.cluster.metrics.text().decode()
            lists = [line for line in text.splitlines() if line.startswith("dragoman_informer_lists_total{")]
            assert lists
            assert not [line for line in lists if not line.endswith(" 1.0")], "scheduler and controllers share"

    asyncio.run(body())
