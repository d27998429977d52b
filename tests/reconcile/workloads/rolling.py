"""A kubelet without a node, and steps until nothing changes: for workloads that roll."""

from __future__ import annotations

from typing import Any

from dragoman.reconcile.workloads import daemonset

SELECTOR = {"matchLabels": {"app": "a"}}


def template(image: str = "one", **spec: Any) -> dict[str, Any]:
    return {"metadata": {"labels": {"app": "a"}}, "spec": {"containers": [{"name": "c", "image": image}], **spec}}


def serve(cluster: Any, name: str) -> None:
    ready = {"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}
    pod = cluster.typed("Pod", name)
    node = daemonset.node_of(pod) or "n"
    cluster.edit("Pod", name, {"spec": {"nodeName": node}, "status": {"phase": "Running", "conditions": [ready]}})


def kubelet(cluster: Any, *, healthy: Any = lambda pod: True) -> None:
    for pod in cluster.all("Pod"):
        name = pod["metadata"]["name"]
        if pod["metadata"].get("deletionTimestamp"):
            cluster.remove("Pod", name)
        elif not pod.get("status") and healthy(pod):
            serve(cluster, name)


def run(cluster: Any, sync: Any, *, check: Any = lambda: None, healthy: Any = lambda pod: True) -> None:
    for _ in range(100):
        before = cluster.count
        cluster.carry_out(sync(cluster.world).effects)
        check()
        kubelet(cluster, healthy=healthy)
        check()
        if cluster.count == before:
            return
    raise AssertionError("never settled")


def images(cluster: Any) -> list[str]:
    return [pod["spec"]["containers"][0]["image"] for pod in cluster.all("Pod")]
