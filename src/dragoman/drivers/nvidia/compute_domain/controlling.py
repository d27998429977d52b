"""How does the controller of ComputeDomains run? Watches to keys, keys to steps, steps to writes: wiring, no decisions.

    controller = DomainController(client, clock, entropy)
    await controller.run()      # until cancelled

One may run at a time; `cluster.lease` sees to that where several are started.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence

import msgspec
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from dragoman.api.core import Pod
from dragoman.api.kinds import Kind, kind_of
from dragoman.api.meta import Bare, Value
from dragoman.cluster.client import Client
from dragoman.cluster.commit import Committer
from dragoman.cluster.watch import Informer, Informers
from dragoman.drivers.nvidia.compute_domain import controller
from dragoman.drivers.nvidia.compute_domain.controller import DAEMON_SET, TEMPLATE, DomainInput, Made
from dragoman.drivers.nvidia.compute_domain.names import CLIQUE, DOMAIN, LABEL, READY, Clique, ComputeDomain
from dragoman.drivers.nvidia.compute_domain.objects import MakeSettings, workload_template
from dragoman.errors import DragomanError, NotFound, Retry
from dragoman.runtime.clock import Clock
from dragoman.runtime.entropy import Entropy
from dragoman.runtime.log import get
from dragoman.runtime.metrics import Metrics
from dragoman.runtime.retry import Backoff
from dragoman.runtime.tasks import KeyQueue, Tasks, work
from dragoman.snapshot.change import Change, Gone, Put

CLEANUP_S = 600.0
WORKERS = 4
BACKOFF = Backoff(initial_s=0.1, max_s=30.0, jitter=0.2)


class _Index(Informer):
    """The objects of a kind by the domain whose label they carry."""

    def __init__(self, controller: DomainController, kind: Kind, type_: type[Value], namespace: str = "") -> None:
        selector = LABEL if kind.kind != DOMAIN.kind else ""
        super().__init__(
            controller.client,
            kind,
            controller.clock,
            controller.entropy,
            namespace=namespace,
            label_selector=selector,
            type_=type_,
            metrics=controller.metrics,
        )
        self.by_uid: dict[str, dict[tuple[str, str], object]] = {}
        self._of: dict[tuple[str, str], str] = {}
        self._add = controller.queue.add
        self.subscribe(self._enqueue)

    def _enqueue(self, changes: Sequence[Change]) -> None:
        for change in changes:
            match change:
                case Put(_, value):
                    key = (value.metadata.namespace, value.metadata.name)
                    uid = self._uid(value)
                case Gone(_, namespace, name):
                    key, value, uid = (namespace, name), None, ""
            before = self._of.get(key, "")
            if before and before != uid:
                self.by_uid[before].pop(key, None)
                if not self.by_uid[before]:
                    del self.by_uid[before]
                del self._of[key]
                self._add(before)
            if uid:
                self._of[key] = uid
                self.by_uid.setdefault(uid, {})[key] = value
                self._add(uid)

    def _uid(self, value: object) -> str:
        meta = value.metadata  # type: ignore[attr-defined]
        return str(meta.uid if self.kind.kind == DOMAIN.kind else meta.labels.get(LABEL, ""))

    def of(self, uid: str) -> list[object]:
        """Those of a domain."""
        return list(self.by_uid.get(uid, {}).values())


class DomainController:
    """The controller. cliques: whether daemons write cliques, or the status of the domain itself."""

    def __init__(
        self,
        client: Client,
        clock: Clock,
        entropy: Entropy,
        settings: MakeSettings | None = None,
        metrics: Metrics | None = None,
        *,
        cliques: bool = True,
    ) -> None:
        self.client = client
        self.clock = clock
        self.entropy = entropy
        self.settings = settings or MakeSettings()
        self.metrics = metrics or Metrics()
        self.cliques_gate = cliques
        self._log = get("compute-domain-controller")
        self._begin()
        self.metrics.collector(_Domains(self))

    def _begin(self) -> None:
        namespace = self.settings.namespace
        self.queue: KeyQueue[str] = KeyQueue("compute-domains", self.clock, BACKOFF)
        self.domains = _Index(self, DOMAIN, ComputeDomain)
        self.cliques = _Index(self, CLIQUE, Clique, namespace)
        self.templates = _Index(self, kind_of(TEMPLATE), Bare)
        self.sets = _Index(self, kind_of(DAEMON_SET), Bare, namespace)
        self.nodes = _Index(self, kind_of("Node"), Bare)
        self.pods = _Index(self, kind_of("Pod"), Pod, namespace)
        self.indexes = (self.domains, self.cliques, self.templates, self.sets, self.nodes, self.pods)
        self.informers = Informers(self.client, self.clock, self.entropy, self.metrics)
        for index in self.indexes:
            self.informers.add(index)
        self.committer = Committer(
            self.client,
            self.clock,
            self.entropy,
            informers=self.informers,
            metrics=self.metrics,
            manager="compute-domain-controller",
        )
        self._cleanup = asyncio.Event()
        self._known: set[str] = set()

    async def run(self) -> None:
        """Work until cancelled; starts from what the API says each time."""
        self._begin()
        try:
            async with Tasks("compute domains", self.clock, self.entropy) as tasks:
                for index in self.indexes:
                    tasks.supervise(f"watch {index.kind.kind.partition('/')[0]}", index.run)
                tasks.supervise("events", self.committer.run)
                for index in self.indexes:
                    await index.synced()
                tasks.supervise("clean up", self._clean_up)
                for number in range(WORKERS):
                    tasks.start(f"worker {number}", work(self.queue, self._step, self._log))
        finally:
            self.queue.close()

    def known(self, uid: str) -> DomainInput:
        """What is known of one domain now."""
        found = self.domains.of(uid)
        domain = found[0] if found else None
        assert domain is None or isinstance(domain, ComputeDomain)
        made = [
            Made(index.kind.kind, one.metadata)  # type: ignore[attr-defined]
            for index in (self.templates, self.sets)
            for one in index.of(uid)
        ]
        return DomainInput(
            uid,
            domain,
            tuple(made),
            tuple(node.metadata for node in self.nodes.of(uid)),  # type: ignore[attr-defined]
            tuple(one for one in self.cliques.of(uid) if isinstance(one, Clique)),
            tuple(one for one in self.pods.of(uid) if isinstance(one, Pod)),
            cliques_gate=self.cliques_gate,
        )

    async def _step(self, uid: str) -> None:
        known = self.known(uid)
        if known.domain is not None and uid not in self._known:
            self._known.add(uid)
            self._cleanup.set()
        step = controller.sync(await self._with_other(known), self.settings)
        outcome = await self.committer.carry_out(step.effects)
        outcome.check()
        if step.problem:
            raise Retry(step.problem)

    async def _with_other(self, known: DomainInput) -> DomainInput:
        """Whether somebody else's template has the name: those without our label are not watched."""
        domain = known.domain
        if domain is None or domain.is_ending:
            return known
        meta = workload_template(domain, self.settings)["metadata"]
        place = (meta["namespace"], meta["name"])
        if any((made.metadata.namespace, made.metadata.name) == place for made in known.made if made.kind == TEMPLATE):
            return known
        try:
            found = await self.client.get(kind_of(TEMPLATE), meta["name"], meta["namespace"])
        except NotFound:
            return known
        other = (found["metadata"].get("labels") or {}).get(LABEL) != known.uid
        if not other:
            raise Retry(f"ResourceClaimTemplate {place[0]}/{place[1]} is not seen yet")
        return msgspec.structs.replace(known, other_template=True)

    # ---- what is left of domains that are gone

    async def _clean_up(self) -> None:
        while True:
            self._cleanup.clear()
            try:
                await self._clean_up_once()
            except DragomanError as error:
                self._log.info("retrying clean-up", error=str(error))
                await self.clock.sleep(BACKOFF.wait_s(3, self.entropy))
                continue
            try:
                await self.clock.within(CLEANUP_S, self._cleanup.wait())
            except TimeoutError:
                continue

    async def _clean_up_once(self) -> None:
        # What carries a label was labelled after its domain was made: looked at first, it cannot be of a newer domain
        # than those listed.
        labelled = {uid for index in self.indexes[2:5] for uid in index.by_uid}
        listed = await self.client.list(DOMAIN)
        alive = {item["metadata"]["uid"] for item in listed.items}
        for uid in sorted(labelled - alive):
            for _ in range(3):  # deleted first, then the finalizers of what is being deleted
                effects = controller.stale(self.known(uid))
                if not effects:
                    break
                outcome = await self.committer.carry_out(effects)
                outcome.check()
                await self.clock.sleep(0.1)
        self._known &= alive


class _Domains(Collector):
    """nvidia_dra_compute_domain_info, counted when somebody asks."""

    def __init__(self, controller: DomainController) -> None:
        self._controller = controller

    def describe(self) -> Iterator[GaugeMetricFamily]:
        """Registered without counting."""
        return iter(())

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """How many domains are in each status."""
        family = GaugeMetricFamily(
            "nvidia_dra_compute_domain_info", "ComputeDomains by their status.", labels=["status"]
        )
        counts = {READY: 0, "NotReady": 0}
        for domain in self._controller.domains.objects.values():
            status = domain.status.status or "NotReady"
            counts[status] = counts.get(status, 0) + 1
        for status, count in counts.items():
            family.add_metric([status], count)
        yield family
