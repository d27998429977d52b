"""How does the cluster know this node? Its Node object, kept true, and the lease that says it lives.

Registers as a kubelet does: creates the object or corrects its own fields, never touches taints or labels of others.
"""

from __future__ import annotations

import asyncio
import platform
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import msgspec

from dragoman import __version__
from dragoman.api.core import Node
from dragoman.api.kinds import kind_of
from dragoman.api.meta import format_micro_time, format_time
from dragoman.api.shape import Object
from dragoman.api.validate.others import is_extended_resource
from dragoman.cluster.client import Client
from dragoman.errors import DragomanError, Invalid, NotFound, Stale
from dragoman.kubelet.plugin_devices import PluginDevices
from dragoman.runtime.clock import Clock
from dragoman.runtime.entropy import Entropy
from dragoman.runtime.log import get
from dragoman.runtime.retry import Backoff
from dragoman.values.quantity import Quantity

NODE = kind_of("Node")
LEASE = kind_of("Lease")
LEASE_NAMESPACE = "kube-node-lease"
LEASE_S = 40
RENEW_S = 10.0
STATUS_S = 300.0
"""An unchanged status is reported so often."""
CORRECT_S = 2.0
"""How long a status that somebody else wrote stands at most."""
BACKOFF = Backoff(initial_s=0.2, max_s=7.0, jitter=0.2)

CAPACITY = {"cpu": "32", "memory": "256Gi", "ephemeral-storage": "1Ti", "pods": "110"}


class NodeProperties(msgspec.Struct, frozen=True):
    """What a node is like. capacity: quantities by resource; taints as in the API, only for a new object.

    host_ip, pod_cidr: found by the agent where they are empty.
    """

    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    capacity: dict[str, str] = msgspec.field(default_factory=lambda: dict(CAPACITY))
    taints: tuple[dict[str, str], ...] = ()
    host_ip: str = ""
    pod_cidr: str = ""
    kubelet_version: str = "v1.37.0"
    boot_id: str = ""
    declared_features: tuple[str, ...] = ()


class NodeObject:
    """The Node and Lease of one node."""

    def __init__(self, client: Client, clock: Clock, entropy: Entropy, node_name: str, facts: NodeProperties) -> None:
        self.client = client
        self.clock = clock
        self.entropy = entropy
        self.node_name = node_name
        self.facts = facts
        self.uid = ""
        self.devices: PluginDevices | None = None
        """Whose devices are part of the capacity."""
        self._ready_since = ""
        self._lease: Object | None = None
        self._overwritten = asyncio.Event()
        self._news = asyncio.Event()
        self._reported: list[dict[str, str]] = []
        """The last two allocatables that were written: the watch may still show the older one."""
        self._log = get("kubelet", node=node_name)

    async def register(self) -> None:
        """Create the Node, or set what of it is ours. Raises as Client does."""
        try:
            node = await self.client.get(NODE, self.node_name)
        except NotFound:
            try:
                node = await self.client.create(NODE, self._new())
            except Stale:
                node = await self.client.get(NODE, self.node_name)
        meta = node["metadata"]
        self.uid = meta["uid"]
        missing = {k: v for k, v in self._labels().items() if (meta.get("labels") or {}).get(k) != v}
        if missing:
            await self.client.patch(NODE, self.node_name, {"metadata": {"labels": missing}})
        known = {c["type"]: c for c in (node.get("status") or {}).get("conditions") or []}
        if self.devices is not None and self.devices.is_new:
            # Devices of an earlier life of the machine are not there until a plugin registers.
            had = (node.get("status") or {}).get("capacity") or {}
            self.devices.reset(name for name in had if is_extended_resource(name) and name not in self.facts.capacity)
        ready = known.get("Ready", {})
        self._ready_since = ready.get("lastTransitionTime", "") if ready.get("status") == "True" else ""
        await self.report()

    async def report(self) -> None:
        """Write the status. Raises as Client does."""
        status = self._status()
        self._reported = [*self._reported[-1:], status["allocatable"]]
        await self.client.patch(NODE, self.node_name, {"status": status}, type="strategic", subresource="status")

    def changed(self) -> None:
        """Devices came, went or fell ill: report soon."""
        self._news.set()
        self._overwritten.set()

    def _amounts(self) -> tuple[dict[str, str], dict[str, str]]:
        """(capacity, allocatable), with the devices of device plugins."""
        if self.devices is None:
            return dict(self.facts.capacity), dict(self.facts.capacity)
        capacity = {name: str(count) for name, count in self.devices.capacity().items()}
        allocatable = {name: str(count) for name, count in self.devices.allocatable().items()}
        return {**self.facts.capacity, **capacity}, {**self.facts.capacity, **allocatable}

    def seen(self, what: str, node: Node) -> None:
        """The Node is now like this: what others wrote into our part of its status is put right soon."""
        if what == "gone" or self._is_ours(node):
            return
        if node.status.conditions:  # a Node that was just created has none yet
            self._log.warning("node status was overwritten: writing it again")
        self._ready_since = ""
        self._overwritten.set()

    def _is_ours(self, node: Node) -> bool:
        known = {condition.type: condition.status for condition in node.status.conditions}
        if any(known.get(condition["type"]) != condition["status"] for condition in self._conditions("")):
            return False
        allocatable = node.status.allocatable or {}
        return any(
            all(allocatable.get(name) == Quantity.parse(amount) for name, amount in mine.items())
            for mine in self._reported or [self._amounts()[1]]
        )

    async def keep_reporting(self) -> None:
        """Report the status now and then, for ever, and soon after others wrote it; a Node that was deleted is
        registered again."""
        while True:
            try:
                await self.clock.within(self.entropy.jitter(STATUS_S, 0.04), self._overwritten.wait())
                if not self._news.is_set():
                    await self.clock.sleep(self.entropy.jitter(CORRECT_S / 2, 0.5))
            except TimeoutError:
                pass
            self._overwritten.clear()
            self._news.clear()
            try:
                await self.report()
            except NotFound:
                await self.register()
            except DragomanError:
                self._overwritten.set()
                raise

    async def keep_lease(self) -> None:
        """Renew the lease for ever."""
        failures = 0
        while True:
            try:
                await self._renew()
                failures = 0
                await self.clock.sleep(self.entropy.jitter(RENEW_S, 0.04))
            except DragomanError as error:
                failures += 1
                self._lease = None
                self._log.info("lease not renewed", error=str(error))
                await self.clock.sleep(BACKOFF.wait_s(failures, self.entropy))

    async def _renew(self) -> None:
        when = format_micro_time(datetime.fromtimestamp(self.clock.now(), UTC))
        if self._lease is None:
            try:
                self._lease = await self.client.get(LEASE, self.node_name, LEASE_NAMESPACE)
            except NotFound:
                self._lease = await self.client.create(LEASE, self._new_lease(when), LEASE_NAMESPACE)
                return
        spec = {**(self._lease.get("spec") or {}), "holderIdentity": self.node_name, "renewTime": when}
        spec["leaseDurationSeconds"] = LEASE_S
        body = {"apiVersion": LEASE.api_version, "kind": LEASE.kind, **self._lease, "spec": spec}
        self._lease = await self.client.replace(LEASE, body)

    def _new_lease(self, when: str) -> Object:
        owner = {"apiVersion": "v1", "kind": "Node", "name": self.node_name, "uid": self.uid}
        return {
            "apiVersion": LEASE.api_version,
            "kind": LEASE.kind,
            "metadata": {"name": self.node_name, "namespace": LEASE_NAMESPACE, "ownerReferences": [owner]},
            "spec": {"holderIdentity": self.node_name, "leaseDurationSeconds": LEASE_S, "renewTime": when},
        }

    def _labels(self) -> Mapping[str, str]:
        arch = {"x86_64": "amd64", "aarch64": "arm64"}.get(platform.machine(), platform.machine())
        return {
            "kubernetes.io/hostname": self.node_name,
            "kubernetes.io/os": "linux",
            "kubernetes.io/arch": arch,
            "beta.kubernetes.io/os": "linux",
            "beta.kubernetes.io/arch": arch,
            **self.facts.labels,
        }

    def _new(self) -> Object:
        spec: dict[str, Any] = {}
        if self.facts.pod_cidr:
            spec = {"podCIDR": self.facts.pod_cidr, "podCIDRs": [self.facts.pod_cidr]}
        if self.facts.taints:
            spec["taints"] = list(self.facts.taints)
        return {
            "apiVersion": NODE.api_version,
            "kind": NODE.kind,
            "metadata": {
                "name": self.node_name,
                "labels": dict(self._labels()),
                "annotations": {
                    "volumes.kubernetes.io/controller-managed-attach-detach": "true",
                    **self.facts.annotations,
                },
            },
            "spec": spec,
        }

    def _conditions(self, now: str) -> list[dict[str, str]]:
        calm = [
            ("MemoryPressure", "KubeletHasSufficientMemory", "kubelet has sufficient memory available"),
            ("DiskPressure", "KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
            ("PIDPressure", "KubeletHasSufficientPID", "kubelet has sufficient PID available"),
        ]
        conditions = [_condition(kind, "False", reason, text, now, self._ready_since) for kind, reason, text in calm]
        ready = ("KubeletReady", "kubelet is posting ready status")
        return [*conditions, _condition("Ready", "True", *ready, now, self._ready_since)]

    def _status(self) -> dict[str, Any]:
        now = format_time(datetime.fromtimestamp(self.clock.now(), UTC))
        self._ready_since = self._ready_since or now
        conditions = self._conditions(now)
        arch = self._labels()["kubernetes.io/arch"]
        capacity, allocatable = self._amounts()
        status: dict[str, Any] = {
            "capacity": capacity,
            "allocatable": allocatable,
            "conditions": conditions,
            "addresses": [
                {"type": "InternalIP", "address": self.facts.host_ip},
                {"type": "Hostname", "address": self.node_name},
            ],
            "daemonEndpoints": {"kubeletEndpoint": {"Port": 10250}},
            "nodeInfo": {
                "architecture": arch,
                "bootID": self.facts.boot_id,
                "containerRuntimeVersion": f"simulated://{__version__}",
                "kernelVersion": platform.release(),
                "kubeProxyVersion": "",
                "kubeletVersion": self.facts.kubelet_version,
                "machineID": self.node_name,
                "operatingSystem": "linux",
                "osImage": "Dragoman simulated node",
                "systemUUID": self.node_name,
            },
        }
        if self.facts.declared_features:
            status["declaredFeatures"] = sorted(self.facts.declared_features)
        return status


def _condition(kind: str, status: str, reason: str, message: str, now: str, since: str) -> dict[str, str]:
    return {
        "type": kind,
        "status": status,
        "reason": reason,
        "message": message,
        "lastHeartbeatTime": now,
        "lastTransitionTime": since,
    }


def checked_name(node_name: str) -> str:
    """The name, if a node can have it. Raises Invalid."""
    if not node_name or "/" in node_name or len(node_name) > 253:
        raise Invalid("node name", f"must be a DNS subdomain, got {node_name!r}")
    return node_name
