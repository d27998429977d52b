"""JSON, merge and strategic merge patches: outcomes, refusals, and arguments that stay as they were."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragoman.apiserver.patch import MAX_OPERATIONS, PatchFailed, json_patch, merge_patch, strategic_patch

POD = ("", "v1", "Pod")
DEPLOYMENT = ("apps", "v1", "Deployment")
NODE = ("", "v1", "Node")
CLAIM = ("resource.k8s.io", "v1", "ResourceClaim")
LIVE = {"metadata": {"name": "x", "labels": {"a": "1"}}, "spec": {"list": [1, 2], "text": "t"}}

# ---- JSON patch

JSON_PATCHES: dict[str, tuple[list[dict[str, Any]], Any]] = {
    "no operation changes nothing": ([], LIVE),
    "add a member": (
        [{"op": "add", "path": "/metadata/labels/b", "value": "2"}],
        {**LIVE, "metadata": {"name": "x", "labels": {"a": "1", "b": "2"}}},
    ),
    "append to a list": (
        [{"op": "add", "path": "/spec/list/-", "value": 3}],
        {**LIVE, "spec": {"list": [1, 2, 3], "text": "t"}},
    ),
    "insert in front": (
        [{"op": "add", "path": "/spec/list/0", "value": 0}],
        {**LIVE, "spec": {"list": [0, 1, 2], "text": "t"}},
    ),
    "test, then remove": (
        [{"op": "test", "path": "/spec/text", "value": "t"}, {"op": "remove", "path": "/spec/text"}],
        {**LIVE, "spec": {"list": [1, 2]}},
    ),
    "a slash in a name is ~1": (
        [{"op": "add", "path": "/metadata/labels/example.com~1x", "value": "y"}],
        {**LIVE, "metadata": {"name": "x", "labels": {"a": "1", "example.com/x": "y"}}},
    ),
    "copy and move": (
        [
            {"op": "copy", "from": "/spec/text", "path": "/metadata/labels/t"},
            {"op": "move", "from": "/spec/list/1", "path": "/spec/list/0"},
        ],
        {"metadata": {"name": "x", "labels": {"a": "1", "t": "t"}}, "spec": {"list": [2, 1], "text": "t"}},
    ),
    "replace the whole document": ([{"op": "replace", "path": "", "value": {"new": 1}}], {"new": 1}),
}


@pytest.mark.parametrize("sentence", JSON_PATCHES)
def test_json_patch(sentence):
    ops, expected = JSON_PATCHES[sentence]
    before = copy.deepcopy((LIVE, ops))
    assert json_patch(LIVE, ops) == expected
    assert (LIVE, ops) == before


JSON_FAILURES: dict[str, tuple[Any, bool, str]] = {
    "no list": ({"op": "add"}, True, "list of operations"),
    "an unknown op": ([{"op": "frobnicate", "path": "/a"}], True, "operation 0: op must be one of"),
    "no path": ([{"op": "remove"}], True, "operation 0 (remove): path"),
    "no from": ([{"op": "move", "path": "/a"}], True, "operation 0 (move): from"),
    "no value": ([{"op": "add", "path": "/a"}], True, "operation 0 (add): value"),
    "too many": ([{"op": "test", "path": "/spec", "value": 1}] * (MAX_OPERATIONS + 1), False, "maximum operations"),
    "a failed test": ([{"op": "test", "path": "/spec/text", "value": "u"}], False, "operation 0 (test /spec/text)"),
    "removing what is not there": ([{"op": "remove", "path": "/nope"}], False, "operation 0 (remove /nope)"),
    "replacing what is not there": ([{"op": "replace", "path": "/nope", "value": 1}], False, "(replace /nope)"),
    "below what is not there": ([{"op": "add", "path": "/a/b", "value": 1}], False, "member 'a' not found"),
    "below a scalar": ([{"op": "add", "path": "/spec/text/x/y", "value": 1}], False, "(add /spec/text/x/y)"),
    "an index beyond the end": ([{"op": "add", "path": "/spec/list/9", "value": 1}], False, "(add /spec/list/9)"),
    "the second of two": (
        [{"op": "remove", "path": "/spec/text"}, {"op": "remove", "path": "/spec/text"}],
        False,
        "operation 1 (remove /spec/text)",
    ),
    "a pointer without a slash": ([{"op": "add", "path": "spec", "value": 1}], False, "(add spec)"),
}


@pytest.mark.parametrize("sentence", JSON_FAILURES)
def test_json_patch_failures_name_the_operation(sentence):
    ops, malformed, says = JSON_FAILURES[sentence]
    before = copy.deepcopy(LIVE)
    with pytest.raises(PatchFailed) as failed:
        json_patch(LIVE, ops)
    assert says in str(failed.value)
    assert failed.value.malformed == malformed
    assert "\n" not in str(failed.value)
    assert len(str(failed.value)) < 300
    assert before == LIVE


# ---- merge patch (the examples of RFC 7386, appendix A)

MERGE_PATCHES: list[tuple[Any, Any, Any]] = [
    ({"a": "b"}, {"a": "c"}, {"a": "c"}),
    ({"a": "b"}, {"b": "c"}, {"a": "b", "b": "c"}),
    ({"a": "b"}, {"a": None}, {}),
    ({"a": "b", "b": "c"}, {"a": None}, {"b": "c"}),
    ({"a": ["b"]}, {"a": "c"}, {"a": "c"}),
    ({"a": "c"}, {"a": ["b"]}, {"a": ["b"]}),
    ({"a": {"b": "c"}}, {"a": {"b": "d", "c": None}}, {"a": {"b": "d"}}),
    ({"a": [{"b": "c"}]}, {"a": [1]}, {"a": [1]}),
    (["a", "b"], ["c", "d"], ["c", "d"]),
    ({"a": "b"}, ["c"], ["c"]),
    ({"a": "foo"}, None, None),
    ({"a": "foo"}, "bar", "bar"),
    ({"e": None}, {"a": 1}, {"e": None, "a": 1}),
    ([1, 2], {"a": "b", "c": None}, {"a": "b"}),
    ({}, {"a": {"bb": {"ccc": None}}}, {"a": {"bb": {}}}),
]


@pytest.mark.parametrize(("doc", "patch", "expected"), MERGE_PATCHES)
def test_merge_patch(doc, patch, expected):
    before = copy.deepcopy((doc, patch))
    assert merge_patch(doc, patch) == expected
    assert (doc, patch) == before


def objects(inner):
    return st.dictionaries(st.sampled_from(["a", "b", "c"]), inner, max_size=3)


scalars = st.none() | st.booleans() | st.integers(-3, 3) | st.text("ab", max_size=2)
documents = st.recursive(scalars, lambda inner: st.lists(inner, max_size=2) | objects(inner), max_leaves=8)


@given(objects(documents), objects(documents))
def test_a_merge_patch_twice_is_once(doc, patch):
    once = merge_patch(doc, patch)
    assert merge_patch(once, patch) == once


@given(objects(documents))
def test_patches_share_nothing_with_their_arguments(doc):
    out = merge_patch(doc, {"x": {"y": [1]}})
    before = copy.deepcopy(doc)
    scribble(out)
    assert doc == before


def scribble(value):
    if isinstance(value, dict):
        for entry in value.values():
            scribble(entry)
        value["scribbled"] = True
    elif isinstance(value, list):
        for entry in value:
            scribble(entry)
        value.append("scribbled")


# ---- strategic merge patch


def pod(*containers, **spec):
    return {"spec": {"containers": list(containers), **spec}}


STRATEGIC: dict[str, tuple[Any, Any, Any, Any]] = {
    "lists with a merge key merge by it": (
        POD,
        pod({"name": "a", "image": "1"}, {"name": "b", "image": "1"}),
        pod({"name": "b", "image": "2"}),
        pod({"name": "a", "image": "1"}, {"name": "b", "image": "2"}),
    ),
    "a new item without an order stands first, as in upstream's documentation": (
        POD,
        pod({"name": "a", "image": "1"}),
        pod({"name": "b", "image": "2"}),
        pod({"name": "b", "image": "2"}, {"name": "a", "image": "1"}),
    ),
    "an item is deleted by directive": (
        POD,
        pod({"name": "a", "image": "1"}, {"name": "b", "image": "2"}),
        pod({"name": "a", "$patch": "delete"}),
        pod({"name": "b", "image": "2"}),
    ),
    "a list is replaced by directive": (
        POD,
        pod({"name": "a", "image": "1"}, {"name": "b", "image": "2"}),
        pod({"$patch": "replace"}, {"name": "c", "image": "3"}),
        pod({"name": "c", "image": "3"}),
    ),
    "a map is replaced by directive": (
        POD,
        {"metadata": {"labels": {"a": "1", "b": "2"}}},
        {"metadata": {"labels": {"$patch": "replace", "c": "3"}}},
        {"metadata": {"labels": {"c": "3"}}},
    ),
    "a map is emptied by directive": (
        POD,
        {"metadata": {"labels": {"a": "1"}}},
        {"metadata": {"labels": {"$patch": "delete"}}},
        {"metadata": {"labels": {}}},
    ),
    "null removes a member": (
        POD,
        {"metadata": {"labels": {"a": "1", "b": "2"}}},
        {"metadata": {"labels": {"a": None}}},
        {"metadata": {"labels": {"b": "2"}}},
    ),
    "null means nothing in what is new": (
        POD,
        {"metadata": {}},
        {"metadata": {"labels": {"a": None, "b": "2"}}},
        {"metadata": {"labels": {"b": "2"}}},
    ),
    "lists without a strategy are replaced": (
        POD,
        pod({"name": "a", "args": ["x", "y"]}),
        pod({"name": "a", "args": ["z"]}),
        pod({"name": "a", "args": ["z"]}),
    ),
    "scalars of a merging list are a set": (
        POD,
        {"metadata": {"finalizers": ["a", "b"]}},
        {"metadata": {"finalizers": ["b", "c"]}},
        {"metadata": {"finalizers": ["a", "b", "c"]}},
    ),
    "scalars are removed by directive": (
        POD,
        {"metadata": {"finalizers": ["a", "b", "c"]}},
        {"metadata": {"$deleteFromPrimitiveList/finalizers": ["b"], "$setElementOrder/finalizers": ["c", "a"]}},
        {"metadata": {"finalizers": ["c", "a"]}},
    ),
    "order as the client has it, the server's own items in place": (
        POD,
        pod({"name": "a"}, {"name": "server"}, {"name": "b"}),
        {
            "spec": {
                "$setElementOrder/containers": [{"name": "b"}, {"name": "a"}, {"name": "c"}],
                "containers": [{"name": "c"}],
            }
        },
        pod({"name": "server"}, {"name": "b"}, {"name": "a"}, {"name": "c"}),
    ),
    "the server's own item stays in front of what followed it": (
        POD,
        pod({"name": "server"}, {"name": "a"}, {"name": "b"}),
        {
            "spec": {
                "$setElementOrder/containers": [{"name": "a"}, {"name": "b"}],
                "containers": [{"name": "a", "image": "1"}],
            }
        },
        pod({"name": "server"}, {"name": "a", "image": "1"}, {"name": "b"}),
    ),
    "retained keys drop the other members of a union": (
        DEPLOYMENT,
        {"spec": {"strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1}}}},
        {"spec": {"strategy": {"$retainKeys": ["type"], "type": "Recreate"}}},
        {"spec": {"strategy": {"type": "Recreate"}}},
    ),
    "a volume changes its source": (
        POD,
        pod(volumes=[{"name": "v", "emptyDir": {}}]),
        pod(volumes=[{"name": "v", "$retainKeys": ["name", "configMap"], "configMap": {"name": "c"}}]),
        pod(volumes=[{"name": "v", "configMap": {"name": "c"}}]),
    ),
    "ports merge by container port": (
        POD,
        pod({"name": "a", "ports": [{"containerPort": 80, "name": "web"}]}),
        pod({"name": "a", "ports": [{"containerPort": 80, "name": "http"}, {"containerPort": 81}]}),
        pod({"name": "a", "ports": [{"containerPort": 80, "name": "http"}, {"containerPort": 81}]}),
    ),
    "nodes: conditions merge by type": (
        NODE,
        {"status": {"conditions": [{"type": "Ready", "status": "False"}, {"type": "Disk", "status": "False"}]}},
        {"status": {"conditions": [{"type": "Ready", "status": "True"}]}},
        {"status": {"conditions": [{"type": "Ready", "status": "True"}, {"type": "Disk", "status": "False"}]}},
    ),
    "claims: reservedFor merges by uid": (
        CLAIM,
        {"status": {"reservedFor": [{"uid": "1", "name": "a"}]}},
        {"status": {"reservedFor": [{"uid": "2", "name": "b"}]}},
        {"status": {"reservedFor": [{"uid": "2", "name": "b"}, {"uid": "1", "name": "a"}]}},
    ),
    "claims: requests are replaced": (
        CLAIM,
        {"spec": {"devices": {"requests": [{"name": "a"}]}}},
        {"spec": {"devices": {"requests": [{"name": "b"}]}}},
        {"spec": {"devices": {"requests": [{"name": "b"}]}}},
    ),
    "a new list is taken as it is, also where its merge key is not unique": (
        ("", "v1", "Service"),
        {"spec": {}},
        {"spec": {"ports": [{"port": 53, "protocol": "TCP"}, {"port": 53, "protocol": "UDP"}]}},
        {"spec": {"ports": [{"port": 53, "protocol": "TCP"}, {"port": 53, "protocol": "UDP"}]}},
    ),
    "deleting what is not there leaves nothing behind": (
        POD,
        {"metadata": {}},
        {"metadata": {"labels": {"$patch": "delete", "a": "1"}}},
        {"metadata": {}},
    ),
    "a field with the strategy replace is replaced": (
        ("policy", "v1", "PodDisruptionBudget"),
        {"spec": {"selector": {"matchLabels": {"a": "1"}}}},
        {"spec": {"selector": {"matchLabels": {"b": "2"}}}},
        {"spec": {"selector": {"matchLabels": {"b": "2"}}}},
    ),
    "directives inside new items are obeyed and gone": (
        POD,
        pod(),
        pod({"name": "a", "env": [{"name": "X", "$patch": "delete"}, {"name": "Y", "value": "1"}]}),
        pod({"name": "a", "env": [{"name": "Y", "value": "1"}]}),
    ),
    "a field the schema does not know merges by name": (
        POD,
        {"spec": {"unknown": {"a": 1}}},
        {"spec": {"unknown": {"b": 2}}},
        {"spec": {"unknown": {"a": 1, "b": 2}}},
    ),
}


@pytest.mark.parametrize("sentence", STRATEGIC)
def test_strategic_merge_patch(sentence):
    gvk, live, patch, expected = STRATEGIC[sentence]
    before = copy.deepcopy((live, patch))
    assert strategic_patch(live, patch, gvk) == expected
    assert (live, patch) == before


STRATEGIC_FAILURES: dict[str, tuple[Any, Any, Any, bool, str]] = {
    "a kind without schema": (("example.com", "v1", "Thing"), {}, {}, True, "no strategic merge patch for Thing"),
    "no object": (POD, {}, [], True, "is an object"),
    "an unknown directive": (POD, {}, {"$patch": "frob"}, True, "patch: $patch must be"),
    "an unknown directive deep down": (POD, {"spec": {}}, {"spec": {"$patch": "frob"}}, True, "spec: $patch must be"),
    "an item without its merge key": (
        POD,
        pod(),
        pod({"image": "1"}),
        False,
        "spec.containers: an item has no merge key",
    ),
    "a deletion without its merge key": (POD, pod(), pod({"$patch": "delete"}), False, "no merge key name"),
    "an item that is not an object": (POD, pod(), pod("text"), False, "items must be objects"),
    "retained keys that miss a member": (
        DEPLOYMENT,
        {"spec": {"strategy": {}}},
        {"spec": {"strategy": {"$retainKeys": ["type"], "rollingUpdate": {}}}},
        True,
        "rollingUpdate is missing",
    ),
    "an order that is no list": (POD, pod(), {"spec": {"$setElementOrder/containers": "x"}}, True, "must be a list"),
    "removing objects as scalars": (
        POD,
        {"metadata": {"finalizers": ["a"]}},
        {"metadata": {"$deleteFromPrimitiveList/finalizers": [{}]}},
        True,
        "list of scalars",
    ),
}


@pytest.mark.parametrize("sentence", STRATEGIC_FAILURES)
def test_strategic_merge_patches_that_cannot_be_applied(sentence):
    gvk, live, patch, malformed, says = STRATEGIC_FAILURES[sentence]
    with pytest.raises(PatchFailed) as failed:
        strategic_patch(live, patch, gvk)
    assert says in str(failed.value)
    assert failed.value.malformed == malformed
