"""How does an object of one API version look in another?

Works on JSON-shaped dicts, shares unchanged parts with its input and never changes it. Fields it does not know
survive; values of a wrong type pass through for validation to judge. The stored version is the preferred one of
`api.kinds`: v1 for resource.k8s.io. Only v1beta1 differs in shape (KEP-4381): its requests are flat, its devices
have everything under `basic`, and its slices write "" and false for "not set". Of the other kinds only
HorizontalPodAutoscaler has two shapes: v1 knows one metric, the use of CPU.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from dragoman.api.kinds import BY_NAME
from dragoman.api.shape import Object
from dragoman.errors import Invalid

ConversionStep = Callable[[Object], Object]

# What v1 keeps under `exactly` and v1beta1 in the request itself.
EXACT_FIELDS = (
    "deviceClassName",
    "selectors",
    "allocationMode",
    "count",
    "adminAccess",
    "tolerations",
    "capacity",
    "derivedAttributes",
)
_REQUEST_FIELDS = ("name", "exactly", "firstAvailable")


def to_stored(kind: str, version: str, obj: Object) -> Object:
    """The object (or `<kind>List`) of that version in the stored version, apiVersion adapted.

    `kind` is a kind's name, `version` is without the group (`v1beta1`). Raises Invalid for a version that the kind
    does not have. A kind unknown to `api.kinds` is returned as it is.
    """
    if kind not in BY_NAME:
        return obj
    step = _step(_TO_STORED, kind, version)
    return _convert(kind, BY_NAME[kind].versions[0], step, obj)


def from_stored(kind: str, version: str, obj: Object) -> Object:
    """The stored object (or `<kind>List`) in that version, apiVersion adapted. Raises as `to_stored`."""
    if kind not in BY_NAME:
        return obj
    step = _step(_FROM_STORED, kind, version)
    return _convert(kind, version, step, obj)


def _step(table: dict[tuple[str, str], ConversionStep], kind: str, version: str) -> ConversionStep:
    known = BY_NAME[kind].versions
    if version not in known:
        raise Invalid("apiVersion", f"{kind} has no version {version}, only {', '.join(known)}")
    return table.get((kind, version), _same)


def _convert(kind: str, version: str, step: ConversionStep, obj: Object) -> Object:
    if isinstance(obj.get("items"), list) and str(obj.get("kind", "")).endswith("List"):
        converted = {
            **obj,
            "items": [_convert(kind, version, step, i) if isinstance(i, dict) else i for i in obj["items"]],
        }
    else:
        converted = step(obj)
    if "apiVersion" in obj:
        converted = {**converted, "apiVersion": BY_NAME[kind].version_text(version)}
    return converted


def _same(obj: Object) -> Object:
    return obj


def _at(obj: Object, path: tuple[str, ...], change: Callable[[Any], Any]) -> Object:
    """A copy with `change` applied to what stands at the path, if anything does."""
    head, *rest = path
    inner = obj.get(head)
    if inner is None:
        return obj
    if not rest:
        return {**obj, head: change(inner)}
    if not isinstance(inner, dict):
        return obj
    return {**obj, head: _at(inner, tuple(rest), change)}


def _each(change: ConversionStep) -> Callable[[Any], Any]:
    def over(items: Any) -> Any:
        if not isinstance(items, list):
            return items
        return [change(item) if isinstance(item, dict) else item for item in items]

    return over


def _is_set(value: Any) -> bool:
    # As Go sees it: a pointer to false and an empty list are set, "" and 0 are not.
    return value is not None and value != "" and (value != 0 or isinstance(value, bool))


def _nest_request(request: Object) -> Object:
    """v1beta1 to v1: any flat field that is set makes an `exactly`."""
    flat = {field: request[field] for field in EXACT_FIELDS if _is_set(request.get(field))}
    nested = {field: value for field, value in request.items() if field not in EXACT_FIELDS}
    if flat:
        nested["exactly"] = flat
    return nested


def _flatten_request(request: Object) -> Object:
    exactly = request.get("exactly")
    if not isinstance(exactly, dict):
        return request
    rest = {field: value for field, value in request.items() if field != "exactly"}
    return {**{field: value for field, value in exactly.items() if field not in _REQUEST_FIELDS}, **rest}


def _unwrap_device(device: Object) -> Object:
    basic = device.get("basic")
    if "basic" not in device or not isinstance(basic, dict | type(None)):
        return device
    rest = {field: value for field, value in device.items() if field != "basic"}
    return {**rest, **{field: value for field, value in (basic or {}).items() if field != "name"}}


def _wrap_device(device: Object) -> Object:
    basic = {field: value for field, value in device.items() if field != "name"}
    return {**({"name": device["name"]} if "name" in device else {}), "basic": basic}


def _unset_empty(spec: Any) -> Any:
    if not isinstance(spec, dict):
        return spec
    empty = {"nodeName": "", "allNodes": False}
    return {field: value for field, value in spec.items() if field not in empty or value != empty[field]}


_CPU, _CPU_NOW = "targetCPUUtilizationPercentage", "currentCPUUtilizationPercentage"
_METRICS, _METRICS_NOW = "autoscaling.alpha.kubernetes.io/metrics", "autoscaling.alpha.kubernetes.io/current-metrics"
_SCALING = {"metrics": (_CPU, _METRICS, "target"), "currentMetrics": (_CPU_NOW, _METRICS_NOW, "current")}


def _cpu(percent: int, holder: str) -> Object:
    wanted = {"type": "Utilization"} if holder == "target" else {}
    return {
        "type": "Resource",
        "resource": {"name": "cpu", holder: {**wanted, "averageUtilization": percent}},
    }


def _is_cpu(metric: Any, holder: str) -> bool:
    resource = metric.get("resource") if isinstance(metric, dict) else None
    inner = resource.get(holder) if isinstance(resource, dict) and resource.get("name") == "cpu" else None
    return isinstance(inner, dict) and inner.get("averageUtilization") is not None


def _scaler_to_v2(obj: Object) -> Object:
    """autoscaling/v1 to v2: one number becomes a metric; others travel in an annotation, as kube-apiserver has it."""
    annotations = {**((obj.get("metadata") or {}).get("annotations") or {})}
    parts: Object = {}
    for part, listed in (("spec", "metrics"), ("status", "currentMetrics")):
        if not isinstance(obj.get(part), dict):
            continue
        field, annotation, holder = _SCALING[listed]
        inner = {name: value for name, value in obj[part].items() if name != field}
        others = _decoded(annotations.pop(annotation, ""))
        cpu = [_cpu(obj[part][field], holder)] if obj[part].get(field) is not None else []
        if metrics := [*others, *cpu]:
            inner[listed] = metrics
        parts[part] = inner
    return {**obj, **_annotated(obj, annotations), **parts}


def _scaler_to_v1(obj: Object) -> Object:
    annotations = {**((obj.get("metadata") or {}).get("annotations") or {})}
    parts: Object = {}
    for part, listed in (("spec", "metrics"), ("status", "currentMetrics")):
        if not isinstance(obj.get(part), dict):
            continue
        field, annotation, holder = _SCALING[listed]
        metrics = obj[part].get(listed) or []
        inner = {name: value for name, value in obj[part].items() if name != listed}
        cpu = next((metric for metric in metrics if _is_cpu(metric, holder)), None)
        if cpu is not None:
            inner[field] = cpu["resource"][holder]["averageUtilization"]
        if others := [metric for metric in metrics if metric is not cpu]:
            annotations[annotation] = msgspec.json.encode(others).decode()
        parts[part] = inner
    return {**obj, **_annotated(obj, annotations), **parts}


def _annotated(obj: Object, annotations: Object) -> Object:
    metadata = obj.get("metadata")
    if not isinstance(metadata, dict) or (metadata.get("annotations") or {}) == annotations:
        return {}
    rest = {name: value for name, value in metadata.items() if name != "annotations"}
    return {"metadata": {**rest, "annotations": annotations} if annotations else rest}


def _decoded(text: Any) -> list[Any]:
    try:
        metrics = msgspec.json.decode(text) if isinstance(text, str) and text else []
    except msgspec.DecodeError:
        return []
    return metrics if isinstance(metrics, list) else []


_REQUESTS = ("devices", "requests")
_TO_STORED: dict[tuple[str, str], ConversionStep] = {
    ("HorizontalPodAutoscaler", "v1"): _scaler_to_v2,
    ("ResourceClaim", "v1beta1"): lambda obj: _at(obj, ("spec", *_REQUESTS), _each(_nest_request)),
    ("ResourceClaimTemplate", "v1beta1"): lambda obj: _at(obj, ("spec", "spec", *_REQUESTS), _each(_nest_request)),
    ("ResourceSlice", "v1beta1"): lambda obj: _at(
        _at(obj, ("spec",), _unset_empty), ("spec", "devices"), _each(_unwrap_device)
    ),
}
_FROM_STORED: dict[tuple[str, str], ConversionStep] = {
    ("HorizontalPodAutoscaler", "v1"): _scaler_to_v1,
    ("ResourceClaim", "v1beta1"): lambda obj: _at(obj, ("spec", *_REQUESTS), _each(_flatten_request)),
    ("ResourceClaimTemplate", "v1beta1"): lambda obj: _at(obj, ("spec", "spec", *_REQUESTS), _each(_flatten_request)),
    ("ResourceSlice", "v1beta1"): lambda obj: _at(
        _at(obj, ("spec",), _unset_empty), ("spec", "devices"), _each(_wrap_device)
    ),
}
