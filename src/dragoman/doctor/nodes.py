"""Are nodes and what runs on them ready: slices published, pools complete, drivers running?"""

from __future__ import annotations

from collections.abc import Iterator

from dragoman.allocate.refusal import PoolIncomplete, PoolInvalid
from dragoman.api.shape import Object, dig, objects, text
from dragoman.doctor.check import Evidence, NotSeen, Seen
from dragoman.doctor.state import ExaminedCluster, name_of, subject_of
from dragoman.explain.messages import sentence
from dragoman.inspect.inventory import Trouble
from dragoman.snapshot.change import keys_of
from dragoman.snapshot.taints import rules_of_pool, taints_of


def incomplete(state: ExaminedCluster) -> Iterator[Seen]:
    """Pools of which slices are missing."""
    for trouble in _troubles(state, "incomplete"):
        slices = [
            state.snapshot.slices[name]
            for name in keys_of(state.snapshot.slices_by_pool, (trouble.driver, trouble.pool))
        ]
        newest = max(entry.spec.pool.generation for entry in slices)
        current = [entry for entry in slices if entry.spec.pool.generation == newest]
        fact = PoolIncomplete(
            claim="",
            request="",
            driver=trouble.driver,
            pool=trouble.pool,
            generation=newest,
            slices=len(current),
            resource_slice_count=current[0].spec.pool.resource_slice_count,
        )
        yield Evidence(_pool(trouble), "spec.pool.resourceSliceCount", trouble.detail, sentence(fact))


def invalid(state: ExaminedCluster) -> Iterator[Seen]:
    """Pools that contradict themselves."""
    for trouble in _troubles(state, "invalid"):
        names = tuple(trouble.detail.removeprefix("device ").removesuffix(" is defined twice").split(", "))
        fact = PoolInvalid(
            claim="", request="", driver=trouble.driver, pool=trouble.pool, what="duplicate device", names=names
        )
        yield Evidence(_pool(trouble), "spec.devices", trouble.detail, sentence(fact))


def allocated_twice(state: ExaminedCluster) -> Iterator[Seen]:
    """Devices that two claims hold."""
    for trouble in _troubles(state, "allocated twice"):
        message = f"a device of pool {trouble.driver}/{trouble.pool} is allocated to several claims: {trouble.detail}"
        yield Evidence(_pool(trouble), "status.allocation", trouble.detail, message)


def without_node(state: ExaminedCluster) -> Iterator[Seen]:
    """Slices of nodes that are not there."""
    for name in sorted(state.snapshot.slices):
        node = state.snapshot.slices[name].spec.node_name
        if node and node not in state.snapshot.nodes:
            message = f"slice {name} is of node {node}, which does not exist: its devices are never used"
            yield Evidence(f"ResourceSlice {name}", "spec.nodeName", node, message)


def tainted(state: ExaminedCluster) -> Iterator[Seen]:
    """Devices with a taint that keeps claims off."""
    snapshot = state.snapshot
    for driver, pool in sorted(snapshot.slices_by_pool):
        rules = rules_of_pool(snapshot, driver, pool)
        for name in keys_of(snapshot.slices_by_pool, (driver, pool)):
            for device in snapshot.slices[name].spec.devices:
                for rule, taint in taints_of(device, driver, pool, rules) if device.taints or rules else ():
                    if taint.effect in ("NoSchedule", "NoExecute"):
                        by = f" by DeviceTaintRule {rule}" if rule else ""
                        text_ = f"{taint.key}={taint.value}:{taint.effect}"
                        message = f"device {driver}/{pool}/{device.name} is tainted{by}: {text_}"
                        yield Evidence(f"ResourceSlice {name}", "taints", text_, message)


def plugins(state: ExaminedCluster) -> Iterator[Seen]:
    """DaemonSets of DRA drivers with pods that are not ready."""
    seen = False
    for workload in driver_sets(state):
        seen = True
        status = dig(workload, "status")
        wanted, ready = status.get("desiredNumberScheduled"), status.get("numberReady") or 0
        if isinstance(wanted, int) and ready < wanted:
            subject = subject_of("DaemonSet", workload)
            message = f"{subject}: {ready} of {wanted} pods are ready: claims on the other nodes cannot be prepared"
            yield Evidence(subject, "status.numberReady", f"{ready} of {wanted}", message)
    if not seen:
        yield NotSeen("no DaemonSet mounts the kubelet's plugin registry; drivers may run outside of pods")


def driver_sets(state: ExaminedCluster) -> Iterator[Object]:
    """DaemonSets that register plugins with the kubelet and are no CSI drivers: they mount its registry."""
    for workload in state.all("DaemonSet"):
        spec = dig(workload, "spec", "template", "spec")
        paths = [text(dig(volume, "hostPath"), "path").rstrip("/") for volume in objects(spec, "volumes")]
        is_csi = any("csi" in text(container, "name") for container in objects(spec, "containers"))
        if not is_csi and any(path.endswith("plugins_registry") for path in paths):
            yield workload


def not_ready(state: ExaminedCluster) -> Iterator[Seen]:
    """Nodes with devices that are not ready."""
    with_devices = {entry.spec.node_name for entry in state.snapshot.slices.values() if entry.spec.node_name}
    for node in state.all("Node"):
        if name_of(node) not in with_devices and not _advertises(node):
            continue
        for condition in objects(dig(node, "status"), "conditions"):
            if condition.get("type") == "Ready" and condition.get("status") != "True":
                message = f"node {name_of(node)} has devices and is not ready: {text(condition, 'reason') or 'unknown'}"
                yield Evidence(subject_of("Node", node), "status.conditions[Ready]", text(condition, "status"), message)


def _advertises(node: Object) -> bool:
    return any("/" in name and "kubernetes.io" not in name for name in dig(node, "status", "capacity"))


def _troubles(state: ExaminedCluster, what: str) -> Iterator[Trouble]:
    return (trouble for trouble in state.devices.troubles if trouble.what == what)


def _pool(trouble: Trouble) -> str:
    return f"pool {trouble.driver}/{trouble.pool}"
