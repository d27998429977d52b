"""PersistentVolumeClaims: what keeps a pod off nodes, and what is bound or asked for where it goes."""

from __future__ import annotations

from datetime import UTC, datetime
from itertools import count
from typing import Any

import msgspec
import pytest

from dragoman.effects import Bind, Patch
from dragoman.explain.messages import message
from dragoman.schedule import refusal
from dragoman.schedule.cycle import SchedulingContext, SchedulingUnit, decide, unit_of
from dragoman.schedule.decision import Decision
from dragoman.schedule.profile import SchedulerProfile
from dragoman.snapshot.change import Put, Snapshot, apply, apply_all
from dragoman.testing.build import claim, device_class, gpus, manifest, node, pod, request, snapshot_of

NOW = datetime(2026, 1, 1, tzinfo=UTC)
ZONE, RACK = "topology.kubernetes.io/zone", "rack"
NODES = [node(name, labels={ZONE: zone, RACK: rack}) for name, zone, rack in (("a", "z1", "r1"), ("b", "z2", "r2"))]
BOUND = {"pv.kubernetes.io/bind-completed": "yes"}
SELECTED = "volume.kubernetes.io/selected-node"


def decided(*objects: dict[str, Any], off: frozenset[str] = frozenset()) -> Decision:
    return of(snapshot_of(*NODES, *objects), off)


def of(snapshot: Snapshot, off: frozenset[str] = frozenset()) -> Decision:
    numbers = count()
    context = SchedulingContext(new_id=lambda: str(next(numbers)), profile=SchedulerProfile(off=off))
    return decide(snapshot, unit_of(snapshot, snapshot.pods["default", "p"], context.gates), NOW, context)


def mounting(*names: str, name: str = "p", **spec: Any) -> dict[str, Any]:
    volumes = [{"name": f"v{i}", "persistentVolumeClaim": {"claimName": one}} for i, one in enumerate(names)]
    return pod(name, *spec.pop("claims", ()), volumes=volumes, **spec)


def pvc(name: str = "data", storage: str = "10Gi", seen: bool = True, **spec: Any) -> dict[str, Any]:
    """A claim as a server shows it, or (seen=False) as a file does."""
    meta = {"annotations": spec.pop("annotations", {}), **({"resourceVersion": "7", "uid": name} if seen else {})}
    status = {"phase": spec.pop("phase", "Pending")}
    asked = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": storage}}, **spec}
    return manifest("PersistentVolumeClaim", name, metadata=meta, spec=asked, status=status)


def pv(name: str, storage: str = "10Gi", **spec: Any) -> dict[str, Any]:
    meta = {"labels": spec.pop("labels", {})}
    phase = spec.pop("phase", "Available")
    if (rack := spec.pop("rack", "")) != "":
        term = {"matchExpressions": [{"key": RACK, "operator": "In", "values": [rack]}]}
        spec["nodeAffinity"] = {"required": {"nodeSelectorTerms": [term]}}
    body = {"capacity": {"storage": storage}, "accessModes": ["ReadWriteOnce"], "storageClassName": "local", **spec}
    return manifest("PersistentVolume", name, metadata=meta, spec=body, status={"phase": phase})


def storage_class(
    name: str = "local", provisioner: str = "kubernetes.io/no-provisioner", **more: Any
) -> dict[str, Any]:
    return manifest(
        "StorageClass", name, provisioner=provisioner, **{"volumeBindingMode": "WaitForFirstConsumer", **more}
    )


def on(volume: str, name: str = "data", **spec: Any) -> dict[str, Any]:
    return pvc(name, volumeName=volume, annotations=BOUND, phase="Bound", **spec)


LOCAL = storage_class()
MADE = storage_class("fast", "disks.example.com")
KEPT = {"namespace": "default", "name": "data", "uid": "data"}

NODE_OF: dict[str, tuple[list[dict[str, Any]], str]] = {
    "bound to a volume of one rack": ([on("d1"), pv("d1", rack="r2", claimRef=KEPT)], "b"),
    "bound to a volume of a zone": ([on("d1"), pv("d1", labels={ZONE: "z2"}, claimRef=KEPT)], "b"),
    "bound to a volume of one of several zones": ([on("d1"), pv("d1", labels={ZONE: "z9__z2"}, claimRef=KEPT)], "b"),
    "waits, and the only free volume is there": ([LOCAL, pvc(storageClassName="local"), pv("d1", rack="r2")], "b"),
    "waits, and the near one is too small": (
        [LOCAL, pvc(storageClassName="local"), pv("d1", "9Gi", rack="r1"), pv("d2", rack="r2")],
        "b",
    ),
    "waits, and the near one has another access mode": (
        [
            LOCAL,
            pvc(storageClassName="local", accessModes=["ReadWriteMany"]),
            pv("d1", rack="r1"),
            pv("d2", rack="r2", accessModes=["ReadWriteOnce", "ReadWriteMany"]),
        ],
        "b",
    ),
    "waits, and the near one is kept for another": (
        [
            LOCAL,
            pvc(storageClassName="local"),
            pv("d1", rack="r1", claimRef={**KEPT, "name": "x"}),
            pv("d2", rack="r2"),
        ],
        "b",
    ),
    "waits, and the near one is a block device": (
        [LOCAL, pvc(storageClassName="local"), pv("d1", rack="r1", volumeMode="Block"), pv("d2", rack="r2")],
        "b",
    ),
    "waits, and its selector wants the far one": (
        [
            LOCAL,
            pvc(storageClassName="local", selector={"matchLabels": {"tier": "gold"}}),
            pv("d1", rack="r1"),
            pv("d2", rack="r2", labels={"tier": "gold"}),
        ],
        "b",
    ),
    "made in the class's topology": (
        [
            storage_class(
                "fast",
                "disks.example.com",
                allowedTopologies=[{"matchLabelExpressions": [{"key": ZONE, "values": ["z2"]}]}],
            ),
            pvc(storageClassName="fast"),
        ],
        "b",
    ),
    "being made for a node": ([MADE, pvc(storageClassName="fast", annotations={SELECTED: "b"})], "b"),
    "of a file, without a class": ([storage_class("now", "x.io", volumeBindingMode="Immediate"), pvc(seen=False)], ""),
    "of a file, of the default class": (
        [
            manifest(
                "StorageClass",
                "now",
                provisioner="x.io",
                metadata={"annotations": {"storageclass.kubernetes.io/is-default-class": "true"}},
            ),
            pvc(seen=False),
        ],
        "a",
    ),
}


@pytest.mark.parametrize("name", NODE_OF)
def test_where_the_pod_goes(name: str) -> None:
    objects, wanted = NODE_OF[name]
    decision = decided(*objects, mounting("data"))
    assert [placement.node for placement in decision.placements] == ([wanted] if wanted else [])


REFUSED: dict[str, tuple[list[dict[str, Any]], str]] = {
    "missing": ([], 'persistentvolumeclaim "data" not found'),
    "no class, no volume": ([pvc()], "pod has unbound immediate PersistentVolumeClaims"),
    "class missing": ([pvc(storageClassName="gone")], "pod has unbound immediate PersistentVolumeClaims"),
    "immediate": (
        [storage_class(volumeBindingMode="Immediate"), pvc(storageClassName="local")],
        "pod has unbound immediate PersistentVolumeClaims",
    ),
    "named volume, not bound yet": (
        [LOCAL, pvc(storageClassName="local", volumeName="d1"), pv("d1")],
        "pod has unbound immediate PersistentVolumeClaims",
    ),
    "volume gone": ([on("d1")], 'persistentvolumeclaim "data" bound to non-existent persistentvolume "d1"'),
    "zone of no node": (
        [on("d1"), pv("d1", labels={ZONE: "z7"}, claimRef=KEPT)],
        "2 node(s) had no available volume zone",
    ),
    "rack of no node": (
        [on("d1"), pv("d1", rack="r7", claimRef=KEPT)],
        "2 node(s) didn't match PersistentVolume's node affinity",
    ),
    "no volume fits": (
        [LOCAL, pvc(storageClassName="local"), pv("d1", "9Gi")],
        "2 node(s) didn't find available persistent volumes to bind",
    ),
    "one pod only": (
        [
            on("d1", accessModes=["ReadWriteOncePod"]),
            pv("d1", claimRef=KEPT),
            mounting("data", name="other", nodeName="b"),
        ],
        "2 node(s) unavailable due to PersistentVolumeClaim with ReadWriteOncePod access mode already in-use by "
        "another pod",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_why_no_node_will_do(name: str) -> None:
    objects, text = REFUSED[name]
    decision = decided(*objects, mounting("data"))
    assert not decision.placements
    assert f"0/2 nodes are available: {text}" in message(decision.refused[0])


def test_a_claim_for_one_pod_is_free_once_that_pod_has_finished() -> None:
    done = mounting("data", name="other", nodeName="b", status={"phase": "Succeeded"})
    assert decided(
        on("d1", accessModes=["ReadWriteOncePod"]), pv("d1", claimRef=KEPT), done, mounting("data")
    ).placements


def test_volumes_and_devices_are_named_together() -> None:
    decision = decided(
        device_class(), gpus("a", 1), gpus("b", 1), claim("train", request(count=2)), mounting("data", claims=["train"])
    )
    text = message(decision.refused[0])
    assert 'persistentvolumeclaim "data" not found' in text
    assert "2 devices of class gpu.example.com requested" in text


def test_a_volume_in_one_rack_and_devices_in_another() -> None:
    objects = [
        device_class(),
        gpus("a", 2),
        claim("train", request(count=2)),
        on("d1"),
        pv("d1", rack="r2", claimRef=KEPT),
    ]
    text = message(decided(*objects, mounting("data", claims=["train"])).refused[0])
    assert "1 cannot allocate all claims, 1 node(s) didn't match PersistentVolume's node affinity" in text
    assert "its volume d1 can only be reached from nodes with rack=r2" in text


def test_the_smallest_volumes_are_kept_for_claims_and_the_pod_waits() -> None:
    big, small = pvc("big", "5Gi", storageClassName="local"), pvc("small", "1Gi", storageClassName="local")
    volumes = [pv("v2", "2Gi", rack="r1"), pv("v6", "6Gi", rack="r1"), pv("v9", "9Gi", rack="r1")]
    decision = decided(LOCAL, big, small, *volumes, mounting("big", "small"))
    kept = {e.ref.name: e.patch["spec"]["claimRef"]["name"] for e in decision.effects if isinstance(e, Patch)}
    assert kept == {"v2": "small", "v6": "big"}
    assert not [effect for effect in decision.effects if isinstance(effect, Bind)]
    assert {claim for wait in decision.waits for claim in wait.volume_claims} == {
        ("default", "big"),
        ("default", "small"),
    }
    after = apply_all(snapshot_of(*NODES, LOCAL, big, small, *volumes, mounting("big", "small")), decision.assumed)
    assert after.volumes["v2"].spec.claim_ref is not None, "no other pod takes it meanwhile"


def resumed(snapshot: Snapshot) -> Decision:
    unit = SchedulingUnit(("Pod", "default", "p"), (), placed=((("default", "p"), "a"),))
    return decide(snapshot, unit, NOW, SchedulingContext(new_id=lambda: ""))


def test_the_pod_is_bound_once_its_volumes_are() -> None:
    snapshot = snapshot_of(*NODES, MADE, pvc(storageClassName="fast"), mounting("data"))
    decision = of(snapshot)
    (patch,) = (effect for effect in decision.effects if isinstance(effect, Patch))
    assert patch.patch == {"metadata": {"annotations": {SELECTED: "a"}}}
    assert patch.resource_version == "7"
    waiting = apply_all(snapshot, [change for change in decision.assumed if change.kind != "Pod"])
    assert resumed(waiting).waits
    bound = apply_all(
        waiting,
        [
            Put("PersistentVolumeClaim", snapshot_of(on("d1")).volume_claims["default", "data"]),
            Put("PersistentVolume", snapshot_of(pv("d1", claimRef=KEPT)).volumes["d1"]),
        ],
    )
    assert [effect.node for effect in resumed(bound).effects if isinstance(effect, Bind)] == ["a"]


def test_a_provisioner_that_gives_up_has_the_pod_decided_again() -> None:
    snapshot = snapshot_of(*NODES, MADE, pvc(storageClassName="fast"), mounting("data"))
    assert resumed(snapshot).lost


def test_checks_that_a_profile_switches_off_are_not_made() -> None:
    far = [on("d1"), pv("d1", labels={ZONE: "z7"}, claimRef=KEPT), mounting("data")]
    assert not decided(*far).placements
    assert decided(*far, off=frozenset({"VolumeZone"})).placements
    assert decided(mounting("data"), off=frozenset({"VolumeBinding"})).placements


def test_two_pods_do_not_get_one_volume() -> None:
    snapshot = snapshot_of(
        *NODES,
        LOCAL,
        pvc(storageClassName="local"),
        pvc("more", storageClassName="local"),
        pv("d1", rack="r1"),
        mounting("data"),
        mounting("more", name="q"),
    )
    snapshot = apply_all(snapshot, of(snapshot).assumed)
    unit = SchedulingUnit(("Pod", "default", "q"), (("default", "q"),))
    second = decide(snapshot, unit, NOW, SchedulingContext(new_id=lambda: ""))
    (reason,) = {reason for some in second.refused[0].nodes for reason in some.reasons}
    assert isinstance(reason, refusal.VolumeNotAvailable)


def test_a_changed_volume_wakes_who_waits_for_one() -> None:
    from dragoman.schedule.wakeup import topics

    snapshot = snapshot_of(*NODES, LOCAL, pvc(storageClassName="local"), mounting("data"))
    waiting_for = of(snapshot).topics
    new = Put("PersistentVolume", snapshot_of(pv("d1")).volumes["d1"])
    assert set(topics(snapshot, new)) & waiting_for
    assert of(apply(snapshot, new)).placements
    gone = snapshot_of(*NODES, mounting("data"))
    made = Put("PersistentVolumeClaim", msgspec.structs.replace(snapshot.volume_claims["default", "data"]))
    assert set(topics(gone, made)) & of(gone).topics
