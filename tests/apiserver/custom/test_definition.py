"""What is wrong with a definition is said."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from dragoman.api.shape import Object
from dragoman.apiserver.registry import Registry
from tests.apiserver.custom.gears import CRDS, _spec, definition, version
from tests.apiserver.test_http import Api

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


def _rule(crd: Object, text: str) -> None:
    _spec(crd)["x-kubernetes-validations"] = [{"rule": text}]


@pytest.mark.parametrize("case", WRONG)
def test_what_is_wrong_with_a_definition_is_said(registry: Registry, case: str) -> None:

    change, text = WRONG[case]
    crd = copy.deepcopy(definition())
    change(crd)
    answer = Api(registry)("POST", CRDS, crd)
    assert answer.status == 422
    assert text in answer.json()["message"]
