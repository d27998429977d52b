"""What does an extended resource of a device plugin become in DRA? One table, by vendor and form.

Sources: NVIDIA/k8s-device-plugin (names), dra-driver-nvidia-gpu (classes, attribute `profile`), ROCm/k8s-gpu-dra-driver
(class gpu.amd.com), intel/intel-resource-drivers-for-kubernetes (class gpu.intel.com), Project-HAMi/HAMi,
volcano-sh/devices, koordinator-sh/koordinator (apis/extension), AliyunContainerService/gpushare-scheduler-extender.
"""

from __future__ import annotations

import re
from typing import Any

import msgspec

from dragoman.migrate.report import Unmovable
from dragoman.values.quantity import Quantity

GPU_CLASS = "gpu.nvidia.com"
MIG_CLASS = "mig.nvidia.com"
GPU_CLASSES = (GPU_CLASS, MIG_CLASS, "gpu.amd.com", "gpu.intel.com")
IMPLICIT = "deviceclass.resource.kubernetes.io/"
"""Prefix of the extended resource that every DeviceClass has (KEP-5004)."""

_PROFILE = re.compile(r"(?:\d+c\.)?\d+g\.\d+gb(?:[.+-][a-z.]+)?")
_PROFILE_SELECTOR = re.compile(r"device\.attributes\['gpu\.nvidia\.com'\]\.profile == '([^']+)'")


class DeviceKind(msgspec.Struct, frozen=True):
    """A kind of device that containers ask for: what DRA requests it with.

    base: name of pod claims and requests. resource: the extended resource it was, "" for none. capacity: amounts of one
    device. Two are equal if the same request serves both.
    """

    base: str
    resource: str
    device_class: str
    selectors: tuple[str, ...] = ()
    capacity: tuple[tuple[str, str], ...] = ()

    def request(self, name: str, count: int, more: tuple[str, ...] = ()) -> dict[str, Any]:
        """A request of ResourceClaims for this many; more: selectors besides its own."""
        exactly: dict[str, Any] = {"deviceClassName": self.device_class}
        if self.selectors or more:
            exactly["selectors"] = [{"cel": {"expression": text}} for text in (*self.selectors, *more)]
        if count != 1:
            exactly["count"] = count
        if self.capacity:
            exactly["capacity"] = {"requests": dict(self.capacity)}
        return {"name": name, "exactly": exactly}


class PluginUse(msgspec.Struct, frozen=True):
    """What one container asks for. keys: the fields of its resources that said it, the first one counts the devices.

    losses: (code, message, help) of what DRA does not do for it.
    """

    kind: DeviceKind
    count: int
    keys: tuple[str, ...]
    losses: tuple[tuple[str, str, str], ...] = ()


_NOT_ENFORCED = "memory is counted by the scheduler, not enforced in the container as {who} does by its library"
_CONSUMABLE = "needs a driver that publishes shared devices with consumable memory (gate DRAConsumableCapacity)"


class _Sharing(msgspec.Struct, frozen=True):
    """The resources of one scheduler that shares GPUs by memory. unit: bytes of its memory as a quantity suffix."""

    who: str
    count: str
    memory: str
    unit: str
    cores: str
    percentage: str


_SHARERS = (
    _Sharing(
        "HAMi", "nvidia.com/gpu", "nvidia.com/gpumem", "Mi", "nvidia.com/gpucores", "nvidia.com/gpumem-percentage"
    ),
    _Sharing(
        "Volcano vGPU",
        "volcano.sh/vgpu-number",
        "volcano.sh/vgpu-memory",
        "Mi",
        "volcano.sh/vgpu-cores",
        "volcano.sh/vgpu-memory-percentage",
    ),
    _Sharing(
        "Aliyun gpushare", "aliyun.com/gpu-count", "aliyun.com/gpu-mem", "Gi", "aliyun.com/gpu-core.percentage", ""
    ),
)

_REFUSED = {
    "gpu.intel.com/i915_monitoring": "monitoring of all GPUs is admin access in DRA, which needs a namespace "
    "with the label resource.kubernetes.io/admin-access",
    "gpu.intel.com/xe_monitoring": "monitoring of all GPUs is admin access in DRA, which needs a namespace "
    "with the label resource.kubernetes.io/admin-access",
    "gpu.intel.com/tiles": "the driver publishes whole GPUs and no tiles",
    "gpu.intel.com/memory.max": "it was counted by GPU Aware Scheduling, which has ended; select by memory",
    "gpu.intel.com/millicores": "it was counted by GPU Aware Scheduling, which has ended; a device has no millicores",
    "koordinator.sh/gpu": "it is a share of a GPU in percent, and DRA drivers publish no percentages",
    "koordinator.sh/gpu-core": "it is a share of a GPU in percent, and DRA drivers publish no percentages",
    "koordinator.sh/gpu-memory-ratio": "it is a share of a GPU in percent, and DRA drivers publish no percentages",
    "koordinator.sh/gpu.shared": "it is a share of a GPU in percent, and DRA drivers publish no percentages",
    "kubernetes.io/gpu": "it is a share of a GPU in percent, and DRA drivers publish no percentages",
}
_HELP_SHARE = "ask for an amount of memory instead, or for a whole GPU"

KAI_ANNOTATIONS = ("gpu-fraction", "gpu-memory", "gpu-fraction-num-devices")
"""Annotations of pods by which KAI-Scheduler shares GPUs."""
HAMI_ANNOTATIONS = (
    "nvidia.com/use-gputype",
    "nvidia.com/nouse-gputype",
    "nvidia.com/use-gpuuuid",
    "nvidia.com/nouse-gpuuuid",
    "nvidia.com/vgpu-mode",
)


def is_gpu_resource(name: str) -> bool:
    """Whether a resource of a container, a quota or a node counts GPUs or parts of them."""
    if name.startswith("deviceclass.resource.kubernetes.io/"):
        return False
    prefix, _, rest = name.partition("/")
    if prefix == "nvidia.com":
        return rest.startswith(("gpu", "mig-"))
    if prefix in ("amd.com", "intel.com", "kubernetes.io"):
        return rest.startswith("gpu")
    if prefix in ("koordinator.sh", "aliyun.com"):
        return rest.startswith(("gpu", "rdma-gpu"))
    return prefix == "gpu.intel.com" or (prefix == "volcano.sh" and rest.startswith("vgpu"))


def whole_kind(resource: str) -> DeviceKind | None:
    """The kind that a resource of whole devices stands for; None for every other resource."""
    if resource == "nvidia.com/gpu":
        return DeviceKind("gpu", resource, GPU_CLASS)
    if resource.startswith("nvidia.com/mig-"):
        profile = profile_of(resource)
        if profile is None:
            return None
        base = resource.removeprefix("nvidia.com/").replace(".", "-")
        return DeviceKind(base, resource, MIG_CLASS, (f"device.attributes['{GPU_CLASS}'].profile == '{profile}'",))
    if resource == "amd.com/gpu":
        return DeviceKind("gpu", resource, "gpu.amd.com")
    if resource in ("gpu.intel.com/i915", "gpu.intel.com/xe"):
        return DeviceKind("gpu", resource, "gpu.intel.com")
    if resource == "nvidia.com/gpu.shared":
        return DeviceKind("gpu-share", resource, GPU_CLASS, (), (("shares", "1"),))
    return None


def profile_of(resource: str) -> str | None:
    """`1g.10gb+me` of `nvidia.com/mig-1g.10gb.me` (the device plugin writes `.` for `+`)."""
    text = resource.removeprefix("nvidia.com/mig-").removesuffix(".shared")
    found = re.fullmatch(r"((?:\d+c\.)?\d+g\.\d+gb)(?:\.([a-z].*)|(-me))?", text)
    if found is None:
        return None
    return found[1] + (f"+{found[2]}" if found[2] else found[3] or "")


def kind_of_request(device_class: str, selectors: list[str]) -> tuple[DeviceKind, list[str]] | None:
    """The kind of device that a request asks for, and the selectors that are left; None if no resource counts it."""
    if device_class == MIG_CLASS:
        for text in selectors:
            found = _PROFILE_SELECTOR.fullmatch(text)
            if found:
                resource = "nvidia.com/mig-" + found[1].replace("+", ".")
                kind = whole_kind(resource)
                return (kind, [other for other in selectors if other is not text]) if kind else None
        return None
    resources = {GPU_CLASS: "nvidia.com/gpu", "gpu.amd.com": "amd.com/gpu", "gpu.intel.com": "gpu.intel.com/xe"}
    kind = whole_kind(resources.get(device_class, ""))
    return (kind, selectors) if kind else None


_SHARED_LOSS = (
    "SharesAreCounted",
    "a replica of a time-sliced GPU becomes one of the shares that the driver publishes for a GPU; without them "
    "(driver gate ConsumableShares, cluster gate DRAConsumableCapacity, both may be off) no device fits",
    "where pods of one namespace share on purpose, one ResourceClaim that they all name needs no gate",
)
_INTEL_LOSS = (
    "SharedDevNum",
    "if the plugin ran with -shared-dev-num, several containers had one GPU; with DRA each has a GPU of its own",
    "let the containers that share name one ResourceClaim",
)
_AMD_LOSS = (
    "PartitionsOfAmd",
    "on partitioned GPUs the plugin counted partitions; class gpu.amd.com matches GPUs and partitions",
    "add a selector on the device's type where nodes have both",
)


def asks(resources: dict[str, Any], path: str) -> list[PluginUse]:
    """What a container's `resources` ask of GPUs. path: of `resources`. Raises Unmovable."""
    limits = resources.get("limits") if isinstance(resources.get("limits"), dict) else {}
    requests = resources.get("requests") if isinstance(resources.get("requests"), dict) else {}
    named = {**(requests or {}), **(limits or {})}
    found: list[PluginUse] = []
    used: set[str] = set()
    for name in named:
        if name in _REFUSED:
            raise Unmovable("NoCounterpart", f"{path}.limits[{name}]", f"{name}: {_REFUSED[name]}", _HELP_SHARE)
    for sharer in _SHARERS:
        if sharer.memory in named or sharer.cores in named or (sharer.percentage and sharer.percentage in named):
            ask = _shared(sharer, named, path)
            found.append(ask)
            used.update(ask.keys)
        elif sharer.count in named and sharer.count != "nvidia.com/gpu":
            count = _count(named[sharer.count], f"{path}.limits[{sharer.count}]")
            lost = (
                ("SharedWhole", f"{sharer.who} may put others on this GPU; with DRA it is the container's own", ""),
            )
            found.append(PluginUse(DeviceKind("gpu", sharer.count, GPU_CLASS), count, (sharer.count,), lost))
            used.add(sharer.count)
    for name, amount in named.items():
        if name in used or not is_gpu_resource(name):
            continue
        kind = whole_kind(name)
        where = f"{path}.limits[{name}]"
        if kind is None:
            raise Unmovable("UnknownResource", where, f"{name} is no resource whose devices are known", "")
        count = _count(amount, where)
        if count == 0:
            continue
        if limits is not None and name not in limits:
            raise Unmovable(
                "OnlyRequested",
                where,
                f"{name} stands in requests only, which the API server refuses",
                "write it in limits",
            )
        losses: tuple[tuple[str, str, str], ...] = ()
        if name == "nvidia.com/gpu.shared":
            losses = (_SHARED_LOSS,)
        elif name.endswith(".shared"):
            raise Unmovable(
                "SharedPartition",
                where,
                f"{name}: the driver publishes no shares of MIG devices",
                "let the pods that share name one ResourceClaim",
            )
        elif name.startswith("gpu.intel.com/"):
            losses = (_INTEL_LOSS,)
        elif name == "amd.com/gpu":
            losses = (_AMD_LOSS,)
        found.append(PluginUse(kind, count, (name,), losses))
    return found


def _shared(sharer: _Sharing, named: dict[str, Any], path: str) -> PluginUse:
    if sharer.percentage and sharer.percentage in named:
        raise Unmovable(
            "NoCounterpart",
            f"{path}.limits[{sharer.percentage}]",
            f"{sharer.percentage}: a share of a GPU in percent has no counterpart",
            _HELP_SHARE,
        )
    losses: list[tuple[str, str, str]] = []
    keys = [key for key in (sharer.count, sharer.memory, sharer.cores) if key in named]
    if sharer.memory not in named:
        raise Unmovable(
            "NoCounterpart",
            f"{path}.limits[{sharer.cores}]",
            f"{sharer.cores}: a share of cores without one of memory has no counterpart",
            _HELP_SHARE,
        )
    if sharer.cores in named:
        losses.append(("CoresAreLost", f"{sharer.cores}: cores of a GPU are not shared out by DRA drivers", ""))
    losses.append(("MemoryNotEnforced", f"{_NOT_ENFORCED.format(who=sharer.who)}; {_CONSUMABLE}", ""))
    amount = _count(named[sharer.memory], f"{path}.limits[{sharer.memory}]")
    count = _count(named.get(sharer.count, 1), f"{path}.limits[{sharer.count}]")
    if sharer.who == "Aliyun gpushare" and count > 1:
        if amount % count:
            raise Unmovable(
                "NoCounterpart",
                f"{path}.limits[{sharer.memory}]",
                f"{amount} GiB cannot be shared out equally over {count} GPUs",
                "",
            )
        amount //= count
    kind = DeviceKind("gpu-memory", sharer.memory, GPU_CLASS, (), (("memory", f"{amount}{sharer.unit}"),))
    return PluginUse(kind, count, tuple(keys), tuple(losses))


def _count(amount: Any, where: str) -> int:
    try:
        value = Quantity.parse(str(amount))
    except ValueError:
        raise Unmovable("NotACount", where, f"{amount} is no number of devices", "write a whole number") from None
    whole, rest = divmod(value.nanos, 10**9)
    if rest or whole < 0:
        raise Unmovable("NotACount", where, f"{amount} is no whole number of devices", "write a whole number")
    return int(whole)
