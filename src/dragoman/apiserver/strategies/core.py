"""What do the core kinds other than pods need? Namespaces, nodes, events, secrets, services, leases."""

from __future__ import annotations

import base64

from dragoman.api.kinds import BY_NAME
from dragoman.api.shape import Object
from dragoman.apiserver.lookup import Lookup
from dragoman.apiserver.request import DeleteOptions, Write
from dragoman.apiserver.status import forbidden
from dragoman.apiserver.strategies.base import Strategy, dig

IMMORTAL = ("default", "kube-system", "kube-public")


class NamespaceStrategy(Strategy):
    """Two sets of finalizers; deletion turns the phase to Terminating."""

    returns_deleted = True

    def prepare_create(self, lookup: Lookup, obj: Object, write: Write) -> list[str]:
        """Every namespace starts active, held by the content controller's finalizer."""
        labels = obj["metadata"].setdefault("labels", {})
        labels["kubernetes.io/metadata.name"] = obj["metadata"]["name"]
        finalizers = dig(obj, "spec", "finalizers") or []
        obj["spec"] = {"finalizers": [*finalizers, *([] if "kubernetes" in finalizers else ["kubernetes"])]}
        obj["status"] = {"phase": "Active"}
        return []

    def prepare_update(self, lookup: Lookup, new: Object, old: Object, subresource: str, write: Write) -> list[str]:
        """spec.finalizers change through /finalize only."""
        if subresource != "finalize":
            new["spec"] = old.get("spec", {})
        else:
            new["status"] = old.get("status", {})
        new["metadata"].setdefault("labels", {})["kubernetes.io/metadata.name"] = new["metadata"]["name"]
        return []

    def before_delete(self, lookup: Lookup, obj: Object, options: DeleteOptions) -> None:
        """Some namespaces stay; others begin to terminate."""
        if obj["metadata"]["name"] in IMMORTAL:
            raise forbidden(BY_NAME["Namespace"], obj["metadata"]["name"], "this namespace may not be deleted")
        obj.setdefault("status", {})["phase"] = "Terminating"

    def is_finalized(self, obj: Object) -> bool:
        """Whether the namespace's own finalizers are worked off."""
        return not dig(obj, "spec", "finalizers")


class NodeStrategy(Strategy):
    """Kubelets may label through the status; a node keeps the status it is created with, as kubelets send it."""

    has_status = False


class PodTemplateStrategy(Strategy):
    """PodTemplate has a generation and answers a deletion with the object."""

    keeps_generation = True
    returns_deleted = True


class ApiServiceStrategy(Strategy):
    """APIService: one of a server elsewhere is never available here, and its status says so."""

    def prepare_create(self, lookup: Lookup, obj: Object, write: Write) -> list[str]:
        """Local ones are there; no other is reached."""
        remote = bool(dig(obj, "spec", "service"))
        obj["status"] = {
            "conditions": [
                {
                    "type": "Available",
                    "status": "False" if remote else "True",
                    "reason": "AggregationNotServed" if remote else "Local",
                    "message": "aggregated API servers are not reached by this server"
                    if remote
                    else "Local APIServices are always available",
                    "lastTransitionTime": lookup.now_text(),
                }
            ]
        }
        return []


class VolumeStrategy(Strategy):
    """Volumes and claims for them begin Pending, and answer a deletion with the object."""

    returns_deleted = True

    def prepare_create(self, lookup: Lookup, obj: Object, write: Write) -> list[str]:
        """Nothing is bound yet."""
        obj["status"] = {"phase": "Pending"}
        return []


class EventStrategy(Strategy):
    """Events may be created by PUT."""

    create_on_update = True


class LeaseStrategy(Strategy):
    """Leases may be created by PUT."""

    create_on_update = True


class SecretStrategy(Strategy):
    """stringData is write-only."""

    def prepare_create(self, lookup: Lookup, obj: Object, write: Write) -> list[str]:
        """Fold stringData into data."""
        _fold(obj)
        return []

    def prepare_update(self, lookup: Lookup, new: Object, old: Object, subresource: str, write: Write) -> list[str]:
        """Fold stringData into data."""
        _fold(new)
        return []


def _fold(obj: Object) -> None:
    plain = obj.pop("stringData", None)
    if plain:
        data = obj.setdefault("data", {})
        for key, value in plain.items():
            data[key] = base64.b64encode(str(value).encode()).decode()


class ServiceStrategy(Strategy):
    """Services get an address of the cluster's range, which nothing routes to."""

    returns_deleted = True

    def prepare_create(self, lookup: Lookup, obj: Object, write: Write) -> list[str]:
        """Assign a cluster IP."""
        spec = obj.setdefault("spec", {})
        if spec.get("type", "ClusterIP") != "ExternalName":
            address = spec.get("clusterIP") or lookup.free_cluster_ip()
            spec["clusterIP"] = address
            spec.setdefault("clusterIPs", [address])
            spec.setdefault("ipFamilies", ["IPv4"])
            spec.setdefault("ipFamilyPolicy", "SingleStack")
        obj.setdefault("status", {"loadBalancer": {}})
        return []

    def prepare_update(self, lookup: Lookup, new: Object, old: Object, subresource: str, write: Write) -> list[str]:
        """Keep the addresses where the writer leaves them out."""
        spec, before = new.get("spec") or {}, old.get("spec") or {}
        for field in ("clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy"):
            if field in before and not spec.get(field):
                spec[field] = before[field]
        return []
