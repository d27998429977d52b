"""Do the rules of the API hold for every kind? Writes and reads on a registry without a network."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from dragoman.api.kinds import BY_NAME, Kind
from dragoman.api.shape import Object
from dragoman.apiserver.bootstrap import bootstrap, in_memory
from dragoman.apiserver.registry import EVENT_S, Registry
from dragoman.apiserver.request import DeleteOptions, RequestOutcome, Write
from dragoman.apiserver.status import StatusError
from dragoman.apiserver.store import Selection
from dragoman.runtime.clock import Clock
from dragoman.runtime.entropy import Entropy
from dragoman.testing.build import claim, pod, request

POD, NODE, MAP = BY_NAME["Pod"], BY_NAME["Node"], BY_NAME["ConfigMap"]
NAMESPACE, DEPLOYMENT, JOB = BY_NAME["Namespace"], BY_NAME["Deployment"], BY_NAME["Job"]
CLAIM, TEMPLATE, SLICE = BY_NAME["ResourceClaim"], BY_NAME["ResourceClaimTemplate"], BY_NAME["ResourceSlice"]
RULE, CLASS = BY_NAME["DeviceTaintRule"], BY_NAME["DeviceClass"]


def obj(outcome: RequestOutcome) -> Object:
    assert outcome.body is not None
    decoded: Object = msgspec.json.decode(outcome.body)
    return decoded


def deployment(name: str = "d", **spec: Any) -> Object:
    template = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
    return {"metadata": {"name": name}, "spec": {"selector": {"matchLabels": {"a": "b"}}, "template": template, **spec}}


def refused(code: int, work: Any) -> StatusError:
    with pytest.raises(StatusError) as caught:
        work()
    assert caught.value.code == code, caught.value.message
    return caught.value


def status(registry: Registry, kind: Kind, name: str, value: Object, namespace: str = "default") -> Object:
    return obj(registry.patch(kind, name, {"status": value}, namespace, subresource="status"))


# ---- creation


def test_a_new_object_gets_its_identity_from_the_server(registry: Registry) -> None:
    body = pod("p")
    body["metadata"] |= {"uid": "mine", "generation": 7, "creationTimestamp": "2000-01-01T00:00:00Z", "selfLink": "/x"}
    body["metadata"]["deletionTimestamp"] = "2000-01-01T00:00:00Z"
    meta = obj(registry.create(POD, body, "default"))["metadata"]
    assert meta["uid"] != "mine"
    assert meta["generation"] == 1
    assert not meta["creationTimestamp"].startswith("2000")
    assert "deletionTimestamp" not in meta
    assert "selfLink" not in meta
    assert meta["resourceVersion"] == str(registry.store.version)
    assert body["metadata"]["uid"] == "mine", "the caller's object is not touched"


def test_generated_names_are_new_and_fit(registry: Registry) -> None:
    body = {"metadata": {"generateName": "a" * 70}}
    names = {obj(registry.create(MAP, body, "default"))["metadata"]["name"] for _ in range(20)}
    assert len(names) == 20
    assert {len(name) for name in names} == {63}


CREATE_REFUSED: dict[str, tuple[int, Kind, Object, str]] = {
    "no name": (422, MAP, {"metadata": {}}, "default"),
    "a resourceVersion": (400, MAP, {"metadata": {"name": "a", "resourceVersion": "3"}}, "default"),
    "another namespace": (400, MAP, {"metadata": {"name": "a", "namespace": "x"}}, "default"),
    "no such namespace": (404, MAP, {"metadata": {"name": "a"}}, "nowhere"),
    "another kind": (400, MAP, {"kind": "Pod", "metadata": {"name": "a"}}, "default"),
    "another version": (400, MAP, {"apiVersion": "v2", "metadata": {"name": "a"}}, "default"),
    "the same name": (409, MAP, {"metadata": {"name": "kube-root-ca.crt"}}, "default"),
    "a bad name": (422, MAP, {"metadata": {"name": "A_"}}, "default"),
    "no containers": (422, POD, {"metadata": {"name": "a"}, "spec": {"containers": []}}, "default"),
    "an unknown service account": (403, POD, pod("p", serviceAccountName="nobody"), "default"),
    "an unknown priority class": (403, POD, pod("p", priorityClassName="nothing"), "default"),
    "a priority by number": (403, POD, pod("p", priority=7), "default"),
    "a selector beside the template": (422, DEPLOYMENT, deployment(selector={"matchLabels": {"x": "y"}}), "default"),
}


@pytest.mark.parametrize(("code", "kind", "body", "namespace"), CREATE_REFUSED.values(), ids=CREATE_REFUSED)
def test_creation_is_refused(registry: Registry, code: int, kind: Kind, body: Object, namespace: str) -> None:
    version = registry.store.version
    refused(code, lambda: registry.create(kind, body, namespace))
    assert registry.store.version == version, "nothing half done"


def test_invalid_objects_list_all_causes(registry: Registry) -> None:
    request = {"name": "r", "exactly": {"deviceClassName": "gpu.example.com", "count": -1}}
    body = {"metadata": {"name": "c"}, "spec": {"devices": {"requests": [request, request]}}}
    no = refused(422, lambda: registry.create(CLAIM, body, "default"))
    assert no.details is not None
    fields = [cause["field"] for cause in no.details["causes"]]
    assert "spec.devices.requests[0].exactly.count" in fields
    assert any(cause["reason"] == "FieldValueDuplicate" for cause in no.details["causes"])
    assert no.message.startswith('ResourceClaim.resource.k8s.io "c" is invalid: [')


def test_pods_get_what_admission_adds(registry: Registry) -> None:
    registry.create(BY_NAME["PriorityClass"], {"metadata": {"name": "high"}, "value": 9, "preemptionPolicy": "Never"})
    spec = obj(registry.create(POD, pod("p", priorityClassName="high"), "default"))["spec"]
    assert (spec["priority"], spec["preemptionPolicy"], spec["serviceAccountName"]) == (9, "Never", "default")
    assert {t["key"] for t in spec["tolerations"]} == {"node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"}
    default = {"metadata": {"name": "usual"}, "value": 3, "globalDefault": True}
    registry.create(BY_NAME["PriorityClass"], default)
    spec = obj(registry.create(POD, pod("q"), "default"))["spec"]
    assert (spec["priority"], spec["priorityClassName"]) == (3, "usual")


QOS = {
    "nothing": ({}, "BestEffort"),
    "only a request": ({"requests": {"cpu": "1"}}, "Burstable"),
    "limits for both": ({"limits": {"cpu": "1", "memory": "1Gi"}}, "Guaranteed"),
    "limits above requests": (
        {"limits": {"cpu": "1", "memory": "1Gi"}, "requests": {"cpu": "500m", "memory": "1Gi"}},
        "Burstable",
    ),
}


@pytest.mark.parametrize(("resources", "expected"), QOS.values(), ids=QOS)
def test_quality_of_service(registry: Registry, resources: Object, expected: str) -> None:
    body = pod("p", containers=[{"name": "c", "image": "i", "resources": resources}])
    assert obj(registry.create(POD, body, "default"))["status"] == {"phase": "Pending", "qosClass": expected}


def test_gated_pods_say_so(registry: Registry) -> None:
    made = obj(registry.create(POD, pod("p", schedulingGates=[{"name": "example.com/wait"}]), "default"))
    (condition,) = made["status"]["conditions"]
    assert (condition["type"], condition["reason"]) == ("PodScheduled", "SchedulingGated")
    registry.patch(POD, "p", {"spec": {"nodeSelector": {"a": "b"}, "schedulingGates": None}}, "default")
    refused(422, lambda: registry.patch(POD, "p", {"spec": {"nodeSelector": {"a": "c"}}}, "default"))
    refused(422, lambda: registry.patch(POD, "p", {"spec": {"schedulingGates": [{"name": "b"}]}}, "default"))


def test_a_status_sent_at_creation_does_not_count_but_a_nodes_does(registry: Registry) -> None:
    body = {**claim("c"), "status": {"reservedFor": [{"resource": "pods", "name": "p", "uid": "u"}]}}
    assert obj(registry.create(CLAIM, body, "default"))["status"] == {}
    made = obj(registry.create(NODE, {"metadata": {"name": "n"}, "status": {"capacity": {"cpu": "4"}}}))
    assert made["status"]["allocatable"] == {"cpu": "4"}


def test_a_job_selects_its_own_pods(registry: Registry) -> None:
    template = {"spec": {"containers": [{"name": "c", "image": "i"}], "restartPolicy": "Never"}}
    made = obj(registry.create(JOB, {"metadata": {"name": "j"}, "spec": {"template": template}}, "default"))
    uid = made["metadata"]["uid"]
    assert made["spec"]["selector"] == {"matchLabels": {"batch.kubernetes.io/controller-uid": uid}}
    assert made["spec"]["template"]["metadata"]["labels"]["batch.kubernetes.io/job-name"] == "j"


def test_secrets_fold_plain_text(registry: Registry) -> None:
    secret = BY_NAME["Secret"]
    made = obj(registry.create(secret, {"metadata": {"name": "s"}, "stringData": {"a": "b"}}, "default"))
    assert made["data"] == {"a": "Yg=="}
    assert "stringData" not in made
    refused(422, lambda: registry.patch(secret, "s", {"type": "other"}, "default"))


def test_services_get_addresses_of_their_own(registry: Registry) -> None:
    service = BY_NAME["Service"]
    body = {"spec": {"ports": [{"port": 80}]}}
    made = [obj(registry.create(service, {"metadata": {"name": n}, **body}, "default")) for n in ("a", "b")]
    addresses = {m["spec"]["clusterIP"] for m in made}
    assert len(addresses) == 2
    assert all(address.startswith("10.96.") for address in addresses)


# ---- admin access


def test_admin_access_needs_the_label_of_the_namespace(registry: Registry) -> None:
    template = {"metadata": {"name": "t"}, "spec": {"spec": claim("c", request("r", adminAccess=True))["spec"]}}
    for kind, body in ((CLAIM, claim("c", request("r", adminAccess=True))), (TEMPLATE, template)):
        no = refused(403, lambda kind=kind, body=body: registry.create(kind, body, "default"))
        assert "resource.kubernetes.io/admin-access: true" in no.message
    label = {"metadata": {"labels": {"resource.kubernetes.io/admin-access": "true"}}}
    registry.patch(NAMESPACE, "default", label)
    registry.create(CLAIM, claim("c", request("r", adminAccess=True)), "default")
    registry.create(TEMPLATE, template, "default")


# ---- updates


def test_a_write_that_changes_nothing_keeps_the_version(registry: Registry) -> None:
    made = obj(registry.create(DEPLOYMENT, deployment(), "default"))
    version = registry.store.version
    whole = {"apiVersion": "apps/v1", "kind": "Deployment", **made}
    for outcome in (
        registry.update(DEPLOYMENT, whole, "d", "default"),
        registry.update(DEPLOYMENT, deployment(), "d", "default"),
        registry.patch(DEPLOYMENT, "d", {"spec": {"replicas": 1}}, "default"),
        registry.patch(DEPLOYMENT, "d", {"spec": {"paused": None}}, "default"),
        registry.patch(DEPLOYMENT, "d", [], "default", type="json"),
    ):
        assert obj(outcome) == made
    assert registry.store.version == version


def test_applying_the_same_again_changes_nothing(registry: Registry) -> None:
    config = {"apiVersion": "apps/v1", "kind": "Deployment", **deployment()}
    write = Write(manager="m")
    first = obj(registry.patch(DEPLOYMENT, "d", config, "default", type="apply", write=write))
    again = obj(registry.patch(DEPLOYMENT, "d", config, "default", type="apply", write=write))
    assert again == first


def test_generation_counts_changes_of_spec_only(registry: Registry) -> None:
    registry.create(DEPLOYMENT, deployment(), "default")

    def generation(patch: Object, subresource: str = "") -> int:
        changed = obj(registry.patch(DEPLOYMENT, "d", patch, "default", subresource=subresource))
        return int(changed["metadata"]["generation"])

    assert generation({"metadata": {"labels": {"x": "y"}}}) == 1
    assert generation({"status": {"replicas": 1}}, "status") == 1
    assert generation({"spec": {"replicas": 3}}) == 2
    assert generation({"metadata": {"generation": 9}}) == 2


def test_claims_keep_no_generation_and_no_other_spec(registry: Registry) -> None:
    assert "generation" not in obj(registry.create(CLAIM, claim("c"), "default"))["metadata"]
    change = {"spec": {"devices": {"requests": [{"name": "x", "exactly": {"deviceClassName": "y"}}]}}}
    no = refused(422, lambda: registry.patch(CLAIM, "c", change, "default"))
    assert "immutable" in no.message


def test_status_and_the_rest_do_not_touch_each_other(registry: Registry) -> None:
    registry.create(CLAIM, claim("c"), "default")
    both = {
        "metadata": {"labels": {"a": "b"}, "finalizers": ["x.example.com/y"]},
        "status": {"allocation": {"devices": {"results": []}}},
    }
    changed = obj(registry.patch(CLAIM, "c", both, "default", subresource="status"))
    assert "labels" not in changed["metadata"]
    assert "finalizers" not in changed["metadata"]
    assert changed["status"]["allocation"] == {"devices": {"results": []}}
    changed = obj(registry.patch(CLAIM, "c", {"status": None, "metadata": {"labels": {"a": "b"}}}, "default"))
    assert changed["status"]["allocation"]
    assert changed["metadata"]["labels"] == {"a": "b"}


def test_identity_survives_every_update(registry: Registry) -> None:
    made = obj(registry.create(MAP, {"metadata": {"name": "a"}}, "default"))["metadata"]
    body = {"metadata": {"name": "a", "creationTimestamp": "2000-01-01T00:00:00Z"}, "data": {"k": "v"}}
    changed = obj(registry.update(MAP, body, "a", "default"))["metadata"]
    for field in ("uid", "creationTimestamp", "namespace"):
        assert changed[field] == made[field]
    refused(409, lambda: registry.update(MAP, {"metadata": {"name": "a", "uid": "x"}}, "a", "default"))
    refused(400, lambda: registry.patch(MAP, "a", {"metadata": {"namespace": "x"}}, "default"))


def test_a_pods_spec_hardly_changes(registry: Registry) -> None:
    registry.create(POD, pod("p"), "default")
    image = {"spec": {"containers": [{"name": "main", "image": "i:2"}]}}
    registry.patch(POD, "p", image, "default", type="strategic")
    tolerations = obj(registry.patch(POD, "p", {}, "default"))["spec"]["tolerations"]
    registry.patch(POD, "p", {"spec": {"tolerations": [*tolerations, {"operator": "Exists"}]}}, "default")
    for patch in (
        {"spec": {"containers": [{"name": "main", "command": ["x"]}]}},
        {"spec": {"nodeName": "n"}},
        {"spec": {"restartPolicy": "Never"}},
        {"spec": {"priority": 3}},
        {"spec": {"resourceClaims": [{"name": "a", "resourceClaimName": "b"}]}},
    ):
        refused(422, lambda patch=patch: registry.patch(POD, "p", patch, "default", type="strategic"))


def test_devices_no_longer_allocated_leave_the_claims_status(registry: Registry) -> None:
    registry.create(CLAIM, claim("c", request("r")), "default")
    device = {"driver": "gpu.example.com", "pool": "n", "device": "gpu-0"}
    allocation = {"devices": {"results": [{"request": "r", **device}]}}
    status(registry, CLAIM, "c", {"allocation": allocation, "devices": [{**device, "data": {"a": 1}}]})
    changed = status(registry, CLAIM, "c", {"allocation": None})
    assert "devices" not in changed["status"]
    other = {**device, "device": "gpu-1"}
    refused(422, lambda: status(registry, CLAIM, "c", {"allocation": allocation, "devices": [other]}))


def test_a_taint_rule_whose_effect_changes_starts_again(registry: Registry) -> None:
    taint = {"key": "a.example.com/b", "effect": "NoSchedule", "timeAdded": "2020-01-01T00:00:00Z"}
    registry.create(RULE, {"metadata": {"name": "r"}, "spec": {"taint": taint}})
    changed = obj(registry.patch(RULE, "r", {"spec": {"taint": {"effect": "NoExecute"}}}))
    assert not changed["spec"]["taint"]["timeAdded"].startswith("2020")
    assert changed["metadata"]["generation"] == 2


def test_upper_case_in_driver_names_is_warned_of(registry: Registry) -> None:
    pool = {"name": "n", "generation": 1, "resourceSliceCount": 1}
    body = {"metadata": {"name": "s"}, "spec": {"driver": "GPU.example.com", "allNodes": True, "pool": pool}}
    assert "lowercase" in registry.create(SLICE, body).warnings[0]


# ---- deletion


def test_finalizers_hold_an_object_until_the_last_is_gone(registry: Registry) -> None:
    registry.create(MAP, {"metadata": {"name": "a", "finalizers": ["x.example.com/1", "x.example.com/2"]}}, "default")
    marked = obj(registry.delete(MAP, "a", "default"))
    assert marked["metadata"]["deletionGracePeriodSeconds"] == 0
    version = registry.store.version
    registry.delete(MAP, "a", "default")
    assert registry.store.version == version, "deleting again changes nothing"
    refused(422, lambda: registry.patch(MAP, "a", {"metadata": {"finalizers": ["x.example.com/3"]}}, "default"))
    registry.patch(MAP, "a", {"metadata": {"finalizers": ["x.example.com/2"]}}, "default")
    assert registry.find(MAP, "a", "default")
    watcher = registry.watch(MAP, Selection(), registry.store.version)
    registry.patch(MAP, "a", {"metadata": {"finalizers": None}}, "default")
    assert registry.find(MAP, "a", "default") is None
    (seen,) = watcher.take()
    assert (seen.type, seen.record.version) == ("DELETED", registry.store.version)


PROPAGATION = {
    "Foreground": ["foregroundDeletion"],
    "Orphan": ["orphan"],
    "Background": None,
    "": None,
}


@pytest.mark.parametrize(("policy", "finalizers"), PROPAGATION.items())
def test_propagation_sets_finalizers_for_the_collector(
    registry: Registry, policy: str, finalizers: list[str] | None
) -> None:
    registry.create(DEPLOYMENT, deployment(), "default")
    registry.delete(DEPLOYMENT, "d", "default", DeleteOptions(propagation=policy))
    left = registry.find(DEPLOYMENT, "d", "default")
    assert (left.decode()["metadata"]["finalizers"] if left else None) == finalizers
    if left:
        registry.delete(DEPLOYMENT, "d", "default", DeleteOptions(propagation="Background"))
        assert registry.find(DEPLOYMENT, "d", "default") is None


def test_an_unknown_propagation_is_refused(registry: Registry) -> None:
    registry.create(DEPLOYMENT, deployment(), "default")
    refused(400, lambda: registry.delete(DEPLOYMENT, "d", "default", DeleteOptions(propagation="Sideways")))


def bound(registry: Registry, name: str = "p", **spec: Any) -> None:
    registry.create(POD, pod(name, **spec), "default")
    registry.patch(POD, name, {"spec": {"nodeName": "n"}}, "default", subresource="binding")


def test_pods_wait_for_their_node_and_grace_only_shrinks(registry: Registry) -> None:
    bound(registry, terminationGracePeriodSeconds=20)

    def grace(seconds: int | None) -> int:
        meta = obj(registry.delete(POD, "p", "default", DeleteOptions(grace_s=seconds)))["metadata"]
        return int(meta["deletionGracePeriodSeconds"])

    assert [grace(None), grace(30), grace(5), grace(None)] == [20, 20, 5, 5]
    registry.delete(POD, "p", "default", DeleteOptions(grace_s=0))
    assert registry.find(POD, "p", "default") is None


def test_pods_that_nobody_runs_go_at_once(registry: Registry) -> None:
    registry.create(POD, pod("p"), "default")
    registry.delete(POD, "p", "default")
    assert registry.find(POD, "p", "default") is None
    bound(registry)
    status(registry, POD, "p", {"phase": "Succeeded"})
    registry.delete(POD, "p", "default")
    assert registry.find(POD, "p", "default") is None


def test_a_pod_with_finalizers_goes_when_its_node_and_they_are_done(registry: Registry) -> None:
    body = pod("p")
    body["metadata"]["finalizers"] = ["x.example.com/1"]
    registry.create(POD, body, "default")
    registry.patch(POD, "p", {"spec": {"nodeName": "n"}}, "default", subresource="binding")
    registry.delete(POD, "p", "default")
    registry.patch(POD, "p", {"metadata": {"finalizers": None}}, "default")
    assert registry.find(POD, "p", "default"), "its node has not stopped it yet"
    registry.delete(POD, "p", "default", DeleteOptions(grace_s=0))
    assert registry.find(POD, "p", "default") is None


# ---- namespaces


def test_a_namespace_ends_with_its_finalizers(registry: Registry) -> None:
    made = obj(registry.create(NAMESPACE, {"metadata": {"name": "x"}}))
    assert made["metadata"]["labels"] == {"kubernetes.io/metadata.name": "x"}
    assert (made["spec"], made["status"]) == ({"finalizers": ["kubernetes"]}, {"phase": "Active"})
    assert registry.find(BY_NAME["ServiceAccount"], "default", "x")
    assert registry.find(MAP, "kube-root-ca.crt", "x")
    registry.patch(NAMESPACE, "x", {"spec": {"finalizers": []}})
    assert registry.get(NAMESPACE, "x").decode()["spec"] == {"finalizers": ["kubernetes"]}
    assert obj(registry.delete(NAMESPACE, "x"))["status"]["phase"] == "Terminating"
    no = refused(403, lambda: registry.create(MAP, {"metadata": {"name": "a"}}, "x"))
    assert no.details is not None
    assert no.details["causes"][0]["reason"] == "NamespaceTerminating"
    registry.patch(NAMESPACE, "x", {"spec": {"finalizers": []}}, subresource="finalize")
    assert registry.find(NAMESPACE, "x") is None


def test_the_clusters_own_namespaces_stay(registry: Registry) -> None:
    refused(403, lambda: registry.delete(NAMESPACE, "default"))


# ---- the rest


def test_events_live_for_an_hour() -> None:
    clock = Clock()
    registry = in_memory(clock, Entropy(1))
    event = {"metadata": {"name": "e"}, "involvedObject": {"kind": "Pod", "name": "p", "namespace": "default"}}
    registry.create(BY_NAME["Event"], event, "default")
    clock.advance(EVENT_S - 60)
    registry.sweep()
    assert registry.find(BY_NAME["Event"], "e", "default")
    clock.advance(120)
    registry.sweep()
    assert registry.find(BY_NAME["Event"], "e", "default") is None


def test_what_a_namespace_must_have_is_made_again_at_the_start(registry: Registry) -> None:
    registry.create(NAMESPACE, {"metadata": {"name": "x"}})
    registry.delete(BY_NAME["ServiceAccount"], "default", "x")
    registry.delete(MAP, "kube-root-ca.crt", "x")
    registry.ca_text = "new"
    bootstrap(registry)
    assert registry.find(BY_NAME["ServiceAccount"], "default", "x")
    for namespace in ("x", "default"):
        assert registry.get(MAP, "kube-root-ca.crt", namespace).decode()["data"] == {"ca.crt": "new"}


def test_bootstrap_is_done_once(registry: Registry) -> None:
    version = registry.store.version
    bootstrap(registry)
    assert registry.store.version == version


def test_what_is_unknown_survives_storage(registry: Registry) -> None:
    body = pod("p", future={"deep": [1, {"x": None, "y": 2}]})
    made = obj(registry.create(POD, body, "default"))
    assert made["spec"]["future"] == {"deep": [1, {"y": 2}]}, "null is absent"


ONCE: dict[str, tuple[Kind, Object, Object, str, str]] = {
    "a pod's network": (POD, pod("p"), {"spec": {"hostNetwork": True}}, "", "spec"),
    "a deployment's selector": (
        DEPLOYMENT,
        deployment(),
        {"spec": {"selector": {"matchLabels": {"a": "c"}}, "template": {"metadata": {"labels": {"a": "c"}}}}},
        "",
        "spec.selector",
    ),
    "a secret's data": (BY_NAME["Secret"], {"metadata": {"name": "s"}}, {"data": {"k": "?"}}, "", "data[k]"),
    "a secret's type": (BY_NAME["Secret"], {"metadata": {"name": "s"}}, {"type": "other"}, "", "type"),
}


@pytest.mark.parametrize("case", ONCE)
def test_what_is_wrong_is_said_once(registry: Registry, case: str) -> None:
    kind, body, patch, subresource, field = ONCE[case]
    name = obj(registry.create(kind, body, "default"))["metadata"]["name"]
    wrong = refused(422, lambda: registry.patch(kind, name, patch, "default", subresource=subresource))
    assert [cause["field"] for cause in (wrong.details or {})["causes"]] == [field]


def test_ephemeral_containers_are_only_added(registry: Registry) -> None:
    registry.create(POD, pod("p"), "default")
    first = {"name": "e", "image": "i:1"}
    registry.patch(POD, "p", {"spec": {"ephemeralContainers": [first]}}, "default", subresource="ephemeralcontainers")
    for changed in ([{**first, "image": "i:2"}], [{"name": "f", "image": "i:1"}]):
        patch = {"spec": {"ephemeralContainers": changed}}
        wrong = refused(422, lambda: registry.patch(POD, "p", patch, "default", subresource="ephemeralcontainers"))  # noqa: B023
        assert "may not be changed or removed" in wrong.message


def test_null_is_a_value_inside_what_only_drivers_read(registry: Registry) -> None:
    body = claim("c", request("r", count=None))
    body["spec"]["devices"]["config"] = [
        {"opaque": {"driver": "d.example.com", "parameters": {"a": None, "b": [{"c": None}]}}, "requests": None}
    ]
    made = obj(registry.create(CLAIM, body, "default"))
    config = made["spec"]["devices"]["config"][0]
    assert config == {"opaque": {"driver": "d.example.com", "parameters": {"a": None, "b": [{"c": None}]}}}
    assert made["spec"]["devices"]["requests"][0]["exactly"]["count"] == 1, "elsewhere null is absent"
    result = {"request": "r", "driver": "d.example.com", "pool": "p", "device": "gpu-0"}
    status(registry, CLAIM, "c", {"allocation": {"devices": {"results": [result]}}})
    device = {"driver": "d.example.com", "pool": "p", "device": "gpu-0", "data": {"a": None}}
    whole = registry.get(CLAIM, "c", "default").decode()
    whole["status"] = {"allocation": {"devices": {"results": [result]}}, "devices": [device | {"conditions": None}]}
    stored = obj(registry.update(CLAIM, whole, "c", "default", subresource="status"))
    assert stored["status"]["devices"] == [device]


def test_old_versions_are_converted_on_the_way_in(registry: Registry) -> None:
    flat = {
        "apiVersion": "resource.k8s.io/v1beta1",
        "kind": "ResourceClaim",
        "metadata": {"name": "c"},
        "spec": {"devices": {"requests": [{"name": "r", "deviceClassName": "d.example.com"}]}},
    }
    made = obj(registry.create(CLAIM, flat, "default", Write(version="v1beta1")))
    assert made["spec"]["devices"]["requests"][0]["exactly"]["count"] == 1
    patch = [{"op": "test", "path": "/spec/devices/requests/0/deviceClassName", "value": "d.example.com"}]
    registry.patch(CLAIM, "c", patch, "default", type="json", write=Write(version="v1beta1"))


def test_every_kind_of_the_table_can_be_made_listed_and_deleted(registry: Registry) -> None:
    bodies: dict[str, Object] = {
        "Pod": pod("p"),
        "ResourceClaim": claim("c"),
        "ResourceClaimTemplate": {"spec": {"spec": claim("c")["spec"]}},
        "ResourceSlice": {
            "spec": {
                "driver": "d.example.com",
                "allNodes": True,
                "pool": {"name": "p", "generation": 1, "resourceSliceCount": 1},
            }
        },
        "DeviceTaintRule": {"spec": {"taint": {"key": "a", "effect": "None"}}},
        "PriorityClass": {"value": 1},
        "Event": {"involvedObject": {"namespace": "default"}},
    }
    made, codes = set(), set()
    for kind in BY_NAME.values():
        body = {**bodies.get(kind.kind, {}), "metadata": {"name": "made"}}
        namespace = "default" if kind.namespaced else ""
        try:
            registry.create(kind, body, namespace)
        except StatusError as no:
            codes.add(no.code)
            continue
        assert "made" in [record.name for record in registry.page(kind, Selection(namespace)).records]
        registry.delete(kind, "made", namespace)
        made.add(kind.kind)
    assert made >= bodies.keys() | {"Namespace", "Node", "ConfigMap", "Secret", "ServiceAccount", "DeviceClass"}
    assert codes == {422}, "the others need more than a name, and say so"


def test_what_nothing_acts_on_is_warned_of_once(registry: Registry) -> None:
    body = {"metadata": {"name": "n"}, "spec": {"podSelector": {}}}
    made = registry.create(BY_NAME["NetworkPolicy"], body, "default")
    assert made.warnings == [
        "NetworkPolicy is stored and nothing acts on it: nothing restricts traffic here: pods have no network"
    ]
    changed = registry.patch(BY_NAME["NetworkPolicy"], "n", {"metadata": {"labels": {"a": "b"}}}, "default")
    assert changed.warnings == []
    spec = {"group": "x.example.com", "version": "v1", "groupPriorityMinimum": 1, "versionPriority": 1}
    service = {"service": {"namespace": "default", "name": "s"}}
    away = registry.create(BY_NAME["APIService"], {"metadata": {"name": "v1.x.example.com"}, "spec": spec | service})
    assert obj(away)["status"]["conditions"][0]["reason"] == "AggregationNotServed"
