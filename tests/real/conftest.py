"""Clusters of real and own parts for tests; README.md here says what there is."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.real.cluster import Cluster, Parts
from tests.real.machine import Machine

StartCluster = Callable[..., Cluster]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[StartCluster]:
    """start(scheduler="kube", ...): a control plane with the `Parts` named, ended with the test."""
    with ExitStack() as stack:
        count = 0

        def started(**parts: object) -> Cluster:
            nonlocal count
            count += 1
            wanted = Parts(**parts)  # type: ignore[arg-type]
            form = Machine if wanted.kubelet else Cluster
            return stack.enter_context(form(tmp_path / f"cluster-{count}", wanted))

        yield started


@pytest.fixture
def cluster(start: StartCluster) -> Cluster:
    """etcd and kube-apiserver, nothing else."""
    return start()
