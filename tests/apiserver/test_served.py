"""Which kinds and versions does a server offer, by Kubernetes version, gates and --runtime-config?"""

from __future__ import annotations

import pytest

from dragoman.api.gates import gates_with
from dragoman.api.kinds import BY_NAME
from dragoman.apiserver.served import Served, parse_runtime_config
from dragoman.errors import Invalid

CLAIM = BY_NAME["ResourceClaim"]


@pytest.mark.parametrize(
    ("minor", "config", "versions"),
    [
        (37, "", ("v1",)),
        (37, "resource.k8s.io/v1beta2=true", ("v1", "v1beta2")),
        (37, "api/beta=true", ("v1", "v1beta2", "v1beta1")),
        (37, "api/all=true,resource.k8s.io/v1beta1=false", ("v1", "v1beta2")),
        (37, "resource.k8s.io/v1=false", ()),
        (37, "resource.k8s.io/v1/resourceclaims=false", ()),
        (34, "", ("v1",)),
        (33, "", ()),
        (33, "resource.k8s.io/v1beta1=true,resource.k8s.io/v1beta2=true", ("v1beta2", "v1beta1")),
        (32, "api/all", ("v1beta1",)),
    ],
)
def test_versions_of_claims(minor: int, config: str, versions: tuple[str, ...]) -> None:
    served = Served(minor=minor, runtime_config=parse_runtime_config(config))
    assert served.versions(CLAIM) == versions
    assert served.groups().get("resource.k8s.io", ())[: len(versions)] == versions or not versions
    assert (served.find("resource.k8s.io", "v1", "resourceclaims") is CLAIM) is ("v1" in versions)


def test_a_group_whose_gate_is_off_is_not_there() -> None:
    beta = {"scheduling.k8s.io/v1beta1": True}
    assert Served(runtime_config=beta).find("scheduling.k8s.io", "v1beta1", "podgroups") is None
    gates, _ = gates_with({"GenericWorkload": True})
    assert Served(runtime_config=beta, gates=gates).find("scheduling.k8s.io", "v1beta1", "podgroups")
    assert Served(gates=gates).find("scheduling.k8s.io", "v1beta1", "podgroups") is None


@pytest.mark.parametrize("text", ["resource.k8s.io", "a/b", "a/v1/b/c", "api/most=true", "apps/v1=yes"])
def test_what_is_no_runtime_config_is_refused(text: str) -> None:
    with pytest.raises(Invalid, match="runtime-config"):
        parse_runtime_config(text)


def test_groups_are_in_the_order_of_kube_apiserver_and_versions_newest_first() -> None:
    groups = Served(everything=True).groups()
    order = list(groups)
    assert order[0] == ""
    assert order.index("apps") < order.index("events.k8s.io") < order.index("batch") < order.index("resource.k8s.io")
    assert groups["autoscaling"] == ("v2", "v1")
    assert groups["admissionregistration.k8s.io"] == ("v1", "v1beta1", "v1alpha1")
