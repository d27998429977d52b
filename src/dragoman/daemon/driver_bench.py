"""What does a bench for drivers need around it? An embedded API server that the driver reaches by a kubeconfig.

The cases are `node.bench`'s; nothing is decided here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from dragoman.apiserver.kubeconfig import write
from dragoman.apiserver.server import ServerConfig, serving
from dragoman.cluster.http import HttpClient
from dragoman.errors import Denied
from dragoman.node.bench.bed import BenchSettings
from dragoman.node.bench.case import Case
from dragoman.node.bench.catalogue import Bench
from dragoman.node.bench.report import CaseResult, Report
from dragoman.runtime.clock import Clock
from dragoman.runtime.entropy import Entropy


async def examine(
    settings: BenchSettings, cases: Sequence[Case], report: Callable[[CaseResult], None] = lambda outcome: None
) -> Report:
    """Run the cases against an API server of their own. Raises Invalid, Denied."""
    clock, entropy = Clock(), Entropy()
    try:
        settings.folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise Denied(f"{settings.folder}: {error.strerror}") from None
    async with serving(ServerConfig(), clock, entropy) as server:
        write(settings.kubeconfig, server.access)
        client = HttpClient(server.access, clock, entropy, manager="dragoman-bench")
        try:
            return await Bench(settings, client, clock, entropy, report).run(cases)
        finally:
            await client.close()
