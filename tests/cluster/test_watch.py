"""Informers against a server that misbehaves, the cache over them, and the committer."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from dragoman.api.kinds import kind_of
from dragoman.api.meta import Ref
from dragoman.cluster.cache import Cache
from dragoman.cluster.commit import Committer
from dragoman.cluster.watch import Informer, Informers
from dragoman.effects import Bind, Create, Delete, Emit, Patch
from dragoman.errors import NotFound, Stale
from dragoman.runtime.metrics import Metrics
from dragoman.runtime.tasks import Tasks
from dragoman.snapshot.change import Gone, Put
from dragoman.testing.build import manifest


def named(changes: list[Any]) -> list[str]:
    return [f"+{c.object.metadata.name}" if isinstance(c, Put) else f"-{c.name}" for c in changes]


@pytest.mark.slow
def test_an_informer_resumes_and_lists_again_when_it_must(run: Any) -> None:
    async def body(t: Any) -> None:
        metrics = Metrics()
        informers = Informers(t.client, t.clock, t.entropy, metrics)
        seen: list[Any] = []
        t.server.put("pods", manifest("Pod", "a"))
        informers.follow("Pod", seen.extend)
        async with Tasks("test", t.clock, t.entropy) as tasks:
            informers.start(tasks)
            await informers.synced()
            assert named(seen) == ["+a"]
            t.server.put("pods", manifest("Pod", "b"))
            t.server.remove("pods", "default", "a")
            await t.until(lambda: len(seen) == 3)
            assert named(seen) == ["+a", "+b", "-a"]
            # An ended watch goes on where it was: nothing twice, nothing missed.
            t.server.drop_watches()
            t.server.put("pods", manifest("Pod", "c"))
            await t.until(lambda: len(seen) == 4)
            assert named(seen)[3:] == ["+c"]
            # Expired history: listed again, and only differences are told.
            t.server.drop_watches()
            t.server.put("pods", manifest("Pod", "d"))
            t.server.remove("pods", "default", "b")
            t.server.put("services", manifest("Pod", "not a pod"))
            t.server.forget_history()
            await t.until(lambda: len(seen) == 6)
            assert named(seen)[4:] == ["-b", "+d"]
            # A second consumer shares the watch and starts with what is known.
            second: list[Any] = []
            informers.follow("Pod", second.extend)
            assert sorted(named(second)) == ["+c", "+d"]
            assert 'dragoman_informer_lists_total{kind="Pod"} 2.0' in metrics.text().decode()
            tasks.stop()

    run(body)


def test_bookmarks_move_the_place_to_resume_from(run: Any) -> None:
    async def body(t: Any) -> None:
        informer = Informer(t.client, kind_of("Pod"), t.clock, t.entropy)
        async with Tasks("test", t.clock, t.entropy) as tasks:
            tasks.start("run", informer.run())
            await informer.synced()
            t.server.bookmark("pods")
            await t.until(lambda: informer.resource_version == str(t.server.version))
            tasks.stop()

    run(body)


def test_a_failing_server_is_waited_out(run: Any) -> None:
    async def body(t: Any) -> None:
        informers = Informers(t.client, t.clock, t.entropy)
        seen: list[Any] = []
        t.server.put("pods", manifest("Pod", "a"))
        for _ in range(3):
            t.server.answers.append(lambda _: t.status(500, "InternalError", "down"))
        informers.follow("Pod", seen.extend)
        async with Tasks("test", t.clock, t.entropy) as tasks:
            informers.start(tasks)
            for failures in (1, 2, 3):
                await t.until(lambda: len(t.server.requests) == failures and bool(t.clock._timers))  # noqa: B023
                t.clock.advance(30)
            await t.until(lambda: bool(seen))
            tasks.stop()
        assert named(seen) == ["+a"]

    run(body)


def test_a_kind_that_is_not_served_counts_as_empty(run: Any) -> None:
    async def body(t: Any) -> None:
        t.server.served["resource.k8s.io"] = []
        informers = Informers(t.client, t.clock, t.entropy)
        informers.of("ResourceClaim")
        async with Tasks("test", t.clock, t.entropy) as tasks:
            informers.start(tasks)
            await informers.synced()
            tasks.stop()

    run(body)


def test_unreadable_objects_do_not_hide_the_others(run: Any) -> None:
    async def body(t: Any) -> None:
        informers = Informers(t.client, t.clock, t.entropy)
        t.server.put("pods", {"metadata": {"name": "bad"}, "spec": 5})
        t.server.put("pods", manifest("Pod", "good"))
        async with Tasks("test", t.clock, t.entropy) as tasks:
            informers.of("Pod")
            informers.start(tasks)
            await informers.synced()
            assert [name for _, name in informers.of("Pod").objects] == ["good"]
            tasks.stop()

    run(body)


def test_deep_parameters_of_one_claim_do_not_stop_the_others(run: Any) -> None:
    async def body(t: Any) -> None:
        informers = Informers(t.client, t.clock, t.entropy)
        deep = manifest("ResourceClaim", "deep")
        parameters: Any = []
        for _ in range(400):
            parameters = [parameters]
        deep["spec"] = {"devices": {"config": [{"opaque": {"driver": "d", "parameters": parameters}}]}}
        t.server.put("resourceclaims", deep)
        t.server.put("resourceclaims", manifest("ResourceClaim", "other"))
        async with Tasks("test", t.clock, t.entropy) as tasks:
            informers.of("ResourceClaim")
            informers.start(tasks)
            await informers.synced()
            assert [name for _, name in informers.of("ResourceClaim").objects] == ["deep", "other"]
            tasks.stop()

    run(body)


def test_what_an_unreadable_claim_holds_stays_held(run: Any) -> None:
    async def body(t: Any) -> None:
        metrics = Metrics()
        informers = Informers(t.client, t.clock, t.entropy, metrics)
        bad = manifest("ResourceClaim", "bad")
        bad["spec"] = {"devices": 5}
        bad["status"] = {"allocation": {"devices": {"results": [{"driver": "d", "pool": "p", "device": "gpu-7"}]}}}
        t.server.put("resourceclaims", bad)
        async with Tasks("test", t.clock, t.entropy) as tasks:
            informers.of("ResourceClaim")
            informers.start(tasks)
            await informers.synced()
            (kept,) = informers.of("ResourceClaim").objects.values()
            assert [result.device for result in kept.status.allocation.devices.results] == ["gpu-7"]
            tasks.stop()

    run(body)


@pytest.mark.slow
@pytest.mark.parametrize("seen_by", ["a broken connection", "a bookmark"])
def test_a_server_put_back_to_an_older_state_is_listed_again(run: Any, seen_by: str) -> None:
    async def body(t: Any) -> None:
        informers = Informers(t.client, t.clock, t.entropy)
        t.server.put("pods", manifest("Pod", "old"))
        t.server.put("pods", manifest("Pod", "changed", spec={"nodeName": "a"}))
        kept = t.server.backup()
        t.server.put("pods", manifest("Pod", "changed", spec={"nodeName": "b"}))
        for at in range(5):
            t.server.put("pods", manifest("Pod", f"later-{at}"))
        informers.of("Pod")
        async with Tasks("test", t.clock, t.entropy) as tasks:
            informers.start(tasks)
            await informers.synced()
            known = informers.of("Pod").objects
            assert len(known) == 7
            await t.until(lambda: t.server.streams == 1)
            t.server.restore(kept)
            if seen_by == "a bookmark":
                t.server.bookmark("pods")
            else:
                t.server.drop_watches()
            await t.until(lambda: len(informers.of("Pod").objects) == 2)
            assert informers.of("Pod").objects["default", "changed"].spec.node_name == "a"
            t.server.put("pods", manifest("Pod", "new"))
            await t.until(lambda: ("default", "new") in informers.of("Pod").objects)
            tasks.stop()

    run(body)


def test_the_cache_shows_assumed_effects_until_the_watch_does(run: Any) -> None:
    async def body(t: Any) -> None:
        informers = Informers(t.client, t.clock, t.entropy)
        cache = Cache(informers, ["Pod", "ResourceClaim"])
        steps: list[list[str]] = []
        cache.listen(lambda changes, before, after: steps.append(named(list(changes))))
        t.server.put("pods", manifest("Pod", "p", metadata={"uid": "uid-p"}))
        made = t.server.put("resourceclaims", manifest("ResourceClaim", "c"))
        committer = Committer(t.client, t.clock, t.entropy, informers=informers)
        async with Tasks("test", t.clock, t.entropy) as tasks:
            informers.start(tasks)
            await cache.synced()
            assert steps == [["+c"], ["+p"]] or steps == [["+p"], ["+c"]]
            reserve = {"status": {"reservedFor": [{"resource": "pods", "name": "p", "uid": "uid-p"}]}}
            effects = [
                Patch(Ref("ResourceClaim", "default", "c", made["metadata"]["uid"]), reserve, subresource="status"),
                Bind(Ref("Pod", "default", "p", "uid-p"), "node-a"),
            ]

            def shown() -> tuple[int, str]:
                snapshot = cache.snapshot
                reserved = snapshot.claims["default", "c"].status.reserved_for
                return len(reserved), snapshot.pods["default", "p"].spec.node_name

            # Forgotten: as before.
            assumption = cache.assume(effects)
            assert shown() == (1, "node-a")
            assert list(cache.snapshot.pods_by_node["node-a"]) == [("default", "p")]
            cache.forget(assumption)
            assert shown() == (0, "")
            # Confirmed: stays, across the watch's confirmation too.
            assumption = cache.assume(effects)
            outcome = await committer.carry_out(effects)
            assert outcome.ok
            cache.confirm(assumption)
            assert shown() == (1, "node-a")
            await t.until(lambda: informers.of("Pod").objects["default", "p"].spec.node_name == "node-a")
            assert shown() == (1, "node-a")
            assert not cache._overlays
            # What others write then shows.
            t.server.put("resourceclaims", manifest("ResourceClaim", "c"))
            await t.until(lambda: shown() == (0, "node-a"))
            tasks.stop()

    run(body)


def test_an_assumption_ends_with_its_object(run: Any) -> None:
    async def body(t: Any) -> None:
        informers = Informers(t.client, t.clock, t.entropy)
        cache = Cache(informers, ["Pod"])
        t.server.put("pods", manifest("Pod", "p", metadata={"uid": "uid-p"}))
        async with Tasks("test", t.clock, t.entropy) as tasks:
            informers.start(tasks)
            await cache.synced()
            cache.assume([Bind(Ref("Pod", "default", "p", "uid-p"), "node-a")])
            t.server.remove("pods", "default", "p")
            await t.until(lambda: not cache.snapshot.pods)
            t.server.put("pods", manifest("Pod", "p", metadata={"uid": "uid-q"}))
            await t.until(lambda: bool(cache.snapshot.pods))
            assert cache.snapshot.pods["default", "p"].spec.node_name == ""
            tasks.stop()

    run(body)


def test_the_outcome_says_how_far_it_came(run: Any) -> None:
    async def body(t: Any) -> None:
        committer = Committer(t.client, t.clock, t.entropy)
        made = t.server.put("pods", manifest("Pod", "p"))
        ref = Ref("Pod", "default", "p", made["metadata"]["uid"])
        effects = [
            Patch(ref, {"metadata": {"labels": {"a": "b"}}}),
            Patch(Ref("Pod", "default", "p", "another incarnation"), {"spec": {}}),
            Delete(ref),
        ]
        outcome = await committer.carry_out(effects)
        assert (outcome.failed_at, type(outcome.error), len(outcome.written)) == (1, Stale, 1)
        assert ("pods", "default", "p") in t.server.objects
        # Versions guard too.
        now = t.server.objects["pods", "default", "p"]["metadata"]["resourceVersion"]
        assert (await committer.carry_out([Patch(ref, {}, resource_version=now)])).ok
        old = await committer.carry_out([Patch(ref, {}, resource_version="1")])
        assert isinstance(old.error, Stale)
        missing = await committer.carry_out([Patch(Ref("Pod", "default", "q"), {})])
        assert isinstance(missing.error, NotFound)
        # What is gone need not be deleted, and another incarnation must not be.
        for gone in (Ref("Pod", "default", "q"), Ref("Pod", "default", "p", "another incarnation")):
            assert (await committer.carry_out([Delete(gone)])).ok
        assert ("pods", "default", "p") in t.server.objects
        assert (await committer.carry_out([Delete(ref)])).ok
        assert ("pods", "default", "p") not in t.server.objects

    run(body)


def test_what_was_created_is_known_at_once(run: Any) -> None:
    async def body(t: Any) -> None:
        informers = Informers(t.client, t.clock, t.entropy)
        cache = Cache(informers, ["ResourceClaim"])
        committer = Committer(t.client, t.clock, t.entropy, informers=informers)
        t.server.put("resourceclaims", manifest("ResourceClaim", "old"))
        async with Tasks("test", t.clock, t.entropy) as tasks:
            informers.start(tasks)
            await cache.synced()
            body = manifest("ResourceClaim", "x")
            body["metadata"] = {"generateName": "new-", "namespace": "default"}
            await committer.carry_out([Create(body)])
            assert ("default", "new-xxxxx") in cache.snapshot.claims
            # and goes when the server says so
            t.server.remove("resourceclaims", "default", "new-xxxxx")
            await t.until(lambda: ("default", "new-xxxxx") not in cache.snapshot.claims)
            tasks.stop()

    run(body)


def test_a_write_whose_object_is_gone_already_does_not_bring_it_back(run: Any) -> None:
    async def body(t: Any) -> None:
        informer = Informer(t.client, kind_of("Pod"), t.clock, t.entropy)
        made = t.server.put("pods", manifest("Pod", "p"))
        async with Tasks("test", t.clock, t.entropy) as tasks:
            tasks.start("run", informer.run())
            await informer.synced()
            # The answer of a write arrives after the watch's word of the deletion.
            answer = {**made, "metadata": {**made["metadata"], "resourceVersion": str(t.server.version + 1)}}
            t.server.remove("pods", "default", "p")
            await t.until(lambda: not informer.objects)
            informer.observe(answer)
            assert not informer.objects
            # Before it: the deletion has the same version.
            t.server.put("pods", manifest("Pod", "q"))
            await t.until(lambda: bool(informer.objects))
            last = t.server.objects["pods", "default", "q"]
            informer.observe({**last, "metadata": {**last["metadata"], "resourceVersion": str(t.server.version + 1)}})
            t.server.remove("pods", "default", "q")
            await t.until(lambda: not informer.objects)
            tasks.stop()

    run(body)


def test_our_own_writes_move_a_version_along(run: Any) -> None:
    async def body(t: Any) -> None:
        committer = Committer(t.client, t.clock, t.entropy)
        made = t.server.put("pods", manifest("Pod", "p"))
        version = made["metadata"]["resourceVersion"]
        ref = Ref("Pod", "default", "p")
        steps = [Patch(ref, {"metadata": {"labels": {"n": str(n)}}}, resource_version=version) for n in range(3)]
        missing = Patch(Ref("Pod", "default", "q"), {})
        outcome = await committer.carry_out([*steps, missing])
        assert outcome.failed_at == 3
        back = [Patch(ref, {"metadata": {"labels": None}}, resource_version=version)]
        assert (await committer.carry_out(back, outcome)).ok
        assert isinstance((await committer.carry_out(back)).error, Stale)
        t.server.put("pods", manifest("Pod", "p"))
        assert isinstance((await committer.carry_out(back, outcome)).error, Stale)

    run(body)


def test_what_we_deleted_counts_as_being_deleted(run: Any) -> None:
    async def body(t: Any) -> None:
        informers = Informers(t.client, t.clock, t.entropy)
        cache = Cache(informers, ["Pod"])
        committer = Committer(t.client, t.clock, t.entropy, informers=informers)
        made = t.server.put("pods", manifest("Pod", "p"))
        async with Tasks("test", t.clock, t.entropy) as tasks:
            informers.start(tasks)
            await cache.synced()
            t.server.answers.append(lambda _: t.status(200, "Success", "will go"))
            await committer.carry_out([Delete(Ref("Pod", "default", "p", made["metadata"]["uid"]))])
            assert cache.snapshot.pods["default", "p"].metadata.deletion_timestamp
            tasks.stop()

    run(body)


def test_changes_can_be_assumed_like_effects(run: Any) -> None:
    async def body(t: Any) -> None:
        informers = Informers(t.client, t.clock, t.entropy)
        cache = Cache(informers, ["Pod"])
        t.server.put("pods", manifest("Pod", "p"))
        t.server.put("pods", manifest("Pod", "q"))
        async with Tasks("test", t.clock, t.entropy) as tasks:
            informers.start(tasks)
            await cache.synced()
            shown = cache.snapshot.pods["default", "p"]
            bound = msgspec.structs.replace(shown, spec=msgspec.structs.replace(shown.spec, node_name="n"))
            assumption = cache.assume([Put("Pod", bound), Gone("Pod", "default", "q")])
            assert list(cache.snapshot.pods.values()) == [bound]
            cache.confirm(assumption)
            assert list(cache.snapshot.pods.values()) == [bound]
            t.server.remove("pods", "default", "q")
            t.server.put("pods", manifest("Pod", "p", spec={"nodeName": "n", "other": 1}))
            await t.until(lambda: not cache._overlays)
            assert list(cache.snapshot.pods) == [("default", "p")]
            tasks.stop()

    run(body)


def test_equal_events_are_counted_and_floods_are_stopped(run: Any) -> None:
    async def body(t: Any) -> None:
        metrics = Metrics()
        committer = Committer(t.client, t.clock, t.entropy, metrics=metrics)

        def emit(message: str, name: str = "p") -> Emit:
            return Emit(Ref("Pod", "default", name, "u"), "Warning", "FailedScheduling", message, "dragoman-scheduler")

        def events() -> list[dict[str, Any]]:
            return [obj for (plural, _, _), obj in sorted(t.server.objects.items()) if plural == "events"]

        async with Tasks("test", t.clock, t.entropy) as tasks:
            tasks.start("events", committer.run())
            await committer.carry_out([emit("no room")])
            await t.until(lambda: len(events()) == 1)
            await committer.carry_out([emit("no room")] * 3)
            await t.until(lambda: events()[0]["count"] == 4)
            event = events()[0]
            assert event["involvedObject"] == {
                "apiVersion": "v1", "kind": "Pod", "name": "p", "namespace": "default", "uid": "u",
            }  # fmt: skip
            assert (event["type"], event["reason"], event["message"]) == ("Warning", "FailedScheduling", "no room")
            assert event["source"] == {"component": "dragoman-scheduler"}
            # Ten different messages, then they are one.
            await committer.carry_out([emit(f"message {n}") for n in range(15)])
            await t.until(lambda: any(e["message"] == "(combined from similar events): message 14" for e in events()))
            assert len(events()) == 11
            # 25 for one object, then one in five minutes.
            await committer.carry_out([emit("no room")] * 100)
            await t.until(lambda: max(e["count"] for e in events()) == 12)
            assert 'dragoman_events_lost_total{why="rate"} 94.0' in metrics.text().decode()
            await committer.carry_out([emit("of another", "q")])
            await t.until(lambda: any(e["message"] == "of another" for e in events()))
            tasks.stop()

    run(body)


def test_gone_and_put_are_what_consumers_get() -> None:
    assert named([Gone("Pod", "default", "a")]) == ["-a"]


def test_a_part_follows_shared_informers_until_it_ends_and_when_it_starts_again(run: Any) -> None:
    async def body(t: Any) -> None:
        metrics = Metrics()
        informers = Informers(t.client, t.clock, t.entropy, metrics)
        t.server.put("pods", manifest("Pod", "a"))
        seen: list[Any] = []

        async def live(name: str) -> None:
            part = informers.part()
            cache = Cache(part, ["Pod"])
            cache.listen(lambda changes, _before, _after: seen.extend(changes))
            async with Tasks("part", t.clock, t.entropy) as tasks:
                part.start(tasks)
                await cache.synced()
                assert ("default", "a") in cache.snapshot.pods, "what was known before it started"
                t.server.put("pods", manifest("Pod", name))
                await t.until(lambda: f"+{name}" in named(seen))
                tasks.stop()

        async with Tasks("whole", t.clock, t.entropy) as whole:
            informers.start(whole)
            await live("b")
            t.server.put("pods", manifest("Pod", "c"))
            await t.until(lambda: ("default", "c") in informers.of("Pod").objects)
            assert named(seen) == ["+a", "+b"], "a part that ended hears nothing"
            await live("d")
            assert sorted(named(seen)[2:]) == ["+a", "+b", "+c", "+d"]
            assert 'dragoman_informer_lists_total{kind="Pod"} 1.0' in metrics.text().decode()
            whole.stop()

    run(body)


def test_a_consumer_that_breaks_keeps_no_change_from_the_others(run: Any) -> None:
    async def body(t: Any) -> None:
        informer = Informer(t.client, kind_of("Pod"), t.clock, t.entropy)
        seen: list[Any] = []

        def broken(changes: Any) -> None:
            raise RuntimeError(len(changes))

        for consumer in (seen.extend, broken, seen.extend):
            informer.subscribe(consumer)
        with pytest.raises(RuntimeError):
            informer.observe(manifest("Pod", "a"))
        assert named(seen) == ["+a", "+a"]

    run(body)
