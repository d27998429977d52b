"""Do the same pods run on the same kinds of devices on both paths? By simulation, and label by label on the slices.

A cluster shows one path, or both on different nodes. `sides` makes two clusters of it with the same machines: one with
device plugins and labels of GPU Feature Discovery, one with slices and without these labels. What a machine has is
taken from the side that it shows.
"""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from dragoman.api.meta import NamespacedName
from dragoman.api.selectors import Selector, compile_selector, device_view
from dragoman.migrate import labels, podspec
from dragoman.migrate.labels import ARCHITECTURES, PREFIX, LabelRequirement
from dragoman.migrate.resources import GPU_CLASS, GPU_CLASSES, MIG_CLASS, is_gpu_resource, profile_of
from dragoman.snapshot.change import Snapshot
from dragoman.whatif.cluster import ClusterState
from dragoman.whatif.decide import DecidedUnit, PodPrediction
from dragoman.whatif.units import Named, pods_of

Objects = list[dict[str, Any]]
NO_PLACE = "no node"


class WorkloadProof(msgspec.Struct, frozen=True):
    """Where the pods of a workload would run: devices of each pod (or NO_PLACE), and how many pods have these."""

    kind: str
    namespace: str
    name: str
    before: dict[str, int]
    after: dict[str, int]

    @property
    def same(self) -> bool:
        """Whether nothing differs."""
        return self.before == self.after


class LabelProof(msgspec.Struct, frozen=True):
    """A label requirement that became a selector, on a node where the two do not say the same.

    matches: whether the node's label satisfies it; devices: names of the node's devices for which the selector differs.
    """

    requirement: str
    node: str
    matches: bool
    devices: tuple[str, ...]


# ---- two clusters of one


def sides(objects: Iterable[dict[str, Any]]) -> tuple[Objects, Objects]:
    """The cluster on the device plugin path and on the DRA path, without its pods that use GPUs: all GPUs are free."""
    kept = [value for value in objects if not _uses_gpus(value)]
    devices = _devices_by_node(kept)
    before: Objects = []
    after: Objects = []
    for value in kept:
        kind = value.get("kind")
        if kind == "Node":
            name = str(podspec.at(value, ("metadata", "name")))
            before.append(_with_plugin(value, devices.get(name, ())))
            after.append(_without_plugin(value))
            if name not in devices:
                after += _slices(value, name)
        elif kind == "ResourceSlice" and podspec.at(value, ("spec", "driver")) == GPU_CLASS:
            after.append(value)
        elif kind == "DeviceClass":
            before.append(_unextended(value))
            after.append(value)
        else:
            before.append(value)
            after.append(value)
    known = {podspec.at(value, ("metadata", "name")) for value in after if value.get("kind") == "DeviceClass"}
    for name, type_ in ((GPU_CLASS, "gpu"), (MIG_CLASS, "mig")):
        if name not in known:
            text = f"device.driver == '{GPU_CLASS}' && device.attributes['{GPU_CLASS}'].type == '{type_}'"
            spec = {"selectors": [{"cel": {"expression": text}}]}
            after.append(
                {"apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", "metadata": {"name": name}, "spec": spec}
            )
    return before, after


def _uses_gpus(value: dict[str, Any]) -> bool:
    if value.get("kind") == "ResourceClaim":
        requests = podspec.at(value, ("spec", "devices", "requests")) or ()
        return any(podspec.at(r, ("exactly", "deviceClassName")) in GPU_CLASSES for r in requests)
    for path in podspec.specs(value):
        spec = podspec.at(value, path)
        if spec.get("resourceClaims"):
            return True
        for _, container in podspec.containers(spec):
            if any(is_gpu_resource(str(name)) for name in podspec.at(container, ("resources", "limits")) or ()):
                return True
    return False


def _devices_by_node(objects: Objects) -> dict[str, list[dict[str, Any]]]:
    found: dict[str, list[dict[str, Any]]] = {}
    for value in objects:
        spec = value.get("spec")
        if value.get("kind") != "ResourceSlice" or not isinstance(spec, dict) or not spec.get("nodeName"):
            continue
        if spec.get("driver") == GPU_CLASS:
            found.setdefault(str(spec["nodeName"]), []).extend(spec.get("devices") or ())
    return found


def _without_plugin(node: dict[str, Any]) -> dict[str, Any]:
    made = copy.deepcopy(node)
    for part in ("allocatable", "capacity"):
        amounts = podspec.at(made, ("status", part))
        for name in [n for n in amounts or () if is_gpu_resource(n)]:
            del amounts[name]
    written = podspec.at(made, ("metadata", "labels"))
    for name in [n for n in written or () if labels.is_gfd(n)]:
        del written[name]
    return made


def _with_plugin(node: dict[str, Any], devices: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The node as it is, or with what a device plugin and GFD would say of its devices."""
    allocatable = podspec.at(node, ("status", "allocatable")) or {}
    if not devices or any(is_gpu_resource(name) for name in allocatable):
        return node
    made = copy.deepcopy(node)
    counts = Counter(_resource(device) for device in devices)
    for part in ("allocatable", "capacity"):
        if isinstance(podspec.at(made, ("status", part)), dict):
            made["status"][part].update({name: str(count) for name, count in counts.items() if name})
    made["metadata"].setdefault("labels", {}).update(gfd_labels(devices[0], len(devices)))
    return made


def _resource(device: dict[str, Any]) -> str:
    attributes = device.get("attributes") or {}
    if podspec.at(attributes, ("type", "string")) == "gpu":
        return "nvidia.com/gpu"
    profile = podspec.at(attributes, ("profile", "string"))
    return "nvidia.com/mig-" + str(profile).replace("+", ".") if profile else ""


def gfd_labels(device: dict[str, Any], count: int) -> dict[str, str]:
    """The labels that GPU Feature Discovery would write for a node with such devices."""
    attributes = device.get("attributes") or {}
    families = {value: key for key, value in ARCHITECTURES.items()}
    made = {"gpu.count": str(count), "gpu.present": "true"}
    if product := podspec.at(attributes, ("productName", "string")):
        made["gpu.product"] = labels.label_of_product(product)
    if family := families.get(podspec.at(attributes, ("architecture", "string"))):
        made["gpu.family"] = family
    for attribute, name in (
        ("cudaComputeCapability", "gpu.compute"),
        ("driverVersion", "cuda.driver-version"),
        ("cudaDriverVersion", "cuda.runtime-version"),
    ):
        parts = str(podspec.at(attributes, (attribute, "version")) or "").split(".")
        if len(parts) > 1:
            made[f"{name}.major"], made[f"{name}.minor"] = parts[:2]
    memory = podspec.at(device, ("capacity", "memory", "value"))
    if str(memory).endswith("Mi"):
        made["gpu.memory"] = str(memory).removesuffix("Mi")
    elif str(memory).endswith("Gi"):
        made["gpu.memory"] = str(int(str(memory).removesuffix("Gi")) * 1024)
    return {PREFIX + name: value for name, value in made.items()}


def _slices(node: dict[str, Any], name: str) -> Objects:
    """A slice as the driver would publish it for what the device plugin and GFD say of the node."""
    written = podspec.at(node, ("metadata", "labels")) or {}
    amounts = podspec.at(node, ("status", "allocatable")) or {}
    attributes: dict[str, Any] = {}
    if product := written.get(PREFIX + "gpu.product"):
        attributes["productName"] = {"string": product}
    if architecture := ARCHITECTURES.get(written.get(PREFIX + "gpu.family", "")):
        attributes["architecture"] = {"string": architecture}
    for attribute, label in (
        ("cudaComputeCapability", "gpu.compute"),
        ("driverVersion", "cuda.driver-version"),
        ("cudaDriverVersion", "cuda.runtime-version"),
    ):
        major = written.get(f"{PREFIX}{label}.major")
        if major:
            attributes[attribute] = {"version": f"{major}.{written.get(f'{PREFIX}{label}.minor', 0)}.0"}
    memory = written.get(PREFIX + "gpu.memory")
    devices: Objects = []
    for resource, amount in amounts.items():
        profile = profile_of(resource) if resource.startswith("nvidia.com/mig-") else None
        if resource != "nvidia.com/gpu" and profile is None:
            continue
        own = {"type": {"string": "mig" if profile else "gpu"}} | ({"profile": {"string": profile}} if profile else {})
        for number in range(int(amount)):
            device: dict[str, Any] = {"name": f"{'mig' if profile else 'gpu'}-{len(devices)}-{number}"}
            device["attributes"] = own | attributes
            if memory and not profile:
                device["capacity"] = {"memory": {"value": f"{memory}Mi"}}
            devices.append(device)
    pool = {"name": name, "generation": 1, "resourceSliceCount": -(-len(devices) // 128)}
    return [
        {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceSlice",
            "metadata": {"name": f"{name}-{GPU_CLASS}-{start}"},
            "spec": {"driver": GPU_CLASS, "nodeName": name, "pool": pool, "devices": devices[start : start + 128]},
        }
        for start in range(0, len(devices), 128)
    ]


def _unextended(value: dict[str, Any]) -> dict[str, Any]:
    made = copy.deepcopy(value)
    if isinstance(made.get("spec"), dict):
        made["spec"].pop("extendedResourceName", None)
    return made


# ---- outcomes


def compared(
    names: Sequence[Named],
    before: tuple[ClusterState, Sequence[DecidedUnit]],
    after: tuple[ClusterState, Sequence[DecidedUnit]],
) -> list[WorkloadProof]:
    """Each workload with the devices of its pods on both sides."""
    sides_found = [(cluster, {v.pod: v for step in steps for v in step.verdicts}) for cluster, steps in (before, after)]
    made = []
    for kind, namespace, name in names:
        outcomes = []
        for cluster, verdicts in sides_found:
            pods = pods_of(cluster, kind, namespace, name)
            found = Counter(_outcome(cluster.snapshot, pod, verdicts[pod]) for pod in pods if pod in verdicts)
            outcomes.append(dict(sorted(found.items())))
        made.append(WorkloadProof(kind, namespace, name, *outcomes))
    return made


def _outcome(snapshot: Snapshot, pod: NamespacedName, verdict: PodPrediction) -> str:
    if verdict.node is None:
        return NO_PLACE
    found: Counter[str] = Counter()
    for claim in verdict.claims:
        for result in claim.allocation.devices.results if claim.allocation is not None else ():
            found[_kind_of(snapshot, result.driver, result.pool, result.device)] += 1
    held = snapshot.pods.get(pod)
    written = snapshot.nodes[verdict.node].metadata.labels if verdict.node in snapshot.nodes else {}
    if held is not None and not verdict.claims:
        product = str(written.get(PREFIX + "gpu.product", "GPU"))
        for resource, count in _asked(held).items():
            profile = profile_of(resource) if resource.startswith("nvidia.com/mig-") else None
            found[f"{profile} of {product}" if profile else product] += count
    return ", ".join(f"{count} x {kind}" for kind, count in sorted(found.items())) or "no GPU"


def _asked(pod: Any) -> dict[str, int]:
    """Devices of each resource that the pod takes on a node."""
    totals: dict[str, int] = {}
    names = {
        name
        for container in (*pod.spec.init_containers, *pod.spec.containers)
        for name in container.resources.limits or ()
        if is_gpu_resource(name)
    }
    for name in names:
        held = most = 0
        for container in pod.spec.init_containers:
            amount = _amount(container, name)
            most = max(most, held + amount)
            held += amount if container.restart_policy == "Always" else 0
        totals[name] = max(most, held + sum(_amount(container, name) for container in pod.spec.containers))
    return totals


def _amount(container: Any, name: str) -> int:
    amount = (container.resources.limits or {}).get(name)
    return int(amount.nanos // 10**9) if amount is not None else 0


def _kind_of(snapshot: Snapshot, driver: str, pool: str, device: str) -> str:
    for resource_slice in snapshot.slices.values():
        if resource_slice.spec.driver == driver and resource_slice.spec.pool.name == pool:
            for entry in resource_slice.spec.devices:
                if entry.name == device:
                    product = entry.attributes.get("productName")
                    profile = entry.attributes.get("profile")
                    name = labels.label_of_product(product.string or "") if product is not None else "GPU"
                    return f"{profile.string} of {name}" if profile is not None else name
    return device


# ---- labels


def labels_proved(snapshot: Snapshot, wanted: Iterable[LabelRequirement]) -> list[LabelProof]:
    """For each requirement the nodes on which its selector and the label differ. Nodes without the label are passed."""
    devices: dict[str, list[Any]] = {}
    for resource_slice in snapshot.slices.values():
        spec = resource_slice.spec
        if spec.driver == GPU_CLASS and spec.node_name:
            devices.setdefault(spec.node_name, []).extend(spec.devices)
    made = []
    for requirement in dict.fromkeys(wanted):
        selector = compile_selector(labels.selector(requirement))
        assert isinstance(selector, Selector)
        for name, node in sorted(snapshot.nodes.items()):
            written = node.metadata.labels
            if requirement.key not in written:
                continue
            matches = satisfied(requirement, written)
            differ = tuple(
                device.name
                for device in devices.get(name, ())
                if (selector.match(device_view(device, GPU_CLASS)) is True) != matches
            )
            if differ:
                made.append(LabelProof(str(requirement), name, matches, differ))
    return made


def satisfied(requirement: LabelRequirement, written: Mapping[str, str]) -> bool:
    """Whether a node with these labels satisfies it, as the scheduler judges."""
    value = written.get(requirement.key)
    match requirement.operator:
        case "=" | "In":
            return value in requirement.values
        case "NotIn":
            return value not in requirement.values
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
    if value is None or not value.lstrip("-").isdigit():
        return False
    bound = int(requirement.values[0])
    return int(value) > bound if requirement.operator == "Gt" else int(value) < bound
