"""Is the object valid? The registry's side of api.validate: causes of a Status instead of field errors."""

from __future__ import annotations

from dragoman.api import validate
from dragoman.api.gates import Gates
from dragoman.api.kinds import Kind
from dragoman.api.shape import Object

Cause = tuple[str, str, str]
"""Reason, text, field path."""


def validate_create(kind: Kind, obj: Object, gates: Gates) -> list[Cause]:
    """What is wrong with a new object."""
    return [(error.reason, error.body, error.path) for error in validate.create(kind.kind, obj, gates=gates)]


def validate_update(kind: Kind, new: Object, old: Object, subresource: str, gates: Gates) -> list[Cause]:
    """What is wrong with a change."""
    errors = validate.update(kind.kind, new, old, subresource, gates=gates)
    return [(error.reason, error.body, error.path) for error in errors]
