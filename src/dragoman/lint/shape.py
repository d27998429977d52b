"""Does this document have the shape that its API version wants, and would the API server take it?"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime
from difflib import get_close_matches
from typing import Any

from dragoman.api import convert, defaults, validate
from dragoman.api.admission import admin_access_refused
from dragoman.api.codec import TYPES
from dragoman.api.files import DEFAULT_NAMESPACE, Document
from dragoman.api.gated import place_of, unused_fields
from dragoman.api.remedies import of_field
from dragoman.api.resource import ResourceSlice
from dragoman.api.shape import dig, items, sub, text
from dragoman.api.validate.field import FieldError, path_text
from dragoman.lint.finding import Edit, Finding, ItemPath, Lift, Nest, Rename, SetValue, found
from dragoman.lint.manifests import ManifestIndex
from dragoman.lint.pods import pod_specs
from dragoman.lint.rewrite import devices_at, flat_fields, requests_at, to_v1
from dragoman.lint.unknown import unknown_fields
from dragoman.lint.yamlkeys import repeated_keys

# Stamps what is unset; the value is never shown.
_SOME_TIME = datetime(2000, 1, 1, tzinfo=UTC)
V1_SINCE = 34
"""The minor version of Kubernetes that brought resource.k8s.io/v1."""
_JOB_LABEL = "batch.kubernetes.io/controller-uid"


def check(document: Document, world: ManifestIndex) -> Iterator[Finding]:
    """All findings on the shape of one document."""
    for field, key, line in repeated_keys(document):
        message = f"{key!r} is defined twice, only the last one counts"
        yield found(document, "DuplicateKey", field, message, "keep one", line=line)
    inline = list(_inline_claims(document))
    yield from inline
    if document.kind is None or (document.value is None and document.kind_name in TYPES):
        return
    misplaced = [*_requests(document, world), *_devices(document, world)]
    yield from misplaced
    unknown = list(_unknown(document))
    yield from unknown
    yield from _gated(document, world)
    if not any(finding.code in ("FlatRequest", "NestedRequest") for finding in misplaced):
        consequences = _consequences([*inline, *unknown])
        yield from (f for f in _invalid(document, world) if not f.field.startswith(consequences))
    yield from _taint_rule(document, world)
    yield from _pool(document, world)


def _consequences(causes: list[Finding]) -> tuple[str, ...]:
    """Where the server's complaint only repeats a finding: the entry with `source`, the field that was misspelt."""
    fields = [finding.field.removesuffix(".source") for finding in causes]
    renamed = [
        f"{finding.field.rpartition('.')[0]}.{edit.key}"
        for finding in causes
        for edit in finding.edits
        if isinstance(edit, Rename)
    ]
    # An attribute with a field of nobody's has no value either.
    valueless = [
        _ATTRIBUTE.sub(r".attributes[\1]", f.field.rpartition(".")[0]) for f in causes if ".attributes" in f.field
    ]
    return (*fields, *renamed, *valueless)


_ATTRIBUTE = re.compile(r"\.attributes\.(\w+)$")


def _version(document: Document) -> str:
    return str(document.raw.get("apiVersion")).rpartition("/")[2]


# ---- shapes of other versions


def _requests(document: Document, world: ManifestIndex) -> Iterator[Finding]:
    old = _version(document) == "v1beta1"
    for path, request in requests_at(document):
        if old and isinstance(request.get("exactly"), dict):
            message = "v1beta1 has no `exactly`, its requests are flat: the server takes this one for empty"
            has_v1 = world.minor >= V1_SINCE
            edit: Edit = SetValue(("apiVersion",), "resource.k8s.io/v1") if has_v1 else Lift(path, "exactly")
            fix = "set apiVersion to resource.k8s.io/v1" if has_v1 else "put its fields into the request itself"
            yield found(document, "NestedRequest", path_text((*path, "exactly")), message, fix, edit)
        flat = flat_fields(request)
        if not old and flat:
            message = f"{', '.join(flat)} of a request: only v1beta1 has them there"
            edit = Nest(path, flat, "exactly")
            yield found(
                document, "FlatRequest", path_text((*path, flat[0])), message, "move them under `exactly`", edit
            )


def _devices(document: Document, world: ManifestIndex) -> Iterator[Finding]:
    old = _version(document) == "v1beta1"
    for path, device in devices_at(document):
        outside = [field for field in device if field not in ("name", "basic")]
        if old and outside:
            message = f"{', '.join(outside)} of a device: v1beta1 has them under `basic` and drops them here"
            has_v1 = world.minor >= V1_SINCE
            edits = to_v1(document) if has_v1 else (Nest(path, tuple(outside), "basic"),)
            fix = "set apiVersion to resource.k8s.io/v1" if has_v1 else "move them under `basic`"
            yield found(document, "BareDevice", path_text((*path, outside[0])), message, fix, *edits)
        elif not old and isinstance(device.get("basic"), dict):
            message = "only v1beta1 has `basic`; newer versions drop what is under it"
            fix = "put its fields into the device itself"
            yield found(document, "WrappedDevice", path_text((*path, "basic")), message, fix, Lift(path, "basic"))


def _inline_claims(document: Document) -> Iterator[Finding]:
    for path, spec in pod_specs(document):
        for index, entry in enumerate(items(spec, "resourceClaims")):
            source = sub(entry, "source") if isinstance(entry, dict) else None
            if source is None:
                continue
            at: ItemPath = (*path, "resourceClaims", index)
            known = [field for field in source if field in ("resourceClaimName", "resourceClaimTemplateName")]
            edits: tuple[Edit, ...] = (Lift(at, "source"),) if known and len(known) == len(source) else ()
            message = "`source` went with Kubernetes 1.31: the entry itself names the claim or the template"
            fix = "put its field into the entry" if edits else "name a claim or a template; devices are asked for there"
            yield found(document, "InlineClaim", path_text((*at, "source")), message, fix, *edits)


# ---- fields


def _unknown(document: Document) -> Iterator[Finding]:
    for steps, near in unknown_fields(document):
        name = str(steps[-1])
        if name in ("exactly", "basic", "source") or _is_misplaced(document, steps):
            continue
        fix = _nested_attribute(document, steps) or (f"write {near}" if near else "remove it")
        near = _VALUE_FIELDS.get(name, near) if "attributes" in steps else near
        edits = (Rename(steps, near),) if near else ()
        yield found(document, "UnknownField", path_text(steps), f"the API has no field {name!r} here", fix, *edits)


_VALUE_FIELDS = {"stringValue": "string", "intValue": "int", "boolValue": "bool", "versionValue": "version"}


def _nested_attribute(document: Document, steps: ItemPath) -> str:
    """What to do about an attribute under a map of its domain, or with a value field of somebody's own; "" else."""
    if document.kind_name != "ResourceSlice" or "attributes" not in steps or len(steps) < steps.index("attributes") + 3:
        return ""
    domain, name = (str(step) for step in steps[steps.index("attributes") + 1 :][:2])
    if name in _VALUE_FIELDS:
        return f"write {_VALUE_FIELDS[name]}"
    if name == "quantityValue":
        return f"quantities are capacity: write it under capacity, {domain}: {{value: ...}}"
    return f"keys are flat: write {domain}/{name}, or {name} in the driver's own domain" if "." in domain else ""


def _is_misplaced(document: Document, steps: ItemPath) -> bool:
    """Fields that another code speaks of."""
    at = steps[:-1]
    in_request = any(path == at and steps[-1] in flat_fields(request) for path, request in requests_at(document))
    return in_request or (_version(document) == "v1beta1" and any(path == at for path, _ in devices_at(document)))


def _gated(document: Document, world: ManifestIndex) -> Iterator[Finding]:
    for field, gates in unused_fields(document.kind_name, document.object, world.gates):
        message = f"the server drops {field!r} unless {' and '.join(gates)} is on"
        yield found(document, "GatedField", place_of(document.raw, field), message, "turn the gate on or leave it out")


# ---- what the API server would say


def _invalid(document: Document, world: ManifestIndex) -> Iterator[Finding]:
    stored = _as_stored(document)
    for error in validate.create(document.kind_name, stored, gates=world.gates):
        yield _explained(document, error)
    yield from _forbidden(document, stored, world)


def _forbidden(document: Document, stored: dict[str, Any], world: ManifestIndex) -> Iterator[Finding]:
    """What admission refuses because of the namespace, where that is known."""
    namespace = world.find("Namespace", "", document.namespace)
    if namespace is None or document.kind_name not in ("ResourceClaim", "ResourceClaimTemplate"):
        return
    field, why = admin_access_refused(document.kind_name, stored, dig(namespace.object, "metadata", "labels"))
    if field:
        fix = f"label namespace {document.namespace}, or ask without adminAccess"
        yield found(document, "InvalidField", path_as_written(document, field), f"Forbidden: {why}", fix)


def _as_stored(document: Document) -> dict[str, Any]:
    """The document as the server would judge it: defaulted, converted, with what the server itself sets."""
    kind = document.kind
    assert kind is not None
    version = _version(document)
    stored = convert.to_stored(kind.kind, version, defaults.apply(kind.kind, version, document.raw, _SOME_TIME))
    metadata = stored.get("metadata")
    if metadata is None:
        metadata = stored["metadata"] = {}
    if kind.namespaced and isinstance(metadata, dict) and not metadata.get("namespace"):
        metadata["namespace"] = DEFAULT_NAMESPACE
    spec = sub(stored, "spec")
    if kind.kind == "Job" and spec is not None and spec.get("selector") is None and not spec.get("manualSelector"):
        spec["selector"] = {"matchLabels": {_JOB_LABEL: "uid"}}
        template = dig(spec, "template")
        template["metadata"] = {**dig(template, "metadata"), "labels": {_JOB_LABEL: "uid"}}
    return stored


_SLICE_COUNT = "spec.pool.resourceSliceCount"
_LIMIT = "Limit must be set for non overcommitable resources"


def _explained(document: Document, error: FieldError) -> Finding:
    field = path_as_written(document, error.path)
    if error.path == _SLICE_COUNT:
        count = len(items(dig(document.raw, "spec"), "devices"))
        devices = f"its {count} devices are" if count != 1 else "its device is"
        message = f"pool.resourceSliceCount is {error.value}, the pool can never be complete; {devices} ignored"
        return found(document, "NeverComplete", field, message, "say how many slices the pool has")
    if error.detail == _LIMIT:
        message = "an extended resource is in requests only; the server refuses it without an equal limit"
        return found(
            document, "RequestsWithoutLimits", field, message, "put it into limits; requests follow by themselves"
        )
    return found(document, "InvalidField", field, error.body, of_field(error))


_REQUEST = re.compile(r"(devices\.requests\[\d+\])\.exactly\b")
_DEVICE = re.compile(r"^(spec\.devices\[\d+\])\.(?!name\b)")


def path_as_written(document: Document, path: str) -> str:
    """A path of v1 in the version of the document."""
    if _version(document) != "v1beta1":
        return path
    if document.kind_name == "ResourceSlice":
        return _DEVICE.sub(r"\1.basic.", path)
    return _REQUEST.sub(r"\1", path)


def _taint_rule(document: Document, world: ManifestIndex) -> Iterator[Finding]:
    if document.kind_name != "DeviceTaintRule":
        return
    selector = dig(document.raw, "spec").get("deviceSelector")
    field = "spec.deviceSelector"
    if selector is None:
        message = "without a device selector the rule taints nothing"
        yield found(document, "TaintsNothing", field, message, "name a driver, a pool or a device")
    elif not any(dig(document.raw, "spec", "deviceSelector").values()):
        effect = dig(document.raw, "spec", "taint").get("effect")
        message = "an empty device selector taints every device of every driver"
        message += " and evicts the pods that use them" if effect == "NoExecute" else ""
        yield found(document, "TaintsEverything", field, message, "name a driver, a pool or a device")
    else:
        yield from _matches_nothing(document, world)


def _matches_nothing(document: Document, world: ManifestIndex) -> Iterator[Finding]:
    """A rule whose names are not published: what nearly is was probably meant."""
    selector = dig(document.raw, "spec", "deviceSelector")
    published = world.once("device names", lambda: _device_names(world))
    wanted = tuple(text(selector, field) for field in ("driver", "pool", "device"))
    if not published or any(all(w in ("", p) for w, p in zip(wanted, one, strict=True)) for one in published):
        return
    for index, name in enumerate(("driver", "pool", "device")):
        # Among devices that the other names of the rule do take: there it is this one that is wrong.
        others = {one[index] for one in published if all(i == index or wanted[i] in ("", one[i]) for i in range(3))}
        near = get_close_matches(wanted[index], sorted(others), n=1, cutoff=0.75) if wanted[index] else []
        if near:
            message = f"no published device has {name} {wanted[index]}: the rule taints nothing"
            at = ("spec", "deviceSelector", name)
            edit = SetValue(at, near[0])
            yield found(document, "TaintRuleMatchesNothing", path_text(at), message, f"write {near[0]}", edit)
            return
    if world.knows_cluster:
        message = "no published device has these names: the rule taints nothing now"
        yield found(document, "TaintRuleMatchesNothing", "spec.deviceSelector", message, "correct the names")


def _device_names(world: ManifestIndex) -> frozenset[tuple[str, str, str]]:
    """(driver, pool, device) of all that is published."""
    return frozenset(
        (d.value.spec.driver, d.value.spec.pool.name, device.name)
        for d in world.documents
        if isinstance(d.value, ResourceSlice)
        for device in d.value.spec.devices
    )


def _pool(document: Document, world: ManifestIndex) -> Iterator[Finding]:
    """Hand-written slices of drivers that name their pools after nodes."""
    spec = dig(document.raw, "spec")
    known = world.published.known.get(str(spec.get("driver")))
    pool, node = dig(spec, "pool").get("name"), spec.get("nodeName")
    if document.kind_name == "ResourceSlice" and known is not None and known.pools_are_nodes and node and pool != node:
        message = f"{spec.get('driver')} names its pools after nodes; devices of pool {pool} are not its own"
        yield found(
            document,
            "ForeignPool",
            "spec.pool.name",
            message,
            f"write {node}",
            SetValue(("spec", "pool", "name"), node),
        )
