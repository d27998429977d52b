"""Is this ResourceSlice valid, and may it change so?"""

from __future__ import annotations

from typing import Any

from dragoman.api.gates import Gates
from dragoman.api.shape import Object, dig, items, objects, sub, text
from dragoman.api.validate import shared
from dragoman.api.validate.capacity import request_policy
from dragoman.api.validate.field import Errors, FieldPath, by_name, each, immutable, number, same, unique
from dragoman.values import names
from dragoman.values.semver import Semver

DEVICES_MAX = 128
DEVICES_WITH_EXTRAS_MAX = 64
SHARED_COUNTERS_MAX = 8
COUNTERS_MAX = 32
CONSUMES_MAX = 2
ATTRIBUTES_AND_CAPACITIES_MAX = 32
ATTRIBUTE_VALUES_MAX = 48
VALUE_MAX = 64
TAINTS_MAX = 16
COMPATIBILITY_GROUPS_MAX = 2

_SCALARS = ("int", "bool", "string", "version")
_LISTS = ("ints", "bools", "strings", "versions")
_SEMVER = "must be a string compatible with semver.org spec 2.0.0"
_NODE_OF_SLICE = ("nodeName", "nodeSelector", "allNodes", "perDeviceNodeSelection")
_NODE_OF_DEVICE = ("nodeName", "nodeSelector", "allNodes")


def resource_slice(obj: Object, gates: Gates) -> Errors:
    """A slice to be created."""
    return _spec(dig(obj, "spec"), {}, FieldPath("spec"), gates)


def resource_slice_update(new: Object, old: Object, gates: Gates) -> Errors:
    """Everything but driver, pool name and node name may change; unchanged taints and capacity stay unjudged."""
    spec, before, path = dig(new, "spec"), dig(old, "spec"), FieldPath("spec")
    errors = _spec(spec, before, path, gates)
    errors += immutable(spec.get("driver"), before.get("driver"), path / "driver")
    errors += immutable(dig(spec, "pool").get("name"), dig(before, "pool").get("name"), path / "pool" / "name")
    return errors + immutable(spec.get("nodeName"), before.get("nodeName"), path / "nodeName")


def _spec(spec: Object, before: Object, path: FieldPath, gates: Gates) -> Errors:
    errors = shared.driver_name(spec.get("driver"), path / "driver")
    errors += _pool(dig(spec, "pool"), path / "pool")
    errors += _nodes(spec, path)
    devices = items(spec, "devices")
    if spec.get("devices") is not None and spec.get("sharedCounters") is not None:
        errors.append(path.invalid("", "only one of `sharedCounters` or `devices` is allowed"))
    limit = DEVICES_WITH_EXTRAS_MAX if any(map(_has_extras, devices)) else DEVICES_MAX
    stored = {text(device, "name"): device for device in objects(before, "devices")}

    def device(value: Any, at: FieldPath) -> Errors:
        entry = value if isinstance(value, dict) else {}
        return _device(entry, stored.get(text(entry, "name"), {}), at, spec, gates)

    errors += each(devices, path / "devices", device, limit=limit)
    errors += unique(devices, path / "devices", _name_of, "name")
    counter_sets = items(spec, "sharedCounters")
    errors += each(counter_sets, path / "sharedCounters", _counter_set, limit=SHARED_COUNTERS_MAX)
    errors += unique(counter_sets, path / "sharedCounters", _name_of, "name")
    errors += shared.skip_operations(spec, path)
    return errors + _partition_type(spec, path)


def _name_of(value: Any) -> str | None:
    return (value.get("name") or None) if isinstance(value, dict) else None


def _has_extras(device: Any) -> bool:
    """Taints, counters or list attributes: then a slice holds fewer devices."""
    if not isinstance(device, dict):
        return False
    if items(device, "taints") or items(device, "consumesCounters"):
        return True
    values = dig(device, "attributes").values()
    return any(value.get(field) is not None for value in values if isinstance(value, dict) for field in _LISTS)


def _pool(pool: Object, path: FieldPath) -> Errors:
    errors = shared.pool_name(pool.get("name"), path / "name")
    count, generation = number(pool, "resourceSliceCount") or 0, number(pool, "generation") or 0
    if count <= 0:
        errors.append((path / "resourceSliceCount").invalid(count, "must be greater than zero"))
    if generation < 0:
        errors.append((path / "generation").invalid(generation, "must be greater than or equal to zero"))
    return errors


def _nodes(spec: Object, path: FieldPath) -> Errors:
    errors = _node_fields(spec, path, single_term=True)
    if spec.get("perDeviceNodeSelection") is False:
        place = path / "perDeviceNodeSelection"
        errors.append(place.invalid(False, "must be either unset or set to true"))
    return errors + _one_of(spec, _NODE_OF_SLICE, path, "is required")


def _node_fields(holder: Object, path: FieldPath, *, single_term: bool) -> Errors:
    errors: Errors = []
    name = holder.get("nodeName")
    if name == "":
        errors.append((path / "nodeName").invalid("", "must be either unset or set to a non-empty string"))
    elif name is not None:
        errors += by_name(name, path / "nodeName", names.dns_subdomain)
    if (selector := sub(holder, "nodeSelector")) is not None:
        errors += shared.node_selector(selector, path / "nodeSelector", single_term=single_term)
    if holder.get("allNodes") is False:
        errors.append((path / "allNodes").invalid(False, "must be either unset or set to true"))
    return errors


def _one_of(holder: Object, fields: tuple[str, ...], path: FieldPath, required: str) -> Errors:
    ticked = [f"`{field}`" for field in fields]
    detail = f"exactly one of {', '.join(ticked[:-1])}, or {ticked[-1]} {required}"
    given = [f"`{field}`" for field in fields if holder.get(field) is not None]
    if not given:
        return [path.required(detail)]
    if len(given) > 1:
        return [path.invalid("{" + ", ".join(given) + "}", f"{detail}, but multiple fields are set")]
    return []


# ---- devices


def _device(device: Object, before: Object, path: FieldPath, spec: Object, gates: Gates) -> Errors:
    errors = shared.device_name(device.get("name"), path / "name")
    errors += _attributes(device, path)
    errors += _capacity(device, before, path, gates)
    errors += _consumption(device, path)
    if spec.get("perDeviceNodeSelection") is True:
        errors += _node_fields(device, path, single_term=False)
        required = "is required when `perDeviceNodeSelection` is set to true in the ResourceSlice spec"
        errors += _one_of(device, _NODE_OF_DEVICE, path, required)
    else:
        detail = "must not be set unless `perDeviceNodeSelection` is set to true in the ResourceSlice spec"
        set_here = [field for field in _NODE_OF_DEVICE if device.get(field) is not None]
        errors += [(path / field).invalid(device[field], detail) for field in set_here]
    if not same(device.get("taints"), before.get("taints")) or not before:
        errors += each(items(device, "taints"), path / "taints", shared.taint, limit=TAINTS_MAX)
    errors += shared.binding_conditions(device, path)
    return errors + _node_allocatable(device, path)


def _attributes(device: Object, path: FieldPath) -> Errors:
    errors: Errors = []
    values = 0
    for key, value, at in shared.entries(device, "attributes", path):
        errors += shared.qualified_name(key, at)
        attribute = value if isinstance(value, dict) else {}
        errors += _attribute(attribute, at)
        values += sum(len(items(attribute, field)) for field in _LISTS)
        values += sum(attribute.get(field) is not None for field in _SCALARS)
    count = len(dig(device, "attributes")) + len(dig(device, "capacity"))
    if count > ATTRIBUTES_AND_CAPACITIES_MAX:
        detail = f"the total number of attributes and capacities must not exceed {ATTRIBUTES_AND_CAPACITIES_MAX}"
        errors.append(path.invalid(count, detail))
    if values > ATTRIBUTE_VALUES_MAX:
        detail = f"the total number of attribute values must not exceed {ATTRIBUTE_VALUES_MAX}"
        errors.append((path / "attributes").invalid(values, detail))
    return errors


def _attribute(attribute: Object, path: FieldPath) -> Errors:
    given = [field for field in (*_SCALARS, *_LISTS) if attribute.get(field) is not None]
    if not given:
        return [path.required("exactly one value must be specified")]
    errors: Errors = []
    if len(given) > 1:
        shown = "{" + ", ".join(f"`{field}`" for field in given) + "}"
        errors.append(path.invalid(shown, "exactly one value must be specified"))
    if "string" in given:
        errors += _string(attribute["string"], path / "string")
    if "version" in given:
        errors += _version(attribute["version"], path / "version")
    for field in _LISTS:
        if field in given and not items(attribute, field):
            errors.append((path / field).required("must not be empty"))
    errors += each(items(attribute, "strings"), path / "strings", _string)
    return errors + each(items(attribute, "versions"), path / "versions", _version)


def _string(value: Any, path: FieldPath) -> Errors:
    return [path.too_long(VALUE_MAX)] if len(str(value).encode()) > VALUE_MAX else []


def _version(value: Any, path: FieldPath) -> Errors:
    errors = _string(value, path)
    try:
        Semver.parse(str(value))
    except ValueError:
        errors.append(path.invalid(value, _SEMVER))
    return errors


def _capacity(device: Object, before: Object, path: FieldPath, gates: Gates) -> Errors:
    errors: Errors = []
    shareable = device.get("allowMultipleAllocations") is True
    for key, value, at in shared.entries(device, "capacity", path):
        errors += shared.qualified_name(key, at)
        capacity = value if isinstance(value, dict) else {}
        errors += shared.quantity(capacity.get("value"), at / "value")
        policy = sub(capacity, "requestPolicy")
        if policy is None:
            continue
        if not shareable:
            detail = "must not be set unless `allowMultipleAllocations` is set to true on the device"
            errors.append((at / "requestPolicy").forbidden(detail))
        elif not same(capacity, dig(before, "capacity", key)) or not before:
            errors += request_policy(capacity, policy, at / "requestPolicy", gates)
    return errors


def _consumption(device: Object, path: FieldPath) -> Errors:
    values, place = items(device, "consumesCounters"), path / "consumesCounters"
    errors = each(values, place, _consumes, limit=CONSUMES_MAX)
    key = "counterSet"
    return errors + unique(values, place, lambda v: v.get(key) if isinstance(v, dict) else None, key)


def _consumes(value: Any, path: FieldPath) -> Errors:
    consumption = value if isinstance(value, dict) else {}
    errors = by_name(consumption.get("counterSet"), path / "counterSet", names.dns_label)
    groups, place = items(consumption, "compatibilityGroups"), path / "compatibilityGroups"
    errors += each(groups, place, lambda v, p: by_name(v, p, names.dns_label), limit=COMPATIBILITY_GROUPS_MAX)
    return errors + unique(groups, place, str) + _counters(consumption, path)


def _counter_set(value: Any, path: FieldPath) -> Errors:
    counter_set = value if isinstance(value, dict) else {}
    return by_name(counter_set.get("name"), path / "name", names.dns_label) + _counters(counter_set, path)


def _counters(holder: Object, path: FieldPath) -> Errors:
    counters, place = dig(holder, "counters"), path / "counters"
    if not counters:
        return [place.required()]
    if len(counters) > COUNTERS_MAX:
        return [place.too_many(len(counters), COUNTERS_MAX)]
    errors: Errors = []
    for key, value, at in shared.entries(holder, "counters", path):
        errors += by_name(key, at, names.dns_label)
        errors += shared.quantity(value.get("value") if isinstance(value, dict) else None, at / "value")
    return errors


def _partition_type(spec: Object, path: FieldPath) -> Errors:
    """partitionTypeAttribute (KEP-5677): every device that consumes counters says its type as a string."""
    name = spec.get("partitionTypeAttribute")
    if name is None:
        return []
    place = path / "partitionTypeAttribute"
    errors = shared.fully_qualified_name(name, place)
    if errors:
        return errors
    domain, _, bare = str(name).partition("/")
    consuming = [(i, d) for i, d in enumerate(objects(spec, "devices")) if items(d, "consumesCounters")]
    if not consuming:
        return [place.invalid(name, "at least one device in the slice must consume counters")]
    for index, device in consuming:
        attributes = dig(device, "attributes")
        value = attributes.get(name)
        if value is None and domain == spec.get("driver"):
            value = attributes.get(bare)
        if not isinstance(value, dict) or value.get("string") is None:
            at = (path / "devices")[index] / "attributes"
            errors.append(at.required(f"a device that consumes counters needs the string attribute {name}"))
    return errors


# ---- node-allocatable resources (KEP-5517)


def _node_allocatable(device: Object, path: FieldPath) -> Errors:
    errors: Errors = []
    for key, value, at in shared.entries(device, "nodeAllocatableResources", path):
        if key not in ("cpu", "memory", "ephemeral-storage") and not key.startswith("hugepages-"):
            errors.append(
                at.invalid(key, "must be a node-allocatable resource: cpu, memory, ephemeral-storage or hugepages-*")
            )
        entry = value if isinstance(value, dict) else {}
        mapping, overhead = sub(entry, "mapping"), sub(entry, "overhead")
        if mapping is None and overhead is None:
            errors.append(at.required("at least one of `mapping` or `overhead` is required"))
        if mapping is not None:
            errors += _mapping(mapping, device, at / "mapping")
        if overhead is not None:
            errors += _overhead(overhead, at / "overhead")
    return errors


def _mapping(mapping: Object, device: Object, path: FieldPath) -> Errors:
    key, factor = mapping.get("capacityKey"), mapping.get("capacityMultiplier")
    whole = mapping.get("deviceMultiplier")
    errors: Errors = []
    if (key is None) != (factor is None):
        missing = "capacityKey" if key is None else "capacityMultiplier"
        errors.append((path / missing).required("`capacityKey` and `capacityMultiplier` must be set together"))
    by_capacity = key is not None or factor is not None
    if by_capacity and whole is not None:
        detail = "must not be set together with `capacityKey` and `capacityMultiplier`"
        errors.append((path / "deviceMultiplier").forbidden(detail))
    if not by_capacity and whole is None:
        errors.append(path.required("`deviceMultiplier`, or `capacityKey` with `capacityMultiplier`, is required"))
    if key is not None and key not in dig(device, "capacity"):
        errors.append((path / "capacityKey").invalid(key, "must be a capacity of the device"))
    for field in ("capacityMultiplier", "deviceMultiplier"):
        if mapping.get(field) is not None:
            errors += _signed(mapping[field], path / field, least=1, detail="must be greater than zero")
    return errors


def _overhead(overhead: Object, path: FieldPath) -> Errors:
    given = [field for field in ("perPod", "perContainer") if overhead.get(field) is not None]
    if not given:
        return [path.required("at least one of `perPod` or `perContainer` is required")]
    detail = "must be greater than or equal to zero"
    return [error for field in given for error in _signed(overhead[field], path / field, least=0, detail=detail)]


def _signed(raw: Any, path: FieldPath, *, least: int, detail: str) -> Errors:
    errors = shared.quantity(raw, path)
    value = shared.quantity_of(raw)
    if value is not None and value.sign() < least:
        errors.append(path.invalid(raw, detail))
    return errors
