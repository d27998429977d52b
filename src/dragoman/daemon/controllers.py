"""How do controllers run? Changes to keys, keys to queues, steps to writes: wiring, no decisions.

    controllers = Controllers(client, clock, entropy)
    async with Tasks("dragoman", clock, entropy) as tasks:
        tasks.supervise("controllers", controllers.run)

`run` works until cancelled and starts from what the API says each time. Against a real cluster only those that
kube-controller-manager does not run should be named in the settings.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import msgspec
from immutables import Map
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from dragoman.api.gates import Gates
from dragoman.api.kinds import kind_of
from dragoman.api.meta import Ref, Value
from dragoman.api.resource import EXTENDED_CLAIM_ANNOTATION, POD_CLAIM_ANNOTATION, ResourceClaim
from dragoman.cluster.client import Client
from dragoman.cluster.commit import CommitResult, Committer
from dragoman.cluster.watch import Informers
from dragoman.daemon.custom import CrdDefinition
from dragoman.daemon.heartbeats import Heartbeats
from dragoman.effects import Create, Effect, Emit
from dragoman.errors import Invalid, NotFound, Retry
from dragoman.reconcile import nodes, pool_status
from dragoman.reconcile import ownership as ownerships
from dragoman.reconcile.ownership import Ownership
from dragoman.reconcile.step import OTHERS, ReconcileInput, ReconcileResult
from dragoman.reconcile.table import EVERYTHING, Controller, table
from dragoman.runtime.clock import Clock
from dragoman.runtime.entropy import Entropy
from dragoman.runtime.log import get
from dragoman.runtime.metrics import Metrics
from dragoman.runtime.tasks import KeyQueue, Tasks, TokenBucket, work
from dragoman.snapshot import change as changes_of
from dragoman.snapshot.change import HELD, Change, Gone, Snapshot

GONE_REMEMBERED = 10_000
ASKS_MAX = 5
DEFINITION = "CustomResourceDefinition"
GATED = {"taints": "DRADeviceTaints", "pool-status": "DRAResourcePoolStatus"}
"""Controllers that run only with a feature gate, as in kube-controller-manager."""
_TYPES: dict[str, type[Value]] = {
    "Lease": nodes.Lease,
    DEFINITION: CrdDefinition,
    pool_status.KIND: pool_status.PoolRequest,
}


class ControllerSettings(msgspec.Struct, frozen=True):
    """controllers: names to run, "*" for all; `-NAME` leaves one out. root_ca: PEM for kube-root-ca.crt. gates: leave
    out the controllers whose gate is off; None: none."""

    controllers: tuple[str, ...] = ("*",)
    root_ca: str = ""
    gates: Gates | None = None


def chosen(settings: ControllerSettings) -> tuple[Controller, ...]:
    """The controllers that the settings name. Raises Invalid for an unknown name."""
    everything = table(settings.root_ca)
    known = {controller.name for controller in everything}
    for name in settings.controllers:
        if name != "*" and name.removeprefix("-") not in known:
            raise Invalid("--controllers", f"there is no {name.removeprefix('-')}, only {', '.join(sorted(known))}")
    wanted = set(settings.controllers)
    off = {name for name, gate in GATED.items() if settings.gates is not None and not settings.gates.on(gate)}
    if named := sorted(off & wanted):
        raise Invalid("--controllers", f"{named[0]} needs the feature gate {GATED[named[0]]}, which is off")
    out = off | {name.removeprefix("-") for name in wanted if name.startswith("-")}
    return tuple(c for c in everything if c.name not in out and (c.name in wanted or "*" in wanted))


class Controllers:
    """The controllers of a cluster. `world` may be read by others on the loop.

    informers: those of the process, which somebody else runs; its own unless given.
    """

    def __init__(
        self,
        client: Client,
        clock: Clock,
        entropy: Entropy,
        settings: ControllerSettings | None = None,
        metrics: Metrics | None = None,
        informers: Informers | None = None,
    ) -> None:
        self.settings = settings or ControllerSettings()
        self.controllers = chosen(self.settings)
        self.ready = False
        """Whether they run: everything that they follow was read."""
        self._client = client
        self._clock = clock
        self._entropy = entropy
        self._shared = informers
        self._log = get("controllers")
        self._metrics = metrics or Metrics()
        self._steps = self._metrics.counter(
            "dragoman_controller_steps_total", "Steps by controller and outcome.", ["controller", "outcome"]
        )
        self._depth = self._metrics.gauge(
            "dragoman_controller_queue_depth", "Keys waiting or being worked on.", ["controller"]
        )
        self._creates = self._metrics.counter(
            "dynamic_resource_allocation_resourceclaim_creates_total",
            "Claims made from templates.",
            ["status", "admin_access", "owner_api_group", "owner_api_kind"],
        )
        self._metrics.collector(_Claims(self))
        self._begin()

    def _begin(self) -> None:
        shared = self._shared
        self.informers = shared.part() if shared else Informers(self._client, self._clock, self._entropy, self._metrics)
        self.committer = Committer(
            self._client, self._clock, self._entropy, informers=self.informers, metrics=self._metrics
        )
        self._gone: dict[str, None] = {}
        self._tally: dict[str, int] = {}
        self._heartbeats = Heartbeats(self._clock)
        self._snapshot = Snapshot.empty()
        self._ownership = Ownership.empty()
        self._others: Map[tuple[str, str, str], Any] = Map()
        self._custom: dict[str, tuple[tuple[str, str], str]] = {}
        self.queues: dict[str, KeyQueue[Any]] = {
            controller.name: KeyQueue(controller.name, self._clock) for controller in self.controllers
        }
        self._buckets = {
            controller.name: TokenBucket(self._clock, controller.pace.per_s, controller.pace.burst)
            for controller in self.controllers
            if controller.pace is not None
        }
        for controller in self.controllers:
            self._depth.labels(controller.name).set_function(self.queues[controller.name].__len__)

    @property
    def world(self) -> ReconcileInput:
        """What is known now."""
        return ReconcileInput(
            self._snapshot,
            self._ownership,
            self._clock.now(),
            gone=self._gone,
            heartbeats=self._heartbeats.up_to_date(),
            tally=self._tally,
            others=self._others,
            custom=dict(self._custom.values()),
        )

    @property
    def is_idle(self) -> bool:
        """Nothing to do until something changes or a time comes."""
        return not any(len(queue) for queue in self.queues.values())

    async def run(self) -> None:
        """Work until cancelled."""
        self._begin()
        kinds = sorted(set().union(*(controller.kinds for controller in self.controllers)))
        for kind in kinds:
            self.informers.of(kind, _TYPES.get(kind))
            self.informers.follow(kind, self._receive)
        try:
            async with Tasks("controllers", self._clock, self._entropy) as tasks:
                self.informers.start(tasks)
                tasks.supervise("events", self.committer.run)
                tasks.supervise("heartbeats", lambda: self._heartbeats.run(lambda: self._snapshot))
                # No step on half a picture: everything is listed first.
                await self.informers.synced()
                await self.informers.synced()  # custom resources too, known from the first lists
                self.ready = True
                self._log.info("running", controllers=",".join(c.name for c in self.controllers))
                for controller in self.controllers:
                    log = get("controllers", controller=controller.name)
                    for number in range(controller.workers):
                        worker = work(self.queues[controller.name], self._stepper(controller), log)
                        tasks.start(f"{controller.name} {number}", worker)
        finally:
            self.ready = False
            for queue in self.queues.values():
                queue.close()

    # ---- changes to keys

    def _receive(self, changes: Sequence[Change]) -> None:
        before = self.world
        self._snapshot = changes_of.apply_all(self._snapshot, (c for c in changes if c.kind in HELD))
        self._ownership = ownerships.apply_all(self._ownership, changes)
        self._others = _applied(self._others, changes)
        for change in changes:
            if isinstance(change, Gone):
                self._remember(before, change)
                if change.kind == DEFINITION:
                    self._unfollow(change.name)
            elif change.kind == DEFINITION:
                self._follow(change.object)
            elif change.kind == "Node":
                self._heartbeats.first_seen(change.object.metadata.name)
            if node := nodes.heartbeat(change, before):
                self._heartbeats.beat(node)
        after = self.world
        for controller in self.controllers:
            queue = self.queues[controller.name]
            for change in changes:
                if change.kind in controller.kinds or (controller.kinds is EVERYTHING and "/" in change.kind):
                    for key in controller.keys(change, before, after):
                        queue.add(key)

    # ---- custom resources

    def _follow(self, definition: CrdDefinition) -> None:
        """Hear of the objects of a definition, once it is established."""
        known = self._custom.get(definition.metadata.name)
        name = definition.name
        if known is not None and known[1] != name:
            self._unfollow(definition.metadata.name)
            known = None
        if known is None and name:
            self._custom[definition.metadata.name] = (definition.spec.group, definition.spec.names.kind), name
            self.informers.follow(name, self._receive)

    def _unfollow(self, definition: str) -> None:
        known = self._custom.pop(definition, None)
        if known is not None:
            self.informers.drop(known[1])

    def _remember(self, before: ReconcileInput, change: Gone) -> None:
        found = before.ownership.find(change.kind, change.namespace, change.name)
        if found is not None:
            self._gone[found.ref.uid] = None
            if len(self._gone) > GONE_REMEMBERED:
                del self._gone[next(iter(self._gone))]

    # ---- keys to writes

    def _stepper(self, controller: Controller) -> Callable[[Any], Any]:
        async def step(key: Any) -> None:
            try:
                await self._step(controller, key)
            except BaseException as error:
                self._steps.labels(controller.name, type(error).__name__).inc()
                raise
            self._steps.labels(controller.name, "done").inc()

        return step

    async def _step(self, controller: Controller, key: Any) -> None:
        step = await self._decide(controller, key)
        bucket = self._buckets.get(controller.name)
        requests = sum(not isinstance(effect, Emit) for effect in step.effects)
        if bucket is not None and requests and await bucket.take(requests + 1):  # one more: upstream reads before
            step = await self._decide(controller, key)  # what made it necessary may have passed meanwhile
        outcome = await self.committer.carry_out(step.effects)
        await self._report(controller, key, step, outcome)
        if step.again_s is not None:
            self.queues[controller.name].add_after(key, step.again_s)
        outcome.check()
        for name in step.tally:
            self._tally[name] = self._tally.get(name, 0) + 1
        if step.problem:
            raise Retry(step.problem)

    async def _decide(self, controller: Controller, key: Any) -> ReconcileResult:
        answers: dict[Ref, str] = {}
        for _ in range(ASKS_MAX):
            step = controller.sync(msgspec.structs.replace(self.world, answers=answers), key)
            if not step.asks:
                return step
            for ref in step.asks:
                answers[ref] = await self._uid(ref)
        raise Retry(f"{controller.name} {key}: still asking after {ASKS_MAX} rounds")

    async def _uid(self, ref: Ref) -> str:
        try:
            found = await self._client.get(kind_of(ref.kind), ref.name, ref.namespace)
        except NotFound:
            return ""
        return str(found["metadata"]["uid"])

    async def _report(self, controller: Controller, key: Any, step: ReconcileResult, outcome: CommitResult) -> None:
        events: list[Effect] = []
        for index, effect in enumerate(step.effects[: len(outcome.written) + 1]):
            failed = index == outcome.failed_at
            written = None if failed or index >= len(outcome.written) else outcome.written[index]
            error = str(outcome.error) if failed else ""
            self._count(effect, failed=failed)
            if controller.events is not None:
                events += controller.events(self.world, key, effect, written, error)
        if events:
            reported = await self.committer.carry_out(events)
            if reported.error is not None:
                self._log.info("not reported", key=str(key), error=str(reported.error))

    def _count(self, effect: Effect, *, failed: bool) -> None:
        if isinstance(effect, Create) and effect.body["kind"] == "ResourceClaim":
            requests = effect.body["spec"].get("devices", {}).get("requests", ())
            admin = any((request.get("exactly") or {}).get("adminAccess") for request in requests)
            owner: dict[str, str] = next(iter(effect.body["metadata"].get("ownerReferences", ())), {})
            group = owner.get("apiVersion", "").rpartition("/")[0]
            outcome = "failure" if failed else "success"
            self._creates.labels(outcome, str(admin).lower(), group, owner.get("kind", "")).inc()


def _applied(others: Map[tuple[str, str, str], Any], changes: Sequence[Change]) -> Map[tuple[str, str, str], Any]:
    for change in changes:
        if change.kind not in OTHERS:
            continue
        if isinstance(change, Gone):
            key = (change.kind, change.namespace, change.name)
            others = others.delete(key) if key in others else others
        else:
            meta = change.object.metadata
            others = others.set((change.kind, meta.namespace, meta.name), change.object)
    return others


class _Claims(Collector):
    """dynamic_resource_allocation_resource_claims, counted when somebody asks."""

    def __init__(self, controllers: Controllers) -> None:
        self._controllers = controllers

    def describe(self) -> Iterator[GaugeMetricFamily]:
        """Registered without counting."""
        return iter(())

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """One gauge by allocated, admin_access and source."""
        family = GaugeMetricFamily(
            "dynamic_resource_allocation_resource_claims",
            "Claims that exist.",
            labels=["allocated", "admin_access", "source"],
        )
        counts: dict[tuple[str, str, str], int] = {}
        for claim in self._controllers.world.snapshot.claims.values():
            labels = _labels(claim)
            counts[labels] = counts.get(labels, 0) + 1
        for labels, count in sorted(counts.items()):
            family.add_metric(labels, count)
        yield family


def _labels(claim: ResourceClaim) -> tuple[str, str, str]:
    requests = claim.spec.devices.requests
    admin = any(request.exactly is not None and request.exactly.admin_access for request in requests)
    source = ""
    if EXTENDED_CLAIM_ANNOTATION in claim.metadata.annotations:
        source = "extended_resource"
    elif POD_CLAIM_ANNOTATION in claim.metadata.annotations:
        source = "resource_claim_template"
    return str(claim.status.allocation is not None).lower(), str(bool(admin)).lower(), source
