"""Does another scheduler give away the same devices, and what keeps it off them? Judged from the API's objects.

Two schedulers that allocate devices of one driver can give one device to two claims: no precondition of the API
prevents it. So Dragoman's scheduler asks at its start who else allocates (`rivals`) and which drivers are fenced
(`fenced_drivers`). A fence counts only if the server or every scheduler enforces it, and only as far as it is checked:

- an admission policy that lets named users alone allocate devices of named drivers (deploy/fence.yaml);
- a DeviceTaintRule on all devices of the driver, with effect NoSchedule or NoExecute and the key `FENCE_KEY`;
- a taint with that key on every node that has devices of the driver.

Taints keep off what does not tolerate them; the policy keeps off everybody. Never reads or writes.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from datetime import datetime, timedelta

import msgspec

from dragoman.api.core import Pod
from dragoman.api.meta import parse_time
from dragoman.api.shape import Object
from dragoman.snapshot.usage import is_finished

FENCE_KEY = "dragoman.dev/fence"
POLICY = "dragoman-fence"
KEEPS_OFF = frozenset({"NoSchedule", "NoExecute"})
RECENT = timedelta(minutes=10)
"""A scheduler that wrote an allocation so long ago, and holds no lease, is taken to run no more."""
ALLOCATES_ALONE = (
    "!has(object.status) || !has(object.status.allocation) || "
    "(has(oldObject.status) && has(oldObject.status.allocation)) || "
    'request.userInfo.username in params.data.users.split(",") || '
    "!has(object.status.allocation.devices) || !has(object.status.allocation.devices.results) || "
    'object.status.allocation.devices.results.all(r, !(r.driver in params.data.drivers.split(",")))'
)
"""The policy's rule, as deploy/fence.yaml has it."""
_SCHEDULER = re.compile(r"(?<!de)scheduler")


class Rival(msgspec.Struct, frozen=True):
    """Another scheduler. evidence: the lease it holds, or what it wrote, for people."""

    name: str
    evidence: str


def rivals(
    leases: Iterable[Object], claims: Iterable[Object], own_lease: str, managers: Collection[str], now: datetime
) -> tuple[Rival, ...]:
    """Other schedulers that are at work. managers: field managers of our own writes."""
    found: dict[str, Rival] = {}
    for lease in leases:
        name = lease["metadata"]["name"]
        if name != own_lease and _SCHEDULER.search(name) and is_held(lease, now):
            where = lease["metadata"].get("namespace", "")
            found[name] = Rival(name, f"holds the Lease {where}/{name}")
    for claim in claims:
        manager, when = allocated_by(claim)
        if manager and manager not in managers and when is not None and now - when < RECENT:
            meta = claim["metadata"]
            text = f"allocated ResourceClaim {meta.get('namespace', '')}/{meta['name']} at {when:%Y-%m-%dT%H:%M:%SZ}"
            found.setdefault(manager, Rival(manager, text))
    return tuple(found.values())


def pod_awaits_others(pod: Pod, names: Collection[str]) -> bool:
    """Whether another scheduler may be about to allocate devices for a pod: it has claims and no answer yet."""
    if pod.spec.scheduler_name in names or pod.spec.node_name or not pod.spec.resource_claims:
        return False
    answered = any(one.type == "PodScheduled" and one.status == "False" for one in pod.status.conditions)
    return not (answered or is_finished(pod) or pod.metadata.deletion_timestamp)


def allocated_by(claim: Object) -> tuple[str, datetime | None]:
    """Who wrote a claim's allocation (its field manager), and when; ("", None) if there is none or nobody says."""
    if not (claim.get("status") or {}).get("allocation"):
        return "", None
    for entry in claim["metadata"].get("managedFields", ()):
        if "f:allocation" in entry.get("fieldsV1", {}).get("f:status", {}):
            when = entry.get("time")
            return str(entry.get("manager", "")), parse_time(when) if when else None
    return "", None


def written_lately(one: Object, manager: str, now: datetime) -> bool:
    """Whether a field manager wrote something of the object in the last minutes."""
    entries = one["metadata"].get("managedFields", ())
    times = [entry["time"] for entry in entries if entry.get("manager") == manager and entry.get("time")]
    return any(now - parse_time(time) < RECENT for time in times)


def is_held(lease: Object, now: datetime) -> bool:
    """Renewed lately, clocks differing by a minute at most."""
    spec = lease.get("spec", {})
    renewed = spec.get("renewTime")
    if not spec.get("holderIdentity") or not renewed:
        return False
    return now - parse_time(renewed) < timedelta(seconds=spec.get("leaseDurationSeconds", 15) + 60)


def fenced_drivers(
    slices: Iterable[Object],
    nodes: Iterable[Object],
    rules: Iterable[Object],
    policies: Iterable[Object],
    bindings: Iterable[Object],
    parameters: Object | None,
) -> frozenset[str]:
    """Drivers that another scheduler is kept off. parameters: the ConfigMap that the policy's binding names."""
    fenced = set(_by_policy(policies, bindings, parameters)) | set(_by_rule(rules))
    tainted = {node["metadata"]["name"] for node in nodes if _has_fence(node.get("spec", {}).get("taints", ()))}
    on_nodes: dict[str, bool] = {}
    for one in slices:
        spec = one["spec"]
        on_nodes[spec["driver"]] = on_nodes.get(spec["driver"], True) and spec.get("nodeName") in tainted
    return frozenset(fenced | {driver for driver, all_are in on_nodes.items() if all_are})


def _has_fence(taints: Iterable[Object]) -> bool:
    return any(taint.get("key") == FENCE_KEY and taint.get("effect") in KEEPS_OFF for taint in taints)


def _by_rule(rules: Iterable[Object]) -> Iterable[str]:
    for rule in rules:
        selector = rule["spec"].get("deviceSelector") or {}
        if set(selector) == {"driver"} and _has_fence([rule["spec"].get("taint", {})]):
            yield selector["driver"]


def _by_policy(policies: Iterable[Object], bindings: Iterable[Object], parameters: Object | None) -> list[str]:
    if parameters is None or not any(_is_our_policy(policy) for policy in policies):
        return []
    if not any(_binds_it(binding, parameters) for binding in bindings):
        return []
    return [name for name in (parameters.get("data") or {}).get("drivers", "").split(",") if name]


def _is_our_policy(policy: Object) -> bool:
    """Named as ours, and it still says what it has to: nothing leaves writes out, nothing lets failures pass."""
    spec = policy["spec"]
    if (
        policy["metadata"]["name"] != POLICY
        or spec.get("failurePolicy", "Fail") != "Fail"
        or spec.get("matchConditions")
    ):
        return False
    matches = spec.get("matchConstraints", {})
    if any(matches.get(field) for field in ("namespaceSelector", "objectSelector", "excludeResourceRules")):
        return False
    covered = any(
        {"resource.k8s.io", "*"} & set(rule.get("apiGroups", ()))
        and "*" in rule.get("apiVersions", ())
        and {"UPDATE", "*"} & set(rule.get("operations", ()))
        and "resourceclaims/status" in rule.get("resources", ())
        and not rule.get("resourceNames")
        for rule in matches.get("resourceRules", ())
    )
    return covered and any(
        " ".join(one.get("expression", "").split()) == ALLOCATES_ALONE for one in spec.get("validations", ())
    )


def _binds_it(binding: Object, parameters: Object) -> bool:
    spec, meta = binding["spec"], parameters["metadata"]
    reference = spec.get("paramRef") or {}
    return (
        spec.get("policyName") == POLICY
        and "Deny" in spec.get("validationActions", ())
        and not spec.get("matchResources")
        and (reference.get("namespace"), reference.get("name")) == (meta.get("namespace"), meta["name"])
        and reference.get("parameterNotFoundAction", "Deny") == "Deny"
    )
