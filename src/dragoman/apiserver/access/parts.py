"""Who are the parts of a cluster in one process, and what may each do? Their users, and the roles that are our own.

Where Kubernetes has a user and a role for such a part, it is that one.
"""

from __future__ import annotations

from typing import Any, Final

from dragoman.api.shape import Object
from dragoman.apiserver.access.impersonation import AUTHENTICATED, NODE_EXTRA, account_groups
from dragoman.apiserver.access.node import NODES_GROUP, PREFIX
from dragoman.apiserver.access.rbac import GROUP
from dragoman.apiserver.request import User

READER: Final = User("system:kube-controller-manager", (AUTHENTICATED,))
"""Lists and watches for all parts."""
SCHEDULER: Final = User("system:kube-scheduler", (AUTHENTICATED,))
AUTOSCALER: Final = User("system:serviceaccount:kube-system:horizontal-pod-autoscaler", account_groups("kube-system"))
CONTROLLERS: Final = User("dragoman:controllers", (AUTHENTICATED,))
NODE_HOST: Final = User("dragoman:node-host", (AUTHENTICATED,))
"""What the node agents of one process share: one watch of pods, one sink of events."""
SIMULATION: Final = User("dragoman:simulation", (AUTHENTICATED,))
DRIVER_NAMESPACE: Final = "kube-system"
DRIVER_ACCOUNT: Final = "dragoman-driver"


def node_agent(node: str) -> User:
    """The kubelet of a node."""
    return User(f"{PREFIX}{node}", (NODES_GROUP, AUTHENTICATED))


def driver(node: str) -> User:
    """The drivers of a node: a service account whose token is bound to a pod there."""
    name = f"system:serviceaccount:{DRIVER_NAMESPACE}:{DRIVER_ACCOUNT}"
    return User(name, account_groups(DRIVER_NAMESPACE), extra={NODE_EXTRA: (node,)})


def account(namespace: str, name: str, node: str = "") -> User:
    """A service account, whose token is bound to a pod on that node if one is given."""
    user = f"system:serviceaccount:{namespace}:{name}"
    return User(user, account_groups(namespace), extra={NODE_EXTRA: (node,)} if node else {})


# Controllers of upstream's whose work `daemon.controllers` does.
_CONTROLLERS: Final = (
    "cronjob-controller",
    "daemon-set-controller",
    "deployment-controller",
    "device-taint-eviction-controller",
    "disruption-controller",
    "endpoint-controller",
    "endpointslice-controller",
    "ephemeral-volume-controller",
    "generic-garbage-collector",
    "job-controller",
    "namespace-controller",
    "node-controller",
    "persistent-volume-binder",
    "pod-garbage-collector",
    "replicaset-controller",
    "replication-controller",
    "resource-claim-controller",
    "resourcepoolstatusrequest-controller",
    "resourcequota-controller",
    "root-ca-cert-publisher",
    "service-account-controller",
    "statefulset-controller",
    "ttl-after-finished-controller",
)
_DRA: Final = "resource.k8s.io"


def _rule(groups: str, resources: str, verbs: str) -> Object:
    listed = ["" if group == "core" else group for group in groups.split()]
    return {"apiGroups": listed, "resources": resources.split(), "verbs": verbs.split()}


_READ: Final = "get list watch"
_ROLES: Final[dict[str, list[Object]]] = {
    # No role of upstream's policy names it: its gate is off by default there.
    "system:controller:resourcepoolstatusrequest-controller": [
        _rule(_DRA, "resourcepoolstatusrequests", f"{_READ} delete"),
        _rule(_DRA, "resourcepoolstatusrequests/status", "update patch"),
        _rule(_DRA, "devicetaintrules resourceclaims resourceslices", _READ),
    ],
    "dragoman:autoscaler": [
        _rule("*", "*/scale", "get patch"),
        _rule("autoscaling", "horizontalpodautoscalers", "get"),
        _rule("autoscaling", "horizontalpodautoscalers/status", "patch"),
        _rule("apiextensions.k8s.io", "customresourcedefinitions", _READ),
    ],
    "dragoman:node-host": [
        _rule("core", "pods nodes", _READ),
        _rule("core events.k8s.io", "events", "create patch update"),
    ],
    "dragoman:simulation": [
        _rule("core", "configmaps", f"{_READ} patch delete"),
        # Of nodes that are taken away.
        _rule("core", "nodes", "delete"),
        _rule("coordination.k8s.io", "leases", "delete"),
        _rule(_DRA, "resourceslices", "deletecollection"),
    ],
    "dragoman:driver": [
        _rule(_DRA, "resourceslices", f"{_READ} create update patch delete"),
        _rule(_DRA, "resourceclaims", _READ),
        _rule(_DRA, "resourceclaims/status", "update patch"),
        _rule(_DRA, "resourceclaims/driver", "associated-node:update associated-node:patch"),
        _rule(_DRA, "deviceclasses", f"{_READ} create"),
        _rule("core", "nodes", _READ),
        _rule("core", "namespaces", "get create"),
        _rule("core events.k8s.io", "events", "create patch update"),
        _rule("apps", "deployments", "get create delete"),
    ],
}


def _reference(role: str) -> Object:
    return {"apiGroup": GROUP, "kind": "ClusterRole", "name": role}


def _user(name: str) -> Object:
    return {"apiGroup": GROUP, "kind": "User", "name": name}


def _account(name: str, namespace: str) -> Object:
    return {"kind": "ServiceAccount", "name": name, "namespace": namespace}


def _binding(name: str, role: str, subject: Any) -> Object:
    return {"name": name, "roleRef": _reference(role), "subjects": [subject]}


OWN: Final[dict[str, list[Object]]] = {
    "ClusterRole": [
        *({"name": name, "rules": rules} for name, rules in _ROLES.items()),
        # Who may see pods may see what they use, as metrics-server has it.
        {
            "name": "system:aggregated-metrics-reader",
            "labels": {f"{GROUP}/aggregate-to-{role}": "true" for role in ("admin", "edit", "view")},
            "rules": [_rule("metrics.k8s.io", "pods nodes", _READ)],
        },
    ],
    "ClusterRoleBinding": [
        _binding(
            "system:controller:resourcepoolstatusrequest-controller",
            "system:controller:resourcepoolstatusrequest-controller",
            _account("resourcepoolstatusrequest-controller", "kube-system"),
        ),
        _binding(NODE_HOST.name, NODE_HOST.name, _user(NODE_HOST.name)),
        _binding(SIMULATION.name, SIMULATION.name, _user(SIMULATION.name)),
        _binding("dragoman:autoscaler", "dragoman:autoscaler", _account("horizontal-pod-autoscaler", "kube-system")),
        _binding("dragoman:driver", "dragoman:driver", _account(DRIVER_ACCOUNT, DRIVER_NAMESPACE)),
        *(
            _binding(f"{CONTROLLERS.name}:{name}", f"system:controller:{name}", _user(CONTROLLERS.name))
            for name in _CONTROLLERS
        ),
    ],
}
"""Rows beside those of `facts/roles.json.gz`, in the same form."""
