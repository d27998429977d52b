"""Quotas in what-if: what is refused, for whom, by how much, and who has the rest."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from dragoman.explain.quotas import as_json, block_lines, blocks
from dragoman.testing.build import device_class, manifest, node, pod, snapshot_of, template
from dragoman.whatif.cluster import bring
from dragoman.whatif.settle import settled

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def quota(hard: dict[str, str], used: dict[str, str] | None = None) -> dict[str, Any]:
    more = {"status": {"hard": hard, "used": used}} if used else {}
    return manifest("ResourceQuota", "q", spec={"hard": hard}, **more)


def deployment(name: str, replicas: int, spec: dict[str, Any]) -> dict[str, Any]:
    labels = {"app": name}
    return manifest(
        "Deployment",
        name,
        spec={
            "replicas": replicas,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": spec},
        },
    )


def test_a_deployment_whose_pods_are_refused_is_found_although_no_pod_exists() -> None:
    spec = pod("x", cpu="3")["spec"]
    found = blocks(settled(bring(snapshot_of(quota({"requests.cpu": "2"}), deployment("api", 2, spec)), NOW)))
    [block] = found
    assert block.wanted_by is not None
    assert (block.wanted_by.kind, block.wanted_by.name) == ("Deployment", "api")
    assert block_lines(block)[1] == ("  requests.cpu: 3 more needed, 0 of 2 in use: 1 missing, 2 would fit")


def test_as_many_replicas_as_fit_are_made_and_the_users_are_named() -> None:
    spec = pod("x", cpu="1")["spec"]
    objects = [quota({"requests.cpu": "3"}), pod("old", cpu="1"), deployment("api", 5, spec)]
    cluster = settled(bring(snapshot_of(*objects), NOW))
    assert len(cluster.snapshot.pods) == 3
    [block] = blocks(cluster)
    body = as_json(block)
    assert body["wantedBy"] == {"kind": "Deployment", "name": "api"}
    assert body["shortages"] == [
        {
            "resource": "requests.cpu",
            "requested": "1",
            "used": "3",
            "hard": "3",
            "missing": "1",
            "left": "0",
            "users": [
                {"name": "Deployment/api", "amount": "2", "objects": 2},
                {"name": "Pod/old", "amount": "1", "objects": 1},
            ],
        }
    ]


def test_claims_that_controllers_make_are_charged() -> None:
    name = "gpu.example.com.deviceclass.resource.k8s.io/devices"
    objects = [node("n"), device_class(), template("t"), *(pod(p, templates=["t"]) for p in "ab")]
    [block] = blocks(settled(bring(snapshot_of(quota({name: "1"}), *objects), NOW)))
    assert block.wanted_by is not None
    assert block.wanted_by.kind == "Pod"
    assert f"exceeded quota: q, requested: {name}=1, used: {name}=1, limited: {name}=1" in block_lines(block)[0]


def test_a_file_that_shows_a_part_of_the_namespace_counts_from_the_status() -> None:
    used = quota({"pods": "10"}, {"pods": "9"})
    cluster = settled(bring(snapshot_of(used, deployment("api", 3, pod("x")["spec"])), NOW))
    assert len(cluster.snapshot.pods) == 1
    assert blocks(cluster)


def test_a_claim_refused_for_an_alternative_that_it_could_do_without() -> None:
    def alternatives(*classes: str) -> dict[str, Any]:
        subs = [{"name": f"as-{name}", "deviceClassName": name, "count": 2} for name in classes]
        return manifest(
            "ResourceClaimTemplate",
            "t",
            spec={"spec": {"devices": {"requests": [{"name": "gpu", "firstAvailable": subs}]}}},
        )

    big = "large.deviceclass.resource.k8s.io/devices"
    small = "small.deviceclass.resource.k8s.io/devices"
    one = pod("p", templates=["t"])
    [block] = blocks(settled(bring(snapshot_of(quota({big: "1"}), alternatives("large", "small"), one), NOW)))
    assert block_lines(block)[-1] == ("  every alternative is charged: without gpu/as-large the quota admits the claim")
    assert as_json(block)["fitsWithout"] == ["gpu/as-large"]
    both = quota({big: "1", small: "1"})
    [block] = blocks(settled(bring(snapshot_of(both, alternatives("large", "small"), one), NOW)))
    assert "fitsWithout" not in as_json(block)
