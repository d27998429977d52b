"""Is a CustomResourceDefinition valid, and what does the server fill in? Names, versions, structural schemas, rules.

Works on apiextensions.k8s.io/v1 objects without apiVersion and kind. Source: the validation of
k8s.io/apiextensions-apiserver; what only warns there is not judged here.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from dragoman.api.shape import Object
from dragoman.apiserver.custom import paths
from dragoman.apiserver.custom.check import Cause, is_pattern, quoted
from dragoman.apiserver.custom.check import causes as schema_causes
from dragoman.apiserver.custom.rules import ValidationRules
from dragoman.apiserver.custom.schema import ROOT_FIELDS, SchemaNode
from dragoman.values import names

FINALIZER = "customresourcecleanup.apiextensions.k8s.io"
APPROVED = "api-approved.kubernetes.io"
_COLUMN_TYPES = ("integer", "number", "string", "boolean", "date")
_INVALID, _REQUIRED, _FORBIDDEN = "FieldValueInvalid", "FieldValueRequired", "FieldValueForbidden"
_NOT_SUPPORTED, _DUPLICATE = "FieldValueNotSupported", "FieldValueDuplicate"
_TYPES = ("array", "boolean", "integer", "number", "object", "string")
_SCALARS = ("string", "boolean", "integer")


def defaults(crd: Object) -> None:
    """Fill in names and conversion, in place."""
    spec = crd.get("spec")
    if not isinstance(spec, dict):
        return
    given = spec.get("names")
    if isinstance(given, dict) and given.get("kind"):
        if not given.get("singular"):
            given["singular"] = str(given["kind"]).lower()
        if not given.get("listKind"):
            given["listKind"] = f"{given['kind']}List"
    conversion = spec.setdefault("conversion", {"strategy": "None"})
    service = ((conversion.get("webhook") or {}).get("clientConfig") or {}).get("service")
    if isinstance(service, dict):
        service.setdefault("port", 443)


def invalid(value: Any, text: str, path: str) -> Cause:
    """A cause with the value."""
    return _INVALID, f"Invalid value: {quoted(value)}: {text}", path


def required(path: str, text: str = "") -> Cause:
    """A cause for what is missing."""
    return _REQUIRED, f"Required value: {text}" if text else "Required value", path


def create_causes(crd: Object) -> list[Cause]:
    """What is wrong with a new definition."""
    return list(_check(crd, None))


def update_causes(crd: Object, old: Object) -> list[Cause]:
    """What is wrong with a change of a definition."""
    found = list(_check(crd, old))
    spec, before = crd["spec"], old["spec"]
    established = any(c.get("type") == "Established" and c.get("status") == "True" for c in _conditions(old))
    fixed: list[tuple[str, Any, Any]] = [
        ("spec.group", spec.get("group"), before.get("group")),
        ("spec.names.plural", spec["names"].get("plural"), before["names"].get("plural")),
    ]
    if established:
        fixed += [
            ("spec.scope", spec.get("scope"), before.get("scope")),
            ("spec.names.kind", spec["names"].get("kind"), before["names"].get("kind")),
        ]
    found += [invalid(new, "field is immutable", path) for path, new, was in fixed if new != was]
    listed = {version.get("name") for version in spec.get("versions") or ()}
    for at, name in enumerate((old.get("status") or {}).get("storedVersions") or ()):
        if name not in listed:
            text = (
                f"missing from spec.versions; {name} was previously a storage version, and must remain in "
                "spec.versions until a storage migration ensures no data remains persisted in this version and "
                f"removes {name} from status.storedVersions"
            )
            found.append(invalid(name, text, f"status.storedVersions[{at}]"))
    return found


def _conditions(crd: Object) -> list[Object]:
    found: list[Object] = (crd.get("status") or {}).get("conditions") or []
    return found


def _check(crd: Object, old: Object | None) -> Iterator[Cause]:
    spec = crd.get("spec")
    if not isinstance(spec, dict):
        yield required("spec")
        return
    given: Object = spec.get("names") or {}
    group = str(spec.get("group") or "")
    name = crd["metadata"]["name"]
    if name != f"{given.get('plural', '')}.{group}":
        yield invalid(name, 'must be spec.names.plural+"."+spec.group', "metadata.name")
    if not group:
        yield required("spec.group")
    elif (why := names.dns_subdomain(group)) is not None:
        yield invalid(group, why, "spec.group")
    elif "." not in group:
        yield invalid(group, "should be a domain with at least one dot", "spec.group")
    if (group.endswith((".k8s.io", ".kubernetes.io")) or group in ("k8s.io", "kubernetes.io")) and not (
        (crd["metadata"].get("annotations") or {}).get(APPROVED)
    ):
        text = (
            f'protected groups must have approval annotation "{APPROVED}", see '
            "https://github.com/kubernetes/enhancements/pull/1111"
        )
        yield required(f"metadata.annotations[{APPROVED}]", text)
    if spec.get("scope") not in ("Cluster", "Namespaced"):
        yield from _choice(spec.get("scope"), ("Cluster", "Namespaced"), "spec.scope")
    if spec.get("preserveUnknownFields"):
        text = "cannot set to true, set x-kubernetes-preserve-unknown-fields to true in spec.versions[*].schema instead"
        yield invalid(True, text, "spec.preserveUnknownFields")
    yield from _check_names(given)
    yield from _check_conversion(spec.get("conversion") or {}, "spec.conversion")
    yield from _check_versions(spec.get("versions") or [], old)


def _choice(value: Any, choices: tuple[str, ...], path: str) -> Iterator[Cause]:
    if not value:
        yield required(path)
        return
    shown = ", ".join(f'"{choice}"' for choice in choices)
    yield _NOT_SUPPORTED, f"Unsupported value: {quoted(value)}: supported values: {shown}", path


def _check_names(given: Object) -> Iterator[Cause]:
    for field in ("plural", "singular", "kind", "listKind"):
        value = given.get(field)
        path = f"spec.names.{field}"
        if not value:
            yield required(path)
        elif (why := names.dns_label_1035(str(value).lower())) is not None:
            mixed = "may have mixed case, but should otherwise match: " if field in ("kind", "listKind") else ""
            yield invalid(value, mixed + why, path)
    for field in ("shortNames", "categories"):
        for at, value in enumerate(given.get(field) or ()):
            if (why := names.dns_label_1035(value)) is not None:
                yield invalid(value, why, f"spec.names.{field}[{at}]")
    if given.get("kind") and given.get("kind") == given.get("listKind"):
        yield invalid(given["listKind"], "kind and listKind may not be the same", "spec.names.listKind")


def _check_conversion(conversion: Object, path: str) -> Iterator[Cause]:
    strategy = conversion.get("strategy")
    if strategy not in ("None", "Webhook"):
        yield from _choice(strategy, ("None", "Webhook"), f"{path}.strategy")
    elif strategy == "Webhook":
        webhook = conversion.get("webhook") or {}
        client = webhook.get("clientConfig")
        if not client:
            yield required(f"{path}.webhookClientConfig", "required when strategy is set to Webhook")
        elif bool(client.get("url")) is bool(client.get("service")):
            yield required(f"{path}.webhookClientConfig", "exactly one of url or service is required")
        if not webhook.get("conversionReviewVersions"):
            yield required(f"{path}.conversionReviewVersions")
    elif conversion.get("webhook"):
        text = "should not be set when strategy is not set to Webhook"
        yield _FORBIDDEN, f"Forbidden: {text}", f"{path}.webhookClientConfig"


def _check_versions(versions: list[Object], old: Object | None) -> Iterator[Cause]:
    listed = [version.get("name") for version in versions]
    if len(set(listed)) != len(listed):
        yield invalid(listed, "must contain unique version names", "spec.versions")
    if sum(bool(version.get("storage")) for version in versions) != 1:
        yield invalid(listed, "must have exactly one version marked as storage version", "spec.versions")
    before = {v["name"]: v for v in (old or {"spec": {"versions": []}})["spec"]["versions"]}
    for at, version in enumerate(versions):
        path = f"spec.versions[{at}]"
        name = version.get("name") or ""
        if (why := names.dns_label_1035(name)) is not None:
            yield invalid(name, why, f"{path}.name")
        schema = (version.get("schema") or {}).get("openAPIV3Schema")
        if not isinstance(schema, dict):
            yield required(f"{path}.schema.openAPIV3Schema", "schemas are required")
            continue
        here = f"{path}.schema.openAPIV3Schema"
        structural = list(_structural(schema, here, root=True))
        yield from structural
        if not structural and (before.get(name) or {}).get("schema") != version.get("schema"):
            yield from ValidationRules(SchemaNode(schema)).problems(here)
        yield from _check_columns(version, path)
        yield from _check_scale(version, f"{path}.subresources.scale")
        yield from _check_selectable(version, schema, path)


def _check_columns(version: Object, path: str) -> Iterator[Cause]:
    for at, column in enumerate(version.get("additionalPrinterColumns") or ()):
        here = f"{path}.additionalPrinterColumns[{at}]"
        if not column.get("name"):
            yield required(f"{here}.name")
        if column.get("type") not in _COLUMN_TYPES:
            text = f"must be one of {','.join(sorted(_COLUMN_TYPES))}"
            yield (
                invalid(column["type"], text, f"{here}.type") if column.get("type") else required(f"{here}.type", text)
            )
        if not column.get("jsonPath"):
            yield required(f"{here}.JSONPath")
            continue
        try:
            paths.parse(column["jsonPath"])
        except ValueError as wrong:
            yield invalid(column["jsonPath"], f"is an invalid JSON path: {wrong}", f"{here}.jsonPath")


def _check_scale(version: Object, path: str) -> Iterator[Cause]:
    scale = (version.get("subresources") or {}).get("scale")
    if scale is None:
        return
    for field, roots in (
        ("specReplicasPath", (".spec.",)),
        ("statusReplicasPath", (".status.",)),
        ("labelSelectorPath", (".spec.", ".status.")),
    ):
        value = scale.get(field)
        if not value:
            if field != "labelSelectorPath":
                yield required(f"{path}.{field}")
        elif not value.startswith(roots):
            under = roots[0].strip(".") if len(roots) == 1 else ""
            text = (
                f"should be a json path under .{under}"
                if under
                else "should be a json path under either .spec or .status"
            )
            yield invalid(value, text, f"{path}.{field}")


def _check_selectable(version: Object, schema: Object, path: str) -> Iterator[Cause]:
    seen: set[str] = set()
    for at, entry in enumerate(version.get("selectableFields") or ()):
        here = f"{path}.selectableFields[{at}].jsonPath"
        text = entry.get("jsonPath") or ""
        if not text:
            yield required(here)
            continue
        found: Any = schema
        for part in text.strip(".").split("."):
            found = (found.get("properties") or {}).get(part) if isinstance(found, dict) else None
        if text.startswith(".metadata"):
            yield invalid(text, "must not point to fields in metadata", here)
        elif not isinstance(found, dict):
            yield invalid(text, f"is an invalid path: does not refer to a valid field", here)  # noqa: F541
        elif found.get("type") not in _SCALARS:
            what = (
                "must point to a field of type string, boolean or integer. Enum string fields and strings with formats "
                "are allowed."
            )
            yield invalid(text, what, here)
        if text in seen:
            yield _DUPLICATE, f"Duplicate value: {quoted(text)}", here
        seen.add(text)


# ---- structural schemas

_NO_KEYWORDS = ("definitions", "dependencies", "patternProperties", "additionalItems", "$ref", "id")


def _structural(schema: Object, path: str, *, root: bool = False) -> Iterator[Cause]:
    open_ = bool(schema.get("x-kubernetes-preserve-unknown-fields"))
    type_ = schema.get("type")
    if not type_:
        if root:
            yield required(f"{path}.type", "must not be empty at the root")
        elif not open_ and not schema.get("x-kubernetes-int-or-string"):
            what = "array items" if path.endswith(".items") else "object fields"
            yield required(f"{path}.type", f"must not be empty for specified {what}")
    elif type_ not in _TYPES:
        shown = ", ".join(f'"{choice}"' for choice in _TYPES)
        yield _NOT_SUPPORTED, f"Unsupported value: {quoted(type_)}: supported values: {shown}", f"{path}.type"
    elif root and type_ != "object":
        yield invalid(type_, "must be object at the root", f"{path}.type")
    if schema.get("x-kubernetes-embedded-resource") and type_ != "object":
        yield invalid(type_ or "", "must be object if x-kubernetes-embedded-resource is true", f"{path}.type")
    for keyword in _NO_KEYWORDS:
        if schema.get(keyword):
            yield _FORBIDDEN, f"Forbidden: {keyword} is not supported", f"{path}.{keyword}"
    if schema.get("uniqueItems"):
        text = "uniqueItems cannot be set to true since the runtime complexity becomes quadratic"
        yield _FORBIDDEN, f"Forbidden: {text}", f"{path}.uniqueItems"
    if root and schema.get("nullable"):
        yield _FORBIDDEN, "Forbidden: nullable cannot be true at the root", f"{path}.nullable"
    if isinstance(schema.get("items"), list):
        yield _FORBIDDEN, "Forbidden: items must be a schema object and not an array", f"{path}.items"
    if schema.get("properties") and schema.get("additionalProperties"):
        text = "additionalProperties and properties are mutual exclusive"
        yield _FORBIDDEN, f"Forbidden: {text}", f"{path}.additionalProperties"
    if schema.get("additionalProperties") is False:
        text = "additionalProperties cannot be set to false"
        yield _FORBIDDEN, f"Forbidden: {text}", f"{path}.additionalProperties"
    if (pattern := schema.get("pattern")) and not is_pattern(pattern):
        yield invalid(pattern, "must be a valid regular expression, but isn't: error parsing regexp", f"{path}.pattern")
    yield from _list_causes(schema, path)
    if schema.get("default") is not None and not root:
        yield from _default_causes(schema, path)
    for keyword in ("allOf", "anyOf", "oneOf"):
        for at, inner in enumerate(schema.get(keyword) or ()):
            yield from _value_only(inner, f"{path}.{keyword}[{at}]")
    if isinstance(schema.get("not"), dict):
        yield from _value_only(schema["not"], f"{path}.not")
    for name, inner in (schema.get("properties") or {}).items():
        if root and name in ROOT_FIELDS:
            continue
        yield from _structural(inner, f"{path}.properties[{name}]")
    for keyword in ("items", "additionalProperties"):
        if isinstance(schema.get(keyword), dict):
            yield from _structural(schema[keyword], f"{path}.{keyword}")


def _value_only(schema: Object, path: str) -> Iterator[Cause]:
    """Below allOf and the like only validations stand, nothing that shapes the object."""
    for keyword in ("description", "default", "nullable", "type", "additionalProperties"):
        allowed = keyword == "type" and schema.get("type") in ("integer", "string")
        if schema.get(keyword) and not allowed:
            yield _FORBIDDEN, "Forbidden: must be empty to be structural", f"{path}.{keyword}"
    for name, inner in (schema.get("properties") or {}).items():
        yield from _value_only(inner, f"{path}.properties[{name}]")


def _list_causes(schema: Object, path: str) -> Iterator[Cause]:
    kind = schema.get("x-kubernetes-list-type")
    if kind is None:
        return
    if kind not in ("atomic", "set", "map"):
        yield from _choice(kind, ("atomic", "set", "map"), f"{path}.x-kubernetes-list-type")
        return
    if schema.get("type") != "array":
        text = "must be array if x-kubernetes-list-type is specified"
        yield invalid(schema.get("type") or "", text, f"{path}.type")
    keys = schema.get("x-kubernetes-list-map-keys") or []
    if kind == "map":
        if not keys:
            text = "must not be empty if x-kubernetes-list-type is map"
            yield required(f"{path}.x-kubernetes-list-map-keys", text)
        items = schema.get("items") or {}
        for key in keys:
            member = (items.get("properties") or {}).get(key)
            if member is None:
                yield invalid(
                    keys, "entries must all be names of item properties", f"{path}.x-kubernetes-list-map-keys"
                )
            elif key not in (items.get("required") or ()) and member.get("default") is None:
                needs = "it must have a default or be a required property"
                text = f"this property is in x-kubernetes-list-map-keys, so {needs}"
                yield required(f"{path}.items.properties[{key}].default", text)


def _default_causes(schema: Object, path: str) -> Iterator[Cause]:
    value = msgspec.json.decode(msgspec.json.encode(schema["default"]))
    for reason, text, below in schema_causes(
        SchemaNode({"type": "object", "properties": {"default": schema}}), {"default": value}
    ):
        inner = below.removeprefix("default")
        yield reason, text.replace(f"{below} in body", f"{path}.default{inner} in body"), f"{path}.default{inner}"
