"""Custom resources: definitions, and objects of what they define, over HTTP paths and through kubectl."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest

from dragoman.api.kinds import BY_NAME
from dragoman.api.shape import Object
from dragoman.apiserver.bootstrap import bootstrap
from dragoman.apiserver.fields import fields_of
from dragoman.apiserver.registry import Registry
from dragoman.apiserver.wal import open_store
from dragoman.runtime.clock import Clock
from dragoman.runtime.entropy import Entropy
from tests.apiserver.test_http import Api

CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
GROUP = "parts.example.org"
GEARS = f"/apis/{GROUP}/v1/namespaces/default/gears"
MERGE = "application/merge-patch+json"
APPLY = "application/apply-patch+yaml"
CRD = BY_NAME["CustomResourceDefinition"]

SPEC: Object = {
    "type": "object",
    "required": ["teeth"],
    "x-kubernetes-validations": [
        {"rule": "self.teeth < 100 || self.metal == 'steel'", "message": "only steel has so many teeth"},
        {"rule": "self.metal == oldSelf.metal", "messageExpression": "'metal stays ' + oldSelf.metal"},
    ],
    "properties": {
        "teeth": {"type": "integer", "minimum": 3},
        "metal": {"type": "string", "enum": ["steel", "brass"], "default": "brass"},
        "label": {"type": "string", "nullable": True, "maxLength": 5},
        "holes": {
            "type": "array",
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["at"],
            "items": {
                "type": "object",
                "required": ["at"],
                "properties": {"at": {"type": "string"}, "size": {"x-kubernetes-int-or-string": True}},
            },
        },
        "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
    },
}
STATUS: Object = {"type": "object", "properties": {"turns": {"type": "integer"}}}


def version(name: str = "v1", *, storage: bool = True, served: bool = True, **more: Any) -> Object:
    schema = {"type": "object", "properties": {"spec": SPEC, "status": STATUS}}
    return {
        "name": name,
        "served": served,
        "storage": storage,
        "schema": {"openAPIV3Schema": schema},
        "subresources": {
            "status": {},
            "scale": {"specReplicasPath": ".spec.teeth", "statusReplicasPath": ".status.turns"},
        },
        "additionalPrinterColumns": [
            {"name": "Teeth", "type": "integer", "jsonPath": ".spec.teeth"},
            {"name": "Hole", "type": "string", "jsonPath": '.spec.holes[?(@.at=="rim")].size'},
        ],
        "selectableFields": [{"jsonPath": ".spec.metal"}],
        **more,
    }


def definition(*versions: Object, plural: str = "gears", kind: str = "Gear", scope: str = "Namespaced") -> Object:
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{GROUP}"},
        "spec": {
            "group": GROUP,
            "scope": scope,
            "names": {"plural": plural, "kind": kind, "shortNames": [f"{plural[:2]}"], "categories": ["all"]},
            "versions": list(versions) or [version()],
        },
    }


def gear(name: str = "g", **spec: Any) -> Object:
    return {"apiVersion": f"{GROUP}/v1", "kind": "Gear", "metadata": {"name": name}, "spec": {"teeth": 8, **spec}}


@pytest.fixture
def api(registry: Registry) -> Api:
    made = Api(registry)
    assert made("POST", CRDS, definition()).status == 201
    return made


def conditions(api: Api, name: str = "gears") -> dict[str, str]:
    crd = api("GET", f"{CRDS}/{name}.{GROUP}").json()
    return {c["type"]: c["status"] for c in crd["status"]["conditions"]}


# ---- definitions


def test_a_definition_is_established_and_its_kind_is_served_discovered_and_described(api: Api) -> None:
    assert conditions(api) == {"NamesAccepted": "True", "Established": "True"}
    crd = api("GET", f"{CRDS}/gears.{GROUP}").json()
    assert crd["spec"]["names"]["listKind"] == "GearList"
    assert crd["status"]["storedVersions"] == ["v1"]
    [found] = [r for r in api("GET", f"/apis/{GROUP}/v1").json()["resources"] if r["name"] == "gears"]
    assert (found["kind"], found["shortNames"], found["categories"]) == ("Gear", ["ge"], ["all"])
    schema = api("GET", f"/openapi/v3/apis/{GROUP}/v1").json()["components"]["schemas"]["org.example.parts.v1.Gear"]
    assert schema["properties"]["spec"]["properties"]["teeth"]["minimum"] == 3
    assert schema["properties"]["metadata"]["allOf"]
    whole = api("GET", "/openapi/v2").json()["definitions"]["org.example.parts.v1.GearList"]
    assert whole["properties"]["items"]["items"] == {"$ref": "#/definitions/org.example.parts.v1.Gear"}


def test_discovery_changes_with_a_definition(registry: Registry) -> None:
    api = Api(registry)
    before = api("GET", "/apis").headers["etag"]
    api("POST", CRDS, definition())
    assert api("GET", "/apis").headers["etag"] != before


WRONG: dict[str, tuple[Any, str]] = {
    "no type at the root": (
        lambda crd: crd["spec"]["versions"][0]["schema"].update({"openAPIV3Schema": {}}),
        "must not be empty at the root",
    ),
    "a member without type": (
        lambda crd: crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"].update({"x": {"minimum": 1}}),
        "spec.versions[0].schema.openAPIV3Schema.properties[x].type: Required value: "
        "must not be empty for specified object fields",
    ),
    "another name": (lambda crd: crd["metadata"].update({"name": "x.y.z"}), 'must be spec.names.plural+"."+spec.group'),
    "two storage versions": (
        lambda crd: crd["spec"]["versions"].append(version("v2")),
        "must have exactly one version marked as storage version",
    ),
    "a rule that does not compile": (
        lambda crd: _rule(crd, "self.nothing > 1"),
        "undefined field 'nothing'",
    ),
    "a rule that is no answer": (lambda crd: _rule(crd, "self.teeth"), "must evaluate to a bool"),
    "a rule beyond its budget": (
        lambda crd: _rule(crd, "self.holes.all(a, self.holes.all(b, a.at == b.at))"),
        "estimated rule cost exceeds budget by factor of more than 100x",
    ),
    "a default that does not fit": (
        lambda crd: _spec(crd)["properties"]["teeth"].update({"default": 1}),
        "should be greater than or equal to 3",
    ),
    "a group of Kubernetes": (
        lambda crd: crd["spec"].update({"group": "parts.k8s.io"}),
        "protected groups must have approval annotation",
    ),
    "a selectable field that is none": (
        lambda crd: crd["spec"]["versions"][0].update({"selectableFields": [{"jsonPath": ".spec.soul"}]}),
        "does not refer to a valid field",
    ),
}


def _spec(crd: Object) -> Any:
    return crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]


def _rule(crd: Object, text: str) -> None:
    _spec(crd)["x-kubernetes-validations"] = [{"rule": text}]


@pytest.mark.parametrize("case", WRONG)
def test_what_is_wrong_with_a_definition_is_said(registry: Registry, case: str) -> None:
    import copy

    change, text = WRONG[case]
    crd = copy.deepcopy(definition())
    change(crd)
    answer = Api(registry)("POST", CRDS, crd)
    assert answer.status == 422
    assert text in answer.json()["message"]


def test_a_name_in_use_is_not_accepted_until_it_is_free(api: Api) -> None:
    other = definition(plural="gearboxes", kind="Gear")
    assert api("POST", CRDS, other).status == 201
    assert conditions(api, "gearboxes") == {"NamesAccepted": "False", "Established": "False"}
    assert api("GET", f"/apis/{GROUP}/v1/gearboxes").status == 404
    api("DELETE", f"{CRDS}/gears.{GROUP}")
    assert conditions(api, "gearboxes")["Established"] == "True"
    assert api("GET", f"/apis/{GROUP}/v1/gearboxes").status == 200


def test_conditions_of_others_stay_whatever_they_are(api: Api) -> None:
    path = f"{CRDS}/gears.{GROUP}/status"
    crd = api("GET", path).json()
    crd["status"]["conditions"].append({"message": "updated", "lastTransitionTime": "2026-01-01T00:00:00Z"})
    assert api("PUT", path, crd).status == 200
    assert "updated" in {c["message"] for c in api("GET", path).json()["status"]["conditions"]}
    assert api("DELETE", f"{CRDS}/gears.{GROUP}").status == 200
    assert api("GET", path).status == 404


def test_a_definition_goes_after_its_objects(api: Api) -> None:
    held = gear("held")
    held["metadata"]["finalizers"] = ["example.org/x"]
    api("POST", GEARS, held)
    api("POST", GEARS, gear("free"))
    assert api("DELETE", f"{CRDS}/gears.{GROUP}").status == 200
    assert conditions(api)["Terminating"] == "True"
    assert [item["metadata"]["name"] for item in api("GET", GEARS).json()["items"]] == ["held"]
    assert api("POST", GEARS, gear("late")).status == 405
    api("PATCH", f"{GEARS}/held", {"metadata": {"finalizers": None}}, content_type=MERGE)
    assert api("GET", f"{CRDS}/gears.{GROUP}").status == 404
    assert api("GET", GEARS).status == 404
    assert GROUP not in {group["name"] for group in api("GET", "/apis").json()["groups"]}


# ---- objects


def test_objects_get_defaults_lose_what_is_unknown_and_keep_what_is_open(api: Api) -> None:
    body = gear(soul=1, free={"a": {"b": 1}}, label=None)
    made = api("POST", GEARS, body)
    assert made.headers["warning"] == ['299 - "unknown field \\"spec.soul\\""']
    assert made.json()["spec"] == {"teeth": 8, "metal": "brass", "free": {"a": {"b": 1}}, "label": None}
    assert made.json()["metadata"]["generation"] == 1
    strict = api("POST", f"{GEARS}?fieldValidation=Strict", {**gear("h", soul=1), "extra": 2})
    assert 'strict decoding error: unknown field "extra", unknown field "spec.soul"' in strict.json()["message"]


INVALID = {
    "a type": ({"teeth": "many"}, 'spec.teeth: Invalid value: "string": spec.teeth in body must be of type integer'),
    "a minimum": ({"teeth": 2}, "spec.teeth in body should be greater than or equal to 3"),
    "a choice": ({"metal": "gold"}, 'Unsupported value: "gold": supported values: "steel", "brass"'),
    "a length": ({"label": "abcdef"}, "spec.label: Too long: may not be more than 5 bytes"),
    "what is required": ({"teeth": None}, "spec.teeth"),
    "a repeated key": ({"holes": [{"at": "a"}, {"at": "a"}]}, 'spec.holes[1]: Duplicate value: {"at":"a"}'),
    "a missing key": ({"holes": [{"size": 1}]}, "spec.holes[0].at: Required value"),
    "a rule": ({"teeth": 200}, "spec: Invalid value: only steel has so many teeth"),
}


@pytest.mark.parametrize("case", INVALID)
def test_what_does_not_fit_the_schema_is_refused(api: Api, case: str) -> None:
    spec, text = INVALID[case]
    answer = api("POST", GEARS, gear(**spec))
    assert answer.status == 422
    assert text in answer.json()["message"]


def test_transition_rules_compare_with_what_is_stored(api: Api) -> None:
    api("POST", GEARS, gear())
    answer = api("PATCH", f"{GEARS}/g", {"spec": {"metal": "steel"}}, content_type=MERGE)
    assert answer.status == 422
    assert "metal stays brass" in answer.json()["message"]


def test_what_was_stored_before_a_rule_may_stay(api: Api) -> None:
    api("POST", GEARS, gear(teeth=50))
    crd = api("GET", f"{CRDS}/gears.{GROUP}").json()
    _spec(crd)["properties"]["teeth"]["maximum"] = 10
    assert api("PUT", f"{CRDS}/gears.{GROUP}", crd).status == 200
    labels = {"metadata": {"labels": {"a": "b"}}}
    assert api("PATCH", f"{GEARS}/g", labels, content_type=MERGE).status == 200
    assert api("PATCH", f"{GEARS}/g", {"spec": {"teeth": 60}}, content_type=MERGE).status == 422


def test_status_and_scale_are_apart(api: Api) -> None:
    api("POST", GEARS, {**gear(), "status": {"turns": 9}})
    assert "status" not in api("GET", f"{GEARS}/g").json()
    new = {"status": {"turns": 3}, "spec": {"teeth": 99}, "metadata": {"labels": {"a": "b"}}}
    reported = api("PATCH", f"{GEARS}/g/status", new, content_type=MERGE).json()
    assert (reported["status"], reported["spec"]["teeth"], reported["metadata"]["generation"]) == ({"turns": 3}, 8, 1)
    assert "labels" not in reported["metadata"]
    scale = api("GET", f"{GEARS}/g/scale").json()
    assert (scale["spec"], scale["status"]) == ({"replicas": 8}, {"replicas": 3})
    api("PATCH", f"{GEARS}/g/scale", {"spec": {"replicas": 12}}, content_type=MERGE)
    found = api("GET", f"{GEARS}/g").json()
    assert (found["spec"]["teeth"], found["metadata"]["generation"]) == (12, 2)


def test_tables_and_field_selectors(api: Api) -> None:
    api("POST", GEARS, gear("a", holes=[{"at": "rim", "size": "2mm"}]))
    api("POST", GEARS, gear("b", metal="steel"))
    table = api("GET", GEARS, accept="application/json;as=Table;v=v1;g=meta.k8s.io").json()
    assert [column["name"] for column in table["columnDefinitions"]] == ["Name", "Teeth", "Hole"]
    assert [row["cells"] for row in table["rows"]] == [["a", 8, "2mm"], ["b", 8, None]]
    steel = api("GET", f"{GEARS}?fieldSelector=spec.metal%3Dsteel").json()
    assert [item["metadata"]["name"] for item in steel["items"]] == ["b"]
    assert api("GET", f"{GEARS}?fieldSelector=spec.teeth%3D8").status == 400


def test_patches_are_merge_json_and_apply_by_keys(api: Api) -> None:
    api("POST", GEARS, gear())
    assert api("PATCH", f"{GEARS}/g", {}, content_type="application/strategic-merge-patch+json").status == 415
    for manager, at in (("one", "rim"), ("two", "hub")):
        config = {"apiVersion": f"{GROUP}/v1", "kind": "Gear", "metadata": {"name": "g"}}
        config["spec"] = {"holes": [{"at": at, "size": 1}]}
        done = api("PATCH", f"{GEARS}/g?fieldManager={manager}", config, content_type=APPLY)
        assert done.status == 200, done.json()
    assert {hole["at"] for hole in done.json()["spec"]["holes"]} == {"rim", "hub"}
    config["spec"]["holes"] = [{"at": "rim", "size": 5}]
    assert api("PATCH", f"{GEARS}/g?fieldManager=two", config, content_type=APPLY).status == 409


def test_versions_differ_in_their_schemas_and_share_their_objects(registry: Registry) -> None:
    api = Api(registry)
    newer = version("v2", storage=False, deprecated=True, deprecationWarning="v2 goes")
    hidden = version("v0", storage=False, served=False)
    api("POST", CRDS, definition(version(), newer, hidden))
    api("POST", GEARS, gear())
    shown = api("GET", f"/apis/{GROUP}/v2/namespaces/default/gears/g")
    assert shown.json()["apiVersion"] == f"{GROUP}/v2"
    made = api("POST", f"/apis/{GROUP}/v2/namespaces/default/gears", {**gear("h"), "apiVersion": f"{GROUP}/v2"})
    assert made.headers["warning"] == ['299 - "v2 goes"']
    assert api("GET", f"{GEARS}/h").json()["apiVersion"] == f"{GROUP}/v1"
    assert api("GET", f"/apis/{GROUP}/v0/gears").status == 404
    [group] = [g for g in api("GET", "/apis").json()["groups"] if g["name"] == GROUP]
    assert [v["version"] for v in group["versions"]] == ["v2", "v1"]


def test_an_object_may_be_compared_as_a_whole_whatever_its_fields(registry: Registry) -> None:
    """`self == oldSelf` on an object with texts without limits: upstream's estimate takes objects for small."""
    api, crd = Api(registry), copy.deepcopy(definition())
    _spec(crd)["x-kubernetes-validations"] = [{"rule": "self == oldSelf", "message": "stays"}]
    assert api("POST", CRDS, crd).status == 201


def test_a_kind_of_a_built_in_name_is_its_own(registry: Registry) -> None:
    api = Api(registry)
    crd = definition(plural="jobs", kind="Job")
    crd["metadata"]["name"] = f"jobs.{GROUP}"
    assert api("POST", CRDS, crd).status == 201
    body = {**gear(), "kind": "Job"}
    assert api("POST", f"/apis/{GROUP}/v1/namespaces/default/jobs", body).json()["spec"]["metal"] == "brass"
    assert api("GET", "/apis/batch/v1/jobs").json()["items"] == []


def test_definitions_and_objects_survive_a_kill(tmp_path: Path) -> None:
    store, wal = open_store(tmp_path, fields_of)
    first = Registry(store, Clock(), Entropy(1))
    bootstrap(first)
    api = Api(first)
    api("POST", CRDS, definition(scope="Cluster"))
    made = api("POST", f"/apis/{GROUP}/v1/gears", gear(metal="steel")).json()
    wal.close()
    again, second_wal = open_store(tmp_path, fields_of)
    second = Registry(again, Clock(), Entropy(2))
    bootstrap(second)
    found = Api(second)("GET", f"/apis/{GROUP}/v1/gears?fieldSelector=spec.metal%3Dsteel").json()["items"]
    assert [item["metadata"]["uid"] for item in found] == [made["metadata"]["uid"]]
    assert conditions(Api(second)) == {"NamesAccepted": "True", "Established": "True"}
    second_wal.close()


def test_an_apply_with_fields_that_are_not_declared_or_stand_twice_is_refused(api: Api) -> None:
    url = f"{GEARS}/g?fieldManager=m&fieldValidation=Strict"
    lines = [
        f"apiVersion: {GROUP}/v1",
        "kind: Gear",
        "metadata: {name: g, soul: 1}",
        "spec:",
        "  teeth: 8",
        "  tooth: 1",
    ]
    wrong = api("PATCH", url, "\n".join(lines).encode(), content_type=APPLY)
    assert wrong.status == 400
    assert ".metadata.soul: field not declared in schema" in wrong.json()["message"]
    assert ".spec.tooth: field not declared in schema" in wrong.json()["message"]
    twice = "\n".join([*lines[:2], "metadata: {name: g}", "spec:", "  teeth: 8", "  teeth: 9"])
    answer = api("PATCH", url, twice.encode(), content_type=APPLY)
    assert (answer.status, 'line 6: key "teeth" already set in map' in answer.json()["message"]) == (400, True)
