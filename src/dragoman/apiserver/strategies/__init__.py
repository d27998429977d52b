"""Which strategy does a kind have? One table; a kind that is absent is generic."""

from __future__ import annotations

from dragoman.api.kinds import Kind
from dragoman.apiserver.strategies.base import Generational, Strategy
from dragoman.apiserver.strategies.core import (
    EventStrategy,
    LeaseStrategy,
    NamespaceStrategy,
    NodeStrategy,
    SecretStrategy,
    ServiceStrategy,
)
from dragoman.apiserver.strategies.jobs import JobStrategy
from dragoman.apiserver.strategies.pods import PodStrategy
from dragoman.apiserver.strategies.resource import (
    ClaimStrategy,
    SliceStrategy,
    TaintRuleStrategy,
)

GENERIC = Strategy()
_TABLE: dict[str, Strategy] = {
    "Namespace": NamespaceStrategy(),
    "Node": NodeStrategy(),
    "Pod": PodStrategy(),
    "Event": EventStrategy(),
    "Secret": SecretStrategy(),
    "Service": ServiceStrategy(),
    "Lease": LeaseStrategy(),
    "Deployment": Generational(),
    "ReplicaSet": Generational(),
    "ReplicationController": Generational(),
    "StatefulSet": Generational(),
    "DaemonSet": Generational(),
    "Job": JobStrategy(),
    "CronJob": Generational(),
    "PodDisruptionBudget": Generational(),
    "PodGroup": Generational(),
    "NetworkPolicy": Generational(),
    "Ingress": Generational(),
    "PriorityClass": Generational(),
    "ResourceClaim": ClaimStrategy(),
    "ResourceSlice": SliceStrategy(),
    "DeviceClass": Generational(),
    "DeviceTaintRule": TaintRuleStrategy(),
    # Upstream keeps no generation of these.
    "PersistentVolume": Strategy(),
    "PersistentVolumeClaim": Strategy(),
    "ResourceQuota": Strategy(),
    "ResourcePoolStatusRequest": Strategy(),
}


def strategy_of(kind: Kind) -> Strategy:
    """The strategy of a kind."""
    return _TABLE.get(kind.kind, GENERIC)
