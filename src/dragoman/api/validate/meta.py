"""Is an object's metadata valid, and may it change so?"""

from __future__ import annotations

from typing import Any

from dragoman.api.meta import parse_time
from dragoman.api.shape import Object, dig, items, objects
from dragoman.api.validate.field import Errors, FieldPath, FieldReason, by_rule, immutable, number
from dragoman.values import names

ANNOTATIONS_MAX = 256 * 1024

_NEVER_CHANGED = ("name", "namespace", "uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds")
_CHECKED = (*_NEVER_CHANGED, "generation", "labels", "annotations", "ownerReferences", "finalizers")
_STANDARD_FINALIZERS = ("kubernetes", "orphan", "foregroundDeletion")


def metadata(obj: Object, reason: FieldReason, *, namespaced: bool, path: FieldPath | None = None) -> Errors:
    """Metadata of an object to be created; `reason` judges its name."""
    meta, path = dig(obj, "metadata"), path or FieldPath("metadata")
    errors: Errors = []
    name, prefix = str(meta.get("name") or ""), str(meta.get("generateName") or "")
    if prefix:
        # A trailing dash is fine in a prefix: something follows it.
        errors += by_rule(f"{prefix[:-1]}a" if prefix.endswith("-") else prefix, path / "generateName", reason)
    if not name:
        if not prefix:
            errors.append((path / "name").required("name or generateName is required"))
    elif why := reason(name):
        errors.append((path / "name").invalid(name, why))
    namespace = str(meta.get("namespace") or "")
    if not namespaced:
        if namespace:
            errors.append((path / "namespace").forbidden("not allowed on this type"))
    elif not namespace:
        errors.append((path / "namespace").required())
    else:
        errors += by_rule(namespace, path / "namespace", names.dns_label)
    if (number(meta, "generation") or 0) < 0:
        errors.append((path / "generation").invalid(meta["generation"], "must be greater than or equal to zero"))
    return errors + _parts(meta, path)


def _parts(meta: Object, path: FieldPath) -> Errors:
    return label_map(meta, path) + annotation_map(meta, path) + _owners(meta, path) + _finalizers(meta, path)


def metadata_update(new: Object, old: Object) -> Errors:
    """Metadata of an object that changes."""
    meta, before, path = dig(new, "metadata"), dig(old, "metadata"), FieldPath("metadata")
    if all(meta.get(field) == before.get(field) for field in _CHECKED):
        return []  # as it was judged before: most writes of status
    errors: Errors = []
    for field in _NEVER_CHANGED:
        if field.endswith("Timestamp") and _same_instant(meta.get(field), before.get(field)):
            continue
        errors += immutable(meta.get(field) or None, before.get(field) or None, path / field)
    generation, earlier = number(meta, "generation") or 0, number(before, "generation") or 0
    if generation < earlier:
        errors.append((path / "generation").invalid(generation, "must not be decremented"))
    if before.get("deletionTimestamp"):
        added = sorted({str(f) for f in items(meta, "finalizers")} - {str(f) for f in items(before, "finalizers")})
        if added:
            found = ", ".join(f'"{name}"' for name in added)
            detail = (
                "no new finalizers can be added if the object is being deleted, "
                f"found new finalizers []string{{{found}}}"
            )
            errors.append((path / "finalizers").forbidden(detail))
    return errors + _parts(meta, path)


def _same_instant(one: Any, two: Any) -> bool:
    try:
        return parse_time(str(one)) == parse_time(str(two))
    except ValueError:
        return False


def label_map(meta: Object, path: FieldPath, field: str = "labels") -> Errors:
    """Keys and values of labels."""
    place = path / field
    errors: Errors = []
    for key, value in sorted(dig(meta, field).items()):
        errors += by_rule(key, place, names.label_key)
        errors += by_rule("" if value is None else value, place, names.label_value)
    return errors


def annotation_map(meta: Object, path: FieldPath) -> Errors:
    """Keys of annotations, and their size all together."""
    place = path / "annotations"
    errors: Errors = []
    size = 0
    for key, value in sorted(dig(meta, "annotations").items()):
        if why := names.label_key(key.lower()):
            errors.append(place.invalid(key, why))
        size += len(key.encode()) + len(str(value or "").encode())
    if size > ANNOTATIONS_MAX:
        errors.append(place.too_long(ANNOTATIONS_MAX))
    return errors


def _owners(meta: Object, path: FieldPath) -> Errors:
    place = path / "ownerReferences"
    errors: Errors = []
    controllers: list[str] = []
    for index, owner in enumerate(objects(meta, "ownerReferences")):
        at = place[index]
        for field in ("apiVersion", "kind", "name", "uid"):
            if not owner.get(field):
                word = "version" if field == "apiVersion" else field
                errors.append((at / field).invalid("", f"{word} must not be empty"))
        if owner.get("kind") == "Event" and str(owner.get("apiVersion")) in ("v1", "events.k8s.io/v1"):
            errors.append(
                at.invalid(owner.get("kind"), f"{owner['apiVersion']}, Kind=Event is disallowed from being an owner")
            )
        if owner.get("controller") is True:
            controllers.append(str(owner.get("name") or ""))
    if len(controllers) > 1:
        detail = (
            f"Only one reference can have Controller set to true. Found {' and '.join(f'{c!r}' for c in controllers)}"
        )
        errors.append(place.invalid(controllers, detail))
    return errors


def _finalizers(meta: Object, path: FieldPath) -> Errors:
    place = path / "finalizers"
    errors: Errors = []
    for index, finalizer in enumerate(items(meta, "finalizers")):
        errors += by_rule(finalizer, place[index], names.label_key)
    if {"orphan", "foregroundDeletion"} <= {str(f) for f in items(meta, "finalizers")}:
        errors.append(place.invalid(items(meta, "finalizers"), "orphan and foregroundDeletion cannot be both set"))
    return errors


def core_finalizers(obj: Object) -> Errors:
    """Kinds of the core group want finalizers with a domain, or standard ones."""
    place = FieldPath("metadata") / "finalizers"
    return [
        place[index].invalid(name, "name is neither a standard finalizer name nor is it fully qualified")
        for index, name in enumerate(items(dig(obj, "metadata"), "finalizers"))
        if "/" not in str(name) and name not in _STANDARD_FINALIZERS
    ]
