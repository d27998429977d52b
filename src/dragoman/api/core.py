"""Core, workload and scheduling kinds as frozen values, as far as decisions read them.

Partial on purpose: the stored objects hold more, so nothing here is ever written back whole.
"""

from __future__ import annotations

from typing import Any

import msgspec

from dragoman.api.meta import Condition, LabelSelector, ObjectMeta, Value
from dragoman.values.quantity import Quantity

# ---- node selectors


class NodeSelectorRequirement(Value):
    """operator: In, NotIn, Exists, DoesNotExist, Gt or Lt."""

    key: str = ""
    operator: str = ""
    values: tuple[str, ...] = ()


class NodeSelectorTerm(Value):
    """All requirements must hold; a term without any matches nothing."""

    match_expressions: tuple[NodeSelectorRequirement, ...] = ()
    match_fields: tuple[NodeSelectorRequirement, ...] = ()


class NodeSelector(Value):
    """One of the terms must match."""

    node_selector_terms: tuple[NodeSelectorTerm, ...] = ()


# ---- Node


class Taint(Value):
    """A node's taint."""

    key: str = ""
    value: str = ""
    effect: str = ""
    time_added: str | None = None


class NodeSpec(Value):
    """Taints and cordon."""

    unschedulable: bool = False
    taints: tuple[Taint, ...] = ()
    provider_id: str = msgspec.field(name="providerID", default="")


class NodeStatus(Value):
    """allocatable None: room for everything; a missing resource of a given one is 0."""

    capacity: dict[str, Quantity] | None = None
    allocatable: dict[str, Quantity] | None = None
    conditions: tuple[Condition, ...] = ()
    declared_features: tuple[str, ...] = ()


class Node(Value):
    """A machine."""

    metadata: ObjectMeta = ObjectMeta()
    spec: NodeSpec = NodeSpec()
    status: NodeStatus = NodeStatus()


# ---- Pod


class PodResourceClaim(Value):
    """An entry of spec.resourceClaims (also of a PodGroup's)."""

    name: str = ""
    resource_claim_name: str | None = None
    resource_claim_template_name: str | None = None


class ContainerClaim(Value):
    """An entry of resources.claims; request empty names the whole claim."""

    name: str = ""
    request: str = ""


class ResourceRequirements(Value):
    """requests, limits and claims of a container (claims are absent at pod level)."""

    requests: dict[str, Quantity] = {}
    limits: dict[str, Quantity] = {}
    claims: tuple[ContainerClaim, ...] = ()


class Container(Value):
    """A container as far as scheduling reads it."""

    name: str = ""
    image: str = ""
    resources: ResourceRequirements = ResourceRequirements()
    restart_policy: str | None = None


class Toleration(Value):
    """A pod's toleration of node taints."""

    key: str = ""
    operator: str = ""
    value: str = ""
    effect: str = ""
    toleration_seconds: int | None = None


class PreferredSchedulingTerm(Value):
    """A weighted node preference."""

    weight: int = 0
    preference: NodeSelectorTerm = NodeSelectorTerm()


class NodeAffinity(Value):
    """Required and preferred node affinity."""

    required: NodeSelector | None = msgspec.field(name="requiredDuringSchedulingIgnoredDuringExecution", default=None)
    preferred: tuple[PreferredSchedulingTerm, ...] = msgspec.field(
        name="preferredDuringSchedulingIgnoredDuringExecution", default=()
    )


class Affinity(Value):
    """podAffinity and podAntiAffinity are kept raw: their presence must not be ignored silently."""

    node_affinity: NodeAffinity | None = None
    pod_affinity: Any = None
    pod_anti_affinity: Any = None


class SchedulingGate(Value):
    """A gate that holds a pod back."""

    name: str = ""


class SchedulingGroup(Value):
    """Which PodGroup the pod belongs to."""

    pod_group_name: str | None = None


class PodSpec(Value):
    """A pod's wishes."""

    node_name: str = ""
    scheduler_name: str = "default-scheduler"
    resource_claims: tuple[PodResourceClaim, ...] = ()
    containers: tuple[Container, ...] = ()
    init_containers: tuple[Container, ...] = ()
    resources: ResourceRequirements | None = None
    overhead: dict[str, Quantity] = {}
    node_selector: dict[str, str] = {}
    affinity: Affinity | None = None
    tolerations: tuple[Toleration, ...] = ()
    priority: int | None = None
    priority_class_name: str = ""
    preemption_policy: str | None = None
    scheduling_gates: tuple[SchedulingGate, ...] = ()
    scheduling_group: SchedulingGroup | None = None
    restart_policy: str = "Always"
    host_network: bool = False
    topology_spread_constraints: tuple[Any, ...] = ()
    termination_grace_period_seconds: int | None = None


class PodResourceClaimStatus(Value):
    """Claim made for an entry; name absent: deliberately none."""

    name: str = ""
    resource_claim_name: str | None = None


class ContainerExtendedResourceRequest(Value):
    """Which request of the special claim serves which container's resource."""

    container_name: str = ""
    resource_name: str = ""
    request_name: str = ""


class PodExtendedResourceClaimStatus(Value):
    """The special claim for extended resources (KEP-5004)."""

    resource_claim_name: str = ""
    request_mappings: tuple[ContainerExtendedResourceRequest, ...] = ()


class PodStatus(Value):
    """As far as decisions read it."""

    phase: str = ""
    reason: str = ""
    message: str = ""
    conditions: tuple[Condition, ...] = ()
    nominated_node_name: str = ""
    resource_claim_statuses: tuple[PodResourceClaimStatus, ...] = ()
    extended_resource_claim_status: PodExtendedResourceClaimStatus | None = None
    node_allocatable_resource_claim_statuses: tuple[Any, ...] = ()
    container_statuses: tuple[Any, ...] = ()
    init_container_statuses: tuple[Any, ...] = ()


class Pod(Value):
    """A pod."""

    metadata: ObjectMeta = ObjectMeta()
    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()


# ---- Namespace, PriorityClass, ServiceAccount


class NamespaceStatus(Value):
    """phase Active or Terminating."""

    phase: str = ""


class Namespace(Value):
    """A namespace."""

    metadata: ObjectMeta = ObjectMeta()
    status: NamespaceStatus = NamespaceStatus()


class PriorityClass(Value):
    """scheduling.k8s.io/v1 PriorityClass."""

    metadata: ObjectMeta = ObjectMeta()
    value: int = 0
    global_default: bool = False
    preemption_policy: str = "PreemptLowerPriority"


# ---- PodGroup (scheduling.k8s.io, alpha/beta)


class GangPolicy(Value):
    """That many pods must be placeable together."""

    min_count: int = 1


class SchedulingPolicy(Value):
    """Exactly one of basic and gang."""

    basic: Any = None
    gang: GangPolicy | None = None


class TopologyConstraint(Value):
    """All pods in one domain of this node label."""

    key: str = ""


class SchedulingConstraints(Value):
    """Constraints over a group."""

    topology: tuple[TopologyConstraint, ...] = ()


class PodGroupSpec(Value):
    """Policy and claims of a group."""

    scheduling_policy: SchedulingPolicy | None = None
    scheduling_constraints: SchedulingConstraints | None = None
    resource_claims: tuple[PodResourceClaim, ...] = ()
    priority: int | None = None
    priority_class_name: str = ""
    preemption_policy: str | None = None
    disruption_mode: Any = None


class PodGroupStatus(Value):
    """Claims made for the group."""

    resource_claim_statuses: tuple[PodResourceClaimStatus, ...] = ()
    conditions: tuple[Condition, ...] = ()


class PodGroup(Value):
    """Pods scheduled together."""

    metadata: ObjectMeta = ObjectMeta()
    spec: PodGroupSpec = PodGroupSpec()
    status: PodGroupStatus = PodGroupStatus()


# ---- workloads


class PodTemplateSpec(Value):
    """A pod's mould; spec stays raw so that nothing is lost when pods are made from it."""

    metadata: ObjectMeta = ObjectMeta()
    spec: Any = None


class WorkloadSpec(Value):
    """Fields that Deployment, ReplicaSet, StatefulSet, DaemonSet and Job share or have."""

    replicas: int | None = None
    selector: LabelSelector | None = None
    template: PodTemplateSpec = PodTemplateSpec()
    strategy: Any = None
    min_ready_seconds: int = 0
    revision_history_limit: int | None = None
    progress_deadline_seconds: int | None = None
    paused: bool = False
    parallelism: int | None = None
    completions: int | None = None
    completion_mode: str = ""
    backoff_limit: int | None = None
    active_deadline_seconds: int | None = None
    ttl_seconds_after_finished: int | None = None
    suspend: bool = False
    manual_selector: bool = False


class Workload(Value):
    """Any of the workload kinds; status stays raw."""

    metadata: ObjectMeta = ObjectMeta()
    spec: WorkloadSpec = WorkloadSpec()
    status: Any = None
