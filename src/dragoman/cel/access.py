"""What does a field, an entry or a loop find in a value? Access at run time, where nothing is known beforehand.

Shared by the fast way (`compile`) and the metered one (`meter`).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from dragoman.cel.faults import EvalError, NoSuchKey, NoSuchOverload
from dragoman.cel.values import NONE, TYPE_OF, CelValue, Optional, map_key, map_keys, type_name


def selected(operand: CelValue, field: str, offset: int) -> CelValue:
    """operand.field at run time, where nothing is known about the operand."""
    if isinstance(operand, dict):
        try:
            return operand[field]
        except KeyError:
            raise missing(operand, field, offset) from None
    if operand.__class__ is Optional:
        if not operand.present:
            return NONE
        return select_optional(operand.value, field)
    if TYPE_OF[operand.__class__].kind == "struct" and hasattr(operand, "cel_fields") and field in operand.cel_fields:
        return getattr(operand, operand.cel_fields[field])
    raise NoSuchOverload(f"no such overload: {type_name(operand)}.{field}", offset)


def select_optional(operand: CelValue, field: str) -> CelValue:
    """operand.?field."""
    if isinstance(operand, dict):
        try:
            return Optional(operand[field])
        except KeyError:
            return NONE
    if operand.__class__ is Optional:
        return select_optional(operand.value, field) if operand.present else NONE
    if hasattr(operand, "cel_fields"):
        found = operand.cel_fields.get(field)
        return NONE if found is None else Optional(getattr(operand, found))
    if isinstance(operand, tuple):
        raise NoSuchOverload
    return NONE  # as cel-go: a value without fields has none of that name


def present(operand: CelValue, field: str) -> bool:
    """has(operand.field)."""
    if isinstance(operand, dict):
        return field in operand or hasattr(operand, "__missing__")
    if operand.__class__ is Optional:
        return operand.present and present(operand.value, field)
    if hasattr(operand, "cel_fields"):
        return field in operand.cel_fields
    raise NoSuchOverload


def missing(entries: dict[CelValue, CelValue], field: str, offset: int) -> NoSuchKey:
    """The error for a key that is not there."""
    return NoSuchKey(field, offset, tuple(key for key in entries if key.__class__ is str))


def iterated(value: CelValue) -> Iterable[CelValue]:
    """What a loop over the value yields, one variable."""
    if value.__class__ is tuple:
        found: tuple[CelValue, ...] = value
        return found
    if isinstance(value, dict):
        return map_keys(value)
    raise EvalError(f"got '{_go_name(value)}', expected iterable type")


def iterated_pairs(value: CelValue) -> Iterable[tuple[CelValue, CelValue]]:
    """What a loop over the value yields, two variables."""
    if value.__class__ is tuple:
        return enumerate(value)
    if isinstance(value, dict):
        return zip(map_keys(value), value.values(), strict=True)
    raise EvalError(f"unsupported comprehension range type: {_go_name(value)}")


_GO_NAMES: Final = {
    "bool": "types.Bool",
    "int": "types.Int",
    "uint": "types.Uint",
    "double": "types.Double",
    "string": "types.String",
    "bytes": "types.Bytes",
    "null_type": "types.Null",
    "google.protobuf.Timestamp": "types.Timestamp",
    "google.protobuf.Duration": "types.Duration",
    "optional_type": "*types.Optional",
    "type": "*types.Type",
    "kubernetes.Semver": "cel.Semver",
    "kubernetes.Quantity": "cel.Quantity",
}


def _go_name(value: CelValue) -> str:
    """The kind as cel-go's messages call it."""
    return _GO_NAMES.get(type_name(value), type_name(value))


def put_entry(
    entries: dict[CelValue, CelValue], key: CelValue, value: CelValue, *, optional: bool, offset: int
) -> None:
    """Adds an entry of a map literal."""
    kept = map_key(key)
    if optional:
        if value.__class__ is not Optional:
            raise EvalError(f"cannot initialize optional entry '{key}' from non-optional value", offset)
        if not value.present:
            entries.pop(kept, None)
            return
        value = value.value
    entries[kept] = value
