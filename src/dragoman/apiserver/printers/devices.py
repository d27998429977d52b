"""What do the kinds of resource.k8s.io look like in a table?"""

from __future__ import annotations

from dragoman.api.shape import Object
from dragoman.apiserver.printers.column import Cell, Printer, age, at, columns, entries, name_of, text


def _claim(claim: Object, now: float) -> list[Cell]:
    return [name_of(claim), _state(claim), age(claim, now)]


def _state(claim: Object) -> str:
    states = []
    if at(claim, "metadata", "deletionTimestamp"):
        states.append("deleted")
    if at(claim, "status", "allocation") is not None:
        states.append("allocated")
        if entries(claim, "status", "reservedFor"):
            states.append("reserved")
    return ",".join(states) or "pending"


def _slice(slice_: Object, now: float) -> list[Cell]:
    return [
        name_of(slice_),
        text(slice_, "spec", "nodeName"),
        text(slice_, "spec", "driver"),
        text(slice_, "spec", "pool", "name"),
        age(slice_, now),
    ]


PRINTERS = {
    ("resource.k8s.io", "ResourceClaim"): Printer(columns("Name", "State", "Age"), _claim),
    ("resource.k8s.io", "ResourceSlice"): Printer(columns("Name", "Node", "Driver", "Pool", "Age"), _slice),
}
