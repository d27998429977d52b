"""Leader election."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from dragoman.cluster.lease import Elector, LeaseSettings
from dragoman.errors import Retry
from dragoman.runtime.tasks import Tasks


def elector(t: Any, identity: str) -> Elector:
    return Elector(t.client, t.clock, t.entropy, LeaseSettings("dragoman", "kube-system", identity))


async def for_ever() -> None:
    await asyncio.Event().wait()


def test_one_leads_and_the_other_follows_at_once_when_it_stops(run: Any) -> None:
    async def body(t: Any) -> None:
        a, b = elector(t, "a"), elector(t, "b")
        async with Tasks("a", t.clock, t.entropy) as first, Tasks("b", t.clock, t.entropy) as second:
            first.start("run", a.run(for_ever))
            await t.until(lambda: a.is_leader)
            second.start("run", b.run(for_ever))
            await t.until(lambda: bool(b._seen[0]))
            assert not b.is_leader
            first.stop()
            await t.until(lambda: not a.is_leader)
            lease = t.server.objects["leases", "kube-system", "dragoman"]
            await t.until(lambda: not t.server.objects["leases", "kube-system", "dragoman"]["spec"]["holderIdentity"])
            t.clock.advance(4)
            await t.until(lambda: b.is_leader)
            lease = t.server.objects["leases", "kube-system", "dragoman"]
            assert lease["spec"]["leaseTransitions"] == 1
            second.stop()

    run(body)


def test_a_holder_that_stops_renewing_is_replaced_only_after_the_duration(run: Any) -> None:
    async def body(t: Any) -> None:
        spec = {"holderIdentity": "dead", "leaseDurationSeconds": 15, "renewTime": "2026-01-01T00:00:00.000000Z"}
        t.server.put("leases", {"metadata": {"name": "dragoman", "namespace": "kube-system"}, "spec": spec})
        b = elector(t, "b")
        async with Tasks("b", t.clock, t.entropy) as tasks:
            tasks.start("run", b.run(for_ever))
            await t.until(lambda: b._seen[0] == "dead")
            seen = len(t.server.requests)
            t.clock.advance(5)
            await t.until(lambda: len(t.server.requests) > seen)
            assert not b.is_leader
            t.clock.advance(11)
            await t.until(lambda: b.is_leader)
            tasks.stop()

    run(body)


def test_a_leader_that_cannot_renew_steps_down(run: Any) -> None:
    async def body(t: Any) -> None:
        a = elector(t, "a")
        ended = asyncio.Event()

        async def lead() -> None:
            try:
                await for_ever()
            finally:
                ended.set()

        async def check() -> None:
            with pytest.raises(Retry, match="lost the lease"):
                await a.run(lead)

        async with Tasks("a", t.clock, t.entropy) as tasks:
            tasks.start("run", check())
            await t.until(lambda: a.is_leader)
            lease = t.server.objects["leases", "kube-system", "dragoman"]
            taken = {**lease["spec"], "holderIdentity": "thief"}
            t.server.put("leases", {**lease, "spec": taken})
            t.clock.advance(3)
            await t.until(ended.is_set)
            assert not a.is_leader
        assert t.server.objects["leases", "kube-system", "dragoman"]["spec"]["holderIdentity"] == "thief"

    run(body)
