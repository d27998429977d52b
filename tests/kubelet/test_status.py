"""What a pod's status says of what runs: phases, conditions, container states, restarts, as the kubelet makes them."""

from __future__ import annotations

from typing import Any

import pytest

from dragoman.api import codec
from dragoman.api.meta import Condition
from dragoman.kubelet import status
from dragoman.kubelet.pod import KubeletPod
from dragoman.kubelet.runtime import ContainerRun, Sandbox
from dragoman.kubelet.status import Ending

NOW = 1_800_000_000.0
RUNS = (None, 0)
"""(seconds since its end, or None; exit code)."""


def pod(*names: str, init: list[str] | None = None, sidecars: tuple[str, ...] = (), **spec: Any) -> KubeletPod:
    first = [
        {"name": name, "image": "i", **({"restartPolicy": "Always"} if name in sidecars else {})}
        for name in (*(init or ()), *sidecars)
    ]
    containers = [{"name": name, "image": "i"} for name in names or ("main",)]
    body = {"metadata": {"name": "p", "generation": 2}, "spec": {"containers": containers, "initContainers": first}}
    return codec.decode(KubeletPod, {**body, "spec": {**body["spec"], **spec}})  # type: ignore[dict-item]


def box(**runs: tuple[float | None, int]) -> Sandbox:
    """What ran, by name: seconds since it ended (None: it runs), and its code."""
    made = Sandbox("u", "default", "p", "10.0.0.7", NOW - 100)
    for name, (ended, code) in runs.items():
        ends = None if ended is None else NOW - ended
        made.current[name] = ContainerRun(f"id-{name}", name, "i", 0, NOW - 50, ends, code)
    return made


# pod, what ran, its ending: phase
PHASES: dict[str, tuple[KubeletPod, Sandbox | None, Ending | None, str]] = {
    "nothing yet": (pod(), None, None, "Pending"),
    "one of two": (pod("a", "b"), box(a=RUNS), None, "Pending"),
    "all run": (pod("a", "b"), box(a=RUNS, b=RUNS), None, "Running"),
    "one ended, to be started again": (pod("a", "b"), box(a=(1, 0), b=RUNS), None, "Running"),
    "all ended, to be started again": (pod(), box(main=(1, 0)), None, "Running"),
    "all ended well, on failure only": (pod(restartPolicy="OnFailure"), box(main=(1, 0)), None, "Succeeded"),
    "failed, on failure": (pod(restartPolicy="OnFailure"), box(main=(1, 3)), None, "Running"),
    "failed, never": (pod(restartPolicy="Never"), box(main=(1, 3)), None, "Failed"),
    "one of two failed, never": (
        pod("a", "b", restartPolicy="Never"),
        box(a=(1, 0), b=(1, 3)),
        None,
        "Failed",
    ),
    "an init container runs": (pod(init=["i"]), box(i=RUNS), None, "Pending"),
    "an init container failed, never": (pod(init=["i"], restartPolicy="Never"), box(i=(1, 2)), None, "Failed"),
    "an init container failed, to be started again": (pod(init=["i"]), box(i=(1, 2)), None, "Pending"),
    "a sidecar that ended does not hold it": (
        pod(sidecars=("s",), restartPolicy="Never"),
        box(s=RUNS, main=(1, 0)),
        None,
        "Succeeded",
    ),
    "evicted while it ran": (pod(), box(main=RUNS), Ending("Failed", "Evicted", "why"), "Failed"),
    "told to end, and all ended well": (pod(), box(main=(1, 0)), Ending(), "Succeeded"),
    "told to end before all had": (pod("a", "b"), box(a=(1, 0), b=RUNS), Ending(), "Failed"),
}


@pytest.mark.parametrize("case", PHASES)
def test_the_phase(case: str) -> None:
    made, there, ending, expected = PHASES[case]
    assert status.phase_of(made, there, NOW, ending=ending) == expected


# policy of the pod, of the container, exit code, what it is: whether it runs again
AGAIN: dict[str, tuple[str, str | None, int, str, bool]] = {
    "always": ("Always", None, 0, "main", True),
    "on failure, well": ("OnFailure", None, 0, "main", False),
    "on failure, badly": ("OnFailure", None, 1, "main", True),
    "never": ("Never", None, 1, "main", False),
    "a policy of its own": ("Always", "Never", 1, "main", False),
    "an init container that ended well": ("Always", None, 0, "init", False),
    "an init container that did not": ("Always", None, 1, "init", True),
    "a sidecar, whatever the pod says": ("Never", "Always", 0, "init", True),
    "an ephemeral container": ("Always", None, 1, "ephemeral", False),
}


@pytest.mark.parametrize("case", AGAIN)
def test_whether_a_container_is_started_again(case: str) -> None:
    policy, own, code, kind, expected = AGAIN[case]
    entry = {"name": "x", "image": "i", **({"restartPolicy": own} if own else {})}
    field = {"main": "containers", "init": "initContainers", "ephemeral": "ephemeralContainers"}[kind]
    spec = {"containers": [{"name": "other"}], field: [entry], "restartPolicy": policy}
    made = codec.decode(KubeletPod, {"metadata": {}, "spec": spec})
    spec_of = (*made.spec.containers, *made.spec.init_containers, *made.spec.ephemeral_containers)
    container = next(c for c in spec_of if c.name == "x")
    assert status.will_restart(made, container, code) is expected


def test_restarts_wait_longer_each_time_and_at_once_after_a_long_run() -> None:
    def run(streak: int, lasted: float) -> ContainerRun:
        return ContainerRun("id", "main", "i", streak, NOW - lasted, NOW, 1, streak=streak)

    assert [status.restart_delay_s(run(streak, 1)) for streak in (0, 1, 2, 3, 6, 40)] == [0, 10, 20, 40, 300, 300]
    assert status.restart_delay_s(run(6, 600)) == 0
    assert (status.next_streak(run(6, 599)), status.next_streak(run(6, 600))) == (7, 1)


# ---- the whole


def made(of: KubeletPod, there: Sandbox | None, **more: Any) -> dict[str, Any]:
    return status.made(of, there, NOW, **{"waiting": {}, "host_ip": "10.0.0.1", "started_at": NOW - 100, **more})


def conditions(of: dict[str, Any]) -> dict[str, tuple[str, str | None]]:
    return {c["type"]: (c["status"], c["reason"]) for c in of["conditions"]}


def test_a_pod_that_runs_is_ready_when_its_probes_say_so() -> None:
    ready = made(pod(), box(main=RUNS))
    assert {kind: value for kind, (value, _) in conditions(ready).items()} == dict.fromkeys(
        ("PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady", "PodScheduled"), "True"
    )
    assert (ready["podIP"], ready["hostIP"], ready["observedGeneration"]) == ("10.0.0.7", "10.0.0.1", 2)
    (container,) = ready["containerStatuses"]
    assert (container["ready"], container["started"], list(container["state"])) == (True, True, ["running"])
    probed = made(pod("a", "b"), box(a=RUNS, b=RUNS), probed=lambda container, run: (True, container.name == "a"))
    assert conditions(probed)["Ready"] == ("False", "ContainersNotReady")
    messages = {c["type"]: c["message"] for c in probed["conditions"]}
    assert messages["ContainersReady"] == "containers with unready status: [b]"


def test_readiness_gates_hold_the_pod_but_not_its_containers() -> None:
    gated = pod(readinessGates=[{"conditionType": "example.com/lb"}])
    found = conditions(made(gated, box(main=RUNS)))
    assert found["ContainersReady"] == ("True", None)
    assert found["Ready"] == ("False", "ReadinessGatesNotReady")


def test_what_is_waited_for_stands_in_its_container() -> None:
    (never,) = made(pod(), None, waiting={"main": ("ErrImagePull", "no such image")})["containerStatuses"]
    assert never["state"] == {"waiting": {"reason": "ErrImagePull", "message": "no such image"}}
    (backoff,) = made(pod(), box(main=(5, 7)), waiting={"main": ("CrashLoopBackOff", "back-off")})["containerStatuses"]
    assert backoff["state"] == {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off"}}
    assert backoff["lastState"]["terminated"]["exitCode"] == 7
    (creating,) = made(pod(), None)["containerStatuses"]
    assert creating["state"]["waiting"]["reason"] == "ContainerCreating"
    assert made(pod(init=["i"]), None)["containerStatuses"][0]["state"]["waiting"]["reason"] == "PodInitializing"


def test_how_a_container_ended() -> None:
    there = box(main=(5, 0))
    (done,) = made(pod(restartPolicy="Never"), there)["containerStatuses"]
    assert (done["state"]["terminated"]["reason"], done["state"]["terminated"]["exitCode"]) == ("Completed", 0)
    there.current["main"] = ContainerRun("new", "main", "i", 3, NOW - 1)
    there.previous["main"] = ContainerRun("old", "main", "i", 2, NOW - 50, NOW - 2, 137, "OOMKilled", "too much")
    (again,) = made(pod(), there)["containerStatuses"]
    assert again["restartCount"] == 3
    assert again["lastState"]["terminated"] | {"startedAt": "", "finishedAt": ""} == {
        "exitCode": 137,
        "reason": "OOMKilled",
        "message": "too much",
        "startedAt": "",
        "finishedAt": "",
        "containerID": "simulated://old",
    }


def test_a_container_that_never_ran_of_a_pod_that_is_over_is_unknown() -> None:
    over = made(pod("a", "b"), box(a=(1, 0)), ending=Ending("Failed", "Evicted", "pressure"))
    states = [c["state"]["terminated"]["reason"] for c in over["containerStatuses"]]
    assert states == ["Completed", "ContainerStatusUnknown"]
    assert (over["phase"], over["reason"], over["message"]) == ("Failed", "Evicted", "pressure")
    assert conditions(over)["Ready"] == ("False", "PodFailed")


def test_init_containers_that_are_not_done_are_named() -> None:
    found = made(pod(init=["one", "two"]), box(one=(1, 0), two=RUNS))
    (initialized,) = (c for c in found["conditions"] if c["type"] == "Initialized")
    assert initialized["message"] == "containers with incomplete status: [two]"
    assert [c["ready"] for c in found["initContainerStatuses"]] == [True, False]


def test_transition_times_move_with_the_status_only() -> None:
    known = [
        Condition(type="Ready", status="True", last_transition_time="2026-01-01T00:00:00Z"),
        Condition(type="Initialized", status="False", last_transition_time="2026-01-01T00:00:00Z"),
    ]
    times = {c["type"]: c["lastTransitionTime"] for c in made(pod(), box(main=RUNS), conditions=known)["conditions"]}
    assert times["Ready"] == "2026-01-01T00:00:00Z"
    assert times["Initialized"] == "2027-01-15T08:00:00Z"


def test_fields_of_others_are_not_touched() -> None:
    found = made(pod(), box(main=RUNS))
    assert not found.keys() & {"resourceClaimStatuses", "qosClass", "nominatedNodeName", "reason", "message"}
