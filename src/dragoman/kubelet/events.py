"""How does a node tell people what happened? Events about its pods, counted when they repeat, shed under load.

Written in the background: nobody waits for an event, and a full queue drops the newest. It decides nothing.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from datetime import UTC, datetime
from typing import Any

import msgspec

from dragoman.api.kinds import kind_of
from dragoman.api.meta import Ref, format_time
from dragoman.cluster.client import Client
from dragoman.errors import DragomanError, NotFound
from dragoman.runtime.clock import Clock
from dragoman.runtime.log import get

EVENT = kind_of("Event")
QUEUE_MAX = 2000
NORMAL_MAX = 200
"""Above so many waiting events only warnings are taken."""
KNOWN_MAX = 4096

_Key = tuple[str, str, str, str, str]


class _Event(msgspec.Struct, frozen=True):
    about: Ref
    type: str
    reason: str
    message: str
    host: str
    field: str
    when: float


class _Known(msgspec.Struct):
    name: str
    count: int


class Events:
    """One sink for all nodes of a process."""

    def __init__(self, client: Client, clock: Clock, *, component: str = "kubelet") -> None:
        self.client = client
        self.clock = clock
        self.component = component
        self.dropped = 0
        self._queue: asyncio.Queue[_Event] = asyncio.Queue(QUEUE_MAX)
        self._known: OrderedDict[_Key, _Known] = OrderedDict()
        self._log = get("events")

    def emit(self, about: Ref, type: str, reason: str, message: str, *, host: str, container: str = "") -> None:
        """Say it soon; never waits and never fails."""
        waiting = self._queue.qsize()
        if waiting >= QUEUE_MAX or (type == "Normal" and waiting >= NORMAL_MAX):
            self.dropped += 1
            return
        field = f"spec.containers{{{container}}}" if container else ""
        self._queue.put_nowait(_Event(about, type, reason, message[:1024], host, field, self.clock.now()))

    async def run(self) -> None:
        """Write events for ever."""
        while True:
            event = await self._queue.get()
            try:
                await self._write(event)
            except DragomanError as error:
                self.dropped += 1
                self._log.info("event not written", reason=event.reason, about=str(event.about), error=str(error))

    async def _write(self, event: _Event) -> None:
        key = (event.about.uid, event.type, event.reason, event.message, event.field)
        known = self._known.get(key)
        if known is not None:
            self._known.move_to_end(key)
            known.count += 1
            change = {"count": known.count, "lastTimestamp": _time(event.when)}
            try:
                await self.client.patch(EVENT, known.name, change, event.about.namespace)
                return
            except NotFound:
                del self._known[key]
        name = f"{event.about.name}.{int(event.when * 1e9):x}{len(self._known) % 256:02x}"
        body = self._body(event, name)
        await self.client.create(EVENT, body, event.about.namespace)
        self._known[key] = _Known(name, 1)
        if len(self._known) > KNOWN_MAX:
            self._known.popitem(last=False)

    def _body(self, event: _Event, name: str) -> dict[str, Any]:
        about = event.about
        involved = {"kind": about.kind, "name": about.name, "uid": about.uid, "apiVersion": "v1"}
        if about.namespace:
            involved["namespace"] = about.namespace
        if event.field:
            involved["fieldPath"] = event.field
        return {
            "apiVersion": EVENT.api_version,
            "kind": EVENT.kind,
            "metadata": {"name": name, "namespace": about.namespace or "default"},
            "involvedObject": involved,
            "type": event.type,
            "reason": event.reason,
            "message": event.message,
            "source": {"component": self.component, "host": event.host},
            "reportingComponent": self.component,
            "reportingInstance": event.host,
            "firstTimestamp": _time(event.when),
            "lastTimestamp": _time(event.when),
            "count": 1,
        }


def _time(seconds: float) -> str:
    return format_time(datetime.fromtimestamp(seconds, UTC))
