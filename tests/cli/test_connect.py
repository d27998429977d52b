"""Which kubeconfig is read, and as whom: dragoman's own order, and exactly kubectl's for `kubectl dra`."""

from __future__ import annotations

import argparse
from pathlib import Path

import pytest

from dragoman.cli import connect, manifests
from dragoman.cli.main import guarded
from dragoman.errors import Invalid

CONFIG = (
    "current-context: x\nclusters: [{name: c, cluster: {server: 'https://SERVER'}}]\n"
    "contexts: [{name: x, context: {cluster: c}}]\n"
)


def parsed(prog: str, *argv: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog=prog)
    connect.arguments(parser)
    return parser.parse_args(argv)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.delenv("KUBECONFIG", raising=False)
    (tmp_path / "home" / ".kube").mkdir(parents=True)
    (tmp_path / "home" / ".kube" / "config").write_text(CONFIG.replace("SERVER", "home"))
    (tmp_path / "dragoman.kubeconfig").write_text(CONFIG.replace("SERVER", "embedded"))
    (tmp_path / "other").write_text(CONFIG.replace("SERVER", "other"))
    return tmp_path


def test_the_plugin_reads_what_kubectl_reads(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert connect.access(parsed("dragoman explain")).server == "https://embedded"
    assert connect.access(parsed("kubectl dra explain")).server == "https://home"
    monkeypatch.setenv("KUBECONFIG", "missing:other")
    for prog in ("dragoman get", "kubectl dra get"):
        assert connect.access(parsed(prog)).server == "https://other"


def test_flags_win_over_the_file(folder: Path) -> None:
    argv = ("--as", "ada", "--as-group", "a", "--as-group", "b", "--as-uid", "7", "--request-timeout", "1m30s")
    found = connect.access(parsed("kubectl dra explain", *argv))
    assert (found.impersonate, found.impersonate_groups, found.impersonate_uid) == ("ada", ("a", "b"), "7")
    assert found.request_timeout_s == 90
    assert connect.access(parsed("kubectl dra explain", "--request-timeout", "5")).request_timeout_s == 5
    with pytest.raises(Invalid, match="--as: is missing"):
        connect.access(parsed("kubectl dra explain", "--as-group", "a"))


@pytest.mark.parametrize("word", ["claim", "claims", "resourceclaim", "ResourceClaims"])
def test_our_words_name_kinds(word: str) -> None:
    assert connect.kind_named(word).kind == "ResourceClaim"
    assert connect.kind_named("classes").kind == "DeviceClass"


def test_help_of_a_command_and_a_delete_that_names_nothing(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        guarded(["help", "devices"])
    assert end.value.code == 0
    assert "usage: dragoman devices" in capsys.readouterr().out
    assert guarded(["delete", "claim"]) == 2
    assert "name the resourceclaims to delete" in capsys.readouterr().err


def test_environment_values_of_daemons_are_checked_as_flags_are(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, value, choice in (
        ("DRAGOMAN_POLICY", "bogus", "first-fit"),
        ("DRAGOMAN_LOG_LEVEL", "loud", "warning"),
        ("DRAGOMAN_LOG_FORMAT", "xml", "human"),
    ):
        with monkeypatch.context() as patched:
            patched.setenv(name, value)
            assert guarded(["scheduler"]) == 2
        (line,) = capsys.readouterr().err.splitlines()
        assert line.startswith(f"error: {name}: must be one of")
        assert choice in line
        assert value in line


def test_controllers_are_left_out_by_a_hyphen(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert guarded(["controllers", "--controllers", "-klaims"]) == 2
    assert "there is no klaims" in capsys.readouterr().err


def test_a_folder_with_a_kustomization(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lab = folder / "lab"
    lab.mkdir()
    (lab / "kustomization.yaml").write_text("resources: [pod.yaml]\n")
    (lab / "pod.yaml").write_text("apiVersion: v1\nkind: Pod\nmetadata: {name: p}\nspec: {containers: [{name: c}]}\n")
    assert [Path(name).name for name, _ in manifests.texts([str(lab)])] == ["pod.yaml"]
