"""Kinds of CustomResourceDefinitions: served, discovered, described, kept and gone again."""

from __future__ import annotations

from pathlib import Path

from dragoman.apiserver.bootstrap import bootstrap
from dragoman.apiserver.fields import fields_of
from dragoman.apiserver.registry import Registry
from dragoman.apiserver.wal import open_store
from dragoman.runtime.clock import Clock
from dragoman.runtime.entropy import Entropy
from tests.apiserver.custom.gears import APPLY, CRDS, GEARS, GROUP, MERGE, definition, gear
from tests.apiserver.test_http import Api


def conditions(api: Api, name: str = "gears") -> dict[str, str]:
    crd = api("GET", f"{CRDS}/{name}.{GROUP}").json()
    return {c["type"]: c["status"] for c in crd["status"]["conditions"]}


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
