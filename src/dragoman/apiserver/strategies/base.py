"""What may a kind do differently? The hooks that the generic registry calls, with what most kinds need as default.

A strategy changes the object it is given in place and refuses by raising Refused; it never writes to the store.
Hooks see stored versions without apiVersion and kind.
"""

from __future__ import annotations

from typing import Any

from dragoman.api.shape import Object
from dragoman.apiserver.lookup import Lookup
from dragoman.apiserver.request import DeleteOptions, Write

# What a status write may never change (metav1.ResetObjectMetaForStatus).
STATUS_KEEPS = ("labels", "annotations", "finalizers", "ownerReferences")


class Strategy:
    """The default: status is isolated, spec changes bump generation if the kind keeps one.

    returns_deleted: a deletion answers with the object instead of a Status. status_keeps: metadata that a write of the
    status leaves as it was; most kinds let it through.
    """

    keeps_generation = False
    create_on_update = False
    returns_deleted = False
    has_status = True
    status_keeps: tuple[str, ...] = ()

    def prepare_create(self, lookup: Lookup, obj: Object, write: Write) -> list[str]:
        """Set what the server sets; returns warnings. Status is already gone."""
        return []

    def prepare_update(self, lookup: Lookup, new: Object, old: Object, subresource: str, write: Write) -> list[str]:
        """Restore what this kind of write may not change; generic rules were applied."""
        return []

    def counts(self, new: Object, old: Object) -> bool:
        """Whether a change counts in metadata.generation, if the kind keeps one."""
        return bool(new.get("spec") != old.get("spec"))

    def before_delete(self, lookup: Lookup, obj: Object, options: DeleteOptions) -> None:
        """Refuse a deletion."""

    def grace_s(self, obj: Object, options: DeleteOptions) -> int | None:
        """Seconds that a deletion waits for whoever runs the object; None: deletion is at once."""
        return None

    def is_finalized(self, obj: Object) -> bool:
        """Whether nothing outside metadata.finalizers holds back the removal."""
        return True


class Generational(Strategy):
    """A kind whose generation counts changes of spec."""

    keeps_generation = True


class Returned(Strategy):
    """A kind whose deletions answer with the object."""

    returns_deleted = True


class StatusAlone(Strategy):
    """A kind whose status writes change nothing but the status."""

    status_keeps = STATUS_KEEPS


class StatusAloneReturned(Returned):
    """Both."""

    status_keeps = STATUS_KEEPS


class StatusAloneGenerational(Generational):
    """Both."""

    status_keeps = STATUS_KEEPS


def dig(obj: Any, *path: str) -> Any:
    """The value at a path of keys, or None."""
    for part in path:
        obj = obj.get(part) if isinstance(obj, dict) else None
    return obj
