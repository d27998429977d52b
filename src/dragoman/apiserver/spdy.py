"""What do SPDY/3.1 frames say? As much of the protocol as `kubectl port-forward` speaks inside its WebSocket.

Streams are opened by the client only; there is no flow control, as clients of Kubernetes have none. Source: SPDY
protocol draft 3.1, sections 2.2 and 2.6 (the dictionary is its section 2.6.10.1).
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from typing import TypeAlias

import msgspec

VERSION = 3
SYN_STREAM, SYN_REPLY, RST_STREAM, PING, GOAWAY = 1, 2, 3, 6, 7
FIN = 1
FRAME_MAX = 1 << 24
_NAMES = (
    "options head post put delete trace accept accept-charset accept-encoding accept-language accept-ranges age",
    "allow authorization cache-control connection content-base content-encoding content-language content-length",
    "content-location content-md5 content-range content-type date etag expect expires from host if-match",
    "if-modified-since if-none-match if-range if-unmodified-since last-modified location max-forwards pragma",
    "proxy-authenticate proxy-authorization range referer retry-after server te trailer transfer-encoding upgrade",
    "user-agent vary via warning www-authenticate method get status",
)
_MORE = ("200 OK", "version", "HTTP/1.1", "url", "public", "set-cookie", "keep-alive", "origin")
_REST = (
    "100101201202205206300302303304305306307402405406407408409410411412413414415416417502504505203 Non-Authoritative "
    "Information204 No Content301 Moved Permanently400 Bad Request401 Unauthorized403 Forbidden404 Not Found500 "
    "Internal Server Error501 Not Implemented503 Service UnavailableJan Feb Mar Apr May Jun Jul Aug Sept Oct Nov Dec "
    "00:00:00 Mon, Tue, Wed, Thu, Fri, Sat, Sun, GMTchunked,text/html,image/png,image/jpg,image/gif,application/xml,"
    "application/xhtml+xml,text/plain,text/javascript,publicprivatemax-age=gzip,deflate,sdchcharset=utf-8"
    "charset=iso-8859-1,utf-,*,enq=0."
)
DICTIONARY = (
    b"".join(struct.pack(">I", len(word)) + word.encode() for word in (*" ".join(_NAMES).split(), *_MORE))
    + _REST.encode()
)


class Opened(msgspec.Struct, frozen=True):
    """A new stream."""

    stream: int
    headers: dict[str, str]
    fin: bool


class Payload(msgspec.Struct, frozen=True):
    """Bytes of a stream."""

    stream: int
    data: bytes
    fin: bool


class Reset(msgspec.Struct, frozen=True):
    """A stream that is broken off."""

    stream: int


class Pinged(msgspec.Struct, frozen=True):
    """To be answered with the same number."""

    number: int


class Farewell(msgspec.Struct, frozen=True):
    """No more streams will be opened."""


SpdyFrame: TypeAlias = Opened | Payload | Reset | Pinged | Farewell


class Framer:
    """Bytes to frames and back, of one connection. Raises ValueError for what is no SPDY."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._inflate = zlib.decompressobj(zdict=DICTIONARY)
        self._deflate = zlib.compressobj(9, zlib.DEFLATED, zlib.MAX_WBITS, 9, zlib.Z_DEFAULT_STRATEGY, DICTIONARY)

    def feed(self, data: bytes) -> Iterator[SpdyFrame]:
        """The frames that are complete now."""
        self._buffer += data
        while len(self._buffer) >= 8:
            first, second = struct.unpack_from(">II", self._buffer)
            flags, size = second >> 24, second & (FRAME_MAX - 1)
            if len(self._buffer) < 8 + size:
                return
            body = bytes(self._buffer[8 : 8 + size])
            del self._buffer[: 8 + size]
            if not first >> 31:
                yield Payload(first & 0x7FFFFFFF, body, bool(flags & FIN))
                continue
            version, kind = first >> 16 & 0x7FFF, first & 0xFFFF
            if version != VERSION:
                raise ValueError(f"SPDY version {version}")
            frame = self._control(kind, flags, body)
            if frame is not None:
                yield frame

    def _control(self, kind: int, flags: int, body: bytes) -> SpdyFrame | None:
        number = struct.unpack_from(">I", body)[0] if len(body) >= 4 else 0
        match kind:
            case 1:
                return Opened(number & 0x7FFFFFFF, self._headers(body[10:]), bool(flags & FIN))
            case 3:
                return Reset(number & 0x7FFFFFFF)
            case 6:
                return Pinged(number)
            case 7:
                return Farewell()
        return None  # settings, windows and what else needs no answer

    def _headers(self, block: bytes) -> dict[str, str]:
        text = self._inflate.decompress(block)
        count, at = struct.unpack_from(">I", text)[0], 4
        headers: dict[str, str] = {}
        for _ in range(count):
            pair = []
            for _ in range(2):
                size = struct.unpack_from(">I", text, at)[0]
                pair.append(text[at + 4 : at + 4 + size].decode("latin-1"))
                at += 4 + size
            headers[pair[0].lower()] = pair[1]
        return headers

    def reply(self, stream: int) -> bytes:
        """SYN_REPLY without headers."""
        block = self._deflate.compress(struct.pack(">I", 0)) + self._deflate.flush(zlib.Z_SYNC_FLUSH)
        return _control_frame(SYN_REPLY, struct.pack(">I", stream) + block)

    def data(self, stream: int, data: bytes, *, fin: bool = False) -> bytes:
        """A frame of bytes."""
        return struct.pack(">II", stream, (FIN << 24 if fin else 0) | len(data)) + data

    def pong(self, number: int) -> bytes:
        """The answer to a ping."""
        return _control_frame(PING, struct.pack(">I", number))

    def reset(self, stream: int) -> bytes:
        """Break a stream off (CANCEL)."""
        return _control_frame(RST_STREAM, struct.pack(">II", stream, 5))


def _control_frame(kind: int, body: bytes) -> bytes:
    return struct.pack(">II", 1 << 31 | VERSION << 16 | kind, len(body)) + body
