"""Beside kube-scheduler: no device goes to two claims, and no pod of a user is lost."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import pytest
import yaml

from tests.real.cluster import Cluster
from tests.real.conftest import StartCluster
from tests.real.objects import DRIVER, claim, device_class, pod, pod_with_device, slice_of, template

pytestmark = pytest.mark.slow

ROUNDS = int(os.environ.get("DRAGOMAN_TEST_ROUNDS", "3"))
"""Of 20 pods each, beside kube-scheduler without a fence."""
FENCE = Path(__file__).resolve().parents[2] / "deploy" / "fence.yaml"


@pytest.fixture
def beside(start: StartCluster) -> Cluster:
    """kube-scheduler and kube-controller-manager, a node with 20 devices."""
    cluster = start(scheduler="kube", controllers="kube")
    cluster.node("worker")
    cluster.apply(device_class(), slice_of("worker", devices=20), template("gpu"))
    cluster.until(lambda: cluster.find("Lease", "kube-scheduler", "kube-system"), "kube-scheduler to lead")
    return cluster


def fence(cluster: Cluster, *drivers: str, user: str) -> None:
    """deploy/fence.yaml with these drivers, until the API server enforces it."""
    documents = list(yaml.safe_load_all(FENCE.read_text()))
    settings = next(one for one in documents if one["kind"] == "ConfigMap")
    settings["data"] = {"drivers": ",".join(drivers), "users": user}
    cluster.apply(*documents, claim("probe"))
    [request] = cluster.get("ResourceClaim", "probe")["spec"]["devices"]["requests"]
    result = {"request": request["name"], "driver": drivers[0], "pool": "probe", "device": "probe"}
    body = json.dumps({"status": {"allocation": {"devices": {"results": [result]}}}})
    write = ("patch", "resourceclaim", "probe", "--subresource=status", "--type=merge", "-p", body, "--dry-run=server")
    somebody = ("--as=somebody", "--as-group=system:masters")

    def refuses() -> bool:
        done = cluster.kubectl(*somebody, *write, ok=None)
        return "dragoman-fence" in done.stdout + done.stderr

    cluster.until(refuses, "the fence to be enforced", 60)
    cluster.kubectl("delete", "resourceclaim", "probe")


def is_bound(cluster: Cluster, name: str) -> bool:
    return bool(cluster.get("Pod", name)["spec"].get("nodeName"))


def twice(cluster: Cluster) -> dict[tuple[str, str, str], list[str]]:
    return {device: holders for device, holders in cluster.held().items() if len(holders) > 1}


def test_the_start_is_refused_with_the_reason(beside: Cluster) -> None:
    ours = beside.dragoman("scheduler").start()
    assert ours.status == 2
    assert re.search(rf"error: another scheduler allocates devices .*kube-scheduler.*Lease.*{DRIVER}", ours.log())
    assert "--share-devices" in ours.log()


def test_a_scheduler_alone_starts(start: StartCluster) -> None:
    cluster = start(controllers="kube")
    cluster.node("worker")
    cluster.apply(device_class(), slice_of("worker", devices=1), *pod_with_device("train", scheduler="dragoman"))
    cluster.dragoman("scheduler").start()
    cluster.until(lambda: is_bound(cluster, "train"), "train to be bound")


@pytest.mark.parametrize("damage", ["", "audit", "condition", "other driver"])
def test_a_policy_is_a_fence_only_as_it_was_checked(beside: Cluster, damage: str) -> None:
    fence(beside, "other.example.com" if damage == "other driver" else DRIVER, user="admin")
    if damage == "audit":
        beside.kubectl(
            *("patch", "validatingadmissionpolicybinding", "dragoman-fence", "--type=merge"),
            *("-p", '{"spec":{"validationActions":["Audit"]}}'),
        )
    if damage == "condition":
        never = '{"spec":{"matchConditions":[{"name":"never","expression":"false"}]}}'
        beside.kubectl("patch", "validatingadmissionpolicy", "dragoman-fence", "--type=merge", "-p", never)
    ours = beside.dragoman("scheduler").start()
    if damage:
        assert ours.status == 2
        return
    claims = {"gpu": {"resourceClaimTemplateName": "gpu"}}
    pods = [pod(f"ours-{n}", claims=claims, scheduler="dragoman") for n in range(10)]
    theirs = [pod(f"theirs-{n}", claims=claims) for n in range(10)]
    shared = [claim("shared"), pod("first", claims={"gpu": {"resourceClaimName": "shared"}}, scheduler="dragoman")]
    beside.apply(*shared, *(one for pair in zip(pods, theirs, strict=True) for one in pair))
    beside.until(lambda: all(is_bound(beside, f"ours-{n}") for n in range(10)), "our pods to be bound")
    beside.until(lambda: is_bound(beside, "first"), "first to be bound")
    # A claim that is allocated may be used by pods of both.
    beside.apply(pod("second", claims={"gpu": {"resourceClaimName": "shared"}}))
    beside.until(lambda: is_bound(beside, "second"), "second to be bound")
    assert not twice(beside)
    assert not [name for holders in beside.held().values() for name in holders if name.startswith("default/theirs-")]
    assert all(not is_bound(beside, f"theirs-{n}") for n in range(10))


def test_devices_that_are_shared_go_to_one_claim_and_no_pod_is_lost(beside: Cluster) -> None:
    beside.dragoman("scheduler", "--share-devices").start()
    claims = {"gpu": {"resourceClaimTemplateName": "gpu"}}
    for number in range(ROUNDS):
        names = {f"{number}-{whose or 'kube'}-{n}": whose for n in range(10) for whose in ("dragoman", "")}
        beside.apply(*(pod(name, claims=claims, scheduler=whose) for name, whose in names.items()))
        beside.until(lambda names=names: all(is_bound(beside, name) for name in names), "all pods to be bound")
        # kube-scheduler forgets a device that had two claims for a moment when one of them is released, and may then
        # give it to two claims of its own: only a fence prevents that. No claim of ours may be among them.
        assert not [name for holders in twice(beside).values() for name in holders if "-dragoman-" in name]
        assert {one["metadata"]["name"] for one in beside.all("Pod")} == set(names)
        beside.kubectl("delete", "pod", "--all", "--force", "--grace-period=0")  # no kubelet ends them
        beside.until(lambda: not beside.held(), "the devices to be free")


def test_fenced_rounds_give_no_device_twice_and_lose_no_pod(start: StartCluster) -> None:
    """20 pods a round: ours on fenced devices, kube-scheduler's on others, five of them aimed at the fenced ones."""
    without = "--controllers=*,-node-lifecycle-controller,-taint-eviction-controller"
    cluster = start(scheduler="kube", controllers="kube", flags={"controllers": (without,)})
    cluster.node("fenced", taints=[{"key": "dragoman.dev/fence", "effect": "NoSchedule"}])
    cluster.node("free")
    other = "other.example.com"
    cluster.apply(device_class(), slice_of("fenced", devices=10), template("gpu"))
    cluster.apply(
        device_class(other, other), slice_of("free", devices=10, driver=other), template("other", class_name=other)
    )
    cluster.until(lambda: cluster.find("Lease", "kube-scheduler", "kube-system"), "kube-scheduler to lead")
    ours = cluster.dragoman("scheduler", "--devices", DRIVER).start()
    gpu, others = ({"gpu": {"resourceClaimTemplateName": name}} for name in ("gpu", "other"))
    tolerated = [{"key": "dragoman.dev/fence", "operator": "Exists"}]
    for number in range(ROUNDS):
        bound = [pod(f"{number}-ours-{n}", claims=gpu, scheduler="dragoman", tolerations=tolerated) for n in range(10)]
        bound += [pod(f"{number}-kube-{n}", claims=others) for n in range(5)]
        aimed = [pod(f"{number}-aimed-{n}", claims=gpu) for n in range(5)]
        mixed = [one for pair in zip(bound, [*aimed, *([None] * 10)], strict=True) for one in pair if one is not None]
        cluster.apply(*mixed)
        names = {one["metadata"]["name"] for one in bound}

        def placed(names: set[str] = names) -> bool:
            found = cluster.all("Pod", "default")
            return names <= {one["metadata"]["name"] for one in found if one["spec"].get("nodeName")}

        cluster.until(placed, "the pods of the round to be bound", 120)
        found = {one["metadata"]["name"]: one["spec"].get("nodeName") for one in cluster.all("Pod", "default")}
        assert set(found) == {one["metadata"]["name"] for one in mixed}, "a pod is lost"
        assert not [name for name, node in found.items() if "aimed" in name and node], "a fence was passed"
        assert not twice(cluster)
        cluster.kubectl("delete", "pod", "--all", "--force", "--grace-period=0", "--wait=false")
        cluster.until(lambda: not cluster.held() and not cluster.all("Pod", "default"), "the devices to be free", 60)
        print(f"round {number + 1} of {ROUNDS}", flush=True)
    assert "two holders" not in ours.log()
