"""Is this pod, or the pod template of a workload, valid, and may it change so?

Covers what people get wrong and what the cluster relies on: containers, resources, claims (KEP-4381), volumes as
far as mounts refer to them, policies, scheduling fields. Security contexts and exotic volumes are not judged.
"""

from __future__ import annotations

from typing import Any

from dragoman.api.gates import Gates
from dragoman.api.shape import Object, dig, items, objects, sub, text
from dragoman.api.validate import shared
from dragoman.api.validate.containers import containers
from dragoman.api.validate.field import (
    Errors,
    FieldError,
    FieldPath,
    at_least,
    by_name,
    by_rule,
    each,
    number,
    same,
    unique,
)
from dragoman.api.validate.meta import label_map
from dragoman.values import names

DNS_POLICIES = ("ClusterFirstWithHostNet", "ClusterFirst", "Default", "None")
RESTART_POLICIES = ("Always", "OnFailure", "Never")
_PREEMPTION = ("PreemptLowerPriority", "Never")
_TAINT_EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")
_MAX_INT32 = 2**31 - 1
_MAY_CHANGE = (
    "pod updates may not change fields other than `spec.containers[*].image`,`spec.initContainers[*].image`,"
    "`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),"
    "`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)"
)
_GATED_MAY_CHANGE = frozenset({"nodeSelector", "affinity"})


def pod(obj: Object, gates: Gates) -> Errors:
    """A pod to be created."""
    path = FieldPath("spec")
    errors = pod_spec(dig(obj, "spec"), path)
    if objects(dig(obj, "spec"), "ephemeralContainers"):
        errors.append((path / "ephemeralContainers").forbidden("cannot be set on create"))
    return errors


def pod_spec(spec: Object, path: FieldPath) -> Errors:
    """The spec of a pod or of a pod template."""
    claims = pod_claims(spec, path)
    errors = containers(spec, path) + claims + _volumes(spec, path)
    for field, supported in (("restartPolicy", RESTART_POLICIES), ("dnsPolicy", DNS_POLICIES)):
        value = spec.get(field)
        if not value:
            errors.append((path / field).required())
        elif value not in supported:
            errors.append((path / field).not_supported(value, supported))
    errors += label_map(spec, path, "nodeSelector")
    errors += _affinity(dig(spec, "affinity"), path / "affinity")
    errors += each(items(spec, "tolerations"), path / "tolerations", _toleration)
    for field in ("serviceAccountName", "nodeName", "priorityClassName", "schedulerName"):
        if spec.get(field):
            errors += by_rule(spec[field], path / field, names.dns_subdomain)
    for field in ("hostname", "subdomain"):
        if spec.get(field):
            errors += by_rule(spec[field], path / field, names.dns_label)
    errors += at_least(spec.get("terminationGracePeriodSeconds"), path / "terminationGracePeriodSeconds")
    deadline = number(spec, "activeDeadlineSeconds")
    if deadline is not None and not 1 <= deadline <= _MAX_INT32:
        place = path / "activeDeadlineSeconds"
        errors.append(place.invalid(deadline, f"must be between 1 and {_MAX_INT32}, inclusive"))
    policy = spec.get("preemptionPolicy")
    if policy and policy not in _PREEMPTION:
        errors.append((path / "preemptionPolicy").not_supported(policy, _PREEMPTION))
    return errors + _scheduling_gates(spec, path) + _scheduling_group(spec, path)


def _scheduling_gates(spec: Object, path: FieldPath) -> Errors:
    gates, place = items(spec, "schedulingGates"), path / "schedulingGates"

    def one(value: Any, at: FieldPath) -> Errors:
        gate = value if isinstance(value, dict) else {}
        return by_rule(gate.get("name") or "", at / "name", names.label_key)

    errors = each(gates, place, one)
    if gates and spec.get("nodeName"):
        errors.append((path / "nodeName").forbidden("cannot be set until all schedulingGates have been cleared"))
    return errors + unique(gates, place, lambda v: v.get("name") if isinstance(v, dict) else None)


def _scheduling_group(spec: Object, path: FieldPath) -> Errors:
    group = sub(spec, "schedulingGroup")
    if group is None:
        return []
    return by_name(group.get("podGroupName"), path / "schedulingGroup" / "podGroupName", names.dns_subdomain)


# ---- claims


def pod_claims(spec: Object, path: FieldPath) -> Errors:
    """spec.resourceClaims of a pod, of a PodGroup or of a Workload's template."""
    claims, place = items(spec, "resourceClaims"), path / "resourceClaims"

    def one(value: Any, at: FieldPath) -> Errors:
        entry = value if isinstance(value, dict) else {}
        errors = by_name(entry.get("name"), at / "name", names.dns_label)
        direct, template = entry.get("resourceClaimName"), entry.get("resourceClaimTemplateName")
        if direct is not None and template is not None:
            detail = "at most one of `resourceClaimName` or `resourceClaimTemplateName` may be specified"
            errors.append(at.invalid(entry, detail))
        elif direct is None and template is None:
            errors.append(at.invalid(entry, "must specify one of: `resourceClaimName`, `resourceClaimTemplateName`"))
        for field in ("resourceClaimName", "resourceClaimTemplateName"):
            if entry.get(field) is not None:
                errors += by_rule(entry[field], at / field, names.dns_subdomain)
        return errors

    errors = each(claims, place, one)
    return errors + unique(claims, place, lambda v: (v.get("name") or None) if isinstance(v, dict) else None, "name")


# ---- scheduling


def _affinity(affinity: Object, path: FieldPath) -> Errors:
    node, place = dig(affinity, "nodeAffinity"), path / "nodeAffinity"
    errors: Errors = []
    field = "requiredDuringSchedulingIgnoredDuringExecution"
    if (required := sub(node, field)) is not None:
        errors += shared.node_selector(required, place / field)

    def preferred(value: Any, at: FieldPath) -> Errors:
        term = value if isinstance(value, dict) else {}
        weight = number(term, "weight") or 0
        errors: Errors = []
        if not 1 <= weight <= 100:
            errors.append((at / "weight").invalid(weight, "must be in the range 1-100"))
        return errors + shared.node_selector_term(dig(term, "preference"), at / "preference")

    field = "preferredDuringSchedulingIgnoredDuringExecution"
    return errors + each(items(node, field), place / field, preferred)


def _toleration(value: Any, path: FieldPath) -> Errors:
    toleration = value if isinstance(value, dict) else {}
    key, operator, effect = text(toleration, "key"), text(toleration, "operator"), text(toleration, "effect")
    errors: Errors = []
    if key:
        errors += by_rule(key, path / "key", names.label_key)
    elif operator != "Exists":
        detail = 'operator must be Exists when `key` is empty, which means "match all values and all keys"'
        errors.append((path / "operator").invalid(operator, detail))
    if number(toleration, "tolerationSeconds") is not None and effect != "NoExecute":
        errors.append((path / "effect").invalid(effect, "effect must be 'NoExecute' when `tolerationSeconds` is set"))
    if operator in ("", "Equal"):
        errors += by_rule(toleration.get("value") or "", path / "value", names.label_value)
    elif operator == "Exists":
        if toleration.get("value"):
            errors.append(
                (path / "value").invalid(toleration["value"], "value must be empty when `operator` is 'Exists'")
            )
    else:
        errors.append((path / "operator").not_supported(operator, ("Equal", "Exists")))
    if effect and effect not in _TAINT_EFFECTS:
        errors.append((path / "effect").not_supported(effect, _TAINT_EFFECTS))
    return errors


# ---- volumes


def _volumes(spec: Object, path: FieldPath) -> Errors:
    values, place = items(spec, "volumes"), path / "volumes"

    def one(value: Any, at: FieldPath) -> Errors:
        volume = value if isinstance(value, dict) else {}
        errors = by_name(volume.get("name"), at / "name", names.dns_label)
        sources = [field for field, source in volume.items() if field != "name" and source is not None]
        if not sources:
            errors.append(at.required("must specify a volume type"))
        errors += [(at / source).forbidden("may not specify more than 1 volume type") for source in sources[1:]]
        for source, field in _VOLUME_NEEDS.items():
            if (inner := sub(volume, source)) is not None and not inner.get(field):
                errors.append((at / source / field).required())
        return errors + _projected(items(dig(volume, "projected"), "sources"), at / "projected" / "sources")

    errors = each(values, place, one)
    return errors + unique(values, place, lambda v: (v.get("name") or None) if isinstance(v, dict) else None, "name")


def _projected(sources: list[Any], path: FieldPath) -> Errors:
    """Of the projected sources only certificates are judged."""

    def one(value: Any, at: FieldPath) -> Errors:
        source = sub(value, "podCertificate") if isinstance(value, dict) else None
        return [] if source is None else _certificate(source, at / "podCertificate")

    return each(sources, path, one)


def _certificate(source: Object, path: FieldPath) -> Errors:
    errors: Errors = []
    if (key := source.get("keyType") or "") not in _KEY_TYPES:
        errors.append((path / "keyType").not_supported(key, _KEY_TYPES))
    if (lasts := number(source, "maxExpirationSeconds")) is not None:
        host = text(source, "signerName").partition("/")[0]
        longest = 86_400 if host == "kubernetes.io" or host.endswith(".kubernetes.io") else 7_862_400
        if lasts < 3600:
            errors.append(
                (path / "maxExpirationSeconds").invalid(lasts, "if provided, maxExpirationSeconds must be >= 3600")
            )
        if lasts > longest:
            detail = f"if provided, maxExpirationSeconds must be <= {longest}"
            errors.append((path / "maxExpirationSeconds").invalid(lasts, detail))
    if not any(source.get(field) for field in ("credentialBundlePath", "keyPath", "certificateChainPath")):
        errors.append(path.required("specify at least one of credentialBundlePath, keyPath, and certificateChainPath"))
    return errors


_KEY_TYPES = ("RSA3072", "RSA4096", "ECDSAP256", "ECDSAP384", "ECDSAP521", "ED25519")
_VOLUME_NEEDS = {
    "hostPath": "path",
    "secret": "secretName",
    "configMap": "name",
    "persistentVolumeClaim": "claimName",
    "nfs": "server",
    "csi": "driver",
}


# ---- changes


def pod_update(new: Object, old: Object, gates: Gates) -> Errors:
    """A pod's spec hardly changes once it exists."""
    return _spec_change(dig(new, "spec"), dig(old, "spec"), FieldPath("spec"))


def pod_ephemeral_update(new: Object, old: Object, gates: Gates) -> Errors:
    """Ephemeral containers are only added."""
    path = FieldPath("spec") / "ephemeralContainers"
    now = {text(c, "name"): c for c in objects(dig(new, "spec"), "ephemeralContainers")}
    before = objects(dig(old, "spec"), "ephemeralContainers")
    if any(not same(now.get(text(c, "name")), c) for c in before):
        return [path.forbidden("existing ephemeral containers may not be changed or removed")]
    return []


def _spec_change(spec: Object, before: Object, path: FieldPath) -> Errors:
    errors: Errors = []
    mutable = {"activeDeadlineSeconds", "tolerations", "terminationGracePeriodSeconds", "schedulingGates"}
    if items(before, "schedulingGates"):
        mutable |= _GATED_MAY_CHANGE
    for field in sorted(spec.keys() | before.keys()):
        if field in mutable:
            continue
        one, two = spec.get(field), before.get(field)
        if field in ("containers", "initContainers"):
            one, two = _without_images(one), _without_images(two)
        if not same(one, two):
            return [path.forbidden(_MAY_CHANGE)]
    errors += _images(spec, path)
    if any(all(not same(t, kept) for kept in items(spec, "tolerations")) for t in items(before, "tolerations")):
        detail = "existing toleration can not be modified except its tolerationSeconds"
        errors.append((path / "tolerations").forbidden(detail))
    known = {text(gate, "name") for gate in objects(before, "schedulingGates")}
    added = sorted(str(g.get("name")) for g in objects(spec, "schedulingGates") if text(g, "name") not in known)
    if added:
        detail = f"only deletion is allowed, but found new scheduling gates {', '.join(added)}"
        errors.append((path / "schedulingGates").forbidden(detail))
    grace, earlier = number(spec, "terminationGracePeriodSeconds"), number(before, "terminationGracePeriodSeconds")
    if grace != earlier and not (grace == 1 and (earlier or 0) < 0):
        return [*errors, path.forbidden(_MAY_CHANGE)]
    return errors + _deadline_change(spec, before, path / "activeDeadlineSeconds")


def _deadline_change(spec: Object, before: Object, path: FieldPath) -> Errors:
    deadline, earlier = number(spec, "activeDeadlineSeconds"), number(before, "activeDeadlineSeconds")
    if deadline is None:
        return [] if earlier is None else [path.invalid(None, "must not update from a positive integer to nil value")]
    if not 0 <= deadline <= _MAX_INT32:
        return [path.invalid(deadline, f"must be between 0 and {_MAX_INT32}, inclusive")]
    if earlier is not None and deadline > earlier:
        return [path.invalid(deadline, "must be less than or equal to previous value")]
    return []


def _without_images(values: Any) -> Any:
    if not isinstance(values, list):
        return values
    return [{k: v for k, v in c.items() if k != "image"} if isinstance(c, dict) else c for c in values]


def _images(spec: Object, path: FieldPath) -> Errors:
    return [
        ((path / field)[index] / "image").required()
        for field in ("initContainers", "containers")
        for index, container in enumerate(objects(spec, field))
        if not text(container, "image")
    ]


# ---- status


def pod_status_update(new: Object, old: Object, gates: Gates) -> Errors:
    """What schedulers, kubelets and the claims controller write."""
    spec, status, path = dig(old, "spec"), dig(new, "status"), FieldPath("status")
    errors: Errors = []
    if status.get("nominatedNodeName"):
        errors += by_rule(status["nominatedNodeName"], path / "nominatedNodeName", names.dns_subdomain)
    errors += _claim_statuses(spec, status, path / "resourceClaimStatuses")
    extended = sub(status, "extendedResourceClaimStatus")
    if extended is not None:
        errors += _extended_status(spec, extended, path / "extendedResourceClaimStatus")
    for field in ("containerStatuses", "initContainerStatuses"):
        errors += each(items(status, field), path / field, lambda v, p: _device_health(spec, v, p))
    return errors


def _claim_statuses(spec: Object, status: Object, path: FieldPath) -> Errors:
    known = {text(entry, "name") for entry in objects(spec, "resourceClaims")}
    values = items(status, "resourceClaimStatuses")

    def one(value: Any, at: FieldPath) -> Errors:
        entry = value if isinstance(value, dict) else {}
        errors: Errors = []
        if text(entry, "name") not in known:
            detail = "must match the name of an entry in `spec.resourceClaims`"
            errors.append((at / "name").invalid(entry.get("name") or "", detail))
        if entry.get("resourceClaimName") is not None:
            errors += by_rule(entry["resourceClaimName"], at / "resourceClaimName", names.dns_subdomain)
        return errors

    errors = each(values, path, one)
    return errors + unique(values, path, lambda v: v.get("name") if isinstance(v, dict) else None, "name")


def _extended_status(spec: Object, status: Object, path: FieldPath) -> Errors:
    errors = by_name(status.get("resourceClaimName"), path / "resourceClaimName", names.dns_subdomain)
    mappings, place = items(status, "requestMappings"), path / "requestMappings"
    if not mappings:
        errors.append(place.required("at least one request mapping is required"))
    asked = {
        text(c, "name"): set(dig(c, "resources", "requests"))
        for field in ("initContainers", "containers")
        for c in objects(spec, field)
    }

    def one(value: Any, at: FieldPath) -> Errors:
        mapping = value if isinstance(value, dict) else {}
        container, resource = text(mapping, "containerName"), text(mapping, "resourceName")
        errors: Errors = []
        if container not in asked:
            errors.append((at / "containerName").invalid(container, "must be a container of the pod"))
        elif resource not in asked[container]:
            errors.append((at / "resourceName").invalid(resource, "must be requested by the container"))
        return errors + by_name(mapping.get("requestName"), at / "requestName", names.dns_label)

    errors += each(mappings, place, one)
    triple = ("containerName", "resourceName", "requestName")
    return errors + unique(
        mappings, place, lambda v: "/".join(str(v.get(f)) for f in triple) if isinstance(v, dict) else None
    )


def _device_health(spec: Object, value: Any, path: FieldPath) -> Errors:
    """containerStatuses[].allocatedResourcesStatus (KEP-4680)."""
    status = value if isinstance(value, dict) else {}
    claims = {f"claim:{entry.get('name')}" for entry in objects(spec, "resourceClaims")}

    def one(value: Any, at: FieldPath) -> list[FieldError]:
        entry = value if isinstance(value, dict) else {}
        name = text(entry, "name")
        errors: Errors = []
        if not name:
            errors.append((at / "name").required())
        elif name.startswith("claim:") and name.partition("/")[0] not in claims:
            errors.append((at / "name").invalid(name, "must match one of the pod's resource claims"))
        for index, resource in enumerate(objects(entry, "resources")):
            place = (at / "resources")[index]
            health = resource.get("health")
            if health not in (None, "", "Healthy", "Unhealthy", "Unknown"):
                errors.append((place / "health").not_supported(health, ("Healthy", "Unhealthy", "Unknown")))
            if len(text(resource, "message").encode()) > 1024:
                errors.append((place / "message").too_long(1024))
        return errors

    field = "allocatedResourcesStatus"
    return each(items(status, field), path / field, one)
