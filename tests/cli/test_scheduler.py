"""What the flags of `dragoman scheduler` come to, and what they refuse."""

from __future__ import annotations

from pathlib import Path

import pytest

from dragoman.cli.main import main
from dragoman.cli.scheduler import _only_nodes
from dragoman.daemon.scheduler import SchedulerSettings
from dragoman.errors import Invalid


def test_nodes_by_label_selector() -> None:
    settings = _only_nodes("stage=dragoman,!old,zone in (a,b)", SchedulerSettings(("x", "y")))
    for name in ("x", "y"):
        added = settings.profile(name).profile.added
        assert added is not None
        assert added.required is not None
        (term,) = added.required.node_selector_terms
        wanted = [(one.key, one.operator, one.values) for one in term.match_expressions]
        assert wanted == [("stage", "In", ("dragoman",)), ("old", "DoesNotExist", ()), ("zone", "In", ("a", "b"))]


def test_nodes_that_cannot_be_read_are_refused() -> None:
    with pytest.raises(Invalid, match="--nodes"):
        _only_nodes("stage in (", SchedulerSettings())


def test_a_configuration_that_is_refused_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "config.yaml"
    file.write_text("apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\nprofile: []\n")
    with pytest.raises(Exception, match='unknown field "profile"'):
        main(["scheduler", "--config", str(file)])
    file.write_text("a: [")
    with pytest.raises(Exception, match=r"config\.yaml"):
        main(["scheduler", "--config", str(file)])


def test_names_go_with_the_profiles_of_the_configuration() -> None:
    with pytest.raises(Invalid, match="profiles of --config"):
        main(["scheduler", "--config", "x.yaml", "--scheduler-name", "a"])
