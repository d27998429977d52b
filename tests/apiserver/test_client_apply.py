"""What `kubectl apply` makes of an object: three ways merged by the schema's keys."""

from __future__ import annotations

from typing import Any

import pytest

from dragoman.apiserver.client_apply import applied
from dragoman.errors import Invalid

POD = ("", "v1", "Pod")
DEPLOYMENT = ("apps", "v1", "Deployment")
CLAIM = ("resource.k8s.io", "v1", "ResourceClaim")


def pod(**spec: Any) -> dict[str, Any]:
    return {"metadata": {"name": "p", "labels": {"a": "1"}}, "spec": spec}


def test_fields_that_the_manifest_does_not_have_stay_and_the_status_is_the_servers() -> None:
    live = {**pod(nodeName="a", priority=3), "status": {"phase": "Running"}}
    live["metadata"]["uid"] = "u"
    made = applied(live, {}, {**pod(priority=4), "status": {"phase": "Failed"}}, POD)
    assert made["spec"] == {"nodeName": "a", "priority": 4}
    assert made["status"] == {"phase": "Running"}
    assert made["metadata"]["uid"] == "u"
    assert live["spec"]["priority"] == 3


def test_what_was_applied_before_and_is_not_any_more_goes() -> None:
    before = pod(priorityClassName="low", hostNetwork=True)
    made = applied(pod(priorityClassName="low", hostNetwork=True, nodeName="a"), before, pod(hostNetwork=True), POD)
    assert made["spec"] == {"hostNetwork": True, "nodeName": "a"}


def test_lists_merge_by_their_keys_and_items_that_are_not_applied_any_more_go() -> None:
    first, second, injected = {"name": "main", "image": "x:1"}, {"name": "side"}, {"name": "proxy"}
    live = pod(containers=[{**first, "imagePullPolicy": "Always"}, second, injected])
    made = applied(live, pod(containers=[first, second]), pod(containers=[{"name": "main", "image": "x:2"}]), POD)
    assert made["spec"]["containers"] == [
        {"name": "main", "image": "x:2", "imagePullPolicy": "Always"},
        {"name": "proxy"},
    ]


def test_a_field_of_an_item_that_is_not_applied_any_more_goes() -> None:
    live = pod(containers=[{"name": "main", "image": "x", "command": ["a"], "tty": True}])
    before = pod(containers=[{"name": "main", "image": "x", "command": ["a"]}])
    made = applied(live, before, pod(containers=[{"name": "main", "image": "x"}]), POD)
    assert made["spec"]["containers"] == [{"name": "main", "image": "x", "tty": True}]


def test_sets_lose_what_is_not_applied_any_more_and_keep_what_others_added() -> None:
    def having(*finalizers: str) -> dict[str, Any]:
        return {"metadata": {"name": "d", "finalizers": list(finalizers)}}

    made = applied(having("mine", "kept", "theirs"), having("mine", "kept"), having("kept"), DEPLOYMENT)
    assert made["metadata"]["finalizers"] == ["kept", "theirs"]


def test_requests_of_a_claim_are_one_list() -> None:
    def asking(*names: str) -> dict[str, Any]:
        return {"metadata": {"name": "c"}, "spec": {"devices": {"requests": [{"name": name} for name in names]}}}

    assert applied(asking("a", "b"), {}, asking("c"), CLAIM)["spec"] == asking("c")["spec"]


def test_an_item_without_its_key_is_refused() -> None:
    with pytest.raises(Invalid, match="no merge key name"):
        applied(pod(containers=[{"name": "main"}]), {}, pod(containers=[{"image": "x"}]), POD)


def test_of_a_union_only_what_the_manifest_names_stays() -> None:
    def rollout(**strategy: Any) -> dict[str, Any]:
        return {"metadata": {"name": "d"}, "spec": {"replicas": 1, "strategy": strategy}}

    live = rollout(type="RollingUpdate", rollingUpdate={"maxSurge": "25%", "maxUnavailable": "25%"})
    for before in ({}, rollout(type="RollingUpdate"), {"metadata": {"name": "d"}, "spec": {}}):
        made = applied(live, before, rollout(type="Recreate"), DEPLOYMENT)
        assert made["spec"] == {"replicas": 1, "strategy": {"type": "Recreate"}}
    kept = applied(live, {}, {"metadata": {"name": "d"}, "spec": {"replicas": 2}}, DEPLOYMENT)
    assert kept["spec"]["strategy"] == live["spec"]["strategy"], "a strategy that the manifest does not have stays"
    partly = applied(live, {}, rollout(rollingUpdate={"maxSurge": 3}), DEPLOYMENT)
    assert partly["spec"]["strategy"] == {"rollingUpdate": {"maxSurge": 3, "maxUnavailable": "25%"}}


@pytest.mark.parametrize(
    ("field", "old", "new"),
    [
        ("volumes", {"name": "x", "emptyDir": {}}, {"name": "x", "configMap": {"name": "m"}}),
        ("resourceClaims", {"name": "x", "resourceClaimName": "c"}, {"name": "x", "resourceClaimTemplateName": "t"}),
    ],
)
def test_an_entry_that_changes_its_source_loses_the_old_one(field: str, old: Any, new: Any) -> None:
    other = {"name": "theirs", "emptyDir": {}}
    made = applied(pod(**{field: [old, other]}), {}, pod(**{field: [new]}), POD)
    assert made["spec"][field] == [new, other]
    assert applied(pod(**{field: [old]}), {}, pod(**{field: [new, old | {"name": "y"}]}), POD)["spec"][field] == [
        new,
        old | {"name": "y"},
    ]
