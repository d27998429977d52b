"""Whose containers end when a simulated GPU fails or runs full? Those that the way of sharing does not protect.

Who that is, is said by `consequences`; their containers end with an error here.
"""

from __future__ import annotations

from collections.abc import Iterable

from dragoman.drivers.entry import Workloads
from dragoman.drivers.nvidia.consequences import AffectedUser, holders, of_overrun, of_xid
from dragoman.drivers.nvidia.driver import NvidiaDriver
from dragoman.errors import Invalid

OFF_THE_BUS = 79
"""The XID that users of a GPU see when it is lost."""


class Scene:
    """Who uses one node's GPUs now. Each method ends containers, and answers with the pods that it hit, as a clause."""

    def __init__(self, workloads: Workloads, driver: NvidiaDriver) -> None:
        self.workloads = workloads
        self._users = {uid: workloads.users(uid) for uid in driver.claims}
        self._uids = {workloads.pod_named(uid): uid for users in self._users.values() for uid in users}
        consumers = {claim: [workloads.pod_named(uid) for uid in users] for claim, users in self._users.items()}
        self.who = holders(driver.claims, consumers)

    def xid(self, number: int, gpu: str, gi: int | None, pod: str = "") -> str:
        """An XID happens; pod: whose work raised it, `namespace/name`, if that is known."""
        return self._end(of_xid(self.who, number, gpu, gi, pod), f"XID {number}")

    def lost(self, gpu: str) -> str:
        """A GPU falls off the bus."""
        return self.xid(OFF_THE_BUS, gpu, None)

    def overrun(self, pod: str, gpu: str) -> str:
        """A pod takes all the memory that it gets on a GPU. Raises Invalid if it does not use that."""
        device = next((h.device for h in self.who if (h.consumer, h.gpu) == (pod, gpu)), None)
        if device is None:
            raise Invalid("data.pod", f"{pod} has no running container on that GPU")
        return self._end(of_overrun(self.who, pod, device), "out of memory")

    def _end(self, hits: Iterable[AffectedUser], why: str) -> str:
        hit = {(hit.consumer, hit.device) for hit in hits}
        claims = {holder.claim for holder in self.who if (holder.consumer, holder.device) in hit}
        pods = sorted({pod for pod, _ in hit})
        for pod in pods:
            uid = self._uids.get(pod)
            if uid is not None:
                names = {name for claim in claims for name in self._users.get(claim, {}).get(uid, ())}
                self.workloads.fail(uid, sorted(names), f"CUDA error: {why}")
        return f"; affected pods: {', '.join(pods)}" if pods else ""
