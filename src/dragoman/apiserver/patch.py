"""What does a document look like after a patch? Three kinds of patch, on plain JSON values.

RFC 6902 (JSON patch, by the library jsonpatch) and RFC 7386 (merge patch); strategic merge patch, which needs the
schema, stands in `strategic`. Never changes its arguments, never validates the outcome, never looks at versions.
A patch that cannot be applied raises `PatchFailed`; the caller answers 422 (400 where `malformed` is set).
"""

from __future__ import annotations

from typing import Any

import jsonpatch
import jsonpointer
import msgspec

from dragoman.api.merge import copy_json, merge_patch
from dragoman.apiserver.patch_failed import PatchFailed
from dragoman.apiserver.strategic import strategic_patch

__all__ = ["MAX_OPERATIONS", "PatchFailed", "copy_json", "json_patch", "merge_patch", "strategic_patch"]

# kube-apiserver's limit (maxJSONPatchOperations).
MAX_OPERATIONS = 10_000
MAX_COPY_BYTES = 3 * 1024 * 1024
"""kube-apiserver's limit on what the copies of one patch add (JSONPatchMaxCopyBytes)."""

_OPERATIONS = {"add": True, "replace": True, "test": True, "remove": False, "move": False, "copy": False}


def json_patch(doc: Any, ops: Any) -> Any:
    """The document after the RFC 6902 operations `ops`. Raises PatchFailed naming the operation that failed."""
    if not isinstance(ops, list):
        raise PatchFailed("a JSON patch is a list of operations", malformed=True)
    if len(ops) > MAX_OPERATIONS:
        raise PatchFailed(
            f"The allowed maximum operations in a JSON patch is {MAX_OPERATIONS}, got {len(ops)}", too_large=True
        )
    for index, operation in enumerate(ops):
        _check_operation(index, operation)
    current = copy_json(doc)
    copied = 0
    for index, operation in enumerate(ops):
        if operation["op"] == "copy":
            copied += _copy_size(current, operation["from"])
            if copied > MAX_COPY_BYTES:
                raise PatchFailed(
                    f"Unable to complete the copy, the accumulated size increase of copy is {copied}, exceeding the "
                    f"limit {MAX_COPY_BYTES}"
                )
        current = _step(current, index, operation)
    return current


def _copy_size(doc: Any, pointer: str) -> int:
    """The size of what a copy adds; 0 for one that will fail."""
    try:
        return len(msgspec.json.encode(jsonpointer.resolve_pointer(doc, pointer)))
    except (jsonpointer.JsonPointerException, TypeError, KeyError, IndexError, ValueError):
        return 0


def _check_operation(index: int, operation: Any) -> None:
    if not isinstance(operation, dict) or operation.get("op") not in _OPERATIONS:
        raise PatchFailed(f"operation {index}: op must be one of {', '.join(_OPERATIONS)}", malformed=True)
    op = operation["op"]
    wanted = ["path"] + (["from"] if op in ("move", "copy") else [])
    for member in wanted:
        if not isinstance(operation.get(member), str):
            raise PatchFailed(f"operation {index} ({op}): {member} must be a JSON pointer", malformed=True)
    if _OPERATIONS[op] and "value" not in operation:
        raise PatchFailed(f"operation {index} ({op}): value is missing", malformed=True)


def _step(doc: Any, index: int, operation: dict[str, Any]) -> Any:
    what = f"operation {index} ({operation['op']} {operation['path']})"
    try:
        return jsonpatch.JsonPatch([copy_json(operation)]).apply(doc, in_place=True)
    except jsonpatch.JsonPatchTestFailed:
        raise PatchFailed(f"{what}: testing value failed", tested=True) from None
    except (jsonpatch.JsonPatchException, jsonpointer.JsonPointerException) as error:
        # Some texts of the library repeat the whole document after "not found in".
        raise PatchFailed(f"{what}: {str(error).split(' in {')[0]}") from None
    except (TypeError, KeyError, IndexError, ValueError) as error:
        # The library walks into scalars without looking.
        raise PatchFailed(f"{what}: the path does not exist ({error})") from None
