"""Whose containers end when a simulated GPU fails or runs full? Those that the way of sharing does not protect.

First it is predicted from what the driver has prepared (`drivers.nvidia.consequences`), then clients on the simulated
GPUs show it (`drivers.nvidia.clients`), and the containers of those that were hit end with an error. Decides nothing
itself.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from dragoman.drivers.nvidia.clients import Clients, GpuContext
from dragoman.drivers.nvidia.consequences import AffectedUser, DeviceUser, holders, of_overrun, of_xid
from dragoman.drivers.nvidia.driver import NvidiaDriver
from dragoman.errors import Bug, Invalid
from dragoman.kubelet.agent import NodeAgent

WORKING_SET_MIB = 64
"""What a simulated client has allocated before anything happens."""


class AffectedPods(msgspec.Struct, frozen=True):
    """Pods that were hit, by name; what was predicted is the same. As text an addition to a sentence."""

    pods: tuple[str, ...]

    def __str__(self) -> str:
        return f"; hit, as predicted: {', '.join(self.pods)}" if self.pods else ""


class NodeClients:
    """The clients of one node's GPUs as they are now."""

    def __init__(self, agent: NodeAgent, driver: NvidiaDriver) -> None:
        self.agent = agent
        self._users = {uid: agent.users(uid) for uid in driver.claims}
        self._uids = {agent.pod_named(uid): uid for users in self._users.values() for uid in users}
        consumers = {claim: [agent.pod_named(uid) for uid in users] for claim, users in self._users.items()}
        self.who = holders(driver.claims, consumers)
        self.clients = Clients()
        for holder in self.who:
            total, limit = _memory_mib(driver, holder), holder.limit_mib
            made = self.clients.start(
                holder.consumer, holder.device, holder.gpu, holder.gi, total, daemon=holder.daemon, limit_mib=limit
            )
            made.allocate(min(WORKING_SET_MIB, limit or total))

    def xid(self, number: int, gpu: str, gi: int | None, pod: str = "") -> AffectedPods:
        """An XID happens; pod: whose work raised it, `namespace/name`, if that is known."""
        predicted = of_xid(self.who, number, gpu, gi, pod)
        return self._suffer(predicted, self.clients.xid(number, gpu, gi, pod), f"XID {number}")

    def lost(self, gpu: str) -> AffectedPods:
        """A GPU falls off the bus, which is XID 79 to whoever uses it."""
        return self.xid(79, gpu, None)

    def overrun(self, pod: str, gpu: str) -> AffectedPods:
        """A pod takes all the memory that it gets on a GPU. Raises Invalid if it does not use that."""
        device = next((h.device for h in self.who if (h.consumer, h.gpu) == (pod, gpu)), None)
        if device is None:
            raise Invalid("data.pod", f"{pod} has no running container on that GPU")
        predicted = of_overrun(self.who, pod, device)
        return self._suffer(predicted, self.clients.overrun(pod, device), "out of memory")

    def _suffer(self, predicted: Iterable[AffectedUser], happened: Iterable[GpuContext], why: str) -> AffectedPods:
        foreseen = {(hit.consumer, hit.device) for hit in predicted}
        ended = {(context.client, context.device) for context in happened}
        if foreseen != ended:
            raise Bug(f"{why}: foreseen for {sorted(foreseen)}, came to {sorted(ended)}")
        pods = sorted({pod for pod, _ in ended})
        for pod in pods:
            uid = self._uids.get(pod)
            claims = {holder.claim for holder in self.who if (holder.consumer, holder.device) in ended}
            names = {name for claim in claims for name in self._users.get(claim, {}).get(uid or "", ())}
            if uid is not None:
                self.agent.fail(uid, sorted(names), f"CUDA error: {why}")
        return AffectedPods(tuple(pods))


def _memory_mib(driver: NvidiaDriver, holder: DeviceUser) -> int:
    gpu = next((gpu for gpu in driver.hardware.gpus() if gpu.uuid == holder.gpu), None)
    if gpu is None:
        return 0
    if holder.gi is None:
        return (gpu.memory_bytes or 0) // 2**20
    # gpu-0-mig-1g5gb-19-2: profile id and start come last.
    profile = int(holder.device.rsplit("-", 2)[1])
    return next((s.amounts.memory_mib for s in driver.hardware.shapes(gpu.uuid) if s.id == profile), 0)
