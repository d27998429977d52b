"""Who schedules when the leader ends, dies or is stopped? Two replicas on a real API server."""

from __future__ import annotations

import json
import signal
import time
from datetime import UTC, datetime
from pathlib import Path

import pytest

from dragoman.cluster.lease import LeaseSettings
from tests.real import audit
from tests.real.cluster import Cluster
from tests.real.conftest import StartCluster
from tests.real.objects import device_class, pod_with_device, slice_of
from tests.real.process import Process

pytestmark = pytest.mark.slow

NAMESPACE = "team"
FAILOVER_S = 15.0


def test_the_settings_leave_time_to_take_over() -> None:
    """A standby sees a renewal at most a look late, waits until it is stale, and looks once more."""
    settings = LeaseSettings("any", "any", "any")
    look_s = settings.renew_s * 1.5  # with jitter
    assert settings.duration_s + 2 * look_s < FAILOVER_S
    assert settings.deadline_s + settings.renew_s <= settings.duration_s  # the old one stops first


def replica(cluster: Cluster, name: str) -> Process:
    """A scheduler with rights of its own, so that the audit log tells them apart."""
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name, "namespace": NAMESPACE}}
    subject = {"kind": "ServiceAccount", "name": name, "namespace": NAMESPACE}
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"}
    binding = {"kind": "ClusterRoleBinding", "metadata": {"name": name}, "roleRef": role, "subjects": [subject]}
    cluster.apply(account, {"apiVersion": "rbac.authorization.k8s.io/v1", **binding})
    return cluster.dragoman("scheduler", "--identity", name, name=name, user=f"{NAMESPACE}/{name}").start()


def leader(cluster: Cluster) -> str:
    lease = cluster.find("Lease", "dragoman-scheduler", "kube-system")
    return (lease["spec"].get("holderIdentity") or "").partition("_")[0] if lease else ""


def bound(cluster: Cluster, name: str) -> float:
    """Seconds until a pod that is made now is bound."""
    start = time.monotonic()
    cluster.apply(*pod_with_device(name, scheduler="dragoman"))
    cluster.until(lambda: cluster.get("Pod", name)["spec"].get("nodeName"), f"{name} to be bound")
    return time.monotonic() - start


def test_another_takes_over_and_the_old_leader_writes_nothing_more(start: StartCluster, tmp_path: Path) -> None:
    cluster = start(controllers="kube", flags={"apiserver": audit.flags(tmp_path, NAMESPACE)})
    cluster.node("worker")
    space = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}
    cluster.apply(space, device_class(), slice_of("worker", devices=8))
    one = replica(cluster, "one")
    cluster.until(lambda: leader(cluster) == "one", "one to lead")
    two = replica(cluster, "two")
    cluster.until(lambda: "metrics and health" in two.log(), "two to stand by")
    took = {"at once": bound(cluster, "first")}

    assert one.stop() == 0  # drains: gives the Lease back
    took["SIGTERM"] = bound(cluster, "second")
    assert leader(cluster) == "two"

    one.start()
    cluster.until(lambda: one.log().count("metrics and health") == 2, "one to stand by")
    two.kill()
    took["SIGKILL"] = bound(cluster, "third")
    assert leader(cluster) == "one"

    two.start()
    cluster.until(lambda: two.log().count("metrics and health") == 2, "two to stand by again")
    one.signal(signal.SIGSTOP)
    try:
        took["SIGSTOP"] = bound(cluster, "fourth")
        assert leader(cluster) == "two"
        resumed = datetime.now(UTC)
    finally:
        one.signal(signal.SIGCONT)
    bound(cluster, "fifth")
    cluster.until(lambda: "lost the lease" in one.log(), "one to see that it does not lead")
    assert leader(cluster) == "two"
    assert writes(tmp_path, "one", resumed) == []
    assert all(len(holders) == 1 for holders in cluster.held().values())
    print(json.dumps({how: round(seconds, 1) for how, seconds in took.items()}))


def writes(folder: Path, account: str, since: datetime) -> list[str]:
    """What an account wrote after a moment."""
    found = []
    for line in (folder / "audit.log").read_text().splitlines():
        event = json.loads(line)
        when = datetime.fromisoformat(event["requestReceivedTimestamp"].replace("Z", "+00:00"))
        theirs = event["user"]["username"].endswith(f":{account}") and when > since
        if theirs and event["verb"] not in ("get", "list", "watch"):
            found.append(f"{event['verb']} {event['requestURI']}")
    return found
