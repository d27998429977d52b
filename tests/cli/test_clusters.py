"""Named clusters: records of processes, kubeconfigs that nobody shares, merging, and a cluster in the background."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from dragoman.cli import clusters, named
from dragoman.errors import Denied, Invalid, NotFound


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("DRAGOMAN_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


def record(name: str, kubeconfig: str = "/tmp/k", *, pid: int = 0, **more: Any) -> named.ClusterRecord:
    pid = pid or os.getpid()
    return named.ClusterRecord(name, pid, named.began_at(pid), kubeconfig, **more)


@pytest.fixture
def sleeper() -> Any:
    process = subprocess.Popen(
        [sys.executable, "-c", "import time; print('up', flush=True); time.sleep(60)"], stdout=subprocess.PIPE
    )
    assert process.stdout is not None
    process.stdout.readline()
    yield process
    process.kill()
    process.communicate()


def test_a_record_lives_as_long_as_its_process(sleeper: Any) -> None:
    with named.registered(record("a")):
        assert [r.name for r in named.records()] == ["a"]
        assert named.record_of("a").is_running
    assert named.record_of("a").listed
    named.write(record("gone", pid=sleeper.pid, listed=False))
    assert len(named.records()) == 2
    stale = record("b", pid=sleeper.pid)
    stale.began = "1"
    assert not stale.is_running, "another process with the same number"
    assert not named.stop(stale)
    assert sleeper.poll() is None
    assert named.stop(record("gone", pid=sleeper.pid))
    assert sleeper.wait(5) != 0
    assert [r.name for r in named.records()] == ["a"]
    with pytest.raises(NotFound, match="no cluster 'x' on this machine; there are: a"):
        named.record_of("x")


def test_names_and_kubeconfigs_are_not_shared(sleeper: Any) -> None:
    named.write(record("one", "/tmp/one", pid=sleeper.pid))
    with pytest.raises(Denied, match="a cluster named one runs already"), named.registered(record("one", "/tmp/two")):
        raise AssertionError
    with (
        pytest.raises(Denied, match="/tmp/one is the kubeconfig of the running cluster one"),
        named.registered(record("two", "/tmp/one")),
    ):
        raise AssertionError
    sleeper.kill()
    sleeper.wait()
    with named.registered(record("one", "/tmp/one")):
        pass


@pytest.mark.parametrize("name", ["", "A", "a_b", "-a", "a" * 41, "a/b"])
def test_names_are_checked(name: str) -> None:
    with pytest.raises(Invalid, match="--name"):
        named.checked(name)


def test_a_folder_that_cannot_be_written_stops_only_who_asked_for_a_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("DRAGOMAN_HOME", str(tmp_path / "file" / "x"))
    with named.registered(record("up-1", listed=False)):
        pass
    with pytest.raises(Denied, match="DRAGOMAN_HOME"), named.registered(record("a")):
        raise AssertionError


def test_merging_keeps_what_is_there() -> None:
    new = {"clusters": [{"name": "d", "cluster": {"server": "s"}}], "users": [{"name": "d", "user": {"token": "t"}}]}
    old = {"clusters": [{"name": "mine", "cluster": {}}], "current-context": "mine", "preferences": {"x": 1}}
    made = clusters.merge_into(clusters.merge_into(old, new, "dragoman-a"), new, "dragoman-a")
    assert [entry["name"] for entry in made["clusters"]] == ["mine", "dragoman-a"]
    assert made["contexts"] == [{"name": "dragoman-a", "context": {"cluster": "dragoman-a", "user": "dragoman-a"}}]
    assert (made["current-context"], made["preferences"]) == ("mine", {"x": 1})


@pytest.mark.slow
def test_a_cluster_in_the_background(tmp_path: Path) -> None:
    def dragoman(*words: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "dragoman.cli", *words]
        return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False)

    try:
        done = dragoman("up", "--name", "back", "--detach", "--node", "n=example*2")
        assert done.returncode == 0, done.stderr
        assert "end it: dragoman clusters stop back" in done.stderr
        listed = dragoman("clusters").stdout.splitlines()[1].split()
        assert listed[:3] == ["back", "running", "2"]
        file = tmp_path / "dragoman-back.kubeconfig"
        assert dragoman("clusters", "kubeconfig", "back").stdout == file.read_text()
        again = dragoman("up", "--name", "back")
        assert (again.returncode, "runs already" in again.stderr) == (2, True)
    finally:
        stopped = dragoman("clusters", "delete", "back")
    assert stopped.returncode == 0, stopped.stderr
    assert not file.exists()
    assert dragoman("clusters").stdout.splitlines()[1:] == []
    failed = dragoman("up", "--name", "bad", "--detach", "--node", "n=nothing-like-it")
    assert failed.returncode == 2
    assert "nothing-like-it" in failed.stderr
