"""How does a cluster with a scheduler of somebody else hear why its pods wait? Watches, asks the core, writes Events.

    explainer = Explainer(client, clock, entropy)
    async with Tasks("dragoman", clock, entropy) as tasks:
        tasks.supervise("explainer", explainer.run)

Its only write is an Event on a waiting pod, once for each change of reason. Events are named after pod and reason:
after a restart, and beside another replica, nothing is reported twice. It never binds, allocates or changes anything.
"""

from __future__ import annotations

import msgspec

from dragoman.allocate.allocator import OPTIONS, AllocatorOptions
from dragoman.api.core import Pod
from dragoman.api.meta import NamespacedName, format_time
from dragoman.cluster.cache import Cache
from dragoman.cluster.client import Client
from dragoman.cluster.commit import Committer
from dragoman.cluster.watch import Informers
from dragoman.errors import NotFound, Stale
from dragoman.explain import pending
from dragoman.explain.pending import Topics
from dragoman.runtime.clock import Clock
from dragoman.runtime.entropy import Entropy
from dragoman.runtime.log import get
from dragoman.runtime.metrics import Metrics
from dragoman.runtime.tasks import Tasks
from dragoman.schedule.cycle import SchedulingContext, SchedulingUnit, decide, gated, is_waiting
from dragoman.schedule.decision import Refused, UndecidedPod
from dragoman.snapshot.change import Snapshot
from dragoman.whatif.units import units_of

COMPONENT = "dragoman-explain"
LOOK_S = 2.0
"""Between two looks at everything that waits; a reason must be seen in two of them."""
PATIENCE_S = 3.0
"""So long a pod may wait before anybody asks why."""
LOOKED_AT_MAX = 20_000
"""Pods that are remembered; those beyond wait for their turn."""
TURN_S = 0.01
"""How long decisions go on before others get their turn on the loop."""


class _Waiting(msgspec.Struct):
    """A pod that waits: since when we know, the reason of the last look, the reason reported, how often which was
    reported."""

    since_s: float
    seen: Topics | None = None
    reported: Topics | None = None
    counts: dict[Topics, int] = {}


class Explainer:
    """Tells why pods wait. `snapshot` may be read by others on the loop."""

    def __init__(
        self,
        client: Client,
        clock: Clock,
        entropy: Entropy,
        options: AllocatorOptions = OPTIONS,
        metrics: Metrics | None = None,
    ) -> None:
        self._client = client
        self._clock = clock
        self._entropy = entropy
        self._log = get("explainer")
        self._metrics = metrics or Metrics()
        self._reported = self._metrics.counter(
            "dragoman_explained_total", "Events about waiting pods by outcome.", ["outcome"]
        )
        self._context = SchedulingContext(new_id=entropy.uuid4, options=options)
        self._waiting: dict[str, _Waiting] = {}
        self._metrics.gauge("dragoman_explainer_waiting", "Pods that wait.").set_function(lambda: len(self._waiting))
        self._looked: tuple[Snapshot, bool] | None = None
        self._begin()

    def _begin(self) -> None:
        self._informers = Informers(self._client, self._clock, self._entropy, self._metrics)
        self._cache = Cache(self._informers)
        self._committer = Committer(self._client, self._clock, self._entropy, metrics=self._metrics)
        self.ready = False

    @property
    def snapshot(self) -> Snapshot:
        """What is known of the cluster."""
        return self._cache.snapshot

    async def run(self) -> None:
        """Look and tell until cancelled."""
        self._begin()
        async with Tasks("explainer", self._clock, self._entropy) as tasks:
            self._informers.start(tasks)
            await self._cache.synced()
            self.ready = True
            self._log.info("running")
            while True:
                await self._look()
                await self._clock.sleep(LOOK_S)

    async def _look(self) -> None:
        """Everything that waits, if anything has changed since the last look or somebody's patience is over."""
        snapshot = self.snapshot
        due = self._due(snapshot)
        if self._looked is not None and self._looked[0] is snapshot and not self._looked[1]:
            return
        open_ends = len(due) < len(self._waiting)
        began = self._clock.monotonic()
        for unit in units_of(snapshot, due):
            for refused in self._refused(snapshot, unit):
                pod = snapshot.pods.get(refused.pod)
                if pod is not None and not await self._heard(pod, refused):
                    open_ends = True
            if self._clock.monotonic() - began > TURN_S:
                await self._clock.sleep(0)
                began = self._clock.monotonic()
        self._looked = (snapshot, open_ends)

    def _due(self, snapshot: Snapshot) -> list[NamespacedName]:
        """Pods whose patience is over, oldest first; those that wait no more are forgotten."""
        now_s = self._clock.monotonic()
        found: dict[str, _Waiting] = {}
        due: list[tuple[str, NamespacedName]] = []
        for key, pod in snapshot.pods.items():
            if len(found) < LOOKED_AT_MAX and is_waiting(pod) and not gated(pod):
                uid = pod.metadata.uid
                found[uid] = self._waiting.get(uid) or _Waiting(now_s)
                if now_s - found[uid].since_s >= PATIENCE_S:
                    due.append((pod.metadata.creation_timestamp or "", key))
        self._waiting = found
        return [key for _, key in sorted(due)]

    def _refused(self, snapshot: Snapshot, unit: SchedulingUnit) -> tuple[Refused | UndecidedPod, ...]:
        """Why the pods of a unit have no place, each unit asked as if it were next; () if it has one."""
        decision = decide(snapshot, unit, self._clock.utc(), msgspec.structs.replace(self._context))
        return (*decision.refused, *decision.undecided)

    async def _heard(self, pod: Pod, refused: Refused | UndecidedPod) -> bool:
        """Report the reason if it is another one and lasts; True if nothing is left to report."""
        waiting = self._waiting.get(pod.metadata.uid)
        topics = pending.topics(refused)
        if waiting is None or waiting.reported == topics:
            return True
        if waiting.seen != topics:
            waiting.seen = topics
            return False
        return await self._report(pod, refused, waiting, topics)

    async def _report(self, pod: Pod, refused: Refused | UndecidedPod, waiting: _Waiting, topics: Topics) -> bool:
        event = pending.event(pod, refused, format_time(self._clock.utc()), COMPONENT)
        count = waiting.counts.get(topics, 0) + 1
        outcome = await self._committer.carry_out([event])
        if isinstance(outcome.error, Stale) and count > 1:
            outcome = await self._committer.carry_out([pending.seen_again(event, count)])
        error = outcome.error
        # There already: we wrote it before a restart, or another replica did.
        if error is not None and not isinstance(error, Stale | NotFound):
            self._reported.labels(type(error).__name__).inc()
            self._log.info("event not written", pod=str(refused.pod), error=str(error))
            return False
        self._reported.labels("written" if error is None else "there").inc()
        waiting.reported = topics
        waiting.counts = {**waiting.counts, topics: count}
        return True
