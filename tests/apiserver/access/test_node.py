"""What a kubelet may do."""

from __future__ import annotations

import pytest

from dragoman.apiserver.access.attributes import Attributes
from dragoman.apiserver.access.node import NodeAuthorizer, node_of
from dragoman.apiserver.request import User
from dragoman.apiserver.selectors import FieldTerm
from dragoman.apiserver.store import Store
from tests.apiserver.access.stage import may, put, store, user

N1 = user("system:node:n1", "system:nodes")
DRA = "resource.k8s.io"


def cluster() -> Store:
    objects = store()
    spec = {
        "nodeName": "n1",
        "serviceAccountName": "runner",
        "containers": [{"name": "c", "envFrom": [{"secretRef": {"name": "env"}}]}],
        "volumes": [{"name": "v", "projected": {"sources": [{"configMap": {"name": "conf"}}]}}],
        "resourceClaims": [
            {"name": "gpu", "resourceClaimName": "mine"},
            {"name": "made", "resourceClaimTemplateName": "t"},
        ],
    }
    status = {"resourceClaimStatuses": [{"name": "made", "resourceClaimName": "p-made-x"}]}
    put(objects, "Pod", "p", "red", spec=spec, status=status)
    put(
        objects,
        "Pod",
        "q",
        "red",
        spec={"nodeName": "n2", "containers": [], "resourceClaims": [{"name": "g", "resourceClaimName": "theirs"}]},
    )
    put(objects, "ResourceSlice", "s1", spec={"nodeName": "n1"})
    put(objects, "ResourceSlice", "s2", spec={"nodeName": "n2"})
    return objects


def by_node(verb: str, resource: str, value: str, group: str = "") -> Attributes:
    return Attributes(N1, verb, group, "v1", resource, fields=(FieldTerm("spec.nodeName", value, True),))


ALLOWED = {
    "its pod's claim": may(N1, "get", "resourceclaims", DRA, namespace="red", name="mine"),
    "a claim made from a template": may(N1, "get", "resourceclaims", DRA, namespace="red", name="p-made-x"),
    "a secret of the environment": may(N1, "get", "secrets", namespace="red", name="env"),
    "a projected config map": may(N1, "watch", "configmaps", namespace="red", name="conf"),
    "a token of its pod's account": may(N1, "create", "serviceaccounts/token", namespace="red", name="runner"),
    "itself": may(N1, "get", "nodes", name="n1"),
    "its status": may(N1, "patch", "nodes/status", name="n1"),
    "its lease": may(N1, "update", "leases", "coordination.k8s.io", namespace="kube-node-lease", name="n1"),
    "its pods": by_node("list", "pods", "n1"),
    "its slices": by_node("deletecollection", "resourceslices", "n1", DRA),
    "one slice of its own": may(N1, "update", "resourceslices", DRA, name="s1"),
    "events": may(N1, "create", "events", namespace="red"),
    "services": may(N1, "watch", "services"),
}
REFUSED = {
    "another node's claim": (
        may(N1, "get", "resourceclaims", DRA, namespace="red", name="theirs"),
        "no relationship found between node 'n1' and this object",
    ),
    "all claims": (
        may(N1, "list", "resourceclaims", DRA),
        "can only get individual resources of this type",
    ),
    "a secret that no pod uses": (
        may(N1, "get", "secrets", namespace="red", name="other"),
        "no relationship found between node 'n1' and this object",
    ),
    "another node": (may(N1, "get", "nodes", name="n2"), "node 'n1' cannot read 'n2', only its own Node object"),
    "all nodes": (may(N1, "list", "nodes"), "node 'n1' cannot read all nodes, only its own Node object"),
    "another's lease": (
        may(N1, "get", "leases", "coordination.k8s.io", namespace="kube-node-lease", name="n2"),
        "can only access node lease with the same name as the requesting node",
    ),
    "all pods": (may(N1, "list", "pods"), "can only list/watch pods with spec.nodeName field selector"),
    "another's pods": (by_node("list", "pods", "n2"), "can only list/watch pods with spec.nodeName field selector"),
    "another's slice": (
        may(N1, "delete", "resourceslices", DRA, name="s2"),
        "no relationship found between node 'n1' and this object",
    ),
    "a claim's status": (
        may(N1, "update", "resourceclaims/status", DRA, namespace="red", name="mine"),
        "can only get individual resources of this type",
    ),
    "deployments": (may(N1, "list", "deployments", "apps"), ""),
}


@pytest.mark.parametrize("case", ALLOWED, ids=str)
def test_a_node_reads_what_its_pods_use(case: str) -> None:
    assert NodeAuthorizer(cluster()).decide(ALLOWED[case]).allowed


@pytest.mark.parametrize("case", REFUSED, ids=str)
def test_a_node_may_nothing_else(case: str) -> None:
    asked, reason = REFUSED[case]
    verdict = NodeAuthorizer(cluster()).decide(asked)
    assert not verdict.allowed
    assert verdict.reason == reason


def test_what_a_node_may_follows_its_pods() -> None:
    objects = cluster()
    nodes = NodeAuthorizer(objects)
    theirs = may(N1, "get", "resourceclaims", DRA, namespace="red", name="theirs")
    assert not nodes.decide(theirs).allowed
    for number in range(5000):  # more than the store's history holds
        put(objects, "Pod", f"p{number % 7}", "blue", spec={"nodeName": "n2", "containers": []})
    late = {"nodeName": "n1", "containers": [], "resourceClaims": [{"name": "g", "resourceClaimName": "theirs"}]}
    pod = put(objects, "Pod", "late", "red", spec=late)
    assert nodes.decide(theirs).allowed
    objects.remove(pod)
    assert not nodes.decide(theirs).allowed


def test_who_is_a_node() -> None:
    assert node_of(N1) == "n1"
    assert node_of(User("system:node:n1", ("system:authenticated",))) is None
    assert node_of(User("anna", ("system:nodes",))) is None
