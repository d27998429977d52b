"""Which container holds which devices, for monitoring agents on the node? The podresources service (KEP-3695).

Reads what is prepared and answers; it decides nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import grpc
from grpc import aio

from dragoman.errors import NotFound
from dragoman.kubelet.claims import Claims
from dragoman.kubelet.plugin_devices import PluginDevices
from dragoman.kubelet.pod import KubeletContainer, KubeletPod, NotResolved, requests_of
from dragoman.node import rpc
from dragoman.runtime.clock import Clock

SOCKET = Path("pod-resources") / "kubelet.sock"
RATE = 100.0
BURST = 10.0


class PodResources:
    """The service of one node; `pods()` are the pods that have not finished."""

    def __init__(
        self, claims: Claims, devices: PluginDevices, clock: Clock, pods: Callable[[], Iterable[KubeletPod]]
    ) -> None:
        self.claims = claims
        self.devices = devices
        self.clock = clock
        self.pods = pods
        self._tokens = BURST
        self._filled = clock.monotonic()

    async def serve(self, root_dir: Path) -> aio.Server:
        """Serve below the kubelet's folder. Raises Invalid, Retry."""
        served = {"List": self._list, "GetAllocatableResources": self._allocatable, "Get": self._get}
        # One server with two sockets: a thousand nodes fit in a process.
        handlers = [rpc.handlers(rpc.POD_RESOURCES, served), self.devices.handlers()]
        return await rpc.serve(root_dir / SOCKET, handlers, self.devices.socket)

    async def _list(self, request: Any, context: Any) -> Any:
        await self._limit(context)
        answer = rpc.POD_RESOURCES.messages.ListPodResourcesResponse()
        for pod in self.pods():
            self._fill(answer.pod_resources.add(), pod)
        return answer

    async def _get(self, request: Any, context: Any) -> Any:
        await self._limit(context)
        answer = rpc.POD_RESOURCES.messages.GetPodResourcesResponse()
        for pod in self.pods():
            if (pod.metadata.name, pod.metadata.namespace) == (request.pod_name, request.pod_namespace):
                self._fill(answer.pod_resources, pod)
                return answer
        missing = f"pod {request.pod_name} in namespace {request.pod_namespace} not found"
        await context.abort(grpc.StatusCode.UNKNOWN, missing)
        return answer

    async def _allocatable(self, request: Any, context: Any) -> Any:
        await self._limit(context)
        # DRA devices are published in ResourceSlices, not here.
        answer = rpc.POD_RESOURCES.messages.AllocatableResourcesResponse()
        for resource, device in self.devices.listed():
            _add_device(answer.devices.add(), resource, device.id, device.numa)
        return answer

    async def _limit(self, context: Any) -> None:
        now = self.clock.monotonic()
        self._tokens = min(BURST, self._tokens + (now - self._filled) * RATE)
        self._filled = now
        if self._tokens < 1.0:
            await context.abort(
                grpc.StatusCode.RESOURCE_EXHAUSTED, f"rejected by rate limit of {RATE:g} requests a second"
            )
        self._tokens -= 1.0

    def _fill(self, entry: Any, pod: KubeletPod) -> None:
        entry.name = pod.metadata.name
        entry.namespace = pod.metadata.namespace
        sidecars = [container for container in pod.spec.init_containers if container.is_sidecar]
        for container in (*sidecars, *pod.spec.containers):
            self._fill_container(entry.containers.add(), pod, container)

    def _fill_container(self, entry: Any, pod: KubeletPod, container: KubeletContainer) -> None:
        entry.name = container.name
        for held in self.devices.entries(pod.uid, container.name):
            for id_ in sorted(held.devices):
                _add_device(entry.devices.add(), held.resource_name, id_, held.numa_of(id_))
        try:
            claims = dict.fromkeys(claim for claim, _ in requests_of(pod, container))
        except NotResolved:
            return
        namespace = pod.metadata.namespace
        for claim in claims:
            try:
                devices = self.claims.devices(namespace, claim, "")
            except NotFound:
                continue
            if (namespace, claim) not in self.claims.states.prepared:
                continue
            dynamic = entry.dynamic_resources.add()
            dynamic.claim_name, dynamic.claim_namespace = claim, namespace
            for driver, device in devices:
                resource = dynamic.claim_resources.add()
                resource.driver_name, resource.pool_name, resource.device_name = driver, device.pool, device.device
                if device.share_id is not None:
                    resource.share_id = device.share_id
                for name in device.cdi_ids:
                    resource.cdi_devices.add().name = name


def _add_device(entry: Any, resource: str, device: str, numa: Iterable[int]) -> None:
    entry.resource_name = resource
    entry.device_ids.append(device)
    for number in numa:
        entry.topology.nodes.add(ID=number)
