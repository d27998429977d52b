"""Do allocated claims still have what they hold? Their devices beside what is published now."""

from __future__ import annotations

from collections.abc import Iterator

from dragoman.api.files import Document
from dragoman.api.resource import ResourceClaim
from dragoman.lint.finding import Finding, found
from dragoman.lint.manifests import ManifestIndex
from dragoman.snapshot.change import Snapshot
from dragoman.snapshot.unpublished import replaced_of, unpublished_of
from dragoman.snapshot.usage import holds

_READ = ("ResourceClaim", "ResourceSlice")
_RESULTS = "status.allocation.devices.results"


def check(document: Document, world: ManifestIndex) -> Iterator[Finding]:
    """Findings on devices that a claim holds and that are gone, or not what they were."""
    claim = document.value
    if not isinstance(claim, ResourceClaim) or claim.status.allocation is None:
        return
    snapshot = world.once("allocated", lambda: _snapshot(world))
    drivers = {driver for driver, _ in snapshot.slices_by_pool}
    for device in holds(claim):
        if device.driver not in drivers:
            continue  # files without this driver's slices say nothing of its devices
        if any(one.id == device for one in unpublished_of(snapshot, device.driver, device.pool)):
            message = (
                f"holds {device.device} of pool {device.pool}, which no ResourceSlice shows any longer: it counts as "
                "held, and what it uses of the pool is not known"
            )
            fix = "let its pods end and delete them, so that the claim is released, before others get these devices"
            yield found(document, "HeldNotPublished", _RESULTS, message, fix)
    for one in replaced_of(snapshot, claim):
        message = (
            f"holds {one.id.device} of pool {one.id.pool}, which is another card now: its {one.attribute} is "
            f"{one.now}, it was {one.before} when it was allocated"
        )
        fix = "recreate its pods, so that the claim is allocated and prepared on what is there now"
        yield found(document, "DeviceReplaced", _RESULTS, message, fix)


def _snapshot(world: ManifestIndex) -> Snapshot:
    objects = ((d.kind_name, d.value) for d in world.documents if d.kind_name in _READ and d.value is not None)
    return Snapshot.from_objects(objects)
