"""Which cases are there, and in which order are they run? One after another, on beds that are shared while clean."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Sequence

from dragoman.cluster.client import Client
from dragoman.errors import DragomanError, Invalid
from dragoman.node.bench import dying, preparing, publishing, registering
from dragoman.node.bench.bed import Bed, BenchSettings
from dragoman.node.bench.case import Case
from dragoman.node.bench.report import CaseResult, CaseVerdict, Defect, NotApplicable, Report
from dragoman.runtime.clock import Clock
from dragoman.runtime.entropy import Entropy

CASES: tuple[Case, ...] = (
    registering.registration,
    registering.kubelet_restart,
    registering.versions,
    registering.health,
    preparing.prepare,
    preparing.prepare_twice,
    preparing.prepare_overlapping,
    preparing.prepare_unallocated,
    preparing.prepare_missing,
    preparing.prepare_replaced,
    preparing.unknown_device,
    preparing.other_drivers_part,
    preparing.batch,
    preparing.bad_among_good,
    preparing.held_device,
    preparing.unprepare_twice,
    preparing.unprepare_unknown,
    preparing.unprepare_claim_gone,
    preparing.late_prepare,
    preparing.force_delete,
    publishing.many_devices,
    publishing.slice_deleted,
    publishing.slice_changed,
    publishing.slice_left_over,
    publishing.publish,
    publishing.half_published,
    registering.registration_refused,
    registering.stale_sockets,
    registering.long_path,
    dying.sigterm,
    dying.kill,
    dying.crash_preparing,
    dying.crash_unpreparing,
    dying.reboot,
    dying.corrupt_checkpoint,
    dying.rolling_update,
)


def named(names: Sequence[str]) -> tuple[Case, ...]:
    """These cases, in the catalogue's order; all for no names. Raises Invalid."""
    known = {case.name for case in CASES}
    for name in names:
        if name not in known:
            raise Invalid(f"--case {name}", f"no such case; there are: {', '.join(case.name for case in CASES)}")
    return tuple(case for case in CASES if not names or case.name in names)


class Bench:
    """Runs cases against a driver. `tell(outcome)` hears of each when it is done."""

    def __init__(
        self,
        settings: BenchSettings,
        client: Client,
        clock: Clock,
        entropy: Entropy,
        report: Callable[[CaseResult], None] = lambda outcome: None,
    ) -> None:
        self.settings = settings
        self.client = client
        self.clock = clock
        self.entropy = entropy
        self.report = report
        self.driver = ""
        self._bed: Bed | None = None
        self._beds = 0
        self._hopeless = ""
        """The case that found out that the driver does not even register."""

    async def run(self, cases: Sequence[Case]) -> Report:
        """All of them. Raises Invalid if the command cannot be run."""
        outcomes = []
        try:
            for case in cases:
                outcome = await self._one(case)
                self.report(outcome)
                outcomes.append(outcome)
        finally:
            await self._discard()
        return Report(self.driver, tuple(outcomes))

    async def _one(self, case: Case) -> CaseResult:
        began = self.clock.monotonic()
        if case.alone and not self.settings.command:
            return self._outcome(case, "skip", [], "has to start and kill the driver: give a COMMAND", began)
        if self._hopeless:
            return self._outcome(case, "skip", [], f"the driver never registered: see {self._hopeless}", began)
        bed: Bed | None = None
        verdict: CaseVerdict
        try:
            bed = await self._laid(case)
            await case.run(bed)
            await bed.tidy()
            verdict, reason = "pass", ""
        except NotApplicable as error:
            verdict, reason = "skip", str(error)
        except Defect as error:
            verdict, reason = "fail", str(error)
        except Invalid:
            raise
        except (DragomanError, OSError) as error:
            # Of the bench's own work: the API refuses what was written, a file cannot be damaged.
            where = traceback.extract_tb(error.__traceback__)[-1]
            verdict, reason = "fail", f"the bench could not go on: {error} ({where.name})"
        if bed is None:
            bed = self._bed
        if bed is not None and bed.instance:
            self.driver = bed.driver
        elif verdict == "fail" and not self.driver:
            self._hopeless = case.name
        outcome = self._outcome(case, verdict, bed.notes if bed else [], reason, began)
        if bed is not None:
            bed.notes = []
        if bed is not self._bed or verdict == "fail":
            await self._close(bed)
        return outcome

    def _outcome(self, case: Case, verdict: CaseVerdict, notes: Sequence[str], reason: str, began: float) -> CaseResult:
        seconds = round(self.clock.monotonic() - began, 3)
        return CaseResult(case.name, case.title, case.demand, case.source, verdict, tuple(notes), reason, seconds)

    async def _laid(self, case: Case) -> Bed:
        """The shared bed with the driver running, or a new one for the case alone."""
        if case.alone:
            return await self._new()
        if self._bed is None:
            self._bed = await self._new()
            await self._bed.start()
        return self._bed

    async def _new(self) -> Bed:
        self._beds += 1
        own = bool(self.settings.command)
        name = f"{self.settings.node}-{self._beds}" if own else self.settings.node
        root = self.settings.folder / str(self._beds) if own else self.settings.folder
        bed = Bed(self.settings, self.client, self.clock, self.entropy, name=name, root=root)
        await bed.make()
        return bed

    async def _close(self, bed: Bed | None) -> None:
        if bed is None:
            return
        if bed is self._bed:
            if not self.settings.command and bed.instance:
                return  # somebody else's driver stays where it is
            self._bed = None
        await bed.close()

    async def _discard(self) -> None:
        if self._bed is not None:
            bed, self._bed = self._bed, None
            await bed.close()
