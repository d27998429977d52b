"""How do tests install Dragoman as a platform team does? With real helm, from an image made here."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import make_image
import yaml

from tests.real import build
from tests.real.cluster import Cluster, executable

ROOT = Path(__file__).resolve().parents[2]
CHART = ROOT / "deploy" / "chart"
NAMESPACE = "dragoman"
RELEASE = "dragoman"
VERSIONS = ("3.22.0", "4.3.2")
KUBERNETES = ("--kube-version", build.KUBERNETES)
"""For commands that ask no cluster."""


def image(folder: Path, name: str = make_image.NAME) -> Path:
    """Dragoman's image as an archive."""
    make_image.build(folder, make_image.default_cache(), name)
    return folder / "dragoman-image.tar"


class Helm:
    """One version of helm, and the cluster that it works on, if any."""

    def __init__(self, cluster: Cluster | None = None, version: str = VERSIONS[-1]) -> None:
        self._helm = executable("helm", version)
        self._cluster = cluster

    def __call__(
        self, *arguments: str, values: dict[str, Any] | None = None, ok: bool = True
    ) -> subprocess.CompletedProcess[str]:
        """Run it; values: as a values file."""
        command: Sequence[str] = [self._helm, *arguments]
        home = str(self._cluster.folder) if self._cluster else "/nonexistent"
        environment = {**os.environ, "HOME": home}
        if self._cluster:
            environment["KUBECONFIG"] = str(self._cluster.kubeconfig)
        text = None
        if values is not None:
            command, text = [*command, "--values", "-"], yaml.safe_dump(values)
        done = subprocess.run(command, input=text, capture_output=True, text=True, env=environment, timeout=180)
        assert (done.returncode == 0) == ok, f"helm {' '.join(arguments)}: {done.stdout[-2000:]}{done.stderr}"
        return done

    def template(self, values: dict[str, Any] | None = None, namespace: str = NAMESPACE) -> list[dict[str, Any]]:
        """The objects of the chart with these values."""
        done = self("template", RELEASE, str(CHART), "-n", namespace, *KUBERNETES, values=values or {})
        return [one for one in yaml.safe_load_all(done.stdout) if one]

    def install(self, values: dict[str, Any], command: str = "install") -> None:
        """Install or upgrade the release, until everything is ready."""
        more = ("--create-namespace",) if command == "install" else ()
        flags = ("-n", NAMESPACE, *more, "--wait", "--timeout", "120s")
        self(command, RELEASE, str(CHART), *flags, values=values)


def is_ready(cluster: Cluster, namespace: str = NAMESPACE) -> bool:
    """Whether all pods of the release run and are ready."""
    pods = cluster.all("Pod", namespace)
    conditions = [one["status"].get("conditions", []) for one in pods]
    return bool(pods) and all(
        any(one["type"] == "Ready" and one["status"] == "True" for one in listed) for listed in conditions
    )


def log(cluster: Cluster, daemon: str) -> str:
    """What a daemon of the release says."""
    selector = f"app.kubernetes.io/name=dragoman-{daemon}"
    return cluster.kubectl("logs", "-n", NAMESPACE, "-l", selector, "--tail=200", ok=None).stdout


def state(cluster: Cluster) -> str:
    """The release's pods and what they say, for a failure."""
    pods = [(one["metadata"]["name"], one["status"]) for one in cluster.all("Pod", NAMESPACE)]
    texts = [json.dumps(pods, indent=1)]
    return "\n".join(texts + [log(cluster, name) for name in ("scheduler", "controllers", "driver-nvidia")])
