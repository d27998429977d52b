"""What does a connection cost before anybody is asked who he is? A head of bounded size, in bounded time.

Source: k8s.io/apiserver pkg/server/secure_serving.go (ReadHeaderTimeout, MaxHeaderBytes).
"""

from __future__ import annotations

import asyncio
from typing import Any, Final

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from dragoman.apiserver.access.impersonation import AUTHENTICATED
from dragoman.apiserver.request import User

PEER: Final = "dragoman.peer"
"""Key of the scope's state under which an app finds the client."""
HEAD_BYTES: Final = 1024 * 1024
HEAD_S: Final = 32.0
_TOO_LARGE_HEAD: Final = (
    b"HTTP/1.1 431 Request Header Fields Too Large\r\ncontent-type: text/plain; charset=utf-8\r\n"
    b"connection: close\r\ncontent-length: 35\r\n\r\n431 Request Header Fields Too Large"
)


def peer_of(certificate: Any) -> User | None:
    """Who a client is by the certificate that it has shown: CN is the user, O are the groups."""
    named = [pair for part in (certificate or {}).get("subject", ()) for pair in part]
    name = next((value for key, value in named if key == "commonName"), "")
    groups = tuple(value for key, value in named if key == "organizationName")
    return User(name, (*groups, AUTHENTICATED)) if name else None


class BoundedHead(HttpToolsProtocol):
    """HTTP/1.1 whose heads must come whole within HEAD_S seconds and HEAD_BYTES bytes."""

    _late: asyncio.TimerHandle | None = None
    _head: int = 0
    _in_head: bool = True

    def connection_made(self, transport: Any) -> None:
        """Begin to wait for a head."""
        super().connection_made(transport)
        peer = peer_of(transport.get_extra_info("peercert"))
        if peer is not None:
            self.app_state = {**self.app_state, PEER: peer}
        self._late = self.loop.call_later(HEAD_S, self._close)

    def connection_lost(self, exc: Exception | None) -> None:
        """Wait no longer."""
        self._stop()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Count what belongs to a head."""
        if self._in_head:
            if self._late is None:
                self._late = self.loop.call_later(HEAD_S, self._close)
            self._head += len(data)
            # What comes with the end of a head may be the begin of a body, so the last piece is not counted.
            if self._head - len(data) > HEAD_BYTES:
                self.transport.write(_TOO_LARGE_HEAD)
                self._close()
                return
        super().data_received(data)

    def on_message_begin(self) -> None:
        """A head begins."""
        self._in_head, self._head = True, 0
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        """A head is complete."""
        self._in_head, self._head = False, 0
        self._stop()
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        """What comes next on this connection is a head."""
        self._in_head, self._head = True, 0
        super().on_message_complete()

    def _stop(self) -> None:
        if self._late is not None:
            self._late.cancel()
            self._late = None

    def _close(self) -> None:
        self._late = None
        if not self.transport.is_closing():
            self.transport.close()
