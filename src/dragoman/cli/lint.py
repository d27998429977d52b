"""`dragoman lint`: what is wrong with these manifests, for the API, the drivers and each other? No cluster needed.

With a cluster (--live, --kubeconfig, --context) or its dump (--against) the manifests are judged against its slices,
classes and claims too; the cluster's own objects are not judged.

What to find is decided in `lint`. Imports stand in functions, so that --help is fast.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from dragoman import __version__
from dragoman.cli import output, source
from dragoman.cli.versions import NEWEST, minor_of
from dragoman.errors import Denied, Invalid

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from dragoman.api.files import Document
    from dragoman.cli.diagnostic import Diagnostic
    from dragoman.lint.finding import Finding

OLDEST = 30
_STDIN = "<stdin>"
DIFFS_MAX = 50
"""Findings for which the edit is tried out and shown as a diff."""
PROOF_MAX = 4_000_000
"""Characters linted again in all, to prove that edits help."""


def arguments(parser: argparse.ArgumentParser) -> None:
    """Flags of lint."""
    source.arguments(parser)
    parser.add_argument(
        "--against",
        action="append",
        default=[],
        metavar="FILE",
        help="check against this dump of a cluster, too; may be repeated",
    )
    parser.add_argument("--live", action="store_true", help="check against the cluster of the kubeconfig, too")
    parser.add_argument("-o", "--output", choices=["text", "json", "sarif"], default="text")
    parser.add_argument(
        "--kubernetes",
        metavar="1.NN",
        help=f"Kubernetes version to check for; default: that of the live cluster, else 1.{NEWEST}",
    )
    parser.add_argument(
        "--fix",
        action="store_true",
        help="fix what can be fixed in the files, keeping comments; standard input is written to stdout",
    )


def run(args: argparse.Namespace) -> int:
    """Print the findings (with --fix those that are left); 1 if there are errors."""
    from dragoman.api import files
    from dragoman.cli import diagnostic, manifests
    from dragoman.drivers.registry import known_drivers
    from dragoman.lint import report
    from dragoman.lint.finding import ERROR
    from dragoman.lint.kinds import not_judged
    from dragoman.lint.linter import LintTarget, lint

    if not args.filename:
        raise Invalid("-f", "name the files to lint; - reads standard input")
    gates = source.gates(args)
    background, minor = _background(args)
    target = LintTarget(
        minor=minor_of(args.kubernetes, OLDEST) if args.kubernetes else minor,
        gates=gates,
        known=known_drivers(),
        applied=source.applied,
    )
    texts = list(manifests.texts(args.filename))
    scan = files.scan(texts, changes=True)
    findings = lint(scan, target, background)
    if args.fix:
        texts = _fix(texts, findings)
        scan = files.scan(texts, changes=True)
        findings = lint(scan, target, background)
    stream = sys.stderr if _piped(args) else sys.stdout
    if args.output == "text":
        named = dict(texts)
        shown = _diagnostics(
            findings, named, lambda changed: lint(files.scan(changed, changes=True), target, background)
        )
        for entry in shown:
            for line in diagnostic.lines(entry, named, stream):
                print(line, file=stream)
        output.say(report.summary(findings, len(scan.documents) + len(scan.broken), not_judged(scan.documents)))
    else:
        _write(args.output, findings, not_judged(scan.documents), stream)
    return 1 if any(finding.severity == ERROR for finding in findings) else 0


def _background(args: argparse.Namespace) -> tuple[list[Document], int]:
    """The cluster's objects, and the minor version to judge for."""
    from dragoman.api import files
    from dragoman.cli import manifests

    against = list(manifests.texts(args.against))
    documents, minor = files.scan(against).documents, NEWEST
    if args.live or args.kubeconfig or args.context:
        import asyncio  # with files only it is not needed

        recorded, minor = asyncio.run(_live(args))
        documents += files.scan([("the cluster", recorded)]).documents
    if (against or args.live) and not documents:
        output.say("note: the cluster has no objects to check against")
    return documents, minor


async def _live(args: argparse.Namespace) -> tuple[str, int]:
    from dragoman.cli import connect, live, record

    async with connect.client(args) as client:
        items, seen = await record.recorded(client, own=connect.namespace(args))
        version = await client.server_version()
    for line in live.notes(seen):
        output.say(f"{line}; references to them may be reported missing")
    digits = re.match(r"\d+", str(version.get("minor", "")))
    minor = min(max(int(digits[0]), OLDEST), NEWEST) if digits else NEWEST
    return json.dumps({"apiVersion": "v1", "kind": "List", "items": items}), minor


def _piped(args: argparse.Namespace) -> bool:
    """With --fix from standard input the fixed text is what goes to stdout."""
    return args.fix and "-" in args.filename


def _fix(texts: list[tuple[str, str]], findings: list[Finding]) -> list[tuple[str, str]]:
    """The texts after fixing; files that change are written."""
    from dragoman.lint.fix import fixed

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


def _write(form: str, findings: list[Finding], others: dict[str, int], stream: TextIO) -> None:
    from dragoman.lint import report
    from dragoman.values.visible import json_safe

    is_sarif = form == "sarif"
    body = report.to_sarif(findings, __version__) if is_sarif else report.to_json(findings, others)
    body = body if is_sarif else output.versioned("LintReport", body)
    print(json_safe(json.dumps(body, indent=2, ensure_ascii=False)), file=stream)


def _diagnostics(
    findings: list[Finding], texts: dict[str, str], linted: Callable[[list[tuple[str, str]]], list[Finding]]
) -> Iterator[Diagnostic]:
    """Each finding, with the text after its edit where that was linted again and the finding is gone."""
    from dragoman.cli.diagnostic import Diagnostic
    from dragoman.lint.fix import fixed

    size = sum(map(len, texts.values()))
    left = min(DIFFS_MAX, PROOF_MAX // max(size, 1))
    for finding in findings:
        after = ""
        if finding.edits and left > 0 and finding.file in texts:
            left -= 1
            new, done = fixed(texts[finding.file], [finding])
            if done and _is_better(findings, linted([*{**texts, finding.file: new}.items()]), finding):
                after = new
        yield Diagnostic(
            finding.severity,
            finding.message,
            finding.file,
            finding.line,
            finding.code,
            ": ".join(filter(None, (finding.subject, finding.field))),
            finding.fix,
            after,
            finding.start,
            finding.end,
        )


def _is_better(before: list[Finding], after: list[Finding], finding: Finding) -> bool:
    """Whether the finding is gone and no error has come; lines and indices may have moved."""

    def counted(findings: list[Finding]) -> Counter[tuple[str, ...]]:
        return Counter((f.severity, f.code, f.file, f.subject, f.message) for f in findings)

    old, new = counted(before), counted(after)
    mine = (finding.severity, finding.code, finding.file, finding.subject, finding.message)
    return new[mine] < old[mine] and not any(severity == "error" for severity, *_ in new - old)
