"""Which strategy does a kind have? One table; a kind that is absent is generic."""

from __future__ import annotations

from functools import cache

from dragoman.api.kinds import Kind
from dragoman.apiserver.custom.kind import CustomKind
from dragoman.apiserver.strategies.base import (
    Generational,
    Returned,
    StatusAlone,
    StatusAloneGenerational,
    StatusAloneReturned,
    Strategy,
)
from dragoman.apiserver.strategies.certificates import SigningRequestStrategy
from dragoman.apiserver.strategies.core import (
    ApiServiceStrategy,
    EventStrategy,
    LeaseStrategy,
    NamespaceStrategy,
    NodeStrategy,
    PodTemplateStrategy,
    SecretStrategy,
    ServiceStrategy,
    VolumeStrategy,
)
from dragoman.apiserver.strategies.custom import CustomStrategy, DefinitionStrategy
from dragoman.apiserver.strategies.jobs import DeploymentStrategy, JobStrategy
from dragoman.apiserver.strategies.pods import PodStrategy
from dragoman.apiserver.strategies.resource import (
    ClaimStrategy,
    DeviceClassStrategy,
    SliceStrategy,
    TaintRuleStrategy,
)

GENERIC = Strategy()
CUSTOM = CustomStrategy()
_TABLE: dict[str, Strategy] = {
    "Namespace": NamespaceStrategy(),
    "Node": NodeStrategy(),
    "Pod": PodStrategy(),
    "Event": EventStrategy(),
    "Secret": SecretStrategy(),
    "Service": ServiceStrategy(),
    "Lease": LeaseStrategy(),
    "Job": JobStrategy(),
    "ResourceClaim": ClaimStrategy(),
    "ResourceClaimTemplate": Returned(),
    "ResourceSlice": SliceStrategy(),
    "DeviceClass": DeviceClassStrategy(),
    "DeviceTaintRule": TaintRuleStrategy(),
    "ResourcePoolStatusRequest": StatusAloneReturned(),
    "PodTemplate": PodTemplateStrategy(),
    "CustomResourceDefinition": DefinitionStrategy(),
    "Deployment": DeploymentStrategy(),
    "ReplicaSet": Generational(),
    "ReplicationController": Generational(),
    "StatefulSet": Generational(),
    "DaemonSet": Generational(),
    "CronJob": Generational(),
    "PodDisruptionBudget": Generational(),
    "PodGroup": StatusAloneGenerational(),
    "NetworkPolicy": Generational(),
    "Ingress": Generational(),
    "IngressClass": Generational(),
    "PriorityClass": Generational(),
    "EndpointSlice": Generational(),
    "HorizontalPodAutoscaler": Generational(),
    "FlowSchema": StatusAloneGenerational(),
    "PriorityLevelConfiguration": StatusAloneGenerational(),
    "CertificateSigningRequest": SigningRequestStrategy(),
    "PersistentVolume": VolumeStrategy(),
    "PersistentVolumeClaim": VolumeStrategy(),
    "ResourceQuota": Returned(),
    "ServiceAccount": Returned(),
    "CSIDriver": Returned(),
    "CSINode": StatusAloneReturned(),
    "StorageClass": Returned(),
    "VolumeAttachment": StatusAloneReturned(),
    "VolumeAttributesClass": Returned(),
    # Neither a generation nor an answer of its own, as upstream.
    "APIService": ApiServiceStrategy(),
    "PodCertificateRequest": StatusAlone(),
    "ServiceCIDR": StatusAlone(),
    "StorageVersionMigration": StatusAlone(),
}


def strategy_of(kind: Kind) -> Strategy:
    """The strategy of a kind."""
    if isinstance(kind, CustomKind):
        return CUSTOM
    if kind.group == "admissionregistration.k8s.io":
        return _of_admission(kind.kind)
    return _TABLE.get(kind.kind, GENERIC)


@cache
def _of_admission(kind: str) -> Strategy:
    from dragoman.apiserver.strategies import admission  # with the expression language: a lot to load, for few

    if kind.endswith("PolicyBinding"):
        return admission.BindingStrategy(kind)
    return admission.PolicyStrategy(kind) if kind.endswith("Policy") else admission.WebhookStrategy(kind)
