"""How do the bytes of `kubectl port-forward` reach a port of a pod? Pairs of a data and an error stream, each a
connection.

In SPDY the client opens both streams with the headers streamtype, port and requestid; in the older channel protocol
every port has two channels from the start. A port that cannot be reached is said on the error stream.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Awaitable, Callable
from contextlib import suppress

from dragoman.apiserver.http import Receive, Send
from dragoman.apiserver.sessions import PodSessions
from dragoman.apiserver.spdy import Farewell, Framer, Opened, Payload, Pinged, Reset
from dragoman.apiserver.status import bad_request
from dragoman.errors import DragomanError

CHUNK = 32 * 1024
PAIRS_MAX = 200


class _Pair:
    """One connection: what the client sent before it stood waits in the queue; None ends it."""

    def __init__(self) -> None:
        self.port = 0
        self.data_stream = self.error_stream = -1
        self.incoming: asyncio.Queue[bytes | None] = asyncio.Queue(1000)
        self.task: asyncio.Task[None] | None = None


async def forward_spdy(pod: PodSessions, protocol: str, receive: Receive, send: Send) -> None:
    """Serve the tunnel until the client goes."""
    await receive()
    await send({"type": "websocket.accept", "subprotocol": protocol})
    framer = Framer()
    pairs: dict[str, _Pair] = {}
    by_stream: dict[int, _Pair] = {}

    async def put(frame: bytes) -> None:
        await send({"type": "websocket.send", "bytes": frame})

    async def carry(pair: _Pair) -> None:
        async def to_client(data: bytes, *, fin: bool) -> None:
            await put(framer.data(pair.data_stream, data, fin=fin))

        fault = await _carry(pod, pair, to_client)
        await put(framer.data(pair.error_stream, fault.encode(), fin=True))
        if fault:
            await put(framer.data(pair.data_stream, b"", fin=True))

    async with asyncio.TaskGroup() as group:
        try:
            while (message := await receive())["type"] == "websocket.receive":
                for frame in framer.feed(message.get("bytes") or b""):
                    match frame:
                        case Opened(stream, headers):
                            await put(framer.reply(stream))
                            pair = pairs.setdefault(headers.get("requestid", str(stream)), _Pair())
                            by_stream[stream] = pair
                            if headers.get("streamtype") == "error":
                                pair.error_stream = stream
                            else:
                                pair.data_stream, pair.port = stream, int(headers.get("port", "0"))
                            if pair.task is None and pair.data_stream >= 0 and pair.error_stream >= 0:
                                if len(pairs) > PAIRS_MAX:
                                    await put(framer.reset(stream))
                                    continue
                                pair.task = group.create_task(carry(pair), name=f"port {pair.port}")
                                done = [key for key, other in pairs.items() if other.task and other.task.done()]
                                for key in done:
                                    del pairs[key]
                        case Payload(stream, data, fin):
                            found = by_stream.get(stream)
                            if found is not None and stream == found.data_stream:
                                if data:
                                    await found.incoming.put(data)
                                if fin:
                                    await found.incoming.put(None)
                        case Reset(stream):
                            found = by_stream.pop(stream, None)
                            if found is not None and found.task:
                                found.task.cancel()
                        case Pinged(number):
                            await put(framer.pong(number))
                        case Farewell():
                            pass
        finally:
            for pair in pairs.values():
                if pair.task:
                    pair.task.cancel()


async def forward_channels(
    pod: PodSessions, ports: tuple[int, ...], protocol: str | None, receive: Receive, send: Send
) -> None:
    """Serve the older protocol: channel 2n carries the data of the n-th port, 2n+1 its errors."""
    if not ports:
        raise bad_request("query parameter ports is required")
    await receive()
    await send({"type": "websocket.accept", **({"subprotocol": protocol} if protocol else {})})

    async def put(channel: int, data: bytes) -> None:
        await send({"type": "websocket.send", "bytes": bytes([channel]) + data})

    pairs = [_Pair() for _ in ports]

    async def carry(index: int) -> None:
        async def to_client(data: bytes, *, fin: bool) -> None:
            if data:
                await put(2 * index, data)

        fault = await _carry(pod, pairs[index], to_client)
        if fault:
            await put(2 * index + 1, fault.encode())

    async with asyncio.TaskGroup() as group:
        for index, port in enumerate(ports):
            for channel in (2 * index, 2 * index + 1):
                await put(channel, struct.pack("<H", port))
            pairs[index].port = port
            pairs[index].task = group.create_task(carry(index), name=f"port {port}")
        running = [pair.task for pair in pairs if pair.task]
        try:
            while (message := await receive())["type"] == "websocket.receive":
                data = message.get("bytes") or b""
                if data and data[0] % 2 == 0 and data[0] // 2 < len(pairs):
                    await pairs[data[0] // 2].incoming.put(data[1:])
        finally:
            for task in running:
                task.cancel()


async def _carry(pod: PodSessions, pair: _Pair, to_client: Callable[..., Awaitable[None]]) -> str:
    """Carry bytes both ways until both sides have ended; what went wrong, or ""."""
    try:
        reader, writer = await pod.connect(pair.port)
    except (DragomanError, OSError) as error:
        return f"an error occurred forwarding {pair.port}: {error}"
    fault = ""
    try:
        async with asyncio.TaskGroup() as group:
            back = group.create_task(_back(reader, to_client), name="port: back")
            forth = group.create_task(_forth(pair, writer), name="port: forth")
            back.add_done_callback(lambda _: forth.cancel())
    except* OSError as broken:
        fault = f"an error occurred forwarding {pair.port}: {broken.exceptions[0]}"
    finally:
        writer.close()
        with suppress(OSError):
            await writer.wait_closed()
    return fault


async def _back(reader: asyncio.StreamReader, to_client: Callable[..., Awaitable[None]]) -> None:
    while data := await reader.read(CHUNK):
        await to_client(data, fin=False)
    await to_client(b"", fin=True)


async def _forth(pair: _Pair, writer: asyncio.StreamWriter) -> None:
    while (data := await pair.incoming.get()) is not None:
        writer.write(data)
        await writer.drain()
    if writer.can_write_eof():
        writer.write_eof()
    await asyncio.Event().wait()  # the answer decides when it is over
