"""Which strategy does a kind have? One table; a kind that is absent is generic."""

from __future__ import annotations

from dragoman.api.kinds import Kind
from dragoman.apiserver.strategies.base import Strategy
from dragoman.apiserver.strategies.core import (
    EventStrategy,
    LeaseStrategy,
    NamespaceStrategy,
    NodeStrategy,
    SecretStrategy,
    ServiceStrategy,
)
from dragoman.apiserver.strategies.pods import PodStrategy
from dragoman.apiserver.strategies.resource import (
    ClaimStrategy,
    ClaimTemplateStrategy,
    DeviceClassStrategy,
    PoolStatusRequestStrategy,
    SliceStrategy,
    TaintRuleStrategy,
)
from dragoman.apiserver.strategies.workloads import Generational, PriorityClassStrategy, Workload

_GENERIC = Strategy()
_TABLE: dict[str, Strategy] = {
    "Namespace": NamespaceStrategy(),
    "Node": NodeStrategy(),
    "Pod": PodStrategy(),
    "Event": EventStrategy(),
    "Secret": SecretStrategy(),
    "Service": ServiceStrategy(),
    "Lease": LeaseStrategy(),
    "Deployment": Workload(),
    "ReplicaSet": Workload(),
    "ReplicationController": Workload(),
    "StatefulSet": Workload(),
    "DaemonSet": Workload(),
    "Job": Workload(),
    "CronJob": Generational(),
    "PodDisruptionBudget": Generational(),
    "PodGroup": Generational(),
    "NetworkPolicy": Generational(),
    "Ingress": Generational(),
    "PriorityClass": PriorityClassStrategy(),
    "ResourceClaim": ClaimStrategy(),
    "ResourceClaimTemplate": ClaimTemplateStrategy(),
    "ResourceSlice": SliceStrategy(),
    "DeviceClass": DeviceClassStrategy(),
    "DeviceTaintRule": TaintRuleStrategy(),
    "ResourcePoolStatusRequest": PoolStatusRequestStrategy(),
}


def strategy_of(kind: Kind) -> Strategy:
    """The strategy of a kind."""
    return _TABLE.get(kind.kind, _GENERIC)
