"""How far is it? A bar on stderr while large files are read, on a terminal only. Never slows what it shows."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

FROM = 4 * 2**20
"""Characters from which on reading takes long enough to say so."""
STEP = 200


@contextmanager
def reading(texts: Sequence[tuple[str, str]], passes: int) -> Iterator[Callable[[], None]]:
    """Gives what is to be called for each object of the texts, in each of so many passes over them."""
    size = sum(len(text) for _, text in texts)
    if size < FROM or not sys.stderr.isatty():
        yield lambda: None
        return
    from rich.console import Console  # takes 0.1 s to import
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    # Every object of a server has one.
    expected = sum(text.count("resourceVersion") for _, text in texts) * passes
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    done = 0
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(f"reading {size / 10**6:.0f} MB", total=expected or None)

        def reported() -> None:
            nonlocal done
            done += 1
            if done % STEP == 0:
                progress.update(task, completed=min(done, expected or done))

        yield reported
