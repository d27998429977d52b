"""What a search takes is held until it rewinds."""

from __future__ import annotations

from typing import Any

import pytest

from dragoman.allocate.device_state import DeviceState
from dragoman.allocate.ledger import Ledger
from tests.allocate.shortforms import claim, counter_set, device, draws, resource_slice, search_requests, wants

BOOKS = ("whole", "used", "left", "present", "states")


def states(*devices: dict[str, Any], **spec: Any) -> list[DeviceState]:
    """The states of a pool's devices before a search."""
    objects = [resource_slice(list(devices))]
    if spec:
        objects = [resource_slice(name="counters", count=2, **spec), resource_slice(list(devices), count=2)]
    (request,) = search_requests(objects, claim(wants()))
    return [candidate.device_state for candidate in request.alternatives[0].candidates]


def contents(ledger: Ledger) -> dict[str, Any]:
    return {book: dict(getattr(ledger, book)) for book in BOOKS}


def test_a_device_taken_whole_is_not_available_to_anybody_until_rewound() -> None:
    (gpu,) = states(device("gpu"))
    ledger = Ledger(lists=False)
    mark = ledger.mark()
    assert ledger.available(gpu, 0, (), admin=False)
    assert ledger.usage(gpu.id) is None
    ledger.take(gpu, 0, (), admin=False)
    assert not ledger.available(gpu, 0, (), admin=False)
    assert not ledger.available(gpu, 1, (), admin=False)
    assert ledger.usage(gpu.id) is not None
    ledger.rewind(mark)
    assert ledger.available(gpu, 1, (), admin=False)
    assert contents(ledger) == contents(Ledger(lists=False))


ADMIN = {
    "two takes of one claim, both admin": ((0, True), (0, True), False),
    "an admin take after a normal one of the claim": ((0, False), (0, True), False),
    "admin takes of two claims": ((0, True), (1, True), True),
    "a normal take after an admin one of an earlier claim": ((0, True), (1, False), False),
    "a normal take after an admin one of a later claim": ((1, True), (0, False), True),
    "an admin take before the normal one of a later claim": ((1, False), (0, True), False),
    "an admin take after the normal one of an earlier claim": ((0, False), (1, True), True),
}


@pytest.mark.parametrize("case", ADMIN)
def test_admin_access_bars_its_own_claim_and_normal_requests_of_later_claims(case: str) -> None:
    (claim_before, admin_before), (claim_after, admin_after), available = ADMIN[case]
    (gpu,) = states(device("gpu"))
    ledger = Ledger(lists=False)
    ledger.take(gpu, claim_before, (), admin=admin_before)
    assert ledger.available(gpu, claim_after, (), admin=admin_after) is available


def test_shares_of_a_device_add_up_to_its_capacity() -> None:
    (nic,) = states(device("nic", allowMultipleAllocations=True, capacity={"bandwidth": {"value": "10"}}))
    ledger = Ledger(lists=False)
    four, seven = (4 * 10**9,), (7 * 10**9,)
    ledger.take(nic, 0, four, admin=False)
    assert ledger.available(nic, 0, four, admin=False)
    assert not ledger.available(nic, 0, seven, admin=False)
    mark = ledger.mark()
    ledger.take(nic, 1, four, admin=False)
    assert ledger.used[nic.id] == (2, (8 * 10**9,))
    assert not ledger.available(nic, 0, four, admin=False)
    ledger.rewind(mark)
    assert ledger.used[nic.id] == (1, four)


def test_partitions_draw_on_their_counters_and_a_rewind_gives_them_back() -> None:
    half, other, whole = states(
        device("a", consumesCounters=[draws(memory=20)]),
        device("b", consumesCounters=[draws(memory=20)]),
        device("c", consumesCounters=[draws(memory=40)]),
        sharedCounters=[counter_set(memory=40)],
    )
    ledger = Ledger(lists=False)
    (use,) = half.uses
    mark = ledger.mark()
    ledger.take(half, 0, (), admin=False)
    assert ledger.counter_left(half, use.key, "memory") == 20 * 10**9
    assert ledger.available(other, 0, (), admin=False)
    assert not ledger.available(whole, 0, (), admin=False)
    ledger.rewind(mark)
    assert ledger.available(whole, 0, (), admin=False)
    ledger.take(half, 0, (), admin=True)
    assert ledger.available(whole, 0, (), admin=False), "admin access draws on nothing"


def test_a_constraint_keeps_its_value_and_forgets_it_on_rewind() -> None:
    ledger = Ledger(lists=False)
    one, two = frozenset({("string", "one")}), frozenset({("string", "two")})
    mark = ledger.mark()
    assert ledger.join((0, 0), "match", one)
    assert ledger.join((0, 0), "match", one)
    before = ledger.mark()
    assert not ledger.join((0, 0), "match", two)
    assert ledger.mark() == before, "what a constraint forbids changes nothing"
    assert ledger.join((1, 0), "match", two), "of another claim"
    ledger.rewind(mark)
    assert ledger.join((0, 0), "match", two)
    assert ledger.join((0, 1), "distinct", one)
    assert not ledger.join((0, 1), "distinct", one)
