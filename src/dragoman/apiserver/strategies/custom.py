"""What do custom resources and their definitions need? Generations, defaults of names, deletion with all objects."""

from __future__ import annotations

from dragoman.api.shape import Object
from dragoman.apiserver.custom.definition import FINALIZER, defaults
from dragoman.apiserver.lookup import Lookup
from dragoman.apiserver.request import DeleteOptions, Write
from dragoman.apiserver.strategies.base import STATUS_KEEPS, Generational, Strategy


class CustomStrategy(Strategy):
    """Any custom resource: everything but metadata and status counts in its generation."""

    keeps_generation = True
    status_keeps = STATUS_KEEPS

    def counts(self, new: Object, old: Object) -> bool:
        """Whatever the schema calls its fields."""
        return any(new.get(f) != old.get(f) for f in new.keys() | old.keys() if f not in ("metadata", "status"))


class DefinitionStrategy(Generational):
    """CustomResourceDefinition: its status is the server's; its objects go before it."""

    def prepare_create(self, lookup: Lookup, obj: Object, write: Write) -> list[str]:
        """Names and conversion that are left out."""
        defaults(obj)
        stored = [v["name"] for v in (obj.get("spec") or {}).get("versions") or () if v.get("storage")]
        obj["status"] = {"acceptedNames": {"kind": "", "plural": ""}, "conditions": [], "storedVersions": stored}
        return []

    def prepare_update(self, lookup: Lookup, new: Object, old: Object, subresource: str, write: Write) -> list[str]:
        """The same."""
        defaults(new)
        return []

    def before_delete(self, lookup: Lookup, obj: Object, options: DeleteOptions) -> None:
        """Held until all objects are gone."""
        finalizers = obj["metadata"].setdefault("finalizers", [])
        if FINALIZER not in finalizers and "deletionTimestamp" not in obj["metadata"]:
            finalizers.append(FINALIZER)
        conditions = obj.setdefault("status", {}).setdefault("conditions", [])
        if not any(c.get("type") == "Terminating" for c in conditions):
            conditions.append(
                {
                    "lastTransitionTime": lookup.now_text(),
                    "message": "CustomResource deletion is in progress",
                    "reason": "InstanceDeletionInProgress",
                    "status": "True",
                    "type": "Terminating",
                }
            )
