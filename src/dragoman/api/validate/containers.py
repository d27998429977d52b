"""Are the containers of a pod valid: names, images, resources, claims, ports, environment, mounts, probes?"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dragoman.api.resource import IMPLICIT_EXTENDED_PREFIX
from dragoman.api.shape import Object, dig, items, objects, sub, text
from dragoman.api.validate import shared
from dragoman.api.validate.field import Errors, FieldPath, by_name, by_rule, each, number
from dragoman.api.validate.others import is_extended_resource
from dragoman.values import names
from dragoman.values.quantity import NANO

PULL_POLICIES = ("Always", "IfNotPresent", "Never")
_PROTOCOLS = ("SCTP", "TCP", "UDP")
_NATIVE = frozenset({"cpu", "memory", "ephemeral-storage"})
_PROBES = ("livenessProbe", "readinessProbe", "startupProbe")
_HANDLERS = ("exec", "httpGet", "tcpSocket", "grpc")


def containers(spec: Object, path: FieldPath) -> Errors:
    """containers, initContainers and ephemeralContainers of a pod spec."""
    errors: Errors = []
    if not items(spec, "containers"):
        errors.append((path / "containers").required())
    seen: set[str] = set()
    for field in ("containers", "initContainers", "ephemeralContainers"):
        for index, value in enumerate(items(spec, field)):
            at = (path / field)[index]
            container = value if isinstance(value, dict) else {}
            errors += _container(container, spec, at)
            errors += _BY_FIELD[field](container, spec, at)
            name = text(container, "name")
            if name and name in seen:
                errors.append((at / "name").duplicate(name))
            seen.add(name)
    return errors


def _container(container: Object, spec: Object, path: FieldPath) -> Errors:
    errors = by_name(container.get("name"), path / "name", names.dns_label)
    image = text(container, "image")
    if not image.strip():
        errors.append((path / "image").required())
    elif image != image.strip():
        errors.append((path / "image").invalid(image, "must not have leading or trailing whitespace"))
    policy = container.get("imagePullPolicy")
    if not policy:
        errors.append((path / "imagePullPolicy").required())
    elif policy not in PULL_POLICIES:
        errors.append((path / "imagePullPolicy").not_supported(policy, PULL_POLICIES))
    errors += _ports(container, path)
    errors += each(items(container, "env"), path / "env", _variable)
    errors += _mounts(container, spec, path)
    for field in _PROBES:
        if (probe := sub(container, field)) is not None:
            errors += _probe(probe, path / field)
    return errors


def _main(container: Object, spec: Object, path: FieldPath) -> Errors:
    return resources(dig(container, "resources"), spec, path / "resources")


def _init(container: Object, spec: Object, path: FieldPath) -> Errors:
    errors = _main(container, spec, path)
    policy = container.get("restartPolicy")
    if policy and policy not in ("Always", "OnFailure", "Never"):
        errors.append((path / "restartPolicy").not_supported(policy, ("Always", "OnFailure", "Never")))
    if policy != "Always":
        forbidden = [field for field in _PROBES if container.get(field) is not None]
        detail = "may not be set for init containers without restartPolicy=Always"
        errors += [(path / field).forbidden(detail) for field in forbidden]
    return errors


def _ephemeral(container: Object, spec: Object, path: FieldPath) -> Errors:
    fields = ("resources", "ports", "lifecycle", *_PROBES)
    return [
        (path / field).forbidden("cannot be set for an Ephemeral Container") for field in fields if container.get(field)
    ]


_BY_FIELD: dict[str, Callable[[Object, Object, FieldPath], Errors]] = {
    "containers": _main,
    "initContainers": _init,
    "ephemeralContainers": _ephemeral,
}


# ---- resources


def is_extended(name: str) -> bool:
    """Whether a container's resource is an extended one, explicit or implied by a DeviceClass (KEP-5004)."""
    return is_extended_resource(name) or name.startswith(IMPLICIT_EXTENDED_PREFIX)


def _overcommits(name: str) -> bool:
    """Whether limits may exceed requests."""
    return not (is_extended(name) or name.startswith("hugepages-"))


def resources(value: Object, spec: Object, path: FieldPath) -> Errors:
    """requests, limits and claims of a container."""
    errors: Errors = []
    limits, requests = dig(value, "limits"), dig(value, "requests")
    for field in ("limits", "requests"):
        for name, amount, at in shared.entries(value, field, path):
            errors += _resource_name(name, at)
            errors += _amount(name, amount, at)
    for name, amount in sorted(requests.items()):
        wanted, limit = shared.quantity_of(amount), shared.quantity_of(limits.get(name))
        place = path / "requests"
        if wanted is None:
            continue
        if limit is None:
            if not _overcommits(name):
                detail = "Limit must be set for non overcommitable resources"
                errors.append((path / "limits").required(detail))
        elif not _overcommits(name) and wanted != limit:
            errors.append(place.invalid(str(wanted), f"must be equal to {name} limit of {limit}"))
        elif wanted > limit:
            errors.append(place.invalid(str(wanted), f"must be less than or equal to {name} limit of {limit}"))
    return errors + _claims(value, spec, path / "claims")


def _resource_name(name: str, path: FieldPath) -> Errors:
    if why := names.label_key(name):
        return [path.invalid(name, why)]
    if "/" not in name and name not in _NATIVE and not name.startswith("hugepages-"):
        return [path.invalid(name, "must be a standard resource type or fully qualified")]
    if name.startswith("kubernetes.io/") or name.startswith("requests."):
        return [path.invalid(name, "must be a standard resource for containers")]
    return []


def _amount(name: str, raw: Any, path: FieldPath) -> Errors:
    errors = shared.quantity(raw, path)
    value = shared.quantity_of(raw)
    if value is None:
        return errors
    if value.sign() < 0:
        errors.append(path.invalid(str(value), "must be greater than or equal to 0"))
    if is_extended(name) and value.nanos % NANO:
        errors.append(path.invalid(str(value), "must be an integer"))
    return errors


def _claims(value: Object, spec: Object, path: FieldPath) -> Errors:
    """Entries refer to spec.resourceClaims; a claim as a whole and one of its requests exclude each other."""
    known = sorted(text(entry, "name") for entry in objects(spec, "resourceClaims"))
    whole: set[str] = set()
    parts: set[tuple[str, str]] = set()
    errors: Errors = []
    for index, entry in enumerate(objects(value, "claims")):
        at, name, request = path[index], text(entry, "name"), text(entry, "request")
        if not name:
            errors.append((at / "name").required())
            continue
        if request:
            errors += by_rule(request, at / "request", names.dns_label)
        overlaps = name in whole or (name, request) in parts or (not request and any(p[0] == name for p in parts))
        if overlaps:
            errors.append(at.duplicate(f"{name}/{request}" if request else name))
        if request:
            parts.add((name, request))
        else:
            whole.add(name)
        if name not in known:
            detail = "must be one of the names in pod.spec.resourceClaims"
            detail += f": {', '.join(known)}" if known else " which is empty"
            errors.append(at.not_found(name, detail))
    return errors


# ---- ports, environment, mounts, probes


def _ports(container: Object, path: FieldPath) -> Errors:
    place = path / "ports"
    errors: Errors = []
    seen: set[str] = set()
    for index, port in enumerate(objects(container, "ports")):
        at, name = place[index], text(port, "name")
        if name:
            errors += by_rule(name, at / "name", _port_name)
            if name in seen:
                errors.append((at / "name").duplicate(name))
            seen.add(name)
        value = number(port, "containerPort")
        if not value:
            errors.append((at / "containerPort").required())
        else:
            errors += port_number(value, at / "containerPort")
        if host := number(port, "hostPort"):
            errors += port_number(host, at / "hostPort")
        protocol = port.get("protocol")
        if not protocol:
            errors.append((at / "protocol").required())
        elif protocol not in _PROTOCOLS:
            errors.append((at / "protocol").not_supported(protocol, _PROTOCOLS))
    return errors


def port_number(value: int, path: FieldPath) -> Errors:
    """A port of TCP, UDP or SCTP."""
    return [] if 1 <= value <= 65535 else [path.invalid(value, "must be between 1 and 65535, inclusive")]


def _port_name(name: str) -> str | None:
    if len(name) > 15:
        return "must be no more than 15 characters"
    if not name.replace("-", "").isalnum() or not name.islower() or "--" in name or name.strip("-") != name:
        return "must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-), with at least one letter"
    return None


def _variable(value: Any, path: FieldPath) -> Errors:
    variable = value if isinstance(value, dict) else {}
    errors: Errors = []
    name = text(variable, "name")
    if not name:
        errors.append((path / "name").required())
    elif "=" in name:
        errors.append((path / "name").invalid(name, "must not contain '='"))
    source = sub(variable, "valueFrom")
    if source is None:
        return errors
    if variable.get("value"):
        errors.append((path / "valueFrom").invalid("", "may not be specified when `value` is not empty"))
    given = [field for field, inner in source.items() if inner is not None]
    if not given:
        detail = "must specify one of: `fieldRef`, `resourceFieldRef`, `configMapKeyRef` or `secretKeyRef`"
        errors.append((path / "valueFrom").invalid("", detail))
    elif len(given) > 1:
        errors.append((path / "valueFrom").invalid("", "may not have more than one field specified at a time"))
    return errors


def _mounts(container: Object, spec: Object, path: FieldPath) -> Errors:
    known = {text(volume, "name") for volume in objects(spec, "volumes")}
    seen: set[str] = set()
    errors: Errors = []
    for index, mount in enumerate(objects(container, "volumeMounts")):
        at = (path / "volumeMounts")[index]
        name, where = text(mount, "name"), text(mount, "mountPath")
        if not name:
            errors.append((at / "name").required())
        elif name not in known:
            errors.append((at / "name").not_found(name))
        if not where:
            errors.append((at / "mountPath").required())
        elif where in seen:
            errors.append((at / "mountPath").invalid(where, "must be unique"))
        seen.add(where)
        if text(mount, "subPath") and text(mount, "subPathExpr"):
            errors.append(
                (at / "subPathExpr").invalid(mount["subPathExpr"], "subPathExpr and subPath are mutually exclusive")
            )
    return errors


def _probe(probe: Object, path: FieldPath) -> Errors:
    given = [handler for handler in _HANDLERS if probe.get(handler) is not None]
    errors: Errors = []
    if not given:
        errors.append(path.required("must specify a handler type"))
    errors += [(path / extra).forbidden("may not specify more than 1 handler type") for extra in given[1:]]
    for field in ("initialDelaySeconds", "timeoutSeconds", "periodSeconds", "successThreshold", "failureThreshold"):
        value = number(probe, field)
        if value is not None and value < 0:
            errors.append((path / field).invalid(value, "must be greater than or equal to 0"))
    return errors
