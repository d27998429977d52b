"""What does a pod's status say, given what runs? Phase, conditions and container statuses as the kubelet makes them.

Pure: a pod, its sandbox and what is waited for go in, the JSON of the kubelet's own status fields comes out. It never
writes, and touches no field that others own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec

from dragoman.api.meta import Condition, format_time
from dragoman.kubelet.pod import KubeletContainer, KubeletPod
from dragoman.kubelet.runtime import ContainerRun, Sandbox

Waiting = tuple[str, str]
"""A waiting reason and its message."""

Json = dict[str, Any]

Probed = Callable[[KubeletContainer, ContainerRun], tuple[bool, bool]]
"""(started, ready) of a running container, by its probes."""

BACKOFF_INITIAL_S = 10.0
BACKOFF_MAX_S = 300.0
BACKOFF_RESET_S = 600.0
"""A run that lasted so long starts the back-off again."""


class Ending(msgspec.Struct, frozen=True):
    """A final phase that is forced, with the pod's reason and message."""

    phase: str = ""
    reason: str = ""
    message: str = ""


def restart_delay_s(run: ContainerRun) -> float:
    """Seconds from the end of this run to the next one: 0, then 10 doubling to 300."""
    assert run.ends_at is not None
    if run.ends_at - run.started_at >= BACKOFF_RESET_S or run.streak == 0:
        return 0.0
    return float(min(BACKOFF_INITIAL_S * 2 ** min(run.streak - 1, 10), BACKOFF_MAX_S))


def next_streak(run: ContainerRun) -> int:
    """How many runs in a row a next run would follow."""
    assert run.ends_at is not None
    return 1 if run.ends_at - run.started_at >= BACKOFF_RESET_S else run.streak + 1


def will_restart(pod: KubeletPod, container: KubeletContainer, exit_code: int) -> bool:
    """Whether the restart policy wants another run after such an end."""
    if container.is_sidecar:
        return True
    if any(c.name == container.name for c in pod.spec.ephemeral_containers):
        return False
    policy = container.restart_policy or pod.spec.restart_policy
    init = any(c.name == container.name for c in pod.spec.init_containers)
    if exit_code == 0:
        return policy == "Always" and not init
    return policy != "Never"


def is_initialized(pod: KubeletPod, box: Sandbox | None, now: float) -> bool:
    """Whether every init container has done its part: ended well, or for sidecars started."""
    for container in pod.spec.init_containers:
        run = box.current.get(container.name) if box else None
        if run is None:
            return False
        if not container.is_sidecar and (run.is_running(now) or run.exit_code != 0):
            return False
    return True


def phase_of(pod: KubeletPod, box: Sandbox | None, now: float, *, ending: Ending | None) -> str:
    """The pod's phase. ending: it is over, whatever its containers would do."""
    runs = box.current if box else {}
    ended = [run for c in pod.spec.containers if (run := runs.get(c.name)) is not None and not run.is_running(now)]
    all_ended = len(ended) == len(pod.spec.containers)
    succeeded = all_ended and all(run.exit_code == 0 for run in ended)
    if ending is not None:
        return ending.phase or ("Succeeded" if succeeded else "Failed")
    for container in pod.spec.init_containers:
        run = runs.get(container.name)
        failed = run is not None and not run.is_running(now) and run.exit_code != 0
        if failed and run is not None and not will_restart(pod, container, run.exit_code):
            return "Failed"
    if not is_initialized(pod, box, now) or any(c.name not in runs for c in pod.spec.containers):
        return "Pending"
    if not all_ended:
        return "Running"
    if any(will_restart(pod, c, runs[c.name].exit_code) for c in pod.spec.containers):
        return "Running"
    return "Succeeded" if succeeded else "Failed"


def made(
    pod: KubeletPod,
    box: Sandbox | None,
    now: float,
    *,
    waiting: Mapping[str, Waiting],
    host_ip: str,
    started_at: float,
    ending: Ending | None = None,
    conditions: Sequence[Condition] = (),
    health: Mapping[str, list[Json]] | None = None,
    probed: Probed = lambda container, run: (True, True),
) -> Json:
    """The kubelet's status fields. conditions: those known so far, for transition times."""
    phase = phase_of(pod, box, now, ending=ending)
    final = phase in ("Succeeded", "Failed")
    initialized = is_initialized(pod, box, now)
    default = "PodInitializing" if pod.spec.init_containers else "ContainerCreating"
    regular = [
        _container(
            pod,
            c,
            box,
            now,
            waiting,
            default,
            probed,
            final=final,
            # Where init containers failed, the others are never looked for: they go on waiting.
            absent=final and (initialized or not pod.spec.init_containers),
            health=(health or {}).get(c.name),
        )
        for c in pod.spec.containers
    ]
    # Init containers wait for each other under the same reason.
    init = [
        _container(pod, c, box, now, waiting, "PodInitializing", probed, final=final, absent=final and initialized)
        for c in pod.spec.init_containers
    ]
    ephemeral = [
        _container(pod, c, box, now, waiting, "ContainerCreating", probed, final=final, absent=final)
        for c in pod.spec.ephemeral_containers
    ]
    made_conditions = _conditions(pod, box, now, phase, initialized, regular)
    status: Json = {
        "observedGeneration": pod.metadata.generation or None,
        "phase": phase,
        "conditions": [_with_time(condition, conditions, now) for condition in made_conditions],
        "hostIP": host_ip,
        "hostIPs": [{"ip": host_ip}],
        "startTime": _time(started_at),
        "containerStatuses": regular,
    }
    if init:
        status["initContainerStatuses"] = init
    if ephemeral:
        status["ephemeralContainerStatuses"] = ephemeral
    ip = box.ip if box else ""
    if ip and not (final and not box):
        status["podIP"] = ip
        status["podIPs"] = [{"ip": ip}]
    status["reason"] = (ending.reason if ending else "") or None
    status["message"] = (ending.message if ending else "") or None
    if not status["observedGeneration"]:
        del status["observedGeneration"]
    for field in ("reason", "message"):
        if status[field] is None and not getattr(pod.status, field):
            del status[field]
    return status


def _container(
    pod: KubeletPod,
    container: KubeletContainer,
    box: Sandbox | None,
    now: float,
    waiting: Mapping[str, Waiting],
    default: str,
    probed: Probed,
    *,
    final: bool,
    absent: bool,
    health: list[Json] | None = None,
) -> Json:
    """absent: the pod is over, so that a container that never ran is said to be unknown."""
    run = box.current.get(container.name) if box else None
    previous = box.previous.get(container.name) if box else None
    init = any(c.name == container.name for c in pod.spec.init_containers)
    reason, message = waiting.get(container.name, ("", ""))
    status: Json = {
        "name": container.name,
        "image": container.image,
        "imageID": "",
        "restartCount": run.attempt if run else 0,
        "ready": False,
        "started": False,
        "state": {},
        "lastState": {},
    }
    if run is None:
        status["state"] = _never_started() if absent else _never_ran(reason or default, message)
    elif run.is_running(now):
        status["state"] = {"running": {"startedAt": _time(run.started_at)}}
        status["started"], ready = probed(container, run)
        # An init container that is no sidecar is ready only once it has ended well.
        status["ready"] = ready and (not init or container.is_sidecar)
    elif reason and not final:
        status["state"] = _never_ran(reason, message)
        status["lastState"] = {"terminated": _terminated(run)}
    else:
        status["state"] = {"terminated": _terminated(run)}
        status["ready"] = init and not container.is_sidecar and run.exit_code == 0
    if run is not None:
        status["containerID"] = f"simulated://{run.id}"
        status["imageID"] = f"simulated://{container.image}"
    if previous is not None and not status["lastState"]:
        status["lastState"] = {"terminated": _terminated(previous)}
    if health:
        status["allocatedResourcesStatus"] = health
    return status


def _never_ran(reason: str, message: str) -> Json:
    return {"waiting": {"reason": reason, **({"message": message} if message else {})}}


def _never_started() -> Json:
    return {
        "terminated": {
            "exitCode": 137,
            "reason": "ContainerStatusUnknown",
            "message": "The container could not be located when the pod was terminated",
        }
    }


def _terminated(run: ContainerRun) -> Json:
    assert run.ends_at is not None
    state: Json = {
        "exitCode": run.exit_code,
        "reason": run.reason or ("Completed" if run.exit_code == 0 else "Error"),
        "startedAt": _time(run.started_at),
        "finishedAt": _time(run.ends_at),
        "containerID": f"simulated://{run.id}",
    }
    if run.message:
        state["message"] = run.message
    return state


# ---- conditions


def _conditions(
    pod: KubeletPod, box: Sandbox | None, now: float, phase: str, initialized: bool, regular: Sequence[Json]
) -> list[Json]:
    alive = box is not None and box.alive
    ready = _readiness(phase, regular)
    gates = _open_gates(pod)
    pod_ready = ready if ready["status"] != "True" or not gates else gates
    return [
        {"type": "PodReadyToStartContainers", "status": _bool(alive and phase not in ("Succeeded", "Failed"))},
        _initialized(pod, box, now, phase, initialized),
        {**pod_ready, "type": "Ready"},
        {**ready, "type": "ContainersReady"},
        {"type": "PodScheduled", "status": "True"},
    ]


def _readiness(phase: str, regular: Sequence[Json]) -> Json:
    if phase == "Succeeded":
        return {"status": "False", "reason": "PodCompleted"}
    if phase == "Failed":
        return {"status": "False", "reason": "PodFailed"}
    unready = [status["name"] for status in regular if not status["ready"]]
    if unready:
        message = f"containers with unready status: [{' '.join(unready)}]"
        return {"status": "False", "reason": "ContainersNotReady", "message": message}
    return {"status": "True"}


def _open_gates(pod: KubeletPod) -> Json | None:
    known = {condition.type: condition.status for condition in pod.status.conditions}
    closed = [kind for gate in pod.spec.readiness_gates if known.get(kind := gate.get("conditionType", "")) != "True"]
    if not closed:
        return None
    message = "; ".join(
        f'the status of pod readiness gate "{kind}" is not "True", but {known.get(kind, "False")}' for kind in closed
    )
    return {"status": "False", "reason": "ReadinessGatesNotReady", "message": message}


def _initialized(pod: KubeletPod, box: Sandbox | None, now: float, phase: str, initialized: bool) -> Json:
    if phase == "Succeeded":
        return {"type": "Initialized", "status": "True", "reason": "PodCompleted"}
    if initialized:
        return {"type": "Initialized", "status": "True"}
    if phase == "Failed":
        return {"type": "Initialized", "status": "False", "reason": "PodFailed"}
    missing = []
    for container in pod.spec.init_containers:
        run = box.current.get(container.name) if box else None
        done = run is not None and (container.is_sidecar or (not run.is_running(now) and run.exit_code == 0))
        if not done:
            missing.append(container.name)
    message = f"containers with incomplete status: [{' '.join(missing)}]"
    return {"type": "Initialized", "status": "False", "reason": "ContainersNotInitialized", "message": message}


def _with_time(condition: Json, known: Sequence[Condition], now: float) -> Json:
    old = next((c for c in known if c.type == condition["type"]), None)
    same = old is not None and old.status == condition["status"]
    when = old.last_transition_time if same and old is not None else None
    # Explicit nulls: a condition is patched by key, and what it said before must not stay.
    return {
        **condition,
        "reason": condition.get("reason"),
        "message": condition.get("message"),
        "lastTransitionTime": when or _time(now),
    }


def _bool(value: bool) -> str:
    return "True" if value else "False"


def _time(seconds: float) -> str:
    return format_time(datetime.fromtimestamp(seconds, UTC))
