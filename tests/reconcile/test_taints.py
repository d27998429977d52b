"""Device taints that evict (KEP-5055): when, whom, and what a rule says of it."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from dragoman.api import codec
from dragoman.api.kinds import kind_of
from dragoman.api.resource import DeviceTaint, DeviceToleration
from dragoman.apiserver.bootstrap import in_memory
from dragoman.apiserver.inprocess import InProcessClient
from dragoman.daemon.controllers import Controllers, ControllerSettings
from dragoman.effects import Delete, Emit, Patch
from dragoman.reconcile import taints
from dragoman.runtime.clock import Clock
from dragoman.runtime.entropy import Entropy
from dragoman.runtime.tasks import Tasks
from dragoman.snapshot.change import Gone, Put
from dragoman.testing import build
from dragoman.testing.loop import run

T0 = "2027-01-15T08:00:00Z"  # 1_800_000_000, where the cluster's clock starts
TAINT = {"key": "k", "effect": "NoExecute", "timeAdded": T0}
DELAYS: dict[str, tuple[list[dict[str, Any]], float | None]] = {
    "no toleration": ([], 0.0),
    "for ever": ([{"key": "k", "operator": "Exists", "effect": "NoExecute"}], None),
    "a minute": ([{"key": "k", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 60}], 60.0),
    "the smaller of two": (
        [{"operator": "Exists", "effect": "NoExecute", "tolerationSeconds": s} for s in (60, 30)],
        30.0,
    ),
    "a minute and for ever": (
        [
            {"operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 60},
            {"operator": "Exists", "effect": "NoExecute"},
        ],
        None,
    ),
    "negative": ([{"operator": "Exists", "effect": "NoExecute", "tolerationSeconds": -5}], 0.0),
    "an empty effect does not protect": ([{"key": "k", "operator": "Exists"}], 0.0),
    "another key": ([{"key": "x", "operator": "Exists", "effect": "NoExecute"}], 0.0),
    "another value": ([{"key": "k", "value": "x", "effect": "NoExecute"}], 0.0),
}


@pytest.mark.parametrize("case", DELAYS)
def test_how_long_tolerations_hold_a_taint_off(case: str) -> None:
    raw, expected = DELAYS[case]
    tolerations = tuple(codec.decode(DeviceToleration, t) for t in raw)
    assert taints.delay_s(tolerations, codec.decode(DeviceTaint, TAINT)) == expected


def slices(cluster: Any, *device_taints: Any, generation: int = 1, name: str = "s") -> None:
    devices = [{"name": "gpu-0", "taints": list(device_taints)}, {"name": "gpu-1"}]
    pool = {"name": "p", "generation": generation, "resourceSliceCount": 1}
    spec = {"driver": "d", "pool": pool, "nodeName": "n", "devices": devices}
    if cluster.has("ResourceSlice", name):
        cluster.edit("ResourceSlice", name, {"spec": spec})
    else:
        cluster.add("ResourceSlice", name, spec=spec)


def user(cluster: Any, name: str = "p", device: str = "gpu-0", *, tolerations: Any = (), reserve: bool = True) -> Any:
    entries = [{"name": "gpu", "resourceClaimName": f"c-{name}"}]
    p = cluster.add("Pod", name, spec={"nodeName": "n", "resourceClaims": entries}, status={"phase": "Running"})
    result = {"request": "r", "driver": "d", "pool": "p", "device": device, "tolerations": list(tolerations)}
    status: dict[str, Any] = {"allocation": {"devices": {"results": [result]}}}
    if reserve:
        status["reservedFor"] = [{"resource": "pods", "name": name, "uid": p["metadata"]["uid"]}]
    cluster.add("ResourceClaim", f"c-{name}", status=status)
    return p


def rule(cluster: Any, effect: str = "NoExecute", selector: Any = "all") -> Any:
    spec: dict[str, Any] = {"taint": {"key": "k", "effect": effect, "timeAdded": T0}}
    if selector is not None:
        spec["deviceSelector"] = {} if selector == "all" else selector
    return cluster.add("DeviceTaintRule", "r", spec=spec)


def pod_step(cluster: Any, name: str = "p") -> Any:
    return taints.sync(cluster.world, ("pod", "default", name))


def test_a_published_taint_evicts_at_once(cluster: Any) -> None:
    slices(cluster, TAINT)
    user(cluster)
    user(cluster, "safe", "gpu-1")
    event, condition, delete = pod_step(cluster).effects
    assert isinstance(event, Emit)
    assert (event.reason, event.message) == ("DeviceTaintManagerEviction", "Marking for deletion")
    assert isinstance(condition, Patch)
    [target] = condition.patch["status"]["conditions"]
    assert (target["type"], target["reason"]) == ("DisruptionTarget", "DeletionByDeviceTaintManager")
    assert target["message"] == "Device Taint manager: deleting due to NoExecute taint"
    assert isinstance(delete, Delete)
    assert delete.ref.uid
    assert pod_step(cluster, "safe") == taints.NOTHING


def test_a_pod_of_extended_resources_is_evicted_too(cluster: Any) -> None:
    """Its claim stands in the status only; it must be the pod's own."""
    slices(cluster, TAINT)
    special = {"resourceClaimName": "c-p", "requestMappings": []}
    p = cluster.add("Pod", "p", spec={"nodeName": "n"}, status={"extendedResourceClaimStatus": special})
    uid = p["metadata"]["uid"]
    result = {"request": "r", "driver": "d", "pool": "p", "device": "gpu-0"}
    reserved = [{"resource": "pods", "name": "p", "uid": uid}]
    status = {"allocation": {"devices": {"results": [result]}}, "reservedFor": reserved}
    cluster.add("ResourceClaim", "c-p", status=status)
    assert pod_step(cluster) == taints.NOTHING
    owner = {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": uid, "controller": True}
    cluster.edit("ResourceClaim", "c-p", {"metadata": {"ownerReferences": [owner]}})
    assert any(isinstance(effect, Delete) for effect in pod_step(cluster).effects)


def test_a_tolerated_taint_evicts_later(cluster: Any) -> None:
    slices(cluster, TAINT)
    user(cluster, tolerations=[{"operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 60}])
    assert pod_step(cluster).again_s == 60
    cluster.seconds += 60
    assert len(pod_step(cluster).effects) == 3


QUIET: dict[str, Any] = {
    "a taint that only forbids scheduling": lambda c: (slices(c, {**TAINT, "effect": "NoSchedule"}), user(c)),
    "a driver's own taint without effect": lambda c: (slices(c, {**TAINT, "effect": "None"}), user(c)),
    "a claim that is not reserved for the pod": lambda c: (slices(c, TAINT), user(c, reserve=False)),
    "an older generation's taint": lambda c: (
        slices(c, TAINT, generation=1),
        slices(c, generation=2, name="newer"),
        user(c),
    ),
    "a rule without selector": lambda c: (rule(c, selector=None), user(c)),
    "a rule for another device": lambda c: (rule(c, selector={"device": "gpu-7"}), user(c)),
    "a rule without effect": lambda c: (rule(c, "None"), user(c)),
    "an unscheduled pod": lambda c: (slices(c, TAINT), user(c), c.edit("Pod", "p", {"spec": {"nodeName": None}})),
    "a finished pod": lambda c: (slices(c, TAINT), user(c), c.edit("Pod", "p", {"status": {"phase": "Failed"}})),
}


@pytest.mark.parametrize("case", QUIET)
def test_nobody_leaves_for(cluster: Any, case: str) -> None:
    QUIET[case](cluster)
    assert pod_step(cluster) == taints.NOTHING


def test_a_rule_says_first_what_it_will_do_and_then_how_far_it_is(cluster: Any) -> None:
    made = rule(cluster)  # no slice has the device: the rule counts all the same
    user(cluster)
    assert pod_step(cluster).effects == ()
    rule_step = taints.sync(cluster.world, ("rule", "", "r"))
    cluster.carry_out(rule_step.effects)
    [condition] = cluster.get("DeviceTaintRule", "r")["status"]["conditions"]
    assert (condition["status"], condition["reason"]) == ("True", "PodsPendingEviction")
    assert condition["message"] == "1 pod needs to be evicted in 1 namespace."
    assert condition["observedGeneration"] == 1
    step = pod_step(cluster)
    assert step.tally == (made["metadata"]["uid"],)
    cluster.carry_out(step.effects)
    world = msgspec.structs.replace(cluster.world, tally={made["metadata"]["uid"]: 1})
    assert taints.sync(world, ("rule", "", "r")).again_s == 10  # not more often
    world = msgspec.structs.replace(world, now=world.now + 10)
    cluster.carry_out(taints.sync(world, ("rule", "", "r")).effects)
    [condition] = cluster.get("DeviceTaintRule", "r")["status"]["conditions"]
    assert (condition["status"], condition["reason"]) == ("False", "Completed")
    assert condition["message"] == "1 pod evicted since starting the controller."


def status_of(cluster: Any) -> tuple[str, str, str]:
    cluster.carry_out(taints.sync(cluster.world, ("rule", "", "r")).effects)
    [condition] = cluster.get("DeviceTaintRule", "r")["status"]["conditions"]
    return condition["status"], condition["reason"], condition["message"]


def test_a_rule_with_nothing_to_do_has_not_started(cluster: Any) -> None:
    rule(cluster)
    assert status_of(cluster) == ("False", "NotStarted", "")
    assert taints.sync(cluster.world, ("rule", "", "r")) == taints.NOTHING


def test_a_rule_without_effect_is_a_simulation_once(cluster: Any) -> None:
    slices(cluster)
    user(cluster)
    user(cluster, "q", "gpu-1")
    rule(cluster, "None")
    status, reason, message = status_of(cluster)
    assert (status, reason) == ("False", "NoEffect")
    assert message == (
        "2 published devices selected. 2 allocated devices selected. "
        "2 pods would be evicted in 1 namespace if the effect was NoExecute. "
        "This information will not be updated again. Recreate the DeviceTaintRule to trigger an update."
    )
    cluster.remove("Pod", "q")
    assert taints.sync(cluster.world, ("rule", "", "r")) == taints.NOTHING


def test_other_effects_only_say_so(cluster: Any) -> None:
    rule(cluster, "NoSchedule")
    assert status_of(cluster) == ("False", "OtherEffect", "Eviction only happens for the NoExecute effect.")


def test_which_changes_wake_whom(cluster: Any) -> None:
    slices(cluster)
    user(cluster)
    user(cluster, "other", "gpu-1")
    before = cluster.world

    def keys(kind: str, name: str) -> list[Any]:
        return taints.keys(Put(kind, cluster.typed(kind, name)), before, cluster.world)

    assert keys("ResourceSlice", "s") == []
    assert keys("Pod", "p") == []
    slices(cluster, TAINT)
    assert keys("ResourceSlice", "s") == [("pod", "default", "p")]
    assert keys("Pod", "p") == [("pod", "default", "p")]
    assert keys("ResourceClaim", "c-p") == [("pod", "default", "p")]
    assert keys("ResourceClaim", "c-other") == []
    rule(cluster)
    assert keys("DeviceTaintRule", "r") == [("rule", "", "r"), ("pod", "default", "other"), ("pod", "default", "p")]
    before = cluster.world
    cluster.remove("DeviceTaintRule", "r")
    gone = taints.keys(Gone("DeviceTaintRule", "", "r"), before, cluster.world)
    assert gone == [("spared", "default", "other"), ("pod", "default", "p")]

    assert keys("ResourceClaim", "c-p") == [("pod", "default", "p")], "its slice still taints"


LATER = [{"operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 60}]
RELIEFS: dict[str, tuple[str, str, Any]] = {
    "the taint is gone": ("ResourceSlice", "s", lambda c: slices(c)),
    "the taint has a weaker effect": ("ResourceSlice", "s", lambda c: slices(c, {**TAINT, "effect": "NoSchedule"})),
    "the claim is not reserved for it any more": (
        "ResourceClaim",
        "c-p",
        lambda c: c.edit("ResourceClaim", "c-p", {"status": {"reservedFor": None}}),
    ),
    "the claim is deallocated": (
        "ResourceClaim",
        "c-p",
        lambda c: c.edit("ResourceClaim", "c-p", {"status": {"allocation": None}}),
    ),
}


@pytest.mark.parametrize("case", RELIEFS)
def test_a_pod_that_may_stay_after_all_gets_an_event(cluster: Any, case: str) -> None:
    kind, name, relieve = RELIEFS[case]
    slices(cluster, TAINT)
    user(cluster, tolerations=LATER)
    before = cluster.world
    assert pod_step(cluster).again_s == 60
    relieve(cluster)
    [key] = taints.keys(Put(kind, cluster.typed(kind, name)), before, cluster.world)
    [event] = taints.sync(cluster.world, key).effects
    assert (event.type, event.reason) == ("Normal", "DeviceTaintManagerEviction")
    assert event.message == "Cancelling deletion"
    slices(cluster, TAINT)
    cluster.edit("Pod", "p", {"metadata": {"deletionTimestamp": T0}})
    assert taints.sync(cluster.world, key) == taints.NOTHING, "too late"


def test_a_rule_that_spares_a_pod_says_so(cluster: Any) -> None:
    slices(cluster)
    user(cluster, tolerations=LATER)
    rule(cluster)
    before = cluster.world
    cluster.edit("DeviceTaintRule", "r", {"spec": {"taint": {"effect": "NoSchedule"}}})
    change = Put("DeviceTaintRule", cluster.typed("DeviceTaintRule", "r"))
    assert taints.keys(change, before, cluster.world) == [("rule", "", "r"), ("spared", "default", "p")]


@pytest.mark.slow
def test_one_rule_over_1000_pods_evicts_no_faster_than_upstream() -> None:
    """20 requests a second and 30 at once, three for an eviction, in virtual time; a rule that goes spares the rest."""
    device = {"request": "r", "driver": "gpu.example.com", "pool": "n", "device": "gpu-0"}

    async def scenario(clock: Clock) -> None:
        entropy = Entropy(1)
        registry = in_memory(clock, entropy)
        client = InProcessClient(registry)
        await client.create(kind_of("Node"), build.node("n"))
        for number in range(1000):
            made = build.pod(f"p{number}", f"c{number // 250 * 250}", nodeName="n", terminationGracePeriodSeconds=0)
            del made["metadata"]["uid"]
            await client.create(kind_of("Pod"), made, "default")
            if number % 250 == 0:
                await client.create(kind_of("ResourceClaim"), build.claim(f"c{number}", build.request("r")), "default")
        pods = (await client.list(kind_of("Pod"), "default")).items
        for start in range(0, 1000, 250):  # a claim has at most 256 consumers
            uids = [pod["metadata"] for pod in pods[start : start + 250]]
            reserved = [{"resource": "pods", "name": meta["name"], "uid": meta["uid"]} for meta in uids]
            status = {"allocation": {"devices": {"results": [device]}}, "reservedFor": reserved}
            await client.patch(
                kind_of("ResourceClaim"), f"c{start}", {"status": status}, "default", subresource="status"
            )

        def left() -> int:
            return len(registry.store.select(kind_of("Pod")))

        controllers = Controllers(client, clock, entropy, ControllerSettings(controllers=("taints",)))
        async with Tasks("test", clock, entropy) as tasks:
            tasks.supervise("controllers", controllers.run)
            await clock.sleep(1)
            taint = {"key": "broken", "effect": "NoExecute"}
            spec = {"deviceSelector": {"driver": "gpu.example.com"}, "taint": taint}
            rule = build.manifest("DeviceTaintRule", "r", spec=spec)
            await client.create(kind_of("DeviceTaintRule"), rule)
            await clock.sleep(10)
            evicted = 1000 - left()
            assert 50 <= evicted <= (30 + 11 * 20) // 3 + 1, evicted
            await client.delete(kind_of("DeviceTaintRule"), "r")
            await clock.sleep(30)
            assert 1000 - left() <= evicted + 10, "what waits for its turn is spared"
            tasks.stop()

    run(scenario)
