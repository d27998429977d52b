"""In which order is admission of users asked? Policies, then webhooks; after a change those that want to, once more.

The `External` of a server. Source: k8s.io/apiserver pkg/admission (reinvocation) and pkg/server/plugins.go (order).
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from functools import cached_property
from typing import TYPE_CHECKING, Final

from dragoman.api.kinds import BY_NAME
from dragoman.api.shape import Object
from dragoman.apiserver import admission
from dragoman.apiserver.admission import Attributes
from dragoman.apiserver.external.calling import Caller
from dragoman.apiserver.external.converting import Conversion
from dragoman.apiserver.lookup import Lookup
from dragoman.apiserver.patch import copy_json
from dragoman.apiserver.status import StatusError
from dragoman.apiserver.store import Store
from dragoman.apiserver.versions import to_stored

if TYPE_CHECKING:
    from dragoman.apiserver.external.policies import Policies
    from dragoman.apiserver.external.webhooks import Webhooks

ASKING: Final = (
    "ValidatingAdmissionPolicy",
    "MutatingAdmissionPolicy",
    "ValidatingWebhookConfiguration",
    "MutatingWebhookConfiguration",
)
"""The kinds whose objects want to be asked about writes."""


class AdmissionChain:
    """Policies and webhooks of one server. `aclose` it."""

    def __init__(self, lookup: Lookup, store: Store, uid: Callable[[], str], now: Callable[[], datetime]) -> None:
        self._lookup = lookup
        self._now = now
        self._caller = Caller(store)
        self.conversion = Conversion(self._caller, uid)
        self._store = store
        self._uid = uid
        self._shelves = tuple(store.shelf(BY_NAME[name]) for name in ASKING)

    # Made with the first object that wants to be asked: most clusters have none, and expressions are a lot to load.

    @cached_property
    def _webhooks(self) -> Webhooks:
        from dragoman.apiserver.external.webhooks import Webhooks

        return Webhooks(self._store, self._lookup.authorizer, self._caller, self._uid)

    @cached_property
    def _policies(self) -> Policies:
        from dragoman.apiserver.external.policies import Policies

        return Policies(self._store, self._lookup.authorizer)

    def handles(self, attributes: Attributes) -> bool:
        """Whether any policy or webhook may have something to say."""
        for shelf in self._shelves:
            if shelf.records:
                return self._policies.handles(attributes) or self._webhooks.handles(attributes)
        return False

    async def mutate(self, attributes: Attributes) -> None:
        """Let mutating policies, then webhooks change the object. Raises Refused."""
        if attributes.operation == "CONNECT":
            await self._webhooks.mutate(attributes, _unchanged)
            return
        before = copy_json(attributes.obj) if attributes.obj is not None else None
        changed, policies = self._policies.mutate(attributes, self._restore)
        altered, webhooks = await self._webhooks.mutate(attributes, self._restore)
        if not changed and not altered:
            return
        if altered:
            policies |= self._policies.reinvocable(attributes)
        # What the cluster decides is decided again, over what others have made of the object.
        first = copy_json(attributes.obj) if attributes.obj is not None else None
        admission.mutate(self._lookup, attributes)
        if policies:
            more, _ = self._policies.mutate(attributes, self._restore, policies)
            webhooks |= self._webhooks.reinvocable() if more or first != attributes.obj else set()
        if webhooks:
            await self._webhooks.mutate(attributes, self._restore, webhooks)
        self._keep_identity(attributes, before)

    async def validate(self, attributes: Attributes) -> None:
        """Let policies, then webhooks judge. Raises Refused."""
        self._policies.validate(attributes)
        await self._webhooks.validate(attributes)

    def _restore(self, attributes: Attributes, changed: Object, version: str) -> None:
        """A changed object back into its stored form; a scale or binding below an object is not changed so."""
        if attributes.subresource in ("scale", "binding"):
            return
        if not isinstance(changed.get("metadata"), dict):
            raise StatusError(500, "InternalError", "Internal error occurred: admission left no object behind")
        attributes.obj = to_stored(attributes.kind, version, changed, self._now())

    def _keep_identity(self, attributes: Attributes, before: Object | None) -> None:
        if before is None or attributes.obj is None:
            return
        meta = attributes.obj["metadata"]
        for field in ("name", "namespace", "uid", "resourceVersion", "generation", "creationTimestamp"):
            if field in before["metadata"]:
                meta[field] = before["metadata"][field]
            else:
                meta.pop(field, None)

    async def aclose(self) -> None:
        """End all connections."""
        await self._caller.close()


def _unchanged(attributes: Attributes, changed: Object, version: str) -> None:
    """What a session is opened with stays as the client asked."""
