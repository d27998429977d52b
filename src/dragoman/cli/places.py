"""May a node's daemon work there? Its name and its folder are refused before it starts, not again and again after."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from dragoman.errors import Denied, Invalid
from dragoman.node.paths import check_kubelet
from dragoman.values.names import dns_subdomain


def check_node(name: str) -> None:
    """Raises Invalid for what no Node can be named."""
    if (wrong := dns_subdomain(name)) is not None:
        raise Invalid("--node-name", f"{name!r}: {wrong}")


def check_root(folder: Path, longest: str) -> None:
    """Make it. Raises Invalid or Denied for a folder that cannot be made, or is too deep for the socket `longest`.

    The kubelet's own folder is never made: where it is missing nobody would ever call the driver.
    """
    from dragoman.node.rpc import checked_socket  # --help is fast without gRPC

    checked_socket(folder.absolute() / longest)
    check_kubelet(folder)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise Denied(f"--root-dir {folder}: cannot be made: {error.strerror}; name another folder") from None
    # In a pod the two folders below are mounts, and what is around them is read-only.
    below = [folder / name for name in ("plugins", "plugins_registry")]
    for written in below if all(one.is_dir() for one in below) else [folder]:
        if not os.access(written, os.W_OK | os.X_OK):
            raise Denied(f"--root-dir {folder}: not allowed to write to {written}; name another folder")


def hold_devices(folder: Path, driver: str, what: str, *, shared: bool = False) -> int:
    """Keep whoever gives the driver's devices to containers in another way out, as `hold_root`; shared: with others of
    the same way, as in a rolling update. Raises Denied."""
    path = folder / f"{driver}.devices.lock"
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except BlockingIOError:
        other = os.pread(descriptor, 200, 0).decode(errors="replace").strip() or "another process"
        os.close(descriptor)
        raise Denied(
            f"--root-dir {folder}: the devices of {driver} are allocated to containers by the {other} of this node: "
            "stop it first; a device must not be allocated twice"
        ) from None
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, what.encode(), 0)
    return descriptor


def hold_root(folder: Path, what: str) -> int:
    """Keep others of that kind out until this process ends; the lock's descriptor. Raises Denied if one is there."""
    descriptor = os.open(folder / f"{what.replace(' ', '-')}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        raise Denied(f"--root-dir {folder}: another {what} uses this folder: stop it, or name another folder") from None
    return descriptor
