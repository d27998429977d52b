"""May this user give these rights away? Nobody grants by a role or binding what he does not hold himself.

Unless he may "escalate" roles or "bind" the role. Source: k8s.io/kubernetes pkg/registry/rbac.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from dragoman.api.kinds import Kind
from dragoman.api.shape import Object
from dragoman.apiserver.access.attributes import Attributes, quoted
from dragoman.apiserver.access.authorizer import MASTERS, Authorizer
from dragoman.apiserver.access.rbac import CLUSTER_ROLE, GROUP, ROLE
from dragoman.apiserver.access.rules import PolicyRule, compacted, go_list, missing, rules_of, shown
from dragoman.apiserver.request import User
from dragoman.apiserver.status import StatusError, forbidden, not_found

EVERYTHING: Final = (PolicyRule(("*",), ("*",), ("*",)), PolicyRule(("*",), urls=("*",)))
GUARDED: Final = frozenset(("Role", "ClusterRole", "RoleBinding", "ClusterRoleBinding"))
_AGGREGATION: Final = "must have cluster-admin privileges to use the aggregationRule"


def check(authorizer: Authorizer, kind: Kind, obj: Object, old: Object | None, user: User) -> None:
    """Refuse a role or binding that gives its writer more than he has. Raises 403, 404 for a role that is not there."""
    if authorizer.mode == "allow" or MASTERS in user.groups:
        return
    if old is not None and _only_collects(obj, old):
        return
    if kind.kind in ("Role", "ClusterRole"):
        _check_role(authorizer, kind, obj, old, user)
    else:
        _check_binding(authorizer, kind, obj, user)


def _only_collects(obj: Object, old: Object) -> bool:
    """Whether a write changes only what garbage collection needs: owners and finalizers."""

    def rest(entry: Object) -> Object:
        left = ("ownerReferences", "finalizers", "managedFields", "resourceVersion", "generation")
        return {**entry, "metadata": {k: v for k, v in entry["metadata"].items() if k not in left}}

    return rest(obj) == rest(old)


def _check_role(authorizer: Authorizer, kind: Kind, obj: Object, old: Object | None, user: User) -> None:
    meta = obj["metadata"]
    name, namespace = meta["name"], meta.get("namespace", "")
    if authorizer.allows(Attributes(user, "escalate", GROUP, "*", kind.plural, namespace=namespace, name=name)):
        return
    _holds(authorizer, kind, name, rules_of(obj), namespace, user)
    if _aggregates(obj) or _aggregates(old or {}):
        try:
            _holds(authorizer, kind, name, EVERYTHING, namespace, user)
        except StatusError:
            raise forbidden(kind, name, _AGGREGATION) from None


def _aggregates(role: Object) -> bool:
    return bool((role.get("aggregationRule") or {}).get("clusterRoleSelectors"))


def _check_binding(authorizer: Authorizer, kind: Kind, obj: Object, user: User) -> None:
    meta = obj["metadata"]
    namespace = meta.get("namespace", "")
    reference: Object = obj.get("roleRef") or {}
    role = ROLE if reference.get("kind") == "Role" else CLUSTER_ROLE
    name = str(reference.get("name", ""))
    if authorizer.allows(Attributes(user, "bind", GROUP, "*", role.plural, namespace=namespace, name=name)):
        return
    rules = authorizer.rbac.rules_of_role(reference, namespace)
    if rules is None:
        raise not_found(role, name)
    _holds(authorizer, kind, meta["name"], rules, namespace, user)


def _holds(
    authorizer: Authorizer, kind: Kind, name: str, wanted: Iterable[PolicyRule], namespace: str, user: User
) -> None:
    lacking = missing(authorizer.rbac.rules_for(user, namespace), wanted)
    if not lacking:
        return
    listed = "\n".join(sorted({shown(rule) for rule in compacted(lacking)}))
    who = f"user {quoted(user.name)} (groups={go_list(user.groups)})"
    raise forbidden(kind, name, f"{who} is attempting to grant RBAC permissions not currently held:\n{listed}")
