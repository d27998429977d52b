"""Writes src/dragoman/apiserver/facts/roles.json.gz: the roles and bindings that every cluster has.

Source: the policy that Kubernetes 1.37.2 creates at its start (Apache-2.0), as its repository lists it below
plugin/pkg/auth/authorizer/rbac/bootstrappolicy, of the Go module k8s.io/kubernetes. Only names, labels, rules, roles
and subjects are kept; the form is ours.

Run: python tools/make_roles.py "$(go env GOMODCACHE)/k8s.io/kubernetes@v1.37.2"
"""

from __future__ import annotations

import gzip
import json
import sys
from pathlib import Path
from typing import Any

import yaml

FACTS = Path(__file__).parent.parent / "src" / "dragoman" / "apiserver" / "facts"
POLICY = Path("plugin/pkg/auth/authorizer/rbac/bootstrappolicy/testdata")
# File and the table it belongs to. With all gates on: a right to a kind that is not served gives nothing.
FILES = {
    "cluster-roles-featuregates": "ClusterRole",
    "controller-roles": "ClusterRole",
    "namespace-roles": "Role",
    "cluster-role-bindings": "ClusterRoleBinding",
    "controller-role-bindings": "ClusterRoleBinding",
    "namespace-role-bindings": "RoleBinding",
}
BOOTSTRAP_LABEL = "kubernetes.io/bootstrapping"


def row(item: dict[str, Any]) -> dict[str, Any]:
    """One object without what all of them share."""
    meta = item["metadata"]
    out: dict[str, Any] = {"name": meta["name"]}
    if meta.get("namespace"):
        out["namespace"] = meta["namespace"]
    labels = {key: value for key, value in meta.get("labels", {}).items() if key != BOOTSTRAP_LABEL}
    if labels:
        out["labels"] = labels
    for field in ("rules", "aggregationRule", "roleRef", "subjects"):
        if item.get(field):
            out[field] = item[field]
    return out


def main() -> None:
    """Writes the file."""
    folder = Path(sys.argv[1]) / POLICY
    tables: dict[str, list[dict[str, Any]]] = {kind: [] for kind in FILES.values()}
    for name, kind in FILES.items():
        for item in yaml.safe_load((folder / f"{name}.yaml").read_text())["items"]:
            tables[kind].append(row(item))
    body = json.dumps(tables, separators=(",", ":"), sort_keys=True).encode()
    (FACTS / "roles.json.gz").write_bytes(gzip.compress(body, 9, mtime=0))


if __name__ == "__main__":
    main()
