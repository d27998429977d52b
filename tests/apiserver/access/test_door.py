"""Who passes the door of the server, and what he is told otherwise."""

from __future__ import annotations

from typing import Any

import pytest

from dragoman.api.gates import DEFAULTS
from dragoman.api.kinds import BY_NAME
from dragoman.apiserver import default_roles
from dragoman.apiserver.access.rules import missing, rules_of
from dragoman.apiserver.access.tokens import Tokens, new_key
from dragoman.apiserver.bootstrap import in_memory
from dragoman.apiserver.registry import Registry
from dragoman.apiserver.request import User, Write
from dragoman.apiserver.status import StatusError
from dragoman.runtime.clock import Clock
from dragoman.runtime.entropy import Entropy
from tests.apiserver.access.stage import rule
from tests.apiserver.test_http import Api

PODS = "/api/v1/namespaces/default/pods"
ACCOUNTS = "/api/v1/namespaces/default/serviceaccounts"
ROLES = "/apis/rbac.authorization.k8s.io/v1"
REVIEWS = "/apis/authorization.k8s.io/v1"


@pytest.fixture
def registry() -> Registry:
    return in_memory(Clock(), Entropy(1))


@pytest.fixture
def api(registry: Registry) -> Api:
    return Api(registry)


def token_of(api: Api, account: str = "bot", **spec: Any) -> str:
    """A token of an account of `default`, which is made where missing."""
    api("POST", ACCOUNTS, {"metadata": {"name": account}})
    made = api("POST", f"{ACCOUNTS}/{account}/token", {"spec": spec})
    assert made.status == 201, made.body
    return str(made.json()["status"]["token"])


def grant(api: Api, *rules: dict[str, Any], namespace: str = "default", account: str = "bot") -> None:
    """A role of these rules for an account."""
    base = f"{ROLES}/namespaces/{namespace}"
    name = f"r{len(api('GET', f'{base}/roles').json()['items'])}"
    assert api("POST", f"{base}/roles", {"metadata": {"name": name}, "rules": list(rules)}).status == 201
    subject = {"kind": "ServiceAccount", "name": account, "namespace": "default"}
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": name}
    binding = {"metadata": {"name": name}, "roleRef": reference, "subjects": [subject]}
    assert api("POST", f"{base}/rolebindings", binding).status == 201


def test_an_account_may_what_its_roles_say_and_nothing_else(api: Api) -> None:
    token = token_of(api)
    refused = api("GET", PODS, token=token)
    assert refused.status == 403
    assert refused.json()["message"] == (
        'pods is forbidden: User "system:serviceaccount:default:bot" cannot list resource "pods" in API group "" in the '
        'namespace "default"'
    )
    assert refused.json()["details"] == {"kind": "pods"}
    grant(api, rule("get list", "pods"))
    assert api("GET", PODS, token=token).status == 200
    assert api("GET", f"{PODS}?watch=true", token=token).status == 403
    assert api("DELETE", PODS, token=token).json()["message"].startswith("pods is forbidden: User")
    assert "cannot deletecollection" in api("DELETE", PODS, token=token).json()["message"]
    assert api("GET", "/api/v1/pods", token=token).status == 403
    assert api("GET", f"{PODS}/none", token=token).status == 404


def test_who_may_not_does_not_learn_what_exists(api: Api) -> None:
    token = token_of(api)
    assert api("GET", "/apis/example.com/v1/things", token=token).status == 403
    assert api("GET", "/api/v1/namespaces/none/secrets/none", token=token).status == 403


@pytest.mark.parametrize("path", ["/api", "/apis", "/openapi/v3", "/metrics", PODS, "/nothing"])
def test_without_a_token_one_is_anonymous_and_sees_health_and_version_only(api: Api, path: str) -> None:
    refused = api("GET", path, token=None)
    assert refused.status == 403
    assert 'User "system:anonymous" cannot' in refused.json()["message"]


def test_everybody_with_a_token_may_discover_and_ask_about_himself(api: Api) -> None:
    token = token_of(api)
    for path in ("/api", "/apis", "/openapi/v3", "/version", "/apis/apps/v1"):
        assert api("GET", path, token=token).status == 200, path
    assert api("GET", "/metrics", token=token).status == 403
    review = {"spec": {"resourceAttributes": {"verb": "get", "resource": "pods", "namespace": "default"}}}
    answer = api("POST", f"{REVIEWS}/selfsubjectaccessreviews", review, token=token)
    assert answer.json()["status"] == {"allowed": False}
    grant(api, rule("get", "pods"))
    answer = api("POST", f"{REVIEWS}/selfsubjectaccessreviews", review, token=token)
    assert answer.json()["status"]["allowed"]
    assert answer.json()["status"]["reason"].startswith("RBAC: allowed by RoleBinding")
    assert api("POST", f"{REVIEWS}/subjectaccessreviews", {}, token=token).status == 403


def test_access_reviews_tell_the_truth_about_others_and_about_paths(api: Api) -> None:
    grant(api, rule("delete", "secrets"))
    who = {"user": "system:serviceaccount:default:bot"}
    asked = {"verb": "delete", "resource": "secrets", "namespace": "default", "name": "s"}
    answer = api("POST", f"{REVIEWS}/subjectaccessreviews", {"spec": {**who, "resourceAttributes": asked}})
    assert answer.json()["status"]["allowed"] is True
    local = f"{REVIEWS}/namespaces/default/localsubjectaccessreviews"
    body = {"metadata": {"namespace": "default"}, "spec": {**who, "resourceAttributes": asked}}
    assert api("POST", local, body).json()["status"]["allowed"] is True
    body["spec"]["resourceAttributes"] = {**asked, "namespace": "kube-system"}
    assert api("POST", local, body).status == 422
    path = {"spec": {"user": "anna", "nonResourceAttributes": {"path": "/metrics", "verb": "get"}}}
    assert api("POST", f"{REVIEWS}/subjectaccessreviews", path).json()["status"] == {"allowed": False}
    path["spec"]["groups"] = ["system:masters"]
    assert api("POST", f"{REVIEWS}/subjectaccessreviews", path).json()["status"]["allowed"] is True
    both = {"spec": {"resourceAttributes": asked, "nonResourceAttributes": {"path": "/", "verb": "get"}}}
    assert api("POST", f"{REVIEWS}/selfsubjectaccessreviews", both).status == 422


def test_the_rules_of_oneself(api: Api) -> None:
    token = token_of(api)
    grant(api, rule("get list", "pods"))
    body = {"spec": {"namespace": "default"}}
    status = api("POST", f"{REVIEWS}/selfsubjectrulesreviews", body, token=token).json()["status"]
    assert {"verbs": ["get", "list"], "apiGroups": [""], "resources": ["pods"]} in status["resourceRules"]
    assert any("/healthz" in entry["nonResourceURLs"] for entry in status["nonResourceRules"])
    assert status["incomplete"] is False


def test_impersonation_takes_a_right_for_each_thing_one_is_taken_for(api: Api) -> None:
    token = token_of(api)
    assert api("GET", PODS, token=token, impersonate_user="anna").json()["message"] == (
        'pods is forbidden: User "system:serviceaccount:default:bot" cannot impersonate-on:user-info:list resource "pods" '
        'in API group "" in the namespace "default"'
    )
    name = "acting"
    rules = [
        rule("impersonate", "users", names="anna"),
        rule("impersonate", "groups", names="ops, pool"),
        rule("get", "x"),
    ]
    rules[1]["resourceNames"] = ["ops, pool"]
    api("POST", f"{ROLES}/clusterroles", {"metadata": {"name": name}, "rules": rules})
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name}
    subject = {"kind": "ServiceAccount", "name": "bot", "namespace": "default"}
    api(
        "POST",
        f"{ROLES}/clusterrolebindings",
        {"metadata": {"name": name}, "roleRef": reference, "subjects": [subject]},
    )
    assert 'User "anna" cannot list' in api("GET", PODS, token=token, impersonate_user="anna").json()["message"]
    path = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
    who = api("POST", path, {}, token=token, impersonate_user="anna", impersonate_group="ops, pool")
    assert who.json()["status"]["userInfo"] == {"username": "anna", "groups": ["ops, pool", "system:authenticated"]}
    assert api("POST", path, {}, token=token, impersonate_user="anna", impersonate_group="root").status == 403
    assert api("POST", path, {}, token=token, impersonate_user="anna", impersonate_uid="7").status == 403
    assert api("POST", path, {}, token=token, impersonate_group="ops").status == 400


def test_a_pods_token_names_pod_and_node_and_ends_with_the_pod(api: Api, registry: Registry) -> None:
    pod = {"metadata": {"name": "p"}, "spec": {"nodeName": "n1", "containers": [{"name": "c", "image": "i"}]}}
    uid = api("POST", PODS, pod).json()["metadata"]["uid"]
    bound = {"kind": "Pod", "apiVersion": "v1", "name": "p", "uid": uid}
    assert api("POST", f"{ACCOUNTS}/bot/token", {"spec": {"boundObjectRef": bound}}).status == 404
    api("POST", ACCOUNTS, {"metadata": {"name": "bot"}})
    assert api("POST", f"{ACCOUNTS}/bot/token", {"spec": {"boundObjectRef": bound}}).status == 400
    token = api("POST", f"{ACCOUNTS}/default/token", {"spec": {"boundObjectRef": bound}}).json()["status"]["token"]
    path = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
    info = api("POST", path, {}, token=token).json()["status"]["userInfo"]
    assert info["extra"]["authentication.kubernetes.io/pod-name"] == ["p"]
    assert info["extra"]["authentication.kubernetes.io/node-name"] == ["n1"]
    wrong = {**bound, "uid": "another"}
    assert api("POST", f"{ACCOUNTS}/default/token", {"spec": {"boundObjectRef": wrong}}).status == 409
    api("DELETE", f"{PODS}/p?gracePeriodSeconds=0")
    assert api("POST", path, {}, token=token).status == 401


@pytest.mark.parametrize("seconds", [-1, 0, 599, 2**32 + 1, 10**18])
def test_a_token_lives_ten_minutes_at_least(api: Api, seconds: int) -> None:
    api("POST", ACCOUNTS, {"metadata": {"name": "bot"}})
    refused = api("POST", f"{ACCOUNTS}/bot/token", {"spec": {"expirationSeconds": seconds}})
    assert refused.status == 422
    assert refused.json()["details"]["causes"][0]["field"] == "spec.expirationSeconds"


def test_a_token_for_others_is_not_taken_at_the_door_but_reviewed(api: Api) -> None:
    token = token_of(api, audiences=["vault"])
    assert api("GET", "/api", token=token).status == 401
    path = "/apis/authentication.k8s.io/v1/tokenreviews"
    assert api("POST", path, {"spec": {"token": token}}).json()["status"].get("authenticated") is None
    status = api("POST", path, {"spec": {"token": token, "audiences": ["vault", "x"]}}).json()["status"]
    assert status["authenticated"]
    assert status["audiences"] == ["vault"]
    assert status["user"]["username"] == "system:serviceaccount:default:bot"


def test_tokens_of_another_key_are_not_believed(api: Api, registry: Registry) -> None:
    token_of(api)
    forger = Tokens(registry.store, registry.clock, registry.entropy, new_key())
    account = registry.get(BY_NAME["ServiceAccount"], "bot", "default")
    forged = forger.issue(account, {})["status"]["token"]
    assert api("GET", "/api", token=forged).status == 401


def test_pods_see_their_account_unless_they_say_no(api: Api) -> None:
    container = {"name": "c", "image": "i"}
    api(
        "PATCH",
        f"{ACCOUNTS}/default",
        {"imagePullSecrets": [{"name": "reg"}]},
        content_type="application/merge-patch+json",
    )
    spec = api("POST", PODS, {"metadata": {"name": "p"}, "spec": {"containers": [container]}}).json()["spec"]
    (volume,) = spec["volumes"]
    assert volume["name"].startswith("kube-api-access-")
    paths = [next(iter(source)) for source in volume["projected"]["sources"]]
    assert paths == ["serviceAccountToken", "configMap", "downwardAPI"]
    mount = {"name": volume["name"], "readOnly": True, "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount"}
    assert spec["containers"][0]["volumeMounts"] == [mount]
    assert spec["imagePullSecrets"] == [{"name": "reg"}]
    silent = {"metadata": {"name": "q"}, "spec": {"containers": [container], "automountServiceAccountToken": False}}
    assert "volumes" not in api("POST", PODS, silent).json()["spec"]


def test_roles_gather_the_rules_of_others(api: Api) -> None:
    selector = {"matchLabels": {"example.com/to-keeper": "true"}}
    keeper = {"metadata": {"name": "keeper"}, "aggregationRule": {"clusterRoleSelectors": [selector]}, "rules": []}
    api("POST", f"{ROLES}/clusterroles", keeper)
    part = {"metadata": {"name": "part", "labels": {"example.com/to-keeper": "true"}}, "rules": [rule("get", "nodes")]}
    api("POST", f"{ROLES}/clusterroles", part)
    assert api("GET", f"{ROLES}/clusterroles/keeper").json()["rules"] == part["rules"]
    api("DELETE", f"{ROLES}/clusterroles/part")
    assert not api("GET", f"{ROLES}/clusterroles/keeper").json()["rules"]
    view = api("GET", f"{ROLES}/clusterroles/view").json()["rules"]
    assert any("resourceclaims" in entry.get("resources", ()) for entry in view)


def test_default_roles_come_back_at_the_next_start(registry: Registry) -> None:
    kind = BY_NAME["ClusterRole"]
    record = registry.get(kind, "system:kube-scheduler")
    registry.patch(kind, record.name, {"rules": []})
    registry.patch(kind, "edit", {"metadata": {"annotations": {default_roles.AUTOUPDATE: "false"}}})
    registry.delete(kind, "view")
    default_roles.ensure(registry)
    again = registry.get(kind, "system:kube-scheduler").decode()
    assert not missing(rules_of(again), rules_of(record.decode()))
    assert registry.get(kind, "view").decode()["rules"]


def test_the_mode_allow_lets_in_whoever_is_authenticated_and_nobody_else() -> None:
    api = Api(in_memory(Clock(), Entropy(1), mode="allow"))
    token = token_of(api)
    assert api("GET", "/api/v1/secrets", token=token).status == 200
    assert api("GET", "/api/v1/secrets", token=None).status == 403


def test_a_user_of_ones_own_has_his_groups_and_the_rights_that_are_bound(api: Api, registry: Registry) -> None:
    token = registry.tokens.for_user("anna", ("builders",))
    path = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
    info = api("POST", path, {}, token=token).json()["status"]["userInfo"]
    assert info == {"username": "anna", "groups": ["builders", "system:authenticated"]}
    assert api("GET", PODS, token=token).status == 403
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "edit"}
    subject = {"kind": "Group", "name": "builders", "apiGroup": "rbac.authorization.k8s.io"}
    binding = {"metadata": {"name": "b"}, "roleRef": reference, "subjects": [subject]}
    api("POST", f"{ROLES}/namespaces/default/rolebindings", binding)
    assert api("GET", PODS, token=token).status == 200
    assert api("GET", "/api/v1/nodes", token=token).status == 403


# ---- a claim's status


def claim_status(registry: Registry, user: User, status: dict[str, Any]) -> None:
    write = Write(user=user)
    registry.update(
        BY_NAME["ResourceClaim"],
        {**registry.get(BY_NAME["ResourceClaim"], "c", "default").decode(), "status": status},
        "c",
        "default",
        subresource="status",
        write=write,
    )


ALLOCATION = {
    "devices": {"results": [{"request": "gpu", "driver": "gpu.example.com", "pool": "n1", "device": "gpu-0"}]},
    "nodeSelector": {
        "nodeSelectorTerms": [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]}]
    },
}
DEVICES = [{"driver": "gpu.example.com", "pool": "n1", "device": "gpu-0", "conditions": []}]


def test_allocations_and_device_status_take_rights_of_their_own(registry: Registry) -> None:
    assert DEFAULTS.on("DRAResourceClaimGranularStatusAuthorization")
    request = {"name": "gpu", "exactly": {"deviceClassName": "gpu.example.com"}}
    registry.create(
        BY_NAME["ResourceClaim"], {"metadata": {"name": "c"}, "spec": {"devices": {"requests": [request]}}}, "default"
    )
    account = "system:serviceaccount:default:driver"
    extra = {"authentication.kubernetes.io/node-name": ("n1",)}
    driver = User(account, ("system:authenticated",), extra=extra)
    with pytest.raises(StatusError) as refused:
        claim_status(registry, driver, {"allocation": ALLOCATION})
    assert refused.value.code == 422
    assert (
        'status.allocation: Forbidden: changing status.allocation or status.reservedFor requires resource="resource'
        in str(refused.value)
    )
    scheduler = User("system:kube-scheduler", ("system:authenticated",))
    claim_status(registry, scheduler, {"allocation": ALLOCATION})
    given = {"allocation": ALLOCATION, "devices": DEVICES}
    with pytest.raises(StatusError, match=r"changing status\.devices requires"):
        claim_status(registry, driver, given)
    rules = [rule("associated-node:update", "resourceclaims/driver", "resource.k8s.io", "gpu.example.com")]
    registry.create(BY_NAME["Role"], {"metadata": {"name": "d"}, "rules": rules}, "default")
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "d"}
    subjects = [{"kind": "User", "name": account, "apiGroup": "rbac.authorization.k8s.io"}]
    registry.create(
        BY_NAME["RoleBinding"], {"metadata": {"name": "d"}, "roleRef": reference, "subjects": subjects}, "default"
    )
    elsewhere = User(account, ("system:authenticated",), extra={"authentication.kubernetes.io/node-name": ("n2",)})
    with pytest.raises(StatusError, match=r"arbitrary-node:update"):
        claim_status(registry, elsewhere, given)
    claim_status(registry, driver, given)


# ---- what a kubelet may write


NODE = User("system:node:n1", ("system:nodes", "system:authenticated"))
WRITES = {
    "another node": ("Node", {"metadata": {"name": "n2"}}, 'node "n1" is not allowed to modify node "n2"'),
    "a label of Kubernetes": (
        "Node",
        {"metadata": {"name": "n1", "labels": {"node-role.kubernetes.io/x": "", "example.com/a": "b"}}},
        'node "n1" is not allowed to set the following labels: node-role.kubernetes.io/x',
    ),
    "a pod that is no mirror": (
        "Pod",
        {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i"}]}},
        'pod does not have "kubernetes.io/config.mirror" annotation, node "n1" can only create mirror pods',
    ),
    "another node's slice": (
        "ResourceSlice",
        {
            "metadata": {"name": "s"},
            "spec": {
                "driver": "d.example.com",
                "nodeName": "n2",
                "pool": {"name": "p", "generation": 1, "resourceSliceCount": 1},
            },
        },
        "can only create ResourceSlice with the same NodeName as the requesting node",
    ),
}


@pytest.mark.parametrize("case", WRITES, ids=str)
def test_a_kubelet_writes_what_is_its_own(registry: Registry, case: str) -> None:
    kind, body, text = WRITES[case]
    with pytest.raises(StatusError) as refused:
        registry.create(BY_NAME[kind], body, "default" if BY_NAME[kind].namespaced else "", Write(user=NODE))
    assert refused.value.code == 403
    assert refused.value.message.endswith(f"is forbidden: {text}")


def test_a_kubelet_leaves_what_controllers_write_into_a_pods_status(registry: Registry) -> None:
    spec = {"nodeName": "n1", "containers": [{"name": "c", "image": "i"}]}
    registry.create(BY_NAME["Pod"], {"metadata": {"name": "p"}, "spec": spec}, "default")

    def patch(status: dict[str, Any], user: User = NODE) -> None:
        registry.patch(BY_NAME["Pod"], "p", {"status": status}, "default", subresource="status", write=Write(user=user))

    patch({"phase": "Running"})
    with pytest.raises(StatusError, match="cannot update resource claim"):
        patch({"resourceClaimStatuses": [{"name": "gpu", "resourceClaimName": "x"}]})
    with pytest.raises(StatusError, match=r"with spec\.nodeName set to itself"):
        patch({"phase": "Failed"}, User("system:node:n2", NODE.groups))


def test_the_published_ca_cannot_be_spoilt(registry: Registry) -> None:
    registry.ca_text = "PEM"
    kind = BY_NAME["ConfigMap"]
    registry.update(
        kind, {"metadata": {"name": "kube-root-ca.crt"}, "data": {"ca.crt": ""}}, "kube-root-ca.crt", "default"
    )
    assert registry.get(kind, "kube-root-ca.crt", "default").decode()["data"]["ca.crt"] == "PEM"
