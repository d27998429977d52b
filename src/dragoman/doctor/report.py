"""How does a report look: lines for people, JSON, SARIF 2.1.0, a checklist in Markdown? Never judges."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

from dragoman.doctor.check import AREAS, BLOCKER, INFO, SEVERITIES, WARNING, CheckResult, DoctorFinding, DoctorReport

_SARIF_SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"
_LEVELS = {BLOCKER: "error", WARNING: "warning", INFO: "note"}
SHOWN_MAX = 3
"""Pieces of evidence that people see of a finding; -o json has more."""


def lines(report: DoctorReport) -> Iterator[str]:
    """Findings with evidence, fix and source, then what was not checked."""
    for finding in report.findings:
        yield f"{finding.severity}: {finding.message} [{finding.check.code}]"
        for entry in finding.evidence[:SHOWN_MAX]:
            value = f" = {entry.value}" if entry.value else ""
            yield f"  seen: {entry.object}: {entry.field}{value}"
        if finding.fix:
            yield f"  fix: {finding.fix}"
        yield f"  source: {finding.check.source}"
    for result in report.results:
        if result.state == "not checked":
            yield f"not checked: {result.check.item}: {result.not_checked}"


def summary(report: DoctorReport) -> str:
    """`58 checks on the cluster: 1 blocker, 2 warnings; 40 ok, 3 not checked`."""
    found = Counter(finding.severity for finding in report.findings)
    states = Counter(result.state for result in report.results)
    parts = [f"{found[s]} {s}{'s' if found[s] != 1 and s != INFO else ''}" for s in SEVERITIES if found[s]]
    head = f"{len(report.results)} checks on {report.subject}: {', '.join(parts) or 'nothing found'}"
    return f"{head}; {states['ok']} ok, {states['not checked']} not checked"


def to_json(report: DoctorReport) -> dict[str, Any]:
    """{"subject", "summary", "findings": [...], "checks": [...]}: docs/reference/schemas/DoctorReport.json."""
    found = Counter(finding.severity for finding in report.findings)
    states = Counter(result.state for result in report.results)
    counts: dict[str, int] = {severity: found[severity] for severity in SEVERITIES}
    counts |= {"ok": states["ok"], "notChecked": states["not checked"]}
    return {
        "subject": report.subject,
        "summary": counts,
        "findings": [_finding(finding) for finding in report.findings],
        "checks": [_check(result) for result in report.results],
    }


def _finding(finding: DoctorFinding) -> dict[str, Any]:
    check = finding.check
    return {
        "code": check.code,
        "severity": finding.severity,
        "area": check.area,
        "message": finding.message,
        "evidence": [
            {"object": e.object, "field": e.field, "value": e.value, "message": e.message} for e in finding.evidence
        ],
        "evidenceTotal": finding.total,
        "fix": finding.fix,
        "source": check.source,
    }


def _check(result: CheckResult) -> dict[str, Any]:
    shown = {
        "code": result.check.code,
        "area": result.check.area,
        "item": result.check.item,
        "state": {"ok": "ok", "found": "found", "not checked": "notChecked"}[result.state],
    }
    return {**shown, "reason": result.not_checked} if result.not_checked else shown


def to_sarif(report: DoctorReport, version: str) -> dict[str, Any]:
    """A SARIF log with one run; `version` is the tool's."""
    findings = report.findings
    used = list(dict.fromkeys(finding.check.code for finding in findings))
    checks = {finding.check.code: finding.check for finding in findings}
    rules = [
        {
            "id": code,
            "name": code,
            "shortDescription": {"text": checks[code].item},
            "defaultConfiguration": {"level": _LEVELS[checks[code].severity]},
        }
        for code in used
    ]
    results = [
        {
            "ruleId": finding.check.code,
            "ruleIndex": used.index(finding.check.code),
            "level": _LEVELS[finding.severity],
            "message": {"text": f"{finding.message}. Fix: {finding.fix}" if finding.fix else finding.message},
            "locations": [
                {"logicalLocations": [{"fullyQualifiedName": f"{e.object}: {e.field}"}]} for e in finding.evidence
            ],
        }
        for finding in findings
    ]
    driver = {"name": "dragoman doctor", "version": version, "rules": rules}
    return {"$schema": _SARIF_SCHEMA, "version": "2.1.0", "runs": [{"tool": {"driver": driver}, "results": results}]}


def to_markdown(report: DoctorReport) -> str:
    """A production checklist: ticked what is right; what was found or not checked below its item."""
    parts = [f"# Production checklist of {report.subject}", "", summary(report) + "."]
    for area in AREAS:
        mine = [result for result in report.results if result.check.area == area]
        parts += ["", f"## {area}", ""]
        for result in mine:
            parts.append(f"- [{'x' if result.state == 'ok' else ' '}] {result.check.item} (`{result.check.code}`)")
            for finding in result.findings:
                parts.append(f"    - **{finding.severity}**: {finding.message}")
                if finding.fix:
                    parts.append(f"      Fix: {finding.fix}")
            if result.not_checked:
                parts.append(f"    - not checked: {result.not_checked}")
    return "\n".join([*parts, ""])
