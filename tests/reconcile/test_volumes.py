"""Volumes and claims for them: bound, made, released; ephemeral volumes."""

from __future__ import annotations

from typing import Any

import pytest

from dragoman.reconcile import volumes
from dragoman.snapshot.volumes import SELECTED_NODE

KINDS = ("PersistentVolumeClaim", "PersistentVolume", "Pod")


def settle(cluster: Any) -> None:
    """Every key, until a round writes nothing."""
    for _ in range(20):
        before = len(cluster.effects)
        for kind, namespace, name in sorted(cluster.objects):
            if kind in KINDS:
                what = {"PersistentVolumeClaim": "claim", "PersistentVolume": "volume", "Pod": "pod"}[kind]
                cluster.carry_out(volumes.sync(cluster.world, (what, namespace, name)).effects)
        if len(cluster.effects) == before:
            return
    raise AssertionError("no end")


def pvc(cluster: Any, name: str = "data", storage: str = "5Gi", **spec: Any) -> Any:
    meta = {"annotations": spec.pop("annotations", {})}
    asked = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": storage}}, **spec}
    return cluster.add("PersistentVolumeClaim", name, metadata=meta, spec=asked)


def pv(cluster: Any, name: str, storage: str = "5Gi", **spec: Any) -> Any:
    body = {"capacity": {"storage": storage}, "accessModes": ["ReadWriteOnce"], **spec}
    return cluster.add("PersistentVolume", name, namespace="", spec=body)


def storage_class(cluster: Any, name: str, provisioner: str = volumes.PROVISIONER, mode: str = "Immediate") -> None:
    cluster.add("StorageClass", name, namespace="", provisioner=provisioner, volumeBindingMode=mode)


def phase(cluster: Any, kind: str, name: str) -> str:
    found = cluster.get(kind, name, "" if kind == "PersistentVolume" else "default")
    return str(found["status"]["phase"])


def test_the_smallest_volume_that_fits_is_bound(cluster: Any) -> None:
    for name, size in (("v9", "9Gi"), ("v6", "6Gi"), ("v2", "2Gi")):
        pv(cluster, name, size)
    settle(cluster)
    pvc(cluster)
    settle(cluster)
    assert cluster.get("PersistentVolumeClaim", "data")["spec"]["volumeName"] == "v6"
    assert [phase(cluster, "PersistentVolume", name) for name in ("v9", "v6", "v2")] == [
        "Available",
        "Bound",
        "Available",
    ]
    assert phase(cluster, "PersistentVolumeClaim", "data") == "Bound"


@pytest.mark.parametrize(
    ("provisioner", "mode", "selected", "made"),
    [
        (volumes.PROVISIONER, "Immediate", "", True),
        (volumes.PROVISIONER, "WaitForFirstConsumer", "", False),
        (volumes.PROVISIONER, "WaitForFirstConsumer", "n", True),
        ("disks.example.com", "Immediate", "", False),
    ],
)
def test_who_gets_a_volume_made(cluster: Any, provisioner: str, mode: str, selected: str, made: bool) -> None:
    storage_class(cluster, "c", provisioner, mode)
    cluster.add("Node", "n", namespace="", metadata={"labels": {"kubernetes.io/hostname": "host-n"}})
    pvc(cluster, storageClassName="c", annotations={SELECTED_NODE: selected} if selected else {})
    settle(cluster)
    assert phase(cluster, "PersistentVolumeClaim", "data") == ("Bound" if made else "Pending")
    found = [obj for (kind, _, _), obj in cluster.objects.items() if kind == "PersistentVolume"]
    assert len(found) == made
    if selected:
        (term,) = found[0]["spec"]["nodeAffinity"]["required"]["nodeSelectorTerms"]
        assert term["matchExpressions"] == [{"key": "kubernetes.io/hostname", "operator": "In", "values": ["host-n"]}]


def test_a_volume_that_was_made_goes_with_its_claim_and_a_users_stays(cluster: Any) -> None:
    storage_class(cluster, "c")
    pv(cluster, "mine", storageClassName="other", persistentVolumeReclaimPolicy="Delete")
    pvc(cluster, storageClassName="c")
    pvc(cluster, "other", storageClassName="other")
    settle(cluster)
    for name in ("data", "other"):
        assert phase(cluster, "PersistentVolumeClaim", name) == "Bound"
        cluster.delete("PersistentVolumeClaim", name)
    settle(cluster)
    assert [name for kind, _, name in cluster.objects if kind == "PersistentVolume"] == ["mine"]
    assert phase(cluster, "PersistentVolume", "mine") == "Released"


def test_a_claim_whose_volume_is_gone_is_lost(cluster: Any) -> None:
    pv(cluster, "v")
    settle(cluster)
    pvc(cluster)
    settle(cluster)
    cluster.delete("PersistentVolume", "v", "")
    settle(cluster)
    assert phase(cluster, "PersistentVolumeClaim", "data") == "Lost"
    assert [event.reason for event in cluster.events] == ["ClaimLost"]


def test_claims_of_ephemeral_volumes_belong_to_their_pod(cluster: Any) -> None:
    template = {"metadata": {"labels": {"a": "b"}}, "spec": {"accessModes": ["ReadWriteOnce"], "storageClassName": "c"}}
    volume = {"name": "scratch", "ephemeral": {"volumeClaimTemplate": template}}
    pod = cluster.add("Pod", "p", spec={"volumes": [volume], "containers": []})
    settle(cluster)
    made = cluster.get("PersistentVolumeClaim", "p-scratch")
    assert made["spec"] == template["spec"]
    assert made["metadata"]["ownerReferences"][0]["uid"] == pod["metadata"]["uid"]
