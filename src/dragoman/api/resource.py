"""The kinds of resource.k8s.io/v1 as frozen values, all fields of 1.37.

Names and shapes follow the API (KEP-4381 and its successors); other versions are converted on reading
(`api.convert`). Never validates and never defaults.
"""

from __future__ import annotations

from typing import Any

import msgspec

from dragoman.api import deepjson
from dragoman.api.core import NodeSelector
from dragoman.api.meta import Condition, ObjectMeta, Value
from dragoman.values.quantity import Quantity

FINALIZER = "resource.kubernetes.io/delete-protection"
POD_CLAIM_ANNOTATION = "resource.kubernetes.io/pod-claim-name"
EXTENDED_CLAIM_ANNOTATION = "resource.kubernetes.io/extended-resource-claim"
IMPLICIT_EXTENDED_PREFIX = "deviceclass.resource.kubernetes.io/"
ADMIN_ACCESS_LABEL = "resource.kubernetes.io/admin-access"

EXACT_COUNT = "ExactCount"
ALL = "All"


# ---- shared


class DeviceTaint(Value, frozen=True):
    """effect: None, NoSchedule or NoExecute; anything else counts as None."""

    key: str = ""
    value: str = ""
    effect: str = ""
    time_added: str | None = None


class DeviceToleration(Value, frozen=True):
    """operator Equal (default) or Exists; an empty effect or key matches all."""

    key: str = ""
    operator: str = "Equal"
    value: str = ""
    effect: str = ""
    toleration_seconds: int | None = None


class CELDeviceSelector(Value, frozen=True):
    """A selector's CEL text."""

    expression: str = ""


class DeviceSelector(Value, frozen=True):
    """{cel: {expression}}; nothing set is an unsupported selector."""

    cel: CELDeviceSelector | None = None


class OpaqueDeviceConfiguration(Value, frozen=True):
    """Parameters for one driver, a JSON object; `msgspec.Raw` where they nest deeper than can be followed."""

    driver: str = ""
    parameters: Any = None

    def __post_init__(self) -> None:
        """Everybody may walk, copy and encode what stays plain values."""
        deepjson.bound(self, "parameters")


# ---- ResourceSlice


class DeviceAttribute(Value, frozen=True):
    """Exactly one member is set in a valid object."""

    int_: int | None = msgspec.field(name="int", default=None)
    bool_: bool | None = msgspec.field(name="bool", default=None)
    string: str | None = None
    version: str | None = None
    ints: tuple[int, ...] | None = None
    bools: tuple[bool, ...] | None = None
    strings: tuple[str, ...] | None = None
    versions: tuple[str, ...] | None = None


class CapacityRequestPolicyRange(Value, frozen=True):
    """min (required), max and step of what one consumer may take."""

    min: Quantity | None = None
    max: Quantity | None = None
    step: Quantity | None = None


class CapacityRequestPolicy(Value, frozen=True):
    """How much one consumer of a shared capacity takes (KEP-5075)."""

    default: Quantity | None = None
    valid_values: tuple[Quantity, ...] = ()
    valid_range: CapacityRequestPolicyRange | None = None


class DeviceCapacity(Value, frozen=True):
    """A named amount that a device has."""

    value: Quantity | None = None
    request_policy: CapacityRequestPolicy | None = None


class Counter(Value, frozen=True):
    """An amount of a counter."""

    value: Quantity | None = None


class CounterSet(Value, frozen=True):
    """Named counters that devices of the pool draw on (KEP-4815)."""

    name: str = ""
    counters: dict[str, Counter] = {}


class DeviceCounterConsumption(Value, frozen=True):
    """What a device draws from one counter set; compatibility_groups is alpha in 1.37 (KEP-5963)."""

    counter_set: str = ""
    counters: dict[str, Counter] = {}
    compatibility_groups: tuple[str, ...] = ()


class NodeAllocatableMapping(Value, frozen=True):
    """How an amount of node-allocatable resource follows from a device (KEP-5517)."""

    capacity_key: str | None = None
    capacity_multiplier: Quantity | None = None
    device_multiplier: Quantity | None = None


class NodeAllocatableOverhead(Value, frozen=True):
    """Fixed extra demand of a device's users (KEP-5517)."""

    per_pod: Quantity | None = None
    per_container: Quantity | None = None


class NodeAllocatableResource(Value, frozen=True):
    """Demand of cpu, memory, ... that comes with a device (KEP-5517, alpha in 1.37)."""

    mapping: NodeAllocatableMapping | None = None
    overhead: NodeAllocatableOverhead | None = None


class Device(Value, frozen=True):
    """One device of a slice."""

    name: str = ""
    attributes: dict[str, DeviceAttribute] = {}
    capacity: dict[str, DeviceCapacity] = {}
    consumes_counters: tuple[DeviceCounterConsumption, ...] = ()
    node_name: str | None = None
    node_selector: NodeSelector | None = None
    all_nodes: bool | None = None
    taints: tuple[DeviceTaint, ...] = ()
    binds_to_node: bool | None = None
    binding_conditions: tuple[str, ...] = ()
    binding_failure_conditions: tuple[str, ...] = ()
    allow_multiple_allocations: bool | None = None
    node_allocatable_resources: dict[str, NodeAllocatableResource] = {}


class ResourcePool(Value, frozen=True):
    """Which pool, at which generation, of how many slices."""

    name: str = ""
    generation: int = 0
    resource_slice_count: int = 0


class ResourceSliceSpec(Value, frozen=True):
    """node_name, node_selector, all_nodes, per_device_node_selection: one of the four."""

    driver: str = ""
    pool: ResourcePool = ResourcePool()
    node_name: str | None = None
    node_selector: NodeSelector | None = None
    all_nodes: bool | None = None
    per_device_node_selection: bool | None = None
    devices: tuple[Device, ...] = ()
    shared_counters: tuple[CounterSet, ...] = ()
    partition_type_attribute: str | None = None
    skip_node_operations: tuple[str, ...] = ()


class ResourceSlice(Value, frozen=True):
    """Devices that one driver publishes for one pool."""

    metadata: ObjectMeta = ObjectMeta()
    spec: ResourceSliceSpec = ResourceSliceSpec()


# ---- DeviceClass


class DeviceClassConfiguration(Value, frozen=True):
    """Configuration that a class adds."""

    opaque: OpaqueDeviceConfiguration | None = None


class DeviceClassSpec(Value, frozen=True):
    """What all devices of the class fulfil."""

    selectors: tuple[DeviceSelector, ...] = ()
    config: tuple[DeviceClassConfiguration, ...] = ()
    extended_resource_name: str | None = None


class DeviceClass(Value, frozen=True):
    """A named kind of device."""

    metadata: ObjectMeta = ObjectMeta()
    spec: DeviceClassSpec = DeviceClassSpec()


# ---- ResourceClaim


class CapacityRequirements(Value, frozen=True):
    """Amounts a request wants of a device."""

    requests: dict[str, Quantity] = {}


class DerivedAttribute(Value, frozen=True):
    """A named CEL expression over the device, for constraints (KEP-6080, alpha in 1.37)."""

    name: str = ""
    expression: str = ""


class ExactDeviceRequest(Value, frozen=True):
    """One kind of device, a count or all. An empty allocation_mode reads as ExactCount, count 0 as 1."""

    device_class_name: str = ""
    selectors: tuple[DeviceSelector, ...] = ()
    allocation_mode: str = ""
    count: int = 0
    admin_access: bool | None = None
    tolerations: tuple[DeviceToleration, ...] = ()
    capacity: CapacityRequirements | None = None
    derived_attributes: tuple[DerivedAttribute, ...] = ()


class DeviceSubRequest(Value, frozen=True):
    """An alternative of firstAvailable (KEP-4816)."""

    name: str = ""
    device_class_name: str = ""
    selectors: tuple[DeviceSelector, ...] = ()
    allocation_mode: str = ""
    count: int = 0
    tolerations: tuple[DeviceToleration, ...] = ()
    capacity: CapacityRequirements | None = None
    derived_attributes: tuple[DerivedAttribute, ...] = ()


class DeviceRequest(Value, frozen=True):
    """Exactly one of exactly and first_available."""

    name: str = ""
    exactly: ExactDeviceRequest | None = None
    first_available: tuple[DeviceSubRequest, ...] = ()


class DeviceConstraint(Value, frozen=True):
    """match_attribute or distinct_attribute over requests (empty: all)."""

    requests: tuple[str, ...] = ()
    match_attribute: str | None = None
    distinct_attribute: str | None = None


class DeviceClaimConfiguration(Value, frozen=True):
    """Configuration for some requests (empty: all)."""

    requests: tuple[str, ...] = ()
    opaque: OpaqueDeviceConfiguration | None = None


class DeviceClaim(Value, frozen=True):
    """What a claim asks for."""

    requests: tuple[DeviceRequest, ...] = ()
    constraints: tuple[DeviceConstraint, ...] = ()
    config: tuple[DeviceClaimConfiguration, ...] = ()


class ResourceClaimSpec(Value, frozen=True):
    """Immutable."""

    devices: DeviceClaim = DeviceClaim()


class DeviceRequestAllocationResult(Value, frozen=True):
    """One device given to one request; request is `name` or `name/subrequest`."""

    request: str = ""
    driver: str = ""
    pool: str = ""
    device: str = ""
    admin_access: bool | None = None
    tolerations: tuple[DeviceToleration, ...] = ()
    binding_conditions: tuple[str, ...] = ()
    binding_failure_conditions: tuple[str, ...] = ()
    share_id: str | None = msgspec.field(name="shareID", default=None)
    consumed_capacity: dict[str, Quantity] | None = None
    skip_node_operations: tuple[str, ...] = ()
    compatibility_groups: dict[str, tuple[str, ...]] | None = None


class DeviceAllocationConfiguration(Value, frozen=True):
    """source FromClass or FromClaim."""

    source: str = ""
    requests: tuple[str, ...] = ()
    opaque: OpaqueDeviceConfiguration | None = None


class DeviceAllocationResult(Value, frozen=True):
    """Devices and configuration of an allocation."""

    results: tuple[DeviceRequestAllocationResult, ...] = ()
    config: tuple[DeviceAllocationConfiguration, ...] = ()


class AllocationResult(Value, frozen=True):
    """status.allocation."""

    devices: DeviceAllocationResult = DeviceAllocationResult()
    node_selector: NodeSelector | None = None
    allocation_timestamp: str | None = None


class ConsumerReference(Value, frozen=True):
    """An entry of reservedFor; api_group empty is core."""

    api_group: str = ""
    resource: str = ""
    name: str = ""
    uid: str = ""


class NetworkDeviceData(Value, frozen=True):
    """What a network driver reports of a device."""

    interface_name: str = ""
    ips: tuple[str, ...] = ()
    hardware_address: str = ""


class AllocatedDeviceStatus(Value, frozen=True):
    """status.devices entry, written by drivers (KEP-4817)."""

    driver: str = ""
    pool: str = ""
    device: str = ""
    share_id: str | None = msgspec.field(name="shareID", default=None)
    conditions: tuple[Condition, ...] = ()
    data: Any = None
    network_data: NetworkDeviceData | None = None

    def __post_init__(self) -> None:
        """As for opaque parameters."""
        deepjson.bound(self, "data")


class ResourceClaimStatus(Value, frozen=True):
    """What was allocated, and for whom it is reserved."""

    allocation: AllocationResult | None = None
    reserved_for: tuple[ConsumerReference, ...] = ()
    devices: tuple[AllocatedDeviceStatus, ...] = ()


class ResourceClaim(Value, frozen=True):
    """A request for devices and its outcome."""

    metadata: ObjectMeta = ObjectMeta()
    spec: ResourceClaimSpec = ResourceClaimSpec()
    status: ResourceClaimStatus = ResourceClaimStatus()


class ResourceClaimTemplateSpec(Value, frozen=True):
    """metadata carries labels and annotations for the claims made from it."""

    metadata: ObjectMeta = ObjectMeta()
    spec: ResourceClaimSpec = ResourceClaimSpec()


class ResourceClaimTemplate(Value, frozen=True):
    """Claims are made from it, one a pod."""

    metadata: ObjectMeta = ObjectMeta()
    spec: ResourceClaimTemplateSpec = ResourceClaimTemplateSpec()


# ---- DeviceTaintRule


class DeviceTaintSelector(Value, frozen=True):
    """All set fields must match; {} matches everything."""

    driver: str | None = None
    pool: str | None = None
    device: str | None = None


class DeviceTaintRuleSpec(Value, frozen=True):
    """An absent selector matches nothing."""

    device_selector: DeviceTaintSelector | None = None
    taint: DeviceTaint = DeviceTaint()


class DeviceTaintRuleStatus(Value, frozen=True):
    """Conditions of the eviction."""

    conditions: tuple[Condition, ...] = ()


class DeviceTaintRule(Value, frozen=True):
    """A taint put on devices by an administrator (KEP-5055)."""

    metadata: ObjectMeta = ObjectMeta()
    spec: DeviceTaintRuleSpec = DeviceTaintRuleSpec()
    status: DeviceTaintRuleStatus = DeviceTaintRuleStatus()
