"""Which configuration does this node's device plugin have? A key of a ConfigMap, by a label of the Node.

The node label `nvidia.com/device-plugin.config` names the key. Without it: the default that was configured, else a key
`default`, else the only one, else none. An unknown key, or a file that is not valid, changes nothing and is reported.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

from dragoman.api.core import Node
from dragoman.api.kinds import kind_of
from dragoman.api.meta import ObjectMeta, Value
from dragoman.cluster.client import Client
from dragoman.cluster.watch import Informer
from dragoman.drivers.nvidia.device_plugin.config import PluginConfig, parse
from dragoman.errors import Invalid
from dragoman.node.routes import Routes
from dragoman.runtime.clock import Clock
from dragoman.runtime.entropy import Entropy
from dragoman.runtime.log import get
from dragoman.runtime.tasks import Tasks

LABEL = "nvidia.com/device-plugin.config"
DEFAULT_KEY = "default"
NODE, CONFIG_MAP = kind_of("Node"), kind_of("ConfigMap")


class _ConfigMap(Value, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    data: dict[str, str] = {}


def chosen_key(label: str | None, data: Mapping[str, str], default: str = "") -> str | None:
    """The key whose text counts; "" for no file at all, None where nothing may change."""
    if label:
        return label if label in data else None
    if default:
        return default if default in data else None
    if DEFAULT_KEY in data:
        return DEFAULT_KEY
    return next(iter(data)) if len(data) == 1 else ""


class NodeConfig:
    """Follows Node and ConfigMap. apply(config) is called with every configuration that counts from then on.

    base: the file's text where no key is chosen; over: flags over it. nodes: a watch of nodes that is there already.
    """

    def __init__(
        self,
        client: Client,
        clock: Clock,
        entropy: Entropy,
        *,
        node_name: str,
        config_map: tuple[str, str],
        apply: Callable[[PluginConfig], None],
        default: str = "",
        base: str = "",
        over: Mapping[str, Any] | None = None,
        nodes: Routes | None = None,
    ) -> None:
        self.clock = clock
        self.entropy = entropy
        self.node_name = node_name
        self.config_map = config_map
        self.ready = asyncio.Event()
        """Set once Node and ConfigMap were looked at."""
        self._apply = apply
        self._default = default
        self._base = base
        self._over = over
        self._label: str | None = None
        self._seen_node = False
        self._data: Mapping[str, str] = {}
        self._said = ""
        namespace, name = config_map
        selector = f"metadata.name={name}"
        self._maps = Informer(
            client, CONFIG_MAP, clock, entropy, namespace=namespace, field_selector=selector, type_=_ConfigMap
        )
        self._own = None
        if nodes is None:
            self._own = Informer(client, NODE, clock, entropy, field_selector=f"metadata.name={node_name}")
            nodes = Routes(self._own, lambda node: node.metadata.name)
        self._nodes = nodes
        self._log = get("device-plugin", node=node_name)

    async def run(self) -> None:
        """Follow for ever."""
        async with Tasks("device-plugin config", self.clock, self.entropy) as tasks:
            tasks.supervise("watch ConfigMap", self._maps.run)
            if self._own is not None:
                tasks.supervise("watch Node", self._own.run)
            await self._maps.synced()
            leave = self._nodes.subscribe(self.node_name, self._node)
            self._maps.subscribe(lambda changes: self._changed())
            try:
                self._changed()
                await asyncio.Event().wait()
            finally:
                leave()

    def _node(self, what: str, node: Node) -> None:
        label = node.metadata.labels.get(LABEL) if what != "gone" else self._label
        if label != self._label or not self._seen_node:
            self._label, self._seen_node = label, True
            self._changed()

    def _changed(self) -> None:
        found = self._maps.objects.get(self.config_map)
        self._data = found.data if found is not None else {}
        key = chosen_key(self._label, self._data, self._default)
        where = "/".join(self.config_map)
        if key is None:
            wanted = self._label or self._default
            self._say(f"ConfigMap {where} has no key {wanted!r}: the configuration stays as it is")
        else:
            text, place = (self._data[key], f"ConfigMap {where}: {key}") if key else (self._base, "configuration")
            try:
                self._apply(parse(text, place, self._over))
                self._said = ""
            except Invalid as error:
                self._say(f"{error}: the configuration stays as it is")
        if self._seen_node:
            self.ready.set()

    def _say(self, text: str) -> None:
        if text != self._said:
            self._said = text
            self._log.warning(text)
