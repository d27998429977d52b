"""Writes what is made from the chart and from the drivers' table; tests/deploy checks that it is current.

    python tools/make_manifests.py     # needs helm, which `make real` builds

- deploy/*.yaml: plain manifests, for clusters without Helm
- deploy/chart/files/classes.yaml: the DeviceClasses of drivers, from drivers/registry.py
- the table in docs/guides/rights.md, from deploy/chart/files/rights.yaml
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import yaml

from dragoman.drivers.registry import DRIVERS

ROOT = Path(__file__).resolve().parents[1]
DEPLOY = ROOT / "deploy"
CHART = DEPLOY / "chart"
RIGHTS = CHART / "files" / "rights.yaml"
CLASSES = CHART / "files" / "classes.yaml"
GUIDE = ROOT / "docs" / "guides" / "rights.md"
NAMESPACE = "dragoman"
OFF: dict[str, Any] = {"scheduler": {"enabled": False}, "fence": {"enabled": False}}
MANIFESTS: dict[str, tuple[str, dict[str, Any]]] = {
    "scheduler.yaml": (
        "Dragoman's scheduler, two replicas. Beside another scheduler that allocates devices, apply fence.yaml first.",
        {"fence": {"enabled": False}},
    ),
    "fence.yaml": (
        "Fences drivers: only the users named may allocate devices of the drivers named, whatever scheduler a pod\n"
        "asks for. Pods that another scheduler serves and that want such devices go on waiting, with this policy's\n"
        "message. Put your drivers in. `dragoman scheduler` reads it at its start and now and then.",
        {"fence": {"drivers": ["compute-domain.nvidia.com", "gpu.nvidia.com"]}},
    ),
    "controllers.yaml": (
        "The claim and taint controllers, for a kube-controller-manager that was started with\n"
        "--controllers=*,-resourceclaim-controller,-device-taint-eviction-controller.",
        {**OFF, "controllers": {"enabled": True}},
    ),
    "driver-nvidia.yaml": (
        "The driver of NVIDIA GPUs, on every node: give it a nodeSelector of those that have some.",
        {**OFF, "drivers": {"nvidia": {"enabled": True}}},
    ),
    "driver-nvidia-simulated.yaml": (
        "GPUs that only seem to be there, on every node, for clusters without any: eight H100.",
        {**OFF, "drivers": {"nvidia": {"enabled": True, "simulate": "dgx-h100"}}},
    ),
    "explain-watch.yaml": (
        "`dragoman explain --watch`: reads what scheduling decisions read, and writes Events on pending pods. Nothing\n"
        "else may be written.",
        {**OFF, "explainWatch": {"enabled": True}},
    ),
    "exporter.yaml": (
        "`dragoman exporter`: reads what scheduling decisions read, and events, and writes nothing.",
        {**OFF, "exporter": {"enabled": True}},
    ),
}
"""File, what it is for, and the values that it is made with."""
ONLY = {"fence.yaml": re.compile(r"-fence$")}
"""Which objects of a release a manifest has, by their names; all unless it is named here."""
HELMS = frozenset({"helm.sh/chart", "app.kubernetes.io/managed-by"})
BEGIN, END = "<!-- made by tools/make_manifests.py -->", "<!-- end -->"
TITLES = {
    "scheduler": "scheduler",
    "controllers": "controllers (claims, taints)",
    "driver": "drivers",
    "explain": "explain --watch",
    "exporter": "exporter",
}
CONDITIONS = {
    "leaderElection": "with leader election",
    "preemption": "with `--preemption`",
    "deviceClasses": "without `--no-device-classes`",
    "deviceStatus": "nic",
    "mps": "nvidia with the gate MPSSupport",
}


def helm() -> str:
    """The helm to use: the one that `make real` builds, else that of PATH. Raises SystemExit."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "dragoman" / "real"
    built = sorted(Path(os.environ.get("DRAGOMAN_REAL") or cache).glob("helm-v*/helm"))
    found = str(built[-1]) if built else shutil.which("helm")
    if found is None:
        raise SystemExit("error: no helm; `make real` builds it")
    return found


def manifest(name: str) -> str:
    """The text of a plain manifest."""
    about, values = MANIFESTS[name]
    command = [helm(), "template", "dragoman", str(CHART), "-n", NAMESPACE, "--kube-version", "1.37.0", "-f", "-"]
    done = subprocess.run(command, input=yaml.safe_dump(values), capture_output=True, text=True, check=True)
    objects = [_plain(one) for one in yaml.safe_load_all(done.stdout) if one]
    wanted = ONLY.get(name)
    objects = [one for one in objects if wanted is None or wanted.search(one["metadata"]["name"])]
    space = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}
    head = "".join(f"# {line}\n" for line in about.splitlines())
    if name != "fence.yaml":
        head += "# Put in where your image is (docs/guides/install.md).\n"
    head += f"# Made from the chart by tools/make_manifests.py.\n#   kubectl apply -f deploy/{name}\n"
    return head + "---\n".join(yaml.safe_dump(one, sort_keys=False, width=118) for one in [space, *objects])


def _plain(one: Any) -> Any:
    """Without what only Helm reads."""
    if isinstance(one, Mapping):
        return {key: _plain(value) for key, value in one.items() if key not in HELMS}
    if isinstance(one, list):
        return [_plain(value) for value in one]
    return one


def classes() -> str:
    """The drivers' classes, by the driver's command."""
    found = {entry.command: list(entry.classes) for entry in DRIVERS if entry.command in ("nvidia", "nic")}
    head = "# DeviceClasses of the drivers. Made by tools/make_manifests.py from drivers/registry.py.\n"
    return head + yaml.safe_dump(found, sort_keys=False, width=10_000)


def table() -> str:
    """The rights as a Markdown table."""
    rows = ["| daemon | group | resources | verbs | for |", "|---|---|---|---|---|"]
    for key, rules in yaml.safe_load(RIGHTS.read_text()).items():
        rows += [_row(TITLES[key] if number == 0 else "", rule) for number, rule in enumerate(rules)]
    return "\n".join(rows)


def _row(title: str, rule: Mapping[str, Any]) -> str:
    resources = ", ".join(rule["resources"])
    if names := rule.get("resourceNames"):
        resources += " " + ", ".join(f"`{name}`" for name in names)
    if place := rule.get("in"):
        resources += " in its own namespace" if place == "release" else f" in `{place}`"
    why = rule["why"] + (f" ({CONDITIONS[rule['if']]})" if "if" in rule else "")
    return f"| {title} | {rule['apiGroups'][0] or 'core'} | {resources} | {', '.join(rule['verbs'])} | {why} |"


def guide(text: str) -> str:
    """The guide with its table made again."""
    before, _, rest = text.partition(BEGIN)
    after = rest.partition(END)[2]
    return f"{before}{BEGIN}\n{table()}\n{END}{after}"


def everything() -> Iterable[tuple[Path, str]]:
    """What is made: files and their texts."""
    yield CLASSES, classes()
    yield GUIDE, guide(GUIDE.read_text())
    for name in MANIFESTS:
        yield DEPLOY / name, manifest(name)


def main() -> int:
    for path, text in everything():
        path.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
