"""Which devices of device plugins does a container get? What a kubelet's device manager does (API v1beta1).

Serves the registration of plugins, follows their lists, chooses devices when a pod is admitted, and remembers in its
checkpoint what it gave away, so that no device is given twice, also after kill -9. Node capacity and allocatable
follow from the lists. It starts no containers. Source: kubelet pkg/kubelet/cm/devicemanager.
"""

from __future__ import annotations

import asyncio
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import grpc
import msgspec
from grpc import aio

from dragoman.api.validate.others import is_extended_resource
from dragoman.errors import DragomanError, Invalid, Retry
from dragoman.kubelet import device_checkpoint
from dragoman.kubelet.device_checkpoint import NO_NUMA, DeviceEntry, DeviceRecord
from dragoman.kubelet.pod import KubeletContainer, KubeletPod
from dragoman.node import rpc
from dragoman.node.device_plugin import FOLDER, HEALTHY, KUBELET_SOCKET, VERSION, ContainerDevices, from_wire
from dragoman.runtime.clock import Clock, Timer
from dragoman.runtime.log import get
from dragoman.runtime.tasks import Tasks

STOP_GRACE_S = 300.0
"""The capacity of a resource stays so long after its last plugin went; allocatable is 0 at once."""
DIAL_TIMEOUT_S = 10.0
START_TIMEOUT_S = 30.0
ALLOCATE_TIMEOUT_S = 120.0
"""The kubelet sets none; a plugin that never answers must not hold a simulated node for ever."""
NANO = 10**9


class KnownDevice(msgspec.Struct, frozen=True):
    """A device as its plugin listed it last."""

    id: str
    healthy: bool
    numa: tuple[int, ...] = ()


class _Endpoint(msgspec.Struct):
    """A connected plugin."""

    resource: str
    socket: str
    channel: aio.Channel
    pre_start: bool = False
    prefers: bool = False
    task: asyncio.Task[None] | None = None


class _Resource(msgspec.Struct):
    """A resource: its plugins, newest last, and their devices. stopped_at: when the last one went, None while there."""

    devices: dict[str, KnownDevice] = {}
    endpoints: list[_Endpoint] = []
    stopped_at: float | None = None

    def healthy(self) -> set[str]:
        return {one.id for one in self.devices.values() if one.healthy} if self.endpoints else set()


class PluginDevices:
    """The device manager of one node. `changed` is called when capacity or allocatable changed, `unwell` with the uids
    of pods whose devices' health did. `active` are the uids of pods that have not ended."""

    def __init__(
        self,
        root_dir: Path,
        clock: Clock,
        *,
        node_name: str,
        durable: bool = True,
        changed: Callable[[], None] = lambda: None,
        unwell: Callable[[set[str]], None] = lambda uids: None,
        active: Callable[[], Iterable[str]] = lambda: (),
    ) -> None:
        self.folder = root_dir / FOLDER
        self.path = self.folder / device_checkpoint.FILE
        self.clock = clock
        self.durable = durable
        self._changed = changed
        self._unwell = unwell
        self._active = active
        self._resources: dict[str, _Resource] = {}
        self._entries: dict[tuple[str, str, str], DeviceEntry] = {}
        self._gone: set[str] = set()
        """Resources that were here: their capacity is 0, not absent."""
        self._timers: dict[str, Timer] = {}
        self._tasks: Tasks | None = None
        self._log = get("kubelet", node=node_name)

    # ---- life

    def load(self) -> None:
        """Read the checkpoint. One that cannot be trusted is reported, and no longer known: as a kubelet does."""
        try:
            record = device_checkpoint.read(self.path)
        except Invalid as error:
            self._log.warning("device allocations may not be up to date", error=str(error))
            return
        if record is None:
            return
        self._entries = {entry.key: entry for entry in record.pod_device_entries}
        now = self.clock.monotonic()
        # Capacity is 0 until the plugin has registered again.
        self._resources = {name: _Resource(stopped_at=now) for name in record.registered_devices}

    @property
    def is_new(self) -> bool:
        """Whether nothing was ever recorded here, as after the node was recreated."""
        return not self.path.exists()

    def start(self, tasks: Tasks) -> None:
        """Work as tasks of that group; sockets of plugins that registered with an earlier process are removed."""
        self._tasks = tasks
        if self.folder.is_dir():
            for path in self.folder.iterdir():
                if stat.S_ISSOCK(path.lstat().st_mode):
                    path.unlink(missing_ok=True)
        for name in self._resources:
            self._arm(name)

    def handlers(self) -> grpc.GenericRpcHandler:
        """The registration service, for the socket `socket`."""
        return rpc.handlers(rpc.DEVICE_REGISTRATION, {"Register": self._register})

    @property
    def socket(self) -> Path:
        """Where plugins register."""
        return self.folder / KUBELET_SOCKET

    async def stop(self) -> None:
        """Hang up on everybody."""
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
        for resource in self._resources.values():
            for endpoint in resource.endpoints:
                await endpoint.channel.close()

    # ---- plugins

    async def _register(self, request: Any, context: Any) -> Any:
        if request.version != VERSION:
            text = f'requested API version "{request.version}" is not supported by kubelet. '
            await context.abort(grpc.StatusCode.UNKNOWN, f'{text}Supported version is ["{VERSION}"]')
        if not is_extended_resource(request.resource_name):
            await context.abort(grpc.StatusCode.UNKNOWN, f'the ResourceName "{request.resource_name}" is invalid')
        try:
            await self._connect(request.resource_name, self.folder / request.endpoint)
        except (DragomanError, aio.AioRpcError) as error:
            text = error.details() if isinstance(error, aio.AioRpcError) else str(error)
            self._log.info("device plugin not connected", resource=request.resource_name, error=text)
            await context.abort(grpc.StatusCode.UNKNOWN, f"failed to dial device plugin: {text}")
        return rpc.DEVICE_REGISTRATION.messages.Empty()

    async def _connect(self, name: str, socket: Path) -> None:
        assert self._tasks is not None
        messages = rpc.DEVICE_PLUGIN.messages
        channel = rpc.dial(socket)
        try:
            options = await rpc.call(
                channel, rpc.DEVICE_PLUGIN, "GetDevicePluginOptions", messages.Empty(), timeout_s=DIAL_TIMEOUT_S
            )
        except BaseException:
            await channel.close()
            raise
        resource = self._resources.setdefault(name, _Resource())
        for old in [endpoint for endpoint in resource.endpoints if endpoint.socket == str(socket)]:
            # The plugin has recreated its socket, and its stream has not ended yet.
            self._disconnect(old)
        resource = self._resources.setdefault(name, resource)
        endpoint = _Endpoint(
            name, str(socket), channel, options.pre_start_required, options.get_preferred_allocation_available
        )
        resource.endpoints.append(endpoint)
        resource.stopped_at = None
        self._gone.discard(name)
        if timer := self._timers.pop(name, None):
            timer.cancel()
        self._log.info("device plugin registered", resource=name, socket=str(socket))
        endpoint.task = self._tasks.start(f"devices of {name}", self._follow(endpoint))

    async def _follow(self, endpoint: _Endpoint) -> None:
        request = rpc.DEVICE_PLUGIN.messages.Empty()
        try:
            async for listed in rpc.stream(endpoint.channel, rpc.DEVICE_PLUGIN, "ListAndWatch", request):
                self._received(endpoint, listed.devices)
        except aio.AioRpcError as error:
            self._log.info("device plugin ended its list", resource=endpoint.resource, error=error.details())
        self._disconnect(endpoint)

    def _received(self, endpoint: _Endpoint, devices: Iterable[Any]) -> None:
        resource = self._resources.get(endpoint.resource)
        if resource is None or endpoint not in resource.endpoints:
            return
        before = resource.devices
        resource.devices = {
            one.ID: KnownDevice(one.ID, one.health == HEALTHY, tuple(node.ID for node in one.topology.nodes))
            for one in devices
        }
        self._save()
        self._changed()
        new = resource.devices
        turned = {one for one in new if one not in before or before[one].healthy != new[one].healthy}
        self._tell(endpoint.resource, turned)

    def _tell(self, name: str, devices: set[str]) -> None:
        pods = {e.pod_uid for e in self._entries.values() if e.resource_name == name and e.devices & devices}
        if pods:
            self._unwell(pods)

    def _disconnect(self, endpoint: _Endpoint) -> None:
        assert self._tasks is not None
        resource = self._resources.get(endpoint.resource)
        if resource is None or endpoint not in resource.endpoints:
            return
        resource.endpoints.remove(endpoint)
        if endpoint.task is not None and endpoint.task is not asyncio.current_task():
            endpoint.task.cancel()
        if not self._tasks.ending:
            self._tasks.start(f"hang up on {endpoint.resource}", endpoint.channel.close())
        if not resource.endpoints:
            resource.stopped_at = self.clock.monotonic()
            self._arm(endpoint.resource)
            self._log.info("last device plugin of a resource is gone", resource=endpoint.resource)
        self._changed()

    def _arm(self, name: str) -> None:
        if old := self._timers.pop(name, None):
            old.cancel()
        self._timers[name] = self.clock.call_later(STOP_GRACE_S, lambda: self._forget(name))

    def _forget(self, name: str) -> None:
        """The grace time of a resource without a plugin is over."""
        self._timers.pop(name, None)
        resource = self._resources.get(name)
        if resource is not None and not resource.endpoints:
            del self._resources[name]
            self._gone.add(name)
            self._save()
            self._changed()

    # ---- what the node says

    def capacity(self) -> dict[str, int]:
        """All devices by resource; 0 for resources that are gone."""
        return dict.fromkeys(self._gone, 0) | {name: len(one.devices) for name, one in self._resources.items()}

    def allocatable(self) -> dict[str, int]:
        """Healthy devices by resource."""
        return dict.fromkeys(self._gone, 0) | {name: len(one.healthy()) for name, one in self._resources.items()}

    def reset(self, names: Iterable[str]) -> None:
        """Resources that the Node has from an earlier life of this machine: 0 until a plugin registers."""
        self._gone |= {name for name in names if name not in self._resources}

    def listed(self) -> Iterator[tuple[str, KnownDevice]]:
        """(resource, device) of all healthy devices."""
        for name, resource in sorted(self._resources.items()):
            healthy = resource.healthy()
            yield from ((name, one) for id_, one in sorted(resource.devices.items()) if id_ in healthy)

    # ---- allocating

    def serves(self, resource: str) -> bool:
        """Whether a device plugin does, or did for a pod that is here."""
        return resource in self._resources or any(entry.resource_name == resource for entry in self._entries.values())

    def wanted(self, pod: KubeletPod, container: KubeletContainer) -> dict[str, int]:
        """Devices that the container gets from plugins, by resource; what DRA serves for it is not among them."""
        status = pod.status.extended_resource_claim_status
        by_claim = {
            mapping.resource_name
            for mapping in (status.request_mappings if status else ())
            if mapping.container_name == container.name
        }
        return {
            name: amount.nanos // NANO
            for name, amount in container.resources.limits.items()
            if amount.nanos and name not in by_claim and self.serves(name)
        }

    def needs(self, pod: KubeletPod) -> bool:
        """Whether any container of the pod gets devices from plugins."""
        return any(self.wanted(pod, container) for container in _all(pod))

    async def allocate(self, pod: KubeletPod) -> None:
        """Choose devices for all containers of the pod, and ask the plugins. Raises Retry: why it cannot be.

        One pod at a time: who calls sees to it.
        """
        self.tidy({pod.uid})
        reusable: dict[str, set[str]] = {}
        init = {container.name for container in pod.spec.init_containers}
        for container in (*pod.spec.init_containers, *pod.spec.containers):
            for name, count in sorted(self.wanted(pod, container).items()):
                pool = reusable.setdefault(name, set())
                entry = await self._allocate(pod.uid, container.name, name, count, pool)
                if container.name in init and not container.is_sidecar:
                    pool |= entry.devices  # it ends before the next one starts
                else:
                    pool -= entry.devices

    async def _allocate(self, uid: str, container: str, name: str, count: int, reusable: set[str]) -> DeviceEntry:
        known = self._entries.get((uid, container, name))
        resource = self._resources.get(name)
        if known is not None and len(known.devices) != count:
            had = len(known.devices)
            text = f'pod "{uid}" container "{container}" changed request for resource "{name}"'
            raise Retry(f"{text} from {had} to {count}")
        if resource is None:
            raise Retry(f"cannot allocate unregistered device {name}")
        healthy = resource.healthy()
        if not healthy:
            raise Retry(f"no healthy devices present; cannot allocate unhealthy devices {name}")
        if known is not None:
            if not known.devices <= healthy:
                raise Retry(
                    f"previously allocated devices are no longer healthy; cannot allocate unhealthy devices {name}"
                )
            return known
        chosen = await self._choose(resource, name, count, reusable, healthy)
        answer = await self._ask(resource, name, chosen)
        by_numa: dict[int, list[str]] = {}
        for one in chosen:
            device = resource.devices.get(one)
            for number in (device.numa if device else ()) or (NO_NUMA,):
                by_numa.setdefault(number, []).append(one)
        entry = DeviceEntry(uid, container, name, by_numa, device_checkpoint.answer_of(answer))
        self._entries[entry.key] = entry
        # On disk before any container starts: another process must know that the devices are in use.
        self._save()
        return entry

    async def _choose(
        self, resource: _Resource, name: str, count: int, reusable: set[str], healthy: set[str]
    ) -> list[str]:
        chosen = sorted(reusable)[:count]
        left = count - len(chosen)
        if not left:
            return chosen
        used = {one for e in self._entries.values() if e.resource_name == name for one in e.devices}
        available = healthy - used
        if len(available) < left:
            raise Retry(
                f"requested number of devices unavailable for {name}. Requested: {left}, Available: {len(available)}"
            )
        endpoint = resource.endpoints[-1]
        if endpoint.prefers:
            request = rpc.DEVICE_PLUGIN.messages.PreferredAllocationRequest()
            request.container_requests.add(
                available_deviceIDs=sorted(available | set(chosen)),
                must_include_deviceIDs=chosen,
                allocation_size=count,
            )
            try:
                answer = await self._call(endpoint, "GetPreferredAllocation", request, ALLOCATE_TIMEOUT_S)
            except aio.AioRpcError as error:
                raise Retry(f"device plugin GetPreferredAllocation rpc failed with err: {_text(error)}") from None
            for one in answer.container_responses[0].deviceIDs if answer.container_responses else ():
                if one in available and len(chosen) < count:
                    chosen.append(one)
                    available.discard(one)
        return [*chosen, *sorted(available)[: count - len(chosen)]]

    async def _ask(self, resource: _Resource, name: str, chosen: Sequence[str]) -> ContainerDevices:
        if not resource.endpoints:
            raise Retry(f"endpoint {name} has been stopped")
        request = rpc.DEVICE_PLUGIN.messages.AllocateRequest()
        request.container_requests.add(devices_ids=chosen)
        try:
            answer = await self._call(resource.endpoints[-1], "Allocate", request, ALLOCATE_TIMEOUT_S)
        except aio.AioRpcError as error:
            raise Retry(_text(error)) from None
        if not answer.container_responses:
            raise Retry("no containers return in allocation response")
        return from_wire(answer.container_responses[0])

    async def _call(self, endpoint: _Endpoint, method: str, request: Any, timeout_s: float) -> Any:
        return await rpc.call(endpoint.channel, rpc.DEVICE_PLUGIN, method, request, timeout_s=timeout_s)

    async def before_start(self, pod: KubeletPod, container: KubeletContainer) -> None:
        """Call PreStartContainer where a plugin wants it. Raises Retry with the kubelet's text."""
        for name in self.wanted(pod, container):
            resource = self._resources.get(name)
            if resource is None or not resource.endpoints:
                if resource is None:
                    raise Retry(f"endpoint not found in cache for a registered resource: {name}")
                continue
            endpoint = resource.endpoints[-1]
            if not endpoint.pre_start:
                continue
            entry = self._entries.get((pod.uid, container.name, name))
            if entry is None:
                raise Retry(
                    f"no devices found allocated in local cache for pod {pod.uid}, container {container.name}, "
                    f"resource {name}"
                )
            request = rpc.DEVICE_PLUGIN.messages.PreStartContainerRequest(devices_ids=sorted(entry.devices))
            try:
                await self._call(endpoint, "PreStartContainer", request, START_TIMEOUT_S)
            except aio.AioRpcError as error:
                raise Retry(f"device plugin PreStartContainer rpc failed with err: {_text(error)}") from None

    # ---- what was given

    def given(self, uid: str, container: str) -> ContainerDevices:
        """What a container has from all plugins; of settings that conflict the first one counts."""
        envs: dict[str, str] = {}
        mounts: dict[str, Any] = {}
        devices: dict[str, Any] = {}
        annotations: dict[str, str] = {}
        cdi: dict[str, None] = {}
        for entry in self.entries(uid, container):
            one = entry.given
            envs = one.envs | envs
            mounts = {mount.container_path: mount for mount in one.mounts} | mounts
            devices = {node.container_path: node for node in one.devices} | devices
            annotations = one.annotations | annotations
            cdi.update(dict.fromkeys(one.cdi_devices))
        return ContainerDevices(envs, tuple(mounts.values()), tuple(devices.values()), annotations, tuple(cdi))

    def entries(self, uid: str, container: str = "") -> list[DeviceEntry]:
        """What a pod has, or one of its containers."""
        return [
            entry
            for key, entry in sorted(self._entries.items())
            if entry.pod_uid == uid and container in ("", entry.container_name)
        ]

    def used(self) -> dict[str, int]:
        """Devices that pods have, by resource."""
        found: dict[str, set[str]] = {}
        for entry in self._entries.values():
            found.setdefault(entry.resource_name, set()).update(entry.devices)
        return {name: len(ids) for name, ids in found.items()}

    def health(self, pod: KubeletPod) -> Mapping[str, list[dict[str, Any]]]:
        """allocatedResourcesStatus by container (KEP-4680)."""
        found: dict[str, list[dict[str, Any]]] = {}
        for entry in self.entries(pod.uid):
            resource = self._resources.get(entry.resource_name)
            known = resource.devices if resource else {}
            resources = [
                {"resourceID": one, "health": "Healthy" if one not in known or known[one].healthy else "Unhealthy"}
                for one in sorted(entry.devices)
            ]
            found.setdefault(entry.container_name, []).append({"name": entry.resource_name, "resources": resources})
        return found

    def release(self, uid: str) -> None:
        """A pod is over: others may have its devices."""
        keys = [key for key in self._entries if key[0] == uid]
        for key in keys:
            del self._entries[key]
        if keys:
            self._save()

    def tidy(self, also: set[str]) -> None:
        """Free what pods have that are not active any more; also: uids that are."""
        active = {*self._active(), *also}
        for uid in {key[0] for key in self._entries} - active:
            self.release(uid)

    def _save(self) -> None:
        registered = {name: sorted(resource.healthy()) for name, resource in sorted(self._resources.items())}
        record = DeviceRecord([entry for _, entry in sorted(self._entries.items())], registered)
        device_checkpoint.write(self.path, record, durable=self.durable)


def _all(pod: KubeletPod) -> tuple[KubeletContainer, ...]:
    return (*pod.spec.init_containers, *pod.spec.containers)


def _text(error: aio.AioRpcError) -> str:
    code = "".join(word.capitalize() for word in error.code().name.split("_"))
    return f"rpc error: code = {code} desc = {error.details()}"
