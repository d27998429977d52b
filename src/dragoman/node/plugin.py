"""How does a driver run on a node? Sockets, registration, calls of the kubelet, and everything around `Driver`.

    plugin = Plugin(MyDriver(), client, clock, entropy, node_name="node-a", places=Places.under(root, "my.example.com"))
    await plugin.run()

Speaks only what the kubelet's protocol has (reference: KEP-3063, KEP-4381), so it serves a real kubelet as it is. It
never decides about devices; that is the driver's.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import inspect
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from pathlib import Path
from typing import Any, TypeVar

import grpc
import msgspec
from grpc import aio

from dragoman.api import codec
from dragoman.api.kinds import kind_of
from dragoman.api.resource import Device, ResourceClaim
from dragoman.cluster.client import Client
from dragoman.cluster.watch import Informer
from dragoman.errors import DragomanError, Invalid, NotFound, Retry, Stale
from dragoman.node import cdi, rpc
from dragoman.node.checkpoint import Checkpoint, kernel_boot_id
from dragoman.node.driver import (
    ClaimRef,
    DeviceHealth,
    DeviceMetadata,
    DeviceStatus,
    Driver,
    FollowsClaims,
    NotYet,
    Pool,
    PreparedDevice,
    ReportsHealth,
    Republishes,
    Restores,
    Setup,
    WorksConcurrently,
)
from dragoman.node.files import locked, part_locked
from dragoman.node.health import MESSAGE_MAX, HealthHub
from dragoman.node.metadata import MetadataFiles, with_ids
from dragoman.node.prepare import Preparer, describe, settle
from dragoman.node.publish import SLICE, Publisher, slice_routes, slice_selector
from dragoman.node.routes import Routes
from dragoman.node.rpc import SOCKET_PATH_MAX, Service
from dragoman.runtime.clock import Clock
from dragoman.runtime.entropy import Entropy
from dragoman.runtime.log import get
from dragoman.runtime.metrics import Metrics
from dragoman.runtime.retry import Backoff
from dragoman.runtime.tasks import Tasks

T = TypeVar("T")

CLAIM = kind_of("ResourceClaim")
LOCK_TIMEOUT_S = 40.0
"""Below the kubelet's 45 s for a call, so that it reads the reason."""
GOING_ON_S = 35.0
"""So long a call waits for claims whose preparation goes on by itself."""
NOT_YET_S = 1.0
THREADS = 64
"""Claims that a driver works on at the same time, if it does so at all."""
SWEEP_S = 60.0
WAITING_SWEEPS = 10
"""Every so many sweeps, claims for which the driver waits are looked up: one that is gone is unprepared."""
CALL_TIMEOUT_S = 2.0
STATUS_ATTEMPTS = 5
STATUS_BACKOFF = Backoff(initial_s=0.5, max_s=10.0, jitter=0.2)
GRACE_S = 5.0
"""For calls that are under way when the plugin stops."""


class Places(msgspec.Struct, frozen=True):
    """The folders of one driver on one node."""

    registry_dir: Path
    data_dir: Path
    cdi_dir: Path

    @classmethod
    def under(cls, root_dir: Path, driver: str, cdi_dir: Path | None = None) -> Places:
        """Where a kubelet with that root (really /var/lib/kubelet) looks; cdi_dir is /var/run/cdi by default."""
        return cls(root_dir / "plugins_registry", root_dir / "plugins" / driver, cdi_dir or Path("/var/run/cdi"))


def _no_delay() -> float:
    return 0.0


def _at_once(write: Callable[[], None]) -> None:
    write()


def _as_it_is(setup: Setup) -> Setup:
    return setup


class PluginOptions(msgspec.Struct, frozen=True):
    """How an instance of a driver serves.

    pod_uid: set for rolling updates, when two instances serve at a time; they share data_dir. boot_id: of a simulated
    machine, else the kernel's. durable: whether files survive a power loss. metadata: write device metadata files.
    only_pool: publish this pool alone. routes: slices from an informer shared with others, else the plugin watches its
    own. sockets False: no gRPC, the kubelet calls directly. delay_s: by how much a simulated machine is slower to
    prepare a claim. adapt: what becomes of each setup before it is written down. versions: DRA services offered, the
    kubelet takes the first it knows. publish_at_once False: slices come once the kubelet has registered the driver,
    since a pod that is bound before would fail.
    """

    pod_uid: str = ""
    boot_id: str = ""
    durable: bool = True
    metadata: bool = False
    only_pool: str = ""
    routes: Routes | None = None
    sockets: bool = True
    delay_s: Callable[[], float] = _no_delay
    adapt: Callable[[Setup], Setup] = _as_it_is
    versions: tuple[Service, ...] = (rpc.DRA_V1, rpc.DRA_V1BETA1)
    publish_at_once: bool = True


class Plugin:
    """One instance of a driver on one node."""

    def __init__(
        self,
        driver: Driver,
        client: Client,
        clock: Clock,
        entropy: Entropy,
        *,
        node_name: str,
        places: Places,
        options: PluginOptions | None = None,
        metrics: Metrics | None = None,
    ) -> None:
        options = options or PluginOptions()
        pod_uid, only_pool, routes = options.pod_uid, options.only_pool, options.routes
        self.driver = driver
        self.client = client
        self.clock = clock
        self.entropy = entropy
        self.node_name = node_name
        self.places = places
        self.versions = options.versions
        self.dra_socket = places.data_dir / (f"dra-{pod_uid}.sock" if pod_uid else "dra.sock")
        self.registration_socket = registration_socket(places.registry_dir, driver.name, pod_uid)
        self.checkpoint = Checkpoint(
            places.data_dir / "checkpoint.json", options.boot_id or kernel_boot_id(), durable=options.durable
        )
        self._is_concurrent = (
            isinstance(driver, WorksConcurrently)
            and driver.concurrent
            and not any(inspect.iscoroutinefunction(method) for method in (driver.prepare, driver.unprepare))
        )
        self.preparer = Preparer(
            driver,
            self.checkpoint,
            places.cdi_dir,
            self._published,
            options.adapt,
            clock.now,
            exclusive=self._exclusive if self._is_concurrent else nullcontext,
            in_turn=self._in_turn if self._is_concurrent else _at_once,
            threads=ThreadPoolExecutor(THREADS, f"{driver.name} ") if self._is_concurrent else None,
        )
        self.metadata = MetadataFiles(driver.name, places.data_dir, places.cdi_dir) if options.metadata else None
        self.health = HealthHub(driver) if isinstance(driver, ReportsHealth) else None
        self.registered = asyncio.Event()
        self.registration_error = ""
        self._pools: Mapping[str, Pool] = {}
        self._republish = asyncio.Event()
        self._turn = asyncio.Lock()
        self._tasks: Tasks | None = None
        self._sockets = options.sockets
        self._publish_at_once = options.publish_at_once
        self._delay_s = options.delay_s
        self._turned = asyncio.Event()
        self._log = get("driver", driver=driver.name, node=node_name)
        self._own_informer: Informer | None = None
        if routes is None:
            selector = slice_selector(driver.name, "" if only_pool else node_name)
            self._own_informer = Informer(client, SLICE, clock, entropy, field_selector=selector)
            routes = slice_routes(self._own_informer)
        if isinstance(driver, Republishes):
            driver.connect(self.republish)
        self._measure(metrics or Metrics())
        self.publisher = Publisher(
            client,
            clock,
            entropy,
            routes,
            driver=driver.name,
            node_name=node_name,
            only_pool=only_pool,
            report=self._publish_failed,
            wrote=lambda verb: self._slice_writes.labels(driver.name, verb).inc(),
        )

    def _measure(self, metrics: Metrics) -> None:
        self._seconds = metrics.histogram(
            "dragoman_driver_operation_seconds",
            "Time to prepare or unprepare one claim.",
            ["driver", "operation", "result"],
        )
        self._slice_writes = metrics.counter(
            "dragoman_driver_slice_writes_total", "ResourceSlices created, updated, deleted.", ["driver", "verb"]
        )
        self._publish_errors = metrics.counter(
            "dragoman_driver_publish_errors_total", "Failed attempts to publish ResourceSlices.", ["driver"]
        )

    # ---- life

    async def run(self) -> None:
        """Serve until cancelled. Raises Invalid (checkpoint, socket paths) before anything is served."""
        rpc.checked_socket(self.dra_socket)
        rpc.checked_socket(self.registration_socket)
        self.places.data_dir.mkdir(parents=True, exist_ok=True, mode=0o750)
        self._loop = asyncio.get_running_loop()
        await self._recover()
        servers: list[tuple[aio.Server, Path]] = []
        try:
            if self._sockets:
                # The service first: whoever finds the registration socket may call at once.
                servers.append((await rpc.serve(self.dra_socket, self._services()), self.dra_socket))
                registration = await rpc.serve(self.registration_socket, [self._registration()])
                servers.append((registration, self.registration_socket))
            async with Tasks(f"driver: {self.driver.name} on {self.node_name}", self.clock, self.entropy) as tasks:
                try:
                    await self._serve(tasks)
                finally:
                    await self._stop(servers)
                    tasks.stop()
        finally:
            await self._stop(servers)

    async def _serve(self, tasks: Tasks) -> None:
        self._turn_to(tasks)
        if self._own_informer:
            tasks.supervise("watch slices", self._own_informer.run)
        tasks.supervise("inventory", self._keep_inventory)
        tasks.supervise("publish", self._publish)
        tasks.supervise("sweep", self._sweep)
        if self.health:
            tasks.supervise("health", self.health.run)
        await asyncio.Event().wait()

    async def _publish(self) -> None:
        if not self._publish_at_once:
            await self.registered.wait()
        await self.publisher.run()

    @property
    def is_ready(self) -> bool:
        """Whether the kubelet knows it and its devices are in the API, as a readiness probe wants to know."""
        return self.registered.is_set() and not self.publisher.failing

    async def _stop(self, servers: list[tuple[aio.Server, Path]]) -> None:
        """Take no more calls, let those under way end, remove the sockets; the last one served goes first."""
        self.registered.clear()
        if self.health:
            self.health.close()
        while servers:
            server, socket = servers.pop()
            await server.stop(GRACE_S)
            socket.unlink(missing_ok=True)
        self._turn_to(None)

    @property
    def is_running(self) -> bool:
        """Whether it serves calls."""
        return self._tasks is not None

    def running_changed(self) -> Awaitable[Any]:
        """What ends when it next starts or stops serving."""
        return self._turned.wait()

    def _turn_to(self, tasks: Tasks | None) -> None:
        self._tasks = tasks
        turned, self._turned = self._turned, asyncio.Event()
        turned.set()

    def republish(self) -> None:
        """The driver's pools have changed: ask it again and publish."""
        self._republish.set()

    async def is_live(self) -> bool:
        """Whether both sockets answer, as a liveness probe wants to know."""
        try:
            async with rpc.dial(self.registration_socket) as channel:
                request = rpc.REGISTRATION.messages.InfoRequest()
                await rpc.call(channel, rpc.REGISTRATION, "GetInfo", request, timeout_s=CALL_TIMEOUT_S)
            async with rpc.dial(self.dra_socket) as channel:
                service = self.versions[0]
                request = service.messages.NodePrepareResourcesRequest()
                await rpc.call(channel, service, "NodePrepareResources", request, timeout_s=CALL_TIMEOUT_S)
        except aio.AioRpcError:
            return False
        return True

    async def _recover(self) -> None:
        async with self._exclusive():
            self.checkpoint.load()
            for lost in self.checkpoint.dropped:
                cdi.claim_path(self.places.cdi_dir, self.driver.name, lost.ref.uid).unlink(missing_ok=True)
                if self.metadata:
                    self.metadata.remove(lost.ref)
            if isinstance(self.driver, Restores):
                await settle(self.driver.restore, [record.as_prepared() for record in self.checkpoint.held])
        await self._finish_interrupted()
        async with self._exclusive():
            self.preparer.sweep_cdi()

    async def _finish_interrupted(self) -> None:
        for record in self.preparer.unfinished():
            try:
                async with self._turn_of(record.uid, wait_s=0.0):
                    if self.checkpoint.claims.get(record.uid) == record:  # else another call was faster
                        await self.preparer.finish(record)
            except Exception as error:
                self._log.warning("cannot undo yet", claim=str(record.ref), uid=record.uid, error=describe(error))

    async def _sweep(self) -> None:
        sweeps = 0
        while True:
            await self.clock.sleep(SWEEP_S)
            sweeps += 1
            if len(self.checkpoint.held) < len(self.checkpoint.claims) or self.preparer.unfinished():
                await self._finish_interrupted()
                async with self._exclusive():
                    self.preparer.forget_aborted()
            if sweeps % WAITING_SWEEPS == 0:
                await self._give_up_waiting()

    async def _give_up_waiting(self) -> None:
        for record in self.preparer.waiting():
            found = await self._fetch(record.ref)
            # Any other error says nothing about the claim.
            if isinstance(found, NotFound | Stale):
                await self.unprepare_claims([record.ref])

    async def _keep_inventory(self) -> None:
        while True:
            self._republish.clear()
            self._pools = await settle(self.driver.pools)
            self.publisher.publish(self._pools)
            await self._republish.wait()

    def _published(self, pool: str, device: str) -> Device | None:
        devices = self._pools[pool].devices if pool in self._pools else ()
        return next((known for known in devices if known.name == device), None)

    def _publish_failed(self, error: DragomanError) -> None:
        self._publish_errors.labels(self.driver.name).inc()

    # ---- the kubelet's calls, for any transport

    async def prepare_claims(self, refs: Sequence[ClaimRef]) -> dict[str, tuple[PreparedDevice, ...] | DragomanError]:
        """Prepare each claim; by uid its devices, or why not."""
        if not refs:
            return {}  # a probe: it must not wait for work that is under way
        fetched = await asyncio.gather(*(self._fetch(ref) for ref in refs))
        answers: dict[str, tuple[PreparedDevice, ...] | DragomanError] = {}
        todo = dict(zip(refs, fetched, strict=True))
        deadline = self.clock.monotonic() + GOING_ON_S
        while True:
            if self._is_concurrent:
                answered = await asyncio.gather(*(self._answer(ref, claim) for ref, claim in todo.items()))
                answers |= {ref.uid: answer for ref, answer in zip(todo, answered, strict=True)}
            else:
                for ref, claim in todo.items():
                    async with self._exclusive():  # claim by claim: those of other calls come in between
                        answers[ref.uid] = await self._answer(ref, claim)
            waits = {ref: answer for ref in todo if isinstance(answer := answers[ref.uid], NotYet)}
            wait_s = min((answer.after_s or NOT_YET_S for answer in waits.values()), default=0.0)
            if not waits or self.clock.monotonic() + wait_s > deadline:
                return answers
            await self.clock.sleep(wait_s)  # without the lock: other claims go on
            todo = {ref: todo[ref] for ref in waits}

    async def _answer(
        self, ref: ClaimRef, claim: ResourceClaim | DragomanError
    ) -> tuple[PreparedDevice, ...] | DragomanError:
        began = self.clock.monotonic()
        try:
            async with self._turn_of(ref.uid) if self._is_concurrent else nullcontext():
                devices = await self._prepare(ref, claim)
        except NotYet as error:
            self._log.info("not prepared yet", claim=str(ref), uid=ref.uid, error=str(error))
            return error
        except Exception as error:
            self._seconds.labels(self.driver.name, "prepare", "error").observe(self.clock.monotonic() - began)
            self._log.warning("not prepared", claim=str(ref), uid=ref.uid, error=describe(error))
            return error if isinstance(error, DragomanError) else DragomanError(describe(error))
        self._seconds.labels(self.driver.name, "prepare", "ok").observe(self.clock.monotonic() - began)
        return devices

    async def unprepare_claims(self, refs: Sequence[ClaimRef]) -> dict[str, DragomanError | None]:
        """Unprepare each claim; by uid None, or why not."""
        if self._is_concurrent:
            answers = await asyncio.gather(*(self._unprepare(ref) for ref in refs))
            return {ref.uid: answer for ref, answer in zip(refs, answers, strict=True)}
        one_by_one: dict[str, DragomanError | None] = {}
        for ref in refs:
            async with self._exclusive():
                one_by_one[ref.uid] = await self._unprepare(ref)
        return one_by_one

    async def _unprepare(self, ref: ClaimRef) -> DragomanError | None:
        began, result = self.clock.monotonic(), "ok"
        try:
            async with self._turn_of(ref.uid) if self._is_concurrent else nullcontext():
                await self.preparer.unprepare(ref)
                if self.metadata:
                    self.metadata.remove(ref)
        except Exception as error:
            result = "error"
            self._log.warning("not unprepared", claim=str(ref), uid=ref.uid, error=describe(error))
            return error if isinstance(error, DragomanError) else DragomanError(describe(error))
        finally:
            self._seconds.labels(self.driver.name, "unprepare", result).observe(self.clock.monotonic() - began)
        return None

    async def health_lists(self) -> AsyncIterator[tuple[DeviceHealth, ...]]:
        """The driver's health lists, as long as it runs; none from a driver that reports no health."""
        if self.health:
            async for devices in self.health.follow():
                yield devices

    async def _fetch(self, ref: ClaimRef) -> ResourceClaim | DragomanError:
        try:
            found = await self.client.get(CLAIM, ref.name, ref.namespace)
        except NotFound as error:
            return NotFound(f"retrieve claim {ref}: {error}")
        except DragomanError as error:
            return type(error)(f"retrieve claim {ref}: {error}") if not isinstance(error, Invalid) else error
        claim = codec.decode(ResourceClaim, found)
        if claim.metadata.uid != ref.uid:
            return Stale(f"claim {ref} got replaced")
        if claim.status.allocation is None:
            return Stale(f"claim {ref} not allocated")
        return claim

    async def _prepare(self, ref: ClaimRef, claim: ResourceClaim | DragomanError) -> tuple[PreparedDevice, ...]:
        if ref.uid in self.checkpoint.gone:
            # It may have been unprepared after it was read.
            claim = await self._fetch(ref)
        if isinstance(claim, DragomanError):
            raise claim
        if ref.uid not in self.checkpoint.claims:
            await self.clock.sleep(self._delay_s())
        devices = await self.preparer.prepare(ref, claim)
        self._report_networks(ref)
        if self.metadata is None:
            return devices
        try:
            facts = self.checkpoint.claims[ref.uid].facts
            return with_ids(devices, self.metadata.write(ref, claim, facts))
        except (OSError, Invalid) as error:
            # As upstream: a claim without its metadata files still is prepared.
            self._log.error("no metadata files", claim=str(ref), error=str(error))
            return devices

    def _report_networks(self, ref: ClaimRef) -> None:
        """Put what the driver says about network devices into the claim's status, beside the call."""
        facts = {(fact.pool, fact.device): fact.network_data for fact in self.checkpoint.claims[ref.uid].facts}
        statuses = [DeviceStatus(*key, network_data=data) for key, data in facts.items() if data]
        if statuses and self._tasks:
            self._tasks.start(f"status of {ref}", self._report_status(ref, statuses))

    async def _report_status(self, ref: ClaimRef, statuses: Sequence[DeviceStatus]) -> None:
        for attempt in range(1, STATUS_ATTEMPTS + 1):
            try:
                await self.report_status(ref, statuses)
                return
            except Retry as error:
                self._log.info("telling the status again", claim=str(ref), error=str(error))
                await self.clock.sleep(STATUS_BACKOFF.wait_s(attempt, self.entropy))
            except DragomanError as error:
                # As upstream's drivers: a claim whose status nobody may write still is prepared.
                self._log.warning("status not reported", claim=str(ref), error=str(error))
                return

    @asynccontextmanager
    async def _exclusive(self) -> AsyncIterator[None]:
        """One at a time, in this process and among the instances of the driver on this node."""
        async with self._turn, locked(self.places.data_dir / "serialize.lock", self.clock, timeout_s=LOCK_TIMEOUT_S):
            if self.checkpoint.load() and isinstance(self.driver, FollowsClaims):
                self.driver.follow([record.as_prepared() for record in self.checkpoint.held])
            yield

    def _turn_of(self, uid: str, wait_s: float = LOCK_TIMEOUT_S) -> AbstractAsyncContextManager[None]:
        """Work on that claim alone; also on nothing else, unless the driver works on several at a time."""
        if self._is_concurrent:
            return part_locked(self.places.data_dir / "claims.lock", f"claim {uid}", self.clock, timeout_s=wait_s)
        return self._exclusive()

    def _in_turn(self, write: Callable[[], None]) -> None:
        """Called by a thread of the driver: writes to the checkpoint when it is its turn."""

        async def turn() -> None:
            async with self._exclusive():
                write()

        asyncio.run_coroutine_threadsafe(turn(), self._loop).result()

    # ---- what a driver may ask for

    async def report_status(self, ref: ClaimRef, devices: Sequence[DeviceStatus]) -> None:
        """Set this node's entries of the claim's status.devices (KEP-4817). Raises as Client does."""
        entries: list[dict[str, Any]] = [
            {"driver": self.driver.name, **codec.to_json(_wire_status(status))} for status in devices
        ]
        body = {
            "apiVersion": CLAIM.api_version,
            "kind": CLAIM.kind,
            "metadata": {"name": ref.name, "namespace": ref.namespace, "uid": ref.uid},
            "status": {"devices": entries},
        }
        manager = f"{self.driver.name}-{self.node_name}"[:128]
        await self.client.patch(
            CLAIM, ref.name, body, ref.namespace, type="apply", subresource="status", manager=manager, force=True
        )

    async def update_metadata(self, ref: ClaimRef, request: str, facts: Sequence[DeviceMetadata]) -> None:
        """Replace what the request's metadata file says. Raises NotFound; Invalid when metadata files are off."""
        if self.metadata is None:
            raise Invalid("metadata", f"plugin {self.driver.name} was started without metadata files")
        self.metadata.update(ref, request, facts)

    # ---- gRPC

    def _services(self) -> list[grpc.GenericRpcHandler]:
        served = [rpc.handlers(service, self._dra(service)) for service in self.versions]
        if self.health:
            served += [
                rpc.handlers(service, {"NodeWatchResources": self._health_stream(service)})
                for service in rpc.HEALTH_BY_LABEL.values()
            ]
        return served

    def _dra(self, service: Service) -> dict[str, Any]:
        messages = service.messages

        async def prepare(request: Any, context: Any) -> Any:
            refs = [ClaimRef(claim.namespace, claim.name, claim.uid) for claim in request.claims]
            answers = await self._apart(context, "prepare", self.prepare_claims(refs))
            response = messages.NodePrepareResourcesResponse()
            for uid, answer in answers.items():
                entry = response.claims[uid]
                if isinstance(answer, DragomanError):
                    entry.error = str(answer) or type(answer).__name__
                    continue
                for device in answer:
                    entry.devices.append(_wire_device(messages, device))
            return response

        async def unprepare(request: Any, context: Any) -> Any:
            refs = [ClaimRef(claim.namespace, claim.name, claim.uid) for claim in request.claims]
            answers = await self._apart(context, "unprepare", self.unprepare_claims(refs))
            response = messages.NodeUnprepareResourcesResponse()
            for uid, error in answers.items():
                response.claims[uid].error = "" if error is None else str(error) or type(error).__name__
            return response

        return {"NodePrepareResources": prepare, "NodeUnprepareResources": unprepare}

    async def _apart(self, context: Any, name: str, work: Coroutine[Any, Any, T]) -> T:
        # A kubelet that gives up cancels the call; the hardware must not be left in the middle of it.
        if self._tasks is None:
            work.close()
            await context.abort(grpc.StatusCode.UNAVAILABLE, "the driver is starting or stopping")
        assert self._tasks is not None
        answer = await asyncio.shield(self._tasks.start(name, _caught(work)))
        if isinstance(answer, DragomanError):
            await context.abort(grpc.StatusCode.ABORTED, str(answer))
        assert not isinstance(answer, DragomanError)
        return answer

    def _health_stream(self, service: Service) -> Any:
        messages = service.messages
        values = {"Unknown": messages.UNKNOWN, "Healthy": messages.HEALTHY, "Unhealthy": messages.UNHEALTHY}

        async def watch(request: Any, context: Any) -> AsyncIterator[Any]:
            async for devices in self.health_lists():
                response = messages.NodeWatchResourcesResponse()
                for device in devices:
                    entry = response.devices.add()
                    entry.device.pool_name = device.pool
                    entry.device.device_name = device.device
                    entry.health = values[device.health]
                    entry.last_updated_time = int(self.clock.now())
                    entry.health_check_timeout_seconds = device.timeout_s
                    entry.message = device.message[:MESSAGE_MAX]
                yield response

        return watch

    def _registration(self) -> grpc.GenericRpcHandler:
        messages = rpc.REGISTRATION.messages
        labels = [service.label for service in self.versions]
        if self.health:
            labels += list(rpc.HEALTH_BY_LABEL)

        async def info(request: Any, context: Any) -> Any:
            return messages.PluginInfo(
                type="DRAPlugin", name=self.driver.name, endpoint=str(self.dra_socket), supported_versions=labels
            )

        async def notify(request: Any, context: Any) -> Any:
            self.registration_error = "" if request.plugin_registered else request.error or "no reason given"
            if request.plugin_registered:
                self.registered.set()
                self._log.info("registered with the kubelet")
            else:
                self.registered.clear()
                self._log.error("the kubelet refused the registration", error=request.error)
                await context.abort(grpc.StatusCode.INTERNAL, f"failed registration process: {request.error}")
            return messages.RegistrationStatusResponse()

        return rpc.handlers(rpc.REGISTRATION, {"GetInfo": info, "NotifyRegistrationStatus": notify})


async def _caught(work: Coroutine[Any, Any, T]) -> T | DragomanError:
    """An error must reach its caller only, not the plugin's other tasks."""
    try:
        return await work
    except Exception as error:
        return error if isinstance(error, DragomanError) else DragomanError(describe(error))


def _wire_device(messages: Any, device: PreparedDevice) -> Any:
    wire = messages.Device(
        request_names=device.requests,
        pool_name=device.pool,
        device_name=device.device,
        cdi_device_ids=device.cdi_ids,
    )
    if device.share_id is not None and "share_id" in wire.DESCRIPTOR.fields_by_name:
        wire.share_id = device.share_id
    return wire


class _WireStatus(msgspec.Struct, rename="camel", omit_defaults=True):
    pool: str
    device: str
    share_id: str | None = msgspec.field(name="shareID", default=None)
    conditions: tuple[Any, ...] = ()
    data: Any = None
    network_data: Any = None


def _wire_status(status: DeviceStatus) -> _WireStatus:
    return _WireStatus(status.pool, status.device, status.share_id, status.conditions, status.data, status.network_data)


def registration_socket(registry_dir: Path, driver: str, pod_uid: str = "") -> Path:
    """The registration socket: the first name whose path a Unix socket can have. Raises Invalid if none is.

    For rolling updates (pod_uid set) longer names give way to hashed ones, as Go's kubeletplugin does it.
    """
    if not pod_uid:
        return registry_dir / f"{driver}-reg.sock"
    both = driver.encode() + b"\0" + pod_uid.encode()
    names = (
        f"{driver}-{pod_uid}-reg.sock",
        f"{driver}-{_short_hash(pod_uid.encode(), 8)}-reg.sock",
        f"dra-{_short_hash(both, 16)}-reg.sock",
    )
    for name in names:
        if len(str(registry_dir / name).encode()) <= SOCKET_PATH_MAX:
            return registry_dir / name
    return rpc.checked_socket(registry_dir / names[-1])


def _short_hash(data: bytes, size: int) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(data).digest()[:size]).decode().rstrip("=")
