"""Jobs: counted exactly once, replaced with back-off, ended, suspended, indexed."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragoman.api.meta import format_time
from dragoman.effects import Create
from dragoman.reconcile.workloads import job as jobs
from dragoman.reconcile.workloads.indexes import parsed, text_of

TRACKING = "batch.kubernetes.io/job-tracking"


def a_job(cluster: Any, **spec: Any) -> Any:
    labels = {"batch.kubernetes.io/job-name": "j"}
    pod_spec = {"containers": [{"name": "c"}], "restartPolicy": spec.pop("restartPolicy", "Never")}
    base = {"selector": {"matchLabels": labels}, "template": {"metadata": {"labels": labels}, "spec": pod_spec}}
    return cluster.add("Job", "j", spec={"parallelism": 1, "completions": 1, **base, **spec})


def sync(world: Any) -> Any:
    return jobs.sync(world, ("default", "j"))


def end(cluster: Any, name: str, phase: str, code: int = 1) -> None:
    from datetime import UTC, datetime

    when = format_time(datetime.fromtimestamp(cluster.seconds, UTC))
    ended = {"exitCode": 0 if phase == "Succeeded" else code, "finishedAt": when}
    statuses = [{"name": "c", "state": {"terminated": ended}}]
    cluster.edit("Pod", name, {"status": {"phase": phase, "containerStatuses": statuses}})


def live(cluster: Any) -> list[Any]:
    return [
        p
        for p in cluster.all("Pod")
        if not p["metadata"].get("deletionTimestamp")
        and p.get("status", {}).get("phase") not in ("Succeeded", "Failed")
    ]


def names(cluster: Any) -> list[str]:
    return [p["metadata"]["name"] for p in live(cluster)]


def status(cluster: Any) -> Any:
    return cluster.get("Job", "j")["status"]


def conditions(cluster: Any) -> dict[str, tuple[str, str]]:
    return {c["type"]: (c["status"], c["reason"]) for c in status(cluster).get("conditions") or []}


def test_a_job_completes_and_its_pods_are_let_go(cluster: Any) -> None:
    a_job(cluster, completions=3, parallelism=2)
    cluster.settle(sync)
    assert status(cluster)["active"] == 2
    assert status(cluster)["startTime"]
    assert live(cluster)[0]["metadata"]["finalizers"] == [TRACKING]
    for _ in range(3):
        end(cluster, names(cluster)[0], "Succeeded")
        cluster.settle(sync)
    now = status(cluster)
    assert now["succeeded"] == 3
    assert "active" not in now
    assert now["uncountedTerminatedPods"] == {}
    assert now["completionTime"]
    assert conditions(cluster) == {
        "SuccessCriteriaMet": ("True", "CompletionsReached"),
        "Complete": ("True", "CompletionsReached"),
    }
    assert all("finalizers" not in p["metadata"] for p in cluster.all("Pod"))
    assert [e.reason for e in cluster.events] == ["Completed"]


def test_no_outcome_is_counted_twice_or_lost_wherever_it_stops(cluster: Any) -> None:
    """Carry out only part of each step, as a crash between effects would."""
    a_job(cluster, completions=4, parallelism=4, backoffLimit=9)
    cluster.settle(sync)
    phases = ["Succeeded", "Failed", "Succeeded", "Succeeded"]
    for name, phase in zip(names(cluster), phases, strict=True):
        end(cluster, name, phase)
    for _ in range(60):
        effects = [e for e in sync(cluster.world).effects if not isinstance(e, Create)]
        if not effects:
            break
        cluster.carry_out(tuple(effects[:1]))
    now = status(cluster)
    assert (now["succeeded"], now["failed"]) == (3, 1)
    assert now["uncountedTerminatedPods"] == {}


def test_a_deleted_pod_with_our_finalizer_counts_before_it_goes(cluster: Any) -> None:
    a_job(cluster, backoffLimit=3)
    cluster.settle(sync)
    first = names(cluster)[0]
    end(cluster, first, "Failed")
    cluster.delete("Pod", first)
    assert cluster.has("Pod", first)
    cluster.settle(sync)
    assert not cluster.has("Pod", first)
    assert status(cluster)["failed"] == 1


def test_failed_pods_are_replaced_later_and_later(cluster: Any) -> None:
    a_job(cluster, backoffLimit=6)
    cluster.settle(sync)
    waits = []
    for _ in range(3):
        end(cluster, names(cluster)[0], "Failed")
        step = cluster.settle(sync)
        assert names(cluster) == []
        waits.append(step.again_s)
        cluster.seconds += step.again_s
        cluster.settle(sync)
        assert len(names(cluster)) == 1
    assert waits == [10, 20, 40]
    assert status(cluster)["failed"] == 3


def test_the_backoff_limit_fails_the_job_once_all_pods_have_ended(cluster: Any) -> None:
    a_job(cluster, backoffLimit=0, parallelism=2, completions=2)
    cluster.settle(sync)
    first, second = names(cluster)
    cluster.edit("Pod", second, {"spec": {"nodeName": "n"}, "status": {"phase": "Running"}})
    end(cluster, first, "Failed")
    cluster.settle(sync)
    assert conditions(cluster)["FailureTarget"] == ("True", "BackoffLimitExceeded")
    end(cluster, second, "Failed") if cluster.has("Pod", second) else None
    cluster.settle(sync)
    assert conditions(cluster)["Failed"] == ("True", "BackoffLimitExceeded")
    assert status(cluster)["failed"] == 2
    assert "completionTime" not in status(cluster)
    assert cluster.events[-1].message == "Job has reached the specified backoff limit"


def test_restarts_count_like_failures_under_on_failure(cluster: Any) -> None:
    a_job(cluster, backoffLimit=2, restartPolicy="OnFailure")
    cluster.settle(sync)
    restarted = {"phase": "Running", "containerStatuses": [{"name": "c", "restartCount": 3}]}
    cluster.edit("Pod", names(cluster)[0], {"status": restarted})
    cluster.settle(sync)
    assert conditions(cluster)["Failed"] == ("True", "BackoffLimitExceeded")


def test_the_deadline_fails_the_job(cluster: Any) -> None:
    a_job(cluster, activeDeadlineSeconds=100)
    step = cluster.settle(sync)
    assert step.again_s == 100
    cluster.seconds += 100
    cluster.settle(sync)
    assert conditions(cluster)["Failed"] == ("True", "DeadlineExceeded")


def test_a_finished_job_goes_after_its_time(cluster: Any) -> None:
    a_job(cluster, ttlSecondsAfterFinished=60)
    cluster.settle(sync)
    end(cluster, names(cluster)[0], "Succeeded")
    step = cluster.settle(sync)
    assert step.again_s == 60
    cluster.seconds += 60
    step = sync(cluster.world)
    assert [type(e).__name__ for e in step.effects] == ["Delete"]


def test_a_suspended_job_has_no_pods_and_loses_no_tries(cluster: Any) -> None:
    a_job(cluster, parallelism=2, completions=4, backoffLimit=0)
    cluster.settle(sync)
    cluster.edit("Job", "j", {"spec": {"suspend": True}})
    cluster.settle(sync)
    assert cluster.all("Pod") == []
    assert conditions(cluster)["Suspended"] == ("True", "JobSuspended")
    assert "startTime" not in status(cluster)
    assert "failed" not in status(cluster)
    cluster.edit("Job", "j", {"spec": {"suspend": False}})
    cluster.settle(sync)
    assert len(names(cluster)) == 2
    assert conditions(cluster)["Suspended"] == ("False", "JobResumed")
    assert status(cluster)["startTime"]
    assert [e.reason for e in cluster.events] == ["Suspended", "Resumed"]


def test_less_parallelism_deletes_the_surplus(cluster: Any) -> None:
    a_job(cluster, parallelism=4, completions=8)
    cluster.settle(sync)
    cluster.edit("Job", "j", {"spec": {"parallelism": 1}})
    cluster.settle(sync)
    assert len(names(cluster)) == 1
    assert "failed" not in status(cluster)


def test_a_work_queue_ends_with_its_pods_once_one_succeeded(cluster: Any) -> None:
    a_job(cluster, parallelism=3, completions=None)
    cluster.settle(sync)
    assert len(names(cluster)) == 3
    end(cluster, names(cluster)[0], "Succeeded")
    cluster.settle(sync)
    assert len(names(cluster)) == 2
    assert "Complete" not in conditions(cluster)
    for name in names(cluster):
        end(cluster, name, "Succeeded")
    cluster.settle(sync)
    assert conditions(cluster)["Complete"][0] == "True"


def test_indexes_are_each_done_once(cluster: Any) -> None:
    a_job(cluster, parallelism=2, completions=4, completionMode="Indexed", backoffLimit=9)
    cluster.settle(sync)
    pod = live(cluster)[0]
    index = "batch.kubernetes.io/job-completion-index"
    assert pod["metadata"]["generateName"] == "j-0-"
    assert (pod["metadata"]["annotations"][index], pod["metadata"]["labels"][index]) == ("0", "0")
    assert pod["spec"]["hostname"] == "j-0"
    assert pod["spec"]["containers"][0]["env"][0]["name"] == "JOB_COMPLETION_INDEX"
    end(cluster, names(cluster)[1], "Succeeded")  # index 1
    end(cluster, names(cluster)[0], "Failed")  # index 0
    step = cluster.settle(sync)
    assert status(cluster)["completedIndexes"] == "1"
    cluster.seconds += step.again_s
    cluster.settle(sync)
    running = sorted(p["metadata"]["annotations"][index] for p in live(cluster))
    assert running == ["0", "2"]
    while names(cluster):
        end(cluster, names(cluster)[0], "Succeeded")
        cluster.settle(sync)
    assert status(cluster)["completedIndexes"] == "0-3"
    assert status(cluster)["succeeded"] == 4
    assert conditions(cluster)["Complete"][0] == "True"


def test_an_index_has_its_own_limit(cluster: Any) -> None:
    a_job(
        cluster, parallelism=2, completions=2, completionMode="Indexed", backoffLimitPerIndex=0, backoffLimit=2**31 - 1
    )
    cluster.settle(sync)
    end(cluster, names(cluster)[0], "Failed")
    end(cluster, names(cluster)[0], "Succeeded")
    cluster.settle(sync)
    assert status(cluster)["failedIndexes"] == "0"
    assert conditions(cluster)["Failed"] == ("True", "FailedIndexes")


POLICY = {
    "rules": [
        {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget"}]},
        {"action": "FailJob", "onExitCodes": {"containerName": "c", "operator": "In", "values": [42]}},
    ]
}


def test_a_failure_policy_ignores_disruptions_and_fails_at_once(cluster: Any) -> None:
    a_job(cluster, podFailurePolicy=POLICY, backoffLimit=0)
    cluster.settle(sync)
    name = names(cluster)[0]
    cluster.edit("Pod", name, {"status": {"conditions": [{"type": "DisruptionTarget", "status": "True"}]}})
    end(cluster, name, "Failed")
    step = cluster.settle(sync)
    assert "failed" not in status(cluster)
    cluster.seconds += step.again_s or 0
    cluster.settle(sync)
    end(cluster, names(cluster)[0], "Failed", 42)
    cluster.settle(sync)
    assert conditions(cluster)["Failed"] == ("True", "PodFailurePolicy")
    failed = next(c for c in status(cluster)["conditions"] if c["type"] == "Failed")
    assert "failed with exit code 42 matching FailJob rule at index 1" in failed["message"]


def test_a_success_policy_ends_a_job_early(cluster: Any) -> None:
    policy = {"rules": [{"succeededIndexes": "0,2"}]}
    a_job(cluster, parallelism=3, completions=3, completionMode="Indexed", successPolicy=policy)
    cluster.settle(sync)
    for name in [n for n in names(cluster) if not n.startswith("j-1-")]:
        end(cluster, name, "Succeeded")
    cluster.settle(sync)
    assert conditions(cluster)["Complete"] == ("True", "SuccessPolicy")


def test_pods_of_a_vanished_job_are_let_go_after_asking(cluster: Any) -> None:
    a_job(cluster)
    cluster.settle(sync)
    pod = live(cluster)[0]
    before = cluster.world
    cluster.remove("Job", "j")
    from dragoman.snapshot.change import Gone

    [key] = jobs.orphan_keys(Gone("Job", "default", "j"), before, cluster.world)
    assert key == ("default", pod["metadata"]["name"])
    step = jobs.sync_orphan(cluster.world, key)
    assert [ref.kind for ref in step.asks] == ["Job"]
    cluster.settle(lambda world: jobs.sync_orphan(world, key))
    assert "finalizers" not in cluster.get("Pod", key[1])["metadata"]


INDEXES = {"": "", "0": "0", "0,1": "0,1", "0-2,5": "0-2,5", "2,1,0": "0-2", "7,x,1-": "1,7"}


@pytest.mark.parametrize("text", INDEXES)
def test_index_texts(text: str) -> None:
    assert text_of(parsed(text)) == INDEXES[text]


@given(st.sets(st.integers(0, 50)))
def test_index_texts_round_trip(indexes: set[int]) -> None:
    assert parsed(text_of(indexes)) == indexes
