"""How does a pod of processes get a network of its own? A network namespace with loopback alone, and relays.

Each port that something in it listens on is relayed, for Services, webhooks, probes and port-forward (`RELAYS`) and
for other programs at the pod's address, which is one of loopback (127.0.0.0/8). The API server is reached from inside
at the port that it has outside. Nothing else is: no other pod, no Service, no other network. A helper process in the
namespace opens the sockets and hands them over; whoever holds a socket may use it from anywhere.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable, Coroutine
from contextlib import suppress
from pathlib import Path

from dragoman.errors import Retry
from dragoman.kubelet.isolation import Isolation, isolation
from dragoman.runtime.log import get
from dragoman.runtime.relays import LOCAL, RELAYS

POLL_S = 0.25
ANSWER_S = 10.0
CHUNK = 64 * 1024
_LISTENING = "0A"
_HELPER = """
import fcntl, socket, struct
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
    fcntl.ioctl(any_socket, 0x8914, struct.pack("16sh22x", b"lo", 0x41))  # SIOCSIFFLAGS: up and running
link = socket.socket(fileno=0)
link.send(b"ready")
while words := link.recv(200).decode().split():
    what, host, port = words[0], words[1], int(words[2])
    try:
        make = socket.create_server if what == "listen" else socket.create_connection
        with make((host, port)) as made:
            socket.send_fds(link, [b"made"], [made.fileno()])
    except OSError as error:
        link.send((error.strerror or str(error)).encode())
"""


def possible() -> bool:
    """Whether this machine lets pods have networks of their own; tried once, with the rest of `isolation`."""
    return isolation() is not Isolation.NONE and shutil.which("unshare") is not None


class PodNetwork:
    """The network of one pod at an address of loopback. `await open()` it, `close()` it.

    refused(port): called when a port cannot be had at the address, since somebody has it at all.
    """

    def __init__(self, address: str, api_port: int, refused: Callable[[int], None]) -> None:
        self.address = address
        self._refused = refused
        self._relays = RELAYS.open(address)
        self.api_port = api_port
        self._servers: dict[int, list[asyncio.Server]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._asking = asyncio.Lock()
        self._log = get("kubelet", address=address)
        self._link, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._link.settimeout(ANSWER_S)
        user = [] if isolation() is Isolation.ROOT else ["--user", "--map-root-user"]
        with theirs:
            own = ["unshare", *user, "--net", "setpriv", "--pdeathsig=KILL"]
            self._helper = subprocess.Popen(  # noqa: S603 - our own program
                [*own, sys.executable, "-I", "-S", "-c", _HELPER],
                stdin=theirs.fileno(),
                stdout=subprocess.DEVNULL,
                start_new_session=True,
            )

    async def open(self) -> None:
        """Bring it up, with the API server in it. Raises Retry."""
        try:
            if await asyncio.to_thread(self._link.recv, 200) != b"ready":
                raise Retry("a network for the pod could not be made; see the log of dragoman up")
        except OSError as error:
            raise Retry(f"a network for the pod could not be made: {error}") from None
        inside = await self._ask("listen", LOCAL, self.api_port)
        server = await asyncio.start_server(self._to_api, sock=inside)
        self._servers[self.api_port] = [server]
        self._begin(self._follow())

    @property
    def entering(self) -> list[str]:
        """The words before a command that is to run in it."""
        target = f"--target={self._helper.pid}"
        user = [] if isolation() is Isolation.ROOT else ["--user", "--preserve-credentials"]
        return ["nsenter", target, *user, "--net"]

    def close(self) -> None:
        """End the relays and the helper; processes in the namespace keep it until they end."""
        for task in tuple(self._tasks):
            task.cancel()
        for port in tuple(self._servers):
            self._withdraw(port)
        RELAYS.close(self.address)
        self._link.close()
        self._helper.kill()
        self._helper.wait()

    def _begin(self, work: Coroutine[object, object, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _ask(self, what: str, host: str, port: int) -> socket.socket:
        """A socket of the namespace. Raises Retry."""
        async with self._asking:
            try:
                return await asyncio.to_thread(self._asked, f"{what} {host} {port}")
            except OSError as error:
                raise Retry(f"port {port} in the network of the pod at {self.address}: {error}") from None

    def _asked(self, question: str) -> socket.socket:
        self._link.send(question.encode())
        answer, fds, _, _ = socket.recv_fds(self._link, 200, 1)
        if not fds:
            raise OSError(answer.decode() or "the helper ended")
        made = socket.socket(fileno=fds[0])
        made.setblocking(False)
        return made

    # ---- relays

    async def _to_api(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            await _relay(reader, writer, *await asyncio.open_connection(LOCAL, self.api_port))
        writer.close()

    async def _follow(self) -> None:
        """Offer outside what listens inside."""
        while True:
            inside = {port: host for host, port in _listening(self._helper.pid) if port != self.api_port}
            for port, host in inside.items():
                if port not in self._servers:
                    await self._offer(host, port)
            for port in [port for port in self._servers if port not in inside and port != self.api_port]:
                self._withdraw(port)
            await asyncio.sleep(POLL_S)

    async def _offer(self, host: str, port: int) -> None:
        async def inward(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            with suppress(OSError, Retry):
                made = await self._ask("connect", host, port)
                await _relay(reader, writer, *await asyncio.open_connection(sock=made))
            writer.close()

        relay = await asyncio.start_server(inward, LOCAL)
        self._servers[port] = [relay]
        self._relays[port] = relay.sockets[0].getsockname()[1]
        try:
            self._servers[port].append(await asyncio.start_server(inward, self.address, port))
        except OSError as error:
            self._log.debug("cannot offer a port of the pod", port=port, error=str(error))
            self._refused(port)

    def _withdraw(self, port: int) -> None:
        self._relays.pop(port, None)
        for server in self._servers.pop(port):
            server.close()


async def _relay(
    near: asyncio.StreamReader, near_out: asyncio.StreamWriter, far: asyncio.StreamReader, far_out: asyncio.StreamWriter
) -> None:
    """Pass on what either side says until both have ended."""

    async def one_way(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while data := await source.read(CHUNK):
                target.write(data)
                await target.drain()
            target.write_eof()

    try:
        await asyncio.gather(one_way(near, far_out), one_way(far, near_out))
    finally:
        far_out.close()


def _listening(pid: int) -> list[tuple[str, int]]:
    """(address to connect to, port) of the sockets that listen in the network of a process."""
    found: list[tuple[str, int]] = []
    for name, any_address in (("tcp", "0" * 8), ("tcp6", "0" * 32)):
        try:
            lines = Path(f"/proc/{pid}/net/{name}").read_text().splitlines()[1:]
        except OSError:
            continue
        for line in lines:
            local, _, state = line.split()[1:4]
            host, _, port = local.partition(":")
            if state == _LISTENING:
                plain = host == any_address or name == "tcp6"
                found.append(("localhost" if plain else _dotted(host), int(port, 16)))
    return found


def _dotted(text: str) -> str:
    return socket.inet_ntoa(bytes.fromhex(text)[::-1] if sys.byteorder == "little" else bytes.fromhex(text))


def address_of(pod_ip: str) -> str:
    """The address of loopback that stands for an address of a node's range; other processes like this have others."""
    _, second, third, fourth = pod_ip.split(".")
    return f"127.{1 + (int(second) + os.getpid()) % 250}.{third}.{fourth}"
