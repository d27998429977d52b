"""Does NVIDIA's stack fit DRA: driver versions, GPU operator, device plugin, MIG, ComputeDomains?

Sources: NVIDIA's documentation of the GPU operator 26.7 and of its DRA driver 0.5, and the charts of both.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from dragoman.api.shape import Object, dig, objects, text
from dragoman.doctor.check import BLOCKER, DoctorSeverity, Evidence, NotSeen, Seen
from dragoman.doctor.state import ExaminedCluster, labels_of, name_of, subject_of, words
from dragoman.doctor.versions import version_in
from dragoman.values.semver import Semver

DRIVER = "gpu.nvidia.com"
COMPUTE_DOMAIN = "compute-domain.nvidia.com"
OPERATOR_MIN, DRA_MIN, COMPUTE_DOMAIN_MIN = Semver.parse("580.0.0"), Semver.parse("565.0.0"), Semver.parse("570.158.1")
GPU_CLUSTER_KUBERNETES = Semver.parse("1.34.2")
PRESENT = (
    "nvidia.com/gpu.present",
    "feature.node.kubernetes.io/pci-10de.present",
    "feature.node.kubernetes.io/pci-0302_10de.present",
    "feature.node.kubernetes.io/pci-0300_10de.present",
)
CLIQUE = "nvidia.com/gpu.clique"
_DRIVER_IMAGE = re.compile(r"(?:dra-driver-nvidia-gpu|k8s-dra-driver-gpu|k8s-dra-driver)[^:@]*:v?([\w.-]+)")


def driver_versions(state: ExaminedCluster) -> dict[str, str]:
    """The NVIDIA driver's version by node: as its slices say, else as GPU feature discovery labelled it."""
    found: dict[str, str] = {}
    for node in state.all("Node"):
        labels = labels_of(node)
        value = labels.get("nvidia.com/cuda.driver-version.full") or labels.get("nvidia.com/cuda.driver.major")
        if value:
            found[name_of(node)] = str(value)
    for name in sorted(state.snapshot.slices):
        spec = state.snapshot.slices[name].spec
        if spec.driver != DRIVER:
            continue
        for device in spec.devices:
            version = device.attributes.get("driverVersion") or device.attributes.get(f"{DRIVER}/driverVersion")
            if version is not None and version.version is not None:
                found[spec.node_name or spec.pool.name] = str(version.version)
    return found


def old_drivers(state: ExaminedCluster) -> Iterator[Seen]:
    """Drivers under 580 (GPU operator), 570.158.01 (ComputeDomain), 565 (DRA driver)."""
    every = driver_versions(state)
    if not every:
        yield NotSeen("no slice and no node label says which NVIDIA driver a node has")
    domains = {entry.spec.node_name for entry in state.snapshot.slices.values() if entry.spec.driver == COMPUTE_DOMAIN}
    with_operator = bool(state.all("GPUCluster"))
    for node, value in sorted(every.items()):
        version = version_in(_plain(value))
        if version is None or version >= OPERATOR_MIN:
            continue
        field = "driverVersion"
        severity: DoctorSeverity | None = None
        if version < DRA_MIN:
            why, severity = "the DRA driver needs 565", BLOCKER
        elif node in domains and version < COMPUTE_DOMAIN_MIN:
            why, severity = "ComputeDomains need 570.158.01", BLOCKER
        else:
            why = "GPUCluster needs 580" if with_operator else "580 is what the GPU operator's DRA path needs"
            severity = BLOCKER if with_operator else None
        yield Evidence(f"Node {node}", field, value, f"node {node} has NVIDIA driver {value}: {why}", severity=severity)


def _plain(value: str) -> str:
    """`580.65.06` without leading zeros, `580` as it is with two numbers more."""
    parts = [part.lstrip("0") or "0" for part in value.split(".")]
    return ".".join([*parts, "0", "0"][:3])


def both_operator_kinds(state: ExaminedCluster) -> Iterator[Seen]:
    """A GPUCluster beside a ClusterPolicy."""
    policies, clusters = state.all("ClusterPolicy"), state.all("GPUCluster")
    if policies and clusters:
        subject = f"GPUCluster {name_of(clusters[0])}"
        shown = text(dig(clusters[0], "status"), "state") or "no status"
        message = f"{subject} and ClusterPolicy {name_of(policies[0])} are both there: the operator serves one of them"
        yield Evidence(subject, "status.state", shown, message)


def operator_not_ready(state: ExaminedCluster) -> Iterator[Seen]:
    """A ClusterPolicy or GPUCluster that says it is not ready."""
    for kind in ("ClusterPolicy", "GPUCluster"):
        for obj in state.all(kind):
            shown = text(dig(obj, "status"), "state")
            if shown and shown.lower() not in ("ready", "disabled"):
                reasons = [c for c in objects(dig(obj, "status"), "conditions") if c.get("status") == "False"]
                why = words(text(c, "message") or text(c, "reason") for c in reasons)
                subject = subject_of(kind, obj)
                yield Evidence(subject, "status.state", shown, f"{subject} is {shown}" + (f": {why}" if why else ""))


def operator_needs(state: ExaminedCluster) -> Iterator[Seen]:
    """A GPUCluster on Kubernetes older than 1.34.2."""
    version = version_in(state.server.version)
    for obj in state.all("GPUCluster"):
        if version is None:
            yield NotSeen("the version of the API server is not known")
        elif version < GPU_CLUSTER_KUBERNETES:
            subject = subject_of("GPUCluster", obj)
            message = f"{subject} needs Kubernetes 1.34.2, and the API server is {state.server.version}"
            yield Evidence("API server", "gitVersion", state.server.version, message)


def gpu_plugins(state: ExaminedCluster) -> list[tuple[Object, str]]:
    """DaemonSets of NVIDIA's DRA driver, with their version."""
    found = []
    for workload in state.all("DaemonSet"):
        for container in objects(dig(workload, "spec", "template", "spec"), "containers"):
            match = _DRIVER_IMAGE.search(text(container, "image"))
            if match:
                found.append((workload, match[1]))
                break
    return found


def two_drivers(state: ExaminedCluster) -> Iterator[Seen]:
    """Two releases of the DRA driver on one plugin directory."""
    every = [workload for workload, _ in gpu_plugins(state)]
    if len(every) > 1:
        names = [subject_of("DaemonSet", workload) for workload in every]
        message = f"{len(every)} releases of NVIDIA's DRA driver register under one name: {words(names)}"
        yield Evidence(names[1], "spec.template.spec.containers[].image", str(len(every)), message)


def old_chart(state: ExaminedCluster) -> Iterator[Seen]:
    """A driver of the CalVer line, which is no longer developed."""
    for workload, tag in gpu_plugins(state):
        version = version_in(tag)
        if version is not None and version.major >= 20:
            subject = subject_of("DaemonSet", workload)
            message = f"{subject} is DRA driver {tag}, of the line that ended with 25.12"
            yield Evidence(subject, "image", tag, message)


def without_slices(state: ExaminedCluster) -> Iterator[Seen]:
    """GPU nodes whose GPUs nobody offers."""
    with_slices = {entry.spec.node_name for entry in state.snapshot.slices.values()}
    seen = False
    for node in state.all("Node"):
        label = next((key for key in PRESENT if labels_of(node).get(key) == "true"), "")
        if not label:
            continue
        seen = True
        offered = any(key.startswith("nvidia.com/") for key in dig(node, "status", "capacity"))
        if name_of(node) not in with_slices and not offered:
            message = f"node {name_of(node)} has GPUs, and neither a slice nor an extended resource offers them"
            yield Evidence(subject_of("Node", node), f"metadata.labels[{label}]", "true", message)
    if not seen:
        yield NotSeen("no node is labelled as a GPU node (nvidia.com/gpu.present, or by node feature discovery)")


def mig_failed(state: ExaminedCluster) -> Iterator[Seen]:
    """MIG layouts that could not be applied."""
    for node in state.all("Node"):
        if labels_of(node).get("nvidia.com/mig.config.state") == "failed":
            config = labels_of(node).get("nvidia.com/mig.config", "")
            message = f"MIG layout {config} could not be applied on node {name_of(node)}"
            yield Evidence(subject_of("Node", node), "metadata.labels[nvidia.com/mig.config.state]", "failed", message)


def upgrade_failed(state: ExaminedCluster) -> Iterator[Seen]:
    """Driver upgrades that failed."""
    for node in state.all("Node"):
        if labels_of(node).get("nvidia.com/gpu-driver-upgrade-state") == "upgrade-failed":
            field = "metadata.labels[nvidia.com/gpu-driver-upgrade-state]"
            message = f"the driver upgrade of node {name_of(node)} failed; the node may be cordoned"
            yield Evidence(subject_of("Node", node), field, "upgrade-failed", message)


def without_clique(state: ExaminedCluster) -> Iterator[Seen]:
    """Nodes that offer ComputeDomain devices and have no clique label, where there are ComputeDomains."""
    if not state.all("ComputeDomain"):
        return
    offering = {e.spec.node_name for e in state.snapshot.slices.values() if e.spec.driver == COMPUTE_DOMAIN}
    for node in state.all("Node"):
        if name_of(node) in offering and not labels_of(node).get(CLIQUE):
            message = f"node {name_of(node)} has no label {CLIQUE}: pods of one ComputeDomain cannot be kept together"
            yield Evidence(subject_of("Node", node), f"metadata.labels[{CLIQUE}]", "", message)


def domains_not_ready(state: ExaminedCluster) -> Iterator[Seen]:
    """ComputeDomains that are not ready."""
    for domain in state.all("ComputeDomain"):
        if text(dig(domain, "status"), "status") not in ("", "Ready"):
            subject = subject_of("ComputeDomain", domain)
            value = text(dig(domain, "status"), "status")
            yield Evidence(subject, "status.status", value, f"{subject} is {value}")


def autoscalers(state: ExaminedCluster) -> Iterator[Seen]:
    """Autoscalers that make no nodes for ComputeDomains."""
    for workload in state.all("Deployment"):
        name = name_of(workload)
        if "karpenter" in name and state.all("ComputeDomain"):
            message = f"Karpenter ({subject_of('Deployment', workload)}) makes no nodes for pods of a ComputeDomain"
            yield Evidence(subject_of("Deployment", workload), "metadata.name", name, message)
