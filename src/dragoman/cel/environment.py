"""What may an expression use? Variables, types, fields and functions; and the way from text to a program.

Never knows which variables there are: who makes an Environment says so.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from dragoman.cel import types as t
from dragoman.cel.functions import Functions
from dragoman.cel.types import Type

TYPE_NAMES: Final[dict[str, Type]] = {
    "bool": t.BOOL,
    "bytes": t.BYTES,
    "double": t.DOUBLE,
    "google.protobuf.Duration": t.DURATION,
    "int": t.INT,
    "list": t.list_of(t.DYN),
    "map": t.map_of(t.DYN, t.DYN),
    "null_type": Type("null", "null_type"),
    "string": t.STRING,
    "google.protobuf.Timestamp": t.TIMESTAMP,
    "type": t.TYPE,
    "uint": t.UINT,
    "optional_type": t.optional_of(t.DYN),
}
"""Names that denote types in expressions; libraries add theirs."""


class Environment(msgspec.Struct, frozen=True):
    """variables and functions by name; fields of object types by type name, then field.

    strict refuses what runs but is no good style: lists of mixed types, literals that cannot be converted.
    objects_are_maps: values of object types are dicts with string keys, not Python objects with attributes.
    literals: object types that expressions may make, with their fields; open_literals: the root of a family of names
    (`Object`, `Object.spec`, ...) that may be made with any fields. Objects made so are dicts.
    """

    variables: Mapping[str, Type]
    functions: Functions
    type_names: Mapping[str, Type] = msgspec.field(default_factory=lambda: TYPE_NAMES)
    fields: Mapping[str, Mapping[str, Type]] = {}
    container: str = ""
    strict: bool = False
    objects_are_maps: bool = False
    literals: Mapping[str, Mapping[str, Type]] = {}
    open_literals: str = ""

    def literal_fields(self, name: str) -> Mapping[str, Type] | None:
        """The fields of an object type that can be made; empty for one that takes any; None if there is no such."""
        if self.open_literals and (name == self.open_literals or name.startswith(f"{self.open_literals}.")):
            return {}
        return self.literals.get(name)

    def candidates(self, name: str) -> list[str]:
        """The full names that a name may stand for, closest container first; a leading dot means the root."""
        if name.startswith("."):
            return [name[1:]]
        found: list[str] = []
        parts = self.container.split(".") if self.container else []
        while parts:
            found.append(".".join([*parts, name]))
            parts.pop()
        return [*found, name]
