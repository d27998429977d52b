"""`dragoman migrate`: manifests from device plugins to DRA, and back. Nothing is sent to a cluster.

What becomes of them is decided in `migrate`. Imports stand in functions, so that --help is fast.
"""

from __future__ import annotations

import argparse
import difflib
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from dragoman.cli import connect, output
from dragoman.errors import Denied, Invalid

if TYPE_CHECKING:
    from dragoman.migrate.report import Remark
    from dragoman.migrate.rewrite import Migration

_STDIN = "<stdin>"


def arguments(parser: argparse.ArgumentParser) -> None:
    """Flags of migrate."""
    parser.add_argument(
        "-f",
        "--filename",
        action="append",
        default=[],
        metavar="FILE",
        help="manifests, a folder, or - for standard input; may be repeated",
    )
    parser.add_argument(
        "--to", choices=["dra", "device-plugin"], default="dra", help="the path to move to; default: dra"
    )
    parser.add_argument(
        "--strategy",
        choices=["claims", "extended-resource"],
        default="claims",
        help="to dra: claims of templates, or extended resources of DeviceClasses; default: claims",
    )
    parser.add_argument(
        "--against",
        action="append",
        default=[],
        metavar="FILE",
        help="prove on this dump of a cluster that the same pods fit on the same devices; may be repeated",
    )
    parser.add_argument("--live", action="store_true", help="the same on the cluster of the kubeconfig")
    connect.arguments(parser)
    how = parser.add_mutually_exclusive_group()
    how.add_argument("--write", action="store_true", help="change the files in place")
    how.add_argument("--diff", action="store_true", help="print the changes as a diff")
    parser.add_argument(
        "--assess",
        action="store_true",
        help="only list what touches GPUs, by node pool, and how hard each is to move; reads charts and overlays, too",
    )
    parser.add_argument(
        "--pool-label", default="", metavar="LABEL", help="with --assess: the node label that names node pools"
    )
    parser.add_argument(
        "-o", "--output", choices=["text", "json", "markdown"], default="text", help="markdown: with --assess"
    )


def run(args: argparse.Namespace) -> int:
    """Print the files on the other path, and what to know to stderr; 1 if something was refused or differs."""
    from dragoman.cli import manifests
    from dragoman.migrate.rewrite import Target, rewrite

    if args.assess and (args.filename or args.against or args.live):
        from dragoman.cli import migrate_assess

        return migrate_assess.run(args)
    if args.output == "markdown":
        raise Invalid("-o markdown", "is for --assess")
    if not args.filename:
        raise Invalid("-f", "name the files to migrate; - reads standard input")
    if args.to != "dra" and args.strategy != "claims":
        raise Invalid("--strategy", "is for --to dra")
    texts = list(manifests.texts(args.filename))
    made = rewrite(texts, Target(args.to, args.strategy))
    proof = None
    if args.against or args.live or args.kubeconfig or args.context:
        from dragoman.cli import migrate_proof

        proof = migrate_proof.prove(args, texts, made)
    if args.output == "json":
        output.write_json(
            output.versioned("Migration", {**_as_json(texts, made), **(proof.as_json() if proof else {})})
        )
        if args.write:
            _write(texts, made)
        return 1 if made.refused or (proof and not proof.same) else 0
    if args.write:
        _write(texts, made)
    elif args.diff:
        _diff(texts, made)
    else:
        for name, _ in texts:
            sys.stdout.write(made.texts[name])
    _report(made, dict(texts))
    if proof is not None:
        for line in proof.lines():
            output.say(line)
    return 1 if made.refused or (proof and not proof.same) else 0


def _write(texts: list[tuple[str, str]], made: Migration) -> None:
    for name, text in texts:
        new = made.texts[name]
        if name == _STDIN:
            sys.stdout.write(new)
        elif new != text:
            try:
                Path(name).write_bytes(new.encode())
            except OSError as error:
                raise Denied(f"{name}: cannot be written: {error.strerror}") from None
            output.say(f"written: {name}")


def _diff(texts: list[tuple[str, str]], made: Migration) -> None:
    for name, text in texts:
        lines = difflib.unified_diff(
            text.splitlines(),
            made.texts[name].splitlines(),
            f"a/{name.lstrip('/')}",
            f"b/{name.lstrip('/')}",
            lineterm="",
        )
        for line in lines:
            output.write(line)


def _report(made: Migration, texts: dict[str, str]) -> None:
    from dragoman.cli import diagnostic

    severities = {"refused": "error", "loss": "warning", "note": "note"}
    for remark in made.remarks:
        shown = diagnostic.Diagnostic(
            severities[remark.kind],
            remark.message,
            remark.file,
            remark.line,
            remark.code,
            ": ".join(filter(None, (remark.object, remark.field))),
            remark.help,
        )
        for line in diagnostic.lines(shown, texts, sys.stderr):
            print(line, file=sys.stderr)
    counts = {kind: sum(remark.kind == kind for remark in made.remarks) for kind in severities}
    output.say(f"{len(made.moved)} rewritten, {counts['refused']} refused, {counts['loss']} losses")


def _as_json(texts: list[tuple[str, str]], made: Migration) -> dict[str, object]:
    return {
        "files": [
            {"file": name, "changed": made.texts[name] != text, "text": made.texts[name]} for name, text in texts
        ],
        "moved": [{"file": m.file, "object": m.object, "namespace": m.namespace} for m in made.moved],
        "remarks": [_remark(remark) for remark in made.remarks],
    }


def _remark(remark: Remark) -> dict[str, object]:
    return remark.as_json()
