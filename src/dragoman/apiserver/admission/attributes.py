"""What does admission know of a write, and what is it asked? The values and protocols of the chain."""

from __future__ import annotations

from typing import ClassVar, Literal, Protocol

import msgspec

from dragoman.api.kinds import Kind
from dragoman.api.shape import Object
from dragoman.apiserver.lookup import Lookup
from dragoman.apiserver.request import Write

Operation = Literal["CREATE", "UPDATE", "DELETE", "CONNECT"]


class Attributes(msgspec.Struct):
    """One write on its way to the store (admission.Attributes of upstream).

    obj: the object as it would be stored, in the stored version, without apiVersion and kind; plugins change it in
    place or replace it. None for DELETE. old: what is stored now; None for CREATE. `write` says who asks (user), in
    which version, whether it is a dry run. Warnings end as headers of the reply.
    """

    kind: Kind
    operation: Operation
    namespace: str
    name: str
    obj: Object | None
    old: Object | None
    write: Write
    subresource: str = ""
    warnings: list[str] = []


class AdmissionPlugin:
    """One rule of admission. The default admits everything unchanged.

    kinds: whose writes it is asked about; None for all.
    """

    kinds: ClassVar[frozenset[Kind] | None] = None

    def mutate(self, lookup: Lookup, attributes: Attributes) -> None:
        """Add to the object what the cluster decides. Raises Refused."""

    def validate(self, lookup: Lookup, attributes: Attributes) -> None:
        """Refuse by raising Refused; changes nothing."""


class External(Protocol):
    """Admission that may take time: webhooks, and policies that are stored as objects.

    `handles` is asked first and must be cheap. While a call waits, other writes go on: the registry looks again before
    it stores, and starts over or reports a conflict where the object has changed meanwhile.
    """

    def handles(self, attributes: Attributes) -> bool:
        """Whether mutate or validate has anything to do for such a write."""
        ...

    async def mutate(self, attributes: Attributes) -> None:
        """Change `attributes.obj`. Raises Refused."""
        ...

    async def validate(self, attributes: Attributes) -> None:
        """Refuse by raising Refused."""
        ...
