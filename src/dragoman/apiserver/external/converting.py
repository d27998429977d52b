"""How does a custom resource become one of another version where its definition names a webhook?

ConversionReview of apiextensions.k8s.io. Only labels and annotations of the metadata may change on the way. Source: the
webhook converter of k8s.io/apiextensions-apiserver.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from dragoman.api.shape import Object
from dragoman.apiserver.custom.kind import CustomKind
from dragoman.apiserver.external.calling import Caller
from dragoman.apiserver.external.review import WebhookCallFailed
from dragoman.apiserver.status import StatusError
from dragoman.apiserver.store import StoredObject

TIMEOUT_S = 30.0
_REVIEWS = ("v1", "v1beta1")


class Conversion:
    """Calls the conversion webhooks of one server's definitions."""

    def __init__(self, caller: Caller, uid: Callable[[], str]) -> None:
        self._caller = caller
        self._uid = uid

    async def records(self, kind: CustomKind, records: list[StoredObject], version: str) -> list[StoredObject]:
        """Stored objects with their bodies in another version, still without apiVersion and kind."""
        objects = await self.objects(kind, [r.decode() for r in records], kind.versions[0], version)
        pairs = zip(records, objects, strict=True)
        return [msgspec.structs.replace(record, body=msgspec.json.encode(obj)) for record, obj in pairs]

    async def objects(self, kind: CustomKind, objects: list[Object], now: str, wanted: str) -> list[Object]:
        """Objects without apiVersion and kind from one version to another. Raises 500."""
        if not objects or now == wanted:
            return objects
        webhook: Object = kind.definition.conversion.get("webhook") or {}
        accepted = webhook.get("conversionReviewVersions") or ()
        review = next((version for version in _REVIEWS if version in accepted), None)
        if review is None:
            raise self._failed(kind, now, f"no accepted review version is known: {', '.join(accepted)}")
        uid = self._uid()
        sent = [{"apiVersion": kind.version_text(now), "kind": kind.kind, **obj} for obj in objects]
        body = {
            "kind": "ConversionReview",
            "apiVersion": f"apiextensions.k8s.io/{review}",
            "request": {"uid": uid, "desiredAPIVersion": kind.version_text(wanted), "objects": sent},
        }
        try:
            answer = await self._caller.call(webhook.get("clientConfig") or {}, body, TIMEOUT_S)
        except WebhookCallFailed as failed:
            raise self._failed(kind, now, str(failed)) from failed
        return self._read(kind, now, wanted, uid, objects, answer)

    def _read(
        self, kind: CustomKind, now: str, wanted: str, uid: str, objects: list[Object], answer: Any
    ) -> list[Object]:
        response = answer.get("response") if isinstance(answer, dict) else None
        if not isinstance(response, dict):
            raise self._failed(kind, now, "the answer has no response")
        if response.get("uid") != uid:
            raise self._failed(kind, now, f"expected response.uid={uid!r}, got {response.get('uid')!r}")
        result = response.get("result") or {}
        if result.get("status") != "Success":
            raise self._failed(kind, now, str(result.get("message") or "the webhook reported no reason"))
        converted = response.get("convertedObjects") or []
        if len(converted) != len(objects):
            raise self._failed(kind, now, f"expected {len(objects)} converted objects, got {len(converted)}")
        return [self._kept(kind, now, wanted, old, new) for old, new in zip(objects, converted, strict=True)]

    def _kept(self, kind: CustomKind, now: str, wanted: str, old: Object, new: Any) -> Object:
        """A converted object with the metadata of the original but for labels and annotations."""
        if not isinstance(new, dict) or new.get("apiVersion") != kind.version_text(wanted):
            raise self._failed(kind, now, f"an object was not converted to {kind.version_text(wanted)}")
        metadata = {**old["metadata"]}
        given: Object = new["metadata"] if isinstance(new.get("metadata"), dict) else {}
        for field in ("labels", "annotations"):
            if given.get(field):
                metadata[field] = given[field]
            else:
                metadata.pop(field, None)
        rest = {field: value for field, value in new.items() if field not in ("apiVersion", "kind", "metadata")}
        return {"metadata": metadata, **rest}

    def _failed(self, kind: CustomKind, version: str, why: str) -> StatusError:
        text = f"conversion webhook for {kind.version_text(version)}, Kind={kind.kind} failed: {why}"
        return StatusError(500, "InternalError", text)
