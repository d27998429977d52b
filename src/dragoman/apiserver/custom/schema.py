"""What does a structural schema say of one place in a custom resource?

A tree of `SchemaNode`, made once for each version of a definition. Unknown keywords are kept for publishing only.
Source: apiextensions.k8s.io/v1 JSONSchemaProps, KEP-1693 (structural schemas).
"""

from __future__ import annotations

from dragoman.api.shape import Object

ROOT_FIELDS = ("apiVersion", "kind", "metadata")


class ValidationRule:
    """One entry of x-kubernetes-validations."""

    __slots__ = ("field_path", "message", "message_expression", "optional_old_self", "reason", "text")

    def __init__(self, entry: Object) -> None:
        self.text: str = str(entry.get("rule") or "")
        self.message: str = str(entry.get("message") or "")
        self.message_expression: str = str(entry.get("messageExpression") or "")
        self.reason: str = str(entry.get("reason") or "FieldValueInvalid")
        self.field_path: str = str(entry.get("fieldPath") or "")
        self.optional_old_self = bool(entry.get("optionalOldSelf"))


class SchemaNode:
    """One place. type is "" where any JSON value may stand; `raw` holds the keywords as they were written.

    additional: the schema of values of a map; open: any further fields are kept (x-kubernetes-preserve-unknown-fields,
    or additionalProperties: true). below: something in it or below has a default, a rule.
    """

    __slots__ = (
        "additional",
        "default",
        "embedded",
        "has_default",
        "has_defaults_below",
        "has_rules_below",
        "int_or_string",
        "items",
        "keys",
        "list_type",
        "map_type",
        "nullable",
        "open",
        "properties",
        "raw",
        "rules",
        "type",
    )

    def __init__(self, raw: Object) -> None:
        self.raw = raw
        self.type: str = raw.get("type") or ""
        self.nullable = bool(raw.get("nullable"))
        self.int_or_string = bool(raw.get("x-kubernetes-int-or-string"))
        self.embedded = bool(raw.get("x-kubernetes-embedded-resource"))
        self.has_default = raw.get("default") is not None
        self.default = raw.get("default")
        self.list_type: str = raw.get("x-kubernetes-list-type") or ""
        self.map_type: str = raw.get("x-kubernetes-map-type") or ""
        self.keys: tuple[str, ...] = tuple(raw.get("x-kubernetes-list-map-keys") or ())
        self.rules = tuple(ValidationRule(entry) for entry in raw.get("x-kubernetes-validations") or ())
        self.properties = {name: SchemaNode(inner) for name, inner in (raw.get("properties") or {}).items()}
        items = raw.get("items")
        self.items = SchemaNode(items) if isinstance(items, dict) else None
        additional = raw.get("additionalProperties")
        self.additional = SchemaNode(additional) if isinstance(additional, dict) else None
        self.open = bool(raw.get("x-kubernetes-preserve-unknown-fields")) or additional is True
        below = [*self.properties.values(), *(n for n in (self.items, self.additional) if n is not None)]
        self.has_defaults_below: bool = any(node.has_default or node.has_defaults_below for node in below)
        self.has_rules_below: bool = bool(self.rules) or any(node.has_rules_below for node in below)

    def member(self, name: str) -> SchemaNode | None:
        """The schema of a member of an object, None where it says nothing."""
        found = self.properties.get(name)
        return found if found is not None else self.additional


OPEN = SchemaNode({"type": "object", "x-kubernetes-preserve-unknown-fields": True})
"""Of a version without schema (definitions of v1beta1 origin, or an object with everything preserved)."""
