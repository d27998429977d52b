"""Alert rules under promtool: each fires once, in its time, and resolves; what must be silent is."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml

from dragoman.ops.families import BY_NAME
from dragoman.ops.rules import ALERTS, RUNBOOKS, groups, prometheus_rule, rule_file, scaled
from tests.ops.prometheus import promtool

BY_ALERT = {alert.name: alert for alert in ALERTS}


class Case(NamedTuple):
    """series: name to values, `scrape` apart. fires, still_silent, over: minutes. labels and value of the alert."""

    series: dict[str, str]
    still_silent: str
    fires: str
    over: str
    labels: dict[str, str]
    value: str = ""
    scrape: str = "1m"


GPU = {"Hostname": "gpu-7", "gpu": "3"}
OPERATOR_NODE = {"node": "gpu-7"}
CASES: dict[str, Case] = {
    "DRAClaimPending": Case(
        {'dragoman_claims_waiting{older_than="5m"}': "0x5 2x5 0x10"}, "5m", "6m", "12m", {"older_than": "5m"}, "2"
    ),
    "DRAClassNearlyFull": Case(
        {
            'dra_devices_available{device_class="big"}': "4 3x9 4x10",
            'dragoman_class_devices{device_class="big"}': "40x30",
            'dra_devices_available{device_class="none"}': "0x30",
            'dragoman_class_devices{device_class="none"}': "0x30",
        },
        "5m",
        "6m",
        "11m",
        {"device_class": "big"},
    ),
    "DRASlowAllocation": Case(
        {
            'dra_allocation_duration_seconds_bucket{le="30"}': "0x30",
            'dra_allocation_duration_seconds_bucket{le="60"}': "0+6x12 72x20",
            'dra_allocation_duration_seconds_bucket{le="+Inf"}': "0+6x12 72x20",
        },
        "5m",
        "7m",
        "25m",
        {},
        "60",
    ),
    "DRAPluginErrors": Case({"dra_plugin_errors_total": "0x20 10 20 20x40"}, "5m", "6m", "12m", {}, "13", "15s"),
    "DRAPrepareSlow": Case(
        {
            'nvidia_dra_request_duration_seconds_bucket{driver="gpu.nvidia.com",operation="prepare",le="6.4"}': "0x40",
            'nvidia_dra_request_duration_seconds_bucket{driver="gpu.nvidia.com",operation="prepare",le="12.8"}': "0+6x20 120x20",
            'nvidia_dra_request_duration_seconds_bucket{driver="gpu.nvidia.com",operation="prepare",le="+Inf"}': "0+6x20 120x20",
            'nvidia_dra_request_duration_seconds_bucket{driver="compute-domain.nvidia.com",operation="prepare",le="6.4"}': "0x40",
            'nvidia_dra_request_duration_seconds_bucket{driver="compute-domain.nvidia.com",operation="prepare",le="+Inf"}': "0+6x40",
        },
        "10m",
        "12m",
        "30m",
        {"driver": "gpu.nvidia.com"},
        "13",
    ),
    "GPUNodeWithoutSlices": Case(
        {'dragoman_node_problem{node="gpu-7",problem="no_slices"}': "1x8 stale"}, "4m", "5m", "10m", OPERATOR_NODE
    ),
    "DRAPoolIncomplete": Case(
        {'dragoman_pools{driver="gpu.nvidia.com",state="incomplete"}': "0 3x6 0x5"},
        "2m",
        "3m",
        "8m",
        {"driver": "gpu.nvidia.com"},
        "3",
    ),
    "DRADeviceTainted": Case(
        {
            'dragoman_device_taints{driver="gpu.nvidia.com",key="gpu.nvidia.com/xid",effect="NoSchedule"}': "_x3 1x3 stale",
            'dragoman_device_taints{driver="gpu.nvidia.com",key="gpu.nvidia.com/xid",effect="None"}': "4x20",
            'dragoman_device_taints{driver="gpu.nvidia.com",key="team/reserved",effect="NoSchedule"}': "4x20",
        },
        "2m",
        "4m",
        "8m",
        {"driver": "gpu.nvidia.com", "key": "gpu.nvidia.com/xid"},
        "1",
    ),
    "DevicePluginDeviceUnhealthy": Case(
        {
            'dragoman_extended_resources{resource="nvidia.com/gpu",what="capacity"}': "16x20",
            'dragoman_extended_resources{resource="nvidia.com/gpu",what="allocatable"}': "16 15x8 16x5",
        },
        "5m",
        "6m",
        "10m",
        {"resource": "nvidia.com/gpu"},
        "1",
    ),
    "GPUXid": Case(
        {
            'DCGM_FI_DEV_XID_ERRORS{Hostname="gpu-7",gpu="3"}': "0x3 79x20",
            'DCGM_FI_DEV_XID_ERRORS{Hostname="gpu-7",gpu="4"}': "0x3 31x20",
            'DCGM_FI_DEV_XID_ERRORS{Hostname="gpu-7",gpu="5"}': "0x30",
        },
        "3m",
        "4m",
        "12m",
        GPU,
        "79",
    ),
    "GPURowRemapFailure": Case(
        {'DCGM_FI_DEV_ROW_REMAP_FAILURE{Hostname="gpu-7",gpu="3"}': "0x3 1x3 0x5"}, "3m", "4m", "8m", GPU
    ),
    "GPUHot": Case(
        {
            'DCGM_FI_DEV_GPU_TEMP{Hostname="gpu-7",gpu="3",modelName="NVIDIA H100 80GB HBM3"}': "60 85x8 60x5",
            'DCGM_FI_DEV_GPU_TEMP{Hostname="gpu-8",gpu="0",modelName="NVIDIA L40S"}': "89x20",
        },
        "5m",
        "6m",
        "10m",
        {**GPU, "modelName": "NVIDIA H100 80GB HBM3"},
        "85",
    ),
    "GPUIdleAllocated": Case(
        {
            'DCGM_FI_PROF_GR_ENGINE_ACTIVE{Hostname="gpu-7",gpu="3",namespace="t",pod="idle"}': "0.01x40 0.9x5",
            'DCGM_FI_PROF_GR_ENGINE_ACTIVE{Hostname="gpu-7",gpu="4",namespace="",pod=""}': "0x50",
        },
        "29m",
        "30m",
        "41m",
        {**GPU, "namespace": "t", "pod": "idle"},
    ),
    "ComputeDomainNotReady": Case(
        {
            'nvidia_dra_compute_domain_info{status="NotReady"}': "1x12 0x5",
            'nvidia_dra_compute_domain_info{status="Ready"}': "3x20",
        },
        "9m",
        "10m",
        "13m",
        {},
        "1",
    ),
    "MIGConfigFailed": Case(
        {'dragoman_node_problem{node="gpu-7",problem="mig_config_failed"}': "_x3 1x3 stale"},
        "2m",
        "4m",
        "8m",
        OPERATOR_NODE,
    ),
    "GPUNodeNotReady": Case(
        {'dragoman_node_problem{node="gpu-7",problem="not_ready"}': "_ 1x5 stale"}, "2m", "3m", "7m", OPERATOR_NODE
    ),
    "GPUOperatorNodeDeploymentFailed": Case(
        {'gpu_operator_node_device_plugin_devices_total{node="gpu-7"}': "0x32 8x5"}, "29m", "30m", "33m", OPERATOR_NODE
    ),
    "GPUOperatorNodeDeploymentDriverFailed": Case(
        {'gpu_operator_node_driver_validation{node="gpu-7"}': "0x32 1x5"}, "29m", "30m", "33m", OPERATOR_NODE
    ),
    "GPUOperatorNodeDeploymentToolkitFailed": Case(
        {
            'gpu_operator_node_toolkit_ready{node="gpu-7"}': "0x32 1x5",
            'gpu_operator_node_driver_validation{node="gpu-7"}': "1x40",
        },
        "29m",
        "30m",
        "33m",
        OPERATOR_NODE,
    ),
    "GPUOperatorNodeDeploymentCudaFailed": Case(
        {
            'gpu_operator_node_cuda_ready{node="gpu-7"}': "0x32 1x5",
            'gpu_operator_node_driver_validation{node="gpu-7"}': "1x40",
        },
        "29m",
        "30m",
        "33m",
        OPERATOR_NODE,
    ),
    "GPUOperatorReconciliationFailed": Case(
        {"gpu_operator_reconciliation_status": "-1x62 1x5"}, "59m", "60m", "63m", {}
    ),
    "GPUOperatorReconciliationFailedNfdLabelsMissing": Case(
        {"gpu_operator_reconciliation_has_nfd_labels": "0x32 1x5"}, "29m", "30m", "33m", {}
    ),
    "GPUOperatorDriverAutoUpgradeFailures": Case(
        {"gpu_operator_nodes_upgrades_failed": "2x32 0x5"}, "29m", "30m", "33m", {}, "2"
    ),
    "DRAExporterAbsent": Case({"dragoman_exporter_synced": "1 0x12 1x5"}, "10m", "11m", "14m", {}),
}


def expanded(text: str, labels: dict[str, str], value: str) -> str:
    text = re.sub(r"{{ \$labels\.(\w+) }}", lambda found: labels[found[1]], text)
    return re.sub(r"{{ \$value(?: \| printf \"%.0f\")? }}", value, text)


def expected(name: str, case: Case) -> dict[str, Any]:
    alert = BY_ALERT[name]
    return {
        "exp_labels": {**case.labels, "severity": alert.severity},
        "exp_annotations": {
            "summary": expanded(alert.summary, case.labels, case.value),
            "description": expanded(alert.cause, case.labels, case.value),
            "runbook_url": f"{RUNBOOKS}/{alert.runbook}.md",
        },
    }


def rule_test(folder: Path, tests: list[dict[str, Any]]) -> None:
    (folder / "rules.yaml").write_text(yaml.safe_dump(rule_file()))
    body = {"rule_files": ["rules.yaml"], "evaluation_interval": "15s", "tests": tests}
    (folder / "test.yaml").write_text(yaml.safe_dump(body))
    promtool("test", "rules", str(folder / "test.yaml"))


def test_every_alert_has_a_case() -> None:
    assert set(CASES) == set(BY_ALERT)


@pytest.mark.parametrize("name", sorted(CASES))
def test_fires_once_in_its_time_and_resolves(name: str, tmp_path: Path) -> None:
    case = CASES[name]
    moments: list[dict[str, Any]] = [
        {"eval_time": case.still_silent, "alertname": name, "exp_alerts": []},
        {"eval_time": case.fires, "alertname": name, "exp_alerts": [expected(name, case)]},
        {"eval_time": case.over, "alertname": name, "exp_alerts": []},
    ]
    series = [{"series": series, "values": values} for series, values in case.series.items()]
    rule_test(tmp_path, [{"interval": case.scrape, "input_series": series, "alert_rule_test": moments}])


def test_two_exporters_raise_an_alert_once(tmp_path: Path) -> None:
    series = [
        {"series": f'dragoman_claims_waiting{{older_than="5m",instance="{n}"}}', "values": "2x5"} for n in ("a", "b")
    ]
    case = CASES["DRAClaimPending"]
    moments = [{"eval_time": "3m", "alertname": "DRAClaimPending", "exp_alerts": [expected("DRAClaimPending", case)]}]
    rule_test(tmp_path, [{"interval": "1m", "input_series": series, "alert_rule_test": moments}])


def test_restart_of_the_exporter_raises_nothing(tmp_path: Path) -> None:
    """Counters begin at zero again, gauges are missing for two scrapes and come back as they were."""
    series = {
        "dra_plugin_errors_total": "40x3 _x2 0x20",
        'dra_allocation_duration_seconds_bucket{le="30"}': "400x3 _x2 0x20",
        'dra_allocation_duration_seconds_bucket{le="+Inf"}': "500x3 _x2 0x20",
        'dragoman_claims_waiting{older_than="5m"}': "0x3 _x2 0x20",
        'dra_devices_available{device_class="big"}': "30x3 _x2 30x20",
        'dragoman_class_devices{device_class="big"}': "40x3 _x2 40x20",
        "dragoman_exporter_synced": "1x3 _ 0 1x20",
    }
    names = ("DRAPluginErrors", "DRASlowAllocation", "DRAClaimPending", "DRAClassNearlyFull", "DRAExporterAbsent")
    moments = [
        {"eval_time": f"{minute}m", "alertname": name, "exp_alerts": []} for name in names for minute in range(12)
    ]
    listed = [{"series": name, "values": values} for name, values in series.items()]
    rule_test(tmp_path, [{"interval": "1m", "input_series": listed, "alert_rule_test": moments}])


def test_files_pass_promtool(tmp_path: Path) -> None:
    file = tmp_path / "rules.yaml"
    file.write_text(yaml.safe_dump(rule_file(speed=20, interval="1s")))
    promtool("check", "rules", "--lint=all", "--lint-fatal", str(file))


def test_rules_use_metrics_that_exist() -> None:
    for alert in ALERTS:
        for name in re.findall(r"\b(?:dra|dragoman)_\w+", alert.expr):
            assert name.removesuffix("_bucket") in BY_NAME, f"{alert.name}: {name}"


def test_prometheus_rule_has_the_same_rules() -> None:
    body = prometheus_rule()
    assert (body["apiVersion"], body["kind"]) == ("monitoring.coreos.com/v1", "PrometheusRule")
    assert body["spec"]["groups"] == groups()


@pytest.mark.parametrize(
    ("duration", "speed", "wanted"), [("5m", 1, "5m"), ("5m", 60, "5000ms"), ("1h", 7, "514286ms")]
)
def test_waiting_is_divided_by_the_speed(duration: str, speed: float, wanted: str) -> None:
    assert scaled(duration, speed) == wanted
