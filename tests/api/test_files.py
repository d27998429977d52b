from __future__ import annotations

import json

import pytest

from dragoman.api import files
from dragoman.api.core import Pod
from dragoman.api.files import DocumentInvalid
from dragoman.api.resource import ResourceClaim, ResourceSlice
from dragoman.errors import Invalid

OLD_CLAIM = """\
apiVersion: resource.k8s.io/v1beta1
kind: ResourceClaim
metadata:
  name: one
spec:
  devices:
    requests:
    - name: gpu
      deviceClassName: gpu.example.com
      count: 2
"""
OLD_SLICE = """\
apiVersion: resource.k8s.io/v1beta1
kind: ResourceSlice
metadata: {name: s}
spec:
  driver: gpu.example.com
  nodeName: n1
  pool: {name: n1, generation: 1, resourceSliceCount: 1}
  devices: [{name: gpu-0, basic: {attributes: {index: {int: 0}}, capacity: {memory: {value: 80Gi}}}}]
"""


def test_old_versions_are_converted_and_namespaces_filled_in() -> None:
    claim, published = files.read(f"{OLD_CLAIM}---\n{OLD_SLICE}", "f.yaml")
    assert isinstance(claim.value, ResourceClaim)
    exactly = claim.value.spec.devices.requests[0].exactly
    assert exactly is not None
    assert (exactly.device_class_name, exactly.count) == ("gpu.example.com", 2)
    assert claim.object["apiVersion"] == "resource.k8s.io/v1"
    assert claim.raw["apiVersion"] == "resource.k8s.io/v1beta1"
    assert claim.value.metadata.namespace == claim.namespace == "default"
    assert "namespace" not in claim.raw["metadata"]
    assert isinstance(published.value, ResourceSlice)
    assert published.value.spec.devices[0].attributes["index"].int_ == 0
    assert (published.namespace, published.number, published.subject) == ("", 2, "ResourceSlice s")


def test_lines_are_those_of_the_text_as_written() -> None:
    document = files.read(f"# comment\n---\n{OLD_CLAIM}", "f.yaml")[0]
    lines = ["# comment", "---", *OLD_CLAIM.splitlines()]
    assert lines[document.line("spec.devices.requests[0].exactly.count") - 1].strip() == "count: 2"
    assert lines[document.line("spec.devices.requests[0].name") - 1].strip() == "- name: gpu"
    assert lines[document.line("spec.devices.constraints") - 1].strip() == "devices:"
    assert document.line() == 2


def test_unknown_kinds_and_gone_versions_stay_raw() -> None:
    text = (
        "apiVersion: kueue.x-k8s.io/v1beta1\nkind: Workload\nmetadata: {name: a}\n---\n"
        "apiVersion: resource.k8s.io/v1alpha3\nkind: ResourceClaim\nmetadata: {name: b}\n"
    )
    for document in files.read(text, "f"):
        assert document.kind is None
        assert document.value is None
        assert document.object is document.raw


def test_known_kinds_without_a_struct_have_their_kind() -> None:
    document = files.read("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n", "f")[0]
    assert document.kind is not None
    assert document.value is None
    assert document.namespace == "default"


def test_objects_with_generated_names_may_repeat() -> None:
    text = "apiVersion: v1\nkind: Pod\nmetadata: {generateName: a-}\n---\n" * 2
    assert [d.name for d in files.read(text, "f")] == ["a-", "a-"]


def test_same_names_in_other_namespaces_groups_and_kinds_are_no_duplicates() -> None:
    objects = [
        {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}},
        {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a", "namespace": "b"}},
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}},
        {"apiVersion": "other.io/v1", "kind": "Pod", "metadata": {"name": "a"}},
    ]
    text = json.dumps({"apiVersion": "v1", "kind": "List", "items": objects})
    assert len(files.read(text, "f.json")) == 4


def test_a_duplicate_names_both_places() -> None:
    pod = "apiVersion: v1\nkind: Pod\nmetadata:\n  name: a\n"
    with pytest.raises(DocumentInvalid) as caught:
        files.read_all([("one.yaml", f"---\n{pod}"), ("two.yaml", f"{pod}  namespace: default\n")])
    assert str(caught.value) == (
        "two.yaml, document 1, line 4 (Pod default/a): metadata.name: is already defined in one.yaml, document 1, line 1"
    )
    with pytest.raises(DocumentInvalid, match="is already defined"):
        files.read(f"{OLD_CLAIM}---\n{OLD_CLAIM.replace('v1beta1', 'v1')}", "f")


WRONG: dict[str, tuple[str, str]] = {
    "a word for a count": (
        OLD_CLAIM.replace("count: 2", "count: two"),
        "f.yaml, document 1, line 10 (ResourceClaim default/one): spec.devices.requests[0].exactly.count: "
        "must be an integer, got a string",
    ),
    "a boolean for a name": (
        OLD_CLAIM.replace("name: one", "name: yes"),
        "f.yaml, document 1, line 4 (ResourceClaim default/True): metadata.name: must be a string, got true or false "
        "(YAML takes y, n, yes, no, on and off for these)",
    ),
    "a number for a label": (
        "apiVersion: v1\nkind: Node\nmetadata:\n  name: n1\n  labels:\n    a: b\n    zone: 1\n",
        "f.yaml, document 1, line 7 (Node n1): metadata.labels[zone]: must be a string, got an integer",
    ),
    "no quantity": (
        "apiVersion: v1\nkind: Node\nmetadata: {name: n1}\nstatus: {allocatable: {cpu: lots}}\n",
        "f.yaml, document 1, line 4 (Node n1): status.allocatable[cpu]: ",
    ),
    "no kind": (
        "---\n# nothing\n---\napiVersion: v1\nmetadata: {name: n1}\n",
        "f.yaml, document 1, line 3 (n1): kind: must be set, to say what this object is",
    ),
    "no version": (
        "kind: Pod\nmetadata: {name: n1}\n",
        "f.yaml, document 1, line 1 (Pod n1): apiVersion: must be set, to say what this object is",
    ),
    "metadata that is a list": (
        "apiVersion: v1\nkind: Pod\nmetadata: []\n",
        "f.yaml, document 1, line 3 (Pod): metadata: must be an object, got a list",
    ),
    "a number for an image of a template": (
        "apiVersion: apps/v1\nkind: DaemonSet\nmetadata: {name: d}\nspec:\n  template:\n    spec:\n      containers:\n"
        "      - name: c\n        image: 7\n",
        "f.yaml, document 1, line 9 (DaemonSet default/d): spec.template.spec.containers[0].image: "
        "must be a string, got an integer",
    ),
    "text for a template": (
        "apiVersion: batch/v1\nkind: CronJob\nmetadata: {name: d}\nspec: {jobTemplate: {spec: {template: {spec: \ud55c}}}}\n",
        "f.yaml, document 1, line 4 (CronJob default/d): spec.jobTemplate.spec.template.spec: "
        "must be an object, got a string",
    ),
    "broken syntax": ("a: b: c\n", "f.yaml, document 1, line 1: broken YAML: mapping values are not allowed"),
}


@pytest.mark.parametrize(("text", "message"), WRONG.values(), ids=WRONG)
def test_what_cannot_be_understood_names_file_document_line_and_field(text: str, message: str) -> None:
    with pytest.raises(Invalid) as caught:
        files.read(text, "f.yaml")
    assert str(caught.value).startswith(message)


def test_errors_carry_their_place_as_fields() -> None:
    with pytest.raises(DocumentInvalid) as caught:
        files.read(f"{OLD_SLICE}---\n{OLD_CLAIM.replace('count: 2', 'count: two')}", "f.yaml")
    error = caught.value
    assert (error.file, error.document, error.subject, error.field, error.message) == (
        "f.yaml",
        2,
        "ResourceClaim default/one",
        "spec.devices.requests[0].exactly.count",
        "must be an integer, got a string",
    )


def test_a_scan_goes_on_after_errors() -> None:
    bad = OLD_CLAIM.replace("count: 2", "count: two").replace("name: one", "name: two")
    text = f"{bad}---\na: b: c\n---\nkind: Pod\n---\n{OLD_CLAIM}---\n{OLD_CLAIM}"
    found = files.scan([("f.yaml", text), ("g.json", "{")])
    assert [(d.number, d.kind_name, d.value is None) for d in found.documents] == [
        (1, "ResourceClaim", True),
        (3, "Pod", True),
        (4, "ResourceClaim", False),
        (5, "ResourceClaim", False),
    ]
    assert [(e.document, e.field) for e in found.invalid] == [
        (1, "spec.devices.requests[0].exactly.count"),
        (3, "apiVersion"),
        (5, "metadata.name"),
    ]
    assert [(e.where, e.document) for e in found.broken] == [
        ("f.yaml, document 2, line 12", 2),
        ("g.json, document 1, line 1", 1),
    ]


def test_null_fields_are_absent() -> None:
    document = files.read(
        "apiVersion: v1\nkind: Pod\nmetadata: {name: p, creationTimestamp: null, labels: }\nspec:\n  containers:\nstatus: {}\n",
        "f",
    )[0]
    assert isinstance(document.value, Pod)
    assert document.value.spec.containers == ()
