"""Does kube-apiserver refuse the same objects, in the same words? Random small namespaces, the same writes to both."""

from __future__ import annotations

import json
import random
import re
from typing import Any

import pytest

from dragoman.api.kinds import BY_NAME
from dragoman.apiserver.bootstrap import in_memory
from dragoman.apiserver.registry import Registry
from dragoman.apiserver.status import StatusError
from dragoman.runtime.clock import Clock
from dragoman.runtime.entropy import Entropy
from tests.real.cluster import Cluster
from tests.real.conftest import StartCluster

pytestmark = pytest.mark.slow
Object = dict[str, Any]
CASES = 30
CLASSES = {"gpu": "example.com/gpu", "slow": None}
HARD = {
    "pods": (1, 3),
    "requests.cpu": (1, 3),
    "limits.memory": (1, 4),
    "requests.example.com/gpu": (1, 4),
    "count/pods": (2, 4),
    "count/resourceclaims.resource.k8s.io": (1, 3),
    "gpu.deviceclass.resource.k8s.io/devices": (1, 5),
    "slow.deviceclass.resource.k8s.io/devices": (0, 40),
    "requests.deviceclass.resource.kubernetes.io/gpu": (1, 4),
    "requests.deviceclass.resource.kubernetes.io/slow": (1, 4),
    "services.nodeports": (0, 3),
    "persistentvolumeclaims": (0, 1),
    "requests.storage": (1, 3),
}


def case(number: int) -> tuple[Object, list[Object]]:
    """A quota (with a scope at times) and what is created under it."""
    draw = random.Random(number)
    names = draw.sample(sorted(HARD), draw.choice([1, 2, 4]))
    scopes = draw.choice([[], [], ["BestEffort"], ["NotTerminating"]])
    if scopes:
        names = ["pods"]
    unit = {"limits.memory": "Gi", "requests.storage": "Gi"}
    hard = {name: f"{draw.randint(*HARD[name])}{unit.get(name, '')}" for name in names}
    spec: Object = {"hard": hard, **({"scopes": scopes} if scopes else {})}
    quota = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "q"}, "spec": spec}
    objects = [draw.choice([_pod, _pod, _claim, _claim, _service, _volume])(draw, f"o{i}") for i in range(10)]
    return quota, objects


def _pod(draw: random.Random, name: str) -> Object:
    def container(at: int) -> Object:
        requests = {"cpu": draw.choice(["250m", "1"]), "memory": draw.choice(["512Mi", "1Gi"])}
        limits = dict(requests)
        if draw.random() < 0.3:
            limits[gpu] = requests[gpu] = draw.choice(["1", "2"])
        resources = draw.choice([{"requests": requests, "limits": limits}] * 4 + [{}])
        return {"name": f"c{at}", "image": "none", "resources": resources}

    gpu = draw.choice(["example.com/gpu", "deviceclass.resource.kubernetes.io/slow"])
    spec: Object = {"containers": [container(at) for at in range(draw.choice([1, 2]))]}
    if draw.random() < 0.3:
        spec["initContainers"] = [container(9)]
    if draw.random() < 0.3:
        spec["activeDeadlineSeconds"] = 60
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}


def _claim(draw: random.Random, name: str) -> Object:
    def one() -> Object:
        mode = draw.choice(["ExactCount"] * 5 + ["All"])
        count = {"count": draw.randint(1, 3)} if mode == "ExactCount" else {}
        return {"deviceClassName": draw.choice(sorted(CLASSES)), "allocationMode": mode, **count}

    requests = []
    for at in range(draw.choice([1, 2])):
        if draw.random() < 0.4:
            requests.append({"name": f"r{at}", "firstAvailable": [{"name": f"s{n}", **one()} for n in range(3)]})
        else:
            requests.append({"name": f"r{at}", "exactly": one()})
    kind = BY_NAME["ResourceClaim"]
    spec = {"devices": {"requests": requests}}
    return {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": {"name": name}, "spec": spec}


def _service(draw: random.Random, name: str) -> Object:
    ports = [{"port": 80 + at, "name": f"p{at}"} for at in range(draw.choice([1, 2]))]
    spec = {"type": draw.choice(["ClusterIP", "NodePort", "LoadBalancer"]), "ports": ports}
    return {"apiVersion": "v1", "kind": "Service", "metadata": {"name": name}, "spec": spec}


def _volume(draw: random.Random, name: str) -> Object:
    storage = draw.choice(["1Gi", "1536Mi"])
    spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": storage}}}
    return {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": name}, "spec": spec}


def classes() -> list[Object]:
    kind = BY_NAME["DeviceClass"]
    return [
        {
            "apiVersion": kind.api_version,
            "kind": kind.kind,
            "metadata": {"name": name},
            "spec": {"extendedResourceName": resource} if resource else {},
        }
        for name, resource in CLASSES.items()
    ]


def test_kube_apiserver_refuses_the_same_in_the_same_words(start: StartCluster) -> None:
    cluster = start(controllers="kube")
    registry = in_memory(Clock(), Entropy())
    cluster.apply(*classes())
    for body in classes():
        registry.create(BY_NAME["DeviceClass"], body)
    cases = {f"case-{number}": case(number) for number in range(CASES)}
    namespaces = [{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}} for name in cases]
    quotas = [{**quota, "metadata": {"name": "q", "namespace": name}} for name, (quota, _) in cases.items()]
    cluster.apply(*namespaces)
    cluster.until(
        lambda: {found["metadata"]["namespace"] for found in cluster.all("ServiceAccount")} >= set(cases),
        "accounts",
        60,
    )
    cluster.apply(*quotas)

    def counted() -> bool:
        found = cluster.all("ResourceQuota")
        return len(found) == len(cases) and all(
            set((quota.get("status") or {}).get("used") or {}) == set(quota["spec"]["hard"]) for quota in found
        )

    cluster.until(counted, "the quotas to be counted", 60)
    refusals = 0
    for name, (quota, objects) in cases.items():
        theirs = _theirs(cluster, name, objects)
        ours = _ours(registry, name, quota, objects)
        assert ours == theirs, (name, quota["spec"])
        refusals += len(ours)
    assert refusals > CASES


def _theirs(cluster: Cluster, namespace: str, objects: list[Object]) -> list[str]:
    body = {"apiVersion": "v1", "kind": "List", "items": objects}
    said = cluster.kubectl("create", "-n", namespace, "-f", "-", stdin=json.dumps(body), ok=None).stderr
    found = re.findall(r"Error from server \((?:\w+)\): (?:error when creating \"STDIN\": )?(.*)", said)
    return sorted(found)


def _ours(registry: Registry, namespace: str, quota: Object, objects: list[Object]) -> list[str]:
    registry.create(BY_NAME["Namespace"], {"metadata": {"name": namespace}})
    registry.create(BY_NAME["ResourceQuota"], quota, namespace)
    found: list[str] = []
    for body in objects:
        try:
            registry.create(BY_NAME[body["kind"]], body, namespace)
        except StatusError as refused:
            found.append(refused.message)
    return sorted(found)
