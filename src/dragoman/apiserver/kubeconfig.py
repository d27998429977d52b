"""How does kubectl find the cluster? A kubeconfig file with the CA and the token, for its owner's eyes only."""

from __future__ import annotations

import base64
from pathlib import Path

import yaml

from dragoman.apiserver.certificates import write_private
from dragoman.cluster.kubeconfig import Access

NAME = "dragoman"


def text(access: Access) -> str:
    """The kubeconfig as YAML."""
    cluster: dict[str, str] = {"server": access.server}
    if access.ca_pem:
        cluster["certificate-authority-data"] = base64.b64encode(access.ca_pem).decode()
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": NAME, "cluster": cluster}],
        "users": [{"name": NAME, "user": {"token": access.token}}],
        "contexts": [{"name": NAME, "context": {"cluster": NAME, "user": NAME}}],
        "current-context": NAME,
    }
    return yaml.safe_dump(config, sort_keys=False)


def write(file: Path, access: Access) -> None:
    """Write it, mode 0600, in one step."""
    write_private(file, text(access).encode())
