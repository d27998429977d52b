"""How does a cluster's state become metrics? Watches, `ops.tally`, and a collector; reads only.

    exporter = Exporter(client, clock, entropy, metrics=metrics)
    async with Tasks("dragoman", clock, entropy) as tasks:
        tasks.supervise("exporter", exporter.run)

Reads the API server and nothing else. Changes are gathered and folded when somebody scrapes, or when many have come.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

import msgspec
from prometheus_client import Histogram
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from dragoman.api.core import Pod
from dragoman.api.kinds import kind_of
from dragoman.api.meta import NamespacedName, ObjectMeta, Value
from dragoman.api.resource import ResourceClaim
from dragoman.cluster.cache import DECIDED_ON
from dragoman.cluster.client import Client
from dragoman.cluster.watch import Informer, Informers
from dragoman.explain.messages import code
from dragoman.ops.families import BY_NAME, DURATION_BUCKETS, FAMILIES
from dragoman.ops.tally import ClusterTally, seconds_of
from dragoman.runtime.clock import Clock
from dragoman.runtime.entropy import Entropy
from dragoman.runtime.log import get
from dragoman.runtime.metrics import Metrics
from dragoman.runtime.tasks import Tasks
from dragoman.schedule.cycle import SchedulingContext, decide
from dragoman.schedule.decision import Decision
from dragoman.schedule.units import gated, is_waiting
from dragoman.snapshot.change import Change, Gone, Snapshot, apply_all
from dragoman.snapshot.usage import claim_names
from dragoman.whatif.units import units_of

EVENT = kind_of("Event")
PREPARE_FAILED = "FailedPrepareDynamicResources"
FOLD_AT = 5000
"""Changes that may wait to be folded."""
LOOK_S = 10.0
"""Between two looks at why pods wait, of the world's time."""
BUDGET_S = 0.25
"""How long one look may decide."""
TURN_S = 0.01
ASKED_S = 600.0
"""Without a scrape for so long nobody asks why pods wait."""
SCHEDULABLE, NOT_EXAMINED, UNDECIDED = "Schedulable", "NotExamined", "SearchLimitReached"


class ExporterSettings(msgspec.Struct, frozen=True):
    """max_nodes: how many nodes get series of their own. by_namespace: whether names of namespaces are shown."""

    max_nodes: int = 200
    by_namespace: bool = False


class PrepareFailure(Value, frozen=True):
    """What is read of an Event."""

    metadata: ObjectMeta = ObjectMeta()
    reason: str = ""
    count: int | None = None


class Exporter:
    """The metrics of `ops.families`, at `metrics`. informers: those of the process, its own unless given."""

    def __init__(
        self,
        client: Client,
        clock: Clock,
        entropy: Entropy,
        settings: ExporterSettings | None = None,
        metrics: Metrics | None = None,
        informers: Informers | None = None,
    ) -> None:
        self.settings = settings or ExporterSettings()
        self._client = client
        self._clock = clock
        self._entropy = entropy
        self._shared = informers
        self._metrics = metrics or Metrics()
        self._log = get("exporter")
        self._durations = _histogram()
        self._errors = 0
        self._scraped_s = clock.monotonic()
        self._begin()
        self._metrics.collector(_Gauges(self))

    def _begin(self) -> None:
        shared = self._shared
        self._informers = (
            shared.part() if shared else Informers(self._client, self._clock, self._entropy, self._metrics)
        )
        self.ready = False
        self._snapshot = Snapshot.empty()
        self._tally = ClusterTally()
        self._changes: list[Change] = []
        self._open: dict[NamespacedName, float] = {}
        """Claims without allocation: since when they have none, where that was seen, else 0."""
        self._first_use: dict[NamespacedName, float] = {}
        self._counts: dict[str, int] = {}
        """Uid of an Event -> its count."""
        self._reasons: Counter[str] = Counter()

    async def run(self) -> None:
        """Follow the cluster until cancelled."""
        self._begin()
        followed = [self._informers.follow(kind, self._receive) for kind in DECIDED_ON]
        failures = Informer(
            self._client,
            EVENT,
            self._clock,
            self._entropy,
            field_selector=f"reason={PREPARE_FAILED}",
            type_=PrepareFailure,
            metrics=self._metrics,
        )
        failures.subscribe(lambda changes: self._count_failures(changes, known=failures.is_synced))
        try:
            async with Tasks("exporter", self._clock, self._entropy) as tasks:
                self._informers.start(tasks)
                tasks.supervise("watch failures to prepare", failures.run)
                for informer in followed:
                    await informer.synced()
                self.ready = True
                self._log.info("running")
                while True:
                    await self._ask()
                    await self._clock.sleep(LOOK_S * self._clock.speed)
        finally:
            self.ready = False

    # ---- what is reported

    def _receive(self, changes: Sequence[Change]) -> None:
        self._changes += changes
        for change in changes:
            if change.kind == "ResourceClaim":
                self._claim(change)
            elif change.kind == "Pod" and not isinstance(change, Gone):
                self._pod(change.object)
        if len(self._changes) > FOLD_AT:
            self._fold()

    def _fold(self) -> None:
        if self._changes:
            changes, self._changes = self._changes, []
            before, self._snapshot = self._snapshot, apply_all(self._snapshot, changes)
            self._tally.advance(before, self._snapshot, changes)

    def _pod(self, pod: Pod) -> None:
        for name in claim_names(pod):
            key = (pod.metadata.namespace, name)
            if key not in self._first_use:
                self._first_use[key] = seconds_of(pod.metadata.creation_timestamp)

    def _claim(self, change: Change) -> None:
        """An allocation is timed if the claim was seen without one before: a restart times nothing twice."""
        if isinstance(change, Gone):
            key = (change.namespace, change.name)
            self._open.pop(key, None)
            self._first_use.pop(key, None)
            return
        claim: ResourceClaim = change.object
        meta, allocation = claim.metadata, claim.status.allocation
        key = (meta.namespace, meta.name)
        if allocation is None:
            if key not in self._open:
                self._open[key] = 0.0
            return
        was_open = self._open.pop(key, None)
        if was_open is not None:
            began = max(was_open, seconds_of(meta.creation_timestamp), self._first_use.get(key, 0.0))
            ended = seconds_of(allocation.allocation_timestamp) or self._clock.now()
            self._durations.observe(max(0.0, ended - began))
        self._first_use.pop(key, None)

    def _count_failures(self, changes: Sequence[Change], *, known: bool) -> None:
        """Events that were there before are known; what they grow by, and new ones, are errors."""
        for change in changes:
            if isinstance(change, Gone):
                continue
            event: PrepareFailure = change.object
            if event.reason != PREPARE_FAILED:
                continue
            uid, count = event.metadata.uid, event.count or 1
            if known:
                self._errors += max(0, count - self._counts.get(uid, 0))
            self._counts[uid] = count
            while len(self._counts) > 100_000:
                del self._counts[next(iter(self._counts))]

    # ---- why pods wait

    async def _ask(self) -> None:
        """Ask for each pod that waits, oldest first; pods of one owner are asked about once."""
        if self._clock.monotonic() - self._scraped_s > ASKED_S * self._clock.speed:
            return
        self._fold()
        snapshot = self._snapshot
        keys = sorted(
            (key for key, pod in snapshot.pods.items() if is_waiting(pod)),
            key=lambda key: (snapshot.pods[key].metadata.creation_timestamp or "", key),
        )
        found: Counter[str] = Counter()
        known: dict[tuple[str, ...], str] = {}
        context = SchedulingContext(new_id=self._entropy.uuid4)
        spent = 0.0
        began = self._clock.monotonic()
        for unit in units_of(snapshot, keys):
            pods = [snapshot.pods[key] for key in unit.pods]
            group = _group(pods[0])
            reason = known.get(group, "") if len(pods) == 1 else ""
            if not reason and gated(pods[0]):
                reason = "SchedulingGated"
            elif not reason and spent > BUDGET_S * self._clock.speed:
                reason = NOT_EXAMINED
            elif not reason:
                reason = _reason(decide(snapshot, unit, self._clock.utc(), context))
                known[group] = reason
                spent += (lasted := self._clock.monotonic() - began)
                if lasted > TURN_S:
                    await self._clock.sleep(0)
                began = self._clock.monotonic()
            found[reason] += len(pods)
        self._reasons = found

    # ---- asked

    def families(self) -> Iterator[Metric]:
        """Everything, as it is now."""
        self._scraped_s = self._clock.monotonic()
        synced = GaugeMetricFamily("dragoman_exporter_synced", BY_NAME["dragoman_exporter_synced"].help)
        synced.add_metric([], int(self.ready))
        yield synced
        if not self.ready:
            return
        self._fold()
        made: dict[str, GaugeMetricFamily] = {}
        for family in FAMILIES:
            if family.kind == "gauge" and family is not BY_NAME["dragoman_exporter_synced"]:
                made[family.name] = GaugeMetricFamily(family.name, family.help, labels=family.labels)
        settings = self.settings
        values = self._tally.values(self._clock.now(), max_nodes=settings.max_nodes, by_namespace=settings.by_namespace)
        for name, labels, value in values:
            made[name].add_metric(labels, value)
        for reason, pods in sorted(self._reasons.items()):
            made["dragoman_pending_pods"].add_metric((reason,), pods)
        yield from made.values()
        yield from self._durations.collect()
        errors = BY_NAME["dra_plugin_errors_total"]
        yield CounterMetricFamily(errors.name, errors.help, value=self._errors)


class _Gauges(Collector):
    """Computes on scrape."""

    def __init__(self, exporter: Exporter) -> None:
        self._exporter = exporter

    def describe(self) -> Iterator[Metric]:
        """Registered without computing."""
        return iter(())

    def collect(self) -> Iterator[Metric]:
        """The families."""
        return self._exporter.families()


def _histogram() -> Histogram:
    family = BY_NAME["dra_allocation_duration_seconds"]
    return Histogram(family.name, family.help, registry=None, buckets=DURATION_BUCKETS)


def _group(pod: Pod) -> tuple[str, ...]:
    """Equal for pods of one owner, which are made of one template."""
    meta = pod.metadata
    owner = next((o.uid for o in meta.owner_references if o.controller), "")
    return (meta.namespace, owner) if owner else (meta.namespace, "", meta.name)


def _reason(decision: Decision) -> str:
    """The code of the first pod's reason; of those of nodes, the one that most nodes have."""
    if decision.undecided:
        return UNDECIDED
    if not decision.refused:
        return SCHEDULABLE
    first = decision.refused[0]
    if first.reasons:
        return code(first.reasons[0])
    on_nodes: Counter[str] = Counter()
    for some in first.nodes:
        for reason in some.reasons:
            on_nodes[code(reason)] += len(some.nodes)
    return max(on_nodes, key=lambda name: (on_nodes[name], name)) if on_nodes else UNDECIDED
