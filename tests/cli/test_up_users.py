"""`up --user`: who gets a kubeconfig, and where it stands."""

from __future__ import annotations

import argparse
import asyncio
import stat
from pathlib import Path

import pytest

from dragoman.api.kinds import BY_NAME
from dragoman.apiserver.kubeconfig import of_user
from dragoman.cli.up import _user
from dragoman.cluster.http import HttpClient
from dragoman.cluster.kubeconfig import load
from dragoman.daemon.allinone import Cluster, ClusterSettings
from dragoman.errors import Denied
from dragoman.runtime.clock import Clock
from dragoman.runtime.entropy import Entropy

USERS = {
    "anna": ("anna", ()),
    "anna:ops, builders": ("anna", ("ops", "builders")),
    "system:node:n1": ("system:node:n1", ()),
}


@pytest.mark.parametrize("text", USERS, ids=str)
def test_a_user_and_groups(text: str) -> None:
    assert _user(text) == USERS[text]


@pytest.mark.parametrize("text", ["", ":ops", " anna"])
def test_no_user(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError):
        _user(text)


def test_a_user_has_a_kubeconfig_beside_the_administrators(tmp_path: Path) -> None:
    file = tmp_path / "lab.kubeconfig"
    theirs = of_user(file, "anna@example.com")
    assert theirs == tmp_path / "lab-anna-example.com.kubeconfig"

    async def scenario() -> None:
        users = (("anna@example.com", ("builders",)),)
        settings = ClusterSettings(nodes=(), kubeconfig=file, users=users, root_dir=tmp_path)
        async with Cluster(settings):
            assert stat.S_IMODE(theirs.stat().st_mode) == 0o600
            client = HttpClient(load([theirs]), Clock(), Entropy())
            with pytest.raises(Denied, match=r'User "anna@example\.com" cannot list resource "pods"'):
                await client.list(BY_NAME["Pod"], "default")
            await client.close()

    asyncio.run(scenario())
