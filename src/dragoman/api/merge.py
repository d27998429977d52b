"""What is a JSON value after a merge patch (RFC 7386)? null removes, objects merge, everything else replaces."""

from __future__ import annotations

from typing import Any

import msgspec


def merge_patch(doc: Any, patch: Any) -> Any:
    """The value after the patch; neither argument is changed."""
    return _merge(copy_json(doc), copy_json(patch))


def _merge(doc: Any, patch: Any) -> Any:
    if not isinstance(patch, dict):
        return patch
    merged = doc if isinstance(doc, dict) else {}
    for key, value in patch.items():
        if value is None:
            merged.pop(key, None)
        else:
            merged[key] = _merge(merged.get(key), value)
    return merged


def copy_json(value: Any) -> Any:
    """A deep copy of a JSON value; a JSON round trip is several times faster than copy.deepcopy."""
    return msgspec.json.decode(msgspec.json.encode(value))
