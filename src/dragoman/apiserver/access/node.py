"""May this node do that? The node authorizer: a kubelet reads what its own pods use, and nothing else.

Which pods a node has is followed in the store's history, so a question costs the pods of one node.
Source: k8s.io/kubernetes plugin/pkg/auth/authorizer/node.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from dragoman.api.kinds import BY_NAME, BY_PLURAL
from dragoman.api.meta import NamespacedName
from dragoman.api.shape import Object
from dragoman.apiserver.access.attributes import Attributes, quoted
from dragoman.apiserver.access.rbac import Verdict
from dragoman.apiserver.access.rules import PolicyRule
from dragoman.apiserver.request import User
from dragoman.apiserver.store import Store, StoredObject, events_since

POD = BY_NAME["Pod"]
NODES_GROUP: Final = "system:nodes"
PREFIX: Final = "system:node:"
LEASES: Final = "kube-node-lease"
DRA: Final = "resource.k8s.io"
_YES: Final = Verdict(True)
_NO: Final = Verdict(False)

Reference = tuple[str, str]
"""Plural and name of an object in the pod's namespace."""

_RULES: Final = (
    PolicyRule(("create",), ("authentication.k8s.io",), ("tokenreviews",)),
    PolicyRule(("create",), ("authorization.k8s.io",), ("subjectaccessreviews", "localsubjectaccessreviews")),
    PolicyRule(("get", "list", "watch"), ("",), ("services",)),
    PolicyRule(("create", "update", "patch"), ("", "events.k8s.io"), ("events",)),
    PolicyRule(("get",), ("",), ("endpoints",)),
    PolicyRule(("create", "get", "list", "watch"), ("certificates.k8s.io",), ("certificatesigningrequests",)),
    PolicyRule(("get", "list", "watch"), ("storage.k8s.io",), ("csidrivers",)),
    PolicyRule(("get", "list", "watch"), ("node.k8s.io",), ("runtimeclasses",)),
    PolicyRule(("get", "list", "watch"), ("certificates.k8s.io",), ("clustertrustbundles",)),
)
"""What every node may do of what is not subdivided (NodeRules of upstream's bootstrap policy)."""


def node_of(user: User) -> str | None:
    """The node whose kubelet this is; "" for one that does not say which; None for anybody else."""
    if NODES_GROUP not in user.groups or not user.name.startswith(PREFIX):
        return None
    return user.name.removeprefix(PREFIX)


def references(pod: Object) -> Iterator[Reference]:
    """The secrets, config maps, claims and accounts that a pod uses."""
    spec: Object = pod.get("spec") or {}
    name = pod["metadata"]["name"]
    yield "serviceaccounts", spec.get("serviceAccountName") or "default"
    for entry in spec.get("imagePullSecrets") or ():
        yield "secrets", entry.get("name", "")
    for field in ("containers", "initContainers", "ephemeralContainers"):
        for container in spec.get(field) or ():
            yield from _of_container(container)
    for volume in spec.get("volumes") or ():
        yield from _of_volume(name, volume)
    status: Object = pod.get("status") or {}
    for entry in spec.get("resourceClaims") or ():
        if entry.get("resourceClaimName"):
            yield "resourceclaims", entry["resourceClaimName"]
    for entry in status.get("resourceClaimStatuses") or ():
        if entry.get("resourceClaimName"):
            yield "resourceclaims", entry["resourceClaimName"]
    extended = (status.get("extendedResourceClaimStatus") or {}).get("resourceClaimName")
    if extended:
        yield "resourceclaims", extended


def _of_container(container: Object) -> Iterator[Reference]:
    for entry in container.get("envFrom") or ():
        for field, plural in (("secretRef", "secrets"), ("configMapRef", "configmaps")):
            if entry.get(field):
                yield plural, entry[field].get("name", "")
    for entry in container.get("env") or ():
        source = entry.get("valueFrom") or {}
        for field, plural in (("secretKeyRef", "secrets"), ("configMapKeyRef", "configmaps")):
            if source.get(field):
                yield plural, source[field].get("name", "")


def _of_volume(pod: str, volume: Object) -> Iterator[Reference]:
    if volume.get("secret"):
        yield "secrets", volume["secret"].get("secretName", "")
    if volume.get("configMap"):
        yield "configmaps", volume["configMap"].get("name", "")
    if volume.get("persistentVolumeClaim"):
        yield "persistentvolumeclaims", volume["persistentVolumeClaim"].get("claimName", "")
    if volume.get("ephemeral"):
        yield "persistentvolumeclaims", f"{pod}-{volume['name']}"
    for source in (volume.get("projected") or {}).get("sources") or ():
        for field, plural in (("secret", "secrets"), ("configMap", "configmaps")):
            if source.get(field):
                yield plural, source[field].get("name", "")
    for entry in volume.values():
        if isinstance(entry, dict):
            for field in ("secretRef", "nodePublishSecretRef"):
                if isinstance(entry.get(field), dict):
                    yield "secrets", entry[field].get("name", "")


class PodsOfNodes:
    """Which pods stand on a node, and what they use."""

    def __init__(self, store: Store) -> None:
        self._shelf = store.shelf(POD)
        self._seen = -1
        self._home: dict[NamespacedName, str] = {}
        self._pods: dict[str, dict[NamespacedName, None]] = {}
        self._used: dict[NamespacedName, tuple[int, frozenset[Reference]]] = {}

    def of(self, node: str) -> Iterable[StoredObject]:
        """The pods that are bound to a node, the newest first: it is what a kubelet asks about."""
        self._follow()
        records = self._shelf.records
        return (records[key] for key in reversed(self._pods.get(node, {})))

    def uses(self, node: str, namespace: str, reference: Reference) -> bool:
        """Whether a pod of the node uses an object."""
        return any(pod.namespace == namespace and reference in self._references(pod) for pod in self.of(node))

    def _references(self, pod: StoredObject) -> frozenset[Reference]:
        key = (pod.namespace, pod.name)
        known = self._used.get(key)
        if known is None or known[0] != pod.version:
            known = self._used[key] = pod.version, frozenset(references(pod.decode()))
        return known[1]

    def _follow(self) -> None:
        shelf = self._shelf
        if shelf.changed == self._seen:
            return
        if self._seen < shelf.forgotten or not shelf.ring or shelf.ring[0].version > self._seen + 1:
            self._home.clear()
            self._pods.clear()
            self._used.clear()
            for record in shelf.records.values():
                self._put(record)
        else:
            for event in events_since(shelf.ring, self._seen):
                if event.gone:
                    self._drop((event.new.namespace, event.new.name))
                else:
                    self._put(event.new)
        self._seen = shelf.changed

    def _put(self, record: StoredObject) -> None:
        key = (record.namespace, record.name)
        node = record.fields.get("spec.nodeName", "")
        if self._home.get(key, "") == node:
            return
        self._drop(key)
        if node:
            self._home[key] = node
            self._pods.setdefault(node, {})[key] = None

    def _drop(self, key: NamespacedName) -> None:
        node = self._home.pop(key, "")
        self._used.pop(key, None)
        if node:
            pods = self._pods[node]
            pods.pop(key, None)
            if not pods:
                del self._pods[node]


class NodeAuthorizer:
    """Answers for kubelets; has no opinion on anybody else."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._pods = PodsOfNodes(store)

    def decide(self, asked: Attributes) -> Verdict:
        """Yes, or no opinion with what the node may do instead."""
        node = node_of(asked.user)
        if node is None:
            return _NO
        if not node:
            return Verdict(False, f"unknown node for user {quoted(asked.user.name)}")
        special = _SPECIAL.get((asked.group, asked.resource))
        if special is not None:
            return special(self, node, asked)
        return Verdict(any(rule.allows(asked) for rule in _RULES))

    # ---- one rule a resource

    def _readable(self, node: str, asked: Attributes) -> Verdict:
        if asked.verb not in ("get", "list", "watch"):
            return Verdict(False, "can only read resources of this type")
        if asked.subresource:
            return Verdict(False, "cannot read subresource")
        if not asked.namespace:
            return Verdict(False, "can only read namespaced object of this type")
        return self._related(node, asked)

    def _gettable(self, node: str, asked: Attributes) -> Verdict:
        if asked.verb != "get":
            return Verdict(False, "can only get individual resources of this type")
        if asked.subresource:
            return Verdict(False, "cannot get subresource")
        return self._related(node, asked)

    def _claim_volume(self, node: str, asked: Attributes) -> Verdict:
        if asked.subresource != "status":
            return self._gettable(node, asked)
        if asked.verb not in ("update", "patch"):
            return Verdict(False, "can only get/update/patch this type")
        return self._related(node, asked)

    def _account(self, node: str, asked: Attributes) -> Verdict:
        if asked.verb == "get" and not asked.subresource:
            return self._readable(node, asked)
        if asked.verb != "create" or not asked.name:
            return Verdict(False, "can only create tokens for individual service accounts")
        if asked.subresource != "token":
            return Verdict(False, "can only create token subresource of serviceaccount")
        return self._related(node, asked)

    def _lease(self, node: str, asked: Attributes) -> Verdict:
        if asked.verb not in ("get", "create", "update", "patch", "delete"):
            return Verdict(False, "can only get, create, update, patch, or delete a node lease")
        if asked.namespace != LEASES:
            return Verdict(False, f"can only access leases in the {quoted(LEASES)} system namespace")
        if asked.verb != "create" and asked.name != node:
            return Verdict(False, "can only access node lease with the same name as the requesting node")
        return _YES

    def _csi_node(self, node: str, asked: Attributes) -> Verdict:
        if asked.subresource:
            return Verdict(False, "cannot authorize CSINode subresources")
        if asked.verb not in ("get", "create", "update", "patch", "delete"):
            return Verdict(False, "can only get, create, update, patch, or delete a CSINode")
        if asked.verb != "create" and asked.name != node:
            return Verdict(False, "can only access CSINode with the same name as the requesting node")
        return _YES

    def _slice(self, node: str, asked: Attributes) -> Verdict:
        if asked.subresource:
            return Verdict(False, "cannot authorize ResourceSlice subresources")
        if asked.verb == "create":
            return _YES
        if asked.verb in ("get", "update", "patch", "delete"):
            return self._related(node, asked)
        if asked.verb not in ("watch", "list", "deletecollection"):
            return Verdict(
                False,
                "only the following verbs are allowed for a ResourceSlice: get, watch, list, create, update, patch, "
                "delete, deletecollection",
            )
        if _selects(asked, "spec.nodeName", node):
            return _YES
        return Verdict(False, "can only list/watch/deletecollection resourceslices with nodeName field selector")

    def _node(self, node: str, asked: Attributes) -> Verdict:
        if asked.subresource == "status" and asked.verb in ("update", "patch"):
            return _YES
        if asked.subresource:
            return _NO
        if asked.verb in ("create", "update", "patch"):
            return _YES
        if asked.verb not in ("get", "list", "watch"):
            return _NO
        if asked.name == node:
            return _YES
        what = f"'{asked.name}'" if asked.name else "all nodes"
        return Verdict(False, f"node '{node}' cannot read {what}, only its own Node object")

    def _pod(self, node: str, asked: Attributes) -> Verdict:
        match asked.subresource:
            case "status":
                return Verdict(asked.verb in ("update", "patch"))
            case "eviction":
                return Verdict(asked.verb == "create")
            case "":
                pass
            case _:
                return _NO
        if asked.verb == "get":
            return self._related(node, asked)
        if asked.verb in ("list", "watch"):
            if _selects(asked, "spec.nodeName", node):
                return _YES
            if asked.name:
                return self._related(node, asked)
            return Verdict(False, "can only list/watch pods with spec.nodeName field selector")
        return Verdict(asked.verb in ("create", "delete"))

    # ---- relations

    def _related(self, node: str, asked: Attributes) -> Verdict:
        if not asked.name:
            return Verdict(False, "No Object name found")
        if self._is_related(node, asked):
            return _YES
        return Verdict(False, f"no relationship found between node '{node}' and this object")

    def _is_related(self, node: str, asked: Attributes) -> bool:
        match asked.resource:
            case "pods":
                record = self._store.get(POD, asked.namespace, asked.name)
                return record is not None and record.fields.get("spec.nodeName") == node
            case "resourceslices":
                record = self._store.get(BY_NAME["ResourceSlice"], "", asked.name)
                return record is not None and record.fields.get("spec.nodeName") == node
            case "persistentvolumes":
                return self._holds_volume(node, asked.name)
            case "volumeattachments":
                kind = BY_PLURAL.get((asked.group, asked.resource))
                record = self._store.get(kind, "", asked.name) if kind else None
                return record is not None and (record.decode().get("spec") or {}).get("nodeName") == node
        return self._pods.uses(node, asked.namespace, (asked.resource, asked.name))

    def _holds_volume(self, node: str, volume: str) -> bool:
        kind = BY_NAME["PersistentVolumeClaim"]
        for pod in self._pods.of(node):
            for plural, name in references(pod.decode()):
                if plural != kind.plural:
                    continue
                claim = self._store.get(kind, pod.namespace, name)
                if claim is not None and (claim.decode().get("spec") or {}).get("volumeName") == volume:
                    return True
        return False


def _selects(asked: Attributes, field: str, value: str) -> bool:
    return any(term.key == field and term.equal and term.value == value for term in asked.fields)


_SPECIAL: Final = {
    ("", "secrets"): NodeAuthorizer._readable,
    ("", "configmaps"): NodeAuthorizer._readable,
    ("", "persistentvolumeclaims"): NodeAuthorizer._claim_volume,
    ("", "persistentvolumes"): NodeAuthorizer._gettable,
    (DRA, "resourceclaims"): NodeAuthorizer._gettable,
    ("storage.k8s.io", "volumeattachments"): NodeAuthorizer._gettable,
    ("", "serviceaccounts"): NodeAuthorizer._account,
    ("coordination.k8s.io", "leases"): NodeAuthorizer._lease,
    ("storage.k8s.io", "csinodes"): NodeAuthorizer._csi_node,
    (DRA, "resourceslices"): NodeAuthorizer._slice,
    ("", "nodes"): NodeAuthorizer._node,
    ("", "pods"): NodeAuthorizer._pod,
}
