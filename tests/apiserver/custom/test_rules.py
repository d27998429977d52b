"""CEL rules of custom kinds."""

from __future__ import annotations

import copy

import pytest

from dragoman.apiserver.custom.rules import escaped
from dragoman.apiserver.registry import Registry
from dragoman.cel.parse import RESERVED
from tests.apiserver.custom.gears import CRDS, GEARS, GROUP, MERGE, _spec, definition, gear
from tests.apiserver.test_http import Api


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


def test_an_object_may_be_compared_as_a_whole_whatever_its_fields(registry: Registry) -> None:
    """`self == oldSelf` on an object with texts without limits: upstream's estimate takes objects for small."""
    api, crd = Api(registry), copy.deepcopy(definition())
    _spec(crd)["x-kubernetes-validations"] = [{"rule": "self == oldSelf", "message": "stays"}]
    assert api("POST", CRDS, crd).status == 201


@pytest.mark.parametrize("word", sorted(RESERVED | {"true", "false", "null", "in"}))
def test_every_word_that_expressions_reserve_is_escaped(word: str) -> None:
    assert escaped(word) == f"__{word}__"
    assert escaped(f"{word}d") == f"{word}d"
