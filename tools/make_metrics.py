"""What is shown at /metrics? Writes docs/reference/metrics.md from the parts of a running cluster: `make docs`."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import NamedTuple

from prometheus_client.metrics_core import Metric

from dragoman.daemon.allinone import Cluster, ClusterSettings
from dragoman.daemon.explainer import Explainer
from dragoman.daemon.shadow import Shadow
from dragoman.ops.families import FAMILIES
from dragoman.runtime.clock import Clock
from dragoman.runtime.entropy import Entropy
from dragoman.runtime.metrics import Metrics

TARGET = Path(__file__).resolve().parents[1] / "docs" / "reference" / "metrics.md"
HEAD = """\
# Metrics

Made from the code by `make docs`. Every daemon serves `/metrics` at `--listen` in the text format of Prometheus;
`dragoman up` serves those of all its parts at the API server's `/metrics`, to whoever may get that path (role
`system:monitoring`). Names that Kubernetes or NVIDIA's driver has are theirs, with their labels. No metric names pods
or claims.

Alerts and dashboards on these: [guides/monitoring.md](../guides/monitoring.md).
"""
EXPORTER = """
## Of the exporter

`dragoman exporter`, and `dragoman up`. Computed from API objects alone; gauges and ages are the same after a restart,
counters begin at zero. At most 500 values of a label (classes, namespaces, taint keys), and `--max-nodes` nodes, get
series; `dragoman_exporter_left_out` counts the rest.
"""
OTHERS = (
    (
        "Kubernetes' names",
        "Scheduler, controllers and node agents.",
        ("scheduler_", "dra_", "dynamic_", "workqueue_", "rest_client_", "kubernetes_", "apiserver_"),
    ),
    ("Names of NVIDIA's driver", "`dragoman driver nvidia`, and its controller of ComputeDomains.", ("nvidia_",)),
    ("Dragoman's own", "Of all daemons.", ("dragoman_",)),
)


class Row(NamedTuple):
    """A metric as it is registered."""

    name: str
    kind: str
    labels: tuple[str, ...]
    help: str


def rows() -> list[Row]:
    """The metrics of all parts but the exporter's, by name."""
    return asyncio.run(_rows())


async def _rows() -> list[Row]:
    settings = ClusterSettings(nodes=(("gpu-0", "gb200-nvl72"), ("example", "example")))
    async with Cluster(settings) as cluster:
        metrics = cluster.metrics
        clock, entropy = Clock(), Entropy(1)
        Explainer(None, clock, entropy, metrics=metrics)  # type: ignore[arg-type]
        Shadow(None, clock, entropy, metrics=metrics)  # type: ignore[arg-type]
        return sorted(_of(metrics))


def _of(metrics: Metrics) -> list[Row]:
    exported = {family.name for family in FAMILIES}
    found = {}
    for name, metric in metrics._known.items():
        found[name] = Row(name, metric._type, tuple(metric._labelnames), metric._documentation)
    for family in metrics.registry.collect():
        if family.name not in found and _name(family) not in found and _name(family) not in exported:
            labels = getattr(family, "_labelnames", ()) or ()
            found[_name(family)] = Row(_name(family), family.type, tuple(labels), family.documentation)
    return list(found.values())


def _name(family: Metric) -> str:
    return f"{family.name}_total" if family.type == "counter" else family.name


def text() -> str:
    """The whole page."""
    parts = [HEAD, EXPORTER, _table(Row(f.name, f.kind, f.labels, f.help) for f in FAMILIES)]
    everything = rows()
    for title, where, prefixes in OTHERS:
        mine = [row for row in everything if row.name.startswith(prefixes)]
        parts.append(f"\n## {title}\n\n{where}\n" + _table(mine))
    lost = [row.name for row in everything if not row.name.startswith(tuple(p for _, _, ps in OTHERS for p in ps))]
    assert not lost, lost
    return "".join(parts)


def _table(of: object) -> str:
    lines = ["", "| metric | type | labels | meaning |", "|---|---|---|---|"]
    for row in of:  # type: ignore[attr-defined]
        labels = ", ".join(f"`{label}`" for label in row.labels)
        lines.append(f"| `{row.name}` | {row.kind} | {labels} | {row.help.replace('|', '/')} |")
    return "\n".join([*lines, ""])


if __name__ == "__main__":
    TARGET.write_text(text())
