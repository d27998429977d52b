"""A store with roles, bindings and objects, and questions about them."""

from __future__ import annotations

from typing import Any

from dragoman.api.kinds import BY_NAME
from dragoman.apiserver import fields
from dragoman.apiserver.access.attributes import Attributes
from dragoman.apiserver.request import User
from dragoman.apiserver.store import Store, StoredObject

RBAC = "rbac.authorization.k8s.io"


def store() -> Store:
    """An empty one."""
    return Store(fields.fields_of)


def put(into: Store, kind: str, name: str, namespace: str = "", **body: Any) -> StoredObject:
    """Store an object, or replace it."""
    meta = {"name": name, "uid": f"uid-{name}", **body.pop("metadata", {})}
    if namespace:
        meta["namespace"] = namespace
    old = into.get(BY_NAME[kind], namespace, name)
    return into.put(BY_NAME[kind], {"metadata": meta, **body}, old)


def rule(verbs: str, resources: str, groups: str = "", names: str = "") -> dict[str, Any]:
    """A PolicyRule of words; a group `core` is the empty one."""
    listed = ["" if group == "core" else group for group in groups.split()] or [""]
    out = {"verbs": verbs.split(), "apiGroups": listed, "resources": resources.split()}
    return {**out, "resourceNames": names.split()} if names else out


def bind(into: Store, role: str, *subjects: dict[str, str], namespace: str = "", kind: str = "ClusterRole") -> None:
    """Give a role to subjects, in a namespace or everywhere."""
    binding = "RoleBinding" if namespace else "ClusterRoleBinding"
    reference = {"apiGroup": RBAC, "kind": kind, "name": role}
    put(
        into,
        binding,
        f"{role}-{len(into.select(BY_NAME[binding]))}",
        namespace,
        roleRef=reference,
        subjects=list(subjects),
    )


def user(name: str, *groups: str) -> User:
    """Somebody with groups."""
    return User(name, (*groups, "system:authenticated"))


def may(who: User, verb: str, resource: str, group: str = "", *, namespace: str = "", name: str = "") -> Attributes:
    """A question; `pods/log` asks for a subresource, `/metrics` for a path."""
    if resource.startswith("/"):
        return Attributes(who, verb, path=resource)
    resource, _, subresource = resource.partition("/")
    return Attributes(who, verb, group, "v1", resource, subresource, namespace, name)
