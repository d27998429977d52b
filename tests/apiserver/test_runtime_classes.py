"""What a RuntimeClass adds to new pods, and which pods it refuses."""

from __future__ import annotations

from typing import Any

import pytest

from dragoman.api.kinds import BY_NAME
from dragoman.apiserver.registry import Registry
from dragoman.apiserver.status import StatusError

POD, CLASS = BY_NAME["Pod"], BY_NAME["RuntimeClass"]
TOLERATION = {"key": "sandbox", "operator": "Exists"}


def made(registry: Registry, **spec: Any) -> dict[str, Any]:
    spec = {"containers": [{"name": "c", "image": "i"}], **spec}
    outcome = registry.create(POD, {"metadata": {"name": "p"}, "spec": spec}, "default")
    return registry.get(POD, "p", "default").decode()["spec"] if outcome else {}


@pytest.fixture
def classes(registry: Registry) -> Registry:
    body = {
        "metadata": {"name": "kata"},
        "handler": "kata",
        "overhead": {"podFixed": {"cpu": "250m", "memory": "64Mi"}},
        "scheduling": {"nodeSelector": {"kata": "yes"}, "tolerations": [TOLERATION]},
    }
    registry.create(CLASS, body)
    return registry


def test_a_pod_gets_overhead_selector_and_tolerations(classes: Registry) -> None:
    spec = made(classes, runtimeClassName="kata", nodeSelector={"zone": "a"})
    assert spec["overhead"] == {"cpu": "250m", "memory": "64Mi"}
    assert spec["nodeSelector"] == {"zone": "a", "kata": "yes"}
    assert TOLERATION in spec["tolerations"]


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "an unknown class": ({"runtimeClassName": "gvisor"}, 'RuntimeClass "gvisor" not found'),
    "another overhead": ({"runtimeClassName": "kata", "overhead": {"cpu": "1"}}, "doesn't match RuntimeClass's"),
    "overhead without a class": ({"overhead": {"cpu": "1"}}, "without corresponding RuntimeClass"),
    "another node": ({"runtimeClassName": "kata", "nodeSelector": {"kata": "no"}}, "conflict"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refusals(classes: Registry, name: str) -> None:
    spec, text = REFUSED[name]
    with pytest.raises(StatusError, match="pod rejected") as refused:
        made(classes, **spec)
    assert refused.value.code == 403
    assert text in str(refused.value)
