"""What is known of Kubernetes' API by name and number? Compressed tables, each made by a script in tools/.

schemas.json.gz   tools/make_schemas.py          definitions of Kubernetes 1.37's OpenAPI document, without texts
protobuf.json.gz  tools/make_protobuf_table.py   messages and field numbers of k8s.io/api and k8s.io/apimachinery
roles.json.gz     tools/make_roles.py            roles and bindings that Kubernetes 1.37 creates at its start
"""

from __future__ import annotations

import gzip
from importlib.resources import files
from typing import Any

import msgspec


def read(name: str) -> Any:
    """The table `NAME.json.gz`. The caller keeps it: every call reads the file."""
    packed = files(__name__).joinpath(f"{name}.json.gz").read_bytes()
    return msgspec.json.decode(gzip.decompress(packed))
