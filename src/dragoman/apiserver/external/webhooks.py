"""Which webhooks are asked about a write, and what comes of their answers?

Mutating ones are asked in turn, validating ones at once. Source: k8s.io/apiserver pkg/admission/plugin/webhook.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

import msgspec

from dragoman.api.kinds import BY_NAME
from dragoman.api.shape import Object
from dragoman.apiserver.access.authorizer import Authorizer
from dragoman.apiserver.admission import Attributes
from dragoman.apiserver.external.calling import TIMEOUT_S, Caller
from dragoman.apiserver.external.conditions import ConditionFailed, MatchCondition, hold, values_of
from dragoman.apiserver.external.expressions import BUDGET_CONDITIONS, CostBudget, Evaluation, Has, compiled
from dragoman.apiserver.external.matching import Matching, is_exempt, of_webhook
from dragoman.apiserver.external.review import (
    KNOWN,
    Answer,
    BadReview,
    WebhookCallFailed,
    answer_of,
    denial,
    review_of,
    versioned,
)
from dragoman.apiserver.patch import json_patch
from dragoman.apiserver.patch_failed import PatchFailed
from dragoman.apiserver.status import StatusError, bad_request, forbidden
from dragoman.apiserver.store import Store, StoredObject
from dragoman.cel import types as t
from dragoman.runtime import log

MUTATING: Final = BY_NAME["MutatingWebhookConfiguration"]
VALIDATING: Final = BY_NAME["ValidatingWebhookConfiguration"]
_QUIET: Final = frozenset(("None", "NoneOnDryRun"))
_log = log.get("apiserver")
WebhookRestore = Callable[[Attributes, Object, str], None]
"""Takes a changed object in a version back into the attributes, defaulted."""


class Webhook(msgspec.Struct, frozen=True):
    """One webhook of a configuration."""

    name: str
    key: str
    """Configuration and webhook: what it is distinguished by."""
    matching: Matching
    conditions: tuple[MatchCondition, ...]
    client: Object
    versions: tuple[str, ...]
    ignores_failure: bool
    has_side_effects: bool
    again: bool
    timeout_s: float


class Unasked(Exception):
    """A webhook could not be asked, or gave no proper answer."""


def webhooks_of(record: StoredObject) -> list[Webhook]:
    """The webhooks of a configuration, in order."""
    out: list[Webhook] = []
    for entry in record.decode().get("webhooks") or ():
        conditions = tuple(
            MatchCondition(c.get("name", ""), compiled(c.get("expression", ""), Has(authorizer=True), (t.BOOL,)))
            for c in entry.get("matchConditions") or ()
        )
        out.append(
            Webhook(
                entry.get("name", ""),
                f"{record.name}/{entry.get('name', '')}",
                of_webhook(entry),
                conditions,
                entry.get("clientConfig") or {},
                tuple(entry.get("admissionReviewVersions") or ()),
                entry.get("failurePolicy") == "Ignore",
                entry.get("sideEffects") not in _QUIET,
                entry.get("reinvocationPolicy") == "IfNeeded",
                float(entry.get("timeoutSeconds") or TIMEOUT_S),
            )
        )
    return out


class Webhooks:
    """The webhooks of one server. uid makes the uid of a review."""

    def __init__(self, store: Store, authorizer: Authorizer, caller: Caller, uid: Callable[[], str]) -> None:
        self._store = store
        self._authorizer = authorizer
        self._caller = caller
        self._uid = uid
        self._known: dict[str, tuple[int, list[Webhook]]] = {}

    def _all(self, mutating: bool) -> list[Webhook]:
        kind = MUTATING if mutating else VALIDATING
        shelf = self._store.shelf(kind)
        known = self._known.get(kind.kind)
        if known is None or known[0] != shelf.changed:
            found = [webhook for record in self._store.select(kind) for webhook in webhooks_of(record)]
            known = self._known[kind.kind] = shelf.changed, found
        return known[1]

    def handles(self, attributes: Attributes) -> bool:
        """Whether any webhook's rules fit."""
        if is_exempt(attributes):
            return False
        return any(
            webhook.matching.version(attributes) is not None
            for mutating in (True, False)
            for webhook in self._all(mutating)
        )

    def reinvocable(self) -> set[str]:
        """The keys of all mutating webhooks that want to be asked again where others have changed the object."""
        return {webhook.key for webhook in self._all(mutating=True) if webhook.again}

    async def mutate(
        self, attributes: Attributes, restore: WebhookRestore, only: set[str] | None = None
    ) -> tuple[bool, set[str]]:
        """Ask the mutating webhooks in turn; only: those to ask again.

        Returns whether the object changed, and the keys of those that want to be asked again because of that.
        """
        again: set[str] = set()
        asked: set[str] = set()
        changed = False
        for webhook in self._all(mutating=True):
            if only is not None and webhook.key not in only:
                continue
            version = self._wanted(webhook, attributes)
            if version is None:
                continue
            answer = await self._asked(webhook, attributes, version, mutating=True)
            if answer is not None and answer.patch and _patched(webhook, attributes, version, answer, restore):
                changed = True
                again |= asked
            if webhook.again:
                asked.add(webhook.key)
        return changed, again

    async def validate(self, attributes: Attributes) -> None:
        """Ask all validating webhooks at once; the first in order that refuses is heard."""
        wanted = [
            (webhook, version)
            for webhook in self._all(mutating=False)
            if (version := self._wanted(webhook, attributes)) is not None
        ]
        outcomes = await asyncio.gather(
            *(self._asked(webhook, attributes, version, mutating=False) for webhook, version in wanted),
            return_exceptions=True,
        )
        for outcome in outcomes:
            if isinstance(outcome, BaseException):
                raise outcome

    def _wanted(self, webhook: Webhook, attributes: Attributes) -> str | None:
        """The version in which to ask a webhook. Raises 404, 403 for conditions that cannot be evaluated."""
        version = webhook.matching.version(attributes)
        if version is None or not webhook.matching.selects(self._store, attributes):
            return None
        if not webhook.conditions:
            return version
        values = values_of(attributes, version, self._authorizer)
        try:
            holds = hold(webhook.conditions, Evaluation(values, {}, CostBudget(BUDGET_CONDITIONS)))
        except ConditionFailed as failed:
            if webhook.ignores_failure:
                return None
            raise forbidden(attributes.kind, attributes.name, str(failed)) from failed
        return version if holds else None

    async def _asked(self, webhook: Webhook, attributes: Attributes, version: str, *, mutating: bool) -> Answer | None:
        """What a webhook says; None for one that may fail and did. Raises Refused for a no."""
        if attributes.write.dry_run and webhook.has_side_effects:
            raise bad_request(f'admission webhook "{webhook.name}" does not support dry run')
        try:
            answer = await self._call(webhook, attributes, version, mutating=mutating)
        except Unasked as unasked:
            text = f'failed calling webhook "{webhook.name}": {unasked}'
            if webhook.ignores_failure:
                _log.warning("webhook failed and is ignored", webhook=webhook.name, why=str(unasked))
                return None
            details: Object = {"causes": [{"message": text}]}
            raise StatusError(500, "InternalError", f"Internal error occurred: {text}", details) from unasked
        attributes.warnings.extend(answer.warnings)
        if not answer.allowed:
            raise denial(webhook.name, answer.status)
        return answer

    async def _call(self, webhook: Webhook, attributes: Attributes, version: str, *, mutating: bool) -> Answer:
        api = next((api for api in webhook.versions if api in KNOWN), None)
        if api is None:
            known = "webhook does not accept known AdmissionReview versions (v1, v1beta1)"
            raise Unasked(f"could not create admission objects: {known}")
        uid = self._uid()
        body = review_of(attributes, version, uid, api)
        try:
            reply = await self._caller.call(webhook.client, body, webhook.timeout_s)
        except WebhookCallFailed as failed:
            raise Unasked(f"failed to call webhook: {failed}") from failed
        try:
            return answer_of(reply, uid, api, mutating=mutating)
        except BadReview as bad:
            raise Unasked(f"received invalid webhook response: {bad}") from bad


def _patched(webhook: Webhook, attributes: Attributes, version: str, answer: Answer, restore: WebhookRestore) -> bool:
    """Apply a patch; whether it changed anything."""
    before = versioned(attributes, attributes.obj, version)
    if before is None:
        what = "attempted to modify the object, which is not supported for this operation"
        raise StatusError(500, "InternalError", f'Internal error occurred: admission webhook "{webhook.name}" {what}')
    assert answer.patch is not None, "asked only where there is one"
    try:
        after = json_patch(before, answer.patch)
    except PatchFailed as failed:
        raise StatusError(500, "InternalError", f"Internal error occurred: {failed.what}") from failed
    if after == before:
        return False
    restore(attributes, after, version)
    return True
