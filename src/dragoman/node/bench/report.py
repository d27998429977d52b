"""What did the driver do, and was it what the protocol demands? Outcomes of cases, as text and as JSON.

Judges nothing: a case says fail or skip by raising `Defect` or `NotApplicable`, the runner makes outcomes of them.
"""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

import msgspec

CaseVerdict: TypeAlias = Literal["pass", "fail", "skip"]
WORDS: dict[CaseVerdict, str] = {"pass": "PASS", "fail": "FAIL", "skip": "SKIP"}


class Defect(Exception):
    """The driver did something else than the protocol demands; the text says what."""


class NotApplicable(Exception):
    """The case cannot be tried with this driver, or this way to start it; the text says why."""


class CaseResult(msgspec.Struct, frozen=True):
    """One case. did: what the driver was seen to do, in order; reason: of a fail or skip."""

    case: str
    title: str
    demand: str
    source: str
    verdict: CaseVerdict
    did: tuple[str, ...] = ()
    reason: str = ""
    seconds: float = 0.0


class Report(msgspec.Struct, frozen=True):
    """All cases that were run; driver is the name it registered with, empty if it never did."""

    driver: str
    outcomes: tuple[CaseResult, ...]

    def count(self, verdict: CaseVerdict) -> int:
        """How many cases ended so."""
        return sum(outcome.verdict == verdict for outcome in self.outcomes)

    @property
    def is_clean(self) -> bool:
        """Whether nothing failed, and something passed."""
        return not self.count("fail") and bool(self.count("pass"))


def text(report: Report) -> str:
    """For people: a block for each case, then the sum."""
    lines: list[str] = []
    for outcome in report.outcomes:
        lines.append(f"{WORDS[outcome.verdict]}  {outcome.case}: {outcome.title}")
        lines.append(f"      demanded  {outcome.demand} [{outcome.source}]")
        lines += [f"      did       {step}" for step in outcome.did]
        if outcome.reason:
            lines.append(f"      {'failed   ' if outcome.verdict == 'fail' else 'skipped  '} {outcome.reason}")
        lines.append("")
    lines.append(summary(report))
    return "\n".join(lines)


def summary(report: Report) -> str:
    """One line."""
    failed = [outcome.case for outcome in report.outcomes if outcome.verdict == "fail"]
    line = f"{report.driver or 'driver'}: {report.count('pass')} passed, {len(failed)} failed"
    line += f", {report.count('skip')} skipped"
    return f"{line}; failed: {', '.join(failed)}" if failed else line


def as_json(report: Report) -> dict[str, Any]:
    """For programs."""
    return {
        "driver": report.driver,
        "passed": report.count("pass"),
        "failed": report.count("fail"),
        "skipped": report.count("skip"),
        "cases": [msgspec.to_builtins(outcome) for outcome in report.outcomes],
    }
