"""What does a container runtime get in place of hardware that a machine only pretends to have? Files that exist.

A simulated driver beside a real kubelet cannot name device nodes, libraries and hooks that are nowhere: the runtime
would refuse to start the container. Device nodes are made below a folder of the driver's own, each like /dev/null (or
as a plain file, without the right to make nodes); programs stand in for those of the vendor; the rest is left out. The
environment stays as it is, with DRAGOMAN_SIMULATED=true beside.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from dragoman.node.cdi import DeviceNode, Edits, Mount
from dragoman.node.driver import Setup
from dragoman.node.files import write_atomically

NULL = (1, 3)
"""Major and minor number of /dev/null: reads end at once, writes vanish."""
SIMULATED = "DRAGOMAN_SIMULATED=true"
_READ_ONLY = ("ro", "nosuid", "nodev", "bind")
_WRITABLE = ("rw", "nosuid", "bind")


class StandIns:
    """root: the folder; programs: texts of scripts by their path in containers. own: mounts from below it are kept."""

    def __init__(self, root: Path, programs: Mapping[str, str], own: Path) -> None:
        self.root = root
        self.programs = programs
        self.own = own

    def of(self, setup: Setup) -> Setup:
        """The same setup with what exists here; makes the files. Raises OSError."""
        devices = [msgspec.structs.replace(device, edits=self._edits(device.edits)) for device in setup.devices]
        common = self._edits(setup.edits)
        return Setup(devices, msgspec.structs.replace(common, env=(*common.env, SIMULATED)))

    def _edits(self, edits: Edits) -> Edits:
        nodes: list[DeviceNode] = []
        mounts = list(self._mounts(edits.mounts))
        for node in edits.device_nodes:
            host = self._below(node.path)
            if self._is_node(host):
                made = DeviceNode(node.path, str(host), "c", *NULL, permissions=node.permissions)
                nodes.append(made)
            else:
                mounts.append(Mount(str(host), node.path, options=_WRITABLE))
        return Edits(
            env=edits.env, device_nodes=tuple(nodes), mounts=tuple(mounts), additional_gids=edits.additional_gids
        )

    def _mounts(self, mounts: Sequence[Mount]) -> list[Mount]:
        kept = []
        for mount in mounts:
            text = self.programs.get(mount.container_path)
            if text is not None:
                path = self._below(mount.container_path)
                write_atomically(path, text.encode(), durable=False, mode=0o755)
                kept.append(Mount(str(path), mount.container_path, options=_READ_ONLY))
            elif Path(mount.host_path).is_relative_to(self.own):
                kept.append(mount)
        return kept

    def _below(self, path: str) -> Path:
        host = self.root / path.lstrip("/")
        host.parent.mkdir(parents=True, exist_ok=True)
        return host

    def _is_node(self, host: Path) -> bool:
        """Whether that is a device node now, made if it was not there; else it is a plain file."""
        try:
            os.mknod(host, stat.S_IFCHR | 0o666, os.makedev(*NULL))
            host.chmod(0o666)
        except FileExistsError:
            return stat.S_ISCHR(host.stat().st_mode)
        except PermissionError:
            host.touch(mode=0o666)
            return False
        return True
