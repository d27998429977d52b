"""Are nodes, namespaces, services, policies, configuration and the other small kinds valid, and may they change so?"""

from __future__ import annotations

import base64
import binascii
import re
from typing import Any

from dragoman.api.gates import Gates
from dragoman.api.shape import Object, dig, items, objects, sub, text
from dragoman.api.validate import shared
from dragoman.api.validate.containers import port_number
from dragoman.api.validate.field import Errors, FieldPath, by_name, by_rule, each, immutable, number, one_of, same
from dragoman.api.validate.label_selector import label_selector
from dragoman.api.validate.workloads import int_or_percent
from dragoman.values import names

DATA_MAX = 1024 * 1024
USER_PRIORITY_MAX = 1_000_000_000
SYSTEM_PRIORITIES = {"system-cluster-critical": 2_000_000_000, "system-node-critical": 2_000_001_000}
_NODE_EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")
_SERVICE_TYPES = ("ClusterIP", "ExternalName", "LoadBalancer", "NodePort")
_ACCESS_MODES = ("ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod")
_KEY = re.compile(r"[-._a-zA-Z0-9]+")
_NO_UPDATE = "may not be changed in an update."


# ---- Node, Namespace


def node(obj: Object, gates: Gates) -> Errors:
    """A node, new or changed."""
    spec, path = dig(obj, "spec"), FieldPath("spec")
    place = path / "taints"
    errors: Errors = []
    seen: set[tuple[str, str]] = set()
    for index, taint in enumerate(objects(spec, "taints")):
        at = place[index]
        errors += by_name(taint.get("key"), at / "key", names.label_key)
        if taint.get("value"):
            errors += by_rule(taint["value"], at / "value", names.label_value)
        errors += one_of(taint.get("effect"), at / "effect", _NODE_EFFECTS)
        key = (text(taint, "key"), text(taint, "effect"))
        if key in seen:
            errors.append(at.duplicate(taint))
        seen.add(key)
    return errors + node_status(obj, {}, gates)


def node_status(new: Object, old: Object, gates: Gates) -> Errors:
    """Capacities of a node."""
    errors: Errors = []
    for field in ("capacity", "allocatable"):
        for name, value, at in shared.entries(dig(new, "status"), field, FieldPath("status")):
            errors += by_rule(name, at, names.label_key) + _not_negative(value, at)
    return errors


def _not_negative(raw: Any, path: FieldPath) -> Errors:
    errors = shared.quantity(raw, path)
    value = shared.quantity_of(raw)
    if value is not None and value.sign() < 0:
        errors.append(path.invalid(str(value), "must be greater than or equal to 0"))
    return errors


def node_update(new: Object, old: Object, gates: Gates) -> Errors:
    """A provider's id stays once it is set."""
    before = text(dig(old, "spec"), "providerID")
    if before and dig(new, "spec").get("providerID") != before:
        return [(FieldPath("spec") / "providerID").forbidden('node updates may not change providerID except from ""')]
    return []


# ---- Service


def service(obj: Object, gates: Gates) -> Errors:
    """A Service, new or changed."""
    spec, path = dig(obj, "spec"), FieldPath("spec")
    errors = one_of(spec.get("type"), path / "type", _SERVICE_TYPES)
    headless = spec.get("clusterIP") == "None"
    ports, place = items(spec, "ports"), path / "ports"
    if not ports and not headless and spec.get("type") != "ExternalName":
        errors.append(place.required())
    if spec.get("type") == "ExternalName" and not spec.get("externalName"):
        errors.append((path / "externalName").required())
    seen: set[str] = set()
    for index, port in enumerate(objects(spec, "ports")):
        at, name = place[index], text(port, "name")
        if not name:
            if len(ports) > 1:
                errors.append((at / "name").required())
        else:
            errors += by_rule(name, at / "name", names.dns_label)
            if name in seen:
                errors.append((at / "name").duplicate(name))
            seen.add(name)
        errors += port_number(number(port, "port") or 0, at / "port")
        errors += one_of(port.get("protocol"), at / "protocol", ("SCTP", "TCP", "UDP"))
        if isinstance(target := port.get("targetPort"), int):
            errors += port_number(target, at / "targetPort")
    for key, value in sorted(dig(spec, "selector").items()):
        errors += by_rule(key, path / "selector", names.label_key)
        errors += by_rule(value, path / "selector", names.label_value)
    return errors


# ---- policies


def disruption_budget(obj: Object, gates: Gates) -> Errors:
    """A PodDisruptionBudget, new or changed."""
    spec, path = dig(obj, "spec"), FieldPath("spec")
    least, most = spec.get("minAvailable"), spec.get("maxUnavailable")
    errors: Errors = []
    if least is not None and most is not None:
        errors.append(path.invalid(spec, "minAvailable and maxUnavailable cannot be both set"))
    errors += int_or_percent(least, path / "minAvailable") + int_or_percent(most, path / "maxUnavailable")
    if (selector := sub(spec, "selector")) is not None:
        errors += label_selector(selector, path / "selector")
    policy = spec.get("unhealthyPodEvictionPolicy")
    if policy is not None and policy not in ("AlwaysAllow", "IfHealthyBudget"):
        errors.append((path / "unhealthyPodEvictionPolicy").not_supported(policy, ("AlwaysAllow", "IfHealthyBudget")))
    return errors


def priority_class(obj: Object, gates: Gates) -> Errors:
    """A PriorityClass to be created."""
    name, value = text(dig(obj, "metadata"), "name"), number(obj, "value") or 0
    errors: Errors = []
    if name.startswith("system-"):
        if SYSTEM_PRIORITIES.get(name) != value:
            detail = "priority class names with 'system-' prefix are reserved for system use only. error: "
            errors.append(
                (FieldPath("metadata") / "name").forbidden(f"{detail}{name} is not a known system priority class")
            )
    elif value > USER_PRIORITY_MAX:
        detail = f"maximum allowed value of a user defined priority is {USER_PRIORITY_MAX}"
        errors.append(FieldPath("value").forbidden(detail))
    policies = ("Never", "PreemptLowerPriority")
    return errors + one_of(obj.get("preemptionPolicy"), FieldPath("preemptionPolicy"), policies)


def priority_class_update(new: Object, old: Object, gates: Gates) -> Errors:
    """A priority never changes."""
    return [
        FieldPath(field).forbidden(_NO_UPDATE)
        for field in ("value", "preemptionPolicy")
        if not same(new.get(field) or None, old.get(field) or None)
    ]


def resource_quota(obj: Object, gates: Gates) -> Errors:
    """A ResourceQuota, new or changed."""
    errors: Errors = []
    for name, value, at in shared.entries(dig(obj, "spec"), "hard", FieldPath("spec")):
        # `<class>.deviceclass.resource.k8s.io/devices` and `count/<plural>.<group>` are qualified names too.
        errors += by_rule(name, at, names.label_key) + _not_negative(value, at)
    return errors


def limit_range(obj: Object, gates: Gates) -> Errors:
    """A LimitRange, new or changed."""
    errors: Errors = []
    for index, item in enumerate(objects(dig(obj, "spec"), "limits")):
        at = (FieldPath("spec") / "limits")[index]
        if not item.get("type"):
            errors.append((at / "type").required())
        for field in ("default", "defaultRequest", "max", "min"):
            for _name, value, place in shared.entries(item, field, at):
                errors += shared.quantity(value, place)
    return errors


# ---- configuration


def config_map(obj: Object, gates: Gates) -> Errors:
    """A ConfigMap, new or changed."""
    return _data(obj, ("data", "binaryData"))


def secret(obj: Object, gates: Gates) -> Errors:
    """A Secret, new or changed: values of `data` are base64."""
    errors = _data(obj, ("data",))
    for key, value in sorted(dig(obj, "data").items()):
        try:
            base64.b64decode(str(value), validate=True)
        except (binascii.Error, ValueError):
            errors.append(FieldPath("data")[key].invalid("<value omitted>", "must be base64"))
    if obj.get("type") == "kubernetes.io/tls":
        given = {**dig(obj, "data"), **dig(obj, "stringData")}
        errors += [FieldPath("data")[key].required() for key in ("tls.crt", "tls.key") if key not in given]
    return errors


def _data(obj: Object, fields: tuple[str, ...]) -> Errors:
    errors: Errors = []
    size = 0
    seen: set[str] = set()
    for field in fields:
        for key, value in sorted(dig(obj, field).items()):
            at = FieldPath(field)[key]
            if len(key) > 253:
                errors.append(at.invalid(key, "must be no more than 253 characters"))
            elif not _KEY.fullmatch(key) or key in (".", "..") or key.startswith("../"):
                detail = "a valid config key must consist of alphanumeric characters, '-', '_' or '.'"
                pattern = (
                    "(e.g. 'key.name', or 'KEY_NAME', or 'key-name', regex used for validation is '[-._a-zA-Z0-9]+')"
                )
                errors.append(at.invalid(key, f"{detail} {pattern}"))
            if key in seen:
                errors.append(at.invalid(key, "duplicate of key present in data"))
            seen.add(key)
            size += len(str(value or "").encode())
    if size > DATA_MAX * (4 / 3 if fields == ("data",) else 1):
        errors.append(FieldPath().too_long(DATA_MAX))
    return errors


def _immutable_data(new: Object, old: Object, fields: tuple[str, ...]) -> Errors:
    if old.get("immutable") is not True:
        return []
    detail = "field is immutable when `immutable` is set"
    errors = [] if new.get("immutable") is True else [FieldPath("immutable").forbidden(detail)]
    return errors + [FieldPath(field).forbidden(detail) for field in fields if not same(new.get(field), old.get(field))]


def config_map_update(new: Object, old: Object, gates: Gates) -> Errors:
    """An immutable ConfigMap stays."""
    return _immutable_data(new, old, ("data", "binaryData"))


def secret_update(new: Object, old: Object, gates: Gates) -> Errors:
    """The type never changes; an immutable Secret stays."""
    errors = immutable(new.get("type"), old.get("type"), FieldPath("type"))
    return errors + _immutable_data(new, old, ("data", "stringData"))


# ---- storage, network, access


def volume_claim(obj: Object, gates: Gates) -> Errors:
    """A PersistentVolumeClaim to be created."""
    spec, path = dig(obj, "spec"), FieldPath("spec")
    modes, place = items(spec, "accessModes"), path / "accessModes"
    errors = [] if modes else [place.required("at least 1 access mode is required")]
    errors += each(modes, place, lambda v, p: [] if v in _ACCESS_MODES else [p.not_supported(v, _ACCESS_MODES)])
    requests = dig(spec, "resources", "requests")
    at = path / "resources" / "requests"
    if "storage" not in requests:
        return [*errors, at["storage"].required()]
    return errors + _not_negative(requests["storage"], at["storage"])


def storage_class(obj: Object, gates: Gates) -> Errors:
    """A StorageClass to be created."""
    return [] if obj.get("provisioner") else [FieldPath("provisioner").required()]


def runtime_class(obj: Object, gates: Gates) -> Errors:
    """A RuntimeClass to be created."""
    return by_name(obj.get("handler"), FieldPath("handler"), names.dns_label)


def ingress(obj: Object, gates: Gates) -> Errors:
    """An Ingress, new or changed."""
    spec = dig(obj, "spec")
    if spec.get("defaultBackend") is None and not items(spec, "rules"):
        return [FieldPath("spec").invalid(spec, "either `defaultBackend` or `rules` must be specified")]
    return []


def network_policy(obj: Object, gates: Gates) -> Errors:
    """A NetworkPolicy, new or changed."""
    return label_selector(dig(obj, "spec", "podSelector"), FieldPath("spec") / "podSelector")


def binding(obj: Object, gates: Gates) -> Errors:
    """A RoleBinding or ClusterRoleBinding to be created."""
    role, path = dig(obj, "roleRef"), FieldPath("roleRef")
    errors: Errors = []
    if not role.get("name"):
        errors.append((path / "name").required())
    errors += one_of(role.get("kind"), path / "kind", ("Role", "ClusterRole"))
    for index, subject in enumerate(objects(obj, "subjects")):
        at = FieldPath("subjects")[index]
        if not subject.get("name"):
            errors.append((at / "name").required())
        errors += one_of(subject.get("kind"), at / "kind", ("ServiceAccount", "User", "Group"))
    return errors


def binding_update(new: Object, old: Object, gates: Gates) -> Errors:
    """The role never changes."""
    if same(new.get("roleRef"), old.get("roleRef")):
        return []
    return [FieldPath("roleRef").invalid(new.get("roleRef"), "cannot change roleRef")]


def lease(obj: Object, gates: Gates) -> Errors:
    """A Lease, new or changed."""
    spec, path = dig(obj, "spec"), FieldPath("spec")
    errors: Errors = []
    seconds = number(spec, "leaseDurationSeconds")
    if seconds is not None and seconds <= 0:
        errors.append((path / "leaseDurationSeconds").invalid(seconds, "must be greater than 0"))
    changes = number(spec, "leaseTransitions")
    if changes is not None and changes < 0:
        errors.append((path / "leaseTransitions").invalid(changes, "must be greater than or equal to 0"))
    return errors


def event(obj: Object, gates: Gates) -> Errors:
    """A core Event to be created: in the namespace of what it is about."""
    about, own = text(dig(obj, "involvedObject"), "namespace"), text(dig(obj, "metadata"), "namespace")
    if about and about != own:
        return [(FieldPath("involvedObject") / "namespace").invalid(about, "does not match event.namespace")]
    return []


def endpoint_slice(obj: Object, gates: Gates) -> Errors:
    """An EndpointSlice to be created."""
    return one_of(obj.get("addressType"), FieldPath("addressType"), ("IPv4", "IPv6", "FQDN"))
