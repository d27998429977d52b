"""Can this ever be satisfied by the devices at hand? Claims larger than any node, rollouts without a spare device,
devices that are advertised twice.

Counts, and so speaks only of what no arrangement could change; whether things fit just now is `simulate`'s work.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from fractions import Fraction
from math import floor
from typing import Any

from dragoman.api.files import Document
from dragoman.api.selectors import DeviceView
from dragoman.api.shape import Object, dig, objects, text
from dragoman.lint.chains import candidates, claims_of, matching, selectors_of
from dragoman.lint.finding import Finding, ItemPath, found
from dragoman.lint.manifests import ManifestIndex
from dragoman.lint.pods import pod_specs
from dragoman.values.quantity import Quantity


def check(document: Document, world: ManifestIndex) -> Iterator[Finding]:
    """Findings that come from counting."""
    if document.value is None or not world.published.views:
        return
    for _path, devices in claims_of(document):
        yield from _too_large(document, devices, world)
    yield from _more_than_exist(document, world)
    if document.kind_name == "Deployment":
        yield from _stuck_rollout(document, world)
    elif document.kind_name == "Node":
        yield from _advertised_twice(document, world)


# ---- claims


_Wanted = tuple[int, tuple[str, ...]]
"""How many devices, that match these selectors."""


class _ClaimDemand:
    """What a claim's plain requests take together: devices that each could get, and how many."""

    def __init__(self, devices: Object, world: ManifestIndex) -> None:
        self.known = True
        self.wanted: list[_Wanted] = []
        for request in objects(devices, "requests"):
            exactly = dig(request, "exactly")
            takes = text(exactly, "allocationMode") in ("", "ExactCount") and not exactly.get("adminAccess")
            selectors = selectors_of(exactly, world) if takes else None
            if selectors is None or not _is_exclusive(selectors, world):
                # Alternatives, All, admin access and shared devices do not add up so simply.
                self.known = False
                return
            self.wanted.append((exactly.get("count") or 1, selectors))

    @property
    def total(self) -> int:
        """Devices of all requests."""
        return sum(count for count, _ in self.wanted)

    def exist(self, world: ManifestIndex) -> int:
        """Devices that any of the requests could get, anywhere."""
        return len({id(view) for _, selectors in self.wanted for view in matching(selectors, world)})


def _is_exclusive(selectors: tuple[str, ...], world: ManifestIndex) -> bool:
    """Whether there are such devices, and each is for one claim."""
    views = matching(selectors, world)
    return world.once(
        ("exclusive", selectors), lambda: bool(views) and not any(v.allow_multiple_allocations for v in views)
    )


def _too_large(document: Document, devices: Object, world: ManifestIndex) -> Iterator[Finding]:
    demand = _ClaimDemand(devices, world)
    if not demand.known or not demand.wanted:
        return
    most, best = world.once(("most", tuple(demand.wanted)), lambda: _most_on_one_node(demand.wanted, world))
    if most >= demand.total:
        return
    where = f"node {best}" if best else "any node"
    message = f"asks for {demand.total} devices, and no node has more than {most} that would do ({where})"
    fix = "ask for fewer, or spread the work over several pods"
    yield found(document, "LargerThanAnyNode", _first_count(document), message, fix)


def _most_on_one_node(wanted: list[_Wanted], world: ManifestIndex) -> tuple[int, str]:
    """How many of the wanted devices a node could give at most, and which."""
    places = [(count, world.published.by_place(matching(selectors, world))) for count, selectors in wanted]
    best = (-1, "")
    for place in sorted({place for _, there in places for place in there}):
        sources = (place, "") if place else ("",)
        here = [(count, {id(view) for at in sources for view in there.get(at, ())}) for count, there in places]
        most = min(sum(min(count, len(ids)) for count, ids in here), len(set().union(*(ids for _, ids in here))))
        if most > best[0]:
            best = (most, place)
    return best


def _first_count(document: Document) -> str:
    path = "spec.spec" if document.kind_name == "ResourceClaimTemplate" else "spec"
    return f"{path}.devices.requests"


# ---- workloads


def _templates(document: Document, world: ManifestIndex) -> Iterator[tuple[ItemPath, Document]]:
    """The claim templates of a workload's pods that are at hand, each with the path of its entry."""
    for path, spec in pod_specs(document):
        for index, entry in enumerate(objects(spec, "resourceClaims")):
            name = text(entry, "resourceClaimTemplateName")
            template = world.find("ResourceClaimTemplate", document.namespace, name)
            if template is not None:
                yield (*path, "resourceClaims", index), template


def _more_than_exist(document: Document, world: ManifestIndex) -> Iterator[Finding]:
    field = _COUNTS.get(document.kind_name, "")
    pods = dig(document.object, "spec").get(field, 1) if field else 1
    if not isinstance(pods, int) or pods < 2:
        return
    for _path, template in _templates(document, world):
        demand = _ClaimDemand(dig(template.object, "spec", "spec", "devices"), world)
        have = demand.exist(world)
        if demand.known and demand.wanted and demand.total <= have < demand.total * pods:
            each = f" of {demand.total} devices" if demand.total > 1 else ""
            message = f"{pods} pods{each} ask for {pods * demand.total} devices, and only {have} exist"
            yield found(document, "MoreThanExist", f"spec.{field}", message, f"run at most {have // demand.total} pods")
            return


_COUNTS = {"Deployment": "replicas", "ReplicaSet": "replicas", "StatefulSet": "replicas", "Job": "parallelism"}


# ---- rollouts


def _stuck_rollout(document: Document, world: ManifestIndex) -> Iterator[Finding]:
    spec = dig(document.object, "spec")
    strategy = dig(spec, "strategy")
    replicas = spec.get("replicas", 1)
    if text(strategy, "type") not in ("", "RollingUpdate") or not isinstance(replicas, int) or replicas < 1:
        return
    rolling = dig(strategy, "rollingUpdate")
    if _unavailable(rolling.get("maxUnavailable", "25%"), replicas) > 0:
        return
    for _path, template in _templates(document, world):
        demand = _ClaimDemand(dig(template.object, "spec", "spec", "devices"), world)
        if not demand.known or not demand.wanted:
            continue
        have = demand.exist(world)
        need = demand.total * (replicas + 1)
        if demand.total * replicas <= have < need:
            message = (
                f"a rollout starts a new pod before an old one stops (maxUnavailable is 0 of {replicas}) and needs "
                f"{need} devices, there are {have}: it never finishes"
            )
            fix = "set strategy.rollingUpdate.maxUnavailable to 1, or strategy.type to Recreate"
            yield found(document, "RolloutStuck", "spec.strategy", message, fix)


def _unavailable(value: Any, replicas: int) -> int:
    """A count, or a percentage of the replicas, rounded down as the API says."""
    if isinstance(value, str) and value.endswith("%") and value[:-1].isdigit():
        return floor(Fraction(int(value[:-1]) * replicas, 100))
    return value if isinstance(value, int) else 0


# ---- devices


def _advertised_twice(document: Document, world: ManifestIndex) -> Iterator[Finding]:
    places = world.once("views by place", lambda: world.published.by_place(world.published.views))
    here = places.get(document.name, [])
    if not here:
        return
    status = dig(document.object, "status")
    field = "allocatable" if dig(status, "allocatable") else "capacity"
    for resource, raw in dig(status, field).items():
        if _is_none(raw):
            continue
        driver = _served_by(resource, here, world)
        if driver:
            count = sum(view.driver == driver for view in here)
            message = (
                f"{driver} publishes {count} devices of this node and a device plugin advertises {raw} {resource}: "
                "the same hardware can be allocated twice"
            )
            fix = "run the device plugin or the driver on a node, not both"
            yield found(document, "AdvertisedTwice", f"status.{field}", message, fix)


def _is_none(raw: Any) -> bool:
    try:
        return Quantity.parse(raw).is_zero()
    except ValueError:
        return True


def _served_by(resource: str, here: list[DeviceView], world: ManifestIndex) -> str:
    """The driver whose devices on the node are meant by an extended resource, "" if none is."""
    drivers = sorted({view.driver for view in here})
    for driver in drivers:
        known = world.published.known.get(driver)
        if known is not None and re.fullmatch(known.plugin_resource, resource):
            return driver
    for name in world.once("class resources", lambda: _class_resources(world)).get(resource, ()):
        mine = {id(view) for view in here}
        matched = [v for v in candidates({"exactly": {"deviceClassName": name}}, world) if id(v) in mine]
        if matched:
            return matched[0].driver
    return ""


def _class_resources(world: ManifestIndex) -> dict[str, list[str]]:
    """Classes by the extended resource that they serve."""
    found: dict[str, list[str]] = {}
    for name in world.names("DeviceClass"):
        owner = world.find("DeviceClass", "", name)
        resource = text(dig(owner.object, "spec"), "extendedResourceName") if owner is not None else ""
        if resource:
            found.setdefault(resource, []).append(name)
    return found
