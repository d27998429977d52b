"""Are DeviceClasses, claims and pods right? What lint finds in them, and what only a whole cluster shows."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from dragoman.api.meta import parse_time
from dragoman.api.resource import Device
from dragoman.api.selectors import Selector, compile_selector, device_view
from dragoman.api.shape import Object, dig, objects, text
from dragoman.api.validate.field import split_path
from dragoman.doctor.check import INFO, Evidence, Seen
from dragoman.doctor.state import ExaminedCluster, name_of, namespace_of, subject_of, words
from dragoman.lint.finding import Finding

_MODELS = re.compile(r"(?<![a-z0-9])(a10g?|a30|a100|h100|h200|h800|b200|b300|gb200|gb300|l4|l40s?|t4|v100)(?![a-z0-9])")


def from_lint(*codes: str) -> Callable[[ExaminedCluster], Iterable[Seen]]:
    """A check of what lint has these codes for; texts and fixes are lint's."""

    def find(state: ExaminedCluster) -> Iterator[Seen]:
        for finding in state.lint:
            if finding.code in codes:
                subject = finding.subject or finding.file
                kind, _, name = subject.partition(" ")
                shipped = kind == "DeviceClass" and name in state.known.classes
                yield Evidence(
                    subject,
                    finding.field,
                    _written(finding),
                    f"{subject}: {finding.message}",
                    finding.fix,
                    INFO if shipped else None,
                )

    return find


def _written(finding: Finding) -> str:
    """The value at the finding's field, "" for what is no text or number."""
    value: Any = finding.document.raw if finding.document is not None else None
    for step in split_path(finding.field) if finding.field else ():
        try:
            value = value[step]
        except (KeyError, IndexError, TypeError):
            return ""
    return str(value) if isinstance(value, str | int) else ""


def extended_twice(state: ExaminedCluster) -> Iterator[Seen]:
    """Classes that serve one extended resource."""
    by_name: dict[str, list[str]] = {}
    for entry in state.all("DeviceClass"):
        if resource := text(dig(entry, "spec"), "extendedResourceName"):
            by_name.setdefault(resource, []).append(name_of(entry))
    for resource, classes in sorted(by_name.items()):
        if len(classes) > 1:
            message = f"classes {', '.join(classes)} all serve extended resource {resource}: one of them is taken"
            yield Evidence(f"DeviceClass {classes[0]}", "spec.extendedResourceName", resource, message)


def named_after_models(state: ExaminedCluster) -> Iterator[Seen]:
    """Classes whose names are those of hardware."""
    for entry in state.all("DeviceClass"):
        match = _MODELS.search(name_of(entry).lower())
        if match:
            name = name_of(entry)
            message = f"class {name} is named after a model ({match[0].upper()}): users are bound to that hardware"
            yield Evidence(f"DeviceClass {name}", "metadata.name", name, message)


def without_selectors(state: ExaminedCluster) -> Iterator[Seen]:
    """Classes that match every device of every driver."""
    for entry in state.all("DeviceClass"):
        if not objects(dig(entry, "spec"), "selectors"):
            name = name_of(entry)
            message = f"class {name} has no selectors: it matches all devices of all drivers"
            yield Evidence(f"DeviceClass {name}", "spec.selectors", "", message)


def mixed_types(state: ExaminedCluster) -> Iterator[Seen]:
    """Classes without a test of the type, whose devices are of several types."""
    for entry in state.all("DeviceClass"):
        texts = [text(dig(s, "cel"), "expression") for s in objects(dig(entry, "spec"), "selectors")]
        selectors = [compile_selector(expression) for expression in texts]
        compiled = [found for found in selectors if isinstance(found, Selector)]
        if not texts or len(compiled) < len(selectors):
            continue
        found: dict[str, set[str]] = {}
        for shape in _distinct(state):
            view = device_view(*shape)
            if all(selector.match(view) is True for selector in compiled):
                type_ = view.attributes.get(view.driver, {}).get("type")
                found.setdefault(view.driver, set()).add(str(type_) if type_ is not None else "")
        for driver, types in sorted(found.items()):
            if len(types - {""}) > 1:
                name, kinds = name_of(entry), words(sorted(types - {""}))
                message = f"class {name} matches devices of several types of {driver}: {kinds}"
                fix = f"""add device.attributes['{driver}'].type == '{min(types - {""})}' to its selector"""
                yield Evidence(f"DeviceClass {name}", "spec.selectors", kinds, message, fix)


def _distinct(state: ExaminedCluster) -> list[tuple[Device, str]]:
    """A device of each driver and set of attribute values, with its driver."""

    def collected() -> list[tuple[Device, str]]:
        found: dict[tuple[str, str], tuple[Device, str]] = {}
        for name in sorted(state.snapshot.slices):
            spec = state.snapshot.slices[name].spec
            for device in spec.devices:
                own = device.attributes.get("type") or device.attributes.get(f"{spec.driver}/type")
                found.setdefault((spec.driver, str(own)), (device, spec.driver))
        return list(found.values())

    return state.once("distinct devices", collected)


def two_schedulers(state: ExaminedCluster) -> Iterator[Seen]:
    """Pods that hold or want devices, and have different schedulers."""
    by_scheduler: dict[str, list[str]] = {}
    for pod in state.all("Pod"):
        spec = dig(pod, "spec")
        if objects(spec, "resourceClaims") and text(dig(pod, "status"), "phase") not in ("Succeeded", "Failed"):
            scheduler = text(spec, "schedulerName") or "default-scheduler"
            by_scheduler.setdefault(scheduler, []).append(f"{namespace_of(pod)}/{name_of(pod)}")
    if len(by_scheduler) > 1:
        names = ", ".join(f"{name} ({len(pods)} pods)" for name, pods in sorted(by_scheduler.items()))
        last = sorted(by_scheduler.items())[-1]
        message = f"pods with claims have different schedulers: {names}; two may choose one device at once"
        yield Evidence(f"Pod {last[1][0]}", "spec.schedulerName", last[0], message)


def waiting_claims(state: ExaminedCluster) -> Iterator[Seen]:
    """Claims that a pod uses and that have no devices for 5 minutes."""
    for key in sorted(state.snapshot.claims):
        claim = state.snapshot.claims[key]
        if claim.status.allocation is not None or not state.snapshot.consumers(claim):
            continue
        try:
            age_s = (state.now - parse_time(claim.metadata.creation_timestamp or "")).total_seconds()
        except ValueError:
            continue
        if age_s > 300:
            subject = "/".join(key)
            pods = words("/".join(pod) for pod in state.snapshot.consumers(claim))
            message = f"claim {subject} has waited for devices for {int(age_s // 60)} min (pods: {pods})"
            fix = f"dragoman explain claim/{key[1]} -n {key[0]}"
            yield Evidence(f"ResourceClaim {subject}", "status.allocation", "none", message, fix)


def pod_specs(state: ExaminedCluster) -> Iterator[tuple[str, Object]]:
    """Subject and spec of every pod, and of every workload's template."""
    for kind in ("Pod", "Deployment", "StatefulSet", "DaemonSet", "ReplicaSet", "Job"):
        for obj in state.all(kind):
            if kind == "Pod":
                yield subject_of(kind, obj), dig(obj, "spec")
            elif not dig(obj, "metadata").get("ownerReferences"):
                yield subject_of(kind, obj), dig(obj, "spec", "template", "spec")
