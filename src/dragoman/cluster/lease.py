"""Who of several replicas acts? Leader election over a Lease, as client-go does it.

Never acts itself: it runs the leader's work and ends it when the lease is lost. Time on the leader's own clock
only; a holder that cannot renew steps down before others may take over. A process that was stopped may find out later
than that, so the leader writes through LedClient, which looks at the lease before each write.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import msgspec

from dragoman.api.kinds import kind_of
from dragoman.api.meta import format_micro_time
from dragoman.api.shape import Object
from dragoman.cluster.client import Client
from dragoman.errors import DragomanError, NotFound, Retry, Stale
from dragoman.runtime.clock import Clock
from dragoman.runtime.entropy import Entropy
from dragoman.runtime.log import get
from dragoman.runtime.retry import Backoff
from dragoman.runtime.tasks import Tasks

LEASE = kind_of("Lease")
BACKOFF = Backoff(initial_s=1.5, max_s=6.0, jitter=0.0)
"""Of one who does not lead while the server refuses: short enough that a server which is back has a leader soon."""


class LeaseSettings(msgspec.Struct, frozen=True):
    """renew_s < deadline_s < duration_s must hold. client-go's 15, 10 and 2 s take over 15 s to fail over; these
    take at most duration_s and two looks of a standby, 12.5 s."""

    name: str
    namespace: str
    identity: str
    duration_s: int = 8
    deadline_s: float = 6.0
    renew_s: float = 1.5


class Elector:
    """One candidate."""

    def __init__(self, client: Client, clock: Clock, entropy: Entropy, settings: LeaseSettings) -> None:
        assert settings.renew_s < settings.deadline_s < settings.duration_s, "renew_s < deadline_s < duration_s"
        self.is_leader = False
        self.problem = "not read yet"
        """Why the lease could not be read or written at the last try; empty while that works."""
        self._client = client
        self._clock = clock
        self._entropy = entropy
        self._settings = settings
        self._log = get("lease", name=settings.name, identity=settings.identity)
        self._seen: tuple[str, str] = ("", "")
        self._seen_at_s = 0.0
        self._renewed_s = 0.0
        self._asked_to_wait_s = 0.0

    @property
    def may_write(self) -> bool:
        """Whether the lease is ours for certain, with deadline_s to duration_s as the margin for a write under way."""
        return self.is_leader and self._clock.monotonic() - self._renewed_s < self._settings.deadline_s

    async def run(self, lead: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Wait to become leader, then run `lead`; raises Retry when the lease was lost (run it supervised)."""
        failures = 0
        while True:
            began_s = self._clock.monotonic()
            if await self._claim():
                break
            wait_s = self._settings.renew_s
            if self.problem:
                failures += 1
                wait_s = max(wait_s, BACKOFF.wait_s(failures), self._asked_to_wait_s)
            else:
                failures = 0
            await self._clock.sleep(self._entropy.jitter(wait_s))
        self._renewed_s = began_s
        self._log.info("leading")
        self.is_leader = True
        try:
            async with Tasks("lease", self._clock, self._entropy) as tasks:
                work = tasks.start("lead", lead())
                renewals = tasks.start("renew", self._renew())
                await asyncio.wait({work, renewals}, return_when=asyncio.FIRST_COMPLETED)
                lost = not work.done()
                tasks.stop()
        finally:
            self.is_leader = False
            await self._release()
        if lost:
            raise Retry(f"lost the lease {self._settings.name}")

    async def _renew(self) -> None:
        """Returns once the lease could not be renewed in time."""
        while self._clock.monotonic() - self._renewed_s < self._settings.deadline_s:
            await self._clock.sleep(self._settings.renew_s)
            began_s = self._clock.monotonic()
            try:
                left_s = max(0.1, self._settings.deadline_s - (began_s - self._renewed_s))
                if await self._clock.within(left_s, self._claim()):
                    self._renewed_s = began_s
                elif self._seen[0] != self._settings.identity:
                    return
            except TimeoutError:
                return

    async def _claim(self) -> bool:
        """Take or renew the lease, if it is ours or nobody's or stale."""
        try:
            try:
                lease = await self._client.get(LEASE, self._settings.name, self._settings.namespace)
            except NotFound:
                await self._client.create(LEASE, self._lease({}), self._settings.namespace)
                return True
            if not self._may_take(lease):
                self.problem = ""
                return False
            await self._client.replace(LEASE, self._lease(lease))
        except Stale:
            return False
        except DragomanError as error:
            if str(error) != self.problem:
                self._log.warning("lease not taken, trying again", error=str(error))
            self.problem = str(error)
            self._asked_to_wait_s = (error.after_s or 0.0) if isinstance(error, Retry) else 0.0
            return False
        self.problem = ""
        return True

    def _may_take(self, lease: Object) -> bool:
        spec = lease.get("spec") or {}
        holder = spec.get("holderIdentity") or ""
        record = (holder, spec.get("renewTime") or "")
        if record != self._seen:
            self._seen = record
            self._seen_at_s = self._clock.monotonic()
        if holder in ("", self._settings.identity):
            return True
        duration_s = spec.get("leaseDurationSeconds") or self._settings.duration_s
        return self._clock.monotonic() - self._seen_at_s >= duration_s

    def _lease(self, old: Object) -> Object:
        now = format_micro_time(self._clock.utc())
        spec = dict(old.get("spec") or {})
        if spec.get("holderIdentity") != self._settings.identity:
            spec["acquireTime"] = now
            spec["leaseTransitions"] = (spec.get("leaseTransitions") or 0) + bool(old)
        spec |= {
            "holderIdentity": self._settings.identity,
            "leaseDurationSeconds": self._settings.duration_s,
            "renewTime": now,
        }
        meta = old.get("metadata") or {"name": self._settings.name, "namespace": self._settings.namespace}
        return {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": meta, "spec": spec}

    async def _release(self) -> None:
        try:
            lease = await self._client.get(LEASE, self._settings.name, self._settings.namespace)
            if (lease.get("spec") or {}).get("holderIdentity") == self._settings.identity:
                lease["spec"] |= {"holderIdentity": "", "leaseDurationSeconds": 1}
                await self._client.replace(LEASE, lease)
        except DragomanError as error:
            self._log.info("lease not released; it will expire", error=str(error))


class LedClient:
    """A client through which nothing is written by a process whose lease has run out. Raises Retry then."""

    def __init__(self, client: Client, elector: Elector, lease: str) -> None:
        self._client = client
        self._elector = elector
        self._lease = lease

    def __getattr__(self, name: str) -> Any:
        call = getattr(self._client, name)
        return self._guarded(call) if name in _WRITES else call

    def _guarded(self, call: Callable[..., Coroutine[Any, Any, Any]]) -> Callable[..., Coroutine[Any, Any, Any]]:
        async def guarded(*args: Any, **more: Any) -> Any:
            if not self._elector.may_write:
                raise Retry(f"not written: the lease {self._lease} is no longer held")
            return await call(*args, **more)

        return guarded


_WRITES = frozenset({"create", "replace", "patch", "delete", "delete_collection"})
