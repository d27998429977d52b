"""Where do the logs of a container come from? Whoever runs a pod registers a source; the API only passes on.

A source gets the options of `kubectl logs` and yields text; it ends when it is exhausted or, with follow, when the
container has ended.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable

import msgspec


class LogOptions(msgspec.Struct, frozen=True):
    """The query of pods/log. Counts and ages are None where not asked for; since is an age in seconds."""

    container: str
    follow: bool = False
    previous: bool = False
    timestamps: bool = False
    tail_lines: int | None = None
    since_s: float | None = None
    limit_bytes: int | None = None


LogSource = Callable[[LogOptions], AsyncIterator[bytes]]
LogHost = Callable[[str, str], LogSource | None]
"""The source for a pod by namespace and name, None where it is unknown or has not started."""


class Logs:
    """Sources by uid of the pod, and hosts of many pods that are asked when a log is wanted."""

    def __init__(self) -> None:
        self._sources: dict[str, LogSource] = {}
        self._hosts: list[LogHost] = []

    def add_host(self, host: LogHost) -> None:
        """Ask this host about pods that nobody registered."""
        self._hosts.append(host)

    def register(self, pod_uid: str, source: LogSource) -> None:
        """This source serves that pod from now on."""
        self._sources[pod_uid] = source

    def forget(self, pod_uid: str) -> None:
        """The pod's logs are gone."""
        self._sources.pop(pod_uid, None)

    def of(self, pod_uid: str, namespace: str, name: str) -> LogSource | None:
        """Who has the pod's logs."""
        own = self._sources.get(pod_uid)
        if own is not None:
            return own
        return next((source for host in self._hosts if (source := host(namespace, name))), None)
