"""Does somebody decide these pods, and does only one scheduler give out a driver's devices?"""

from __future__ import annotations

from collections.abc import Iterator

from dragoman.api.files import Document
from dragoman.api.shape import dig, text
from dragoman.api.validate.field import path_text
from dragoman.inspect.schedulers import (
    DEFAULT,
    NOBODY,
    SHARED_HELP,
    SharedDriver,
    scheduler_info,
    shared_drivers,
    shared_text,
    written_by,
)
from dragoman.lint.finding import Finding, found
from dragoman.lint.manifests import ManifestIndex
from dragoman.lint.pods import pod_specs
from dragoman.snapshot.change import HELD, Snapshot

_PODS = ("Pod", "DeviceClass", "ResourceClaim", "ResourceClaimTemplate")


def check(document: Document, world: ManifestIndex) -> Iterator[Finding]:
    """Findings on spec.schedulerName of pods and of templates of pods."""
    for path, spec in pod_specs(document):
        name = text(spec, "schedulerName") or DEFAULT
        field = path_text((*path, "schedulerName" if "schedulerName" in spec else "resourceClaims"))
        if name != DEFAULT:
            info = scheduler_info(
                name,
                world.once("pods of all", lambda: _snapshot(world)),
                world.once("written by", lambda: _written(world)),
                visible=True,
            )
            if not info.title and not info.evidence:
                message = f"scheduler {name} is not known here, and {NOBODY}: the pod stays Pending unless one runs"
                fix = f"did you mean {info.near}?" if info.near else f"write {DEFAULT}, or run a scheduler of this name"
                yield found(document, "UnknownScheduler", field, message, fix)
        if document.kind_name == "Pod":
            for shared in world.once("shared drivers", lambda: shared_drivers(_snapshot(world), _written(world))):
                if f"{document.namespace}/{document.name}" in _reported_on(shared):
                    yield found(document, "TwoSchedulers", field, shared_text(shared), SHARED_HELP)


def _reported_on(shared: SharedDriver) -> tuple[str, ...]:
    """The pods on which it is said: those of all schedulers but one, which is the default one if it takes part."""
    kept = shared.schedulers.index(DEFAULT) if DEFAULT in shared.schedulers else 0
    return tuple(pod for index, pod in enumerate(shared.pods) if index != kept)


def _snapshot(world: ManifestIndex) -> Snapshot:
    return Snapshot.from_objects(
        (d.kind_name, d.value) for d in world.documents if d.kind_name in HELD & set(_PODS) and d.value is not None
    )


def _written(world: ManifestIndex) -> dict[str, str]:
    leases = (d.object for d in world.documents if d.kind_name == "Lease")
    events = (d.object for d in world.documents if d.kind_name == "Event")
    found_ = written_by(leases, events)
    for document in world.documents:  # what is installed with the same files will run
        if document.kind_name in ("Deployment", "StatefulSet") and dig(document.raw, "spec", "template"):
            found_.setdefault(document.name, f"{document.subject}")
    return found_
