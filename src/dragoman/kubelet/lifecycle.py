"""What does a pod need next on its node? One worker for each pod: prepare, start, restart, report, end.

Every step is taken from what is there now (pod, sandbox, checkpoint), so a worker may stop anywhere and begin again.
A final phase is reported only after the claims are given back (KEP-4381). It decides nothing about other pods.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import Any, Protocol

import msgspec

from dragoman.api import codec
from dragoman.api.kinds import kind_of
from dragoman.api.meta import Condition, parse_time
from dragoman.cluster.client import Client
from dragoman.errors import DragomanError, NotFound, Retry, Stale
from dragoman.kubelet import status
from dragoman.kubelet.admit import Rejected
from dragoman.kubelet.claims import Claims
from dragoman.kubelet.containers import CannotStart, Starter, stop_seconds
from dragoman.kubelet.events import Events
from dragoman.kubelet.health import Health
from dragoman.kubelet.ips import IpPool
from dragoman.kubelet.networkprobes import NetworkProbe
from dragoman.kubelet.plugin_devices import PluginDevices
from dragoman.kubelet.pod import KubeletContainer, KubeletPod
from dragoman.kubelet.probes import Probes
from dragoman.kubelet.processes import ports_in_use
from dragoman.kubelet.programs import TERM, Running
from dragoman.kubelet.runtime import EXIT_KILLED, EXIT_TERMINATED, ContainerRun, Sandbox, SimulatedRuntime, Start
from dragoman.kubelet.status import Ending
from dragoman.kubelet.volumes import CannotMount
from dragoman.runtime.clock import Clock, Timer
from dragoman.runtime.log import get
from dragoman.runtime.retry import Backoff
from dragoman.runtime.tasks import Tasks, report

POD = kind_of("Pod")
GRACE_S = 30
SLOW_S = 1.0
"""A start that takes longer is reported as being under way."""
PREPARE_BACKOFF = Backoff(initial_s=1.0, max_s=10.0, jitter=0.1)
WRITE_BACKOFF = Backoff(initial_s=0.2, max_s=10.0, jitter=0.1)
CORRECT_S = 1.0
"""How long what others wrote into the status of a pod stands."""
PULL_BACKOFF = Backoff(initial_s=10.0, max_s=300.0, jitter=0.0)
PULL_FAILED, PULL_SHOWN_S = "ErrImagePull", 2.0
"""A failed pull is shown so long; from then on it is waited for."""
CONTAINER_BACKOFF = Backoff(initial_s=2.0, max_s=300.0, jitter=0.0)


class ObserveOperation(Protocol):
    """Hears how long an operation on a pod's claims took."""

    def __call__(self, operation: str, seconds: float, *, is_error: bool) -> None:
        """operation is PrepareResources or UnprepareResources."""
        ...


class NodeServices(msgspec.Struct, frozen=True):
    """What workers of one node share. forget(uid) ends the worker's existence; admit(pod) says why it cannot start."""

    name: str
    host_ip: str
    client: Client
    clock: Clock
    tasks: Tasks
    claims: Claims
    runtime: SimulatedRuntime
    starter: Starter
    health: Health
    devices: PluginDevices
    events: Events
    ips: IpPool
    forget: Callable[[str], None]
    admit: Callable[[KubeletPod], Awaitable[Rejected | None]]
    observe: ObserveOperation


class PodWorker:
    """One pod. Tell it of changes by `update` and `lost`; it works in a task that lives only while there is work."""

    def __init__(self, node: NodeServices, pod: KubeletPod) -> None:
        self.node = node
        self.pod = pod
        self.gone = False
        self.ended = False
        box = node.runtime.sandbox(pod.uid)
        # After a reboot devices of plugins are allocated again, as everything else of a pod is.
        self.admitted = box is not None and (box.alive or not node.devices.entries(pod.uid))
        self._ending: Ending | None = None
        self._waiting: dict[str, status.Waiting] = {}
        self._retry_at: dict[str, float] = {}
        self._faults: dict[str, int] = {}
        self._failures = 0
        self._probes = Probes(node.runtime, pod.uid, self.wake)
        self._hooks: dict[str, float] = {}
        """Containers whose preStop hook was begun, and until when it lasts; inf: until its command ends."""
        self._running_hooks: dict[str, Running] = {}
        self._written: dict[str, Any] = {}
        self._conditions: tuple[Condition, ...] = pod.status.conditions
        self._started_at = self._first_seen(pod)
        self._writing = asyncio.Lock()
        self._task: asyncio.Task[None] | None = None
        self._again = False
        self._stopped = False
        self._timer: Timer | None = None
        self._log = get("kubelet", node=node.name, pod=f"{pod.metadata.namespace}/{pod.metadata.name}")

    def _first_seen(self, pod: KubeletPod) -> float:
        box = self.node.runtime.sandbox(pod.uid)
        return box.created_at if box else self.node.clock.now()

    # ---- notifications

    def update(self, pod: KubeletPod) -> None:
        """The pod is now like this."""
        old, self.pod = self.pod, pod
        self._conditions = _merged(pod.status.conditions, self._conditions)
        if _concerns(old, pod):
            self._retry_at.clear()  # what kept a container from starting may be mended
            self.wake()
        elif _overwritten(self._written, pod):
            self._correct()

    def _correct(self) -> None:
        """Others wrote into our part of the status: write it again, but not faster than they can."""
        self._written = {}
        if self._task is not None:
            self._again = True
        elif not self._stopped:
            if self._timer:
                self._timer.cancel()
            self._timer = self.node.clock.call_later(CORRECT_S, self.wake)

    def lost(self) -> None:
        """The pod is gone from the API, by our own hand or by force."""
        self.gone = True
        self.wake()

    def wake(self) -> None:
        """Look again."""
        if self._timer:
            self._timer.cancel()
            self._timer = None
        if self._task is not None:
            self._again = True
            return
        if self._stopped:
            return
        name = f"pod {self.pod.metadata.namespace}/{self.pod.metadata.name}"
        work = self._work()
        try:
            self._task = self.node.tasks.start(name, work)
        except RuntimeError:  # the agent's task group is being cancelled, and this timer rang before `stop`
            work.close()

    def stop(self) -> None:
        """Let go of timers, for good (the agent ends; the containers run on)."""
        self._stopped = True
        if self._timer:
            self._timer.cancel()

    async def _work(self) -> None:
        try:
            while True:
                self._again = False
                delay = await self._guarded()
                if self._again:
                    continue
                if delay is not None and not self._stopped:
                    self._timer = self.node.clock.call_later(max(delay, 0.001), self.wake)
                return
        finally:
            self._task = None

    async def _guarded(self) -> float | None:
        try:
            return await self._step()
        except Exception as error:
            # One pod's trouble, even a bug, must not take the node down.
            self._failures += 1
            report(self._log, error)
            return WRITE_BACKOFF.wait_s(self._failures)

    # ---- steps

    async def _step(self) -> float | None:
        pod, runtime = self.pod, self.node.runtime
        if self.ended:
            return await self._leave()
        if pod.is_finished and self._ending is None:
            self._ending = Ending(pod.status.phase, pod.status.reason, pod.status.message)
        if self.gone or pod.is_deleted or self._ending is not None or self._is_overdue():
            return await self._end()
        now = self.node.clock.now()
        box = runtime.sandbox(pod.uid)
        if not self.admitted and (rejected := await self.node.admit(pod)) is not None:
            self._ending = Ending("Failed", rejected.reason, rejected.message)
            self._event("Warning", rejected.reason, rejected.message)
            return await self._end()
        self.admitted = True
        if box is None or not box.alive:
            if box and status.phase_of(pod, box, now, ending=None) in ("Succeeded", "Failed"):
                return await self._end()
            made = await self._sandbox(box)
            if isinstance(made, float):
                return made
            if self.gone or self.pod.is_deleted:
                return await self._end()
            box = made
        delay = await self._containers(box)
        delay = _soonest(delay, self._probe(box))
        if status.phase_of(pod, box, self.node.clock.now(), ending=None) in ("Succeeded", "Failed"):
            self._ending = Ending()
            return await self._end()
        await self._report()
        self._failures = 0
        return _soonest(delay, runtime.next_exit(pod.uid), self._overdue_in())

    async def _sandbox(self, dead: Sandbox | None) -> Sandbox | float:
        """A sandbox with its claims prepared, or the seconds to the next try."""
        pod, node = self.pod, self.node
        slow = node.clock.call_later(SLOW_S, self._report_soon)
        try:
            await self._timed("PrepareResources", node.claims.prepare(pod))
        except DragomanError as error:
            self._failures += 1
            self._event(
                "Warning",
                "FailedPrepareDynamicResources",
                f"Failed to prepare dynamic resources: prepare dynamic resources: {error}",
            )
            await self._report()
            return PREPARE_BACKOFF.wait_s(self._failures)
        finally:
            slow.cancel()
        self._failures = 0
        try:
            await node.starter.mount(pod, node.clock.now())
        except CannotMount as error:
            self._failures += 1
            self._event("Warning", "FailedMount", str(error))
            await self._report()
            return PREPARE_BACKOFF.wait_s(self._failures)
        if dead:
            # A new sandbox runs the init containers again.
            for container in pod.spec.init_containers:
                if run := dead.current.pop(container.name, None):
                    dead.previous[container.name] = run
        ip = node.starter.address(pod, node.ips.take) or (
            node.host_ip if pod.spec.host_network else node.ips.take(pod.uid)
        )
        return node.runtime.create(pod.uid, pod.metadata.namespace, pod.metadata.name, ip)

    async def _containers(self, box: Sandbox) -> float | None:
        """Start what is to be started now; seconds until something else is due."""
        delays: list[float] = []
        for container in self.pod.spec.init_containers:
            run = await self._current(container, box, delays)
            if container.is_sidecar:
                if run is None or not self._probes.state(container, run)[0]:
                    return _soonest(*delays)
                continue
            if run is None or run.is_running(self.node.clock.now()) or run.exit_code != 0:
                return _soonest(*delays)
        for container in (*self.pod.spec.containers, *self.pod.spec.ephemeral_containers):
            await self._current(container, box, delays)
        return _soonest(*delays)

    async def _current(self, container: KubeletContainer, box: Sandbox, delays: list[float]) -> ContainerRun | None:
        """The container's run, started (again) if it is time for it; None if it cannot start now."""
        now = self.node.clock.now()
        run = box.current.get(container.name)
        if run is not None and self.node.runtime.is_lost(self.pod.uid, run):
            await self._resume(container, box, run, delays)
        if run is not None and (run.is_running(now) or not status.will_restart(self.pod, container, run.exit_code)):
            return run
        if run is not None:
            assert run.ends_at is not None
            left = run.ends_at + status.restart_delay_s(run) - now
            if left > 0:
                self._back_off(container, status.restart_delay_s(run))
                delays.append(left)
                return run
        if (left := self._retry_at.get(container.name, 0.0) - now) > 0:
            self._pull_back_off(container, now)
            delays.append(left)
            return None
        return await self._start(container, box, delays)

    def _pull_back_off(self, container: KubeletContainer, now: float) -> None:
        """A pull that failed is said to be waited for, soon after it failed."""
        reason, message = self._waiting.get(container.name, ("", ""))
        wait_s = PULL_BACKOFF.wait_s(self._faults.get(container.name, 1))
        if reason != PULL_FAILED or now < self._retry_at[container.name] - wait_s + PULL_SHOWN_S / 2:
            return
        text = f'Back-off pulling image "{container.image}"'
        self._waiting[container.name] = ("ImagePullBackOff", f"{text}: {PULL_FAILED}: {message}")
        self._event("Normal", "BackOff", text, container.name)
        self._event("Warning", "Failed", "Error: ImagePullBackOff", container.name)

    async def _resume(self, container: KubeletContainer, box: Sandbox, run: ContainerRun, delays: list[float]) -> None:
        """Run the command of a container on that was started before this process."""
        node = self.node
        try:
            await node.starter.mount(self.pod, node.clock.now())
            start = await node.starter.again(self.pod, container, run, box.ip)
            await node.runtime.connect(self.pod.uid, start, self._unreachable)
        except (CannotStart, CannotMount, Retry) as error:
            self._log.info("cannot resume yet", container=container.name, error=str(error))
            delays.append(CONTAINER_BACKOFF.initial_s)
            return
        node.runtime.launch(self.pod.uid, start)

    async def _start(self, container: KubeletContainer, box: Sandbox, delays: list[float]) -> ContainerRun | None:
        node, name = self.node, container.name
        before = box.current.get(name) or box.previous.get(name)
        attempt = before.attempt + 1 if before else self._attempts_before(name)
        streak = status.next_streak(before) if before and before.ends_at is not None else 0
        try:
            start = await node.starter.run(self.pod, container, attempt, streak, box.ip, node.clock.now())
            await self._connect(start)
        except CannotStart as error:
            self._faults[name] = self._faults.get(name, 0) + 1
            wait_s = CONTAINER_BACKOFF.wait_s(self._faults[name])
            self._retry_at[name] = node.clock.now() + wait_s
            self._waiting[name] = (error.reason, error.message)
            if error.reason == PULL_FAILED:
                wait_s = PULL_BACKOFF.wait_s(self._faults[name])
                self._retry_at[name] = node.clock.now() + wait_s
                self._event("Normal", "Pulling", f'Pulling image "{container.image}"', name)
                what = f'Failed to pull image "{container.image}": {error.message}'
                self._event("Warning", "Failed", what, name)
                self._event("Warning", "Failed", f"Error: {PULL_FAILED}", name)
                delays.append(PULL_SHOWN_S)
            elif error.reason == "InvalidImageName":
                self._event("Warning", "InspectFailed", error.message, name)
                self._event("Warning", "Failed", "Error: InvalidImageName", name)
            else:
                self._event("Warning", "Failed", f"Error: {error.message}", name)
            delays.append(wait_s)
            return None
        for known in (self._faults, self._retry_at, self._waiting):
            known.pop(name, None)
        run = start.run
        used = ports_in_use(port["containerPort"] for port in container.ports) if start.shares_ports else ()
        for port in used:
            message = f"port {port} of this machine is in use, and processes for pods share its ports"
            self._event("Warning", "PortInUse", message, name)
        node.runtime.start(self.pod.uid, start)
        self._event("Normal", "Pulled", f'Container image "{container.image}" already present on machine', name)
        self._event("Normal", "Created", "Container created", name)
        if run.reason == "StartError":
            self._event("Warning", "Failed", f"Error: {run.message}", name)
        else:
            self._event("Normal", "Started", "Container started", name)
            self._post_start(container)
        if not run.is_running(node.clock.now()):
            delays.append(0.0)
        return run

    async def _connect(self, start: Start) -> None:
        try:
            await self.node.runtime.connect(self.pod.uid, start, self._unreachable)
        except Retry as error:
            raise CannotStart("CreateContainerError", str(error)) from None

    def _unreachable(self, port: int) -> None:
        taken = f"another program of this machine listens on port {port} at all addresses"
        self._event("Warning", "PortInUse", f"{taken}: programs outside the cluster reach that one, not the pod")

    def _post_start(self, container: KubeletContainer) -> None:
        """Run the container's postStart hook; it goes when that fails."""
        hook = (container.lifecycle or {}).get("postStart") or {}
        if not hook:
            return

        def ended(code: int) -> None:
            if code:
                how = f"command exited with {code}" if "exec" in hook else "no good answer"
                message = f"PostStartHook failed: {how}"
                self._event("Warning", "FailedPostStartHook", message, container.name)
                self.node.runtime.stop(self.pod.uid, container.name, after_s=0.0, exit_code=EXIT_KILLED)
                self.wake()

        with contextlib.suppress(NotFound):
            self._hook(container, hook, ended)

    def _hook(self, container: KubeletContainer, hook: Any, ended: Callable[[int], None]) -> Running | None:
        """Begin a hook; None for one that has nothing to do here. Raises NotFound.

        http and tcp hooks ask processes of this machine only: nothing listens in a simulated container, and nobody
        outside is to hear of one.
        """
        runtime, uid = self.node.runtime, self.pod.uid
        if command := (hook.get("exec") or {}).get("command"):
            return runtime.execute(uid, container.name, tuple(command), _unheard, ended)
        asked = hook.get("httpGet") or hook.get("tcpSocket")
        box = runtime.sandbox(uid)
        run = box.current.get(container.name) if box else None
        if asked is None or box is None or run is None:
            return None
        host = asked.get("host") or (box.ip if run.local else "")
        if not host.startswith("127."):
            return None
        return NetworkProbe(container, hook, host, _unheard, ended)

    def _probe(self, box: Sandbox) -> float | None:
        """Ask the probes that are due, and let containers go that are not alive; seconds until the next question."""
        failures, delay = self._probes.ask(self.pod, box, self.node.clock.now())
        for failure in failures:
            self._event("Warning", "Unhealthy", f"{failure.probe} probe failed: {failure.message}", failure.container)
            if failure.fatal:
                what = f"failed {failure.probe.lower()} probe, will be restarted"
                self._event("Normal", "Killing", f"Container {failure.container} {what}", failure.container)
                self.node.runtime.stop(self.pod.uid, failure.container, after_s=0.0, exit_code=EXIT_KILLED)
                delay = 0.0
        return delay

    def _attempts_before(self, name: str) -> int:
        """Runs that only the API knows of, of a node whose memory was lost."""
        for known in (*self.pod.status.container_statuses, *self.pod.status.init_container_statuses):
            if known.get("name") == name and known.get("containerID"):
                return int(known.get("restartCount") or 0) + 1
        return 0

    def _back_off(self, container: KubeletContainer, delay_s: float) -> None:
        meta = self.pod.metadata
        pod = f"{meta.name}_{meta.namespace}({meta.uid})"
        if container.name not in self._waiting:
            self._event(
                "Warning",
                "BackOff",
                f"Back-off restarting failed container {container.name} in pod {pod}",
                container.name,
            )
        message = f"back-off {_span(delay_s)} restarting failed container={container.name} pod={pod}"
        self._waiting[container.name] = ("CrashLoopBackOff", message)

    # ---- the end

    def _is_overdue(self) -> bool:
        left = self._overdue_in()
        if left is None or left > 0:
            return False
        self._ending = Ending(
            "Failed", "DeadlineExceeded", "Pod was active on the node longer than the specified deadline"
        )
        self._event("Normal", "DeadlineExceeded", self._ending.message)
        return True

    def _overdue_in(self) -> float | None:
        deadline = self.pod.spec.active_deadline_seconds
        return None if deadline is None else self._started_at + deadline - self.node.clock.now()

    async def _end(self) -> float | None:
        """Stop what runs, give the claims back, then say so."""
        pod, node = self.pod, self.node
        if self._ending is None:
            self._ending = Ending()
        if node.runtime.running(pod.uid):
            self._stop_running()
        if node.runtime.running(pod.uid):
            box = node.runtime.sandboxes[pod.uid]
            _, due_s = self._probes.ask(pod, box, node.clock.now(), ending=True)
            if not self.gone:
                await self._report(running=True)
            now = node.clock.now()
            hooks = [until - now for until in self._hooks.values() if now < until < float("inf")]
            # Hooks that last longer than the pod may are cut off by its grace period.
            return _soonest(node.runtime.next_exit(pod.uid), due_s, *hooks, self._grace_left() or 1.0)
        try:
            await self._timed("UnprepareResources", node.claims.unprepare(pod.uid))
        except Retry as error:
            self._failures += 1
            self._event("Warning", "FailedUnprepareDynamicResources", f"unprepare dynamic resources: {error}")
            return PREPARE_BACKOFF.wait_s(self._failures)
        node.runtime.end(pod.uid)
        node.devices.release(pod.uid)
        node.ips.release(pod.uid)
        if not self.gone:
            await self._report()
        self.ended = True
        return await self._leave()

    def _stop_running(self) -> None:
        """Ask the regular containers to stop, and the sidecars, last one first, once those have ended."""
        pod, runtime = self.pod, self.node.runtime
        running = set(runtime.running(pod.uid))
        regular = [c.name for c in pod.spec.containers if c.name in running]
        init = [c.name for c in pod.spec.init_containers if c.name in running]
        for name in regular or init[-1:]:
            grace_left = self._grace_left()
            run = runtime.sandboxes[pod.uid].current[name]
            if not run.stopping and name not in self._hooks:
                self._event("Normal", "Killing", f"Stopping container {name}", name)
            if grace_left > 0 and self._in_pre_stop(name):
                continue
            takes = stop_seconds(pod, name)
            if not run.stopping and grace_left > 0 and runtime.signal(pod.uid, name, TERM):
                # Its trap decides when it ends, within the grace period.
                takes = grace_left if run.is_running(self.node.clock.now()) else 0.0
                if takes:
                    runtime.stop(pod.uid, name, after_s=takes, exit_code=EXIT_KILLED)
                continue
            killed = takes > grace_left
            after_s = grace_left if killed else takes
            runtime.stop(pod.uid, name, after_s=after_s, exit_code=EXIT_KILLED if killed else EXIT_TERMINATED)
        if not runtime.running(pod.uid):
            return
        if set(runtime.running(pod.uid)) != running:
            self._stop_running()

    def _in_pre_stop(self, name: str) -> bool:
        """Whether the container's preStop hook still runs; it is begun at the first call."""
        now = self.node.clock.now()
        if name in self._hooks:
            return now < self._hooks[name]
        everybody = (*self.pod.spec.init_containers, *self.pod.spec.containers)
        container = next((c for c in everybody if c.name == name), None)
        hook = ((container.lifecycle if container else None) or {}).get("preStop") or {}
        self._hooks[name] = now
        if sleeps := hook.get("sleep"):
            self._hooks[name] = now + sleeps.get("seconds", 0)
        elif container is not None and hook:

            def ended(code: int) -> None:
                self._hooks[name] = now
                if code:
                    self._event("Warning", "FailedPreStopHook", f"PreStopHook failed: exit code {code}", name)
                self.wake()

            self._hooks[name] = float("inf")
            try:
                running = self._hook(container, hook, ended)
                if running is None:
                    self._hooks[name] = now
                else:
                    self._running_hooks[name] = running
            except NotFound:
                self._hooks[name] = now
        return now < self._hooks[name]

    def _grace_left(self) -> float:
        """Seconds that the containers have to stop."""
        pod = self.pod
        spec = pod.spec.termination_grace_period_seconds
        if pod.is_deleted and not self.gone:
            grace = pod.metadata.deletion_grace_period_seconds
            # The API server sets the timestamp to when the grace period is over.
            over = parse_time(pod.metadata.deletion_timestamp or "").timestamp()
            return max(0.0, min(over - self.node.clock.now(), float(grace if grace is not None else GRACE_S)))
        return float(GRACE_S if spec is None else spec)

    async def _leave(self) -> float | None:
        """The pod is over: delete the object if that was asked for, forget it when it is gone."""
        pod = self.pod
        if self.gone:
            self.node.runtime.remove(pod.uid)
            self.node.starter.volumes.forget(pod.uid)
            self.node.forget(pod.uid)
            return None
        if pod.is_deleted:
            try:
                await self.node.client.delete(
                    POD, pod.metadata.name, pod.metadata.namespace, uid=pod.uid, grace_period_s=0
                )
            except (NotFound, Stale):
                pass
            except DragomanError:
                self._failures += 1
                return WRITE_BACKOFF.wait_s(self._failures)
        return None

    async def _timed(self, operation: str, work: Awaitable[None]) -> None:
        began = self.node.clock.monotonic()
        failed = True
        try:
            await work
            failed = False
        finally:
            self.node.observe(operation, self.node.clock.monotonic() - began, is_error=failed)

    # ---- reporting

    def _report_soon(self) -> None:
        self.node.tasks.start(f"status of {self.pod.metadata.name}", self._report_under_way())

    async def _report_under_way(self) -> None:
        try:
            await self._report()
        except DragomanError as error:
            self._log.debug("status not written", error=str(error))

    async def _report(self, *, running: bool = False) -> None:
        """Write the status if it is news. Raises Retry."""
        async with self._writing:
            pod, node = self.pod, self.node
            now = node.clock.now()
            box = node.runtime.sandbox(pod.uid)
            made = status.made(
                pod,
                box,
                now,
                waiting=self._waiting,
                host_ip=node.host_ip,
                started_at=self._started_at,
                ending=None if running else self._ending,
                conditions=self._conditions,
                health=self._device_health(),
                probed=self._probes.state,
            )
            if made == self._written:
                return
            body = {"metadata": {"uid": pod.uid}, "status": made}
            try:
                await node.client.patch(
                    POD,
                    pod.metadata.name,
                    body,
                    pod.metadata.namespace,
                    type="strategic",
                    subresource="status",
                    manager="kubelet",
                )
            except (NotFound, Stale) as error:
                # Deleted, or another pod of that name: the watch will tell.
                self._log.debug("status not written", error=str(error))
                return
            self._written = made
            self._conditions = _merged(
                tuple(codec.decode(Condition, condition) for condition in made["conditions"]), self._conditions
            )

    def _device_health(self) -> dict[str, list[dict[str, Any]]]:
        """allocatedResourcesStatus by container, of claims and of device plugins."""
        found = self.node.health.statuses(self.pod) if self.pod.spec.resource_claims else {}
        for container, lists in self.node.devices.health(self.pod).items():
            found[container] = [*found.get(container, ()), *lists]
        return found

    def _event(self, type_: str, reason: str, message: str, container: str = "") -> None:
        self.node.events.emit(self.pod.ref, type_, reason, message, host=self.node.name, container=container)


def _unheard(number: int, data: bytes) -> None:
    """Output that nobody reads."""


def _soonest(*delays: float | None) -> float | None:
    known = [delay for delay in delays if delay is not None]
    return min(known) if known else None


def _merged(newer: tuple[Condition, ...], older: tuple[Condition, ...]) -> tuple[Condition, ...]:
    types = {condition.type for condition in newer}
    return (*newer, *(condition for condition in older if condition.type not in types))


def _concerns(old: KubeletPod, new: KubeletPod) -> bool:
    """Whether a change is more than the status that we wrote ourselves."""
    a, b = old.metadata, new.metadata
    return (
        (a.deletion_timestamp, a.deletion_grace_period_seconds, a.generation, a.annotations, a.uid)
        != (b.deletion_timestamp, b.deletion_grace_period_seconds, b.generation, b.annotations, b.uid)
        or old.spec != new.spec
        or old.status.resource_claim_statuses != new.status.resource_claim_statuses
        or old.status.extended_resource_claim_status != new.status.extended_resource_claim_status
        or (new.is_finished and not old.is_finished)
        or _gates(old) != _gates(new)
    )


def _overwritten(written: dict[str, Any], pod: KubeletPod) -> bool:
    """Whether conditions that we wrote say something else now."""
    if not written or pod.is_finished:
        return False
    known = {condition.type: condition.status for condition in pod.status.conditions}
    return any(known.get(mine["type"]) != mine["status"] for mine in written["conditions"])


def _gates(pod: KubeletPod) -> list[tuple[str, str]]:
    wanted = {gate.get("conditionType") for gate in pod.spec.readiness_gates}
    return [(c.type, c.status) for c in pod.status.conditions if c.type in wanted]


def _span(seconds: float) -> str:
    minutes, rest = divmod(int(seconds), 60)
    return f"{minutes}m{rest}s" if minutes else f"{rest}s"
