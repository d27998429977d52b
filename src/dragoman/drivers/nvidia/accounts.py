"""Which service accounts do the parts of the GPU stack have, and what may each do?"""

from __future__ import annotations

from dragoman.api.shape import Object

DCGM_ACCOUNT = ("kube-system", "nvidia-dcgm-exporter")


def account(namespace: str, name: str, everywhere: list[Object], here: list[Object]) -> tuple[Object, ...]:
    """A service account, and what it may do everywhere and in its namespace."""
    meta = {"name": name, "namespace": namespace}
    subject = {"kind": "ServiceAccount", "name": name, "namespace": namespace}
    group = "rbac.authorization.k8s.io"
    version = f"{group}/v1"

    def bound(kind: str, metadata: Object, rules: list[Object]) -> tuple[Object, ...]:
        ref = {"apiGroup": group, "kind": kind, "name": name}
        return (
            {"apiVersion": version, "kind": kind, "metadata": metadata, "rules": rules},
            {
                "apiVersion": version,
                "kind": f"{kind}Binding",
                "metadata": metadata,
                "roleRef": ref,
                "subjects": [subject],
            },
        )

    return (
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": meta},
        *bound("ClusterRole", {"name": name}, everywhere),
        *(bound("Role", meta, here) if here else ()),
    )
