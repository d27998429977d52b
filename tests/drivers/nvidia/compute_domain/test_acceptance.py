"""What must be seen of ComputeDomains, point by point, on a whole cluster in virtual time."""

from __future__ import annotations

import json

import pytest

from dragoman.drivers.nvidia.classes import COMPUTE_DOMAIN
from dragoman.drivers.nvidia.compute_domain.names import CHANNELS, CLIQUE, DOMAIN, FINALIZER, LABEL, NAMESPACE, TARGET
from dragoman.errors import Invalid

from .lab import DomainLab, domain, pod, run


def test_a_new_domain_has_its_objects_and_is_ready() -> None:
    async def scenario(lab: DomainLab) -> None:
        await lab.apply(domain("train", "train-channel"))
        await lab.settles(lambda: lab.domain_is("train", "Ready", 0))
        made = await lab.get(DOMAIN, "train")
        uid = made["metadata"]["uid"]
        assert made["metadata"]["finalizers"] == [FINALIZER]
        daemons = await lab.get("DaemonSet", f"computedomain-daemon-{uid}", NAMESPACE)
        assert daemons["status"]["desiredNumberScheduled"] == 0
        assert daemons["spec"]["template"]["spec"]["nodeSelector"] == {LABEL: uid}
        templates = {t["metadata"]["name"]: t for t in await lab.all("ResourceClaimTemplate")}
        assert templates["train-channel"]["metadata"]["namespace"] == "default"
        assert templates["train-channel"]["metadata"]["labels"] == {LABEL: uid, TARGET: "Workload"}
        own = templates[f"computedomain-daemon-{uid}"]
        assert (own["metadata"]["namespace"], own["metadata"]["labels"][TARGET]) == (NAMESPACE, "Daemon")
        for one in (daemons, *templates.values()):
            assert one["metadata"]["finalizers"] == [FINALIZER]
        config = templates["train-channel"]["spec"]["spec"]["devices"]["config"][0]["opaque"]["parameters"]
        assert (config["domainID"], config["allocationMode"]) == (uid, "Single")

    run(scenario)


def test_the_spec_cannot_be_changed() -> None:
    async def scenario(lab: DomainLab) -> None:
        await lab.apply(domain("train", "train-channel"))
        with pytest.raises(Invalid, match=r"A computeDomain\.spec is immutable"):
            await lab.api.patch(DOMAIN, "train", {"spec": {"numNodes": 2}}, "default")
        with pytest.raises(Invalid, match="numNodes"):
            await lab.apply(domain("other", "x", numNodes=-1))
        with pytest.raises(Invalid, match="allocationMode"):
            await lab.apply(domain("other", "x", mode="Some"))
        with pytest.raises(Invalid, match="resourceClaimTemplate"):
            await lab.apply({**domain("other", "x"), "spec": {"channel": {}}})

    run(scenario)


def test_a_pod_brings_the_daemon_to_its_node_and_waits_for_it() -> None:
    async def scenario(lab: DomainLab) -> None:
        lab.host("rack-1", start_s=30.0)
        await lab.apply(domain("train", "channel-x"))
        await lab.apply(pod("worker", "channel-x", node="rack-1"))
        await lab.clock.sleep(20)
        uid = (await lab.get(DOMAIN, "train"))["metadata"]["uid"]
        assert await lab.labelled() == {"rack-1": uid}
        waiting = await lab.get("Pod", "worker")
        assert waiting["status"]["phase"] == "Pending"
        assert waiting["spec"]["nodeName"] == "rack-1"
        await lab.settles(lambda: lab.domain_is("train", "NotReady", 1))
        await lab.settles(lambda: lab.running("worker"))
        clique = (await lab.all(CLIQUE))[0]
        assert [(d["nodeName"], d["index"], d["status"]) for d in clique["daemons"]] == [("rack-1", 0, "Ready")]
        assert clique["metadata"]["name"] == f"{uid}.{clique['daemons'][0]['cliqueID']}"
        nodes = lab.edits("rack-1", (await lab.claim_of("worker"))["metadata"]["uid"])["deviceNodes"]
        assert [(n["path"], n["type"], n["fileMode"]) for n in nodes] == [
            ("/dev/nvidia-caps-imex-channels/channel0", "c", 0o666)
        ]
        log = lab.agents["rack-1"].runtime.sandboxes[(await lab.get("Pod", "worker"))["metadata"]["uid"]]
        assert log.current["work"].text.split() == ["channel0"]

    run(scenario)


def test_the_reason_is_an_event_of_the_pod() -> None:
    async def scenario(lab: DomainLab) -> None:
        lab.host("rack-0", failure="never-ready")
        await lab.apply(domain("train", "c"), pod("worker", "c", node="rack-0"))
        await lab.clock.sleep(90)
        events = [e["message"] for e in await lab.all("Event") if e["reason"] == "FailedPrepareDynamicResources"]
        assert any("current node not ready in ComputeDomain default/train" in text for text in events), events
        assert (await lab.get("Pod", "worker"))["status"]["phase"] == "Pending"
        lab.host("rack-0", failure="")
        await lab.settles(lambda: lab.running("worker"))

    run(scenario)


def test_members_come_and_go_and_keep_their_indexes() -> None:
    async def scenario(lab: DomainLab) -> None:
        await lab.apply(domain("train", "c"))
        for number in range(3):
            await lab.apply(pod(f"w{number}", "c", node=f"rack-{number}"))
            await lab.settles(lambda name=f"w{number}": lab.running(name))
        uid = (await lab.get(DOMAIN, "train"))["metadata"]["uid"]

        async def indexes() -> dict[str, int]:
            return {d["nodeName"]: d["index"] for c in await lab.all(CLIQUE) for d in c["daemons"]}

        assert await indexes() == {"rack-0": 0, "rack-1": 1, "rack-2": 2}
        await lab.delete("Pod", "w1")
        await lab.settles(lambda: lab.domain_is("train", "Ready", 2))
        await lab.apply(pod("w3", "c", node="rack-3"))
        await lab.settles(lambda: lab.running("w3"))
        assert await indexes() == {"rack-0": 0, "rack-3": 1, "rack-2": 2}
        await lab.clock.sleep(5)
        for node in ("rack-0", "rack-2"):
            state = lab.imex_state(node, uid)
            assert (state.state, state.started) == ("READY", 1)
            assert len(state.peers) == 3

    run(scenario, ("rack", "gb200-nvl72", 4))


@pytest.mark.parametrize(("mode", "count"), [("Single", 1), ("All", CHANNELS)])
def test_how_many_channels_a_container_gets(mode: str, count: int) -> None:
    async def scenario(lab: DomainLab) -> None:
        await lab.apply(domain("train", "c", mode=mode), pod("w", "c", node="rack-2"))
        await lab.settles(lambda: lab.running("w"))
        nodes = lab.edits("rack-2", (await lab.claim_of("w"))["metadata"]["uid"])["deviceNodes"]
        assert len(nodes) == count
        assert nodes[-1]["path"].endswith(f"channel{count - 1}")

    run(scenario)


def test_a_node_without_fabric_takes_part_without_a_channel() -> None:
    async def scenario(lab: DomainLab) -> None:
        await lab.apply(domain("train", "c"), pod("w", "c", node="box"))
        await lab.settles(lambda: lab.running("w"))
        edits = lab.edits("box", (await lab.claim_of("w"))["metadata"]["uid"])
        assert "deviceNodes" not in edits
        nodes = (await lab.get(DOMAIN, "train"))["status"]["nodes"]
        assert [(n["name"], n["cliqueID"], n["index"], n["status"]) for n in nodes] == [("box", "", -1, "Ready")]
        assert await lab.all(CLIQUE) == []

    run(scenario, ("box", "dgx-h100", 1))


def test_a_node_serves_one_domain() -> None:
    async def scenario(lab: DomainLab) -> None:
        await lab.apply(domain("one", "c1"), pod("w1", "c1", node="rack-0"))
        await lab.settles(lambda: lab.running("w1"))
        await lab.apply(domain("two", "c2"), pod("w2", "c2", node="rack-0"))
        await lab.clock.sleep(30)
        second = await lab.get("Pod", "w2")
        assert "nodeName" not in second["spec"]
        condition = next(c for c in second["status"]["conditions"] if c["type"] == "PodScheduled")
        assert (condition["status"], condition["reason"]) == ("False", "Unschedulable")
        # Whatever gives it the device all the same, the node stays with its domain.
        plugin = lab.plugins["rack-0"]
        node = await lab.get("Node", "rack-0", "")
        two = (await lab.get(DOMAIN, "two"))["metadata"]["uid"]
        assert node["metadata"]["labels"][LABEL] != two
        from dragoman.node.driver import NotYet

        with pytest.raises(NotYet, match="label already exists for a different ComputeDomain"):
            await plugin.driver._label(two)
        await lab.delete("Pod", "w1")
        await lab.settles(lambda: lab.running("w2"))
        assert await lab.labelled() == {"rack-0": two}

    run(scenario)


def test_a_claim_of_another_namespace_fails_at_once() -> None:
    async def scenario(lab: DomainLab) -> None:
        await lab.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "other"}})
        await lab.apply(domain("train", "c"))
        await lab.settles(lambda: lab.domain_is("train", "Ready", 0))
        template = await lab.get("ResourceClaimTemplate", "c")
        stolen = {**template, "metadata": {"name": "stolen", "namespace": "other"}}
        await lab.apply(stolen, pod("w", "stolen", node="rack-0", namespace="other"))
        await lab.clock.sleep(10)
        events = [e["message"] for e in await lab.all("Event", "other")]
        assert any("namespace is different than the ComputeDomain's namespace" in text for text in events), events
        assert await lab.labelled() == {}

    run(scenario)


def test_an_unprepare_during_a_prepare_aborts_it() -> None:
    async def scenario(lab: DomainLab) -> None:
        lab.host("rack-0", failure="never-ready")
        await lab.apply(domain("train", "c"), pod("w", "c", node="rack-0"))
        await lab.clock.sleep(10)
        assert await lab.labelled()
        claim = await lab.claim_of("w")
        from dragoman.node.driver import ClaimRef

        ref = ClaimRef("default", claim["metadata"]["name"], claim["metadata"]["uid"])
        plugin = lab.plugins["rack-0"]
        assert await plugin.unprepare_claims([ref]) == {ref.uid: None}
        file = lab.root("rack-0") / "plugins" / COMPUTE_DOMAIN / "checkpoint.json"
        assert json.loads(file.read_text())["data"]["claims"][ref.uid]["state"] == "PrepareAborted"
        assert await lab.labelled() == {}
        lab.host("rack-0", failure="")
        answer = (await plugin.prepare_claims([ref]))[ref.uid]
        assert "claim prepare was already aborted" in str(answer)
        assert await lab.labelled() == {}
        await lab.clock.sleep(100)
        assert all(
            r.state != "PrepareAborted" or r.until > lab.clock.now() - 61 for r in plugin.checkpoint.claims.values()
        )

    run(scenario)


def test_a_domain_with_a_running_workload_ends_with_its_objects() -> None:
    async def scenario(lab: DomainLab) -> None:
        await lab.apply(domain("train", "c"), pod("w", "c", node="rack-0"))
        await lab.settles(lambda: lab.running("w"))
        lab.crash("controller")
        await lab.delete(DOMAIN, "train")
        ending = await lab.get(DOMAIN, "train")
        assert ending["metadata"]["deletionTimestamp"]
        assert ending["metadata"]["finalizers"] == [FINALIZER]

        async def gone() -> str:
            made = [*await lab.all(DOMAIN), *await lab.all("DaemonSet"), *await lab.all("ResourceClaimTemplate")]
            return ", ".join([one["metadata"]["name"] for one in made] + list(await lab.labelled()))

        await lab.settles(gone)
        assert (await lab.get("Pod", "w"))["status"]["phase"] == "Running"
        await lab.delete("Pod", "w")
        await lab.settles(lab.left)

    run(scenario)


def test_only_the_own_node_is_waited_for() -> None:
    async def scenario(lab: DomainLab) -> None:
        await lab.apply(domain("train", "c", numNodes=2), pod("w0", "c", node="rack-0"))
        await lab.settles(lambda: lab.running("w0"))
        assert await lab.domain_is("train", "NotReady", 1) == ""
        await lab.apply(pod("w1", "c", node="rack-1"))
        await lab.settles(lambda: lab.running("w1"))
        await lab.settles(lambda: lab.domain_is("train", "Ready", 2))

    run(scenario)


def test_with_imex_of_the_host_there_are_no_daemons() -> None:
    async def scenario(lab: DomainLab) -> None:
        await lab.apply(domain("train", "c", mode="All"), pod("w", "c", node="rack-0"))
        await lab.settles(lambda: lab.domain_is("train", "Ready", 0))
        assert await lab.all("DaemonSet") == []
        assert [d["name"] for s in await lab.all("ResourceSlice") for d in s["spec"]["devices"]] == ["channel-0"] * 3
        await lab.clock.sleep(60)
        events = [e["message"] for e in await lab.all("Event")]
        assert any("host nvidia-imex daemon not ready" in text for text in events), events
        lab.host("rack-0", service="active")
        await lab.settles(lambda: lab.running("w"))
        nodes = lab.edits("rack-0", (await lab.claim_of("w"))["metadata"]["uid"])["deviceNodes"]
        assert [n["path"] for n in nodes] == ["/dev/nvidia-caps-imex-channels/channel0"]
        assert await lab.labelled() == {}
        await lab.delete(DOMAIN, "train")
        await lab.delete("Pod", "w")
        await lab.settles(lab.left)

    run(scenario, gates={"HostManagedIMEXDaemon": True})


def test_without_cliques_daemons_write_into_the_domain() -> None:
    async def scenario(lab: DomainLab) -> None:
        await lab.apply(domain("train", "c"))
        for number in range(2):
            await lab.apply(pod(f"w{number}", "c", node=f"rack-{number}"))
        await lab.settles(lambda: lab.running("w0", "w1"))
        await lab.settles(lambda: lab.domain_is("train", "Ready", 2))
        nodes = (await lab.get(DOMAIN, "train"))["status"]["nodes"]
        assert sorted(n["index"] for n in nodes) == [0, 1]
        assert await lab.all(CLIQUE) == []
        await lab.delete("Pod", "w0")
        await lab.settles(lambda: lab.domain_is("train", "Ready", 1))

    run(scenario, gates={"ComputeDomainCliques": False})


def test_without_names_all_nodes_of_the_domain_are_waited_for() -> None:
    async def scenario(lab: DomainLab) -> None:
        await lab.apply(domain("train", "c", numNodes=2), pod("w0", "c", node="rack-0"))
        await lab.clock.sleep(120)
        assert (await lab.get("Pod", "w0"))["status"]["phase"] == "Pending"
        await lab.apply(pod("w1", "c", node="rack-1"))
        await lab.settles(lambda: lab.running("w0", "w1"))

    run(scenario, gates={"ComputeDomainCliques": False, "IMEXDaemonsWithDNSNames": False})


@pytest.mark.parametrize("mode", ["never-ready", "crash", "host-service"])
def test_a_fault_of_imex_keeps_the_pod_waiting_until_it_is_mended(mode: str) -> None:
    async def scenario(lab: DomainLab) -> None:
        from dragoman.drivers.nvidia.compute_domain.faults import FAULTS, ImexFault

        await lab.apply(domain("train", "c"))
        await lab.settles(lambda: lab.domain_is("train", "Ready", 0))
        await lab.clock.sleep(5)
        fault, driver = ImexFault("rack-0", mode=mode), lab.plugins["rack-0"].driver
        said = FAULTS[0].inject(driver, None, fault)
        assert "on node rack-0" in said
        await lab.apply(pod("w", "c", node="rack-0"))
        await lab.clock.sleep(60)
        assert (await lab.get("Pod", "w"))["status"]["phase"] == "Pending"
        assert await lab.domain_is("train", "NotReady", 1) == ""
        FAULTS[0].recover(driver, fault)
        await lab.settles(lambda: lab.running("w"))

    run(scenario)


def test_a_fabric_that_is_not_ready_stops_the_driver_unless_the_gate_is_off() -> None:
    from dragoman.drivers.nvidia.compute_domain.fabric import GpuFabric, clique_of
    from dragoman.drivers.nvidia.gates import gates_with

    ready = [GpuFabric(f"gpu-{n}", "COMPLETED", 0, "u-u-i-d", 7) for n in range(2)]
    late = [ready[0], GpuFabric("gpu-1", "IN_PROGRESS")]
    assert clique_of(ready, gates_with({})) == "u-u-i-d.7"
    assert clique_of([GpuFabric("gpu-0")], gates_with({})) == ""
    assert clique_of([GpuFabric("gpu-0", "COMPLETED")], gates_with({})) == ""
    with pytest.raises(Invalid, match="NVLink fabric of GPU gpu-1: state is IN_PROGRESS"):
        clique_of(late, gates_with({}))
    assert clique_of(late, gates_with({"CrashOnNVLinkFabricErrors": False})) == "u-u-i-d.7"
    assert clique_of(late, gates_with({"FabricManagerPartitioning": True})) == "u-u-i-d.7"
    two = [ready[0], GpuFabric("gpu-1", "COMPLETED", 0, "u-u-i-d", 8)]
    with pytest.raises(Invalid, match="in several cliques"):
        clique_of(two, gates_with({}))
