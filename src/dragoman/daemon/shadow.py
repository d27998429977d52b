"""How would this scheduler decide beside another one, without touching anything? Watches, decides again, compares.

    shadow = Shadow(client, clock, entropy, settings)
    async with Tasks("dragoman", clock, entropy) as tasks:
        tasks.supervise("shadow", shadow.run)

Reads only: it has nothing to write with. A pod of the other scheduler is compared once it has its node, on the state
that was seen when the first of its writes was (its claims, its node). What the other one decided before that and wrote
later is waited for. A pod that the other one refuses is decided, too.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterator, Sequence

import msgspec

from dragoman.allocate.allocator import OPTIONS, AllocatorOptions
from dragoman.api.core import Pod
from dragoman.api.meta import NamespacedName
from dragoman.api.resource import ResourceClaim
from dragoman.cluster.cache import Cache
from dragoman.cluster.client import Client
from dragoman.cluster.watch import Informers, version_of
from dragoman.explain.comparison import AgreementCounts, difference
from dragoman.runtime.clock import Clock
from dragoman.runtime.entropy import Entropy
from dragoman.runtime.log import get
from dragoman.runtime.metrics import Metrics
from dragoman.runtime.tasks import Tasks
from dragoman.schedule.cycle import SchedulingContext, SchedulingUnit, decide, is_waiting
from dragoman.schedule.placement import PlacementCache
from dragoman.schedule.profile import DEFAULT_PROFILE, SchedulerProfile
from dragoman.snapshot.change import Change, Gone, Put, Snapshot, apply_all
from dragoman.whatif.compare import (
    WINDOW,
    DecisionComparison,
    ObservedPlacement,
    compare,
    placement_seen,
)

REFUSAL_S = 3.0
"""How long a refused pod must stay so before it is decided here."""
SETTLE_S = 1.0
"""How long a placement waits for what was decided before it and is written later."""
RECENT = 64
"""Placements that are remembered for their order."""
ARRIVALS_MAX = 50_000


class ShadowSettings(msgspec.Struct, frozen=True):
    """names: spec.schedulerName of the other scheduler's pods. profiles: by these names, where not the default one."""

    names: tuple[str, ...] = ("default-scheduler",)
    options: AllocatorOptions = OPTIONS
    profiles: dict[str, SchedulerProfile] = {}


class _Evidence(msgspec.Struct, frozen=True, eq=False):
    """A placement with its place in the order (resourceVersion of its first write) and the snapshot before that."""

    order: int
    snapshot: Snapshot
    seen: ObservedPlacement
    objects: tuple[Change, ...]
    seconds: float | None


class Shadow:
    """Compares placements as they come. `tally` and `ready` may be read by others on the loop."""

    def __init__(
        self,
        client: Client,
        clock: Clock,
        entropy: Entropy,
        settings: ShadowSettings | None = None,
        metrics: Metrics | None = None,
    ) -> None:
        self.settings = settings or ShadowSettings()
        self.tally = AgreementCounts()
        self.ready = False
        self._client = client
        self._clock = clock
        self._entropy = entropy
        self._log = get("shadow")
        self._metrics = metrics or Metrics()
        self._compared = self._metrics.counter(
            "dragoman_shadow_placements_total", "Placements of the other scheduler by how ours compares.", ["outcome"]
        )
        self._claims = self._metrics.counter(
            "dragoman_shadow_claims_total", "Claims it allocated, by whether ours gets the same devices.", ["devices"]
        )
        self._refused = self._metrics.counter(
            "dragoman_shadow_refusals_total", "Pods that it left without a node, by what they are here.", ["outcome"]
        )
        self._seconds = self._metrics.histogram("dragoman_shadow_decision_seconds", "How long one decision took here.")
        self._others = self._metrics.histogram(
            "dragoman_shadow_other_seconds", "From a pod's arrival to its node, by the other scheduler."
        )
        self._matcher = PlacementCache().matcher
        self._begin()

    def _begin(self) -> None:
        self.informers = Informers(self._client, self._clock, self._entropy, self._metrics)
        self.cache = Cache(self.informers)
        self.cache.listen(self._changed)
        self.ready = False
        self._first: dict[NamespacedName, tuple[int, Snapshot]] = {}
        self._arrived: dict[str, float] = {}
        self._due: deque[tuple[float, _Evidence]] = deque()
        self._recent: deque[_Evidence] = deque(maxlen=RECENT)
        self._unplaced: dict[NamespacedName, Snapshot] = {}
        self._done: dict[str, None] = {}
        self._asked: dict[str, None] = {}
        self._refused_known: dict[str, None] = {}
        self._refusals: deque[tuple[float, NamespacedName, str]] = deque()
        self._work = asyncio.Event()

    async def run(self) -> None:
        """Compare until cancelled."""
        self._begin()
        async with Tasks("shadow", self._clock, self._entropy) as tasks:
            self.informers.start(tasks)
            await self.cache.synced()
            # What is placed already was decided on a state that nobody saw.
            self._done = {p.metadata.uid: None for p in self.cache.snapshot.pods.values() if p.spec.node_name}
            self._unplaced.clear()
            self._first.clear()
            self.ready = True
            self._log.info("watching", schedulers=",".join(self.settings.names), pods=len(self.cache.snapshot.pods))
            while True:
                await self._step()

    async def _step(self) -> None:
        now = self._clock.monotonic()
        if self._due and self._due[0][0] <= now:
            await self._compare(self._due.popleft()[1])
        elif self._refusals and self._refusals[0][0] <= now:
            _, key, uid = self._refusals.popleft()
            await self._decide_refused(key, uid)
        elif self._due or self._refusals:
            times = [queue[0][0] for queue in (self._due, self._refusals) if queue]
            await self._clock.sleep(max(0.001, min(times) - now))
        else:
            self._work.clear()
            await self._work.wait()

    # ---- watching

    def _changed(self, changes: Sequence[Change], old: Snapshot, new: Snapshot) -> None:
        for change in changes:
            if isinstance(change, Gone):
                if change.kind == "ResourceClaim":
                    self._first.pop((change.namespace, change.name), None)
            elif change.kind == "ResourceClaim":
                self._claim(change.object, old)
            elif change.kind == "Pod" and change.object.spec.scheduler_name in self.settings.names:
                self._pod(change.object, old)
        if self.ready:
            for key, before_it in list(self._unplaced.items()):
                self._place(key, before_it, new)

    def _claim(self, claim: ResourceClaim, old: Snapshot) -> None:
        """The first time an allocation is seen: what was there before is what was decided on."""
        key = (claim.metadata.namespace, claim.metadata.name)
        if claim.status.allocation is None:
            self._first.pop(key, None)
        elif key not in self._first and (key not in old.claims or old.claims[key].status.allocation is None):
            self._first[key] = (version_of(claim), old)

    def _pod(self, pod: Pod, old: Snapshot) -> None:
        key, uid, now = (pod.metadata.namespace, pod.metadata.name), pod.metadata.uid, self._clock.monotonic()
        if uid in self._done:
            return
        if pod.spec.node_name:
            self._unplaced.setdefault(key, old)
            return
        if len(self._arrived) < ARRIVALS_MAX:
            self._arrived.setdefault(uid, now)
        if self.ready and uid not in self._asked and _is_refused(pod):
            self._asked[uid] = None
            self._refusals.append((now + REFUSAL_S, key, uid))
            self._work.set()

    def _place(self, key: NamespacedName, old: Snapshot, new: Snapshot) -> None:
        """The pod has its node: compare it, once the watch of claims is as far as that of pods."""
        pod = new.pods.get(key)
        if pod is None:
            del self._unplaced[key]
            return
        seen = placement_seen(new, pod)
        if seen is None:
            return
        del self._unplaced[key]
        self._done[pod.metadata.uid] = None
        firsts = [self._first.pop(claim) for claim, _ in seen.allocations if claim in self._first]
        order, snapshot = min(firsts, key=lambda first: first[0]) if firsts else (version_of(pod), old)
        objects = (*(Put("ResourceClaim", new.claims[claim]) for claim, _ in seen.allocations), Put("Pod", pod))
        now = self._clock.monotonic()
        arrived = self._arrived.pop(pod.metadata.uid, None)
        evidence = _Evidence(order, snapshot, seen, objects, now - arrived if arrived is not None else None)
        self._due.append((now + SETTLE_S, evidence))
        self._recent.append(evidence)
        self._work.set()

    # ---- comparing

    def _context(self, pod: Pod) -> SchedulingContext:
        """Decisions are about snapshots of no line, so only what is known of selectors is kept between them."""
        profile = self.settings.profiles.get(pod.spec.scheduler_name, DEFAULT_PROFILE)
        memory = PlacementCache(self._matcher)
        return SchedulingContext(self._entropy.uuid4, self.settings.options, profile=profile, memory=memory)

    async def _compare(self, evidence: _Evidence) -> None:
        recent = sorted(self._recent, key=lambda other: other.order)
        later = [other for other in recent if other.order > evidence.order]
        earlier = [other for other in reversed(recent) if other.order < evidence.order]
        shown = apply_all(evidence.snapshot, _missing(evidence, earlier, later))
        now, began = self._clock.utc(), self._clock.monotonic()
        found = await asyncio.to_thread(
            compare,
            shown,
            evidence.seen,
            [other.seen for other in later],
            [other.seen for other in earlier[:WINDOW]],
            self._context(shown.pods[evidence.seen.pod]),
            now,
        )
        self._tell(found, evidence, self._clock.monotonic() - began)

    def _tell(self, found: DecisionComparison, evidence: _Evidence, seconds: float) -> None:
        self.tally.add(found, seconds, evidence.seconds)
        self._compared.labels(found.outcome).inc()
        for one in found.claims:
            self._claims.labels("same" if one.same else "other").inc()
        self._seconds.observe(seconds)
        if evidence.seconds is not None:
            self._others.observe(evidence.seconds)
        say = self._log.debug if found.agrees else self._log.info
        say(found.outcome, pod="/".join(found.pod), why=difference(found))

    async def _decide_refused(self, key: NamespacedName, uid: str) -> None:
        """A pod that the other scheduler left without a node: does it get one here?"""
        snapshot = self.cache.snapshot
        pod = snapshot.pods.get(key)
        self._asked.pop(uid, None)
        if (
            pod is None
            or pod.metadata.uid != uid
            or not is_waiting(pod)
            or not _is_refused(pod)
            or uid in self._refused_known
        ):
            return
        self._refused_known[uid] = None
        unit = SchedulingUnit(("Pod", *key), (key,))
        decision = await asyncio.to_thread(decide, snapshot, unit, self._clock.utc(), self._context(pod))
        if decision.placements:
            what, why = "placed here", f"placed on {decision.placements[0].node} here"
            self._log.info("refused there", pod="/".join(key), why=why)
        else:
            what = "refused here too"
        self.tally.refusals[what] += 1
        self._refused.labels("placed" if decision.placements else "refused").inc()


def _is_refused(pod: Pod) -> bool:
    return any(
        one.type == "PodScheduled" and one.status == "False" and one.reason == "Unschedulable"
        for one in pod.status.conditions
    )


def _missing(evidence: _Evidence, earlier: Sequence[_Evidence], later: Sequence[_Evidence]) -> Iterator[Change]:
    """What has to be shown on the snapshot of a placement: it, those before it not shown yet, those after."""
    for other in earlier:
        pod = evidence.snapshot.pods.get(other.seen.pod)
        if pod is not None and pod.metadata.uid == other.seen.uid and not pod.spec.node_name:
            yield from other.objects
    for other in (evidence, *later):
        yield from other.objects
