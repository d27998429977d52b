"""Groups of alike nodes: kept by changes, they are what a fresh look gives."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from dragoman.schedule.equivalence import NodeEquivalence
from dragoman.schedule.filter import NodeProjection
from dragoman.snapshot.change import Change, Gone, Put, Snapshot, apply_all
from dragoman.testing.build import node, pod, snapshot_of, typed

BLIND = NodeProjection((), False)


def parts(equivalent: NodeEquivalence, snapshot: Snapshot, projection: NodeProjection = BLIND) -> set[frozenset[str]]:
    return {frozenset(group.members) for group in equivalent.groups(snapshot, projection)}


def test_nodes_that_offer_the_same_and_are_used_the_same_are_one_group() -> None:
    snapshot = snapshot_of(
        node("a", cpu="2"), node("b", cpu="2000m"), node("c", cpu="3"), node("d"), pod("p", cpu="1", nodeName="b")
    )
    assert parts(NodeEquivalence(), snapshot) == {frozenset("a"), frozenset("b"), frozenset("c"), frozenset("d")}
    assert parts(NodeEquivalence(), snapshot_of(node("a", cpu="2"), node("b", cpu="2000m"))) == {frozenset("ab")}


def test_labels_matter_only_if_seen_and_taints_always() -> None:
    snapshot = snapshot_of(
        node("a", labels={"zone": "1"}), node("b", labels={"zone": "2"}), node("c", taints=["x=y:NoSchedule"])
    )
    assert parts(NodeEquivalence(), snapshot) == {frozenset("ab"), frozenset("c")}
    assert parts(NodeEquivalence(), snapshot, NodeProjection(("zone",), False)) == {
        frozenset("a"),
        frozenset("b"),
        frozenset("c"),
    }
    assert len(parts(NodeEquivalence(), snapshot, NodeProjection((), True))) == 3


def test_the_first_of_a_group_is_its_smallest_name_also_among_some() -> None:
    equivalent = NodeEquivalence()
    before = snapshot_of(*[node(f"n{i}") for i in range(5)])
    (group,) = equivalent.groups(before, BLIND)
    assert group.first() == "n0"
    assert group.first_of(["m", "n3", "n4"]) == "n3"
    assert group.first_of(["n3", "n4"], "n3") is None
    assert group.first_of(sorted([f"m{i:03d}" for i in range(200)] + ["n2", "n4"])) == "n2"
    assert group.first_of(sorted([f"m{i:03d}" for i in range(200)] + ["n2", "n4"]), "n2") is None
    assert group.first_of(["x"] * 200) is None
    changes = [Gone("Node", "", "n0")]
    after = apply_all(before, changes)
    (group,) = equivalent.groups(after, BLIND)
    assert group.first() == "n1"


def _change(draw_node: str, what: int, amount: int) -> list[Change]:
    made: list[dict[str, Any]] = [
        node(draw_node, cpu=str(amount)),
        node(draw_node, labels={"zone": str(amount)}),
        pod(f"p{amount}", cpu="1", nodeName=draw_node),
        pod(f"p{amount}", cpu="1", nodeName=draw_node, status={"phase": "Succeeded"}),
    ]
    if what < len(made):
        return [Put(made[what]["kind"], typed(made[what]))]
    return [Gone("Node", "", draw_node)] if what == 4 else [Gone("Pod", "default", f"p{amount}")]


@given(
    st.lists(
        st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 5), st.integers(1, 3)), min_size=1, max_size=3),
        max_size=12,
    )
)
def test_following_changes_gives_what_a_fresh_look_gives(batches: list[list[tuple[str, int, int]]]) -> None:
    equivalent = NodeEquivalence()
    projections = (BLIND, NodeProjection(("zone",), False))
    snapshot = snapshot_of(node("a"), node("b"))
    for projection in projections:
        equivalent.groups(snapshot, projection)
    for batch in batches:
        changes = [change for step in batch for change in _change(*step)]
        after = apply_all(snapshot, changes)
        snapshot = after
        for projection in projections:
            assert parts(equivalent, snapshot, projection) == parts(NodeEquivalence(), snapshot, projection)


def test_another_line_of_snapshots_is_noticed() -> None:
    equivalent = NodeEquivalence()
    assert parts(equivalent, snapshot_of(node("a"))) == {frozenset("a")}
    assert parts(equivalent, snapshot_of(node("b"))) == {frozenset("b")}
