"""How does an MPS control daemon come and go? A Deployment of one pod on the node, for one group of devices of a claim.

    daemon = daemon_for(claim_uid, uuids, config, where)
    await daemons.start(daemon); ...; await daemons.stop(daemon.id)

`Daemons` writes to the API and waits; what the daemon is sent is pure. Source: NVIDIA's MPS documentation, and the
driver's (folders, names, environment).
"""

from __future__ import annotations

import asyncio
import hashlib
import shutil
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec

from dragoman.api.kinds import kind_of
from dragoman.cluster.client import Client
from dragoman.drivers.nvidia.config import MpsConfig, memory_limits
from dragoman.drivers.nvidia.hardware import Hardware
from dragoman.drivers.nvidia.images import MPS_IMAGE as IMAGE
from dragoman.drivers.nvidia.images import MPS_NAMESPACE as NAMESPACE
from dragoman.errors import NotFound, Retry, Stale
from dragoman.node.driver import NotYet
from dragoman.runtime.clock import Clock
from dragoman.runtime.entropy import Entropy

DEPLOYMENT = kind_of("Deployment")
FIRST_LOOK_S = 0.2
"""A daemon of a simulated node is there at once; a real one takes seconds, or minutes while its image is pulled."""
LOOK_AGAIN_S = 2.0
DRIVER_ROOT = "/driver-root"
"""Where the daemon's container has the host's folder with the kernel driver's files, into which it changes its root."""


class Daemon(msgspec.Struct, frozen=True):
    """A control daemon. commands: lines fed to it once it runs."""

    id: str
    uuids: tuple[str, ...]
    commands: tuple[str, ...] = ()
    multi_user: bool = False

    @property
    def name(self) -> str:
        """Of its Deployment."""
        return f"mps-control-daemon-{self.id}"


def daemon_for(claim_uid: str, uuids: Sequence[str], config: MpsConfig, where: str) -> Daemon:
    """The daemon of a group of devices. Raises Invalid for limits that name no device."""
    ordered = tuple(sorted(uuids))
    digest = hashlib.sha256(",".join(ordered).encode()).hexdigest()[:5]
    commands = []
    if config.default_active_thread_percentage is not None:
        commands.append(f"set_default_active_thread_percentage {config.default_active_thread_percentage}")
    limits = memory_limits(config, ordered, f"{where}.sharing.mpsConfig")
    commands += [f"set_default_device_pinned_mem_limit {device} {limit}" for device, limit in sorted(limits.items())]
    return Daemon(f"{claim_uid}-{digest}", ordered, tuple(commands), config.multi_user)


class Folders(msgspec.Struct, frozen=True):
    """A daemon's folders on the host."""

    root: Path

    @property
    def pipe(self) -> str:
        """Where clients find the daemon."""
        return str(self.root / "pipe")

    @property
    def shm(self) -> str:
        """Its shared memory."""
        return str(self.root / "shm")

    @property
    def log(self) -> str:
        """Its log."""
        return str(self.root / "log")


def script(daemon: Daemon) -> str:
    """What the daemon's container runs."""
    flag = " -M" if daemon.multi_user else ""
    feed = [f"echo {line} | nvidia-cuda-mps-control" for line in daemon.commands]
    log = "$CUDA_MPS_LOG_DIRECTORY"
    lines = [f"nvidia-cuda-mps-control -d{flag}", *feed, f'echo started > "{log}/startup.log"']
    return "\n".join(["set -e", *lines, f'exec tail -n +1 -f "{log}/control.log"'])


def deployment(
    daemon: Daemon, folders: Folders, node_name: str, namespace: str, driver_root: str, image: str = IMAGE
) -> dict[str, Any]:
    """The Deployment, as JSON.

    The daemon runs with the driver's root as its own, so its folders are mounted inside of that, by the names that they
    have on the host.
    """
    labels = {"app": "mps-control-daemon", "dragoman.dev/mps": daemon.id[-40:].strip("-")}
    mounts = [
        {"name": "root", "mountPath": DRIVER_ROOT, "mountPropagation": "HostToContainer"},
        {"name": "pipe", "mountPath": DRIVER_ROOT + folders.pipe},
        {"name": "shm", "mountPath": f"{DRIVER_ROOT}/dev/shm"},  # noqa: S108 - a path in the container
        {"name": "log", "mountPath": DRIVER_ROOT + folders.log},
    ]
    started = ["cat", f"{DRIVER_ROOT}{folders.log}/startup.log"]
    probe = {"exec": {"command": started}, "periodSeconds": 1, "failureThreshold": 30}
    container = {
        "name": "mps-control-daemon",
        "image": image,
        "command": ["chroot", DRIVER_ROOT, "sh", "-c", script(daemon)],
        "env": [
            {"name": "CUDA_VISIBLE_DEVICES", "value": ",".join(daemon.uuids)},
            {"name": "CUDA_MPS_PIPE_DIRECTORY", "value": folders.pipe},
            {"name": "CUDA_MPS_LOG_DIRECTORY", "value": folders.log},
        ],
        "securityContext": {"privileged": True},
        "startupProbe": probe,
        "volumeMounts": mounts,
    }
    hosts = {"root": driver_root, "pipe": folders.pipe, "shm": folders.shm, "log": folders.log}
    pod = {
        "nodeName": node_name,
        "hostPID": True,
        "containers": [container],
        "volumes": [{"name": name, "hostPath": {"path": path}} for name, path in hosts.items()],
        "tolerations": [{"operator": "Exists"}],
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": daemon.name, "namespace": namespace, "labels": labels},
        "spec": {
            "replicas": 1,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": pod},
        },
    }


def stood_in(body: dict[str, Any], folders: Folders) -> dict[str, Any]:
    """The Deployment where GPUs are simulated: something that starts as a daemon does, and serves nobody."""
    (container,) = body["spec"]["template"]["spec"]["containers"]
    log = DRIVER_ROOT + folders.log
    real = container["command"][-1].replace("\n", "\n# ")
    text = f"# simulated, in place of:\n# {real}\necho started > {log}/startup.log\nexec sleep infinity"
    container["command"] = ["sh", "-c", text]
    return body


class Daemons:
    """The MPS daemons of one node. root: the folder that holds each daemon's folders. simulated: so are the GPUs."""

    def __init__(
        self,
        client: Client,
        clock: Clock,
        entropy: Entropy,
        hardware: Hardware,
        *,
        node_name: str,
        root: Path,
        namespace: str = NAMESPACE,
        driver_root: str = "/",
        image: str = IMAGE,
        simulated: bool = False,
    ) -> None:
        self.simulated = simulated
        self.client = client
        self.clock = clock
        self.entropy = entropy
        self.hardware = hardware
        self.node_name = node_name
        self.root = root
        self.namespace = namespace
        self.driver_root = driver_root
        self.image = image
        self._first_looks: set[str] = set()

    def folders(self, daemon_id: str) -> Folders:
        """Where that daemon's files lie."""
        return Folders(self.root / daemon_id)

    async def start(self, daemon: Daemon) -> None:
        """Create its Deployment; NotYet until it is ready, which is to be asked again. Raises as Client does."""
        folders = self.folders(daemon.id)
        await asyncio.to_thread(self._make, folders)
        body = deployment(daemon, folders, self.node_name, self.namespace, self.driver_root, self.image)
        if self.simulated:
            body = stood_in(body, folders)
        try:
            await self._ensure_namespace()
            await self.client.create(DEPLOYMENT, body, self.namespace)
        except Stale:
            pass  # there already: an earlier attempt came this far
        await self._ready(daemon)

    def _make(self, folders: Folders) -> None:
        for path in (folders.pipe, folders.shm, folders.log):
            Path(path).mkdir(parents=True, exist_ok=True)
        self.hardware.mount_shm(folders.shm)

    def _remove(self, folders: Folders) -> None:
        self.hardware.unmount_shm(folders.shm)
        shutil.rmtree(folders.root, ignore_errors=True)

    async def _ensure_namespace(self) -> None:
        kind = kind_of("Namespace")
        try:
            await self.client.get(kind, self.namespace)
        except NotFound:
            body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": self.namespace}}
            await self.client.create(kind, body)

    async def _ready(self, daemon: Daemon) -> None:
        if daemon.id not in self._first_looks:
            self._first_looks.add(daemon.id)
            await self.clock.sleep(FIRST_LOOK_S)
        found = await self.client.get(DEPLOYMENT, daemon.name, self.namespace)
        if found["metadata"].get("deletionTimestamp"):
            raise Retry(f"MPS control daemon {self.namespace}/{daemon.name} of before is still ending")
        if (found.get("status") or {}).get("readyReplicas", 0) < 1:
            raise NotYet(f"MPS control daemon {self.namespace}/{daemon.name} is not ready yet", after_s=LOOK_AGAIN_S)
        self._first_looks.discard(daemon.id)

    async def stop(self, daemon_id: str) -> None:
        """Delete its Deployment and folders; nothing to do when they are gone. Raises as Client does."""
        self._first_looks.discard(daemon_id)
        with suppress(NotFound):
            await self.client.delete(
                DEPLOYMENT, f"mps-control-daemon-{daemon_id}", self.namespace, propagation="Foreground"
            )
        await asyncio.to_thread(self._remove, self.folders(daemon_id))
