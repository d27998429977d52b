"""Pods from their binding to their end, in virtual time: status, restarts, order, grace, claims given back in time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from dragoman.api.kinds import kind_of
from dragoman.api.shape import Object
from dragoman.kubelet.agent import NodeAgent
from dragoman.kubelet.node_object import NodeProperties
from dragoman.node.plugin import Plugin
from dragoman.runtime.clock import Clock
from dragoman.testing.loop import run
from tests.kubelet.fakes import Lamps
from tests.kubelet.stage import CLAIM, EVENT, NODE, POD, Stage, stage

Scenario = Callable[["Scene"], Awaitable[None]]


class Scene(Stage):
    """One node, `lamp.example.com` on it, virtual time."""

    agent_: NodeAgent
    plugin_: Plugin
    lamps: Lamps

    async def lamp_claim(self, name: str, *devices: str) -> Object:
        return await self.claim(name, *devices, driver="lamp.example.com")

    async def state(self, pod: str, container: str = "main") -> Any:
        found = await self.get(pod)
        assert found
        statuses = [*found["status"].get("initContainerStatuses", []), *found["status"]["containerStatuses"]]
        return next(s for s in statuses if s["name"] == container)

    async def waiting(self, pod: str, reason: str, container: str = "main") -> Any:
        async def there() -> Any:
            found = await self.get(pod)
            if not found or not found["status"].get("containerStatuses"):
                return None
            status = await self.state(pod, container)
            return status if (status["state"].get("waiting") or {}).get("reason") == reason else None

        return await self.until(there, within_s=700)


def in_virtual_time(scenario: Scenario) -> None:
    async def main(clock: Clock) -> None:
        async with stage(clock, Scene) as made:
            made.agent_ = await made.agent(sockets=False)
            made.lamps = Lamps()
            made.plugin_ = await made.attached(made.agent_, made.lamps)
            await scenario(made)

    run(main)


async def finished_pod_gives_back_first(scene: Scene) -> None:
    await scene.lamp_claim("one", "lamp-1")
    await scene.pod(
        "job", claims={"lamp": "one"}, restartPolicy="Never", annotations={"dragoman.dev/run-seconds": "20"}
    )
    await scene.phase("job", "Running")
    # Every status the API ever had: final only once the checkpoint is empty.
    listed = await scene.client.list(POD, "default")
    async for event in scene.client.watch(POD, listed.resource_version, "default"):
        if event.object["status"]["phase"] == "Succeeded":
            assert scene.lamps.lit == {}
            assert scene.agent_.states.claims == {}
            break
    state = await scene.state("job")
    assert state["state"]["terminated"]["exitCode"] == 0
    assert state["state"]["terminated"]["reason"] == "Completed"
    pod = await scene.get("job")
    assert pod
    conditions = {c["type"]: c for c in pod["status"]["conditions"]}
    assert conditions["Ready"]["reason"] == "PodCompleted"
    assert conditions["Initialized"]["status"] == "True"
    assert conditions["PodReadyToStartContainers"]["status"] == "False"
    assert "LAMP_1=on" in scene.agent_.logs("default", "job")


async def failed_pod_says_so(scene: Scene) -> None:
    note = {"dragoman.dev/run-seconds": "1", "dragoman.dev/exit-code": "3"}
    await scene.pod("bad", restartPolicy="Never", annotations=note)
    pod = await scene.phase("bad", "Failed")
    terminated = pod["status"]["containerStatuses"][0]["state"]["terminated"]
    assert (terminated["exitCode"], terminated["reason"]) == (3, "Error")


async def restarts_back_off(scene: Scene) -> None:
    note = {"dragoman.dev/run-seconds": "0", "dragoman.dev/exit-code": "1"}
    began = scene.clock.now()
    await scene.pod("loop", restartPolicy="OnFailure", annotations=note)
    status = await scene.waiting("loop", "CrashLoopBackOff")
    assert status["restartCount"] == 1  # the first restart comes at once
    assert "back-off 10s restarting failed container=main pod=loop_default(" in status["state"]["waiting"]["message"]
    assert status["lastState"]["terminated"]["exitCode"] == 1

    async def restarted(times: int) -> float:
        async def there() -> bool:
            return bool((await scene.state("loop"))["restartCount"] >= times)

        await scene.until(there, within_s=700, every_s=0.25)
        return scene.clock.now() - began

    for times, after_s in ((2, 10), (3, 30), (4, 70), (5, 150), (6, 310), (7, 610)):
        assert await restarted(times) == pytest.approx(after_s, abs=1)
    assert (await scene.event("BackOff", "loop"))["message"].startswith("Back-off restarting failed container main")


async def image_pulls_fail_and_back_off(scene: Scene) -> None:
    note = {"dragoman.dev/image-pull": "registry.example/app:1: not found"}
    made = await scene.pod("far", annotations=note)
    assert made["metadata"]["generation"] == 1  # a binding changes nothing that is desired
    failed = await scene.waiting("far", "ErrImagePull")
    assert failed["state"]["waiting"]["message"].endswith("registry.example/app:1: not found")
    waits = await scene.waiting("far", "ImagePullBackOff")
    assert waits["state"]["waiting"]["message"].startswith(
        'Back-off pulling image "app:1": ErrImagePull: failed to pull'
    )
    assert (await scene.event("BackOff", "far"))["message"] == 'Back-off pulling image "app:1"'
    await scene.client.patch(POD, "far", {"metadata": {"annotations": {"dragoman.dev/image-pull": None}}}, "default")
    await scene.phase("far", "Running")


async def invalid_images_are_not_pulled(scene: Scene) -> None:
    await scene.pod("bad", containers=[{"name": "main", "image": "Not/An:Image:At:All"}])
    status = await scene.waiting("bad", "InvalidImageName")
    assert "couldn't parse image name" in status["state"]["waiting"]["message"]


async def containers_behind_failed_init_containers_wait(scene: Scene) -> None:
    init = {"name": "first", "image": "app:1", "command": ["sh", "-c", "exit 1"]}
    main = {"name": "main", "image": "app:1"}
    await scene.pod("stuck", restartPolicy="Never", initContainers=[init], containers=[main])
    pod = await scene.phase("stuck", "Failed")
    assert pod["status"]["containerStatuses"][0]["state"] == {"waiting": {"reason": "PodInitializing"}}


async def bundles_of_trust_are_projected(scene: Scene) -> None:
    certificate = "-----BEGIN CERTIFICATE-----\n{}\n-----END CERTIFICATE-----\n"
    kind = kind_of("ClusterTrustBundle")
    for name, label, text in (("one", "yes", "AAAA"), ("two", "yes", "BBBB"), ("three", "no", "CCCC")):
        body: Any = {
            "apiVersion": kind.api_version,
            "kind": kind.kind,
            "metadata": {"name": f"x.example:y:{name}", "labels": {"trusted": label}},
            "spec": {"signerName": "x.example/y", "trustBundle": certificate.format(text)},
        }
        await scene.client.create(kind, body)
    source = {"signerName": "x.example/y", "labelSelector": {"matchLabels": {"trusted": "yes"}}, "path": "ca.pem"}
    volume = {"name": "trust", "projected": {"sources": [{"clusterTrustBundle": source}]}}
    read = {
        "name": "main",
        "image": "app:1",
        "command": ["sh", "-c", "cat /trust/ca.pem"],
        "volumeMounts": [{"name": "trust", "mountPath": "/trust"}],
    }
    await scene.pod("reader", restartPolicy="Never", volumes=[volume], containers=[read])
    await scene.phase("reader", "Succeeded")
    log = scene.agent_.logs("default", "reader")
    assert ("AAAA" in log, "BBBB" in log, "CCCC" in log) == (True, True, False)


async def pods_have_their_hosts(scene: Scene) -> None:
    read = {"name": "main", "image": "app:1", "command": ["sh", "-c", "cat /etc/hosts"]}
    aliases = [{"ip": "10.1.2.3", "hostnames": ["db", "db.local"]}]
    await scene.pod("known", restartPolicy="Never", containers=[read], hostAliases=aliases)
    await scene.phase("known", "Succeeded")
    log = scene.agent_.logs("default", "known")
    assert "# Kubernetes-managed hosts file." in log
    assert "10.1.2.3\tdb\tdb.local" in log


async def succeeded_on_failure_policy_ends(scene: Scene) -> None:
    await scene.pod("ok", restartPolicy="OnFailure", annotations={"dragoman.dev/run-seconds": "1"})
    await scene.phase("ok", "Succeeded")


async def always_restarts_after_success(scene: Scene) -> None:
    await scene.pod("web", annotations={"dragoman.dev/run-seconds": "700"})
    await scene.phase("web", "Running")
    first = await scene.state("web")
    assert first["restartCount"] == 0

    async def restarted() -> bool:
        return bool((await scene.state("web"))["restartCount"] == 2)

    began = scene.clock.now()
    await scene.until(restarted, within_s=2000, every_s=1)
    assert scene.clock.now() - began == pytest.approx(1400, abs=2)  # long runs never back off
    assert (await scene.get("web") or {})["status"]["phase"] == "Running"


async def init_containers_run_in_order(scene: Scene) -> None:
    init = [
        {"name": "first", "image": "a", "command": ["sleep", "5"]},
        {"name": "side", "image": "b", "restartPolicy": "Always"},
        {"name": "second", "image": "c", "command": ["sh", "-c", "sleep 2s && echo"]},
    ]
    await scene.pod("staged", initContainers=init, restartPolicy="Never", annotations={"dragoman.dev/run-seconds": "4"})
    await scene.clock.sleep(1)
    pod = await scene.get("staged")
    assert pod
    assert pod["status"]["phase"] == "Pending"
    assert (await scene.state("staged", "first"))["state"].keys() == {"running"}
    assert (await scene.state("staged", "side"))["state"]["waiting"]["reason"] == "PodInitializing"
    conditions = {c["type"]: c for c in pod["status"]["conditions"]}
    assert conditions["Initialized"]["message"] == "containers with incomplete status: [first side second]"
    await scene.clock.sleep(5)
    assert (await scene.state("staged", "side"))["state"].keys() == {"running"}
    assert (await scene.state("staged", "side"))["ready"]
    assert (await scene.state("staged"))["state"]["waiting"]["reason"] == "PodInitializing"
    pod = await scene.phase("staged", "Running")
    assert {c["type"]: c["status"] for c in pod["status"]["conditions"]}["Ready"] == "True"
    pod = await scene.phase("staged", "Succeeded")
    side = await scene.state("staged", "side")
    main = await scene.state("staged")
    assert side["state"]["terminated"]["finishedAt"] >= main["state"]["terminated"]["finishedAt"]
    assert main["state"]["terminated"]["exitCode"] == 0


async def failing_init_container_fails_the_pod(scene: Scene) -> None:
    init = [{"name": "check", "image": "a"}]
    note = {"dragoman.dev/exit-code.check": "2"}
    await scene.pod("unfit", initContainers=init, restartPolicy="Never", annotations=note)
    pod = await scene.phase("unfit", "Failed")
    assert pod["status"]["initContainerStatuses"][0]["state"]["terminated"]["exitCode"] == 2


async def deadline_ends_the_pod(scene: Scene) -> None:
    await scene.lamp_claim("one", "lamp-1")
    await scene.pod("late", claims={"lamp": "one"}, activeDeadlineSeconds=30)
    pod = await scene.phase("late", "Failed", within_s=40)
    assert pod["status"]["reason"] == "DeadlineExceeded"
    assert scene.lamps.lit == {}


async def deletion_waits_for_the_containers(scene: Scene) -> None:
    await scene.lamp_claim("one", "lamp-1")
    await scene.pod("slow", claims={"lamp": "one"}, annotations={"dragoman.dev/stop-seconds": "12"})
    await scene.phase("slow", "Running")
    began = scene.clock.now()
    await scene.client.delete(POD, "slow", "default")
    await scene.clock.sleep(5)
    assert (await scene.get("slow") or {})["status"]["phase"] == "Running"
    assert scene.lamps.lit
    await scene.gone("slow")
    assert scene.clock.now() - began == pytest.approx(12, abs=0.5)
    assert scene.lamps.lit == {}


async def grace_is_the_limit(scene: Scene) -> None:
    await scene.pod("deaf", annotations={"dragoman.dev/stop-seconds": "500"}, terminationGracePeriodSeconds=8)
    await scene.phase("deaf", "Running")
    listed = await scene.client.list(POD, "default")
    began = scene.clock.now()
    await scene.client.delete(POD, "deaf", "default")
    async for event in scene.client.watch(POD, listed.resource_version, "default"):
        state = event.object["status"]["containerStatuses"][0]["state"]
        if "terminated" in state:
            assert state["terminated"]["exitCode"] == 137
            break
    assert scene.clock.now() - began == pytest.approx(8, abs=1.1)  # timestamps have whole seconds
    await scene.gone("deaf")


async def never_started_pod_can_be_deleted(scene: Scene) -> None:
    await scene.lamp_claim("one", "lamp-1")
    await scene.stop(scene.plugin_)
    await scene.claim("other", "x-1", driver="absent.example.com")
    await scene.pod("stuck", claims={"x": "other"})
    event = await scene.event("FailedPrepareDynamicResources", "stuck")
    assert event["type"] == "Warning"
    assert event["message"] == (
        "Failed to prepare dynamic resources: prepare dynamic resources: "
        "DRA driver absent.example.com is not registered"
    )
    waiting = await scene.waiting("stuck", "ContainerCreating")
    assert waiting["ready"] is False
    assert scene.agent_.states.claims == {}  # nothing was recorded, so nothing is owed
    await scene.client.delete(POD, "stuck", "default")
    await scene.gone("stuck")


async def prepare_is_tried_again(scene: Scene) -> None:
    scene.lamps.failures = 3
    await scene.lamp_claim("one", "lamp-1")
    await scene.pod("p", claims={"lamp": "one"})
    await scene.phase("p", "Running", within_s=20)
    assert [call for call, _ in scene.lamps.calls].count("prepare") == 4
    message = (await scene.event("FailedPrepareDynamicResources", "p"))["message"]
    assert message.endswith("NodePrepareResources failed for ResourceClaim one: the lamp is hot")

    async def counted() -> bool:
        events = (await scene.client.list(EVENT, "default")).items
        return [e["count"] for e in events if e["reason"] == "FailedPrepareDynamicResources"] == [3]

    await scene.until(counted)


async def end_waits_for_unprepare(scene: Scene) -> None:
    scene.lamps.stuck = 3
    await scene.lamp_claim("one", "lamp-1")
    await scene.pod("p", claims={"lamp": "one"}, restartPolicy="Never", annotations={"dragoman.dev/run-seconds": "1"})
    await scene.event("FailedUnprepareDynamicResources", "p")
    assert (await scene.get("p") or {})["status"]["phase"] == "Running"
    await scene.phase("p", "Succeeded", within_s=30)
    assert scene.lamps.lit == {}


async def slow_prepare_is_shown(scene: Scene) -> None:
    scene.lamps.gate = asyncio.Event()
    await scene.lamp_claim("one", "lamp-1")
    await scene.pod("p", claims={"lamp": "one"})
    await scene.waiting("p", "ContainerCreating")
    pod = await scene.get("p")
    assert pod
    assert pod["status"]["hostIP"] == "10.64.0.1"
    assert {c["type"]: c["status"] for c in pod["status"]["conditions"]}["PodReadyToStartContainers"] == "False"
    scene.lamps.gate.set()
    pod = await scene.phase("p", "Running")
    assert pod["status"]["podIP"].startswith("10.64.0.")


async def shared_claim_is_prepared_once(scene: Scene) -> None:
    claim = await scene.lamp_claim("shared", "lamp-2")
    await scene.pod("a", claims={"lamp": "shared"})
    await scene.pod("b", claims={"lamp": "shared"})
    for name in ("a", "b"):
        await scene.phase(name, "Running")
        assert "LAMP_2=on" in scene.agent_.logs("default", name)
    assert scene.lamps.calls == [("prepare", "shared")]
    await scene.client.delete(POD, "a", "default")
    await scene.gone("a")
    assert scene.lamps.lit == {claim["metadata"]["uid"]: {"lamp-2"}}
    await scene.client.delete(POD, "b", "default")
    await scene.gone("b")
    assert scene.lamps.lit == {}


async def forced_deletion_and_a_successor(scene: Scene) -> None:
    """The old container lives on for a while: the successor's claim waits for its device."""
    old = await scene.lamp_claim("old", "lamp-0")
    await scene.pod("app", claims={"lamp": "old"}, annotations={"dragoman.dev/stop-seconds": "2.5"})
    await scene.phase("app", "Running")
    await scene.client.delete(POD, "app", "default", grace_period_s=0)
    await scene.release("old")
    await scene.lamp_claim("new", "lamp-0")
    await scene.pod("app", claims={"lamp": "new"})
    message = (await scene.event("FailedPrepareDynamicResources", "app"))["message"]
    uid = old["metadata"]["uid"]
    assert f"device n1/lamp-0 is still prepared for claim default/old ({uid})" in message
    await scene.phase("app", "Running", within_s=20)
    order = [call for call in scene.lamps.calls if call in (("unprepare", "old"), ("prepare", "new"))]
    assert order == [("unprepare", "old"), ("prepare", "new")]


async def same_name_other_claim(scene: Scene) -> None:
    """A claim made anew under an old name is another claim."""
    old = await scene.lamp_claim("one", "lamp-0")
    await scene.pod("a", claims={"lamp": "one"}, annotations={"dragoman.dev/stop-seconds": "5"})
    await scene.phase("a", "Running")
    await scene.client.delete(POD, "a", "default", grace_period_s=0)
    await scene.release("one")
    await scene.client.delete(CLAIM, "one", "default")
    await scene.lamp_claim("one", "lamp-1")
    await scene.pod("b", claims={"lamp": "one"})
    message = (await scene.event("FailedPrepareDynamicResources", "b"))["message"]
    uid = old["metadata"]["uid"]
    assert f"old ResourceClaim with same name one and different UID {uid} still exists" in message
    await scene.phase("b", "Running", within_s=30)


async def what_does_not_fit_is_rejected(scene: Scene) -> None:
    def asking(cpu: str) -> list[Object]:
        return [{"name": "main", "image": "a", "resources": {"requests": {"cpu": cpu}}}]

    await scene.pod("half", containers=asking("20"))
    await scene.phase("half", "Running")
    await scene.pod("more", containers=asking("12500m"))
    pod = await scene.phase("more", "Failed")
    assert pod["status"]["reason"] == "OutOfcpu"
    assert pod["status"]["message"] == (
        "Pod was rejected: Node didn't have enough resource: cpu, requested: 12500, used: 20000, capacity: 32000"
    )
    assert (await scene.event("OutOfcpu", "more"))["type"] == "Warning"
    await scene.pod("rest", containers=asking("12"))
    await scene.phase("rest", "Running")
    await scene.client.delete(POD, "half", "default")
    await scene.gone("half")
    await scene.pod("again", containers=asking("20"))
    await scene.phase("again", "Running")
    await scene.stop(scene.agent_)
    await scene.agent(sockets=False)
    await scene.clock.sleep(5)
    assert (await scene.get("again") or {})["status"]["phase"] == "Running", "who runs is not asked again"


async def same_claim_other_allocation(scene: Scene) -> None:
    """Released and allocated again while its former pod still stops: the new pod never gets the old device."""
    await scene.lamp_claim("one", "lamp-0")
    await scene.pod("a", claims={"lamp": "one"}, annotations={"dragoman.dev/stop-seconds": "5"})
    await scene.phase("a", "Running")
    await scene.client.delete(POD, "a", "default", grace_period_s=0)
    await scene.release("one")
    claim = await scene.client.get(CLAIM, "one", "default")
    result = {"request": "gpu", "driver": "lamp.example.com", "pool": "n1", "device": "lamp-1"}
    await scene.allocate(claim, [result])
    await scene.pod("b", claims={"lamp": "one"})
    message = (await scene.event("FailedPrepareDynamicResources", "b"))["message"]
    assert message.endswith(
        "ResourceClaim one: device lamp.example.com/n1/lamp-0 of its former allocation is still prepared"
    )
    await scene.phase("b", "Running", within_s=30)
    assert "LAMP_1=on" in scene.agent_.logs("default", "b")
    assert list(scene.lamps.lit.values()) == [{"lamp-1"}]


async def deleted_while_it_is_prepared(scene: Scene) -> None:
    scene.lamps.gate = asyncio.Event()
    await scene.lamp_claim("one", "lamp-1")
    await scene.pod("p", claims={"lamp": "one"})
    await scene.waiting("p", "ContainerCreating")
    await scene.client.delete(POD, "p", "default")
    scene.lamps.gate.set()
    await scene.gone("p")
    assert scene.lamps.calls == [("prepare", "one"), ("unprepare", "one")]
    events = (await scene.client.list(EVENT, "default")).items
    assert "Started" not in {event["reason"] for event in events}, "no container was started in vain"


async def extended_resource_claims_are_prepared(scene: Scene) -> None:
    """A pod whose extended resource is served by DRA: the claim stands in its status only."""
    container = {"name": "main", "image": "a", "resources": {"limits": {"example.com/lamp": "1"}}}
    body = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "ext"},
        "spec": {"containers": [container, {"name": "other", "image": "a"}]},
    }
    pod = await scene.client.create(POD, body, "default")
    owner = {"apiVersion": "v1", "kind": "Pod", "name": "ext", "uid": pod["metadata"]["uid"], "controller": True}
    await scene.lamp_claim("special", "container-0-request-0/lamp-3")
    await scene.client.patch(CLAIM, "special", {"metadata": {"ownerReferences": [owner]}}, "default")
    await scene.reserve("special", pod)
    mapping = {"containerName": "main", "resourceName": "example.com/lamp", "requestName": "container-0-request-0"}
    status = {"extendedResourceClaimStatus": {"resourceClaimName": "special", "requestMappings": [mapping]}}
    await scene.client.patch(POD, "ext", {"status": status}, "default", subresource="status")
    binding = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": "ext"}, "target": {"name": "n1"}}
    await scene.client.create(POD, binding, "default", subresource="binding", name="ext")
    await scene.phase("ext", "Running")
    assert "LAMP_3=on" in scene.agent_.logs("default", "ext", "main")
    assert "LAMP_3=on" not in scene.agent_.logs("default", "ext", "other")
    await scene.client.delete(POD, "ext", "default")
    await scene.gone("ext")
    assert scene.lamps.lit == {}


async def template_claims_must_be_owned(scene: Scene) -> None:
    await scene.lamp_claim("foreign", "lamp-3")
    entry = {"name": "lamp", "resourceClaimTemplateName": "t"}
    await scene.pod("p", resourceClaims=[entry])
    message = (await scene.event("FailedPrepareDynamicResources", "p"))["message"]
    assert 'pod "default/p": ResourceClaim not created yet' in message
    status = {"resourceClaimStatuses": [{"name": "lamp", "resourceClaimName": "foreign"}]}
    await scene.client.patch(POD, "p", {"status": status}, "default", subresource="status")

    async def refused() -> bool:
        events = (await scene.client.list(EVENT, "default")).items
        text = "ResourceClaim default/foreign was not created for Pod default/p (Pod is not owner)"
        return any(e["message"].endswith(text) for e in events)

    await scene.until(refused)
    pod = await scene.get("p")
    assert pod
    owner = {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": pod["metadata"]["uid"], "controller": True}
    await scene.client.patch(CLAIM, "foreign", {"metadata": {"ownerReferences": [owner]}}, "default")
    await scene.event("FailedPrepareDynamicResources", "p")

    async def not_reserved() -> bool:
        events = (await scene.client.list(EVENT, "default")).items
        return any("is not allowed to use ResourceClaim foreign" in e["message"] for e in events)

    await scene.until(not_reserved, within_s=30)
    await scene.reserve("foreign", pod)
    await scene.phase("p", "Running", within_s=30)


async def agent_restart_keeps_the_containers(scene: Scene) -> None:
    await scene.lamp_claim("one", "lamp-1")
    await scene.lamp_claim("two", "lamp-2")
    await scene.pod("stays", claims={"lamp": "one"})
    await scene.pod("goes", claims={"lamp": "two"})
    await scene.phase("stays", "Running")
    await scene.phase("goes", "Running")
    before = await scene.state("stays")
    calls = list(scene.lamps.calls)
    await scene.stop(scene.agent_)
    await scene.client.delete(POD, "goes", "default", grace_period_s=0)
    again = await scene.agent(sockets=False)
    again.attach(scene.plugin_)
    await scene.clock.sleep(70)
    assert (await scene.state("stays")) == before
    assert scene.lamps.calls == [*calls, ("unprepare", "two")]
    await scene.client.delete(POD, "stays", "default")
    await scene.gone("stays")
    assert scene.lamps.lit == {}


async def orphans_do_not_wait_for_the_next_round(scene: Scene) -> None:
    """Pods force-deleted while agent and driver were away: their claims go when the driver is back, not a minute later."""
    await scene.lamp_claim("one", "lamp-1")
    await scene.pod("p", claims={"lamp": "one"})
    await scene.phase("p", "Running")
    await scene.stop(scene.agent_)
    await scene.stop(scene.plugin_)
    await scene.client.delete(POD, "p", "default", grace_period_s=0)
    again = await scene.agent(sockets=False)
    await scene.clock.sleep(5)
    await scene.attached(again, scene.lamps)
    await scene.clock.sleep(1)
    assert scene.lamps.lit == {}
    assert again.states.claims == {}


async def reboot_starts_everything_again(scene: Scene) -> None:
    await scene.lamp_claim("one", "lamp-1")
    await scene.lamp_claim("two", "lamp-2")
    await scene.pod("stays", claims={"lamp": "one"})
    await scene.pod("once", claims={"lamp": "two"}, restartPolicy="Never")
    await scene.phase("stays", "Running")
    await scene.phase("once", "Running")
    await scene.stop(scene.agent_)
    await scene.stop(scene.plugin_)
    scene.lamps.lit.clear()
    scene.lamps.calls.clear()
    again = await scene.agent(sockets=False, facts=NodeProperties(boot_id="boot-2"))
    await scene.attached(again, scene.lamps, boot_id="boot-2")

    async def restarted() -> bool:
        return bool((await scene.state("stays"))["restartCount"] == 1)

    await scene.until(restarted)
    status = await scene.state("stays")
    assert status["lastState"]["terminated"]["exitCode"] == 255
    assert ("prepare", "one") in scene.lamps.calls
    assert list(scene.lamps.lit.values()) == [{"lamp-1"}]
    await scene.phase("once", "Failed")


async def driver_stays_away(scene: Scene) -> None:
    """Case `driver gone`: slices go after 30 s, pods run on, and all comes back with the driver."""
    await scene.lamp_claim("one", "lamp-1")
    await scene.pod("runs", claims={"lamp": "one"})
    await scene.phase("runs", "Running")
    await scene.stop(scene.plugin_)
    await scene.clock.sleep(25)
    assert len(await scene.slices()) == 1
    await scene.clock.sleep(10)
    assert await scene.slices() == []
    assert (await scene.get("runs") or {})["status"]["phase"] == "Running"
    await scene.client.delete(POD, "runs", "default")
    await scene.event("FailedUnprepareDynamicResources", "runs")
    assert await scene.get("runs")
    await scene.run_plugin(scene.plugin_)
    await scene.gone("runs")
    assert len(await scene.slices()) == 1


async def annotations_that_say_nothing(scene: Scene) -> None:
    await scene.pod("odd", annotations={"dragoman.dev/run-seconds": "soon"})
    status = await scene.waiting("odd", "CreateContainerConfigError")
    assert status["state"]["waiting"]["message"] == (
        "annotation dragoman.dev/run-seconds: must be seconds such as 2.5, or infinity, got 'soon'"
    )


async def environment_is_complete(scene: Scene) -> None:
    env = [
        {"name": "WHO", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
        {"name": "WHERE", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}},
        {"name": "COLOUR", "valueFrom": {"configMapKeyRef": {"name": "look", "key": "colour"}}},
        {"name": "MAYBE", "valueFrom": {"configMapKeyRef": {"name": "look", "key": "none", "optional": True}}},
        {"name": "KEY", "valueFrom": {"secretKeyRef": {"name": "safe", "key": "key"}}},
        {"name": "CPUS", "valueFrom": {"resourceFieldRef": {"resource": "requests.cpu"}}},
        {"name": "BOTH", "value": "$(WHO)-$(COLOUR)-$$(WHO)-$(NOBODY)"},
    ]
    container = {
        "name": "main",
        "image": "app",
        "command": ["show", "$(WHO)"],
        "env": env,
        "resources": {"requests": {"cpu": "1500m"}},
        "volumeMounts": [{"name": "scratch", "mountPath": "/scratch"}],
    }
    await scene.pod("env", containers=[container], volumes=[{"name": "scratch", "emptyDir": {}}])
    status = await scene.waiting("env", "CreateContainerConfigError")
    assert status["state"]["waiting"]["message"] == 'configmap "look" not found'
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "look"}, "data": {"colour": "red"}}
    await scene.client.create(kind_of("ConfigMap"), body, "default")
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "safe"}, "data": {"key": "czNjcjN0"}}
    await scene.client.create(kind_of("Secret"), secret, "default")
    await scene.phase("env", "Running", within_s=30)
    lines = [line.strip() for line in scene.agent_.logs("default", "env").splitlines()]
    assert {"WHO=env", "WHERE=n1", "COLOUR=red", "CPUS=2", "BOTH=env-red-$(WHO)-$(NOBODY)"} <= set(lines)
    assert "KEY=<key of secret safe>" in lines
    assert not any(line.startswith("MAYBE") for line in lines)
    assert "command: show env" in lines
    assert "/scratch from volume scratch (emptyDir)" in lines


async def node_is_registered(scene: Scene) -> None:
    node = await scene.client.get(NODE, "n1")
    assert node["metadata"]["labels"]["kubernetes.io/hostname"] == "n1"
    assert node["status"]["capacity"]["pods"] == "110"
    ready = next(c for c in node["status"]["conditions"] if c["type"] == "Ready")
    assert (ready["status"], ready["reason"]) == ("True", "KubeletReady")
    lease = await scene.client.get(kind_of("Lease"), "n1", "kube-node-lease")
    assert lease["spec"]["holderIdentity"] == "n1"
    assert lease["metadata"]["ownerReferences"][0]["uid"] == node["metadata"]["uid"]
    await scene.clock.sleep(30)
    later = await scene.client.get(kind_of("Lease"), "n1", "kube-node-lease")
    assert later["spec"]["renewTime"] > lease["spec"]["renewTime"]
    await scene.client.delete(NODE, "n1")
    await scene.clock.sleep(320)
    assert (await scene.client.get(NODE, "n1"))["metadata"]["uid"] != node["metadata"]["uid"]


async def status_of_others_is_corrected(scene: Scene) -> None:
    """What a node life cycle controller writes about a node that it took for dead, and a hand that lowers capacity."""
    await scene.pod("steady")
    await scene.phase("steady", "Running")

    async def pod_ready() -> str:
        conditions = (await scene.client.get(POD, "steady", "default"))["status"]["conditions"]
        return str(next(c["status"] for c in conditions if c["type"] == "Ready"))

    async def all_well() -> bool:
        node = await scene.client.get(NODE, "n1")
        known = {c["type"]: c["status"] for c in node["status"]["conditions"]}
        well = (known["Ready"], known["DiskPressure"], node["status"]["allocatable"]["cpu"]) == ("True", "False", "32")
        return well and await pod_ready() == "True"

    await scene.until(all_well, 10)
    for status in (
        {"conditions": [{"type": "Ready", "status": "Unknown", "reason": "NodeStatusUnknown"}]},
        {"conditions": [{"type": "DiskPressure", "status": "True", "reason": "ByHand"}]},
        {"allocatable": {"cpu": "3"}},
    ):
        body = {"status": status}
        await scene.client.patch(NODE, "n1", body, type="strategic", subresource="status")
        unready = {"status": {"conditions": [{"type": "Ready", "status": "False"}]}}
        await scene.client.patch(POD, "steady", unready, "default", type="strategic", subresource="status")
        assert not await all_well()
        await scene.until(all_well, 10)
        # and it is not written again and again
        version = (await scene.client.get(NODE, "n1"))["metadata"]["resourceVersion"]
        await scene.clock.sleep(60)
        assert (await scene.client.get(NODE, "n1"))["metadata"]["resourceVersion"] == version


SCENARIOS: dict[str, Scenario] = {
    "a pod that has finished gives its claim back before it says so": finished_pod_gives_back_first,
    "an exit code other than 0 fails a pod that is not restarted": failed_pod_says_so,
    "restarts come at once, then after 10 s, doubling to 300 s": restarts_back_off,
    "pulls of images fail where an annotation says so": image_pulls_fail_and_back_off,
    "what is no name of an image is not pulled": invalid_images_are_not_pulled,
    "behind a failed init container the others wait": containers_behind_failed_init_containers_wait,
    "ClusterTrustBundles are projected": bundles_of_trust_are_projected,
    "/etc/hosts has the pod and its aliases": pods_have_their_hosts,
    "a success under OnFailure is the end": succeeded_on_failure_policy_ends,
    "a success under Always is restarted": always_restarts_after_success,
    "init containers run in order, sidecars around the rest": init_containers_run_in_order,
    "an init container that fails fails the pod": failing_init_container_fails_the_pod,
    "activeDeadlineSeconds ends the pod": deadline_ends_the_pod,
    "a deleted pod waits for its containers": deletion_waits_for_the_containers,
    "the grace period kills what does not stop": grace_is_the_limit,
    "a pod that never started can be deleted without its driver": never_started_pod_can_be_deleted,
    "a failed prepare is tried again and shown": prepare_is_tried_again,
    "the end is not reported before the claim is unprepared": end_waits_for_unprepare,
    "a slow prepare shows ContainerCreating": slow_prepare_is_shown,
    "a shared claim is prepared once and unprepared last": shared_claim_is_prepared_once,
    "force delete and re-create never light one lamp twice": forced_deletion_and_a_successor,
    "a claim made anew under an old name waits": same_name_other_claim,
    "a pod that does not fit is rejected": what_does_not_fit_is_rejected,
    "a claim allocated anew never brings its former device": same_claim_other_allocation,
    "a pod deleted while it is prepared starts nothing": deleted_while_it_is_prepared,
    "claims for extended resources reach their container": extended_resource_claims_are_prepared,
    "claims from templates must be the pod's own": template_claims_must_be_owned,
    "a restarted agent keeps containers and finds what went": agent_restart_keeps_the_containers,
    "what was left behind goes as soon as the driver is back": orphans_do_not_wait_for_the_next_round,
    "after a reboot pods run again, one-time pods failed": reboot_starts_everything_again,
    "a driver that stays away loses its slices, not its pods": driver_stays_away,
    "a wrong annotation is said on the container": annotations_that_say_nothing,
    "status that others wrote is corrected within 10 s": status_of_others_is_corrected,
    "the environment is resolved as a kubelet does": environment_is_complete,
    "the node registers itself, lives by a lease and comes back": node_is_registered,
}


@pytest.mark.parametrize("scenario", SCENARIOS.values(), ids=SCENARIOS)
def test_life_of_a_pod(scenario: Scenario) -> None:
    in_virtual_time(scenario)
