"""How does a drill run? A cluster of its own, step by step, a page of metrics every 15 s of its time; then promtool."""

from __future__ import annotations

import asyncio
import os
import re
import shlex
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

import msgspec

from dragoman.api.kinds import BY_NAME, Kind, custom_name, kind_of
from dragoman.api.shape import Object
from dragoman.cli import connect, fault, output
from dragoman.cli.main import Usage
from dragoman.cluster.client import Client
from dragoman.cluster.http import HttpClient
from dragoman.daemon.allinone import Cluster
from dragoman.errors import DragomanError, Invalid, NotFound
from dragoman.kubelet.faults import FAULT, INVALID, MESSAGE, STATE
from dragoman.ops.drill import Drill, DrillStep, Expectation
from dragoman.ops.recording import STEP_S, Recording
from dragoman.ops.rules import rule_file
from dragoman.runtime import log
from dragoman.runtime.clock import Clock
from dragoman.runtime.config import duration_s

SETTLE_S = 1.0
"""How long, in real time, a cluster may take to act before its clock is moved on."""
POLL_S = 0.05
COMMAND_S = 60.0
STATE_KINDS = ("Node", "Pod", "ResourceClaim", "ResourceSlice", "DeviceClass", "DeviceTaintRule")


class StepFailed(Exception):
    """What was seen instead."""


def run(drill: Drill, promtool: str) -> int:
    """Run it; 0 if all was as expected, else 1."""
    log.setup(level="ERROR", format="human")
    found = promtool or shutil.which("promtool") or ""
    return asyncio.run(_run(drill, found))


async def _run(drill: Drill, promtool: str) -> int:
    output.write(f"{drill.name}: {drill.summary}")
    with tempfile.TemporaryDirectory(prefix="drill-") as folder:
        kubeconfig = Path(folder) / "kubeconfig"
        settings = _settings(drill, kubeconfig)
        async with Cluster(settings) as cluster:
            client = HttpClient(cluster.access, cluster.clock, cluster.entropy)
            try:
                running = DrillRun(drill, cluster, client, kubeconfig)
                try:
                    await running.all()
                except StepFailed as failed:
                    output.write(f"  FAILED: {failed}")
                    return 1
            finally:
                await client.close()
        return await _alerts(drill, running.recording, promtool, Path(folder))


def _settings(drill: Drill, kubeconfig: Path) -> Any:
    from dragoman.cli import up

    parser = Usage(prog=f"dragoman drill {drill.name}: up")
    up.arguments(parser)
    args = parser.parse_args([*drill.up, "--kubeconfig", str(kubeconfig)])
    return up.settings_of(args, kubeconfig)


async def _alerts(drill: Drill, recording: Recording, promtool: str, folder: Path) -> int:
    if not promtool:
        output.write("  alerts not checked: no promtool in PATH")
        return 0
    import yaml

    (folder / "rules.yaml").write_text(yaml.safe_dump(rule_file()))
    body = recording.unit_test("rules.yaml", drill.expected, frozenset(drill.fires))
    (folder / "test.yaml").write_text(yaml.safe_dump(body))
    rc, text = await _command([promtool, "test", "rules", str(folder / "test.yaml")], {})
    if rc:
        output.write(f"  FAILED: alerts:\n{text}")
        return 1
    fired = ", ".join(sorted(drill.expected))
    output.write(f"  ok   alerts: {f'{fired} fired once and resolved' if fired else 'none fired'}")
    return 0


async def _command(words: list[str], environment: dict[str, str]) -> tuple[int, str]:
    process = await asyncio.create_subprocess_exec(
        *words,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        env={**os.environ, **environment},
    )
    try:
        said, _ = await asyncio.wait_for(process.communicate(), COMMAND_S)
    except TimeoutError:
        process.kill()
        await process.wait()
        raise StepFailed(f"{' '.join(words)}: no end after {COMMAND_S:.0f} s") from None
    return process.returncode or 0, said.decode(errors="replace")


class DrillRun:
    """One drill in its cluster."""

    def __init__(self, drill: Drill, cluster: Cluster, client: Client, kubeconfig: Path) -> None:
        self.drill = drill
        self.cluster = cluster
        self.client = client
        self.kubeconfig = kubeconfig
        self.recording = Recording()
        self._real = Clock()

    async def all(self) -> None:
        """Every step. Raises StepFailed."""
        await self._advance(2 * STEP_S)
        for title in ("given", "provoke", "recover", "end"):
            steps: tuple[DrillStep, ...] = getattr(self.drill, title)
            if title == "provoke":
                before = await self._settled()
            for step in steps:
                await self._step(step)
        await self._same(before)
        # Long enough for what was raised to resolve.
        await self._advance(6 * 60)

    async def _step(self, step: DrillStep) -> None:
        output.write(f"  {step.what}")
        try:
            await self._do(step)
        except DragomanError as error:
            raise StepFailed(str(error)) from None

    async def _do(self, step: DrillStep) -> None:
        if step.fault is not None:
            await self._break(step.fault.name, step.fault.data)
        elif step.mend:
            await self.client.delete(fault.CONFIG_MAP, step.mend, "default")
        elif step.advance:
            await self._advance(duration_s(step.advance))
        elif step.apply:
            for body in step.apply:
                await self._apply(body)
        elif step.delete:
            kind, namespace, name = _address(step.delete)
            await self.client.delete(kind_of(kind), name, namespace)
        elif step.run:
            await self._command(step)
        elif step.expect is not None:
            await self._expect(step.expect)

    async def _apply(self, body: Object) -> None:
        kind = await self._kind(body)
        meta = body.get("metadata") or {}
        namespace = meta.get("namespace", "default") if kind.namespaced else ""
        await self.client.patch(
            kind, str(meta.get("name")), body, namespace, type="apply", manager="dragoman-drill", force=True
        )

    async def _kind(self, body: Object) -> Kind:
        """A built-in kind, or one that a CustomResourceDefinition of the cluster makes. Raises StepFailed."""
        word, version = str(body.get("kind")), str(body.get("apiVersion"))
        if word in BY_NAME:
            return BY_NAME[word]
        for found in (await self.client.list(kind_of("CustomResourceDefinition"))).items:
            spec = found["spec"]
            names = [f"{spec['group']}/{entry['name']}" for entry in spec["versions"]]
            if spec["names"]["kind"] == word and version in names:
                group, _, short = version.rpartition("/")
                namespaced = spec["scope"] == "Namespaced"
                return kind_of(custom_name(word, group, short, spec["names"]["plural"], namespaced=namespaced))
        raise StepFailed(f"the cluster has no kind {word} of {version}")

    async def _break(self, name: str, data: dict[str, str]) -> None:
        await self.client.create(fault.CONFIG_MAP, fault.config_map(name, FAULT, data), "default")
        for _ in range(int(SETTLE_S * 3 / POLL_S)):
            notes = (await self.client.get(fault.CONFIG_MAP, name, "default"))["metadata"].get("annotations") or {}
            if notes.get(STATE) == INVALID:
                raise StepFailed(notes.get(MESSAGE, ""))
            if STATE in notes:
                output.write(f"       {notes.get(MESSAGE, '')}")
                return
            await self._real.sleep(POLL_S)
        # One that takes time, such as a reboot: it goes on while the clock moves.

    async def _advance(self, seconds: float) -> None:
        """Move the clock on in steps, with a page after each."""
        for _ in range(max(1, round(seconds / STEP_S))):
            await self.cluster.simulation.advance(STEP_S)
            await self._real.sleep(0.01)
            self.recording.add(self.cluster.metrics.text().decode())

    async def _command(self, step: DrillStep) -> None:
        words = shlex.split(step.run)
        if words[0] == "dragoman":
            words = [sys.executable, "-m", "dragoman.cli", *words[1:]]
        elif not (found := shutil.which(words[0]) or _beside(words[0])):
            raise StepFailed(f"no {words[0]} in PATH")
        else:
            words[0] = found
        rc, text = await _command(words, {"KUBECONFIG": str(self.kubeconfig)})
        missing = [said for said in step.says if said not in text]
        if rc != step.exit or missing:
            raise StepFailed(f"exit {rc}, expected {step.exit} and {list(step.says)}:\n{text}")

    # ---- seeing

    async def _expect(self, expect: Expectation) -> None:
        if expect.alert:
            self.recording.expect(expect.alert, firing=expect.state == "firing")
            return
        left_s = duration_s(expect.within)
        while True:
            seen = ""
            for _ in range(int(SETTLE_S / POLL_S)):
                seen = await self._seen(expect)
                if not seen:
                    return
                if expect.explain:
                    break
                await self._real.sleep(POLL_S)
            if left_s <= 0:
                raise StepFailed(seen)
            await self._advance(STEP_S)
            left_s -= STEP_S

    async def _seen(self, expect: Expectation) -> str:
        """What was seen instead, "" if it is as expected."""
        if expect.explain:
            words = [sys.executable, "-m", "dragoman.cli", "explain", expect.explain]
            _, text = await _command(words, {"KUBECONFIG": str(self.kubeconfig)})
            flat = " ".join(text.split())
            return "" if all(said in flat for said in expect.says) else f"explain {expect.explain} says:\n{text}"
        kind, namespace, name = _address(expect.object)
        try:
            body: Object | None = await self.client.get(kind_of(kind), name, namespace)
        except NotFound:
            body = None
        if expect.state:
            is_there = body is not None
            return (
                ""
                if is_there == (expect.state == "present")
                else f"{expect.object} is {'' if is_there else 'not '}there"
            )
        if body is None:
            return f"{expect.object} is not there"
        value = _at(body, expect.path)
        if expect.matches:
            good = re.search(expect.matches, str(value)) is not None
        else:
            good = value == (None if expect.equals is msgspec.UNSET else expect.equals)
        return "" if good else f"{expect.object} {expect.path} is {value!r}"

    # ---- the same as before

    async def _state(self) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for kind in STATE_KINDS:
            for body in (await self.client.list(kind_of(kind))).items:
                meta = body["metadata"]
                found[f"{kind} {meta.get('namespace', '')}/{meta['name']}"] = _summary(kind, body)
        return found

    async def _settled(self) -> dict[str, Any]:
        before = await self._state()
        for _ in range(40):
            await self._real.sleep(POLL_S)
            now = await self._state()
            if now == before:
                return now
            before = now
        return before

    async def _same(self, before: dict[str, Any]) -> None:
        for _ in range(20):
            after = _without_generated(await self._state())
            wanted = _without_generated(before)
            if after == wanted:
                output.write("  ok   the state is as before")
                return
            await self._advance(STEP_S)
        lines = [
            f"{key}: {wanted.get(key)} -> {after.get(key)}"
            for key in sorted({*wanted, *after})
            if wanted.get(key) != after.get(key)
        ]
        raise StepFailed("the state is not as before:\n    " + "\n    ".join(lines))


def _without_generated(state: dict[str, Any]) -> dict[str, Any]:
    """Slices by what they publish: their names are drawn."""
    found = {key: value for key, value in state.items() if not key.startswith("ResourceSlice ")}
    slices = sorted(repr(value) for key, value in state.items() if key.startswith("ResourceSlice "))
    return {**found, "ResourceSlices": slices}


def _summary(kind: str, body: Object) -> Any:
    spec, status = body.get("spec") or {}, body.get("status") or {}
    match kind:
        case "Node":
            ready = [c["status"] for c in status.get("conditions", ()) if c["type"] == "Ready"]
            labels = {k: v for k, v in (body["metadata"].get("labels") or {}).items() if not k.endswith(".timestamp")}
            return [ready, bool(spec.get("unschedulable")), spec.get("taints", []), labels]
        case "Pod":
            return [status.get("phase"), spec.get("nodeName")]
        case "ResourceClaim":
            return [bool(status.get("allocation")), len(status.get("reservedFor") or ())]
        case "ResourceSlice":
            devices = [[d["name"], d.get("taints", [])] for d in spec.get("devices") or ()]
            return [spec["driver"], spec["pool"]["name"], sorted(devices, key=lambda d: d[0])]
    return spec


def _address(text: str) -> tuple[str, str, str]:
    """Kind, namespace and name of kind/name or kind/namespace/name. Raises Invalid."""
    parts = text.split("/")
    if len(parts) not in (2, 3):
        raise Invalid(text, "must be kind/name or kind/namespace/name")
    from dragoman.api.kinds import KINDS

    words = {kind.kind.lower(): kind for kind in KINDS}
    word = parts[0].lower()
    kind = words.get(connect.SHORT.get(word, word).lower())
    if kind is None:
        raise Invalid(text, f"there is no kind {parts[0]!r}")
    return kind.kind, (parts[1] if len(parts) == 3 else "default") if kind.namespaced else "", parts[-1]


def _at(body: Any, path: str) -> Any:
    """The value at a.b[0].c or a.conditions[Ready].status, None where there is none."""
    for word in re.findall(r"[^.\[\]]+|\[\w+\]", path):
        if word.startswith("[") and not word[1:-1].isdecimal():
            entries = body if isinstance(body, list) else []
            body = next((entry for entry in entries if entry.get("type") == word[1:-1]), None)
        elif word.startswith("["):
            index = int(word[1:-1])
            body = body[index] if isinstance(body, list) and index < len(body) else None
        else:
            body = body.get(word) if isinstance(body, dict) else None
    return body


def _beside(name: str) -> str:
    """An executable beside this interpreter."""
    found = Path(sys.executable).parent / name
    return str(found) if found.exists() else ""
