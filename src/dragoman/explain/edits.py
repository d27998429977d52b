"""How is a claim changed in one place? Requests, selectors, counts and constraints, each as changes to a snapshot.

Never judges; `explain.hints` tries what comes out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

import msgspec

from dragoman.api.resource import (
    EXACT_COUNT,
    CELDeviceSelector,
    DeviceConstraint,
    DeviceRequest,
    DeviceSelector,
    DeviceSubRequest,
    ExactDeviceRequest,
    ResourceClaim,
)
from dragoman.snapshot.change import Change, Put, Snapshot

Asked: TypeAlias = ExactDeviceRequest | DeviceSubRequest
RequestEdit: TypeAlias = Callable[[Asked], Asked]


def edited(claim: ResourceClaim, request: str, edit: RequestEdit) -> Callable[[Snapshot], tuple[Change, ...]]:
    """The claim with one request ("r" or "r/sub") changed."""
    name, _, sub = request.partition("/")

    def change(entry: DeviceRequest) -> DeviceRequest:
        if entry.name != name:
            return entry
        if not sub:
            return msgspec.structs.replace(entry, exactly=edit(entry.exactly or ExactDeviceRequest()))
        options = tuple(edit(option) if option.name == sub else option for option in entry.first_available)
        return msgspec.structs.replace(entry, first_available=options)

    devices = claim.spec.devices
    return changed(claim, requests=tuple(change(entry) for entry in devices.requests))


def without_request(constraints: tuple[DeviceConstraint, ...], name: str) -> tuple[DeviceConstraint, ...]:
    """The constraints where a request is no longer there; those that spanned nothing else go."""
    left = []
    for constraint in constraints:
        names = tuple(entry for entry in constraint.requests if entry.partition("/")[0] != name)
        if names or not constraint.requests:
            left.append(msgspec.structs.replace(constraint, requests=names))
    return tuple(left)


def unconstrained(claim: ResourceClaim, index: int) -> Callable[[Snapshot], tuple[Change, ...]]:
    """The claim without one constraint."""
    kept = tuple(c for i, c in enumerate(claim.spec.devices.constraints) if i != index)
    return changed(claim, constraints=kept)


def constrained_by(claim: ResourceClaim, index: int, attribute: str) -> Callable[[Snapshot], tuple[Change, ...]]:
    """The claim with one constraint on another attribute."""
    before = claim.spec.devices.constraints
    after = msgspec.structs.replace(before[index], match_attribute=attribute)
    return changed(claim, constraints=(*before[:index], after, *before[index + 1 :]))


def changed(claim: ResourceClaim, **fields: Any) -> Callable[[Snapshot], tuple[Change, ...]]:
    """The claim with other fields of spec.devices."""
    devices = msgspec.structs.replace(claim.spec.devices, **fields)
    changed = msgspec.structs.replace(claim, spec=msgspec.structs.replace(claim.spec, devices=devices))
    return lambda _: (Put("ResourceClaim", changed),)


def asked_of(claim: ResourceClaim) -> Iterator[tuple[str, Asked]]:
    """Every request and alternative with its name ("r" or "r/sub")."""
    for request in claim.spec.devices.requests:
        if request.exactly is not None:
            yield request.name, request.exactly
        for sub in request.first_available:
            yield f"{request.name}/{sub.name}", sub


def selectors_with(known: tuple[DeviceSelector, ...], index: int, text: str) -> tuple[DeviceSelector, ...]:
    """The selectors with another text in one place; "" leaves that one out."""
    changed = [DeviceSelector(CELDeviceSelector(text))] if text else []
    return (*known[:index], *changed, *known[index + 1 :])


def counted(number: int) -> RequestEdit:
    """So many devices."""

    def edit(asked: Asked) -> Asked:
        return msgspec.structs.replace(asked, allocation_mode=EXACT_COUNT, count=number)

    return edit
