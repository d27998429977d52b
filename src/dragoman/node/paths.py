"""Where do a kubelet and a container runtime look on a real machine? Drivers' sockets and CDI files lie there."""

from __future__ import annotations

from pathlib import Path

KUBELET = Path("/var/lib/kubelet")
CDI = Path("/var/run/cdi")
