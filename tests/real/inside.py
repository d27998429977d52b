"""What is the first process of a machine's own namespaces? Sets up its network and mounts, then forwards and reaps.

    python -m tests.real.inside FOLDER SOCKET PORT

Run as PID 1 by machine.py, under `unshare --mount --net --pid`. SOCKET is the number of a listening socket that belongs
to the network outside; what connects there is led to PORT in here, so that one kubeconfig serves on both sides. Nothing
that happens here is seen outside, and the kernel takes all of it away when this process is killed.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

ADDRESS = "10.99.0.1"
SERVICE = "10.0.0.1"
"""Of the Service `kubernetes`, which pods reach the API by; there is no kube-proxy."""
BRIDGE = "cni0"
SYSCTLS = (
    *("vm/overcommit_memory", "vm/panic_on_oom", "kernel/panic", "kernel/panic_on_oops"),
    *("kernel/keys/root_maxkeys", "kernel/keys/root_maxbytes"),
)


def set_up(folder: Path) -> None:
    """Network and mounts of the machine."""
    _do("mount", "--make-rprivate", "/")
    _do("mount", "--make-rshared", "/")  # shared in here: volumes with HostToContainer need it
    _do("ip", "link", "set", "lo", "up")
    _do("ip", "link", "add", BRIDGE, "type", "bridge")
    _do("ip", "address", "add", f"{ADDRESS}/24", "dev", BRIDGE)
    _do("ip", "address", "add", f"{SERVICE}/32", "dev", BRIDGE)
    _do("ip", "link", "set", BRIDGE, "up")
    upper, work = folder / "varlib", folder / "varlib-work"
    for one in (upper, work, folder / "kubelet", folder / "varlog", folder / "cdi", folder / "sysctl"):
        one.mkdir(exist_ok=True)
    _do("mount", "-t", "overlay", "overlay", "-o", f"lowerdir=/var/lib,upperdir={upper},workdir={work}", "/var/lib")
    Path("/var/lib/kubelet").mkdir(exist_ok=True)
    _do("mount", "--bind", f"{folder}/kubelet", "/var/lib/kubelet")
    _do("mount", "--make-rshared", "/var/lib/kubelet")
    _do("mount", "--bind", f"{folder}/varlog", "/var/log")
    _do("mount", "-t", "tmpfs", "tmpfs", "/run")
    for one in ("/run/cdi", "/run/netns"):
        Path(one).mkdir()
    _do("mount", "--bind", f"{folder}/cdi", "/run/cdi")
    for name in SYSCTLS:  # the kubelet writes these: files of its own instead of the kernel's
        copy = folder / "sysctl" / name.replace("/", ".")
        copy.write_text(Path("/proc/sys", name).read_text())
        _do("mount", "--bind", str(copy), f"/proc/sys/{name}")


def _do(*command: str) -> None:
    subprocess.run(command, check=True, env={**os.environ, "PATH": "/usr/sbin:/usr/bin:/sbin:/bin"})


async def serve(listening: socket.socket, port: int) -> None:
    """Lead connections in, and reap what is orphaned, until killed."""
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGCHLD, _reap)

    async def lead(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            there, back = await asyncio.open_connection("127.0.0.1", port)
        except OSError:
            writer.close()
            return
        await asyncio.gather(_pipe(reader, back), _pipe(there, writer))

    inner = await asyncio.start_server(lead, SERVICE, 443)
    outer = await asyncio.start_server(lead, sock=listening)
    await asyncio.gather(inner.serve_forever(), outer.serve_forever())


async def _pipe(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while data := await reader.read(1 << 16):
            writer.write(data)
            await writer.drain()
    writer.close()


def _reap() -> None:
    with suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def main(folder: Path, number: int, port: int) -> None:
    set_up(folder)
    (folder / "ready").touch()
    asyncio.run(serve(socket.socket(fileno=number), port))


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
