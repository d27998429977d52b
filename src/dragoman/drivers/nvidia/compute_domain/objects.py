"""Which objects are made for ComputeDomains? Definitions, roles and accounts once; templates and a DaemonSet each.

Shapes as in dra-driver-nvidia-gpu 0.5 (deployments/helm, templates/). Everything made for a domain has its finalizer
and carries its uid as a label.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from dragoman.api.shape import Object
from dragoman.drivers.nvidia.classes import COMPUTE_DOMAIN
from dragoman.drivers.nvidia.compute_domain.names import (
    API_VERSION,
    CHANNEL_CLASS,
    CONTROLLER_ACCOUNT,
    DAEMON_ACCOUNT,
    DAEMON_CLASS,
    FINALIZER,
    GROUP,
    LABEL,
    MAX_NODES,
    NAMESPACE,
    NODE_CLIQUE,
    PLUGIN_ACCOUNT,
    TARGET,
    TOPOLOGY_PREFERRED,
    VERSION,
    ComputeDomain,
    daemon_name,
)

IMAGE = "dragoman/compute-domain-daemon"
_STATUS = {"type": "string", "enum": ["Ready", "NotReady"], "default": "NotReady"}


class MakeSettings(msgspec.Struct, frozen=True):
    """How objects of a domain are made: where daemons run, from which image, for how many nodes, with which gates."""

    namespace: str = NAMESPACE
    image: str = IMAGE
    max_nodes: int = MAX_NODES
    gates: str = ""
    verbosity: int = 1
    host_managed: bool = False


# ---- once for a cluster


def _definition(kind: str, plural: str, schema: Object, columns: list[Object], **version: Any) -> Object:
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{GROUP}"},
        "spec": {
            "group": GROUP,
            "scope": "Namespaced",
            "names": {"kind": kind, "listKind": f"{kind}List", "plural": plural, "singular": kind.lower()},
            "versions": [
                {
                    "name": VERSION,
                    "served": True,
                    "storage": True,
                    "additionalPrinterColumns": columns,
                    "schema": {"openAPIV3Schema": schema},
                    **version,
                }
            ],
        },
    }


def _object(properties: Object, required: list[str] | None = None, **more: Any) -> Object:
    made: Object = {"type": "object", "properties": properties, **more}
    return {**made, "required": required} if required else made


def _top(properties: Object, required: list[str] | None = None) -> Object:
    head = {"apiVersion": {"type": "string"}, "kind": {"type": "string"}, "metadata": {"type": "object"}}
    return _object({**head, **properties}, required)


_TEXT = {"type": "string"}
_AGE = {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"}
_MEMBER = {"ipAddress": _TEXT, "cliqueID": _TEXT, "index": {"type": "integer"}, "status": _STATUS}


def definitions() -> tuple[Object, ...]:
    """The CustomResourceDefinitions of both kinds."""
    template = _object({"name": {"type": "string", "minLength": 1, "maxLength": 253}}, ["name"])
    channel = _object(
        {
            "resourceClaimTemplate": template,
            "allocationMode": {"type": "string", "enum": ["All", "Single"], "default": "Single"},
        },
        ["resourceClaimTemplate"],
    )
    spec = _object(
        {"numNodes": {"type": "integer", "minimum": 0, "default": 0}, "channel": channel},
        ["channel"],
        **{
            "x-kubernetes-validations": [{"rule": "self == oldSelf", "message": "A computeDomain.spec is immutable"}],
        },
    )
    nodes = {
        "type": "array",
        "items": _object({"name": _TEXT, **_MEMBER}, ["name"]),
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["name"],
    }
    status = _object({"status": _STATUS, "nodes": nodes}, ["status"])
    daemons = {
        "type": "array",
        "items": _object({"nodeName": _TEXT, **_MEMBER}, ["nodeName"]),
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["nodeName"],
    }
    status_column = {"name": "Status", "type": "string", "jsonPath": ".status.status"}
    mode_column = {"name": "Channels", "type": "string", "jsonPath": ".spec.channel.allocationMode", "priority": 1}
    template_column = {
        "name": "Template",
        "type": "string",
        "jsonPath": ".spec.channel.resourceClaimTemplate.name",
        "priority": 1,
    }
    nodes_column = {
        "name": "Nodes",
        "type": "string",
        "jsonPath": ".daemons[*].nodeName",
    }
    return (
        _definition(
            "ComputeDomain",
            "computedomains",
            _top({"spec": spec, "status": status}, ["spec"]),
            [status_column, mode_column, template_column, _AGE],
            subresources={"status": {}},
        ),
        _definition("ComputeDomainClique", "computedomaincliques", _top({"daemons": daemons}), [nodes_column, _AGE]),
    )


def _rule(groups: str, resources: str, verbs: str) -> Object:
    listed = ["" if group == "core" else group for group in groups.split()]
    return {"apiGroups": listed, "resources": resources.split(), "verbs": verbs.split()}


_READ = "get list watch"
_DRA = "resource.k8s.io"
_ROLES: Mapping[str, tuple[str, list[Object]]] = {
    "compute-domain-controller": (
        CONTROLLER_ACCOUNT,
        [
            _rule(GROUP, "computedomains computedomaincliques", f"{_READ} update patch"),
            _rule(GROUP, "computedomains/status computedomains/finalizers", "update patch"),
            _rule(_DRA, "resourceclaimtemplates", f"{_READ} create update patch delete"),
            _rule("apps", "daemonsets", f"{_READ} create update patch delete"),
            _rule("core", "nodes", f"{_READ} update patch"),
            _rule("core", "pods", _READ),
            _rule("core events.k8s.io", "events", "create patch update"),
            _rule("coordination.k8s.io", "leases", "get create update patch"),
        ],
    ),
    "compute-domain-daemon": (
        DAEMON_ACCOUNT,
        [
            _rule(GROUP, "computedomains", _READ),
            _rule(GROUP, "computedomains/status", "update patch"),
            _rule(GROUP, "computedomaincliques", f"{_READ} create update patch"),
            _rule("core", "pods", f"{_READ} update patch"),
        ],
    ),
    "compute-domain-kubelet-plugin": (
        PLUGIN_ACCOUNT,
        [
            _rule(GROUP, "computedomains computedomaincliques", _READ),
            _rule("core", "nodes", f"{_READ} update patch"),
            _rule(_DRA, "resourceclaims", _READ),
            _rule(_DRA, "resourceclaims/status", "update patch"),
            _rule(_DRA, "resourceslices", f"{_READ} create update patch delete"),
            _rule(_DRA, "deviceclasses", f"{_READ} create"),
            _rule("core events.k8s.io", "events", "create patch update"),
        ],
    ),
}


def installed(namespace: str = NAMESPACE) -> tuple[Object, ...]:
    """What a cluster needs before the first ComputeDomain: namespace, definitions, accounts, roles, bindings."""
    rbac = "rbac.authorization.k8s.io"
    made: list[Object] = [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}},
        *definitions(),
    ]
    for name, (account, rules) in _ROLES.items():
        made += [
            {
                "apiVersion": "v1",
                "kind": "ServiceAccount",
                "metadata": {"name": account, "namespace": namespace},
            },
            {"apiVersion": f"{rbac}/v1", "kind": "ClusterRole", "metadata": {"name": name}, "rules": rules},
            {
                "apiVersion": f"{rbac}/v1",
                "kind": "ClusterRoleBinding",
                "metadata": {"name": name},
                "roleRef": {"apiGroup": rbac, "kind": "ClusterRole", "name": name},
                "subjects": [{"kind": "ServiceAccount", "name": account, "namespace": namespace}],
            },
        ]
    return tuple(made)


# ---- for each domain


def _meta(domain: ComputeDomain, name: str, namespace: str, target: str = "") -> Object:
    labels = {LABEL: domain.metadata.uid} | ({TARGET: target} if target else {})
    return {"name": name, "namespace": namespace, "labels": labels, "finalizers": [FINALIZER]}


def _template(meta: Object, request: str, class_name: str, parameters: Object) -> Object:
    devices = {
        "requests": [{"name": request, "exactly": {"deviceClassName": class_name}}],
        "config": [
            {
                "requests": [request],
                "opaque": {"driver": COMPUTE_DOMAIN, "parameters": {"apiVersion": API_VERSION, **parameters}},
            }
        ],
    }
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaimTemplate",
        "metadata": meta,
        "spec": {"spec": {"devices": devices}},
    }


def workload_template(domain: ComputeDomain, settings: MakeSettings) -> Object:
    """The claim template that the domain's workload names."""
    meta = _meta(domain, domain.spec.channel.resource_claim_template.name, domain.metadata.namespace, "Workload")
    mode = "Single" if settings.host_managed else domain.spec.channel.allocation_mode
    parameters = {
        "kind": "ComputeDomainChannelConfig",
        "domainID": domain.metadata.uid,
        "allocationMode": mode,
    }
    template = _template(meta, "channel", CHANNEL_CLASS, parameters)
    # Gangs prefer one clique, since only there the domain's memory is shared (schedule.topology).
    template["spec"]["metadata"] = {"annotations": {TOPOLOGY_PREFERRED: NODE_CLIQUE}}
    return template


def daemon_template(domain: ComputeDomain, settings: MakeSettings) -> Object:
    """The claim template of the domain's daemon pods."""
    meta = _meta(domain, daemon_name(domain.metadata.uid), settings.namespace, "Daemon")
    parameters = {"kind": "ComputeDomainDaemonConfig", "domainID": domain.metadata.uid}
    return _template(meta, "daemon", DAEMON_CLASS, parameters)


def daemon_set(domain: ComputeDomain, settings: MakeSettings) -> Object:
    """A daemon on each node that is labelled for the domain; none before that."""
    uid = domain.metadata.uid

    def field(name: str, path: str) -> Object:
        return {"name": name, "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": path}}}

    def probe(period: int, failures: int) -> Object:
        check = {"exec": {"command": ["compute-domain-daemon", "check"]}, "timeoutSeconds": 10}
        return {**check, "periodSeconds": period, "failureThreshold": failures}

    env: list[Object] = [
        {"name": "LOG_VERBOSITY", "value": str(settings.verbosity)},
        {"name": "MAX_NODES_PER_IMEX_DOMAIN", "value": str(settings.max_nodes)},
        field("NODE_NAME", "spec.nodeName"),
        field("POD_IP", "status.podIP"),
        field("POD_UID", "metadata.uid"),
        field("POD_NAME", "metadata.name"),
        field("POD_NAMESPACE", "metadata.namespace"),
        # The image inherits "all" otherwise.
        {"name": "NVIDIA_VISIBLE_DEVICES", "value": "void"},
    ]
    if settings.gates:
        env.append({"name": "FEATURE_GATES", "value": settings.gates})
    container = {
        "name": "compute-domain-daemon",
        "image": settings.image,
        "command": ["compute-domain-daemon"],
        "args": ["-v", "$(LOG_VERBOSITY)", "run"],
        "env": env,
        "resources": {"claims": [{"name": "compute-domain-daemon"}]},
        "startupProbe": probe(1, 1200),
        "livenessProbe": probe(60, 20),
        "readinessProbe": probe(10, 1),
    }
    effects = ("NoSchedule", "NoExecute", "PreferNoSchedule")
    pod = {
        "serviceAccountName": DAEMON_ACCOUNT,
        "nodeSelector": {LABEL: uid},
        "tolerations": [{"operator": "Exists", "effect": effect} for effect in effects],
        "containers": [container],
        "resourceClaims": [{"name": "compute-domain-daemon", "resourceClaimTemplateName": daemon_name(uid)}],
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": _meta(domain, daemon_name(uid), settings.namespace),
        "spec": {
            "selector": {"matchLabels": {LABEL: uid}},
            "template": {"metadata": {"labels": {LABEL: uid}}, "spec": pod},
        },
    }
