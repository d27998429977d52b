"""May this user do that, by the roles and bindings that are stored? The RBAC authorizer.

Answers are kept until a role or binding changes; a question costs a look-up. Never changes anything.
Source: k8s.io/kubernetes plugin/pkg/auth/authorizer/rbac and pkg/registry/rbac/validation.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from dragoman.api.kinds import BY_NAME
from dragoman.api.shape import Object
from dragoman.apiserver.access.attributes import Attributes, quoted
from dragoman.apiserver.access.rules import PolicyRule, rules_of
from dragoman.apiserver.request import User
from dragoman.apiserver.store import Store

ROLE, CLUSTER_ROLE = BY_NAME["Role"], BY_NAME["ClusterRole"]
ROLE_BINDING, CLUSTER_ROLE_BINDING = BY_NAME["RoleBinding"], BY_NAME["ClusterRoleBinding"]
KINDS: Final = (ROLE, CLUSTER_ROLE, ROLE_BINDING, CLUSTER_ROLE_BINDING)
GROUP: Final = "rbac.authorization.k8s.io"
ANSWERS_MAX: Final = 65_536
"""Answers kept at most; then all are forgotten."""


class Verdict(msgspec.Struct, frozen=True):
    """An authorizer's answer; allowed False is "no opinion": another one may say yes."""

    allowed: bool
    reason: str = ""


class Grant(msgspec.Struct, frozen=True):
    """Rules that a binding gives to a subject, and how the binding is called; errors of roles that are not there."""

    source: str
    rules: tuple[PolicyRule, ...]
    error: str = ""


class _Binding(msgspec.Struct, frozen=True):
    name: str
    namespace: str
    role: str
    is_cluster_role: bool
    subject: Object


class Rbac:
    """Roles and bindings of one store."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._shelves = tuple(store.shelf(kind) for kind in KINDS)
        self._seen = -1
        self._bindings: dict[tuple[str, str, str], list[_Binding]] = {}
        self._grants: dict[tuple[str, tuple[str, ...], str], tuple[Grant, ...]] = {}
        self._answers: dict[tuple[str, tuple[str, ...], str, str, str, str], bool | frozenset[str]] = {}

    def allows(self, asked: Attributes) -> bool:
        """Yes or no."""
        self._refresh()
        user = asked.user
        key = (user.name, user.groups, asked.namespace, asked.verb, asked.group, asked.combined or asked.path)
        answer = self._answers.get(key)
        if answer is None:
            if len(self._answers) >= ANSWERS_MAX:
                self._answers.clear()
            answer = self._answers[key] = self._answer(asked)
        return answer if answer is True or answer is False else asked.name in answer

    def explain(self, asked: Attributes) -> Verdict:
        """Yes and by which binding, or no and which roles are missing."""
        errors: list[str] = []
        for grant in self.grants(asked.user, asked.namespace):
            if grant.error:
                errors.append(grant.error)
            elif any(rule.allows(asked) for rule in grant.rules):
                return Verdict(True, f"RBAC: allowed by {grant.source}")
        if not errors:
            return Verdict(False)
        return Verdict(
            False, f"RBAC: {errors[0] if len(errors) == 1 else '[' + ', '.join(dict.fromkeys(errors)) + ']'}"
        )

    def rules_for(self, user: User, namespace: str) -> list[PolicyRule]:
        """All rules that hold for a user in a namespace ("": cluster-wide)."""
        return [rule for grant in self.grants(user, namespace) for rule in grant.rules]

    def rules_of_role(self, reference: Object, namespace: str) -> tuple[PolicyRule, ...] | None:
        """The rules of a roleRef; None if the role is not there."""
        if reference.get("kind") == "Role":
            record = self._store.get(ROLE, namespace, str(reference.get("name", "")))
        else:
            record = self._store.get(CLUSTER_ROLE, "", str(reference.get("name", "")))
        return rules_of(record.decode()) if record else None

    def grants(self, user: User, namespace: str) -> tuple[Grant, ...]:
        """What bindings give to a user in a namespace, cluster-wide ones first."""
        self._refresh()
        key = (user.name, user.groups, namespace)
        found = self._grants.get(key)
        if found is None:
            if len(self._grants) >= ANSWERS_MAX:
                self._grants.clear()
            listed = [*self._bound(user, ""), *(self._bound(user, namespace) if namespace else ())]
            found = self._grants[key] = tuple(map(self._grant, listed))
        return found

    # ---- how it is found

    def _answer(self, asked: Attributes) -> bool | frozenset[str]:
        names: set[str] = set()
        for grant in self.grants(asked.user, asked.namespace):
            for rule in grant.rules:
                if not asked.resource:
                    if rule.allows(asked):
                        return True
                elif rule.covers_kind(asked):
                    if not rule.names:
                        return True
                    names.update(rule.names)
        return frozenset(names) if names else False

    def _refresh(self) -> None:
        # Asked for every request. Versions only grow, and no two writes share one: the newest says whether any is new.
        roles, cluster_roles, bindings, cluster_bindings = self._shelves
        seen = max(roles.changed, cluster_roles.changed, bindings.changed, cluster_bindings.changed)
        if seen == self._seen:
            return
        self._seen = seen
        self._answers.clear()
        self._grants.clear()
        self._bindings = {}
        for kind in (CLUSTER_ROLE_BINDING, ROLE_BINDING):
            for record in self._store.select(kind):
                self._index(record.name, record.namespace, record.decode())

    def _index(self, name: str, namespace: str, obj: Object) -> None:
        reference = obj.get("roleRef") or {}
        given: set[tuple[str, str]] = set()
        for subject in obj.get("subjects") or ():
            kind, who = subject.get("kind"), str(subject.get("name", ""))
            if kind == "ServiceAccount":
                home = subject.get("namespace") or namespace
                if not home:
                    continue
                kind, who = "User", f"system:serviceaccount:{home}:{who}"
            if kind not in ("User", "Group") or (kind, who) in given:
                continue
            given.add((kind, who))
            binding = _Binding(
                name, namespace, str(reference.get("name", "")), reference.get("kind") != "Role", subject
            )
            self._bindings.setdefault((namespace, kind, who), []).append(binding)

    def _bound(self, user: User, namespace: str) -> list[_Binding]:
        found = list(self._bindings.get((namespace, "User", user.name), ()))
        for group in user.groups:
            found.extend(self._bindings.get((namespace, "Group", group), ()))
        return found

    def _grant(self, binding: _Binding) -> Grant:
        reference: dict[str, Any] = {"kind": "ClusterRole" if binding.is_cluster_role else "Role", "name": binding.role}
        source = _described(binding, reference)
        rules = self.rules_of_role(reference, binding.namespace)
        if rules is None:
            return Grant(source, (), f"{reference['kind'].lower()}.{GROUP} {quoted(binding.role)} not found")
        return Grant(source, rules)


def _described(binding: _Binding, reference: Object) -> str:
    kind = "RoleBinding" if binding.namespace else "ClusterRoleBinding"
    name = f"{binding.name}/{binding.namespace}" if binding.namespace else binding.name
    subject = binding.subject
    who = str(subject.get("name", ""))
    if subject.get("kind") == "ServiceAccount":
        who = f"{who}/{subject.get('namespace') or binding.namespace}"
    role = f"{reference['kind']} {quoted(reference['name'])}"
    return f"{kind} {quoted(name)} of {role} to {subject.get('kind')} {quoted(who)}"
