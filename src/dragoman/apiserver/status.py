"""How does the server say no? A Status with code, reason, message and details, as metav1.Status has them.

`StatusError` crosses the registry as an exception and ends as a response body (HTTP) or as one of the exceptions of
`dragoman.errors` (in process). Nothing here decides whether to refuse.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from dragoman.api.admission import forbidden_text, invalid_text, qualified
from dragoman.api.kinds import Kind
from dragoman.api.shape import Object
from dragoman.errors import Denied, DragomanError, Invalid, NotFound, Retry, Stale


class StatusError(DragomanError):
    """A request is answered with a failure Status; `code` is the HTTP status."""

    def __init__(self, code: int, reason: str, message: str, details: Object | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.reason = reason
        self.message = message
        self.details = details
        self.continue_token = ""  # an expired list goes on with this one
        self.headers: dict[str, str] = {}

    def body(self) -> Object:
        """The metav1.Status."""
        status: Object = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {"continue": self.continue_token} if self.continue_token else {},
            "status": "Failure",
            "message": self.message,
            "reason": self.reason,
        }
        if self.details:
            status["details"] = self.details
        status["code"] = self.code
        return status

    def as_error(self) -> DragomanError:
        """The same as one of the exceptions that callers of a Client expect."""
        if self.code == 404:
            return NotFound(self.message)
        if self.code in (409, 410):
            return AlreadyExists(self.message) if self.reason == "AlreadyExists" else Stale(self.message)
        if self.code in (401, 403):
            return Denied(self.message)
        if self.code == 429 or self.code >= 500:
            after = (self.details or {}).get("retryAfterSeconds")
            return Retry(self.message, after_s=after)
        causes = (self.details or {}).get("causes") or [{}]
        return Invalid(causes[0].get("field", ""), self.message)


class AlreadyExists(Stale):
    """A create met an object of that name (a kind of Stale: read it and decide again)."""


def success(details: Object | None = None, code: int = 200) -> Object:
    """A metav1.Status that says yes."""
    status: Object = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"}
    if details:
        status["details"] = details
    if code != 200:
        status["code"] = code
    return status


def _details(kind: Kind, name: str, **more: Any) -> Object:
    details: Object = {"name": name}
    if kind.group:
        details["group"] = kind.group
    details["kind"] = kind.plural
    details.update(more)
    return details


def not_found(kind: Kind, name: str) -> StatusError:
    """The object is not there."""
    return StatusError(404, "NotFound", f'{qualified(kind)} "{name}" not found', _details(kind, name))


def already_exists(kind: Kind, name: str) -> StatusError:
    """An object of that name is there."""
    return StatusError(409, "AlreadyExists", f'{qualified(kind)} "{name}" already exists', _details(kind, name))


def conflict(kind: Kind, name: str, why: str) -> StatusError:
    """A precondition does not hold."""
    message = f'Operation cannot be fulfilled on {qualified(kind)} "{name}": {why}'
    return StatusError(409, "Conflict", message, _details(kind, name))


def stale(kind: Kind, name: str) -> StatusError:
    """The resourceVersion sent is not the stored one."""
    return conflict(
        kind, name, "the object has been modified; please apply your changes to the latest version and try again"
    )


def forbidden(kind: Kind, name: str, why: str) -> StatusError:
    """Admission says no."""
    return StatusError(403, "Forbidden", forbidden_text(kind, name, why), _details(kind, name))


def bad_request(message: str) -> StatusError:
    """The request cannot be understood."""
    return StatusError(400, "BadRequest", message)


def invalid(kind: Kind, name: str, causes: Iterable[tuple[str, str, str]]) -> StatusError:
    """Validation says no. causes: (reason, message without the field, field path)."""
    listed = list(causes)
    details: Object = {"name": name}
    if kind.group:
        details["group"] = kind.group
    details["kind"] = kind.kind
    details["causes"] = [{"reason": reason, "message": text, "field": field} for reason, text, field in listed]
    return StatusError(422, "Invalid", invalid_text(kind, name, listed), details)


def expired(message: str = "The resourceVersion for the provided watch is too old.") -> StatusError:
    """History does not reach back that far."""
    return StatusError(410, "Expired", message)


def too_large_version(asked: int, current: int) -> StatusError:
    """A resourceVersion of the future."""
    return StatusError(
        504,
        "Timeout",
        f"Too large resource version: {asked}, current: {current}",
        {
            "causes": [{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}],
            "retryAfterSeconds": 1,
        },
    )


def too_many(message: str, *, causes: list[Object] | None = None, retry_after_s: int = 0) -> StatusError:
    """Later, perhaps."""
    details: Object = {}
    if causes:
        details["causes"] = causes
    if retry_after_s:
        details["retryAfterSeconds"] = retry_after_s
    return StatusError(429, "TooManyRequests", message, details or None)
