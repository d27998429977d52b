"""What may admission and strategies ask the cluster? The narrow protocol between them and the registry.

The registry satisfies it and hands itself in; nothing below the registry imports the registry. Reading only: who
admits or prepares an object changes that object, never the store.
"""

from __future__ import annotations

from typing import Protocol

from dragoman.api.gates import Gates
from dragoman.api.kinds import Kind
from dragoman.apiserver.access.authorizer import Authorizer
from dragoman.apiserver.store import EVERYTHING, Selection, StoredObject


class Lookup(Protocol):
    """The stored objects, as they are now, and what the server itself knows."""

    @property
    def gates(self) -> Gates:
        """Feature gates of this server."""
        ...

    @property
    def ca_text(self) -> str:
        """The certificate authority of this server in PEM; empty without TLS."""
        ...

    @property
    def authorizer(self) -> Authorizer:
        """Who may do what."""
        ...

    def find(self, kind: Kind, name: str, namespace: str = "") -> StoredObject | None:
        """The record of an object, None where there is none."""
        ...

    def select(self, kind: Kind, selection: Selection = EVERYTHING) -> list[StoredObject]:
        """All records of the selection, ordered by namespace and name."""
        ...

    def now_text(self) -> str:
        """Now as metav1.Time."""
        ...

    def free_cluster_ip(self) -> str:
        """An address for services that none has."""
        ...

    def suffix(self) -> str:
        """Random characters for a generated name."""
        ...
