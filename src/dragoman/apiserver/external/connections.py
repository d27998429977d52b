"""How does a webhook's answer come over the wire? HTTPS with connections that are kept, errors worded as Go words them.

A module of its own, so that the HTTP client is loaded with the first webhook that is called.
"""

from __future__ import annotations

import asyncio
import json
import ssl
from typing import Any, Final
from urllib.parse import urlsplit

import aiohttp
from aiohttp.abc import AbstractResolver, ResolveResult

from dragoman.api.shape import Object
from dragoman.apiserver.external.review import WebhookCallFailed
from dragoman.runtime.relays import RELAYS

ANSWER_BYTES: Final = 16 * 1024 * 1024


class _Fixed(AbstractResolver):
    """Resolves every name to one address: the certificate is checked for the name, the connection goes there."""

    def __init__(self, host: str) -> None:
        self._host = host

    async def resolve(self, host: str, port: int = 0, family: Any = 0) -> list[ResolveResult]:
        loop = asyncio.get_running_loop()
        found = await loop.getaddrinfo(self._host, port, type=1)
        return [
            ResolveResult(
                hostname=host, host=str(address[4][0]), port=port, family=address[0], proto=address[2], flags=0
            )
            for address in found
        ]

    async def close(self) -> None:
        """Holds nothing."""


class Connections:
    """The connections of one server to webhooks. `close` them."""

    def __init__(self) -> None:
        self._sessions: dict[str, aiohttp.ClientSession] = {}

    async def post(
        self, url: str, place: tuple[str, int], body: Object, context: ssl.SSLContext, timeout_s: float
    ) -> Any:
        """The decoded answer of a URL that is reached at a host and port. Raises WebhookCallFailed."""
        host, port = place
        try:
            host, port = RELAYS.reached(host, port)
            async with asyncio.timeout(timeout_s):
                return await self._post(url, host, port, body, context)
        except TimeoutError:
            raise WebhookCallFailed(f'Post "{url}": context deadline exceeded') from None
        except aiohttp.ClientError as error:
            raise WebhookCallFailed(f'Post "{url}": {_plain(error, host, port)}') from error
        except ConnectionRefusedError:
            raise WebhookCallFailed(f'Post "{url}": dial tcp {host}:{port}: connect: connection refused') from None
        except OSError as error:
            raise WebhookCallFailed(f'Post "{url}": {error.strerror or error}') from error

    async def _post(self, url: str, host: str, port: int, body: Object, context: ssl.SSLContext) -> Any:
        session = self._session(host)
        split = urlsplit(url)
        reached = url if split.port == port else url.replace(split.netloc, f"{split.hostname}:{port}", 1)
        async with session.post(
            reached,
            data=json.dumps(body, separators=(",", ":")).encode(),
            headers={"Content-Type": "application/json", "Accept": "application/json", "Host": split.netloc},
            ssl=context,
            server_hostname=split.hostname,
            allow_redirects=False,
        ) as response:
            raw = await response.content.read(ANSWER_BYTES)
            if response.status != 200:
                text = raw.decode(errors="replace").strip()[:200]
                raise WebhookCallFailed(
                    text or f"an error on the server has prevented the request from succeeding ({response.status})"
                )
        try:
            return json.loads(raw)
        except (ValueError, RecursionError) as error:
            raise WebhookCallFailed(f"couldn't get version/kind; json parse error: {error}") from None

    def _session(self, host: str) -> aiohttp.ClientSession:
        session = self._sessions.get(host)
        if session is None or session.closed:
            connector = aiohttp.TCPConnector(resolver=_Fixed(host), limit=100, keepalive_timeout=30)
            session = self._sessions[host] = aiohttp.ClientSession(connector=connector, trust_env=False)
        return session

    async def close(self) -> None:
        """End all connections."""
        for session in self._sessions.values():
            await session.close()


def _plain(error: aiohttp.ClientError, host: str, port: int) -> str:
    """An error of the connection as Go words it."""
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        return f"tls: failed to verify certificate: x509: {error.certificate_error}"
    if isinstance(error, aiohttp.ClientConnectorSSLError):
        return f"tls: {error.os_error}"
    if isinstance(error, aiohttp.ClientConnectorError):
        what = {111: "connect: connection refused", 113: "connect: no route to host"}
        return f"dial tcp {host}:{port}: {what.get(error.errno or 0, error.strerror or str(error))}"
    if isinstance(error, aiohttp.ServerDisconnectedError):
        return "EOF"
    return str(error) or type(error).__name__
