"""Scores: upstream's numbers for small examples."""

from __future__ import annotations

from dragoman.schedule.needs import NANOS
from dragoman.schedule.score import Raw, alternative_score, resource_score, static_scores, totals
from dragoman.snapshot.usage import ASSUMED, assumed_extra
from dragoman.testing.build import node, pod, typed
from dragoman.values.quantity import Quantity

TEN = {"cpu": Quantity.parse("10"), "memory": Quantity.parse("10Gi")}
GIB = 2**30 * NANOS


def test_an_emptier_node_scores_higher() -> None:
    asked = {"cpu": NANOS, "memory": GIB}
    empty = resource_score(asked, {}, TEN, {}, {})
    # 9 of 10 left of both: 90; as even as it was before: 75.
    assert empty == 165
    assert resource_score(asked, {}, TEN, {"cpu": 4 * NANOS, "memory": 4 * GIB}, {}) == 125


def test_balance_is_what_the_pod_changes_of_it() -> None:
    # cpu 5/10, memory 1/10: std is half the distance, 0.2, and was 0; least allocated (50 + 90) / 2.
    assert resource_score({"cpu": 5 * NANOS, "memory": GIB}, {}, TEN, {}, {}) == 70 + 65
    # The other way round: cpu 5/10 was used, memory comes to the same: from 75 to 100; least 50.
    used = {"cpu": 4 * NANOS, "memory": 0}
    assert resource_score({"cpu": NANOS, "memory": 5 * GIB}, {}, TEN, used, {}) == 50 + 85


def test_a_pod_that_asks_for_nothing_counts_as_a_small_one_and_not_for_balance() -> None:
    silent = typed(pod("p"))
    assert assumed_extra(silent) == ASSUMED
    # cpu (10 - 0.1) / 10 = 99, memory (10240 - 200) / 10240 = 98: mean 98
    assert resource_score({}, assumed_extra(silent), TEN, {}, {}) == 98


def test_a_node_without_the_resource_counts_nothing() -> None:
    assert resource_score({"cpu": NANOS}, {}, None, {}, {}) == 0
    assert resource_score({"cpu": NANOS}, {}, {}, {}, {}) == 0


def test_alternatives_score_eight_for_the_first() -> None:
    assert alternative_score([0, 1]) == 15
    assert alternative_score([1, 1]) == 14


def test_scores_are_brought_to_one_scale_among_the_nodes_that_compete() -> None:
    # The worked example of prioritized lists: 15 and 14 become 100 and 93, weight 2; no taints: 300 each.
    assert totals([Raw(0, devices=15), Raw(0, devices=14)]) == [500, 486]
    assert totals([Raw(0, taints=2), Raw(0, taints=1), Raw(0)]) == [0, 150, 300]
    assert totals([Raw(10, affinity=50), Raw(0, affinity=10)]) == [510, 340]


def test_preferred_affinity_and_soft_taints() -> None:
    prefer = [
        {"weight": 30, "preference": {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]}},
        {"weight": 5, "preference": {"matchExpressions": [{"key": "disk", "operator": "Exists"}]}},
    ]
    pod_info = typed(pod("p", affinity={"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": prefer}}))
    device_state = typed(node("n", labels={"zone": "a"}, taints=["slow=1:PreferNoSchedule", "x=1:NoSchedule"]))
    assert static_scores(pod_info.spec, device_state) == (30, 1)
