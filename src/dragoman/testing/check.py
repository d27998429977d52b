"""Is the cluster safe after every single write? A journal of the store that looks at each step.

Rules: no device is allocated twice; a bound pod that is not finished has its claims allocated and reserved for it,
where its node reaches the devices; no device is prepared for two claims. What breaks one is kept in `broken`, with the
version of the write. Never changes anything.
"""

from __future__ import annotations

import hashlib

from dragoman.api import codec
from dragoman.api.core import Pod
from dragoman.api.meta import NamespacedName
from dragoman.apiserver.store import StoreEvent
from dragoman.schedule.claims import same
from dragoman.snapshot.change import Gone, Put, Snapshot, apply
from dragoman.snapshot.selection import selects
from dragoman.snapshot.usage import claim_names, holds, is_finished

WATCHED = ("Node", "Pod", "ResourceClaim", "ResourceSlice", "DeviceClass", "ResourceClaimTemplate")


class Checker:
    """A Journal (apiserver.store) that keeps the snapshot after each write and checks it.

    trace: a digest of all writes so far, equal for equal runs.
    """

    def __init__(self) -> None:
        self.snapshot = Snapshot.empty()
        self.broken: list[str] = []
        self.writes = 0
        self._digest = hashlib.sha256()

    @property
    def trace(self) -> str:
        """Digest of kinds, names and order of all writes."""
        return self._digest.hexdigest()

    async def durable(self) -> None:
        """Nothing is kept on disk."""

    def append(self, event: StoreEvent) -> None:
        """One write of the store."""
        record = event.new
        kind = record.kind.kind
        self.writes += 1
        self._digest.update(f"{kind} {record.namespace}/{record.name} {event.gone}\n".encode())
        if kind not in WATCHED:
            return
        if event.gone:
            change: Put | Gone = Gone(kind, record.namespace, record.name)
        else:
            change = Put(kind, codec.decode(codec.TYPES[kind], record.decode()))
        self.snapshot = apply(self.snapshot, change)
        key = (record.namespace, record.name)
        if kind == "ResourceClaim":
            self._check_claim(event.version, key)
        elif kind == "Pod" and not event.gone:
            self._check_pod(event.version, self.snapshot.pods[key])

    def say(self, what: str) -> None:
        """Something that must never be."""
        self.broken.append(f"after write {self.writes}: {what}")

    def _check_claim(self, version: int, key: NamespacedName) -> None:
        claim = self.snapshot.claims.get(key)
        for device in holds(claim) if claim is not None else ():
            holders = self.snapshot.holders.get(device, ())
            if len(holders) > 1:
                names = ", ".join(f"{holder.namespace}/{holder.claim}" for holder in holders)
                self.say(f"version {version}: device {device} is held by {names}")
        for pod in self.snapshot.pods_by_claim.get(key, ()):
            self._check_pod(version, self.snapshot.pods[pod])

    def _check_pod(self, version: int, pod: Pod) -> None:
        if not pod.spec.node_name or is_finished(pod):
            return
        meta = pod.metadata
        node = self.snapshot.nodes.get(pod.spec.node_name)
        where = f"version {version}: pod {meta.name} on {pod.spec.node_name}"
        names = claim_names(pod)
        if len(names) < len(pod.spec.resource_claims):
            self.say(f"{where} has claims that were not made")
        for name in names:
            claim = self.snapshot.claims.get((meta.namespace, name))
            if claim is None or claim.status.allocation is None:
                self.say(f"{where}: claim {name} is {'gone' if claim is None else 'not allocated'}")
                continue
            if not any(same(entry.uid, entry.name, pod) for entry in claim.status.reserved_for):
                self.say(f"{where}: claim {name} is not reserved for it")
            selector = claim.status.allocation.node_selector
            if selector is not None and node is not None and not selects(selector, node):
                self.say(f"{where}: claim {name} has devices elsewhere")


class RecordedHardware:
    """The devices of one node: which claim each is prepared for. Survives its driver, not a reboot."""

    def __init__(self, node: str, checker: Checker) -> None:
        self.node = node
        self.prepared: dict[str, str] = {}
        self._checker = checker

    def prepare(self, device: str, claim_uid: str) -> None:
        """A device is made ready for a claim."""
        other = self.prepared.get(device, claim_uid)
        if other != claim_uid:
            self._checker.say(f"{self.node}: {device} is prepared for claim {claim_uid} and still for {other}")
        self.prepared[device] = claim_uid

    def unprepare(self, device: str, claim_uid: str) -> None:
        """It is given back; late calls of former users change nothing."""
        if self.prepared.get(device) == claim_uid:
            del self.prepared[device]
