"""What does a container runtime put into a container by itself, looking at its environment? Hooks of a node's runtime.

An `Injector` stands for what is installed on the node, such as a vendor's container toolkit. It sees a container as
the runtime would (environment, mounts, privileges, what CDI gave it) and answers with edits and programs.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

import msgspec

from dragoman.kubelet.shell.language import ShellProgram
from dragoman.node.cdi import NO_EDITS, Edits
from dragoman.node.device_plugin import HostMount


class ContainerRequest(msgspec.Struct, frozen=True):
    """A container as the runtime sees it. env: with the image's and CDI's; edits: by CDI and device plugins.

    mounts: of device plugins, with their host paths. runtime_class: of the pod, "" for the default.
    """

    image: str
    env: Mapping[str, str]
    edits: Edits = NO_EDITS
    mounts: tuple[HostMount, ...] = ()
    privileged: bool = False
    runtime_class: str = ""


class Injection(msgspec.Struct, frozen=True):
    """What is added: edits, and programs by name."""

    edits: Edits = NO_EDITS
    tools: Mapping[str, ShellProgram] = {}


class Injector(Protocol):
    """What is installed beside a node's container runtime."""

    def image_env(self, image: str) -> Mapping[str, str]:
        """The environment that an image is known to set; {} for others."""
        ...

    def inject(self, container: ContainerRequest) -> Injection:
        """What the container gets. Raises Invalid where the runtime would fail to start it."""
        ...
