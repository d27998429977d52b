"""What does a pod with claims become on a cluster with device plugins? The way back of `todra`.

Only what a device plugin can give is moved: a number of devices per container, of a class that a resource counts, with
selectors that a node label stands for. All else is a Unmovable that says which part a device plugin cannot do.
"""

from __future__ import annotations

from typing import Any

import msgspec

from dragoman.migrate import labels, podspec
from dragoman.migrate.labels import LabelRequirement
from dragoman.migrate.report import Unmovable
from dragoman.migrate.resources import IMPLICIT, DeviceKind, kind_of_request
from dragoman.migrate.todra import dotted, is_nvidia
from dragoman.migrate.yamledit import NO_COMMENTS, Comments, Editor, Flow, Path, QuotedScalar

_REQUEST_FIELDS = frozenset({"deviceClassName", "selectors", "count", "allocationMode"})
_TERMS = "nodeSelectorTerms"


class PluginRequest(msgspec.Struct, frozen=True):
    """A request of a template, as a device plugin would be asked."""

    name: str
    kind: DeviceKind
    count: int
    wanted: tuple[LabelRequirement, ...]


class PluginTemplate(msgspec.Struct, frozen=True):
    """A ResourceClaimTemplate that device plugins can serve."""

    requests: tuple[PluginRequest, ...]


def template_of(value: dict[str, Any]) -> PluginTemplate:
    """What a ResourceClaimTemplate of v1 asks for. Raises Unmovable, fields below the template."""
    devices = podspec.at(value, ("spec", "spec", "devices"))
    if not isinstance(devices, dict):
        raise Unmovable("NoCounterpart", "spec.spec.devices", "the template requests no devices", "")
    if devices.get("constraints"):
        raise Unmovable(
            "NoCounterpart",
            "spec.spec.devices.constraints",
            "device plugins do not choose devices by common attributes",
            "",
        )
    if devices.get("config"):
        raise Unmovable(
            "NoCounterpart",
            "spec.spec.devices.config",
            "sharing and other configuration is set per node in the device plugin's own file",
            "",
        )
    made = [_request(f"spec.spec.devices.requests[{n}]", each) for n, each in enumerate(devices.get("requests") or ())]
    if not made:
        raise Unmovable("NoCounterpart", "spec.spec.devices.requests", "the template requests no devices", "")
    return PluginTemplate(tuple(made))


def _request(field: str, value: Any) -> PluginRequest:
    exactly = value.get("exactly") if isinstance(value, dict) else None
    if not isinstance(exactly, dict):
        raise Unmovable(
            "NoCounterpart",
            field,
            "alternatives (firstAvailable) are unknown to device plugins",
            "use v1 and `exactly`",
        )
    for other in exactly:
        if other not in _REQUEST_FIELDS:
            raise Unmovable("NoCounterpart", f"{field}.exactly.{other}", f"device plugins know no {other}", "")
    if exactly.get("allocationMode", "ExactCount") != "ExactCount":
        raise Unmovable(
            "NoCounterpart", f"{field}.exactly.allocationMode", "a device plugin gives a number of devices", ""
        )
    texts = [str(podspec.at(entry, ("cel", "expression"))) for entry in exactly.get("selectors") or ()]
    found = kind_of_request(str(exactly.get("deviceClassName")), texts)
    if found is None:
        raise Unmovable(
            "NoCounterpart",
            f"{field}.exactly.deviceClassName",
            f"no extended resource counts devices of class {exactly.get('deviceClassName')} with these selectors",
            "",
        )
    kind, others = found
    wanted = []
    for text in others:
        requirement = labels.requirement(text)
        if requirement is None:
            raise Unmovable("NoCounterpart", f"{field}.exactly.selectors", f"no node label stands for: {text}", "")
        wanted.append(requirement)
    count = exactly.get("count", 1)
    return PluginRequest(str(value.get("name")), kind, count if isinstance(count, int) else 1, tuple(wanted))


# ---- pods


def to_plugin(ed: Editor, path: Path, template_named: Any) -> list[str] | None:
    """Edit the pod spec at the path; the templates that it needed, None if it has no claims of GPUs of these files.

    template_named(name): the PluginTemplate, or None for one that is not in the files or requests other devices: such
    claims stay. Raises Unmovable and CannotEdit.
    """
    spec = ed.at(path)
    listed = spec.get("resourceClaims")
    if not isinstance(listed, list):
        return None
    field = dotted(path)
    claims: dict[str, PluginTemplate] = {}
    names: list[str] = []
    for entry in listed:
        name = entry.get("resourceClaimTemplateName") if isinstance(entry, dict) else None
        template = template_named(str(name)) if name else None
        if template is not None:
            claims[str(entry.get("name"))] = template
            names.append(str(name))
    if not claims:
        return None
    found = _counts(spec, claims, field)
    wanted = _wanted(claims, field)
    for container, counts in found.items():
        _container(ed, (*path, *container, "resources"), counts, set(claims))
    _pod(ed, path, wanted, set(claims))
    return names


def _counts(spec: dict[str, Any], claims: dict[str, PluginTemplate], field: str) -> dict[Path, dict[str, int]]:
    """Devices of each resource per container. Raises Unmovable if containers share in a way that plugins do not."""
    found: dict[Path, dict[str, int]] = {}
    having: dict[tuple[str, str], set[Path]] = {}
    kinds: dict[DeviceKind, dict[Path, int]] = {}
    for path, container in podspec.containers(spec):
        for entry in podspec.at(container, ("resources", "claims")) or ():
            template = claims.get(str(entry.get("name")))
            if template is None:
                continue
            for request in template.requests:
                if entry.get("request") in (None, "", request.name):
                    counts = found.setdefault(path, {})
                    counts[request.kind.resource] = counts.get(request.kind.resource, 0) + request.count
                    per = kinds.setdefault(request.kind, {})
                    per[path] = per.get(path, 0) + request.count
                    having.setdefault((str(entry.get("name")), request.name), set()).add(path)
    sizes = {(claim, r.name): r for claim, template in claims.items() for r in template.requests}
    for kind, per_container in kinds.items():
        row = {span.container: span for span in podspec.spans(spec, per_container)}
        for one in row:
            for other in row:
                common = sum(
                    sizes[key].count
                    for key, paths in having.items()
                    if sizes[key].kind == kind and {one, other} <= paths
                )
                overlap = min(row[one].end, row[other].end) - max(row[one].start, row[other].start)
                if common != max(overlap, 0):
                    raise Unmovable(
                        "NoCounterpart",
                        field,
                        f"containers share devices ({kind.resource}) in a way in which device plugins do not",
                        "",
                    )
    return found


def _wanted(claims: dict[str, PluginTemplate], field: str) -> tuple[LabelRequirement, ...]:
    """What all requests select: node labels hold for the whole pod. Raises Unmovable."""
    requests = [request for template in claims.values() for request in template.requests]
    all_wanted = [request.wanted for request in requests if is_nvidia(request.kind)]
    if len(set(all_wanted)) > 1:
        raise Unmovable(
            "NoCounterpart",
            f"{field}.resourceClaims",
            "requests select different devices, but a node label holds for all devices of a node",
            "",
        )
    return all_wanted[0] if all_wanted else ()


def _container(ed: Editor, at: Path, counts: dict[str, int], claims: set[str]) -> None:
    listed = (*at, "claims")
    entries = ed.at(listed)
    mine = [n for n, entry in enumerate(entries) if entry.get("name") in claims]
    comments = ed.comments_of((*listed, mine[0]))
    for number in mine[1:]:
        other = ed.comments_of((*listed, number))
        comments = Comments((*comments.above, *other.above, *filter(None, [other.behind.strip()])), comments.behind)
    quote = ed.quote_of((*listed, mine[0], "name"))
    order = ed.keys(at)
    was_first, repeated = _was(order)
    amounts = {resource: QuotedScalar(count, quote) for resource, count in counts.items()}
    stays = len(mine) < len(entries)
    if "limits" in order and isinstance(ed.at((*at, "limits")), dict) and ed.at((*at, "limits")):
        limits = (*at, "limits")
        first = ed.keys(limits)[0]
        for resource, amount in amounts.items():
            ed.insert(limits, resource, amount, before=first if was_first else None, comments=comments)
            comments = NO_COMMENTS
        if stays:
            for number in reversed(mine):
                ed.remove((*listed, number))
        else:
            ed.remove(listed)
    elif stays:
        for number in reversed(mine):
            ed.remove((*listed, number))
        ed.insert(at, "limits", amounts, after="claims", comments=comments)
    else:
        flow = ed.is_flow(listed) and not ed.is_flow(at)
        ed.replace(listed, "limits", Flow(amounts) if flow else amounts, comments)
    if repeated:
        for resource, amount in amounts.items():
            ed.insert((*at, "requests"), resource, amount)


def _was(order: list[str]) -> tuple[bool, bool]:
    """By the place of claims: was the resource the first of the limits, and was it in requests too? (`todra._place`)"""
    claims = order.index("claims")
    if "limits" not in order:
        return False, False
    if "requests" not in order:
        return claims < order.index("limits"), False
    limits, requests = order.index("limits"), order.index("requests")
    if limits < requests:
        return claims < limits, claims > requests
    return requests < claims < limits, claims < requests


def _pod(ed: Editor, path: Path, wanted: tuple[LabelRequirement, ...], moved: set[str]) -> None:
    chosen = {w.key: w.values[0] for w in wanted if w.operator == "="}
    expressions = [
        {"key": w.key, "operator": w.operator, **({"values": list(w.values)} if w.values else {})}
        for w in wanted
        if w.operator != "="
    ]
    claims = (*path, "resourceClaims")
    mine = [n for n, entry in enumerate(ed.at(claims)) if entry.get("name") in moved]
    comments = ed.comments_of((*claims, mine[0]))
    stays = len(mine) < len(ed.at(claims))
    for number in reversed(mine) if stays else ():
        ed.remove((*claims, number))
    replaced = False
    if chosen and isinstance(ed.at((*path, "nodeSelector")), dict) and ed.at((*path, "nodeSelector")):
        for key, value in chosen.items():
            ed.insert((*path, "nodeSelector"), key, value, comments=comments)
            comments = NO_COMMENTS
    elif chosen and stays:
        ed.insert(path, "nodeSelector", chosen, before="resourceClaims", comments=comments)
    elif chosen:
        flow = ed.is_flow(claims) and not ed.is_flow(path)
        ed.replace(claims, "nodeSelector", Flow(chosen) if flow else chosen, comments)
        replaced = True
    if expressions:
        affinity = _with_affinity(ed, path, expressions)
        if affinity is not None and not replaced and not stays:
            ed.replace(claims, "affinity", affinity, comments)
            replaced = True
        elif affinity is not None:
            ed.insert(path, "affinity", affinity, after="nodeSelector" if "nodeSelector" in ed.keys(path) else None)
    if not replaced and not stays:
        ed.remove(claims)


def _with_affinity(ed: Editor, path: Path, expressions: list[dict[str, Any]]) -> dict[str, Any] | None:
    """Put the expressions into the affinity that is there; or the affinity to be written."""
    required = {_TERMS: [{"matchExpressions": expressions}]}
    name = "requiredDuringSchedulingIgnoredDuringExecution"
    affinity = ed.at((*path, "affinity"))
    if not isinstance(affinity, dict) or not affinity:
        return {"nodeAffinity": {name: required}}
    of_nodes = affinity.get("nodeAffinity")
    if not isinstance(of_nodes, dict) or not of_nodes:
        ed.insert((*path, "affinity"), "nodeAffinity", {name: required}, before=ed.keys((*path, "affinity"))[0])
        return None
    if name not in of_nodes:
        where = (*path, "affinity", "nodeAffinity")
        ed.insert(where, name, required, before=ed.keys(where)[0])
        return None
    terms = of_nodes[name][_TERMS]
    if len(terms) != 1:
        raise Unmovable("NoCounterpart", dotted((*path, "affinity")), "the node affinity has several terms already", "")
    where = (*path, "affinity", "nodeAffinity", name, _TERMS, 0)
    if terms[0].get("matchExpressions"):
        for entry in expressions:
            ed.append((*where, "matchExpressions"), entry)
    else:
        ed.insert(where, "matchExpressions", expressions)
    return None


# ---- extended resources of classes


def from_extended(ed: Editor, path: Path, class_named: Any) -> list[str] | None:
    """Rename the extended resources of DeviceClasses to those of device plugins; the classes, None without any.

    class_named(name): (kind, requirements), or None for a class that is not known. Raises Unmovable.
    """
    spec = ed.at(path)
    field = dotted(path)
    used: list[str] = []
    wanted: set[tuple[LabelRequirement, ...]] = set()
    for container, value in podspec.containers(spec):
        for part in ("limits", "requests"):
            for key in list(podspec.at(value, ("resources", part)) or ()):
                if not key.startswith(IMPLICIT):
                    continue
                name = key.removeprefix(IMPLICIT)
                found = class_named(name)
                if found is None:
                    raise Unmovable(
                        "NoCounterpart",
                        f"{field}.{dotted(container)}.resources.{part}",
                        f"no resource of a device plugin counts devices of class {name}",
                        "give the file of the class with -f, too",
                    )
                kind, required = found
                used.append(name)
                wanted.add(required)
                ed.rename((*path, *container, "resources", part, key), kind.resource)
    if not used:
        return None
    if len(wanted) > 1:
        raise Unmovable(
            "NoCounterpart",
            field,
            "classes select different devices, but a node label holds for all devices of a node",
            "",
        )
    required = next(iter(wanted))
    if required:
        _restore(ed, path, required)
    return used


def _restore(ed: Editor, path: Path, wanted: tuple[LabelRequirement, ...]) -> None:
    chosen = {w.key: w.values[0] for w in wanted if w.operator == "="}
    if chosen and isinstance(ed.at((*path, "nodeSelector")), dict) and ed.at((*path, "nodeSelector")):
        for key, value in chosen.items():
            ed.insert((*path, "nodeSelector"), key, value)
    elif chosen:
        ed.insert(path, "nodeSelector", chosen)
    expressions: list[dict[str, Any]] = [
        {"key": w.key, "operator": w.operator, "values": list(w.values)} for w in wanted if w.operator != "="
    ]
    if expressions:
        affinity = _with_affinity(ed, path, expressions)
        if affinity is not None:
            ed.insert(path, "affinity", affinity)
