"""What is a check, what can it find, and what comes of all of them together?

    report = examine(state, CHECKS)

A check reads one ExaminedCluster and yields Evidence for each thing that contradicts it, or NotSeen where it cannot
tell. It never asks a cluster and never guesses: what is not visible is "not checked", not "ok".
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Literal, TypeAlias

import msgspec

from dragoman.doctor.state import ExaminedCluster

BLOCKER: DoctorSeverity = "blocker"
WARNING: DoctorSeverity = "warning"
INFO: DoctorSeverity = "info"
DoctorSeverity: TypeAlias = Literal["blocker", "warning", "info"]
SEVERITIES: tuple[DoctorSeverity, ...] = ("blocker", "warning", "info")

AREAS = (
    "Infrastructure",
    "DeviceClass design",
    "Workloads",
    "RBAC and security",
    "Monitoring",
    "Incident response",
    "Performance",
)
"""The headings of a production checklist, in its order."""

EVIDENCE_MAX = 10
"""Pieces of evidence that a finding shows; their number is given in full."""


class Evidence(msgspec.Struct, frozen=True):
    """What was seen: an object (`Node gpu-0`), the field in it and its value, and what that means. fix: if it is not
    that of the check. severity: likewise, where this case is worse or better than others."""

    object: str
    field: str
    value: str
    message: str
    fix: str = ""
    severity: DoctorSeverity | None = None


class NotSeen(msgspec.Struct, frozen=True):
    """Why it cannot be checked."""

    reason: str


Seen: TypeAlias = Evidence | NotSeen


class DoctorCheck(msgspec.Struct, frozen=True):
    """One precondition. item: how it should be, as a line of a checklist. needs: kinds without which it cannot be
    checked. find: None for what no API object shows; fix says then how to see it."""

    code: str
    area: str
    severity: DoctorSeverity
    item: str
    fix: str
    source: str
    find: Callable[[ExaminedCluster], Iterable[Seen]] | None
    needs: tuple[str, ...] = ()


class DoctorFinding(msgspec.Struct, frozen=True):
    """A check that found something: at most EVIDENCE_MAX pieces of evidence of one severity, and how many there are."""

    check: DoctorCheck
    severity: DoctorSeverity
    evidence: tuple[Evidence, ...]
    total: int

    @property
    def message(self) -> str:
        """What the first piece says, and how many more there are."""
        more = self.total - 1
        return self.evidence[0].message + (f" (and {more} more)" if more else "")

    @property
    def fix(self) -> str:
        """What to do."""
        return self.evidence[0].fix or self.check.fix


class CheckResult(msgspec.Struct, frozen=True):
    """What came of one check: findings, or why it was not checked, or neither: nothing contradicts it."""

    check: DoctorCheck
    findings: tuple[DoctorFinding, ...] = ()
    not_checked: str = ""

    @property
    def state(self) -> str:
        """ok, found or not checked."""
        return "found" if self.findings else "not checked" if self.not_checked else "ok"


class DoctorReport(msgspec.Struct, frozen=True):
    """All results in the order of the table. subject: what was examined."""

    subject: str
    results: tuple[CheckResult, ...]

    @property
    def findings(self) -> list[DoctorFinding]:
        """All findings, blockers first."""
        every = [finding for result in self.results for finding in result.findings]
        return sorted(every, key=lambda finding: SEVERITIES.index(finding.severity))

    @property
    def blocked(self) -> bool:
        """Whether there is a blocker."""
        return any(finding.severity == BLOCKER for finding in self.findings)


def examine(state: ExaminedCluster, checks: Iterable[DoctorCheck]) -> DoctorReport:
    """Every check on one state."""
    return DoctorReport(state.subject, tuple(_result(state, check) for check in checks))


def _result(state: ExaminedCluster, check: DoctorCheck) -> CheckResult:
    if check.find is None:
        return CheckResult(check, not_checked=f"no API object shows it: {check.fix}")
    lacking = [kind for kind in check.needs if not state.knows(kind)]
    if lacking:
        return CheckResult(check, not_checked=state.why_not(lacking))
    seen = list(check.find(state))
    findings = tuple(_findings(check, [entry for entry in seen if isinstance(entry, Evidence)]))
    reason = next((entry.reason for entry in seen if isinstance(entry, NotSeen)), "")
    return CheckResult(check, findings, "" if findings else reason)


def _findings(check: DoctorCheck, evidence: list[Evidence]) -> Iterator[DoctorFinding]:
    for severity in SEVERITIES:
        mine = [entry for entry in evidence if (entry.severity or check.severity) == severity]
        if mine:
            yield DoctorFinding(check, severity, tuple(mine[:EVIDENCE_MAX]), len(mine))
