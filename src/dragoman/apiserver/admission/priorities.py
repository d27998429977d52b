"""How important is a pod or a group? Upstream's Priority admission: from the name of a PriorityClass to its number."""

from __future__ import annotations

from dragoman.api.kinds import BY_NAME
from dragoman.api.shape import Object
from dragoman.apiserver.admission.attributes import AdmissionPlugin, Attributes
from dragoman.apiserver.lookup import Lookup
from dragoman.apiserver.status import forbidden

PRIORITY_CLASS = BY_NAME["PriorityClass"]


class Priorities(AdmissionPlugin):
    """Sets priority and preemptionPolicy of new pods and PodGroups."""

    kinds = frozenset((BY_NAME["Pod"], BY_NAME["PodGroup"]))

    def mutate(self, lookup: Lookup, attributes: Attributes) -> None:
        """The class that is named, else the global default, else 0."""
        if attributes.operation != "CREATE" or attributes.subresource:
            return
        spec = (attributes.obj or {}).get("spec")
        if not isinstance(spec, dict):
            return  # validation has its say about that
        name = spec.get("priorityClassName") or ""
        found = lookup.find(PRIORITY_CLASS, name) if name else None
        if name and found is None:
            raise forbidden(attributes.kind, attributes.name, f"no PriorityClass with name {name} was found")
        chosen = found.decode() if found else _default(lookup)
        value = chosen["value"] if chosen else 0
        policy = (chosen or {}).get("preemptionPolicy", "PreemptLowerPriority")
        sent = spec.get("priority")
        if sent is not None and sent != value:
            raise forbidden(
                attributes.kind,
                attributes.name,
                f"the integer value of priority ({sent}) must not be provided in pod spec; priority admission "
                f"controller computed {value} from the given PriorityClass name",
            )
        if chosen and not name:
            spec["priorityClassName"] = chosen["metadata"]["name"]
        spec["priority"] = value
        spec.setdefault("preemptionPolicy", policy)


def _default(lookup: Lookup) -> Object | None:
    chosen: Object | None = None
    for record in lookup.select(PRIORITY_CLASS):
        if b'"globalDefault":true' not in record.body:
            continue
        obj = record.decode()
        if chosen is None or obj["value"] < chosen["value"]:
            chosen = obj
    return chosen
