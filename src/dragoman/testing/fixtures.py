"""A cluster in pytest without set-up: the fixture `dragoman_cluster`, there where Dragoman is installed.

    def test_it_deploys(dragoman_cluster):
        subprocess.run(["kubectl", "apply", "-f", "manifests"], env=dragoman_cluster.environment, check=True)

The arguments of `dragoman up` come from the option --dragoman-up, else from `dragoman_up` in pytest's configuration.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator

import pytest

from dragoman.errors import Invalid
from dragoman.testing.cluster import RunningCluster, running_cluster


def pytest_addoption(parser: pytest.Parser) -> None:
    """--dragoman-up and dragoman_up."""
    said = "arguments of `dragoman up` for the fixture dragoman_cluster, such as '--node gpu=dgx-h100*2'"
    parser.getgroup("dragoman").addoption("--dragoman-up", default=None, metavar="ARGUMENTS", help=said)
    parser.addini("dragoman_up", said, default="")


@pytest.fixture(scope="session")
def dragoman_cluster(request: pytest.FixtureRequest) -> Iterator[RunningCluster]:
    """A cluster for the whole session: a process of its own, in memory, gone at the end.

    `kubeconfig` is a file for kubectl and clients, `environment` this process's environment with KUBECONFIG, `log` what
    `up` said.
    """
    given = request.config.getoption("--dragoman-up")
    text = request.config.getini("dragoman_up") if given is None else given
    try:
        with running_cluster(*shlex.split(str(text))) as cluster:
            yield cluster
    except Invalid as error:
        pytest.fail(str(error), pytrace=False)
