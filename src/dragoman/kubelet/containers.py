"""What does a container get to see, and how long does it run? Its environment, devices, mounts, and its fate.

CDI edits of exactly the requests that the container names are applied here, as a runtime does it. It starts nothing.
"""

from __future__ import annotations

import hashlib
import re
import shlex
from collections.abc import Callable
from typing import Any

import msgspec

from dragoman.api import codec
from dragoman.api.kinds import kind_of
from dragoman.api.shape import Object
from dragoman.cluster.client import Client
from dragoman.errors import DragomanError, Invalid, NotFound
from dragoman.kubelet.cdi import CdiFolders
from dragoman.kubelet.claims import Claims
from dragoman.kubelet.pod import KubeletContainer, KubeletPod, NotResolved, requests_of
from dragoman.kubelet.runtime import ContainerRun
from dragoman.node.cdi import NO_EDITS, Edits
from dragoman.values.quantity import Quantity

JOB_RUN_S = 1.0
"""A Job's container that says nothing about its run time: long enough to be seen, short enough to wait for."""

_SLEEP = re.compile(r"\bsleep\s+(infinity|inf|\d+(?:\.\d+)?)([smhd]?)\b")
_EXIT = re.compile(r"(?:^|[;&|\n])\s*exit\s+(\d{1,3})\s*;?\s*$")
_TRUTH = re.compile(r"(?:\S*sh -c )?(?:/\S*/)?(?:true|(false))")
_FOREVER = re.compile(r"\bwhile\s+(true|:|\[)|\btail\s+(-\w+\s+)*-\w*f")
_VARIABLE = re.compile(r"\$(\$|\(([^)]*)\))")
_UNIT_S = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400}


class CannotStart(Exception):
    """Why a container cannot be created: a kubelet's waiting reason, and a message."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason
        self.message = message


class ContainerView(msgspec.Struct, frozen=True):
    """What the container sees."""

    env: dict[str, str]
    command: tuple[str, ...]
    edits: Edits
    cdi_ids: tuple[str, ...]


class Starter:
    """Works out starts for the containers of one node."""

    def __init__(self, client: Client, claims: Claims, folders: CdiFolders, *, node_name: str, host_ip: str) -> None:
        self.client = client
        self.claims = claims
        self.folders = folders
        self.node_name = node_name
        self.host_ip = host_ip

    async def run(
        self, pod: KubeletPod, container: KubeletContainer, attempt: int, streak: int, ip: str, now: float
    ) -> ContainerRun:
        """The run to start. Raises CannotStart."""
        seconds, exit_code = fate(pod, container)
        seen = await self._seen(pod, container, ip)
        return ContainerRun(
            id=container_id(pod.uid, container.name, attempt),
            name=container.name,
            image=container.image,
            attempt=attempt,
            started_at=now,
            ends_at=None if seconds is None else now + seconds,
            exit_code=exit_code,
            streak=streak,
            log=log_text(pod, container, seen, node_name=self.node_name, attempt=attempt),
        )

    async def _seen(self, pod: KubeletPod, container: KubeletContainer, ip: str) -> ContainerView:
        ids = self._cdi_ids(pod, container)
        try:
            edits = self.folders.edits(ids) if ids else NO_EDITS
        except Invalid as error:
            raise CannotStart("CreateContainerError", f"CDI device injection failed: {error.what}") from None
        env = await self._environment(pod, container, ip)
        for pair in edits.env:
            key, _, value = pair.partition("=")
            env[key] = value
        words = tuple(expand(word, env) for word in (*container.command, *container.args))
        return ContainerView(env, words, edits, ids)

    def _cdi_ids(self, pod: KubeletPod, container: KubeletContainer) -> tuple[str, ...]:
        ids: dict[str, None] = {}
        try:
            for claim, request in requests_of(pod, container):
                for _, device in self.claims.devices(pod.metadata.namespace, claim, request):
                    ids.update(dict.fromkeys(device.cdi_ids))
        except (NotResolved, NotFound) as error:
            raise CannotStart("CreateContainerConfigError", str(error)) from None
        return tuple(ids)

    # ---- environment

    async def _environment(self, pod: KubeletPod, container: KubeletContainer, ip: str) -> dict[str, str]:
        env: dict[str, str] = {"HOSTNAME": pod.metadata.name}
        for source in container.env_from:
            env.update(await self._from_object(pod, source))
        for variable in container.env:
            if variable.value_from is None:
                env[variable.name] = expand(variable.value, env)
            else:
                value = await self._value_from(pod, container, variable.value_from, ip)
                if value is not None:
                    env[variable.name] = value
        return env

    async def _from_object(self, pod: KubeletPod, source: Any) -> dict[str, str]:
        prefix = source.get("prefix", "")
        for field, kind in (("configMapRef", "ConfigMap"), ("secretRef", "Secret")):
            if reference := source.get(field):
                data = await self._data(pod, kind, reference)
                return {prefix + key: _shown(kind, reference["name"], key, value) for key, value in data.items()}
        return {}

    async def _value_from(self, pod: KubeletPod, container: KubeletContainer, source: Any, ip: str) -> str | None:
        if reference := source.get("fieldRef"):
            return self._field(pod, reference.get("fieldPath", ""), ip)
        if reference := source.get("resourceFieldRef"):
            return _resource(pod, container, reference)
        for field, kind in (("configMapKeyRef", "ConfigMap"), ("secretKeyRef", "Secret")):
            if reference := source.get(field):
                data = await self._data(pod, kind, reference)
                key = reference.get("key", "")
                if key in data:
                    return _shown(kind, reference["name"], key, data[key])
                if not reference.get("optional"):
                    raise CannotStart(
                        "CreateContainerConfigError",
                        f"couldn't find key {key} in {kind} {pod.metadata.namespace}/{reference['name']}",
                    )
        return None

    async def _data(self, pod: KubeletPod, kind: str, reference: Any) -> Object:
        try:
            found = await self.client.get(kind_of(kind), reference["name"], pod.metadata.namespace)
        except NotFound:
            if reference.get("optional"):
                return {}
            raise CannotStart("CreateContainerConfigError", f'{kind.lower()} "{reference["name"]}" not found') from None
        except DragomanError as error:
            raise CannotStart("CreateContainerConfigError", str(error)) from None
        return found.get("data") or {}

    def _field(self, pod: KubeletPod, path: str, ip: str) -> str:
        meta = pod.metadata
        known: dict[str, Callable[[], str]] = {
            "metadata.name": lambda: meta.name,
            "metadata.namespace": lambda: meta.namespace,
            "metadata.uid": lambda: meta.uid,
            "spec.nodeName": lambda: self.node_name,
            "spec.serviceAccountName": lambda: pod.spec.service_account_name or "default",
            "status.hostIP": lambda: self.host_ip,
            "status.hostIPs": lambda: self.host_ip,
            "status.podIP": lambda: ip,
            "status.podIPs": lambda: ip,
        }
        if path in known:
            return known[path]()
        for name, values in (("labels", meta.labels), ("annotations", meta.annotations)):
            if match := re.fullmatch(rf"metadata\.{name}\['([^']+)'\]", path):
                return values.get(match[1], "")
        raise CannotStart("CreateContainerConfigError", f"unsupported fieldPath: {path}")


def _resource(pod: KubeletPod, container: KubeletContainer, reference: Any) -> str:
    named = reference.get("containerName") or container.name
    everybody = (*pod.spec.init_containers, *pod.spec.containers)
    target = next((c for c in everybody if c.name == named), container)
    where, _, resource = reference.get("resource", "").partition(".")
    amount = getattr(target.resources, where, {}).get(resource) if where in ("limits", "requests") else None
    if amount is None:
        return "0"
    # The API server fills an absent divisor in as 0, which means 1.
    divisor = codec.decode(Quantity, reference.get("divisor") or "0").nanos or 10**9
    return str(-(-amount.nanos // divisor))


def _shown(kind: str, name: str, key: str, value: str) -> str:
    # Logs are read by more people than secrets are.
    return f"<{key} of secret {name}>" if kind == "Secret" else value


def expand(text: str, env: dict[str, str]) -> str:
    """$(NAME) by the environment; $$ is $, an unknown name stays as it is."""

    def replace(match: re.Match[str]) -> str:
        if match[1] == "$":
            return "$"
        return env.get(match[2], match[0])

    return _VARIABLE.sub(replace, text)


def container_id(pod_uid: str, name: str, attempt: int) -> str:
    """An id as runtimes have it: 64 hexadecimal digits."""
    return hashlib.sha256(f"{pod_uid}/{name}/{attempt}".encode()).hexdigest()


# ---- run time and exit code


def fate(pod: KubeletPod, container: KubeletContainer) -> tuple[float | None, int]:
    """(seconds until it ends by itself or None, exit code). Raises CannotStart for annotations that say nothing.

    `dragoman.dev/run-seconds` and `dragoman.dev/exit-code` (each also with `.<container>`) come first, then what the
    command says (`sleep 5`, a last `exit 3`, `true` or `false` alone), then: init containers end at once, a Job's
    after a second, others never.
    """
    init = any(c.name == container.name for c in pod.spec.init_containers) and not container.is_sidecar
    command = " ".join((*container.command, *container.args))
    said = _said(container, command)
    exit_code = _exit_code(pod, container, said or 0, init=init)
    text = pod.annotation("run-seconds", container.name)
    # The annotation without a container's name is about the pod's work, not about its preparation.
    if text[0] and (text[0].endswith(f".{container.name}") or not (init or container.is_sidecar)):
        return _seconds(*text), exit_code
    if _FOREVER.search(command):
        return None, exit_code
    if sleeps := _SLEEP.findall(command):
        total = 0.0
        for number, unit in sleeps:
            if number.startswith("inf"):
                return None, exit_code
            total += float(number) * _UNIT_S[unit]
        return total, exit_code
    if init or said is not None:
        return 0.0, exit_code
    owner = pod.metadata.controller
    if owner and owner.kind == "Job" and not container.is_sidecar:
        return JOB_RUN_S, exit_code
    # A container that is to fail has to end for that.
    return (JOB_RUN_S if exit_code else None), exit_code


def _said(container: KubeletContainer, command: str) -> int | None:
    """The exit code that the command itself tells."""
    if truth := _TRUTH.fullmatch(command):
        return 1 if truth[1] else 0
    script = (*container.command, *container.args)[-1:]
    last = _EXIT.search(script[0]) if script else None
    return int(last[1]) % 256 if last else None


def _exit_code(pod: KubeletPod, container: KubeletContainer, said: int, *, init: bool) -> int:
    key, text = pod.annotation("exit-code", container.name)
    if not key or (not key.endswith(f".{container.name}") and (init or container.is_sidecar)):
        return said
    if not text.isdecimal() or int(text) > 255:
        raise CannotStart("CreateContainerConfigError", f"annotation {key}: must be 0 to 255, got {text!r}")
    return int(text)


def _seconds(key: str, text: str) -> float | None:
    if text in ("infinity", "inf", "forever"):
        return None
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds < 1e9:
        raise CannotStart(
            "CreateContainerConfigError", f"annotation {key}: must be seconds such as 2.5, or infinity, got {text!r}"
        )
    return seconds


def stop_seconds(pod: KubeletPod, container: str) -> float:
    """How long the container takes to react to SIGTERM: `dragoman.dev/stop-seconds`, else no time."""
    key, text = pod.annotation("stop-seconds", container)
    if not key:
        return 0.0
    try:
        return max(0.0, float(text))
    except ValueError:
        return 0.0


# ---- logs


def log_text(pod: KubeletPod, container: KubeletContainer, seen: ContainerView, *, node_name: str, attempt: int) -> str:
    """What `kubectl logs` shows: all that a process in the container would find."""
    meta = pod.metadata
    lines = [
        f"simulated container {container.name} of pod {meta.namespace}/{meta.name} on node {node_name}",
        f"run: {attempt + 1}",
        f"image: {container.image}",
        f"command: {shlex.join(seen.command) if seen.command else '(of the image)'}",
    ]
    lines += _block("environment", [f"{key}={value}" for key, value in sorted(seen.env.items())])
    lines += _block("CDI devices", seen.cdi_ids)
    nodes = [
        node.path
        + (f" (host {node.host_path})" if node.host_path else "")
        + (f" {node.permissions}" if node.permissions else "")
        for node in seen.edits.device_nodes
    ]
    lines += _block("device nodes", nodes)
    volumes = {volume.get("name"): volume for volume in pod.spec.volumes}
    mounts = []
    for mount in container.volume_mounts:
        kind = _volume_kind(volumes.get(mount.name))
        mounts.append(f"{mount.mount_path} from volume {mount.name} ({kind}){', read-only' if mount.read_only else ''}")
    for added in seen.edits.mounts:
        options = f" ({','.join(added.options)})" if added.options else ""
        mounts.append(f"{added.container_path} from {added.host_path}{options}")
    lines += _block("mounts", mounts)
    if seen.edits.hooks:
        lines += _block(
            "hooks", [f"{hook.hook_name} {shlex.join((hook.path, *hook.args[1:]))}" for hook in seen.edits.hooks]
        )
    if seen.edits.net_devices:
        lines += _block(
            "network devices", [f"{net.name} (host {net.host_interface_name})" for net in seen.edits.net_devices]
        )
    return "\n".join(lines) + "\n"


def _block(title: str, entries: Any) -> list[str]:
    if not entries:
        return [f"{title}: none"]
    return [f"{title}:", *(f"  {entry}" for entry in entries)]


def _volume_kind(volume: Any) -> str:
    kinds = [key for key in volume or {} if key != "name"]
    return kinds[0] if kinds else "unknown"
