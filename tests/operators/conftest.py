"""Operators that run on `dragoman up`, on their own or as processes that it starts for their pods."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.e2e.conftest import Cluster, kubectls

StartUp = Callable[..., Cluster]


@pytest.fixture
def start_up(tmp_path: Path) -> Iterator[StartUp]:
    """start_up(*flags): a `dragoman up` with one node, `worker`, ended with the test."""
    if not kubectls():
        pytest.skip("no kubectl: pip install -r requirements-dev.txt")
    with ExitStack() as stack:

        def started(*flags: str) -> Cluster:
            cluster = Cluster(tmp_path, "--node", "worker=example", *flags)
            stack.callback(cluster.stop)
            cluster.start()
            return cluster

        yield started
