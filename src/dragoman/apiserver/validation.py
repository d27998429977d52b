"""Is the object valid? The registry's side of api.validate and of custom schemas: causes of a Status."""

from __future__ import annotations

from typing import Any

from dragoman.api import validate
from dragoman.api.gates import Gates
from dragoman.api.kinds import BY_NAME, Kind
from dragoman.api.shape import Object
from dragoman.api.validate import meta
from dragoman.apiserver.custom import definition
from dragoman.apiserver.custom.check import Cause
from dragoman.apiserver.custom.check import causes as schema_causes
from dragoman.apiserver.custom.kind import CustomKind
from dragoman.values import names

CRD = BY_NAME["CustomResourceDefinition"]


def validate_create(kind: Kind, obj: Object, gates: Gates, version: str = "") -> list[Cause]:
    """What is wrong with a new object. version: that in which it was sent, for custom resources."""
    if isinstance(kind, CustomKind):
        found = meta.metadata(obj, names.dns_subdomain, namespaced=kind.namespaced)
        return [*map(_cause, found), *_custom(kind, version, obj, None)]
    found = validate.create(kind.kind, obj, gates=gates)
    return [*map(_cause, found), *(definition.create_causes(obj) if kind is CRD else ())]


def validate_update(
    kind: Kind, new: Object, old: Object, subresource: str, gates: Gates, version: str = ""
) -> list[Cause]:
    """What is wrong with a change."""
    if isinstance(kind, CustomKind):
        return [*map(_cause, meta.metadata_update(new, old)), *_custom(kind, version, new, old)]
    found = validate.update(kind.kind, new, old, subresource, gates=gates)
    return [*map(_cause, found), *(definition.update_causes(new, old) if kind is CRD and not subresource else ())]


def _cause(error: Any) -> Cause:
    return error.reason, error.body, error.path


def _custom(kind: CustomKind, version: str, new: Object, old: Object | None) -> list[Cause]:
    """By schema and rules; what was wrong before and has not changed is let through (KEP-4008)."""
    found = kind.definition.version(version)
    causes = schema_causes(found.node, new)
    if old is not None:
        causes = [cause for cause in causes if not _unchanged(cause, new, old)]
    if causes:
        return causes
    return found.rules.causes(new, old)


def _unchanged(cause: Cause, new: Object, old: Object) -> bool:
    reason, _, path = cause
    if reason == "FieldValueRequired":
        path = path.rpartition(".")[0]
        if not path:
            return False
    missing = object()
    after, before = _at(new, path, missing), _at(old, path, missing)
    return after is not missing and before is not missing and after == before


def _at(value: Any, path: str, missing: object) -> Any:
    for part in path.replace("[", ".[").split("."):
        if not part:
            continue
        if part.startswith("["):
            key: Any = part[1:-1]
            if isinstance(value, list) and key.isdigit() and int(key) < len(value):
                value = value[int(key)]
                continue
            return missing
        if not isinstance(value, dict) or part not in value:
            return missing
        value = value[part]
    return value
