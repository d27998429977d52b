"""Where do a kubelet and a container runtime look on a real machine? Drivers' sockets and CDI files lie there."""

from __future__ import annotations

from pathlib import Path

from dragoman.errors import Invalid

KUBELET = Path("/var/lib/kubelet")
CDI = Path("/var/run/cdi")
PLUGINS_REGISTRY = "plugins_registry"
"""A kubelet makes it below its folder when it starts."""


def check_kubelet(folder: Path) -> None:
    """Raises Invalid where `folder` is the kubelet's own and no kubelet has run: nobody would ever call a driver."""
    if folder == KUBELET and not (folder / PLUGINS_REGISTRY).is_dir():
        raise Invalid(
            f"--root-dir {folder}",
            f"no kubelet has run on this machine ({folder / PLUGINS_REGISTRY} does not exist); beside a "
            "`dragoman node-agent` give the agent's --root-dir; for a node of `dragoman up --data DIR`: DIR/n/NODE",
        )
