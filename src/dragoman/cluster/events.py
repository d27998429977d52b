"""How do people hear of what we decided? Kubernetes Events, counted and rate-limited as upstream does.

Events are best effort: a full queue or a refusing server loses them (counted), and no decision waits for one.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from typing import TypeAlias, TypeVar

import msgspec

from dragoman.api.kinds import kind_of
from dragoman.api.meta import format_time
from dragoman.api.shape import Object
from dragoman.cluster.client import Client
from dragoman.effects import Emit
from dragoman.errors import DragomanError, NotFound
from dragoman.runtime.clock import Clock
from dragoman.runtime.entropy import Entropy
from dragoman.runtime.log import get
from dragoman.runtime.metrics import Metrics
from dragoman.runtime.retry import Backoff, retried
from dragoman.runtime.tasks import KeyQueue

WINDOW_S = 600.0
"""Equal events within it are one with a count."""
SIMILAR_MAX = 10
"""So many different messages of one reason, then they are reported as one."""
BURST = 25
REFILL_S = 300.0
"""After the burst, one event for each object and component in that time."""
REMEMBERED = 4096
QUEUED_MAX = 1000
EVENT = kind_of("Event")

_Same: TypeAlias = tuple[str, ...]
V = TypeVar("V")


class _Sent(msgspec.Struct):
    name: str
    count: int
    first: str
    last_s: float
    on_server: bool = False
    message: str = ""
    emit: Emit | None = None


class _Bucket(msgspec.Struct):
    tokens: float
    at_s: float


class Recorder:
    """Takes Emit effects; `run` (supervised) sends them."""

    def __init__(self, client: Client, clock: Clock, entropy: Entropy, metrics: Metrics | None = None) -> None:
        self._client = client
        self._clock = clock
        self._entropy = entropy
        self._log = get("events")
        self._sent: OrderedDict[_Same, _Sent] = OrderedDict()
        self._similar: OrderedDict[_Same, deque[tuple[float, str]]] = OrderedDict()
        self._buckets: OrderedDict[_Same, _Bucket] = OrderedDict()
        self._queue: KeyQueue[_Same] = KeyQueue("events", clock)
        self._lost = (metrics or Metrics()).counter(
            "dragoman_events_lost_total", "Events not sent: over a limit or refused.", ["why"]
        )

    def emit(self, event: Emit) -> None:
        """Send soon, or count it into the one sent before."""
        now_s = self._clock.now()
        if not self._allowed(event, now_s):
            self._lost.labels("rate").inc()
            return
        same, message = self._place(event, now_s)
        sent = self._sent.get(same)
        when = format_time(self._clock.utc())
        if sent is None or now_s - sent.last_s > WINDOW_S:
            if len(self._queue) >= QUEUED_MAX:
                self._lost.labels("queue").inc()
                return
            name = f"{event.about.name}.{int(now_s * 1e9):x}{self._entropy.suffix(3)}"
            sent = _Sent(name, 0, when, now_s)
            _remember(self._sent, same, sent)
        sent.count += 1
        sent.last_s = now_s
        sent.message = message
        sent.emit = event
        self._queue.add(same)

    async def run(self) -> None:
        """Send for ever."""
        while True:
            same = await self._queue.take()
            try:
                sent = self._sent.get(same)
                if sent is not None:
                    await self._send(sent)
            finally:
                self._queue.done(same)

    async def _send(self, sent: _Sent) -> None:
        assert sent.emit is not None
        namespace = sent.emit.about.namespace or "default"
        try:
            await retried(
                lambda: self._write(sent, namespace),
                clock=self._clock,
                entropy=self._entropy,
                backoff=Backoff(initial_s=0.2, max_s=5.0),
                attempts=5,
            )
        except DragomanError as error:
            self._lost.labels("refused").inc()
            self._log.debug("event not sent", about=str(sent.emit.about), reason=sent.emit.reason, error=str(error))

    async def _write(self, sent: _Sent, namespace: str) -> None:
        last = format_time(self._clock.utc())
        if sent.on_server:
            patch = {"count": sent.count, "lastTimestamp": last, "message": sent.message}
            try:
                await self._client.patch(EVENT, sent.name, patch, namespace)
            except NotFound:  # it aged out
                sent.on_server = False
            else:
                return
        await self._client.create(EVENT, self._body(sent, namespace, last), namespace)
        sent.on_server = True

    def _body(self, sent: _Sent, namespace: str, last: str) -> Object:
        assert sent.emit is not None
        event, about = sent.emit, sent.emit.about
        involved = {
            "apiVersion": kind_of(about.kind).api_version,
            "kind": about.kind.partition("/")[0],  # a custom kind goes by more than that
            "name": about.name,
            "namespace": about.namespace,
            "uid": about.uid,
        }
        return {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": sent.name, "namespace": namespace},
            "involvedObject": {key: value for key, value in involved.items() if value},
            "type": event.type,
            "reason": event.reason,
            "message": sent.message,
            "action": event.action,
            "source": {"component": event.component},
            "reportingComponent": event.component,
            "reportingInstance": event.component,
            "count": sent.count,
            "firstTimestamp": sent.first,
            "lastTimestamp": last,
            "eventTime": None,
        }

    def _place(self, event: Emit, now_s: float) -> tuple[_Same, str]:
        """Which series it belongs to, and its message there."""
        series = (str(event.about), event.about.uid, event.type, event.reason, event.component)
        recent = self._similar.get(series)
        if recent is None:
            recent = deque(maxlen=SIMILAR_MAX + 1)
            _remember(self._similar, series, recent)
        while recent and now_s - recent[0][0] > WINDOW_S:
            recent.popleft()
        if all(message != event.message for _, message in recent):
            recent.append((now_s, event.message))
        if len(recent) > SIMILAR_MAX:
            return series, f"(combined from similar events): {event.message}"
        return (*series, event.message), event.message

    def _allowed(self, event: Emit, now_s: float) -> bool:
        key = (str(event.about), event.about.uid, event.component)
        bucket = self._buckets.get(key)
        if bucket is None:
            bucket = _Bucket(BURST, now_s)
            _remember(self._buckets, key, bucket)
        bucket.tokens = min(BURST, bucket.tokens + max(0.0, now_s - bucket.at_s) / REFILL_S)
        bucket.at_s = now_s
        if bucket.tokens < 1:
            return False
        bucket.tokens -= 1
        return True


def _remember(table: OrderedDict[_Same, V], key: _Same, value: V) -> None:
    table[key] = value
    if len(table) > REMEMBERED:
        table.popitem(last=False)
