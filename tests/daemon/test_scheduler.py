"""The scheduler daemon against the embedded API in process, in virtual time."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

from dragoman.allocate.allocator import AllocatorOptions, SearchLimits
from dragoman.api.gates import DEFAULTS, Gates, lenient_gates
from dragoman.api.kinds import kind_of
from dragoman.api.meta import Ref
from dragoman.api.selectors import DeviceView, Selector
from dragoman.api.shape import Object
from dragoman.apiserver.bootstrap import bootstrap
from dragoman.apiserver.fields import fields_of
from dragoman.apiserver.inprocess import InProcessClient
from dragoman.apiserver.registry import Registry
from dragoman.apiserver.store import Store
from dragoman.cluster.client import Client
from dragoman.cluster.commit import Committer
from dragoman.daemon.scheduler import Scheduler, SchedulerSettings
from dragoman.effects import Bind
from dragoman.errors import Retry, Stale
from dragoman.runtime.clock import Clock
from dragoman.runtime.entropy import Entropy
from dragoman.runtime.metrics import Metrics
from dragoman.runtime.tasks import Tasks
from dragoman.schedule.queue import QueueLimits
from dragoman.testing.build import claim, device, device_class, gpus, manifest, node, pod, pool, request, template
from dragoman.testing.loop import run
from dragoman.testing.wait import until

POD, CLAIM, EVENT = kind_of("Pod"), kind_of("ResourceClaim"), kind_of("Event")


class Stage:
    """A cluster's API, a scheduler on it, and time."""

    def __init__(self, clock: Clock, seed: int = 1, gates: Gates = DEFAULTS) -> None:
        self.clock = clock
        self.entropy = Entropy(seed)
        registry = Registry(Store(fields_of), clock, self.entropy, gates)
        bootstrap(registry)
        self.api = InProcessClient(registry)
        self.client: Client = self.api

    async def apply(self, *manifests: dict[str, Any]) -> None:
        for made in manifests:
            body = {**made, "metadata": {k: v for k, v in made["metadata"].items() if k != "uid"}}
            status = body.pop("status", None)
            kind, namespace = kind_of(made["kind"]), made["metadata"].get("namespace", "")
            await self.api.create(kind, body, namespace)
            if status:
                await self.api.patch(
                    kind, made["metadata"]["name"], {"status": status}, namespace, subresource="status"
                )

    async def pod(self, name: str) -> Object:
        return await self.api.get(POD, name, "default")

    async def claim(self, name: str) -> Object:
        return await self.api.get(CLAIM, name, "default")

    async def until(self, holds: Callable[[], Awaitable[bool]], within_s: float = 60.0) -> float:
        """Seconds until it holds."""
        began = self.clock.monotonic()
        await until(holds, within_s, every_s=0.01)
        return self.clock.monotonic() - began

    async def bound(self, name: str, within_s: float = 60.0) -> float:
        async def holds() -> bool:
            return bool((await self.pod(name))["spec"].get("nodeName"))

        return await self.until(holds, within_s)

    async def event(self, reason: str, name: str) -> str:
        """The latest message of that reason about a pod."""
        found: list[Object] = []

        async def holds() -> bool:
            events = (await self.api.list(EVENT, "default")).items
            found[:] = [e for e in events if e["reason"] == reason and e["involvedObject"]["name"] == name]
            return bool(found)

        await self.until(holds)
        return str(found[-1]["message"])


def staged(
    scenario: Callable[[Stage], Awaitable[None]],
    settings: SchedulerSettings | None = None,
    wrap: Any = None,
    metrics: Metrics | None = None,
) -> None:
    async def main(clock: Clock) -> None:
        stage = Stage(clock)
        if wrap is not None:
            stage.client = wrap(stage.api)
        async with Tasks("test", clock, stage.entropy) as tasks:
            scheduler = Scheduler(stage.client, clock, stage.entropy, settings, metrics)
            tasks.supervise("scheduler", scheduler.run)
            await scenario(stage)
            tasks.stop()

    run(main)


def test_a_pod_with_a_claim_is_bound_with_its_device() -> None:
    async def scenario(stage: Stage) -> None:
        await stage.apply(node("a"), gpus("a", 2), device_class(), claim("c"), pod("p", "c"))
        assert await stage.bound("p") < 1.0
        found = await stage.claim("c")
        assert found["metadata"]["finalizers"] == ["resource.kubernetes.io/delete-protection"]
        assert found["status"]["allocation"]["devices"]["results"][0]["device"] == "gpu-0"
        uid = (await stage.pod("p"))["metadata"]["uid"]
        assert found["status"]["reservedFor"] == [{"resource": "pods", "name": "p", "uid": uid}]
        assert await stage.event("Scheduled", "p") == "Successfully assigned default/p to a"

    staged(scenario)


def test_two_pods_share_one_claim() -> None:
    async def scenario(stage: Stage) -> None:
        await stage.apply(node("a"), node("b"), gpus("b", 1), device_class(), claim("c"), pod("p", "c"), pod("q", "c"))
        await stage.bound("p")
        assert await stage.bound("q") < 2.0
        assert (await stage.pod("q"))["spec"]["nodeName"] == "b"
        assert len((await stage.claim("c"))["status"]["reservedFor"]) == 2

    staged(scenario)


def test_a_pending_pod_says_why_and_runs_at_once_when_a_device_is_free() -> None:
    async def scenario(stage: Stage) -> None:
        await stage.apply(node("a"), gpus("a", 1), device_class(), claim("c"), pod("p", "c"))
        await stage.bound("p")
        await stage.apply(claim("d"), pod("q", "d"))
        said = await stage.event("FailedScheduling", "q")
        assert said.startswith("0/1 nodes are available: 1 cannot allocate all claims.")
        assert "1 device of class gpu.example.com requested" in said
        assert "1 device matches, 0 of them free" in said
        condition = (await stage.pod("q"))["status"]["conditions"][0]
        assert (condition["type"], condition["status"], condition["reason"]) == (
            "PodScheduled",
            "False",
            "Unschedulable",
        )
        assert condition["message"] == said
        await stage.clock.sleep(100)
        free = {"status": {"allocation": None, "reservedFor": None}}
        await stage.api.patch(CLAIM, "c", free, "default", subresource="status")
        assert await stage.bound("q") < 0.1

    staged(scenario)


def test_pods_of_other_schedulers_are_left_alone() -> None:
    async def scenario(stage: Stage) -> None:
        await stage.apply(node("a"), pod("other", schedulerName="somebody"), pod("p"))
        await stage.bound("p")
        assert "nodeName" not in (await stage.pod("other"))["spec"]

    staged(scenario)


def test_a_binding_is_for_one_pod_and_never_for_the_next_one_of_that_name() -> None:
    async def scenario(stage: Stage) -> None:
        await stage.apply(node("a"), pod("made-anew", schedulerName="somebody"))
        committer = Committer(stage.client, stage.clock, stage.entropy)
        decided_for = Ref("Pod", "default", "made-anew", "the uid of its predecessor")
        outcome = await committer.carry_out([Bind(decided_for, "a")])
        assert isinstance(outcome.error, Stale)
        assert "nodeName" not in (await stage.pod("made-anew"))["spec"]
        uid = (await stage.pod("made-anew"))["metadata"]["uid"]
        assert (await committer.carry_out([Bind(Ref("Pod", "default", "made-anew", uid), "a")])).ok

    staged(scenario)


def test_the_more_important_pod_gets_the_last_device() -> None:
    async def scenario(stage: Stage) -> None:
        await stage.apply(
            *[manifest("PriorityClass", name, value=value) for name, value in (("low", 1), ("high", 9))],
            *[device_class(), claim("c"), claim("d")],
            *[pod("low", "c", priorityClassName="low"), pod("high", "d", priorityClassName="high")],
        )
        await stage.event("FailedScheduling", "low")
        await stage.apply(node("a"))
        await stage.apply(gpus("a", 1))
        await stage.bound("high")
        await stage.clock.sleep(20)
        assert "nodeName" not in (await stage.pod("low"))["spec"]

    staged(scenario)


class LateGroups:
    """A client that lists PodGroups late, as a server may."""

    def __init__(self, inner: Client) -> None:
        self._inner = inner

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    async def list(self, kind: Any, namespace: str = "", **rest: Any) -> Any:
        if kind.kind == "PodGroup":
            await asyncio.sleep(1)
        return await self._inner.list(kind, namespace, **rest)


def test_pods_that_are_seen_before_their_basic_group_are_all_placed() -> None:
    async def main(clock: Clock) -> None:
        gates = lenient_gates("GenericWorkload=true")[0]
        stage = Stage(clock, gates=gates)
        members = [pod(f"p{n}", "shared", schedulingGroup={"podGroupName": "team"}) for n in range(3)]
        group = manifest("PodGroup", "team", spec={"schedulingPolicy": {"basic": {}}})
        await stage.apply(device_class(), node("a"), gpus("a", 1), claim("shared"), group, *members)
        settings = SchedulerSettings(options=AllocatorOptions(gates=gates))
        async with Tasks("test", clock, stage.entropy) as tasks:
            client: Any = LateGroups(stage.client)
            tasks.supervise("scheduler", Scheduler(client, clock, stage.entropy, settings).run)
            for number in range(3):
                await stage.bound(f"p{number}")
            tasks.stop()

    run(main)


def test_gated_pods_wait_for_their_gates() -> None:
    async def scenario(stage: Stage) -> None:
        await stage.apply(node("a"), pod("p", schedulingGates=[{"name": "quota"}]), pod("q"))
        await stage.bound("q")
        assert "nodeName" not in (await stage.pod("p"))["spec"]
        await stage.api.patch(POD, "p", {"spec": {"schedulingGates": None}}, "default")
        await stage.bound("p")

    staged(scenario)


def test_an_extended_resource_gets_a_claim() -> None:
    async def scenario(stage: Stage) -> None:
        await stage.apply(
            node("a", cpu="4", memory="8Gi", pods="10"),
            gpus("a", 2),
            device_class(extended="example.com/gpu"),
            pod("p", extended={"example.com/gpu": "1"}),
        )
        await stage.bound("p")
        status = (await stage.pod("p"))["status"]["extendedResourceClaimStatus"]
        held = await stage.claim(status["resourceClaimName"])
        assert held["status"]["allocation"]["devices"]["results"][0]["device"] == "gpu-0"
        assert status["requestMappings"][0]["requestName"] == "container-0-request-0"

    staged(scenario)


def test_binding_conditions_are_waited_for_and_a_failure_allocates_again() -> None:
    conditional = {"bindingConditions": ["up"], "bindingFailureConditions": ["broken"]}

    async def report(stage: Stage, device_name: str, condition: str) -> None:
        entry = {
            "driver": "gpu.example.com",
            "pool": "a",
            "device": device_name,
            "conditions": [
                {
                    "type": condition,
                    "status": "True",
                    "reason": "X",
                    "message": "",
                    "lastTransitionTime": "2026-01-01T00:00:00Z",
                }
            ],
        }
        await stage.api.patch(CLAIM, "c", {"status": {"devices": [entry]}}, "default", subresource="status")

    async def scenario(stage: Stage) -> None:
        devices = [device("x") | conditional, device("y") | conditional]
        await stage.apply(node("a"), pool("a", devices, node="a"), device_class(), claim("c"), pod("p", "c"))
        await stage.event("BindingConditionsPending", "p")
        await stage.clock.sleep(30)
        assert "nodeName" not in (await stage.pod("p"))["spec"]
        await report(stage, "x", "broken")

        async def again() -> bool:
            status = (await stage.claim("c")).get("status", {})
            return bool(status.get("reservedFor")) and not status.get("devices")

        await stage.until(again)
        await report(stage, "x", "up")
        assert await stage.bound("p") < 1.0

    staged(scenario)


class Faulty:
    """Passes calls on; `before` and `after` may give an error (call not done, answer lost). Watches of claims lag by lag_s."""

    def __init__(self, inner: Client, lag_s: float = 0.0) -> None:
        self.inner = inner
        self.lag_s = lag_s
        self.before: Callable[[str, str], Exception | None] = lambda verb, what: None
        self.after: Callable[[str, str], Exception | None] = lambda verb, what: None

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    async def watch(self, kind: Any, resource_version: str, namespace: str = "", **rest: Any) -> AsyncIterator[Any]:
        async for event in self.inner.watch(kind, resource_version, namespace, **rest):
            if self.lag_s and kind.kind == "ResourceClaim":
                await asyncio.sleep(self.lag_s)
            yield event

    async def _call(self, verb: str, what: str, work: Callable[[], Awaitable[Object]]) -> Object:
        await asyncio.sleep(0)
        error = self.before(verb, what)
        if error is not None:
            raise error
        answer = await work()
        error = self.after(verb, what)
        if error is not None:
            raise error
        return answer

    async def create(self, kind: Any, obj: Object, namespace: str = "", **rest: Any) -> Object:
        what = rest.get("subresource") or kind.kind
        return await self._call("create", what, lambda: self.inner.create(kind, obj, namespace, **rest))

    async def patch(self, kind: Any, name: str, patch: Any, namespace: str = "", **rest: Any) -> Object:
        what = f"{kind.kind}/{rest.get('subresource', '')}"
        return await self._call("patch", what, lambda: self.inner.patch(kind, name, patch, namespace, **rest))


def failing_once(verb: str, what: str, error: Exception) -> Callable[[str, str], Exception | None]:
    left = [error]

    def fail(v: str, w: str) -> Exception | None:
        return left.pop() if left and (v, w) == (verb, what) else None

    return fail


def test_a_refused_binding_gives_the_claim_back_and_the_pod_is_decided_again() -> None:
    faulty: list[Faulty] = []

    def wrap(inner: Client) -> Faulty:
        faulty.append(Faulty(inner))
        faulty[0].before = failing_once("create", "binding", Stale("conflict"))
        return faulty[0]

    async def scenario(stage: Stage) -> None:
        await stage.apply(node("a"), gpus("a", 1), device_class(), claim("c"), pod("p", "c"))
        await stage.bound("p")
        assert len((await stage.claim("c"))["status"]["reservedFor"]) == 1

    staged(scenario, wrap=wrap)


def test_a_binding_whose_answer_was_lost_keeps_its_claim() -> None:
    def wrap(inner: Client) -> Faulty:
        faulty = Faulty(inner)
        faulty.after = failing_once("create", "binding", Retry("connection lost"))
        return faulty

    async def scenario(stage: Stage) -> None:
        await stage.apply(node("a"), gpus("a", 1), device_class(), claim("c"), pod("p", "c"))
        await stage.bound("p")
        await stage.clock.sleep(60)
        found = (await stage.claim("c"))["status"]
        assert found["allocation"]["devices"]["results"][0]["device"] == "gpu-0"
        assert len(found["reservedFor"]) == 1

    staged(scenario, wrap=wrap)


def test_an_allocation_that_cannot_be_written_is_tried_again() -> None:
    def wrap(inner: Client) -> Faulty:
        faulty = Faulty(inner)
        faulty.before = failing_once("patch", "ResourceClaim/status", Retry("503", after_s=2.0))
        return faulty

    async def scenario(stage: Stage) -> None:
        await stage.apply(node("a"), gpus("a", 1), device_class(), claim("c"), pod("p", "c"))
        assert 1.9 < await stage.bound("p") < 5.0

    staged(scenario, wrap=wrap)


def test_a_pod_deleted_while_pending_frees_its_place_in_the_queue() -> None:
    async def scenario(stage: Stage) -> None:
        await stage.apply(device_class(), claim("c"), pod("p", "c"), node("a"))
        await stage.event("FailedScheduling", "p")
        await stage.api.delete(POD, "p", "default", grace_period_s=0)
        await stage.apply(gpus("a", 1), pod("q", "c"))
        await stage.bound("q")

    staged(scenario)


def hard_claim(name: str) -> dict[str, Any]:
    """One that needs a search: three devices that are the same in one way and two of them in another."""
    select = "device.attributes['gpu.example.com']"
    requests = [request("a", select=f"{select}.size >= 1"), request("b", select=f"{select}.size >= 2"), request("c")]
    same = [{"requests": ["a", "b", "c"], "matchAttribute": "gpu.example.com/numa"}]
    differ = [{"requests": ["a", "b"], "distinctAttribute": "gpu.example.com/size"}]
    return claim(name, *requests, constraints=[*same, *differ])


def test_a_search_that_gives_up_is_gone_on_with_elsewhere_and_ends() -> None:
    async def scenario(stage: Stage) -> None:
        devices = [device(f"d{i}", numa=i // 2, size=1 + i % 3) for i in range(5)] + [device("e", numa=2, size=2)]
        devices += [device("f", numa=2, size=1)]
        await stage.apply(node("a"), pool("a", devices, node="a"), device_class(), hard_claim("c"), pod("p", "c"))
        await stage.bound("p", within_s=60)
        picked = (await stage.claim("c"))["status"]["allocation"]["devices"]["results"]
        assert len({result["device"] for result in picked}) == 3

    options = AllocatorOptions(limits=SearchLimits(search_steps=1))
    counted = Metrics()
    staged(scenario, SchedulerSettings(options=options), metrics=counted)
    assert b'dragoman_scheduler_decisions_total{outcome="undecided"}' in counted.text()
    assert b'dragoman_scheduler_units{state="unschedulable"} 0.0' in counted.text()


NUMBERS = f"[{', '.join(map(str, range(14)))}]"
COSTLY = f"""{NUMBERS}.all(a, {NUMBERS}.all(b, {NUMBERS}.all(c, {NUMBERS}.all(d,
    device.attributes["gpu.example.com"].uuid != "x"))))"""


def costly_claim(name: str, count: int = 1) -> dict[str, Any]:
    """A claim with a selector that the API accepts and that takes some 20 ms a device."""
    return claim(name, request("r", count=count, select=COSTLY))


def on_real_time(scenario: Callable[[Stage], Awaitable[None]], settings: SchedulerSettings) -> None:
    """As staged, on a clock that goes on while Python computes."""

    async def main() -> None:
        stage = Stage(Clock())
        async with Tasks("test", stage.clock, stage.entropy) as tasks:
            tasks.supervise("scheduler", Scheduler(stage.client, stage.clock, stage.entropy, settings).run)
            await scenario(stage)
            tasks.stop()

    asyncio.run(main())


def test_a_costly_selector_is_evaluated_off_the_loop_and_the_claim_is_allocated() -> None:
    async def scenario(stage: Stage) -> None:
        main, where = threading.current_thread(), []
        match = Selector.match

        def seen(selector: Selector, view: DeviceView) -> Any:
            if selector.expression == COSTLY:
                where.append(threading.current_thread())
            return match(selector, view)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Selector, "match", seen)
            devices = [device(f"d{i}", uuid=f"u{i}") for i in range(3)]
            await stage.apply(node("a"), pool("a", devices, node="a"), device_class(), costly_claim("c", 2))
            await stage.apply(pod("p", "c"))
            await stage.bound("p")
        picked = (await stage.claim("c"))["status"]["allocation"]["devices"]["results"]
        assert [result["device"] for result in picked] == ["d0", "d1"]
        assert where
        assert main not in where

    on_real_time(scenario, SchedulerSettings())


def test_a_decision_that_takes_too_long_is_an_error_of_the_scheduler_and_others_go_on() -> None:
    async def scenario(stage: Stage) -> None:
        devices = [device(f"d{i}", uuid=f"u{i}") for i in range(29)]
        await stage.apply(node("a"), pool("a", devices, node="a"), device_class(), costly_claim("c", 30))
        await stage.apply(pod("p", "c"))
        texts = [await stage.event("FailedScheduling", "p")]
        assert "filter plugin: node a: timed out trying to allocate devices (filterTimeout 0.1s)" in texts[0]
        condition = (await stage.pod("p"))["status"]["conditions"][0]
        assert (condition["reason"], condition["message"]) == ("SchedulerError", texts[0])
        await stage.apply(claim("d"), pod("q", "d"))
        await stage.bound("q")

    on_real_time(scenario, SchedulerSettings(filter_timeout_s=0.1))


def test_without_the_gate_there_is_no_time_limit() -> None:
    async def scenario(stage: Stage) -> None:
        devices = [device(f"d{i}", uuid=f"u{i}") for i in range(10)]
        await stage.apply(node("a"), pool("a", devices, node="a"), device_class(), costly_claim("c", 10))
        await stage.apply(pod("p", "c"))
        await stage.bound("p")

    gates = lenient_gates("DRASchedulerFilterTimeout=false")[0]
    on_real_time(scenario, SchedulerSettings(filter_timeout_s=0.02, options=AllocatorOptions(gates=gates)))


def test_what_a_decision_found_out_before_its_time_was_over_is_not_asked_again() -> None:
    async def scenario(stage: Stage) -> None:
        devices = [device(f"d{i}", uuid=f"u{i}") for i in range(12)]
        await stage.apply(node("a"), pool("a", devices, node="a"), device_class(), costly_claim("c", 12))
        await stage.apply(pod("p", "c"))
        assert "timed out" in await stage.event("FailedScheduling", "p")
        await stage.bound("p")

    on_real_time(
        scenario, SchedulerSettings(filter_timeout_s=0.05, limits=QueueLimits(backoff_first_s=0.01, backoff_max_s=0.05))
    )


def test_reasons_that_pass_by_themselves_are_reported_only_if_they_last() -> None:
    async def scenario(stage: Stage) -> None:
        await stage.apply(node("a"), template("t"), pod("p", templates=["t"]), pod("q", templates=["none"]))
        assert "ResourceClaimTemplate none does not exist" in await stage.event("FailedScheduling", "q")
        await stage.clock.sleep(1)
        events = (await stage.api.list(EVENT, "default")).items
        assert not [e for e in events if e["involvedObject"]["name"] == "p"]
        assert "is not created yet" in await stage.event("FailedScheduling", "p")

    staged(scenario)


def test_of_two_claims_on_one_device_the_newer_gives_way_and_is_decided_again() -> None:
    async def scenario(stage: Stage) -> None:
        gate = [{"name": "wait"}]
        await stage.apply(node("a"), gpus("a", 2), device_class(), claim("c"), claim("d"), pod("p", "c"))
        await stage.bound("p")
        await stage.apply(pod("q", "d", schedulingGates=gate))
        held = (await stage.claim("c"))["status"]["allocation"]
        await stage.clock.sleep(5)
        copy = {**held, "allocationTimestamp": "2027-01-15T08:00:05Z"}
        meta = (await stage.pod("q"))["metadata"]
        consumer = {"resource": "pods", "name": "q", "uid": meta["uid"]}
        finalizers = {"metadata": {"finalizers": ["resource.kubernetes.io/delete-protection"]}}
        await stage.api.patch(CLAIM, "d", finalizers, "default")
        stolen = {"status": {"allocation": copy, "reservedFor": [consumer]}}
        await stage.api.patch(CLAIM, "d", stolen, "default", subresource="status")

        async def given_up() -> bool:
            return not (await stage.claim("d"))["status"].get("allocation")

        await stage.until(given_up, within_s=5)
        await stage.api.patch(POD, "q", {"spec": {"schedulingGates": None}}, "default")
        await stage.bound("q")
        devices = [(await stage.claim(n))["status"]["allocation"]["devices"]["results"][0]["device"] for n in "cd"]
        assert devices == ["gpu-0", "gpu-1"]

    counted = Metrics()
    staged(scenario, metrics=counted)
    assert b"dragoman_scheduler_double_allocations_total 1.0" in counted.text()


def test_a_device_whose_allocation_may_have_been_written_is_given_to_nobody_else() -> None:
    # Found by a simulated life: the answer is lost, and the watch has not shown the write yet.
    def wrap(inner: Client) -> Faulty:
        faulty = Faulty(inner, lag_s=2.0)
        faulty.after = failing_once("patch", "ResourceClaim/status", Retry("connection lost"))
        return faulty

    async def scenario(stage: Stage) -> None:
        await stage.apply(node("a"), gpus("a", 1), device_class())
        await stage.clock.sleep(20)
        await stage.apply(claim("c"), claim("d"))
        await stage.clock.sleep(20)
        await stage.apply(pod("p", "c"), pod("q", "d"))

        async def one_bound() -> bool:
            allocated = [(await stage.claim(name)).get("status", {}).get("allocation") for name in "cd"]
            assert not all(allocated), "one device was given to two claims"
            return any([(await stage.pod(name))["spec"].get("nodeName") for name in "pq"])

        await stage.until(one_bound)
        for _ in range(1000):
            await stage.clock.sleep(0.01)
            await one_bound()

    staged(scenario, wrap=wrap)
