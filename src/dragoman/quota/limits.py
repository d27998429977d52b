"""What does a LimitRange add to a pod, and what does it forbid? Upstream's LimitRanger.

`fill` changes JSON-shaped objects, as admission does; `broken` judges typed ones. A pod's defaults come from every
LimitRange of its namespace in order of names.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from dragoman.api.core import LimitRange, LimitRangeItem, PersistentVolumeClaim, Pod
from dragoman.quota.usage import Amounts, pod_total
from dragoman.values.quantity import Quantity

ANNOTATION = "kubernetes.io/limit-ranger"


def fill(ranges: Iterable[LimitRange], pod: dict[str, Any]) -> None:
    """Gives containers the defaults for what they do not state, and says so in an annotation. Changes `pod`."""
    spec = pod.get("spec")
    if not isinstance(spec, dict):
        return
    for found in ranges:
        requests: Amounts = {}
        limits: Amounts = {}
        for item in found.spec.limits:
            if item.type == "Container":
                requests |= item.default_request
                limits |= item.default
        said = [
            text
            for field, what in (("containers", "container"), ("initContainers", "init container"))
            for container in spec.get(field) or ()
            if isinstance(container, dict)
            for text in _filled(container, what, requests, limits)
        ]
        if said:
            meta = pod.setdefault("metadata", {})
            annotations = meta.get("annotations") or {}
            meta["annotations"] = {**annotations, ANNOTATION: "LimitRanger plugin set: " + "; ".join(said)}


def _filled(container: dict[str, Any], what: str, requests: Amounts, limits: Amounts) -> list[str]:
    resources = container.get("resources") or {}
    if not isinstance(resources, dict):
        return []
    texts: list[str] = []
    for field, word, defaults in (("requests", "request", requests), ("limits", "limit", limits)):
        stated = resources.get(field) or {}
        absent = sorted(name for name in defaults if name not in stated)
        if absent:
            resources[field] = {**stated, **{name: str(defaults[name]) for name in absent}}
            texts.append(f"{', '.join(absent)} {word} for {what} {container.get('name', '')}")
    if texts:
        container["resources"] = resources
    return texts


def broken(ranges: Iterable[LimitRange], value: Pod | PersistentVolumeClaim) -> str:
    """What the first LimitRange that forbids the object says, "" if none does; several reasons in brackets."""
    for found in ranges:
        reasons = [reason for item in found.spec.limits for reason in _reasons(item, value)]
        if reasons:
            unique = list(dict.fromkeys(reasons))
            return unique[0] if len(unique) == 1 else f"[{', '.join(unique)}]"
    return ""


def _reasons(item: LimitRangeItem, value: Pod | PersistentVolumeClaim) -> list[str]:
    if isinstance(value, PersistentVolumeClaim):
        if item.type != "PersistentVolumeClaim":
            return []
        requests = dict(value.spec.resources.requests)
        found = [_below(item.type, n, least, requests, {}) for n, least in sorted(item.min.items())]
        found += [_above_request(item.type, n, most, requests) for n, most in sorted(item.max.items())]
        return list(filter(None, found))
    if item.type == "Container":
        containers = (*value.spec.containers, *value.spec.init_containers)
        sides = [(dict(c.resources.requests), dict(c.resources.limits)) for c in containers]
    elif item.type == "Pod":
        sides = [(pod_total(value.spec, "requests", overhead=False), pod_total(value.spec, "limits", overhead=False))]
    else:
        return []
    reasons: list[str] = []
    for requests, limits in sides:
        reasons += [_below(item.type, n, least, requests, limits) for n, least in sorted(item.min.items())]
        reasons += [_above(item.type, n, most, requests, limits) for n, most in sorted(item.max.items())]
        ratios = sorted(item.max_limit_request_ratio.items())
        reasons += [_ratio(item.type, n, most, requests, limits) for n, most in ratios]
    return list(filter(None, reasons))


def _below(what: str, name: str, least: Quantity, requests: Amounts, limits: Amounts) -> str:
    start = f"minimum {name} usage per {what} is {least}"
    if name not in requests:
        return f"{start}.  No request is specified"
    if requests[name] < least:
        return f"{start}, but request is {requests[name]}"
    if name in limits and limits[name] < least:
        return f"{start}, but limit is {limits[name]}"
    return ""


def _above(what: str, name: str, most: Quantity, requests: Amounts, limits: Amounts) -> str:
    start = f"maximum {name} usage per {what} is {most}"
    if name not in limits:
        return f"{start}.  No limit is specified"
    if limits[name] > most:
        return f"{start}, but limit is {limits[name]}"
    if name in requests and requests[name] > most:
        return f"{start}, but request is {requests[name]}"
    return ""


def _above_request(what: str, name: str, most: Quantity, requests: Amounts) -> str:
    start = f"maximum {name} usage per {what} is {most}"
    if name not in requests:
        return f"{start}.  No request is specified"
    return f"{start}, but request is {requests[name]}" if requests[name] > most else ""


def _ratio(what: str, name: str, most: Quantity, requests: Amounts, limits: Amounts) -> str:
    start = f"{name} max limit to request ratio per {what} is {most}"
    if not requests.get(name):
        return f"{start}, but no request is specified or request is 0"
    if not limits.get(name):
        return f"{start}, but no limit is specified or limit is 0"
    if limits[name].nanos * 1_000_000_000 <= most.nanos * requests[name].nanos:
        return ""
    return f"{start}, but provided ratio is {limits[name].nanos / requests[name].nanos:f}"
