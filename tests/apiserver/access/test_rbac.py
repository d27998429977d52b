"""What roles and bindings allow, and what giving them away takes."""

from __future__ import annotations

import pytest

from dragoman.api.kinds import BY_NAME
from dragoman.apiserver.access import escalation
from dragoman.apiserver.access.attributes import denied
from dragoman.apiserver.access.authorizer import Authorizer
from dragoman.apiserver.access.rules import PolicyRule, missing
from dragoman.apiserver.status import StatusError
from tests.apiserver.access.stage import bind, may, put, rule, store, user

ANNA = user("anna", "builders")
ANNA_BY_NAME = {"kind": "User", "name": "anna"}


def test_a_cluster_wide_binding_holds_in_every_namespace_and_a_namespaced_one_in_its_own() -> None:
    objects = store()
    put(objects, "ClusterRole", "reader", rules=[rule("get list", "pods pods/log")])
    authorizer = Authorizer(objects)
    assert not authorizer.allows(may(ANNA, "get", "pods", namespace="red", name="p"))
    bind(objects, "reader", ANNA_BY_NAME, namespace="red")
    assert authorizer.allows(may(ANNA, "get", "pods", namespace="red", name="p"))
    assert authorizer.allows(may(ANNA, "get", "pods/log", namespace="red", name="p"))
    assert not authorizer.allows(may(ANNA, "get", "pods/exec", namespace="red", name="p"))
    assert not authorizer.allows(may(ANNA, "get", "pods", namespace="blue", name="p"))
    assert not authorizer.allows(may(ANNA, "list", "pods"))
    bind(objects, "reader", {"kind": "Group", "name": "builders"})
    assert authorizer.allows(may(ANNA, "list", "pods"))
    assert authorizer.allows(may(ANNA, "get", "pods", namespace="blue", name="p"))


def test_what_a_role_says_counts_at_once_when_it_changes_or_goes() -> None:
    objects = store()
    role = put(objects, "Role", "keeper", "red", rules=[rule("delete", "secrets", names="old")])
    bind(objects, "keeper", ANNA_BY_NAME, namespace="red", kind="Role")
    authorizer = Authorizer(objects)
    assert authorizer.allows(may(ANNA, "delete", "secrets", namespace="red", name="old"))
    assert not authorizer.allows(may(ANNA, "delete", "secrets", namespace="red", name="new"))
    role = put(objects, "Role", "keeper", "red", rules=[rule("delete", "secrets", names="new")])
    assert not authorizer.allows(may(ANNA, "delete", "secrets", namespace="red", name="old"))
    assert authorizer.allows(may(ANNA, "delete", "secrets", namespace="red", name="new"))
    objects.remove(role)
    asked = may(ANNA, "delete", "secrets", namespace="red", name="new")
    assert not authorizer.allows(asked)
    assert authorizer.explain(asked).reason == 'RBAC: role.rbac.authorization.k8s.io "keeper" not found'


def test_the_reason_names_the_binding() -> None:
    objects = store()
    put(objects, "ClusterRole", "scaler", rules=[rule("patch", "*/scale", "apps")])
    bind(objects, "scaler", {"kind": "ServiceAccount", "name": "bot"}, namespace="red")
    bot = user("system:serviceaccount:red:bot")
    verdict = Authorizer(objects).explain(may(bot, "patch", "deployments/scale", "apps", namespace="red", name="d"))
    assert verdict.allowed
    assert verdict.reason == (
        'RBAC: allowed by RoleBinding "scaler-0/red" of ClusterRole "scaler" to ServiceAccount "bot/red"'
    )


URLS = {
    "the path itself": (["/metrics"], "/metrics", True),
    "a longer path": (["/metrics"], "/metrics/cadvisor", False),
    "below a star": (["/healthz/*"], "/healthz/etcd", True),
    "the star's folder itself": (["/healthz/*"], "/healthz", False),
    "everything": (["*"], "/apis", True),
}


@pytest.mark.parametrize("case", URLS, ids=str)
def test_non_resource_urls(case: str) -> None:
    urls, path, expected = URLS[case]
    assert PolicyRule(("get",), urls=tuple(urls)).allows(may(ANNA, "get", path)) is expected


def test_masters_may_do_everything_and_the_mode_allow_lets_everybody() -> None:
    objects = store()
    asked = may(ANNA, "delete", "nodes", name="n")
    assert Authorizer(objects).allows(may(user("root", "system:masters"), "delete", "nodes", name="n"))
    assert not Authorizer(objects).allows(asked)
    assert Authorizer(objects, "allow").allows(asked)


REFUSALS = {
    "in a namespace": (
        may(ANNA, "create", "deployments", "apps", namespace="red"),
        'deployments.apps is forbidden: User "anna" cannot create resource "deployments" in API group "apps" in the '
        'namespace "red"',
    ),
    "a named one of the cluster": (
        may(ANNA, "get", "nodes", name="n1"),
        'nodes "n1" is forbidden: User "anna" cannot get resource "nodes" in API group "" at the cluster scope',
    ),
    "a subresource": (
        may(ANNA, "update", "resourceclaims/status", "resource.k8s.io", namespace="red", name="c"),
        'resourceclaims.resource.k8s.io "c" is forbidden: User "anna" cannot update resource "resourceclaims/status" in '
        'API group "resource.k8s.io" in the namespace "red"',
    ),
    "a path": (may(ANNA, "get", "/metrics"), 'forbidden: User "anna" cannot get path "/metrics"'),
}


@pytest.mark.parametrize("case", REFUSALS, ids=str)
def test_refusals_read_as_upstream_writes_them(case: str) -> None:
    asked, text = REFUSALS[case]
    assert denied(asked).message == text


COVERED = {
    "the same": ([PolicyRule(("get",), ("",), ("pods",))], PolicyRule(("get",), ("",), ("pods",)), 0),
    "two owners together": (
        [PolicyRule(("get",), ("",), ("pods",)), PolicyRule(("list",), ("",), ("pods",))],
        PolicyRule(("get", "list"), ("",), ("pods",)),
        0,
    ),
    "a name out of all": ([PolicyRule(("get",), ("",), ("pods",))], PolicyRule(("get",), ("",), ("pods",), ("a",)), 0),
    "all out of a name": ([PolicyRule(("get",), ("",), ("pods",), ("a",))], PolicyRule(("get",), ("",), ("pods",)), 1),
    "every subresource of that name": (
        [PolicyRule(("get",), ("*",), ("*/status",))],
        PolicyRule(("get",), ("",), ("pods/status",)),
        0,
    ),
    "a star out of one": ([PolicyRule(("get",), ("",), ("pods",))], PolicyRule(("*",), ("",), ("pods",)), 1),
    "urls": ([PolicyRule(("get",), urls=("/a/*",))], PolicyRule(("get",), urls=("/a/b", "/c")), 1),
}


@pytest.mark.parametrize("case", COVERED, ids=str)
def test_what_is_missing_of_a_rule(case: str) -> None:
    owned, wanted, count = COVERED[case]
    assert len(missing(owned, [wanted])) == count


def test_nobody_grants_what_he_does_not_hold() -> None:
    objects = store()
    put(
        objects,
        "ClusterRole",
        "maker",
        rules=[rule("get", "secrets"), rule("create", "roles rolebindings", "rbac.authorization.k8s.io")],
    )
    put(objects, "ClusterRole", "strong", rules=[rule("get delete list", "secrets")])
    bind(objects, "maker", ANNA_BY_NAME)
    authorizer = Authorizer(objects)
    kind = BY_NAME["Role"]
    meta = {"name": "new", "namespace": "red"}
    escalation.check(authorizer, kind, {"metadata": meta, "rules": [rule("get", "secrets")]}, None, ANNA)
    with pytest.raises(StatusError) as refused:
        escalation.check(
            authorizer, kind, {"metadata": meta, "rules": [rule("get delete list", "secrets")]}, None, ANNA
        )
    assert refused.value.code == 403
    assert refused.value.message == (
        'roles.rbac.authorization.k8s.io "new" is forbidden: user "anna" (groups=["builders" "system:authenticated"]) is '
        "attempting to grant RBAC permissions not currently held:\n"
        '{APIGroups:[""], Resources:["secrets"], Verbs:["delete" "list"]}'
    )
    binding = {"metadata": meta, "roleRef": {"kind": "ClusterRole", "name": "strong"}, "subjects": [ANNA_BY_NAME]}
    with pytest.raises(StatusError, match="not currently held"):
        escalation.check(authorizer, BY_NAME["RoleBinding"], binding, None, ANNA)
    put(objects, "ClusterRole", "binder", rules=[rule("bind", "clusterroles", "rbac.authorization.k8s.io", "strong")])
    bind(objects, "binder", ANNA_BY_NAME)
    escalation.check(authorizer, BY_NAME["RoleBinding"], binding, None, ANNA)


def test_collecting_garbage_of_a_role_takes_no_rights() -> None:
    authorizer = Authorizer(store())
    old = {"metadata": {"name": "r", "finalizers": ["a"]}, "rules": [rule("*", "*", "*")]}
    new = {"metadata": {"name": "r"}, "rules": [rule("*", "*", "*")]}
    escalation.check(authorizer, BY_NAME["ClusterRole"], new, old, ANNA)
    with pytest.raises(StatusError):
        escalation.check(authorizer, BY_NAME["ClusterRole"], {**new, "rules": [rule("*", "*", "core")]}, old, ANNA)
