"""Settings from flags and environment; log lines; metrics."""

from __future__ import annotations

import io
import json

import msgspec
import pytest

from dragoman.errors import Invalid
from dragoman.runtime import config, log
from dragoman.runtime.metrics import Metrics


class Settings(msgspec.Struct, frozen=True):
    lease_name: str = "dragoman"
    workers: int = 4
    resync_s: float = 60.0
    shadow: bool = False


def test_flags_win_over_environment_over_defaults() -> None:
    environ = {"DRAGOMAN_WORKERS": "8", "DRAGOMAN_LEASE_NAME": "env", "DRAGOMAN_RESYNC_S": "5m30s", "OTHER": "1"}
    found = config.load(Settings, {"lease_name": "flag", "shadow": None}, environ)
    assert found == Settings(lease_name="flag", workers=8, resync_s=330.0)


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [("WORKERS", "many", "int"), ("RESYNC_S", "5 parsecs", "duration"), ("SHADOW", "perhaps", "bool")],
)
def test_a_bad_value_names_its_variable(name: str, value: str, words: str) -> None:
    with pytest.raises(Invalid, match=f"DRAGOMAN_{name}.*{words}"):
        config.load(Settings, {}, {f"DRAGOMAN_{name}": value})


def test_the_variable_of_a_flag() -> None:
    assert config.variable("--lease-name") == "DRAGOMAN_LEASE_NAME"


def test_a_file_gets_json_lines_and_people_one_short_line() -> None:
    stream = io.StringIO()
    log.setup(stream=stream)
    log.get("scheduler", pod="a/b").info("bound", node="node-a")
    line = json.loads(stream.getvalue())
    assert {key: line[key] for key in ("level", "logger", "message", "pod", "node")} == {
        "level": "info",
        "logger": "scheduler",
        "message": "bound",
        "pod": "a/b",
        "node": "node-a",
    }
    stream = io.StringIO()
    log.setup(format="human", stream=stream)
    log.get("scheduler").warning("no room", why="8 of 8 held")
    assert stream.getvalue().endswith("W scheduler: no room why='8 of 8 held'\n")
    log.get("scheduler").debug("not shown")
    assert "not shown" not in stream.getvalue()


def test_parts_share_a_metric_by_name() -> None:
    metrics = Metrics()
    metrics.counter("decisions_total", "Decisions.", ["outcome"]).labels("bound").inc()
    metrics.counter("decisions_total", "Decisions.", ["outcome"]).labels("bound").inc()
    metrics.histogram("wait_seconds", "Waits.").observe(0.1)
    metrics.gauge("queue", "Keys.").set(3)
    text = metrics.text().decode()
    assert 'decisions_total{outcome="bound"} 2.0' in text
    assert "wait_seconds_count 1.0" in text
    assert "queue 3.0" in text
