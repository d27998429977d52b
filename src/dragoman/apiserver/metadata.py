"""What does the server do with metadata? Names, identity, timestamps, what a write may not change.

Rules are those of metav1.ObjectMeta for every kind. Works on the `metadata` dict in place.
"""

from __future__ import annotations

from typing import Any

from dragoman.api.kinds import Kind
from dragoman.api.shape import Object
from dragoman.apiserver.status import bad_request, conflict
from dragoman.runtime.entropy import Entropy

NAME_MAX = 63
SUFFIX = 5
_SERVER_SETS = ("uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds", "generation")


def check_type(kind: Kind, version: str, obj: Object, *, required: bool = False) -> None:
    """Refuse an object of another apiVersion or kind than the path says."""
    expected = kind.version_text(version or kind.versions[0])
    got, got_kind = obj.get("apiVersion"), obj.get("kind")
    if required and (not got or not got_kind):
        raise bad_request("apiVersion and kind must be set")
    if got and got != expected:
        raise bad_request(
            f"the API version in the data ({got}) does not match the expected API version ({expected})",
        )
    if got_kind and got_kind != kind.kind:
        raise bad_request(f"the kind in the data ({got_kind}) does not match the expected kind ({kind.kind})")


def own(obj: Object) -> Object:
    """The metadata of an object as a dict of its own, set in the object. Raises 400."""
    meta = obj.get("metadata")
    if meta is not None and not isinstance(meta, dict):
        raise bad_request("metadata must be an object")
    obj["metadata"] = {**(meta or {})}
    made: Object = obj["metadata"]
    return made


def begin(kind: Kind, obj: Object, namespace: str) -> Object:
    """The metadata of a new object in the namespace of the request; what only the server sets is gone."""
    meta = own(obj)
    if kind.namespaced:
        sent = meta.get("namespace")
        if sent and sent != namespace:
            raise bad_request("the namespace of the provided object does not match the namespace sent on the request")
        meta["namespace"] = namespace
    else:
        meta.pop("namespace", None)
    if meta.pop("resourceVersion", None):
        raise bad_request("resourceVersion should not be set on objects to be created")
    for field in (*_SERVER_SETS, "selfLink"):
        meta.pop(field, None)
    return meta


def generate(prefix: str, entropy: Entropy) -> str:
    """A name for generateName."""
    return prefix[: NAME_MAX - SUFFIX] + entropy.suffix(SUFFIX)


def stamp(meta: Object, *, uid: str, now: str, generation: bool) -> None:
    """Give a new object its identity."""
    meta["uid"] = uid
    meta["creationTimestamp"] = now
    if generation:
        meta["generation"] = 1


def check_identity(kind: Kind, meta: Object, name: str, namespace: str) -> None:
    """Refuse a patch that renames or moves."""
    if meta.get("name", name) != name:
        raise bad_request(
            f"the name of the object ({meta['name']}) does not match the name on the URL ({name})",
        )
    if kind.namespaced and (meta.get("namespace") or namespace) != namespace:
        raise bad_request(
            f"the namespace of the object ({meta['namespace']}) does not match the namespace on the URL ({namespace})"
        )


def carry_over(kind: Kind, new: Object, old: Object, kept: tuple[str, ...]) -> None:
    """Put back what no update changes, and the fields in `kept`. Raises 409 on another uid."""
    uid = new.get("uid")
    if uid and uid != old.get("uid"):
        raise conflict(
            kind,
            old["name"],
            f"Precondition failed: UID in precondition: {uid}, UID in object meta: {old.get('uid', '')}",
        )
    for field in (*_SERVER_SETS, "name", "namespace", "generateName", *kept):
        if field in old:
            new[field] = old[field]
        else:
            new.pop(field, None)
    new.pop("selfLink", None)
    for field in ("finalizers", "ownerReferences", "labels", "annotations"):
        if field in new and not new[field] and field not in old:
            del new[field]


def same(new: Object, old: Object) -> bool:
    """Whether a write changes nothing that counts; times in managedFields do not."""
    for field in new.keys() | old.keys():
        if field != "metadata" and new.get(field) != old.get(field):
            return False
    fresh, stored = new["metadata"], old["metadata"]
    for field in fresh.keys() | stored.keys():
        if field == "managedFields":
            if _timeless(fresh.get(field)) != _timeless(stored.get(field)):
                return False
        elif field != "resourceVersion" and fresh.get(field) != stored.get(field):
            return False
    return True


def _timeless(entries: Any) -> list[Any]:
    return [{k: v for k, v in entry.items() if k != "time"} for entry in entries or []]
