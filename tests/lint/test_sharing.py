"""Sharing, what is advertised twice, rollouts and kinds: what people believe of their devices, beside what they get."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from dragoman.api import files
from dragoman.drivers.registry import known_drivers
from dragoman.lint import report
from dragoman.lint.finding import Finding
from dragoman.lint.kinds import not_judged
from dragoman.lint.linter import LintTarget, lint
from dragoman.testing.build import claim, device, device_class, manifest, node, pod, pool, request, template

OVEN = "oven.kiln.example"
PROVOKED = {
    "AskedForTwice",
    "MixedClass",
    "OnePodPerNode",
    "OverClaimLimit",
    "SharedResourceName",
    "SharesNothing",
    "TakesWholeDevice",
    "TaintRuleMatchesNothing",
    "TwoSchedulers",
    "UnknownKind",
    "UnknownScheduler",
}
"""Codes that this file is about."""


def run(*objects: dict[str, Any], background: list[dict[str, Any]] | None = None) -> list[Finding]:
    behind = files.scan([("dump.yaml", yaml.safe_dump_all(background or []))]).documents
    found = lint(files.scan([("f.yaml", yaml.safe_dump_all(objects))]), LintTarget(known=known_drivers()), behind)
    return [finding for finding in found if finding.code not in ("UnusedClaim",)]


def codes(*objects: dict[str, Any]) -> list[tuple[str, str]]:
    return [(finding.code, finding.subject) for finding in run(*objects)]


def only(*objects: dict[str, Any]) -> Finding:
    (finding,) = run(*objects)
    return finding


def ovens(count: int, where: str = "shed-1", **attributes: Any) -> dict[str, Any]:
    made = [device(f"oven-{i}", slot=i, **attributes) for i in range(count)]
    return pool(where, made, node=where, driver=OVEN)


CLASS = device_class("oven", driver=OVEN)
ONE = request(device_class="oven")


def with_resources(name: str, labels: dict[str, str] | None = None, **resources: str) -> dict[str, Any]:
    status = {"allocatable": {"cpu": "8", **{key.replace("__", "/"): value for key, value in resources.items()}}}
    return manifest("Node", name, metadata={"labels": labels or {}}, status=status)


def workload(kind: str, resource: str = "", each: int = 1, **spec: Any) -> dict[str, Any]:
    container: dict[str, Any] = {"name": "c", "image": "i"}
    body: dict[str, Any] = {"containers": [container]}
    if resource:
        container["resources"] = {"limits": {resource: str(each)}}
    else:
        container["resources"] = {"claims": [{"name": "g"}]}
        body["resourceClaims"] = [{"name": "g", "resourceClaimTemplateName": "t"}]
    if kind == "Job":
        body["restartPolicy"] = "Never"
    made = {"template": {"metadata": {"labels": {"a": "b"}}, "spec": body}, **spec}
    if kind != "Job":
        made["selector"] = {"matchLabels": {"a": "b"}}
    return manifest(kind, "bakery", spec=made)


# ---- the same hardware twice


@pytest.mark.parametrize(
    ("driver", "resource", "amount", "labels", "twice"),
    [
        ("gpu.amd.com", "amd.com/gpu", "3", {}, True),
        ("gpu.intel.com", "gpu.intel.com/i915", "9", {}, True),
        ("cards.kiln.example", "kiln.example/fpga", "3", {}, True),  # one vendor, as many
        ("cards.kiln.example", "kiln.example/fpga", "5", {}, False),
        ("card.kiln.example", "oven.example/card", "3", {}, False),
        ("gpu.amd.com", "amd.com/gpu", "0", {}, False),
        ("d.kiln.example", "other.example/x", "3", {"other.example/product": "Big-Oven-9"}, True),
        ("d.kiln.example", "other.example/x", "2", {"other.example/product": "Big-Oven-9"}, False),
        ("d.kiln.example", "other.example/x", "3", {"third.example/product": "Big-Oven-9"}, False),
    ],
)
def test_any_vendors_devices_advertised_twice(
    driver: str, resource: str, amount: str, labels: dict[str, str], twice: bool
) -> None:
    devices = pool("shed-1", [device(f"x-{i}", model="big oven 9") for i in range(3)], node="shed-1", driver=driver)
    machine = with_resources("shed-1", labels) | {"status": {"allocatable": {"cpu": "8", resource: amount}}}
    found = run(devices, machine)
    assert [f.code for f in found] == (["AdvertisedTwice"] if twice else [])
    if twice:
        assert f"{driver} publishes 3 devices" in found[0].message
        assert f"{amount} {resource}" in found[0].message


# ---- rollouts


def test_the_usual_deployment_on_the_only_gpu() -> None:
    finding = only(with_resources("spot", kiln__oven="1"), workload("Deployment", "kiln/oven", replicas=1))
    assert (finding.code, finding.field) == ("RolloutStuck", "spec.strategy")
    assert "needs 2 kiln/oven, there is 1" in finding.message
    assert "maxSurge to 0 and maxUnavailable to 1" in finding.fix
    assert "remove" not in finding.fix


@pytest.mark.parametrize(
    "strategy",
    [
        {"type": "Recreate"},
        {"rollingUpdate": {"maxSurge": 0, "maxUnavailable": 1}},
        {"rollingUpdate": {"maxSurge": 1, "maxUnavailable": "60%"}},
    ],
)
def test_strategies_that_need_no_spare_device(strategy: dict[str, Any]) -> None:
    assert (
        codes(
            with_resources("spot", kiln__oven="2"), workload("Deployment", "kiln/oven", replicas=2, strategy=strategy)
        )
        == []
    )


def test_resources_that_a_class_serves_count_as_its_devices() -> None:
    served = device_class("oven", driver=OVEN, extended="kiln.example/oven")
    stuck = [ovens(3), served, workload("Deployment", "kiln.example/oven", replicas=3)]
    assert codes(*stuck) == [("RolloutStuck", "Deployment default/bakery")]
    implicit = [ovens(3), CLASS, workload("Deployment", "deviceclass.resource.kubernetes.io/oven", replicas=3)]
    assert codes(*implicit) == [("RolloutStuck", "Deployment default/bakery")]
    assert codes(ovens(4), served, workload("Deployment", "kiln.example/oven", replicas=3)) == []


def test_no_pod_takes_from_two_nodes() -> None:
    nodes = [with_resources(f"n-{i}", kiln__oven="3") for i in range(2)]
    finding = only(*nodes, workload("Deployment", "kiln/oven", 2, replicas=3))
    assert finding.code == "MoreThanExist"
    assert "6 exist" in finding.message
    assert "no more than 2 pods" in finding.message


def test_init_containers_take_turns() -> None:
    made = workload("StatefulSet", "kiln/oven", 1, replicas=2, serviceName="s")
    spec = made["spec"]["template"]["spec"]
    spec["initContainers"] = [{"name": "w", "image": "i", "resources": {"limits": {"kiln/oven": "2"}}}]
    finding = only(with_resources("spot", kiln__oven="3"), made)
    assert finding.code == "MoreThanExist"
    assert "of 2 kiln/oven" in finding.message
    assert "never created" in finding.message  # in order


def test_daemons_with_a_surge() -> None:
    strategy = {"rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}}
    daemons = workload("DaemonSet", "kiln/oven", updateStrategy=strategy)
    finding = only(with_resources("n-1", kiln__oven="2"), with_resources("n-2", kiln__oven="1"), daemons)
    assert finding.code == "RolloutStuck"
    assert "n-2 has 1" in finding.message
    assert codes(with_resources("n-2", kiln__oven="1"), workload("DaemonSet", "kiln/oven")) == []


def test_a_job_is_counted_by_what_runs_at_once() -> None:
    few = with_resources("spot", kiln__oven="2")
    assert codes(few, workload("Job", "kiln/oven", parallelism=3)) == [("MoreThanExist", "Job default/bakery")]
    assert codes(few, workload("Job", "kiln/oven", parallelism=3, completions=2)) == []


# ---- sharing


def sliced(strategy: str = "TimeSlicing") -> dict[str, Any]:
    made = template("t", ONE)
    parameters = {"apiVersion": "kiln.example/v1", "kind": "OvenConfig", "sharing": {"strategy": strategy}}
    made["spec"]["spec"]["devices"]["config"] = [{"opaque": {"driver": OVEN, "parameters": parameters}}]
    return made


@pytest.mark.parametrize("strategy", ["TimeSlicing", "MPS"])
def test_a_sharing_strategy_in_a_template(strategy: str) -> None:
    finding = only(CLASS, ovens(2), sliced(strategy), pod("p", templates=["t"]))
    assert finding.code == "SharesNothing"
    assert finding.field.endswith("sharing.strategy")
    assert "resourceClaimName" in finding.fix


def test_containers_of_one_pod_do_share_it() -> None:
    both = pod("p", templates=["t"])
    first = both["spec"]["containers"][0]
    both["spec"]["containers"] = [first, {**first, "name": "second"}]
    assert codes(CLASS, ovens(2), sliced(), both) == []
    assert codes(CLASS, ovens(2), sliced()) == []


def shareable(policy: dict[str, Any] | None) -> dict[str, Any]:
    amount = {"value": "40Gi", **({"requestPolicy": policy} if policy else {})}
    return pool(
        "shed-1",
        [{"name": "o", "allowMultipleAllocations": True, "capacity": {"heat": amount}}],
        node="shed-1",
        driver=OVEN,
    )


def test_no_amount_takes_the_whole_device() -> None:
    finding = only(CLASS, shareable(None), claim("c", ONE))
    assert (finding.code, finding.fix) == ("TakesWholeDevice", "set capacity.requests")
    assert "heat" in finding.message
    assert codes(CLASS, shareable({"default": "1Gi"}), claim("c", ONE)) == []
    asking = request(device_class="oven", capacity={"requests": {"heat": "2Gi"}})
    assert codes(CLASS, shareable(None), claim("c", asking)) == []


def test_a_class_that_hands_out_parts() -> None:
    parts = pool(
        "shed-1",
        [device("a", type="whole"), device("b", type="half"), device("c", type="half")],
        node="shed-1",
        driver=OVEN,
    )
    finding = only(parts, CLASS)
    assert finding.code == "MixedClass"
    assert "2 of half, 1 of whole" in finding.message
    select = f"device.attributes['{OVEN}'].type == 'whole'"
    assert codes(parts, CLASS, claim("c", request(device_class="oven", select=select))) == []
    assert [code for code, _ in codes(parts, CLASS, claim("c", ONE))] == ["MixedClass"]
    selecting = device_class("oven", driver=OVEN)
    selecting["spec"]["selectors"].append({"cel": {"expression": select}})
    assert codes(parts, selecting) == []


def test_two_classes_for_one_resource() -> None:
    old = device_class("b-old", driver=OVEN, extended="kiln.example/oven")
    new = device_class("c-new", driver=OVEN, extended="kiln.example/oven")
    old["metadata"]["creationTimestamp"] = "2026-01-01T00:00:00Z"
    new["metadata"]["creationTimestamp"] = "2026-02-01T00:00:00Z"
    finding = only(old, new)
    assert (finding.code, finding.subject) == ("SharedResourceName", "DeviceClass b-old")
    assert "devices of c-new, which is newer" in finding.message
    del new["metadata"]["creationTimestamp"], old["metadata"]["creationTimestamp"]
    finding = only(old, new)
    assert finding.subject == "DeviceClass c-new"
    assert "devices of b-old, whose name comes first" in finding.message


def test_one_exclusive_device_asked_for_by_two_pods() -> None:
    second = request(device_class="oven", select=f"device.attributes['{OVEN}'].slot == 1")
    found = run(CLASS, ovens(3), template("t", second), pod("p", templates=["t"]), pod("q", templates=["t"]))
    assert [(f.code, f.subject) for f in found] == [
        ("AskedForTwice", "Pod default/p"),
        ("AskedForTwice", "Pod default/q"),
    ]
    assert "2 pods (Pod default/q)" in found[0].message
    assert codes(CLASS, ovens(3), claim("c", second), pod("p", "c"), pod("q", "c")) == []
    any_of_two = request(device_class="oven", select=f"device.attributes['{OVEN}'].slot > 0")
    pods = [pod("p", templates=["t"]), pod("q", templates=["t"])]
    assert codes(CLASS, ovens(3), template("t", any_of_two), *pods) == []


def domain(name: str, pods: int) -> list[dict[str, Any]]:
    made = {
        "apiVersion": "resource.nvidia.com/v1beta1",
        "kind": "ComputeDomain",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"numNodes": 0, "channel": {"resourceClaimTemplate": {"name": "t"}}},
    }
    job = workload("Job", parallelism=pods)
    terms = [{"topologyKey": "nvidia.com/gpu.clique", "labelSelector": {"matchLabels": {"a": "b"}}}]
    affinity = {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}
    job["spec"]["template"]["spec"]["affinity"] = affinity
    return [made, job]


def test_a_channel_caps_a_domain_at_one_pod_a_node() -> None:
    finding = only(node("tray-1"), node("tray-2"), node("tray-3"), *domain("fabric", 4))
    assert finding.code == "OnePodPerNode"
    assert "4 pods with a channel of ComputeDomain fabric each, and 3 nodes" in finding.message
    assert codes(*(node(f"tray-{i}") for i in range(4)), *domain("fabric", 4)) == []
    assert codes(*domain("fabric", 4)) == []


@pytest.mark.parametrize(("counts", "over"), [((33,), 33), ((20, 13), 33), ((32,), 0), ((10**18,), 10**18)])
def test_more_than_a_claim_can_hold(counts: tuple[int, ...], over: int) -> None:
    asked = [request(f"r{i}", device_class="oven", count=count) for i, count in enumerate(counts)]
    found = run(CLASS, claim("c", *asked))
    assert [f.code for f in found] == (["OverClaimLimit"] if over else [])
    assert not found or f"asks for {over} devices" in found[0].message


# ---- taint rules, kinds


def rule(**selector: str) -> dict[str, Any]:
    taint = {"key": "kiln.example/hot", "effect": "NoSchedule"}
    return manifest("DeviceTaintRule", "hot", spec={"deviceSelector": selector, "taint": taint})


@pytest.mark.parametrize(
    ("selector", "field", "near"),
    [
        ({"driver": "oven.klin.example"}, "driver", OVEN),
        ({"driver": OVEN, "pool": "shed1"}, "pool", "shed-1"),
        ({"driver": OVEN, "pool": "shed-1", "device": "oven2"}, "device", "oven-2"),
    ],
)
def test_a_taint_rule_that_nearly_matches(selector: dict[str, str], field: str, near: str) -> None:
    finding = only(ovens(3), rule(**selector))
    assert (finding.code, finding.field) == ("TaintRuleMatchesNothing", f"spec.deviceSelector.{field}")
    assert finding.fix == f"write {near}"


def test_a_taint_rule_that_matches_or_is_for_another_cluster() -> None:
    assert codes(ovens(3), rule(driver=OVEN, device="oven-1")) == []
    assert codes(ovens(3), rule(driver="quite.different.example")) == []
    assert codes(rule(driver=OVEN)) == []
    (finding,) = run(rule(driver="quite.different.example"), background=[ovens(3)])
    assert finding.code == "TaintRuleMatchesNothing"


@pytest.mark.parametrize(
    ("version", "kind", "fix"),
    [
        ("resource.nvidia.com/v1beta1", "ComputeDomian", "write ComputeDomain"),
        ("resource.nvidea.com/v1beta1", "ComputeDomain", "ComputeDomain is in resource.nvidia.com"),
        ("apps/v1", "Deploymant", "write Deployment"),
        ("apps/v1", "Job", "write batch/v1"),
        ("resource.k8s.io/v1", "Wardrobe", "correct kind or apiVersion"),
    ],
)
def test_unknown_kinds_and_what_was_meant(version: str, kind: str, fix: str) -> None:
    finding = only({"apiVersion": version, "kind": kind, "metadata": {"name": "x"}})
    assert finding.code == "UnknownKind"
    assert fix in finding.fix


def test_kinds_of_others_and_defined_ones_are_no_fault() -> None:
    queue = {"apiVersion": "scheduling.run.ai/v2", "kind": "Queue", "metadata": {"name": "q"}}
    assert run(queue) == []
    oven = {"apiVersion": "kiln.example/v1", "kind": "Ovan", "metadata": {"name": "o"}}
    names = {"plural": "ovens", "singular": "oven", "kind": "Oven"}
    version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": {"type": "object"}}}
    spec = {"group": "kiln.example", "scope": "Namespaced", "names": names, "versions": [version]}
    definition = {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "ovens.kiln.example"},
        "spec": spec,
    }
    finding = only(definition, oven)
    assert (finding.code, finding.fix) == ("UnknownKind", "write Oven")
    assert run(definition, {**oven, "kind": "Oven"}) == []


def test_windows_line_ends_change_nothing() -> None:
    text = yaml.safe_dump_all([ovens(3), rule(driver=OVEN, device="oven2")])
    for changed in (text, text.replace("\n", "\r\n"), "\ufeff" + text):
        (finding,) = lint(files.scan([("f.yaml", changed)]), LintTarget(known=known_drivers()))
        assert finding.code == "TaintRuleMatchesNothing"


def test_every_yaml_boolean_of_an_object_is_named() -> None:
    text = (
        "apiVersion: v1\nkind: Pod\nmetadata:\n  name: p\n  labels: {hot: yes, cold: no, on: y, kept: ok}\n"
        "spec: {nodeSelector: {oven: off}, containers: [{name: n, image: i}]}\n"
    )
    found = lint(files.scan([("f.yaml", text)]), LintTarget(known=known_drivers()))
    assert {f.field for f in found if f.code == "YamlBoolean"} >= {
        "metadata.labels[hot]",
        "metadata.labels[cold]",
        "spec.nodeSelector[oven]",
        "spec.containers[0].name",
    }


def test_kinds_that_nobody_judges_are_counted_by_name() -> None:
    others = [{"apiVersion": "kiln.example/v1", "kind": "Glaze", "metadata": {"name": name}} for name in ("a", "b")] + [
        {"apiVersion": "cart.example/v2", "kind": "Cart", "metadata": {"name": "c"}}
    ]
    documents = files.scan([("f.yaml", yaml.safe_dump_all([*others, CLASS]))]).documents
    counts = not_judged(documents)
    assert counts == {"Glaze (kiln.example)": 2, "Cart (cart.example)": 1}
    assert report.summary([], 4, counts).endswith(
        "not judged, kinds of others: 1 Cart (cart.example), 2 Glaze (kiln.example)"
    )
    assert report.to_json([], counts)["notJudged"] == counts
