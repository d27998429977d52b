"""Which platform is it, and what is different there? EKS, GKE, AKS and OpenShift, as their nodes and objects say.

What providers support changes; each text says what to check, and none claims a release date.
"""

from __future__ import annotations

from collections.abc import Iterator

from dragoman.api.shape import dig, text
from dragoman.doctor.check import BLOCKER, INFO, WARNING, DoctorSeverity, Evidence, NotSeen, Seen
from dragoman.doctor.state import ExaminedCluster, labels_of, name_of, namespace_of, subject_of
from dragoman.doctor.versions import version_in
from dragoman.values.semver import Semver

OPENSHIFT_MIN = Semver.parse("4.21.0")
_PROVIDERS = {"aws": "EKS", "gce": "GKE", "azure": "AKS"}
_LABELS = {
    "cloud.google.com/gke-nodepool": "GKE",
    "eks.amazonaws.com/nodegroup": "EKS",
    "kubernetes.azure.com/cluster": "AKS",
}


def platform_of(state: ExaminedCluster) -> tuple[str, Evidence] | None:
    """The platform and what shows it, None for others."""
    for obj in state.all("ClusterVersion"):
        version = text(dig(obj, "status", "desired"), "version")
        return "OpenShift", Evidence(subject_of("ClusterVersion", obj), "status.desired.version", version, "OpenShift")
    for node in state.all("Node"):
        for key, platform in _LABELS.items():
            if key in labels_of(node):
                value = str(labels_of(node)[key])
                return platform, Evidence(subject_of("Node", node), f"metadata.labels[{key}]", value, platform)
    for word, platform in (("-gke.", "GKE"), ("-eks-", "EKS")):
        if word in state.server.version:
            return platform, Evidence("API server", "gitVersion", state.server.version, platform)
    for node in state.all("Node"):
        provider = text(dig(node, "spec"), "providerID")
        if (platform := _PROVIDERS.get(provider.partition("://")[0], "")) == "AKS":
            return platform, Evidence(subject_of("Node", node), "spec.providerID", provider, platform)
    return None


def facts(state: ExaminedCluster) -> Iterator[Seen]:
    """What is different on the platform."""
    found = platform_of(state)
    if found is None:
        yield NotSeen("no label, version or object says that this is EKS, GKE, AKS or OpenShift")
        return
    platform, shown = found
    match platform:
        case "OpenShift":
            version = version_in(shown.value)
            if version is not None and version < OPENSHIFT_MIN:
                message = f"OpenShift {shown.value}: DRA is generally available there from 4.21 on (Kubernetes 1.34)"
                yield _of(shown, message, "upgrade to OpenShift 4.21 or newer", BLOCKER)
        case "GKE":
            plugins = [
                workload
                for workload in state.all("DaemonSet")
                if namespace_of(workload) == "kube-system" and "nvidia-gpu-device-plugin" in name_of(workload)
            ]
            if plugins:
                subject = subject_of("DaemonSet", plugins[0])
                message = f"GKE: its own device plugin runs ({subject}) and offers the GPUs that a DRA driver publishes"
                fix = "label the node pool gke-no-default-nvidia-gpu-device-plugin=true and install the driver yourself"
                yield Evidence(subject, "metadata.name", name_of(plugins[0]), message, fix, WARNING)
            yield _of(
                shown,
                "GKE: NVIDIA's driver that you install for DRA is not managed by GKE",
                "check GKE's documentation of DRA for your release channel before production",
            )
        case "EKS":
            yield _of(
                shown,
                "EKS: no add-on installs NVIDIA's DRA driver, the chart dra-driver-nvidia-gpu does; P6e-GB200 needs it "
                "for ComputeDomains, and Karpenter makes no nodes for these",
                "install the chart; use managed node groups for ComputeDomains",
            )
        case "AKS":
            yield _of(
                shown,
                "AKS: support of DRA is not stated on its feature pages",
                "ask for the support statement of your AKS version before production",
            )


def _of(shown: Evidence, message: str, fix: str, severity: DoctorSeverity = INFO) -> Evidence:
    return Evidence(shown.object, shown.field, shown.value, message, fix, severity)
