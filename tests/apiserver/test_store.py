"""Does the store number, keep and tell what happened?"""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dragoman.api.kinds import BY_NAME
from dragoman.apiserver.fields import fields_of
from dragoman.apiserver.selectors import parse_fields, parse_labels
from dragoman.apiserver.status import StatusError
from dragoman.apiserver.store import RING_EVENTS_OF, WATCHER_EVENTS, Selection, Store, StoredObject
from dragoman.testing.build import pod

POD, LEASE, NODE = BY_NAME["Pod"], BY_NAME["Lease"], BY_NAME["Node"]


def new_store() -> Store:
    return Store(fields_of)


def put(store: Store, obj: dict[str, Any]) -> StoredObject:
    meta = obj["metadata"]
    return store.put(POD, obj, store.get(POD, meta["namespace"], meta["name"]))


def test_versions_have_no_gaps() -> None:
    store = new_store()
    versions = [put(store, pod(name)).version for name in "aba"]
    record = store.get(POD, "default", "a")
    assert record is not None
    versions.append(store.remove(record).version)
    assert versions == [1, 2, 3, 4]
    assert record.decode()["metadata"]["resourceVersion"] == "3"


def test_a_list_is_ordered_and_bounded_by_namespace() -> None:
    store = new_store()
    for namespace, name in (("b", "x"), ("a", "z"), ("a", "y"), ("ab", "y")):
        put(store, pod(name, namespace=namespace))
    assert [(r.namespace, r.name) for r in store.select(POD)] == [("a", "y"), ("a", "z"), ("ab", "y"), ("b", "x")]
    assert [r.name for r in store.select(POD, Selection("a"))] == ["y", "z"]


SELECTIONS = {
    "everything": Selection(),
    "one namespace": Selection("default"),
    "one node": Selection(fields=parse_fields("spec.nodeName=n1")),
    "no node": Selection(fields=parse_fields("spec.nodeName=")),
    "not a node": Selection(fields=parse_fields("spec.nodeName!=n1")),
    "one name": Selection("default", fields=parse_fields("metadata.name=a")),
    "a label": Selection(labels=parse_labels("app in (x,y),!gone")),
    "a node and a label": Selection(labels=parse_labels("app=x"), fields=parse_fields("spec.nodeName=n1")),
}
Steps = st.lists(
    st.tuples(
        st.sampled_from("abc"), st.sampled_from(["default", "other"]), st.sampled_from(["", "n1", "n2"]),
        st.sampled_from(["", "x", "z"]), st.booleans(),
    ),
    max_size=30,
)  # fmt: skip


@pytest.mark.parametrize("selection", SELECTIONS.values(), ids=SELECTIONS)
@given(steps=Steps, cut=st.integers(0, 30))
@settings(max_examples=40, deadline=None)
def test_who_lists_and_watches_sees_what_is_stored(selection: Selection, steps: list[Any], cut: int) -> None:
    store = new_store()
    mirror: dict[tuple[str, str], bytes] = {}
    watcher = None
    for at, (name, namespace, node, app, delete) in enumerate(steps):
        if at == cut:
            mirror = {(r.namespace, r.name): r.body for r in store.select(POD, selection)}
            watcher = store.watch(POD, selection, store.version)
        old = store.get(POD, namespace, name)
        if delete and old:
            store.remove(old)
        else:
            store.put(
                POD,
                pod(name, namespace=namespace, nodeName=node, metadata={"labels": {"app": app} if app else {}}),
                old,
            )
    if watcher is None:
        return
    for seen in watcher.take():
        key = (seen.record.namespace, seen.record.name)
        assert (seen.type == "ADDED") == (key not in mirror)
        if seen.type == "DELETED":
            del mirror[key]
        else:
            mirror[key] = seen.record.body
    assert mirror == {(r.namespace, r.name): r.body for r in store.select(POD, selection)}


@given(steps=Steps)
@settings(max_examples=40, deadline=None)
def test_a_late_watch_sees_the_same_as_an_early_one(steps: list[Any]) -> None:
    store = new_store()
    early = store.watch(POD, Selection(), 0)
    for name, namespace, node, _, delete in steps:
        old = store.get(POD, namespace, name)
        if delete and old:
            store.remove(old)
        else:
            store.put(POD, pod(name, namespace=namespace, nodeName=node), old)
    late = store.watch(POD, Selection(), 0)
    assert late.take() == early.take()


def test_only_watchers_who_may_care_are_woken() -> None:
    store = new_store()
    woken: list[str] = []
    for node in ("n1", "n2"):
        watcher = store.watch(POD, Selection(fields=parse_fields(f"spec.nodeName={node}")), None)
        watcher.wake = lambda node=node: woken.append(node)
    put(store, pod("a", nodeName="n1"))
    assert woken == ["n1"]
    put(store, pod("a", nodeName="n2"))
    assert sorted(woken) == ["n1", "n1", "n2"], "the node it leaves is told as well"


def test_history_that_is_gone_is_410_and_the_future_504() -> None:
    store = new_store()
    limit = RING_EVENTS_OF["leases"]
    lease = {"metadata": {"name": "l", "namespace": "d"}}
    for _ in range(limit + 2):
        store.put(LEASE, lease, store.get(LEASE, "d", "l"))
    with pytest.raises(StatusError) as gone:
        store.watch(LEASE, Selection(), 1)
    assert (gone.value.code, gone.value.reason) == (410, "Expired")
    assert len(store.watch(LEASE, Selection(), 2).take(10_000)) == limit
    assert store.watch(NODE, Selection(), 1).take() == [], "another kind's history is not touched"
    with pytest.raises(StatusError) as future:
        store.watch(NODE, Selection(), store.version + 1)
    assert future.value.code == 504


def test_a_watcher_that_is_too_slow_is_dropped() -> None:
    store = new_store()
    watcher = store.watch(POD, Selection(), None)
    for _ in range(WATCHER_EVENTS + 1):
        put(store, pod("a"))
    assert watcher.lost
    assert watcher.take() == []
    assert not store.shelf(POD).lanes, "it holds no place"


LABELS = {
    "equality": ("a=b", {"a": "b"}, {"a": "c"}),
    "double equality": ("a==b", {"a": "b"}, {}),
    "inequality": ("a!=b", {}, {"a": "b"}),
    "set": ("a in (b, c)", {"a": "c"}, {"a": "d"}),
    "not in set": ("a notin (b,c)", {"x": "c"}, {"a": "b"}),
    "exists": ("x.example.com/a", {"x.example.com/a": ""}, {"a": ""}),
    "absent": ("!a", {"b": ""}, {"a": ""}),
    "greater": ("a>5", {"a": "6"}, {"a": "5"}),
    "less": ("a<5", {"a": "4"}, {"a": "x"}),
    "both": ("a=b,c", {"a": "b", "c": "1"}, {"a": "b"}),
    "empty value": ("a=", {"a": ""}, {"a": "b"}),
}


@pytest.mark.parametrize(("text", "yes", "no"), LABELS.values(), ids=LABELS)
def test_label_selectors(text: str, yes: dict[str, str], no: dict[str, str]) -> None:
    wanted = parse_labels(text)
    assert all(requirement.accepts(yes) for requirement in wanted)
    assert not all(requirement.accepts(no) for requirement in wanted)


@pytest.mark.parametrize("text", ["a in b", "a in (b", "=b", "a b", "!", "a=b,,"])
def test_malformed_label_selectors_are_refused(text: str) -> None:
    with pytest.raises(StatusError) as refused:
        parse_labels(text)
    assert refused.value.code == 400


def test_field_selectors_with_escapes_and_empty_values() -> None:
    terms = parse_fields(r"a=x\,y,b!=,c==d\=e")
    assert [(t.key, t.value, t.equal) for t in terms] == [("a", "x,y", True), ("b", "", False), ("c", "d=e", True)]
