"""Are claims prepared and unprepared as the kubelet relies on? Repeats, mistakes, batches, claims that changed."""

from __future__ import annotations

import asyncio
import contextlib

from dragoman.node.bench.bed import Bed, DeviceChoice
from dragoman.node.bench.case import case
from dragoman.node.bench.line import Answers, CallFailed
from dragoman.node.bench.report import Defect, NotApplicable
from dragoman.node.cdi import Edits
from dragoman.node.driver import ClaimRef, PreparedDevice

DRA_API = "DRA plugin gRPC API"
MANAGER = "kubelet DRA manager, KEP-4381"
HELPER = "driver's part of the protocol, KEP-3063"
ABANDONED_S = 0.001


@case(
    "prepare",
    "an allocated claim is prepared, then unprepared",
    "the answer names the allocated devices, their top-level requests, and CDI devices that resolve at that moment; "
    "after unprepare nothing of the claim is left",
    DRA_API,
)
async def prepare(bed: Bed) -> None:
    """One claim, one device."""
    (device,) = await bed.pick(1)
    ref = await bed.claim(device)
    await bed.prepare(ref, device)
    await bed.unprepare(ref)


@case(
    "prepare-twice",
    "prepare is repeated",
    "both calls are idempotent: the kubelet repeats a prepare after its restart and for each new attempt to start the "
    "pod; the answer stays, and so do the CDI edits",
    DRA_API,
)
async def prepare_twice(bed: Bed) -> None:
    """Three times the same."""
    (device,) = await bed.pick(1)
    ref = await bed.claim(device)
    first = await bed.prepare(ref, device)
    edits = _edits(bed, first)
    for _ in range(2):
        if (again := await bed.prepare(ref, device)) != first:
            raise Defect(f"the repeated prepare was answered {again} instead of {first}")
    if _edits(bed, first) != edits:
        raise Defect("the CDI edits of the same devices changed")
    await bed.unprepare(ref)


def _edits(bed: Bed, answer: tuple[PreparedDevice, ...]) -> list[Edits]:
    known = bed.devices_of_cdi()
    return [known[identity] for device in answer for identity in device.cdi_ids]


@case(
    "prepare-overlapping",
    "prepare comes twice at the same time, and the kubelet gives up on a call",
    "a call that takes over 45 s is repeated while the first may still run; an abandoned call harms nothing",
    MANAGER,
)
async def prepare_overlapping(bed: Bed) -> None:
    """Two at once, then one abandoned at once and repeated."""
    (device,) = await bed.pick(1)
    ref = await bed.claim(device)
    first, second = await asyncio.gather(bed.prepare(ref, device), bed.prepare(ref, device))
    if first != second:
        raise Defect(f"two calls at a time were answered {first} and {second}")
    await bed.unprepare(ref)
    other = await bed.claim(device)
    with contextlib.suppress(CallFailed):
        await bed.line().prepare(other, timeout_s=ABANDONED_S)
    bed.note(f"abandoned a prepare after {ABANDONED_S * 1000:g} ms")
    await bed.prepare(other, device)
    with contextlib.suppress(CallFailed):
        await bed.line().unprepare(other, timeout_s=ABANDONED_S)
    await bed.unprepare(other)


@case(
    "prepare-unallocated",
    "prepare of a claim without allocation",
    "the driver reads the claim itself and refuses what is not allocated",
    HELPER,
)
async def prepare_unallocated(bed: Bed) -> None:
    """It becomes possible once it is allocated."""
    (device,) = await bed.pick(1)
    ref = await bed.empty_claim()
    await bed.refused(ref, "the claim is not allocated")
    await bed.allocate(ref, device)
    await bed.prepare(ref, device)
    await bed.unprepare(ref)


@case(
    "prepare-missing",
    "prepare of a claim that does not exist",
    "the driver reads the claim itself and refuses what is not there",
    HELPER,
)
async def prepare_missing(bed: Bed) -> None:
    """A name nobody has."""
    await bed.refused(_nobody(bed), "there is no such claim")


@case(
    "prepare-replaced",
    "prepare with the uid of a claim that another of the same name replaced",
    "a claim is its uid: the driver refuses a claim whose uid is not the one asked for",
    HELPER,
)
async def prepare_replaced(bed: Bed) -> None:
    """The new claim is not touched by that."""
    (device,) = await bed.pick(1)
    old = await bed.claim(device, name=f"{bed.node}-replaced")
    await bed.delete(old)
    new = await bed.claim(device, name=old.name)
    await bed.refused(old, f"uid {old.uid} is gone and the name is another claim's")
    await bed.prepare(new, device)
    await bed.unprepare(new)


@case(
    "unknown-device",
    "prepare of a device that the driver does not have",
    "a device may vanish after it was allocated: the driver refuses what it cannot make usable",
    HELPER,
)
async def unknown_device(bed: Bed) -> None:
    """Same pool, a name that nobody published."""
    (device,) = await bed.pick(1)
    ghost = {"driver": bed.driver, "pool": device.pool, "device": "bench-no-such-device"}
    ref = await bed.claim(others=(ghost,))
    await bed.refused(ref, "it was given a device that is not published")


@case(
    "other-drivers-part",
    "a claim with devices of two drivers",
    "a driver answers for its own results only, and does not mind the others",
    DRA_API,
)
async def other_drivers_part(bed: Bed) -> None:
    """The other driver does not exist."""
    (device,) = await bed.pick(1)
    foreign = {"driver": "other.example.com", "pool": "elsewhere", "device": "thing"}
    ref = await bed.claim(device, others=(foreign,))
    await bed.prepare(ref, device)
    await bed.unprepare(ref)


@case(
    "batch",
    "several claims in one call",
    "every claim of the call has its own entry in the answer",
    DRA_API,
)
async def batch(bed: Bed) -> None:
    """Two claims there, and back."""
    devices = await bed.pick(2)
    refs = [await bed.claim(device) for device in devices]
    answers = await _prepare_all(bed, *refs)
    for ref, device in zip(refs, devices, strict=True):
        answer = answers[ref.uid]
        if isinstance(answer, str):
            raise Defect(f"{ref.name} failed in a batch: {answer}")
        bed.check(ref, (device,), answer)
    bed.note(f"prepared {len(refs)} claims in one call")
    await _unprepare_all(bed, *refs)


@case(
    "bad-among-good",
    "one bad claim among good ones",
    "an error belongs to its claim alone; the others of the call are prepared, and so with unprepare",
    DRA_API,
)
async def bad_among_good(bed: Bed) -> None:
    """The bad one stands in the middle."""
    first, second = await bed.pick(2)
    good = [await bed.claim(first), await bed.claim(second)]
    bad = _nobody(bed)
    answers = await _prepare_all(bed, good[0], bad, good[1])
    if not isinstance(answers[bad.uid], str):
        raise Defect("a claim that does not exist was prepared")
    bed.note(f"refused the bad one: {answers[bad.uid]!s}")
    for ref in good:
        if isinstance(fault := answers[ref.uid], str):
            raise Defect(f"the good claim {ref.name} failed with the bad one: {fault}")
    bed.note("prepared the good ones")
    await _unprepare_all(bed, good[0], bad, good[1])


async def _prepare_all(bed: Bed, *refs: ClaimRef) -> Answers:
    try:
        return await bed.line().prepare(*refs)
    except CallFailed as error:
        raise Defect(f"the whole call of {len(refs)} claims failed: {error}") from None


async def _unprepare_all(bed: Bed, *refs: ClaimRef) -> None:
    try:
        answers = await bed.line().unprepare(*refs)
    except CallFailed as error:
        raise Defect(f"the whole call to unprepare {len(refs)} claims failed: {error}") from None
    for ref in refs:
        if fault := answers[ref.uid]:
            raise Defect(f"unprepare of {ref.name} failed: {fault}")
        if left := bed.resolving(ref):
            raise Defect(f"{ref.name} left CDI devices behind: {', '.join(left)}")
    bed.note(f"unprepared {len(refs)} claims in one call")


@case(
    "held-device",
    "a device that is still prepared for another claim",
    "the driver is the last line of defence against two claims on one device: it refuses, and takes the claim once the "
    "other is unprepared",
    HELPER,
)
async def held_device(bed: Bed) -> None:
    """As after a mistake of the scheduler, or a force-deleted pod."""
    (device,) = await bed.pick(1)
    _not_shared(device)
    holder, late = await bed.claim(device), await bed.claim(device)
    await bed.prepare(holder, device)
    await bed.refused(late, f"{device} is prepared for {holder.name}")
    await bed.prepare(holder, device)
    await bed.unprepare(holder)
    await bed.prepare(late, device)
    await bed.unprepare(late)


@case(
    "unprepare-twice",
    "unprepare is repeated",
    "both calls are idempotent: what is unprepared already is success",
    DRA_API,
)
async def unprepare_twice(bed: Bed) -> None:
    """Three times the same."""
    (device,) = await bed.pick(1)
    ref = await bed.claim(device)
    await bed.prepare(ref, device)
    for _ in range(3):
        await bed.unprepare(ref)


@case(
    "unprepare-unknown",
    "unprepare of a claim never heard of",
    "unprepare of an unknown claim is success, since the kubelet cannot know how far a prepare got",
    DRA_API,
)
async def unprepare_unknown(bed: Bed) -> None:
    """Neither the driver nor the API knows it."""
    await bed.unprepare(_nobody(bed))


@case(
    "unprepare-claim-gone",
    "unprepare after the claim was deleted",
    "unprepare must not need the ResourceClaim object, which may be gone by then",
    DRA_API,
)
async def unprepare_claim_gone(bed: Bed) -> None:
    """The device is free afterwards."""
    (device,) = await bed.pick(1)
    ref = await bed.claim(device)
    await bed.prepare(ref, device)
    await bed.delete(ref)
    await bed.unprepare(ref)
    following = await bed.claim(device)
    await bed.prepare(following, device)
    await bed.unprepare(following)


@case(
    "late-prepare",
    "a prepare that arrives after the unprepare",
    "a late call for a claim that was unprepared and deallocated is refused; allocated again, for a new pod, the same "
    "claim is prepared",
    MANAGER,
)
async def late_prepare(bed: Bed) -> None:
    """Deallocated, allocated again, deleted."""
    (device,) = await bed.pick(1)
    ref = await bed.claim(device)
    await bed.prepare(ref, device)
    await bed.unprepare(ref)
    await bed.release(ref)
    await bed.refused(ref, "the claim was unprepared and deallocated")
    await bed.allocate(ref, device)
    await bed.prepare(ref, device)
    await bed.unprepare(ref)
    await bed.delete(ref)
    await bed.refused(ref, "the claim was unprepared and deleted")


@case(
    "force-delete",
    "pod and claim are force-deleted and come back under the same name",
    "old and new claim are distinguished by uid: preparing the new one and unpreparing the old one do not touch each "
    "other",
    MANAGER,
)
async def force_delete(bed: Bed) -> None:
    """The kubelet unprepares the old one late, and twice."""
    first, second = await bed.pick(2)
    old = await bed.claim(first, name=f"{bed.node}-again")
    await bed.prepare(old, first)
    await bed.delete(old)
    new = await bed.claim(second, name=old.name)
    answer = await bed.prepare(new, second)
    await bed.unprepare(old)
    await bed.unprepare(old)
    if await bed.prepare(new, second) != answer:
        raise Defect("unpreparing the old claim changed the new one")
    await bed.unprepare(new)
    reused = await bed.claim(first)
    await bed.prepare(reused, first)
    await bed.unprepare(reused)


def _nobody(bed: Bed) -> ClaimRef:
    return ClaimRef("default", f"{bed.node}-nobody", bed.entropy.uuid4())


def _not_shared(device: DeviceChoice) -> None:
    if device.device.allow_multiple_allocations:
        raise NotApplicable(f"{device} may be given to several claims")
