"""What is wrong with this manifest, and where would its pods run on the cluster of the page? Lint and what-if.

Nothing is written anywhere. Never decides.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from dragoman.api import codec, files
from dragoman.api.kinds import kind_of
from dragoman.errors import Invalid
from dragoman.explain import report
from dragoman.explain.about import ExplainInput
from dragoman.explain.explanation import explain_unit
from dragoman.lint import report as lint_report
from dragoman.lint.linter import LintTarget, lint
from dragoman.snapshot.change import WORKLOADS
from dragoman.web.fleet import Fleet
from dragoman.web.waiting import fleets
from dragoman.whatif.admit import admitted
from dragoman.whatif.budget import Budget
from dragoman.whatif.changes import PutObject, apply
from dragoman.whatif.decide import run

NAME = "manifest"
TEXT_MAX = 1_000_000
PODS_MAX = 200
Linter = Callable[[files.Scan], list[Any]]


SLICES_MAX = 500
"""Where a cluster has more slices, manifests are linted against one of each layout; the simulation knows them all."""


def linter(scene: ExplainInput, target: LintTarget) -> Linter:
    """Judges texts against the classes and slices of the cluster, and against those other objects that a text names."""
    snapshot = scene.raw
    always: list[tuple[str, Any]] = [("DeviceClass", value) for _, value in sorted(snapshot.classes.items())]
    layouts: set[Any] = set()
    for name, shape in sorted(snapshot.shapes.items()):
        if len(snapshot.slices) > SLICES_MAX and shape.structure in layouts:
            continue
        layouts.add(shape.structure)
        always.append(("ResourceSlice", snapshot.slices[name]))
    background = _documents(always)

    def linted(scan: files.Scan) -> list[Any]:
        words = {word for document in scan.documents for word in _texts(document.raw)}
        stores: tuple[tuple[str, Any], ...] = (
            ("ResourceClaim", snapshot.claims),
            ("ResourceClaimTemplate", snapshot.templates),
        )
        spaces = {document.namespace for document in scan.documents}
        named = [
            (kind, store[space, word])
            for kind, store in stores
            for space in sorted(spaces)
            for word in sorted(words)
            if (space, word) in store
        ]
        named += [("Namespace", snapshot.namespaces[space]) for space in sorted(spaces) if space in snapshot.namespaces]
        return lint(scan, target, [*background, *_documents(named)])

    return linted


def _texts(value: Any) -> Iterator[str]:
    """Every text in an object."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for part in value.values() if isinstance(value, dict) else value:
            yield from _texts(part)


def _documents(objects: list[tuple[str, Any]]) -> list[files.Document]:
    """Objects of the cluster as documents."""
    items = []
    for kind, value in objects:
        described = kind_of(kind)
        version = described.versions[0]
        api = f"{described.group}/{version}" if described.group else version
        items.append({"apiVersion": api, "kind": kind, **codec.to_json(value)})
    text = json.dumps({"apiVersion": "v1", "kind": "List", "items": items})
    return files.scan([("the cluster", text)]).documents if items else []


def judged(text: str, scene: ExplainInput, lint_with: Linter, fleet: Fleet, target: LintTarget) -> dict[str, Any]:
    """{"documents", "findings", "pods", "refused", "fleet"}. Raises Invalid for a text that is too long."""
    if len(text) > TEXT_MAX:
        raise Invalid("manifest", f"must be at most {TEXT_MAX:,} characters")
    scan = files.scan([(NAME, text)], changes=True)
    findings = lint_report.to_json(lint_with(scan))["findings"]
    body: dict[str, Any] = {"documents": len(scan.documents), "findings": findings, "pods": [], "refused": []}
    if scan.broken or scan.invalid:
        return body
    assert target.applied is not None
    accepted, refused = admitted(scan.documents, scene.cluster.now, target.gates, applied=target.applied)
    body["refused"] = [
        {"line": document.line(rejection.field), "object": document.subject, "message": rejection.message}
        for document, rejection in refused
    ]
    changes = [PutObject(document.kind_name, value) for document, value in accepted]
    order = tuple(
        (document.kind_name, document.namespace, value.metadata.name)
        for document, value in accepted
        if document.kind_name == "Pod" or document.kind_name in WORKLOADS
    )
    cluster = apply(scene.cluster, changes).cluster
    old = set(scene.cluster.snapshot.pods)
    budget = Budget(scene.monotonic)
    found: dict[Any, dict[str, Any]] = {}
    # New pods are decided first. Controllers of workloads may make more of them later, after what waits already.
    makes_pods = any(kind != "Pod" for kind, _, _ in order)
    context = msgspec.structs.replace(scene.context, preemption="off") if makes_pods else scene.context
    for step in run(cluster, order, context):
        if all(key in old for key in step.unit.pods) and not any(("Pod", *key) in order for key in step.unit.pods):
            if not makes_pods:
                break
            continue
        assert step.cluster is not None
        cluster = step.cluster
        brief = budget.is_brief(step)
        with budget.spent(step) as over:
            for explanation in explain_unit(step, cluster.now, scene.context, over, brief=brief):
                verdict = explanation.verdict
                entry: dict[str, Any] = {"pod": "/".join(verdict.pod), "node": verdict.node}
                entry["devices"] = report.devices(verdict)
                if verdict.node is None:
                    entry["undecided"] = verdict.undecided is not None
                    entry["why"] = report.reason_lines(explanation)
                found[verdict.pod] = entry
    pods = list(found.values())
    body |= {"pods": pods[:PODS_MAX], "podsTotal": len(pods)}
    body["fleet"] = fleets(fleet, scene.cluster.snapshot, cluster.snapshot)
    return body
