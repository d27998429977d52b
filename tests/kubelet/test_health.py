"""Device health: what counts as news, when silence is Unknown, what a lost stream does."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from dragoman.kubelet.claims import Claims
from dragoman.kubelet.health import Health
from dragoman.kubelet.state import ClaimState, ClaimStates, DriverState, PreparedDeviceState
from dragoman.node.driver import DeviceHealth
from dragoman.runtime.clock import Clock
from dragoman.testing.loop import run

Scenario = Callable[["Scene"], Awaitable[None]]


class Scene:
    """A node where pod p1 holds p/a."""

    def __init__(self, folder: Path, clock: Clock) -> None:
        self.folder = folder
        self.clock = clock
        states = ClaimStates(folder / "state", durable=False)
        parts = {"d": DriverState([PreparedDeviceState("p", "a", None, ["r"], ["v/c=a"])])}
        states.claims["ns", "one"] = ClaimState("u", "one", "ns", {"p1": {}}, parts)
        self.claims = Claims(None, states, lambda driver: None)  # type: ignore[arg-type]
        self.reported: list[set[str]] = []
        self.health = self.process()

    def process(self) -> Health:
        made = Health(self.folder / "health", self.clock, self.claims, self.reported.append, node_name="n1")
        made.load()
        return made

    def say(self, *devices: DeviceHealth) -> None:
        self.health._receive("d", devices)


def healthy(device: str = "a", health: Any = "Healthy", message: str = "", timeout_s: int = 0) -> DeviceHealth:
    return DeviceHealth("p", device, health, message, timeout_s)


async def news_is_reported_once(scene: Scene) -> None:
    scene.say(healthy())
    scene.say(healthy())
    assert scene.reported == [{"p1"}]
    scene.say(healthy(message="warm"))
    scene.say(healthy(message="warm", timeout_s=60))
    scene.say(healthy(health="Unhealthy", timeout_s=60))
    assert len(scene.reported) == 4
    scene.say(healthy(health="Unhealthy", timeout_s=60), healthy("b"))
    assert len(scene.reported) == 4, "nobody holds b"


async def silence_is_unknown(scene: Scene) -> None:
    scene.say(healthy(timeout_s=10), healthy("b"))
    await scene.clock.sleep(11)
    assert scene.health.health("d", "p", "a") == ("Unknown", "")
    assert scene.health.health("d", "p", "b") == ("Healthy", "")
    scene.say(healthy("b"))
    assert len(scene.reported) == 2, "a later message shows that it is no longer listed"
    await scene.clock.sleep(20)
    assert scene.health.health("d", "p", "b") == ("Healthy", "")
    await scene.clock.sleep(11)
    assert scene.health.health("d", "p", "b") == ("Unknown", "")


async def a_new_process_knows_it(scene: Scene) -> None:
    scene.say(healthy(health="Unhealthy", message="hot"))
    again = scene.process()
    assert again.health("d", "p", "a") == ("Unhealthy", "hot")
    (scene.folder / "health").write_text("{")
    assert scene.process().health("d", "p", "a") == ("Unknown", "")


async def a_lost_stream_clears(scene: Scene) -> None:
    scene.say(healthy())
    scene.health._clear("d")
    assert scene.health.health("d", "p", "a") == ("Unknown", "")
    assert scene.reported == [{"p1"}, {"p1"}]


SCENARIOS: dict[str, Scenario] = {
    "news is told once, to the pods that hold the device": news_is_reported_once,
    "a device that is silent for its timeout is Unknown": silence_is_unknown,
    "a new process knows what was said, unless it cannot be read": a_new_process_knows_it,
    "the end of the stream clears all": a_lost_stream_clears,
}


@pytest.mark.parametrize("scenario", SCENARIOS.values(), ids=SCENARIOS)
def test_health(scenario: Scenario, tmp_path: Path) -> None:
    async def main(clock: Clock) -> None:
        await scenario(Scene(tmp_path, clock))

    run(main)
