"""Laws of field sets and of server-side apply, on generated objects."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dragoman.apiserver import fieldset
from dragoman.apiserver.apply import apply, track
from dragoman.apiserver.fieldset import difference, intersection, paths, union
from dragoman.apiserver.fieldwalk import compare, everything, merge, owned, without
from dragoman.apiserver.shape import shape_of

pytestmark = pytest.mark.slow

POD = ("", "v1", "Pod")
SHAPE = shape_of(POD)
assert SHAPE is not None

# ---- sets

steps = st.sampled_from(["f:a", "f:b", 'k:{"n":1}', 'v:"x"'])
path_sets = st.frozensets(st.lists(steps, min_size=1, max_size=4).map(tuple), max_size=8)


def trie(members: frozenset[tuple[str, ...]]) -> Any:
    out: dict[str, Any] = {}
    for path in members:
        one: dict[str, Any] = {}
        for step in reversed(path):
            one = {step: one}
        out = union(out, one)
    return out


def as_set(fields: Any) -> frozenset[tuple[str, ...]]:
    return frozenset(paths(fields))


@given(path_sets, path_sets)
def test_field_sets_are_sets_of_paths(a, b):
    left, right = trie(a), trie(b)
    before = copy.deepcopy((left, right))
    assert as_set(left) == a
    assert as_set(union(left, right)) == a | b
    assert as_set(difference(left, right)) == a - b
    assert as_set(intersection(left, right)) == a & b
    assert (left, right) == before
    assert all(fieldset.contains(left, path) == (path in a) for path in a | b)


@given(path_sets, path_sets)
def test_equal_sets_have_one_form_up_to_order(a, b):
    assert union(difference(trie(a), trie(b)), intersection(trie(a), trie(b))) == trie(a)


@given(path_sets, st.lists(steps, min_size=1, max_size=3).map(tuple))
def test_cut_removes_a_path_and_all_below(members, path):
    left = as_set(fieldset.cut(trie(members), path))
    assert left == {member for member in members if member[: len(path)] != path}


few = settings(max_examples=60)  # objects are slow to draw

# ---- objects: few names and values, so that managers meet

names = st.sampled_from(["a", "b", "c"])
values = st.sampled_from(["1", "2"])


def some(**members: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.fixed_dictionaries({}, optional=members)


def keyed(key: str, keys: st.SearchStrategy[Any], **members: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    item = st.fixed_dictionaries({key: keys}, optional=members)
    return st.lists(item, min_size=1, max_size=3, unique_by=lambda entry: entry[key])


maps = st.dictionaries(names, values, min_size=1, max_size=2)
env = keyed("name", names, value=values)
ports = keyed("containerPort", st.sampled_from([80, 81]), protocol=st.just("UDP"), name=values)
containers = keyed("name", names, image=values, env=env, ports=ports, args=st.lists(values, min_size=1, max_size=2))
metadata = some(labels=maps, finalizers=st.lists(names, min_size=1, max_size=2, unique=True))
spec = some(containers=containers, nodeSelector=maps, paused=st.just(True), hostNetwork=st.booleans())


@st.composite
def pods(draw) -> Any:
    out: dict[str, Any] = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", **draw(metadata)}}
    body = draw(spec)
    body.pop("paused", None)
    if body:
        out["spec"] = body
    return out


def ssa(live, config, manager, now="2026-01-01T00:00:00Z"):
    return apply(live, config, manager, True, POD, "", now)


def bare(obj: Any) -> Any:
    out = copy.deepcopy(obj)
    out["metadata"].pop("managedFields", None)
    return unordered(out)


def unordered(value: Any) -> Any:
    """Granular lists without their order: it depends on who came first."""
    if isinstance(value, dict):
        return {
            name: sorted(map(unordered, entry), key=lambda item: json.dumps(item, sort_keys=True))
            if name in ("containers", "env", "ports", "finalizers")
            else unordered(entry)
            for name, entry in value.items()
        }
    return value


def claimed(obj: Any) -> frozenset[tuple[str, ...]]:
    out: set[tuple[str, ...]] = set()
    for entry in obj["metadata"].get("managedFields", []):
        out |= as_set(entry["fieldsV1"])
    return frozenset(out)


def present(obj: Any) -> frozenset[tuple[str, ...]]:
    identity = {("f:apiVersion",), ("f:kind",), ("f:metadata", "f:name")}
    return as_set(owned(SHAPE, bare(obj))) - identity


@given(pods())
@few
def test_a_first_apply_makes_exactly_the_configuration_and_owns_it(config):
    made = ssa(None, config, "one")
    assert bare(made) == unordered(config)
    assert claimed(made) == present(made)


@given(pods(), pods())
@few
def test_applying_twice_is_applying_once(first, second):
    live = ssa(ssa(None, first, "one"), second, "two")
    assert ssa(live, second, "two", now="2027-01-01T00:00:00Z") == live


@given(pods(), pods())
@few
def test_a_sole_manager_gets_what_it_applied_last(first, second):
    assert bare(ssa(ssa(None, first, "one"), second, "one")) == unordered(second)


writes = st.lists(st.tuples(st.sampled_from(["one", "two", "three"]), pods()), min_size=1, max_size=6)


@given(writes)
@few
def test_every_field_has_an_owner_and_every_owner_its_fields(history):
    live = None
    for manager, config in history:
        before = copy.deepcopy((live, config))
        now = ssa(live, config, manager)
        assert (live, config) == before
        live = now
        assert claimed(live) == present(live)
        # What a configuration names is there, with its values.
        assert bare(merge(SHAPE, live, config)) == bare(live)
    assert live is not None


@given(pods(), pods())
@few
def test_comparison_says_what_leads_from_one_object_to_the_other(old, new):
    change = compare(SHAPE, old, new)
    added, removed, modified = as_set(change.added), as_set(change.removed), as_set(change.modified)
    have, get = present(old), present(new)
    assert get - have <= added
    assert have - get <= removed
    assert modified <= have & get
    back = compare(SHAPE, new, old)
    assert (as_set(back.added), as_set(back.removed), as_set(back.modified)) == (removed, added, modified)


@given(pods(), pods())
@few
def test_tracked_fields_are_the_fields_of_the_object(first, second):
    # An object whose managers own nothing is not tracked any more, so there is always one label.
    first["metadata"].setdefault("labels", {})["z"] = "1"
    second["metadata"].setdefault("labels", {})["z"] = "1"
    made = track(None, first, "maker", "Update", POD, "", "2026-01-01T00:00:00Z")
    after = track(made, second, "editor", "Update", POD, "", "2026-01-02T00:00:00Z")
    assert present(second) <= claimed(after)
    assert claimed(after) <= as_set(everything(SHAPE, second))
    owners = [as_set(entry["fieldsV1"]) for entry in after["metadata"].get("managedFields", [])]
    assert all(not (a & b) for a in owners for b in owners if a is not b)


@given(pods())
@few
def test_an_object_without_all_it_owns_has_only_its_identity(config):
    fields = owned(SHAPE, config)
    for path in (("f:apiVersion",), ("f:kind",), ("f:metadata", "f:name")):
        fields = fieldset.cut(fields, path)
    left = without(SHAPE, config, fields)
    assert left == {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}}
