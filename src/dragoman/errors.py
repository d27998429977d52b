"""What "broke" can mean, sorted by what a caller can do about it. A "no" is never an exception.

DragomanError
├── Retry      try the same again later: a connection, a time-out, a server that is starting
├── Stale      look again, then decide again: conflict, gone resource version, replaced object
├── NotFound   the named object does not exist
│   └── NotServed        no object: the server does not serve the kind
├── Invalid    the input is wrong: carries where (file, document, field path) and what to do
├── Denied     the server or the system refuses: credentials, rights
│   ├── Unauthenticated  the server does not accept the credentials, for any object
│   └── Forbidden        the user has no right to this request
└── Bug        ours: please report
"""

from __future__ import annotations


class DragomanError(Exception):
    """Base of all our exceptions; str() is one clear line."""


class Retry(DragomanError):
    """The same again may work; after_s is the wait that was asked for, if any."""

    def __init__(self, message: str, *, after_s: float | None = None) -> None:
        super().__init__(message)
        self.after_s = after_s


class Stale(DragomanError):
    """The world moved on: read again and decide again."""


class NotFound(DragomanError):
    """The object named is not there."""


class NotServed(NotFound):
    """The server does not serve the kind, so that nothing is known of its objects."""


class Invalid(DragomanError):
    """Wrong input. where is a field path or file:line, what says what must hold and what was got."""

    def __init__(self, where: str, what: str) -> None:
        super().__init__(f"{where}: {what}" if where else what)
        self.where = where
        self.what = what


class Denied(DragomanError):
    """Not allowed, and trying again does not change that."""


class Unauthenticated(Denied):
    """The server does not accept our credentials: it answers no request, whatever rights there are."""


class Forbidden(Denied):
    """The server knows the user, who has no right to this request."""


class Bug(DragomanError):
    """An invariant of ours is broken."""
