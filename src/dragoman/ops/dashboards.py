"""What does one look at? Grafana dashboards as JSON, made from panels of one line each.

    dashboard("fleet")

Expressions use metrics of `families`, of the scheduler, the kubelet and the drivers, and of the DCGM exporter.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

SCHEMA_VERSION = 39
"""Of Grafana's dashboard JSON; newer ones read it."""
WIDTH, HEIGHT = 12, 8
PRICE = "price"
"""Variable: of a GPU and hour, for the cost of idle ones."""


class Panel(msgspec.Struct, frozen=True):
    """One panel. series: (PromQL, legend). unit: of Grafana."""

    title: str
    series: tuple[tuple[str, str], ...]
    unit: str = "short"
    form: Literal["timeseries", "stat", "table"] = "timeseries"
    about: str = ""


class Variable(msgspec.Struct, frozen=True):
    """A variable: label values of a metric to choose from, or a number to type."""

    name: str
    label: str
    metric: str = ""
    value: str = ""


class Dashboard(msgspec.Struct, frozen=True):
    """One dashboard."""

    name: str
    title: str
    panels: tuple[Panel, ...]
    choices: tuple[Variable, ...] = ()


def _state(states: str, class_: str = "") -> str:
    where = f'state=~"{states}"' + (f',device_class=~"{class_}"' if class_ else "")
    return f"sum by (device_class, state) (dragoman_devices{{{where}}})"


def _quantile(quantile: float, metric: str, where: str = "", by: str = "le") -> str:
    return f"histogram_quantile({quantile}, sum by ({by}) (rate({metric}_bucket{{{where}}}[5m])))"


_CLASS = '{device_class=~"$device_class"}'
_SHARE = (
    f"max by (device_class) (dra_devices_available{_CLASS}) / max by (device_class) (dragoman_class_devices{_CLASS})"
)
_IDLE = '(DCGM_FI_PROF_GR_ENGINE_ACTIVE{pod!=""} < bool 0.05)'
DASHBOARDS: tuple[Dashboard, ...] = (
    Dashboard(
        "fleet",
        "DRA: fleet",
        (
            Panel("Devices in allocations", (("max(dra_devices_allocated)", ""),), form="stat"),
            Panel("Claims that wait", (('max(dragoman_claims{state="waiting"})', ""),), form="stat"),
            Panel(
                "Devices by driver and state",
                (("sum by (driver, state) (dragoman_driver_devices)", "{{driver}} {{state}}"),),
            ),
            Panel("Claims by state", (("max by (state) (dragoman_claims)", "{{state}}"),)),
            Panel("Pods that wait, by reason", (("max by (reason) (dragoman_pending_pods)", "{{reason}}"),)),
            Panel("Nodes with a problem", (("max by (problem) (dragoman_node_problems)", "{{problem}}"),)),
            Panel("Pools", (("max by (driver, state) (dragoman_pools)", "{{driver}} {{state}}"),)),
            Panel("Taints", (("max by (driver, key, effect) (dragoman_device_taints)", "{{key}}:{{effect}}"),)),
            Panel("Failures to prepare", (("max(increase(dra_plugin_errors_total[5m]))", "in 5 minutes"),)),
            Panel(
                "Devices by namespace",
                (("topk(20, max by (namespace) (dragoman_namespace_devices))", "{{namespace}}"),),
            ),
        ),
    ),
    Dashboard(
        "class",
        "DRA: device class",
        (
            Panel("Available", ((f"max by (device_class) (dra_devices_available{_CLASS})", "{{device_class}}"),)),
            Panel(
                "Share available",
                (
                    (
                        _SHARE,
                        "{{device_class}}",
                    ),
                ),
                "percentunit",
            ),
            Panel("By state", ((_state(".*", "$device_class"), "{{device_class}} {{state}}"),)),
            Panel(
                "Largest group that fits",
                (
                    (
                        f"max by (device_class, scope) (dragoman_class_largest_group{_CLASS})",
                        "{{device_class}} on one {{scope}}",
                    ),
                ),
                about="Claims for more devices together cannot fit.",
            ),
            Panel(
                "Largest memory that fits",
                ((f"max by (device_class) (dragoman_class_largest_memory_bytes{_CLASS})", "{{device_class}}"),),
                "bytes",
            ),
            Panel("Stranded", ((f"max by (device_class) (dragoman_stranded_devices{_CLASS})", "{{device_class}}"),)),
            Panel(
                "Partitions that can still be made",
                ((f"max by (device_class, partition) (dragoman_partitions_available{_CLASS})", "{{partition}}"),),
            ),
        ),
        (Variable("device_class", "class", "dragoman_class_devices"),),
    ),
    Dashboard(
        "node",
        "DRA: node",
        (
            Panel("Devices", (('max by (node, what) (dragoman_node_devices{node=~"$node"})', "{{node}} {{what}}"),)),
            Panel(
                "Problems", (('max by (node, problem) (dragoman_node_problem{node=~"$node"})', "{{node}} {{problem}}"),)
            ),
            Panel(
                "Prepared devices",
                (
                    (
                        'sum by (node, device_type) (nvidia_dra_prepared_devices{node=~"$node"})',
                        "{{node}} {{device_type}}",
                    ),
                ),
            ),
            Panel(
                "Time of calls to drivers, p99",
                (
                    (
                        _quantile(0.99, "dra_grpc_operations_duration_seconds", by="driver_name, method_name, le"),
                        "{{driver_name}} {{method_name}}",
                    ),
                ),
                "s",
            ),
            Panel(
                "Engine active",
                (
                    (
                        'avg by (Hostname, gpu) (DCGM_FI_PROF_GR_ENGINE_ACTIVE{Hostname=~"$node"})',
                        "{{Hostname}} {{gpu}}",
                    ),
                ),
                "percentunit",
            ),
            Panel(
                "Temperature",
                (('max by (Hostname, gpu) (DCGM_FI_DEV_GPU_TEMP{Hostname=~"$node"})', "{{Hostname}} {{gpu}}"),),
                "celsius",
            ),
            Panel(
                "Last XID",
                (('max by (Hostname, gpu) (DCGM_FI_DEV_XID_ERRORS{Hostname=~"$node"}) > 0', "{{Hostname}} {{gpu}}"),),
            ),
        ),
        (Variable("node", "node", "dragoman_node_devices"),),
    ),
    Dashboard(
        "claim-latency",
        "DRA: claim latency",
        (
            Panel(
                "From claim to allocation",
                tuple(
                    (_quantile(q, "dra_allocation_duration_seconds"), f"p{round(q * 100)}") for q in (0.5, 0.9, 0.99)
                ),
                "s",
            ),
            Panel(
                "Claims that wait, by age", (("max by (older_than) (dragoman_claims_waiting)", "over {{older_than}}"),)
            ),
            Panel(
                "From pod to binding, p99",
                ((_quantile(0.99, "scheduler_pod_scheduling_sli_duration_seconds"), "p99"),),
                "s",
            ),
            Panel(
                "A decision, p99", ((_quantile(0.99, "scheduler_scheduling_algorithm_duration_seconds"), "p99"),), "s"
            ),
            Panel(
                "Preparing a pod's claims, p99",
                ((_quantile(0.99, "dra_operations_duration_seconds", by="operation_name, le"), "{{operation_name}}"),),
                "s",
            ),
            Panel(
                "Preparing in the driver, p99",
                (
                    (
                        _quantile(0.99, "nvidia_dra_request_duration_seconds", by="driver, operation, le"),
                        "{{driver}} {{operation}}",
                    ),
                ),
                "s",
            ),
            Panel("Pods in the scheduler's queue", (("sum by (queue) (scheduler_pending_pods)", "{{queue}}"),)),
        ),
    ),
    Dashboard(
        "idle-cost",
        "DRA: cost of idle devices",
        (
            Panel("Allocated and idle GPUs", ((f"sum({_IDLE})", ""),), form="stat", about="Engine active under 5 %."),
            Panel("Their cost per hour", ((f"sum({_IDLE}) * $price", ""),), "currencyUSD", "stat"),
            Panel(
                "By namespace, per hour", ((f"sum by (namespace) ({_IDLE}) * $price", "{{namespace}}"),), "currencyUSD"
            ),
            Panel(
                "Free devices, per hour",
                (("max by (device_class) (dra_devices_available) * $price", "{{device_class}}"),),
                "currencyUSD",
            ),
            Panel(
                "Stranded devices, per hour",
                (("max by (device_class) (dragoman_stranded_devices) * $price", "{{device_class}}"),),
                "currencyUSD",
            ),
            Panel(
                "Allocations by age",
                (("max by (older_than) (dragoman_claims_allocated)", "over {{older_than}}"),),
                about="Long ones without use are notebooks that somebody forgot.",
            ),
        ),
        (Variable(PRICE, "price of a GPU and hour", value="2.50"),),
    ),
)
NAMES = tuple(board.name for board in DASHBOARDS)


def dashboard(name: str) -> dict[str, Any]:
    """The JSON of one; import it, or give it to a provisioning folder. Raises KeyError."""
    board = {found.name: found for found in DASHBOARDS}[name]
    return {
        "uid": f"dragoman-{board.name}",
        "title": board.title,
        "tags": ["dra", "dragoman"],
        "schemaVersion": SCHEMA_VERSION,
        "editable": True,
        "refresh": "30s",
        "time": {"from": "now-6h", "to": "now"},
        "templating": {"list": [_SOURCE, *(_variable(choice) for choice in board.choices)]},
        "panels": [_panel(index, panel) for index, panel in enumerate(board.panels)],
    }


_SOURCE: dict[str, Any] = {"name": "source", "label": "data source", "type": "datasource", "query": "prometheus"}
_FROM = {"type": "prometheus", "uid": "${source}"}


def _variable(choice: Variable) -> dict[str, Any]:
    if not choice.metric:
        current = {"text": choice.value, "value": choice.value}
        return {
            "name": choice.name,
            "label": choice.label,
            "type": "textbox",
            "query": choice.value,
            "current": current,
        }
    return {
        "name": choice.name,
        "label": choice.label,
        "type": "query",
        "datasource": _FROM,
        "query": f"label_values({choice.metric}, {choice.name})",
        "refresh": 2,
        "multi": True,
        "includeAll": True,
        "allValue": ".*",
        "current": {"text": "All", "value": "$__all"},
    }


def _panel(index: int, panel: Panel) -> dict[str, Any]:
    targets = [
        {"refId": chr(ord("A") + at), "datasource": _FROM, "expr": expr, "legendFormat": legend}
        for at, (expr, legend) in enumerate(panel.series)
    ]
    return {
        "id": index + 1,
        "type": panel.form,
        "title": panel.title,
        "description": panel.about,
        "datasource": _FROM,
        "gridPos": {"x": index % 2 * WIDTH, "y": index // 2 * HEIGHT, "w": WIDTH, "h": HEIGHT},
        "fieldConfig": {"defaults": {"unit": panel.unit, "min": 0}, "overrides": []},
        "targets": targets,
    }
