"""What `dragoman record` keeps of a cluster: everything that decisions read, and no secrets of containers."""

from __future__ import annotations

import json
from typing import Any

from dragoman.api import files
from dragoman.api.kinds import kind_of
from dragoman.api.shape import Object
from dragoman.cli.record import recorded
from dragoman.cluster.client import Listed
from dragoman.errors import Forbidden, NotFound
from dragoman.runtime.clock import Clock
from dragoman.snapshot.change import HELD
from dragoman.testing.build import claim, device_class, gpus, node, pod
from dragoman.testing.loop import run
from tests.daemon.test_scheduler import Stage


def with_secret(made: dict[str, Any]) -> dict[str, Any]:
    (container,) = made["spec"]["containers"]
    container |= {"env": [{"name": "TOKEN", "value": "hush"}], "args": ["--password=hush"], "command": ["app"]}
    return made


def test_a_recorded_cluster_reads_back_whole_without_what_containers_are_started_with() -> None:
    async def main(clock: Clock) -> None:
        stage = Stage(clock)
        await stage.apply(node("a"), gpus("a", 2), device_class(), claim("c"), with_secret(pod("p", "c")))
        items, seen = await recorded(stage.client)
        assert seen.hidden == ()
        text = json.dumps({"apiVersion": "v1", "kind": "List", "items": items})
        for word in ("hush", "managedFields", "last-applied"):
            assert word not in text
        there = {(d.kind_name, d.name) for d in files.read(text, "f")}
        assert there >= {("Node", "a"), ("ResourceClaim", "c"), ("Pod", "p"), ("DeviceClass", "gpu.example.com")}
        (found,) = [item for item in items if item["kind"] == "Pod"]
        assert found["spec"]["containers"][0]["name"]
        assert found["spec"]["resourceClaims"]

    run(main)


class Partly:
    """A server without one kind, and without the right to list another."""

    async def list(self, kind: Any, namespace: str = "", **_: Any) -> Listed:
        if kind.kind == "PodGroup":
            raise NotFound("no such kind")
        if kind.kind == "Node":
            raise Forbidden("forbidden")
        item: Object = {"kind": kind.kind, "metadata": {"name": "x", "namespace": namespace}}
        return Listed([item], "1")


def test_what_may_not_be_listed_is_named_and_what_is_not_served_is_not_missed() -> None:
    async def main(clock: Clock) -> None:
        items, seen = await recorded(Partly(), "team")  # type: ignore[arg-type]
        assert seen.hidden == (("Node", ""),)
        assert {item["kind"] for item in items} == {*HELD, "Event"} - {"PodGroup", "Node"}
        for item in items:
            assert item["metadata"]["namespace"] == ("team" if kind_of(item["kind"]).namespaced else "")

    run(main)
