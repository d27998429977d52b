"""Whom would it hit? An XID or a memory overrun on a GPU, and the consumers that the way of sharing does not protect.

Answers from what is prepared; changes nothing.

| mode | XID of an application | any other XID | memory overrun |
|---|---|---|---|
| whole GPU | its consumer | its consumer | its consumer |
| time-slicing, or a device shared without a strategy | its consumer | all on the GPU | all on the GPU |
| MPS | all clients of the daemon | all on the GPU | all on the GPU; with a limit its consumer only |
| MIG | as above, within the instance | all of the instance; the whole GPU if it takes that | all of the instance |
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

import msgspec

from dragoman.drivers.nvidia.config import MPS, MpsConfig, memory_limits
from dragoman.drivers.nvidia.health import IGNORED
from dragoman.drivers.nvidia.state import Done, UsedDevice

CONTAINED = frozenset({63, 94})
"""Memory errors that the GPU contained: one application ends, as with an error of its own."""
WHOLE_GPU = frozenset({62, 64, 74, 79, 95, 119, 120})
"""XIDs after which the GPU as a whole is gone or must be reset, whatever instance they name."""


class DeviceUser(msgspec.Struct, frozen=True, order=True):
    """A consumer (a pod, by name) that uses a device. daemon: of MPS; limit_mib: what that lets it have, 0 for all."""

    consumer: str
    claim: str
    device: str
    gpu: str
    gi: int | None = None
    daemon: str = ""
    limit_mib: int = 0


class AffectedUser(msgspec.Struct, frozen=True, order=True):
    """A consumer that is hit, on a device, and why: cause, daemon, domain or gpu."""

    consumer: str
    claim: str
    device: str
    why: str


def holders(claims: Mapping[str, Done], consumers: Mapping[str, Sequence[str]]) -> tuple[DeviceUser, ...]:
    """Who uses what: the driver's claims, and the consumers of each claim by uid. Who only watches is left out."""
    return tuple(sorted(_holders(claims, consumers)))


def _holders(claims: Mapping[str, Done], consumers: Mapping[str, Sequence[str]]) -> Iterator[DeviceUser]:
    for uid, done in claims.items():
        for used in done.devices:
            if used.kind == "vfio" or used.watching:
                continue
            daemon = f"{uid}/{used.sharing}" if used.sharing == MPS else ""
            limit = _limit_mib(done, used) if daemon else 0
            for consumer in consumers.get(uid, (uid,)):
                yield DeviceUser(consumer, uid, used.name, used.gpu, used.gi, daemon, limit)


def _limit_mib(done: Done, used: UsedDevice) -> int:
    config = done.configs.get(used.name) or {}
    settings = msgspec.convert((config.get("sharing") or {}).get("mpsConfig") or {}, MpsConfig)
    group = [device.uuid for device in done.devices if done.configs.get(device.name) == config]
    limit = memory_limits(settings, group, used.name).get(used.uuid)
    return int(limit.removesuffix("M")) if limit else 0


def of_xid(
    who: Iterable[DeviceUser], number: int, gpu: str, gi: int | None = None, cause: str = ""
) -> tuple[AffectedUser, ...]:
    """Who is hit by an XID on a GPU or an instance of it; cause: the consumer whose work raised it, if it is known."""
    there = [holder for holder in who if holder.gpu == gpu]
    if number in WHOLE_GPU:
        return _hits(there, "gpu")
    domain = there if gi is None else [holder for holder in there if holder.gi == gi]
    if number not in IGNORED | CONTAINED:
        return _hits(domain, "domain")
    causes = [holder for holder in domain if holder.consumer == cause]
    daemons = {holder.daemon for holder in causes if holder.daemon}
    others = [holder for holder in domain if holder.daemon in daemons and holder not in causes]
    return tuple(sorted((*_hits(causes, "cause"), *_hits(others, "daemon"))))


def of_overrun(who: Iterable[DeviceUser], cause: str, device: str) -> tuple[AffectedUser, ...]:
    """Who is hit when a consumer takes all the memory that it can get on its device."""
    everyone = list(who)
    causes = [holder for holder in everyone if holder.consumer == cause and holder.device == device]
    if not causes:
        return ()
    one = causes[0]
    if one.limit_mib:
        return _hits(causes, "cause")
    others = [h for h in everyone if (h.gpu, h.gi) == (one.gpu, one.gi) and h not in causes]
    return tuple(sorted((*_hits(causes, "cause"), *_hits(others, "domain"))))


def _hits(who: Iterable[DeviceUser], why: str) -> tuple[AffectedUser, ...]:
    return tuple(sorted(AffectedUser(holder.consumer, holder.claim, holder.device, why) for holder in who))
