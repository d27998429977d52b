"""How do tests wait for what others bring about? They look again until it is there, up to a limit that a busy machine
does not reach.

    pod = await until(lambda: api.get(POD, "a", "default"))
    line = until_true(lambda: log_line("ready"), "the driver to be ready")

`until` waits on the running loop, virtual or real; `until_true` blocks. Both give what was found and fail with what
was seen last.
"""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Awaitable, Callable
from typing import Any

PATIENCE_S = 60.0
"""How long to wait at most, unless set: far more than it takes."""


async def until(
    holds: Callable[[], Any],
    within_s: float = PATIENCE_S,
    *,
    every_s: float = 0.005,
    meanwhile: Callable[[], Awaitable[object]] | None = None,
) -> Any:
    """What `holds` gives, or its awaitable, once that is true.

    within_s, every_s: seconds of the running loop. meanwhile: done before each further look. Raises AssertionError.
    """
    loop = asyncio.get_running_loop()
    deadline = loop.time() + within_s
    while True:
        answer = holds()
        if inspect.isawaitable(answer):
            answer = await answer
        if answer:
            return answer
        assert loop.time() < deadline, f"it did not come true within {within_s:g} s; last answer: {answer!r}"
        if meanwhile is not None:
            await meanwhile()
        await asyncio.sleep(every_s)


def until_true(
    look: Callable[[], Any],
    what: str,
    within_s: float = PATIENCE_S,
    *,
    log: Callable[[], str] = str,
    broken: Callable[[], str] = str,
) -> Any:
    """What `look` gives once that is true. what: named in the failure, with the end of the log.

    broken: why it can never come true, "" while it can. Raises AssertionError.
    """
    deadline = time.monotonic() + within_s
    while True:
        found = look()
        if found:
            return found
        reason = broken()
        assert not reason, f"{what}: {reason}"
        assert time.monotonic() < deadline, f"waited {within_s:g} s for {what}; log: {log()[-4000:]}"
        time.sleep(0.05)
