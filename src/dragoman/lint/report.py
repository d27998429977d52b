"""How are findings counted for people and shown to machines: JSON, SARIF 2.1.0. Never decides what is wrong."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any
from urllib.parse import quote

from dragoman.lint.finding import CODES, ERROR, NOTE, WARNING, Finding, as_json

_SARIF_SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"
_LEVELS = {ERROR: "error", WARNING: "warning", NOTE: "note"}


KINDS_SHOWN = 5


def summary(findings: Sequence[Finding], documents: int, not_judged: Mapping[str, int] | None = None) -> str:
    """`3 documents checked: 1 error, 2 warnings`, and what is of kinds of other projects."""
    counts = Counter(finding.severity for finding in findings)
    parts = [f"{counts[s]} {s}{'s' if counts[s] != 1 else ''}" for s in (ERROR, WARNING, NOTE) if counts[s]]
    checked = f"{documents} document{'s' if documents != 1 else ''} checked"
    found = f"{checked}: {', '.join(parts)}" if parts else f"{checked}, no problems found"
    if not not_judged:
        return found
    named = [f"{number} {kind}" for kind, number in sorted(not_judged.items())]
    more = f" and {len(named) - KINDS_SHOWN} more kinds" if len(named) > KINDS_SHOWN else ""
    return f"{found}; not judged, kinds of others: {', '.join(named[:KINDS_SHOWN])}{more}"


def to_json(findings: Iterable[Finding], not_judged: Mapping[str, int] | None = None) -> dict[str, Any]:
    """{"findings": [{code, severity, file, document, line, object, field, message, fix, fixable}], "notJudged": {kind:
    number}}."""
    others = {"notJudged": dict(not_judged)} if not_judged else {}
    return {"findings": [as_json(finding) for finding in findings], **others}


def to_sarif(findings: Iterable[Finding], version: str) -> dict[str, Any]:
    """A SARIF log with one run; `version` is the tool's."""
    results = list(findings)
    used = sorted({finding.code for finding in results})
    driver = {"name": "dragoman lint", "version": version, "rules": [_rule(code) for code in used]}
    run = {"tool": {"driver": driver}, "results": [_result(finding, used) for finding in results]}
    return {"$schema": _SARIF_SCHEMA, "version": "2.1.0", "runs": [run]}


def _uri(file: str) -> str:
    """A file's name as the reference that SARIF wants (section 3.4.3): relative, or a file: URI."""
    quoted = quote(file, safe="/~")
    return f"file://{quoted}" if file.startswith("/") else quoted


def _rule(code: str) -> dict[str, Any]:
    level = _LEVELS[CODES[code].severity]
    meaning = {"text": CODES[code].meaning}
    return {"id": code, "name": code, "shortDescription": meaning, "defaultConfiguration": {"level": level}}


def _result(finding: Finding, rules: list[str]) -> dict[str, Any]:
    text = f"{finding.message}. Fix: {finding.fix}" if finding.fix else finding.message
    physical: dict[str, Any] = {"artifactLocation": {"uri": _uri(finding.file)}}
    if finding.line:
        physical["region"] = {"startLine": finding.line}
    location: dict[str, Any] = {"physicalLocation": physical}
    if finding.subject:
        name = f"{finding.subject}: {finding.field}" if finding.field else finding.subject
        location["logicalLocations"] = [{"fullyQualifiedName": name}]
    return {
        "ruleId": finding.code,
        "ruleIndex": rules.index(finding.code),
        "level": _LEVELS[finding.severity],
        "message": {"text": text},
        "locations": [location],
    }
