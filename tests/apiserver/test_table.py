"""Tables: columns and cells of each kind, durations, rows, watch events, metadata-only objects."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragoman.api.kinds import KINDS, Kind, kind_of
from dragoman.apiserver.printers.column import human_duration, selector_text
from dragoman.apiserver.table import bookmark_table, partial_metadata_list, table

NOW = 1767225600.0  # 2026-01-01T00:00:00Z
BORN = "2025-12-31T23:55:00Z"

MINUTE, HOUR, DAY = 60, 3600, 86400
DURATIONS = {
    -5: "<invalid>",
    -1: "<invalid>" if int(-1.5) < -1 else "0s",
    0: "0s",
    0.9: "0s",
    119: "119s",
    120: "2m",
    123: "2m3s",
    9 * MINUTE + 59: "9m59s",
    10 * MINUTE + 1: "10m",
    179 * MINUTE: "179m",
    3 * HOUR: "3h",
    3 * HOUR + 5 * MINUTE: "3h5m",
    8 * HOUR + 5 * MINUTE: "8h",
    47 * HOUR: "47h",
    48 * HOUR: "2d",
    5 * DAY + 4 * HOUR: "5d4h",
    8 * DAY + 4 * HOUR: "8d",
    729 * DAY: "729d",
    730 * DAY: "2y",
    733 * DAY: "2y3d",
    8 * 365 * DAY + 40 * DAY: "8y",
}


@pytest.mark.parametrize("seconds", DURATIONS)
def test_durations_are_short(seconds):
    assert human_duration(seconds) == DURATIONS[seconds]


@given(st.integers(0, 10**10))
def test_a_duration_never_says_more_than_has_passed(seconds):
    text = human_duration(seconds)
    units = {"s": 1, "m": MINUTE, "h": HOUR, "d": DAY, "y": 365 * DAY}
    total, number = 0, ""
    for sign in text:
        if sign in units:
            total += int(number) * units[sign]
            number = ""
        else:
            number += sign
    assert total <= seconds < total * 1.2 + 1


# ---- cells


def made(**members: Any) -> dict[str, Any]:
    metadata = {"name": "x", "creationTimestamp": BORN, **members.pop("metadata", {})}
    return {"metadata": metadata, **members}


def show(kind: Kind, obj: dict[str, Any], *, wide: bool = False) -> dict[str, Any]:
    before = copy.deepcopy(obj)
    out = table(kind, [obj], NOW)
    assert obj == before
    (row,) = out["rows"]
    assert len(row["cells"]) == len(out["columnDefinitions"])
    pairs = zip(out["columnDefinitions"], row["cells"], strict=True)
    return {column["name"]: cell for column, cell in pairs if wide or column["priority"] == 0}


RUNNING = {"ready": True, "restartCount": 0, "state": {"running": {"startedAt": BORN}}}
DONE = {"state": {"terminated": {"exitCode": 0, "reason": "Completed", "finishedAt": BORN}}}


def pod(
    status: dict[str, Any], *, containers: int = 1, init: list[dict[str, Any]] | None = None, **metadata: Any
) -> Any:
    spec: dict[str, Any] = {"containers": [{"name": f"c{i}"} for i in range(containers)]}
    if init is not None:
        spec["initContainers"] = init
    return made(metadata=metadata, spec=spec, status=status)


PODS: dict[str, tuple[Any, tuple[str, str, str]]] = {
    "nothing known yet": (pod({}), ("0/1", "", "0")),
    "pending": (pod({"phase": "Pending"}), ("0/1", "Pending", "0")),
    "running": (pod({"phase": "Running", "containerStatuses": [RUNNING]}), ("1/1", "Running", "0")),
    "gated": (
        pod(
            {
                "phase": "Pending",
                "conditions": [{"type": "PodScheduled", "status": "False", "reason": "SchedulingGated"}],
            }
        ),
        ("0/1", "SchedulingGated", "0"),
    ),
    "evicted": (pod({"phase": "Failed", "reason": "Evicted"}), ("0/1", "Evicted", "0")),
    "creating": (
        pod({"phase": "Pending", "containerStatuses": [{"state": {"waiting": {"reason": "ContainerCreating"}}}]}),
        ("0/1", "ContainerCreating", "0"),
    ),
    "the first container with a reason wins": (
        pod(
            {
                "phase": "Running",
                "containerStatuses": [
                    {"state": {"waiting": {"reason": "CrashLoopBackOff"}}, "restartCount": 2},
                    {"state": {"waiting": {"reason": "ErrImagePull"}}, "restartCount": 1},
                ],
            },
            containers=2,
        ),
        ("0/2", "CrashLoopBackOff", "3"),
    ),
    "restarted a while ago": (
        pod(
            {
                "phase": "Running",
                "containerStatuses": [
                    {**RUNNING, "restartCount": 3, "lastState": {"terminated": {"finishedAt": BORN}}}
                ],
            }
        ),
        ("1/1", "Running", "3 (5m ago)"),
    ),
    "completed": (pod({"phase": "Succeeded", "containerStatuses": [DONE]}), ("0/1", "Completed", "0")),
    "one done, one running, ready": (
        pod(
            {
                "phase": "Running",
                "conditions": [{"type": "Ready", "status": "True"}],
                "containerStatuses": [DONE, RUNNING],
            },
            containers=2,
        ),
        ("1/2", "Running", "0"),
    ),
    "one done, one running, not ready": (
        pod({"phase": "Running", "containerStatuses": [DONE, RUNNING]}, containers=2),
        ("1/2", "NotReady", "0"),
    ),
    "failed by exit code": (
        pod({"phase": "Failed", "containerStatuses": [{"state": {"terminated": {"exitCode": 3}}}]}),
        ("0/1", "ExitCode:3", "0"),
    ),
    "failed by signal": (
        pod({"phase": "Failed", "containerStatuses": [{"state": {"terminated": {"exitCode": 137, "signal": 9}}}]}),
        ("0/1", "Signal:9", "0"),
    ),
    "initializing": (
        pod(
            {
                "phase": "Pending",
                "initContainerStatuses": [
                    {"name": "i0", **DONE},
                    {"name": "i1", "state": {"running": {}}},
                ],
            },
            init=[{"name": "i0"}, {"name": "i1"}],
        ),
        ("0/1", "Init:1/2", "0"),
    ),
    "initialization failed": (
        pod(
            {
                "phase": "Pending",
                "initContainerStatuses": [
                    {"name": "i0", "restartCount": 4, "state": {"waiting": {"reason": "CrashLoopBackOff"}}}
                ],
            },
            init=[{"name": "i0"}],
        ),
        ("0/1", "Init:CrashLoopBackOff", "4"),
    ),
    "initialization ended with a code": (
        pod(
            {"phase": "Pending", "initContainerStatuses": [{"name": "i0", "state": {"terminated": {"exitCode": 2}}}]},
            init=[{"name": "i0"}],
        ),
        ("0/1", "Init:ExitCode:2", "0"),
    ),
    "a restartable init container counts": (
        pod(
            {
                "phase": "Running",
                "initContainerStatuses": [{"name": "side", "started": True, **RUNNING, "restartCount": 2}],
                "containerStatuses": [{**RUNNING, "restartCount": 1}],
            },
            init=[{"name": "side", "restartPolicy": "Always"}],
        ),
        ("2/2", "Running", "3"),
    ),
    "terminating": (
        pod({"phase": "Running", "containerStatuses": [RUNNING]}, deletionTimestamp=BORN),
        ("1/1", "Terminating", "0"),
    ),
    "terminal phases are not terminating": (
        pod({"phase": "Succeeded", "containerStatuses": [DONE]}, deletionTimestamp=BORN),
        ("0/1", "Completed", "0"),
    ),
    "its node was lost": (
        pod({"phase": "Running", "reason": "NodeLost"}, deletionTimestamp=BORN),
        ("0/1", "Unknown", "0"),
    ),
}


@pytest.mark.parametrize("sentence", PODS)
def test_pods(sentence):
    obj, (ready, status, restarts) = PODS[sentence]
    assert show(kind_of("Pod"), obj) == {
        "Name": "x",
        "Ready": ready,
        "Status": status,
        "Restarts": restarts,
        "Age": "5m",
    }


def test_pods_wide():
    obj = pod({"phase": "Running", "podIPs": [{"ip": "10.0.0.1"}], "conditions": [{"type": "g", "status": "True"}]})
    obj["spec"].update(nodeName="n", readinessGates=[{"conditionType": "g"}, {"conditionType": "h"}])
    shown = show(kind_of("Pod"), obj, wide=True)
    assert {name: shown[name] for name in ("IP", "Node", "Nominated Node", "Readiness Gates")} == {
        "IP": "10.0.0.1",
        "Node": "n",
        "Nominated Node": "<none>",
        "Readiness Gates": "1/2",
    }


@pytest.mark.parametrize(("phase", "completed"), [("Succeeded", True), ("Failed", True), ("Running", False)])
def test_rows_of_finished_pods_say_so(phase, completed):
    (row,) = table(kind_of("Pod"), [pod({"phase": phase})], NOW)["rows"]
    conditions = [(c["type"], c["status"], c["reason"]) for c in row.get("conditions", [])]
    assert conditions == ([("Completed", "True", phase)] if completed else [])


def condition(type_: str, status: str = "True") -> dict[str, str]:
    return {"type": type_, "status": status}


CLAIM = {"devices": {"results": []}}
CELLS: dict[str, tuple[str, Any, dict[str, Any]]] = {
    "a ready node with a role": (
        "Node",
        made(
            metadata={"labels": {"node-role.kubernetes.io/worker": "", "kubernetes.io/role": "gpu"}},
            status={"conditions": [condition("Ready")], "nodeInfo": {"kubeletVersion": "v1.37.0"}},
        ),
        {"Status": "Ready", "Roles": "gpu,worker", "Version": "v1.37.0", "Age": "5m"},
    ),
    "a cordoned node that is not ready": (
        "Node",
        made(spec={"unschedulable": True}, status={"conditions": [condition("Ready", "Unknown")]}),
        {"Status": "NotReady,SchedulingDisabled", "Roles": "<none>"},
    ),
    "a node nobody reported on": ("Node", made(), {"Status": "Unknown"}),
    "a pending claim": ("ResourceClaim", made(), {"Name": "x", "State": "pending", "Age": "5m"}),
    "an allocated claim": ("ResourceClaim", made(status={"allocation": CLAIM}), {"State": "allocated"}),
    "a reserved claim": (
        "ResourceClaim",
        made(status={"allocation": CLAIM, "reservedFor": [{"uid": "u"}]}),
        {"State": "allocated,reserved"},
    ),
    "a claim that is being deleted": (
        "ResourceClaim",
        made(metadata={"deletionTimestamp": BORN}, status={"allocation": CLAIM, "reservedFor": [{"uid": "u"}]}),
        {"State": "deleted,allocated,reserved"},
    ),
    "a slice of a node": (
        "ResourceSlice",
        made(spec={"nodeName": "n", "driver": "d", "pool": {"name": "p"}}),
        {"Node": "n", "Driver": "d", "Pool": "p"},
    ),
    "a slice for all nodes": ("ResourceSlice", made(spec={"allNodes": True, "driver": "d"}), {"Node": ""}),
    "a device class": ("DeviceClass", made(), {"Name": "x", "Age": "5m"}),
    "a deployment": (
        "Deployment",
        made(spec={"replicas": 3}, status={"readyReplicas": 1, "updatedReplicas": 2, "availableReplicas": 1}),
        {"Ready": "1/3", "Up-to-date": 2, "Available": 1},
    ),
    "a replica set": (
        "ReplicaSet",
        made(spec={"replicas": 3}, status={"replicas": 2, "readyReplicas": 1}),
        {"Desired": 3, "Current": 2, "Ready": 1},
    ),
    "a daemon set without a selector": ("DaemonSet", made(), {"Desired": 0, "Node Selector": "<none>"}),
    "a job that runs": (
        "Job",
        made(spec={"completions": 3}, status={"succeeded": 1, "startTime": BORN}),
        {"Status": "Running", "Completions": "1/3", "Duration": "5m"},
    ),
    "a job that is complete": (
        "Job",
        made(
            spec={"completions": 1},
            status={
                "succeeded": 1,
                "startTime": BORN,
                "completionTime": "2025-12-31T23:55:07Z",
                "conditions": [condition("SuccessCriteriaMet"), condition("Complete")],
            },
        ),
        {"Status": "Complete", "Completions": "1/1", "Duration": "7s"},
    ),
    "a work queue": ("Job", made(spec={"parallelism": 4}), {"Completions": "0/1 of 4", "Duration": ""}),
    "a suspended job": ("Job", made(status={"conditions": [condition("Suspended")]}), {"Status": "Suspended"}),
    "a failed job that is being deleted": (
        "Job",
        made(metadata={"deletionTimestamp": BORN}, status={"conditions": [condition("Failed")]}),
        {"Status": "Failed"},
    ),
    "a cron job": (
        "CronJob",
        made(spec={"schedule": "* * * * *", "suspend": False}, status={"active": [{}], "lastScheduleTime": BORN}),
        {"Timezone": "<none>", "Suspend": "False", "Active": 1, "Last Schedule": "5m"},
    ),
    "an event": (
        "Event",
        made(
            involvedObject={"kind": "Pod", "name": "p"},
            firstTimestamp=BORN,
            lastTimestamp="2025-12-31T23:59:30Z",
            type="Warning",
            reason="FailedScheduling",
            message=" no node fits\n",
        ),
        {
            "Last Seen": "30s",
            "Type": "Warning",
            "Reason": "FailedScheduling",
            "Object": "pod/p",
            "Message": "no node fits",
        },
    ),
    "an event of the newer group that repeats": (
        "Event",
        made(
            regarding={"kind": "Node", "name": "n"},
            eventTime=BORN,
            series={"count": 9, "lastObservedTime": "2025-12-31T23:59:50.000000Z"},
            note="again",
        ),
        {"Last Seen": "10s", "Object": "node/n", "Message": "again"},
    ),
    "a namespace": ("Namespace", made(status={"phase": "Active"}), {"Status": "Active"}),
    "a lease": ("Lease", made(spec={"holderIdentity": "me"}), {"Holder": "me"}),
    "a config map": ("ConfigMap", made(data={"a": "1"}, binaryData={"b": ""}), {"Data": 2}),
    "a secret": ("Secret", made(type="Opaque", data={"a": "MQ=="}), {"Type": "Opaque", "Data": 1}),
    "a service with a node port": (
        "Service",
        made(
            spec={
                "type": "NodePort",
                "clusterIP": "10.0.0.1",
                "ports": [{"port": 80, "nodePort": 30080}, {"port": 53, "protocol": "UDP"}],
            }
        ),
        {"Cluster-IP": "10.0.0.1", "External-IP": "<none>", "Port(s)": "80:30080/TCP,53/UDP"},
    ),
    "a load balancer without address": ("Service", made(spec={"type": "LoadBalancer"}), {"External-IP": "<pending>"}),
    "a disruption budget": (
        "PodDisruptionBudget",
        made(spec={"minAvailable": "50%"}, status={"disruptionsAllowed": 1}),
        {"Min Available": "50%", "Max Unavailable": "N/A", "Allowed Disruptions": 1},
    ),
    "a priority class": (
        "PriorityClass",
        made(value=-5, preemptionPolicy="Never"),
        {"Value": -5, "Global-Default": False, "PreemptionPolicy": "Never"},
    ),
    "a quota": (
        "ResourceQuota",
        made(status={"hard": {"requests.cpu": "2", "limits.cpu": "4", "pods": "5"}, "used": {"pods": "1"}}),
        {"Request": "pods: 1/5, requests.cpu: 0/2", "Limit": "limits.cpu: 0/4"},
    ),
    "many endpoints": (
        "Endpoints",
        made(subsets=[{"addresses": [{"ip": f"10.0.0.{i}"} for i in range(5)], "ports": [{"port": 80}]}]),
        {"Endpoints": "10.0.0.0:80,10.0.0.1:80,10.0.0.2:80 + 2 more..."},
    ),
    "a role": ("Role", made(), {"Name": "x", "Created At": BORN}),
    "a revision": (
        "ControllerRevision",
        made(
            metadata={
                "ownerReferences": [{"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "d", "controller": True}]
            },
            revision=3,
        ),
        {"Controller": "daemonset.apps/d", "Revision": 3},
    ),
    "a default storage class": (
        "StorageClass",
        made(metadata={"annotations": {"storageclass.kubernetes.io/is-default-class": "true"}}, provisioner="p"),
        {"Name": "x (default)", "Provisioner": "p", "ReclaimPolicy": "Delete"},
    ),
    "a kind without columns of its own": ("Workload", made(), {"Name": "x", "Age": "5m"}),
    "an object without a time": ("ConfigMap", {"metadata": {"name": "x"}}, {"Age": "<unknown>"}),
    "an object with nonsense for a time": (
        "ConfigMap",
        {"metadata": {"creationTimestamp": "soon"}},
        {"Age": "<unknown>"},
    ),
}


@pytest.mark.parametrize("sentence", CELLS)
def test_cells(sentence):
    name, obj, expected = CELLS[sentence]
    shown = show(kind_of(name), obj)
    assert {column: shown.get(column) for column in expected} == expected


SELECTORS = {
    "null selects nothing": (None, "<none>"),
    "labels are sorted": ({"matchLabels": {"b": "2", "a": "1"}}, "a=1,b=2"),
    "expressions": (
        {
            "matchExpressions": [
                {"key": "a", "operator": "In", "values": ["y", "x"]},
                {"key": "b", "operator": "NotIn", "values": ["z"]},
                {"key": "c", "operator": "Exists"},
                {"key": "d", "operator": "DoesNotExist"},
            ]
        },
        "a in (x,y),b notin (z),c,!d",
    ),
}


@pytest.mark.parametrize("sentence", SELECTORS)
def test_selectors(sentence):
    selector, expected = SELECTORS[sentence]
    assert selector_text(selector) == expected


# ---- the table around the cells


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.kind)
def test_every_kind_prints_an_empty_object(kind):
    out = table(kind, [{}], NOW)
    assert out["columnDefinitions"][0]["name"] in ("Name", "Last Seen")
    assert sum(column["format"] == "name" for column in out["columnDefinitions"]) == 1


def test_rows_carry_what_was_asked_for():
    obj = made(spec={"a": 1})
    kind = kind_of("ConfigMap")
    (row,) = table(kind, [obj], NOW)["rows"]
    assert row["object"] == {
        "kind": "PartialObjectMetadata",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": obj["metadata"],
    }
    assert table(kind, [obj], NOW, "Object")["rows"][0]["object"] == obj
    assert table(kind, [obj], NOW, "None")["rows"][0]["object"] is None


def test_later_watch_events_and_bookmarks_have_no_columns():
    later = table(kind_of("Pod"), [pod({})], NOW, definitions=False, metadata={"resourceVersion": "7"})
    assert later["columnDefinitions"] is None
    assert later["metadata"] == {"resourceVersion": "7"}
    marked = bookmark_table({"metadata": {"resourceVersion": "8"}})
    assert (marked["kind"], marked["rows"], marked["metadata"]) == ("Table", [], {"resourceVersion": "8"})


def test_metadata_lists():
    listed = partial_metadata_list([made(spec={"a": 1})], {"resourceVersion": "9"})
    assert listed["kind"] == "PartialObjectMetadataList"
    assert listed["metadata"] == {"resourceVersion": "9"}
    assert "spec" not in listed["items"][0]
