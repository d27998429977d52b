"""What does the exporter show? Every family with its type, labels and meaning, in one table.

`tally` fills them, rules and dashboards may use nothing else of ours, docs/reference/metrics.md is made from them.
Definitions of the dra_ names are those that platforms promise; no driver exports them.
"""

from __future__ import annotations

from typing import Literal

import msgspec

FamilyType = Literal["gauge", "counter", "histogram"]


class MetricFamily(msgspec.Struct, frozen=True):
    """One metric. name: as PromQL has it. labels: their names, in order."""

    name: str
    kind: FamilyType
    help: str
    labels: tuple[str, ...] = ()


FAMILIES: tuple[MetricFamily, ...] = (
    # ResourceClaims that exist: a gauge in spite of its name, which is the one that platforms promise.
    MetricFamily("dra_resource_claims_total", "gauge", "ResourceClaims that exist."),
    MetricFamily(
        "dra_resource_claims_pending", "gauge", "ResourceClaims without an allocation, those no pod refers to included."
    ),
    MetricFamily("dra_resource_claims_allocated", "gauge", "ResourceClaims with an allocation."),
    MetricFamily(
        "dra_devices_available",
        "gauge",
        "Devices of a class that a claim can still get: selected by the class, held by nobody, without a NoSchedule or "
        "NoExecute taint, in a complete pool, with enough left of the counters they draw on, on a node that is ready "
        "and not cordoned. A device of several classes counts in each.",
        ("device_class",),
    ),
    MetricFamily("dra_devices_allocated", "gauge", "Devices in allocations, those with admin access left out."),
    MetricFamily(
        "dra_allocation_duration_seconds",
        "histogram",
        "Time from a claim's creation, or from that of its first pod if later, to its allocation. Counts allocations "
        "seen since the exporter started.",
    ),
    MetricFamily(
        "dra_plugin_errors_total",
        "counter",
        "Failures to prepare claims on nodes, as kubelets report them in events. Counts since the exporter started.",
    ),
    MetricFamily(
        "dragoman_claims",
        "gauge",
        "Claims by state: unreferenced (not allocated, no pod uses it), waiting (not allocated, a pod uses it), "
        "allocated (reserved for nobody), in_use, deleting.",
        ("state",),
    ),
    MetricFamily(
        "dragoman_claims_waiting",
        "gauge",
        "Claims that wait for an allocation, by how long at least: since their creation, or that of the first pod that "
        "uses them if later. Claims that no pod uses do not count.",
        ("older_than",),
    ),
    MetricFamily(
        "dragoman_claims_allocated",
        "gauge",
        "Allocated claims by how long at least they have been (from allocationTimestamp, else from their creation).",
        ("older_than",),
    ),
    MetricFamily("dragoman_class_devices", "gauge", "Devices that a class selects, in any state.", ("device_class",)),
    MetricFamily(
        "dragoman_devices",
        "gauge",
        "Devices of a class by state, each in one: free, held, shared, blocked (others use up a counter), tainted, "
        "unavailable (its node takes no pods, or only such that tolerate its taints), unusable (pool incomplete, "
        "invalid or obsolete, or no such node).",
        ("device_class", "state"),
    ),
    MetricFamily(
        "dragoman_driver_devices", "gauge", "Devices of a driver by state; each counts once.", ("driver", "state")
    ),
    MetricFamily(
        "dragoman_stranded_devices",
        "gauge",
        "Free devices of a class on nodes that have no cpu, memory or pod left for a pod that could use them.",
        ("device_class",),
    ),
    MetricFamily(
        "dragoman_class_largest_group",
        "gauge",
        "Most free devices of a class together on one node, or below one PCIe root: larger claims cannot fit.",
        ("device_class", "scope"),
    ),
    MetricFamily(
        "dragoman_class_largest_memory_bytes",
        "gauge",
        "Memory (capacity `memory`) of the largest free device of a class: claims for more cannot fit.",
        ("device_class",),
    ),
    MetricFamily(
        "dragoman_partitions_available",
        "gauge",
        "How many partitions of a type can still be made, all nodes together.",
        ("device_class", "partition"),
    ),
    MetricFamily(
        "dragoman_namespace_devices",
        "gauge",
        "Devices in allocations of a namespace, by the class asked for. Shown only with --by-namespace.",
        ("namespace", "device_class"),
    ),
    MetricFamily(
        "dragoman_pools", "gauge", "Pools by state: usable, incomplete, invalid, obsolete.", ("driver", "state")
    ),
    MetricFamily(
        "dragoman_device_taints", "gauge", "Devices with a taint, published or by a rule.", ("driver", "key", "effect")
    ),
    MetricFamily("dragoman_nodes", "gauge", "Nodes with devices, by state: ready, not_ready.", ("state",)),
    MetricFamily(
        "dragoman_node_problem",
        "gauge",
        "1 for a node with devices and a problem: not_ready, no_slices (labelled nvidia.com/gpu.present and neither "
        "driver nor device plugin offers GPUs), mig_config_failed (label nvidia.com/mig.config.state).",
        ("node", "problem"),
    ),
    MetricFamily(
        "dragoman_node_problems",
        "gauge",
        "Nodes with a problem, those without a series of their own too.",
        ("problem",),
    ),
    MetricFamily(
        "dragoman_node_devices",
        "gauge",
        "Devices on a node: total, and held or shared (in_use). For the first nodes by name, up to --max-nodes.",
        ("node", "what"),
    ),
    MetricFamily(
        "dragoman_extended_resources",
        "gauge",
        "Units of an extended resource on all nodes: capacity and allocatable. They differ where a device plugin calls "
        "devices unhealthy.",
        ("resource", "what"),
    ),
    MetricFamily(
        "dragoman_pending_pods",
        "gauge",
        "Pods that wait for a node, by the code of the reason (docs/reference/refusals.md); Schedulable for those that "
        "would fit now, NotExamined for those not asked about.",
        ("reason",),
    ),
    MetricFamily(
        "dragoman_exporter_left_out",
        "gauge",
        "Label values that got no series, to keep their number bounded.",
        ("family",),
    ),
    MetricFamily(
        "dragoman_exporter_synced", "gauge", "1 once everything was listed; until then no other value is exposed."
    ),
)
BY_NAME = {family.name: family for family in FAMILIES}
DURATION_BUCKETS = (0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1800.0, 3600.0)
AGES = (("0s", 0), ("1m", 60), ("5m", 300), ("15m", 900), ("1h", 3600), ("1d", 86400), ("7d", 604800))
"""older_than: its text and seconds."""
