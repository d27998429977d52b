"""A pod's claims: found, owned, usable, or the first reason why not."""

from __future__ import annotations

from typing import Any

import pytest

from dragoman.explain.messages import sentence
from dragoman.schedule import refusal
from dragoman.schedule.claims import claims_of
from dragoman.testing.build import claim, device_class, manifest, pod, request, snapshot_of, template

GPU = device_class()
ALLOCATION = {"devices": {"results": [{"request": "gpu", "driver": "d", "pool": "p", "device": "x"}]}}


def owned(name: str, uid: str = "uid-p", **status: Any) -> dict[str, Any]:
    owner = {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": uid, "controller": True}
    return claim(name, metadata={"ownerReferences": [owner]}, **status)


def made(entry: str, name: str | None) -> dict[str, Any]:
    status = {"name": entry} | ({"resourceClaimName": name} if name else {})
    return {"resourceClaimStatuses": [status]}


FROM_TEMPLATE = pod("p", templates=["t"], status=made("t", "p-t-abc"))
REFUSED: dict[str, tuple[list[dict[str, Any]], object]] = {
    "a claim that is not there": ([pod("p", "c")], refusal.ClaimNotFound("c", "c")),
    "a template's claim not made yet": (
        [pod("p", templates=["t"]), template("t")],
        refusal.ClaimNotCreated("t", "t", True),
    ),
    "a template that is not there": ([pod("p", templates=["t"])], refusal.ClaimNotCreated("t", "t", False)),
    "a claim on its way out": (
        [pod("p", "c"), claim("c", metadata={"deletionTimestamp": "2026-01-01T00:00:00Z"})],
        refusal.ClaimDeleting("c"),
    ),
    "a recorded claim of another incarnation": (
        [FROM_TEMPLATE, owned("p-t-abc", uid="uid-before")],
        refusal.ClaimNotOwned("t", "p-t-abc"),
    ),
    "an entry of a newer API": ([pod("p", resourceClaims=[{"name": "x"}])], refusal.ClaimUnknown("x")),
    "a claim with all consumers it may have": (
        [
            pod("p", "c"),
            claim(
                "c",
                status={
                    "allocation": ALLOCATION,
                    "reservedFor": [{"resource": "pods", "name": f"o{i}", "uid": f"u{i}"} for i in range(256)],
                },
            ),
        ],
        refusal.ClaimFull("c", 256, 256),
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name: str) -> None:
    objects, expected = REFUSED[name]
    snapshot = snapshot_of(*objects)
    assert claims_of(snapshot, snapshot.pods["default", "p"]) == expected


def test_an_allocated_claim_does_not_need_its_class() -> None:
    snapshot = snapshot_of(pod("p", "c"), claim("c", status={"allocation": ALLOCATION}))
    found = claims_of(snapshot, snapshot.pods["default", "p"])
    assert isinstance(found, tuple)
    assert [(used.allocated, used.reserved) for used in found] == [(True, False)]


def test_claims_come_in_the_pods_order_each_once_and_deliberate_gaps_are_skipped() -> None:
    wanting = pod("p", "b", "a", templates=["t"], status=made("t", None))
    wanting["spec"]["resourceClaims"].append({"name": "again", "resourceClaimName": "b"})
    snapshot = snapshot_of(GPU, wanting, claim("a"), claim("b"))
    found = claims_of(snapshot, snapshot.pods["default", "p"])
    assert isinstance(found, tuple)
    assert [used.claim.metadata.name for used in found] == ["b", "a"]


def test_a_reservation_of_an_earlier_pod_of_that_name_does_not_count() -> None:
    entry = {"resource": "pods", "name": "p", "uid": "uid-before"}
    snapshot = snapshot_of(pod("p", "c"), claim("c", status={"allocation": ALLOCATION, "reservedFor": [entry]}))
    found = claims_of(snapshot, snapshot.pods["default", "p"])
    assert isinstance(found, tuple)
    assert not found[0].reserved


def test_a_claim_that_is_being_written_is_waited_for() -> None:
    snapshot = snapshot_of(GPU, pod("p", "c"), claim("c"))
    wanting = snapshot.pods["default", "p"]
    assert claims_of(snapshot, wanting, {("default", "c")}) == refusal.ClaimInFlight("c")


@pytest.mark.parametrize("value", ["", "false", "true"])
def test_a_template_whose_namespace_lost_the_label_of_admin_access_says_so(value: str) -> None:
    labels = {"resource.kubernetes.io/admin-access": value} if value else {}
    watching = template("t", request(adminAccess=True))
    objects = [pod("p", templates=["t"]), watching, manifest("Namespace", "default", metadata={"labels": labels})]
    snapshot = snapshot_of(*objects)
    found = claims_of(snapshot, snapshot.pods["default", "p"])
    unlabelled = "" if value == "true" else "default"
    assert found == refusal.ClaimNotCreated("t", "t", True, unlabelled)
    if unlabelled:
        assert isinstance(found, refusal.ClaimNotCreated)
        said = sentence(found)
        assert "ResourceClaimTemplate t requests admin access" in said
        assert "namespace default lacks the label resource.kubernetes.io/admin-access=true" in said
