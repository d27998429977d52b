"""What does the server have of one kind, from now on? Informers: list, watch, resume, list again.

An informer keeps the objects of one kind and tells its consumers every change in order; any number of consumers
share it. It never writes and never decides.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from typing import Any, TypeAlias

import msgspec

from dragoman.api import codec
from dragoman.api.kinds import Kind, kind_of
from dragoman.api.meta import Bare, NamespacedName, ObjectMeta, Ref, Value
from dragoman.api.shape import Object
from dragoman.cluster.client import Client, WatchEvent
from dragoman.cluster.reach import followed, reach_of
from dragoman.errors import DragomanError, Invalid, NotFound, Retry, Stale
from dragoman.runtime.clock import Clock
from dragoman.runtime.entropy import Entropy
from dragoman.runtime.log import get
from dragoman.runtime.metrics import Metrics
from dragoman.runtime.retry import Backoff
from dragoman.runtime.tasks import Tasks
from dragoman.snapshot.change import Change, Gone, Put

ChangeHandler: TypeAlias = Callable[[Sequence[Change]], None]

BACKOFF = Backoff(initial_s=0.1, max_s=30.0, jitter=0.5)
ABSENT_S = 300.0
"""How long to wait before asking again for a kind that the server does not serve."""


class Informer:
    """The objects of one kind, typed (`codec.TYPES`, else Bare, unless `type_` says more).

    `objects` maps (namespace, name) to values. Consumers are called on the loop, one batch of changes at a time,
    and must not raise.
    """

    def __init__(
        self,
        client: Client,
        kind: Kind,
        clock: Clock,
        entropy: Entropy,
        *,
        namespace: str = "",
        field_selector: str = "",
        label_selector: str = "",
        type_: type[Value] | None = None,
        metrics: Metrics | None = None,
    ) -> None:
        self.kind = kind
        self.objects: dict[NamespacedName, Any] = {}
        self.resource_version = ""
        self._client = client
        self._clock = clock
        self._entropy = entropy
        self._namespace = namespace
        self._selectors = {"field_selector": field_selector, "label_selector": label_selector}
        self._type: type[Value] = type_ or codec.TYPES.get(kind.kind, Bare)
        self._consumers: list[ChangeHandler] = []
        self._synced = asyncio.Event()
        self._dropped = False
        self._received = 0
        self._observed: set[NamespacedName] | None = None  # own writes while a list is under way
        self._log = get("watch", kind=kind.kind)
        self._reach = reach_of(client)
        self._followed = followed(kind.plural, namespace, field_selector, label_selector)
        metrics = metrics or Metrics()
        self._relists = metrics.counter(
            "dragoman_informer_lists_total", "Full lists taken, the first included.", ["kind"]
        ).labels(kind.kind)
        self._events = metrics.counter(
            "dragoman_informer_events_total", "Changes received by watches.", ["kind"]
        ).labels(kind.kind)
        self._unreadable = metrics.counter(
            "dragoman_informer_unreadable_objects_total", "Objects received that could not be understood.", ["kind"]
        ).labels(kind.kind)

    # ---- consumers

    def subscribe(self, consumer: ChangeHandler) -> Callable[[], None]:
        """Tell it what is known (one batch), then every change. The result ends that."""
        if self.objects:
            consumer([Put(self.kind.kind, value) for value in self.objects.values()])
        self._consumers.append(consumer)
        return lambda: self._consumers.remove(consumer)

    @property
    def is_synced(self) -> bool:
        """Whether the first list is known, and every listener has it."""
        return self._synced.is_set()

    async def synced(self) -> None:
        """Wait for the first list."""
        await self._synced.wait()

    def _report(self, changes: Sequence[Change]) -> None:
        if not changes:
            return
        with ExitStack() as reported:  # which calls all, last pushed first, even if one of them breaks
            for consumer in reversed(self._consumers):
                reported.callback(consumer, changes)

    # ---- following

    async def run(self) -> None:
        """Follow the server until dropped; failures are waited out. Run it supervised: after a bug it lists again."""
        failures = in_vain = 0
        while not self._dropped:
            began, seen = self._clock.monotonic(), self._received
            try:
                if not self.resource_version:
                    await self._list()
                    failures = 0
                await self._watch()
                self._reach.works(self._followed)
                failures = 0
                in_vain = in_vain + 1 if self._was_in_vain(began, seen) else 0
                if in_vain:  # a server that ends watches at once is not asked in a loop
                    await self._clock.sleep(BACKOFF.wait_s(in_vain, self._entropy))
            except Stale as error:
                in_vain = in_vain + 1 if self._was_in_vain(began, seen) else 0
                self._log.info("listing again", error=str(error))
                self.resource_version = ""
                wait_s = self._entropy.jitter(0.05, 4.0)
                await self._clock.sleep(max(wait_s, BACKOFF.wait_s(in_vain, self._entropy) if in_vain > 1 else 0.0))
            except NotFound as error:
                # Objects once seen do not vanish because a server forgets a kind for a while.
                self._log.info("the server has no such kind", error=str(error))
                self.resource_version = ""
                self._reach.works(self._followed)
                self._synced.set()
                await self._clock.sleep(ABSENT_S)
            except DragomanError as error:
                failures += 1
                wait_s = BACKOFF.wait_s(failures, self._entropy)
                if isinstance(error, Retry) and error.after_s:
                    wait_s = max(wait_s, error.after_s)
                self._reach.failed(self._followed, error, wait_s)
                await self._clock.sleep(wait_s)

    def _was_in_vain(self, began: float, received: int) -> bool:
        """Whether a watch ended at once and brought nothing."""
        return self._received == received and self._clock.monotonic() - began < 1.0

    def drop(self) -> None:
        """The kind is no more: everything known of it is gone, and following ends with the watch."""
        self._dropped = True
        gone: list[Change] = [Gone(self.kind.kind, *key) for key in self.objects]
        self.objects = {}
        self._report(gone)

    async def _list(self) -> None:
        self._observed = set()
        try:
            listed = await self._client.list(self.kind, self._namespace, **self._selectors)
            self._relists.inc()
            self._replace(listed.items, _number(listed.resource_version))
        finally:
            self._observed = None
        self.resource_version = listed.resource_version
        self._synced.set()

    def _replace(self, items: Iterable[Object], list_version: int) -> None:
        known = self.objects
        found: dict[NamespacedName, Any] = {}
        for item in items:
            value = self._decode(item)
            if value is not None:
                found[_key(value)] = value
        for key in self._observed or ():
            # Our own writes may be newer than a list that was under way. All else that is newer comes from a state
            # that the server no longer has (a restored backup): what the list does not know is gone.
            value = known.get(key)
            if value is not None and version_of(value) > (version_of(found[key]) if key in found else list_version):
                found[key] = value
        gone: list[Change] = [Gone(self.kind.kind, *key) for key in known if key not in found]
        put = [Put(self.kind.kind, value) for key, value in found.items() if not _same(known.get(key), value)]
        self.objects = found
        self._report([*gone, *put])

    def observe(self, obj: Object) -> None:
        """What a write of ours returned: known at once, before the watch says it."""
        value = self._decode(obj)
        if value is None or 0 < version_of(value) <= _number(self.resource_version):
            return  # the watch is past it, maybe past its deletion
        if self._observed is not None:
            self._observed.add(_key(value))
        if _is_newer(value, self.objects.get(_key(value))):
            self.objects[_key(value)] = value
            self._report([Put(self.kind.kind, value)])

    def observe_deletion(self, ref: Ref, when: str) -> None:
        """That incarnation was deleted by us: it counts as being deleted until the watch says more."""
        value = self.objects.get((ref.namespace, ref.name))
        if value is None or value.metadata.uid != ref.uid or value.metadata.deletion_timestamp:
            return
        meta = msgspec.structs.replace(value.metadata, deletion_timestamp=when)
        value = msgspec.structs.replace(value, metadata=meta)
        self.objects[ref.namespace, ref.name] = value
        self._report([Put(self.kind.kind, value)])

    async def _watch(self) -> None:
        stream = self._client.watch(self.kind, self.resource_version, self._namespace, **self._selectors)
        async for event in stream:
            self._received += 1
            self._reach.works(self._followed)
            self._receive(event)

    def _receive(self, event: WatchEvent) -> None:
        if event.type == "BOOKMARK":
            version = event.object["metadata"]["resourceVersion"]
            if _number(version) < _number(self.resource_version):
                raise Stale(f"the server went back from version {self.resource_version} to {version}")
            self.resource_version = version
            return
        self._events.inc()
        # Should a consumer break, the next run lists again instead of skipping the change.
        version, self.resource_version = event.object["metadata"]["resourceVersion"], ""
        value = self._decode(event.object)
        if value is not None:
            key = _key(value)
            known = self.objects.get(key)
            if event.type == "DELETED":
                # A write that removes the last finalizer answers with the version of the deletion itself.
                if known is not None and version_of(known) <= version_of(value):
                    del self.objects[key]
                    self._report([Gone(self.kind.kind, *key)])
            elif _is_newer(value, known):  # else a write of ours, observed before
                self.objects[key] = value
                self._report([Put(self.kind.kind, value)])
        self.resource_version = version

    def _decode(self, item: Object) -> Any:
        try:
            return codec.decode(self._type, item)
        except Invalid as error:
            # One unreadable object must not hide the others; what a claim holds stays held.
            kept = codec.salvaged(self._type, item)
            meta = item.get("metadata") or {}
            self._unreadable.inc()
            self._log.error(
                "object cannot be read: only the devices that it holds count" if kept else "object cannot be read",
                namespace=meta.get("namespace", ""),
                name=meta.get("name", ""),
                error=str(error),
            )
            return kept


class Informers:
    """One informer for each kind that somebody asked for, run together.

    async with Tasks(...) as tasks:
        informers = Informers(client, clock, entropy); informers.follow("Pod", consumer); informers.start(tasks)
    """

    def __init__(self, client: Client, clock: Clock, entropy: Entropy, metrics: Metrics | None = None) -> None:
        self._client = client
        self._clock = clock
        self._entropy = entropy
        self._metrics = metrics or Metrics()
        self._informers: dict[str, Informer] = {}
        self._tasks: Tasks | None = None

    def of(self, kind: str, type_: type[Value] | None = None) -> Informer:
        """The informer of a kind, made when first asked for; `type_` counts only then."""
        informer = self._informers.get(kind)
        if informer is None:
            informer = Informer(
                self._client, kind_of(kind), self._clock, self._entropy, type_=type_, metrics=self._metrics
            )
            self._informers[kind] = informer
            if self._tasks is not None:
                self._tasks.supervise(f"watch {kind}", informer.run)
        return informer

    def add(self, informer: Informer) -> None:
        """An informer made elsewhere, with selectors of its own; who made it runs it."""
        self._informers[informer.kind.kind] = informer

    def follow(self, kind: str, consumer: ChangeHandler) -> Informer:
        """Subscribe to a kind."""
        informer = self.of(kind)
        informer.subscribe(consumer)
        return informer

    def drop(self, kind: str) -> None:
        """Forget a kind that the cluster no longer has."""
        informer = self._informers.pop(kind, None)
        if informer is not None:
            informer.drop()

    def start(self, tasks: Tasks) -> None:
        """Run all of them, and whoever joins later, as tasks of that group."""
        assert self._tasks is None, "started twice"
        self._tasks = tasks
        for kind, informer in self._informers.items():
            tasks.supervise(f"watch {kind}", informer.run)

    def observe(self, kind: str, obj: Object) -> None:
        """What a write of ours returned, for the informer of that kind if there is one."""
        informer = self._informers.get(kind)
        if informer is not None:
            informer.observe(obj)

    def observe_deletion(self, ref: Ref, when: str) -> None:
        """That incarnation was deleted by us at that time (RFC 3339)."""
        informer = self._informers.get(ref.kind)
        if informer is not None:
            informer.observe_deletion(ref, when)

    @property
    def is_synced(self) -> bool:
        """Whether every kind asked for was listed once."""
        return all(informer.is_synced for informer in self._informers.values())

    async def synced(self) -> None:
        """Wait until every kind asked for was listed once."""
        for informer in list(self._informers.values()):
            await informer.synced()

    def part(self) -> SharedInformers:
        """The same informers for one part of the process, which may end and start again while they go on."""
        return SharedInformers(self)


class SharedInformers(Informers):
    """Informers that run elsewhere: `start` begins all subscriptions, and the end of its task group ends them."""

    def __init__(self, whole: Informers) -> None:
        super().__init__(whole._client, whole._clock, whole._entropy, whole._metrics)
        self._whole = whole
        self._followers: list[tuple[Informer, ChangeHandler]] = []
        self._ends: list[Callable[[], None]] | None = None

    def of(self, kind: str, type_: type[Value] | None = None) -> Informer:
        """The shared informer of a kind."""
        informer = self._informers[kind] = self._whole.of(kind, type_)
        return informer

    def follow(self, kind: str, consumer: ChangeHandler) -> Informer:
        """Subscribe to a kind once started."""
        informer = self.of(kind)
        if self._ends is not None:
            self._ends.append(informer.subscribe(consumer))
        else:
            self._followers.append((informer, consumer))
        return informer

    def drop(self, kind: str) -> None:
        """Forget a kind, here and for all."""
        super().drop(kind)
        self._whole.drop(kind)

    def start(self, tasks: Tasks) -> None:
        """Tell everybody what is known, and every change from now on."""
        ends = self._ends = []
        following = tasks.start("subscriptions", asyncio.Event().wait())
        following.add_done_callback(lambda _: [end() for end in ends])
        for informer, consumer in self._followers:
            ends.append(informer.subscribe(consumer))


def _key(value: Any) -> NamespacedName:
    meta: ObjectMeta = value.metadata
    return meta.namespace, meta.name


def _number(resource_version: str) -> int:
    """Resource versions compare as integers (KEP-5504); anything else counts as older than all."""
    return int(resource_version) if resource_version.isdecimal() else 0


def version_of(value: Any) -> int:
    """An object's resource version as a number."""
    return _number(value.metadata.resource_version)


def _is_newer(value: Any, known: Any) -> bool:
    return known is None or version_of(value) == 0 or version_of(value) > version_of(known)


def _same(old: Any, new: Any) -> bool:
    if old is None:
        return False
    a, b = old.metadata, new.metadata
    return bool(a.uid == b.uid and a.resource_version == b.resource_version and a.resource_version)


def as_typed(kind: str, obj: Object) -> Any:
    """The typed value of an object as informers of that kind deliver it. Raises Invalid."""
    return codec.decode(codec.TYPES.get(kind, Bare), obj)
