"""Are the versions fit for DRA and for each other? Of API server, kubelets, schedulers, container runtimes."""

from __future__ import annotations

import re
from collections.abc import Iterator

from dragoman.api.shape import Object, dig, objects, text
from dragoman.doctor.check import BLOCKER, Evidence, NotSeen, Seen
from dragoman.doctor.state import ExaminedCluster, name_of, subject_of
from dragoman.values.semver import Semver

OLDEST = Semver.parse("1.34.0")
"""resource.k8s.io/v1 (KEP-4381)."""
DEFECTIVE = frozenset({"1.34.0", "1.34.1"})
SKEW_MAX = 3
"""Minor versions that a kubelet may be older than the API server: Kubernetes' version skew policy."""
CDI_SINCE = {"containerd": (Semver.parse("1.7.0"), Semver.parse("2.0.0")), "cri-o": (Semver.parse("1.23.0"),) * 2}
"""Runtime -> the version that has CDI, and the one that has it on by default."""
_TAG = re.compile(r":v?(\d+\.\d+\.\d+)")


def version_in(value: str) -> Semver | None:
    """The version that a text begins with (`v1.36.5+k3s1`), without what follows it; None for other texts."""
    match = re.match(r"v?(\d+\.\d+(?:\.\d+)?)", value)
    return Semver.parse(match[1], normalize=True) if match else None


def kubernetes(state: ExaminedCluster) -> Iterator[tuple[str, str, str, Semver]]:
    """Every version of Kubernetes that is seen: object, field, text, version."""
    found = [("API server", "gitVersion", state.server.version)]
    for node in state.all("Node"):
        kubelet = text(_facts_of(node), "kubeletVersion")
        found += [(subject_of("Node", node), "status.nodeInfo.kubeletVersion", kubelet)]
    for pod, container in scheduler_containers(state):
        match = _TAG.search(text(container, "image"))
        found.append((subject_of("Pod", pod), "image", match[1] if match else ""))
    for where, field, value in found:
        version = version_in(value)
        if version is not None:
            yield where, field, value, version


def scheduler_containers(state: ExaminedCluster) -> Iterator[tuple[Object, Object]]:
    """Pods and containers of kube-scheduler."""
    for pod in state.all("Pod"):
        for container in objects(dig(pod, "spec"), "containers"):
            if re.search(r"(^|/)kube-scheduler(:|@|$)", text(container, "image")):
                yield pod, container


def too_old(state: ExaminedCluster) -> Iterator[Seen]:
    """Parts older than 1.34."""
    every = list(kubernetes(state))
    if not every:
        yield NotSeen("no version of Kubernetes is visible")
    for where, field, value, version in every:
        if version < OLDEST:
            yield Evidence(where, field, value, f"{where} is {value}: resource.k8s.io/v1 is there from 1.34 on")


def defective(state: ExaminedCluster) -> Iterator[Seen]:
    """1.34.0 and 1.34.1."""
    every = list(kubernetes(state))
    if not every:
        yield NotSeen("no version of Kubernetes is visible")
    for where, field, value, version in every:
        if f"{version.major}.{version.minor}.{version.patch}" in DEFECTIVE:
            yield Evidence(where, field, value, f"{where} is {value}, which has a defect in device allocation")


def old_api(state: ExaminedCluster) -> Iterator[Seen]:
    """A server without resource.k8s.io/v1."""
    api = state.server.api
    if not api:
        yield NotSeen("which versions of resource.k8s.io are served is not known")
    elif api != "v1":
        yield Evidence("API server", "/apis/resource.k8s.io", api, f"the server offers resource.k8s.io/{api}, not v1")


def skewed(state: ExaminedCluster) -> Iterator[Seen]:
    """Kubelets newer than the API server, or much older."""
    server = version_in(state.server.version)
    if server is None:
        yield NotSeen("the version of the API server is not known")
        return
    for where, field, value, version in kubernetes(state):
        if where == "API server":
            continue
        ahead = (version.major, version.minor) > (server.major, server.minor)
        if ahead or server.minor - version.minor > SKEW_MAX:
            what = "newer" if ahead else f"more than {SKEW_MAX} minor versions older"
            yield Evidence(
                where, field, value, f"{where} is {value}, {what} than the API server ({state.server.version})"
            )


def runtimes(state: ExaminedCluster) -> Iterator[Seen]:
    """Container runtimes without CDI."""
    seen = False
    for node in state.all("Node"):
        value = text(_facts_of(node), "containerRuntimeVersion")
        name, _, number = value.partition("://")
        version = version_in(number)
        if name not in CDI_SINCE or version is None:
            seen = seen or name == "docker"
            if name == "docker":
                yield _runtime(node, value, "which has no CDI for Kubernetes")
            continue
        seen = True
        first, default = CDI_SINCE[name]
        if version < first:
            yield _runtime(node, value, f"which has no CDI; {name} has it from {first} on")
        elif version < default:
            yield Evidence(
                subject_of("Node", node),
                "status.nodeInfo.containerRuntimeVersion",
                value,
                f"node {name_of(node)} runs {value}, where CDI is off unless its configuration turns it on",
                "set enable_cdi = true in the CRI section of /etc/containerd/config.toml, or take containerd 2",
                "warning",
            )
    if not seen:
        yield NotSeen("no node says which container runtime it has")


def _runtime(node: Object, value: str, why: str) -> Evidence:
    field = "status.nodeInfo.containerRuntimeVersion"
    message = f"node {name_of(node)} runs {value}, {why}: no device of a claim reaches a container"
    return Evidence(subject_of("Node", node), field, value, message, severity=BLOCKER)


def _facts_of(node: Object) -> Object:
    return dig(node, "status", "nodeInfo")
