"""Which kinds there are, and how each is addressed: one table for client and server.

A new kind is one line. Behaviour (defaults, validation, printing) stands elsewhere, keyed by the same Kind.
"""

from __future__ import annotations

from functools import lru_cache

import msgspec


class Kind(msgspec.Struct, frozen=True):
    """A kind of object. `versions` lists known versions, preferred (and stored) one first.

    gate: the feature gate without which no server has the kind. Which versions a server offers is its own affair.
    """

    kind: str
    plural: str
    group: str
    versions: tuple[str, ...]
    namespaced: bool
    short: tuple[str, ...] = ()
    subresources: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    gate: str = ""

    @property
    def singular(self) -> str:
        """The singular name of the resource."""
        return self.kind.lower()

    @property
    def list_kind(self) -> str:
        """The kind of a list of it."""
        return f"{self.kind}List"

    @property
    def api_version(self) -> str:
        """The preferred version as apiVersion."""
        return self.version_text(self.versions[0])

    def version_text(self, version: str) -> str:
        """`v1` or `group/v1`."""
        return f"{self.group}/{version}" if self.group else version

    def path(self, namespace: str = "", name: str = "", subresource: str = "", *, version: str = "") -> str:
        """The REST path, starting with a slash. An empty namespace of a namespaced kind means all of them."""
        version = version or self.versions[0]
        parts = ["/apis", self.group, version] if self.group else ["/api", version]
        if self.namespaced and namespace:
            parts += ["namespaces", namespace]
        parts.append(self.plural)
        if name:
            parts.append(name)
        if subresource:
            parts.append(subresource)
        return "/".join(parts)


def _table() -> tuple[Kind, ...]:
    v1 = ("v1",)
    dra = "resource.k8s.io"
    dra_versions = ("v1", "v1beta2", "v1beta1")
    status = ("status",)
    scale = ("status", "scale")
    all_ = ("all",)
    grouping = ("v1beta1", "v1alpha3")
    extensions = ("api-extensions",)
    admission, rbac, storage = "admissionregistration.k8s.io", "rbac.authorization.k8s.io", "storage.k8s.io"
    certificates, flow, network = "certificates.k8s.io", "flowcontrol.apiserver.k8s.io", "networking.k8s.io"
    return (
        Kind("Namespace", "namespaces", "", v1, False, ("ns",), ("status", "finalize")),
        Kind("Node", "nodes", "", v1, False, ("no",), status),
        Kind(
            "Pod",
            "pods",
            "",
            v1,
            True,
            ("po",),
            ("status", "binding", "eviction", "log", "ephemeralcontainers"),
            ("all",),
        ),
        Kind("Event", "events", "", v1, True, ("ev",)),
        Kind("ConfigMap", "configmaps", "", v1, True, ("cm",)),
        Kind("Secret", "secrets", "", v1, True),
        Kind("ServiceAccount", "serviceaccounts", "", v1, True, ("sa",), ("token",)),
        Kind("Service", "services", "", v1, True, ("svc",), status, ("all",)),
        Kind("Endpoints", "endpoints", "", v1, True, ("ep",)),
        Kind("PersistentVolume", "persistentvolumes", "", v1, False, ("pv",), status),
        Kind("PersistentVolumeClaim", "persistentvolumeclaims", "", v1, True, ("pvc",), status),
        Kind("ResourceQuota", "resourcequotas", "", v1, True, ("quota",), status),
        Kind("LimitRange", "limitranges", "", v1, True, ("limits",)),
        Kind("ReplicationController", "replicationcontrollers", "", v1, True, ("rc",), scale, ("all",)),
        Kind("PodTemplate", "podtemplates", "", v1, True),
        Kind("Deployment", "deployments", "apps", v1, True, ("deploy",), scale, ("all",)),
        Kind("ReplicaSet", "replicasets", "apps", v1, True, ("rs",), scale, ("all",)),
        Kind("StatefulSet", "statefulsets", "apps", v1, True, ("sts",), scale, ("all",)),
        Kind("DaemonSet", "daemonsets", "apps", v1, True, ("ds",), status, ("all",)),
        Kind("ControllerRevision", "controllerrevisions", "apps", v1, True),
        Kind("Job", "jobs", "batch", v1, True, (), status, ("all",)),
        Kind("CronJob", "cronjobs", "batch", v1, True, ("cj",), status, ("all",)),
        Kind("Lease", "leases", "coordination.k8s.io", v1, True),
        Kind("PodDisruptionBudget", "poddisruptionbudgets", "policy", v1, True, ("pdb",), status),
        Kind("PriorityClass", "priorityclasses", "scheduling.k8s.io", v1, False, ("pc",)),
        Kind("PodGroup", "podgroups", "scheduling.k8s.io", grouping, True, (), status, gate="GenericWorkload"),
        Kind("Workload", "workloads", "scheduling.k8s.io", grouping, True, gate="GenericWorkload"),
        Kind("ResourceClaim", "resourceclaims", dra, dra_versions, True, (), status),
        Kind("ResourceClaimTemplate", "resourceclaimtemplates", dra, dra_versions, True),
        Kind("ResourceSlice", "resourceslices", dra, dra_versions, False),
        Kind("DeviceClass", "deviceclasses", dra, dra_versions, False),
        Kind("DeviceTaintRule", "devicetaintrules", dra, ("v1", "v1beta2", "v1alpha3"), False, (), status),
        Kind("ResourcePoolStatusRequest", "resourcepoolstatusrequests", dra, ("v1alpha3",), False, (), status),
        Kind("Role", "roles", rbac, v1, True),
        Kind("RoleBinding", "rolebindings", rbac, v1, True),
        Kind("ClusterRole", "clusterroles", rbac, v1, False),
        Kind("ClusterRoleBinding", "clusterrolebindings", rbac, v1, False),
        Kind("StorageClass", "storageclasses", storage, v1, False, ("sc",)),
        Kind("CSINode", "csinodes", storage, v1, False, (), status),
        Kind("CSIDriver", "csidrivers", storage, v1, False),
        Kind("CSIStorageCapacity", "csistoragecapacities", storage, v1, True),
        Kind("VolumeAttachment", "volumeattachments", storage, v1, False, (), status),
        Kind("VolumeAttributesClass", "volumeattributesclasses", storage, v1, False, ("vac",)),
        Kind("RuntimeClass", "runtimeclasses", "node.k8s.io", v1, False),
        Kind("EndpointSlice", "endpointslices", "discovery.k8s.io", v1, True),
        Kind("NetworkPolicy", "networkpolicies", network, v1, True, ("netpol",)),
        Kind("Ingress", "ingresses", network, v1, True, ("ing",), status),
        Kind("IngressClass", "ingressclasses", network, v1, False),
        Kind("IPAddress", "ipaddresses", network, v1, False, ("ip",)),
        Kind("ServiceCIDR", "servicecidrs", network, v1, False, (), status),
        Kind(
            "HorizontalPodAutoscaler",
            "horizontalpodautoscalers",
            "autoscaling",
            ("v2", "v1"),
            True,
            ("hpa",),
            status,
            all_,
        ),
        Kind(
            "CertificateSigningRequest",
            "certificatesigningrequests",
            certificates,
            v1,
            False,
            ("csr",),
            ("status", "approval"),
        ),
        Kind("ClusterTrustBundle", "clustertrustbundles", certificates, ("v1", "v1beta1"), False),
        Kind("PodCertificateRequest", "podcertificaterequests", certificates, ("v1", "v1beta1"), True, (), status),
        Kind("FlowSchema", "flowschemas", flow, v1, False, (), status),
        Kind("PriorityLevelConfiguration", "prioritylevelconfigurations", flow, v1, False, (), status),
        Kind(
            "StorageVersionMigration",
            "storageversionmigrations",
            "storagemigration.k8s.io",
            ("v1", "v1beta1"),
            False,
            (),
            status,
        ),
        Kind("MutatingWebhookConfiguration", "mutatingwebhookconfigurations", admission, v1, False, (), (), extensions),
        Kind(
            "ValidatingWebhookConfiguration",
            "validatingwebhookconfigurations",
            admission,
            v1,
            False,
            (),
            (),
            extensions,
        ),
        Kind("ValidatingAdmissionPolicy", "validatingadmissionpolicies", admission, v1, False, (), status, extensions),
        Kind(
            "ValidatingAdmissionPolicyBinding",
            "validatingadmissionpolicybindings",
            admission,
            v1,
            False,
            (),
            (),
            extensions,
        ),
        Kind(
            "MutatingAdmissionPolicy",
            "mutatingadmissionpolicies",
            admission,
            ("v1", "v1beta1", "v1alpha1"),
            False,
            (),
            (),
            extensions,
        ),
        Kind(
            "MutatingAdmissionPolicyBinding",
            "mutatingadmissionpolicybindings",
            admission,
            ("v1", "v1beta1", "v1alpha1"),
            False,
            (),
            (),
            extensions,
        ),
        Kind("APIService", "apiservices", "apiregistration.k8s.io", v1, False, (), status, extensions),
        Kind(
            "CustomResourceDefinition",
            "customresourcedefinitions",
            "apiextensions.k8s.io",
            v1,
            False,
            ("crd", "crds"),
            status,
            extensions,
        ),
    )


KINDS: tuple[Kind, ...] = _table()
BY_NAME: dict[str, Kind] = {kind.kind: kind for kind in KINDS}
BY_PLURAL: dict[tuple[str, str], Kind] = {(kind.group, kind.plural): kind for kind in KINDS}


def kind_of(name: str) -> Kind:
    """The Kind of that name, or of a `custom_name`. Raises KeyError."""
    found = BY_NAME.get(name)
    return found if found is not None else _custom_kind(name)


def custom_name(kind: str, group: str, version: str, plural: str, *, namespaced: bool) -> str:
    """The name of a custom kind where kinds go by name (Ref, informers): it says all that a client must know."""
    return f"{kind}/{group}/{version}/{plural}/{'namespaced' if namespaced else 'cluster'}"


@lru_cache(1024)
def _custom_kind(name: str) -> Kind:
    _, slash, rest = name.partition("/")
    if not slash:
        raise KeyError(name)
    group, version, plural, scope = rest.split("/")
    return Kind(name, plural, group, (version,), scope == "namespaced")
