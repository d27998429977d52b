"""How long a simulated container runs and how it ends, and how text is expanded."""

from __future__ import annotations

from typing import Any

import pytest

from dragoman.api import codec
from dragoman.kubelet.containers import CannotStart, expand, fate, resource_text, stop_seconds
from dragoman.kubelet.pod import KubeletPod


def pod(
    *command: str, notes: dict[str, str] | None = None, job: bool = False, where: str = "containers", **container: Any
) -> KubeletPod:
    owners = [{"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "u", "controller": True}] if job else []
    annotations = {f"dragoman.dev/{key}": value for key, value in (notes or {}).items()}
    made = {"name": "main", "image": "a", "command": list(command), **container}
    other = {"name": "other", "image": "a"}
    spec = {"containers": [made if where == "containers" else other], "initContainers": []}
    if where == "initContainers":
        spec["initContainers"] = [made]
    return codec.decode(KubeletPod, {"metadata": {"annotations": annotations, "ownerReferences": owners}, "spec": spec})


def of(made: KubeletPod) -> tuple[float | None, int] | None:
    container = next(c for c in (*made.spec.containers, *made.spec.init_containers) if c.name == "main")
    return fate(made, container)


FATES: dict[str, tuple[KubeletPod, tuple[float | None, int] | None]] = {
    "nothing said: for ever": (pod(), (None, 0)),
    "of a Job: a second": (pod(job=True), (1.0, 0)),
    "of a Job that only waits": (pod(job=True, image="registry.example/pause:3.10"), (None, 0)),
    "an init container: at once": (pod(where="initContainers"), (0.0, 0)),
    "a sidecar: for ever": (pod(where="initContainers", restartPolicy="Always"), (None, 0)),
    "a Job's sidecar: for ever": (pod(where="initContainers", restartPolicy="Always", job=True), (None, 0)),
    "sleep": (pod("sleep", "2.5"), (2.5, 0)),
    "sleep of a shell": (pod("/bin/sh", "-c", "exec sleep 1m"), (60.0, 0)),
    "sleep infinity": (pod("sleep", "infinity", job=True), (None, 0)),
    "a script decides itself": (pod("sh", "-c", "sleep 1m; echo; sleep 5s"), None),
    "a program of the shell decides itself": (pod("/bin/false"), None),
    "a script in arguments alone": (pod(args=["bash", "-c", "exit 3"]), None),
    "a driver's program decides itself": (pod("nvidia-smi", "-L", job=True), None),
    "a program of the image": (pod("torchrun", "train.py", job=True), (1.0, 0)),
    "a Python program of the image": (pod("python3", "train.py"), (None, 0)),
    "Python's own line": (pod("python3", "-c", "print(1)"), None),
    "annotation before command": (pod("sleep", "9", notes={"run-seconds": "1.5"}), (1.5, 0)),
    "annotation for ever": (pod(notes={"run-seconds": "infinity"}, job=True), (None, 0)),
    "annotation of the container first": (pod(notes={"run-seconds": "5", "run-seconds.main": "2"}), (2.0, 0)),
    "the pod's annotation is not for init containers": (
        pod(where="initContainers", notes={"run-seconds": "5", "exit-code": "1"}),
        (0.0, 0),
    ),
    "an init container's own is": (
        pod(where="initContainers", notes={"run-seconds.main": "5", "exit-code.main": "1"}),
        (5.0, 1),
    ),
    "who is to fail ends": (pod(notes={"exit-code": "7"}), (1.0, 7)),
    "time before the script's": (pod("sh", "-c", "exit 3", notes={"run-seconds": "4"}), (4.0, 0)),
}


@pytest.mark.parametrize(("made", "expected"), FATES.values(), ids=FATES)
def test_fate(made: KubeletPod, expected: tuple[float | None, int] | None) -> None:
    assert of(made) == expected


WRONG: dict[str, dict[str, str]] = {
    "no number": {"run-seconds": "soon"},
    "negative": {"run-seconds": "-1"},
    "not a number": {"run-seconds": "nan"},
    "too large a code": {"exit-code": "256"},
    "a negative code": {"exit-code": "-1"},
}


@pytest.mark.parametrize("notes", WRONG.values(), ids=WRONG)
def test_annotations_that_say_nothing(notes: dict[str, str]) -> None:
    with pytest.raises(CannotStart) as error:
        of(pod(notes=notes))
    assert error.value.reason == "CreateContainerConfigError"
    key, value = next(iter(notes.items()))
    assert f"annotation dragoman.dev/{key}: must be" in error.value.message
    assert repr(value) in error.value.message


def test_stopping_takes_no_time_unless_it_is_said() -> None:
    assert stop_seconds(pod(), "main") == 0.0
    assert stop_seconds(pod(notes={"stop-seconds": "3"}), "main") == 3.0
    assert stop_seconds(pod(notes={"stop-seconds": "3", "stop-seconds.main": "4"}), "main") == 4.0


EXPANSIONS = {
    "$(A)": "1",
    "x$(A)y$(B)": "x1y2",
    "$$(A)": "$(A)",
    "$(NONE)": "$(NONE)",
    "$A": "$A",
    "$(A": "$(A",
    "$$$(A)": "$1",
}


@pytest.mark.parametrize(("text", "expected"), EXPANSIONS.items())
def test_expansion(text: str, expected: str) -> None:
    assert expand(text, {"A": "1", "B": "2"}) == expected


RESOURCES: dict[str, tuple[dict[str, str], str]] = {
    "a limit": ({"resource": "limits.memory"}, str(256 * 2**20)),
    "in units of a divisor": ({"resource": "limits.memory", "divisor": "1Mi"}, "256"),
    "rounded up": ({"resource": "requests.cpu"}, "1"),
    "of thousandths": ({"resource": "requests.cpu", "divisor": "1m"}, "250"),
    "a limit that is not set is the node's": ({"resource": "limits.cpu"}, "32"),
    "a request that is not set": ({"resource": "requests.memory", "divisor": "0"}, "0"),
}


@pytest.mark.parametrize("name", RESOURCES)
def test_resources_of_the_downward_api(name: str) -> None:
    reference, expected = RESOURCES[name]
    made = pod("app", resources={"limits": {"memory": "256Mi"}, "requests": {"cpu": "250m"}})
    assert resource_text(made, made.spec.containers[0], reference, {"cpu": "32", "memory": "64Gi"}) == expected
