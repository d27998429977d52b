"""Can a pod's node selector match a node that is there? Judged only where nodes are at hand."""

from __future__ import annotations

import re
from collections.abc import Iterator

from dragoman.api.files import Document
from dragoman.api.shape import Object, dig, items, objects, text
from dragoman.api.validate.field import path_text
from dragoman.lint.finding import Finding, ItemPath, found
from dragoman.lint.manifests import ManifestIndex
from dragoman.lint.pods import pod_specs

_SHOWN = 5


def check(document: Document, world: ManifestIndex) -> Iterator[Finding]:
    """Findings on nodeSelector and required node affinity of pods and workloads."""
    if document.kind_name == "DaemonSet" or not world.names("Node"):
        return  # a DaemonSet may wait for its nodes
    for path, spec in pod_specs(document):
        if text(spec, "nodeName"):
            continue  # it has its node, whatever the labels are now
        for place, key, values in _wanted(spec):
            there = world.once(("values of node label", key), lambda key=key: _values(world, key))  # type: ignore[misc]
            if there and (not values or set(values) & there):
                continue
            message = _message(key, values, sorted(there))
            yield found(document, "NodeLabelMissing", path_text((*path, *place)), message, _fix(key, world))


def _wanted(spec: Object) -> Iterator[tuple[ItemPath, str, tuple[str, ...]]]:
    """Path, label key and accepted values (none: any) of what a node must have."""
    for key, value in dig(spec, "nodeSelector").items():
        yield ("nodeSelector", key), key, (str(value),)
    field = "requiredDuringSchedulingIgnoredDuringExecution"
    terms = objects(dig(spec, "affinity", "nodeAffinity", field), "nodeSelectorTerms")
    if len(terms) != 1:
        return  # one of several terms is enough
    for index, entry in enumerate(objects(terms[0], "matchExpressions")):
        at = ("affinity", "nodeAffinity", field, "nodeSelectorTerms", 0, "matchExpressions", index)
        if text(entry, "operator") == "Exists":
            yield at, text(entry, "key"), ()
        elif text(entry, "operator") == "In":
            yield at, text(entry, "key"), tuple(map(str, items(entry, "values")))


def _values(world: ManifestIndex, key: str) -> set[str]:
    nodes = (world.find("Node", "", name) for name in world.names("Node"))
    labels = (dig(node.object, "metadata", "labels") for node in nodes if node is not None)
    return {str(found[key]) for found in labels if key in found}


def _message(key: str, values: tuple[str, ...], there: list[str]) -> str:
    if not there:
        return f"no node has the label {key}"
    shown = ", ".join(there[:_SHOWN]) + (", ..." if len(there) > _SHOWN else "")
    return f"no node has {key} of {' or '.join(values)}; there are: {shown}"


def _fix(key: str, world: ManifestIndex) -> str:
    for driver in world.published.known.drivers.values():
        for pattern, advice in driver.node_labels:
            if re.fullmatch(pattern, key):
                return advice
    return "label the nodes, or select by a label that they have"
