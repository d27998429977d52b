"""CronJobs: when the next run is, what the policies do to it, what stays of finished ones."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from dragoman.errors import Invalid
from dragoman.reconcile.workloads import cronjob
from dragoman.reconcile.workloads.schedules import parse, zone_of

KEY = ("default", "tick")


def at(text: str, zone: str = "") -> float:
    return datetime.fromisoformat(text).replace(tzinfo=zone_of(zone)).timestamp()


NEXT = {
    ("* * * * *", "2027-03-01T10:00:30", ""): "2027-03-01T10:01:00",
    ("*/20 * * * *", "2027-03-01T10:40:00", ""): "2027-03-01T11:00:00",
    ("30 4 1,15 * *", "2027-03-02T00:00:00", ""): "2027-03-15T04:30:00",
    ("0 22 * * 1-5", "2027-03-05T22:00:00", ""): "2027-03-08T22:00:00",
    ("0 0 13 * fri", "2027-03-01T00:00:00", ""): "2027-03-05T00:00:00",
    ("0 12 * jan,JUL sun", "2027-03-01T00:00:00", ""): "2027-07-04T12:00:00",
    ("0 0 29 2 *", "2027-03-01T00:00:00", ""): "2028-02-29T00:00:00",
    ("5 0 * * 7", "2027-03-01T00:00:00", ""): "2027-03-07T00:05:00",
    ("@daily", "2027-03-01T10:00:00", ""): "2027-03-02T00:00:00",
    ("@every 1h30m", "2027-03-01T10:00:00", ""): "2027-03-01T11:30:00",
    ("0 8 * * *", "2027-03-01T00:00:00", "Asia/Tokyo"): "2027-03-01T08:00:00",
}


@pytest.mark.parametrize(("question", "answer"), NEXT.items())
def test_next_times(question: tuple[str, str, str], answer: str) -> None:
    text, after, zone = question
    assert parse(text).next(at(after, zone), zone_of(zone)) == at(answer, zone)


def test_a_time_that_never_comes() -> None:
    assert parse("0 0 31 2 *").next(at("2027-01-01T00:00:00")) is None


@pytest.mark.parametrize(
    "text", ["* * * *", "61 * * * *", "* * * * mon-", "*/0 * * * *", "@every", "a * * * *", "5-1 * * * *"]
)
def test_what_is_no_schedule_is_refused(text: str) -> None:
    with pytest.raises(Invalid, match="schedule"):
        parse(text)


def cron(cluster: Any, **spec: Any) -> None:
    cluster.seconds = at("2027-03-01T10:00:10")
    template = {"spec": {"template": {"spec": {"containers": [{"name": "c", "image": "i"}]}}}}
    cluster.add("CronJob", "tick", spec={"schedule": "* * * * *", "jobTemplate": template, **spec})


def step(cluster: Any) -> Any:
    result = cronjob.sync(cluster.world, KEY)
    cluster.carry_out(result.effects)
    return result


def finish(cluster: Any, name: str, how: str = "Complete") -> None:
    when = datetime.fromtimestamp(cluster.seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    status = {"conditions": [{"type": how, "status": "True"}], "startTime": when, "completionTime": when}
    cluster.edit("Job", name, {"status": status})


def names(cluster: Any) -> list[str]:
    return [job["metadata"]["name"] for job in cluster.all("Job")]


def test_a_run_starts_at_its_time_once(cluster: Any) -> None:
    cron(cluster)
    assert step(cluster).again_s == pytest.approx(50.1)
    assert names(cluster) == []
    cluster.seconds += 55
    step(cluster)
    step(cluster)
    minute = int(at("2027-03-01T10:01:00") // 60)
    assert names(cluster) == [f"tick-{minute}"]
    job = cluster.all("Job")[0]
    assert job["metadata"]["ownerReferences"][0]["uid"] == cluster.get("CronJob", "tick")["metadata"]["uid"]
    status = cluster.get("CronJob", "tick")["status"]
    assert status["lastScheduleTime"] == "2027-03-01T10:01:00Z"
    assert [entry["name"] for entry in status["active"]] == names(cluster)
    finish(cluster, names(cluster)[0])
    step(cluster)
    status = cluster.get("CronJob", "tick")["status"]
    assert "active" not in status
    assert status["lastSuccessfulTime"] == "2027-03-01T10:01:05Z"


def test_missed_runs_are_made_up_for_by_the_latest(cluster: Any) -> None:
    cron(cluster)
    cluster.seconds += 3600 * 5
    step(cluster)
    assert names(cluster) == [f"tick-{int(at('2027-03-01T15:00:00') // 60)}"]


def test_after_the_deadline_a_run_is_missed(cluster: Any) -> None:
    cron(cluster, schedule="0 * * * *", startingDeadlineSeconds=60)
    cluster.seconds = at("2027-03-01T11:05:00")
    step(cluster)
    assert names(cluster) == []


@pytest.mark.parametrize(("policy", "left"), [("Allow", 2), ("Forbid", 1), ("Replace", 1)])
def test_concurrency(cluster: Any, policy: str, left: int) -> None:
    cron(cluster, concurrencyPolicy=policy)
    cluster.seconds += 60
    step(cluster)
    first = names(cluster)
    cluster.seconds += 60
    step(cluster)
    assert len(names(cluster)) == left
    assert (first[0] in names(cluster)) == (policy != "Replace")
    if policy == "Forbid":
        assert cluster.events[-1].reason == "JobAlreadyActive"


def test_suspended_ones_start_nothing(cluster: Any) -> None:
    cron(cluster, suspend=True)
    cluster.seconds += 600
    assert step(cluster).again_s is None
    assert names(cluster) == []


def test_history_keeps_the_newest(cluster: Any) -> None:
    cron(cluster, successfulJobsHistoryLimit=2, failedJobsHistoryLimit=0)
    for number in range(5):
        cluster.seconds += 60
        step(cluster)
        newest = max(names(cluster))
        finish(cluster, newest, "Failed" if number == 3 else "Complete")
    step(cluster)
    minute = int(at("2027-03-01T10:00:00") // 60)
    assert names(cluster) == [f"tick-{minute + 3}", f"tick-{minute + 5}"]
