"""Leader election."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from dragoman.api.kinds import kind_of
from dragoman.cluster.lease import Elector, LeaseSettings, LedClient
from dragoman.errors import Retry, Stale
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


def test_a_leader_that_slept_past_its_lease_writes_nothing_more(run: Any) -> None:
    async def body(t: Any) -> None:
        a = elector(t, "a")
        client = LedClient(t.client, a, "dragoman")
        pods = kind_of("Pod")

        async def write(name: str) -> None:
            body = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "default"}, "spec": {}}
            await client.create(pods, body)

        with pytest.raises(Retry, match="lease dragoman is no longer held"):
            await write("before")
        async with Tasks("a", t.clock, t.entropy) as tasks:
            tasks.start("run", a.run(for_ever))
            await t.until(lambda: a.is_leader)
            await write("while")
            # The process was stopped: no renewal has run yet, and its time is over.
            a._clock = Late(t.clock, 11.0)
            with pytest.raises(Retry, match="lease dragoman is no longer held"):
                await write("after")
            assert [obj["metadata"]["name"] for obj in (await client.list(pods)).items] == ["while"]
            tasks.stop()

    run(body)


class Late:
    """A clock that is ahead of another one."""

    def __init__(self, clock: Any, by_s: float) -> None:
        self._clock, self._by_s = clock, by_s

    def monotonic(self) -> float:
        return float(self._clock.monotonic() + self._by_s)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._clock, name)


def test_a_lease_changed_meanwhile_is_not_taken(run: Any) -> None:
    """Two candidates that both saw a free lease: the write carries the version that was read."""

    async def body(t: Any) -> None:
        t.server.put("leases", {"metadata": {"name": "dragoman", "namespace": "kube-system"}, "spec": {}})
        a, b = elector(t, "a"), elector(t, "b")
        got = await asyncio.gather(a._claim(), b._claim())
        assert sorted(got) == [False, True]

    run(body)


def test_a_leader_whose_server_does_not_answer_steps_down_at_its_deadline(run: Any) -> None:
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

        async def unavailable(request: Any) -> Any:
            return t.status(503, "ServiceUnavailable", "starting")

        async with Tasks("a", t.clock, t.entropy) as tasks:
            tasks.start("run", check())
            await t.until(lambda: a.is_leader)
            t.server.always = unavailable

            async def second() -> None:
                t.clock.advance(0.5)

            began = t.clock.monotonic()
            await t.until(ended.is_set, meanwhile=second)
            assert t.clock.monotonic() - began < a._settings.duration_s + 2
            assert a.problem

    run(body)


def test_a_lease_is_written_over_the_version_that_was_read(run: Any) -> None:
    async def body(t: Any) -> None:
        spec = {"holderIdentity": "", "leaseDurationSeconds": 1, "renewTime": "2026-01-01T00:00:00.000000Z"}
        t.server.put("leases", {"metadata": {"name": "dragoman", "namespace": "kube-system"}, "spec": spec})
        assert await elector(t, "a")._claim()
        written = [found for method, *_, found, _ in t.server.requests if method == "PUT"]
        (version,) = [found["metadata"].get("resourceVersion") for found in written]
        assert version
        # Both read it free; the second to write is told that the first was faster.
        spec = {**spec, "holderIdentity": ""}
        stored = t.server.put("leases", {"metadata": {"name": "dragoman", "namespace": "kube-system"}, "spec": spec})
        b = elector(t, "b")
        read = await t.client.get(kind_of("Lease"), "dragoman", "kube-system")
        assert await elector(t, "a")._claim()
        with pytest.raises(Stale):
            await t.client.replace(kind_of("Lease"), b._lease(read))
        assert stored["metadata"]["resourceVersion"] == read["metadata"]["resourceVersion"]

    run(body)
