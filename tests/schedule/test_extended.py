"""Extended resources backed by devices: which class, which requests, which mappings (KEP-5004)."""

from __future__ import annotations

from typing import Any

import pytest

from dragoman.schedule.extended import (
    class_resources,
    classes_by_resource,
    served_by_devices,
    special_claim,
    special_requests,
)
from dragoman.schedule.needs import NANOS
from dragoman.testing.build import device_class, pod, snapshot_of, typed
from dragoman.values.quantity import Quantity

G = "e.com/g"


def container(name: str, count: int, *, sidecar: bool = False, **more: str) -> dict[str, Any]:
    made: dict[str, Any] = {"name": name, "resources": {"requests": {G: str(count), **more}}}
    return made | ({"restartPolicy": "Always"} if sidecar else {})


Example = tuple[list[dict[str, Any]], list[dict[str, Any]], dict[str, int], list[tuple[str, str]]]
EXAMPLES: dict[str, Example] = {
    "each regular container has its own request": (
        [],
        [container("a", 2), container("b", 1)],
        {"c0": 2, "c1": 1},
        [("a", "c0"), ("b", "c1")],
    ),
    "an init container uses the devices of a later one": (
        [container("i", 1)],
        [container("a", 2)],
        {"c1": 2},
        [("a", "c1"), ("i", "c1")],
    ),
    "an init container that needs more gets a request for the rest": (
        [container("i", 3)],
        [container("a", 2)],
        {"c0": 1, "c1": 2},
        [("a", "c1"), ("i", "c1"), ("i", "c0")],
    ),
    "only the largest rest of init containers is asked for": (
        [container("i", 3), container("j", 4)],
        [container("a", 2)],
        {"c1": 2, "c2": 2},
        [("a", "c2"), ("i", "c2"), ("i", "c1"), ("j", "c2"), ("j", "c1")],
    ),
    "a sidecar's device is not used by a later init container": (
        [container("s", 1, sidecar=True), container("i", 1)],
        [container("a", 1)],
        {"c0": 1, "c2": 1},
        [("s", "c0"), ("a", "c2"), ("i", "c2")],
    ),
}


@pytest.mark.parametrize("name", EXAMPLES)
def test_requests_and_mappings(name: str) -> None:
    inits, containers, counts, links = EXAMPLES[name]
    made = typed(pod("p", initContainers=inits, containers=containers))
    special = special_requests(made.spec, (G,), {G: "C"})
    asked = {}
    for request in special.requests:
        assert request.exactly is not None
        assert request.exactly.device_class_name == "C"
        asked[request.name] = request.exactly.count

    def long(short: str) -> str:
        return f"container-{short[1:]}-request-0"

    assert asked == {long(short): count for short, count in counts.items()}
    assert [(m.container_name, m.request_name) for m in special.mappings] == [(u, long(s)) for u, s in links]
    assert {m.resource_name for m in special.mappings} == {G}


def test_the_request_counts_among_all_resources_of_its_container_and_names_sort_as_text() -> None:
    containers = [container(f"c{i}", 1, cpu="1", memory="1Gi") for i in range(11)]
    special = special_requests(typed(pod("p", containers=containers)).spec, (G,), {G: "C"})
    # cpu, e.com/g, memory: position 1
    names = [request.name for request in special.requests]
    assert names == sorted(f"container-{i}-request-1" for i in range(11))
    assert names[1:3] == ["container-1-request-1", "container-10-request-1"]


def test_explicit_names_go_to_the_newer_class_then_to_the_smaller_name_and_implicit_names_always_work() -> None:
    def made(name: str, when: str) -> dict[str, Any]:
        return device_class(name, extended=G) | {"metadata": {"name": name, "creationTimestamp": when}}

    early, late = "2026-01-01T00:00:00Z", "2026-02-01T00:00:00Z"
    by_resource = classes_by_resource(snapshot_of(made("b", late), made("c", late), made("a", early)).classes)
    assert by_resource[G] == "b"
    assert by_resource["deviceclass.resource.kubernetes.io/a"] == "a"
    assert by_resource["deviceclass.resource.kubernetes.io/c"] == "c"


def test_devices_serve_a_resource_where_the_node_itself_has_none() -> None:
    needs = {"cpu": NANOS, G: NANOS, "other.com/x": NANOS}
    mapped = class_resources(needs, {G: "C", "cpu": "never"})
    assert mapped == (G,)
    assert served_by_devices(mapped, None) == (G,)
    assert served_by_devices(mapped, {"cpu": Quantity.parse("1")}) == (G,)
    assert served_by_devices(mapped, {G: Quantity.parse("0")}) == (G,)
    assert served_by_devices(mapped, {G: Quantity.parse("4")}) == ()


def test_the_special_claim_is_the_pods_own() -> None:
    owner = typed(pod("p", namespace="team"))
    claim = special_claim(owner, ())
    meta = claim.metadata
    assert (meta.namespace, meta.generate_name) == ("team", "p-extended-resources-")
    assert meta.annotations == {"resource.kubernetes.io/extended-resource-claim": "true"}
    assert meta.controller is not None
    assert (meta.controller.uid, meta.controller.block_owner_deletion) == ("uid-p", None)
