"""Who may do what in this cluster? The chain of authorizers: system:masters, nodes, RBAC; or everything to everybody.

One Authorizer per server. It answers; who asks raises `attributes.denied`.
"""

from __future__ import annotations

from typing import Final, Literal

from dragoman.apiserver.access.attributes import Attributes, denied
from dragoman.apiserver.access.node import NODES_GROUP, NodeAuthorizer
from dragoman.apiserver.access.rbac import Rbac, Verdict
from dragoman.apiserver.store import Store

AuthorizationMode = Literal["rbac", "allow"]
MASTERS: Final = "system:masters"
UNAUTHENTICATED: Final = "system:unauthenticated"
ALLOWED: Final = "the server runs with --authorization allow: whoever is authenticated may do everything"


class Authorizer:
    """The rights of one server."""

    def __init__(self, store: Store, mode: AuthorizationMode = "rbac") -> None:
        self.mode = mode
        self.rbac = Rbac(store)
        self._nodes = NodeAuthorizer(store)

    def allows(self, asked: Attributes) -> bool:
        """Yes or no, as cheap as it can be had."""
        groups = asked.user.groups
        if MASTERS in groups or self._allows_all(asked):
            return True
        if NODES_GROUP in groups and self._nodes.decide(asked).allowed:
            return True
        return self.rbac.allows(asked)

    def explain(self, asked: Attributes) -> Verdict:
        """The same with a reason."""
        if MASTERS in asked.user.groups:
            return Verdict(True)
        if self._allows_all(asked):
            return Verdict(True, ALLOWED)
        node = self._nodes.decide(asked)
        if node.allowed:
            return node
        rbac = self.rbac.explain(asked)
        if rbac.allowed:
            return rbac
        return Verdict(False, "\n".join(reason for reason in (node.reason, rbac.reason) if reason))

    def _allows_all(self, asked: Attributes) -> bool:
        return self.mode == "allow" and UNAUTHENTICATED not in asked.user.groups

    def check(self, asked: Attributes) -> None:
        """Raises 403."""
        if not self.allows(asked):
            raise denied(asked, self.explain(asked).reason)
