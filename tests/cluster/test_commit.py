"""What the committer sends: every write of ours names the incarnation that it is meant for."""

from __future__ import annotations

from typing import Any

from dragoman.api.meta import Ref
from dragoman.cluster.commit import Committer
from dragoman.effects import Bind, Evict, Patch
from dragoman.runtime.clock import Clock
from dragoman.runtime.entropy import Entropy
from dragoman.testing.loop import run


class Sent:
    """A client that takes everything and remembers it."""

    def __init__(self) -> None:
        self.bodies: list[Any] = []

    async def create(self, kind: Any, body: Any, *more: Any, **named: Any) -> Any:
        self.bodies.append(body)
        return body

    async def patch(self, kind: Any, name: str, body: Any, *more: Any, **named: Any) -> Any:
        self.bodies.append(body)
        return {"metadata": {"name": name, "resourceVersion": "9"}}


def sent(effect: Any) -> Any:
    client: Any = Sent()

    async def main(clock: Clock) -> None:
        outcome = await Committer(client, clock, Entropy(1)).carry_out([effect])
        outcome.check()

    run(main)
    [body] = client.bodies
    return body


def test_a_binding_names_the_uid_of_its_pod() -> None:
    body = sent(Bind(Ref("Pod", "default", "p", "uid-7"), "n"))
    assert body["metadata"] == {"namespace": "default", "name": "p", "uid": "uid-7"}
    assert body["target"]["name"] == "n"


def test_an_eviction_names_the_uid_of_its_pod() -> None:
    body = sent(Evict(Ref("Pod", "default", "p", "uid-7")))
    assert body["deleteOptions"]["preconditions"] == {"uid": "uid-7"}


def test_a_patch_names_uid_and_version() -> None:
    patch = Patch(Ref("ResourceClaim", "default", "c", "uid-1"), {"status": {}}, resource_version="4")
    assert sent(patch)["metadata"] == {"uid": "uid-1", "resourceVersion": "4"}
