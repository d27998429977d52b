"""Does a process answer? The http, tcp and grpc probes of containers that are processes of this machine.

Simulated containers listen nowhere, so nobody asks them (`probes`).
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable, Mapping
from typing import Any

import grpc

from dragoman.kubelet.pod import KubeletContainer
from dragoman.runtime.relays import RELAYS

SHOWN = 256
"""Characters of a refusal's body in the message."""
_SERVING = 1
_HEALTH = "/grpc.health.v1.Health/Check"


class NetworkProbe:
    """One question. ended(code) is called once on the loop, 0 for yes, with what there is to say passed to `output`."""

    def __init__(
        self,
        container: KubeletContainer,
        spec: Mapping[str, Any],
        address: str,
        output: Callable[[int, bytes], None],
        ended: Callable[[int], None],
    ) -> None:
        self._output = output
        self._ended = ended
        self._task = asyncio.ensure_future(self._run(container, spec, address))

    async def _run(self, container: KubeletContainer, spec: Mapping[str, Any], address: str) -> None:
        try:
            failure = await _asked(container, spec, address)
        except (OSError, grpc.RpcError, ValueError) as error:
            failure = str(error)
        if failure:
            self._output(2, failure.encode())
        self._ended(1 if failure else 0)

    # ---- as programs.Running, of which a probe only ends

    def feed(self, data: bytes) -> None:
        """Nobody reads."""

    def end_input(self) -> None:
        """Nobody reads."""

    def signal(self, number: int) -> bool:
        """There is nothing to signal."""
        return False

    def interrupt(self) -> None:
        """There is nothing to interrupt."""

    def resize(self, columns: int, rows: int) -> None:
        """There is no terminal."""

    def close(self) -> None:
        """Stop asking."""
        self._task.cancel()


async def _asked(container: KubeletContainer, spec: Mapping[str, Any], address: str) -> str:
    """Why the answer is no; "" for yes."""
    asked = next(spec[key] for key in ("httpGet", "tcpSocket", "grpc") if key in spec)
    host, port = RELAYS.reached(asked.get("host") or address, _port(container, asked.get("port")))
    if "httpGet" in spec:
        return await _http(asked, host, port)
    if "grpc" in spec:
        return await _grpc(f"{host}:{port}", asked.get("service") or "")
    _, writer = await asyncio.open_connection(host, port)
    writer.close()
    return ""


async def _http(asked: Mapping[str, Any], host: str, port: int) -> str:
    scheme = (asked.get("scheme") or "HTTP").lower()
    path = asked.get("path") or "/"
    url = f"{scheme}://{host}:{port}{path if path.startswith('/') else '/' + path}"
    headers = {"User-Agent": "kube-probe/1.37", "Accept": "*/*"}
    headers |= {header["name"]: header.get("value", "") for header in asked.get("httpHeaders") or ()}
    # As kubelets do it: who answers is not the question.
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    import aiohttp  # takes 0.1 s to import, and most clusters have no process that is probed

    try:
        async with (
            aiohttp.ClientSession() as session,
            session.get(url, headers=headers, ssl=context, allow_redirects=False) as reply,
        ):
            status = reply.status
            body = "" if 200 <= status < 400 else (await reply.content.read(SHOWN)).decode("utf-8", "replace")
    except aiohttp.ClientError as error:
        raise OSError(str(error)) from None
    if 200 <= status < 400:
        return ""
    return f"HTTP probe failed with statuscode: {status}" + (f": {body}" if body else "")


async def _grpc(target: str, service: str) -> str:
    # HealthCheckRequest{service = 1} and HealthCheckResponse{status = 1} of grpc.health.v1, written out.
    name = service.encode()
    request = b"\x0a" + bytes([len(name)]) + name if name else b""
    async with grpc.aio.insecure_channel(target) as channel:
        call = channel.unary_unary(_HEALTH, request_serializer=bytes, response_deserializer=bytes)
        reply: bytes = await call(request)
    status = reply[1] if reply[:1] == b"\x08" and len(reply) > 1 else 0
    return "" if status == _SERVING else f"service unhealthy (responded with status {status})"


def _port(container: KubeletContainer, asked: Any) -> int:
    if isinstance(asked, int):
        return asked
    named = next((port.get("containerPort") for port in container.ports if port.get("name") == asked), None)
    if named is None and str(asked).isdecimal():
        named = int(str(asked))
    if named is None:
        raise ValueError(f"container {container.name} has no port {asked!r}")
    return int(named)
