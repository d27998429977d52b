"""What is read of a live cluster whose server has no DRA, and what is said of kinds that may not be seen."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from dragoman.cli import live
from dragoman.cluster.client import Listed
from dragoman.errors import Forbidden, NotServed, Retry


class Server:
    """Lists answer with what `errors` says of a kind, cluster-wide; of namespace "red" always with its objects."""

    def __init__(self, errors: dict[str, Exception], objects: dict[str, list[dict[str, Any]]] | None = None) -> None:
        self.errors = errors
        self.objects = objects or {}

    async def list(self, kind: Any, namespace: str = "", **_: Any) -> Listed:
        if kind.kind in self.errors and not namespace:
            raise self.errors[kind.kind]
        return Listed(self.objects.get(kind.kind, []), "1")


def read(server: Server, own: str = "") -> live.LiveObjects:
    kinds = ("Pod", "Node", "ResourceClaim", "ResourceSlice", "DeviceClass", "PodGroup")
    return asyncio.run(live.read(server, kinds, own=own))  # type: ignore[arg-type]


def test_a_server_without_dra() -> None:
    missing = NotServed("https://s serves no resourceslices.resource.k8s.io in v1")
    with pytest.raises(NotServed, match=r"https://s serves no .*: Dynamic Resource Allocation is off there; .* 1.34"):
        read(Server({"ResourceSlice": missing}))
    with pytest.raises(NotServed, match="not a Kubernetes API server"):
        read(Server({"Pod": NotServed("https://s: GET /api/v1/pods is not served")}))
    assert read(Server({"PodGroup": NotServed("x")})).hidden == ()


def test_the_first_error_of_several_lists_is_the_one() -> None:
    with pytest.raises(Retry, match="down"):
        read(Server({"Pod": Retry("down"), "Node": Retry("down"), "DeviceClass": Retry("down")}))


def test_pods_of_other_namespaces_are_unknown_holders() -> None:
    consumers = [{"resource": "pods", "name": name, "uid": name} for name in ("a", "b")]
    claims = [
        {"metadata": {"namespace": "blue", "name": "c"}, "status": {"reservedFor": consumers}},
        {"metadata": {"namespace": "red", "name": "d"}, "status": {"reservedFor": consumers[:1]}},
    ]
    seen = read(Server({"Pod": Forbidden("no")}, {"ResourceClaim": claims}), own="red")
    assert seen.hidden == (("Pod", "red"),)
    (line,) = live.notes(seen)
    assert line.startswith("note: pods outside namespace red not visible: ")
    assert line.endswith("(2 holders unknown)")
    assert live.hidden_kinds(seen) == frozenset()
