"""Do exec, attach and port-forward of the real kubectl reach whoever has the pod? Hosts of the test stand in for nodes."""

from __future__ import annotations

import asyncio
import re
import socket
import subprocess
from collections.abc import Iterator
from contextlib import closing

import msgspec
import pytest

from dragoman.apiserver.registry import Registry
from dragoman.apiserver.sessions import EndListener, OutputListener, PortConnection
from dragoman.apiserver.spdy import DICTIONARY, Framer, Payload
from dragoman.errors import NotFound

from .conftest import Kubectl

POD = """
apiVersion: v1
kind: Pod
metadata: {name: %s}
spec:
  containers: [{name: main, image: app}]
"""


class Upper:
    """A command that writes its input in capitals and ends with 3 at its end, or at once where it gets none."""

    def __init__(self, output: OutputListener, ended: EndListener, *, stdin: bool) -> None:
        self.output, self.ended = output, ended
        self.size = (0, 0)
        if not stdin:
            ended(3)

    def feed(self, data: bytes) -> None:
        self.output(1, data.upper())

    def end_input(self) -> None:
        self.output(2, b"over")
        self.ended(3)

    def resize(self, columns: int, rows: int) -> None:
        self.size = (columns, rows)

    def close(self) -> None:
        pass


class Pods:
    """Runs such a command; port 7 echoes, no other port listens."""

    def __init__(self) -> None:
        self.servers: list[asyncio.Server] = []

    def execute(
        self,
        container: str,
        command: tuple[str, ...],
        output: OutputListener,
        ended: EndListener,
        *,
        stdin: bool,
        tty: bool,
    ) -> Upper:
        if command == ("gone",):
            raise NotFound(f'container "{container}" is not running')
        output(1, f"{container}: {' '.join(command)}\n".encode())
        return Upper(output, ended, stdin=stdin)

    def attach(self, container: str, output: OutputListener, ended: EndListener, *, stdin: bool, tty: bool) -> Upper:
        output(1, b"attached\n")
        return Upper(output, ended, stdin=stdin)

    def check(self, container: str) -> None:
        raise NotFound(f'container "{container}" is not running')

    async def connect(self, port: int) -> PortConnection:
        if port != 7:
            raise NotFound(f"nothing listens on port {port}")
        self.servers.append(await asyncio.start_server(_echo, "127.0.0.1", 0))
        return await asyncio.open_connection(*self.servers[-1].sockets[0].getsockname())

    def close(self) -> None:
        for server in self.servers:
            server.close()


async def _echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(65536):
        writer.write(data)
        await writer.drain()
    writer.close()


@pytest.fixture
def pod(kubectl: Kubectl, ns: str) -> Iterator[str]:
    """A pod whose host is there, in the namespace that kubectl is told of."""
    pods = Pods()

    def device_state(registry: Registry) -> None:
        registry.sessions.add_host(lambda namespace, name: pods if (namespace, name) == (ns, "served") else None)

    kubectl.running.call(device_state)
    for name in ("served", "unserved"):
        kubectl("apply", "-n", ns, "-f", "-", stdin=POD % name)
    status = {"status": {"phase": "Running"}}
    kubectl("patch", "-n", ns, "pod", "served", "--subresource=status", "-p", msgspec.json.encode(status).decode())
    yield "served"
    kubectl.running.call(lambda registry: pods.close())


@pytest.mark.slow
def test_exec_carries_all_streams_and_the_exit_code(kubectl: Kubectl, ns: str, pod: str) -> None:
    done = kubectl("exec", "-n", ns, pod, "--", "a", "b c", ok=False)
    assert (done.code, done.out) == (3, "main: a b c\n")
    done = kubectl("exec", "-n", ns, "-i", pod, "--", "x", stdin="hello\n" * 1000, ok=False)
    assert (done.code, done.out) == (3, "main: x\n" + "HELLO\n" * 1000)
    assert done.err.startswith("over")


@pytest.mark.slow
def test_attach(kubectl: Kubectl, ns: str, pod: str) -> None:
    done = kubectl("attach", "-n", ns, "-i", pod, stdin="q", ok=False)
    assert "attached\nQ" in done.out


@pytest.mark.slow
def test_refusals_are_answers(kubectl: Kubectl, ns: str, pod: str) -> None:
    assert "is not running" in kubectl("exec", "-n", ns, pod, "--", "gone", ok=False).err
    assert "container other is not valid" in kubectl("exec", "-n", ns, pod, "-c", "other", "--", "x", ok=False).err
    assert "does not have a host assigned" in kubectl("exec", "-n", ns, "unserved", "--", "x", ok=False).err
    assert 'pods "none" not found' in kubectl("exec", "-n", ns, "none", "--", "x", ok=False).err


@pytest.fixture
def forwarded(kubectl: Kubectl, ns: str, pod: str) -> Iterator[tuple[list[int], subprocess.Popen[str]]]:
    process = kubectl.start("port-forward", "-n", ns, pod, ":7", ":8")
    assert process.stdout is not None
    ports = [int(found[1]) for _ in range(4) if (found := re.search(r":(\d+) ->", process.stdout.readline()))]
    assert ports, process.communicate(timeout=10)
    yield ports, process
    process.terminate()
    process.communicate(timeout=10)


@pytest.mark.slow
def test_port_forward_carries_bytes_both_ways(forwarded: tuple[list[int], subprocess.Popen[str]]) -> None:
    port = forwarded[0][0]
    text = bytes(range(256)) * 400
    for _ in range(3):
        with closing(socket.create_connection(("127.0.0.1", port), timeout=10)) as sock:
            sock.sendall(text)
            sock.shutdown(socket.SHUT_WR)
            got = bytearray()
            while data := sock.recv(65536):
                got += data
            assert bytes(got) == text


@pytest.mark.slow
def test_a_port_that_nobody_listens_on_is_said(forwarded: tuple[list[int], subprocess.Popen[str]]) -> None:
    ports, process = forwarded
    with closing(socket.create_connection(("127.0.0.1", ports[2]), timeout=10)) as sock:
        assert sock.recv(10) == b""
    process.terminate()
    _, errors = process.communicate(timeout=10)
    assert "nothing listens on port 8" in errors


def test_frames_of_spdy_come_back_whole() -> None:
    assert len(DICTIONARY) == 1423
    client, server = Framer(), Framer()
    frames = client.data(5, b"abc") + client.data(7, b"", fin=True)
    pieces = [frames[at : at + 3] for at in range(0, len(frames), 3)]
    assert [frame for piece in pieces for frame in server.feed(piece)] == [
        Payload(5, b"abc", False),
        Payload(7, b"", True),
    ]
    assert list(server.feed(client.reply(5))) == []
    with pytest.raises(ValueError, match="SPDY version"):
        list(server.feed(b"\x80\x02" + bytes(6)))
