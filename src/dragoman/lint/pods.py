"""Where do pods stand in a document, and which claims do they use? Of pods themselves and of workloads' templates."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from dragoman.api.files import Document
from dragoman.api.shape import dig, objects, text
from dragoman.lint.finding import ItemPath

_PATHS: tuple[tuple[str, ...], ...] = (
    ("spec", "jobTemplate", "spec", "template", "spec"),
    ("spec", "template", "spec"),
    ("spec",),
)


def pod_specs(document: Document) -> Iterator[tuple[ItemPath, dict[str, Any]]]:
    """Path and value of the pod specs in a document: of a pod, of a workload's template."""
    for path in _PATHS:
        spec = dig(document.raw, *path)
        if isinstance(spec.get("containers"), list):
            yield path, spec


def containers(spec: dict[str, Any]) -> Iterator[tuple[ItemPath, dict[str, Any]]]:
    """Path within the spec and value of each container that may use claims."""
    for field in ("initContainers", "containers"):
        for index, container in enumerate(objects(spec, field)):
            yield (field, index), container


def users_of(documents: Iterable[Document]) -> dict[tuple[str, str], dict[int, int]]:
    """By namespace and name of each shared claim: how many pods at a time use it, by the document's id.

    Pods that belong to a workload count with it.
    """
    users: dict[tuple[str, str], dict[int, int]] = {}
    for document in documents:
        if dig(document.raw, "metadata").get("ownerReferences"):
            continue
        spec = dig(document.raw, "spec")
        pods = spec.get("replicas", spec.get("parallelism", 1))
        for _, pod in pod_specs(document):
            for entry in objects(pod, "resourceClaims"):
                if (claim := text(entry, "resourceClaimName")) and isinstance(pods, int):
                    users.setdefault((document.namespace, claim), {})[id(document)] = pods
    return users
