"""One `dragoman up` for all tests of client libraries; each test works in a namespace of its own."""

from __future__ import annotations

import gc
import itertools
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.conftest import Cluster, kubectls

_numbers = itertools.count(1)


@pytest.fixture(scope="session")
def up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A cluster with one node, `worker`."""
    if not kubectls():
        pytest.skip("no kubectl: pip install -r requirements-dev.txt")
    made = Cluster(tmp_path_factory.mktemp("up"), "--node", "worker=example")
    made.start()
    yield made
    made.stop()


@pytest.fixture
def kubeconfig(up: Cluster) -> Path:
    """Its kubeconfig."""
    return up.kubeconfig


@pytest.fixture
def namespace(up: Cluster) -> str:
    """A new namespace."""
    name = f"client-{next(_numbers)}"
    up.kubectl("create", "namespace", name)
    return name


@pytest.fixture(autouse=True)
def _sockets() -> Iterator[None]:
    """Client libraries leave sockets to the garbage collector; that is not for later tests to hear of."""
    yield
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """See `_sockets`."""
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.filterwarnings("ignore::ResourceWarning"))
