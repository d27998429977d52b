"""How does a container get its devices? CDI specs: their types, names, versions, validation, files.

Writes whole files atomically and reads them strictly, as runtimes do. It never applies edits to a container; that is
the runtime's (`kubelet.cdi`). Source: CDI specification 1.1.0.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import yaml

from dragoman.errors import Invalid
from dragoman.node.files import write_atomically

VERSIONS = ("0.3.0", "0.4.0", "0.5.0", "0.6.0", "0.7.0", "0.8.0", "1.0.0", "1.1.0")
HOOK_NAMES = ("prestart", "createRuntime", "createContainer", "startContainer", "poststart", "poststop")

_CLASS = re.compile(r"[A-Za-z]([A-Za-z0-9_.-]*[A-Za-z0-9])?")
_DEVICE = re.compile(r"[A-Za-z0-9]([A-Za-z0-9_.:-]*[A-Za-z0-9])?")


class _Part(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True, forbid_unknown_fields=True):
    """Base: unknown fields make a spec invalid."""


class DeviceNode(_Part, frozen=True):
    """A device node in the container; fileMode is a number (as Go's os.FileMode), permissions a subset of rwm."""

    path: str
    host_path: str = ""
    type: str = ""
    major: int = 0
    minor: int = 0
    file_mode: int | None = None
    permissions: str = ""
    uid: int | None = None
    gid: int | None = None


class Mount(_Part, frozen=True):
    """A mount from the host."""

    host_path: str
    container_path: str
    type: str = ""
    options: tuple[str, ...] = ()


class Hook(_Part, frozen=True):
    """An OCI hook."""

    hook_name: str
    path: str
    args: tuple[str, ...] = ()
    env: tuple[str, ...] = ()
    timeout: int | None = None


class NetDevice(_Part, frozen=True):
    """A host network interface moved into the container (1.1.0)."""

    host_interface_name: str
    name: str


class IntelRdt(_Part, frozen=True):
    """Resource director settings (0.7.0; schemata and enableMonitoring 1.1.0)."""

    clos_id: str = msgspec.field(name="closID", default="")
    l3_cache_schema: str = ""
    mem_bw_schema: str = ""
    enable_cmt: bool = msgspec.field(name="enableCMT", default=False)
    enable_mbm: bool = msgspec.field(name="enableMBM", default=False)
    schemata: tuple[str, ...] = ()
    enable_monitoring: bool = False


class Edits(_Part, frozen=True):
    """What a device changes in a container: env are `KEY=value` texts."""

    env: tuple[str, ...] = ()
    device_nodes: tuple[DeviceNode, ...] = ()
    net_devices: tuple[NetDevice, ...] = ()
    mounts: tuple[Mount, ...] = ()
    hooks: tuple[Hook, ...] = ()
    intel_rdt: IntelRdt | None = None
    additional_gids: tuple[int, ...] = ()


NO_EDITS = Edits()


class CdiDevice(_Part, frozen=True):
    """A named device of a spec."""

    name: str
    annotations: dict[str, str] = {}
    container_edits: Edits = Edits()


class Spec(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True, forbid_unknown_fields=True):
    """A CDI file. Its own edits are applied once when any of its devices is used."""

    cdi_version: str
    kind: str
    devices: tuple[CdiDevice, ...]
    annotations: dict[str, str] = {}
    container_edits: Edits = Edits()


def qualified(kind: str, device: str) -> str:
    """The name that runtimes resolve: vendor/class=device."""
    return f"{kind}={device}"


def split_name(name: str) -> tuple[str, str]:
    """(vendor/class, device) of a qualified name. Raises Invalid."""
    kind, sign, device = name.partition("=")
    if not sign or _kind_fault(kind) or not _DEVICE.fullmatch(device):
        raise Invalid(name, "is not a CDI device name, which is vendor/class=device")
    return kind, device


def minimal_version(kind: str, devices: Iterable[CdiDevice], edits: Edits = NO_EDITS) -> str:
    """The lowest version that knows everything used."""
    needed = 0
    vendor_class = kind.partition("/")[2]
    if "." in vendor_class:
        needed = max(needed, VERSIONS.index("0.6.0"))
    all_edits = [edits]
    for device in devices:
        all_edits.append(device.container_edits)
        if device.annotations:
            needed = max(needed, VERSIONS.index("0.6.0"))
        if device.name[:1].isdigit():
            needed = max(needed, VERSIONS.index("0.5.0"))
    for used in all_edits:
        needed = max(needed, VERSIONS.index(_edits_version(used)))
    return VERSIONS[needed]


def _edits_version(edits: Edits) -> str:
    rdt = edits.intel_rdt
    if edits.net_devices or (rdt and (rdt.schemata or rdt.enable_monitoring)):
        return "1.1.0"
    if edits.additional_gids or rdt:
        return "0.7.0"
    if any(node.host_path for node in edits.device_nodes):
        return "0.5.0"
    if any(mount.type for mount in edits.mounts):
        return "0.4.0"
    return "0.3.0"


def made(
    kind: str, devices: Iterable[CdiDevice], edits: Edits = NO_EDITS, annotations: dict[str, str] | None = None
) -> Spec:
    """A spec with the lowest version for what it uses. Raises Invalid."""
    devices = tuple(devices)
    version = minimal_version(kind, devices, edits)
    if annotations and VERSIONS.index(version) < VERSIONS.index("0.6.0"):
        version = "0.6.0"
    spec = Spec(version, kind, devices, annotations or {}, edits)
    if fault := next(faults(spec), None):
        raise Invalid(fault[0], fault[1])
    return spec


def faults(spec: Spec) -> Iterator[tuple[str, str]]:
    """(field path, what is wrong) for all that a runtime would refuse."""
    if spec.cdi_version not in VERSIONS:
        yield "cdiVersion", f"must be one of {', '.join(VERSIONS)}, got {spec.cdi_version!r}"
    elif (needed := minimal_version(spec.kind, spec.devices, spec.container_edits)) and (
        VERSIONS.index(spec.cdi_version) < VERSIONS.index(needed)
    ):
        yield "cdiVersion", f"must be at least {needed} for what the spec uses, got {spec.cdi_version}"
    if fault := _kind_fault(spec.kind):
        yield "kind", fault
    if not spec.devices:
        yield "devices", "must name at least one device"
    seen: set[str] = set()
    for index, device in enumerate(spec.devices):
        where = f"devices[{index}]"
        if not _DEVICE.fullmatch(device.name):
            yield (
                f"{where}.name",
                f"must begin and end with a letter or digit, between them also _ . : -, got {device.name!r}",
            )
        if device.name in seen:
            yield f"{where}.name", f"{device.name!r} is defined twice"
        seen.add(device.name)
        yield from _edit_faults(device.container_edits, f"{where}.containerEdits")
    yield from _edit_faults(spec.container_edits, "containerEdits")


def _kind_fault(kind: str) -> str:
    vendor, slash, vendor_class = kind.partition("/")
    if not slash or not _CLASS.fullmatch(vendor) or not _CLASS.fullmatch(vendor_class):
        return f"must be vendor/class, each beginning with a letter, got {kind!r}"
    return ""


def _edit_faults(edits: Edits, where: str) -> Iterator[tuple[str, str]]:
    for index, env in enumerate(edits.env):
        if "=" not in env or env.startswith("="):
            yield f"{where}.env[{index}]", f"must be KEY=value, got {env!r}"
    for index, node in enumerate(edits.device_nodes):
        if not node.path:
            yield f"{where}.deviceNodes[{index}].path", "must be set"
        if node.type not in ("", "b", "c", "u", "p"):
            yield f"{where}.deviceNodes[{index}].type", f"must be b, c, u or p, got {node.type!r}"
        if set(node.permissions) - set("rwm"):
            yield f"{where}.deviceNodes[{index}].permissions", f"may have r, w and m, got {node.permissions!r}"
    for index, mount in enumerate(edits.mounts):
        if not mount.host_path or not mount.container_path:
            yield f"{where}.mounts[{index}]", "must have hostPath and containerPath"
    for index, hook in enumerate(edits.hooks):
        if hook.hook_name not in HOOK_NAMES:
            yield f"{where}.hooks[{index}].hookName", f"must be one of {', '.join(HOOK_NAMES)}, got {hook.hook_name!r}"
        if not hook.path:
            yield f"{where}.hooks[{index}].path", "must be set"
    for index, net in enumerate(edits.net_devices):
        if not net.host_interface_name or not net.name:
            yield f"{where}.netDevices[{index}]", "must have hostInterfaceName and name"


_DECODER = msgspec.json.Decoder(Spec)


def read(path: Path) -> Spec:
    """The spec in that file. Raises Invalid (where: the file), FileNotFoundError."""
    content = path.read_bytes()
    try:
        spec = _DECODER.decode(content) if path.suffix == ".json" else msgspec.convert(yaml.safe_load(content), Spec)
    except (msgspec.MsgspecError, yaml.YAMLError, UnicodeDecodeError) as error:
        raise Invalid(str(path), f"is not a CDI spec: {error}") from error
    if fault := next(faults(spec), None):
        raise Invalid(f"{path}: {fault[0]}", fault[1])
    return spec


def write(path: Path, spec: Spec, *, durable: bool = False) -> None:
    """The spec as that file, whole or not at all; an equal file is left alone."""
    content = msgspec.json.format(msgspec.json.encode(spec), indent=2) + b"\n"
    try:
        if path.read_bytes() == content:
            return
    except FileNotFoundError:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o755)
    write_atomically(path, content, durable=durable, mode=0o644)


def merged(edits: Iterable[Edits]) -> Edits:
    """All edits in one, in order."""
    parts: dict[str, Any] = {}
    for edit in edits:
        for name in ("env", "device_nodes", "net_devices", "mounts", "hooks", "additional_gids"):
            parts[name] = (*parts.get(name, ()), *getattr(edit, name))
        if edit.intel_rdt:
            parts["intel_rdt"] = edit.intel_rdt
    return Edits(**parts)


def claim_kind(driver: str) -> str:
    """The kind of the specs made for claims; the prefix makes any driver name a vendor (which starts with a letter)."""
    return f"k8s.{driver}/claim"


def claim_path(folder: Path, driver: str, uid: str) -> Path:
    """Where the spec of one claim lies: the name convention for transient specs is vendor-class_id."""
    return folder / f"k8s.{driver}-claim_{uid}.json"
