"""Writes the parts of docs/reference/schemas that follow from types: reasons, hints, conflicts, choices, bench cases.

The rest of those files is written by hand. Run: python tools/make_output_schemas.py (`make docs` does).
"""

from __future__ import annotations

import json
import types
from pathlib import Path
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import msgspec

from dragoman.allocate import refusal as device
from dragoman.explain import conflict, hint_changes, objects
from dragoman.explain.hint_changes import SingleChange, Together
from dragoman.explain.messages import camel
from dragoman.explain.state import ConsumerState, StateReason
from dragoman.node.bench.report import CaseResult
from dragoman.plan.buy import Purchase
from dragoman.plan.capacity import Capacity
from dragoman.plan.mig import MigPlan
from dragoman.schedule import refusal as pod
from dragoman.snapshot.usage import DeviceId, Holder
from dragoman.values.quantity import Quantity

SCHEMAS = Path(__file__).parent.parent / "docs/reference/schemas"
REASON = {"$ref": "#/$defs/reason"}
TEXT = {"type": "string"}
SIMPLE: dict[Any, Any] = {str: TEXT, int: {"type": "integer"}, float: {"type": "number"}, bool: {"type": "boolean"}}
SIMPLE |= {DeviceId: TEXT, Any: {}}
SIMPLE |= {type(None): {"type": "null"}}


def closed(properties: dict[str, Any], optional: tuple[str, ...] = (), description: str = "") -> dict[str, Any]:
    """An object with exactly these fields."""
    body: dict[str, Any] = {"description": description} if description else {}
    required = [name for name in properties if name not in optional]
    return {**body, "type": "object", "required": required, "additionalProperties": False, "properties": properties}


def of(kind: Any, *, brief: bool = False) -> dict[str, Any]:
    """The schema of a type as `messages.as_json` and `conflict_messages.plain` write it. brief: holders without uid."""
    if kind in SIMPLE:
        return dict(SIMPLE[kind])
    if kind is Quantity:
        return {"type": "string", "description": "A quantity."}
    if kind is device.Refusal:
        return REASON
    origin, parts = get_origin(kind), get_args(kind)
    if origin in (Union, types.UnionType):
        if device.InsufficientDevices in parts:
            return REASON
        return {"anyOf": [of(part, brief=brief) for part in parts if part is not msgspec.UnsetType]}
    if origin is tuple and parts[-1] is ...:
        return {"type": "array", "items": of(parts[0], brief=brief)}
    if origin is tuple:
        return {"type": "array", "prefixItems": [of(part, brief=brief) for part in parts], "items": False}
    if origin is Literal:
        return {"enum": list(parts)}
    if origin is dict:
        return {"type": "object", "additionalProperties": of(parts[1], brief=brief)}
    if kind is Holder and brief:
        return closed({"namespace": TEXT, "claim": TEXT, "request": TEXT})
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        return closed(*fields(kind, brief=brief), description=sentence(kind))
    raise TypeError(f"no schema for {kind}")


def fields(kind: type, *, brief: bool = False) -> tuple[dict[str, Any], tuple[str, ...]]:
    """The fields of a struct by their names in JSON, and which may be missing."""
    hints = get_type_hints(kind)
    is_change = issubclass(kind, CHANGES)
    names = {f.name: f.encode_name if is_change else camel(f.name) for f in msgspec.structs.fields(kind)}
    unset = tuple(new for old, new in names.items() if msgspec.UnsetType in get_args(hints[old]))
    return {new: of(hints[old], brief=brief) for old, new in names.items()}, unset


CHANGES = (hint_changes.HintChangeBase, hint_changes.PodPriority, hint_changes.ToleratedTaint, hint_changes.DeviceMove)


RESULTS: dict[str, type] = {"CapacityPlan": Capacity, "PurchasePlan": Purchase, "MigPlan": MigPlan}
"""Outputs whose schemas follow from their types as a whole."""


def sentence(kind: type) -> str:
    """What a type is, in a line."""
    return " ".join((kind.__doc__ or "").split("\n\n")[0].split())


def reasons() -> dict[str, Any]:
    """Every refusal by its code."""
    kinds = dict.fromkeys(
        [
            *get_args(pod.ScheduleReason),
            *get_args(device.Refusal),
            device.SearchLimitReached,
            *get_args(StateReason),
        ]
    )
    return {
        "oneOf": [
            closed({"code": {"const": kind.__name__}, "message": TEXT, **fields(kind)[0]}, description=sentence(kind))
            for kind in kinds
        ],
        "description": "A reason: code (docs/reference/refusals.md), one sentence, and the facts of the code.",
    }


def changes() -> list[dict[str, Any]]:
    """Every hint change by its kind, without what verified it."""
    found = []
    for kind in get_args(SingleChange):
        properties, unset = fields(kind)
        properties = {"kind": {"const": kind.__name__}, "message": TEXT, **properties}
        found.append(closed(properties, unset, sentence(kind)))
    return found


def hint() -> dict[str, Any]:
    """A change that was verified, or several that help only together."""
    verified = closed({"node": TEXT, "devices": {"type": "array", "items": TEXT}}, description="Where the pod fits.")
    together = {"kind": {"const": Together.__name__}, "message": TEXT}
    together["parts"] = {"type": "array", "items": {"$ref": "#/$defs/hintChange"}}
    entries = [*changes(), closed(together, description=sentence(Together))]
    for entry in entries:
        entry["properties"]["verifiedWith"] = verified
        entry["required"].append("verifiedWith")
    return {
        "oneOf": entries,
        "description": "A change with which the pod was seen to fit (docs/reference/refusals.md).",
    }


def conflicts() -> dict[str, Any]:
    """What cannot be met together."""
    properties, _ = fields(conflict.Conflict, brief=True)
    parts = properties.pop("parts")
    return closed({"message": TEXT, **properties, "requests": parts}, description=sentence(conflict.Conflict))


def definitions() -> dict[str, Any]:
    """The $defs that follow from types."""
    return {
        "reason": reasons(),
        "hintChange": {"oneOf": changes()},
        "hint": hint(),
        "conflict": conflicts(),
        "choice": of(objects.Choice, brief=True),
        "consumer": of(ConsumerState, brief=True),
    }


def written() -> dict[str, str]:
    """The files of Explanation and Simulation with these $defs, that of the bench with its cases, by name."""
    made = definitions()
    texts = {}
    for name in ("Explanation", "Simulation"):
        schema = json.loads((SCHEMAS / f"{name}.json").read_text())
        needed = made if name == "Explanation" else {key: made[key] for key in made if key != "consumer"}
        schema["$defs"] |= needed
        texts[f"{name}.json"] = json.dumps(schema, indent=2) + "\n"
    for title, kind in RESULTS.items():
        schema = {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": title}
        properties, optional = fields(kind)
        whole = {"apiVersion": {"const": "cli.dragoman.dev/v1"}, "kind": {"const": title}, **properties}
        texts[f"{title}.json"] = json.dumps(schema | closed(whole, optional, sentence(kind)), indent=2) + "\n"
    bench = json.loads((SCHEMAS / "DriverBenchReport.json").read_text())
    bench["properties"]["cases"]["items"] = of(CaseResult)
    texts["DriverBenchReport.json"] = json.dumps(bench, indent=2) + "\n"
    return texts


if __name__ == "__main__":
    for file, text in written().items():
        (SCHEMAS / file).write_text(text)
