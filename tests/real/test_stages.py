"""Into a cluster of kube-scheduler by stages, and back at each: no pod loses its node, no claim its devices."""

from __future__ import annotations

import pytest

from tests.real.cluster import Cluster
from tests.real.conftest import StartCluster
from tests.real.objects import Object, device_class, pod, slice_of, template
from tests.real.process import Process

pytestmark = pytest.mark.slow

OURS, THEIRS = "ours.example.com", "theirs.example.com"
FENCE = {"key": "dragoman.dev/fence", "value": "", "effect": "NoSchedule"}
TOLERATED = {"key": "dragoman.dev/fence", "operator": "Exists"}


@pytest.fixture
def cluster(start: StartCluster) -> Cluster:
    without = "--controllers=*,-node-lifecycle-controller,-taint-eviction-controller"
    made = start(scheduler="kube", controllers="kube", flags={"controllers": (without,)})
    made.node("old", labels={"stage": "old"})
    made.node("new", labels={"stage": "dragoman"}, taints=[FENCE])
    for driver, node in ((OURS, "new"), (THEIRS, "old"), (THEIRS, "new")):
        made.apply(slice_of(node, devices=6, driver=driver))
    for driver in (OURS, THEIRS):
        made.apply(device_class(driver, driver), template(driver, class_name=driver))
    made.until(lambda: made.find("Lease", "kube-scheduler", "kube-system"), "kube-scheduler to lead")
    return made


def train(name: str, driver: str, scheduler: str = "") -> Object:
    claims = {"gpu": {"resourceClaimTemplateName": driver}}
    more = {"tolerations": [TOLERATED]} if scheduler == "dragoman" else {}
    return pod(name, claims=claims, scheduler=scheduler, **more)


def node_of(cluster: Cluster, name: str) -> str:
    found: str = cluster.get("Pod", name)["spec"].get("nodeName", "")
    return found


def bound(cluster: Cluster, *pods: Object) -> list[str]:
    """Create pods and wait for their nodes."""
    cluster.apply(*pods)
    names = [one["metadata"]["name"] for one in pods]
    cluster.until(lambda: all(node_of(cluster, name) for name in names), f"{', '.join(names)} to be bound", 60)
    return [node_of(cluster, name) for name in names]


def held(cluster: Cluster) -> dict[str, tuple[str, str, list[str]]]:
    """Pod to its uid, node and devices: what no stage may change."""
    claims = {claim["metadata"]["ownerReferences"][0]["name"]: claim for claim in cluster.all("ResourceClaim")}
    found = {}
    for one in cluster.all("Pod", "default"):
        name = one["metadata"]["name"]
        allocation = (claims.get(name, {}).get("status") or {}).get("allocation") or {"devices": {"results": []}}
        devices = sorted(f"{r['driver']}/{r['pool']}/{r['device']}" for r in allocation["devices"]["results"])
        if one["spec"].get("nodeName"):
            found[name] = (one["metadata"]["uid"], one["spec"]["nodeName"], devices)
    return found


def check(cluster: Cluster, before: dict[str, tuple[str, str, list[str]]]) -> dict[str, tuple[str, str, list[str]]]:
    """Everything that was there is there unchanged, and no device has two claims."""
    now = held(cluster)
    assert {name: now.get(name) for name in before} == before
    assert not {device: claims for device, claims in cluster.held().items() if len(claims) > 1}
    return now


def ours(cluster: Cluster, *flags: str) -> Process:
    scheduler = cluster.dragoman("scheduler", *flags).start()
    cluster.until(lambda: "ready" in scheduler.log() or not scheduler.runs, "the scheduler to be ready", 60)
    assert scheduler.runs, scheduler.log()
    return scheduler


def test_shadow_fenced_default_and_back(cluster: Cluster) -> None:
    shadow = cluster.dragoman("scheduler", "--shadow", name="shadow").start()
    cluster.until(lambda: "watching" in shadow.log(), "the shadow to watch", 60)
    assert bound(cluster, train("first", THEIRS), train("second", THEIRS)) == ["old", "old"]
    shadow.stop()
    state = check(cluster, {})

    # Fenced: pods by schedulerName, nodes by label (and the taint for others), devices by driver.
    fenced = ours(cluster, "--nodes", "stage=dragoman", "--devices", OURS)
    placed = bound(cluster, train("third", OURS, "dragoman"), train("fourth", THEIRS), train("fifth", OURS, "dragoman"))
    assert placed == ["new", "old", "new"]
    cluster.apply(train("outside", THEIRS, "dragoman"))
    cluster.until(lambda: "PodScheduled" in str(cluster.get("Pod", "outside")["status"]), "outside to be refused", 30)
    assert not node_of(cluster, "outside")
    state = check(cluster, state)

    # Back to kube-scheduler alone: what was placed stays.
    fenced.stop()
    cluster.kubectl("delete", "pod", "outside", "--force", "--grace-period=0")
    assert bound(cluster, train("sixth", THEIRS)) == ["old"]
    state = check(cluster, state)

    # Default: kube-scheduler is ended, its pods are ours. What it wrote lately asks for --share-devices.
    cluster.processes["scheduler"].stop()
    alone = ours(cluster, "--scheduler-name", "default-scheduler", "--scheduler-name", "dragoman", "--share-devices")
    assert bound(cluster, train("seventh", THEIRS), train("eighth", OURS, "dragoman"))[1] == "new"
    state = check(cluster, state)

    # And back again.
    alone.stop()
    cluster.processes["scheduler"].start()
    assert bound(cluster, train("ninth", THEIRS)) == ["old"]
    check(cluster, state)
