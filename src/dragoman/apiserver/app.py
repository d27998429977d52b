"""How does an HTTP request become a reply? The ASGI app and who may pass.

A wrong bearer token is answered 401; a request without one is anonymous and may see health and version, as roles say.
What breaks inside becomes a 500
Status and one log line, never a dropped connection. Sockets and TLS are the work of `server`.
"""

from __future__ import annotations

import asyncio
import hmac
from contextlib import suppress
from typing import Any
from urllib.parse import parse_qsl

import msgspec

from dragoman.apiserver import streams
from dragoman.apiserver.access.attributes import attributes_of
from dragoman.apiserver.access.authorizer import UNAUTHENTICATED
from dragoman.apiserver.access.impersonation import ANONYMOUS, impersonated
from dragoman.apiserver.access.tokens import AUDIENCES, BadToken, Identified
from dragoman.apiserver.gauges import REQUESTS, StoreGauges
from dragoman.apiserver.handlers import Handlers
from dragoman.apiserver.heads import PEER
from dragoman.apiserver.http import HttpRequest, Receive, Reply, Send, Stream, parse
from dragoman.apiserver.limits import BODY_BYTES, BODY_S, too_large_body, too_slow
from dragoman.apiserver.negotiate import form_of, to_yaml
from dragoman.apiserver.registry import Registry
from dragoman.apiserver.request import ADMIN, User
from dragoman.apiserver.status import StatusError
from dragoman.errors import DragomanError, NotFound, Retry
from dragoman.runtime import log
from dragoman.runtime.metrics import CONTENT_TYPE, Metrics

AsgiScope = dict[str, Any]
HEALTH_PATHS = ("/healthz", "/livez", "/readyz")
NOBODY = User(ANONYMOUS, (UNAUTHENTICATED,))
_log = log.get("apiserver")


class App:
    """The ASGI application over a registry."""

    def __init__(self, registry: Registry, token: str, *, minor: int = 37, metrics: Metrics | None = None) -> None:
        self.registry = registry
        self.token = token
        self.ready = True
        self.handlers = Handlers(registry, minor=minor, whose=self.whose)
        self.metrics = metrics or Metrics()
        self._requests = self.metrics.counter(
            REQUESTS, "Requests answered, watches when they begin.", ("method", "code")
        )
        self.metrics.collector(StoreGauges(registry.store, self.handlers.streams.__len__, registry.gates))

    def whose(self, token: str, audiences: tuple[str, ...] = AUDIENCES) -> Identified:
        """Who holds a bearer token. Raises BadToken."""
        if hmac.compare_digest(token.encode(), self.token.encode()):
            return Identified(ADMIN, tuple(audience for audience in audiences if audience in AUDIENCES))
        return self.registry.tokens.identify(token, audiences)

    def _authenticated(self, request: HttpRequest, peer: User | None) -> User:
        """Who sends a request: by its token, else by the certificate of the connection, else nobody. Raises 401."""
        if "authorization" not in request.headers:
            return peer or NOBODY
        scheme, _, token = request.headers["authorization"].partition(" ")
        try:
            if scheme.lower() == "bearer" and token.strip():
                return self.whose(token.strip()).user
        except BadToken as bad:
            _log.debug("token refused", why=str(bad))
        raise StatusError(401, "Unauthorized", "Unauthorized")

    async def __call__(self, scope: AsgiScope, receive: Receive, send: Send) -> None:
        """ASGI: one request."""
        if scope["type"] == "websocket":
            await self._socket(scope, receive, send)
            return
        request = parse(scope["method"], scope["raw_path"], scope["query_string"], scope["headers"])
        try:
            reply = await self._reply(request, receive, _peer(scope))
        except StatusError as refused:
            reply = _refusal(request, refused)
        except Retry as error:
            reply = _refusal(request, StatusError(503, "ServiceUnavailable", str(error)))
        except DragomanError as error:
            reply = _refusal(request, StatusError(500, "InternalError", str(error)))
        except RecursionError:
            reply = _refusal(request, StatusError(400, "BadRequest", "the body is nested too deep"))
        except Exception as error:
            _log.error("request broke", exc=error, method=request.method, path=request.path)
            text = f"Internal error occurred: {type(error).__name__}: this is a bug, see the server's log"
            reply = _refusal(request, StatusError(500, "InternalError", text))
        self._requests.labels(request.method, reply.status).inc()
        if isinstance(reply, Stream):
            await _stream(request, reply, receive, send)
        else:
            await _send(reply, send, head=request.method == "HEAD")

    async def _reply(self, request: HttpRequest, receive: Receive, peer: User | None) -> Reply | Stream:
        self._allowed(request, peer)
        if request.path.startswith(HEALTH_PATHS) or request.path == "/version":
            return await self._open(request)
        if request.method not in ("GET", "HEAD"):
            request.body = await _body(request, receive)
        if request.path == "/metrics" and request.method == "GET":
            return Reply(200, self.metrics.text(), CONTENT_TYPE.encode())
        reply = await self.handlers.respond(request)
        journal = self.registry.store.journal
        if journal is not None and request.method not in ("GET", "HEAD"):
            await journal.durable()
        return reply

    def _allowed(self, request: HttpRequest, peer: User | None) -> None:
        """Set who asks. Raises 401, 403."""
        request.user = self._authenticated(request, peer)
        asked = attributes_of(request)
        authorizer = self.registry.authorizer
        if any(key.startswith("impersonate-") for key in request.headers):
            request.user = impersonated(authorizer, asked, request.headers)
            asked = msgspec.structs.replace(asked, user=request.user)
        authorizer.check(asked)

    async def _socket(self, scope: AsgiScope, receive: Receive, send: Send) -> None:
        """One WebSocket; a no is an HTTP answer in its place."""
        request = parse("GET", scope["raw_path"], scope["query_string"], scope["headers"])
        try:
            await self._serve_socket(request, scope, receive, send)
        except StatusError as refused:
            reply = _refusal(request, refused)
            self._requests.labels("CONNECT", reply.status).inc()
            headers = [(b"content-type", reply.content_type or b"application/json"), *reply.headers]
            await send({"type": "websocket.http.response.start", "status": reply.status, "headers": headers})
            await send({"type": "websocket.http.response.body", "body": reply.body})
        except Exception as broken:
            # The stream is open: nothing can be said any more but that it is over.
            _log.error("session broke", exc=broken, path=request.path)
            with suppress(Exception):
                await send({"type": "websocket.close", "code": 1011})

    async def _serve_socket(self, request: HttpRequest, scope: AsgiScope, receive: Receive, send: Send) -> None:
        self._allowed(request, _peer(scope))
        # As the WebSocket of a client is a GET and runs something all the same, the right to create is asked for, too.
        self.registry.authorizer.check(msgspec.structs.replace(attributes_of(request), verb="create"))
        query = parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True)
        wanted, pod = await self.handlers.session(request, query)
        self._requests.labels("CONNECT", 101).inc()
        await streams.serve(wanted, pod, scope.get("subprotocols") or [], receive, send)

    async def _open(self, request: HttpRequest) -> Reply:
        if request.path == "/version":
            return await self.handlers.respond(request)  # type: ignore[return-value]
        if request.path.startswith("/readyz") and not self.ready:
            return Reply(503, b"not ready", b"text/plain")
        return Reply(200, b"ok", b"text/plain; charset=utf-8")


def _peer(scope: AsgiScope) -> User | None:
    """Who the client is by its certificate."""
    peer: User | None = (scope.get("state") or {}).get(PEER)
    return peer


async def _body(request: HttpRequest, receive: Receive) -> bytes:
    """The whole body. Raises 400, 413, 504."""
    try:
        async with asyncio.timeout(BODY_S):
            return await _received(request, receive)
    except TimeoutError:
        raise too_slow() from None


async def _received(request: HttpRequest, receive: Receive) -> bytes:
    said = request.headers.get("content-length", "")
    if said.isdecimal() and int(said) > BODY_BYTES:
        raise too_large_body()
    chunks: list[bytes] = []
    size = 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise StatusError(400, "BadRequest", "the client went away before the body was complete")
        chunk = message.get("body", b"")
        size += len(chunk)
        if size > BODY_BYTES:
            raise too_large_body()
        if not message.get("more_body"):
            return b"".join((*chunks, chunk)) if chunks else chunk
        chunks.append(chunk)


def _refusal(request: HttpRequest, refused: StatusError) -> Reply:
    body = msgspec.json.encode(refused.body())
    reply = Reply(refused.code, body)
    try:
        form = form_of(request.headers.get("accept", ""))
        if form.media != "application/json":
            reply = Reply(refused.code, to_yaml(body), form.content_type)
    except StatusError:
        pass  # whatever the client wanted, it gets JSON
    after = (refused.details or {}).get("retryAfterSeconds")
    if after:
        reply.headers = [(b"retry-after", str(after).encode())]
    return reply


async def _send(reply: Reply, send: Send, *, head: bool) -> None:
    headers = list(reply.headers)
    if reply.content_type is not None:
        headers.append((b"content-type", reply.content_type))
    if reply.status != 304:
        headers.append((b"content-length", str(len(reply.body)).encode()))
    await send({"type": "http.response.start", "status": reply.status, "headers": headers})
    await send({"type": "http.response.body", "body": b"" if head else reply.body})


async def _stream(request: HttpRequest, stream: Stream, receive: Receive, send: Send) -> None:
    """Send chunks until they end or the client has gone."""
    first = b""
    if stream.may_fail:
        try:
            first = await anext(stream.chunks, b"")
        except NotFound as error:
            stream.release()
            await _send(_refusal(request, StatusError(400, "BadRequest", str(error))), send, head=False)
            return
    headers = [*stream.headers, (b"content-type", stream.content_type), (b"cache-control", b"no-cache, private")]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    # An empty chunk makes the server write the head now: a watch may stay silent for long.
    await send({"type": "http.response.body", "body": first, "more_body": True})
    try:
        async with asyncio.TaskGroup() as group:
            pump = group.create_task(_pump(stream, send), name="stream")
            gone = group.create_task(_until_gone(receive, pump), name="stream: client gone")
            pump.add_done_callback(lambda _: gone.cancel())
    except* Exception as broken:
        # The head is sent, so nothing can be said any more: the connection is closed in the middle of the answer.
        _log.error("stream broke", exc=broken, path=request.path)
    finally:
        stream.release()


async def _pump(stream: Stream, send: Send) -> None:
    chunks = stream.chunks
    try:
        async for chunk in chunks:
            await send({"type": "http.response.body", "body": chunk, "more_body": True})
    finally:
        close = getattr(chunks, "aclose", None)
        if close is not None:
            with suppress(Exception):
                await close()
    await send({"type": "http.response.body", "body": b"", "more_body": False})


async def _until_gone(receive: Receive, pump: asyncio.Task[None]) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    pump.cancel()
