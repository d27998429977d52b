"""How do API objects become typed values, and values JSON again?

Reading is lenient: every field is optional, unknown fields are ignored, and null is the same as absent (as the API
server reads it). A wrong JSON type is Invalid with the field's path. Never defaults, never judges validity.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache
from typing import Any, TypeVar, cast

import msgspec

from dragoman.api import core, deepjson, resource, shape
from dragoman.api.interned import interned
from dragoman.api.meta import ObjectMeta, Value
from dragoman.errors import Invalid
from dragoman.values.quantity import Quantity

T = TypeVar("T")

TYPES: dict[str, type[Value]] = {
    "ResourceSlice": resource.ResourceSlice,
    "DeviceClass": resource.DeviceClass,
    "ResourceClaim": resource.ResourceClaim,
    "ResourceClaimTemplate": resource.ResourceClaimTemplate,
    "DeviceTaintRule": resource.DeviceTaintRule,
    "Node": core.Node,
    "Pod": core.Pod,
    "Namespace": core.Namespace,
    "PriorityClass": core.PriorityClass,
    "PodGroup": core.PodGroup,
    "Deployment": core.Workload,
    "ReplicaSet": core.Workload,
    "ReplicationController": core.ReplicationController,
    "StatefulSet": core.Workload,
    "DaemonSet": core.Workload,
    "Job": core.Workload,
    "CronJob": core.Workload,
    "PodDisruptionBudget": core.PodDisruptionBudget,
    "Service": core.ClusterService,
    "EndpointSlice": core.EndpointSlice,
    "Endpoints": core.Endpoints,
    "ResourceQuota": core.ResourceQuota,
    "LimitRange": core.LimitRange,
    "PersistentVolume": core.PersistentVolume,
    "PersistentVolumeClaim": core.PersistentVolumeClaim,
    "StorageClass": core.StorageClass,
    "ControllerRevision": core.ControllerRevision,
}
"""The struct of every kind that decisions read, by kind name."""

# Free-form JSON, in which null is a value of its own.
_OPAQUE = frozenset({"parameters", "data"})
_QUANTITIES_REMEMBERED = 8192


def decode(kind: type[T], source: Any) -> T:
    """A typed value from a JSON-shaped object, or from JSON as bytes or text.

    `kind` may be any type msgspec knows, `list[ResourceSlice]` for one. Raises Invalid with the field path.
    """
    is_text = isinstance(source, bytes | bytearray | memoryview | str)
    try:
        if is_text:
            value: T = _decoder(kind)(source)
            return value
        made = msgspec.convert(source, kind, dec_hook=_dec_hook)
        return cast(T, interned(made)) if isinstance(made, resource.ResourceSlice) else made
    except (msgspec.ValidationError, RecursionError):
        pass
    except msgspec.DecodeError as error:
        raise Invalid("", f"must be JSON: {error}") from error
    try:
        raw = without_nulls(deepjson.loads(source) if is_text else source)
        return msgspec.convert(raw, kind, dec_hook=_dec_hook)
    except msgspec.ValidationError as error:
        raise _invalid(kind, raw, error) from error
    except RecursionError:
        raise Invalid("", f"nested deeper than {deepjson.DEPTH_MAX} levels") from None


def salvaged(kind: type[Value], obj: Any) -> Value | None:
    """What still counts of an object that `decode` refuses: of a claim the devices that it holds.

    Its request is none that the allocator knows, so that nothing is ever given to it; None where nothing can be read.
    """
    if kind is not resource.ResourceClaim:
        return None
    metadata = _lenient(ObjectMeta, shape.dig(obj, "metadata"))
    if metadata is None or not metadata.name:
        return None
    status = shape.dig(obj, "status")
    results = shape.objects(shape.dig(status, "allocation", "devices"), "results")
    held = [found for result in results if (found := _lenient(resource.DeviceRequestAllocationResult, result))]
    users = [user_ for user in shape.objects(status, "reservedFor") if (user_ := _lenient(_Consumer, user))]
    asked = resource.ResourceClaimSpec(resource.DeviceClaim((resource.DeviceRequest(UNREADABLE),)))
    allocation = resource.AllocationResult(resource.DeviceAllocationResult(tuple(held))) if held else None
    return resource.ResourceClaim(metadata, asked, resource.ResourceClaimStatus(allocation, tuple(users)))


UNREADABLE = "unreadable"
"""The request's name in a claim of which only its devices could be read."""

_Consumer = resource.ConsumerReference


def _lenient(kind: type[T], raw: Any) -> T | None:
    try:
        return decode(kind, raw)
    except Invalid:
        return None


def to_json(value: Any) -> Any:
    """The JSON shape (dict, list, str, ...) of a value: camelCase, defaults left out, quantities as text."""
    return deepjson.loads(to_bytes(value))


def to_bytes(value: Any) -> bytes:
    """A value, or a JSON-shaped object, as JSON text in UTF-8."""
    return msgspec.json.encode(value, enc_hook=_enc_hook)


def without_nulls(raw: Any) -> Any:
    """A copy whose objects have no null members, except inside opaque parameters and data."""
    if isinstance(raw, dict):
        return {k: v if k in _OPAQUE else without_nulls(v) for k, v in raw.items() if v is not None}
    if isinstance(raw, list | tuple):
        return [without_nulls(item) for item in raw]
    return raw


_DECODERS: dict[Any, Callable[[Any], Any]] = {}


def _decoder(kind: Any) -> Callable[[Any], Any]:
    # Bounded by the number of types in the code.
    if kind not in _DECODERS:
        _DECODERS[kind] = msgspec.json.Decoder(kind, dec_hook=_dec_hook).decode
    return _DECODERS[kind]


@lru_cache(maxsize=_QUANTITIES_REMEMBERED, typed=True)
def _quantity(raw: str | int | float) -> Quantity:
    return Quantity.parse(raw)


def _dec_hook(kind: type, raw: Any) -> Any:
    if kind is not Quantity:
        raise NotImplementedError(f"no decoding of {kind}")
    if isinstance(raw, Quantity):
        return raw
    if isinstance(raw, bool) or not isinstance(raw, str | int | float):
        raise ValueError(f"Expected `quantity`, got `{_json_type(raw)}`")
    return _quantity(raw)


def _enc_hook(value: Any) -> Any:
    if isinstance(value, Quantity):
        return str(value)
    raise NotImplementedError(f"no JSON for {type(value).__name__}")


_TYPE_NAMES = {
    "int": "an integer",
    "str": "a string",
    "bool": "true or false",
    "float": "a number",
    "array": "a list",
    "object": "an object",
    "null": "null",
    "quantity": "a quantity",
}


def _json_type(raw: Any) -> str:
    if raw is None:
        return "null"
    if isinstance(raw, dict):
        return "object"
    return "array" if isinstance(raw, list | tuple) else type(raw).__name__


_MISMATCH = re.compile(r"Expected `(?P<wanted>[^`]+)`, got `(?P<got>[^`]+)`")


def _invalid(kind: Any, raw: Any, error: msgspec.ValidationError) -> Invalid:
    """msgspec's `Expected ..., got ... - at `$.a[0].b`` in our words."""
    text, path = _parts(error)
    if match := _MISMATCH.fullmatch(text):
        wanted = " or ".join(_TYPE_NAMES.get(w.strip(), w.strip()) for w in match["wanted"].split("|"))
        text = f"must be {wanted.removesuffix(' or null')}, got {_TYPE_NAMES.get(match['got'], match['got'])}"
    return Invalid(_with_keys(kind, raw, path), text)


def _parts(error: msgspec.ValidationError) -> tuple[str, str]:
    text, _, path = str(error).partition(" - at ")
    return text, path.removeprefix("`key` in ").strip("`").removeprefix("$").removeprefix(".")


def _with_keys(kind: Any, raw: Any, path: str) -> str:
    """The path with the keys of maps, which msgspec leaves out: the first key that fails alone in the same way."""
    text, *parts = path.split("[...]")
    steps = _steps(text)
    for rest in parts:
        entries = _at(raw, steps)
        key = next((k for k in entries if _fails(kind, _replaced(raw, steps, {k: entries[k]}), path)), None)
        if key is None:
            return path
        raw = _replaced(raw, steps, {key: entries[key]})
        text += f"[{key}]{rest}"
        steps = [*steps, key, *_steps(rest)]
    return text


def _fails(kind: Any, raw: Any, path: str) -> bool:
    try:
        msgspec.convert(raw, kind, dec_hook=_dec_hook)
    except msgspec.ValidationError as error:
        return _parts(error)[1] == path
    return False


_STEP = re.compile(r"\[(\d+)\]|([^.\[]+)")


def _steps(text: str) -> list[str | int]:
    return [int(index) if index else field for index, field in _STEP.findall(text)]


def _at(raw: Any, steps: list[str | int]) -> dict[str, Any]:
    for step in steps:
        raw = raw[step]
    return raw if isinstance(raw, dict) else {}


def _replaced(raw: Any, steps: list[str | int], value: Any) -> Any:
    if not steps:
        return value
    step, inner = steps[0], _replaced(raw[steps[0]], steps[1:], value)
    if isinstance(step, int):
        return [*raw[:step], inner, *raw[step + 1 :]]
    return {**raw, step: inner}
