"""What is special about pods? Phase and quality of service on creation, what may change later, graceful deletion."""

from __future__ import annotations

from dragoman.api.admission import tolerate_lost_nodes
from dragoman.api.shape import Object
from dragoman.apiserver.lookup import Lookup
from dragoman.apiserver.request import DeleteOptions, Write
from dragoman.apiserver.strategies.base import Strategy, dig

FINISHED = ("Succeeded", "Failed")


class PodStrategy(Strategy):
    """Pods."""

    keeps_generation = True

    def counts(self, new: Object, old: Object) -> bool:
        """A binding is not a change of what is desired."""
        first, second = new.get("spec") or {}, old.get("spec") or {}
        return {**first, "nodeName": ""} != {**second, "nodeName": ""}

    returns_deleted = True

    def prepare_create(self, lookup: Lookup, obj: Object, write: Write) -> list[str]:
        """Pending, with its class of service and the usual tolerations for lost nodes."""
        spec = obj.setdefault("spec", {})
        status: Object = {"phase": "Pending", "qosClass": qos_class(spec)}
        if spec.get("schedulingGates"):
            status["conditions"] = [
                {
                    "type": "PodScheduled",
                    "status": "False",
                    "reason": "SchedulingGated",
                    "message": "Scheduling is blocked due to non-empty scheduling gates",
                    "lastTransitionTime": lookup.now_text(),
                }
            ]
        obj["status"] = status
        tolerate_lost_nodes(spec)
        return []

    def prepare_update(self, lookup: Lookup, new: Object, old: Object, subresource: str, write: Write) -> list[str]:
        """Each subresource changes its own part."""
        if subresource == "status":
            new.setdefault("status", {}).setdefault("qosClass", dig(old, "status", "qosClass") or "BestEffort")
        elif subresource == "ephemeralcontainers":
            ephemeral = dig(new, "spec", "ephemeralContainers")
            new["spec"] = {**old["spec"]}
            if ephemeral is not None:
                new["spec"]["ephemeralContainers"] = ephemeral
            new["status"] = old["status"]
        return []

    def grace_s(self, obj: Object, options: DeleteOptions) -> int | None:
        """Nobody waits for a pod that no node runs."""
        spec = obj.get("spec") or {}
        if not spec.get("nodeName") or dig(obj, "status", "phase") in FINISHED:
            return 0
        grace = options.grace_s if options.grace_s is not None else spec.get("terminationGracePeriodSeconds", 30)
        return 1 if grace < 0 else int(grace)


def qos_class(spec: Object) -> str:
    """Guaranteed, Burstable or BestEffort (core/v1 PodQOSClass)."""
    containers = [*(spec.get("initContainers") or []), *(spec.get("containers") or [])]
    asks = False
    guaranteed = True
    for container in containers:
        requests, limits = dig(container, "resources", "requests") or {}, dig(container, "resources", "limits") or {}
        for resource in ("cpu", "memory"):
            if resource in requests or resource in limits:
                asks = True
            if resource not in limits or requests.get(resource, limits[resource]) != limits[resource]:
                guaranteed = False
    if not asks:
        return "BestEffort"
    return "Guaranteed" if guaranteed else "Burstable"
