"""What does `kubectl logs` get? The text of a container's run, cut as it was asked for.

A source for `apiserver.logs`. It writes no logs (`containers`).
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime

from dragoman.apiserver.logs import LogSource, LogWish
from dragoman.apiserver.status import bad_request
from dragoman.kubelet.pod import Pod
from dragoman.kubelet.runtime import ContainerRun, SimulatedRuntime
from dragoman.runtime.clock import Clock

FOLLOW_S = 0.25


def log_source(runtime: SimulatedRuntime, clock: Clock, pod: Pod) -> LogSource:
    """The source of one pod. Calling it refuses what a kubelet refuses."""

    def source(wish: LogWish) -> AsyncIterator[bytes]:
        box = runtime.sandbox(pod.uid)
        runs = (box.previous if wish.previous else box.current) if box else {}
        run = runs.get(wish.container)
        if run is None and wish.previous:
            raise bad_request(
                f'previous terminated container "{wish.container}" in pod "{pod.metadata.name}" not found'
            )
        if run is None:
            raise bad_request(
                f'container "{wish.container}" in pod "{pod.metadata.name}" is waiting to start: ContainerCreating'
            )
        return _stream(run, wish, clock)

    return source


async def _stream(run: ContainerRun, wish: LogWish, clock: Clock) -> AsyncIterator[bytes]:
    yield text_of(run, wish, clock.now())
    # All is written at the start; who follows waits for the end.
    while wish.follow and run.is_running(clock.now()):
        await clock.sleep(FOLLOW_S * max(1.0, clock.speed))


def text_of(run: ContainerRun, wish: LogWish, now: float) -> bytes:
    """The lines wished for."""
    lines = run.log.splitlines(keepends=True)
    if wish.since_s is not None and run.started_at < now - wish.since_s:
        lines = []
    if wish.tail_lines is not None:
        lines = lines[-wish.tail_lines :] if wish.tail_lines > 0 else []
    if wish.timestamps:
        when = datetime.fromtimestamp(run.started_at, UTC).strftime("%Y-%m-%dT%H:%M:%S.%f000Z")
        lines = [f"{when} {line}" for line in lines]
    return "".join(lines).encode()[: wish.limit_bytes]
