"""Pods that serve, and steps of a controller until it is at rest."""

from __future__ import annotations

from typing import Any

READY = {"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}


SERVICE, BUDGET, CONTROLLER = ("default", "web"), ("default", "b"), ("default", "rc")


def pod(
    cluster: Any, name: str, ip: str, *, ready: bool = True, owner: dict[str, Any] | None = None, **labels: str
) -> None:
    metadata: dict[str, Any] = {"labels": {"app": "web", **labels}}
    if owner is not None:
        reference = {"apiVersion": "apps/v1", "kind": owner["kind"], "controller": True}
        metadata["ownerReferences"] = [
            {**reference, "name": owner["metadata"]["name"], "uid": owner["metadata"]["uid"]}
        ]
    spec = {"nodeName": "n", "containers": [{"name": "c", "ports": [{"name": "http", "containerPort": 8080}]}]}
    status = {"phase": "Running", "podIP": ip, "conditions": [READY] if ready else []}
    cluster.add("Pod", name, metadata=metadata, spec=spec, status=status)


def settle(cluster: Any, sync: Any, key: Any) -> None:
    for _ in range(5):
        effects = sync(cluster.world, key).effects
        if not effects:
            return
        cluster.carry_out(effects)
    raise AssertionError(f"never at rest: {effects}")
