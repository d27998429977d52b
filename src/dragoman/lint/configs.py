"""Would the driver take this opaque configuration? For known drivers; of others nothing is said.

Drivers decode strictly when they prepare a claim, long after scheduling; the same rules come here as tables.
"""

from __future__ import annotations

from collections.abc import Iterator
from difflib import get_close_matches
from typing import Any, TypeAlias

from dragoman.api.files import Document
from dragoman.api.shape import Object, dig, items, objects, text
from dragoman.api.validate.field import path_text
from dragoman.known_drivers import (
    ConfigFields,
    Configs,
    FieldRule,
    KnownDrivers,
    MapOf,
    MemoryQuantity,
    NonEmpty,
    OneOf,
    TrueOrFalse,
    WholeNumber,
)
from dragoman.lint.finding import Edit, Finding, ItemPath, Rename, SetValue, found
from dragoman.lint.manifests import ManifestIndex
from dragoman.values.quantity import Quantity


def check(document: Document, world: ManifestIndex) -> Iterator[Finding]:
    """Findings on configuration in classes, claims and templates."""
    if document.value is None:
        return
    for holder_path, path, entry in _entries(document):
        opaque = dig(entry, "opaque")
        known = world.published.known.get(text(opaque, "driver"))
        if known is None or known.configs is None:
            continue
        at = (*path, "opaque", "parameters")
        wrong = list(_parameters(document, at, dig(opaque, "parameters"), known.configs, world.published.known))
        yield from wrong
        if not wrong:
            yield from _fitting(document, at, dig(document.raw, *map(str, holder_path)), entry, known.configs)
            yield from _gates(document, at, dig(opaque, "parameters"), known.configs)


def _entries(document: Document) -> Iterator[tuple[ItemPath, ItemPath, Object]]:
    paths: dict[str, ItemPath] = {
        "DeviceClass": ("spec",),
        "ResourceClaim": ("spec", "devices"),
        "ResourceClaimTemplate": ("spec", "spec", "devices"),
    }
    path = paths.get(document.kind_name, ())
    for index, entry in enumerate(objects(dig(document.raw, *map(str, path)), "config") if path else ()):
        yield path, (*path, "config", index), entry


def _parameters(
    document: Document, path: ItemPath, parameters: Object, configs: Configs, known: KnownDrivers
) -> Iterator[Finding]:
    version, kind = text(parameters, "apiVersion"), text(parameters, "kind")
    if version != configs.api_version:
        message = f"the driver does not know {version or 'a configuration without apiVersion'}: Prepare fails"
        edit = SetValue((*path, "apiVersion"), configs.api_version)
        fix = f"write apiVersion: {configs.api_version}"
        yield found(document, "WrongConfig", path_text((*path, "apiVersion")), message, fix, edit)
    kinds = configs.kinds
    if kind not in kinds:
        message = f"the driver does not know {kind or 'a configuration without kind'}: Prepare fails"
        near = get_close_matches(kind, kinds, n=1)
        owner = next((d.domain for d in known.drivers.values() if d.configs and kind in d.configs.kinds), "")
        fix = f"write {near[0]}" if near else f"it takes {', '.join(sorted(kinds))}"
        fix = f"it belongs to driver {owner}" if owner else fix
        yield found(document, "WrongConfig", path_text((*path, "kind")), message, fix)
        return
    fields = {name: value for name, value in parameters.items() if name not in ("apiVersion", "kind")}
    for steps, message, fix, edits in _checked(fields, kinds[kind], path):
        yield found(document, "WrongConfig", path_text(steps), f"{message}: Prepare fails", fix, *edits)


_FieldProblem: TypeAlias = tuple[ItemPath, str, str, tuple[Edit, ...]]


def _checked(value: Any, rule: FieldRule, path: ItemPath) -> Iterator[_FieldProblem]:
    """What is wrong with a value: where, what, how to put it right."""
    if value is None:
        return
    name = str(path[-1])
    match rule:
        case ConfigFields():
            yield from _object(value, rule, path)
        case MapOf(inner):
            for key, one in value.items() if isinstance(value, dict) else ():
                yield from _checked(one, inner, (*path, str(key)))
        case OneOf(words):
            if value not in words:
                near = get_close_matches(str(value), words, n=1)
                fix = f"write {near[0]}" if near else f"it takes {', '.join(words)}"
                yield path, f"{name} cannot be {value!r}", fix, (SetValue(path, near[0]),) if near else ()
        case WholeNumber(low, high):
            if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
                yield path, f"{name} must be a number from {low} to {high}, got {value}", "", ()
        case TrueOrFalse():
            if not isinstance(value, bool):
                yield path, f"{name} must be true or false, got {value!r}", "", ()
        case NonEmpty():
            if not isinstance(value, str) or not value:
                yield path, f"{name} must not be empty", "", ()
        case MemoryQuantity():
            if not _is_memory(value):
                yield path, f"{name} must be a quantity of at least 1Mi, got {value}", "", ()


def _object(value: Any, rule: ConfigFields, path: ItemPath) -> Iterator[_FieldProblem]:
    if not isinstance(value, dict):
        yield path, f"{path[-1]} must be an object", "", ()
        return
    for key, inner in value.items():
        if key in rule.fields:
            yield from _checked(inner, rule.fields[key], (*path, key))
            continue
        near = get_close_matches(key, [field for field in rule.fields if field not in value], n=1, cutoff=0.75)
        fix = f"write {near[0]}" if near else f"it knows {', '.join(rule.fields)}"
        yield (*path, key), f"unknown field {key!r}", fix, (Rename((*path, key), near[0]),) if near else ()
    for field, (other, own) in rule.only_with.items():
        allowed = rule.fields[other]
        given = value.get(other)
        if value.get(field) is not None and given != own and isinstance(allowed, OneOf) and given in allowed.words:
            what = f"{field} must not be set with {other} {given}"
            yield (*path, field), what, f"remove it, or set {other} to {own}", ()
    for field in rule.required:
        if value.get(field) in (None, ""):
            yield path, f"{field} is missing", f"set {field}", ()


def _is_memory(value: Any) -> bool:
    try:
        return Quantity.parse(value).nanos >= 2**20 * 10**9
    except (ValueError, TypeError):
        return False


def _gates(document: Document, path: ItemPath, parameters: Object, configs: Configs) -> Iterator[Finding]:
    for needed in configs.gates:
        if text(dig(parameters, *needed.path[:-1]), needed.path[-1]) == needed.value:
            message = (
                f"{needed.value} needs the driver's feature gate {needed.gate}, which is off by default: "
                "Prepare fails without"
            )
            fix = f"set {needed.gate}=true for the driver"
            yield found(document, "NeedsDriverGate", path_text((*path, *needed.path)), message, fix)


def _fitting(document: Document, path: ItemPath, devices: Object, entry: Object, configs: Configs) -> Iterator[Finding]:
    """An entry that names requests must be of the kind that fits their devices."""
    kind = text(dig(entry, "opaque", "parameters"), "kind")
    named = {str(name).partition("/")[0] for name in items(entry, "requests")}
    for request in objects(devices, "requests"):
        if text(request, "name") not in named:
            continue
        exact_request = dig(request, "exactly") or request
        fitting = configs.fitting.get(text(exact_request, "deviceClassName"), kind)
        if fitting != kind:
            message = f"{kind} is for other devices than request {text(request, 'name')} gets: Prepare fails"
            yield found(document, "WrongConfig", path_text((*path, "kind")), message, f"write {fitting}")
