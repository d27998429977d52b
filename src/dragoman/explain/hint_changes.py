"""What can be changed so that a refused pod fits? One closed union of typed values; their fields are those of the JSON.

`explain.candidates` guesses them, `explain.hints` verifies them, `explain.conflict_messages` makes sentences. Never
tries anything. docs/reference/refusals.md describes each.
"""

from __future__ import annotations

from enum import IntEnum
from typing import ClassVar, TypeAlias, get_args

import msgspec

from dragoman.explain.messages import camel


class Cost(IntEnum):
    """How much it takes of people, cheapest first."""

    WAIT = 0
    OWN = 1
    TOLERATE = 2
    OTHER_CLASS = 3
    MOVE = 4
    REMOVE = 5
    ADD = 6


def _in_json(name: str) -> str:
    return {"before": "from", "after": "to", "class_name": "class"}.get(name, camel(name))


class HintChangeBase(msgspec.Struct, frozen=True, rename=_in_json):
    """before and after: what is there, and what would do ("from" and "to" in JSON)."""

    cost: ClassVar[Cost]

    @property
    def kind(self) -> str:
        """Its name in outputs."""
        return type(self).__name__


# ---- wait


class RemoveGates(HintChangeBase, frozen=True):
    """The pod without its scheduling gates."""

    cost = Cost.WAIT
    gates: tuple[str, ...]


class WaitForPool(HintChangeBase, frozen=True):
    """The rest of a pool's slices are published."""

    cost = Cost.WAIT
    driver: str
    pool: str
    slices: int
    resource_slice_count: int


class CorrectSliceCount(HintChangeBase, frozen=True):
    """A pool has as many slices as it says."""

    cost = Cost.WAIT
    driver: str
    pool: str
    slices: int
    resource_slice_count: int


class PodPriority(msgspec.Struct, frozen=True):
    """A pod ("namespace/name") and its priority."""

    pod: str
    priority: int


class WaitForPods(HintChangeBase, frozen=True):
    """Pods that are being deleted are gone."""

    cost = Cost.WAIT
    pods: tuple[PodPriority, ...]


# ---- the own pod


class TolerateNodeTaint(HintChangeBase, frozen=True):
    """The pod tolerates a taint of the node."""

    cost = Cost.TOLERATE
    node: str
    key: str
    value: str
    effect: str


class ChangeResources(HintChangeBase, frozen=True):
    """The pod asks for less of a resource."""

    cost = Cost.OWN
    resource: str
    before: str
    after: str


class DropNodeSelector(HintChangeBase, frozen=True):
    """The pod without its node selector. required: what the node does not match."""

    cost = Cost.OWN
    node: str
    required: str


class Uncordon(HintChangeBase, frozen=True):
    """The node is schedulable again."""

    cost = Cost.OWN
    node: str


# ---- the own claim


class OfClaim(HintChangeBase, frozen=True):
    """A change of the pod's own claim. template: what the claim is made from, None where people write the claim."""

    claim: str
    template: str | None


class ChangeSelector(OfClaim, frozen=True):
    """Another selector of a request; "" leaves it out. selector: its index."""

    cost = Cost.OWN
    request: str
    selector: int
    before: str
    after: str


class ChangeCount(OfClaim, frozen=True):
    """A request asks for so many devices. before: a number or "All"."""

    cost = Cost.OWN
    request: str
    before: int | str
    after: int


class ChangeCapacity(OfClaim, frozen=True):
    """A request asks for less of a capacity."""

    cost = Cost.OWN
    request: str
    capacity: str
    before: str
    after: str


class DropRequest(OfClaim, frozen=True):
    """The claim without a request."""

    cost = Cost.OWN
    request: str


class ChangeConstraint(OfClaim, frozen=True):
    """A constraint on another attribute. constraint: its index; requests: those that it spans."""

    cost = Cost.OWN
    constraint: int
    attribute: str
    requests: tuple[str, ...]
    after: str


class DropConstraint(OfClaim, frozen=True):
    """The claim without a constraint."""

    cost = Cost.OWN
    constraint: int
    attribute: str
    requests: tuple[str, ...]


class ToleratedTaint(msgspec.Struct, frozen=True):
    """A taint of a device."""

    key: str
    value: str
    effect: str


class TolerateDeviceTaint(OfClaim, frozen=True):
    """A request tolerates taints of devices."""

    cost = Cost.TOLERATE
    request: str
    taints: tuple[ToleratedTaint, ...]


class OtherClass(OfClaim, frozen=True):
    """A request asks for another device class."""

    cost = Cost.OTHER_CLASS
    request: str
    before: str
    after: str


class ChangeClassSelector(HintChangeBase, frozen=True):
    """Another selector of a device class; "" leaves it out."""

    cost = Cost.OTHER_CLASS
    class_name: str
    selector: int
    before: str
    after: str


# ---- what others hold


class DeviceMove(msgspec.Struct, frozen=True, rename=_in_json):
    """A claim has another device, for the same request or another alternative."""

    claim: str
    before: str
    after: str
    request: str
    to_request: str


class MoveDevices(HintChangeBase, frozen=True):
    """A pod, or a claim without pod ("namespace/name"), has other devices of the same node."""

    cost = Cost.MOVE
    node: str
    moves: tuple[DeviceMove, ...]
    pod: str | msgspec.UnsetType = msgspec.UNSET
    held_claim: str | msgspec.UnsetType = msgspec.UNSET


class MovePod(HintChangeBase, frozen=True):
    """A pod is restarted elsewhere. for_devices: devices are what is short. to_devices: as `driver/pool/device`."""

    cost = Cost.MOVE
    pods: tuple[PodPriority, ...]
    for_devices: bool
    to_node: str
    to_devices: tuple[str, ...]


class RemovePods(HintChangeBase, frozen=True):
    """Pods are deleted. for_devices: devices are what is short, for which there is no preemption."""

    cost = Cost.REMOVE
    pods: tuple[PodPriority, ...]
    for_devices: bool


class RemoveClaim(HintChangeBase, frozen=True):
    """Claims that no pod uses are deleted. devices: names of those that they hold."""

    cost = Cost.REMOVE
    claims: tuple[str, ...]
    devices: tuple[str, ...]


class AddNode(HintChangeBase, frozen=True):
    """One more node like this one."""

    cost = Cost.ADD
    shape: str


SingleChange: TypeAlias = (
    RemoveGates
    | WaitForPool
    | CorrectSliceCount
    | WaitForPods
    | TolerateNodeTaint
    | ChangeResources
    | DropNodeSelector
    | Uncordon
    | ChangeSelector
    | ChangeCount
    | ChangeCapacity
    | DropRequest
    | ChangeConstraint
    | DropConstraint
    | TolerateDeviceTaint
    | OtherClass
    | ChangeClassSelector
    | MoveDevices
    | MovePod
    | RemovePods
    | RemoveClaim
    | AddNode
)


class Together(msgspec.Struct, frozen=True):
    """Changes that help only together."""

    parts: tuple[SingleChange, ...]

    @property
    def cost(self) -> Cost:
        """That of the dearest."""
        return max(part.cost for part in self.parts)

    @property
    def kind(self) -> str:
        """Its name in outputs."""
        return "Together"


HintChange: TypeAlias = SingleChange | Together

HINT_KINDS = frozenset(kind.__name__ for kind in get_args(HintChange))
"""The closed list of hints (docs/reference/refusals.md)."""
