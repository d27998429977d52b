"""How does the label `nvidia.com/mig.config` become MIG instances? The protocol of NVIDIA's MIG manager, on one node.

The label names a configuration; `nvidia.com/mig.config.state` shows pending, success or failed. Before GPUs change, the
parts that use them are paused by their deploy labels, and they return after it. Pods are never evicted: a GPU that a
container has from the device plugin, or a claim from a DRA driver, stays as it is and the layout fails, with an event
that says why. Source: NVIDIA/mig-parted `cmd/nvidia-mig-manager`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from functools import partial

from dragoman.api.kinds import kind_of
from dragoman.api.meta import ObjectMeta, Value
from dragoman.cluster.client import Client
from dragoman.cluster.watch import Informer
from dragoman.drivers.nvidia import mig_parted
from dragoman.drivers.nvidia.device_plugin.node_labels import DEPLOY, TRUE, NodeLabels
from dragoman.drivers.nvidia.hardware import Hardware
from dragoman.drivers.nvidia.mig_parted import MigConfigs, WantedLayout
from dragoman.errors import DragomanError, Invalid, Retry
from dragoman.runtime.clock import Clock
from dragoman.runtime.entropy import Entropy
from dragoman.runtime.log import get
from dragoman.runtime.tasks import Tasks

NODE, CONFIG_MAP = kind_of("Node"), kind_of("ConfigMap")
CONFIG, STATE = "nvidia.com/mig.config", "nvidia.com/mig.config.state"
PENDING, SUCCESS, FAILED = "pending", "success", "failed"
PAUSED = "paused-for-mig-change"
PARTS = ("device-plugin", "gpu-feature-discovery", "dcgm-exporter", "dcgm", "nvsm")
"""Parts that use GPUs, and so are paused."""
OURS = frozenset({"device-plugin", "gpu-feature-discovery"})
"""Of them those that run without a label, too."""
KEY = "config.yaml"
OWN_MAP = ("kube-system", "nvidia-mig-config")
"""A ConfigMap of one's own, which counts instead of the generated one."""
STOP_S = 300.0
"""So long the paused parts may take to stop."""
EVENT_REASON = "MIGConfigFailed"

HeldNow = Callable[[], Awaitable[Mapping[str, str]]]
"""What is in use: UUIDs of GPUs and MIG devices, and by whom, for messages."""


class _Map(Value, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    data: dict[str, str] = {}


class MigManager:
    """The manager of one node. `run` it.

    stopped(): whether the paused parts have let go of the GPUs. held(): what is in use. changed(): called after GPUs
    changed. failed(message): an event for people. reset(uuid): a GPU. default: the configuration of nodes without the
    label, "" for none.
    """

    def __init__(
        self,
        client: Client,
        clock: Clock,
        entropy: Entropy,
        node_name: str,
        hardware: Hardware,
        labels: NodeLabels,
        *,
        stopped: Callable[[], bool],
        held: HeldNow,
        changed: Callable[[], None],
        failed: Callable[[str], None],
        reset: Callable[[str], None],
        generated: MigConfigs,
        default: str = "",
    ) -> None:
        self.client = client
        self.clock = clock
        self.entropy = entropy
        self.node_name = node_name
        self.hardware = hardware
        self.labels = labels
        self.default = default
        self._stopped = stopped
        self._held = held
        self._changed = changed
        self._report = failed
        self._reset = reset
        self._generated = generated
        self._maps = Informer(
            client,
            CONFIG_MAP,
            clock,
            entropy,
            namespace=OWN_MAP[0],
            field_selector=f"metadata.name={OWN_MAP[1]}",
            type_=_Map,
        )
        self._log = get("mig-manager", node=node_name)

    async def run(self) -> None:
        """Follow the label for ever. One change at a time; what failed is not tried again until the label changes."""
        async with Tasks("mig-manager", self.clock, self.entropy) as tasks:
            tasks.supervise("watch ConfigMap", self._maps.run)
            await self._maps.synced()
            await self._publish()
            labels = await self.labels.until(lambda labels: True)
            if self.default and CONFIG not in labels:
                await self._label({CONFIG: self.default})
            done: str | None = None
            while True:
                labels = await self.labels.until(partial(_is_other, done))
                done = labels.get(CONFIG)
                if done is not None:
                    await self._follow(done)

    async def _follow(self, name: str) -> None:
        try:
            layouts = self._wanted(name)
            if all(mig_parted.is_applied(self.hardware, layout) for layout in layouts):
                await self._label({STATE: SUCCESS, **self._back()})
                return
            await self._label({STATE: PENDING})
            await self._change(layouts)
        except DragomanError as error:
            self._log.warning("MIG configuration failed", config=name, error=str(error))
            self._report(f"MIG configuration {name}: {error}")
            await self._label({STATE: FAILED, **self._back()})
            return
        finally:
            self._changed()
        self._log.info("MIG configuration applied", config=name)
        await self._label({STATE: SUCCESS, **self._back()})

    async def _change(self, layouts: list[WantedLayout]) -> None:
        """Raises Retry and Invalid; some GPUs may have changed then."""
        await self._label({DEPLOY + part: PAUSED for part in self._running_parts()})
        await self._until_stopped()
        for layout in layouts:
            if mig_parted.is_applied(self.hardware, layout):
                continue
            held = await self._held()
            uuids = [layout.gpu.uuid, *(one.uuid for one in self.hardware.instances(layout.gpu.uuid))]
            if user := next((held[uuid] for uuid in uuids if uuid in held), ""):
                raise Retry(
                    f"GPU {layout.gpu.index} is in use ({user}): drain the node's GPU pods and set the label again"
                )
            mig_parted.apply(self.hardware, layout, self._reset)

    def _running_parts(self) -> list[str]:
        there = self.labels.current
        return [part for part in PARTS if there.get(DEPLOY + part, TRUE if part in OURS else "") == TRUE]

    def _back(self) -> dict[str, str]:
        """Deploy labels as they were before the pause."""
        return {name: TRUE for name, value in self.labels.current.items() if value == PAUSED}

    async def _until_stopped(self) -> None:
        waited_s = 0.0
        while not self._stopped():
            if waited_s >= STOP_S:
                raise Retry(f"the parts that use the GPUs did not stop within {STOP_S:g} s")
            await self.clock.sleep(0.5)
            waited_s += 0.5

    def _wanted(self, name: str) -> list[WantedLayout]:
        """Raises Invalid."""
        configs, where = self._configs()
        if name not in configs:
            raise Invalid(CONFIG, f"{name!r} is not in {where}; there are: {', '.join(sorted(configs))}")
        return mig_parted.wanted(self.hardware, configs[name])

    def _configs(self) -> tuple[MigConfigs, str]:
        own = self._maps.objects.get(OWN_MAP)
        if own is None:
            return self._generated, f"ConfigMap {OWN_MAP[0]}/{self._own_name}"
        where = f"ConfigMap {'/'.join(OWN_MAP)}"
        if KEY not in own.data:
            raise Invalid(where, f"has no key {KEY}")
        return mig_parted.parse(own.data[KEY], f"{where}: {KEY}"), where

    @property
    def _own_name(self) -> str:
        return f"{self.node_name}-mig-config"

    async def _publish(self) -> None:
        """The generated file as a ConfigMap, for people to see which names there are."""
        labels = {"app.kubernetes.io/component": "nvidia-mig-manager", "nvidia.com/node-name": self.node_name}
        body = {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": self._own_name, "namespace": OWN_MAP[0], "labels": labels},
            "data": {KEY: mig_parted.to_yaml(self._generated)},
        }
        options = {"type": "apply", "manager": "nvidia-mig-manager", "force": True}
        await self.client.patch(CONFIG_MAP, self._own_name, body, OWN_MAP[0], **options)  # type: ignore[arg-type]

    async def _label(self, labels: Mapping[str, str]) -> None:
        """Patch the Node, and wait until the watch has it, so that the next step is not decided on old labels."""
        await self.client.patch(NODE, self.node_name, {"metadata": {"labels": dict(labels)}})
        await self.labels.until(lambda now: all(now.get(name) == value for name, value in labels.items()))


def _is_other(done: str | None, labels: Mapping[str, str]) -> bool:
    return labels.get(CONFIG) != done
