"""What is wrong with these manifests? The door of lint: a scan of files in, findings in file order out.

Families look at one document or at all of them together; they get the World, so that a reference can be followed.
Never changes anything: `lint.fix` does, when asked.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import msgspec

from dragoman.api.files import Document, DocumentInvalid, Scan
from dragoman.api.gates import DEFAULTS, Gates
from dragoman.api.remedies import literal, of_syntax
from dragoman.api.validate.field import split_path
from dragoman.api.yamltext import Broken, scalar_text
from dragoman.known_drivers import NONE_KNOWN, KnownDrivers
from dragoman.lint.allocated import check as check_allocated
from dragoman.lint.capacity import check as check_capacity
from dragoman.lint.configs import check as check_configs
from dragoman.lint.constraints import check as check_constraints
from dragoman.lint.finding import CODES, Finding, SetValue, found
from dragoman.lint.kinds import check as check_kinds
from dragoman.lint.made import check as check_made
from dragoman.lint.manifests import ManifestIndex
from dragoman.lint.placement import check as check_placement
from dragoman.lint.references import check as check_references
from dragoman.lint.rollouts import check as check_rollouts
from dragoman.lint.schedulers import check as check_schedulers
from dragoman.lint.selectors import check as check_selectors
from dragoman.lint.shape import check as check_shape
from dragoman.lint.sharing import check as check_sharing
from dragoman.lint.updates import check as check_updates
from dragoman.lint.versions import check as check_versions
from dragoman.whatif.updates import Applied


class LintTarget(msgspec.Struct, frozen=True):
    """What the manifests are for: Kubernetes 1.`minor` with these gates, and drivers of which facts are known.

    applied: what `kubectl apply` makes of an object that exists; without it no change is judged.
    """

    minor: int = 37
    gates: Gates = DEFAULTS
    known: KnownDrivers = NONE_KNOWN
    applied: Applied | None = None


Family = Callable[[Document, ManifestIndex], Iterator[Finding]]
FAMILIES: tuple[Family, ...] = (
    check_kinds,
    check_versions,
    check_shape,
    check_references,
    check_placement,
    check_selectors,
    check_constraints,
    check_configs,
    check_capacity,
    check_rollouts,
    check_sharing,
    check_schedulers,
    check_made,
    check_allocated,
    check_updates,
)


def lint(
    scan: Scan,
    target: LintTarget = LintTarget(),  # noqa: B008 - frozen
    background: Sequence[Document] = (),
) -> list[Finding]:
    """All findings on the scanned documents, by file, document and line.

    background: a whole cluster's objects, which are looked up, and not judged.
    """
    world = ManifestIndex.of(
        scan.documents,
        background,
        minor=target.minor,
        gates=target.gates,
        known=target.known,
        applied=target.applied,
    )
    findings = [_of_broken(error) for error in scan.broken]
    findings += [_of_invalid(error, scan.documents) for error in scan.invalid]
    for document in scan.documents:
        findings += [finding for family in FAMILIES for finding in family(document, world)]
    read = (document.file for document in scan.documents)
    order = {file: index for index, file in enumerate(dict.fromkeys([*read, *(f.file for f in findings)]))}
    return sorted(findings, key=lambda f: (order[f.file], f.number, f.item or 0, f.line, f.field, f.code))


def _of_broken(error: Broken) -> Finding:
    what = error.what.removeprefix("broken YAML: ").removeprefix("broken JSON: ")
    line, code = error.line, "BrokenSyntax"
    return Finding(code, CODES[code].severity, error.file, error.document, line, "", what, of_syntax(error.what))


def _of_invalid(error: DocumentInvalid, documents: list[Document]) -> Finding:
    code = "WrongType"
    if error.field == "metadata.name" and error.message.startswith("is already defined"):
        code = "DuplicateObject"
    near = (d for d in documents if (d.file, d.number, d.subject) == (error.file, error.document, error.subject))
    document = next(near, None) if code == "WrongType" else None
    written = scalar_text(document.chunk, split_path(error.field)) if document is not None else None
    if document is None or written is None:
        return _unread(code, error)
    meant = literal(error.message.partition(" (")[0], written)
    edits = (SetValue(split_path(error.field), meant),) if meant is not None else ()
    if error.message.startswith("must be a string, got true or false") and written.lower() not in ("true", "false"):
        message = f"YAML takes {written} for true or false"
        return found(document, "YamlBoolean", error.field, message, f'write "{written}"', *edits)
    return found(document, code, error.field, error.message, error.help, *edits)


def _unread(code: str, error: DocumentInvalid) -> Finding:
    line, start, end = error.span
    return Finding(
        code=code,
        severity=CODES[code].severity,
        file=error.file,
        number=error.document,
        line=line,
        field=error.field,
        message=error.message,
        fix=_FIXES.get(code, error.help),
        subject=error.subject,
        start=start,
        end=end,
    )


_FIXES = {
    "DuplicateObject": "rename or delete one of the two",
}
