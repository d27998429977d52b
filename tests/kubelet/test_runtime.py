"""Sandboxes and containers of a node: they outlive the agent, not a reboot, and end when the clock or somebody says."""

from __future__ import annotations

from pathlib import Path

import pytest

from dragoman.errors import NotFound
from dragoman.kubelet import runtime as module
from dragoman.kubelet.programs import Place
from dragoman.kubelet.runtime import EXIT_LOST, EXIT_TERMINATED, ContainerRun, SimulatedRuntime, Start
from dragoman.runtime.clock import Clock
from dragoman.testing.loop import run


def started(folder: Path, clock: Clock, boot: str = "b1") -> SimulatedRuntime:
    made = SimulatedRuntime(folder, clock, boot_id=boot)
    made.load()
    return made


def start(clock: Clock, *command: str, name: str = "main", ends_in: float | None = None, code: int = 0) -> Start:
    now = clock.now()
    ends = None if ends_in is None else now + ends_in
    made = ContainerRun(f"id-{name}", name, "i", 0, now, ends, code, scripted=bool(command))
    return Start(made, Place(env={}, hostname="p", now=now), command)


def test_a_new_agent_finds_what_runs_and_a_reboot_ends_it(tmp_path: Path) -> None:
    async def main(clock: Clock) -> None:
        first = started(tmp_path, clock)
        first.create("u", "default", "p", "10.0.0.7")
        first.start("u", start(clock))
        first.start("u", start(clock, name="done", ends_in=5.0, code=3))
        await clock.sleep(10.0)
        second = started(tmp_path, clock)
        assert second.running("u") == ["main"]
        box = started(tmp_path, clock, "b2").sandbox("u")
        assert box is not None
        assert not box.alive
        lost, done = box.current["main"], box.current["done"]
        assert (lost.exit_code, lost.reason, lost.message) == (EXIT_LOST, "Unknown", "the node was rebooted")
        assert (done.exit_code, done.reason) == (3, ""), "it had ended before"

    run(main)


def test_a_file_that_cannot_be_read_is_a_container_that_never_ran(tmp_path: Path) -> None:
    async def main(clock: Clock) -> None:
        first = started(tmp_path, clock)
        first.create("u", "default", "p", "")
        first.start("u", start(clock))
        (tmp_path / "u.json").write_text("{", encoding="utf-8")
        assert started(tmp_path, clock).sandbox("u") is None
        assert not (tmp_path / "u.json").exists()

    run(main)


def test_a_sandbox_without_a_container_is_as_good_as_not_made(tmp_path: Path) -> None:
    async def main(clock: Clock) -> None:
        started(tmp_path, clock).create("u", "default", "p", "")
        assert started(tmp_path, clock).sandbox("u") is None

    run(main)


def test_an_end_that_is_known_at_the_start_comes_by_itself(tmp_path: Path) -> None:
    async def main(clock: Clock) -> None:
        node = started(tmp_path, clock)
        node.create("u", "default", "p", "")
        node.start("u", start(clock, ends_in=30.0))
        node.start("u", start(clock, name="other"))
        assert node.next_exit("u") == 30.0
        await clock.sleep(30.0)
        assert (node.running("u"), node.next_exit("u")) == (["other"], None)

    run(main)


def test_a_stop_comes_after_its_grace_and_an_earlier_end_stays(tmp_path: Path) -> None:
    async def main(clock: Clock) -> None:
        node = started(tmp_path, clock)
        box = node.create("u", "default", "p", "")
        node.start("u", start(clock))
        node.start("u", start(clock, name="soon", ends_in=2.0, code=4))
        for name in ("main", "soon"):
            node.stop("u", name, after_s=10.0, message="drained")
        await clock.sleep(9.0)
        assert node.running("u") == ["main"]
        await clock.sleep(1.0)
        assert node.running("u") == []
        assert (box.current["main"].exit_code, box.current["main"].message) == (EXIT_TERMINATED, "drained")
        assert box.current["soon"].exit_code == 4

    run(main)


def test_a_command_ends_its_container_and_wakes_its_pod(tmp_path: Path) -> None:
    async def main(clock: Clock) -> None:
        woken: list[str] = []
        node = started(tmp_path, clock)
        node.wake = woken.append
        box = node.create("u", "default", "p", "")
        script = "echo hello; echo last > /dev/termination-log; sleep 3; exit 6"
        node.start("u", start(clock, "sh", "-c", script))
        heard: list[tuple[bytes, int | None]] = []
        node.listen(
            "u", "main", lambda number, data: heard.append((data, None)), lambda code: heard.append((b"", code))
        )
        await clock.sleep(5.0)
        made = box.current["main"]
        assert (made.exit_code, made.message, made.text, woken) == (6, "last\n", "hello\n", ["u"])
        assert heard == [(b"", 6)]

    run(main)


def test_the_end_of_the_log_is_the_message_only_where_that_was_asked_for(tmp_path: Path) -> None:
    async def main(clock: Clock) -> None:
        node = started(tmp_path, clock)
        box = node.create("u", "default", "p", "")
        for name, asked in (("yes", True), ("no", False)):
            made = start(clock, "sh", "-c", "echo broken; exit 1", name=name)
            made.message_from_log = asked
            node.start("u", made)
        await clock.sleep(1.0)
        assert [box.current[name].message for name in ("yes", "no")] == ["broken", ""]

    run(main)


def test_another_command_runs_only_beside_a_running_container(tmp_path: Path) -> None:
    async def main(clock: Clock) -> None:
        node = started(tmp_path, clock)
        node.create("u", "default", "p", "")
        node.start("u", start(clock, "sh", "-c", "echo 1 > /x; sleep 9"))
        await clock.sleep(1.0)
        said, codes = bytearray(), list[int]()
        node.execute("u", "main", ("cat", "/x"), lambda number, data: said.extend(data), codes.append)
        await clock.sleep(1.0)
        assert (bytes(said), codes) == (b"1\n", [0])
        await clock.sleep(9.0)
        for name in ("main", "none"):
            with pytest.raises(NotFound, match=f'container "{name}" is not running'):
                node.execute("u", name, ("true",), lambda number, data: None, codes.append)

    run(main)


def test_the_next_run_keeps_the_one_before_and_removal_forgets_both(tmp_path: Path) -> None:
    async def main(clock: Clock) -> None:
        node = started(tmp_path, clock)
        box = node.create("u", "default", "p", "")
        node.start("u", start(clock, ends_in=1.0, code=2))
        await clock.sleep(2.0)
        node.start("u", start(clock))
        assert (box.previous["main"].exit_code, node.running("u")) == (2, ["main"])
        node.end("u")
        assert not box.alive
        node.remove("u")
        assert node.sandbox("u") is None
        assert not (tmp_path / "u.json").exists()

    run(main)


def test_a_log_keeps_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LOG_BYTES", 10_000)
    made = ContainerRun("id", "main", "i", 0, 0.0)
    for at in range(20):
        made.say(float(at), f"{at:02d}" + "x" * 4999)
    assert len(made.text) <= 10_002
    assert made.text.startswith("19")
