"""Who runs a command in a container for `kubectl exec`, or connects to one of its ports? Hosts of pods offer it here.

The API passes bytes on (`streams`); a host says no by raising NotFound, Denied or Retry. Nothing is decided here.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol, TypeAlias

OutputListener: TypeAlias = Callable[[int, bytes], None]
"""Hears (1 or 2, bytes)."""
EndListener: TypeAlias = Callable[[int], None]
"""Hears the exit code, once."""
PortConnection: TypeAlias = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class Session(Protocol):
    """A command that somebody is connected to."""

    def feed(self, data: bytes) -> None:
        """Input."""
        ...

    def end_input(self) -> None:
        """No more input."""
        ...

    def resize(self, columns: int, rows: int) -> None:
        """The size of the terminal."""
        ...

    def close(self) -> None:
        """Whoever was connected has gone."""
        ...


class PodSessions(Protocol):
    """What a host offers for one pod. All raise NotFound, Denied or Retry."""

    def check(self, container: str) -> None:
        """Whether a command could be run there."""
        ...

    def execute(
        self,
        container: str,
        command: tuple[str, ...],
        output: OutputListener,
        ended: EndListener,
        *,
        stdin: bool,
        tty: bool,
    ) -> Session:
        """Run a command beside the container's own."""
        ...

    def attach(self, container: str, output: OutputListener, ended: EndListener, *, stdin: bool, tty: bool) -> Session:
        """Connect to the container's own command."""
        ...

    async def connect(self, port: int) -> PortConnection:
        """A connection to a port of the pod."""
        ...


SessionHost: TypeAlias = Callable[[str, str], PodSessions | None]
"""The sessions of a pod by namespace and name; None for one that is not here."""


class Sessions:
    """The hosts of one API server."""

    def __init__(self) -> None:
        self._hosts: list[SessionHost] = []

    def add_host(self, host: SessionHost) -> None:
        """Ask this host, too."""
        self._hosts.append(host)

    def of(self, namespace: str, name: str) -> PodSessions | None:
        """Whoever has the pod."""
        return next((found for host in self._hosts if (found := host(namespace, name)) is not None), None)
