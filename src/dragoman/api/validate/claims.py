"""Is this ResourceClaim or ResourceClaimTemplate valid, and may it change so?"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable
from typing import Any

from dragoman.api.gates import Gates
from dragoman.api.shape import Object, dig, items, objects, sub, text
from dragoman.api.validate import shared
from dragoman.api.validate.cel import check_expression
from dragoman.api.validate.field import Errors, FieldPath, by_name, each, immutable, number, one_of, unique
from dragoman.api.validate.meta import annotation_map, label_map
from dragoman.values import names

REQUESTS_MAX = 32
SUBREQUESTS_MAX = 8
CONSTRAINTS_MAX = 32
CONFIG_MAX = 32
RESULTS_MAX = 32
ALLOCATION_CONFIG_MAX = 64
RESERVED_FOR_MAX = 256
DERIVED_MAX = 8
IPS_MAX = 16

_ONE_OF_TWO = "exactly one of `exactly` or `firstAvailable` is required"
_NOT_A_REQUEST = "must be the name of a request in the claim or the name of a request and a subrequest separated by '/'"
_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


def claim(obj: Object, gates: Gates) -> Errors:
    """A claim to be created."""
    return claim_spec(dig(obj, "spec"), FieldPath("spec"), gates)


def claim_update(new: Object, old: Object, gates: Gates) -> Errors:
    """The spec never changes, so it is not judged again."""
    return immutable(new.get("spec"), old.get("spec"), FieldPath("spec"))


def template(obj: Object, gates: Gates) -> Errors:
    """A template to be created."""
    path, spec = FieldPath("spec"), dig(obj, "spec")
    errors: Errors = []
    for field, value in sorted(dig(spec, "metadata").items()):
        if field not in ("labels", "annotations") and value not in (None, "", 0, [], {}):
            errors.append((path / "metadata" / field).invalid(value, "cannot be set for an Object inside a template"))
    errors += label_map(dig(spec, "metadata"), path / "metadata")
    errors += annotation_map(dig(spec, "metadata"), path / "metadata")
    return errors + claim_spec(dig(spec, "spec"), path / "spec", gates)


def template_update(new: Object, old: Object, gates: Gates) -> Errors:
    """The spec never changes."""
    return immutable(new.get("spec"), old.get("spec"), FieldPath("spec"))


# ---- spec


def claim_spec(spec: Object, path: FieldPath, gates: Gates) -> Errors:
    """spec.devices of a claim."""
    devices, place = dig(spec, "devices"), path / "devices"
    requests = items(devices, "requests")
    errors = each(requests, place / "requests", lambda v, p: _request(v, p, gates), limit=REQUESTS_MAX)
    errors += unique(requests, place / "requests", _name_of, "name")
    known = request_names(devices)

    def constraint(value: Any, at: FieldPath) -> Errors:
        return _constraint(value if isinstance(value, dict) else {}, at, known)

    def config(value: Any, at: FieldPath) -> Errors:
        entry = value if isinstance(value, dict) else {}
        return _references(entry, at, known) + shared.opaque(entry, at, stored=False)

    errors += each(items(devices, "constraints"), place / "constraints", constraint, limit=CONSTRAINTS_MAX)
    errors += each(items(devices, "config"), place / "config", config, limit=CONFIG_MAX)
    return errors + _derived_are_used(devices, place)


def request_names(devices: Object) -> frozenset[str]:
    """What constraints, config and results may refer to: `request` and `request/subrequest`."""
    found: set[str] = set()
    for request in objects(devices, "requests"):
        name = str(request.get("name") or "")
        found.add(name)
        found.update(f"{name}/{sub.get('name') or ''}" for sub in objects(request, "firstAvailable"))
    return frozenset(found)


def _name_of(value: Any) -> str | None:
    return (value.get("name") or None) if isinstance(value, dict) else None


def _request(value: Any, path: FieldPath, gates: Gates) -> Errors:
    request = value if isinstance(value, dict) else {}
    errors = by_name(request.get("name"), path / "name", names.dns_label)
    exactly, alternatives = sub(request, "exactly"), items(request, "firstAvailable")
    if exactly is None and not alternatives:
        errors.append(path.required(_ONE_OF_TWO))
    elif exactly is not None and alternatives:
        errors.append(path.invalid(None, f"{_ONE_OF_TWO}, but multiple fields are set"))
    if exactly is not None:
        errors += _exact_request(exactly, path / "exactly", gates)
    place = path / "firstAvailable"

    def alternative(value: Any, at: FieldPath) -> Errors:
        subrequest = value if isinstance(value, dict) else {}
        return by_name(subrequest.get("name"), at / "name", names.dns_label) + _exact_request(subrequest, at, gates)

    errors += each(alternatives, place, alternative, limit=SUBREQUESTS_MAX)
    return errors + unique(alternatives, place, _name_of, "name")


def _exact_request(exact_request: Object, path: FieldPath, gates: Gates) -> Errors:
    """What ExactDeviceRequest and DeviceSubRequest have in common."""
    errors = by_name(exact_request.get("deviceClassName"), path / "deviceClassName", names.dns_subdomain)
    errors += shared.selectors(exact_request, path, stored=False, new_gates=gates.enabled)
    count = number(exact_request, "count") or 0
    match exact_request.get("allocationMode"):
        case "All":
            if count:
                detail = "must not be specified when allocationMode is 'All'"
                errors.append((path / "count").invalid(count, detail))
        case "ExactCount":
            if count <= 0:
                errors.append((path / "count").invalid(count, "must be greater than zero"))
        case other:
            errors.append((path / "allocationMode").not_supported(other or "", ("All", "ExactCount")))
    errors += each(items(exact_request, "tolerations"), path / "tolerations", shared.toleration)
    for key, value, at in shared.entries(dig(exact_request, "capacity"), "requests", path / "capacity"):
        errors += shared.qualified_name(key, at) + shared.quantity(value, at)
    return errors + _derived(exact_request, path, gates)


def _derived(exact_request: Object, path: FieldPath, gates: Gates) -> Errors:
    values, place = items(exact_request, "derivedAttributes"), path / "derivedAttributes"

    def one(value: Any, at: FieldPath) -> Errors:
        attribute = value if isinstance(value, dict) else {}
        errors = shared.qualified_name(attribute.get("name"), at / "name")
        where = at / "expression"
        return errors + check_expression(
            attribute.get("expression"), where, stored=False, gates=gates.enabled, derived=True
        )

    return each(values, place, one, limit=DERIVED_MAX) + unique(values, place, _name_of, "name")


def _constraint(constraint: Object, path: FieldPath, known: frozenset[str]) -> Errors:
    errors = _references(constraint, path, known)
    match_attribute, distinct = constraint.get("matchAttribute"), constraint.get("distinctAttribute")
    if match_attribute is not None:
        errors += shared.fully_qualified_name(match_attribute, path / "matchAttribute")
    if distinct is not None:
        errors += shared.fully_qualified_name(distinct, path / "distinctAttribute")
    detail = "exactly one of `matchAttribute` or `distinctAttribute` is required"
    if match_attribute is None and distinct is None:
        errors.append(path.required(detail))
    elif match_attribute is not None and distinct is not None:
        # Upstream takes matchAttribute and ignores the other; nobody can mean that.
        errors.append(path.invalid(None, f"{detail}, but multiple fields are set"))
    return errors


def _references(holder: Object, path: FieldPath, known: frozenset[str]) -> Errors:
    values, place = items(holder, "requests"), path / "requests"
    errors = each(values, place, lambda v, p: _reference(v, p, known), limit=REQUESTS_MAX)
    return errors + unique(values, place, str)


def _reference(value: Any, path: FieldPath, known: frozenset[str]) -> Errors:
    text = str(value)
    segments = text.split("/")
    if len(segments) > 2:
        return [path.invalid(text, _NOT_A_REQUEST)]
    errors: Errors = []
    for segment in segments:
        errors += by_name(segment, path, names.dns_label)
    if not errors and text not in known:
        errors.append(path.invalid(text, _NOT_A_REQUEST))
    return errors


def _derived_are_used(devices: Object, path: FieldPath) -> Errors:
    """Every derived attribute must matter to a constraint that covers its (sub)request (KEP-6080)."""
    errors: Errors = []

    def check(exact_request: Object, at: FieldPath, covering: Callable[[Object], bool]) -> None:
        used = {
            text(constraint, field)
            for constraint in objects(devices, "constraints")
            if covering(constraint)
            for field in ("matchAttribute", "distinctAttribute")
        }
        for index, attribute in enumerate(objects(exact_request, "derivedAttributes")):
            if attribute.get("name") and attribute["name"] not in used:
                place = (at / "derivedAttributes")[index] / "name"
                errors.append(place.invalid(attribute["name"], "must be used by a constraint for this request"))

    def covers(*wanted: str) -> Callable[[Object], bool]:
        return lambda constraint: (
            not items(constraint, "requests") or bool(set(wanted) & set(map(str, items(constraint, "requests"))))
        )

    for index, request in enumerate(objects(devices, "requests")):
        name, at = str(request.get("name") or ""), (path / "requests")[index]
        check(dig(request, "exactly"), at / "exactly", covers(name))
        for number_, alternative in enumerate(objects(request, "firstAvailable")):
            full = f"{name}/{alternative.get('name') or ''}"
            check(alternative, (at / "firstAvailable")[number_], covers(name, full))
    return errors


# ---- status


def claim_status_update(new: Object, old: Object, gates: Gates) -> Errors:
    """A write to the status subresource."""
    status, before, path = dig(new, "status"), dig(old, "status"), FieldPath("status")
    allocation, allocated = sub(status, "allocation"), sub(before, "allocation")
    errors: Errors = []
    if allocation is not None:
        if allocated is None:
            known = request_names(dig(old, "spec", "devices"))
            errors += _allocation(allocation, path / "allocation", known)
        else:
            errors += immutable(allocation, allocated, path / "allocation")
    errors += _reserved_for(new, status, before, path)
    return errors + _devices(status, before, path / "devices")


def _allocation(allocation: Object, path: FieldPath, known: frozenset[str]) -> Errors:
    devices, place = dig(allocation, "devices"), path / "devices"

    def result(value: Any, at: FieldPath) -> Errors:
        return _result(value if isinstance(value, dict) else {}, at, known)

    def config(value: Any, at: FieldPath) -> Errors:
        entry = value if isinstance(value, dict) else {}
        errors = one_of(entry.get("source"), at / "source", ("FromClaim", "FromClass"))
        # The class may have been stored with larger parameters than are accepted today.
        return errors + _references(entry, at, known) + shared.opaque(entry, at, stored=True)

    errors = each(items(devices, "results"), place / "results", result, limit=RESULTS_MAX)
    errors += each(items(devices, "config"), place / "config", config, limit=ALLOCATION_CONFIG_MAX)
    if (selector := sub(allocation, "nodeSelector")) is not None:
        errors += shared.node_selector(selector, path / "nodeSelector")
    return errors


def _result(result: Object, path: FieldPath, known: frozenset[str]) -> Errors:
    errors = _reference(result.get("request") or "", path / "request", known)
    errors += shared.driver_name(result.get("driver"), path / "driver")
    errors += shared.pool_name(result.get("pool"), path / "pool")
    errors += shared.device_name(result.get("device"), path / "device")
    errors += each(items(result, "tolerations"), path / "tolerations", shared.toleration)
    errors += shared.binding_conditions(result, path)
    errors += shared.skip_operations(result, path)
    errors += _share_id(result, path)
    for key, value, at in shared.entries(result, "consumedCapacity", path):
        errors += shared.qualified_name(key, at) + shared.quantity(value, at)
    return errors


def _share_id(holder: Object, path: FieldPath) -> Errors:
    share_id = holder.get("shareID")
    if share_id is None or _UUID.fullmatch(str(share_id)):
        return []
    detail = (
        "uuid must be in RFC 4122 normalized form, `xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx` "
        "with lowercase hexadecimal characters"
    )
    return [(path / "shareID").invalid(share_id, detail)]


def _reserved_for(claim: Object, status: Object, before: Object, path: FieldPath) -> Errors:
    consumers, place = items(status, "reservedFor"), path / "reservedFor"
    errors = each(consumers, place, _consumer, limit=RESERVED_FOR_MAX)
    errors += unique(consumers, place, lambda v: (v.get("uid") or None) if isinstance(v, dict) else None, "uid")
    if not consumers:
        return errors
    if sub(status, "allocation") is None:
        errors.append(place.forbidden("may not be specified when `allocated` is not set"))
    if dig(claim, "metadata").get("deletionTimestamp"):
        known = {text(consumer, "uid") for consumer in objects(before, "reservedFor")}
        if any(text(consumer, "uid") not in known for consumer in objects(status, "reservedFor")):
            detail = "new entries may not be added while `deallocationRequested` or `deletionTimestamp` are set"
            errors.append(place.forbidden(detail))
    return errors


def _consumer(value: Any, path: FieldPath) -> Errors:
    consumer = value if isinstance(value, dict) else {}
    return [(path / field).required() for field in ("resource", "name", "uid") if not consumer.get(field)]


def device_key(entry: Object) -> tuple[str, str, str, str]:
    """What identifies a device's status, and the result it belongs to."""
    driver, pool, device, share = (str(entry.get(field) or "") for field in ("driver", "pool", "device", "shareID"))
    return driver, pool, device, share


def _devices(status: Object, before: Object, path: FieldPath) -> Errors:
    allocated = {device_key(result) for result in objects(dig(status, "allocation", "devices"), "results")}
    stored = {device_key(entry): entry for entry in objects(before, "devices")}
    values = items(status, "devices")

    def one(value: Any, at: FieldPath) -> Errors:
        entry = value if isinstance(value, dict) else {}
        errors = shared.driver_name(entry.get("driver"), at / "driver")
        errors += shared.pool_name(entry.get("pool"), at / "pool")
        errors += shared.device_name(entry.get("device"), at / "device")
        errors += _share_id(entry, at)
        if device_key(entry) not in allocated:
            errors.append(
                at.invalid("/".join(filter(None, device_key(entry))), "must be an allocated device in the claim")
            )
        errors += shared.conditions(entry, at)
        if entry.get("data") is not None:
            same_data = dig(stored.get(device_key(entry), {}), "data") == entry["data"]
            errors += shared.json_object(entry["data"], at / "data", stored=same_data)
        if (network := sub(entry, "networkData")) is not None:
            errors += _network(network, at / "networkData")
        return errors

    errors = each(values, path, one)
    return errors + unique(values, path, lambda v: device_key(v) if isinstance(v, dict) else None)


def _network(network: Object, path: FieldPath) -> Errors:
    errors: Errors = []
    for field, limit in (("interfaceName", 256), ("hardwareAddress", 128)):
        if len(str(network.get(field) or "").encode()) > limit:
            errors.append((path / field).too_long(limit))
    ips = items(network, "ips")
    errors += each(ips, path / "ips", _interface_address, limit=IPS_MAX)
    return errors + unique(ips, path / "ips", str)


def _interface_address(value: Any, path: FieldPath) -> Errors:
    text = str(value)
    try:
        address = ipaddress.ip_interface(text)
    except ValueError:
        address = None
    if address is None or "/" not in text:
        return [path.invalid(text, "must be a valid address in CIDR form, (e.g. 10.9.8.7/24 or 2001:db8::1/64)")]
    if str(address) != text:
        return [path.invalid(text, f'must be in canonical form ("{address}")')]
    return []
