"""How do exec, attach and port-forward reach a container? WebSockets of the API server, as kubectl 1.30 and newer open
them.

exec and attach speak `v5.channel.k8s.io` and its elders: one byte names the channel of a message (0 input, 1 output,
2 errors, 3 status, 4 terminal size, 255 end of a channel). port-forward speaks SPDY inside WebSocket messages (`spdy`)
or the older channels. Clients that can only upgrade to SPDY get an error from `handlers`. It decides nothing about
pods.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
from collections.abc import Callable
from contextlib import suppress
from typing import Any, TypeVar

import msgspec

from dragoman.api.shape import Object
from dragoman.apiserver.http import HttpRequest, Receive, Send
from dragoman.apiserver.portforward import forward_channels, forward_spdy
from dragoman.apiserver.sessions import PodSessions, Session
from dragoman.apiserver.status import StatusError, bad_request
from dragoman.errors import Denied, DragomanError, NotFound

T = TypeVar("T")

INPUT, OUTPUT, ERRORS, STATUS, RESIZE, CLOSE = 0, 1, 2, 3, 4, 255
CHANNELS = ("v5.channel.k8s.io", "v4.channel.k8s.io", "v3.channel.k8s.io", "v2.channel.k8s.io", "channel.k8s.io")
TEXT_CHANNELS = tuple(f"{name.removesuffix('channel.k8s.io')}base64.channel.k8s.io" for name in CHANNELS)
TUNNEL = "SPDY/3.1+portforward.k8s.io"
FORWARDS = (TUNNEL, "v4.channel.k8s.io", "portforward.k8s.io", "channel.k8s.io")
WAITING_MAX = 10_000
"""Messages that may wait for a client that does not read."""


class SessionRequest(msgspec.Struct, frozen=True):
    """What a client asks for. verb is exec, attach or portforward."""

    verb: str
    container: str = ""
    command: tuple[str, ...] = ()
    stdin: bool = False
    stdout: bool = False
    stderr: bool = False
    tty: bool = False
    ports: tuple[int, ...] = ()


def wanted_of(verb: str, request: HttpRequest, query: list[tuple[str, str]]) -> SessionRequest:
    """The options of a request. Raises 400."""
    command = tuple(value for key, value in query if key == "command")
    if verb == "exec" and not command:
        raise bad_request("you must specify at least one command for the container")
    flags = {name: request.flag(name) for name in ("stdin", "stdout", "stderr", "tty")}
    if verb != "portforward" and not (flags["stdin"] or flags["stdout"] or flags["stderr"]):
        raise bad_request("you must specify at least one of stdin, stdout, stderr")
    if flags["tty"] and flags["stderr"]:
        flags["stderr"] = False  # a terminal has one output
    ports: list[int] = []
    for key, value in query:
        if key == "ports":
            for text in value.split(","):
                if not text.isdecimal() or not 0 < int(text) < 65536:
                    raise bad_request(f"ports: {text!r} is not a port")
                ports.append(int(text))
    return SessionRequest(verb, request.query.get("container", ""), command, **flags, ports=tuple(ports))


def options_of(wanted: SessionRequest) -> Object:
    """What admission reads of a session: PodExecOptions, PodAttachOptions or PodPortForwardOptions of v1."""
    if wanted.verb == "portforward":
        ports = {"ports": list(wanted.ports)} if wanted.ports else {}
        return {"kind": "PodPortForwardOptions", "apiVersion": "v1", **ports}
    kind = "PodExecOptions" if wanted.verb == "exec" else "PodAttachOptions"
    flags = {name: True for name in ("stdin", "stdout", "stderr", "tty") if getattr(wanted, name)}
    command = {"command": list(wanted.command)} if wanted.verb == "exec" else {}
    return {"kind": kind, "apiVersion": "v1", **flags, "container": wanted.container, **command}


async def serve(
    wanted: SessionRequest, pod: PodSessions, subprotocols: list[str], receive: Receive, send: Send
) -> None:
    """Serve one accepted WebSocket to its end. Raises Refused before it is accepted."""
    known = FORWARDS if wanted.verb == "portforward" else (*CHANNELS, *TEXT_CHANNELS)
    chosen = next((name for name in subprotocols if name in known), None)
    if subprotocols and chosen is None:
        raise StatusError(
            400, "BadRequest", f"no subprotocol of {', '.join(subprotocols)} is served: {', '.join(known)}"
        )
    if wanted.verb == "portforward":
        if chosen == TUNNEL:
            await forward_spdy(pod, chosen, receive, send)
        else:
            await forward_channels(pod, wanted.ports, chosen, receive, send)
        return
    await _Channels(wanted, chosen or "", receive, send).serve(pod)


class _Channels:
    def __init__(self, wanted: SessionRequest, protocol: str, receive: Receive, send: Send) -> None:
        self.wanted = wanted
        self.protocol = protocol
        self.text = "base64." in protocol
        self.receive = receive
        self.send = send
        self.out: asyncio.Queue[tuple[int, bytes] | None] = asyncio.Queue()

    async def serve(self, pod: PodSessions) -> None:
        """Begin the session, so that a no is still an HTTP answer, then pass bytes on until one side ends."""
        session = self._begin(pod)
        try:
            await self.receive()  # the request to connect
            accept: dict[str, Any] = {"type": "websocket.accept"}
            await self.send(accept | ({"subprotocol": self.protocol} if self.protocol else {}))
            # Upstream's servers begin so; clients take it as the sign that the command runs.
            await self._message(OUTPUT, b"")
            async with asyncio.TaskGroup() as group:
                writer = group.create_task(self._write(), name="stream: out")
                reader = group.create_task(self._read(session), name="stream: in")
                writer.add_done_callback(lambda _: reader.cancel())
                reader.add_done_callback(lambda _: self.out.put_nowait(None))
        finally:
            session.close()

    def _begin(self, pod: PodSessions) -> Session:
        wanted = self.wanted

        def output(number: int, data: bytes) -> None:
            if number == ERRORS and wanted.tty:
                number = OUTPUT
            if (wanted.stdout if number == OUTPUT else wanted.stderr) and self.out.qsize() < WAITING_MAX:
                self.out.put_nowait((number, data))

        def ended(code: int) -> None:
            self.out.put_nowait((STATUS, self._status(code)))
            self.out.put_nowait(None)

        def begin() -> Session:
            if wanted.verb == "attach":
                return pod.attach(wanted.container, output, ended, stdin=wanted.stdin, tty=wanted.tty)
            return pod.execute(wanted.container, wanted.command, output, ended, stdin=wanted.stdin, tty=wanted.tty)

        return refusing(begin)

    def _status(self, code: int) -> bytes:
        if self.protocol and self.protocol[:2] in ("v4", "v5"):
            return msgspec.json.encode(exit_status(code))
        return b"" if code == 0 else f"command terminated with exit code {code}".encode()

    async def _message(self, channel: int, data: bytes) -> None:
        if self.text:
            text = chr(ord("0") + channel) + base64.b64encode(data).decode()
            await self.send({"type": "websocket.send", "text": text})
        else:
            await self.send({"type": "websocket.send", "bytes": bytes([channel]) + data})

    async def _write(self) -> None:
        with suppress(OSError, RuntimeError):  # the client has gone
            while (entry := await self.out.get()) is not None:
                await self._message(*entry)
            await self.send({"type": "websocket.close", "code": 1000})

    async def _read(self, session: Session) -> None:
        while (message := await self.receive())["type"] == "websocket.receive":
            data = message.get("bytes")
            if data is None:
                data = (message.get("text") or "").encode("latin-1", "replace")
            if not data:
                continue
            channel, rest = data[0], data[1:]
            if self.text:
                channel -= ord("0")
                with suppress(binascii.Error):
                    rest = base64.b64decode(rest)
            if channel == INPUT and self.wanted.stdin:
                session.feed(rest)
            elif channel == CLOSE and rest[:1] == bytes([INPUT]):
                session.end_input()
            elif channel == RESIZE:
                with suppress(msgspec.MsgspecError, TypeError, AttributeError, ValueError):
                    size = msgspec.json.decode(rest)
                    session.resize(int(size.get("Width", 0)), int(size.get("Height", 0)))


def refusing(work: Callable[[], T]) -> T:
    """What a host answers; its no as a refusal of the API."""
    try:
        return work()
    except NotFound as error:
        raise StatusError(404, "NotFound", str(error)) from None
    except Denied as error:
        raise StatusError(403, "Forbidden", str(error)) from None
    except DragomanError as error:
        raise StatusError(500, "InternalError", str(error)) from None


def exit_status(code: int) -> Object:
    """What channel 3 says of the end of a command."""
    if code == 0:
        return {"metadata": {}, "status": "Success"}
    return {
        "metadata": {},
        "status": "Failure",
        "message": f"command terminated with non-zero exit code: error executing command, exit code {code}",
        "reason": "NonZeroExitCode",
        "details": {"causes": [{"reason": "ExitCode", "message": str(code)}]},
    }
