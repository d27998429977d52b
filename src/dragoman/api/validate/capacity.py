"""Is a capacity's request policy consistent? (KEP-5075)

Computes in whole units, rounded up, as the API does; in thousandths where DRAFractionalCapacityRange is on and a
bound is fractional.
"""

from __future__ import annotations

from dragoman.api.gates import Gates
from dragoman.api.shape import Object, items, sub
from dragoman.api.validate import shared
from dragoman.api.validate.field import Errors, FieldError, FieldPath
from dragoman.values.quantity import INT64_MAX, NANO, Quantity

VALID_VALUES_MAX = 10
_MILLI = NANO // 1000


def request_policy(capacity: Object, policy: Object, path: FieldPath, gates: Gates) -> Errors:
    """requestPolicy of a capacity on a device that may be shared."""
    values, bounds = items(policy, "validValues"), sub(policy, "validRange")
    default = policy.get("default")
    errors = [] if default is None else shared.quantity(default, path / "default")
    if values and bounds is not None:
        errors.append(
            path.invalid("{`validValues`, `validRange`}", "only one of `validValues` or `validRange` is allowed")
        )
    if default is None and (values or bounds is not None):
        detail = "required when `validValues` or `validRange` is set"
        errors.append((path / "default").required(detail))
    total = shared.quantity_of(capacity.get("value"))
    if values:
        errors += _valid_values(values, shared.quantity_of(default), total, path / "validValues", gates)
    if bounds is not None:
        errors += _valid_range(bounds, shared.quantity_of(default), total, path / "validRange", gates)
    return errors


def _whole(value: Quantity) -> int:
    return value.value()


def _valid_values(
    raw: list[object], default: Quantity | None, total: Quantity | None, path: FieldPath, gates: Gates
) -> Errors:
    errors: Errors = []
    if len(raw) > VALID_VALUES_MAX:
        errors.append(path.too_many(len(raw), VALID_VALUES_MAX))
    fractional = gates.on("DRAFractionalCapacityRange")
    seen: set[int] = set()
    before: Quantity | None = None
    for index, item in enumerate(raw[:VALID_VALUES_MAX]):
        errors += shared.quantity(item, path[index])
        value = shared.quantity_of(item)
        if value is None:
            continue
        key = value.nanos if fractional else _whole(value)
        if key in seen:
            errors.append(path[index].duplicate(str(value)))
        elif before is not None and value < before:
            errors.append(path[index].invalid(str(value), "values must be sorted in ascending order"))
        if total is not None and value > total:
            errors.append(path[index].invalid(str(value), f"option is larger than capacity value: {total}"))
        seen.add(key)
        before = value
    if default is not None and (default.nanos if fractional else _whole(default)) not in seen:
        errors.append(path.invalid(str(default), "default value is not valid according to the requestPolicy"))
    return errors


def _valid_range(
    bounds: Object, default: Quantity | None, total: Quantity | None, path: FieldPath, gates: Gates
) -> Errors:
    errors = shared.quantity(bounds.get("min"), path / "min")
    for field in ("max", "step"):
        if bounds.get(field) is not None:
            errors += shared.quantity(bounds[field], path / field)
    low, high, step = (shared.quantity_of(bounds.get(field)) for field in ("min", "max", "step"))
    if errors or low is None:
        return errors
    if total is not None and low > total:
        errors.append((path / "min").invalid(str(low), f"min is larger than capacity value: {total}"))
    if high is not None:
        if low > high:
            errors.append((path / "min").invalid(str(low), f"min is larger than max: {high}"))
        if total is not None and high > total:
            errors.append((path / "max").invalid(str(high), f"max is larger than capacity value: {total}"))
    if default is not None:
        if default < low:
            errors.append((path / "min").invalid(str(low), f"min is larger than default: {default}"))
        if high is not None and default > high:
            errors.append((path / "max").invalid(str(high), f"max is less than default: {default}"))
    return errors + _steps((low, high, step, default), total, path, gates)


def _steps(
    amounts: tuple[Quantity, Quantity | None, Quantity | None, Quantity | None],
    total: Quantity | None,
    path: FieldPath,
    gates: Gates,
) -> Errors:
    low, high, step, default = amounts
    named = {"min": low, "max": high, "step": step, "default": default}
    given = {field: value for field, value in named.items() if value is not None}
    milli = gates.on("DRAFractionalCapacityRange") and any(value.nanos % NANO for value in given.values())
    if not milli and step is None:
        return []
    errors = [error for field, value in given.items() if (error := _unusable(field, value, path, milli=milli))]
    if step is not None and step.sign() <= 0:
        errors.append((path / "step").invalid(str(step), "must be greater than zero"))
    if errors or step is None:
        return errors

    def units(value: Quantity) -> int:
        return value.milli() if milli else _whole(value)

    base, stride = units(low), units(step)
    if total is not None and base + stride > units(total):
        detail = f"one step {base + stride} is larger than capacity value: {total}"
        errors.append((path / "step").invalid(str(step), detail))
    for field, value in (("max", high), ("default", default)):
        if value is not None and (units(value) - base) % stride:
            detail = f"value is not a multiple of a given step ({step}) from ({low})"
            place = path / "max" if field == "max" else FieldPath(path.text.removesuffix(".validRange")) / "default"
            errors.append(place.invalid(str(value), detail))
    return errors


def _unusable(field: str, value: Quantity, path: FieldPath, *, milli: bool) -> FieldError | None:
    place = FieldPath(path.text.removesuffix(".validRange")) / field if field == "default" else path / field
    if milli:
        if value.nanos % _MILLI:
            return place.invalid(str(value), "value cannot be represented as a milli value")
    elif value.value() > INT64_MAX:
        return place.invalid(str(value), f"must not be larger than {INT64_MAX}")
    elif value.sign() < 0:
        return place.invalid(str(value), "must be greater than or equal to zero")
    return None
