"""What does `kubectl logs` get? The text of a container's run, cut as it was asked for.

A source for `apiserver.logs`. It writes no logs (`runtime`, `containers`).
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime

from dragoman.apiserver.logs import LogSource, LogWish
from dragoman.apiserver.status import bad_request
from dragoman.kubelet.pod import Pod
from dragoman.kubelet.runtime import ContainerRun, Said, SimulatedRuntime
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
    now = clock.now()
    sent = len(run.log)
    partial = len(run.log[-1].text) if run.log else 0
    yield text_of(run, wish, now)
    while wish.follow:
        ended = not run.is_running(clock.now())
        more: list[Said] = []
        if sent and partial and sent <= len(run.log) and len(run.log[sent - 1].text) > partial:
            piece = run.log[sent - 1]
            more.append(Said(piece.at, piece.text[partial:]))
        more += run.log[sent:]
        if more:
            sent, partial = len(run.log), len(run.log[-1].text)
            yield "".join(_lines(more, timestamps=wish.timestamps)).encode()
        elif sent > len(run.log):  # the oldest went
            sent, partial = len(run.log), len(run.log[-1].text) if run.log else 0
        if ended:
            return
        await clock.sleep(FOLLOW_S * max(1.0, clock.speed))


def text_of(run: ContainerRun, wish: LogWish, now: float) -> bytes:
    """The lines wished for."""
    pieces = run.log if wish.since_s is None else [piece for piece in run.log if piece.at >= now - wish.since_s]
    lines = _lines(pieces, timestamps=wish.timestamps)
    if wish.tail_lines is not None:
        lines = lines[-wish.tail_lines :] if wish.tail_lines > 0 else []
    return "".join(lines).encode()[: wish.limit_bytes]


def _lines(pieces: list[Said], *, timestamps: bool) -> list[str]:
    lines: list[str] = []
    for piece in pieces:
        when = datetime.fromtimestamp(piece.at, UTC).strftime("%Y-%m-%dT%H:%M:%S.%f000Z")
        for line in piece.text.splitlines(keepends=True):
            if lines and not lines[-1].endswith("\n"):
                lines[-1] += line
            else:
                lines.append(f"{when} {line}" if timestamps else line)
    return lines
