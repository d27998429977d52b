"""How do decisions become a running scheduler? Cache, queue, decide, commit, tell: wiring, no decisions.

    scheduler = Scheduler(client, clock, entropy, Settings())
    async with Tasks("dragoman", clock, entropy) as tasks:
        tasks.supervise("scheduler", scheduler.run)

`run` works until cancelled, and starts from what the API says each time: nothing is kept over a restart.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Iterable, Sequence
from functools import partial

import msgspec

from dragoman.allocate.allocator import OPTIONS, AllocatorOptions, TaskHistory
from dragoman.allocate.pace import Check, OutOfTime
from dragoman.api.core import Pod
from dragoman.api.kinds import kind_of
from dragoman.api.meta import NamespacedName
from dragoman.cluster.cache import DECIDED_ON, Assumption, Cache
from dragoman.cluster.client import Client
from dragoman.cluster.commit import CommitResult, Committer
from dragoman.cluster.watch import Informers
from dragoman.daemon.coexistence import COEXISTENCE_PAGE, LOOK_AROUND_S, MANAGER, FreshClaims, Surroundings, look
from dragoman.daemon.scheduler_metrics import ERROR, SCHEDULED, UNSCHEDULABLE, SchedulerMetrics
from dragoman.daemon.units import Units
from dragoman.effects import Bind, Effect, Patch
from dragoman.errors import Denied, DragomanError, NotFound, Retry, Stale
from dragoman.explain import events
from dragoman.explain.messages import message
from dragoman.runtime.clock import Clock
from dragoman.runtime.entropy import Entropy
from dragoman.runtime.log import get
from dragoman.runtime.metrics import Metrics
from dragoman.runtime.retry import Backoff
from dragoman.runtime.tasks import Tasks
from dragoman.schedule.conditions import TIMEOUT_S
from dragoman.schedule.cycle import SchedulingContext, SchedulingUnit, decide, gated, is_waiting, priority_of, unit_of
from dragoman.schedule.decision import Decision, Refused, undo
from dragoman.schedule.double_allocations import DoubleAllocation, double_allocations
from dragoman.schedule.fences import allocated_by, pod_awaits_others
from dragoman.schedule.placement import PlacementCache
from dragoman.schedule.profile import DEFAULT_PROFILE, SchedulerProfile
from dragoman.schedule.queue import Queue, QueuedUnit, QueueLimits, Topic, UnitKey, UnitState
from dragoman.schedule.revalidate import devices_are_free, still_holds
from dragoman.schedule.scope import EVERYTHING, DeviceScope
from dragoman.schedule.units import PreemptionMode
from dragoman.schedule.wakeup import named, topics
from dragoman.snapshot.change import Change, Gone, Snapshot, keys_of

POD, CLAIM = kind_of("Pod"), kind_of("ResourceClaim")
PATIENCE_S = 3.0
"""How long a reason that mostly goes away by itself may last before people hear of it."""
LOOK_AGAIN = Backoff(initial_s=0.1, max_s=5.0, jitter=0.5)
REPORT_AGAIN = Backoff(initial_s=1.0, max_s=60.0, jitter=0.5)
OTHERS_S = 5.0
"""How long a decision gives way to pods that another scheduler has not answered yet."""
OTHERS_LOOKS = 50
TURN_S = 0.01
"""How long decisions go on before others get their turn on the loop."""
LOOP_S = 0.02
"""How long one decision may take on the loop; then it is made in a thread."""
LOOP_COST = 300_000
"""Worst-case cost (CEL units) of a selector that is not evaluated on the loop at all: some 15 ms for one device."""
THREADS = 2
"""Long decisions at the same time. They take turns with the loop, so more make each one slower."""
FILTER_TIMEOUT_S = 10.0
"""Upstream's default of DynamicResourcesArgs.filterTimeout."""
FILTER_TIMEOUT_GATE = "DRASchedulerFilterTimeout"


class ProfileSettings(msgspec.Struct, frozen=True):
    """What pods of one spec.schedulerName are scheduled with. Fields as in `SchedulerSettings`."""

    profile: SchedulerProfile = DEFAULT_PROFILE
    filter_timeout_s: float = FILTER_TIMEOUT_S
    binding_timeout_s: float = TIMEOUT_S
    preemption: PreemptionMode = "off"


class SchedulerSettings(msgspec.Struct, frozen=True):
    """names: spec.schedulerName values this scheduler serves. commits: decisions being written at the same time.

    preemption: whether pods of lower priority are deleted for those of higher (`schedule.preempt`).
    own_lease: the Lease of its replicas. settle_s: beside another scheduler, how long a claim that was allocated is
    watched before its pod is bound: what the other one had decided before it could see that is written by then.
    filter_timeout_s: how long the devices of one unit may be looked for; 0: as long as it takes. profiles: by name of
    the scheduler, for those that differ from the settings beside it. scope: the devices that may be allocated.
    """

    names: tuple[str, ...] = ("default-scheduler",)
    options: AllocatorOptions = OPTIONS
    limits: QueueLimits = QueueLimits()
    binding_timeout_s: float = TIMEOUT_S
    commits: int = 64
    most_steps: int = 2_000_000
    preemption: PreemptionMode = "off"
    own_lease: str = ""
    settle_s: float = 0.3
    filter_timeout_s: float = FILTER_TIMEOUT_S
    profiles: dict[str, ProfileSettings] = {}
    scope: DeviceScope = EVERYTHING

    def profile(self, name: str) -> ProfileSettings:
        """What pods of that spec.schedulerName are scheduled with."""
        found = self.profiles.get(name)
        if found is not None:
            return found
        return ProfileSettings(DEFAULT_PROFILE, self.filter_timeout_s, self.binding_timeout_s, self.preemption)


class Scheduler:
    """One scheduler. `snapshot` and `queue` may be read by others on the loop.

    informers: those of the process, which somebody else runs; its own unless given.
    """

    def __init__(
        self,
        client: Client,
        clock: Clock,
        entropy: Entropy,
        settings: SchedulerSettings | None = None,
        metrics: Metrics | None = None,
        informers: Informers | None = None,
    ) -> None:
        self.settings = settings or SchedulerSettings()
        self.shared: Surroundings | None = None
        """Set while another scheduler may allocate the same devices: every decision is checked then."""
        self.ready = False
        """Whether everything that decisions depend on was read."""
        self._client = client
        self._fresh = FreshClaims(client)
        self._clock = clock
        self._entropy = entropy
        self._shared = informers
        self._log = get("scheduler")
        self._metrics = metrics or Metrics()
        self._decisions = self._metrics.counter(
            "dragoman_scheduler_decisions_total", "Decisions by outcome.", ["outcome"]
        )
        self._seconds = self._metrics.histogram(
            "dragoman_scheduler_bind_seconds", "From a unit's arrival in the queue to its binding."
        )
        self._double_allocations = self._metrics.counter(
            "dragoman_scheduler_double_allocations_total", "Devices seen with two holders."
        )
        self._yielded = self._metrics.counter(
            "dragoman_scheduler_yielded_total", "Decisions given up because another scheduler took a device meanwhile."
        )
        self._unfenced = self._metrics.gauge(
            "dragoman_scheduler_unfenced_drivers", "Drivers whose devices another scheduler may allocate, too."
        )
        self._measured = SchedulerMetrics(self._metrics, lambda: self.queue.entries(), self._pods_of)
        units = self._metrics.gauge("dragoman_scheduler_units", "Units (pods or gangs) by state.", ["state"])
        for state in UnitState:
            units.labels(state.value).set_function(partial(self._count_units, state))
        self._start_anew()

    def _count_units(self, state: UnitState) -> int:
        return self.queue.counts()[state]

    def _start_anew(self) -> None:
        shared = self._shared
        self.informers = shared.part() if shared else Informers(self._client, self._clock, self._entropy, self._metrics)
        self.queue = Queue(self.settings.limits)
        self.committer = Committer(
            self._client, self._clock, self._entropy, informers=self.informers, metrics=self._metrics
        )
        self._context = SchedulingContext(
            new_id=self._entropy.uuid4,
            options=self.settings.options,
            in_flight=set(),
        )
        self._recent = TaskHistory()
        self._in_flight: set[NamespacedName] = set()
        self._context.in_flight = self._in_flight
        self._contexts = {name: self._context_for(name) for name in self.settings.names}
        self._reported: dict[str, str] = {}
        self._long_searches = asyncio.Semaphore(THREADS)
        self._long_memories = [PlacementCache(self._context.memory.matcher.beside()) for _ in range(THREADS)]
        self._work = asyncio.Event()
        self._slots = asyncio.Semaphore(self.settings.commits)
        preempts = any(context.preemption != "off" for context in self._contexts.values())
        more = ("PodDisruptionBudget",) if preempts else ()
        shows = None if self.settings.scope == EVERYTHING else self.settings.scope.shows
        self.cache = Cache(self.informers, (*DECIDED_ON, *more), shows)
        self._units = Units(self.queue, self.cache)
        self.cache.listen(self._changed)

    def _context_for(self, name: str) -> SchedulingContext:
        """What decisions for pods of one scheduler name depend on; what is known of nodes and devices is shared."""
        wanted = self.settings.profile(name)
        return msgspec.structs.replace(
            self._context,
            binding_timeout_s=wanted.binding_timeout_s,
            preemption=wanted.preemption,
            profile=wanted.profile,
        )

    def _name_of(self, pods: Iterable[NamespacedName]) -> str:
        """The spec.schedulerName of a unit: that of its first pod."""
        for key in pods:
            pod = self.snapshot.pods.get(key)
            if pod is not None and pod.spec.scheduler_name in self._contexts:
                return pod.spec.scheduler_name
        return self.settings.names[0]

    def _context_of(self, unit: SchedulingUnit) -> SchedulingContext:
        return self._contexts[self._name_of([*unit.pods, *(pod for pod, _ in unit.placed)])]

    @property
    def snapshot(self) -> Snapshot:
        """The cluster with what was decided and not yet seen."""
        return self.cache.snapshot

    @property
    def _component(self) -> str:
        return self.settings.names[0]

    async def run(self) -> None:
        """Schedule until cancelled. Raises what a bug raises; supervise it."""
        self.ready = False
        self._start_anew()
        async with Tasks("scheduler", self._clock, self._entropy) as tasks:
            self._tasks = tasks
            self.informers.start(tasks)
            tasks.supervise("events", self.committer.run)
            if self.settings.own_lease:
                tasks.supervise("look around", self._look_around)
            await self.cache.synced()
            self.ready = True
            self._log.info("ready", nodes=len(self.snapshot.nodes), pods=len(self.snapshot.pods))
            await self._schedule()

    # ---- other schedulers

    async def _look_around(self) -> None:
        """Know whether decisions need checking, for ever."""
        while True:
            found = await look(self._client, self._clock, self.settings.own_lease, self.settings.scope)
            if found.is_shared and self.shared is None:
                self._log.error("devices are shared", why=str(found), hint=COEXISTENCE_PAGE)
            self.shared = found if found.is_shared else None
            self._unfenced.set(len(found.unfenced) if found.rivals else 0)
            await self._clock.sleep(LOOK_AROUND_S)

    async def _write_beside(self, decision: Decision) -> CommitResult:
        """Write a decision where another scheduler may have taken its devices: look before the claims are written, and
        once more before pods are bound, and yield to what is there."""
        await self._others_decided()
        if not await self._are_free(decision):
            return CommitResult((), 0, self._held_elsewhere())
        claims = [effect for effect in decision.effects if not isinstance(effect, Bind)]
        binds = decision.effects[len(claims) :]
        outcome = await self.committer.carry_out(claims)
        if not outcome.ok or not any(placement.allocations for placement in decision.placements):
            return outcome if not outcome.ok else outcome.then(await self.committer.carry_out(binds, outcome))
        await self._clock.sleep(self.settings.settle_s)
        if not await self._are_free(decision):
            return CommitResult(outcome.written, len(claims), self._held_elsewhere(), outcome.moved)
        return outcome.then(await self.committer.carry_out(binds, outcome))

    async def _others_decided(self) -> None:
        """Give another scheduler's pods that want devices and have no answer yet the way, for a while."""
        for _ in range(OTHERS_LOOKS):
            if not any(pod_awaits_others(pod, self.settings.names) for pod in self.snapshot.pods.values()):
                return
            await self._clock.sleep(OTHERS_S / OTHERS_LOOKS)

    async def _are_free(self, decision: Decision) -> bool:
        """Whether the server shows nobody else on the decision's devices."""
        if not any(placement.allocations for placement in decision.placements):
            return True
        try:
            for claim in await self._fresh.read():
                self.informers.observe("ResourceClaim", claim)
        except DragomanError as error:
            self._log.info("cannot read which claims hold the devices", error=str(error))
            return False
        return devices_are_free(self.snapshot, decision, self._context)

    def _held_elsewhere(self) -> Stale:
        self._yielded.inc()
        return Stale("another scheduler allocated the device meanwhile: decided again")

    # ---- changes

    def _changed(self, changes: Sequence[Change], before: Snapshot, after: Snapshot) -> None:
        found: dict[Topic, None] = {}
        for change in changes:
            found |= dict.fromkeys(topics(before, change))
            if change.kind == "Pod":
                self._track(change, before, after)
        self._wake(found)
        for double_allocation in double_allocations(after, changes, self.settings.names):
            self._part(double_allocation)

    def _part(self, double_allocation: DoubleAllocation) -> None:
        """Two claims hold one device, which two schedulers can do: ours gives way where nobody loses work."""
        self._double_allocations.inc()
        names = ", ".join("/".join(key) for key in double_allocation.claims)
        loser = "/".join(double_allocation.loser) if double_allocation.loser is not None else "nobody"
        self._log.error("a device has two holders", device=str(double_allocation.device), claims=names, gives_way=loser)
        self._tasks.start("part", self._give_way(double_allocation))

    async def _give_way(self, double_allocation: DoubleAllocation) -> None:
        """Give the loser's devices up, if it is still so and the allocation is ours; say so in any case."""
        if double_allocation.loser is not None and not await self._is_ours(double_allocation.loser):
            double_allocation = msgspec.structs.replace(double_allocation, loser=None, effects=(), pods=())
        await self._carry(
            (*double_allocation.effects, *events.double_allocation_effects(double_allocation, self._component))
        )

    async def _is_ours(self, key: NamespacedName) -> bool:
        """Whether the server says that we wrote the claim's allocation."""
        try:
            claim = await self._client.get(CLAIM, key[1], key[0])
        except DragomanError as error:
            self._log.info("cannot read which scheduler allocated", claim="/".join(key), error=str(error))
            return False
        return allocated_by(claim)[0] == MANAGER

    def _wake(self, about: Iterable[Topic]) -> None:
        self.queue.wake(about, self._clock.monotonic())
        self._work.set()

    def _track(self, change: Change, before: Snapshot, after: Snapshot) -> None:
        """Keep the queue's units in step with a pod that appeared, changed or went away."""
        gone = isinstance(change, Gone)
        pod = _pod_of(change, before)
        if pod is None or pod.spec.scheduler_name not in self.settings.names:
            return
        if gone:
            self._reported.pop(pod.metadata.uid, None)
        unit = unit_of(after, pod, self.settings.options.gates)
        entry = self.queue.get(unit.key)
        if entry is not None and entry.state in (UnitState.ASSUMED, UnitState.WAITING) and unit.key[0] == "Pod":
            if gone or pod.metadata.deletion_timestamp is not None:
                self._units.forget(unit.key)
            return
        waiting = [after.pods[key] for key in unit.pods if key in after.pods and is_waiting(after.pods[key])]
        if not waiting:
            if entry is not None and entry.state not in (UnitState.ASSUMED, UnitState.WAITING, UnitState.DECIDING):
                self._units.forget(unit.key)
            return
        now = self._clock.monotonic()
        self._units.arrive(unit.key, now)
        priority = max(priority_of(after, one) for one in waiting)
        self.queue.add(unit.key, priority, now, gated=all(gated(one) for one in waiting))

    # ---- deciding

    async def _schedule(self) -> None:
        turn = self._clock.monotonic()
        while True:
            entry = self.queue.take(self._clock.monotonic())
            if entry is None:
                await self._wait()
                turn = self._clock.monotonic()
                continue
            await self._slots.acquire()
            work = self._decide(entry)
            if work is None:
                self._slots.release()
            else:
                self._tasks.start(f"write {'/'.join(entry.key)}", self._in_slot(work))
            if self._clock.monotonic() - turn > TURN_S:
                await self._clock.sleep(0)
                turn = self._clock.monotonic()

    async def _wait(self) -> None:
        self._work.clear()
        due = self.queue.next_due()
        if due is None:
            await self._work.wait()
            return
        try:
            await self._clock.within(max(0.0, due - self._clock.monotonic()), self._work.wait())
        except TimeoutError:
            return

    async def _in_slot(self, work: Awaitable[None]) -> None:
        """What follows from a decision, in the slot that was taken for it; the one place that gives slots back."""
        try:
            await work
        finally:
            self._slots.release()

    def _decide(self, entry: QueuedUnit) -> Awaitable[None] | None:
        """Decide a unit; what is still to be done for it, in the slot."""
        unit = self._unit(entry.key)
        if unit is None:
            self._units.forget(entry.key)
            return None
        progress = self._units.of(entry.key)
        progress.attempts, progress.attempt_at = progress.attempts + 1, self._clock.monotonic()
        steps = progress.steps
        if not steps:
            self._context.memory.matcher.check = self._within(LOOP_S, LOOP_COST)
            try:
                return self._conclude(decide(self.snapshot, unit, self._clock.utc(), self._context_of(unit)))
            except OutOfTime:
                steps = self._units.of(entry.key).steps = self.settings.options.limits.search_steps
        self._tasks.start(f"search {'/'.join(entry.key)}", self._search_longer(unit, steps))
        return None

    def _within(self, seconds: float, most_cost: int | None = None, over: Sequence[object] = ()) -> Check:
        """A check that ends the work after some seconds of the world, before selectors that cost more, or once
        something is put into over."""
        monotonic, end = self._clock.monotonic, self._clock.monotonic() + seconds * self._clock.speed

        def check(cost: int) -> None:
            if monotonic() > end or over or (most_cost is not None and cost > most_cost):
                raise OutOfTime

        return check

    async def _search_longer(self, unit: SchedulingUnit, steps: int) -> None:
        """A decision that takes long, with more steps and in a thread, so that the others go on meanwhile."""
        over: list[bool] = []
        async with self._long_searches:
            memory = self._long_memories.pop()
            timeout_s = self.settings.profile(self._name_of(unit.pods)).filter_timeout_s or math.inf
            if not self.settings.options.gates.on(FILTER_TIMEOUT_GATE):
                timeout_s = math.inf
            memory.matcher.check = self._within(timeout_s, over=over)
            try:
                found = await self._in_thread(unit, steps, memory)
            finally:
                over.append(True)  # the thread of a scheduler that ends is not waited for
                self._long_memories.append(memory)
        entry = self.queue.get(unit.key)
        work = None
        if entry is not None and entry.state is UnitState.DECIDING:  # nobody changed or forgot it meanwhile
            if isinstance(found, OutOfTime):
                self._timed_out(unit, found)
            elif still_holds(self.snapshot, found, self._context_of(unit)):
                work = self._conclude(found, steps)
            else:
                self.queue.again(unit.key, self._clock.monotonic())
        self._work.set()
        if work is not None:
            async with self._slots:
                await work

    async def _in_thread(self, unit: SchedulingUnit, steps: int, memory: PlacementCache) -> Decision | OutOfTime:
        usual = self._context_of(unit)
        options = usual.options
        limits = msgspec.structs.replace(options.limits, search_steps=steps)
        context = msgspec.structs.replace(
            usual,
            options=msgspec.structs.replace(options, limits=limits),
            in_flight=frozenset(self._in_flight),
            memory=memory,
        )
        try:
            return await asyncio.to_thread(decide, self.snapshot, unit, self._clock.utc(), context)
        except OutOfTime as error:
            return error

    def _timed_out(self, unit: SchedulingUnit, error: OutOfTime) -> None:
        """As upstream: an error, not a no, so the unit is tried again after a back-off whatever happens."""
        self._decisions.labels("timed_out").inc()
        self._attempt_ended(unit.key, ERROR, unit.pods)
        self.queue.failed(unit.key, self._clock.monotonic())
        timeout_s = self.settings.profile(self._name_of(unit.pods)).filter_timeout_s
        text = f"node {error.node}: timed out trying to allocate devices"
        text = f'running "DynamicResources" filter plugin: {text} (filterTimeout {timeout_s:g}s)'
        self._log.warning("timed out", unit="/".join(unit.key), error=text)
        for key in unit.pods:
            pod = self.snapshot.pods.get(key)
            if pod is not None and self._reported.get(pod.metadata.uid) != text:
                self._reported[pod.metadata.uid] = text
                self._send(events.error_effects(pod, text, self._clock.utc(), self._component))

    def _conclude(self, decision: Decision, steps: int = 0) -> Awaitable[None] | None:
        """What follows from a decision; what is to be written for it, in the slot."""
        key, now = decision.unit, self._clock.monotonic()
        self._count(decision)
        self._context.learn(decision.placements, self._recent)
        for context in self._contexts.values():
            context.options = self._context.options
        self._report(decision.refused)
        if decision.refused and not decision.placements and not decision.undecided:
            first = decision.refused[0]
            self._report_group(key, "Unschedulable", message(first, first.pod[0]))
        if decision.lost:
            self._units.let_go(key)
        if decision.effects:
            return self._commit(decision)
        if decision.waits:
            self._park(decision)
        elif decision.lost:
            self.queue.again(key, now)
        elif decision.undecided:
            steps = steps or self.settings.options.limits.search_steps
            self._units.of(key).steps = min(steps * 10, self.settings.most_steps)
            self.queue.failed(key, now)
        elif decision.refused:
            self._units.of(key).steps = 0
            self.queue.refused(key, decision.topics, now)
        else:
            self._units.forget(key)
        return None

    def _unit(self, key: UnitKey) -> SchedulingUnit | None:
        kind, namespace, name = key
        placed = self._units.of(key).placed
        if placed:
            return SchedulingUnit(key, (), placed=placed)
        if kind == "Pod":
            pod = self.snapshot.pods.get((namespace, name))
            return SchedulingUnit(key, ((namespace, name),)) if pod is not None and is_waiting(pod) else None
        for member in keys_of(self.snapshot.pods_by_group, (namespace, name)):
            unit = unit_of(self.snapshot, self.snapshot.pods[member], self.settings.options.gates)
            if unit.key != key:
                self._add_singly(key)
                return None
            return unit if unit.pods else None
        return None

    def _add_singly(self, group: UnitKey) -> None:
        """The pods came before their PodGroup, which now says that they are placed one by one."""
        now = self._clock.monotonic()
        for member in keys_of(self.snapshot.pods_by_group, group[1:]):
            pod = self.snapshot.pods[member]
            key = ("Pod", *member)
            if is_waiting(pod) and pod.spec.scheduler_name in self.settings.names and key not in self.queue:
                self._units.arrive(key, now)
                self.queue.add(key, priority_of(self.snapshot, pod), now, gated=gated(pod))

    def _count(self, decision: Decision) -> None:
        outcome = "placed" if decision.placements else "undecided" if decision.undecided else "refused"
        self._decisions.labels(outcome).inc()
        now = self._clock.monotonic()
        self._measured.decided(now - (self._units.of(decision.unit).attempt_at or now))
        if decision.preemption is not None:
            self._measured.preempted(len(decision.preemption.victims))
        if outcome == "refused" and decision.refused:
            self._attempt_ended(decision.unit, UNSCHEDULABLE, [refused.pod for refused in decision.refused])

    def _attempt_ended(self, key: UnitKey, result: str, pods: Sequence[NamespacedName]) -> None:
        now = self._clock.monotonic()
        seconds = now - (self._units.of(key).attempt_at or now)
        self._measured.ended(result, self._name_of(pods), seconds, len(pods))

    def _pods_of(self, key: UnitKey) -> int:
        """How many pods of a unit wait."""
        if key[0] == "Pod":
            return 1
        return sum(is_waiting(self.snapshot.pods[pod]) for pod in self.snapshot.pods_by_group.get(key[1:], ()))

    def _park(self, decision: Decision) -> None:
        """The unit has its place, keeps room there, and waits for conditions."""
        key, now = decision.unit, self._clock.monotonic()
        if key not in self.queue:
            return
        self._units.of(key).placed = tuple((placement.pod, placement.node) for placement in decision.placements)
        self._units.assume_pods(decision)
        left = [wait.deadline for wait in decision.waits if wait.deadline is not None]
        wait_s = self.settings.profile(self._name_of(wait.pod for wait in decision.waits)).binding_timeout_s
        if left:
            wait_s = max(0.0, (min(left) - self._clock.utc()).total_seconds())
        self.queue.waits(key, decision.topics, now + wait_s, now)

    # ---- committing

    def _commit(self, decision: Decision) -> Awaitable[None]:
        key, now = decision.unit, self._clock.monotonic()
        for placement in decision.placements:
            self._reported.pop(placement.uid, None)
        if decision.placements:
            self.queue.assumed(key, now)
        elif decision.lost:
            self.queue.failed(key, now)  # as upstream: what did not become ready is not tried again at once
        else:
            self.queue.refused(key, decision.topics, now)
        self._in_flight |= set(decision.written)
        if decision.waits:
            self._units.assume_pods(decision)
        return self._write(decision, self._assume(decision))

    def _assume(self, decision: Decision) -> Assumption:
        """What is taken counts at once; what is given up only once that is written, or it could be taken twice."""
        if not decision.placements:
            return self.cache.assume(())
        claims = [change for change in decision.assumed if change.kind != "Pod"]
        return self.cache.assume([*claims, *(effect for effect in decision.effects if isinstance(effect, Bind))])

    async def _write(self, decision: Decision, assumption: Assumption) -> None:
        try:
            if self.shared is None:
                outcome = await self.committer.carry_out(decision.effects)
            else:
                outcome = await self._write_beside(decision)
            if outcome.ok or decision.preemption is not None:  # who is displaced already is not taken back
                self.cache.confirm(assumption)
            else:
                await self._take_back(decision, outcome)
                self.cache.forget(assumption)
        finally:
            self._in_flight -= set(decision.written)
        self._settle(decision, outcome)
        self._wake(named("ResourceClaim", *claim) for claim in decision.written)

    def _settle(self, decision: Decision, outcome: CommitResult) -> None:
        key = decision.unit
        if not outcome.ok:
            self._failed(decision, outcome)
        elif decision.waits:
            self._park(decision)
            uids = {placement.pod: placement.uid for placement in decision.placements}
            for wait in decision.waits:
                self.committer.recorder.emit(events.wait_effect(wait, uids[wait.pod], self._component))
        elif decision.placements:
            self._bound(decision)
        self._log.debug("written", unit="/".join(key), ok=outcome.ok)

    def _bound(self, decision: Decision) -> None:
        for placement in decision.placements:
            self.committer.recorder.emit(events.placed_effect(placement, self._component))
            for effect in events.warning_effects(placement, self._component):
                self.committer.recorder.emit(effect)
        key = decision.unit
        progress = self._units.of(key)
        if progress.arrived is not None:
            waited_s = self._clock.monotonic() - progress.arrived
            self._seconds.observe(waited_s)
            self._measured.bound(waited_s, max(1, progress.attempts), len(decision.placements))
        self._attempt_ended(key, SCHEDULED, [placement.pod for placement in decision.placements])
        self._units.forget(key)
        self._report_group(key, "Scheduled", "")
        # Members of a gang that came meanwhile, or beyond its minimum found no place.
        for member in keys_of(self.snapshot.pods_by_group, key[1:]) if key[0] == "PodGroup" else ():
            pod = self.snapshot.pods[member]
            if is_waiting(pod):
                now = self._clock.monotonic()
                self._units.arrive(key, now)
                self.queue.add(key, priority_of(self.snapshot, pod), now)

    def _failed(self, decision: Decision, outcome: CommitResult) -> None:
        key, now = decision.unit, self._clock.monotonic()
        error = outcome.error
        entry = self.queue.get(key)
        self._log.info("write failed", unit="/".join(key), error=str(error))
        if decision.placements:
            self._attempt_ended(key, ERROR, [placement.pod for placement in decision.placements])
        if entry is not None and decision.preemption is not None and entry.state is UnitState.UNSCHEDULABLE:
            self.queue.failed(key, now, after_s=error.after_s if isinstance(error, Retry) else None)
        if entry is None or entry.state is not UnitState.ASSUMED:
            return
        self._units.let_go(key)
        if isinstance(error, Stale | NotFound):
            self.queue.again(key, now)
            return
        self.queue.failed(key, now, after_s=error.after_s if isinstance(error, Retry) else None)
        if not isinstance(error, Retry):
            for placement in decision.placements:
                pod = self.snapshot.pods.get(placement.pod)
                if pod is not None:
                    self._send(events.error_effects(pod, str(error), self._clock.utc(), self._component))

    async def _take_back(self, decision: Decision, outcome: CommitResult) -> None:
        """Undo what was written, unless a pod is, or may be, bound already: then its claims are its own.

        A write whose answer was lost may have been done: its devices count as taken until the API says what is there,
        and nothing is undone, since the next decision goes on from it.
        """
        bound = await self._what_is_there(decision)
        if not bound and not isinstance(outcome.error, Retry):
            back = undo(decision, outcome.written)
            if back:
                undone = await self.committer.carry_out(back)
                self._log.info("taken back", unit="/".join(decision.unit), ok=undone.ok)

    async def _what_is_there(self, decision: Decision) -> bool:
        """Reads claims and pods of a decision until that works. True: one of the pods is bound."""
        failures = 0
        while True:
            try:
                await self._look_again(decision)
                return any([await self._is_bound(one.pod, one.uid) for one in decision.placements])
            except Denied as error:
                # Without that right nothing can be taken back; what failed first is what has to be said.
                self._log.warning(
                    "not allowed to read what was written", error=str(error), unit="/".join(decision.unit)
                )
                return True
            except DragomanError as error:
                failures += 1
                wait_s = LOOK_AGAIN.wait_s(failures, self._entropy)
                if isinstance(error, Retry) and error.after_s:
                    wait_s = max(wait_s, error.after_s)
                self._log.info(
                    "cannot read again what was written, retrying", error=str(error), wait_s=round(wait_s, 3)
                )
                await self._clock.sleep(wait_s)

    async def _is_bound(self, key: NamespacedName, uid: str) -> bool:
        try:
            pod = await self._client.get(POD, key[1], key[0])
        except NotFound:
            return False
        self.informers.observe("Pod", pod)
        same = not uid or pod["metadata"].get("uid") == uid
        return same and bool(pod.get("spec", {}).get("nodeName"))

    async def _look_again(self, decision: Decision) -> None:
        """Reads the claims the decision was about, so that the next one is not made on the same old picture."""
        refs = {effect.ref for effect in decision.effects if isinstance(effect, Patch)}
        for ref in sorted(refs):
            if ref.kind == "ResourceClaim":
                try:
                    claim = await self._client.get(kind_of(ref.kind), ref.name, ref.namespace)
                except NotFound:
                    continue
                self.informers.observe(ref.kind, claim)

    # ---- telling

    def _report_group(self, key: UnitKey, reason: str, text: str) -> None:
        """The condition of a gang's PodGroup."""
        group = self.snapshot.pod_groups.get(key[1:]) if key[0] == "PodGroup" else None
        if group is not None:
            self._send(events.group_effects(group, reason, text, self._clock.utc()))

    def _report(self, refused: Iterable[Refused]) -> None:
        """Once for each change of the reason."""
        for one in refused:
            pod = self.snapshot.pods.get(one.pod)
            if pod is None:
                continue
            text = message(one, one.pod[0])
            if self._reported.get(one.uid) == text:
                continue
            self._reported[one.uid] = text
            self._tasks.start("report", self._report_refusal(one, text))

    async def _report_refusal(self, refused: Refused, text: str) -> None:
        """Until the server has it or it is so no more; what mostly passes by itself only after a while."""
        if events.is_passing(refused):
            await self._clock.sleep(PATIENCE_S)
        failures = 0
        while self._reported.get(refused.uid) == text:
            pod = self.snapshot.pods.get(refused.pod)
            if pod is None or pod.metadata.uid != refused.uid:
                return
            effects = events.refusal_effects(pod, refused, self._clock.utc(), self._component)
            outcome = await self.committer.carry_out(effects)
            if outcome.ok or isinstance(outcome.error, NotFound):
                return
            failures += 1
            wait_s = REPORT_AGAIN.wait_s(failures, self._entropy)
            pod_name = "/".join(refused.pod)
            self._log.warning("not reported yet", pod=pod_name, error=str(outcome.error), wait_s=round(wait_s, 3))
            await self._clock.sleep(wait_s)

    def _send(self, effects: Iterable[Effect]) -> None:
        effects = tuple(effects)
        if effects:
            self._tasks.start("tell", self._carry(effects))

    async def _carry(self, effects: Sequence[Effect]) -> None:
        outcome = await self.committer.carry_out(effects)
        if not outcome.ok:
            self._log.debug("not reported", error=str(outcome.error))


def _pod_of(change: Change, before: Snapshot) -> Pod | None:
    """The pod a change is about, as it is or was."""
    if isinstance(change, Gone):
        return before.pods.get((change.namespace, change.name))
    pod: Pod = change.object
    return pod
