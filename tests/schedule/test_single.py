"""One pod: what it would get on a given node, how nodes score for it, which refuse it, and which claim it gives up."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import count
from typing import Any

from dragoman.effects import Patch
from dragoman.schedule.placement import NoFit, PlacementCache, ScheduleResult
from dragoman.schedule.refusal import ClaimInFlight, SchedulingGated
from dragoman.schedule.single import PodOutcome, place_on, place_pod, refusing_nodes, scores_of, wait_of
from dragoman.schedule.units import SchedulingContext
from dragoman.snapshot.change import Snapshot
from dragoman.testing.build import allocated, claim, device_class, gpus, node, pod, snapshot_of

NOW = datetime(2026, 1, 1, 12, 0, tzinfo=UTC)
GPU = device_class()


def context(**changes: Any) -> SchedulingContext:
    numbers = count()
    return SchedulingContext(new_id=lambda: f"{next(numbers):08d}-0000-4000-8000-000000000000", **changes)


def outcome(snapshot: Snapshot, name: str = "p", **changes: Any) -> PodOutcome:
    return place_pod(snapshot, snapshot.pods["default", name], NOW, context(**changes), PlacementCache())


def test_the_node_that_is_asked_for_is_the_only_one_that_counts() -> None:
    snapshot = snapshot_of(node("a"), node("b"), gpus("b", 1), GPU, claim("c"), pod("p", "c"))
    mine = snapshot.pods["default", "p"]
    there = place_on(snapshot, mine, "b", context())
    assert isinstance(there, ScheduleResult)
    assert [r.device for result in there.results for r in result.devices.results] == ["gpu-0"]
    here = place_on(snapshot, mine, "a", context())
    assert isinstance(here, NoFit)
    why = {name: {type(reason).__name__ for reason in some.reasons} for some in here.nodes for name in some.nodes}
    assert why == {"a": {"InsufficientDevices"}, "b": {"NodeAffinityMismatch"}}
    pinned = snapshot_of(node("a"), node("b"), pod("p", affinity=only("a")))
    assert isinstance(place_on(pinned, pinned.pods["default", "p"], "b", context()), NoFit)


def only(name: str) -> dict[str, Any]:
    terms = [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": [name]}]}]
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}}


def test_scores_are_of_nodes_that_can_take_the_pod_and_the_emptier_one_has_more() -> None:
    nodes = [node(name, cpu="4", memory="8Gi") for name in ("a", "b", "small")]
    nodes[2]["status"]["allocatable"]["cpu"] = "1"
    snapshot = snapshot_of(*nodes, pod("r", cpu="2", nodeName="a"), pod("p", cpu="2"))
    scores = scores_of(snapshot, snapshot.pods["default", "p"], context())
    assert sorted(scores) == ["a", "b"]
    assert scores["b"] > scores["a"]


def test_nodes_that_refuse_for_one_reason_stand_together_wherever_the_pod_fits() -> None:
    snapshot = snapshot_of(*(node(n) for n in "abc"), gpus("c", 1), GPU, claim("c"), pod("p", "c"))
    (refusing,) = refusing_nodes(snapshot, snapshot.pods["default", "p"], context())
    assert refusing.nodes == ("a", "b")


def test_a_gate_or_a_claim_that_is_being_written_ends_it_before_any_node_is_looked_at() -> None:
    gated = outcome(snapshot_of(node("a"), pod("p", schedulingGates=[{"name": "x/y"}])))
    assert gated.refused is not None
    assert gated.refused.reasons == (SchedulingGated(("x/y",)),)
    busy = outcome(snapshot_of(node("a"), gpus("a", 1), GPU, claim("c"), pod("p", "c")), in_flight={("default", "c")})
    assert busy.refused is not None
    (reason,) = busy.refused.reasons
    assert isinstance(reason, ClaimInFlight)
    assert not busy.writes


def elsewhere(*users: str) -> Snapshot:
    """A pod that must run on b with a claim whose device is on a."""
    held = allocated("c", "gpu-0", pool="a", pods=users)
    held["status"]["allocation"]["nodeSelector"] = {
        "nodeSelectorTerms": [
            {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["a"]}]},
        ]
    }
    objects = [node("a"), node("b"), gpus("a", 1), gpus("b", 1), GPU, held]
    return snapshot_of(*objects, pod("p", "c", affinity=only("b")), pod("other"))


def test_a_claim_that_nobody_else_uses_is_given_up_where_it_is_in_the_way() -> None:
    for users in ((), ("p",)):
        gives = outcome(elsewhere(*users))
        assert gives.refused is not None
        assert gives.refused.released == "c"
        (write,) = gives.writes
        assert isinstance(write, Patch)
        assert write.patch["status"]["allocation"] is None
        assert write.ref.uid == "uid-c"
    kept = outcome(elsewhere("other"))
    assert kept.refused is not None
    assert (kept.refused.released, kept.writes) == ("", ())


def test_a_pod_waits_for_the_first_of_its_deadlines() -> None:
    def binding(name: str, minutes: int, *conditions: str) -> dict[str, Any]:
        made = allocated(name, "gpu-0", pool="a", bindingConditions=list(conditions))
        at = (NOW - timedelta(minutes=minutes)).isoformat().replace("+00:00", "Z")
        made["status"]["allocation"]["allocationTimestamp"] = at
        return made

    snapshot = snapshot_of(binding("early", 5, "Ready"), binding("late", 1, "Ready"), binding("none", 9))
    claims = [snapshot.claims["default", name] for name in ("late", "early", "none")]
    wait = wait_of(("default", "p"), "a", claims, NOW, context(binding_timeout_s=600))
    assert wait is not None
    assert wait.deadline == NOW + timedelta(minutes=5)
    assert [name for _, name in wait.claims] == ["late", "early", "none"]
    assert wait_of(("default", "p"), "a", claims[2:], NOW, context()) is None
