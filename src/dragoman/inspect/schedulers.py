"""Which scheduler decides a pod, does it run here, and do several give out the same devices?

A pod waits for the scheduler that its spec.schedulerName names, and for no other. Whether one of that name runs is read
from what it leaves behind: Leases, Events, pods that it has bound, and pods that are called like it. Two schedulers
that allocate devices of one driver do not see each other's choices until they are written: one device can go to two
claims.
Never writes.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from difflib import get_close_matches
from typing import Any

import msgspec

from dragoman.api.core import Pod
from dragoman.api.meta import NamespacedName
from dragoman.api.resource import DeviceSubRequest, ExactDeviceRequest, ResourceClaimSpec
from dragoman.schedule.extended import classes_by_resource
from dragoman.schedule.fences import is_held
from dragoman.snapshot.change import Snapshot
from dragoman.snapshot.usage import is_finished, pod_requests

DRIVER_TEST = re.compile(r"""device\.driver\s*==\s*(['"])([^'"]+)\1""")
"""How a class's selector names its driver."""
DEFAULT = "default-scheduler"
KUEUE_QUEUE = "kueue.x-k8s.io/queue-name"
KUEUE_GATES = ("kueue.x-k8s.io/admission", "kueue.x-k8s.io/topology")

TITLES: Mapping[str, str] = {
    DEFAULT: "kube-scheduler",
    "dragoman": "Dragoman",
    "dragoman-scheduler": "Dragoman",
    "kai-scheduler": "KAI Scheduler",
    "runai-scheduler": "NVIDIA Run:ai",
    "volcano": "Volcano",
    "yunikorn": "Apache YuniKorn",
    "koord-scheduler": "Koordinator",
    "scheduler-plugins-scheduler": "scheduler-plugins",
    "hami-scheduler": "HAMi",
    "kube-batch": "kube-batch",
    "godel-scheduler": "Gödel",
    "nos-scheduler": "nos",
    "gke.io/optimize-utilization-scheduler": "GKE",
}
"""Schedulers by the name that pods give, as their projects document it."""
_WRITE_AS: Mapping[str, tuple[str, ...]] = {
    DEFAULT: ("kube-scheduler",),
    "dragoman": ("dragoman-scheduler",),
    "volcano": ("vc-scheduler", "volcano-scheduler"),
    "yunikorn": ("yunikorn-scheduler",),
}
"""Other names under which they write."""
NOBODY = "nobody with this name has written an event or lease here"


class SchedulerInfo(msgspec.Struct, frozen=True):
    """A scheduler that pods name. title: of the project, "" if it is not known here. evidence: that it runs, "" for
    none. visible: whether Leases or Events could be read, so that no evidence means something. near: a known or seen
    name like it."""

    name: str
    title: str
    evidence: str
    visible: bool
    near: str = ""


class SharedDriver(msgspec.Struct, frozen=True):
    """A driver whose devices pods of several schedulers use or ask for; pods: one of each scheduler."""

    driver: str
    schedulers: tuple[str, ...]
    pods: tuple[str, ...]


def title_of(name: str) -> str:
    """The project behind a scheduler's name, "" if it is not known."""
    return TITLES.get(name, "")


def written_by(
    leases: Iterable[Mapping[str, Any]], events: Iterable[Mapping[str, Any]], now: datetime | None = None
) -> dict[str, str]:
    """Who has written Leases and Events: name to what was seen of it. now: leases that ran out do not count."""
    found: dict[str, str] = {}
    for event in events:
        source = event.get("source") or {}
        regarding = event.get("involvedObject") or event.get("regarding") or {}
        for who in (event.get("reportingComponent"), event.get("reportingController"), source.get("component")):
            if who:
                found.setdefault(
                    str(who), f"an event about {regarding.get('kind', 'object')} {regarding.get('name', '')}"
                )
    for lease in leases:
        meta, spec = lease.get("metadata") or {}, lease.get("spec") or {}
        if spec.get("holderIdentity") and (now is None or is_held({"spec": dict(spec)}, now)):
            found[str(meta.get("name"))] = f"lease {meta.get('namespace', '')}/{meta.get('name')}"
    return found


def scheduler_info(name: str, snapshot: Snapshot, writers: Mapping[str, str], *, visible: bool) -> SchedulerInfo:
    """What is known of a scheduler. visible: whether Leases or Events may be seen at all."""
    names = (name, *_WRITE_AS.get(name, ()))
    evidence = next((writers[one] for one in names if one in writers), "") or _pods(names, snapshot)
    near = ""
    if not evidence and name not in TITLES:
        known = {_stem(one): one for one in (*TITLES, *(one for one in writers if "scheduler" in one))}
        near = known.get(next(iter(get_close_matches(_stem(name), sorted(known), n=1, cutoff=0.65)), "?"), "")
    return SchedulerInfo(name, title_of(name), evidence, visible, near)


def _stem(name: str) -> str:
    """A name without its ending, which most schedulers have in common, misspelt or not."""
    return re.sub(r"[-_]?sch?ed[a-z]*$", "", name.lower()) or name


def _pods(names: Sequence[str], snapshot: Snapshot) -> str:
    """A pod that is called like the scheduler and runs, or one that it has bound."""
    for key, pod in sorted(snapshot.pods.items()):
        called = any(key[1] == one or key[1].startswith(f"{one}-") for one in names)
        if called and pod.status.phase == "Running" and (names[0] == DEFAULT or pod.spec.scheduler_name not in names):
            return f"pod {'/'.join(key)}"
    for key, pod in sorted(snapshot.pods.items()):
        if pod.spec.scheduler_name == names[0] and pod.spec.node_name and names[0] != DEFAULT:
            return f"pod {'/'.join(key)}, which it has bound"
    return ""


def queue_of(pod: Pod) -> str:
    """The Kueue queue that admits a pod before any scheduler sees it; "" for none."""
    gated = any(gate.name in KUEUE_GATES for gate in pod.spec.scheduling_gates)
    return pod.metadata.labels.get(KUEUE_QUEUE, "") if gated or KUEUE_QUEUE in pod.metadata.labels else ""


def sentence(info: SchedulerInfo) -> str:
    """What has to be known of a scheduler, "" for kube-scheduler that is not seen to be missing."""
    if info.name == DEFAULT:
        missing = info.visible and not info.evidence
        return f"scheduler {DEFAULT} (kube-scheduler): {NOBODY}" if missing else ""
    named = f"scheduler {info.name}" + (f" ({info.title})" if info.title else ", which is not known here,")
    if info.evidence:
        return f"{named} decides; shown is what kube-scheduler would decide (seen: {info.evidence})"
    near = f"; did you mean {info.near}?" if info.near else ""
    return f"{named} has to run for this: {NOBODY}{near}"


# ---- one driver, several schedulers


def shared_drivers(snapshot: Snapshot, writers: Mapping[str, str]) -> tuple[SharedDriver, ...]:
    """Drivers whose devices unfinished pods of more than one scheduler use or ask for.

    Schedulers that are not known and have left no trace do not count.
    """
    names = {pod.spec.scheduler_name for pod in snapshot.pods.values()}
    if len(names) < 2:
        return ()
    infos = (scheduler_info(name, snapshot, writers, visible=True) for name in sorted(names))
    names = {info.name for info in infos if info.title or info.evidence}
    users: dict[str, dict[str, str]] = {}
    by_resource = classes_by_resource(snapshot.classes)
    drivers_of = {name: _drivers(snapshot, name) for name in snapshot.classes}
    for key, pod in sorted(snapshot.pods.items()):
        left = is_finished(pod) or pod.metadata.deletion_timestamp is not None
        if left or pod.spec.scheduler_name not in names:
            continue
        for name in _classes(snapshot, key, pod, by_resource):
            for driver in drivers_of.get(name, ()):
                users.setdefault(driver, {}).setdefault(pod.spec.scheduler_name, "/".join(key))
    return tuple(
        SharedDriver(driver, tuple(sorted(pods)), tuple(pods[name] for name in sorted(pods)))
        for driver, pods in sorted(users.items())
        if len(pods) > 1
    )


def shared_text(one: SharedDriver) -> str:
    """The finding as a sentence, and the risk."""
    who = " and ".join(f"{name} ({pod})" for name, pod in zip(one.schedulers, one.pods, strict=True))
    return (
        f"{who} give out devices of the same driver {one.driver}: neither sees what the other is about to allocate, so "
        "both may pick one device at the same moment and it goes to two claims"
    )


SHARED_HELP = "let one scheduler allocate this driver's devices, or give each its own nodes (taints and nodeSelector)"


def _drivers(snapshot: Snapshot, name: str) -> tuple[str, ...]:
    texts = (s.cel.expression for s in snapshot.classes[name].spec.selectors if s.cel is not None)
    return tuple(dict.fromkeys(match[2] for text in texts for match in DRIVER_TEST.finditer(text)))


def _classes(snapshot: Snapshot, key: NamespacedName, pod: Pod, by_resource: Mapping[str, str]) -> Iterable[str]:
    namespace = key[0]
    made = {status.name: status.resource_claim_name for status in pod.status.resource_claim_statuses}
    for entry in pod.spec.resource_claims:
        claim = snapshot.claims.get((namespace, entry.resource_claim_name or made.get(entry.name) or ""))
        template = snapshot.templates.get((namespace, entry.resource_claim_template_name or ""))
        spec = claim.spec if claim is not None else template.spec.spec if template is not None else None
        if spec is not None:
            yield from _asked(spec)
    for resource in pod_requests(pod) if by_resource else ():
        if resource in by_resource:
            yield by_resource[resource]


def _asked(spec: ResourceClaimSpec) -> Iterable[str]:
    for request in spec.devices.requests:
        options: list[ExactDeviceRequest | DeviceSubRequest] = [*request.first_available]
        if request.exactly is not None:
            options.append(request.exactly)
        for option in options:
            if not getattr(option, "admin_access", None):
                yield option.device_class_name
