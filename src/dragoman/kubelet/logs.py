"""What does `kubectl logs` get? The text of a container's run, cut as it was asked for.

A source for `apiserver.logs`. It writes no logs (`runtime`, `containers`).
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime

from dragoman.apiserver.logs import LogOptions, LogSource
from dragoman.apiserver.status import bad_request
from dragoman.kubelet.pod import KubeletPod
from dragoman.kubelet.runtime import ContainerRun, Said, SimulatedRuntime
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
    now = clock.now()
    sent = len(run.log)
    partial = len(run.log[-1].text) if run.log else 0
    yield text_of(run, options, now)
    while options.follow:
        ended = not run.is_running(clock.now())
        more: list[Said] = []
        if sent and partial and sent <= len(run.log) and len(run.log[sent - 1].text) > partial:
            resource_slice = run.log[sent - 1]
            more.append(Said(resource_slice.at, resource_slice.text[partial:]))
        more += run.log[sent:]
        if more:
            sent, partial = len(run.log), len(run.log[-1].text)
            yield "".join(_lines(more, timestamps=options.timestamps)).encode()
        elif sent > len(run.log):  # the oldest went
            sent, partial = len(run.log), len(run.log[-1].text) if run.log else 0
        if ended:
            return
        await clock.sleep(FOLLOW_S * max(1.0, clock.speed))


def text_of(run: ContainerRun, options: LogOptions, now: float) -> bytes:
    """The lines asked for."""
    resource_slices = (
        run.log
        if options.since_s is None
        else [resource_slice for resource_slice in run.log if resource_slice.at >= now - options.since_s]
    )
    lines = _lines(resource_slices, timestamps=options.timestamps)
    if options.tail_lines is not None:
        lines = lines[-options.tail_lines :] if options.tail_lines > 0 else []
    return "".join(lines).encode()[: options.limit_bytes]


def _lines(resource_slices: list[Said], *, timestamps: bool) -> list[str]:
    lines: list[str] = []
    for resource_slice in resource_slices:
        when = datetime.fromtimestamp(resource_slice.at, UTC).strftime("%Y-%m-%dT%H:%M:%S.%f000Z")
        for line in resource_slice.text.splitlines(keepends=True):
            if lines and not lines[-1].endswith("\n"):
                lines[-1] += line
            else:
                lines.append(f"{when} {line}" if timestamps else line)
    return lines
