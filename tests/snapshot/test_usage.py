"""What a pod asks of its node: containers, init containers, sidecars, pod level, overhead."""

from __future__ import annotations

from typing import Any

import pytest

from dragoman.api.codec import decode
from dragoman.api.core import Pod
from dragoman.snapshot.usage import ONE, pod_requests

CPU = ONE


def box(cpu: str, **more: Any) -> dict[str, Any]:
    return {"name": "c", "resources": {"requests": {"cpu": cpu}}, **more}


CASES: dict[str, tuple[dict[str, Any], int]] = {
    "containers add up": ({"containers": [box("1"), box("2")]}, 3 * CPU),
    "an init container counts if it needs more": ({"containers": [box("1")], "initContainers": [box("4")]}, 4 * CPU),
    "an init container does not count if it needs less": (
        {"containers": [box("3")], "initContainers": [box("2")]},
        3 * CPU,
    ),
    "a sidecar runs beside the containers": (
        {"containers": [box("1")], "initContainers": [box("1", restartPolicy="Always")]},
        2 * CPU,
    ),
    "an init container runs beside the sidecars before it": (
        {"containers": [box("1")], "initContainers": [box("1", restartPolicy="Always"), box("4")]},
        5 * CPU,
    ),
    "a sidecar after an init container is not there yet": (
        {"containers": [box("1")], "initContainers": [box("4"), box("1", restartPolicy="Always")]},
        4 * CPU,
    ),
    "overhead comes on top": ({"containers": [box("1")], "overhead": {"cpu": "250m"}}, CPU + CPU // 4),
    "pod level requests replace the sum": (
        {"containers": [box("1")], "resources": {"requests": {"cpu": "6"}}},
        6 * CPU,
    ),
    "a limit is a request where none is given": (
        {"containers": [{"name": "c", "resources": {"limits": {"cpu": "2"}}}]},
        2 * CPU,
    ),
}


@pytest.mark.parametrize("sentence", CASES)
def test_requests(sentence: str) -> None:
    spec, expected = CASES[sentence]
    found = pod_requests(decode(Pod, {"metadata": {"name": "p"}, "spec": spec}))
    assert found["cpu"] == expected
    assert found["pods"] == ONE
