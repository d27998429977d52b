"""Does `up` bring ComputeDomains, each part with the rights of its own account?"""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from dragoman.api.kinds import kind_of
from dragoman.apiserver.inprocess import InProcessClient
from dragoman.daemon.allinone import Cluster, ClusterSettings
from dragoman.drivers.nvidia.compute_domain.names import DOMAIN

from .lab import domain, pod

PROFILE = """\
name: half-rack
summary: a rack with two trays
source: made for this test
base: gb200-nvl72
rack: {trays: 2}
"""
WAITS = 240


@pytest.mark.slow
def test_a_rack_in_up_serves_a_domain(tmp_path: Path) -> None:
    profile = tmp_path / "half-rack.yaml"
    profile.write_text(PROFILE)

    async def main() -> None:
        settings = ClusterSettings(nodes=(("rack", "half-rack"),), profiles=(profile,))
        async with Cluster(settings) as cluster:
            assert cluster._server is not None
            api = InProcessClient(cluster._server.registry)
            await api.create(DOMAIN, domain("train", "c"), "default")
            await api.create(kind_of("Pod"), pod("w", "c", node="rack-1"), "default")
            for _ in range(WAITS):
                await asyncio.sleep(0.25)
                found = await api.get(kind_of("Pod"), "w", "default")
                if found["status"].get("phase") == "Running":
                    break
            assert found["status"]["phase"] == "Running", found["status"]
            nodes = (await api.get(DOMAIN, "train", "default"))["status"]["nodes"]
            assert [(n["name"], n["index"]) for n in nodes] == [("rack-1", 0)]

    asyncio.run(main())
