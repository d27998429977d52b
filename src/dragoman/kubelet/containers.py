"""What does a container get to see, and how long does it run? Its environment, devices, mounts, and its fate.

CDI edits of exactly the requests that the container names are applied here, as a runtime does it. It starts nothing.
"""

from __future__ import annotations

import base64
import hashlib
import posixpath
import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, TypeAlias

import msgspec

from dragoman.api.kinds import kind_of
from dragoman.api.shape import Object
from dragoman.cluster.client import Client
from dragoman.errors import DragomanError, Invalid, NotFound, Retry
from dragoman.kubelet.cdi import CdiFolders
from dragoman.kubelet.claims import Claims
from dragoman.kubelet.injection import ContainerRequest, Injector
from dragoman.kubelet.plugin_devices import PluginDevices
from dragoman.kubelet.pod import KubeletContainer, KubeletPod, NotResolved, requests_of
from dragoman.kubelet.podnetwork import address_of
from dragoman.kubelet.processes import ADDRESS, ImageMap
from dragoman.kubelet.programs import Place, found, knows
from dragoman.kubelet.runtime import ContainerRun, Start
from dragoman.kubelet.shell.commands import seconds_of
from dragoman.kubelet.shell.files import Entry, FileMount, Folder
from dragoman.kubelet.shell.language import ShellProgram
from dragoman.kubelet.volumes import CannotMount, Volumes
from dragoman.node.cdi import NO_EDITS, DeviceNode, Edits, Mount, merged
from dragoman.node.device_plugin import ContainerDevices
from dragoman.node.driver import PreparedDevice
from dragoman.values.quantity import Quantity

Tool: TypeAlias = Callable[[tuple[tuple[str, "PreparedDevice"], ...]], ShellProgram | None]
"""Makes a program for a container with those (driver, device) pairs; None where it is not there."""
FROM_DRIVERS = frozenset({"nvidia-smi", "nvidia-ctk", "compute-domain-daemon", "nvidia-imex-ctl"})
"""Programs that come into containers with devices."""
JOB_RUN_S = 1.0
"""A Job's container that says nothing about its run time: long enough to be seen, short enough to wait for."""

_ONLY_SLEEP = re.compile(r"(?:\S*sh -c )?(?:exec )?(?:\S*/)?sleep (infinity|inf|\d+(?:\.\d+)?[smhd]?)\s*;?")
_PAUSE = re.compile(r"(?:^|/)pause(?:[:@-]|$)")
"""Images whose program does nothing but wait."""
_IMAGE = re.compile(
    r"(?:[A-Za-z0-9][A-Za-z0-9.-]*(?::\d+)?/)?[a-z0-9]+(?:[._-]+[a-z0-9]+)*(?:/[a-z0-9]+(?:[._-]+[a-z0-9]+)*)*"
    r"(?::[\w][\w.-]{0,127})?(?:@[A-Za-z][\w+.-]*:[0-9a-fA-F]{32,})?"
)
_VARIABLE = re.compile(r"\$(\$|\(([^)]*)\))")


class CannotStart(Exception):
    """Why a container cannot be created: a kubelet's waiting reason, and a message."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason
        self.message = message


def check_image(pod: KubeletPod, container: KubeletContainer) -> None:
    """Raise CannotStart for an image that has no valid name, or whose pull an annotation lets fail."""
    image = container.image
    if not _IMAGE.fullmatch(image):
        raise CannotStart(
            "InvalidImageName",
            f'Failed to apply default image tag "{image}": couldn\'t parse image name "{image}": '
            "invalid reference format",
        )
    key, text = pod.annotation("image-pull", container.name)
    if key and container.image_pull_policy == "Never":
        raise CannotStart("ErrImageNeverPull", f'Container image "{image}" is not present with pull policy of Never')
    if key:
        raise CannotStart("ErrImagePull", f'failed to pull and unpack image "{image}": {text or "not found"}')


class ContainerView(msgspec.Struct, frozen=True):
    """What the container sees. shown: the environment without secrets, for logs; words: the command with it.
    tools: programs that the node's runtime brings."""

    env: dict[str, str]
    command: tuple[str, ...]
    edits: Edits
    cdi_ids: tuple[str, ...]
    shown: dict[str, str]
    words: tuple[str, ...]
    tools: Mapping[str, ShellProgram] = {}


class Starter:
    """Works out starts for the containers of one node. tools: programs that drivers bring into containers, by name.
    images: those whose containers are processes of this machine, which find the API at api_port."""

    def __init__(
        self,
        client: Client,
        claims: Claims,
        folders: CdiFolders,
        *,
        node_name: str,
        host_ip: str,
        tools: Mapping[str, Tool] | None = None,
        images: ImageMap = ImageMap(),  # noqa: B008 - a value
        api_port: int = 0,
        allocatable: Mapping[str, str] | None = None,
        plugin_devices: PluginDevices | None = None,
        injectors: Sequence[Injector] = (),
    ) -> None:
        self.plugin_devices = plugin_devices
        self.injectors = injectors
        self.allocatable = allocatable or {}
        self.images = images
        self.api_port = api_port
        self.client = client
        self.claims = claims
        self.folders = folders
        self.node_name = node_name
        self.host_ip = host_ip
        self.tools: Mapping[str, Tool] = {} if tools is None else tools  # filled as drivers start
        self.volumes = Volumes(client, self._text_of)

    async def mount(self, pod: KubeletPod, now: float) -> None:
        """Set up the pod's volumes. Raises CannotMount."""
        await self.volumes.of(pod, now)

    async def run(
        self, pod: KubeletPod, container: KubeletContainer, attempt: int, streak: int, ip: str, now: float
    ) -> Start:
        """The run to start. Raises CannotStart."""
        check_image(pod, container)
        if self.plugin_devices is not None:
            try:
                await self.plugin_devices.before_start(pod, container)
            except Retry as error:
                raise CannotStart("CreateContainerConfigError", str(error)) from None
        seen = await self._seen(pod, container, ip)
        local = self._local(container, seen)
        fixed = None if local else fate(pod, container, seen.command)
        run = ContainerRun(
            id=container_id(pod.uid, container.name, attempt),
            name=container.name,
            image=container.image,
            attempt=attempt,
            started_at=now,
            streak=streak,
        )
        if fixed is None:
            start = await self._scripted(pod, container, seen, run, ip)
            if local:
                return self._as_process(pod, container, start, local)
            if not found(start.place, seen.command):
                run.scripted, run.ends_at, run.exit_code, run.reason = False, now, 128, "StartError"
                run.message = (
                    "failed to create containerd task: failed to create shim task: OCI runtime create failed: "
                    f'exec: "{seen.command[0]}": executable file not found in $PATH (simulated)'
                )
            return start
        seconds, run.exit_code = fixed
        run.ends_at = None if seconds is None else now + seconds
        run.say(now, log_text(pod, container, seen, node_name=self.node_name, attempt=attempt))
        return Start(run, self._place(pod, container, seen, ip, now), stdin=container.stdin)

    async def again(self, pod: KubeletPod, container: KubeletContainer, run: ContainerRun, ip: str) -> Start:
        """The start of a run that began before this process, so that its command can go on. Raises CannotStart."""
        seen = await self._seen(pod, container, ip)
        if not run.scripted:
            return Start(run, self._place(pod, container, seen, ip, run.started_at))
        run.log.clear()
        start = await self._scripted(pod, container, seen, run, ip)
        return self._as_process(pod, container, start, self._local(container, seen)) if run.local else start

    def _local(self, container: KubeletContainer, seen: ContainerView) -> tuple[str, ...]:
        """What runs as a process of this machine for a container; () where it is simulated."""
        count = len(container.command)
        return self.images.command(container.image, seen.command[:count], seen.command[count:]) or ()

    def _as_process(
        self, pod: KubeletPod, container: KubeletContainer, start: Start, command: tuple[str, ...]
    ) -> Start:
        limit = container.resources.limits.get("memory")
        start.own_network, start.api_port = self._has_own_network(pod), self.api_port
        start.run.local, start.command = True, command
        start.memory_bytes = limit.nanos // 10**9 if limit else 0
        start.place.env |= {"KUBERNETES_SERVICE_HOST": ADDRESS, "KUBERNETES_SERVICE_PORT": str(self.api_port)}
        return start

    def address(self, pod: KubeletPod, take: Callable[[str], str]) -> str:
        """The address of a pod whose containers are processes of this machine; "" for others. take: one of the node's
        range for a uid."""
        images = (container.image for container in (*pod.spec.init_containers, *pod.spec.containers))
        if not any(self.images.command(image, ("x",), ()) for image in images):
            return ""
        return address_of(take(pod.uid)) if self._has_own_network(pod) else ADDRESS

    def _has_own_network(self, pod: KubeletPod) -> bool:
        return self.images.own_network and not pod.spec.host_network

    async def _scripted(
        self, pod: KubeletPod, container: KubeletContainer, seen: ContainerView, run: ContainerRun, ip: str
    ) -> Start:
        run.scripted = True
        links = await self._service_links(pod)
        place = self._place(pod, container, seen, ip, run.started_at)
        place.env = {**links, **place.env}
        from_log = container.termination_message_policy == "FallbackToLogsOnError"
        init = any(c.name == container.name for c in pod.spec.init_containers) and not container.is_sidecar
        forced, exit_code = _exit_code(pod, container, init=init)
        return Start(run, place, seen.command, container.stdin, from_log, exit_code if forced else None)

    async def _service_links(self, pod: KubeletPod) -> dict[str, str]:
        env = {"KUBERNETES_SERVICE_HOST": "10.96.0.1", "KUBERNETES_SERVICE_PORT": "443"}
        if not pod.spec.enable_service_links:
            return env
        try:
            services = (await self.client.list(kind_of("Service"), pod.metadata.namespace)).items
        except DragomanError:
            return env
        for service in services:
            env |= _links(service)
        return env

    def _place(self, pod: KubeletPod, container: KubeletContainer, seen: ContainerView, ip: str, now: float) -> Place:
        try:
            mounts = self.volumes.mounts(pod, container, lambda text: expand(text, seen.env))
        except CannotMount as error:
            raise CannotStart("CreateContainerConfigError", str(error)) from None
        local = self.images.command(container.image, ("x",), ()) is not None
        own = any(mount.path == "/etc/hosts" for mount in mounts)
        # A process goes by the names of its machine, unless the pod names others.
        if not pod.spec.host_network and not own and (pod.spec.host_aliases or not local):
            mounts = (*mounts, self._hosts(pod, ip, now))
        contexts = (container.security_context or {}, pod.spec.security_context or {})
        user = next((context["runAsUser"] for context in contexts if context.get("runAsUser")), 0)
        devices = self._devices(pod, container)
        here = {name: made for name, tool in self.tools.items() if (made := tool(devices)) is not None}
        here |= seen.tools
        return Place(
            env=seen.env,
            hostname=seen.env["HOSTNAME"],
            ip=ip,
            cwd=container.working_dir,
            user=user,
            mounts=mounts,
            edits=seen.edits,
            tools=here,
            now=now,
            term_path=container.termination_message_path or "/dev/termination-log",
            read_only=bool((container.security_context or {}).get("readOnlyRootFilesystem")),
        )

    def _hosts(self, pod: KubeletPod, ip: str, now: float) -> FileMount:
        """/etc/hosts as kubelets write it."""
        name = pod.spec.hostname or pod.metadata.name
        if pod.spec.subdomain:
            name = f"{name}.{pod.spec.subdomain}.{pod.metadata.namespace}.svc.cluster.local\t{name}"
        lines = [
            "# Kubernetes-managed hosts file.",
            "127.0.0.1\tlocalhost",
            "::1\tlocalhost ip6-localhost ip6-loopback",
            "fe00::0\tip6-localnet",
            "fe00::0\tip6-mcastprefix",
            "fe00::1\tip6-allnodes",
            "fe00::2\tip6-allrouters",
            f"{ip}\t{name}",
        ]
        if pod.spec.host_aliases:
            lines += ["", "# Entries added by HostAliases."]
            lines += ["\t".join((alias.get("ip", ""), *alias.get("hostnames", ()))) for alias in pod.spec.host_aliases]
        folder = Folder(now=now)
        folder.put("hosts", Entry("file", ("\n".join(lines) + "\n").encode(), 0o644, now))
        return FileMount("/etc/hosts", folder, "hosts")

    def _devices(self, pod: KubeletPod, container: KubeletContainer) -> tuple[tuple[str, PreparedDevice], ...]:
        found: dict[tuple[str, str, str], tuple[str, PreparedDevice]] = {}
        with suppress(NotResolved, NotFound):
            for claim, request in requests_of(pod, container):
                for driver, device in self.claims.devices(pod.metadata.namespace, claim, request):
                    found[driver, device.pool, device.device] = (driver, device)
        return tuple(found.values())

    async def _seen(self, pod: KubeletPod, container: KubeletContainer, ip: str) -> ContainerView:
        plugged = self.plugin_devices.given(pod.uid, container.name) if self.plugin_devices else ContainerDevices()
        ids = tuple(dict.fromkeys((*self._cdi_ids(pod, container), *_cdi_names(plugged))))
        try:
            edits = self.folders.edits(ids) if ids else NO_EDITS
        except Invalid as error:
            raise CannotStart("CreateContainerError", f"CDI device injection failed: {error.what}") from None
        env, shown = await self._environment(pod, container, ip)
        for key, value in plugged.envs.items():
            env[key] = shown[key] = value
        if plugged.mounts or plugged.devices:
            edits = merged((_host_edits(plugged), edits))
        tools: dict[str, ShellProgram] = {}
        for injector in self.injectors:
            env = {**injector.image_env(container.image), **_image_env(pod, container), **env}
            shown = {**injector.image_env(container.image), **_image_env(pod, container), **shown}
            seen = dict(env) | dict(pair.partition("=")[::2] for pair in edits.env)
            try:
                injection = injector.inject(_runtime_view(pod, container, seen, edits, plugged))
            except Invalid as error:
                raise CannotStart("RunContainerError", str(error)) from None
            edits = merged((edits, injection.edits))
            tools |= injection.tools
        for pair in edits.env:
            key, _, value = pair.partition("=")
            env[key] = shown[key] = value
        given = (*container.command, *container.args)
        words = tuple(expand(word, env) for word in given)
        return ContainerView(env, words, edits, ids, shown, tuple(expand(word, shown) for word in given), tools)

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

    async def _environment(
        self, pod: KubeletPod, container: KubeletContainer, ip: str
    ) -> tuple[dict[str, str], dict[str, str]]:
        """The environment, and the same as logs may show it: they are read by more people than secrets are."""
        env: dict[str, str] = {"HOSTNAME": pod.spec.hostname or pod.metadata.name}
        shown = dict(env)
        for source in container.env_from:
            for key, value, text in await self._from_object(pod, source):
                env[key], shown[key] = value, text
        for variable in container.env:
            if variable.value_from is None:
                env[variable.name], shown[variable.name] = expand(variable.value, env), expand(variable.value, shown)
                continue
            value_text = await self._value_from(pod, container, variable.value_from, ip)
            if value_text is not None:
                env[variable.name], shown[variable.name] = value_text
        return env, shown

    async def _from_object(self, pod: KubeletPod, source: Any) -> list[tuple[str, str, str]]:
        prefix = source.get("prefix", "")
        for field, kind in (("configMapRef", "ConfigMap"), ("secretRef", "Secret")):
            if reference := source.get(field):
                data = await self._data(pod, kind, reference)
                name = reference["name"]
                return [(prefix + key, value, _shown(kind, name, key, value)) for key, value in data.items()]
        return []

    async def _value_from(
        self, pod: KubeletPod, container: KubeletContainer, source: Any, ip: str
    ) -> tuple[str, str] | None:
        if reference := source.get("fieldRef"):
            text = self._field(pod, reference.get("fieldPath", ""), ip)
            return text, text
        if reference := source.get("resourceFieldRef"):
            text = resource_text(pod, container, reference, self.allocatable)
            return text, text
        for field, kind in (("configMapKeyRef", "ConfigMap"), ("secretKeyRef", "Secret")):
            if reference := source.get(field):
                data = await self._data(pod, kind, reference)
                key = reference.get("key", "")
                if key in data:
                    return data[key], _shown(kind, reference["name"], key, data[key])
                if not reference.get("optional"):
                    raise CannotStart(
                        "CreateContainerConfigError",
                        f"couldn't find key {key} in {kind} {pod.metadata.namespace}/{reference['name']}",
                    )
        return None

    async def _data(self, pod: KubeletPod, kind: str, reference: Any) -> dict[str, str]:
        try:
            found = await self.client.get(kind_of(kind), reference["name"], pod.metadata.namespace)
        except NotFound:
            if reference.get("optional"):
                return {}
            raise CannotStart("CreateContainerConfigError", f'{kind.lower()} "{reference["name"]}" not found') from None
        except DragomanError as error:
            raise CannotStart("CreateContainerConfigError", str(error)) from None
        data: dict[str, str] = found.get("data") or {}
        if kind == "Secret":
            return {key: base64.b64decode(value).decode("utf-8", "replace") for key, value in data.items()}
        return data

    def _text_of(self, pod: KubeletPod, container: KubeletContainer | None, item: Any) -> str:
        """The text of an entry of a downward API volume."""
        if reference := item.get("resourceFieldRef"):
            return resource_text(pod, container or pod.spec.containers[0], reference, self.allocatable)
        path = (item.get("fieldRef") or {}).get("fieldPath", "")
        if path in ("metadata.labels", "metadata.annotations"):
            values = pod.metadata.labels if path.endswith("labels") else pod.metadata.annotations
            return "".join(f"{key}={msgspec.json.encode(text).decode()}\n" for key, text in sorted(values.items()))
        try:
            return self._field(pod, path, "")
        except CannotStart as error:
            raise NotFound(error.message) from None

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


# ---- device plugins and the node's runtime

CDI_ANNOTATION = "cdi.k8s.io/"


def _cdi_names(plugged: ContainerDevices) -> tuple[str, ...]:
    """CDI names that device plugins gave, by field or by annotation."""
    by_annotation = [
        name.strip()
        for key, text in plugged.annotations.items()
        if key.startswith(CDI_ANNOTATION)
        for name in text.split(",")
    ]
    return (*plugged.cdi_devices, *by_annotation)


def _host_edits(plugged: ContainerDevices) -> Edits:
    nodes = [
        DeviceNode(one.container_path, host_path=one.host_path, permissions=one.permissions) for one in plugged.devices
    ]
    mounts = [
        Mount(one.host_path, one.container_path, options=("ro" if one.read_only else "rw", "bind"))
        for one in plugged.mounts
    ]
    return Edits(device_nodes=tuple(nodes), mounts=tuple(mounts))


def _image_env(pod: KubeletPod, container: KubeletContainer) -> dict[str, str]:
    """What the image sets, by the annotation `dragoman.dev/image-env`: `NAME=value` with spaces between them."""
    key, text = pod.annotation("image-env", container.name)
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise CannotStart("CreateContainerConfigError", f"annotation {key}: {error}") from None
    if wrong := next((word for word in words if "=" not in word), ""):
        raise CannotStart("CreateContainerConfigError", f"annotation {key}: must be NAME=value ..., got {wrong!r}")
    return dict(word.partition("=")[::2] for word in words)


def _runtime_view(
    pod: KubeletPod, container: KubeletContainer, env: dict[str, str], edits: Edits, plugged: ContainerDevices
) -> ContainerRequest:
    context = container.security_context or {}
    added = (context.get("capabilities") or {}).get("add") or ()
    privileged = bool(context.get("privileged")) or bool({"SYS_ADMIN", "CAP_SYS_ADMIN", "ALL"} & set(added))
    return ContainerRequest(container.image, env, edits, plugged.mounts, privileged, pod.spec.runtime_class_name or "")


def resource_text(pod: KubeletPod, container: KubeletContainer, reference: Any, allocatable: Mapping[str, str]) -> str:
    """The text of a resourceFieldRef in whole divisors, rounded up. allocatable: of the node, for absent limits."""
    named = reference.get("containerName") or container.name
    everybody = (*pod.spec.init_containers, *pod.spec.containers)
    target = next((c for c in everybody if c.name == named), container)
    where, _, resource = reference.get("resource", "").partition(".")
    amount = getattr(target.resources, where, {}).get(resource) if where in ("limits", "requests") else None
    if amount is None and where == "limits" and resource in allocatable:
        # Who has no limit may use what the node has.
        amount = Quantity.parse(allocatable[resource])
    if amount is None:
        return "0"
    # The API server fills an absent divisor in as 0, which means 1.
    divisor = Quantity.parse(str(reference.get("divisor") or "0")).nanos or 10**9
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


def fate(pod: KubeletPod, container: KubeletContainer, command: Sequence[str] = ()) -> tuple[float | None, int] | None:
    """(seconds until it ends by itself or None, exit code); None: what its command does decides that.

    `dragoman.dev/run-seconds` and `dragoman.dev/exit-code` (each also with `.<container>`) come first; a command that
    only sleeps lasts so long. Of other programs than those of the simulated shell, init containers' end at once, a
    Job's after a second, others' never. command: with variables expanded. Raises CannotStart for annotations that say
    nothing.
    """
    init = any(c.name == container.name for c in pod.spec.init_containers) and not container.is_sidecar
    words = tuple(command) or (*container.command, *container.args)
    _, exit_code = _exit_code(pod, container, init=init)
    text = pod.annotation("run-seconds", container.name)
    # The annotation without a container's name is about the pod's work, not about its preparation.
    if text[0] and (text[0].endswith(f".{container.name}") or not (init or container.is_sidecar)):
        return _seconds(*text), exit_code
    if match := _ONLY_SLEEP.fullmatch(" ".join(words)):
        seconds = seconds_of(match[1])
        assert seconds is not None
        return (None if seconds == float("inf") else seconds), exit_code
    if words and (posixpath.basename(words[0]) in FROM_DRIVERS or knows(words, {})):
        return None
    if init:
        return 0.0, exit_code
    owner = pod.metadata.controller
    is_pause = _PAUSE.search(container.image) is not None
    if owner and owner.kind == "Job" and not is_pause and not container.is_sidecar:
        return JOB_RUN_S, exit_code
    # A container that is to fail has to end for that.
    return (JOB_RUN_S if exit_code else None), exit_code


def _exit_code(pod: KubeletPod, container: KubeletContainer, *, init: bool) -> tuple[bool, int]:
    key, text = pod.annotation("exit-code", container.name)
    if not key or (not key.endswith(f".{container.name}") and (init or container.is_sidecar)):
        return False, 0
    if not text.isdecimal() or int(text) > 255:
        raise CannotStart("CreateContainerConfigError", f"annotation {key}: must be 0 to 255, got {text!r}")
    return True, int(text)


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


def _links(service: Object) -> dict[str, str]:
    """The variables of a Service, as kubelets make them."""
    spec, name = service.get("spec") or {}, service["metadata"]["name"].upper().replace("-", "_")
    ip, ports = spec.get("clusterIP") or "", spec.get("ports") or []
    if not ip or ip == "None" or not ports:
        return {}
    env = {f"{name}_SERVICE_HOST": ip, f"{name}_SERVICE_PORT": str(ports[0]["port"])}
    for port in ports:
        if port.get("name"):
            env[f"{name}_SERVICE_PORT_{port['name'].upper().replace('-', '_')}"] = str(port["port"])
    for index, port in enumerate(ports):
        protocol, number = (port.get("protocol") or "TCP").lower(), port["port"]
        url = f"{protocol}://{ip}:{number}"
        if index == 0:
            env[f"{name}_PORT"] = url
        prefix = f"{name}_PORT_{number}_{protocol.upper()}"
        env |= {
            prefix: url,
            f"{prefix}_PROTO": protocol,
            f"{prefix}_PORT": str(number),
            f"{prefix}_ADDR": ip,
        }
    return env


# ---- logs


def log_text(pod: KubeletPod, container: KubeletContainer, seen: ContainerView, *, node_name: str, attempt: int) -> str:
    """What `kubectl logs` shows: all that a process in the container would find."""
    meta = pod.metadata
    lines = [
        f"simulated container {container.name} of pod {meta.namespace}/{meta.name} on node {node_name}",
        f"run: {attempt + 1}",
        f"image: {container.image}",
        f"command: {shlex.join(seen.words) if seen.words else '(of the image)'}",
    ]
    lines += _block("environment", [f"{key}={value}" for key, value in sorted(seen.shown.items())])
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
