"""Changes of what is there, judged as the API server judges them: the same words as the server itself."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest

from dragoman.api import files, validate
from dragoman.api.kinds import kind_of
from dragoman.apiserver.bootstrap import in_memory
from dragoman.apiserver.client_apply import applied
from dragoman.apiserver.status import StatusError
from dragoman.lint.finding import Finding
from dragoman.lint.linter import LintTarget, lint
from dragoman.runtime.clock import Clock
from dragoman.runtime.entropy import Entropy
from dragoman.testing.build import claim, device_class, gpus, manifest, pod, template

Object = dict[str, Any]
TARGET = LintTarget(applied=applied)
LABELS = {"app": "a"}
SET = {
    "serviceName": "s",
    "selector": {"matchLabels": LABELS},
    "template": {
        "metadata": {"labels": LABELS},
        "spec": {"containers": [{"name": "m", "image": "i"}]},
    },
}
WORKLOAD = {key: value for key, value in SET.items() if key != "serviceName"}
JOB = {"template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "m", "image": "i"}]}}}


def with_spec(one: Object, *path: Any, value: Any) -> Object:
    made = copy.deepcopy(one)
    at = made
    for step in path[:-1]:
        at = at[step]
    at[path[-1]] = value
    return made


RUNNING = with_spec(pod("p"), "spec", "containers", value=[{"name": "m", "image": "i"}])
del RUNNING["metadata"]["uid"]
CLAIM, SLICE = claim("c"), gpus("node-a", 2)
ASKED = CLAIM["spec"]["devices"]["requests"]
TEMPLATE, SET_, JOB_ = template("t"), manifest("StatefulSet", "s", spec=SET), manifest("Job", "j", spec=JOB)
DEPLOYMENT = manifest("Deployment", "d", spec=WORKLOAD)

# the object that is there, the field that the file changes, the field named (where it is another one), part of the text
REFUSED: dict[str, tuple[Object, Object, str, str]] = {
    "a claim asks for another count": (
        CLAIM,
        with_spec(CLAIM, "spec", "devices", "requests", 0, "exactly", "count", value=4),
        "spec.devices.requests[0].exactly.count",
        "spec: field is immutable; devices.requests[0].exactly.count is 1",
    ),
    "a claim gets another request": (
        CLAIM,
        with_spec(CLAIM, "spec", "devices", "requests", value=[*ASKED, {**ASKED[0], "name": "more"}]),
        "spec.devices.requests",
        "spec: field is immutable",
    ),
    "a template": (
        TEMPLATE,
        with_spec(TEMPLATE, "spec", "spec", "devices", "requests", 0, "exactly", "deviceClassName", value="other"),
        "spec.spec.devices.requests[0].exactly.deviceClassName",
        "spec: field is immutable",
    ),
    "the driver of a slice": (
        SLICE,
        with_spec(SLICE, "spec", "driver", value="other.example.com"),
        "spec.driver",
        'Invalid value: "other.example.com": field is immutable',
    ),
    "the service of a stateful set": (
        SET_,
        with_spec(SET_, "spec", "serviceName", value="t"),
        "spec",
        "Forbidden: updates to statefulset spec for fields other than 'replicas'",
    ),
    "the pods of a job": (
        JOB_,
        with_spec(JOB_, "spec", "template", "spec", "containers", 0, "image", value="other"),
        "spec.template.spec.containers[0].image",
        'spec.template: field is immutable; spec.containers[0].image is "i"',
    ),
    "the selector of a deployment": (
        DEPLOYMENT,
        with_spec(
            with_spec(DEPLOYMENT, "spec", "selector", value={"matchLabels": {"app": "b"}}),
            *("spec", "template", "metadata", "labels"),
            value={"app": "b"},
        ),
        "spec.selector.matchLabels.app",
        'spec.selector: field is immutable; matchLabels.app is "a"',
    ),
    "the claims of a pod": (
        RUNNING,
        with_spec(RUNNING, "spec", "resourceClaims", value=[{"name": "x", "resourceClaimName": "c"}]),
        "spec",
        "pod updates may not change fields other than",
    ),
    "an immutable config map": (
        manifest("ConfigMap", "m", data={"a": "1"}, immutable=True),
        manifest("ConfigMap", "m", data={"a": "2"}, immutable=True),
        "data",
        "field is immutable when `immutable` is set",
    ),
}
TAKEN: dict[str, tuple[Object, Object]] = {
    "the same": (CLAIM, CLAIM),
    "a label of a claim": (CLAIM, with_spec(CLAIM, "metadata", "labels", value={"a": "b"})),
    "replicas of a stateful set": (SET_, with_spec(SET_, "spec", "replicas", value=3)),
    "the image of a pod": (RUNNING, with_spec(RUNNING, "spec", "containers", 0, "image", value="other")),
    "the selectors of a class": (
        device_class(),
        with_spec(device_class(), "spec", "selectors", value=[{"cel": {"expression": "false"}}]),
    ),
    "devices of a slice": (SLICE, gpus("node-a", 3)),
}


def linted(*texts: Object, against: Object | None = None) -> list[Finding]:
    scan = files.scan([(f"f{i}.yaml", json.dumps(one)) for i, one in enumerate(texts)], changes=True)
    background = [] if against is None else files.scan([("dump.yaml", json.dumps(_listed(against)))]).documents
    return [f for f in lint(scan, TARGET, background) if f.severity == "error"]


def _listed(one: Object) -> Object:
    made = {**one, "metadata": {**one["metadata"], "uid": "u-1", "resourceVersion": "7"}}
    return {"apiVersion": "v1", "kind": "List", "items": [made]}


@pytest.mark.parametrize(("old", "new", "field", "message"), REFUSED.values(), ids=REFUSED)
def test_what_the_server_refuses_is_an_error(old: Object, new: Object, field: str, message: str) -> None:
    for found in (linted(new, against=old), linted(old, new), linted(old, old, new)):
        (finding,) = found
        assert (finding.code, finding.field) == ("UpdateRefused", field)
        assert message in finding.message
    assert linted(new) == [], "a new object is taken"
    assert linted(old, new, old) == linted(old, new), "after a change that is refused the object is as it was"


@pytest.mark.parametrize(("old", "new"), TAKEN.values(), ids=TAKEN)
def test_what_the_server_takes_is_none(old: Object, new: Object) -> None:
    assert linted(new, against=old) == linted(old, new) == []


@pytest.mark.parametrize(
    ("old", "new", "taken"),
    [*((old, new, False) for old, new, *_ in REFUSED.values()), *((old, new, True) for old, new in TAKEN.values())],
    ids=[*REFUSED, *TAKEN],
)
def test_the_embedded_server_says_the_same(old: Object, new: Object, taken: bool) -> None:
    server, kind = in_memory(Clock(), Entropy(1)), kind_of(old["kind"])
    namespace = "default" if kind.namespaced else ""
    server.create(kind, old, namespace)
    change = {key: value for key, value in new.items() if key != "status"}

    def patch() -> None:
        server.patch(kind, new["metadata"]["name"], change, namespace, type="strategic")

    if taken:
        patch()
        return
    with pytest.raises(StatusError) as caught:
        patch()
    (finding,) = linted(new, against=old)
    assert caught.value.details is not None
    causes = caught.value.details["causes"]
    assert any(cause["message"].rpartition(": ")[2] in finding.message for cause in causes), caught.value.message
    assert any(finding.field.startswith(cause["field"]) for cause in causes)


def test_an_object_read_before_it_changed_conflicts() -> None:
    stale = with_spec(CLAIM, "metadata", "resourceVersion", value="3")
    (finding,) = linted(stale, against=CLAIM)
    assert (finding.code, finding.field) == ("UpdateRefused", "metadata.resourceVersion")
    assert "the object has been modified" in finding.message


def test_what_a_cluster_printed_is_no_change() -> None:
    printed = with_spec(_listed(CLAIM)["items"][0], "spec", "devices", "requests", 0, "exactly", "count", value=9)
    assert linted(printed, against=CLAIM) == []


def test_faults_of_the_object_itself_are_said_once() -> None:
    wrong = with_spec(DEPLOYMENT, "spec", "replicas", value=-1)
    assert [f.code for f in linted(wrong, against=DEPLOYMENT)] == ["InvalidField"]
    assert validate.create("Deployment", wrong)
