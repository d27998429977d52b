"""Can the pods of a workload all run, and can a rollout of it end, with the devices that there are?

Counts what a pod takes by claim templates, by resources of device plugins, and by resources that a DeviceClass serves.
Speaks only of what no arrangement could change.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from fractions import Fraction
from functools import partial
from math import ceil, floor
from typing import Any, NamedTuple

from dragoman.api.core import Node
from dragoman.api.files import Document
from dragoman.api.resource import IMPLICIT_EXTENDED_PREFIX
from dragoman.api.shape import Object, dig, objects, text
from dragoman.inspect.advertised_twice import amounts_of
from dragoman.lint.capacity import ClaimDemand, exclusive_by_place
from dragoman.lint.chains import candidates
from dragoman.lint.finding import Finding, found
from dragoman.lint.manifests import ManifestIndex
from dragoman.lint.pods import pod_specs
from dragoman.values.quantity import Quantity

ONE = 10**9
_COUNTS = {"Deployment": "replicas", "ReplicaSet": "replicas", "StatefulSet": "replicas", "Job": "parallelism"}


class RolloutDemand(NamedTuple):
    """What a pod takes of one thing, and how much of it each node has ("": any node). what: `devices` or a resource."""

    what: str
    each: int
    supply: Mapping[str, int]

    @property
    def total(self) -> int:
        """All there is."""
        return sum(self.supply.values())

    @property
    def pods(self) -> int:
        """How many pods find what they need: no pod takes from two nodes."""
        return sum(amount // self.each for amount in self.supply.values())


def check(document: Document, world: ManifestIndex) -> Iterator[Finding]:
    """Findings on one workload."""
    if document.value is None or document.kind_name not in (*_COUNTS, "DaemonSet"):
        return
    demands = list(_demands(document, world))
    if document.kind_name == "DaemonSet":
        yield from _stuck_daemons(document, demands)
        return
    yield from _more_than_exist(document, demands)
    if document.kind_name == "Deployment":
        yield from _stuck_rollout(document, demands)


# ---- what pods take


def _demands(document: Document, world: ManifestIndex) -> Iterator[RolloutDemand]:
    for _, spec in pod_specs(document):
        for entry in objects(spec, "resourceClaims"):
            template = world.find("ResourceClaimTemplate", document.namespace, text(entry, "resourceClaimTemplateName"))
            if template is None or not world.published.views:
                continue
            demand = ClaimDemand(dig(template.object, "spec", "spec", "devices"), world)
            if demand.known and demand.wanted:
                yield RolloutDemand("devices", demand.total, demand.supply(world))
        for resource, amount in _resources(spec).items():
            supply = world.once(("supply", resource), partial(_supply, resource, world))
            if supply and amount > 0:
                yield RolloutDemand(resource, amount, supply)


def _resources(spec: Object) -> dict[str, int]:
    """Extended resources of a pod: containers together, or an init container if it needs more."""
    total: dict[str, int] = {}
    peak: dict[str, int] = {}
    for container in objects(spec, "containers"):
        for name, amount in _limits(container):
            total[name] = total.get(name, 0) + amount
    sidecars: dict[str, int] = {}
    for container in objects(spec, "initContainers"):
        always = container.get("restartPolicy") == "Always"
        for name, amount in _limits(container):
            if always:
                sidecars[name] = sidecars.get(name, 0) + amount
            peak[name] = max(peak.get(name, 0), sidecars.get(name, 0) + (0 if always else amount))
    names = {*total, *peak}
    return {name: max(total.get(name, 0) + sidecars.get(name, 0), peak.get(name, 0)) for name in sorted(names)}


def _limits(container: Object) -> Iterator[tuple[str, int]]:
    for name, raw in dig(container, "resources", "limits").items():
        if "/" in str(name) and not str(name).startswith(("kubernetes.io/", "hugepages-")):
            try:
                yield str(name), Quantity.parse(raw).nanos // ONE
            except ValueError:
                continue


def _supply(resource: str, world: ManifestIndex) -> dict[str, int]:
    """What nodes have of a resource: of a device plugin, else devices of the class that serves it."""
    found: dict[str, int] = {}
    for name in world.names("Node"):
        node = world.find("Node", "", name)
        if node is not None and isinstance(node.value, Node) and resource in (amounts := amounts_of(node.value)):
            found[name] = amounts[resource].nanos // ONE
    for name in world.names("DeviceClass"):
        owner = world.find("DeviceClass", "", name)
        explicit = text(dig(owner.object, "spec"), "extendedResourceName") if owner is not None else ""
        if resource in (explicit, f"{IMPLICIT_EXTENDED_PREFIX}{name}"):
            matched = candidates({"exactly": {"deviceClassName": name}}, world)
            for place, number in exclusive_by_place(matched, world).items():
                found.setdefault(place, number)
            break
    return found


def _said(demand: RolloutDemand, number: int) -> str:
    return f"{number} {demand.what}"


# ---- all pods at once


def _more_than_exist(document: Document, demands: list[RolloutDemand]) -> Iterator[Finding]:
    spec = dig(document.object, "spec")
    field = _COUNTS[document.kind_name]
    pods = spec.get(field, 1)
    completions = spec.get("completions") if document.kind_name == "Job" else None
    if isinstance(completions, int) and isinstance(pods, int):
        pods = min(pods, completions)
    if not isinstance(pods, int) or pods < 2:
        return
    for demand in demands:
        if not 0 < demand.pods < pods:
            continue
        if demand.total < demand.each * pods:
            each = f" of {demand.each} {demand.what}" if demand.each > 1 else ""
            message = f"{pods} pods{each} ask for {_said(demand, pods * demand.each)}, and only {demand.total} exist"
        else:
            message = (
                f"{pods} pods ask for {_said(demand, demand.each)} each, {demand.total} exist, and no more than "
                f"{demand.pods} pods find {demand.each} on one node"
            )
        message += _follows(document)
        fix = f"run at most {demand.pods} pods, ask for less in each, or add a node"
        yield found(document, "MoreThanExist", f"spec.{field}", message, fix)
        return


def _follows(document: Document) -> str:
    ordered = text(dig(document.object, "spec"), "podManagementPolicy") in ("", "OrderedReady")
    if document.kind_name == "StatefulSet" and ordered:
        return "; its pods start in order, so those after the first that is pending are never created"
    return ""


# ---- rollouts


def _stuck_rollout(document: Document, demands: list[RolloutDemand]) -> Iterator[Finding]:
    spec = dig(document.object, "spec")
    strategy = dig(spec, "strategy")
    replicas = spec.get("replicas", 1)
    if text(strategy, "type") not in ("", "RollingUpdate") or not isinstance(replicas, int) or replicas < 1:
        return
    rolling = dig(strategy, "rollingUpdate")
    unavailable = _share(rolling.get("maxUnavailable", "25%"), replicas, up=False)
    surge = _share(rolling.get("maxSurge", "25%"), replicas, up=True)
    if unavailable > 0 or surge == 0:  # without either the controller takes one pod down
        return
    for demand in demands:
        if replicas <= demand.pods < replicas + 1:
            need = demand.each * (replicas + 1)
            there = f"there {'is' if demand.total == 1 else 'are'} {demand.total}"
            message = (
                f"a rollout starts a new pod before an old one stops (maxUnavailable is 0 of {replicas}) and needs "
                f"{_said(demand, need)}, {there}: it never finishes"
            )
            fix = (
                "set strategy.rollingUpdate.maxSurge to 0 and maxUnavailable to 1, or strategy.type to Recreate; or "
                "run fewer replicas, or add a node"
            )
            yield found(document, "RolloutStuck", "spec.strategy", message, fix)
            return


def _stuck_daemons(document: Document, demands: list[RolloutDemand]) -> Iterator[Finding]:
    strategy = dig(document.object, "spec", "updateStrategy")
    if text(strategy, "type") not in ("", "RollingUpdate"):
        return
    surge = dig(strategy, "rollingUpdate").get("maxSurge", 0)
    if _share(surge, 100, up=True) <= 0:
        return
    for demand in demands:
        short = sorted(node for node, amount in demand.supply.items() if demand.each <= amount < 2 * demand.each)
        if short:
            where = short[0] or "a node"
            message = (
                f"with maxSurge {surge} a rollout starts the new pod of a node before the old one stops and needs "
                f"{_said(demand, 2 * demand.each)} there, {where} has {demand.supply[short[0]]}: it never finishes"
            )
            fix = "set updateStrategy.rollingUpdate.maxSurge to 0 and maxUnavailable to 1"
            yield found(document, "RolloutStuck", "spec.updateStrategy", message, fix)
            return


def _share(value: Any, replicas: int, *, up: bool) -> int:
    """A count, or a percentage of the replicas, rounded as the API says: surge up, unavailable down."""
    if isinstance(value, str) and value.endswith("%") and value[:-1].isdigit():
        part = Fraction(int(value[:-1]) * replicas, 100)
        return ceil(part) if up else floor(part)
    return value if isinstance(value, int) and not isinstance(value, bool) else 0
