"""Is this object valid, and may it change so? As the API server judges, with field paths and its wording.

Works on JSON-shaped dicts of the stored version, after defaulting (`api.defaults`), conversion (`api.convert`) and
the server's own fields (`api.strategy`). Never changes what it judges; other objects (namespaces, quotas) are the
business of admission.
"""

from __future__ import annotations

from collections.abc import Callable

from dragoman.api.codec import TYPES, decode
from dragoman.api.gates import DEFAULTS, Gates
from dragoman.api.kinds import BY_NAME
from dragoman.api.shape import Object
from dragoman.api.validate import claims, meta, others, slices
from dragoman.api.validate.field import TYPE_INVALID, Errors, FieldError, Reason
from dragoman.errors import Invalid
from dragoman.values import names

__all__ = ["FieldError", "create", "update"]

Create = Callable[[Object, Gates], Errors]
Update = Callable[[Object, Object, Gates], Errors]


def create(kind: str, obj: Object, *, gates: Gates = DEFAULTS) -> list[FieldError]:
    """What is wrong with an object to be created, [] for nothing. `kind` is the kind's name."""
    if (mistyped := _mistyped(kind, obj)) is not None:
        return [mistyped]
    reason = _NAMES.get(kind, names.dns_subdomain)
    known = BY_NAME.get(kind)
    namespaced = known.namespaced if known else bool((obj.get("metadata") or {}).get("namespace"))
    errors = meta.metadata(obj, reason, namespaced=namespaced)
    if (rules := _CREATE.get(kind)) is not None:
        errors += rules(obj, gates)
    return errors


def update(kind: str, new: Object, old: Object, subresource: str = "", *, gates: Gates = DEFAULTS) -> list[FieldError]:
    """What is wrong with a change, [] for nothing. `subresource` is "" or e.g. `status`."""
    if (mistyped := _mistyped(kind, new)) is not None:
        return [mistyped]
    errors = meta.metadata_update(new, old)
    if (rules := _UPDATE.get((kind, subresource))) is not None:
        errors += rules(new, old, gates)
    return errors


def _mistyped(kind: str, obj: Object) -> FieldError | None:
    """A wrong JSON type makes all other findings moot."""
    if kind not in TYPES:
        return None
    try:
        decode(TYPES[kind], obj)
    except Invalid as error:
        return FieldError(error.where, TYPE_INVALID, "", error.what)
    return None


def _name_in_path(text: str) -> str | None:
    """Kinds whose names only must fit into a URL."""
    if text in (".", ".."):
        return f"may not be '{text}'"
    return next((f"may not contain '{sign}'" for sign in "/%" if sign in text), None)


_NAMES: dict[str, Reason] = {
    "Namespace": names.dns_label,
    "Service": names.dns_label_1035,
    "Role": _name_in_path,
    "RoleBinding": _name_in_path,
    "ClusterRole": _name_in_path,
    "ClusterRoleBinding": _name_in_path,
}

_CREATE: dict[str, Create] = {
    "ResourceClaim": claims.claim,
    "ResourceClaimTemplate": claims.template,
    "ResourceSlice": slices.resource_slice,
    "DeviceClass": others.device_class,
    "DeviceTaintRule": others.taint_rule,
    "ResourcePoolStatusRequest": others.pool_status_request,
}

_UPDATE: dict[tuple[str, str], Update] = {
    ("ResourceClaim", ""): claims.claim_update,
    ("ResourceClaim", "status"): claims.claim_status_update,
    ("ResourceClaimTemplate", ""): claims.template_update,
    ("ResourceSlice", ""): slices.resource_slice_update,
    ("DeviceClass", ""): others.device_class_update,
    ("DeviceTaintRule", ""): others.taint_rule_update,
    ("DeviceTaintRule", "status"): others.taint_rule_status_update,
    ("ResourcePoolStatusRequest", ""): others.pool_status_request_update,
    ("ResourcePoolStatusRequest", "status"): others.pool_status_request_status_update,
}
