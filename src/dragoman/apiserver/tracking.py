"""Which manager owns which field? The registry's side of server-side apply and managedFields.

Everything is tracked in the stored version. The rules themselves are in `apply`.
"""

from __future__ import annotations

import msgspec

from dragoman.api.kinds import Kind
from dragoman.api.shape import Object
from dragoman.apiserver import apply as rules
from dragoman.apiserver.custom.kind import CustomKind
from dragoman.apiserver.request import Write
from dragoman.apiserver.shape import shape_of, unstructured
from dragoman.apiserver.status import StatusError, bad_request
from dragoman.apiserver.versions import type_text
from dragoman.errors import Invalid


def _form(kind: Kind) -> rules.Form:
    """What server-side apply must know of a kind."""
    gvk = kind.group, kind.versions[0], kind.kind
    shape = kind.definition.storage.shape if isinstance(kind, CustomKind) else shape_of(gvk)
    return rules.Form(shape or unstructured(), gvk, "status" in kind.subresources)


def track(kind: Kind, old: Object | None, new: Object, write: Write, *, subresource: str, now: str) -> Object:
    """An object about to be stored, with the managedFields it must have."""
    return rules.track(old, new, write.manager, write.operation, _form(kind), subresource, now)


def apply(kind: Kind, live: Object | None, config: Object, write: Write, *, subresource: str, now: str) -> Object:
    """The live object with the configuration applied. Raises 409 naming managers and fields, 400."""
    typed = {**type_text(kind, ""), **config}
    try:
        merged = rules.apply(live, typed, write.manager, write.force, _form(kind), subresource, now)
    except rules.ApplyConflict as refused:
        name = (config.get("metadata") or {}).get("name", "")
        details: Object = {"name": name, "kind": kind.plural, "causes": refused.causes}
        if kind.group:
            details["group"] = kind.group
        raise StatusError(409, "Conflict", str(refused), details) from refused
    except Invalid as wrong:
        raise bad_request(str(wrong)) from wrong
    return {field: value for field, value in merged.items() if field not in ("apiVersion", "kind")}


def applied(write: Write) -> Write:
    """The write that stores the outcome of an apply."""
    return msgspec.structs.replace(write, version="", operation="Apply")
