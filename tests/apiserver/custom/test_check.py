"""Objects of custom kinds: defaults, pruning, and what does not fit the schema."""

from __future__ import annotations

import pytest

from dragoman.apiserver.registry import Registry
from tests.apiserver.custom.gears import APPLY, CRDS, GEARS, GROUP, definition, gear, version
from tests.apiserver.test_http import Api


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
