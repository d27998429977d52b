"""Which custom resources does the cluster have, as far as controllers follow them? Read from their definitions.

Garbage collection and the end of namespaces concern objects of every kind. Decides nothing.
"""

from __future__ import annotations

from dragoman.api.kinds import custom_name
from dragoman.api.meta import ObjectMeta, Value


class Names(Value, frozen=True):
    """spec.names."""

    plural: str = ""
    kind: str = ""


class CrdVersion(Value, frozen=True):
    """An entry of spec.versions."""

    name: str = ""
    served: bool = False
    storage: bool = False


class CrdSpec(Value, frozen=True):
    """What of a definition tells how to reach its objects."""

    group: str = ""
    scope: str = ""
    names: Names = Names()
    versions: tuple[CrdVersion, ...] = ()


class CrdCondition(Value, frozen=True):
    """An entry of status.conditions."""

    type: str = ""
    status: str = ""


class Status(Value, frozen=True):
    """status."""

    conditions: tuple[CrdCondition, ...] = ()


class CrdDefinition(Value, frozen=True):
    """A CustomResourceDefinition."""

    metadata: ObjectMeta = ObjectMeta()
    spec: CrdSpec = CrdSpec()
    status: Status = Status()

    @property
    def name(self) -> str:
        """The name its kind goes by (`kinds.custom_name`); empty while it is not established."""
        served = [version.name for version in self.spec.versions if version.served]
        stored = [version.name for version in self.spec.versions if version.storage and version.served]
        established = any(c.type == "Established" and c.status == "True" for c in self.status.conditions)
        if not established or not served:
            return ""
        names, namespaced = self.spec.names, self.spec.scope == "Namespaced"
        return custom_name(names.kind, self.spec.group, [*stored, *served][0], names.plural, namespaced=namespaced)
