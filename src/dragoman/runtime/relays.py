"""Where is a pod reached that has a network of its own? By address and port, the port of 127.0.0.1 that relays to it.

Its address is one of loopback, too, but there another program may listen at all addresses, and would answer instead.
"""

from __future__ import annotations

import errno
import os

LOCAL = "127.0.0.1"


class Relays:
    """The relays of this process; who makes them enters them here."""

    def __init__(self) -> None:
        self._ports: dict[str, dict[int, int]] = {}

    def open(self, address: str) -> dict[int, int]:
        """A pod has that address from now on: its relays by the pod's port, to fill."""
        return self._ports.setdefault(address, {})

    def close(self, address: str) -> None:
        """It has no more."""
        self._ports.pop(address, None)

    def reached(self, host: str, port: int) -> tuple[str, int]:
        """Where to connect for an address and port of whatever kind. Raises ConnectionRefusedError for a pod that does
        not listen there."""
        if host not in self._ports:
            return host, port
        if port not in self._ports[host]:
            raise ConnectionRefusedError(errno.ECONNREFUSED, os.strerror(errno.ECONNREFUSED))
        return LOCAL, self._ports[host][port]


RELAYS = Relays()
