"""How is "one more of this" written down? The objects of manifests, and copies of them under names of their own.

    demand = demand_of(objects, snapshot)        # pods, workloads, gangs or claims, as they are in the files
    for change in copied(demand, 7): ...         # the objects of copy 7: `train-copy-7`, with its claims and its group

Claims without a pod get one that uses them and requests nothing else. Never decides where a copy goes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import msgspec

from dragoman.api import codec
from dragoman.api.core import Pod
from dragoman.api.meta import NamespacedName
from dragoman.errors import Invalid
from dragoman.snapshot.change import WORKLOADS
from dragoman.snapshot.usage import pod_requests
from dragoman.whatif.changes import PutObject
from dragoman.whatif.cluster import ClusterState
from dragoman.whatif.units import GANG_LABELS, Named, pods_of

COPIED = frozenset({"Pod", "PodGroup", "ResourceClaim", *WORKLOADS}) - {"CronJob"}
"""Kinds of which each copy has objects of its own; all others (classes, templates, quotas) are shared by all copies."""
_ENDLESS = frozenset({"DaemonSet"})


class PlannedDemand(msgspec.Struct, frozen=True):
    """What is counted: (kind, object as JSON) of one copy, and what to call it. pods: how many one copy has."""

    title: str
    objects: tuple[tuple[str, dict[str, Any]], ...]
    pods: int

    @property
    def templates(self) -> tuple[tuple[str, str, int], ...]:
        """(namespace, claim template, claims) that its pods make."""
        return tuple(
            (body["metadata"].get("namespace", ""), entry["resourceClaimTemplateName"], replicas(kind, body))
            for kind, body in self.objects
            for entry in _pod_spec(kind, body)
            if entry.get("resourceClaimTemplateName")
        )


def demand_of(objects: Iterable[tuple[str, Any]], where: str = "-f") -> PlannedDemand:
    """The demand that typed objects make together. Raises Invalid for `where` if no pod and no claim is among them."""
    listed = [(kind, _plain(kind, value)) for kind, value in objects if kind in COPIED]
    for kind, body in listed:
        if kind in _ENDLESS:
            raise Invalid(where, f"{kind} {_name(body)} has a pod on every node, so that it cannot be counted")
    running = [(kind, body) for kind, body in listed if kind == "Pod" or kind in WORKLOADS]
    used = {entry.get("resourceClaimName") for kind, body in running for entry in _pod_spec(kind, body)}
    claims = [body for kind, body in listed if kind == "ResourceClaim" and body["metadata"]["name"] not in used]
    for body in claims:
        running.append(("Pod", pod_for_claim(body["metadata"]["name"], body["metadata"].get("namespace", ""))))
        listed.append(running[-1])
    if not running:
        raise Invalid(where, "holds no pod, workload or claim to plan for that is not in the cluster already")
    names = [f"{kind} {_name(body)}" for kind, body in (listed if not claims else [*running[: -len(claims)]])]
    names += [f"ResourceClaim {_name(body)}" for body in claims]
    title = ", ".join(name for name in names if len(running) == 1 or not name.startswith("ResourceClaim")) or names[0]
    return PlannedDemand(title, tuple(listed), sum(replicas(kind, body) for kind, body in running))


def parted(objects: Sequence[tuple[str, Any]], where: str = "-f") -> list[PlannedDemand]:
    """One demand for each pod, workload or claim, together with what it shares: a gang, or a claim by name."""
    groups: list[tuple[set[tuple[str, str, str]], list[tuple[str, Any]]]] = []
    for kind, value in objects:
        if kind not in COPIED:
            continue
        keys, members = _shared_keys(kind, _plain(kind, value)), [(kind, value)]
        for group in [group for group in groups if group[0] & keys]:
            groups.remove(group)
            keys, members = keys | group[0], [*group[1], *members]
        groups.append((keys, members))
    return [demand_of(members, where) for _, members in groups]


def _shared_keys(kind: str, body: dict[str, Any]) -> set[tuple[str, str, str]]:
    meta = body["metadata"]
    namespace = meta.get("namespace", "")
    keys = {(kind, namespace, meta["name"])}
    keys |= {
        ("ResourceClaim", namespace, entry["resourceClaimName"])
        for entry in _pod_spec(kind, body)
        if entry.get("resourceClaimName")
    }
    for spec, labels in _pod_parts(kind, _copy(body)):
        group = (spec.get("schedulingGroup") or {}).get("podGroupName")
        keys |= {("PodGroup", namespace, group)} if group else set()
        keys |= {("gang", namespace, labels[label]) for label in GANG_LABELS if labels.get(label)}
    return keys


def pod_for_claim(claim: str, namespace: str, *, is_template: bool = False) -> dict[str, Any]:
    """A pod that uses one claim and asks for nothing else."""
    field = "resourceClaimTemplateName" if is_template else "resourceClaimName"
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": f"pod-of-{claim}", "namespace": namespace},
        "spec": {
            "containers": [{"name": "main", "image": "none", "resources": {"claims": [{"name": "claim"}]}}],
            "resourceClaims": [{"name": "claim", field: claim}],
        },
    }


def _plain(kind: str, value: Any) -> dict[str, Any]:
    body: dict[str, Any] = codec.to_json(value)
    meta = body.setdefault("metadata", {})
    body["metadata"] = {key: meta[key] for key in ("name", "namespace", "labels", "annotations") if key in meta}
    body["kind"] = kind
    if kind == "ResourceClaim":
        body.pop("status", None)
    return body


def _name(body: dict[str, Any]) -> str:
    meta = body["metadata"]
    return "/".join(filter(None, (meta.get("namespace", ""), meta["name"])))


def _pod_spec(kind: str, body: dict[str, Any]) -> list[dict[str, Any]]:
    spec = body.get("spec", {})
    if kind != "Pod":
        spec = spec.get("template", {}).get("spec", {})
    found: list[dict[str, Any]] = spec.get("resourceClaims") or []
    return found


def replicas(kind: str, body: dict[str, Any]) -> int:
    """How many pods of a workload run at once."""
    spec = body.get("spec", {})
    if kind == "Pod":
        return 1
    if kind == "Job":
        parallelism = spec.get("parallelism", 1)
        return int(min(parallelism, spec.get("completions") or parallelism))
    return int(spec.get("replicas", 1))


def copied(demand: PlannedDemand, number: int) -> Iterator[PutObject]:
    """The objects of one copy."""
    own = {kind: {body["metadata"]["name"] for k, body in demand.objects if k == kind} for kind in COPIED}
    for kind, body in demand.objects:
        made = _copy(body)
        meta = made["metadata"]
        meta["name"] = renamed(meta["name"], number)
        for spec, labels in _pod_parts(kind, made):
            for entry in spec.get("resourceClaims") or ():
                if entry.get("resourceClaimName") in own["ResourceClaim"]:
                    entry["resourceClaimName"] = renamed(entry["resourceClaimName"], number)
            group = spec.get("schedulingGroup")
            if group and group.get("podGroupName") in own["PodGroup"]:
                group["podGroupName"] = renamed(group["podGroupName"], number)
            for label in GANG_LABELS:
                if labels.get(label):
                    labels[label] = renamed(labels[label], number)
        yield PutObject(kind, codec.decode(codec.TYPES[kind], made))


def renamed(name: str, number: int) -> str:
    """The name in copy `number`."""
    return f"{name}-copy-{number}"


def _copy(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _copy(item) for key, item in value.items()}
    return [_copy(item) for item in value] if isinstance(value, list) else value


def _pod_parts(kind: str, body: dict[str, Any]) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """(pod spec, labels) of the pods that an object is or makes."""
    if kind == "Pod":
        yield body["spec"], body["metadata"].setdefault("labels", {})
    elif kind in WORKLOADS and "template" in body.get("spec", {}):
        template = body["spec"]["template"]
        yield template.setdefault("spec", {}), (template.get("metadata") or {}).get("labels") or {}


def order_of(demand: PlannedDemand, numbers: Iterable[int]) -> tuple[Named, ...]:
    """The pods and workloads of copies, in their order."""
    return tuple(
        (kind, body["metadata"].get("namespace", ""), renamed(body["metadata"]["name"], number))
        for number in numbers
        for kind, body in demand.objects
        if kind == "Pod" or kind in WORKLOADS
    )


def single_pods(demand: PlannedDemand) -> Iterator[tuple[PlannedDemand, int]]:
    """Each kind of pod of one copy as a demand of its own, and how many of it one copy has."""
    own = {body["metadata"]["name"]: body for kind, body in demand.objects if kind == "ResourceClaim"}
    for kind, body in demand.objects:
        for spec, labels in _pod_parts(kind, _copy(body)):
            spec.pop("schedulingGroup", None)
            labels = {key: value for key, value in labels.items() if key not in GANG_LABELS}
            meta = {"name": body["metadata"]["name"], "namespace": body["metadata"].get("namespace", "")}
            pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {**meta, "labels": labels}, "spec": spec}
            names = [entry.get("resourceClaimName") for entry in spec.get("resourceClaims") or ()]
            claims = [("ResourceClaim", own[name]) for name in names if name in own]
            yield PlannedDemand(f"{kind} {_name(body)}", (*claims, ("Pod", pod)), 1), replicas(kind, body)


def pod_needs(demand: PlannedDemand) -> Iterator[tuple[dict[str, int], int]]:
    """What the pods of one copy request of a node, in nano-units, and how many pods request it."""
    for kind, body in demand.objects:
        if kind != "Pod" and kind not in WORKLOADS:
            continue
        for spec, _ in _pod_parts(kind, _copy(body)):
            pod = codec.decode(Pod, {"metadata": {"name": "one"}, "spec": spec})
            yield pod_requests(pod), replicas(kind, body)


def pods_in(cluster: ClusterState, demand: PlannedDemand, number: int) -> Sequence[NamespacedName]:
    """The pods of a copy as far as they exist."""
    return [key for named in order_of(demand, [number]) for key in pods_of(cluster, *named)]
