"""How does what was decided become true? Carries out effects in order, each with its preconditions.

The only writer to the API, for whoever decided. It never decides, retries or repairs: the outcome says how far it
came, and the one who decided looks again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, assert_never

import msgspec

from dragoman.api.kinds import Kind, kind_of
from dragoman.api.meta import Ref, format_time
from dragoman.api.shape import Object
from dragoman.cluster.cache import ObjectAddress
from dragoman.cluster.client import Client
from dragoman.cluster.events import Recorder
from dragoman.cluster.watch import Informers
from dragoman.effects import Bind, Create, Delete, Effect, Emit, Evict, Patch
from dragoman.errors import DragomanError, Invalid, NotFound, Stale
from dragoman.runtime.clock import Clock
from dragoman.runtime.entropy import Entropy
from dragoman.runtime.metrics import Metrics

TURN = 16


class CommitResult(msgspec.Struct, frozen=True):
    """What the server answered to each effect carried out (None where it answers no object).

    failed_at: index of the effect that failed; those after it were not tried. None: all done. moved: objects whose
    version was a precondition and that we changed ourselves: (kind, namespace, name) -> (old version, new version).
    """

    written: tuple[Object | None, ...]
    failed_at: int | None = None
    error: DragomanError | None = None
    moved: dict[ObjectAddress, tuple[str, str]] = {}

    @property
    def ok(self) -> bool:
        """Whether all was done."""
        return self.failed_at is None

    def then(self, later: CommitResult) -> CommitResult:
        """Both as one: `later` went on where this one, which is ok, ended."""
        failed_at = None if later.failed_at is None else len(self.written) + later.failed_at
        return CommitResult((*self.written, *later.written), failed_at, later.error, {**self.moved, **later.moved})

    def check(self) -> None:
        """Raise what failed, if anything did."""
        if self.error is not None:
            raise self.error


class Committer:
    """Writes through `client`; what the server returns is shown to `informers` at once.

    `recorder.run` (or `run`) must be a running task for events to be sent.
    """

    def __init__(
        self,
        client: Client,
        clock: Clock,
        entropy: Entropy,
        *,
        informers: Informers | None = None,
        metrics: Metrics | None = None,
        manager: str = "dragoman",
    ) -> None:
        metrics = metrics or Metrics()
        self.client = client
        self.recorder = Recorder(client, clock, entropy, metrics)
        self._informers = informers
        self._clock = clock
        self._manager = manager
        self._writes = metrics.counter(
            "dragoman_writes_total", "Writes to the API by verb and outcome.", ["verb", "kind", "outcome"]
        )

    async def run(self) -> None:
        """Send events for ever; supervise it."""
        await self.recorder.run()

    async def carry_out(self, effects: Sequence[Effect], after: CommitResult | None = None) -> CommitResult:
        """All effects in order, up to the first that fails. Raises nothing of ours.

        A version in a precondition is the one decided on. Our own writes to that object in this list, or in the
        outcome that this one comes `after` (when it is taken back), move it along.
        """
        written: list[Object | None] = []
        moved = dict(after.moved) if after else {}
        for index, effect in enumerate(effects):
            if index % TURN == TURN - 1:  # an in-process client may never wait: let others have their turn
                await self._clock.sleep(0)
            verb, kind = type(effect).__name__, _kind_name(effect)
            try:
                answer = await self._write(_moved(effect, moved))
            except DragomanError as error:
                self._writes.labels(verb, kind, type(error).__name__).inc()
                return CommitResult(tuple(written), index, error, moved)
            self._writes.labels(verb, kind, "done").inc()
            if isinstance(effect, Patch) and effect.resource_version and answer is not None:
                address = _address(effect.ref)
                first = moved.get(address, (effect.resource_version, ""))[0]
                moved[address] = (first, answer["metadata"]["resourceVersion"])
            if self._informers is not None:
                if answer is not None:
                    self._informers.observe(kind, answer)
                elif isinstance(effect, Delete):
                    self._informers.observe_deletion(effect.ref, format_time(self._clock.utc()))
            written.append(answer)
        return CommitResult(tuple(written), moved=moved)

    async def _write(self, effect: Effect) -> Object | None:
        match effect:
            case Create(body):
                return await self.client.create(kind_of(body["kind"]), body, body["metadata"].get("namespace", ""))
            case Patch():
                return await self._patch(effect)
            case Delete():
                await self._delete(effect)
                return None
            case Bind(pod, node):
                body = {
                    "apiVersion": "v1",
                    "kind": "Binding",
                    "metadata": _named(pod.namespace, pod.name, pod.uid),
                    "target": {"apiVersion": "v1", "kind": "Node", "name": node},
                }
                await self.client.create(_POD, body, pod.namespace, subresource="binding", name=pod.name)
                return None
            case Evict(pod, grace_period_s):
                await self._evict(pod.namespace, pod.name, pod.uid, grace_period_s)
                return None
            case Emit():
                self.recorder.emit(effect)
                return None
            case _:
                assert_never(effect)

    async def _patch(self, effect: Patch) -> Object:
        ref = effect.ref
        if effect.subresource == "finalize":
            return await self._finalize(effect)
        guards = {"uid": ref.uid, "resourceVersion": effect.resource_version}
        guards = {field: value for field, value in guards.items() if value}
        patch: Any = effect.patch
        if effect.type == "json":
            tests = [{"op": "test", "path": f"/metadata/{field}", "value": value} for field, value in guards.items()]
            patch = [*tests, *patch]
        elif guards or effect.type == "apply":
            meta = {**patch.get("metadata", {}), **guards}
            if effect.type == "apply":
                meta |= _named(ref.namespace, ref.name, "")
                kind = kind_of(ref.kind)
                patch = {"apiVersion": kind.api_version, "kind": kind.kind, **patch}
            patch = {**patch, "metadata": meta}
        try:
            return await self.client.patch(
                kind_of(ref.kind),
                ref.name,
                patch,
                ref.namespace,
                type=effect.type,
                subresource=effect.subresource,
                manager=effect.manager or self._manager,
                force=effect.force,
            )
        except Invalid as error:
            # A failed test of a JSON patch answers 422, as any other refusal does: what is there says which it was.
            if effect.type == "json" and guards and not await self._holds(ref, guards):
                raise Stale(str(error)) from None
            raise

    async def _holds(self, ref: Ref, guards: Mapping[str, str]) -> bool:
        """Whether an object still is as preconditions want it. Raises as Client does."""
        found = await self.client.get(kind_of(ref.kind), ref.name, ref.namespace)
        return all(found["metadata"].get(field) == value for field, value in guards.items())

    async def _finalize(self, effect: Patch) -> Object:
        """A namespace's spec.finalizers, which the API takes by PUT only (and it reads nothing else of it)."""
        ref, kind = effect.ref, kind_of(effect.ref.kind)
        found = await self.client.get(kind, ref.name)
        if ref.uid and found["metadata"]["uid"] != ref.uid:
            raise Stale(f"{ref} is another one now")
        body = {**found, "spec": {**found.get("spec", {}), **effect.patch["spec"]}}
        return await self.client.replace(kind, body, subresource="finalize")

    async def _delete(self, effect: Delete) -> None:
        ref = effect.ref
        if not ref.name:
            with suppress(NotFound):  # a server without that kind has nothing of it
                await self.client.delete_collection(kind_of(ref.kind), ref.namespace)
            return
        try:
            await self.client.delete(
                kind_of(ref.kind),
                ref.name,
                ref.namespace,
                uid=ref.uid,
                resource_version=effect.resource_version,
                grace_period_s=effect.grace_period_s,
                propagation=effect.propagation,
            )
        except NotFound:
            return
        except Stale:
            # With only a uid as guard, a conflict says that this incarnation is gone already.
            if ref.uid and not effect.resource_version:
                return
            raise

    async def _evict(self, namespace: str, name: str, uid: str, grace_period_s: int | None) -> None:
        options: Object = {}
        if uid:
            options["preconditions"] = {"uid": uid}
        if grace_period_s is not None:
            options["gracePeriodSeconds"] = grace_period_s
        body: Object = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": _named(namespace, name, ""),
            "deleteOptions": options,
        }
        await self.client.create(_POD, body, namespace, subresource="eviction", name=name)


_POD: Kind = kind_of("Pod")


def _address(ref: Ref) -> ObjectAddress:
    return ref.kind, ref.namespace, ref.name


def _moved(effect: Effect, moved: dict[ObjectAddress, tuple[str, str]]) -> Effect:
    if isinstance(effect, Patch | Delete) and effect.resource_version:
        old, new = moved.get(_address(effect.ref), ("", ""))
        if old == effect.resource_version:
            return msgspec.structs.replace(effect, resource_version=new)
    return effect


def _named(namespace: str, name: str, uid: str) -> Object:
    named = {"name": name, "namespace": namespace, "uid": uid}
    return {key: value for key, value in named.items() if value}


def _kind_name(effect: Effect) -> str:
    match effect:
        case Create(body):
            return str(body["kind"])
        case Patch() | Delete():
            return effect.ref.kind
        case Bind() | Evict():
            return "Pod"
        case Emit():
            return "Event"
        case _:
            assert_never(effect)
