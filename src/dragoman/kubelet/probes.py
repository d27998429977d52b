"""Is a container started, ready, alive? The probes of one pod, asked when they are due.

exec probes run in the container. What a probe over the network would find in a simulated container cannot be known:
http, tcp and grpc probes succeed from their first time on; a process is asked (`networkprobes`). What follows from a
failure is `lifecycle`'s to decide.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from dragoman.errors import NotFound
from dragoman.kubelet.networkprobes import NetworkProbe
from dragoman.kubelet.pod import KubeletContainer, KubeletPod
from dragoman.kubelet.programs import Running
from dragoman.kubelet.runtime import ContainerRun, Sandbox, SimulatedRuntime

STARTUP, READINESS, LIVENESS = "Startup", "Readiness", "Liveness"
NETWORK = ("httpGet", "tcpSocket", "grpc")
OUTPUT_BYTES = 10 * 1024


class ProbeFailure(msgspec.Struct, frozen=True):
    """A probe that failed; fatal: so often that the container must go."""

    container: str
    probe: str
    message: str
    fatal: bool


class _Asked:
    """One probe of one run. due: epoch seconds of the next question, None for never again."""

    def __init__(self, kind: str, spec: Any, since: float) -> None:
        self.kind = kind
        self.spec = spec
        self.due: float | None = since + (spec.get("initialDelaySeconds") or 0)
        self.passed: bool | None = None
        self.successes = self.failures = 0
        self.running: Running | None = None
        self.began = 0.0
        self.answer: int | None = None
        self.output = ""

    def number(self, field: str, default: int) -> int:
        return int(self.spec.get(field) or default)


class Probes:
    """The probes of one pod's containers."""

    def __init__(self, runtime: SimulatedRuntime, uid: str, wake: Callable[[], None]) -> None:
        self.runtime = runtime
        self.uid = uid
        self.wake = wake
        self._asked: dict[tuple[str, int], list[_Asked]] = {}

    def state(self, container: KubeletContainer, run: ContainerRun) -> tuple[bool, bool]:
        """(started, ready) of a running container."""
        asked = self._asked.get((container.name, run.attempt))
        if asked is None:
            return not container.startup_probe, not (container.startup_probe or container.readiness_probe)
        started = all(probe.passed is True for probe in asked if probe.kind == STARTUP)
        ready = started and all(probe.passed is True for probe in asked if probe.kind == READINESS)
        return started, ready

    def ask(
        self, pod: KubeletPod, box: Sandbox, now: float, *, ending: bool = False
    ) -> tuple[list[ProbeFailure], float | None]:
        """Ask what is due: failures, and seconds until the next question. ending: liveness no longer matters."""
        failures: list[ProbeFailure] = []
        dues: list[float] = []
        alive: set[tuple[str, int]] = set()
        for container in (*pod.spec.init_containers, *pod.spec.containers):
            run = box.current.get(container.name)
            probes = (container.startup_probe, container.readiness_probe, container.liveness_probe)
            if run is None or not run.is_running(now) or not any(probes):
                continue
            key = (container.name, run.attempt)
            alive.add(key)
            asked = self._asked.get(key)
            if asked is None:
                pairs = zip((STARTUP, READINESS, LIVENESS), probes, strict=True)
                asked = self._asked[key] = [_Asked(kind, spec, run.started_at) for kind, spec in pairs if spec]
            started = all(probe.passed is True for probe in asked if probe.kind == STARTUP)
            for probe in asked:
                if probe.kind == STARTUP and started and probe.due is not None:
                    probe.due = None  # its work is done
                if (probe.kind != STARTUP and not started) or (ending and probe.kind == LIVENESS):
                    continue
                self._step(container, probe, box.ip if run.local else "", now, failures)
                if probe.kind == STARTUP and probe.passed:
                    dues.append(now)
                if probe.due is not None:
                    dues.append(probe.due)
        for key in self._asked.keys() - alive:
            del self._asked[key]
        return failures, max(0.0, min(dues) - now) if dues else None

    def _step(
        self, container: KubeletContainer, probe: _Asked, address: str, now: float, failures: list[ProbeFailure]
    ) -> None:
        if probe.due is None:
            return
        if probe.running is None and probe.answer is None:
            if now < probe.due:
                return
            self._begin(container, probe, address, now)
        if probe.answer is None:
            limit_s = probe.number("timeoutSeconds", 1)
            if now < probe.began + limit_s:
                probe.due = probe.began + limit_s
                return
            assert probe.running is not None
            probe.running.close()
            probe.answer, probe.output = 1, _timed_out(probe.spec, limit_s)
        code, probe.answer, probe.running = probe.answer, None, None
        probe.due = max(now, probe.began + probe.number("periodSeconds", 10))
        if code == 0:
            probe.successes, probe.failures = probe.successes + 1, 0
            if probe.successes >= probe.number("successThreshold", 1):
                probe.passed = True
            if "exec" not in probe.spec and not address and probe.passed:
                probe.due = None  # nothing could change it
            return
        probe.successes, probe.failures = 0, probe.failures + 1
        enough = probe.failures >= probe.number("failureThreshold", 3)
        if enough or probe.passed is None:
            probe.passed = False
        fatal = enough and probe.kind != READINESS
        if fatal:
            probe.due = None
        failures.append(ProbeFailure(container.name, probe.kind, probe.output, fatal))

    def _begin(self, container: KubeletContainer, probe: _Asked, address: str, now: float) -> None:
        """address: where a process of this machine is asked; "" for simulated containers."""
        probe.began, probe.output = now, ""
        if "exec" not in probe.spec and not address:
            probe.answer = 0
            return

        def output(number: int, data: bytes) -> None:
            probe.output = (probe.output + data.decode("utf-8", "replace"))[:OUTPUT_BYTES]

        def ended(code: int) -> None:
            probe.answer = code
            if probe.running is not None:
                probe.due = 0.0
                self.wake()

        if "exec" not in probe.spec:
            probe.running = NetworkProbe(container, probe.spec, address, output, ended)
            return
        command = tuple(probe.spec["exec"].get("command") or ())
        try:
            running = self.runtime.execute(self.uid, container.name, command, output, ended)
        except NotFound as error:
            probe.answer, probe.output = 1, str(error)
            return
        if probe.answer is None:
            probe.running = running


def _timed_out(spec: Any, limit_s: int) -> str:
    return f"command timed out after {limit_s}s" if "exec" in spec else f"no answer within {limit_s}s"
