"""Random clusters for what-if: what is there, what happens while nobody looks, what a user brings, what changes.

Every workload has devices of its own (an attribute names them), so that what becomes of one does not depend on the
order in which others are decided. Kinds, damage and changes are dealt out by turns: a few seeds have them all.
"""

from __future__ import annotations

import copy
import random
from typing import Any, NamedTuple

from dragoman.testing.build import DRIVER, claim, device_class, manifest, node, pod, pool, template

Object = dict[str, Any]
SHAPES = (
    "Deployment",
    "StatefulSet",
    "DaemonSet",
    "Job",
    "ReplicaSet",
    "Pod",
    "PodGroup",
    "Pod",
    "ReplicationController",
)
DAMAGE = (
    "delete workload", "orphan pods", "scale", "delete node", "finish pods", "delete namespace", "taint node",
    "cordon", "delete pods", "taint devices", "new image", "lose job",
)  # fmt: skip
CHANGES = ("remove node", "taint", "delete pod", "add node", "put", "put")
REPLACED = (
    "replicas", "cordon", "claim", "device taint", "template", "toleration", "class", "selector", "node label", "pod",
    "new rule", "priority class",
)  # fmt: skip
"""What manifests change of objects that are there; some of it the API server refuses."""
PUT = ("replicas", "cordon", "device taint", "class", "new rule", "new slice", "new workload", "toleration")
BAD = ("admin access", "version", "both", "no selector")


class Operation(NamedTuple):
    what: str
    kind: str = ""
    name: str = ""
    namespace: str = ""
    patch: Object | None = None


class Scenario(NamedTuple):
    base: list[Object]
    damage: list[Operation]
    manifests: list[Object]
    applied: list[Object]
    changes: list[Operation]


def scenario(seed: int) -> Scenario:
    """The scenario of a seed."""
    rng = random.Random(seed)
    namespaces = ["default", "team"]
    nodes = [f"node-{i}" for i in range(3)]
    base: list[Object] = [manifest("Namespace", "team"), device_class()]
    base += [ready_node(name) for name in nodes]
    roots: list[tuple[str, str, str]] = []
    later: list[Object] = []
    for index in range(5):
        shape = SHAPES[(seed * 5 + index) % len(SHAPES)]
        name, namespace = f"w{index}", rng.choice(namespaces)
        roots.append((shape, name, namespace))
        made = workload(shape, name, namespace, rng, nodes)
        slices = [m for m in made if m["kind"] == "ResourceSlice"]
        rest = [m for m in made if m["kind"] != "ResourceSlice"]
        base += slices
        (base if index < 3 else later).extend(rest)
    bad = [manifests_refused(BAD[(seed + i) % len(BAD)], f"bad-{i}") for i in range(2)]
    manifests = [*later, *(m for made in bad for m in made)]
    damage = [damaged(DAMAGE[(seed * 2 + i) % len(DAMAGE)], roots[:3], nodes, rng) for i in range(2)]
    change = CHANGES[seed % len(CHANGES)]
    applied = [m for i in range(3) for m in replaced(REPLACED[(seed * 3 + i) % len(REPLACED)], base, rng)]
    if change == "put":
        made = replaced(PUT[(seed * 2 // len(CHANGES)) % len(PUT)], base, rng)
        changes = [Operation("put", patch=one) for one in made]
    else:
        changes = [changed(change, roots[:3], nodes, rng)]
    return Scenario(base, [op for ops in damage for op in ops], manifests, applied, changes)


def ready_node(name: str) -> Object:
    made = node(name)
    made["status"] = {
        "allocatable": {"cpu": "64", "memory": "256Gi", "pods": "110"},
        "conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady"}],
    }
    return made


def workload(shape: str, name: str, namespace: str, rng: random.Random, nodes: list[str]) -> list[Object]:
    """A workload whose pods take a device each, of a pool that only it can use."""
    replicas, devices = rng.randint(1, 3), rng.randint(1, 3)
    mine = f"device.attributes['{DRIVER}'].model == '{name}'"
    objects: list[Object] = []
    where = nodes if shape == "DaemonSet" else [rng.choice(nodes)]
    for host in where:
        made = [{"name": f"gpu-{i}", "attributes": {"model": {"string": name}}} for i in range(devices)]
        slices = pool(f"{host}-{name}", made, node=host)
        objects.append({**slices, "metadata": {"name": f"{host}-{name}"}})
    objects.append(template(f"t-{name}", select=mine, namespace=namespace))
    labels = {"app": name}
    spec = pod("x", templates=[f"t-{name}"])["spec"]
    inner = {"metadata": {"labels": labels}, "spec": spec}
    if shape == "Pod":
        if rng.random() < 0.5:
            objects += [
                claim(f"c-{name}", select=mine, namespace=namespace),
                pod(name, f"c-{name}", namespace=namespace),
            ]
        else:
            objects.append(pod(name, templates=[f"t-{name}"], namespace=namespace))
    elif shape == "PodGroup":
        entry = spec["resourceClaims"][0]
        group = {"schedulingPolicy": {"gang": {"minCount": 2}}, "resourceClaims": [entry]}
        objects.append(manifest("PodGroup", name, namespace=namespace, spec=group))
        for i in range(2):
            member = pod(f"{name}-{i}", templates=[f"t-{name}"], namespace=namespace)
            member["spec"]["schedulingGroup"] = {"podGroupName": name}
            objects.append(member)
    elif shape == "Job":
        job = {
            "parallelism": replicas,
            "completions": replicas + 1,
            "template": {"spec": {**spec, "restartPolicy": "Never"}},
        }
        objects.append(manifest("Job", name, namespace=namespace, spec=job))
    else:
        allowed = {"maxUnavailable": "50%"} if int(name[1:]) % 2 else {"minAvailable": 1}
        budget = {"selector": {"matchLabels": labels}, **allowed}
        if shape != "DaemonSet":
            objects.append(manifest("PodDisruptionBudget", f"b-{name}", namespace=namespace, spec=budget))
        body: Object = {"selector": {"matchLabels": labels}, "template": inner}
        if shape != "DaemonSet":
            body["replicas"] = replicas
        if shape == "StatefulSet":
            body["serviceName"] = name
        if shape == "ReplicationController":
            body["selector"] = labels
        objects.append(manifest(shape, name, namespace=namespace, spec=body))
    return objects


def manifests_refused(what: str, name: str) -> list[Object]:
    """Objects of which an API server refuses one, and a pod that would need it."""
    if what == "admin access":
        asking = [{"name": "r", "exactly": {"deviceClassName": DRIVER, "allocationMode": "All", "adminAccess": True}}]
        spec = {"devices": {"requests": asking}}
        return [manifest("ResourceClaim", name, namespace="team", spec=spec), pod(name, name, namespace="team")]
    if what == "no selector":
        body = {"replicas": 1, "template": {"metadata": {"labels": {"app": name}}, "spec": pod("x")["spec"]}}
        return [manifest("Deployment", name, namespace="team", spec=body)]
    mine = f"device.attributes['{DRIVER}'].model == '{name}'"
    device: Object = {"name": "gpu-0", "attributes": {"model": {"string": name}}}
    made = pool(name, [device], node="node-0")
    if what == "version":
        device["attributes"]["firmware"] = {"version": "1.2.3.4"}
    else:
        made["spec"]["sharedCounters"] = [{"name": "all", "counters": {"slots": {"value": "1"}}}]
    return [made, claim(name, select=mine, namespace="team"), pod(name, name, namespace="team")]


# ---- what happens while controllers and scheduler are down


def damaged(what: str, roots: list[tuple[str, str, str]], nodes: list[str], rng: random.Random) -> list[Operation]:
    kind, name, namespace = rng.choice(roots)
    scaled = [root for root in roots if root[0] in ("Deployment", "StatefulSet", "ReplicaSet", "ReplicationController")]
    host = rng.choice(nodes)
    match what:
        case "delete workload":
            return [Operation("delete", kind, name, namespace)]
        case "orphan pods":
            return [Operation("orphan", *root) for root in scaled[:1]]
        case "scale":
            return [Operation("patch", *root, {"spec": {"replicas": rng.randint(0, 4)}}) for root in scaled]
        case "delete node":
            return [Operation("delete", "Node", host)]
        case "finish pods":
            return [Operation("finish", kind, name, namespace)]
        case "delete namespace":
            return [Operation("delete", "Namespace", "team")]
        case "taint node":
            taint = {"key": "maintenance", "effect": "NoExecute"}
            return [Operation("patch", "Node", host, "", {"spec": {"taints": [taint]}})]
        case "cordon":
            return [Operation("patch", "Node", host, "", {"spec": {"unschedulable": True}})]
        case "delete pods":
            return [Operation("delete pods", kind, name, namespace)]
        case "taint devices":
            return [Operation("rule", "DeviceTaintRule", f"rule-{name}", "", rule_of(name, pool=f"{host}-{name}"))]
        case "new image":
            image = {"template": {"spec": {"containers": [{"name": "main", "image": "registry.example/app:2"}]}}}
            return [
                Operation("image", *root, {"spec": image})
                for root in scaled
                if root[0] in ("Deployment", "StatefulSet")
            ]
        case _:
            return [Operation("lose", *root) for root in roots if root[0] == "Job"]


def rule_of(name: str, **devices: str) -> Object:
    spec = {"deviceSelector": devices, "taint": {"key": "broken", "effect": "NoExecute"}}
    return manifest("DeviceTaintRule", f"rule-{name}", spec=spec)


def replaced(what: str, base: list[Object], rng: random.Random) -> list[Object]:
    """Manifests that change one object of these, or add one; [] where there is none of its kind."""
    kinds = {
        "replicas": ("Deployment", "StatefulSet", "ReplicaSet", "ReplicationController"),
        "toleration": ("Deployment", "StatefulSet", "DaemonSet"),
        "selector": ("Deployment", "DaemonSet", "StatefulSet", "ReplicaSet"),
        "claim": ("ResourceClaim",),
        "template": ("ResourceClaimTemplate",),
        "device taint": ("ResourceSlice",),
        "class": ("DeviceClass",),
        "cordon": ("Node",),
        "node label": ("Node",),
        "pod": ("Pod",),
        "new slice": ("ResourceSlice",),
        "new workload": ("Deployment", "ReplicaSet", "Pod"),
    }.get(what, ())
    found = [one for one in base if one["kind"] in kinds]
    if kinds and not found:
        return []
    one: Object = copy.deepcopy(rng.choice(found)) if found else {}
    spec = one.get("spec", {})
    match what:
        case "replicas":
            spec["replicas"] = rng.randint(0, 4)
        case "toleration":
            spec["template"]["spec"]["tolerations"] = [{"key": "maintenance", "operator": "Exists"}]
        case "selector":
            spec["selector"] = {"matchLabels": {"app": "another"}}
        case "claim":
            spec["devices"]["requests"][0]["exactly"]["count"] = 2
        case "template":
            spec["spec"]["devices"]["requests"][0]["exactly"]["count"] = 2
        case "device taint":
            effect = rng.choice(["NoSchedule", "NoExecute"])
            spec["devices"][0]["taints"] = [{"key": "broken", "effect": effect, "timeAdded": "2026-01-01T00:00:00Z"}]
        case "class":
            spec["selectors"] = [{"cel": {"expression": "device.driver == 'another.example.org'"}}]
        case "cordon":
            spec["unschedulable"] = True
        case "node label":
            one["metadata"].setdefault("labels", {})["zone"] = "b"
        case "pod":
            if rng.random() < 0.5:
                spec["tolerations"] = [{"key": "maintenance", "operator": "Exists"}]
            else:
                spec["resourceClaims"] = []
        case "new rule":
            return [rule_of("added", device="gpu-1")]
        case "priority class":
            return [manifest("PriorityClass", "high", value=1000)]
        case "new slice":
            name = f"{one['metadata']['name']}-more"
            one["metadata"]["name"] = name
            spec["pool"]["name"] = name
        case _:
            one["metadata"]["name"] += "-more"
    return [one]


def changed(what: str, roots: list[tuple[str, str, str]], nodes: list[str], rng: random.Random) -> Operation:
    host = rng.choice(nodes)
    kind, name, namespace = rng.choice(roots)
    match what:
        case "remove node":
            return Operation("remove node", "Node", host)
        case "taint":
            return Operation("taint", "DeviceTaintRule", "", "", rule_of("first", device="gpu-0"))
        case "delete pod":
            return Operation("delete pods", kind, name, namespace)
        case _:
            return Operation("add node", "Node", host)
