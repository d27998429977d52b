from __future__ import annotations

from dragoman.api import files
from dragoman.lint.finding import Finding
from dragoman.lint.linter import lint
from dragoman.lint.report import lines, summary, to_json, to_sarif

FLAT = (
    "apiVersion: resource.k8s.io/v1\nkind: ResourceClaim\nmetadata: {name: c}\nspec:\n  devices:\n    requests:\n"
    "    - {name: r, deviceClassName: c}\n"
)


def findings() -> list[Finding]:
    return lint(files.scan([("f.yaml", f"{FLAT}---\na: b: c\n")]))


def test_text_has_one_line_a_finding_and_one_a_fix() -> None:
    assert list(lines(findings())) == [
        "f.yaml:7: error: deviceClassName of a request: only v1beta1 has them there [FlatRequest] "
        "(ResourceClaim default/c: spec.devices.requests[0].deviceClassName)",
        "  fix: move them under `exactly`",
        "f.yaml:9: error: mapping values are not allowed in this context [BrokenSyntax]",
    ]
    assert summary(findings(), 2) == "2 documents: 2 errors"
    assert summary([], 1) == "1 document: nothing to say"


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
