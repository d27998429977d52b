"""The cluster that the test kit starts: ready in the body, gone after it, and a clear error where it cannot start."""

from __future__ import annotations

import os

import pytest

from dragoman.errors import Invalid
from dragoman.testing.cluster import running_cluster

pytestmark = pytest.mark.slow


def test_it_is_there_in_the_body_and_gone_afterwards() -> None:
    with running_cluster("--node", "n=example") as cluster:
        assert "server: https://127.0.0.1:" in cluster.kubeconfig.read_text()
        assert cluster.environment["KUBECONFIG"] == str(cluster.kubeconfig)
        os.kill(cluster.pid, 0)
    assert not cluster.kubeconfig.exists()
    with pytest.raises(ProcessLookupError):
        os.kill(cluster.pid, 0)


def test_what_cannot_start_says_why() -> None:
    with (
        pytest.raises(Invalid, match=r"did not start: error: .*nothing-of-that-name"),
        running_cluster("--node", "n=nothing-of-that-name"),
    ):
        raise AssertionError
