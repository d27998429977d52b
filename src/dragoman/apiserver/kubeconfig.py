"""How does kubectl find the cluster? A kubeconfig file with the CA and the token, for its owner's eyes only."""

from __future__ import annotations

import base64
import re
from pathlib import Path

import yaml

from dragoman.apiserver.certificates import write_private
from dragoman.cluster.kubeconfig import Access

NAME = "dragoman"


def text(access: Access, user: str = NAME) -> str:
    """The kubeconfig as YAML; user is what the entry is called."""
    cluster: dict[str, str] = {"server": access.server}
    if access.ca_pem:
        cluster["certificate-authority-data"] = base64.b64encode(access.ca_pem).decode()
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": NAME, "cluster": cluster}],
        "users": [{"name": user, "user": {"token": access.token}}],
        "contexts": [{"name": NAME, "context": {"cluster": NAME, "user": user}}],
        "current-context": NAME,
    }
    return yaml.safe_dump(config, sort_keys=False)


def write(file: Path, access: Access, user: str = NAME) -> None:
    """Write it, mode 0600, in one step."""
    write_private(file, text(access, user).encode())


def of_user(file: Path, user: str) -> Path:
    """Where the kubeconfig of another user stands: beside the administrator's, with the user's name in its own."""
    plain = re.sub(r"[^A-Za-z0-9._-]+", "-", user).strip("-.")
    return file.with_name(f"{file.stem}-{plain}{file.suffix}")
