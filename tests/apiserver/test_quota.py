"""ResourceQuota and LimitRange at the API server: what is refused, in which words, and what is charged when."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from dragoman.api.kinds import BY_NAME
from dragoman.apiserver.bootstrap import in_memory
from dragoman.apiserver.registry import Registry
from dragoman.apiserver.request import Write
from dragoman.apiserver.status import StatusError
from dragoman.runtime.clock import Clock
from dragoman.runtime.entropy import Entropy
from dragoman.testing import build
from dragoman.testing.build import request

KIND = BY_NAME
pod, claim = partial(build.pod, namespace="team"), partial(build.claim, namespace="team")


@pytest.fixture
def registry() -> Registry:
    made = in_memory(Clock(), Entropy())
    made.create(KIND["Namespace"], {"metadata": {"name": "team"}})
    return made


def quota(registry: Registry, hard: dict[str, str], name: str = "q", **spec: Any) -> None:
    registry.create(KIND["ResourceQuota"], {"metadata": {"name": name}, "spec": {"hard": hard, **spec}}, "team")


def refusal(registry: Registry, kind: str, body: dict[str, Any]) -> str:
    with pytest.raises(StatusError) as refused:
        registry.create(KIND[kind], body, "team")
    assert refused.value.code == 403
    return refused.value.message


def test_a_new_quota_holds_from_its_first_moment_and_a_deletion_frees(registry: Registry) -> None:
    registry.create(KIND["Pod"], pod("a"), "team")
    quota(registry, {"pods": "2"})
    registry.create(KIND["Pod"], pod("b"), "team")
    assert refusal(registry, "Pod", pod("c")) == (
        'pods "c" is forbidden: exceeded quota: q, requested: pods=1, used: pods=2, limited: pods=2'
    )
    registry.delete(KIND["Pod"], "a", "team")
    registry.create(KIND["Pod"], pod("c"), "team")


def test_compute_is_summed_and_must_be_stated(registry: Registry) -> None:
    quota(registry, {"requests.cpu": "1", "limits.memory": "1Gi"})
    assert refusal(registry, "Pod", pod("silent")) == (
        'pods "silent" is forbidden: failed quota: q: must specify limits.memory for: main; requests.cpu for: main'
    )
    registry.create(KIND["Pod"], pod("a", extended={"cpu": "700m", "memory": "512Mi"}), "team")
    assert refusal(registry, "Pod", pod("b", extended={"cpu": "400m", "memory": "1Gi"})) == (
        'pods "b" is forbidden: exceeded quota: q, requested: limits.memory=1Gi,requests.cpu=400m, '
        "used: limits.memory=512Mi,requests.cpu=700m, limited: limits.memory=1Gi,requests.cpu=1"
    )


def test_devices_count_per_class_with_the_most_of_the_alternatives(registry: Registry) -> None:
    quota(registry, {"gpu.deviceclass.resource.k8s.io/devices": "5", "old.deviceclass.resource.k8s.io/devices": "2"})
    alternatives = [
        {"name": "x", "deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 4},
        {"name": "y", "deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 1},
        {"name": "z", "deviceClassName": "old", "allocationMode": "ExactCount", "count": 2},
    ]
    registry.create(KIND["ResourceClaim"], claim("a", {"name": "r0", "firstAvailable": alternatives}), "team")
    assert refusal(registry, "ResourceClaim", claim("b", request("r0", "gpu", count=2))) == (
        'resourceclaims.resource.k8s.io "b" is forbidden: exceeded quota: q, '
        "requested: gpu.deviceclass.resource.k8s.io/devices=2, used: gpu.deviceclass.resource.k8s.io/devices=4, "
        "limited: gpu.deviceclass.resource.k8s.io/devices=5"
    )
    every = request("r0", "gpu", allocationMode="All")
    assert "requested: gpu.deviceclass.resource.k8s.io/devices=32" in refusal(
        registry, "ResourceClaim", claim("c", every)
    )
    registry.create(KIND["ResourceClaim"], claim("d", request("r0", "gpu")), "team")
    assert "old.deviceclass" in refusal(registry, "ResourceClaim", claim("e", request("r0", "old")))


def test_admin_access_is_charged(registry: Registry) -> None:
    label = {"resource.kubernetes.io/admin-access": "true"}
    registry.patch(KIND["Namespace"], "team", {"metadata": {"labels": label}})
    quota(registry, {"gpu.deviceclass.resource.k8s.io/devices": "1"})
    registry.create(KIND["ResourceClaim"], claim("a", request("r0", "gpu", adminAccess=True)), "team")
    assert "used: gpu.deviceclass.resource.k8s.io/devices=1" in refusal(
        registry, "ResourceClaim", claim("b", request("r0", "gpu", adminAccess=True))
    )


def test_extended_resources_and_claims_share_one_budget(registry: Registry) -> None:
    registry.create(
        KIND["DeviceClass"], {"metadata": {"name": "gpu"}, "spec": {"extendedResourceName": "example.com/gpu"}}
    )
    quota(registry, {"requests.example.com/gpu": "3"})
    registry.create(KIND["Pod"], pod("a", extended={"example.com/gpu": "2"}), "team")
    registry.create(KIND["ResourceClaim"], claim("c", request("r0", "gpu")), "team")
    for kind, body in (
        ("ResourceClaim", claim("d", request("r0", "gpu"))),
        ("Pod", pod("b", extended={"example.com/gpu": "1"})),
    ):
        assert "requested: requests.example.com/gpu=1, used: requests.example.com/gpu=3" in refusal(
            registry, kind, body
        )


def test_the_special_claim_of_a_pod_is_not_charged_twice(registry: Registry) -> None:
    registry.create(
        KIND["DeviceClass"], {"metadata": {"name": "gpu"}, "spec": {"extendedResourceName": "example.com/gpu"}}
    )
    quota(registry, {"requests.example.com/gpu": "2"})
    made = registry.create(KIND["Pod"], pod("a", extended={"example.com/gpu": "2"}), "team")
    uid = registry.get(KIND["Pod"], "a", "team").uid
    assert made.created
    special = claim("s", request("r0", "gpu", count=2))
    special["metadata"] |= {
        "annotations": {"resource.kubernetes.io/extended-resource-claim": "true"},
        "ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "a", "uid": uid, "controller": True}],
    }
    registry.create(KIND["ResourceClaim"], special, "team")
    again = {**special, "metadata": {**special["metadata"], "name": "t"}}
    assert "exceeded quota" in refusal(registry, "ResourceClaim", again)


def test_counts_of_any_kind_and_scopes(registry: Registry) -> None:
    quota(registry, {"count/resourceclaimtemplates.resource.k8s.io": "0", "configmaps": "2"})
    assert "count/resourceclaimtemplates.resource.k8s.io=0" in refusal(
        registry, "ResourceClaimTemplate", {"metadata": {"name": "t"}, "spec": {"spec": {"devices": {}}}}
    )
    registry.create(KIND["ConfigMap"], {"metadata": {"name": "x"}}, "team")
    assert "used: configmaps=2" in refusal(registry, "ConfigMap", {"metadata": {"name": "y"}})
    quota(registry, {"pods": "0"}, "deadlines", scopes=["Terminating"])
    registry.create(KIND["Pod"], pod("forever"), "team")
    assert "exceeded quota: deadlines" in refusal(registry, "Pod", pod("short", activeDeadlineSeconds=9))


def test_a_pod_that_has_ended_uses_nothing_but_its_name(registry: Registry) -> None:
    quota(registry, {"pods": "1", "count/pods": "2"})
    registry.create(KIND["Pod"], pod("a"), "team")
    registry.patch(KIND["Pod"], "a", {"status": {"phase": "Succeeded"}}, "team", subresource="status")
    registry.create(KIND["Pod"], pod("b"), "team")
    assert "requested: count/pods=1,pods=1" in refusal(registry, "Pod", pod("c"))


def test_a_dry_run_is_judged_and_not_charged(registry: Registry) -> None:
    quota(registry, {"pods": "1"})
    for name in ("a", "b"):
        registry.create(KIND["Pod"], pod(name), "team", Write(dry_run=True))
    registry.create(KIND["Pod"], pod("c"), "team")


def test_a_claim_that_grows_is_charged_the_difference(registry: Registry) -> None:
    quota(registry, {"services.nodeports": "2"})
    spec = {"type": "NodePort", "ports": [{"port": 80}]}
    registry.create(KIND["Service"], {"metadata": {"name": "s"}, "spec": spec}, "team")
    more = [{"port": port, "name": f"p{port}"} for port in (80, 81)]
    registry.patch(KIND["Service"], "s", {"spec": {"ports": more}}, "team")
    with pytest.raises(StatusError, match=r"requested: services\.nodeports=1, used: services\.nodeports=2"):
        registry.patch(KIND["Service"], "s", {"spec": {"ports": [*more, {"port": 82, "name": "p82"}]}}, "team")


def limits(registry: Registry, *items: dict[str, Any]) -> None:
    registry.create(KIND["LimitRange"], {"metadata": {"name": "l"}, "spec": {"limits": list(items)}}, "team")


def test_limit_range_defaults_reach_the_quota(registry: Registry) -> None:
    limits(registry, {"type": "Container", "default": {"cpu": "500m"}, "defaultRequest": {"cpu": "250m"}})
    quota(registry, {"requests.cpu": "400m"})
    registry.create(KIND["Pod"], pod("a"), "team")
    made = registry.get(KIND["Pod"], "a", "team").decode()
    assert made["spec"]["containers"][0]["resources"] == {"requests": {"cpu": "250m"}, "limits": {"cpu": "500m"}}
    assert made["metadata"]["annotations"]["kubernetes.io/limit-ranger"] == (
        "LimitRanger plugin set: cpu request for container main; cpu limit for container main"
    )
    assert "requested: requests.cpu=250m, used: requests.cpu=250m" in refusal(registry, "Pod", pod("b"))


def test_limit_range_limits(registry: Registry) -> None:
    limits(
        registry,
        {"type": "Container", "max": {"memory": "1Gi"}, "maxLimitRequestRatio": {"memory": "2"}},
        {"type": "Pod", "min": {"memory": "64Mi"}},
    )
    assert refusal(registry, "Pod", pod("big", extended={"memory": "2Gi"})) == (
        'pods "big" is forbidden: maximum memory usage per Container is 1Gi, but limit is 2Gi'
    )
    assert "minimum memory usage per Pod is 64Mi, but request is 1Mi" in refusal(
        registry, "Pod", pod("small", extended={"memory": "1Mi"})
    )
    loose = pod("loose", extended={"memory": "1Gi"})
    loose["spec"]["containers"][0]["resources"]["requests"] = {"memory": "256Mi"}
    assert "memory max limit to request ratio per Container is 2, but provided ratio is 4.000000" in refusal(
        registry, "Pod", loose
    )
