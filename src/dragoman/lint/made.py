"""Do workloads fit the objects of drivers that make their claim templates? Pods together, numbers, values, classes.

What a driver's kinds are is data of its own (`known_drivers.TemplateMaker`).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from dragoman.api.files import Document
from dragoman.api.shape import dig, objects, text
from dragoman.api.validate.field import path_text
from dragoman.known_drivers import TemplateMaker
from dragoman.lint.chains import claims_of, exact_requests
from dragoman.lint.finding import Finding, ItemPath, found
from dragoman.lint.manifests import TEMPLATE, ManifestIndex
from dragoman.lint.pods import pod_specs
from dragoman.lint.unknown import as_written


def check(document: Document, world: ManifestIndex) -> Iterator[Finding]:
    """Findings on objects that make templates, and on pods that use these."""
    for maker in (maker for made, maker in world.made.values() if made is document):
        yield from _values(document, maker)
        yield from _nodes(document, maker, world)
    if document.kind is None:
        return
    for path, spec in pod_specs(document):
        yield from _together(document, spec, path, world)
    yield from _classes(document, world)


def _values(document: Document, maker: TemplateMaker) -> Iterator[Finding]:
    for warned in maker.warned:
        if dig(document.raw, *warned.path[:-1]).get(warned.path[-1]) == warned.value:
            message = f"{maker.kind} with {warned.path[-1]} {warned.value}: {warned.message}"
            yield found(document, "RarelyMeant", path_text(warned.path), message, warned.fix)


def _pods(document: Document) -> int:
    spec = dig(document.raw, "spec")
    pods = spec.get("replicas", spec.get("parallelism", 1))
    return pods if isinstance(pods, int) else 1


def _nodes(document: Document, maker: TemplateMaker, world: ManifestIndex) -> Iterator[Finding]:
    wanted = dig(document.raw, *maker.nodes[:-1]).get(maker.nodes[-1]) if maker.nodes else None
    if not isinstance(wanted, int) or isinstance(wanted, bool) or wanted < 2:
        return
    users = [other for other in world.documents if any(made is document for made, _ in _used(other, world))]
    pods = sum(_pods(other) for other in users)
    if users and pods < wanted:
        message = f"{maker.kind} waits for {wanted} nodes and its workload here has {pods} pods: it is never Ready"
        fix = f"write 0: nodes then come and go with the pods, or {pods}"
        yield found(document, "NodesNeverThere", path_text(maker.nodes), message, fix)


def _used(document: Document, world: ManifestIndex) -> Iterator[tuple[Document, TemplateMaker]]:
    for _, spec in pod_specs(document):
        for entry in objects(spec, "resourceClaims"):
            made = world.made.get((document.namespace, text(entry, "resourceClaimTemplateName")))
            if made is not None:
                yield made


def _together(document: Document, spec: dict[str, Any], path: ItemPath, world: ManifestIndex) -> Iterator[Finding]:
    if _pods(document) < 2:
        return
    for made, maker in _used(document, world):
        if not maker.together or _has_affinity(spec, maker.together):
            continue
        name = made.raw.get("metadata", {}).get("name", "")
        message = (
            f"nothing keeps these {_pods(document)} pods in one {maker.together}: {maker.kind} {name} does not, and "
            "pods in two of them run and cannot reach each other's memory"
        )
        fix = f"add a podAffinity with topologyKey {maker.together}"
        yield found(document, "NotTogether", path_text(path), message, fix)


def _has_affinity(spec: dict[str, Any], key: str) -> bool:
    affinity = dig(spec, "affinity", "podAffinity")
    terms = objects(affinity, "requiredDuringSchedulingIgnoredDuringExecution")
    pins = dig(spec, "nodeSelector")
    return key in pins or any(text(term, "topologyKey") == key for term in terms)


def _classes(document: Document, world: ManifestIndex) -> Iterator[Finding]:
    own = {name: driver.domain for driver in world.published.known.drivers.values() for name in driver.own_classes}
    if not own or (document.kind_name == TEMPLATE and dig(document.raw, "metadata").get("finalizers")):
        return  # those that the driver itself has made
    for path, devices in claims_of(document):
        for index, request in enumerate(objects(devices, "requests")):
            for place, exact in exact_requests(request):
                name = text(exact, "deviceClassName")
                if name in own:
                    field = path_text(as_written(document, (*path, "requests", index, *place, "deviceClassName")))
                    message = f"class {name} is for pods that {own[name]} makes itself"
                    yield found(document, "DriversOwnClass", field, message, "name the class for workloads")
