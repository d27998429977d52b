"""Writes deploy/compute-domain.yaml: what a cluster needs before the first ComputeDomain."""

from __future__ import annotations

from pathlib import Path

import yaml

from dragoman.drivers.nvidia.compute_domain.entry import ENTRY

FILE = Path(__file__).resolve().parents[1] / "deploy" / "compute-domain.yaml"
HEAD = """\
# Kinds, classes, accounts and roles of ComputeDomains (resource.nvidia.com). Made by tools/make_compute_domain.py.
#   kubectl apply -f deploy/compute-domain.yaml
"""


def text() -> str:
    """The manifest."""
    bodies = (*ENTRY.installed(), *ENTRY.classes)
    return HEAD + "---\n".join(yaml.safe_dump(body, sort_keys=False, width=120) for body in bodies)


if __name__ == "__main__":
    FILE.write_text(text())
