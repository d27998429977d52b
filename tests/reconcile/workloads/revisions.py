"""ReplicaSets and Deployments as their tests step them."""

from __future__ import annotations

from typing import Any

from dragoman.api import codec
from dragoman.api.core import Pod
from dragoman.reconcile.workloads import deployment

SELECTOR = {"matchLabels": {"app": "a"}}


def template(image: str = "one", **labels: str) -> dict[str, Any]:
    return {
        "metadata": {"labels": {"app": "a", **labels}},
        "spec": {"containers": [{"name": "c", "image": image}]},
    }


def a_deployment(cluster: Any, replicas: int = 3, **spec: Any) -> Any:
    base = {"replicas": replicas, "selector": SELECTOR, "template": template(), "progressDeadlineSeconds": 600}
    return cluster.add("Deployment", "web", spec={**base, **spec})


def sync_web(world: Any) -> Any:
    return deployment.sync(world, ("default", "web"))


def ready(cluster: Any, name: str, since: str = "2026-01-01T00:00:00Z") -> None:
    condition = {"type": "Ready", "status": "True", "lastTransitionTime": since}
    cluster.edit("Pod", name, {"spec": {"nodeName": "n"}, "status": {"phase": "Running", "conditions": [condition]}})


def pod(name: str, **fields: Any) -> Pod:
    return codec.decode(Pod, {"metadata": {"name": name, **fields.pop("metadata", {})}, **fields})
