"""What does every cluster have from the start? Namespaces and their content, priority classes.

Stands above the registry: it only writes what any client could. Called once when a server starts, over an empty
store or one that was kept.
"""

from __future__ import annotations

from dragoman.api.gates import DEFAULTS, Gates
from dragoman.api.kinds import BY_NAME
from dragoman.api.shape import Object
from dragoman.apiserver import default_roles, fields
from dragoman.apiserver.access.authorizer import AuthorizationMode
from dragoman.apiserver.custom.registration import Registration
from dragoman.apiserver.registry import Registry
from dragoman.apiserver.request import Write
from dragoman.apiserver.store import Store, StoredObject
from dragoman.runtime.clock import Clock
from dragoman.runtime.entropy import Entropy

NAMESPACE = BY_NAME["Namespace"]
SERVICE_ACCOUNT = BY_NAME["ServiceAccount"]
CONFIG_MAP = BY_NAME["ConfigMap"]
PRIORITY_CLASS = BY_NAME["PriorityClass"]
NAMESPACES = ("default", "kube-system", "kube-public", "kube-node-lease")
ROOT_CA = "kube-root-ca.crt"
AUTHENTICATION = "extension-apiserver-authentication"
"""ConfigMap in kube-system: who vouches for client certificates, for API servers beside this one."""
API_SERVICE, API_ADDRESS = "kubernetes", "10.96.0.1"
SYSTEM_PRIORITIES = {"system-cluster-critical": 2_000_000_000, "system-node-critical": 2_000_001_000}
_BOOT = Write(manager="dragoman-apiserver")


def in_memory(clock: Clock, entropy: Entropy, gates: Gates = DEFAULTS, mode: AuthorizationMode = "rbac") -> Registry:
    """A registry with what every cluster has, which forgets everything with the process."""
    registry = Registry(Store(fields.fields_of), clock, entropy, gates, mode=mode)
    bootstrap(registry)
    return registry


def bootstrap(registry: Registry, address: tuple[str, int] | None = None) -> None:
    """Make what every cluster has, where absent; namespaces that come later get theirs when they are created.

    address: where the server listens, for the Service `kubernetes`; none without a socket.
    """

    def followed(old: StoredObject | None, new: StoredObject | None) -> None:
        if old is None and new is not None:
            _create_defaults(registry, new.name)

    registry.followers[NAMESPACE] = followed
    Registration(registry).start()
    for name in NAMESPACES:
        if registry.find(NAMESPACE, name) is None:
            registry.create(NAMESPACE, {"metadata": {"name": name}}, write=_BOOT)
    for record in registry.store.select(NAMESPACE):
        if record.fields.get("status.phase") != "Terminating":
            _create_defaults(registry, record.name)
    for name, value in SYSTEM_PRIORITIES.items():
        if registry.find(PRIORITY_CLASS, name) is None:
            what = "Used for system critical pods that must run in the cluster"
            body: Object = {"metadata": {"name": name}, "value": value, "description": what}
            registry.create(PRIORITY_CLASS, body, write=_BOOT)
    default_roles.ensure(registry)

    if address is not None:
        _announce(registry, *address)


def _announce(registry: Registry, host: str, port: int) -> None:
    """The Service `kubernetes` in default, and the endpoints behind it, which move with the server's address."""
    ports: list[Object] = [{"name": "https", "port": 443, "protocol": "TCP", "targetPort": port}]
    spec = {"clusterIP": API_ADDRESS, "ports": ports, "type": "ClusterIP", "sessionAffinity": "None"}
    labels = {"component": "apiserver", "provider": "kubernetes"}
    found: list[Object] = [{"name": "https", "port": port, "protocol": "TCP"}]
    _kept(registry, "Service", {"metadata": {"name": API_SERVICE, "labels": labels}, "spec": spec})
    mirrored = {"endpointslice.kubernetes.io/skip-mirror": "true"}
    subsets = [{"addresses": [{"ip": host}], "ports": found}]
    _kept(registry, "Endpoints", {"metadata": {"name": API_SERVICE, "labels": mirrored}, "subsets": subsets})
    _kept(
        registry,
        "EndpointSlice",
        {
            "metadata": {"name": API_SERVICE, "labels": {"kubernetes.io/service-name": API_SERVICE}},
            "addressType": "IPv6" if ":" in host else "IPv4",
            "endpoints": [{"addresses": [host], "conditions": {"ready": True}}],
            "ports": found,
        },
    )


def _kept(registry: Registry, kind: str, body: Object) -> None:
    """Make an object in default, or bring it up to date."""
    name = body["metadata"]["name"]
    if registry.find(BY_NAME[kind], name, "default") is None:
        registry.create(BY_NAME[kind], body, "default", _BOOT)
    else:
        registry.patch(BY_NAME[kind], name, body, "default", write=_BOOT)


def _create_defaults(registry: Registry, namespace: str) -> None:
    """At start too: a process may have died between a namespace and its content, or the CA may be a new one."""
    if registry.find(SERVICE_ACCOUNT, "default", namespace) is None:
        registry.create(SERVICE_ACCOUNT, {"metadata": {"name": "default"}}, namespace, _BOOT)
    _authority(registry, ROOT_CA, "ca.crt", namespace)
    if namespace == "kube-system":
        _authority(registry, AUTHENTICATION, "client-ca-file", namespace)


def _authority(registry: Registry, name: str, key: str, namespace: str) -> None:
    """A ConfigMap with the certificate of the cluster's authority."""
    data = {key: registry.ca_text}
    if registry.find(CONFIG_MAP, name, namespace) is None:
        registry.create(CONFIG_MAP, {"metadata": {"name": name}, "data": data}, namespace, _BOOT)
    else:
        registry.patch(CONFIG_MAP, name, {"data": data}, namespace, write=_BOOT)
