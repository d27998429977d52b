"""Core, workload and scheduling kinds as frozen values, as far as decisions read them.

Partial on purpose: the stored objects hold more, so nothing here is ever written back whole.
"""

from __future__ import annotations

from typing import Any

import msgspec

from dragoman.api.meta import Condition, LabelSelector, ObjectMeta, Value
from dragoman.values.quantity import Quantity

# ---- node selectors


class NodeSelectorRequirement(Value, frozen=True):
    """operator: In, NotIn, Exists, DoesNotExist, Gt or Lt."""

    key: str = ""
    operator: str = ""
    values: tuple[str, ...] = ()


class NodeSelectorTerm(Value, frozen=True):
    """All requirements must hold; a term without any matches nothing."""

    match_expressions: tuple[NodeSelectorRequirement, ...] = ()
    match_fields: tuple[NodeSelectorRequirement, ...] = ()


class NodeSelector(Value, frozen=True):
    """One of the terms must match."""

    node_selector_terms: tuple[NodeSelectorTerm, ...] = ()


# ---- Node


class Taint(Value, frozen=True):
    """A node's taint."""

    key: str = ""
    value: str = ""
    effect: str = ""
    time_added: str | None = None


class NodeSpec(Value, frozen=True):
    """Taints and cordon."""

    unschedulable: bool = False
    taints: tuple[Taint, ...] = ()
    provider_id: str = msgspec.field(name="providerID", default="")


class NodeStatus(Value, frozen=True):
    """allocatable None: room for everything; a missing resource of a given one is 0."""

    capacity: dict[str, Quantity] | None = None
    allocatable: dict[str, Quantity] | None = None
    conditions: tuple[Condition, ...] = ()
    declared_features: tuple[str, ...] = ()


class Node(Value, frozen=True):
    """A machine."""

    metadata: ObjectMeta = ObjectMeta()
    spec: NodeSpec = NodeSpec()
    status: NodeStatus = NodeStatus()


# ---- Pod


class PodResourceClaim(Value, frozen=True):
    """An entry of spec.resourceClaims (also of a PodGroup's)."""

    name: str = ""
    resource_claim_name: str | None = None
    resource_claim_template_name: str | None = None


class ContainerClaim(Value, frozen=True):
    """An entry of resources.claims; request empty names the whole claim."""

    name: str = ""
    request: str = ""


class ResourceRequirements(Value, frozen=True):
    """requests, limits and claims of a container (claims are absent at pod level)."""

    requests: dict[str, Quantity] = {}
    limits: dict[str, Quantity] = {}
    claims: tuple[ContainerClaim, ...] = ()


class ContainerPort(Value, frozen=True):
    """A port; host_port 0 takes none of the node's."""

    container_port: int = 0
    host_port: int = 0
    protocol: str = ""
    host_ip: str = msgspec.field(name="hostIP", default="")
    name: str = ""


class Container(Value, frozen=True):
    """A container as far as scheduling reads it."""

    name: str = ""
    image: str = ""
    resources: ResourceRequirements = ResourceRequirements()
    restart_policy: str | None = None
    ports: tuple[ContainerPort, ...] = ()


class Toleration(Value, frozen=True):
    """A pod's toleration of node taints."""

    key: str = ""
    operator: str = ""
    value: str = ""
    effect: str = ""
    toleration_seconds: int | None = None


class PreferredSchedulingTerm(Value, frozen=True):
    """A weighted node preference."""

    weight: int = 0
    preference: NodeSelectorTerm = NodeSelectorTerm()


class NodeAffinity(Value, frozen=True):
    """Required and preferred node affinity."""

    required: NodeSelector | None = msgspec.field(name="requiredDuringSchedulingIgnoredDuringExecution", default=None)
    preferred: tuple[PreferredSchedulingTerm, ...] = msgspec.field(
        name="preferredDuringSchedulingIgnoredDuringExecution", default=()
    )


class Affinity(Value, frozen=True):
    """podAffinity and podAntiAffinity are kept raw: their presence must not be ignored silently."""

    node_affinity: NodeAffinity | None = None
    pod_affinity: Any = None
    pod_anti_affinity: Any = None


class SchedulingGate(Value, frozen=True):
    """A gate that holds a pod back."""

    name: str = ""


class SchedulingGroup(Value, frozen=True):
    """Which PodGroup the pod belongs to."""

    pod_group_name: str | None = None


class VolumeClaimSource(Value, frozen=True):
    """volumes[].persistentVolumeClaim."""

    claim_name: str = ""


class PodVolume(Value, frozen=True):
    """A volume, as far as a claim for storage stands behind it: its own name, or one made for the pod (ephemeral)."""

    name: str = ""
    persistent_volume_claim: VolumeClaimSource | None = None
    ephemeral: Any = None


class PodSpec(Value, frozen=True):
    """The spec of a pod."""

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
    hostname: str = ""
    subdomain: str = ""
    active_deadline_seconds: int | None = None
    volumes: tuple[PodVolume, ...] = ()


class PodResourceClaimStatus(Value, frozen=True):
    """Claim made for an entry; name absent: deliberately none."""

    name: str = ""
    resource_claim_name: str | None = None


class ContainerExtendedResourceRequest(Value, frozen=True):
    """Which request of the special claim serves which container's resource."""

    container_name: str = ""
    resource_name: str = ""
    request_name: str = ""


class PodExtendedResourceClaimStatus(Value, frozen=True):
    """The special claim for extended resources (KEP-5004)."""

    resource_claim_name: str = ""
    request_mappings: tuple[ContainerExtendedResourceRequest, ...] = ()


class NodeAllocatableAmount(Value, frozen=True):
    """So much of a node's resource comes with a claim's devices."""

    name: str = ""
    quantity: Quantity = Quantity(0)


class NodeAllocatableExtra(Value, frozen=True):
    """So much more, once for the pod and for each container that uses the claim; absent: no device states it."""

    name: str = ""
    per_pod: Quantity | None = None
    per_container: Quantity | None = None


class NodeAllocatableClaimStatus(Value, frozen=True):
    """What a claim's devices need of the node (KEP-5517, alpha in 1.37). containers: names of those that use it."""

    resource_claim_name: str = ""
    containers: tuple[str, ...] = ()
    mapping: tuple[NodeAllocatableAmount, ...] = ()
    overhead: tuple[NodeAllocatableExtra, ...] = ()


class PodStatus(Value, frozen=True):
    """As far as decisions read it."""

    phase: str = ""
    reason: str = ""
    message: str = ""
    conditions: tuple[Condition, ...] = ()
    nominated_node_name: str = ""
    start_time: str = ""
    resource_claim_statuses: tuple[PodResourceClaimStatus, ...] = ()
    extended_resource_claim_status: PodExtendedResourceClaimStatus | None = None
    node_allocatable_resource_claim_statuses: tuple[NodeAllocatableClaimStatus, ...] = ()
    container_statuses: tuple[Any, ...] = ()
    init_container_statuses: tuple[Any, ...] = ()
    pod_ip: str = msgspec.field(name="podIP", default="")


class Pod(Value, frozen=True):
    """A pod."""

    metadata: ObjectMeta = ObjectMeta()
    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()


# ---- Namespace, PriorityClass, ServiceAccount


class NamespaceStatus(Value, frozen=True):
    """phase Active or Terminating."""

    phase: str = ""
    conditions: tuple[Condition, ...] = ()


class Namespace(Value, frozen=True):
    """A namespace."""

    metadata: ObjectMeta = ObjectMeta()
    status: NamespaceStatus = NamespaceStatus()


class PriorityClass(Value, frozen=True):
    """scheduling.k8s.io/v1 PriorityClass."""

    metadata: ObjectMeta = ObjectMeta()
    value: int = 0
    global_default: bool = False
    preemption_policy: str = "PreemptLowerPriority"


# ---- PodGroup (scheduling.k8s.io, alpha/beta)


class GangPolicy(Value, frozen=True):
    """That many pods must be placeable together."""

    min_count: int = 1


class SchedulingPolicy(Value, frozen=True):
    """Exactly one of basic and gang."""

    basic: Any = None
    gang: GangPolicy | None = None


class TopologyConstraint(Value, frozen=True):
    """All pods in one domain of this node label."""

    key: str = ""


class SchedulingConstraints(Value, frozen=True):
    """Constraints over a group."""

    topology: tuple[TopologyConstraint, ...] = ()


class PodGroupSpec(Value, frozen=True):
    """Policy and claims of a group."""

    scheduling_policy: SchedulingPolicy | None = None
    scheduling_constraints: SchedulingConstraints | None = None
    resource_claims: tuple[PodResourceClaim, ...] = ()
    priority: int | None = None
    priority_class_name: str = ""
    preemption_policy: str | None = None
    disruption_mode: Any = None


class PodGroupStatus(Value, frozen=True):
    """Claims made for the group."""

    resource_claim_statuses: tuple[PodResourceClaimStatus, ...] = ()
    conditions: tuple[Condition, ...] = ()


class PodGroup(Value, frozen=True):
    """Pods scheduled together."""

    metadata: ObjectMeta = ObjectMeta()
    spec: PodGroupSpec = PodGroupSpec()
    status: PodGroupStatus = PodGroupStatus()


# ---- workloads


class PodTemplateSpec(Value, frozen=True):
    """A pod template; spec stays raw so that nothing is lost when pods are made from it."""

    metadata: ObjectMeta = ObjectMeta()
    spec: Any = None


class WorkloadSpec(Value, frozen=True):
    """Fields that Deployment, ReplicaSet, StatefulSet, DaemonSet, Job and CronJob share or have."""

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
    pod_failure_policy: Any = None
    success_policy: Any = None
    backoff_limit_per_index: int | None = None
    max_failed_indexes: int | None = None
    pod_replacement_policy: str = ""
    service_name: str = ""
    pod_management_policy: str = ""
    update_strategy: Any = None
    ordinals: Any = None
    volume_claim_templates: tuple[Any, ...] = ()
    schedule: str = ""
    time_zone: str = ""
    concurrency_policy: str = ""
    starting_deadline_seconds: int | None = None
    successful_jobs_history_limit: int | None = None
    failed_jobs_history_limit: int | None = None
    job_template: Any = None


class Workload(Value, frozen=True):
    """Any of the workload kinds; status stays raw."""

    metadata: ObjectMeta = ObjectMeta()
    spec: WorkloadSpec = WorkloadSpec()
    status: Any = None


class ReplicationControllerSpec(WorkloadSpec, frozen=True):
    """Its selector is a plain map of labels."""

    selector: dict[str, str] | None = None  # type: ignore[assignment]


class ReplicationController(Workload, frozen=True):
    """The elder of ReplicaSet."""

    spec: ReplicationControllerSpec = ReplicationControllerSpec()


class PodDisruptionBudgetSpec(Value, frozen=True):
    """How many pods may be missing; numbers or percentages."""

    selector: LabelSelector | None = None
    min_available: Any = None
    max_unavailable: Any = None
    unhealthy_pod_eviction_policy: str = ""


class PodDisruptionBudget(Value, frozen=True):
    """A budget; status stays raw."""

    metadata: ObjectMeta = ObjectMeta()
    spec: PodDisruptionBudgetSpec = PodDisruptionBudgetSpec()
    status: Any = None


class ServiceSpec(Value, frozen=True):
    """What endpoints need of a Service; ports stay raw."""

    selector: dict[str, str] | None = None
    ports: tuple[Any, ...] = ()
    type: str = ""
    cluster_ip: str = msgspec.field(name="clusterIP", default="")
    publish_not_ready_addresses: bool = False
    allocate_load_balancer_node_ports: bool | None = None


class ClusterService(Value, frozen=True):
    """A Service, of which Kubernetes has one kind and gRPC another."""

    metadata: ObjectMeta = ObjectMeta()
    spec: ServiceSpec = ServiceSpec()


class EndpointSlice(Value, frozen=True):
    """Endpoints of a Service; all but its metadata stays raw."""

    metadata: ObjectMeta = ObjectMeta()
    address_type: str = ""
    endpoints: tuple[Any, ...] | None = ()
    ports: tuple[Any, ...] | None = ()


class Endpoints(Value, frozen=True):
    """The elder of EndpointSlice."""

    metadata: ObjectMeta = ObjectMeta()
    subsets: tuple[Any, ...] | None = ()


class ScopeSelectorRequirement(Value, frozen=True):
    """scopeSelector.matchExpressions: operator is In, NotIn, Exists or DoesNotExist."""

    scope_name: str = ""
    operator: str = "Exists"
    values: tuple[str, ...] = ()


class ScopeSelector(Value, frozen=True):
    """All of them must match."""

    match_expressions: tuple[ScopeSelectorRequirement, ...] = ()


class ResourceQuotaSpec(Value, frozen=True):
    """hard: quota resource -> limit."""

    hard: dict[str, Quantity] = {}
    scopes: tuple[str, ...] = ()
    scope_selector: ScopeSelector | None = None


class ResourceQuotaStatus(Value, frozen=True):
    """What the quota controller last saw."""

    hard: dict[str, Quantity] = {}
    used: dict[str, Quantity] = {}


class ResourceQuota(Value, frozen=True):
    """How much a namespace may hold together."""

    metadata: ObjectMeta = ObjectMeta()
    spec: ResourceQuotaSpec = ResourceQuotaSpec()
    status: ResourceQuotaStatus = ResourceQuotaStatus()


class LimitRangeItem(Value, frozen=True):
    """type is Pod, Container or PersistentVolumeClaim."""

    type: str = ""
    max: dict[str, Quantity] = {}
    min: dict[str, Quantity] = {}
    default: dict[str, Quantity] = {}
    default_request: dict[str, Quantity] = {}
    max_limit_request_ratio: dict[str, Quantity] = {}


class LimitRangeSpec(Value, frozen=True):
    """Its limits, all of which hold."""

    limits: tuple[LimitRangeItem, ...] = ()


class LimitRange(Value, frozen=True):
    """What one pod, container or volume claim of a namespace may ask, and what it gets if it asks nothing."""

    metadata: ObjectMeta = ObjectMeta()
    spec: LimitRangeSpec = LimitRangeSpec()


class VolumeClaimSpec(Value, frozen=True):
    """What quotas, limits and scheduling read of a PersistentVolumeClaim. storage_class_name None: the default one."""

    resources: ResourceRequirements = ResourceRequirements()
    storage_class_name: str | None = None
    volume_attributes_class_name: str | None = None
    access_modes: tuple[str, ...] = ()
    volume_name: str = ""
    volume_mode: str = "Filesystem"
    selector: LabelSelector | None = None


class VolumeClaimStatus(Value, frozen=True):
    """allocatedResources may exceed what is asked while an expansion is undone."""

    phase: str = ""
    allocated_resources: dict[str, Quantity] = {}


class PersistentVolumeClaim(Value, frozen=True):
    """A volume asked for."""

    metadata: ObjectMeta = ObjectMeta()
    spec: VolumeClaimSpec = VolumeClaimSpec()
    status: VolumeClaimStatus = VolumeClaimStatus()


class ClaimReference(Value, frozen=True):
    """The claim that a volume is kept for. uid "": whichever has the name."""

    namespace: str = ""
    name: str = ""
    uid: str = ""


class VolumeNodeAffinity(Value, frozen=True):
    """From where a volume can be reached."""

    required: NodeSelector | None = None


class PersistentVolumeSpec(Value, frozen=True):
    """As far as binding and scheduling read it."""

    capacity: dict[str, Quantity] = {}
    access_modes: tuple[str, ...] = ()
    claim_ref: ClaimReference | None = None
    storage_class_name: str = ""
    volume_attributes_class_name: str | None = None
    volume_mode: str = "Filesystem"
    persistent_volume_reclaim_policy: str = "Retain"
    node_affinity: VolumeNodeAffinity | None = None


class PersistentVolumeStatus(Value, frozen=True):
    """phase: Pending, Available, Bound, Released or Failed."""

    phase: str = ""


class PersistentVolume(Value, frozen=True):
    """Storage that is there."""

    metadata: ObjectMeta = ObjectMeta()
    spec: PersistentVolumeSpec = PersistentVolumeSpec()
    status: PersistentVolumeStatus = PersistentVolumeStatus()


class TopologySelectorRequirement(Value, frozen=True):
    """A node label with one of the values."""

    key: str = ""
    values: tuple[str, ...] = ()


class TopologySelectorTerm(Value, frozen=True):
    """All requirements must hold."""

    match_label_expressions: tuple[TopologySelectorRequirement, ...] = ()


class StorageClass(Value, frozen=True):
    """storage.k8s.io/v1 StorageClass: who makes volumes, and when."""

    metadata: ObjectMeta = ObjectMeta()
    provisioner: str = ""
    reclaim_policy: str = "Delete"
    volume_binding_mode: str = "Immediate"
    allowed_topologies: tuple[TopologySelectorTerm, ...] = ()


class ControllerRevision(Value, frozen=True):
    """A template that a DaemonSet or StatefulSet has or had; its data stays with the server."""

    metadata: ObjectMeta = ObjectMeta()
    revision: int = 0
