"""Do the classes, claims and templates that are named exist, and do pods, containers and claims fit together?

Follows references among the documents at hand. What is not there is reported missing only where a whole cluster is
known, or where the files themselves bring objects of that kind; else it may be in the cluster.
"""

from __future__ import annotations

from collections.abc import Iterator
from difflib import SequenceMatcher
from typing import Any

from dragoman.api.files import Document
from dragoman.api.shape import dig, objects, text
from dragoman.api.validate.claims import RESERVED_FOR_MAX
from dragoman.api.validate.field import path_text
from dragoman.lint.chains import claims_of, class_selectors, exact_requests
from dragoman.lint.finding import Finding, ItemPath, found
from dragoman.lint.manifests import TEMPLATE, ManifestIndex
from dragoman.lint.pods import containers, pod_specs
from dragoman.lint.unknown import as_written


def check(document: Document, world: ManifestIndex) -> Iterator[Finding]:
    """Findings on claims of pods and workloads."""
    if document.kind is None:
        return
    yield from _classes(document, world)
    for path, spec in pod_specs(document):
        yield from _claims(document, spec, path, world)
        used = {text(claim, "name") for _, c in containers(spec) for claim in objects(dig(c, "resources"), "claims")}
        for index, entry in enumerate(objects(spec, "resourceClaims")):
            at: ItemPath = (*path, "resourceClaims", index)
            if text(entry, "name") and text(entry, "name") not in used:
                message = "no container names this claim: its devices are allocated and no container sees them"
                fix = "name it in resources.claims of a container"
                yield found(document, "UnusedClaim", path_text(at), message, fix)
            yield from _consumers(document, entry, at, world)
        yield from _requests(document, spec, path, world)


def _classes(document: Document, world: ManifestIndex) -> Iterator[Finding]:
    if not (world.knows_cluster or world.names("DeviceClass")):
        return
    for path, devices in claims_of(document):
        for index, request in enumerate(objects(devices, "requests")):
            for place, exact_request in exact_requests(request):
                name = text(exact_request, "deviceClassName")
                if name and class_selectors(name, world) is None:
                    field = path_text(as_written(document, (*path, "requests", index, *place, "deviceClassName")))
                    yield _missing(document, "UnknownClass", field, "DeviceClass", "", name, world)


_SOURCES = {"resourceClaimName": "ResourceClaim", "resourceClaimTemplateName": "ResourceClaimTemplate"}


def _claims(document: Document, spec: dict[str, Any], path: ItemPath, world: ManifestIndex) -> Iterator[Finding]:
    for index, entry in enumerate(objects(spec, "resourceClaims")):
        for field, kind in _SOURCES.items():
            name = text(entry, field)
            if not name or world.find(kind, document.namespace, name) is not None:
                continue
            if kind == TEMPLATE and (document.namespace, name) in world.made:
                continue
            if world.knows_cluster or _is_elsewhere(kind, document.namespace, name, world):
                at = path_text((*path, "resourceClaims", index, field))
                yield _missing(document, "UnknownClaim", at, kind, document.namespace, name, world)


def _is_elsewhere(kind: str, namespace: str, name: str, world: ManifestIndex) -> bool:
    """The files have an object of that name in another namespace, or one of nearly that name in this one."""
    elsewhere = world.elsewhere.get((kind, name), ()) not in ((), (namespace,))
    near = world.near(kind, namespace, name)
    return elsewhere or SequenceMatcher(None, near, name).ratio() > _SIMILAR


_SIMILAR = 0.85


def _missing(
    document: Document, code: str, field: str, kind: str, namespace: str, name: str, world: ManifestIndex
) -> Finding:
    where = "in the cluster" if world.knows_cluster else "in these files"
    place = f" in namespace {namespace}" if namespace else ""
    near = world.near(kind, namespace, name)
    elsewhere = next(iter(world.elsewhere.get((kind, name), ())), "")
    fix = f"write {near}" if near else f"create the {kind}, or name one that exists"
    if elsewhere and namespace:
        fix = f"namespace {elsewhere} has it; pods use claims and templates of their own namespace"
    return found(document, code, field, f"there is no {kind} {name}{place} {where}", fix)


def _consumers(document: Document, entry: dict[str, Any], at: ItemPath, world: ManifestIndex) -> Iterator[Finding]:
    claim = text(entry, "resourceClaimName")
    counts = world.users.get((document.namespace, claim), {})
    pods = counts.get(id(document), 0)
    total = sum(counts.values())
    if total <= RESERVED_FOR_MAX or (pods <= RESERVED_FOR_MAX and next(iter(counts)) != id(document)):
        return
    message = f"{max(pods, total)} pods share claim {claim}, at most {RESERVED_FOR_MAX} can reserve it"
    fix = "use a resourceClaimTemplateName, or several claims"
    yield found(document, "TooManyConsumers", path_text((*at, "resourceClaimName")), message, fix)


def _requests(document: Document, spec: dict[str, Any], path: ItemPath, world: ManifestIndex) -> Iterator[Finding]:
    entries = {text(entry, "name"): entry for entry in objects(spec, "resourceClaims")}
    for inner, container in containers(spec):
        for index, claim in enumerate(objects(dig(container, "resources"), "claims")):
            request = text(claim, "request")
            known = _known_requests(entries.get(text(claim, "name")), document.namespace, world)
            if request and known is not None and request not in known:
                at = path_text((*path, *inner, "resources", "claims", index, "request"))
                message = f"the claim has no request {request!r}, it has {', '.join(known) or 'none'}"
                yield found(document, "UnknownRequest", at, message, "name one of them, or none for all")


def _known_requests(entry: dict[str, Any] | None, namespace: str, world: ManifestIndex) -> list[str] | None:
    """Names of the requests behind an entry, None if its claim or template is not among the documents."""
    if entry is None:
        return None
    template = world.find("ResourceClaimTemplate", namespace, text(entry, "resourceClaimTemplateName"))
    claim = world.find("ResourceClaim", namespace, text(entry, "resourceClaimName"))
    if template is not None:
        devices = dig(template.object, "spec", "spec", "devices")
    elif claim is not None:
        devices = dig(claim.object, "spec", "devices")
    else:
        return None
    return [text(request, "name") for request in objects(devices, "requests")]
