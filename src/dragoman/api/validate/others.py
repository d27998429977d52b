"""DeviceClass, DeviceTaintRule and ResourcePoolStatusRequest: valid, and may they change so?"""

from __future__ import annotations

from typing import Any

from dragoman.api.gates import Gates
from dragoman.api.shape import Object, dig, items, objects, sub
from dragoman.api.validate import shared
from dragoman.api.validate.field import Errors, FieldPath, each, immutable, number, same
from dragoman.values import names

CONFIG_MAX = 32
POOLS_MAX = 1000
POOL_CONDITIONS_MAX = 10
VALIDATION_ERROR_MAX = 256
SUMMARY_MAX = 32


# ---- DeviceClass


def device_class(obj: Object, gates: Gates) -> Errors:
    """A class to be created."""
    return _class_spec(dig(obj, "spec"), {}, gates)


def device_class_update(new: Object, old: Object, gates: Gates) -> Errors:
    """Mutable; lists that do not change are judged as stored."""
    return _class_spec(dig(new, "spec"), dig(old, "spec"), gates)


def _class_spec(spec: Object, before: Object, gates: Gates) -> Errors:
    path = FieldPath("spec")
    stored = bool(before.get("selectors")) and same(spec.get("selectors"), before.get("selectors"))
    errors = shared.selectors(spec, path, stored=stored, new_gates=gates.enabled)
    kept = bool(before.get("config")) and same(spec.get("config"), before.get("config"))

    def config(value: Any, at: FieldPath) -> Errors:
        return shared.opaque(value if isinstance(value, dict) else {}, at, stored=kept)

    errors += each(items(spec, "config"), path / "config", config, limit=CONFIG_MAX)
    name = spec.get("extendedResourceName")
    if name is not None and not is_extended_resource(str(name)):
        errors.append((path / "extendedResourceName").invalid(name, "must be a valid extended resource name"))
    return errors


def is_extended_resource(name: str) -> bool:
    """Whether a resource name is an ordinary extended one: `domain/name`, not Kubernetes' own."""
    if "/" not in name or "kubernetes.io/" in name or name.startswith("requests."):
        return False
    return names.label_key(f"requests.{name}") is None


# ---- DeviceTaintRule


def taint_rule(obj: Object, gates: Gates) -> Errors:
    """A rule to be created, or its new spec."""
    spec, path = dig(obj, "spec"), FieldPath("spec")
    errors: Errors = []
    if (selector := sub(spec, "deviceSelector")) is not None:
        place = path / "deviceSelector"
        rules = {"driver": shared.driver_name, "pool": shared.pool_name, "device": shared.device_name}
        for field, rule in rules.items():
            if selector.get(field) is not None:
                errors += rule(selector[field], place / field)
    return errors + shared.taint(spec.get("taint"), path / "taint")


def taint_rule_status_update(new: Object, old: Object, gates: Gates) -> Errors:
    """Conditions only."""
    return shared.conditions(dig(new, "status"), FieldPath("status"))


# ---- ResourcePoolStatusRequest


def pool_status_request(obj: Object, gates: Gates) -> Errors:
    """A request to be created."""
    spec, path = dig(obj, "spec"), FieldPath("spec")
    errors = shared.driver_name(spec.get("driver"), path / "driver")
    if spec.get("poolName") is not None:
        errors += shared.pool_name(spec["poolName"], path / "poolName")
    limit = number(spec, "limit")
    if limit is not None and not 1 <= limit <= POOLS_MAX:
        errors.append((path / "limit").invalid(limit, f"must be between 1 and {POOLS_MAX}, inclusive"))
    if spec.get("defaultPartitionTypeAttribute") is not None:
        place = path / "defaultPartitionTypeAttribute"
        errors += shared.fully_qualified_name(spec["defaultPartitionTypeAttribute"], place)
    return errors


def pool_status_request_update(new: Object, old: Object, gates: Gates) -> Errors:
    """The spec never changes."""
    return immutable(new.get("spec"), old.get("spec"), FieldPath("spec"))


def pool_status_request_status_update(new: Object, old: Object, gates: Gates) -> Errors:
    """Written once."""
    path = FieldPath("status")
    if sub(old, "status"):
        return immutable(new.get("status"), old.get("status"), path)
    status = sub(new, "status")
    if status is None:
        return []
    errors: Errors = []
    count = number(status, "poolCount")
    if count is None:
        errors.append((path / "poolCount").required())
    elif count < 0:
        errors.append((path / "poolCount").invalid(count, "must be greater than or equal to zero"))
    errors += each(items(status, "pools"), path / "pools", _pool, limit=POOLS_MAX)
    keys = [(str(p.get("driver")), str(p.get("poolName"))) for p in objects(status, "pools")]
    if keys != sorted(keys):
        errors.append((path / "pools").invalid(len(keys), "must be sorted by driver and poolName"))
    errors += shared.conditions(status, path, limit=POOL_CONDITIONS_MAX)
    for index, condition in enumerate(objects(status, "conditions")):
        if condition.get("type") not in ("Complete", "Failed"):
            place = (path / "conditions")[index] / "type"
            errors.append(place.not_supported(condition.get("type"), ("Complete", "Failed")))
    return errors


def _pool(value: Any, path: FieldPath) -> Errors:
    pool = value if isinstance(value, dict) else {}
    errors = shared.driver_name(pool.get("driver"), path / "driver")
    errors += shared.pool_name(pool.get("poolName"), path / "poolName")
    if number(pool, "generation") is None:
        errors.append((path / "generation").required())
    failed = pool.get("validationError")
    if failed is not None and len(str(failed).encode()) > VALIDATION_ERROR_MAX:
        errors.append((path / "validationError").too_long(VALIDATION_ERROR_MAX))
    least = {
        "resourceSliceCount": 1,
        "totalDevices": 0,
        "allocatedDevices": 0,
        "availableDevices": 0,
        "unavailableDevices": 0,
    }
    for field, minimum in least.items():
        amount = number(pool, field)
        if amount is None:
            if not failed:
                errors.append((path / field).required())
        elif failed:
            errors.append((path / field).forbidden("must not be set when `validationError` is set"))
        elif amount < minimum:
            errors.append((path / field).invalid(amount, f"must be greater than or equal to {minimum}"))
    for summary in ("partitionSummary",):
        if len(items(pool, summary)) > SUMMARY_MAX:
            errors.append((path / summary).too_many(len(items(pool, summary)), SUMMARY_MAX))
    return errors
