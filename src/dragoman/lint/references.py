"""Do the claims that a pod, its containers and a workload name fit together?

Follows references among the documents at hand; what is not there is not reported missing, it may be in the cluster.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from dragoman.api.files import Document
from dragoman.api.shape import dig, objects, text
from dragoman.api.validate.claims import RESERVED_FOR_MAX
from dragoman.lint.finding import Finding, Steps, found
from dragoman.lint.rewrite import path_text
from dragoman.lint.shape import containers, pod_specs
from dragoman.lint.world import World


def check(document: Document, world: World) -> Iterator[Finding]:
    """Findings on claims of pods and workloads."""
    if document.kind is None:
        return
    for path, spec in pod_specs(document):
        used = {text(claim, "name") for _, c in containers(spec) for claim in objects(dig(c, "resources"), "claims")}
        for index, entry in enumerate(objects(spec, "resourceClaims")):
            at: Steps = (*path, "resourceClaims", index)
            if text(entry, "name") and text(entry, "name") not in used:
                message = "no container names this claim: its devices are allocated and no container sees them"
                fix = "name it in resources.claims of a container"
                yield found(document, "UnusedClaim", path_text(at), message, fix)
            yield from _consumers(document, entry, at)
        yield from _requests(document, spec, path, world)


def _consumers(document: Document, entry: dict[str, Any], at: Steps) -> Iterator[Finding]:
    spec = dig(document.raw, "spec")
    pods = spec.get("replicas", spec.get("parallelism"))
    claim = text(entry, "resourceClaimName")
    if claim and isinstance(pods, int) and pods > RESERVED_FOR_MAX:
        message = f"{pods} pods share claim {claim}, at most {RESERVED_FOR_MAX} can reserve it"
        fix = "use a resourceClaimTemplateName, or several claims"
        yield found(document, "TooManyConsumers", path_text((*at, "resourceClaimName")), message, fix)


def _requests(document: Document, spec: dict[str, Any], path: Steps, world: World) -> Iterator[Finding]:
    entries = {text(entry, "name"): entry for entry in objects(spec, "resourceClaims")}
    for inner, container in containers(spec):
        for index, claim in enumerate(objects(dig(container, "resources"), "claims")):
            request = text(claim, "request")
            known = _known_requests(entries.get(text(claim, "name")), document.namespace, world)
            if request and known is not None and request not in known:
                at = path_text((*path, *inner, "resources", "claims", index, "request"))
                message = f"the claim has no request {request!r}, it has {', '.join(known) or 'none'}"
                yield found(document, "UnknownRequest", at, message, "name one of them, or none for all")


def _known_requests(entry: dict[str, Any] | None, namespace: str, world: World) -> list[str] | None:
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
