"""What does `kubectl logs` get? The text of a container's run, cut as it was asked for.

A source for `apiserver.logs`. It writes no logs (`containers`).
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime

from dragoman.apiserver.logs import LogOptions, LogSource
from dragoman.apiserver.status import bad_request
from dragoman.kubelet.pod import KubeletPod
from dragoman.kubelet.runtime import ContainerRun, SimulatedRuntime
from dragoman.runtime.clock import Clock

FOLLOW_S = 0.25


def log_source(runtime: SimulatedRuntime, clock: Clock, pod: KubeletPod) -> LogSource:
    """The source of one pod. Calling it refuses what a kubelet refuses."""

    def source(options: LogOptions) -> AsyncIterator[bytes]:
        box = runtime.sandbox(pod.uid)
        runs = (box.previous if options.previous else box.current) if box else {}
        run = runs.get(options.container)
        if run is None and options.previous:
            raise bad_request(
                f'previous terminated container "{options.container}" in pod "{pod.metadata.name}" not found'
            )
        if run is None:
            raise bad_request(
                f'container "{options.container}" in pod "{pod.metadata.name}" is waiting to start: ContainerCreating'
            )
        return _stream(run, options, clock)

    return source


async def _stream(run: ContainerRun, options: LogOptions, clock: Clock) -> AsyncIterator[bytes]:
    yield text_of(run, options, clock.now())
    # All is written at the start; who follows waits for the end.
    while options.follow and run.is_running(clock.now()):
        await clock.sleep(FOLLOW_S * max(1.0, clock.speed))


def text_of(run: ContainerRun, options: LogOptions, now: float) -> bytes:
    """The lines wished for."""
    lines = run.log.splitlines(keepends=True)
    if options.since_s is not None and run.started_at < now - options.since_s:
        lines = []
    if options.tail_lines is not None:
        lines = lines[-options.tail_lines :] if options.tail_lines > 0 else []
    if options.timestamps:
        when = datetime.fromtimestamp(run.started_at, UTC).strftime("%Y-%m-%dT%H:%M:%S.%f000Z")
        lines = [f"{when} {line}" for line in lines]
    return "".join(lines).encode()[: options.limit_bytes]
