"""Which templates did a DaemonSet or StatefulSet have? ControllerRevisions: one a template, the newest with the
highest number.

Going back to an old template raises that one's number. Those beyond the history limit that no pod has go, oldest
first. What a revision holds is a patch of the workload, as `kubectl rollout undo` applies it.
"""

from __future__ import annotations

from collections.abc import Container
from typing import Any

from dragoman.api import codec
from dragoman.api.core import ControllerRevision, Workload
from dragoman.api.meta import NamespacedName
from dragoman.effects import Create, Delete, Effect, Patch
from dragoman.reconcile.step import ReconcileInput, owned_by, ref_of
from dragoman.snapshot.change import Change, Gone

KIND = "ControllerRevision"
HISTORY = 10


def keys(kind: str, change: Change, before: ReconcileInput, after: ReconcileInput) -> list[NamespacedName]:
    """The workloads of a kind whose revision changed."""
    if isinstance(change, Gone):
        namespace, name = change.namespace, change.name
    else:
        namespace, name = change.object.metadata.namespace, change.object.metadata.name
    found: dict[NamespacedName, None] = {}
    for world in (before, after):
        revision = world.other(KIND, namespace, name)
        owner = revision.metadata.controller if revision is not None else None
        if owner is not None and owner.kind == kind:
            found[namespace, owner.name] = None
    return list(found)


def kept(
    world: ReconcileInput, kind: str, workload: Workload, name: str, labels: dict[str, str], live: Container[str]
) -> list[Effect]:
    """The writes that keep the history: the present template is revision `name`; live: names that pods have."""
    meta = workload.metadata
    mine: list[ControllerRevision] = [
        revision
        for ref in world.ownership.controlled(meta.uid, KIND)
        if (revision := world.other(KIND, ref.namespace, ref.name)) is not None
    ]
    newest = max((revision.revision for revision in mine), default=0)
    present = next((revision for revision in mine if revision.metadata.name == name), None)
    effects: list[Effect] = []
    if present is None:
        if world.other(KIND, meta.namespace, name) is None:
            effects.append(Create(_body(kind, workload, name, labels, newest + 1)))
    elif present.revision < newest:
        effects.append(Patch(ref_of(KIND, present.metadata), {"revision": newest + 1}))
    limit = HISTORY if workload.spec.revision_history_limit is None else workload.spec.revision_history_limit
    old = [revision for revision in mine if revision.metadata.name != name and revision.metadata.name not in live]
    old.sort(key=lambda revision: revision.revision)
    doomed = old[: max(0, len(old) - limit)]
    effects += [
        Delete(ref_of(KIND, revision.metadata)) for revision in doomed if not revision.metadata.deletion_timestamp
    ]
    return effects


def _body(kind: str, workload: Workload, name: str, labels: dict[str, str], number: int) -> dict[str, Any]:
    template: dict[str, Any] = {**codec.to_json(workload.spec.template), "$patch": "replace"}
    template["spec"] = workload.spec.template.spec or {}
    metadata = {
        "name": name,
        "namespace": workload.metadata.namespace,
        "labels": {**workload.spec.template.metadata.labels, **labels},
        "ownerReferences": [owned_by(kind, workload.metadata)],
    }
    return {
        "apiVersion": "apps/v1",
        "kind": KIND,
        "metadata": metadata,
        "data": _sorted({"spec": {"template": template}}),
        "revision": number,
    }


def _sorted(value: Any) -> Any:
    """Keys in order, as Go writes them: clients compare revisions byte by byte."""
    if isinstance(value, dict):
        return {key: _sorted(value[key]) for key in sorted(value)}
    return [_sorted(entry) for entry in value] if isinstance(value, list | tuple) else value
