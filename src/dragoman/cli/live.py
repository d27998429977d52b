"""What does a live cluster show us? Objects of many kinds, and what is not visible and what that may change.

    seen = await read(client, kinds, own="team-a")
    for line in notes(seen): ...

Where the whole cluster may not be listed, the namespace `own` is asked for. Only rights for a kind may be missing:
whoever is not known to the server, or may see nothing at all, gets an error instead of an empty answer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from dragoman.api.kinds import kind_of
from dragoman.api.shape import Object
from dragoman.cluster.client import Client, Listed
from dragoman.errors import DragomanError, Forbidden, NotFound, NotServed

NEEDED = ("ResourceSlice", "ResourceClaim", "DeviceClass")
"""Kinds without which a server has no DRA."""

EFFECTS = {
    "Node": "which node can run a pod is not known",
    "ResourceSlice": "which devices exist is not known",
    "DeviceClass": "which devices a class selects is not known",
    "ResourceClaim": "devices that they hold are counted as free",
    "Pod": "their requests are not counted, and it is not known which of them use a claim",
    "ResourceClaimTemplate": "claims that are made from them are not known",
    "DeviceTaintRule": "devices that they taint are counted as usable",
    "ResourceQuota": "refusals by quota are not predicted",
    "LimitRange": "refusals by limits are not predicted",
    "PodDisruptionBudget": "what preemption may evict is not known",
    "PersistentVolumeClaim": "pods that mount one count as pending for it",
    "PersistentVolume": "pods whose volumes they are count as pending for them",
    "StorageClass": "claims for volumes count as not bound",
    "Event": "what schedulers and nodes reported is missing",
}
DEFAULT = "default-scheduler"
_OTHERS = "they are missing from the result"


class NotVisible(NamedTuple):
    """A kind that may not be listed. namespace: the only one whose objects are seen; "" for none."""

    kind: str
    namespace: str


class LiveObjects(NamedTuple):
    """found: kind to objects as on the wire. hidden: what may not be seen. who: the user, for messages."""

    found: dict[str, list[Object]]
    hidden: tuple[NotVisible, ...] = ()
    who: str = ""


async def read(client: Client, kinds: Sequence[str], *, namespace: str = "", own: str = "") -> LiveObjects:
    """Lists all kinds at once. namespace: of namespaced kinds that one only.

    Raises NotServed for a server without DRA, Forbidden where nothing may be listed, and whatever made a list fail.
    """
    found: dict[str, list[Object]] = {}
    hidden: list[NotVisible] = []
    absent: list[NotFound] = []
    refused: list[Forbidden] = []

    async def one(name: str) -> None:
        try:
            listed, seen_in = await _listed(client, name, namespace, own)
        except NotFound as error:
            if name in (*NEEDED, "Pod", "Node"):
                absent.append(error)
            return
        except Forbidden as error:
            hidden.append(NotVisible(name, ""))
            refused.append(error)
            return
        found[name] = listed.items
        if seen_in:
            hidden.append(NotVisible(name, seen_in))

    try:
        async with asyncio.TaskGroup() as group:
            for name in kinds:
                group.create_task(one(name), name=f"list {name}")
    except BaseExceptionGroup as group_error:
        raise first_error(group_error) from None
    if absent:
        raise _not_served(absent)
    if refused and not any(name != "Event" for name in found):
        names = ", ".join(sorted(kind_of(entry.kind).plural for entry in hidden))
        raise Forbidden(f"{refused[0]}; nothing is visible: not one of {names}; ask for the right to list them")
    return LiveObjects(found, tuple(sorted(hidden)), who(client))


async def leases(client: Client, seen: LiveObjects) -> tuple[Object, ...]:
    """Leases by which schedulers show that they run; () where nobody waits for one, or none may be seen."""
    specs = [pod.get("spec") or {} for pod in seen.found.get("Pod", ())]
    others = any(spec.get("schedulerName", DEFAULT) != DEFAULT for spec in specs)
    if not others and all(spec.get("nodeName") for spec in specs):
        return ()
    for namespace in ("", "kube-system") if others else ("kube-system",):
        try:
            return tuple((await client.list(kind_of("Lease"), namespace)).items)
        except (Forbidden, NotFound):
            continue
    return ()


async def _listed(client: Client, name: str, namespace: str, own: str) -> tuple[Listed, str]:
    """The objects, and the namespace where only that one may be seen."""
    kind = kind_of(name)
    try:
        return await client.list(kind, namespace if kind.namespaced else ""), ""
    except Forbidden:
        if not kind.namespaced or namespace or not own:
            raise
        return await client.list(kind, own), own


def first_error(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """Of errors that came at once the one to show: ours before others."""
    flat: list[BaseException] = []
    waiting: list[BaseException] = [group]
    while waiting:
        error = waiting.pop(0)
        if isinstance(error, BaseExceptionGroup):
            waiting += error.exceptions
        else:
            flat.append(error)
    return next((error for error in flat if isinstance(error, DragomanError)), flat[0])


def _not_served(absent: Sequence[NotFound]) -> NotServed:
    first = str(absent[0])
    if "resource.k8s.io" not in first:
        return NotServed(f"{first}: this is not a Kubernetes API server; check the server's URL in the kubeconfig")
    return NotServed(
        f"{first}: Dynamic Resource Allocation is off there; it is on from Kubernetes 1.34, in 1.32 and 1.33 with "
        "--runtime-config=resource.k8s.io/v1beta1=true and --feature-gates=DynamicResourceAllocation=true"
    )


def who(client: Client) -> str:
    access = getattr(client, "access", None)
    return str(access.who) if access is not None else ""


def hidden_kinds(seen: LiveObjects) -> frozenset[str]:
    """Kinds of which not one object may be seen."""
    return frozenset(entry.kind for entry in seen.hidden if not entry.namespace)


def notes(seen: LiveObjects, only: Iterable[str] | None = None) -> list[str]:
    """A line for all kinds whose absence means the same: what was not visible, and what that may change."""
    wanted = None if only is None else frozenset(only)
    groups: dict[tuple[str, str], list[str]] = {}
    for entry in seen.hidden:
        if wanted is None or entry.kind in wanted:
            groups.setdefault((entry.namespace, EFFECTS.get(entry.kind, _OTHERS)), []).append(entry.kind)
    lines = []
    for (namespace, effect), names in groups.items():
        plurals = ", ".join(sorted(kind_of(name).plural for name in names))
        where = f" outside namespace {namespace}" if namespace else ""
        count = _unknown_holders(seen, namespace) if "Pod" in names else 0
        holders = f" ({count} {'holder' if count == 1 else 'holders'} unknown)" if count else ""
        who = f" to {seen.who}" if seen.who else ""
        lines.append(f"note: {plurals}{where} not visible{who}: {effect}{holders}")
    return lines


def _unknown_holders(seen: LiveObjects, namespace: str) -> int:
    """Pods that visible claims are reserved for and that are not visible themselves."""
    return sum(
        consumer.get("resource") == "pods"
        for claim in seen.found.get("ResourceClaim", ())
        if claim["metadata"].get("namespace") != namespace
        for consumer in (claim.get("status") or {}).get("reservedFor") or ()
    )
