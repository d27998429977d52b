"""Who else schedules, and which drivers are they kept off?"""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import yaml

from dragoman.schedule.fences import ALLOCATES_ALONE, FENCE_KEY, fenced_drivers, pod_awaits_others, rivals
from dragoman.testing.build import pod, typed

NOW = datetime(2026, 1, 1, 12, 0, 0, tzinfo=UTC)
FENCE = Path(__file__).resolve().parents[2] / "deploy" / "fence.yaml"


def lease(name: str, renewed: str, holder: str = "x_1") -> dict[str, Any]:
    spec = {"holderIdentity": holder, "renewTime": renewed, "leaseDurationSeconds": 15}
    return {"metadata": {"name": name, "namespace": "kube-system"}, "spec": spec}


def allocated(manager: str, when: str) -> dict[str, Any]:
    fields = {"f:status": {"f:allocation": {}}}
    entry = {"manager": manager, "time": when, "subresource": "status", "fieldsV1": fields}
    meta = {"name": "c", "namespace": "team", "managedFields": [entry]}
    return {"metadata": meta, "status": {"allocation": {"devices": {}}}}


RIVALS: dict[str, tuple[list[dict[str, Any]], list[dict[str, Any]], list[str]]] = {
    "nobody": ([], [], []),
    "a lease that is held": ([lease("kube-scheduler", "2026-01-01T11:59:50.000000Z")], [], ["kube-scheduler"]),
    "any scheduler's lease": ([lease("volcano-scheduler", "2026-01-01T11:59:50.000000Z")], [], ["volcano-scheduler"]),
    "our own lease": ([lease("own-scheduler", "2026-01-01T11:59:50.000000Z")], [], []),
    "a lease that was given back": ([lease("kube-scheduler", "2026-01-01T11:59:50.000000Z", "")], [], []),
    "a lease that ran out": ([lease("kube-scheduler", "2026-01-01T11:50:00.000000Z")], [], []),
    "what is no scheduler": ([lease("descheduler", "2026-01-01T11:59:50.000000Z")], [], []),
    "an allocation lately written": ([], [allocated("kube-scheduler", "2026-01-01T11:58:00Z")], ["kube-scheduler"]),
    "an allocation of long ago": ([], [allocated("kube-scheduler", "2026-01-01T11:00:00Z")], []),
    "an allocation of ours": ([], [allocated("dragoman", "2026-01-01T11:58:00Z")], []),
}


@pytest.mark.parametrize("name", RIVALS)
def test_rivals(name: str) -> None:
    leases, claims, found = RIVALS[name]
    assert [rival.name for rival in rivals(leases, claims, "own-scheduler", ("dragoman",), NOW)] == found


def slice_on(node: str, driver: str = "a") -> dict[str, Any]:
    return {"spec": {"driver": driver, **({"nodeName": node} if node else {"allNodes": True})}}


def tainted(name: str, key: str = FENCE_KEY, effect: str = "NoSchedule") -> dict[str, Any]:
    return {"metadata": {"name": name}, "spec": {"taints": [{"key": key, "effect": effect}]}}


def rule(effect: str = "NoExecute", key: str = FENCE_KEY, **selector: str) -> dict[str, Any]:
    return {"spec": {"deviceSelector": selector, "taint": {"key": key, "effect": effect}}}


TAINTS: dict[str, tuple[list[dict[str, Any]], list[dict[str, Any]], list[dict[str, Any]], set[str]]] = {
    "nothing": ([slice_on("n")], [], [], set()),
    "all nodes of the driver": ([slice_on("n"), slice_on("m", "b")], [tainted("n")], [], {"a"}),
    "one of its nodes is open": ([slice_on("n"), slice_on("m")], [tainted("n")], [], set()),
    "devices of no node": ([slice_on("n"), slice_on("")], [tainted("n")], [], set()),
    "a taint that only asks": ([slice_on("n")], [tainted("n", effect="PreferNoSchedule")], [], set()),
    "another taint": ([slice_on("n")], [tainted("n", key="gpu")], [], set()),
    "a rule for the driver": ([slice_on("n")], [], [rule(driver="a")], {"a"}),
    "a rule for one pool": ([slice_on("n")], [], [rule(driver="a", pool="n")], set()),
    "a rule without effect": ([slice_on("n")], [], [rule(effect="None", driver="a")], set()),
}


@pytest.mark.parametrize("name", TAINTS)
def test_taints_that_fence(name: str) -> None:
    slices, nodes, rules, fenced = TAINTS[name]
    assert fenced_drivers(slices, nodes, rules, [], [], None) == fenced


def shipped() -> dict[str, dict[str, Any]]:
    return {one["kind"]: one for one in yaml.safe_load_all(FENCE.read_text())}


def judged(parts: dict[str, dict[str, Any]]) -> set[str]:
    policy, binding = parts["ValidatingAdmissionPolicy"], parts["ValidatingAdmissionPolicyBinding"]
    return set(fenced_drivers([], [], [], [policy], [binding], parts["ConfigMap"]))


def test_the_policy_that_is_shipped_fences_its_drivers() -> None:
    parts = shipped()
    assert judged(parts) == {"gpu.nvidia.com", "compute-domain.nvidia.com"}
    assert parts["ValidatingAdmissionPolicy"]["spec"]["validations"][0]["expression"] == ALLOCATES_ALONE


HOLES: dict[str, tuple[str, list[str], Any]] = {
    "failures pass": ("ValidatingAdmissionPolicy", ["spec", "failurePolicy"], "Ignore"),
    "some writes are left out": ("ValidatingAdmissionPolicy", ["spec", "matchConditions"], [{"expression": "false"}]),
    "another rule": ("ValidatingAdmissionPolicy", ["spec", "validations"], [{"expression": "true"}]),
    "another name": ("ValidatingAdmissionPolicy", ["metadata", "name"], "x"),
    "status is not covered": ("ValidatingAdmissionPolicy", ["spec", "matchConstraints", "resourceRules"], []),
    "only warns": ("ValidatingAdmissionPolicyBinding", ["spec", "validationActions"], ["Warn"]),
    "some namespaces": (
        "ValidatingAdmissionPolicyBinding",
        ["spec", "matchResources"],
        {"namespaceSelector": {"a": "b"}},
    ),
    "allowed without parameters": (
        "ValidatingAdmissionPolicyBinding",
        ["spec", "paramRef", "parameterNotFoundAction"],
        "Allow",
    ),
    "no drivers": ("ConfigMap", ["data", "drivers"], ""),
}


@pytest.mark.parametrize("name", HOLES)
def test_a_policy_with_a_hole_is_no_fence(name: str) -> None:
    kind, path, value = HOLES[name]
    parts = shipped()
    place = parts[kind]
    for step in path[:-1]:
        place = place[step]
    place[path[-1]] = value
    assert judged(parts) == set()


NO = {"conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}]}
PODS: dict[str, tuple[dict[str, Any], bool]] = {
    "another scheduler's, not answered": (pod("p", "c", schedulerName="other"), True),
    "ours": (pod("p", "c", schedulerName="own"), False),
    "without claims": (pod("p", schedulerName="other"), False),
    "bound": (pod("p", "c", schedulerName="other", nodeName="n"), False),
    "refused": (pod("p", "c", schedulerName="other", status=NO), False),
    "finished": (pod("p", "c", schedulerName="other", status={"phase": "Failed"}), False),
}


@pytest.mark.parametrize("name", PODS)
def test_pods_that_another_scheduler_may_be_deciding(name: str) -> None:
    one, awaits = PODS[name]
    assert pod_awaits_others(typed(one), ("own",)) is awaits
