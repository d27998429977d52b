"""What is a request and what a reply? The plain values between the ASGI app and the handlers."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any
from urllib.parse import parse_qsl, unquote

import msgspec

from dragoman.api.shape import Object
from dragoman.apiserver.request import ADMIN, User
from dragoman.apiserver.status import bad_request

Headers = list[tuple[bytes, bytes]]
Receive = Callable[[], Awaitable[dict[str, Any]]]
Send = Callable[[dict[str, Any]], Awaitable[None]]
"""The two ends of an ASGI connection."""
HEADER_SEPARATOR = "\n"
"""Between the values of an Impersonate-* header that was sent several times: a name may hold a comma."""
_TRUE = {"1", "t", "T", "TRUE", "true", "True"}
_FALSE = {"0", "f", "F", "FALSE", "false", "False", ""}


class HttpRequest(msgspec.Struct):
    """One HTTP request; header names are lower case."""

    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    body: bytes = b""
    user: User = ADMIN

    def flag(self, name: str) -> bool:
        """A boolean of the query as Go reads it. Raises 400."""
        text = self.query.get(name)
        if text is None or text in _FALSE:
            return False
        if text in _TRUE:
            return True
        raise bad_request(f"query parameter {name}: {text!r} is not a boolean")

    def number(self, name: str) -> int | None:
        """A whole number of the query. Raises 400."""
        text = self.query.get(name)
        if not text:
            return None
        try:
            return int(text)
        except ValueError:
            raise bad_request(f"query parameter {name}: {text!r} is not a whole number") from None


def parse(method: str, raw_path: bytes, raw_query: bytes, raw_headers: list[tuple[bytes, bytes]]) -> HttpRequest:
    """A request without its body; a trailing slash of the path does not count."""
    path = unquote(raw_path.decode("latin-1")).rstrip("/") or "/"
    query: dict[str, str] = {}
    if raw_query:
        for key, value in parse_qsl(raw_query.decode("latin-1"), keep_blank_values=True):
            query.setdefault(key, value)
    headers: dict[str, str] = {}
    for raw_name, raw_value in raw_headers:
        key, text = raw_name.decode("latin-1").lower(), raw_value.decode("latin-1")
        if key in headers:
            text = f"{headers[key]}{HEADER_SEPARATOR if key.startswith('impersonate-') else ', '}{text}"
        headers[key] = text
    return HttpRequest(method, path, query, headers)


class Reply(msgspec.Struct):
    """A whole answer."""

    status: int
    body: bytes
    content_type: bytes | None = b"application/json"
    headers: Headers = []


class Stream(msgspec.Struct):
    """An answer in chunks; `release` is called when it ends, however it ends.

    may_fail: the first chunk may raise NotFound instead, so it is awaited before the head is sent.
    """

    chunks: AsyncIterator[bytes]
    release: Callable[[], None]
    content_type: bytes = b"application/json"
    headers: Headers = []
    may_fail: bool = False
    status: int = 200


def json_reply(obj: Object, status: int = 200, headers: Headers | None = None) -> Reply:
    """A dict as JSON."""
    return Reply(status, msgspec.json.encode(obj), headers=headers or [])
