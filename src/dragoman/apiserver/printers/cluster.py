"""What do the other kinds look like in a table: configuration, network, storage, rights, quota?"""

from __future__ import annotations

from typing import Any

from dragoman.api.shape import Object
from dragoman.apiserver.printers.column import (
    NONE,
    UNKNOWN,
    UNSET,
    Cell,
    Printer,
    age,
    at,
    columns,
    entries,
    labels_text,
    name_of,
    number,
    selector_text,
    text,
)

_SHOWN = 3
_ACCESS_MODES = {
    "ReadWriteOnce": "RWO",
    "ReadOnlyMany": "ROX",
    "ReadWriteMany": "RWX",
    "ReadWriteOncePod": "RWOP",
}


def _first(items: list[str], empty: str) -> str:
    """The first three, and how many more."""
    if not items:
        return empty
    shown = ",".join(items[:_SHOWN])
    return f"{shown} + {len(items) - _SHOWN} more..." if len(items) > _SHOWN else shown


def _count(obj: Object, *members: str) -> int:
    return sum(len(at(obj, member) or ()) for member in members)


# ---- configuration


def _config_map(obj: Object, now: float) -> list[Cell]:
    return [name_of(obj), _count(obj, "data", "binaryData"), age(obj, now)]


def _secret(obj: Object, now: float) -> list[Cell]:
    return [name_of(obj), text(obj, "type"), _count(obj, "data"), age(obj, now)]


def _service_account(obj: Object, now: float) -> list[Cell]:
    return [name_of(obj), age(obj, now)]


def _priority_class(obj: Object, now: float) -> list[Cell]:
    policy = text(obj, "preemptionPolicy") or UNSET
    return [name_of(obj), number(obj, "value"), bool(at(obj, "globalDefault")), age(obj, now), policy]


def _runtime_class(obj: Object, now: float) -> list[Cell]:
    return [name_of(obj), text(obj, "handler"), age(obj, now)]


def _resource_quota(obj: Object, now: float) -> list[Cell]:
    hard = at(obj, "status", "hard") or {}
    used = at(obj, "status", "used") or {}
    texts: dict[bool, list[str]] = {False: [], True: []}
    for resource in sorted(hard):
        texts[resource.startswith("limits")].append(f"{resource}: {used.get(resource, '0')}/{hard[resource]}")
    return [name_of(obj), ", ".join(texts[False]), ", ".join(texts[True]), age(obj, now)]


def _created_at(obj: Object, now: float) -> list[Cell]:
    return [name_of(obj), text(obj, "metadata", "creationTimestamp") or UNKNOWN]


# ---- network


def _service(obj: Object, now: float) -> list[Cell]:
    ports = [_service_port(port) for port in entries(obj, "spec", "ports")]
    return [
        name_of(obj),
        text(obj, "spec", "type"),
        text(obj, "spec", "clusterIP") or NONE,
        _external_ip(obj),
        ",".join(ports) or NONE,
        age(obj, now),
        labels_text(at(obj, "spec", "selector")),
    ]


def _service_port(port: Any) -> str:
    node_port = number(port, "nodePort")
    between = f":{node_port}" if node_port else ""
    return f"{number(port, 'port')}{between}/{text(port, 'protocol') or 'TCP'}"


def _external_ip(obj: Object) -> str:
    type_ = text(obj, "spec", "type")
    external = [str(address) for address in entries(obj, "spec", "externalIPs")]
    if type_ in ("ClusterIP", "NodePort"):
        return ",".join(external) or NONE
    if type_ == "LoadBalancer":
        return ",".join([*_ingress_points(obj), *external]) or "<pending>"
    return text(obj, "spec", "externalName") if type_ == "ExternalName" else UNKNOWN


def _ingress_points(obj: Object) -> list[str]:
    points = entries(obj, "status", "loadBalancer", "ingress")
    return sorted({text(point, "ip") or text(point, "hostname") for point in points} - {""})


def _ingress(obj: Object, now: float) -> list[Cell]:
    rules = entries(obj, "spec", "rules")
    hosts = [text(rule, "host") for rule in rules if text(rule, "host")]
    return [
        name_of(obj),
        text(obj, "spec", "ingressClassName") or NONE,
        _first(hosts, "*"),
        ",".join(_ingress_points(obj)),
        "80, 443" if entries(obj, "spec", "tls") else "80",
        age(obj, now),
    ]


def _network_policy(obj: Object, now: float) -> list[Cell]:
    return [name_of(obj), selector_text(at(obj, "spec", "podSelector")), age(obj, now)]


def _endpoints(obj: Object, now: float) -> list[Cell]:
    shown = []
    for subset in entries(obj, "subsets"):
        ports: list[Any] = entries(subset, "ports") or [None]
        for port in ports:
            for address in entries(subset, "addresses"):
                ip = text(address, "ip")
                host = f"[{ip}]" if ":" in ip else ip
                shown.append(ip if port is None else f"{host}:{number(port, 'port')}")
    return [name_of(obj), _first(shown, NONE), age(obj, now)]


def _endpoint_slice(obj: Object, now: float) -> list[Cell]:
    ports = [str(port.get("port") or port.get("name") or "*") for port in entries(obj, "ports")]
    addresses = [str(ip) for endpoint in entries(obj, "endpoints") for ip in entries(endpoint, "addresses")]
    return [name_of(obj), text(obj, "addressType"), _first(ports, UNSET), _first(addresses, UNSET), age(obj, now)]


# ---- storage


def _access_modes(modes: list[Any]) -> str:
    return ",".join(short for mode, short in _ACCESS_MODES.items() if mode in modes)


def _volume(obj: Object, now: float) -> list[Cell]:
    claim = at(obj, "spec", "claimRef")
    return [
        name_of(obj),
        text(obj, "spec", "capacity", "storage") or "0",
        _access_modes(entries(obj, "spec", "accessModes")),
        text(obj, "spec", "persistentVolumeReclaimPolicy"),
        _volume_phase(obj),
        f"{text(claim, 'namespace')}/{text(claim, 'name')}" if claim else "",
        _storage_class_of(obj),
        text(obj, "spec", "volumeAttributesClassName") or UNSET,
        text(obj, "status", "reason"),
        age(obj, now),
        text(obj, "spec", "volumeMode") or UNSET,
    ]


def _volume_claim(obj: Object, now: float) -> list[Cell]:
    bound = bool(text(obj, "spec", "volumeName"))
    return [
        name_of(obj),
        _volume_phase(obj),
        text(obj, "spec", "volumeName"),
        (text(obj, "status", "capacity", "storage") or "0") if bound else "",
        _access_modes(entries(obj, "status", "accessModes")) if bound else "",
        _storage_class_of(obj),
        text(obj, "spec", "volumeAttributesClassName") or UNSET,
        age(obj, now),
        text(obj, "spec", "volumeMode") or UNSET,
    ]


def _volume_phase(obj: Object) -> str:
    return "Terminating" if at(obj, "metadata", "deletionTimestamp") else text(obj, "status", "phase")


def _storage_class_of(obj: Object) -> str:
    old = text(obj, "metadata", "annotations", "volume.beta.kubernetes.io/storage-class")
    return old or text(obj, "spec", "storageClassName")


def _storage_class(obj: Object, now: float) -> list[Cell]:
    default = text(obj, "metadata", "annotations", "storageclass.kubernetes.io/is-default-class") == "true"
    return [
        f"{name_of(obj)} (default)" if default else name_of(obj),
        text(obj, "provisioner"),
        text(obj, "reclaimPolicy") or "Delete",
        text(obj, "volumeBindingMode") or "Immediate",
        bool(at(obj, "allowVolumeExpansion")),
        age(obj, now),
    ]


def _csi_node(obj: Object, now: float) -> list[Cell]:
    return [name_of(obj), len(entries(obj, "spec", "drivers")), age(obj, now)]


# ---- rights


def _binding(obj: Object, now: float) -> list[Cell]:
    names: dict[str, list[str]] = {"User": [], "Group": [], "ServiceAccount": []}
    for subject in entries(obj, "subjects"):
        name = text(subject, "name")
        if subject.get("kind") == "ServiceAccount":
            name = f"{text(subject, 'namespace')}/{name}"
        names.get(str(subject.get("kind")), []).append(name)
    role = f"{text(obj, 'roleRef', 'kind')}/{text(obj, 'roleRef', 'name')}"
    return [name_of(obj), role, age(obj, now), *(", ".join(listed) for listed in names.values())]


_SUBJECTS = ("Users", "Groups", "ServiceAccounts")
_BINDING = Printer(columns("Name", "Role", "Age", *_SUBJECTS, wide=_SUBJECTS), _binding)
_CREATED = Printer(columns("Name", "Created At"), _created_at)
_RBAC = "rbac.authorization.k8s.io"

PRINTERS = {
    ("", "ConfigMap"): Printer(columns("Name", "Data", "Age"), _config_map),
    ("", "Secret"): Printer(columns("Name", "Type", "Data", "Age"), _secret),
    ("", "ServiceAccount"): Printer(columns("Name", "Age"), _service_account),
    ("", "ResourceQuota"): Printer(columns("Name", "Request", "Limit", "Age"), _resource_quota),
    ("", "LimitRange"): _CREATED,
    ("scheduling.k8s.io", "PriorityClass"): Printer(
        columns(
            *("Name", "Value", "Global-Default", "Age", "PreemptionPolicy"),
            integers=("Value",),
            booleans=("Global-Default",),
        ),
        _priority_class,
    ),
    ("node.k8s.io", "RuntimeClass"): Printer(columns("Name", "Handler", "Age"), _runtime_class),
    ("", "Service"): Printer(
        columns("Name", "Type", "Cluster-IP", "External-IP", "Port(s)", "Age", "Selector", wide=("Selector",)),
        _service,
    ),
    ("networking.k8s.io", "Ingress"): Printer(columns("Name", "Class", "Hosts", "Address", "Ports", "Age"), _ingress),
    ("networking.k8s.io", "NetworkPolicy"): Printer(columns("Name", "Pod-Selector", "Age"), _network_policy),
    ("", "Endpoints"): Printer(columns("Name", "Endpoints", "Age"), _endpoints),
    ("discovery.k8s.io", "EndpointSlice"): Printer(
        columns("Name", "AddressType", "Ports", "Endpoints", "Age"), _endpoint_slice
    ),
    ("", "PersistentVolume"): Printer(
        columns(
            *("Name", "Capacity", "Access Modes", "Reclaim Policy", "Status", "Claim", "StorageClass"),
            *("VolumeAttributesClass", "Reason", "Age", "VolumeMode"),
            wide=("VolumeMode",),
        ),
        _volume,
    ),
    ("", "PersistentVolumeClaim"): Printer(
        columns(
            *("Name", "Status", "Volume", "Capacity", "Access Modes", "StorageClass", "VolumeAttributesClass"),
            *("Age", "VolumeMode"),
            wide=("VolumeMode",),
        ),
        _volume_claim,
    ),
    ("storage.k8s.io", "StorageClass"): Printer(
        columns(
            *("Name", "Provisioner", "ReclaimPolicy", "VolumeBindingMode", "AllowVolumeExpansion", "Age"),
            booleans=("AllowVolumeExpansion",),
        ),
        _storage_class,
    ),
    ("storage.k8s.io", "CSINode"): Printer(columns("Name", "Drivers", "Age", integers=("Drivers",)), _csi_node),
    (_RBAC, "Role"): _CREATED,
    (_RBAC, "ClusterRole"): _CREATED,
    (_RBAC, "RoleBinding"): _BINDING,
    (_RBAC, "ClusterRoleBinding"): _BINDING,
}
