"""How do HorizontalPodAutoscalers act? One loop: read scale, pods and usage, ask `reconcile.autoscaling`, write.

Beside kube-controller-manager it does not run: that has an autoscaler of its own. What it remembers of each autoscaler
(recommendations, changes) is lost when the process ends.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from dragoman.api import codec
from dragoman.api.core import Pod
from dragoman.api.kinds import BY_NAME, Kind, custom_name, kind_of
from dragoman.api.meta import NamespacedName, Ref, parse_time
from dragoman.api.shape import Object
from dragoman.apiserver.selectors import Requirements, accepts, parse_labels
from dragoman.apiserver.status import StatusError
from dragoman.cluster.client import Client
from dragoman.cluster.commit import Committer
from dragoman.cluster.watch import Informers
from dragoman.effects import Effect, Emit, Patch
from dragoman.errors import DragomanError, NotFound
from dragoman.reconcile.autoscaling.limits import Memory
from dragoman.reconcile.autoscaling.replicas import ContainerAmounts, PodUsage
from dragoman.reconcile.autoscaling.step import ScaleDecision, ScaleInput, judged, settled
from dragoman.runtime.clock import Clock
from dragoman.runtime.entropy import Entropy
from dragoman.runtime.log import get
from dragoman.runtime.metrics import Metrics
from dragoman.runtime.tasks import KeyQueue, Tasks, work
from dragoman.snapshot.change import Change, Gone
from dragoman.values.quantity import Quantity

HPA = kind_of("HorizontalPodAutoscaler")
POD = kind_of("Pod")
DEFINITION = kind_of("CustomResourceDefinition")
SYNC_S = 15.0
"""--horizontal-pod-autoscaler-sync-period."""
WORKERS = 5
COMPONENT = "horizontal-pod-autoscaler"


class UsageReader(Protocol):
    """metrics.k8s.io, as far as an autoscaler reads it."""

    def listed(self, plural: str, namespace: str, labels: Requirements, now: float) -> list[Object]:
        """PodMetrics of a namespace with such labels."""
        ...


class Autoscaler:
    """The autoscalers of a cluster. informers: those of the process, which somebody else runs."""

    def __init__(
        self,
        client: Client,
        clock: Clock,
        entropy: Entropy,
        usage: UsageReader,
        informers: Informers,
        metrics: Metrics | None = None,
    ) -> None:
        self._client = client
        self._clock = clock
        self._entropy = entropy
        self._usage = usage
        self._committer = Committer(client, clock, entropy, metrics=metrics)
        self._queue: KeyQueue[NamespacedName] = KeyQueue("autoscaler", clock)
        self._informer = informers.of(HPA.kind)
        self._memory: dict[NamespacedName, tuple[str, Memory]] = {}
        self._selectors: dict[NamespacedName, Requirements] = {}
        self._generations: dict[NamespacedName, tuple[str, int]] = {}
        self._log = get("autoscaler")

    async def run(self) -> None:
        """Look at each autoscaler when it changes, and every 15 s, until cancelled."""
        leave = self._informer.subscribe(self._receive)
        try:
            async with Tasks("autoscaler", self._clock, self._entropy) as tasks:
                tasks.supervise("events", self._committer.run)
                for number in range(WORKERS):
                    tasks.supervise(f"worker {number}", lambda: work(self._queue, self._step, self._log))
        finally:
            leave()
            self._queue.close()

    def _receive(self, changes: Sequence[Change]) -> None:
        for change in changes:
            if isinstance(change, Gone):
                key = (change.namespace, change.name)
                for known in (self._memory, self._selectors, self._generations):
                    known.pop(key, None)
                continue
            meta = change.object.metadata
            key, state = (meta.namespace, meta.name), (meta.uid, meta.generation)
            if self._generations.get(key) != state:  # not for what we wrote into the status ourselves
                self._generations[key] = state
                self._queue.add(key)

    async def _step(self, key: NamespacedName) -> None:
        if key not in self._generations:
            return
        try:
            await self._look(key)
        finally:
            if key in self._generations:
                self._queue.add_after(key, SYNC_S)

    async def _look(self, key: NamespacedName) -> None:
        try:
            hpa = await self._client.get(HPA, key[1], key[0])
        except NotFound:
            return
        if hpa["metadata"].get("deletionTimestamp"):
            return
        uid = hpa["metadata"]["uid"]
        known = self._memory.get(key)
        if known is None or known[0] != uid:
            known = self._memory[key] = uid, Memory()
        memory = known[1]
        target, world = await self._read(hpa)
        decision = judged(world, memory)
        if decision.replicas is not None and target is not None:
            assert world.scale is not None
            ref = Ref(target.kind, key[0], hpa["spec"]["scaleTargetRef"]["name"])
            version = world.scale["metadata"].get("resourceVersion", "")
            scale = Patch(ref, {"spec": {"replicas": decision.replicas}}, subresource="scale", resource_version=version)
            outcome = await self._committer.carry_out((scale,))
            decision = settled(world, memory, decision, str(outcome.error) if outcome.error else "")
        await self._report(hpa, decision)

    async def _report(self, hpa: Object, decision: ScaleDecision) -> None:
        meta = hpa["metadata"]
        ref = Ref("HorizontalPodAutoscaler", meta["namespace"], meta["name"], meta["uid"])
        effects: list[Effect] = [
            Emit(ref, type_, reason, message, COMPONENT) for type_, reason, message in decision.events
        ]
        if decision.status != (hpa.get("status") or {}):
            effects.insert(0, Patch(ref, {"status": decision.status}, subresource="status"))
        (await self._committer.carry_out(effects)).check()

    # ---- reading

    async def _read(self, hpa: Object) -> tuple[Kind | None, ScaleInput]:
        meta, reference = hpa["metadata"], hpa["spec"]["scaleTargetRef"]
        now, key = self._clock.now(), (meta["namespace"], meta["name"])
        kind: Kind | None = None
        try:
            kind = await self._kind(reference)
            # An empty patch is a read that every transport and every kind with a scale has.
            scale = await self._client.patch(kind, reference["name"], {}, meta["namespace"], subresource="scale")
        except DragomanError as error:
            self._selectors.pop(key, None)
            return kind, ScaleInput(hpa, now, no_scale=str(error))
        text = (scale.get("status") or {}).get("selector") or ""
        try:
            selector = parse_labels(text) if text else ()
        except StatusError:
            selector = ()
        if not selector:
            return kind, ScaleInput(hpa, now, scale)
        listed = await self._client.list(POD, meta["namespace"], label_selector=text)
        pods = [codec.decode(Pod, pod) for pod in listed.items]
        self._selectors[key] = selector
        usages = [_usage(found) for found in self._usage.listed("pods", meta["namespace"], selector, now)]
        return kind, ScaleInput(hpa, now, scale, "", pods, usages, self._rivals(key, pods))

    def _rivals(self, key: NamespacedName, pods: Sequence[Pod]) -> list[str]:
        """Other autoscalers that scale by pods of this one."""
        others = {other: found for other, found in self._selectors.items() if other[0] == key[0] and other != key}
        return sorted(
            "/".join(other)
            for other, selector in others.items()
            if any(accepts(selector, pod.metadata.labels) for pod in pods)
        )

    async def _kind(self, reference: Mapping[str, str]) -> Kind:
        """The kind of a scale target. Raises NotFound."""
        group = (reference.get("apiVersion") or "").rpartition("/")[0]
        name = reference["kind"]
        known = BY_NAME.get(name)
        if known is not None and known.group == group:
            if "scale" in known.subresources:
                return known
            raise NotFound("the server could not find the requested resource")
        for definition in (await self._client.list(DEFINITION)).items:
            spec = definition["spec"]
            if (spec["group"], spec["names"]["kind"]) == (group, name):
                version = next(v for v in spec["versions"] if v.get("storage"))
                if not (version.get("subresources") or {}).get("scale"):
                    raise NotFound("the server could not find the requested resource")
                namespaced = spec["scope"] == "Namespaced"
                named = custom_name(name, group, version["name"], spec["names"]["plural"], namespaced=namespaced)
                return kind_of(named)
        raise NotFound(f'no matches for kind "{name}" in group "{group}"')


def _usage(metrics: Object) -> PodUsage:
    containers = tuple(
        ContainerAmounts(c["name"], {name: Quantity.parse(amount).milli() for name, amount in c["usage"].items()})
        for c in metrics["containers"]
    )
    window_s = float(metrics["window"].removesuffix("s"))
    at = parse_time(metrics["timestamp"]).timestamp()
    return PodUsage(metrics["metadata"]["name"], at, window_s, containers)
