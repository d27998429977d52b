"""Who asks for what, and what is the answer? The values that travel between a transport and the registry."""

from __future__ import annotations

from typing import Literal

import msgspec

from dragoman.api.kinds import Kind
from dragoman.api.shape import Object
from dragoman.apiserver.store import StoredObject

Validation = Literal["Strict", "Warn", "Ignore"]


class User(msgspec.Struct, frozen=True):
    """Who is authenticated."""

    name: str
    groups: tuple[str, ...] = ()
    uid: str = ""
    extra: dict[str, tuple[str, ...]] = {}


ADMIN = User("dragoman-admin", ("system:masters", "system:authenticated"))


class Write(msgspec.Struct, frozen=True):
    """The options of a write. `version` is that of the body (empty: the stored one), `verb` that of the request."""

    version: str = ""
    manager: str = "unknown"
    force: bool = False
    dry_run: bool = False
    validation: Validation = "Ignore"
    user: User = ADMIN
    operation: Literal["Update", "Apply"] = "Update"
    verb: Literal["create", "update", "patch", "delete"] = "update"


INTERNAL = Write(manager="dragoman")


class DeleteOptions(msgspec.Struct, frozen=True):
    """metav1.DeleteOptions as far as they count."""

    grace_s: int | None = None
    propagation: str = ""
    uid: str = ""
    resource_version: str = ""
    dry_run: bool = False


class RequestOutcome(msgspec.Struct):
    """What a request ends with: an object in its stored form, or (body None) a Status."""

    kind: Kind
    body: bytes | None
    created: bool = False
    warnings: list[str] = []
    status: Object | None = None


class Page(msgspec.Struct, frozen=True):
    """A list, or a part of it; `more` is the token for the rest and `remaining` its length."""

    records: list[StoredObject]
    version: int
    more: str = ""
    remaining: int | None = None
