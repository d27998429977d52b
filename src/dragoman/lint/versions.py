"""Does the target version of Kubernetes serve this kind in this version, and will the next one?

Facts: the deprecation policy and the release notes of resource.k8s.io (KEP-3063, KEP-4381).
"""

from __future__ import annotations

from collections.abc import Iterator

from dragoman.api.admission import not_served_text
from dragoman.api.files import Document
from dragoman.lint.finding import Edit, Finding, found
from dragoman.lint.manifests import ManifestIndex
from dragoman.lint.rewrite import to_v1

_GROUP = "resource.k8s.io"
_MAIN = ("ResourceClaim", "ResourceClaimTemplate", "ResourceSlice", "DeviceClass")

# kind, version: first and last minor of Kubernetes that can serve it (None: no end known).
SERVED: dict[tuple[str, str], tuple[int, int | None]] = {
    **{(kind, "v1beta1"): (32, 37) for kind in _MAIN},
    **{(kind, "v1beta2"): (33, 38) for kind in _MAIN},
    **{(kind, "v1"): (34, None) for kind in _MAIN},
    **{(kind, "v1alpha3"): (31, 31) for kind in _MAIN},
    ("ResourceClaim", "v1alpha2"): (26, 30),
    ("ResourceClaimTemplate", "v1alpha2"): (26, 30),
    ("ResourceSlice", "v1alpha2"): (30, 30),
    ("DeviceTaintRule", "v1alpha3"): (33, 37),
    ("DeviceTaintRule", "v1beta2"): (36, 38),
    ("DeviceTaintRule", "v1"): (37, None),
    ("ResourcePoolStatusRequest", "v1alpha3"): (36, None),
}

REMOVED: dict[str, str] = {
    "ResourceClass": "a DeviceClass names kinds of devices now, by CEL over what drivers publish",
    "PodSchedulingContext": "the scheduler allocates devices itself now, no driver is asked",
    "ResourceClaimParameters": "parameters for a driver stand in the claim's spec.devices.config now",
    "ResourceClassParameters": "parameters for a driver stand in the DeviceClass's spec.config now",
}
"""Kinds of resource.k8s.io that are gone, and what took their place."""


def check(document: Document, world: ManifestIndex) -> Iterator[Finding]:
    """Findings on kind and apiVersion."""
    group, _, version = str(document.raw.get("apiVersion") or "").rpartition("/")
    kind = document.kind_name
    known = document.kind
    if known is not None and known.gate and not world.gates.on(known.gate) and not world.serves(kind):
        fix = f"turn it on, and lint with --feature-gates {known.gate}=true"
        yield found(document, "GatedKind", "kind", not_served_text(known), fix)
    if group != _GROUP:
        return
    if kind in REMOVED:
        message = f"{kind} was removed with classic DRA in Kubernetes 1.32"
        yield found(document, "RemovedKind", "kind", message, REMOVED[kind])
        return
    span = SERVED.get((kind, version))
    newest = _newest(kind, world.minor)
    if span is None and newest is None:
        return
    if span is None or not span[0] <= world.minor <= (span[1] or world.minor):
        message = f"Kubernetes 1.{world.minor} does not serve {kind} in {group}/{version}"
        message += f", which exists {_when(span)}" if span else ""
        yield found(document, "VersionNotServed", "apiVersion", message, _advice(newest), *_edits(document, newest))
    elif newest is not None and newest != version and version.startswith("v1beta"):
        last = span[1]
        message = f"{group}/{version} is deprecated and off by default"
        message += f"; Kubernetes 1.{last + 1} no longer has it" if last is not None else ""
        yield found(document, "OldVersion", "apiVersion", message, _advice(newest), *_edits(document, newest))


def _newest(kind: str, minor: int) -> str | None:
    served = [v for (k, v), (first, last) in SERVED.items() if k == kind and first <= minor <= (last or minor)]
    return min(served, key=("v1", "v1beta2", "v1beta1", "v1alpha3", "v1alpha2").index, default=None)


def _when(span: tuple[int, int | None]) -> str:
    first, last = span
    if last is None:
        return f"from 1.{first} on"
    return f"in 1.{first} only" if first == last else f"from 1.{first} to 1.{last}"


def _advice(newest: str | None) -> str:
    return f"write it as {_GROUP}/{newest}" if newest else "no version of it is served: leave it out"


def _edits(document: Document, newest: str | None) -> tuple[Edit, ...]:
    # Older ones than the flat shape of v1alpha3 and v1beta1 say other things, which no edit can bring over.
    is_flat = str(document.raw.get("apiVersion")).endswith("/v1alpha3") and document.kind_name in _MAIN
    return to_v1(document) if newest == "v1" and (document.kind is not None or is_flat) else ()
