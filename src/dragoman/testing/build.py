"""How do tests say what a cluster holds, in few words? Builders of manifests, JSON shaped as kubectl sends them.

    world = snapshot_of(node("a"), gpus("a", 8), device_class("gpu.example.com"), claim("c", count=2), pod("p", "c"))

Every builder takes the fields that tests vary; `typed` and `snapshot_of` make values of manifests. Never talks to
anything.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from dragoman.api import codec
from dragoman.api.kinds import kind_of
from dragoman.snapshot.change import Snapshot

Manifest = dict[str, Any]
DRIVER = "gpu.example.com"


def manifest(kind: str, name: str, *, namespace: str = "", **rest: Any) -> Manifest:
    """Any object: apiVersion, kind, metadata and what else is given."""
    meta: Manifest = {"name": name}
    if kind_of(kind).namespaced:
        meta["namespace"] = namespace or "default"
    meta |= rest.pop("metadata", {})
    return {"apiVersion": kind_of(kind).api_version, "kind": kind, "metadata": meta, **rest}


def node(
    name: str,
    *,
    labels: dict[str, str] | None = None,
    taints: Iterable[str] = (),
    unschedulable: bool = False,
    **allocatable: str,
) -> Manifest:
    """A node. taints as `key=value:Effect`; allocatable as cpu="4", memory="8Gi"; without any: room for all."""
    spec: Manifest = {}
    if unschedulable:
        spec["unschedulable"] = True
    if taints:
        spec["taints"] = [_taint(text) for text in taints]
    status = {"allocatable": allocatable} if allocatable else {}
    labels = {"kubernetes.io/hostname": name} | (labels or {})
    return manifest("Node", name, metadata={"labels": labels}, spec=spec, status=status)


def _taint(text: str) -> Manifest:
    pair, _, effect = text.rpartition(":")
    key, _, value = pair.partition("=")
    return {"key": key, "value": value, "effect": effect}


def device(name: str, *, capacity: dict[str, str] | None = None, **attributes: Any) -> Manifest:
    """A device with plain attributes (int, bool or text)."""
    kinds = {int: "int", bool: "bool", str: "string"}
    made: Manifest = {"name": name}
    if attributes:
        made["attributes"] = {key: {kinds[type(value)]: value} for key, value in attributes.items()}
    if capacity:
        made["capacity"] = {key: {"value": value} for key, value in capacity.items()}
    return made


def pool(
    name: str, devices: Iterable[Manifest], *, node: str | None = None, driver: str = DRIVER, **spec: Any
) -> Manifest:
    """A ResourceSlice that is a whole pool; node None: available everywhere."""
    where: Manifest = {"nodeName": node} if node is not None else {"allNodes": True}
    body = {
        "driver": driver,
        "pool": {"name": name, "generation": 1, "resourceSliceCount": 1},
        **where,
        "devices": list(devices),
        **spec,
    }
    return manifest("ResourceSlice", f"{name}-{driver}", spec=body)


def gpus(node: str, count: int, *, driver: str = DRIVER, **attributes: Any) -> Manifest:
    """A node's pool of equivalent devices gpu-0, gpu-1, ... with their index as attribute."""
    return pool(
        node, [device(f"gpu-{index}", index=index, **attributes) for index in range(count)], node=node, driver=driver
    )


def device_class(name: str = DRIVER, *, driver: str = DRIVER, extended: str = "", **spec: Any) -> Manifest:
    """A class of one driver's devices."""
    body = {"selectors": [{"cel": {"expression": f"device.driver == '{driver}'"}}], **spec}
    if extended:
        body["extendedResourceName"] = extended
    return manifest("DeviceClass", name, spec=body)


def request(name: str = "gpu", device_class: str = DRIVER, *, select: str = "", **exactly: Any) -> Manifest:
    """A request of a claim: exactly, with an optional CEL selector."""
    body = {"deviceClassName": device_class, **exactly}
    if select:
        body["selectors"] = [{"cel": {"expression": select}}]
    return {"name": name, "exactly": body}


def _devices(requests: Iterable[Manifest], count: int, select: str, constraints: Iterable[Manifest]) -> Manifest:
    exactly: dict[str, Any] = {"count": count} if count != 1 else {}
    wanted = list(requests) or [request(select=select, **exactly)]
    body: Manifest = {"requests": wanted}
    if constraints:
        body["constraints"] = list(constraints)
    return {"devices": body}


def claim(
    name: str,
    *requests: Manifest,
    count: int = 1,
    select: str = "",
    match: str = "",
    constraints: Iterable[Manifest] = (),
    config: Iterable[Manifest] = (),
    namespace: str = "",
    **rest: Any,
) -> Manifest:
    """A claim of these requests, or of `count` devices of the default class.

    match: an attribute that all its devices share. config: entries of spec.devices.config.
    """
    shared = [{"matchAttribute": match}] if match else []
    spec = _devices(requests, count, select, [*shared, *constraints])
    if config:
        spec["devices"]["config"] = list(config)
    return manifest("ResourceClaim", name, namespace=namespace, spec=spec, **rest)


def allocated(
    name: str,
    *devices: str,
    driver: str = DRIVER,
    pool: str,
    pods: Iterable[str] = (),
    uid: str = "",
    config: Iterable[Manifest] = (),
    namespace: str = "",
    **result: Any,
) -> Manifest:
    """A claim that holds devices of a pool, `other.example.com:name` of another driver: request r0, r1, ... each.

    pods: those that it is reserved for. config: entries of the allocation. result: other fields of every device.
    """
    results = []
    for index, device_name in enumerate(devices):
        owner, _, plain = device_name.rpartition(":")
        results.append({"request": f"r{index}", "driver": owner or driver, "pool": pool, "device": plain, **result})
    given: Manifest = {"results": results}
    if config:
        given["config"] = list(config)
    status: Manifest = {"allocation": {"devices": given}}
    if pods:
        status["reservedFor"] = [{"resource": "pods", "name": user, "uid": f"uid-{user}"} for user in pods]
    return manifest("ResourceClaim", name, namespace=namespace, metadata={"uid": uid or f"uid-{name}"}, status=status)


def template(name: str, *requests: Manifest, count: int = 1, select: str = "", namespace: str = "") -> Manifest:
    """A claim template, likewise."""
    spec = {"spec": _devices(requests, count, select, ())}
    return manifest("ResourceClaimTemplate", name, namespace=namespace, spec=spec)


def pod(
    name: str,
    *claims: str,
    templates: Iterable[str] = (),
    namespace: str = "",
    cpu: str = "",
    memory: str = "",
    extended: dict[str, str] | None = None,
    **spec: Any,
) -> Manifest:
    """A pod with one container that uses these claims and templates; entries are named as they are."""
    requests = {k: v for k, v in {"cpu": cpu, "memory": memory, **(extended or {})}.items() if v}
    resources: Manifest = {"requests": requests} if requests else {}
    if extended:
        resources["limits"] = dict(extended)  # the API wants both for what cannot be overcommitted
    entries = [{"name": c, "resourceClaimName": c} for c in claims]
    entries += [{"name": t, "resourceClaimTemplateName": t} for t in templates]
    if entries:
        resources["claims"] = [{"name": entry["name"]} for entry in entries]
    container: Manifest = {"name": "main", "image": "registry.example/app:1"}
    if resources:
        container["resources"] = resources
    rest = {key: spec.pop(key) for key in ("metadata", "status") if key in spec}
    body: Manifest = {"containers": [container], **({"resourceClaims": entries} if entries else {}), **spec}
    rest["metadata"] = {"uid": f"uid-{name}"} | rest.get("metadata", {})
    return manifest("Pod", name, namespace=namespace, spec=body, **rest)


def typed(made: Manifest) -> Any:
    """The manifest as the typed value of its kind."""
    return codec.decode(codec.TYPES[made["kind"]], made)


def snapshot_of(*manifests: Manifest) -> Snapshot:
    """A snapshot with these objects."""
    return Snapshot.from_objects([(made["kind"], typed(made)) for made in manifests])
