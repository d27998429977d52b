"""Who may do more with devices than users should, and which namespaces have no limit? RBAC, admin access, quota."""

from __future__ import annotations

from collections.abc import Iterator

from dragoman.api.shape import Object, dig, items, objects, text
from dragoman.doctor.check import BLOCKER, INFO, Evidence, NotSeen, Seen
from dragoman.doctor.state import ExaminedCluster, labels_of, name_of, namespace_of, subject_of, words

GROUP = "resource.k8s.io"
GUARDED = ("deviceclasses", "resourceslices", "devicetaintrules")
"""What administrators and drivers write, not users."""
WRITES = frozenset({"create", "update", "patch", "delete", "deletecollection", "*"})
EVERYBODY = frozenset({"system:authenticated", "system:unauthenticated", "system:serviceaccounts", "system:anonymous"})
ADMIN_ACCESS = "resource.kubernetes.io/admin-access"
_PARTS = ("system:", "dragoman:")
"""What names of a control plane's own users begin with: Kubernetes' and those of `dragoman up`."""
_ADMINS = frozenset({"system:masters", "kubeadm:cluster-admins"})


def wide(state: ExaminedCluster) -> Iterator[Seen]:
    """Users and groups that may write classes, slices or taint rules, and everybody's service accounts."""
    for binding in state.all("ClusterRoleBinding"):
        role = text(dig(binding, "roleRef"), "name")
        rights = guarded_rights(state, role)
        if not rights:
            continue
        for subject in objects(binding, "subjects"):
            kind, name = text(subject, "kind"), text(subject, "name")
            if (kind in ("User", "Group") and name in _ADMINS) or (
                name.startswith("system:") and name not in EVERYBODY
            ):
                continue
            if kind == "ServiceAccount" and name != "default":
                continue
            who = f"{kind} {text(subject, 'namespace') + '/' if kind == 'ServiceAccount' else ''}{name}"
            message = f"{who} may write {', '.join(rights)} (ClusterRole {role})"
            severity = BLOCKER if name in EVERYBODY else INFO if role == "cluster-admin" else None
            yield Evidence(f"ClusterRoleBinding {name_of(binding)}", "subjects", who, message, severity=severity)


def guarded_rights(state: ExaminedCluster, role: str) -> list[str]:
    """The guarded resources that a ClusterRole may write."""
    found = next((entry for entry in state.all("ClusterRole") if name_of(entry) == role), None)
    return [resource for resource in GUARDED if found is not None and _may_write(found, resource)]


def _may_write(role: Object, resource: str) -> bool:
    return any(
        {GROUP, "*"} & set(items(rule, "apiGroups"))
        and {resource, "*"} & set(items(rule, "resources"))
        and WRITES & set(items(rule, "verbs"))
        for rule in objects(role, "rules")
    )


def admin_namespaces(state: ExaminedCluster) -> Iterator[Seen]:
    """Namespaces in which every claim may see devices that others hold, and in which none does."""
    users = {
        namespace_of(obj)
        for kind in ("ResourceClaim", "ResourceClaimTemplate")
        for obj in state.all(kind)
        if _admin(obj)
    }
    for namespace in state.all("Namespace"):
        if labels_of(namespace).get(ADMIN_ACCESS) != "true":
            continue
        name = name_of(namespace)
        uses = name in users
        message = f"namespace {name} has admin access to all devices" + ("" if uses else ", and no claim there uses it")
        severity = INFO if uses else None
        yield Evidence(f"Namespace {name}", f"metadata.labels[{ADMIN_ACCESS}]", "true", message, severity=severity)


def _admin(obj: Object) -> bool:
    spec = dig(obj, "spec")
    devices = dig(spec, "devices") or dig(spec, "spec", "devices")
    return any(dig(request, "exactly").get("adminAccess") for request in objects(devices, "requests"))


def without_quota(state: ExaminedCluster) -> Iterator[Seen]:
    """Namespaces that use claims and have no quota on claims or devices; quotas that count nothing any more."""
    using: dict[str, int] = {}
    for claim in state.all("ResourceClaim"):
        using[namespace_of(claim)] = using.get(namespace_of(claim), 0) + 1
    for template in state.all("ResourceClaimTemplate"):
        using.setdefault(namespace_of(template), 0)
    limited: dict[str, set[str]] = {}
    for quota in state.all("ResourceQuota"):
        limited.setdefault(namespace_of(quota), set()).update(dig(quota, "spec", "hard"))
    for namespace, claims in sorted(using.items()):
        hard = limited.get(namespace, set())
        if any("deviceclass.resource.k8s.io" in name or name.startswith("count/resourceclaims") for name in hard):
            continue
        old = sorted(name for name in hard if name.startswith("requests.") and "/" in name)
        what = f"its quota on {words(old)} counts no claims" if old else "it has no quota on claims or devices"
        message = f"namespace {namespace} uses claims ({claims} now), and {what}"
        yield Evidence(f"Namespace {namespace}", "ResourceQuota spec.hard", words(old) or "none", message)


def webhooks(state: ExaminedCluster) -> Iterator[Seen]:
    """Opaque configuration of drivers that nobody checks before a pod starts."""
    hooked = any(
        "resourceclaims" in items(rule, "resources") or "*" in items(rule, "resources")
        for config in state.all("ValidatingWebhookConfiguration")
        for hook in objects(config, "webhooks")
        for rule in objects(hook, "rules")
        if {GROUP, "*"} & set(items(rule, "apiGroups"))
    )
    if hooked:
        return
    for kind in ("DeviceClass", "ResourceClaim", "ResourceClaimTemplate"):
        for obj in state.all(kind):
            spec = dig(obj, "spec")
            configs = [
                *objects(spec, "config"),
                *objects(dig(spec, "devices"), "config"),
                *objects(dig(spec, "spec", "devices"), "config"),
            ]
            driver = next((text(dig(entry, "opaque"), "driver") for entry in configs if dig(entry, "opaque")), "")
            if driver:
                subject = subject_of(kind, obj)
                message = f"{subject} has opaque configuration for {driver}, and no webhook checks it"
                yield Evidence(subject, "config.opaque", driver, message)
                return


def plugin_namespaces(state: ExaminedCluster) -> Iterator[Seen]:
    """Privileged drivers in the namespace default."""
    for workload in state.all("DaemonSet"):
        if namespace_of(workload) != "default":
            continue
        for container in objects(dig(workload, "spec", "template", "spec"), "containers"):
            if dig(container, "securityContext").get("privileged") is True:
                subject = subject_of("DaemonSet", workload)
                message = f"{subject} is privileged, and users have pods and secrets in namespace default"
                yield Evidence(subject, "metadata.namespace", "default", message)
                break


def nobody_watches(state: ExaminedCluster) -> Iterator[Seen]:
    """No exporter of device metrics runs."""
    images = [
        text(container, "image")
        for kind in ("DaemonSet", "Deployment")
        for workload in state.all(kind)
        for container in objects(dig(workload, "spec", "template", "spec"), "containers")
    ]
    if not images:
        yield NotSeen("no workload is visible")
    elif not any("exporter" in image or "dragoman" in image for image in images):
        message = f"none of {len(images)} containers of DaemonSets and Deployments is an exporter of device metrics"
        yield Evidence("DaemonSets and Deployments", "spec.template.spec.containers[].image", "no exporter", message)
