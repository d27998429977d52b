"""When should somebody be woken? Every alert, once, and the forms that Prometheus and its operator read.

    rule_file(runbooks="docs/runbooks")      # for `rule_files:` of Prometheus
    prometheus_rule()                        # a PrometheusRule of the Prometheus operator

Expressions use metrics of `families`, of NVIDIA's driver, of the DCGM exporter and of the GPU operator; those whose
exporter does not run are silent. Two exporters of one cluster raise an alert once: instance and job are dropped.
"""

from __future__ import annotations

import re
from typing import Any, Literal

import msgspec

Severity = Literal["critical", "warning", "info"]
AlertGroup = Literal["claims", "devices", "nodes", "gpu-operator", "monitoring"]

IGNORED_XIDS = (13, 31, 43, 45, 68, 109)
"""XIDs that applications cause; NVIDIA's driver ignores them too."""
SLOWDOWN_C = (("(A100|A30|H100|H200|GH200)", 87), ("(L4|L40|L40S|T4|A10)", 93), ("(B200|B300|GB200|GB300)", 90))
"""Model, and the temperature at which it slows down. nvidia-smi -q of the cards."""
HOT_BELOW_C = 3
RUNBOOKS = "docs/runbooks"
_DURATION = re.compile(r"(?<=\[)\d+[smhd](?=\])|(?<=offset )\d+[smhd]")
_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}


class Alert(msgspec.Struct, frozen=True):
    """One rule. for_: a duration of Prometheus, "" for at once. summary and cause may use {{ $labels.x }}.

    runbook: name of the file in docs/runbooks, without suffix.
    """

    name: str
    group: AlertGroup
    expr: str
    severity: Severity
    summary: str
    cause: str
    runbook: str
    for_: str = ""


def _hot() -> str:
    shown = "max by (Hostname, gpu, modelName) (DCGM_FI_DEV_GPU_TEMP"
    return " or ".join(
        f'{shown}{{modelName=~".*\\\\b{models}\\\\b.*"}}) > {limit - HOT_BELOW_C}' for models, limit in SLOWDOWN_C
    )


def _xid() -> str:
    ignored = "".join(f" != {xid}" for xid in (0, *IGNORED_XIDS))
    return (
        f"(max by (Hostname, gpu) (DCGM_FI_DEV_XID_ERRORS){ignored}) "
        "and on (Hostname, gpu) (max by (Hostname, gpu) (changes(DCGM_FI_DEV_XID_ERRORS[5m])) > 0 "
        "or (max by (Hostname, gpu) (DCGM_FI_DEV_XID_ERRORS) "
        "unless on (Hostname, gpu) max by (Hostname, gpu) (DCGM_FI_DEV_XID_ERRORS offset 5m)))"
    )


ALERTS: tuple[Alert, ...] = (
    Alert(
        "DRAClaimPending",
        "claims",
        'max by (older_than) (dragoman_claims_waiting{older_than="5m"}) > 0',
        "warning",
        "{{ $value }} claims that pods use have waited for devices for 5 minutes or more",
        "No device matches, all are taken, a class is missing, a constraint cannot be met, or the driver does not run. "
        "The age is the claims' own, so that a restart of Prometheus or of the exporter does not restart it. Claims "
        "that no pod uses do not count.",
        "claim-pending",
    ),
    Alert(
        "DRAClassNearlyFull",
        "devices",
        "max by (device_class) (dra_devices_available) / (max by (device_class) (dragoman_class_devices) > 0) < 0.10",
        "warning",
        "less than 10 % of the devices of class {{ $labels.device_class }} are available",
        "The devices are in use, tainted, or on nodes that take no pods.",
        "class-nearly-full",
        "5m",
    ),
    Alert(
        "DRASlowAllocation",
        "claims",
        "histogram_quantile(0.99, sum by (le) (rate(dra_allocation_duration_seconds_bucket[5m]))) > 30",
        "warning",
        '1 % of claims wait longer than {{ $value | printf "%.0f" }} s for their allocation',
        "Devices are scarce, so that claims wait for others to end; or decisions take long: many classes, costly "
        "selectors, a slow API server.",
        "slow-allocation",
        "5m",
    ),
    Alert(
        "DRAPluginErrors",
        "devices",
        "max(increase(dra_plugin_errors_total[1m])) >= 5 or sum(increase(nvidia_dra_node_prepare_errors_total[1m])) + "
        "sum(increase(nvidia_dra_node_unprepare_errors_total[1m])) >= 5",
        "critical",
        'drivers failed {{ $value | printf "%.0f" }} times in a minute to prepare or unprepare claims',
        "A driver is broken or gone on a node, or its hardware is.",
        "plugin-errors",
    ),
    Alert(
        "DRAPrepareSlow",
        "devices",
        "histogram_quantile(0.99, sum by (driver, le) "
        '(rate(nvidia_dra_request_duration_seconds_bucket{driver="gpu.nvidia.com",operation="prepare"}[5m]))) > 10',
        "warning",
        '1 % of prepares of {{ $labels.driver }} take longer than {{ $value | printf "%.0f" }} s',
        "The node is overloaded, nvidia-smi or NVML is slow, or a MIG instance is made for each claim. The driver of "
        "ComputeDomains is left out: its prepares wait for other nodes.",
        "prepare-slow",
        "10m",
    ),
    Alert(
        "GPUNodeWithoutSlices",
        "nodes",
        'max by (node) (dragoman_node_problem{problem="no_slices"}) > 0',
        "critical",
        "node {{ $labels.node }} has GPUs and publishes none",
        "The driver's pod does not run there, cannot register, or cannot read the hardware.",
        "node-without-slices",
        "5m",
    ),
    Alert(
        "DRAPoolIncomplete",
        "devices",
        'max by (driver) (dragoman_pools{state="incomplete"}) > 0',
        "warning",
        "{{ $value }} pools of {{ $labels.driver }} are incomplete, and none of their devices can be allocated",
        "Slices of the newest generation are missing: the driver was stopped while it published, or cannot write.",
        "pool-incomplete",
        "2m",
    ),
    Alert(
        "DRADeviceTainted",
        "devices",
        "max by (driver, key) "
        '(dragoman_device_taints{key=~"gpu.nvidia.com/(xid|gpu-lost)",effect=~"NoSchedule|NoExecute"}) > 0',
        "critical",
        "{{ $value }} devices of {{ $labels.driver }} have the taint {{ $labels.key }}",
        "The driver saw a critical XID, or lost the GPU.",
        "gpu-lost",
    ),
    Alert(
        "DevicePluginDeviceUnhealthy",
        "devices",
        'max by (resource) (dragoman_extended_resources{what="capacity",resource=~"nvidia.com/.*"}) '
        '- max by (resource) (dragoman_extended_resources{what="allocatable",resource=~"nvidia.com/.*"}) > 0',
        "critical",
        "{{ $value }} units of {{ $labels.resource }} are not allocatable",
        "The device plugin calls devices unhealthy, after an XID for instance, and does so until it restarts.",
        "gpu-lost",
        "5m",
    ),
    Alert(
        "GPUXid",
        "devices",
        _xid(),
        "critical",
        "XID {{ $value }} on GPU {{ $labels.gpu }} of {{ $labels.Hostname }}",
        "An error of the GPU or its driver; those that applications cause are left out.",
        "gpu-lost",
    ),
    Alert(
        "GPURowRemapFailure",
        "devices",
        "max by (Hostname, gpu) (DCGM_FI_DEV_ROW_REMAP_FAILURE) == 1",
        "critical",
        "GPU {{ $labels.gpu }} of {{ $labels.Hostname }} cannot remap a broken row of memory",
        "The memory has no spare rows left: the card has to be replaced.",
        "gpu-lost",
    ),
    Alert(
        "GPUHot",
        "devices",
        _hot(),
        "warning",
        "GPU {{ $labels.gpu }} of {{ $labels.Hostname }} is at {{ $value }} °C, close to where it slows down",
        "Cooling or air flow, or a load that the rack was not planned for.",
        "gpu-hot",
        "5m",
    ),
    Alert(
        "GPUIdleAllocated",
        "devices",
        'max by (Hostname, gpu, namespace, pod) (DCGM_FI_PROF_GR_ENGINE_ACTIVE{pod!=""}) < 0.05',
        "info",
        "GPU {{ $labels.gpu }} of {{ $labels.Hostname }} is allocated and idle",
        "The work waits for data, is over and did not end, or needs less than a whole GPU.",
        "idle-allocated",
        "30m",
    ),
    Alert(
        "ComputeDomainNotReady",
        "devices",
        'max(nvidia_dra_compute_domain_info{status="NotReady"}) > 0',
        "warning",
        "{{ $value }} ComputeDomains are not ready",
        "An IMEX daemon does not start, nodes are in different cliques, or pods of the domain are missing.",
        "compute-domain",
        "10m",
    ),
    Alert(
        "MIGConfigFailed",
        "nodes",
        'max by (node) (dragoman_node_problem{problem="mig_config_failed"}) > 0',
        "critical",
        "the MIG layout of node {{ $labels.node }} was not applied",
        "Pods use the GPU, claims hold partitions, or the layout does not exist for this card.",
        "mig-config",
    ),
    Alert(
        "GPUNodeNotReady",
        "nodes",
        'max by (node) (dragoman_node_problem{problem="not_ready"}) > 0',
        "critical",
        "node {{ $labels.node }}, which has devices, is not ready",
        "The machine or its kubelet is down. Claims of pods there keep their devices until the pods are gone.",
        "node-failure",
        "2m",
    ),
    Alert(
        "GPUOperatorNodeDeploymentFailed",
        "gpu-operator",
        "max by (node) (gpu_operator_node_device_plugin_devices_total) == 0",
        "warning",
        "the device plugin of {{ $labels.node }} offers no devices",
        "A part of the stack on the node is not ready. With the DRA driver in place of the plugin this is expected.",
        "gpu-operator",
        "30m",
    ),
    Alert(
        "GPUOperatorNodeDeploymentDriverFailed",
        "gpu-operator",
        "max by (node) (gpu_operator_node_driver_validation) == 0",
        "warning",
        "the driver of {{ $labels.node }} is not valid",
        "The kernel driver is not loaded, or does not fit the kernel.",
        "gpu-operator",
        "30m",
    ),
    Alert(
        "GPUOperatorNodeDeploymentToolkitFailed",
        "gpu-operator",
        "max by (node) (gpu_operator_node_toolkit_ready) == 0 and on (node) "
        "max by (node) (gpu_operator_node_driver_validation) == 1",
        "warning",
        "the container toolkit of {{ $labels.node }} is not ready",
        "The runtime's configuration was not written.",
        "gpu-operator",
        "30m",
    ),
    Alert(
        "GPUOperatorNodeDeploymentCudaFailed",
        "gpu-operator",
        "max by (node) (gpu_operator_node_cuda_ready) == 0 and on (node) "
        "max by (node) (gpu_operator_node_driver_validation) == 1",
        "warning",
        "CUDA does not work on {{ $labels.node }}",
        "The validator's workload failed.",
        "gpu-operator",
        "30m",
    ),
    Alert(
        "GPUOperatorReconciliationFailed",
        "gpu-operator",
        "max(gpu_operator_reconciliation_status) != 1",
        "warning",
        "the GPU operator cannot reconcile",
        "See the conditions of the ClusterPolicy or GPUCluster.",
        "gpu-operator",
        "1h",
    ),
    Alert(
        "GPUOperatorReconciliationFailedNfdLabelsMissing",
        "gpu-operator",
        "max(gpu_operator_reconciliation_has_nfd_labels) == 0",
        "warning",
        "no node has labels of node feature discovery",
        "Node feature discovery does not run.",
        "gpu-operator",
        "30m",
    ),
    Alert(
        "GPUOperatorDriverAutoUpgradeFailures",
        "gpu-operator",
        "max(gpu_operator_nodes_upgrades_failed) > 0",
        "warning",
        "{{ $value }} nodes failed to upgrade their driver",
        "Pods that use GPUs were not drained, or the new driver does not load.",
        "driver-upgrade",
        "30m",
    ),
    Alert(
        "DRAExporterAbsent",
        "monitoring",
        "absent(dragoman_exporter_synced == 1)",
        "warning",
        "no exporter shows the state of claims and devices",
        "`dragoman exporter` does not run, cannot list what it needs, or is not scraped.",
        "exporter-absent",
        "10m",
    ),
)


def scaled(duration: str, speed: float) -> str:
    """A duration of Prometheus on a clock that is `speed` times as fast, in whole milliseconds."""
    if speed == 1 or not duration:
        return duration
    seconds = int(duration[:-1]) * _UNITS[duration[-1]] / speed
    return f"{max(1, round(seconds * 1000))}ms"


def groups(*, runbooks: str = RUNBOOKS, speed: float = 1.0, interval: str = "") -> list[dict[str, Any]]:
    """Groups of rules. speed: of the cluster's clock; every duration that Prometheus waits is divided by it."""
    names = dict.fromkeys(alert.group for alert in ALERTS)
    found: list[dict[str, Any]] = []
    for name in names:
        group: dict[str, Any] = {"name": f"dragoman-{name}"}
        if interval:
            group["interval"] = interval
        group["rules"] = [_rule(alert, runbooks, speed) for alert in ALERTS if alert.group == name]
        found.append(group)
    return found


def _rule(alert: Alert, runbooks: str, speed: float) -> dict[str, Any]:
    rule: dict[str, Any] = {
        "alert": alert.name,
        "expr": _DURATION.sub(lambda found: scaled(found[0], speed), alert.expr),
    }
    if alert.for_:
        rule["for"] = scaled(alert.for_, speed)
    return {
        **rule,
        "labels": {"severity": alert.severity},
        "annotations": {
            "summary": alert.summary,
            "description": alert.cause,
            "runbook_url": f"{runbooks.rstrip('/')}/{alert.runbook}.md",
        },
    }


def rule_file(*, runbooks: str = RUNBOOKS, speed: float = 1.0, interval: str = "") -> dict[str, Any]:
    """A file for `rule_files:` of prometheus.yml."""
    return {"groups": groups(runbooks=runbooks, speed=speed, interval=interval)}


def prometheus_rule(
    *, runbooks: str = RUNBOOKS, name: str = "dragoman", namespace: str = "monitoring"
) -> dict[str, Any]:
    """A PrometheusRule, monitoring.coreos.com/v1."""
    return {
        "apiVersion": "monitoring.coreos.com/v1",
        "kind": "PrometheusRule",
        "metadata": {"name": name, "namespace": namespace, "labels": {"app.kubernetes.io/name": "dragoman"}},
        "spec": {"groups": groups(runbooks=runbooks)},
    }
