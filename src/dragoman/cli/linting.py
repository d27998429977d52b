"""What does `dragoman lint` do with its flags? Reads, judges, fixes and prints; what to find is decided in `lint`."""

from __future__ import annotations

import argparse
import asyncio
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TextIO

from dragoman import __version__
from dragoman.api import files
from dragoman.api.files import Document
from dragoman.cli import connect, diagnostic, manifests, output, record, source
from dragoman.cli.versions import NEWEST, minor_of
from dragoman.drivers.registry import known_drivers
from dragoman.errors import Denied, Invalid
from dragoman.lint import report
from dragoman.lint.finding import ERROR, Finding
from dragoman.lint.fix import fixed
from dragoman.lint.linter import LintTarget, lint
from dragoman.values.visible import json_safe

OLDEST = 30
_STDIN = "<stdin>"
DIFFS_MAX = 50
"""Findings for which the fix is tried out and shown as a diff."""


def run(args: argparse.Namespace) -> int:
    """Print the findings (with --fix those that are left); 1 if there are errors."""
    if not args.filename:
        raise Invalid("-f", "name the files to lint; - reads standard input")
    gates = source.gates(args)
    background, minor = _background(args)
    target = LintTarget(
        minor=minor_of(args.kubernetes, OLDEST) if args.kubernetes else minor, gates=gates, known=known_drivers()
    )
    texts = list(manifests.texts(args.filename))
    scan = files.scan(texts)
    findings = lint(scan, target, background)
    if args.fix:
        texts = _fix(texts, findings)
        scan = files.scan(texts)
        findings = lint(scan, target, background)
    stream = sys.stderr if _piped(args) else sys.stdout
    _print(args.output, findings, dict(texts), len(scan.documents) + len(scan.broken), stream)
    return 1 if any(finding.severity == ERROR for finding in findings) else 0


def _background(args: argparse.Namespace) -> tuple[list[Document], int]:
    """The cluster's objects, and the minor version to judge for."""
    against = list(manifests.texts(args.against))
    documents, minor = files.scan(against).documents, NEWEST
    if args.live or args.kubeconfig or args.context:
        recorded, minor = asyncio.run(_live(args))
        documents += files.scan([("the cluster", recorded)]).documents
    if (against or args.live) and not documents:
        output.say("note: the cluster has no objects to judge against")
    return documents, minor


async def _live(args: argparse.Namespace) -> tuple[str, int]:
    async with connect.client(args) as client:
        items, denied = await record.recorded(client)
        version = await client.server_version()
    for kind in denied:
        output.say(f"note: no right to list {kind}: references to them may be reported missing")
    digits = re.match(r"\d+", str(version.get("minor", "")))
    minor = min(max(int(digits[0]), OLDEST), NEWEST) if digits else NEWEST
    return json.dumps({"apiVersion": "v1", "kind": "List", "items": items}), minor


def _piped(args: argparse.Namespace) -> bool:
    """With --fix from standard input the fixed text is what goes to stdout."""
    return args.fix and "-" in args.filename


def _fix(texts: list[tuple[str, str]], findings: list[Finding]) -> list[tuple[str, str]]:
    """The texts after fixing; files that change are written."""
    after = []
    for name, text in texts:
        new, done = fixed(text, [finding for finding in findings if finding.file == name])
        after.append((name, new))
        if name == _STDIN:
            sys.stdout.write(new)
        elif new != text:
            try:
                Path(name).write_text(new, encoding="utf-8")
            except OSError as error:
                raise Denied(f"{name}: cannot be written: {error.strerror}") from None
        for finding in done:
            output.say(f"fixed: {name}:{finding.line}: {finding.code} {finding.subject}: {finding.fix}")
    return after


def _print(form: str, findings: list[Finding], texts: dict[str, str], documents: int, stream: TextIO) -> None:
    if form == "json":
        body = output.versioned("LintReport", report.to_json(findings))
        text = json_safe(json.dumps(body, indent=2, ensure_ascii=False))
    elif form == "sarif":
        text = json_safe(json.dumps(report.to_sarif(findings, __version__), indent=2, ensure_ascii=False))
    else:
        shown = _diagnostics(findings, texts)
        text = "\n".join(line for entry in shown for line in diagnostic.lines(entry, texts, stream))
        output.say(report.summary(findings, documents))
    if text:
        print(text, file=stream)


def _diagnostics(findings: list[Finding], texts: dict[str, str]) -> Iterator[diagnostic.Diagnostic]:
    shown = 0
    for finding in findings:
        after = ""
        if finding.edits and shown < DIFFS_MAX and finding.file in texts:
            shown += 1
            new, done = fixed(texts[finding.file], [finding])
            after = new if done else ""
        yield diagnostic.Diagnostic(
            finding.severity,
            finding.message,
            finding.file,
            finding.line,
            finding.code,
            ": ".join(filter(None, (finding.subject, finding.field))),
            finding.fix,
            after,
        )
