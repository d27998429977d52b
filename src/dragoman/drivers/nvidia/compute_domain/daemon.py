"""What does the daemon of a ComputeDomain do on one node? It joins its clique and keeps nvidia-imex informed about its
peers.

    daemon = DomainDaemon(client, clock, entropy, env, files, start_imex, say)
    code = await daemon.run(stop)

It is the program of the DaemonSet's pods. It knows its pod's environment, the API and the files of its container, and
nothing of controller or kubelet plugin.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import Protocol

import msgspec

from dragoman.api import codec
from dragoman.api.core import Pod
from dragoman.api.kinds import kind_of
from dragoman.cluster.client import Client
from dragoman.cluster.watch import Informer
from dragoman.drivers.nvidia.compute_domain import imex
from dragoman.drivers.nvidia.compute_domain.names import (
    API_VERSION,
    CLIQUE,
    CLIQUE_LABEL,
    DNS_PREFIX,
    DOMAIN,
    LABEL,
    MAX_NODES,
    NAMESPACE,
    NOT_READY,
    READY,
    Clique,
    CliqueDaemon,
    ComputeDomain,
    DomainNode,
    clique_name,
    dns_name,
)
from dragoman.drivers.nvidia.gates import gates_with, parse_gates
from dragoman.errors import DragomanError, Invalid, NotFound, Retry, Stale
from dragoman.runtime.clock import Clock
from dragoman.runtime.entropy import Entropy
from dragoman.runtime.retry import Backoff
from dragoman.runtime.tasks import Tasks

POD = kind_of("Pod")
FOLDER = "/imexd"
WATCHDOG_S = 1.0
LEAVE_S = 10.0
BACKOFF = Backoff(initial_s=0.1, max_s=5.0, jitter=0.5)


class DaemonFiles(Protocol):
    """The files of the daemon's container."""

    def read(self, path: str) -> str:
        """The text of a file, "" where there is none."""
        ...

    def write(self, path: str, text: str) -> None:
        """Make or replace a file."""
        ...


class Imex(Protocol):
    """A running nvidia-imex."""

    def resolve_again(self) -> None:
        """SIGUSR1: names may have other addresses now."""
        ...

    async def run(self) -> int:
        """Until it ends."""
        ...


class DaemonSettings(msgspec.Struct, frozen=True):
    """From the environment of the pod."""

    uid: str
    clique: str
    domain: tuple[str, str]
    node: str
    ip: str
    pod: str
    pod_uid: str
    namespace: str
    max_nodes: int = MAX_NODES
    dns: bool = True
    cliques: bool = True

    @classmethod
    def of(cls, env: Mapping[str, str]) -> DaemonSettings:
        """Raises Invalid for what is missing."""
        if not env.get("COMPUTE_DOMAIN_UUID"):
            raise Invalid(
                "COMPUTE_DOMAIN_UUID",
                "is not set: the CDI edits of the daemon's claim were not applied; is CDI enabled in the container "
                "runtime?",
            )
        missing = [
            name for name in ("NODE_NAME", "POD_IP", "POD_NAME", "POD_UID", "POD_NAMESPACE") if not env.get(name)
        ]
        if missing:
            raise Invalid("environment", f"{', '.join(missing)} must be set")
        most = env.get("MAX_NODES_PER_IMEX_DOMAIN") or str(MAX_NODES)
        if not most.isdecimal() or not int(most):
            raise Invalid("MAX_NODES_PER_IMEX_DOMAIN", f"must be a number of nodes, got {most!r}")
        gates = gates_with(parse_gates(env.get("FEATURE_GATES", ""), "FEATURE_GATES"), "FEATURE_GATES")
        return cls(
            uid=env["COMPUTE_DOMAIN_UUID"],
            clique=env.get("CLIQUE_ID", ""),
            domain=(env.get("COMPUTE_DOMAIN_NAMESPACE", ""), env.get("COMPUTE_DOMAIN_NAME", "")),
            node=env["NODE_NAME"],
            ip=env["POD_IP"],
            pod=env["POD_NAME"],
            pod_uid=env["POD_UID"],
            namespace=env["POD_NAMESPACE"] or NAMESPACE,
            max_nodes=int(most),
            dns=gates.on("IMEXDaemonsWithDNSNames"),
            cliques=gates.on("ComputeDomainCliques"),
        )


class DomainDaemon:
    """One daemon. start_imex(config path): makes the process that `run`s; say: a line of its log."""

    def __init__(
        self,
        client: Client,
        clock: Clock,
        entropy: Entropy,
        env: Mapping[str, str],
        files: DaemonFiles,
        start_imex: Callable[[str], Imex],
        say: Callable[[str], None],
    ) -> None:
        self.client = client
        self.clock = clock
        self.entropy = entropy
        self.env = env
        self.files = files
        self.start_imex = start_imex
        self.say = say
        self.settings: DaemonSettings
        self._imex: Imex | None = None
        self._imex_task: asyncio.Task[int] | None = None
        self._peers: dict[str, str] = {}
        self._changed = asyncio.Event()
        self._wanted = 0
        """spec.numNodes, which counts without DNS names."""

    async def run(self, stop: asyncio.Event) -> int:
        """Serve until signalled; the exit code."""
        try:
            self.settings = DaemonSettings.of(self.env)
        except Invalid as error:
            self.say(str(error))
            return 1
        try:
            await self._retried(self._label_pod)
            if not self.settings.clique:
                self.say("this node has no NVLink fabric: nothing to do")
                await stop.wait()
                return 0
            return await self._serve(stop)
        except Invalid as error:
            self.say(str(error))
            return 1

    async def _serve(self, stop: asyncio.Event) -> int:
        s = self.settings
        text = self.files.read(f"{FOLDER}/{imex.TEMPLATE}")
        self.files.write(f"{FOLDER}/{imex.CONFIG}", imex.rendered(text, s.ip))
        if s.dns:
            self.files.write(f"{FOLDER}/{imex.NODES}", "".join(f"{dns_name(n)}\n" for n in range(s.max_nodes)))
        else:
            await self._retried(self._read_wanted)
        await self._retried(self._join)
        joined = self._informer()
        pod = Informer(
            self.client,
            POD,
            self.clock,
            self.entropy,
            namespace=s.namespace,
            field_selector=f"metadata.name={s.pod}",
        )
        for informer in (joined, pod):
            informer.subscribe(lambda changes: self._changed.set())
        try:
            async with Tasks(f"daemon {s.node}", self.clock, self.entropy) as tasks:
                tasks.supervise("watch members", joined.run)
                tasks.supervise("watch pod", pod.run)
                tasks.supervise("follow", lambda: self._follow(joined, pod))
                await stop.wait()
                tasks.stop()
        finally:
            await self._end_imex()
        with suppress(TimeoutError, DragomanError):
            await self.clock.within(LEAVE_S, self._retried(self._leave))
        return 0

    def _informer(self) -> Informer:
        s = self.settings
        if s.cliques:
            name = clique_name(s.uid, s.clique)
            kind, type_, namespace = CLIQUE, Clique, s.namespace
        else:
            kind, type_, (namespace, name) = DOMAIN, ComputeDomain, s.domain  # type: ignore[assignment]
        selector = f"metadata.name={name}"
        return Informer(
            self.client, kind, self.clock, self.entropy, namespace=namespace, field_selector=selector, type_=type_
        )

    async def _follow(self, joined: Informer, pod: Informer) -> None:
        while True:
            self._changed.clear()
            for member in joined.objects.values():
                self._update_peers(self._members(member))
            self._watch_imex()
            for one in pod.objects.values():
                await self._report(one)
            try:
                await self.clock.within(WATCHDOG_S * (1 if self._imex is not None else 5), self._changed.wait())
            except TimeoutError:
                continue

    # ---- peers

    def _members(self, found: Clique | ComputeDomain) -> dict[int, str]:
        """Addresses by index."""
        if isinstance(found, Clique):
            return {entry.index: entry.ip_address for entry in found.daemons}
        return {n.index: n.ip_address for n in found.status.nodes if n.clique_id == self.settings.clique}

    def _update_peers(self, members: dict[int, str]) -> None:
        peers = {dns_name(index): ip for index, ip in sorted(members.items()) if ip}
        if peers == self._peers and self._imex is not None:
            return
        if self.settings.ip not in peers.values():
            return  # our own entry is not seen yet
        same = sorted(peers.values()) == sorted(self._peers.values())
        self._peers = peers
        if self.settings.dns:
            self._write_hosts(peers)
            if self._imex is None:
                self._start_imex()
            elif not same:
                self._imex.resolve_again()
            return
        # Without names, addresses are the node list: it is complete or there is none, and a change is a restart.
        if len(peers) != self._wanted:
            return
        self.files.write(f"{FOLDER}/{imex.NODES}", "".join(f"{ip}\n" for ip in peers.values()))
        if self._imex_task is not None:
            self._imex_task.cancel()
            self._imex_task = None
        self._start_imex()

    def _write_hosts(self, peers: Mapping[str, str]) -> None:
        kept = [line for line in self.files.read("/etc/hosts").splitlines() if DNS_PREFIX not in line]
        lines = [*kept, *(f"{ip}\t{name}" for name, ip in peers.items())]
        self.files.write("/etc/hosts", "".join(f"{line}\n" for line in lines))

    # ---- nvidia-imex

    def _start_imex(self) -> None:
        self._imex = self.start_imex(f"{FOLDER}/{imex.CONFIG}")
        self._imex_task = asyncio.ensure_future(self._imex.run())

    def _watch_imex(self) -> None:
        if self._imex_task is not None and self._imex_task.done():
            code = 1 if self._imex_task.cancelled() or self._imex_task.exception() else self._imex_task.result()
            self.say(f"nvidia-imex ended with code {code}: starting it again")
            self._start_imex()

    async def _end_imex(self) -> None:
        if self._imex_task is not None:
            self._imex_task.cancel()
            await asyncio.gather(self._imex_task, return_exceptions=True)
            self._imex_task = None

    # ---- the API

    async def _retried(self, write: Callable[[], Awaitable[None]]) -> None:
        """Until it succeeds; raises what no repetition can mend."""
        failures = 0
        while True:
            try:
                return await write()
            except (Retry, Stale, NotFound) as error:
                failures += 1
                if failures % 10 == 1:
                    self.say(f"again: {error}")
                await self.clock.sleep(BACKOFF.wait_s(failures, self.entropy))

    async def _read_wanted(self) -> None:
        namespace, name = self.settings.domain
        found = await self.client.get(DOMAIN, name, namespace)
        self._wanted = codec.decode(ComputeDomain, found).spec.num_nodes

    async def _label_pod(self) -> None:
        s = self.settings
        patch = {"metadata": {"uid": s.pod_uid, "labels": {CLIQUE_LABEL: s.clique}}}
        await self.client.patch(POD, s.pod, patch, s.namespace, manager="compute-domain-daemon")

    async def _join(self) -> None:
        """Be in the clique (or, without cliques, in the domain's status) with an index of one's own."""
        s = self.settings
        if not s.cliques:
            await self._join_domain()
            return
        name = clique_name(s.uid, s.clique)
        owner = {"apiVersion": "v1", "kind": "Pod", "name": s.pod, "uid": s.pod_uid}
        try:
            found = await self.client.get(CLIQUE, name, s.namespace)
        except NotFound:
            meta = {
                "name": name,
                "namespace": s.namespace,
                "labels": {LABEL: s.uid, CLIQUE_LABEL: s.clique},
                "ownerReferences": [owner],
            }
            body = {
                "apiVersion": API_VERSION,
                "kind": "ComputeDomainClique",
                "metadata": meta,
                "daemons": [self._entry(0).body()],
            }
            await self.client.create(CLIQUE, body, s.namespace)
            return
        clique = codec.decode(Clique, found)
        owners = list(found["metadata"].get("ownerReferences") or [])
        if not any(one["uid"] == s.pod_uid for one in owners):
            owners.append(owner)
        own = next((entry for entry in clique.daemons if entry.node_name == s.node), None)
        index = own.index if own else self._lowest({entry.index for entry in clique.daemons})
        others = [entry for entry in clique.daemons if entry.node_name != s.node]
        daemons = sorted([*others, self._entry(index)], key=lambda entry: entry.index)
        meta = {"resourceVersion": found["metadata"]["resourceVersion"], "ownerReferences": owners}
        await self.client.patch(
            CLIQUE,
            name,
            {"metadata": meta, "daemons": [entry.body() for entry in daemons]},
            s.namespace,
            manager="compute-domain-daemon",
        )

    def _entry(self, index: int) -> CliqueDaemon:
        s = self.settings
        return CliqueDaemon(s.node, s.ip, s.clique, index, NOT_READY)

    def _lowest(self, used: set[int]) -> int:
        most = self.settings.max_nodes
        free = next((number for number in range(most) if number not in used), None)
        if free is None:
            raise Retry(
                f"no index is free in clique {self.settings.clique}: MAX_NODES_PER_IMEX_DOMAIN is {most}; raise it at "
                "the controller and create the ComputeDomain again"
            )
        return free

    async def _join_domain(self) -> None:
        s = self.settings
        namespace, name = s.domain
        found = await self.client.get(DOMAIN, name, namespace)
        if found["metadata"]["uid"] != s.uid:
            raise Retry(f"ComputeDomain {namespace}/{name} is another one now")
        domain = codec.decode(ComputeDomain, found)
        nodes = [n for n in domain.status.nodes if n.name != s.node]
        own = next((n for n in domain.status.nodes if n.name == s.node), None)
        used = {n.index for n in nodes if n.clique_id == s.clique}
        index = own.index if own else self._lowest(used)
        await self._write_domain(found, [*nodes, DomainNode(s.node, s.ip, s.clique, index, NOT_READY)])

    async def _write_domain(self, found: dict[str, object], nodes: list[DomainNode]) -> None:
        namespace, name = self.settings.domain
        meta = found["metadata"]
        assert isinstance(meta, dict)
        status = found.get("status")
        overall = status.get("status") if isinstance(status, dict) else None
        patch = {
            "metadata": {"resourceVersion": meta["resourceVersion"]},
            "status": {"status": overall or NOT_READY, "nodes": [node.body() for node in nodes]},
        }
        await self.client.patch(DOMAIN, name, patch, namespace, subresource="status", manager="compute-domain-daemon")

    async def _report(self, pod: Pod) -> None:
        """Write Ready or NotReady into the own entry when the pod's condition says something else."""
        s = self.settings
        if pod.metadata.uid != s.pod_uid:
            return
        status = READY if any(c.type == "Ready" and c.status == "True" for c in pod.status.conditions) else NOT_READY
        try:
            await self._change_own(status)
        except (Retry, Stale) as error:
            self.say(f"again: {error}")
            await self.clock.sleep(BACKOFF.wait_s(1, self.entropy))
            self._changed.set()
        except NotFound:
            await self._retried(self._join)

    async def _change_own(self, status: str | None) -> None:
        """Set the status of the own entry, or with None remove it. Raises as Client does."""
        s = self.settings
        if s.cliques:
            name = clique_name(s.uid, s.clique)
            found = await self.client.get(CLIQUE, name, s.namespace)
            clique = codec.decode(Clique, found)
            own = next((e for e in clique.daemons if e.node_name == s.node and e.ip_address == s.ip), None)
            if own is None:
                if status is not None:
                    await self._join()
                return
            if own.status == status:
                return
            others = [entry for entry in clique.daemons if entry is not own]
            if status is not None:
                others.append(msgspec.structs.replace(own, status=status))
            patch = {
                "metadata": {"resourceVersion": found["metadata"]["resourceVersion"]},
                "daemons": [entry.body() for entry in sorted(others, key=lambda entry: entry.index)],
            }
            await self.client.patch(CLIQUE, name, patch, s.namespace, manager="compute-domain-daemon")
            return
        found = await self.client.get(DOMAIN, s.domain[1], s.domain[0])
        if found["metadata"]["uid"] != s.uid:
            return
        domain = codec.decode(ComputeDomain, found)
        mine = next((n for n in domain.status.nodes if n.name == s.node and n.ip_address == s.ip), None)
        if mine is None:
            if status is not None:
                await self._join_domain()
            return
        if mine.status == status:
            return
        nodes = [n for n in domain.status.nodes if n is not mine]
        if status is not None:
            nodes.append(msgspec.structs.replace(mine, status=status))
        await self._write_domain(found, nodes)

    async def _leave(self) -> None:
        with suppress(NotFound):
            await self._change_own(None)
