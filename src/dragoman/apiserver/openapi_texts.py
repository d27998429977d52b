"""What does `kubectl explain` say of a field? Our own short sentences, for the kinds that Dragoman is about.

Keyed by group and definition without version, so that all versions of resource.k8s.io share them. Upstream's texts
are not repeated here: a field of another kind has no sentence.
"""

from __future__ import annotations

import hashlib

_SELECTORS = "CEL selectors; a device must satisfy all of them and those of its class."
_TOLERATIONS = "Taints that devices for this request may have."
_COUNT = "How many devices, with ExactCount; 1 if unset."
_MODE = "ExactCount (default): `count` devices. All: every matching device that the node can use, at least one."
_CLASS = "The DeviceClass whose selectors and configuration apply."
_CAPACITY = "Amounts wanted of devices that several consumers may share; unset amounts follow the device's policy."
_DERIVED = "Named CEL expressions over a device, for constraints."
_ADMIN = "Access to devices that others use; the namespace needs the label resource.kubernetes.io/admin-access."
_BINDING = "Conditions that must be true before the pod is bound."
_FAILURE = "Conditions that, when true, make the scheduler give the device up."
_OPAQUE = "Parameters for one driver, which alone understands them."
_OF_REQUESTS = "Names of the requests concerned; all of them if empty. A subrequest is REQUEST/SUBREQUEST."
_DRIVER = "Name of the driver, a DNS subdomain."
_POOL = "Name of the pool, unique for its driver."
_DEVICE = "Name of the device, unique in its pool."
_SHARE = "Identifies one of several shares of a device."
_NODE_NAME = "The one node that can use it."
_NODE_SELECTOR = "The nodes that can use it."
_ALL_NODES = "Whether every node can use it."
_SKIP = "Calls to the driver on the node that are not needed for the devices."
_SPEC_CLAIM = "What the claim asks for; cannot be changed."

_DEVICE_MEMBERS = {
    "attributes": "Facts about the device by name; a name without domain belongs to the driver.",
    "capacity": "Amounts that the device has, by name.",
    "consumesCounters": "What the device takes from counters that devices of its pool share.",
    "nodeName": _NODE_NAME,
    "nodeSelector": _NODE_SELECTOR,
    "allNodes": _ALL_NODES,
    "taints": "Taints set by the driver; only requests that tolerate them get the device.",
    "bindsToNode": "Whether an allocation ties the claim to the node it was made for.",
    "bindingConditions": _BINDING,
    "bindingFailureConditions": _FAILURE,
    "allowMultipleAllocations": "Whether several claims may share the device, each with its part of the capacity.",
    "nodeAllocatableResources": "CPU, memory and the like that the device's users need of the node.",
}
_REQUEST_MEMBERS = {
    "deviceClassName": _CLASS,
    "selectors": _SELECTORS,
    "allocationMode": _MODE,
    "count": _COUNT,
    "adminAccess": _ADMIN,
    "tolerations": _TOLERATIONS,
    "capacity": _CAPACITY,
    "derivedAttributes": _DERIVED,
}

_TEXTS: dict[str, dict[str, str]] = {
    # ---- what every object has
    "meta.ObjectMeta": {
        "annotations": "Annotations are texts by key that tools keep with an object; they cannot be selected by.",
        "creationTimestamp": "CreationTimestamp is a timestamp of the server: when it stored the object first.",
        "deletionTimestamp": "DeletionTimestamp is when the object will be gone, set once it is being deleted.",
        "finalizers": "Finalizers name who must let go before a deleted object is removed.",
        "generateName": "GenerateName is the beginning of a name that the server completes.",
        "generation": "Generation counts the changes of what is desired.",
        "labels": "Labels are short texts by key that objects are selected by.",
        "managedFields": "ManagedFields say which manager owns which field, for server-side apply.",
        "name": "Name is unique among the objects of a kind in a namespace, and does not change.",
        "namespace": "Namespace is where the name is unique; empty for kinds of the whole cluster.",
        "ownerReferences": "OwnerReferences name objects that this one belongs to; it goes with the last of them.",
        "resourceVersion": "ResourceVersion changes with every write; opaque to clients.",
        "uid": "UID is unique among all objects of all times.",
    },
    # ---- what is published
    "resource.ResourceSlice": {
        "": "Devices that one driver offers in one pool. The slices of a pool at its newest generation are the pool.",
        "spec": "The devices, where they can be used, and the pool they belong to.",
    },
    "resource.ResourceSliceSpec": {
        "driver": _DRIVER,
        "pool": "The pool that this slice is a part of.",
        "nodeName": _NODE_NAME,
        "nodeSelector": _NODE_SELECTOR,
        "allNodes": _ALL_NODES,
        "perDeviceNodeSelection": "Whether each device says by itself which nodes can use it.",
        "devices": "The devices, at most 128, or 64 where taints or counters are used.",
        "sharedCounters": "Budgets that devices of the pool draw on.",
        "partitionTypeAttribute": "The attribute that tells kinds of partitions apart in summaries of the pool.",
        "skipNodeOperations": _SKIP,
    },
    "resource.ResourcePool": {
        "name": _POOL,
        "generation": "Rises with every change of the pool; slices of older generations are ignored.",
        "resourceSliceCount": "How many slices make the pool complete at this generation.",
    },
    "resource.Device": {
        "": "One device of a slice.",
        "name": _DEVICE,
        "basic": "Everything about the device but its name.",
        **_DEVICE_MEMBERS,
    },
    "resource.BasicDevice": {"": "Everything about a device but its name.", **_DEVICE_MEMBERS},
    "resource.DeviceAttribute": {
        "": "A value of exactly one type.",
        "int": "A number.",
        "bool": "True or false.",
        "string": "A text of at most 64 bytes.",
        "version": "A semantic version, such as 1.2.3.",
        "ints": "Several numbers.",
        "bools": "Several times true or false.",
        "strings": "Several texts.",
        "versions": "Several semantic versions.",
    },
    "resource.DeviceCapacity": {
        "value": "How much there is.",
        "requestPolicy": "How much one consumer gets of a device that is shared.",
    },
    "resource.CapacityRequestPolicy": {
        "default": "What a consumer gets that asks for nothing.",
        "validValues": "The amounts that can be had; a request is rounded up to the next of them.",
        "validRange": "The amounts that can be had, as a range with steps.",
    },
    "resource.CapacityRequestPolicyRange": {
        "min": "The least amount; smaller requests are rounded up to it.",
        "max": "The greatest amount.",
        "step": "Amounts are the least amount and a multiple of this.",
    },
    "resource.CounterSet": {"name": "Name of the set, unique in its pool.", "counters": "Budgets by name."},
    "resource.Counter": {"value": "The amount."},
    "resource.DeviceCounterConsumption": {
        "counterSet": "The set of counters that is drawn on.",
        "counters": "How much of each counter is taken.",
        "compatibilityGroups": "Only devices that share such a group may draw on the set at the same time.",
    },
    "resource.NodeAllocatableResource": {
        "mapping": "How much is needed, by the device or its capacity.",
        "overhead": "How much is needed in addition, by pod and container.",
    },
    "resource.NodeAllocatableMapping": {
        "capacityKey": "The capacity that decides how much is needed.",
        "capacityMultiplier": "Needed for each unit of that capacity.",
        "deviceMultiplier": "Needed for each device.",
    },
    "resource.NodeAllocatableOverhead": {
        "perPod": "Needed for each pod.",
        "perContainer": "Needed for each container.",
    },
    "resource.DeviceTaint": {
        "": "Keeps away, or evicts, pods whose claims do not tolerate it.",
        "key": "Name of the taint.",
        "value": "A value that tolerations can be matched with.",
        "effect": "None: for information. NoSchedule: not for new pods. NoExecute: running pods are evicted too.",
        "timeAdded": "Since when; set by the server if absent.",
    },
    # ---- classes
    "resource.DeviceClass": {
        "": "A kind of device that claims can ask for, made by an administrator.",
        "spec": "Which devices belong to the class and how they are configured.",
    },
    "resource.DeviceClassSpec": {
        "selectors": "CEL selectors that every device of the class satisfies.",
        "config": "Configuration that is added to every claim with this class.",
        "extendedResourceName": "Lets pods ask for such devices as an extended resource of this name.",
    },
    "resource.DeviceClassConfiguration": {"opaque": _OPAQUE},
    "resource.DeviceSelector": {"cel": "A selector in CEL."},
    "resource.CELDeviceSelector": {
        "expression": "A CEL expression over `device` (driver, attributes, capacity) that is true for devices wanted, "
        "such as device.attributes['gpu.example.com'].index == 7.",
    },
    "resource.OpaqueDeviceConfiguration": {"driver": _DRIVER, "parameters": "A JSON object that the driver reads."},
    # ---- claims
    "resource.ResourceClaim": {
        "": "Asks for devices; once allocated, it says which.",
        "spec": _SPEC_CLAIM,
        "status": "Whether and what was allocated, and for whom it is reserved.",
    },
    "resource.ResourceClaimSpec": {"devices": "The devices asked for."},
    "resource.ResourceClaimTemplate": {
        "": "Claims are made from it, one for each pod that names it.",
        "spec": "The claims to make; cannot be changed.",
    },
    "resource.ResourceClaimTemplateSpec": {"spec": _SPEC_CLAIM, "metadata": "Labels and annotations of the claims."},
    "resource.DeviceClaim": {
        "requests": "The devices asked for, at most 32 requests. All are met together or none.",
        "constraints": "What must hold between devices of several requests.",
        "config": "Configuration for drivers.",
    },
    "resource.DeviceRequest": {
        "name": "Name of the request, unique in the claim; pods refer to it.",
        "exactly": "One kind of device.",
        "firstAvailable": "Alternatives in order of preference; the first that can be met is taken.",
        **_REQUEST_MEMBERS,
    },
    "resource.ExactDeviceRequest": {"": "A request for one kind of device.", **_REQUEST_MEMBERS},
    "resource.DeviceSubRequest": {
        "": "One alternative of a request.",
        "name": "Name of the alternative, unique in the request.",
        **{name: text for name, text in _REQUEST_MEMBERS.items() if name != "adminAccess"},
    },
    "resource.DeviceDerivedAttribute": {
        "name": "Name to use in constraints.",
        "expression": "A CEL expression over a device that gives the value.",
    },
    "resource.CapacityRequirements": {"requests": "Amounts by name of capacity."},
    "resource.DeviceToleration": {
        "key": "The taint's key; empty means any.",
        "operator": "Equal (default): key and value match. Exists: the key matches.",
        "value": "The taint's value, with Equal.",
        "effect": "The taint's effect; empty means any.",
        "tolerationSeconds": "How long NoExecute is tolerated; for ever if unset.",
    },
    "resource.DeviceConstraint": {
        "requests": _OF_REQUESTS,
        "matchAttribute": "All devices have the same value of this attribute, DOMAIN/NAME.",
        "distinctAttribute": "No two devices have the same value of this attribute, DOMAIN/NAME.",
    },
    "resource.DeviceClaimConfiguration": {"requests": _OF_REQUESTS, "opaque": _OPAQUE},
    # ---- what came of a claim
    "resource.ResourceClaimStatus": {
        "allocation": "The devices allocated; absent while there are none.",
        "reservedFor": "Who uses the claim now, at most 256 consumers.",
        "devices": "What drivers report of the devices.",
    },
    "resource.AllocationResult": {
        "devices": "The devices and their configuration.",
        "nodeSelector": "Nodes on which the claim can be used; any node if unset.",
        "allocationTimestamp": "When it was allocated.",
    },
    "resource.DeviceAllocationResult": {
        "results": "The devices, one entry each.",
        "config": "Configuration from classes and claim, in the order in which drivers apply it.",
    },
    "resource.DeviceRequestAllocationResult": {
        "request": "The request that the device is for, REQUEST or REQUEST/SUBREQUEST.",
        "driver": _DRIVER,
        "pool": _POOL,
        "device": _DEVICE,
        "adminAccess": "Whether the device was given in addition to its real users.",
        "tolerations": "The request's tolerations at the time of allocation.",
        "bindingConditions": _BINDING,
        "bindingFailureConditions": _FAILURE,
        "shareID": _SHARE,
        "consumedCapacity": "What this share takes of the device's capacity.",
        "skipNodeOperations": _SKIP,
    },
    "resource.DeviceAllocationConfiguration": {
        "source": "FromClass or FromClaim.",
        "requests": _OF_REQUESTS,
        "opaque": _OPAQUE,
    },
    "resource.ResourceClaimConsumerReference": {
        "apiGroup": "Group of the consumer; empty for pods.",
        "resource": "Plural name of its kind, such as pods.",
        "name": "Its name, in the claim's namespace.",
        "uid": "Its uid.",
    },
    "resource.AllocatedDeviceStatus": {
        "driver": _DRIVER,
        "pool": _POOL,
        "device": _DEVICE,
        "shareID": _SHARE,
        "conditions": "Conditions of the device.",
        "data": "Anything the driver reports, a JSON object.",
        "networkData": "What a network driver reports.",
    },
    "resource.NetworkDeviceData": {
        "interfaceName": "Name of the interface in the pod.",
        "ips": "Addresses of the interface, with prefix length.",
        "hardwareAddress": "Hardware address of the interface.",
    },
    # ---- taints by an administrator
    "resource.DeviceTaintRule": {
        "": "Puts a taint on devices, whoever publishes them.",
        "spec": "Which devices, and the taint.",
        "status": "What the rule did.",
    },
    "resource.DeviceTaintRuleSpec": {
        "deviceSelector": "The devices; {} is all of them, none if unset.",
        "taint": "The taint that they get.",
    },
    "resource.DeviceTaintRuleStatus": {"conditions": "How far the eviction of pods is."},
    "resource.DeviceTaintSelector": {
        "driver": "Only devices of this driver.",
        "pool": "Only devices of this pool.",
        "device": "Only devices of this name.",
    },
    # ---- questions about pools
    "resource.ResourcePoolStatusRequest": {
        "": "Asks how much of a driver's pools is in use; answered once.",
        "spec": "What is asked; cannot be changed.",
        "status": "The answer.",
    },
    "resource.ResourcePoolStatusRequestSpec": {
        "driver": _DRIVER,
        "poolName": "Only this pool.",
        "limit": "How many pools the answer lists at most.",
        "defaultPartitionTypeAttribute": "Tells kinds of partitions apart where slices name no attribute for it.",
    },
    "resource.ResourcePoolStatusRequestStatus": {
        "poolCount": "How many pools there are, listed or not.",
        "pools": "The pools.",
        "conditions": "Complete or Failed.",
    },
    "resource.PoolStatus": {
        "driver": _DRIVER,
        "poolName": _POOL,
        "nodeName": "The node of the pool, if it has one.",
        "generation": "The generation counted.",
        "resourceSliceCount": "How many slices the pool has.",
        "totalDevices": "How many devices there are.",
        "allocatedDevices": "How many are allocated.",
        "availableDevices": "How many can be allocated.",
        "unavailableDevices": "How many can be neither, for taints or the like.",
        "partitionSummary": "Counts by kind of partition.",
        "shareableSummary": "Counts of devices that can be shared.",
        "validationError": "Why the pool cannot be used.",
    },
    "resource.PartitionTypeStatus": {
        "attribute": "The attribute that tells kinds apart.",
        "type": "Its value.",
        "total": "How many such partitions are published.",
        "allocatable": "How many could be allocated now.",
    },
    "resource.ShareableSummaryStatus": {
        "fullyAvailableDevices": "Devices that nobody uses.",
        "partiallyAvailableDevices": "Devices that can take more consumers.",
        "capacity": "Amounts by name.",
    },
    "resource.ShareableCapacityStatus": {
        "name": "Name of the capacity.",
        "total": "How much there is.",
        "consumed": "How much is in use.",
        "available": "How much is left.",
    },
    # ---- what pods say of claims
    "core.PodResourceClaim": {
        "name": "Name of the claim inside the pod; containers refer to it.",
        "resourceClaimName": "A ResourceClaim of the namespace, shared with whoever names it.",
        "resourceClaimTemplateName": "A ResourceClaimTemplate from which a claim is made for this pod.",
    },
    "core.PodResourceClaimStatus": {
        "name": "Name of the claim inside the pod.",
        "resourceClaimName": "The ResourceClaim in use; unset if none was needed.",
    },
    "core.ResourceClaim": {
        "name": "Name of an entry of the pod's resourceClaims.",
        "request": "Only the devices of this request; all of the claim if unset.",
    },
}


def describe(definition: str, field: str) -> str:
    """The sentence on a field, on the definition itself if `field` is empty; empty if there is none.

    definition: as in the schemas, `io.k8s.api.resource.v1.DeviceClass`.
    """
    family, _, name = definition.rpartition(".")
    group = family.rpartition(".")[0].rpartition(".")[2]
    return _TEXTS.get(f"{group}.{name}", {}).get(field, "")


def digest() -> bytes:
    """Changes when a text changes."""
    return hashlib.sha256(repr(_TEXTS).encode()).digest()
