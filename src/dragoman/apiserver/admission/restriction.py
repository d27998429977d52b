"""What may a kubelet write? Its own node, its pods' status, its slices: upstream's NodeRestriction admission.

Asked only for users of the group system:nodes. Source: k8s.io/kubernetes plugin/pkg/admission/noderestriction.
"""

from __future__ import annotations

from typing import Any, Final

from dragoman.api.kinds import BY_NAME
from dragoman.api.shape import Object
from dragoman.apiserver.access.attributes import quoted
from dragoman.apiserver.access.node import LEASES, NODES_GROUP, PREFIX
from dragoman.apiserver.admission.accounts import MIRROR
from dragoman.apiserver.admission.attributes import AdmissionPlugin, Attributes
from dragoman.apiserver.lookup import Lookup
from dragoman.apiserver.status import StatusError, forbidden, not_found

_OWN_LABELS: Final = frozenset(
    (
        "kubernetes.io/hostname",
        "topology.kubernetes.io/zone",
        "topology.kubernetes.io/region",
        "failure-domain.beta.kubernetes.io/zone",
        "failure-domain.beta.kubernetes.io/region",
        "beta.kubernetes.io/instance-type",
        "node.kubernetes.io/instance-type",
        "kubernetes.io/os",
        "kubernetes.io/arch",
        "beta.kubernetes.io/os",
        "beta.kubernetes.io/arch",
    )
)
_OWN_NAMESPACES: Final = ("kubelet.kubernetes.io", "node.kubernetes.io")
_STATUS_OF_OTHERS: Final = (
    ("resourceClaimStatuses", "resource claim statues"),
    ("extendedResourceClaimStatus", "extended resource claim status"),
    ("nodeAllocatableResourceClaimStatuses", "node allocatable resource claim statuses"),
)
_STATUS_OF_OWN: Final = "update pod status for pods with spec.nodeName set to itself"
_VOLUMES_OF_OTHERS: Final = {
    "configMap": "configmaps (via configmap volumes)",
    "secret": "secrets (via secret volumes)",
    "csi": "csidrivers (via CSI volumes)",
    "persistentVolumeClaim": "persistentvolumeclaims",
    "ephemeral": "persistentvolumeclaims (via ephemeral volumes)",
}


class NodeRestriction(AdmissionPlugin):
    """Limits kubelets to what is theirs."""

    def mutate(self, lookup: Lookup, attributes: Attributes) -> None:
        """Changes nothing; stands here since upstream refuses before anything else is computed."""
        user = attributes.write.user
        if NODES_GROUP not in user.groups:
            return
        node = user.name.removeprefix(PREFIX)
        if not node or node == user.name:
            raise _refused(attributes, f"could not determine node from user {quoted(user.name)}")
        check = _CHECKS.get(attributes.kind.kind)
        if check is not None:
            check(lookup, attributes, node)


def _refused(attributes: Attributes, why: str) -> StatusError:
    return forbidden(attributes.kind, attributes.name, why)


def _pod(lookup: Lookup, attributes: Attributes, node: str) -> None:
    who = f"node {quoted(node)}"
    pod, old = attributes.obj, attributes.old
    match attributes.subresource, attributes.operation:
        case "", "CREATE":
            _mirror_pod(lookup, attributes, pod or {}, node)
        case "", "DELETE":
            if _home(old) != node:
                raise _refused(attributes, f"{who} can only delete pods with spec.nodeName set to itself")
        case "", operation:
            raise _refused(
                attributes,
                f'unexpected operation "{operation}", {who} can only create and delete mirror pods',
            )
        case "status", _:
            if _home(old) != node:
                raise _refused(attributes, f"{who} can only {_STATUS_OF_OWN}")
            assert pod is not None, "an update of a status has an object"
            assert old is not None, "an update of a status has an old object"
            if (pod["metadata"].get("labels") or {}) != (old["metadata"].get("labels") or {}):
                raise _refused(attributes, f"{who} cannot update labels through pod status")
            for field, what in _STATUS_OF_OTHERS:
                if (pod.get("status") or {}).get(field) != (old.get("status") or {}).get(field):
                    raise _refused(attributes, f"{who} cannot update {what}")
        case "eviction", _:
            if _home(old) != node:
                raise _refused(attributes, f"node {node} can only evict pods with spec.nodeName set to itself")
        case subresource, _:
            why = f"unexpected pod subresource {quoted(subresource)}, only 'status' and 'eviction' are allowed"
            raise _refused(attributes, why)


def _home(pod: Object | None) -> str:
    return str(((pod or {}).get("spec") or {}).get("nodeName") or "")


def _mirror_pod(lookup: Lookup, attributes: Attributes, pod: Object, node: str) -> None:
    who = f"node {quoted(node)}"
    if MIRROR not in (pod["metadata"].get("annotations") or {}):
        why = f'pod does not have "{MIRROR}" annotation, {who} can only create mirror pods'
        raise _refused(attributes, why)
    if _home(pod) != node:
        raise _refused(attributes, f"{who} can only create pods with spec.nodeName set to itself")
    owners = pod["metadata"].get("ownerReferences") or []
    if len(owners) > 1:
        raise _refused(attributes, f"{who} can only create pods with a single owner reference set to itself")
    owner = owners[0] if owners else {}
    if (owner.get("apiVersion"), owner.get("kind"), owner.get("name")) != ("v1", "Node", node):
        raise _refused(attributes, f"{who} can only create pods with an owner reference set to itself")
    if not owner.get("controller"):
        raise _refused(attributes, f"{who} can only create pods with a controller owner reference set to itself")
    if owner.get("blockOwnerDeletion"):
        raise _refused(attributes, f"{who} must not set blockOwnerDeletion on an owner reference")
    record = lookup.find(BY_NAME["Node"], node)
    if record is None:
        raise not_found(BY_NAME["Node"], node)
    if owner.get("uid") != record.uid:
        raise _refused(attributes, f"node {node} UID mismatch: expected {owner.get('uid')} got {record.uid}")
    used = _api_objects(pod.get("spec") or {})
    if used:
        raise _refused(attributes, f"{who} can not create pods that reference {used}")


def _api_objects(spec: Object) -> str:
    """What of the API a pod refers to, in upstream's words; "" for nothing."""
    if spec.get("serviceAccountName"):
        return "serviceaccounts"
    if spec.get("imagePullSecrets"):
        return "secrets"
    if spec.get("resourceClaims"):
        return "resourceclaims"
    for field in ("containers", "initContainers"):
        for container in spec.get(field) or ():
            sources: list[Any] = [*(container.get("envFrom") or ())]
            sources += [entry.get("valueFrom") or {} for entry in container.get("env") or ()]
            for source in sources:
                if source.get("secretRef") or source.get("secretKeyRef"):
                    return "secrets"
                if source.get("configMapRef") or source.get("configMapKeyRef"):
                    return "configmaps"
    for volume in spec.get("volumes") or ():
        for field, what in _VOLUMES_OF_OTHERS.items():
            if volume.get(field) is not None:
                return what
        for source in (volume.get("projected") or {}).get("sources") or ():
            kept = next((field for field in source if field != "downwardAPI"), "")
            if kept:
                return f"{kept} (via projected volumes)"
    return ""


def _node(lookup: Lookup, attributes: Attributes, node: str) -> None:
    who = f"node {quoted(node)}"
    if attributes.name != node:
        raise _refused(attributes, f"{who} is not allowed to modify node {quoted(attributes.name)}")
    obj, old = attributes.obj, attributes.old
    if obj is None:
        return
    before: Object = (old or {}).get("metadata") or {}
    labels, had = obj["metadata"].get("labels") or {}, before.get("labels") or {}
    changed = {key for key in labels.keys() | had.keys() if labels.get(key) != had.get(key)}
    wrong = ", ".join(sorted(key for key in changed if not _is_own_label(key)))
    if wrong and old is None:
        raise _refused(attributes, f"{who} is not allowed to set the following labels: {wrong}")
    if old is None:
        return
    if (obj.get("spec") or {}).get("taints") != (old.get("spec") or {}).get("taints"):
        raise _refused(attributes, f"{who} is not allowed to modify taints")
    if obj["metadata"].get("ownerReferences") != before.get("ownerReferences"):
        raise _refused(attributes, f"{who} is not allowed to modify ownerReferences")
    if wrong:
        raise _refused(attributes, f"is not allowed to modify labels: {wrong}")


def _is_own_label(key: str) -> bool:
    namespace = key.rpartition("/")[0]

    def below(root: str) -> bool:
        return namespace == root or namespace.endswith(f".{root}")

    if below("node-restriction.kubernetes.io"):
        return False
    if not below("kubernetes.io") and not below("k8s.io"):
        return True
    return key in _OWN_LABELS or any(map(below, _OWN_NAMESPACES))


def _slice(lookup: Lookup, attributes: Attributes, node: str) -> None:
    if attributes.operation == "CREATE" and _home(attributes.obj) != node:
        why = "can only create ResourceSlice with the same NodeName as the requesting node"
        raise _refused(attributes, why)
    if attributes.operation == "DELETE" and _home(attributes.old) != node:
        why = "can only delete ResourceSlice with the same NodeName as the requesting node"
        raise _refused(attributes, why)


def _lease(lookup: Lookup, attributes: Attributes, node: str) -> None:
    if attributes.namespace != LEASES:
        why = f"can only access leases in the {quoted(LEASES)} system namespace"
        raise _refused(attributes, why)
    if attributes.operation == "CREATE" and attributes.name != node:
        why = f"can only access node lease with the same name as the requesting node: {node}"
        raise _refused(attributes, why)


def _csi_node(lookup: Lookup, attributes: Attributes, node: str) -> None:
    if attributes.operation == "CREATE" and attributes.name != node:
        raise _refused(attributes, "can only access CSINode with the same name as the requesting node")


def _volume_claim(lookup: Lookup, attributes: Attributes, node: str) -> None:
    if attributes.subresource != "status":
        raise _refused(attributes, "may only update PVC status")


_CHECKS: Final = {
    "Pod": _pod,
    "Node": _node,
    "ResourceSlice": _slice,
    "Lease": _lease,
    "CSINode": _csi_node,
    "PersistentVolumeClaim": _volume_claim,
}
