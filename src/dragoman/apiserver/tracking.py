"""Which manager owns which field? The registry's side of server-side apply and managedFields.

Everything is tracked in the stored version. The rules themselves are in `apply`.
"""

from __future__ import annotations

import msgspec

from dragoman.api.kinds import Kind
from dragoman.apiserver.request import Write
from dragoman.apiserver.status import Object


def track(kind: Kind, old: Object | None, new: Object, write: Write, *, subresource: str, now: str) -> None:
    """Set managedFields of an object about to be stored, in place."""


def apply(kind: Kind, live: Object | None, config: Object, write: Write, *, subresource: str, now: str) -> Object:
    """The live object with the configuration applied. Raises 409 naming managers and fields."""
    from dragoman.apiserver.patch import merge_patch

    merged: Object = merge_patch(live or {}, config)
    return merged


def applied(write: Write) -> Write:
    """The write that stores the outcome of an apply."""
    return msgspec.structs.replace(write, version="")
