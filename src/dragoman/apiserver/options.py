"""Which options does a request carry? Query parameters and bodies of options, checked as upstream checks them."""

from __future__ import annotations

from dragoman.api.shape import Object
from dragoman.apiserver import schema, strict
from dragoman.apiserver.custom.kind import CustomKind
from dragoman.apiserver.http import HttpRequest
from dragoman.apiserver.negotiate import decode
from dragoman.apiserver.request import DeleteOptions, Validation, Write
from dragoman.apiserver.shape import GVK, shape_of
from dragoman.apiserver.status import StatusError, bad_request, expired
from dragoman.apiserver.store import Store
from dragoman.apiserver.target import RequestInfo
from dragoman.errors import Invalid

MANAGER_MAX = 128
_VALIDATIONS: dict[str, Validation] = {"Strict": "Strict", "Warn": "Warn", "Ignore": "Ignore"}


def write_of(request: HttpRequest, target: RequestInfo) -> Write:
    """The options of a write. Raises 422 for values that upstream refuses."""
    asked = request.query.get("fieldValidation") or "Warn"
    validation = _VALIDATIONS.get(asked)
    if validation is None:
        raise StatusError(
            422,
            "Invalid",
            f"fieldValidation: Unsupported value: {asked!r}: supported values: Ignore, Warn, Strict",
        )
    manager = request.query.get("fieldManager", "")
    if not manager:
        manager = request.headers.get("user-agent", "unknown").partition("/")[0] or "unknown"
    if len(manager) > MANAGER_MAX:
        raise StatusError(422, "Invalid", f"fieldManager: may not be longer than {MANAGER_MAX}")
    return Write(
        version=target.version,
        manager=manager,
        force=request.flag("force"),
        dry_run=_dry_run(request.query.get("dryRun")),
        validation=validation,
        user=request.user,
        verb="patch" if request.method == "PATCH" else "update",
    )


def _gvk(target: RequestInfo) -> GVK:
    return target.kind.group, target.version, target.kind.kind


def _known(gvk: GVK, body: Object) -> list[str]:
    """Unknown fields; raises 400 for a wrong type."""
    try:
        return schema.strict_errors(gvk, body)
    except Invalid as wrong:
        raise bad_request(f"{gvk[2]} in version {gvk[1]!r} cannot be handled as a {gvk[2]}: {wrong}") from wrong


def check_types(gvk: GVK, body: Object) -> Object:
    """A body that is not stored (options, reviews, bindings), whose fields have the right types. Raises 400."""
    _known(gvk, body)
    return {field: value for field, value in body.items() if value is not None}


def unknown_fields(target: RequestInfo, body: Object, write: Write, raw: bytes = b"") -> list[str]:
    """Unknown fields: refused under Strict, returned as warnings under Warn. Wrong types are always refused.

    raw: the JSON that was sent, which alone tells of repeated fields and of their order.
    """
    kind = target.kind
    if isinstance(kind, CustomKind):
        duplicates = strict.errors(raw, None) if raw and write.validation != "Ignore" else []
        return _said(target, [*duplicates, *kind.definition.unknown(target.version, body)], write)
    gvk = kind.group, target.version, kind.kind
    try:
        unknown = schema.strict_errors(gvk, body)
    except Invalid as wrong:
        raise bad_request(
            f'{target.kind.kind} in version "{target.version}" cannot be handled as a {target.kind.kind}: {wrong}'
        ) from wrong
    if raw and write.validation != "Ignore":
        unknown = strict.errors(raw, shape_of(gvk)) or unknown
    return _said(target, unknown, write)


def _said(target: RequestInfo, unknown: list[str], write: Write) -> list[str]:
    if unknown and write.validation == "Strict":
        raise bad_request(
            f'{target.kind.kind} in version "{target.version}" cannot be handled as a {target.kind.kind}: '
            f"strict decoding error: {', '.join(unknown)}"
        )
    return unknown if write.validation == "Warn" else []


def known_unknowns(target: RequestInfo, obj: Object) -> list[str]:
    """Unknown fields of an object, wrong types overlooked."""
    if isinstance(target.kind, CustomKind):
        return target.kind.definition.unknown(target.version, obj)
    try:
        return schema.strict_errors(_gvk(target), obj)
    except Invalid:
        return []


def check_declared(target: RequestInfo, config: Object) -> None:
    """Refuse an apply configuration with fields that its schema does not have, whatever fieldValidation says."""
    unknown = [text.removeprefix('unknown field "').removesuffix('"') for text in known_unknowns(target, config)]
    if unknown:
        listed = [f".{path}: field not declared in schema" for path in unknown]
        text = listed[0] if len(listed) == 1 else "errors:\n  " + "\n  ".join(listed)
        what = f"{target.namespace}/{target.name}; {target.kind.version_text(target.version)}, Kind={target.kind.kind}"
        raise bad_request(f"failed to create typed patch object ({what}): {text}")


def delete_options(request: HttpRequest) -> DeleteOptions:
    """DeleteOptions of the body and the query."""
    options: Object = {}
    if request.body:
        sent = decode(request.body, request.headers.get("content-type", ""))
        if not isinstance(sent, dict):
            raise bad_request("DeleteOptions must be an object")
        options = check_types(("", "v1", "DeleteOptions"), sent)
    preconditions = options.get("preconditions") or {}
    grace = options.get("gracePeriodSeconds")
    if grace is None:
        grace = request.number("gracePeriodSeconds")
    propagation = options.get("propagationPolicy") or request.query.get("propagationPolicy", "")
    if not propagation and options.get("orphanDependents"):
        propagation = "Orphan"
    dry = options.get("dryRun") or []
    return DeleteOptions(
        grace_s=grace,
        propagation=propagation,
        uid=preconditions.get("uid") or "",
        resource_version=preconditions.get("resourceVersion") or "",
        dry_run=bool(dry) or _dry_run(request.query.get("dryRun")),
    )


def version_of(text: str) -> int | None:
    """A resourceVersion as a number. Raises 400."""
    if not text:
        return None
    try:
        return int(text)
    except ValueError:
        raise bad_request(f"invalid resource version {text!r}") from None


def check_list_version(request: HttpRequest, target: RequestInfo, store: Store) -> None:
    """Refuse a resourceVersion that a list cannot be served at. Raises 410, 422, 504."""
    match = request.query.get("resourceVersionMatch", "")
    asked = version_of(request.query.get("resourceVersion", ""))
    if match and asked is None:
        raise StatusError(422, "Invalid", "resourceVersionMatch is forbidden unless resourceVersion is provided")
    if match not in ("", "Exact", "NotOlderThan"):
        raise StatusError(422, "Invalid", f"resourceVersionMatch {match!r} must be Exact or NotOlderThan")
    if asked is None:
        return
    store.check_version(asked)
    if match == "Exact":
        if asked == 0:
            raise StatusError(422, "Invalid", 'resourceVersionMatch "Exact" is forbidden for resourceVersion "0"')
        shelf = store.shelf(target.kind)
        newest = shelf.ring[-1].version if shelf.ring else shelf.forgotten
        if asked < max(newest, store.history_start):
            raise expired("The provided resource version is too old: only the current one can be listed exactly")


def _dry_run(text: str | None) -> bool:
    if not text:
        return False
    if text != "All":
        raise StatusError(422, "Invalid", f'dryRun: Unsupported value: {text!r}: supported values: "All"')
    return True
