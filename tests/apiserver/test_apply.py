"""Server-side apply and managedFields: what is merged, removed, refused, and who owns it then."""

from __future__ import annotations

import copy
from typing import Any

import msgspec
import pytest

from dragoman.apiserver.apply import LAST_APPLIED, ApplyConflict, apply, track
from dragoman.apiserver.fieldset import contains
from dragoman.errors import Invalid

POD = ("", "v1", "Pod")
DEPLOYMENT = ("apps", "v1", "Deployment")
CLAIM = ("resource.k8s.io", "v1", "ResourceClaim")
SERVICE = ("", "v1", "Service")
CONFIG_MAP = ("", "v1", "ConfigMap")
T1, T2, T3 = "2026-01-01T00:00:00Z", "2026-01-01T00:01:00Z", "2026-01-01T00:02:00Z"


def obj(gvk: tuple[str, str, str], **members: Any) -> dict[str, Any]:
    group, version, kind = gvk
    metadata = {"name": "web", **members.pop("metadata", {})}
    return {"apiVersion": f"{group}/{version}" if group else version, "kind": kind, "metadata": metadata, **members}


def ssa(live, config, manager="one", gvk=DEPLOYMENT, *, force=False, subresource="", now=T2):
    """Apply, and see that no argument was changed."""
    before = copy.deepcopy((live, config))
    out = apply(live, config, manager, force, gvk, subresource, now)
    assert (live, config) == before
    return out


def update(old, new, manager="editor", gvk=DEPLOYMENT, *, subresource="", now=T2):
    before = copy.deepcopy((old, new))
    out = track(old, new, manager, "Update", gvk, subresource, now)
    assert (old, new) == before
    return out


def entries(o) -> dict[str, Any]:
    return {
        f"{e['manager']}/{e['operation']}" + (f"/{e['subresource']}" if "subresource" in e else ""): e
        for e in o["metadata"].get("managedFields", [])
    }


def fields(o, manager) -> Any:
    return entries(o)[manager]["fieldsV1"]


def bare(o) -> Any:
    """An object without what the server keeps."""
    out = copy.deepcopy(o)
    out["metadata"].pop("managedFields", None)
    return out


def pod(*containers, **spec):
    return obj(POD, spec={"containers": list(containers), **spec})


# ---- removal of what is applied no longer

REMOVALS = {
    "a scalar goes": (
        DEPLOYMENT,
        obj(DEPLOYMENT, spec={"replicas": 3, "paused": True}),
        obj(DEPLOYMENT, spec={"paused": True}),
        obj(DEPLOYMENT, spec={"paused": True}),
    ),
    "the last field below spec takes spec along": (
        DEPLOYMENT,
        obj(DEPLOYMENT, spec={"replicas": 3}),
        obj(DEPLOYMENT),
        obj(DEPLOYMENT),
    ),
    "a label goes, the others stay": (
        CONFIG_MAP,
        obj(CONFIG_MAP, metadata={"labels": {"a": "1", "b": "2"}}),
        obj(CONFIG_MAP, metadata={"labels": {"b": "2"}}),
        obj(CONFIG_MAP, metadata={"labels": {"b": "2"}}),
    ),
    "the last label takes labels along, never the name": (
        CONFIG_MAP,
        obj(CONFIG_MAP, metadata={"labels": {"a": "1"}}),
        obj(CONFIG_MAP),
        obj(CONFIG_MAP),
    ),
    "an item of a list-map goes whole": (
        POD,
        pod({"name": "c", "image": "i", "env": [{"name": "A", "value": "1"}, {"name": "B", "value": "2"}]}),
        pod({"name": "c", "image": "i", "env": [{"name": "A", "value": "1"}]}),
        pod({"name": "c", "image": "i", "env": [{"name": "A", "value": "1"}]}),
    ),
    "the last item takes its list along": (
        POD,
        pod({"name": "c", "image": "i", "env": [{"name": "A", "value": "1"}]}),
        pod({"name": "c", "image": "i"}),
        pod({"name": "c", "image": "i"}),
    ),
    "a field of an item goes, the item stays": (
        POD,
        pod({"name": "c", "image": "i", "env": [{"name": "A", "value": "1"}]}),
        pod({"name": "c", "image": "i", "env": [{"name": "A"}]}),
        pod({"name": "c", "image": "i", "env": [{"name": "A"}]}),
    ),
    "an atomic list is replaced": (
        POD,
        pod({"name": "c", "args": ["a", "b"]}),
        pod({"name": "c", "args": ["b"]}),
        pod({"name": "c", "args": ["b"]}),
    ),
    "an atomic map is replaced": (
        POD,
        pod({"name": "c"}, nodeSelector={"a": "1", "b": "2"}),
        pod({"name": "c"}, nodeSelector={"b": "2"}),
        pod({"name": "c"}, nodeSelector={"b": "2"}),
    ),
    "a value of a set goes": (
        CONFIG_MAP,
        obj(CONFIG_MAP, metadata={"finalizers": ["x/a", "x/b"]}),
        obj(CONFIG_MAP, metadata={"finalizers": ["x/b"]}),
        obj(CONFIG_MAP, metadata={"finalizers": ["x/b"]}),
    ),
    "ports that differ in protocol are two": (
        SERVICE,
        obj(SERVICE, spec={"ports": [{"port": 53, "protocol": "UDP"}, {"port": 53, "name": "tcp"}]}),
        obj(SERVICE, spec={"ports": [{"port": 53, "protocol": "UDP"}]}),
        obj(SERVICE, spec={"ports": [{"port": 53, "protocol": "UDP"}]}),
    ),
    "requests of a claim are atomic": (
        CLAIM,
        obj(CLAIM, spec={"devices": {"requests": [{"name": "a"}, {"name": "b"}]}}),
        obj(CLAIM, spec={"devices": {"requests": [{"name": "b"}]}}),
        obj(CLAIM, spec={"devices": {"requests": [{"name": "b"}]}}),
    ),
}


@pytest.mark.parametrize("sentence", REMOVALS)
def test_what_a_manager_applies_no_longer_is_removed(sentence):
    gvk, first, second, expected = REMOVALS[sentence]
    live = ssa(None, first, gvk=gvk)
    assert bare(live) == first
    assert bare(ssa(live, second, gvk=gvk)) == expected


def test_what_the_server_defaulted_stays_when_an_applied_field_beside_it_goes():
    live = ssa(None, pod({"name": "c", "image": "i"}, hostNetwork=True), gvk=POD)
    live["spec"]["containers"][0]["imagePullPolicy"] = "Always"
    live["spec"]["restartPolicy"] = "Always"
    after = ssa(live, pod({"name": "c"}), gvk=POD)
    assert after["spec"] == {
        "containers": [{"name": "c", "imagePullPolicy": "Always"}],
        "restartPolicy": "Always",
    }


def test_what_the_server_defaulted_in_an_item_goes_with_the_item():
    live = ssa(None, pod({"name": "c"}, {"name": "d"}), gvk=POD)
    live["spec"]["containers"][1]["imagePullPolicy"] = "Always"
    assert ssa(live, pod({"name": "c"}), gvk=POD)["spec"] == {"containers": [{"name": "c"}]}


def test_what_another_manager_owns_too_stays():
    live = ssa(None, obj(DEPLOYMENT, spec={"replicas": 3}), "one")
    live = ssa(live, obj(DEPLOYMENT, spec={"replicas": 3}), "two")
    after = ssa(live, obj(DEPLOYMENT), "one")
    assert after["spec"] == {"replicas": 3}
    assert list(entries(after)) == ["two/Apply"]
    assert "spec" not in ssa(after, obj(DEPLOYMENT), "two")


def test_an_item_that_another_manager_applies_too_stays_with_its_part():
    live = ssa(None, pod({"name": "c", "image": "i"}, {"name": "d", "image": "j"}), "one", POD)
    live = ssa(live, pod({"name": "d", "tty": True}), "two", POD)
    after = ssa(live, pod({"name": "c", "image": "i"}), "one", POD)
    assert after["spec"]["containers"] == [{"name": "c", "image": "i"}, {"name": "d", "tty": True}]


# ---- conflicts


def test_a_conflict_names_manager_and_leaves():
    live = ssa(None, pod({"name": "c", "image": "i", "env": [{"name": "A", "value": "1"}]}), "one", POD)
    with pytest.raises(ApplyConflict) as refused:
        ssa(live, pod({"name": "c", "image": "j", "env": [{"name": "A", "value": "2"}]}), "two", POD)
    assert {cause["field"] for cause in refused.value.causes} == {
        '.spec.containers[name="c"].image',
        '.spec.containers[name="c"].env[name="A"].value',
    }
    assert {cause["reason"] for cause in refused.value.causes} == {"FieldManagerConflict"}
    assert {cause["message"] for cause in refused.value.causes} == {'conflict with "one"'}
    assert str(refused.value).startswith('Apply failed with 2 conflicts: conflicts with "one":\n- .spec.containers')


def test_a_conflict_with_an_updater_names_its_version_and_subresource():
    live = update(None, obj(DEPLOYMENT, spec={"replicas": 1}), "kubectl-create", now=T1)
    scaled = update(live, {**live, "spec": {"replicas": 2}}, "scaler", subresource="scale")
    with pytest.raises(ApplyConflict) as refused:
        ssa(scaled, obj(DEPLOYMENT, spec={"replicas": 5}), "two")
    assert str(refused.value) == (
        'Apply failed with 1 conflict: conflict with "scaler" with subresource "scale" using apps/v1: .spec.replicas'
    )


def test_the_same_value_is_no_conflict_but_shared():
    live = ssa(None, obj(DEPLOYMENT, spec={"replicas": 3}), "one")
    after = ssa(live, obj(DEPLOYMENT, spec={"replicas": 3}), "two")
    assert fields(after, "one/Apply") == fields(after, "two/Apply") == {"f:spec": {"f:replicas": {}}}


def test_force_takes_the_field_from_the_other():
    live = ssa(None, obj(DEPLOYMENT, spec={"replicas": 3, "paused": True}), "one", now=T1)
    after = ssa(live, obj(DEPLOYMENT, spec={"replicas": 5}), "two", force=True)
    assert after["spec"] == {"replicas": 5, "paused": True}
    assert fields(after, "one/Apply") == {"f:spec": {"f:paused": {}}}
    assert fields(after, "two/Apply") == {"f:spec": {"f:replicas": {}}}
    assert entries(after)["one/Apply"]["time"] == T1
    assert entries(after)["two/Apply"]["time"] == T2


def test_a_manager_that_lost_all_fields_is_gone():
    live = ssa(None, obj(DEPLOYMENT, spec={"replicas": 3}), "one")
    after = ssa(live, obj(DEPLOYMENT, spec={"replicas": 5}), "two", force=True)
    assert list(entries(after)) == ["two/Apply"]


def test_a_default_key_is_the_same_item():
    live = ssa(None, obj(SERVICE, spec={"ports": [{"port": 80, "protocol": "TCP", "targetPort": 1}]}), "one", SERVICE)
    with pytest.raises(ApplyConflict) as refused:
        ssa(live, obj(SERVICE, spec={"ports": [{"port": 80, "targetPort": 2}]}), "two", SERVICE)
    assert refused.value.causes[0]["field"] == '.spec.ports[port=80,protocol="TCP"].targetPort'


# ---- idempotence and time


def test_applying_the_same_again_changes_nothing():
    config = pod({"name": "c", "image": "i", "ports": [{"containerPort": 80}]}, tolerations=[{"key": "a"}])
    once = ssa(None, config, gvk=POD, now=T1)
    assert ssa(once, config, gvk=POD, now=T3) == once


def test_order_of_items_follows_the_configuration_and_keeps_others_in_place():
    live = ssa(None, pod({"name": "a"}, {"name": "x"}, {"name": "b"}), "one", POD)
    after = ssa(live, pod({"name": "b"}, {"name": "a"}, {"name": "n"}), "two", POD)
    names = [c["name"] for c in after["spec"]["containers"]]
    assert [name for name in names if name != "x"] == ["b", "a", "n"]
    assert sorted(names) == ["a", "b", "n", "x"]


def test_null_says_nothing_but_in_opaque_parts_it_is_data():
    config = pod({"name": "c", "image": None, "env": [{"name": "A", "value": None}]}, nodeSelector=None)
    assert ssa(None, config, gvk=POD)["spec"] == {"containers": [{"name": "c", "env": [{"name": "A"}]}]}
    gvk = ("resource.k8s.io", "v1", "DeviceClass")
    spec = {"config": [{"opaque": {"driver": "d", "parameters": {"x": None}}}]}
    assert ssa(None, obj(gvk, spec=spec), gvk=gvk)["spec"] == spec


def test_null_removes_what_was_there():
    live = ssa(None, obj(DEPLOYMENT, spec={"replicas": 3, "paused": True}))
    assert ssa(live, obj(DEPLOYMENT, spec={"replicas": None, "paused": True}))["spec"] == {"paused": True}


# ---- malformed configurations

MALFORMED = {
    "managedFields in the configuration": (POD, obj(POD, metadata={"managedFields": [{}]}), "metadata.managedFields"),
    "an item without its key": (POD, pod({"image": "i"}), ".spec.containers"),
    "two items with one key": (POD, pod({"name": "c"}, {"name": "c"}), ".spec.containers"),
}


@pytest.mark.parametrize("sentence", MALFORMED)
def test_a_malformed_configuration_is_refused_with_its_place(sentence):
    gvk, config, where = MALFORMED[sentence]
    with pytest.raises(Invalid) as refused:
        ssa(None, config, gvk=gvk)
    assert refused.value.where == where


# ---- subresources


def test_status_counts_only_through_its_subresource():
    config = obj(CLAIM, spec={"devices": {}}, status={"reservedFor": [{"uid": "u", "name": "p", "resource": "pods"}]})
    live = ssa(None, config, gvk=CLAIM)
    assert "status" not in live
    assert "f:status" not in fields(live, "one/Apply")
    after = ssa(live, config, "driver", CLAIM, subresource="status")
    assert after["status"] == config["status"]
    assert set(fields(after, "driver/Apply/status")) == {"f:status"}


def test_a_driver_that_no_longer_applies_a_device_status_removes_only_its_own():
    def status(*devices):
        entries = [{"driver": d, "pool": "p", "device": n, "data": {"x": 1}} for d, n in devices]
        return obj(CLAIM, status={"devices": entries})

    live = ssa(None, obj(CLAIM, spec={"devices": {}}), gvk=CLAIM)
    live = ssa(live, status(("a", "d0"), ("a", "d1")), "a", CLAIM, subresource="status")
    live = ssa(live, status(("b", "d0")), "b", CLAIM, subresource="status")
    after = ssa(live, status(("a", "d1")), "a", CLAIM, subresource="status")
    assert {(d["driver"], d["device"]) for d in after["status"]["devices"]} == {("a", "d1"), ("b", "d0")}


# ---- tracking of other writes


def test_a_create_owns_all_it_sets_but_identity():
    made = update(None, obj(DEPLOYMENT, metadata={"labels": {"a": "b"}}, spec={"replicas": 1}), "kubectl-create")
    assert entries(made)["kubectl-create/Update"] == {
        "manager": "kubectl-create",
        "operation": "Update",
        "apiVersion": "apps/v1",
        "time": T2,
        "fieldsType": "FieldsV1",
        "fieldsV1": {"f:metadata": {"f:labels": {".": {}, "f:a": {}}}, "f:spec": {"f:replicas": {}}},
    }


def test_a_pod_made_by_kubectl_run_is_tracked_as_upstream_does():
    """The set that a kube-apiserver records for `kubectl run nginx --image=nginx --port=80`."""
    container = {
        "name": "nginx",
        "image": "nginx",
        "ports": [{"containerPort": 80, "protocol": "TCP"}],
        "resources": {},
        "imagePullPolicy": "Always",
        "terminationMessagePath": "/dev/termination-log",
        "terminationMessagePolicy": "File",
    }
    spec = {"containers": [container], "dnsPolicy": "ClusterFirst", "restartPolicy": "Always", "securityContext": {}}
    made = update(None, obj(POD, metadata={"labels": {"run": "nginx"}}, spec=spec), "kubectl-run", POD)
    assert fields(made, "kubectl-run/Update") == {
        "f:metadata": {"f:labels": {".": {}, "f:run": {}}},
        "f:spec": {
            "f:containers": {
                'k:{"name":"nginx"}': {
                    ".": {},
                    "f:image": {},
                    "f:imagePullPolicy": {},
                    "f:name": {},
                    "f:ports": {
                        ".": {},
                        'k:{"containerPort":80,"protocol":"TCP"}': {".": {}, "f:containerPort": {}, "f:protocol": {}},
                    },
                    "f:resources": {},
                    "f:terminationMessagePath": {},
                    "f:terminationMessagePolicy": {},
                }
            },
            "f:dnsPolicy": {},
            "f:restartPolicy": {},
            "f:securityContext": {},
        },
    }


def test_an_update_takes_what_it_changes_and_leaves_the_rest():
    made = update(None, obj(DEPLOYMENT, spec={"replicas": 1, "paused": True}), "maker", now=T1)
    after = update(made, {**made, "spec": {"replicas": 2, "paused": True}}, "editor")
    assert fields(after, "maker/Update") == {"f:spec": {"f:paused": {}}}
    assert fields(after, "editor/Update") == {"f:spec": {"f:replicas": {}}}


def test_a_removed_field_has_no_owner():
    made = update(None, obj(DEPLOYMENT, spec={"replicas": 1, "paused": True}), "maker", now=T1)
    after = update(made, {**made, "spec": {"replicas": 1}}, "editor")
    assert list(entries(after)) == ["maker/Update"]
    assert fields(after, "maker/Update") == {"f:spec": {"f:replicas": {}}}


def test_a_write_that_changes_nothing_changes_no_manager():
    made = update(None, obj(DEPLOYMENT, spec={"replicas": 1}), "maker", now=T1)
    assert update(made, copy.deepcopy(made), "editor", now=T3) == made


def test_status_and_main_writes_of_one_manager_are_two_entries():
    made = update(None, pod({"name": "c"}), "kubelet", POD)
    after = update(made, {**made, "status": {"phase": "Running"}}, "kubelet", POD, subresource="status")
    assert sorted(entries(after)) == ["kubelet/Update", "kubelet/Update/status"]
    assert fields(after, "kubelet/Update/status") == {"f:status": {"f:phase": {}}}


def test_an_allocation_is_owned_below_status():
    made = update(None, obj(CLAIM, spec={"devices": {"requests": [{"name": "r"}]}}), "user", CLAIM)
    allocation = {"devices": {"results": [{"request": "r", "driver": "d", "pool": "p", "device": "g"}]}}
    reserved = [{"resource": "pods", "name": "p", "uid": "u"}]
    new = {**made, "status": {"allocation": allocation, "reservedFor": reserved}}
    after = update(made, new, "scheduler", CLAIM, subresource="status")
    assert fields(after, "scheduler/Update/status") == {
        "f:status": {
            "f:allocation": {".": {}, "f:devices": {".": {}, "f:results": {}}},
            "f:reservedFor": {
                ".": {},
                'k:{"uid":"u"}': {".": {}, "f:name": {}, "f:resource": {}, "f:uid": {}},
            },
        }
    }


def test_managers_that_a_client_rewrites_are_taken_over():
    made = update(None, obj(CONFIG_MAP, data={"a": "1"}), "kubectl-client-side-apply", CONFIG_MAP)
    rewritten = copy.deepcopy(made)
    rewritten["metadata"]["managedFields"][0].update(manager="kubectl", operation="Apply")
    after = update(made, rewritten, "kubectl", CONFIG_MAP)
    assert list(entries(after)) == ["kubectl/Apply"]


@pytest.mark.parametrize("reset", [[], [{}]], ids=["empty list", "one empty entry"])
def test_a_reset_forgets_all_managers_until_the_next_apply(reset):
    made = update(None, obj(CONFIG_MAP, data={"a": "1"}), "maker", CONFIG_MAP)
    asked = copy.deepcopy(made)
    asked["metadata"]["managedFields"] = reset
    after = update(made, asked, "maker", CONFIG_MAP)
    assert "managedFields" not in after["metadata"]
    edited = update(after, {**after, "data": {"a": "2"}}, "editor", CONFIG_MAP)
    assert "managedFields" not in edited["metadata"]
    applied = ssa(edited, obj(CONFIG_MAP, data={"b": "1"}), gvk=CONFIG_MAP)
    assert sorted(entries(applied)) == ["before-first-apply/Update", "one/Apply"]
    assert contains(fields(applied, "before-first-apply/Update"), ("f:data", "f:a"))


def test_an_update_that_leaves_managers_out_does_not_lose_them():
    made = update(None, obj(CONFIG_MAP, data={"a": "1"}), "maker", CONFIG_MAP)
    sent = bare(made)
    assert list(entries(update(made, sent, "editor", CONFIG_MAP))) == ["maker/Update"]


def test_more_than_ten_updaters_become_one_ancient():
    live = obj(CONFIG_MAP, data={})
    now = [f"2026-01-01T00:00:{second:02d}Z" for second in range(20)]
    live = update(None, {**live, "data": {"k": "v"}}, "m0", CONFIG_MAP, now=now[0])
    for index in range(1, 14):
        data = {**live["data"], f"k{index}": "v"}
        live = update(live, {**live, "data": data}, f"m{index}", CONFIG_MAP, now=now[index])
    kept = entries(live)
    assert len(kept) == 10
    assert "ancient-changes/Update" in kept
    assert "m13/Update" in kept
    assert contains(fields(live, "ancient-changes/Update"), ("f:data", "f:k1"))


def test_a_list_without_keys_does_not_break_tracking():
    made = update(None, pod({"name": "c"}), "maker", POD)
    broken = {**made, "spec": {"containers": [{"image": "no name"}]}}
    assert entries(update(made, broken, "editor", POD)) == entries(made)


# ---- kubectl's migration


def client_side(config):
    text = msgspec.json.encode(config).decode()
    made = copy.deepcopy(config)
    made["metadata"].setdefault("annotations", {})[LAST_APPLIED] = text
    return update(None, made, "kubectl-client-side-apply", now=T1)


def test_kubectl_may_take_over_what_it_applied_from_the_client():
    live = client_side(obj(DEPLOYMENT, spec={"replicas": 1, "paused": True}))
    config = obj(DEPLOYMENT, spec={"replicas": 2, "paused": True})
    after = ssa(live, config, "kubectl")
    assert after["spec"]["replicas"] == 2
    assert msgspec.json.decode(after["metadata"]["annotations"][LAST_APPLIED])["spec"]["replicas"] == 2


def test_others_may_not_and_kubectl_not_what_others_changed():
    live = client_side(obj(DEPLOYMENT, spec={"replicas": 1}))
    with pytest.raises(ApplyConflict):
        ssa(live, obj(DEPLOYMENT, spec={"replicas": 2}), "two")
    live = update(live, {**live, "spec": {"replicas": 1, "minReadySeconds": 5}}, "operator")
    with pytest.raises(ApplyConflict) as refused:
        ssa(live, obj(DEPLOYMENT, spec={"replicas": 2, "minReadySeconds": 6}), "kubectl")
    assert [cause["field"] for cause in refused.value.causes] == [".spec.minReadySeconds"]


# ---- kinds without a schema


def test_a_kind_without_schema_is_merged_by_name_and_its_lists_are_atomic():
    gvk = ("example.com", "v1", "Thing")
    live = ssa(None, obj(gvk, spec={"a": 1, "list": [1, 2], "deep": {"x": 1}}), gvk=gvk)
    live = ssa(live, obj(gvk, spec={"deep": {"y": 2}}), "two", gvk)
    after = ssa(live, obj(gvk, metadata={"labels": {"l": "v"}}, spec={"a": 1, "list": [3]}), gvk=gvk)
    assert after["spec"] == {"a": 1, "list": [3], "deep": {"y": 2}}
    assert after["metadata"]["labels"] == {"l": "v"}
