"""Queue: order, back-off, wake-ups, and that its table is the whole truth about states."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragoman.schedule.queue import TABLE, Queue, QueueLimits, UnitEvent, UnitState


def key(name: str) -> tuple[str, str, str]:
    return ("Pod", "default", name)


def taken(queue: Queue, now: float) -> list[str]:
    found = []
    while (entry := queue.take(now)) is not None:
        found.append(entry.key[2])
    return found


def test_higher_priority_goes_first_then_arrival() -> None:
    queue = Queue()
    for name, priority in (("a", 0), ("b", 5), ("c", 0), ("d", 5)):
        queue.add(key(name), priority, 0.0)
    assert taken(queue, 0.0) == ["b", "d", "a", "c"]


def test_a_changed_priority_counts_and_does_not_duplicate() -> None:
    queue = Queue()
    queue.add(key("a"), 0, 0.0)
    queue.add(key("b"), 0, 0.0)
    queue.add(key("b"), 9, 0.0)
    assert taken(queue, 0.0) == ["b", "a"]


def test_back_off_doubles_from_one_to_ten_seconds_and_a_refusal_starts_it_again() -> None:
    queue = Queue()
    queue.add(key("a"), 0, 0.0)
    now, waits = 0.0, []
    for _ in range(6):
        assert queue.take(now) is not None
        queue.failed(key("a"), now)
        due = queue.next_due()
        assert due is not None
        assert queue.take(due - 0.001) is None
        waits.append(due - now)
        now = due
    assert waits == [1, 2, 4, 8, 10, 10]
    assert queue.take(now) is not None
    queue.refused(key("a"), [("x",)], now)
    queue.wake([("x",)], now)
    assert queue.take(now) is not None
    queue.failed(key("a"), now)
    assert queue.next_due() == now + 1


def test_a_wait_the_server_asked_for_is_kept() -> None:
    queue = Queue()
    queue.add(key("a"), 0, 0.0)
    queue.take(0.0)
    queue.failed(key("a"), 0.0, after_s=30.0)
    assert queue.take(29.9) is None
    assert queue.take(30.0) is not None


def test_only_units_that_wait_for_the_topic_are_woken_at_once_and_in_order_of_arrival() -> None:
    queue = Queue()
    for name in "abc":
        queue.add(key(name), 0, 0.0)
    taken(queue, 0.0)
    queue.refused(key("b"), [("freed",)], 0.0)
    queue.refused(key("a"), [("freed",), ("nodes",)], 0.0)
    queue.refused(key("c"), [("labels",)], 0.0)
    assert queue.wake([("freed",)], 1.0) == [key("a"), key("b")]
    assert queue.wake([("freed",), ("nodes",)], 1.0) == []
    assert taken(queue, 1.0) == ["a", "b"]


def test_an_unschedulable_unit_is_tried_again_in_the_end_without_any_change() -> None:
    queue = Queue(QueueLimits(unschedulable_max_s=300.0))
    queue.add(key("a"), 0, 0.0)
    queue.take(0.0)
    queue.refused(key("a"), [], 0.0)
    assert queue.take(299.0) is None
    assert queue.take(300.0) is not None


def test_gated_units_wait_until_opened() -> None:
    queue = Queue()
    queue.add(key("a"), 0, 0.0, gated=True)
    assert queue.take(1000.0) is None
    queue.add(key("a"), 0, 5.0)
    assert taken(queue, 5.0) == ["a"]


def test_a_unit_that_waits_for_conditions_comes_back_at_its_deadline_or_when_woken() -> None:
    queue = Queue()
    queue.add(key("a"), 0, 0.0)
    queue.take(0.0)
    queue.assumed(key("a"), 0.0)
    queue.waits(key("a"), [("ResourceClaim", "default", "c")], 60.0, 1.0)
    assert queue.take(59.0) is None
    assert queue.take(60.0) is not None
    queue.waits(key("a"), [("ResourceClaim", "default", "c")], 90.0, 61.0)
    assert queue.wake([("ResourceClaim", "default", "c")], 62.0) == [key("a")]


def test_removed_units_never_come_back() -> None:
    queue = Queue()
    queue.add(key("a"), 0, 0.0)
    queue.add(key("b"), 0, 0.0)
    queue.remove(key("a"))
    assert taken(queue, 0.0) == ["b"]
    queue.refused(key("b"), [("freed",)], 0.0)
    queue.remove(key("b"))
    assert queue.wake([("freed",)], 0.0) == []
    assert queue.take(1e9) is None
    assert len(queue) == 0


def test_every_state_can_be_left_and_every_step_is_used() -> None:
    assert {state for state, _ in TABLE} == set(UnitState)
    assert {step for _, step in TABLE} == set(UnitEvent)


def test_a_step_outside_the_table_is_a_bug_and_not_silent() -> None:
    queue = Queue()
    queue.add(key("a"), 0, 0.0)
    with pytest.raises(KeyError):
        queue.refused(key("a"), [], 0.0)


@given(st.lists(st.tuples(st.sampled_from("abcd"), st.integers(0, 3), st.integers(0, 6)), max_size=60))
def test_no_unit_is_lost_whatever_happens(steps: list[tuple[str, int, int]]) -> None:
    queue = Queue()
    now = 0.0
    alive: set[str] = set()
    for name, priority, step in steps:
        now += 0.5
        entry = queue.get(key(name))
        state = entry.state if entry is not None else None
        if step == 0:
            queue.add(key(name), priority, now)
            alive.add(name)
        elif step == 1:
            queue.remove(key(name))
            alive.discard(name)
        elif step == 2 and state is UnitState.DECIDING:
            queue.refused(key(name), [("t", str(priority))], now)
        elif step == 3 and state is UnitState.DECIDING:
            queue.failed(key(name), now)
        elif step == 4 and state is UnitState.DECIDING:
            queue.waits(key(name), [("t", str(priority))], now + 5, now)
        elif step == 5:
            queue.wake([("t", str(priority))], now)
        else:
            queue.take(now)
    for name in alive:
        entry = queue.get(key(name))
        assert entry is not None
        if entry.state is UnitState.DECIDING:
            queue.refused(key(name), [], now)
    assert set(taken(queue, now + 10_000)) == alive
