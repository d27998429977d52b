"""Would the driver take this opaque configuration? For drivers of the catalogue; of others nothing is known."""

from __future__ import annotations

from collections.abc import Iterator

from dragoman.api.files import Document
from dragoman.api.shape import Object, dig, objects, text
from dragoman.lint.catalogue import CATALOGUE, KnownDriver
from dragoman.lint.finding import Finding, SetValue, Steps, found
from dragoman.lint.rewrite import path_text
from dragoman.lint.world import World


def check(document: Document, world: World) -> Iterator[Finding]:
    """Findings on configuration in classes, claims and templates."""
    if document.value is None:
        return
    for path, entry in _entries(document):
        opaque = dig(entry, "opaque")
        known = CATALOGUE.get(text(opaque, "driver"))
        if known is not None and known.config_version:
            yield from _parameters(document, (*path, "opaque", "parameters"), dig(opaque, "parameters"), known)


def _entries(document: Document) -> Iterator[tuple[Steps, Object]]:
    paths: dict[str, Steps] = {
        "DeviceClass": ("spec",),
        "ResourceClaim": ("spec", "devices"),
        "ResourceClaimTemplate": ("spec", "spec", "devices"),
    }
    path = paths.get(document.kind_name, ())
    for index, entry in enumerate(objects(dig(document.raw, *map(str, path)), "config") if path else ()):
        yield (*path, "config", index), entry


def _parameters(document: Document, path: Steps, parameters: Object, known: KnownDriver) -> Iterator[Finding]:
    version, kind = text(parameters, "apiVersion"), text(parameters, "kind")
    if version != known.config_version:
        message = f"the driver does not know {version or 'a configuration without apiVersion'}: Prepare fails"
        edit = SetValue((*path, "apiVersion"), known.config_version)
        fix = f"write apiVersion: {known.config_version}"
        yield found(document, "WrongConfig", path_text((*path, "apiVersion")), message, fix, edit)
    if kind not in known.config_kinds:
        message = f"the driver does not know {kind or 'a configuration without kind'}: Prepare fails"
        fix = f"it takes {', '.join(sorted(known.config_kinds))}"
        yield found(document, "WrongConfig", path_text((*path, "kind")), message, fix)
    strategy = text(dig(parameters, "sharing"), "strategy")
    if gate := known.strategy_gates.get(strategy):
        message = f"{strategy} needs the driver's feature gate {gate}, which is off by default: Prepare fails without"
        field = path_text((*path, "sharing", "strategy"))
        yield found(document, "NeedsDriverGate", field, message, f"set {gate}=true for the driver")
