"""A preparer over made-up lamps whose every step can be the last one."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dragoman.api.resource import ResourceClaim
from dragoman.node import cdi
from dragoman.node.checkpoint import Checkpoint, ClaimRecord, Contents
from dragoman.node.driver import ClaimRef, ClaimToPrepare, DeviceSetup, Pool, PreparedClaim, Setup
from dragoman.node.prepare import Preparer
from dragoman.testing.build import allocated, typed


class Crash(BaseException):
    """The process is gone."""


class Fuse:
    """Burns at the nth step; 0 never."""

    def __init__(self) -> None:
        self.at = 0
        self.steps = 0

    def arm(self, at: int) -> None:
        self.at, self.steps = at, 0

    def step(self) -> None:
        self.steps += 1
        if self.steps == self.at:
            raise Crash


class Lamps:
    """Hardware: which claim's light is on where. It outlives every process."""

    name = "lamp.example.com"

    def __init__(self, fuse: Fuse) -> None:
        self.fuse = fuse
        self.lit: dict[str, str] = {}
        self.double = False

    async def pools(self) -> Mapping[str, Pool]:
        return {}

    async def prepare(self, claim: ClaimToPrepare) -> Setup:
        for result in claim.results:
            self.fuse.step()
            if self.lit.get(result.device, claim.ref.uid) != claim.ref.uid:
                self.double = True
            self.lit[result.device] = claim.ref.uid
            claim.remember({"on": sorted(d for d, uid in self.lit.items() if uid == claim.ref.uid)})
        self.fuse.step()
        return Setup([DeviceSetup(r.pool, r.device, cdi.Edits(env=(f"{r.device}=on",))) for r in claim.results])

    async def unprepare(self, claim: PreparedClaim) -> None:
        for held in claim.held:
            self.fuse.step()
            if self.lit.get(held.device) == claim.ref.uid:
                del self.lit[held.device]
        self.fuse.step()


class FusedCheckpoint(Checkpoint):
    fuse: Fuse

    def _write(self, contents: Contents) -> None:
        self.fuse.step()
        super()._write(contents)
        self.fuse.step()


class FusedPreparer(Preparer):
    fuse: Fuse

    def _write_cdi(self, record: ClaimRecord) -> None:
        self.fuse.step()
        super()._write_cdi(record)
        self.fuse.step()


class Bench:
    """Lamps, a disk, and the process that runs just now."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.fuse = Fuse()
        self.lamps = Lamps(self.fuse)
        self.boot = "boot-1"
        self.preparer = self._process()

    def _process(self) -> Preparer:
        checkpoint = FusedCheckpoint(self.folder / "checkpoint.json", self.boot, durable=False)
        checkpoint.fuse = self.fuse
        checkpoint.load()
        preparer = FusedPreparer(self.lamps, checkpoint, self.folder / "cdi")
        preparer.fuse = self.fuse
        return preparer

    async def restart(self) -> None:
        """A new process, which recovers as a plugin does."""
        self.preparer = self._process()
        for record in self.preparer.unfinished():
            await self.preparer.finish(record)
        self.preparer.sweep_cdi()

    def reboot(self) -> None:
        """Lamps and /var/run are cleared; the disk is not."""
        self.boot += "+"
        self.lamps.lit.clear()
        shutil.rmtree(self.folder / "cdi", ignore_errors=True)
        self.fuse.arm(0)

    def specs(self) -> set[str]:
        """Uids of claims with a CDI file."""
        found = (self.folder / "cdi").glob("*.json") if (self.folder / "cdi").exists() else []
        return {path.stem.rpartition("_")[2] for path in found}


def ref(name: str, uid: str = "") -> ClaimRef:
    return ClaimRef("default", name, uid or f"uid-{name}")


def lamps_claim(
    name: str, *devices: str, pods: tuple[str, ...] = ("pod",), uid: str = "", **result: Any
) -> ResourceClaim:
    """An allocated claim; devices of other drivers as `driver:device`."""
    made: ResourceClaim = typed(allocated(name, *devices, driver=Lamps.name, pool="p", pods=pods, uid=uid, **result))
    return made
