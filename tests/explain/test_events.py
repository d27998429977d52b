"""What is written to tell people: the pod's condition and an event, once for each change of the reason."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from dragoman.allocate.refusal import ClassNotFound
from dragoman.api import codec
from dragoman.api.core import PodGroup
from dragoman.effects import Emit, Patch
from dragoman.explain.events import group_effects, is_passing, placed_effect, refusal_effects, wait_effect
from dragoman.schedule import refusal
from dragoman.schedule.decision import Placement, Refused, Wait
from dragoman.testing.build import pod, typed

NOW = datetime(2026, 1, 1, 12, 0, tzinfo=UTC)
MISSING = Refused(("default", "p"), "uid-p", (ClassNotFound(claim="default/c", request="r", class_name="gpu"),), (), 2)
TEXT = "0/2 nodes are available: request r: device class gpu does not exist."


def test_a_refused_pod_has_a_condition_and_an_event_with_the_same_words() -> None:
    condition, event = refusal_effects(typed(pod("p")), MISSING, NOW, "default-scheduler")
    assert isinstance(condition, Patch)
    assert (condition.ref.uid, condition.type, condition.subresource) == ("uid-p", "strategic", "status")
    assert condition.patch["status"]["conditions"] == [
        {
            "type": "PodScheduled",
            "status": "False",
            "reason": "Unschedulable",
            "message": TEXT,
            "lastTransitionTime": "2026-01-01T12:00:00Z",
        }
    ]
    assert isinstance(event, Emit)
    assert (event.type, event.reason, event.message) == ("Warning", "FailedScheduling", TEXT)


def test_a_condition_that_says_so_already_is_not_written_again_and_its_transition_is_kept() -> None:
    said = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": TEXT}
    known = typed(pod("p", status={"conditions": [said | {"lastTransitionTime": "2026-01-01T11:00:00Z"}]}))
    assert [type(effect) for effect in refusal_effects(known, MISSING, NOW, "s")] == [Emit]
    other = typed(
        pod("p", status={"conditions": [said | {"message": "x", "lastTransitionTime": "2026-01-01T11:00:00Z"}]})
    )
    condition, _ = refusal_effects(other, MISSING, NOW, "s")
    assert isinstance(condition, Patch)
    assert condition.patch["status"]["conditions"][0]["lastTransitionTime"] == "2026-01-01T11:00:00Z"


def test_a_gated_pod_is_no_failure() -> None:
    gated = Refused(("default", "p"), "uid-p", (refusal.SchedulingGated(("quota",)),), (), 2)
    (condition,) = refusal_effects(typed(pod("p")), gated, NOW, "s")
    assert isinstance(condition, Patch)
    assert condition.patch["status"]["conditions"][0]["reason"] == "SchedulingGated"


def test_only_reasons_that_go_away_by_themselves_are_passing() -> None:
    def refused(*reasons: refusal.PodReason) -> Refused:
        return Refused(("default", "p"), "u", reasons, (), 1)

    assert is_passing(refused(refusal.ClaimInFlight("c")))
    assert is_passing(refused(refusal.ClaimNotCreated("e", "t", True)))
    assert not is_passing(refused(refusal.ClaimNotCreated("e", "t", False)))
    assert not is_passing(refused(refusal.ClaimNotFound("e", "c")))
    assert not is_passing(refused())


def test_placed_and_pending_pods_are_reported_as_upstream_does() -> None:
    placed = placed_effect(Placement(("default", "p"), "u", "node-a"), "s")
    assert (placed.type, placed.reason, placed.message) == (
        "Normal",
        "Scheduled",
        "Successfully assigned default/p to node-a",
    )
    waits = wait_effect(Wait(("default", "p"), "node-a", (), NOW + timedelta(minutes=10)), "u", "s")
    assert waits.reason == "BindingConditionsPending"
    assert waits.message == "waiting for binding conditions for device on node node-a"


def test_a_group_that_was_scheduled_once_stays_so() -> None:
    def group(*conditions: dict[str, str]) -> PodGroup:
        meta = {"name": "g", "namespace": "default", "uid": "u", "generation": 3}
        return codec.decode(PodGroup, {"metadata": meta, "status": {"conditions": list(conditions)}})

    (written,) = group_effects(group(), "Unschedulable", "no", NOW)
    assert isinstance(written, Patch)
    condition = written.patch["status"]["conditions"][0]
    assert (condition["type"], condition["status"], condition["observedGeneration"]) == (
        "PodGroupInitiallyScheduled",
        "False",
        3,
    )
    refused = {**condition, "lastTransitionTime": "2026-01-01T11:00:00Z"}
    assert group_effects(group(refused), "Unschedulable", "no", NOW) == ()
    (again,) = group_effects(group(refused), "Unschedulable", "still no", NOW)
    assert isinstance(again, Patch)
    assert again.patch["status"]["conditions"][0]["lastTransitionTime"] == "2026-01-01T11:00:00Z"
    (placed,) = group_effects(group(refused), "Scheduled", "", NOW)
    assert isinstance(placed, Patch)
    done = placed.patch["status"]["conditions"][0]
    assert (done["status"], done["lastTransitionTime"]) == ("True", "2026-01-01T12:00:00Z")
    assert group_effects(group(done), "Unschedulable", "no", NOW) == ()
