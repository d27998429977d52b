"""How healthy are the devices, as pod status shows it? Streams of drivers, remembered until they time out.

KEP-4680: a device that is not reported in time is Unknown, and a driver's data ends with its stream. It evicts nobody.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from dragoman.errors import DragomanError
from dragoman.kubelet.claims import Claims
from dragoman.kubelet.connections import Connection
from dragoman.kubelet.pod import KubeletPod, NotResolved, wanted_claims
from dragoman.node.driver import DeviceHealth
from dragoman.node.files import write_atomically
from dragoman.runtime.clock import Clock
from dragoman.runtime.log import get

FILE = "dra_health_state"
TIMEOUT_S = 30
RETRY_S = 5.0
MESSAGE_MAX = 1024


class _Device(msgspec.Struct, rename="pascal"):
    pool_name: str
    device_name: str
    health: str
    last_updated: float
    health_check_timeout: int
    message: str = ""


class _Driver(msgspec.Struct, rename="pascal"):
    devices: dict[str, _Device] = {}


class Health:
    """Device health of one node. `changed(pod uids)` is called when pods have to show something else."""

    def __init__(
        self, path: Path, clock: Clock, claims: Claims, changed: Callable[[set[str]], None], *, node_name: str
    ) -> None:
        self.path = path
        self.clock = clock
        self.claims = claims
        self._changed = changed
        self._drivers: dict[str, _Driver] = {}
        self._log = get("kubelet", node=node_name)

    def load(self) -> None:
        """Read what was known; what cannot be read is not known."""
        try:
            self._drivers = msgspec.json.decode(self.path.read_bytes(), type=dict[str, _Driver])
        except (FileNotFoundError, msgspec.MsgspecError):
            self._drivers = {}

    async def follow(self, connection: Connection) -> None:
        """Follow an instance's stream, again 5 s after it ends, for ever."""
        while True:
            try:
                async for devices in connection.health():
                    self._receive(connection.driver, devices)
            except DragomanError as error:
                self._log.debug("health stream ended", driver=connection.driver, error=str(error))
            self._clear(connection.driver)
            await self.clock.sleep(RETRY_S)

    def health(self, driver: str, pool: str, device: str) -> tuple[str, str]:
        """(Healthy, Unhealthy or Unknown; message)."""
        known = self._drivers.get(driver, _Driver()).devices.get(f"{pool}/{device}")
        if known is None or self.clock.now() - known.last_updated > known.health_check_timeout:
            return "Unknown", ""
        return known.health, known.message

    def statuses(self, pod: KubeletPod) -> dict[str, list[dict[str, Any]]]:
        """allocatedResourcesStatus by container; Unknown where no driver reports."""
        try:
            entries = {wanted.entry: wanted.claim for wanted in wanted_claims(pod) if wanted.entry}
        except NotResolved:
            return {}
        found: dict[str, list[dict[str, Any]]] = {}
        for container in pod.spec.containers:
            lists = []
            for named in container.resources.claims:
                if named.name in entries:
                    resources = self._resources(pod.metadata.namespace, entries[named.name], named.request)
                    name = f"claim:{named.name}" + (f"/{named.request}" if named.request else "")
                    if resources:
                        lists.append({"name": name, "resources": resources})
            if lists:
                found[container.name] = lists
        return found

    def _resources(self, namespace: str, claim: str, request: str) -> list[dict[str, Any]]:
        try:
            devices = self.claims.devices(namespace, claim, request)
        except DragomanError:
            return []
        resources: dict[str, dict[str, Any]] = {}
        for driver, device in devices:
            name = device.cdi_ids[0] if device.cdi_ids else f"{driver}/{device.pool}/{device.device}"
            health, message = self.health(driver, device.pool, device.device)
            entry = {"resourceID": name, "health": health}
            if message:
                entry["message"] = message
            resources.setdefault(name, entry)
        return list(resources.values())

    def _receive(self, driver: str, devices: Sequence[DeviceHealth]) -> None:
        now = self.clock.now()
        known = self._drivers.setdefault(driver, _Driver())
        changed: list[_Device] = []
        listed = set()
        for device in devices:
            key = f"{device.pool}/{device.device}"
            listed.add(key)
            timeout = device.timeout_s if device.timeout_s > 0 else TIMEOUT_S
            fresh = _Device(device.pool, device.device, device.health, now, timeout, _short(device.message))
            old = known.devices.get(key)
            if old is None or _said(old) != _said(fresh) or now - old.last_updated > old.health_check_timeout:
                changed.append(fresh)
            known.devices[key] = fresh
        for key, old in known.devices.items():
            silent = now - old.last_updated > old.health_check_timeout
            if key not in listed and silent and old.health != "Unknown":
                old.health, old.last_updated = "Unknown", now
                changed.append(old)
        self._report(driver, changed)

    def _clear(self, driver: str) -> None:
        gone = self._drivers.pop(driver, None)
        if gone:
            self._report(driver, list(gone.devices.values()))

    def _report(self, driver: str, devices: Sequence[_Device]) -> None:
        if not devices:
            return
        self.path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(self.path, msgspec.json.encode(self._drivers), durable=False)
        pods: set[str] = set()
        for device in devices:
            pods |= self.claims.pods_with(driver, device.pool_name, device.device_name)
        if pods:
            self._changed(pods)


def _said(device: _Device) -> tuple[str, int, str]:
    return device.health, device.health_check_timeout, device.message


def _short(message: str) -> str:
    data = message.encode()
    return message if len(data) <= MESSAGE_MAX else data[: MESSAGE_MAX - 3].decode(errors="ignore") + "..."
