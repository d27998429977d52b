from __future__ import annotations

from typing import Any

import jsonschema_rs
import pytest

from dragoman.api import files
from dragoman.lint.finding import Finding
from dragoman.lint.linter import lint
from dragoman.lint.report import summary, to_json, to_sarif

FLAT = (
    "apiVersion: resource.k8s.io/v1\nkind: ResourceClaim\nmetadata: {name: c}\nspec:\n  devices:\n    requests:\n"
    "    - {name: r, deviceClassName: c}\n"
)


def findings() -> list[Finding]:
    return lint(files.scan([("f.yaml", f"{FLAT}---\na: b: c\n")]))


def test_the_summary_counts() -> None:
    assert summary(findings(), 2) == "2 documents checked: 2 errors"
    assert summary([], 1) == "1 document checked, no problems found"


def test_json_has_the_place_as_fields() -> None:
    first = to_json(findings())["findings"][0]
    assert first == {
        "code": "FlatRequest",
        "severity": "error",
        "file": "f.yaml",
        "document": 1,
        "line": 7,
        "object": "ResourceClaim default/c",
        "field": "spec.devices.requests[0].deviceClassName",
        "message": "deviceClassName of a request: only v1beta1 has them there",
        "fix": "move them under `exactly`",
        "fixable": True,
    }


def test_sarif_names_its_rules_and_places() -> None:
    log = to_sarif(findings(), "1.2.3")
    (run,) = log["runs"]
    rules = run["tool"]["driver"]["rules"]
    assert log["version"] == "2.1.0"
    assert [rule["id"] for rule in rules] == ["BrokenSyntax", "FlatRequest"]
    assert [rules[result["ruleIndex"]]["id"] for result in run["results"]] == ["FlatRequest", "BrokenSyntax"]
    location = run["results"][0]["locations"][0]
    assert location["physicalLocation"] == {"artifactLocation": {"uri": "f.yaml"}, "region": {"startLine": 7}}


def an_object(required: list[str], **properties: Any) -> dict[str, Any]:
    return {"type": "object", "required": required, "properties": properties, "additionalProperties": False}


TEXT = {"type": "string", "minLength": 1}
MESSAGE = an_object(["text"], text=TEXT)
LEVEL = {"enum": ["none", "note", "warning", "error"]}
PLACE = an_object(
    ["artifactLocation"],
    # What RFC 3986 lets stand in a reference.
    artifactLocation=an_object(
        ["uri"], uri={"type": "string", "pattern": r"^([A-Za-z0-9\-._~!$&'()*+,;=:@/?#]|%[0-9A-F]{2})+$"}
    ),
    region=an_object(["startLine"], startLine={"type": "integer", "minimum": 1}),
)
LOCATION = an_object(
    ["physicalLocation"],
    physicalLocation=PLACE,
    logicalLocations={
        "type": "array",
        "minItems": 1,
        "items": an_object(["fullyQualifiedName"], fullyQualifiedName=TEXT),
    },
)
RULE = an_object(
    ["id"],
    id=TEXT,
    name={"type": "string", "pattern": "^[A-Z][A-Za-z]+$"},
    shortDescription=MESSAGE,
    defaultConfiguration=an_object(["level"], level=LEVEL),
)
RESULT = an_object(
    ["message", "ruleId", "level", "locations"],
    message=MESSAGE,
    ruleId=TEXT,
    ruleIndex={"type": "integer", "minimum": 0},
    level=LEVEL,
    locations={"type": "array", "minItems": 1, "maxItems": 1, "items": LOCATION},
)
DRIVER = an_object(["name"], name=TEXT, version=TEXT, rules={"type": "array", "uniqueItems": True, "items": RULE})
RUN = an_object(["tool"], tool=an_object(["driver"], driver=DRIVER), results={"type": "array", "items": RESULT})
SARIF = an_object(["version", "runs"], version={"const": "2.1.0"}, runs={"type": "array", "items": RUN})
SARIF["properties"]["$schema"] = {"const": "https://json.schemastore.org/sarif-2.1.0.json"}
"""What SARIF 2.1.0 (OASIS, sections 3.13 to 3.49) demands of the parts that we write."""


@pytest.mark.parametrize("file", ["f.yaml", "/abs/with space.yaml", "<stdin>", "Übung/a%b.yaml"])
def test_sarif_has_the_structure_that_the_standard_demands(file: str) -> None:
    texts = [(file, f"{FLAT}---\na: b: c\n---\n{FLAT}"), ("empty.yaml", "")]
    log = to_sarif(lint(files.scan(texts)), "1.2.3")
    jsonschema_rs.validator_for(SARIF).validate(log)
    (run,) = log["runs"]
    rules = run["tool"]["driver"]["rules"]
    assert run["results"]
    for result in run["results"]:
        assert rules[result["ruleIndex"]]["id"] == result["ruleId"]
    uri = run["results"][0]["locations"][0]["physicalLocation"]["artifactLocation"]["uri"]
    assert uri.startswith("file:///") == file.startswith("/")


def test_sarif_of_nothing_is_a_run_without_results() -> None:
    log = to_sarif([], "1.2.3")
    jsonschema_rs.validator_for(SARIF).validate(log)
    assert log["runs"][0]["results"] == []
