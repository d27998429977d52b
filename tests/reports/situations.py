"""Situations that people report, each with what must be said of it: where pods go, which facts, what lint finds.

Every situation is a small cluster of kilns, carts and looms. A test that uses them changes all names by a seed, so the
facts name what the cluster names; numbers stay.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any, NamedTuple

from dragoman.testing.build import claim, device, device_class, gpus, manifest, node, pod, pool, request, template

Docs = list[dict[str, Any]]
Change = Callable[[Docs, random.Random], dict[str, list[str]]]

KILN, CART = "kiln.example.org", "cart.example.net"


class Finding(NamedTuple):
    """What lint says: object, code, facts of message and fix."""

    subject: str
    code: str
    facts: tuple[str, ...] = ()


class Situation(NamedTuple):
    """places: pod to node and devices, None where it has none. facts: object to what `explain` must say of it.

    flags: of simulate and explain. rejected: facts of what the API server would refuse of these documents. change: of the documents before names are changed; may give more facts.
    missing: what Dragoman does not do yet; the expectation is then known to fail.
    """

    docs: Docs
    places: dict[str, tuple[str, list[str]] | None] = {}
    facts: dict[str, list[str]] = {}
    flags: tuple[str, ...] = ()
    lint: tuple[Finding, ...] = ()
    change: Change | None = None
    missing: str = ""
    rejected: tuple[str, ...] = ()


# ---- words


def kiln_class(name: str = "kiln", **spec: Any) -> dict[str, Any]:
    return device_class(name, driver=KILN, **spec)


def kilns(where: str, *devices: dict[str, Any], **spec: Any) -> dict[str, Any]:
    return pool(where, devices, node=where, driver=KILN, **spec)


def kiln(
    name: str, *, draws: dict[str, dict[str, str]] | None = None, more: dict[str, Any] | None = None, **rest: Any
) -> dict[str, Any]:
    """draws: counter set to counters and amounts. more: other fields of the device."""
    made = device(name, **rest) | (more or {})
    if draws:
        made["consumesCounters"] = [
            {"counterSet": name, "counters": {key: {"value": value} for key, value in used.items()}}
            for name, used in draws.items()
        ]
    return made


def counters(where: str, count: int, **sets: dict[str, str]) -> dict[str, Any]:
    """The slice of counter sets of a node's pool."""
    found = [
        {"name": name.replace("_", "-"), "counters": {key: {"value": value} for key, value in held.items()}}
        for name, held in sets.items()
    ]
    spec = {
        "driver": KILN,
        "nodeName": where,
        "pool": {"name": where, "generation": 1, "resourceSliceCount": count},
        "sharedCounters": found,
    }
    return manifest("ResourceSlice", f"{where}-sets", spec=spec)


def of_pool(made: dict[str, Any], count: int) -> dict[str, Any]:
    """The slice as one of `count` of its pool."""
    made["spec"]["pool"]["resourceSliceCount"] = count
    return made


def one(name: str = "r", *, of: str = "kiln", select: str = "", **exactly: Any) -> dict[str, Any]:
    return request(name, device_class=of, select=select, **exactly)


def attribute(name: str) -> str:
    return f"device.attributes['{KILN}'].{name}"


def held(
    name: str, where: str, *devices: str, by: str = "", uid: str = "", namespace: str = "default", **rest: Any
) -> dict[str, Any]:
    """A claim that holds these devices of a node's pool; by: the pod that it is reserved for."""
    results = [{"request": "r", "driver": KILN, "pool": where, "device": device} for device in devices]
    term = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [where]}]}
    status: dict[str, Any] = {
        "allocation": {"devices": {"results": results}, "nodeSelector": {"nodeSelectorTerms": [term]}}
    }
    if by:
        status["reservedFor"] = [{"resource": "pods", "name": by, "uid": uid or f"uid-{by}"}]
    count = {"count": len(devices)} if len(devices) > 1 else {}
    return claim(name, one(**count), namespace=namespace, status=status, **rest)


def bound(name: str, where: str, *claims: str, namespace: str = "", **spec: Any) -> dict[str, Any]:
    return pod(name, *claims, namespace=namespace, nodeName=where, status={"phase": "Running"}, **spec)


# ---- what is changed beside names


def one_short(docs: Docs, rng: random.Random) -> dict[str, list[str]]:
    """Other numbers of devices, always one short."""
    have = rng.randint(4, 31)
    for doc in docs:
        if doc["kind"] == "ResourceSlice":
            doc["spec"]["devices"] = doc["spec"]["devices"][:have]
        if doc["kind"] == "ResourceClaim":
            doc["spec"]["devices"]["requests"][0]["exactly"]["count"] = have + 1
    return {"pod/batch": [f"{have + 1} devices of class kiln", f"{have} devices match", f"ask for {have}"]}


def other_rail(docs: Docs, rng: random.Random) -> dict[str, list[str]]:
    """Another root lacks its cart."""
    root = f"rail{rng.randint(0, 2)}"
    whole = [f"rail{i // 2}" for i in range(6)]
    whole.remove(root)
    for doc in docs:
        if doc["kind"] == "ResourceSlice" and doc["spec"]["driver"] == CART:
            for made, value in zip(doc["spec"]["devices"], whole, strict=True):
                made["attributes"]["resource.kubernetes.io/pcieRoot"]["string"] = value
    return {"pod/firing": [f"{root} has 2 kiln, 1 cart"]}


def other_priorities(docs: Docs, rng: random.Random) -> dict[str, list[str]]:
    low = rng.randint(-50, 50)
    for doc in docs:
        if doc["kind"] == "Pod":
            doc["spec"]["priority"] = {"glaze": low, "brick": low + 3, "urgent": low + 400}[doc["metadata"]["name"]]
    return {"pod/urgent": [f"default/glaze (priority {low})"]}


SHELVES = {"whole": "6", "third": "2"}
GLAZED = kiln_class(selectors=[{"cel": {"expression": f"device.driver == '{KILN}' && {attribute('glaze')} == 'salt'"}}])
HOT = attribute("heat").replace("attributes", "capacity")


def too_hot(text: str) -> list[dict[str, Any]]:
    return [{"cel": {"expression": f"{text}.compareTo(quantity('900')) >= 0"}}]


def quarter(index: int, *shelves: int, profile: str) -> dict[str, Any]:
    return kiln(f"{profile}-{index}", profile=profile, draws={"oven-0": {f"shelf{i}": "1" for i in shelves}})


def third(kinds: str) -> dict[str, Any]:
    """A request: the whole oven rather than a third."""
    alternatives = [
        {
            "name": name,
            "deviceClassName": "kiln",
            "selectors": [{"cel": {"expression": f"{attribute('size')} == {size}"}}],
        }
        for name, size in (("whole", 3), ("third", 1))
    ]
    return {"name": kinds, "firstAvailable": alternatives}


def gang(name: str, *claims: str, templates: tuple[str, ...] = ()) -> dict[str, Any]:
    return pod(name, *claims, templates=templates, metadata={"labels": {"gang": "firing"}})


def alone(docs: Docs, rng: random.Random) -> dict[str, list[str]]:
    """One pod at a time: no gang."""
    for doc in docs:
        if doc["kind"] == "Pod":
            del doc["metadata"]["labels"]
    return {}


OVEN = [
    node("shed-1"),
    kiln_class(),
    counters("shed-1", 2, oven_0={"shelves": "3"}),
    of_pool(
        kilns(
            "shed-1",
            kiln("full", size=3, draws={"oven-0": {"shelves": "3"}}),
            *(kiln(f"part-{i}", size=1, draws={"oven-0": {"shelves": "1"}}) for i in range(3)),
        ),
        2,
    ),
    template("some", third("r")),
    *(gang(f"pot-{i}", templates=("some",)) for i in range(3)),
]


def rack(name: str, floor: str, *devices: str) -> dict[str, Any]:
    term = {"matchExpressions": [{"key": "floor", "operator": "In", "values": [floor]}]}
    spec = {
        "driver": KILN,
        "nodeSelector": {"nodeSelectorTerms": [term]},
        "pool": {"name": "rack", "generation": 1, "resourceSliceCount": 2},
        "devices": [device(name) for name in devices],
    }
    return manifest("ResourceSlice", name, spec=spec)


def rooted(
    driver: str, name: str, count: int, *, key: str = "resource.kubernetes.io/pcieRoot", each: int = 2
) -> dict[str, Any]:
    """A pool whose devices stand `each` by a root."""
    devices = [device(f"{name}-{i}") | {"attributes": {key: {"string": f"rail{i // each}"}}} for i in range(count)]
    return pool(f"shed-1-{name}", devices, node="shed-1", driver=driver)


SHARE = {"default": "1", "validRange": {"min": "1", "step": "1"}}


def shareable(name: str, amount: str, policy: dict[str, Any] | None = None, **rest: Any) -> dict[str, Any]:
    made = kiln(name, **rest) | {"allowMultipleAllocations": True}
    made["capacity"] = {"clay": {"value": amount, **({"requestPolicy": policy} if policy else {})}}
    return made


def clay(amount: str) -> dict[str, Any]:
    return {"capacity": {"requests": {"clay": amount}}}


def gone_driver() -> Docs:
    """The slices were wiped after one pod was bound; another comes later."""
    early = bound("early", "shed-1") | {"status": {"phase": "Pending"}}
    early["spec"]["resourceClaims"] = [{"name": "r", "resourceClaimTemplateName": "single"}]
    early["status"]["resourceClaimStatuses"] = [{"name": "r", "resourceClaimName": "early-r"}]
    owner = {"apiVersion": "v1", "kind": "Pod", "name": "early", "uid": "uid-early", "controller": True}
    event = manifest("Event", "early.1", reason="FailedPrepareDynamicResources", count=3)
    event |= {
        "involvedObject": {"kind": "Pod", "namespace": "default", "name": "early", "uid": "uid-early"},
        "message": f"Failed to prepare dynamic resources: prepare dynamic resources: DRA driver {KILN} is not registered",
        "firstTimestamp": "2026-02-01T10:00:10Z",
        "lastTimestamp": "2026-02-01T10:01:40Z",
    }
    return [
        node("shed-1"),
        kiln_class(),
        template("single", one()),
        early,
        held("early-r", "shed-1", "kiln-0", by="early", metadata={"ownerReferences": [owner]}),
        pod("late", templates=["single"]),
        event,
    ]


SITUATIONS: dict[str, Situation] = {
    "an attribute that the devices of one node lack": Situation(
        [
            node("shed-1"),
            node("shed-2"),
            GLAZED,
            kilns("shed-1", *(kiln(f"kiln-{i}", maker="Anagama") for i in range(3))),
            kilns("shed-2", kiln("kiln-0", maker="Anagama", glaze="salt")),
            claim("single", one()),
            pod("bowls", "single"),
        ],
        {"default/bowls": ("shed-2", ["kiln-0"])},
        {"pod/bowls": ["device class kiln", "selector 0", f"{KILN}/glaze", "3 of 3 devices", "shed-1"]},
        lint=(Finding("DeviceClass kiln", "UnguardedAttribute", ("which have no",)),),
    ),
    "a capacity that is read as an attribute": Situation(
        [
            node("shed-1"),
            kilns("shed-1", kiln("kiln-0", capacity={"heat": "1200"}, maker="Anagama")),
            kiln_class("wrong", selectors=too_hot(attribute("heat"))),
            kiln_class("right", selectors=too_hot(HOT)),
            template("bad", one(of="wrong")),
            template("good", one(of="right")),
            pod("tiles", templates=["bad"]),
            pod("bowls", templates=["good"]),
        ],
        {"default/tiles": None, "default/bowls": ("shed-1", ["kiln-0"])},
        {"pod/tiles": ["device class wrong", "heat", "1 of 1 device", HOT]},
        lint=(
            Finding("DeviceClass wrong", "AttributeIsCapacity", ("'heat' is published as", "capacity, not an attribute", f"use {HOT}")),
        ),
    ),
    "a constraint over lists that needs a second try": Situation(
        [
            node("shed-1"),
            kiln_class(),
            kilns(
                "shed-1",
                *(
                    kiln(f"kiln-{i}", more={"attributes": {"flue": {"ints": flues}}})
                    for i, flues in enumerate(([3, 8], [3], [5], [8], [8]))
                ),
            ),
            claim("three", one(count=3), constraints=[{"matchAttribute": f"{KILN}/flue"}]),
            pod("bowls", "three"),
        ],
        {"default/bowls": ("shed-1", ["kiln-0", "kiln-3", "kiln-4"])},
        flags=("--feature-gates", "DRAListTypeAttributes=true"),
        lint=(Finding(f"ResourceSlice shed-1-{KILN}", "GatedField", ("unless DRAListTypeAttributes is on",)),),
    ),
    "a gang of which one would take the whole": Situation(
        OVEN,
        {f"default/pot-{i}": ("shed-1", [f"part-{i}"]) for i in range(3)},
    ),
    "pods one by one, of which the first takes the whole": Situation(
        OVEN,
        {"default/pot-0": ("shed-1", ["full"]), "default/pot-1": None, "default/pot-2": None},
        {"pod/pot-1": ["oven-0", "used up", "full", "default/pot-0", "part-1 for r/third instead of full for r/whole"]},
        change=alone,
    ),
    "all devices of a pool whose slices are for several nodes": Situation(
        [
            node("shed-1", labels={"floor": "ground"}),
            kiln_class(),
            rack("near", "ground", "kiln-0", "kiln-1", "kiln-2"),
            rack("far", "attic", "kiln-3"),
            claim("every", one(allocationMode="All")),
            pod("bowls", "every"),
        ],
        {"default/bowls": ("shed-1", ["kiln-0", "kiln-1", "kiln-2"])},
    ),
    "a pool that counts no slice": Situation(
        [
            node("shed-1"),
            kiln_class(),
            of_pool(kilns("shed-1", *(kiln(f"kiln-{i}") for i in range(3))), 0),
            claim("pair", one(count=2)),
            pod("bowls", "pair"),
        ],
        {"default/bowls": None},
        {"pod/bowls": ["shed-1"]},
        rejected=(f"shed-1-{KILN}", "spec.pool.resourceSliceCount", "Invalid value: 0: must be greater than zero"),
        lint=(
            Finding(
                f"ResourceSlice shed-1-{KILN}",
                "NeverComplete",
                ("pool.resourceSliceCount is 0, the pool can never be complete", "its 3 devices are ignored"),
            ),
        ),
    ),
    "one device more than there are": Situation(
        [
            node("shed-1"),
            kiln_class(),
            kilns("shed-1", *(kiln(f"kiln-{i}") for i in range(31))),
            claim("many", one(count=32)),
            pod("batch", "many"),
        ],
        {"default/batch": None},
        {"pod/batch": ["shed-1", "class kiln"]},
        lint=(Finding("ResourceClaim default/many", "LargerThanAnyNode"),),
        change=one_short,
    ),
    "admin access beside a user": Situation(
        [
            node("shed-1"),
            kiln_class(),
            kilns("shed-1", *(kiln(f"kiln-{i}") for i in range(3))),
            manifest("Namespace", "guild", metadata={"labels": {"resource.kubernetes.io/admin-access": "true"}}),
            claim("use", one(), namespace="guild"),
            claim("watch", one(count=3, adminAccess=True), namespace="guild"),
            pod("potter", "use", namespace="guild"),
            pod("warden", "watch", namespace="guild"),
        ],
        {
            "guild/potter": ("shed-1", ["kiln-0"]),
            "guild/warden": ("shed-1", ["kiln-0", "kiln-1", "kiln-2"]),
        },
    ),
    "an amount near the end of all numbers": Situation(
        [
            node("shed-1"),
            kiln_class(),
            kilns("shed-1", shareable("kiln-0", "7Gi", {"default": "1Gi", "validRange": {"min": "1Gi", "step": "1Gi"}})),
            claim("huge", one(**clay("9223372036854775806"))),
            pod("bowls", "huge"),
        ],
        {"default/bowls": None},
        {"pod/bowls": ["9223372036854775806", f"{KILN}/clay", "kiln-0", "7Gi", "shed-1"]},
    ),
    "a share blocks the whole": Situation(
        [
            node("shed-1"),
            kiln_class(),
            counters("shed-1", 2, oven_0={"shelves": "3"}),
            of_pool(
                kilns(
                    "shed-1",
                    shareable("part-0", "10", {"default": "1", "validRange": {"min": "1"}}, kind="part", draws={"oven-0": {"shelves": "1"}}),
                    kiln("full-0", kind="full", draws={"oven-0": {"shelves": "3"}}),
                ),
                2,
            ),
            claim("some", one(select=f"{attribute('kind')} == 'part'", **clay("4"))),
            claim("all", one(select=f"{attribute('kind')} == 'full'")),
            pod("bowls", "some"),
            pod("tiles", "all"),
        ],
        {"default/bowls": ("shed-1", ["part-0"]), "default/tiles": None},
        {"pod/tiles": ["full-0", "oven-0/shelves", "2 of 3 left"]},
    ),
    "a constraint over what the other driver does not publish": Situation(
        [
            node("shed-1"),
            kiln_class(),
            device_class("cart", driver=CART),
            rooted(KILN, "kiln", 6),
            rooted(CART, "cart", 2, key="rail"),
            claim("pair", one("kiln"), one("cart", of="cart"), constraints=[{"matchAttribute": "resource.kubernetes.io/pcieRoot"}]),
            pod("firing", "pair"),
        ],
        {"default/firing": None},
        {
            "pod/firing": [
                "resource.kubernetes.io/pcieRoot",
                f"no device of driver {CART} publishes it",
                f"{CART}/rail",
                "6 of class kiln and 2 of class cart",
            ]
        },
        lint=(
            Finding(
                "ResourceClaim default/pair",
                "ConstraintNotShared",
                (f"is published by 1 of the 2 drivers involved, not by {CART}", f"there is {CART}/rail"),
            ),
        ),
    ),
    "partitions in the way of a larger one": Situation(
        [
            node("shed-1"),
            kiln_class(),
            counters("shed-1", 2, oven_0={f"shelf{i}": "1" for i in range(6)}),
            of_pool(
                kilns(
                    "shed-1",
                    *(quarter(first, *range(first, first + 3), profile="half") for first in (0, 3)),
                    *(quarter(at, at, profile="tray") for at in (0, 1, 4)),
                ),
                2,
            ),
            held("used", "shed-1", "tray-0", "tray-4"),
            claim("half", one(select=f"{attribute('profile')} == 'half'")),
            pod("vase", "half"),
        ],
        {"default/vase": None},
        {
            "pod/vase": [
                "profile half",
                "0-2 or 3-5",
                "free are 1, 2, 3, 5 (4 of 6)",
                "fragmented, not full",
                "fits on shed-1 with half-3",
            ]
        },
    ),
    "device plugins on one node, DRA on the other": Situation(
        [
            node("old", **{"example.com/kiln": "1", "cpu": "8", "pods": "9"}),
            node("new", cpu="8", pods="9"),
            kiln_class(extended="example.com/kiln"),
            kilns("new", kiln("kiln-0")),
            *(pod(f"pot{i}", extended={"example.com/kiln": "1"}) for i in range(3)),
        ],
        {"default/pot0": ("old", []), "default/pot1": ("new", ["kiln-0"]), "default/pot2": None},
        {
            "pod/pot2": [
                "old: 1 of example.com/kiln requested, 0 of 1 free",
                "new: ",
                "class kiln",
                "1 device matches, 0 of them free",
            ]
        },
    ),
    "a claim that its pod left behind": Situation(
        [
            pod("potter-4", namespace="batch", metadata={"uid": "u-new"}, status={"phase": "Pending"}),
            held(
                "stuck",
                "shed-2",
                "kiln-7",
                by="potter-4",
                uid="u-old",
                namespace="batch",
                metadata={
                    "deletionTimestamp": "2026-04-02T09:00:00Z",
                    "finalizers": ["resource.kubernetes.io/delete-protection"],
                    "ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "potter-4", "uid": "u-old", "controller": True}],
                },
            ),
        ],
        facts={
            "claim/stuck": [
                "resource.kubernetes.io/delete-protection",
                "still reserved for pod potter-4 (uid u-old)",
                "does not exist",
                "kiln-7 of pool shed-2 stays blocked",
            ]
        },
        flags=("-n", "batch"),
    ),
    "a taint that one of two tolerates": Situation(
        [
            node("shed-1"),
            kiln_class(),
            kilns(
                "shed-1",
                kiln("kiln-0", more={"taints": [{"key": "example.com/crack", "value": "12", "effect": "NoExecute", "timeAdded": "2026-02-01T00:00:00Z"}]}),
            ),
            claim("plain", one()),
            claim("repair", one(tolerations=[{"key": "example.com/crack", "operator": "Exists", "effect": "NoExecute"}])),
            pod("bowls", "plain"),
            pod("mason", "repair"),
        ],
        {"default/bowls": None, "default/mason": ("shed-1", ["kiln-0"])},
        {"pod/bowls": ["kiln-0", "example.com/crack=12:NoExecute, not tolerated"]},
    ),
    "a pod more important than those that hold the devices": Situation(
        [
            node("shed-1"),
            kiln_class(),
            kilns("shed-1", kiln("kiln-0"), kiln("kiln-1")),
            *(claim(name, one()) for name in ("brick", "glaze", "urgent")),
            *(pod(name, name, priority=priority) for name, priority in (("brick", 5), ("glaze", 2), ("urgent", 90))),
        ],
        {"default/brick": ("shed-1", ["kiln-0"]), "default/glaze": ("shed-1", ["kiln-1"]), "default/urgent": None},
        {"pod/urgent": ["would fit if default/glaze", "were removed; preemption for DRA devices is off"]},
        change=other_priorities,
    ),
    "a driver that is gone": Situation(
        gone_driver(),
        {"default/late": None},
        {
            "pod/early": [
                f"bound to shed-1, driver {KILN} not registered there since",
                "NodePrepareResources not called",
                "delete the pod to move it",
            ],
            "pod/late": [f"no ResourceSlice of driver {KILN} for shed-1"],
        },
    ),
    "a gang that shares one claim": Situation(
        [
            node("shed-1"),
            kiln_class(),
            kilns("shed-1", kiln("kiln-0")),
            claim("common", one()),
            *(gang(f"pot-{i}", "common") for i in range(3)),
        ],
        {f"default/pot-{i}": ("shed-1", ["kiln-0"]) for i in range(3)},
    ),
    "pairs of devices, one partner missing": Situation(
        [
            node("shed-1"),
            kiln_class(),
            device_class("cart", driver=CART),
            rooted(KILN, "kiln", 6),
            rooted(CART, "cart", 5),
            claim(
                "rails",
                *(one(f"k{i}") for i in range(6)),
                *(one(f"c{i}", of="cart") for i in range(6)),
                constraints=[{"requests": [f"k{i}", f"c{i}"], "matchAttribute": "resource.kubernetes.io/pcieRoot"} for i in range(6)],
            ),
            pod("firing", "rails"),
        ],
        {"default/firing": None},
        {"pod/firing": ["6 kiln+cart pairs wanted", "5 devices of class cart on shed-1", "at most 5 pairs"]},
        lint=(Finding("ResourceClaim default/rails", "LargerThanAnyNode"),),
        change=other_rail,
    ),
    "admin access to a partition that is held": Situation(
        [
            manifest("Namespace", "guild", metadata={"labels": {"resource.kubernetes.io/admin-access": "true"}}),
            node("shed-1"),
            kiln_class(),
            counters("shed-1", 2, oven_0={"shelves": "6"}),
            of_pool(
                kilns(
                    "shed-1",
                    kiln("full-0", size="full", draws={"oven-0": {"shelves": "6"}}),
                    kiln("part-1", size="part", draws={"oven-0": {"shelves": "2"}}),
                ),
                2,
            ),
            held("use", "shed-1", "full-0", by="potter"),
            bound("potter", "shed-1", "use"),
            claim("watch", one(adminAccess=True, select=f"{attribute('size')} == 'full'"), namespace="guild"),
            pod("warden", "watch", namespace="guild"),
        ],
        {"guild/warden": ("shed-1", ["full-0"])},
    ),
    "pods of two schedulers, and of one that nobody knows": Situation(
        [
            node("shed-1"),
            kiln_class(),
            kilns("shed-1", kiln("kiln-0"), kiln("kiln-1"), kiln("kiln-2")),
            template("single", one()),
            pod("bowls", templates=["single"], schedulerName="volcano"),
            pod("tiles", templates=["single"]),
            pod("cups", templates=["single"], schedulerName="pottery"),
        ],
        {"default/bowls": ("shed-1", ["kiln-0"]), "default/tiles": ("shed-1", ["kiln-1"])},
        {
            "pod/cups": ["has to run for this: nobody with this name has written an event or lease here"],
            "pod/tiles": ["default-scheduler", "volcano", "kiln.example.org"],
        },
        lint=(
            Finding("Pod default/bowls", "TwoSchedulers", ("volcano", "default-scheduler")),
            Finding("Pod default/cups", "UnknownScheduler"),
        ),
    ),
    "time-slicing in a template": Situation(
        [
            node("shed-1"),
            kiln_class(),
            kilns("shed-1", kiln("kiln-0")),
            {
                **(sliced := template("sliced", one())),
                "spec": {
                    "spec": {
                        "devices": {
                            **sliced["spec"]["spec"]["devices"],
                            "config": [
                                {
                                    "opaque": {
                                        "driver": KILN,
                                        "parameters": {
                                            "apiVersion": "kiln.example.org/v1",
                                            "kind": "KilnConfig",
                                            "sharing": {"strategy": "TimeSlicing"},
                                        },
                                    }
                                }
                            ],
                        }
                    }
                },
            },
            pod("bowls", templates=["sliced"]),
            pod("tiles", templates=["sliced"]),
        ],
        {"default/bowls": ("shed-1", ["kiln-0"]), "default/tiles": None},
        {"pod/tiles": ["kiln-0", "is in use by claim default/bowls"]},
        lint=(Finding("ResourceClaimTemplate default/sliced", "SharesNothing", ("TimeSlicing", "resourceClaimName")),),
    ),
    "a held partition that is published no more, without --strict": Situation(
        [
            node("shed-1"),
            kiln_class(),
            counters("shed-1", 2, oven_0={"shelves": "6"}),
            of_pool(kilns("shed-1", kiln("full-0", draws={"oven-0": {"shelves": "6"}})), 2),
            held("old", "shed-1", "part-5", by="potter"),
            bound("potter", "shed-1", "old"),
            claim("next", one()),
            pod("bowls", "next"),
        ],
        {"default/bowls": ("shed-1", ["full-0"])},
        lint=(Finding("ResourceClaim default/old", "HeldNotPublished", ("part-5", "shed-1")),),
    ),
    "a held partition that is published no more": Situation(
        [
            node("shed-1"),
            kiln_class(),
            counters("shed-1", 2, oven_0={"shelves": "6"}),
            of_pool(kilns("shed-1", kiln("full-0", draws={"oven-0": {"shelves": "6"}})), 2),
            held("old", "shed-1", "part-5", by="potter"),
            bound("potter", "shed-1", "old"),
            claim("next", one()),
            pod("bowls", "next"),
        ],
        {"default/bowls": None},
        {"pod/bowls": ["part-5", "oven-0"], "claim/old": ["part-5"], "device/kiln.example.org/shed-1/part-5": ["old"]},
        lint=(Finding("ResourceClaim default/old", "HeldNotPublished", ("part-5", "shed-1")),),
        flags=("--strict",),
    ),
    "shares pay their counters once": Situation(
        [
            node("shed-1"),
            kiln_class(),
            counters("shed-1", 2, oven_0={"shelves": "5"}),
            of_pool(
                kilns(
                    "shed-1",
                    shareable("slot-0", "9", SHARE, draws={"oven-0": {"shelves": "4"}}),
                    shareable("slot-1", "12", SHARE, draws={"oven-0": {"shelves": "5"}}),
                ),
                2,
            ),
            claim("two", one("a", **clay("3")), one("b", **clay("3"))),
            template("some", one(**clay("3"))),
            pod("bowls", "two"),
            pod("tiles", templates=["some"]),
            pod("vases", templates=["some"]),
        ],
        {
            "default/bowls": ("shed-1", ["slot-0", "slot-0"]),
            "default/tiles": ("shed-1", ["slot-0"]),
            "default/vases": None,
        },
        {"pod/vases": ["slot-0", "0 of 9", "slot-1", "oven-0/shelves", "1 of 5 left"]},
    ),
    "init containers and sidecars with extended resources": Situation(
        [
            node("shed-1", cpu="16", pods="20"),
            kiln_class(extended="example.com/kiln"),
            gpus("shed-1", 5, driver=KILN),
            pod(
                "bowls",
                initContainers=[
                    {"name": "fan", "image": "registry.example/a:1", "restartPolicy": "Always", "resources": {"limits": {"example.com/kiln": "1"}}},
                    {"name": "dry", "image": "registry.example/a:1", "resources": {"limits": {"example.com/kiln": "3"}}},
                ],
                containers=[{"name": "fire", "image": "registry.example/a:1", "resources": {"limits": {"example.com/kiln": "2"}}}],
            ),
            pod(
                "tiles",
                initContainers=[{"name": "dry", "image": "registry.example/a:1", "resources": {"limits": {"example.com/kiln": "4"}}}],
                containers=[{"name": "fire", "image": "registry.example/a:1", "resources": {"limits": {"example.com/kiln": "1"}}}],
            ),
        ],
        {"default/bowls": ("shed-1", ["gpu-0", "gpu-1", "gpu-2", "gpu-3"]), "default/tiles": None},
        {"pod/tiles": ["shed-1"]},
    ),
    "counts that no cluster has": Situation(
        [
            node("shed-1"),
            kiln_class(),
            kilns("shed-1", kiln("kiln-0"), kiln("kiln-1")),
            claim("huge", one("a", count=9223372036854775807), one("b", count=9223372036854775807)),
            claim("fair", one()),
            pod("tiles", "huge"),
            pod("bowls", "fair"),
        ],
        {"default/tiles": None, "default/bowls": ("shed-1", ["kiln-0"])},
        {"pod/tiles": ["32"]},
        lint=(Finding("ResourceClaim default/huge", "OverClaimLimit", ("32", "18446744073709551614")),),
    ),
    "a device for several without an amount": Situation(
        [
            node("shed-1"),
            kiln_class(),
            kilns("shed-1", shareable("kiln-0", "60")),
            claim("greedy", one()),
            claim("modest", one(**clay("6"))),
            pod("bowls", "greedy"),
            pod("tiles", "modest"),
        ],
        {"default/bowls": ("shed-1", ["kiln-0"]), "default/tiles": None},
        {"pod/tiles": ["kiln-0", "0 of 60"]},
        lint=(Finding("ResourceClaim default/greedy", "TakesWholeDevice", ("clay",)),),
    ),
    "admin access in a namespace without the label": Situation(
        [
            manifest("Namespace", "guild"),
            node("shed-1"),
            kiln_class(),
            kilns("shed-1", kiln("kiln-0"), kiln("kiln-1")),
            template("every", one(allocationMode="All", adminAccess=True), namespace="guild"),
            template("single", one(), namespace="guild"),
            pod("warden", templates=["every"], namespace="guild"),
            pod("potter", templates=["single"], namespace="guild"),
        ],
        {"guild/warden": None, "guild/potter": ("shed-1", ["kiln-0"])},
        lint=(
            Finding(
                "ResourceClaimTemplate guild/every",
                "InvalidField",
                ("Forbidden", "resource.kubernetes.io/admin-access: true", "containing namespace"),
            ),
        ),
        rejected=("resource.kubernetes.io/admin-access: true", "label on the containing namespace"),
    ),
    "a rolling update that waits for its own device": Situation(
        [
            kiln_class(),
            kilns("shed-1", kiln("kiln-0"), kiln("kiln-1")),
            template("single", one()),
            manifest(
                "Deployment",
                "oven",
                spec={
                    "replicas": 2,
                    "selector": {"matchLabels": {"app": "oven"}},
                    "template": {
                        "metadata": {"labels": {"app": "oven"}},
                        "spec": pod("oven", templates=["single"])["spec"],
                    },
                },
            ),
        ],
        lint=(Finding("Deployment default/oven", "RolloutStuck", ("it never finishes",)),),
    ),
    "a driver version of four parts": Situation(
        [
            node("shed-1"),
            kiln_class(),
            kilns("shed-1", kiln("kiln-0", more={"attributes": {"firmware": {"version": "7.4.21.90000000"}}})),
            claim("single", one()),
            pod("bowls", "single"),
        ],
        {"default/bowls": None},
        rejected=(f"shed-1-{KILN}", "spec.devices[0].attributes", "7.4.21.90000000", "semver.org spec 2.0.0"),
        lint=(
            Finding("DeviceClass kiln", "SelectorFails"),
            Finding(f"ResourceSlice shed-1-{KILN}", "InvalidField", ("7.4.21.90000000",)),
        ),
    ),
    "two resources of device plugins that no node has together": Situation(
        [
            node("ovens", cpu="16", pods="20", **{"example.com/kiln": "3"}),
            node("yards", cpu="16", pods="20", **{"example.net/crane": "2"}),
            pod("bowls", extended={"example.com/kiln": "1"}),
            pod("walls", extended={"example.com/kiln": "1", "example.net/crane": "1"}),
        ],
        {"default/bowls": ("ovens", []), "default/walls": None},
        {"pod/walls": ["ovens: the node has no example.net/crane", "yards: the node has no example.com/kiln"]},
    ),
    "no device anywhere": Situation(
        [
            node("shed-1", cpu="64", pods="99"),
            kiln_class(),
            template("six", one(count=6)),
            pod("firing", templates=["six"]),
        ],
        {"default/firing": None},
        {"pod/firing": ["class kiln"]},
    ),
}  # fmt: skip
