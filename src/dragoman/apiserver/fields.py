"""By which fields can objects of a kind be selected, and what do they hold?

Upstream's list for each kind (GetAttrs and selectable fields of its registries); metadata.name and
metadata.namespace work everywhere and are not repeated here. Unknown keys are refused with 400.
"""

from __future__ import annotations

from typing import Any

from dragoman.api.kinds import Kind
from dragoman.api.shape import Object
from dragoman.apiserver.custom.kind import CustomKind
from dragoman.apiserver.selectors import FieldTerm
from dragoman.apiserver.status import bad_request

# field -> (path, text of the zero value)
_Fields = dict[str, tuple[tuple[str, ...], str]]


def _same(*fields: str) -> _Fields:
    return {field: (tuple(field.split(".")), "") for field in fields}


_POD: _Fields = {
    **_same(
        "spec.nodeName",
        "spec.restartPolicy",
        "spec.schedulerName",
        "spec.serviceAccountName",
        "status.phase",
        "status.podIP",
        "status.nominatedNodeName",
    ),
    "spec.hostNetwork": (("spec", "hostNetwork"), "false"),
}
_EVENT: _Fields = {
    **_same(
        *(f"involvedObject.{f}" for f in ("kind", "namespace", "name", "uid", "apiVersion", "fieldPath")),
        "involvedObject.resourceVersion",
        "reason",
        "type",
    ),
    "reportingComponent": (("reportingComponent",), ""),
    "source": (("source", "component"), ""),
}
_REPLICAS: _Fields = {"status.replicas": (("status", "replicas"), "0")}
_TABLE: dict[str, _Fields] = {
    "pods": _POD,
    "nodes": {"spec.unschedulable": (("spec", "unschedulable"), "false")},
    "events": _EVENT,
    "jobs.batch": {"status.successful": (("status", "succeeded"), "0")},
    "secrets": _same("type"),
    "namespaces": _same("status.phase"),
    "services": _same("spec.clusterIP", "spec.type"),
    "replicasets.apps": _REPLICAS,
    "replicationcontrollers": _REPLICAS,
    "certificatesigningrequests.certificates.k8s.io": _same("spec.signerName"),
    "clustertrustbundles.certificates.k8s.io": _same("spec.signerName"),
    "podcertificaterequests.certificates.k8s.io": _same("spec.signerName", "spec.podName", "spec.nodeName"),
    "resourceslices.resource.k8s.io": _same("spec.nodeName", "spec.driver", "spec.pool.name"),
}
_NONE: _Fields = {}


def _of(kind: Kind, version: str = "") -> _Fields:
    if isinstance(kind, CustomKind):
        versions = kind.definition.versions
        chosen = [versions[version]] if version in versions else versions.values()
        return {field: (tuple(field.split(".")), "") for found in chosen for field in found.selectable}
    return _TABLE.get(f"{kind.plural}.{kind.group}" if kind.group else kind.plural, _NONE)


def fields_of(kind: Kind, obj: Object) -> dict[str, str]:
    """The selectable fields of an object that are set."""
    out: dict[str, str] = {}
    for field, (path, zero) in _of(kind).items():
        value: Any = obj
        for part in path:
            value = value.get(part) if isinstance(value, dict) else None
        if isinstance(value, bool):
            out[field] = "true" if value else "false"
        elif value is not None and value != "":
            out[field] = value if isinstance(value, str) else str(value)
        elif zero:
            out[field] = zero
    if kind.plural == "events" and "source" not in out and "reportingComponent" in out:
        out["source"] = out["reportingComponent"]
    return out


def check(kind: Kind, version: str, terms: tuple[FieldTerm, ...]) -> None:
    """Refuse keys that the kind cannot be selected by."""
    known = _of(kind, version)
    for term in terms:
        if term.key != "metadata.name" and term.key not in known:
            if term.key == "metadata.namespace" and kind.namespaced:
                continue
            text = kind.version_text(version or kind.versions[0])
            raise bad_request(
                f'Unable to find "{text}, Resource={kind.plural}" that match label selector "", field selector '
                f'"{term.key}={term.value}": field label not supported: {term.key}'
            )
