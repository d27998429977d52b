"""How does a core/v1 Event look in events.k8s.io/v1, and back? Fields are renamed, nothing else.

Events are stored once, as core/v1. A field without a counterpart is kept under its own name.
"""

from __future__ import annotations

from dragoman.api.shape import Object

# core/v1 -> events.k8s.io/v1
_NAMES = {
    "involvedObject": "regarding",
    "message": "note",
    "reportingComponent": "reportingController",
    "source": "deprecatedSource",
    "firstTimestamp": "deprecatedFirstTimestamp",
    "lastTimestamp": "deprecatedLastTimestamp",
    "count": "deprecatedCount",
}
_BACK = {new: old for old, new in _NAMES.items()}
API_VERSION = "events.k8s.io/v1"


def to_events_group(obj: Object) -> Object:
    """A core Event as one of events.k8s.io."""
    out = {_NAMES.get(key, key): value for key, value in obj.items()}
    if "apiVersion" in out:
        out["apiVersion"] = API_VERSION
    return out


def from_events_group(obj: Object) -> Object:
    """An Event of events.k8s.io as a core one."""
    out = {_BACK.get(key, key): value for key, value in obj.items()}
    if "apiVersion" in out:
        out["apiVersion"] = "v1"
    return out
