"""Calls of the allocator, one behaviour each, which `make vectors` asks Kubernetes' own about: a mill with looms.

`SCENARIOS` maps a sentence to a call in the form of allocator_calls.py. Small on purpose: whoever reads one sees what it
is about. Random calls of every shape are in upstream_cases.py.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from .allocator_calls import Case
from .upstream_cases import FEATURES

Spec = dict[str, Any]

NODE = "mill-3"
OTHER = "mill-8"
LABELS = {"floor": "upper", "wing": "east", "kubernetes.io/hostname": NODE}
LOOM = "loom.example.com"
DYE = "dye.example.org"
SHARE = "5f0c1c1e-0000-4000-8000-{:012d}"


# ---- words


def loom(name: str, **attributes: Any) -> Spec:
    """A device; attributes as Python values, lists of one kind, or typed as in the API. `with_` adds other fields."""
    kinds = {bool: "bool", int: "int", str: "string"}

    def typed(value: Any) -> Spec:
        if isinstance(value, dict):
            return value
        if isinstance(value, list):
            return {f"{kinds[type(value[0])]}s": value}
        return {kinds[type(value)]: value}

    return {"name": name, "attributes": {key: typed(value) for key, value in attributes.items()}}


def with_(device: Spec, **fields: Any) -> Spec:
    return {**device, **fields}


def looms(count: int, prefix: str = "loom", **attributes: Any) -> list[Spec]:
    return [loom(f"{prefix}-{index}", **attributes) for index in range(count)]


def amounts(**values: str) -> Spec:
    return {name: {"value": value} for name, value in values.items()}


def draws(counters: str, **values: str) -> Spec:
    return {"counterSet": counters, "counters": amounts(**values)}


def counters(name: str, **values: str) -> Spec:
    return {"name": name, "counters": amounts(**values)}


def on_node(name: str = NODE) -> Spec:
    return {"nodeName": name}


def on_floor(*floors: str, key: str = "floor") -> Spec:
    term = {"matchExpressions": [{"key": key, "operator": "In", "values": list(floors)}]}
    return {"nodeSelector": {"nodeSelectorTerms": [term]}}


EVERYWHERE: Spec = {"allNodes": True}
EACH: Spec = {"perDeviceNodeSelection": True}


def resource_slice(
    *devices: Spec,
    name: str = "looms",
    pool: str = "hall",
    driver: str = LOOM,
    where: Spec | None = None,
    of: int = 1,
    generation: int = 1,
    sets: Iterable[Spec] = (),
) -> Spec:
    """A ResourceSlice, one `of` its pool."""
    spec: Spec = {
        "driver": driver,
        "pool": {"name": pool, "generation": generation, "resourceSliceCount": of},
        **(on_node() if where is None else where),
    }
    if sets:
        spec["sharedCounters"] = list(sets)
    else:
        spec["devices"] = list(devices)
    return {"metadata": {"name": name}, "spec": spec}


def cel(text: str) -> list[Spec]:
    return [{"cel": {"expression": text}}]


def a_class(name: str = "loom", text: str = f"device.driver == '{LOOM}'", **spec: Any) -> Spec:
    return {"metadata": {"name": name}, "spec": {"selectors": cel(text), **spec}}


def asks(count: int = 1, *, of: str = "loom", select: str = "", **fields: Any) -> Spec:
    """What an `exactly` or an alternative holds. every=True asks for all."""
    body: Spec = {"deviceClassName": of}
    if fields.pop("every", False):
        body["allocationMode"] = "All"
    else:
        body |= {"allocationMode": "ExactCount", "count": count}
    if select:
        body["selectors"] = cel(select)
    needs = fields.pop("needs", None)
    if needs:
        body["capacity"] = {"requests": needs}
    return {**body, **fields}


def request(name: str = "r", count: int = 1, **fields: Any) -> Spec:
    return {"name": name, "exactly": asks(count, **fields)}


def first_of(name: str, *alternatives: tuple[str, Spec]) -> Spec:
    return {"name": name, "firstAvailable": [{"name": n, **body} for n, body in alternatives]}


def claim(*requests: Spec, name: str = "cloth", match: str = "", distinct: str = "", **devices: Any) -> Spec:
    """match, distinct: an attribute of a constraint over all requests, or over those named in `over`."""
    body: Spec = {"requests": list(requests)}
    over = devices.pop("over", None)
    found = [{kind: value} for kind, value in (("matchAttribute", match), ("distinctAttribute", distinct)) if value]
    if found:
        body["constraints"] = [{**constraint, **({"requests": over} if over else {})} for constraint in found]
    return {"metadata": {"name": name, "namespace": "default"}, "spec": {"devices": {**body, **devices}}}


def held(device: str, pool: str = "hall", driver: str = LOOM) -> Spec:
    return {"driver": driver, "pool": pool, "device": device}


def opaque(value: str, driver: str = LOOM, **rest: Any) -> Spec:
    return {"opaque": {"driver": driver, "parameters": {"weave": value}}, **rest}


def call(
    *slices: Spec,
    claims: Iterable[Spec] = (),
    off: Iterable[str] = (),
    classes: Iterable[Spec] | None = None,
    taken: Iterable[Spec] = (),
    shares: Iterable[Spec] = (),
    consumed: Iterable[tuple[Spec, dict[str, str]]] = (),
    labels: dict[str, str] | None = None,
) -> Case:
    """One call with every feature, but for those that are off."""
    gone = set(off)
    assert gone <= set(FEATURES), gone
    return {
        "features": {name: name not in gone for name in FEATURES},
        "node": {
            "metadata": {"name": NODE, "labels": LABELS if labels is None else labels},
            "status": {"declaredFeatures": ["DRAOptionalNodeOperations"]},
        },
        "claims": list(claims),
        "classes": [a_class(), a_class("dye", f"device.driver == '{DYE}'")] if classes is None else list(classes),
        "slices": list(slices),
        "allocatedDevices": list(taken),
        "allocatedShares": [{**share, "shareID": SHARE.format(i)} for i, share in enumerate(shares)],
        "consumedCapacity": [{**device, "consumed": used} for device, used in consumed],
    }


# ---- scenarios

WIDE = f"device.attributes['{LOOM}'].width >= 4"
MIXED = [loom("narrow", width=2), loom("wide", width=5), loom("middle", width=4)]
DYED = resource_slice(loom("vat-0", line=1), loom("vat-1", line=2), name="vats", pool="cellar", driver=DYE)
PLAIN: dict[str, Case] = {
    "no claims": call(resource_slice(*looms(2))),
    "no slices": call(claims=[claim(request())]),
    "one device of several": call(resource_slice(*looms(3)), claims=[claim(request())]),
    "several devices in order": call(resource_slice(*looms(4)), claims=[claim(request(count=3))]),
    "one more than there are": call(resource_slice(*looms(4)), claims=[claim(request(count=5))]),
    "two requests": call(resource_slice(*looms(4)), claims=[claim(request("warp"), request("weft", 2))]),
    "two claims": call(resource_slice(*looms(3)), claims=[claim(request()), claim(request(count=2), name="yarn")]),
    "two claims that do not fit": call(resource_slice(*looms(3)), claims=[claim(request(count=2)), claim(request(count=2), name="y")]),
    "two drivers": call(resource_slice(*looms(2)), DYED, claims=[claim(request("l"), request("d", of="dye"))]),
    "a selector of the request": call(resource_slice(*MIXED), claims=[claim(request(select=WIDE))]),
    "a selector of the class": call(resource_slice(*MIXED), claims=[claim(request(of="w"))], classes=[a_class("w", WIDE)]),
    "the first request gives way to the second": call(
        resource_slice(loom("wide", width=5), loom("narrow", width=2)), claims=[claim(request("any"), request("big", select=WIDE))]
    ),
    "the first claim gives way to the second": call(
        resource_slice(loom("wide", width=5), loom("narrow", width=2)),
        claims=[claim(request("any")), claim(request("big", select=WIDE), name="yarn")],
    ),
    "giving way twice": call(
        resource_slice(loom("a", width=5), loom("b", width=4), loom("c", width=1)),
        claims=[claim(request("x"), request("y", select=WIDE), request("z", select=f"device.attributes['{LOOM}'].width == 5"))],
    ),
    "held devices are left out": call(resource_slice(*looms(3)), claims=[claim(request(count=2))], taken=[held("loom-1")]),
    "all devices held": call(resource_slice(*looms(2)), claims=[claim(request())], taken=[held("loom-0"), held("loom-1")]),
    "a held device of the same name in another pool": call(
        resource_slice(*looms(1)), claims=[claim(request())], taken=[held("loom-0", pool="yard")]
    ),
    "too many devices for a claim": call(resource_slice(*looms(3)), claims=[claim(request(count=33))]),
    "too many devices in requests together": call(resource_slice(*looms(40)), claims=[claim(request("a", 20), request("b", 13))]),
    "as many devices as a claim may have": call(resource_slice(*looms(40)), claims=[claim(request("a", 20), request("b", 12))]),
    "a class that is not there": call(resource_slice(*looms(1)), claims=[claim(request(of="velvet"))]),
    "no classes": call(resource_slice(*looms(1)), claims=[claim(request())], classes=[]),
    "no name of a class": call(resource_slice(*looms(1)), claims=[claim(request(of=""))]),
    "an unknown allocation mode": call(
        resource_slice(*looms(1)), claims=[claim({"name": "r", "exactly": {"deviceClassName": "loom", "allocationMode": "Half"}})]
    ),
    "a selector of an unknown kind": call(resource_slice(*looms(1)), claims=[claim(request(selectors=[{}]))]),
    "a constraint of an unknown kind": call(resource_slice(*looms(1)), claims=[claim(request(), constraints=[{"requests": ["r"]}])]),
    "a selector that does not compile": call(resource_slice(*looms(1)), claims=[claim(request(select="device.attributes["))]),
    "a class whose selector does not compile": call(
        resource_slice(*looms(1)), claims=[claim(request(of="bad"))], classes=[a_class("bad", "loom == 1")]
    ),
    "a selector that fails on a device": call(resource_slice(loom("a"), loom("b", width=5)), claims=[claim(request(select=WIDE))]),
    "a selector that fails behind the devices needed": call(
        resource_slice(loom("a", width=5), loom("b")), claims=[claim(request(select=WIDE))]
    ),
    "a selector with a guard": call(
        resource_slice(loom("a"), loom("b", width=5)), claims=[claim(request(select=f"has(device.attributes['{LOOM}'].width) && {WIDE}"))]
    ),
    "an attribute without a value": call(resource_slice(loom("a", width={})), claims=[claim(request())]),
}  # fmt: skip
POOLS: dict[str, Case] = {
    "a slice of another node": call(
        resource_slice(*looms(2), where=on_node(OTHER)), resource_slice(*looms(1, "spare"), pool="yard", name="s2"), claims=[claim(request())]
    ),
    "only slices of another node": call(resource_slice(*looms(2), where=on_node(OTHER)), claims=[claim(request())]),
    "a slice for all nodes": call(resource_slice(*looms(1), where=EVERYWHERE), claims=[claim(request())]),
    "a slice for nodes by label": call(resource_slice(*looms(1), where=on_floor("upper", "attic")), claims=[claim(request())]),
    "a slice for nodes with another label": call(resource_slice(*looms(1), where=on_floor("cellar")), claims=[claim(request())]),
    "a node without labels": call(resource_slice(*looms(1), where=on_floor("upper")), claims=[claim(request())], labels={}),
    "selectors of two slices are joined": call(
        resource_slice(*looms(1), where=on_floor("upper")),
        resource_slice(*looms(1, "far"), name="s2", pool="yard", where=on_floor("east", "west", key="wing")),
        claims=[claim(request(count=2))],
    ),
    "a node's device and one from the network": call(
        resource_slice(*looms(1)), resource_slice(*looms(1, "far"), name="s2", pool="yard", where=on_floor("upper")), claims=[claim(request(count=2))]
    ),
    "the network's devices of two floors": call(
        resource_slice(*looms(2, "near"), where=on_floor("upper")),
        resource_slice(*looms(2, "far"), name="s2", pool="yard", where=on_floor("cellar")),
        claims=[claim(request(count=3))],
    ),
    "four pools one device each": call(
        *(resource_slice(loom("only"), name=f"s{i}", pool=f"hall-{i}") for i in range(4)), claims=[claim(request(count=4))]
    ),
    "five devices of four pools": call(
        *(resource_slice(loom("only"), name=f"s{i}", pool=f"hall-{i}") for i in range(4)), claims=[claim(request(count=5))]
    ),
    "a pool of two slices": call(
        resource_slice(*looms(1, "b"), name="s2", of=2), resource_slice(*looms(1, "a"), name="s1", of=2), claims=[claim(request(count=2))]
    ),
    "an incomplete pool": call(resource_slice(*looms(2), of=2), claims=[claim(request())]),
    "an incomplete pool beside a complete one": call(
        resource_slice(*looms(2), of=2), resource_slice(loom("whole"), name="s2", pool="yard"), claims=[claim(request())]
    ),
    "all devices of an incomplete pool": call(resource_slice(*looms(2), of=3), claims=[claim(request(every=True))]),
    "an older generation is ignored": call(
        resource_slice(*looms(1, "old")), resource_slice(*looms(1, "new"), name="s2", generation=4), claims=[claim(request())]
    ),
    "a newer generation on its way": call(
        resource_slice(*looms(2, "old")), resource_slice(*looms(1, "new"), name="s2", generation=2, of=2), claims=[claim(request())]
    ),
    "a newer generation elsewhere": call(
        resource_slice(*looms(2, "old")), resource_slice(*looms(1, "new"), name="s2", generation=2, where=on_node(OTHER)), claims=[claim(request())]
    ),
    "more slices than the pool counts": call(
        resource_slice(*looms(1, "a")), resource_slice(*looms(1, "b"), name="s2"), claims=[claim(request(count=2))]
    ),
    "a pool whose device stands in two slices": call(
        resource_slice(loom("twin"), of=2), resource_slice(loom("twin"), name="s2", of=2), claims=[claim(request())]
    ),
    "an invalid pool beside a good one": call(
        resource_slice(loom("twin"), of=2), resource_slice(loom("twin"), name="s2", of=2), resource_slice(loom("good"), name="s3", pool="yard"),
        claims=[claim(request())],
    ),
    "an invalid pool and one device too few": call(
        resource_slice(loom("twin"), of=2), resource_slice(loom("twin"), name="s2", of=2), resource_slice(loom("good"), name="s3", pool="yard"),
        claims=[claim(request(count=2))],
    ),
    "a pool over two nodes": call(
        resource_slice(*looms(2, "here"), of=2), resource_slice(*looms(2, "there"), name="s2", of=2, where=on_node(OTHER)), claims=[claim(request(count=2))]
    ),
    "a pool over two nodes, one slice missing": call(
        resource_slice(*looms(2, "here"), of=3), resource_slice(*looms(2, "there"), name="s2", of=3, where=on_node(OTHER)), claims=[claim(request())]
    ),
    "all devices of a pool over two nodes": call(
        resource_slice(*looms(2, "here"), of=2), resource_slice(*looms(3, "there"), name="s2", of=2, where=on_node(OTHER)), claims=[claim(request(every=True))]
    ),
    "a pool moves here": call(
        resource_slice(*looms(1, "o"), of=2, where=on_node(OTHER)), resource_slice(*looms(1, "p"), name="s2", of=2, where=on_node(OTHER)),
        resource_slice(*looms(1, "q"), name="s3", of=2, generation=2), resource_slice(*looms(1, "t"), name="s4", of=2, generation=2),
        claims=[claim(request())],
    ),
    "a pool moves here, half-way": call(
        resource_slice(*looms(1, "o"), of=2, where=on_node(OTHER)), resource_slice(*looms(1, "p"), name="s2", of=2, where=on_node(OTHER)),
        resource_slice(*looms(1, "q"), name="s3", of=2, generation=2),
        claims=[claim(request())],
    ),
    "a pool moves away": call(
        resource_slice(*looms(1, "o"), of=2), resource_slice(*looms(1, "p"), name="s2", of=2),
        resource_slice(*looms(1, "q"), name="s3", of=2, generation=2, where=on_node(OTHER)),
        claims=[claim(request())],
    ),
    "slices in order of their names": call(
        *(resource_slice(loom(f"of-{name}"), name=name, of=3) for name in ("weft", "bobbin", "shed")), claims=[claim(request(count=2))]
    ),
    "pools in order of their names": call(
        *(resource_slice(loom("x"), name=f"s{i}", pool=pool) for i, pool in enumerate(("weft", "bobbin", "shed"))),
        claims=[claim(request(count=2))],
    ),
    "each device has its node": call(
        resource_slice(with_(loom("a"), **on_node(OTHER)), with_(loom("b"), **on_node()), with_(loom("c"), **EVERYWHERE), where=EACH),
        claims=[claim(request(count=2))],
    ),
    "each device has its labels": call(
        resource_slice(with_(loom("a"), **on_floor("cellar")), with_(loom("b"), **on_floor("upper")), where=EACH), claims=[claim(request())]
    ),
    "each device has its node, without the gate": call(
        resource_slice(with_(loom("b"), **on_node()), where=EACH), claims=[claim(request())], off=["PartitionableDevices", "CompatibilityGroups"]
    ),
}  # fmt: skip
EVERY: dict[str, Case] = {
    "all devices": call(resource_slice(*looms(3)), claims=[claim(request(every=True))]),
    "all devices of a selector": call(resource_slice(*MIXED), claims=[claim(request(every=True, select=WIDE))]),
    "all devices, one of them held": call(resource_slice(*looms(3)), claims=[claim(request(every=True))], taken=[held("loom-2")]),
    "all devices where there are none": call(resource_slice(*MIXED), claims=[claim(request(every=True, of="dye"))]),
    "all devices of no slices": call(claims=[claim(request(every=True))]),
    "all devices of two pools": call(
        resource_slice(*looms(2)), resource_slice(*looms(1, "far"), name="s2", pool="yard"), claims=[claim(request(every=True))]
    ),
    "all looms and a vat": call(resource_slice(*looms(2)), DYED, claims=[claim(request("l", every=True), request("d", of="dye"))]),
    "a vat and all looms": call(resource_slice(*looms(2)), DYED, claims=[claim(request("d", of="dye"), request("l", every=True))]),
    "all looms, and one more": call(resource_slice(*looms(2)), claims=[claim(request("l", every=True)), claim(request(), name="more")]),
    "one loom, then all": call(resource_slice(*looms(2)), claims=[claim(request()), claim(request("l", every=True), name="rest")]),
    "more than a claim may have": call(resource_slice(*looms(34)), claims=[claim(request(every=True))]),
    "all of two constraints' values": call(
        resource_slice(loom("a", bay=1), loom("b", bay=2)), claims=[claim(request(every=True), match=f"{LOOM}/bay")]
    ),
    "all of one constraint's value": call(
        resource_slice(loom("a", bay=1), loom("b", bay=1)), claims=[claim(request(every=True), match=f"{LOOM}/bay")]
    ),
    "all and a selector that does not compile": call(resource_slice(*looms(1)), claims=[claim(request(every=True, select="device.nothing"))]),
}  # fmt: skip
BAYS = [loom("a", bay=1), loom("b", bay=2), loom("c", bay=2), loom("d", bay=3)]


def values_of(kind: str) -> tuple[Spec, Spec]:
    """Two values of a kind, typed."""
    return {
        "bool": ({"bool": True}, {"bool": False}),
        "int": ({"int": 40}, {"int": -2}),
        "string": ({"string": "silk"}, {"string": "wool"}),
        "version": ({"version": "3.1.4"}, {"version": "2.7.1"}),
    }[kind]


CONSTRAINTS: dict[str, Case] = {
    "two of one bay": call(resource_slice(*BAYS), claims=[claim(request(count=2), match=f"{LOOM}/bay")]),
    "three of one bay": call(resource_slice(*BAYS), claims=[claim(request(count=3), match=f"{LOOM}/bay")]),
    "two requests of one bay": call(resource_slice(*BAYS), claims=[claim(request("x"), request("y"), match=f"{LOOM}/bay")]),
    "a constraint over some requests": call(
        resource_slice(*BAYS), claims=[claim(request("x"), request("y"), request("z"), match=f"{LOOM}/bay", over=["y", "z"])]
    ),
    "an attribute that nobody has": call(resource_slice(*BAYS), claims=[claim(request(count=2), match=f"{LOOM}/row")]),
    "an attribute that some have": call(
        resource_slice(loom("a", bay=1), loom("b"), loom("c", bay=1)), claims=[claim(request(count=2), match=f"{LOOM}/bay")]
    ),
    "an attribute of a domain of its own": call(
        resource_slice(loom("a", **{"hall.example/row": 7}), loom("b", **{"hall.example/row": 8})),
        resource_slice(loom("v", **{"hall.example/row": 8}), name="vats", pool="cellar", driver=DYE),
        claims=[claim(request("l"), request("d", of="dye"), match="hall.example/row")],
    ),
    "kinds of values differ": call(
        resource_slice(loom("a", bay=1), loom("b", bay="1")), claims=[claim(request(count=2), match=f"{LOOM}/bay")]
    ),
    "three distinct bays": call(resource_slice(*BAYS), claims=[claim(request(count=3), distinct=f"{LOOM}/bay")]),
    "four distinct bays": call(resource_slice(*BAYS), claims=[claim(request(count=4), distinct=f"{LOOM}/bay")]),
    "distinct, and nobody has it": call(resource_slice(*looms(2)), claims=[claim(request(count=2), distinct=f"{LOOM}/bay")]),
    "distinct over two requests": call(
        resource_slice(loom("a", bay=1), loom("b", bay=1), loom("c", bay=4)), claims=[claim(request("x"), request("y"), distinct=f"{LOOM}/bay")]
    ),
    "one bay and distinct rows": call(
        resource_slice(*(loom(f"l{i}", bay=b, row=r) for i, (b, r) in enumerate(((1, 1), (1, 1), (2, 1), (2, 2))))),
        claims=[claim(request(count=2), match=f"{LOOM}/bay", distinct=f"{LOOM}/row")],
    ),
    "lists that share a value": call(
        resource_slice(loom("a", roots=["p0", "p1"]), loom("b", roots=["p2"]), loom("c", roots=["p1", "p3"])),
        claims=[claim(request(count=2), match=f"{LOOM}/roots")],
    ),
    "lists that share values in pairs only": call(
        resource_slice(loom("a", roots=["p0", "p1"]), loom("b", roots=["p1", "p2"]), loom("c", roots=["p2", "p0"])),
        claims=[claim(request(count=3), match=f"{LOOM}/roots")],
    ),
    "a value and a list that has it": call(
        resource_slice(loom("a", roots="p1"), loom("b", roots=["p0", "p1"])), claims=[claim(request(count=2), match=f"{LOOM}/roots")]
    ),
    "a value and a list without it": call(
        resource_slice(loom("a", roots="p4"), loom("b", roots=["p0", "p1"])), claims=[claim(request(count=2), match=f"{LOOM}/roots")]
    ),
    "distinct lists": call(
        resource_slice(loom("a", roots=["p0"]), loom("b", roots=["p0", "p1"]), loom("c", roots=["p2", "p1"])),
        claims=[claim(request(count=2), distinct=f"{LOOM}/roots")],
    ),
    "lists without their gate": call(
        resource_slice(loom("a", roots=["p0"]), loom("b", roots=["p0"])), claims=[claim(request(count=2), match=f"{LOOM}/roots")], off=["ListTypeAttributes"]
    ),
    **{
        f"{kind} values, {word}": call(
            resource_slice(loom("a", tag=values_of(kind)[0]), loom("b", tag=values_of(kind)[second])),
            claims=[claim(request(count=2), **{constraint: f"{LOOM}/tag"})],
        )
        for kind in ("bool", "int", "string", "version")
        for word, constraint, second in (("matching", "match", 0), ("not matching", "match", 1), ("distinct", "distinct", 1), ("not distinct", "distinct", 0))
    },
    **{
        f"lists of {kind} values, {word}": call(
            resource_slice(
                loom("a", tag={f"{kind}s": [next(iter(values_of(kind)[0].values()))]}),
                loom("b", tag={f"{kind}s": [next(iter(value.values())) for value in values_of(kind)[start:]]}),
            ),
            claims=[claim(request(count=2), **{constraint: f"{LOOM}/tag"})],
        )
        for kind in ("bool", "int", "string", "version")
        for word, constraint, start in (("matching", "match", 0), ("not matching", "match", 1), ("distinct", "distinct", 1), ("not distinct", "distinct", 0))
    },
}  # fmt: skip
ADMIN: dict[str, Case] = {
    "admin access to a held device": call(
        resource_slice(*looms(1)), claims=[claim(request(adminAccess=True))], taken=[held("loom-0")]
    ),
    "admin access without its gate": call(resource_slice(*looms(1)), claims=[claim(request(adminAccess=True))], off=["AdminAccess"]),
    "admin access to all, some held": call(
        resource_slice(*looms(3)), claims=[claim(request(every=True, adminAccess=True))], taken=[held("loom-1")]
    ),
    "admin access twice to one device": call(
        resource_slice(*looms(1)), claims=[claim(request("x", adminAccess=True), request("y", adminAccess=True))]
    ),
    "admin access and a user": call(
        resource_slice(*looms(1)), claims=[claim(request("x", adminAccess=True)), claim(request(), name="user")]
    ),
    "a user and admin access": call(resource_slice(*looms(1)), claims=[claim(request()), claim(request("x", adminAccess=True), name="admin")]),
    "admin access to two of three": call(resource_slice(*looms(3)), claims=[claim(request(count=2, adminAccess=True))], taken=[held("loom-0")]),
    "admin access to more than there are": call(resource_slice(*looms(1)), claims=[claim(request(count=2, adminAccess=True))]),
}  # fmt: skip
RUSTY = {"key": "mill.example/rust", "value": "red", "effect": "NoSchedule"}
LOUD = {"key": "mill.example/noise", "effect": "NoExecute"}
BOTH = [with_(loom("first"), taints=[RUSTY]), loom("second")]
TAINTS: dict[str, Case] = {
    "a tainted device is passed over": call(resource_slice(*BOTH), claims=[claim(request())]),
    "only tainted devices": call(resource_slice(BOTH[0]), claims=[claim(request())]),
    "a taint that is tolerated": call(
        resource_slice(*BOTH), claims=[claim(request(tolerations=[{"key": RUSTY["key"], "operator": "Exists"}]))]
    ),
    "a toleration of another value": call(
        resource_slice(BOTH[0]), claims=[claim(request(tolerations=[{"key": RUSTY["key"], "operator": "Equal", "value": "green"}]))]
    ),
    "a toleration of the value": call(
        resource_slice(BOTH[0]), claims=[claim(request(tolerations=[{"key": RUSTY["key"], "value": "red", "effect": "NoSchedule"}]))]
    ),
    "a toleration of another effect": call(
        resource_slice(BOTH[0]), claims=[claim(request(tolerations=[{"key": RUSTY["key"], "operator": "Exists", "effect": "NoExecute"}]))]
    ),
    "everything is tolerated": call(
        resource_slice(with_(loom("a"), taints=[RUSTY, LOUD])), claims=[claim(request(tolerations=[{"operator": "Exists"}]))]
    ),
    "two taints, one tolerated": call(
        resource_slice(with_(loom("a"), taints=[RUSTY, LOUD])), claims=[claim(request(tolerations=[{"key": LOUD["key"], "operator": "Exists"}]))]
    ),
    "two taints, both tolerated": call(
        resource_slice(with_(loom("a"), taints=[RUSTY, LOUD])),
        claims=[claim(request(tolerations=[{"key": LOUD["key"], "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 90}, {"key": RUSTY["key"], "value": "red"}]))],
    ),
    "taints without effect": call(resource_slice(with_(loom("a"), taints=[{"key": "k", "effect": "None"}])), claims=[claim(request())]),
    "an effect that nobody knows": call(resource_slice(with_(loom("a"), taints=[{"key": "k", "effect": "Sometime"}])), claims=[claim(request())]),
    "taints without their gate": call(resource_slice(*BOTH), claims=[claim(request())], off=["DeviceTaints"]),
    "all devices, one tainted": call(resource_slice(*BOTH), claims=[claim(request(every=True))]),
    "all devices, the tainted one tolerated": call(
        resource_slice(*BOTH), claims=[claim(request(every=True, tolerations=[{"operator": "Exists"}]))]
    ),
    "admin access to a tainted device": call(resource_slice(BOTH[0]), claims=[claim(request(adminAccess=True))]),
    "admin access that tolerates": call(
        resource_slice(BOTH[0]), claims=[claim(request(adminAccess=True, tolerations=[{"operator": "Exists"}]))]
    ),
    "an alternative that tolerates": call(
        resource_slice(BOTH[0]), claims=[claim(first_of("r", ("clean", asks()), ("any", asks(tolerations=[{"operator": "Exists"}]))))]
    ),
}  # fmt: skip
ALTERNATIVES: dict[str, Case] = {
    "the first alternative": call(resource_slice(*MIXED), claims=[claim(first_of("r", ("big", asks(select=WIDE)), ("any", asks())))]),
    "the second alternative": call(resource_slice(*MIXED[:1]), claims=[claim(first_of("r", ("big", asks(select=WIDE)), ("any", asks())))]),
    "no alternative": call(resource_slice(*MIXED[:1]), claims=[claim(first_of("r", ("big", asks(select=WIDE)), ("two", asks(2))))]),
    "alternatives of several counts": call(resource_slice(*looms(3)), claims=[claim(first_of("r", ("four", asks(4)), ("three", asks(3)), ("one", asks())))]),
    "two requests with alternatives": call(
        resource_slice(*looms(3)), claims=[claim(first_of("x", ("two", asks(2)), ("one", asks())), first_of("y", ("two", asks(2)), ("one", asks())))]
    ),
    "a later request makes the first choose again": call(
        resource_slice(*looms(3)), claims=[claim(first_of("x", ("three", asks(3)), ("one", asks())), request("y", 2))]
    ),
    "a later claim makes the first choose again": call(
        resource_slice(*looms(3)), claims=[claim(first_of("x", ("three", asks(3)), ("one", asks()))), claim(request("y", 2), name="yarn")]
    ),
    "alternatives of several classes": call(
        resource_slice(*looms(1)), DYED, claims=[claim(first_of("r", ("loom", asks(2)), ("vat", asks(2, of="dye"))))]
    ),
    "alternatives without their gate": call(resource_slice(*looms(1)), claims=[claim(first_of("r", ("one", asks())))], off=["PrioritizedList"]),
    "an alternative for all": call(
        resource_slice(*looms(2)), claims=[claim(first_of("r", ("wide", asks(every=True, of="dye")), ("all", asks(every=True))))]
    ),
    "all alternatives for all, one device held": call(
        resource_slice(*looms(2)), resource_slice(*looms(1, "v"), name="v", pool="p", driver=DYE), taken=[held("loom-0")],
        claims=[claim(first_of("r", ("looms", asks(every=True)), ("vats", asks(every=True, of="dye"))))],
    ),
    "an alternative that is over the limit": call(
        resource_slice(*looms(40)), claims=[claim(request("x", 8), first_of("y", ("many", asks(30)), ("few", asks(24))))]
    ),
    "a constraint names a request with alternatives": call(
        resource_slice(*BAYS), claims=[claim(first_of("x", ("two", asks(2)), ("one", asks())), request("y"), match=f"{LOOM}/bay", over=["x", "y"])]
    ),
    "a constraint names one alternative": call(
        resource_slice(*BAYS), claims=[claim(first_of("x", ("three", asks(3)), ("two", asks(2))), match=f"{LOOM}/bay", over=["x/three"])]
    ),
    "distinct over alternatives": call(
        resource_slice(loom("a", bay=1), loom("b", bay=1), loom("c", bay=2)),
        claims=[claim(first_of("x", ("three", asks(3)), ("two", asks(2))), distinct=f"{LOOM}/bay")],
    ),
    "an alternative with a broken selector": call(
        resource_slice(*looms(1)), claims=[claim(first_of("x", ("bad", asks(select="1 +")), ("one", asks())))]
    ),
    "an alternative of an absent class": call(
        resource_slice(*looms(1)), claims=[claim(first_of("x", ("bad", asks(of="velvet")), ("one", asks())))]
    ),
}  # fmt: skip
CONFIGURED = [
    a_class(config=[opaque("class")]),
    a_class("dye", f"device.driver == '{DYE}'", config=[opaque("dye", DYE), opaque("late", DYE)]),
]
CONFIGS: dict[str, Case] = {
    "configuration of the class": call(resource_slice(*looms(1)), claims=[claim(request())], classes=CONFIGURED),
    "configuration of the claim": call(resource_slice(*looms(1)), claims=[claim(request(), config=[opaque("all")])]),
    "configuration of class and claim": call(
        resource_slice(*looms(2)), DYED, classes=CONFIGURED,
        claims=[claim(request("x"), request("y", of="dye"), config=[opaque("x", requests=["x"]), opaque("both"), opaque("y", DYE, requests=["y"])])],
    ),
    "configuration of a request that is not there": call(resource_slice(*looms(1)), claims=[claim(request("x"), config=[opaque("z", requests=["z"])])]),
    "configuration of an alternative": call(
        resource_slice(*MIXED[:1]), classes=CONFIGURED,
        claims=[claim(first_of("r", ("big", asks(select=WIDE)), ("any", asks())), config=[opaque("big", requests=["r/big"]), opaque("any", requests=["r/any"]), opaque("r", requests=["r"])])],
    ),
    "configuration of the alternative's class": call(
        DYED, classes=CONFIGURED, claims=[claim(first_of("r", ("loom", asks()), ("vat", asks(2, of="dye"))))]
    ),
    "two requests of one configured class": call(resource_slice(*looms(2)), classes=CONFIGURED, claims=[claim(request("x"), request("y"))]),
}  # fmt: skip
READY = {"bindingConditions": ["mill.example/threaded"], "bindingFailureConditions": ["mill.example/torn"]}
BINDING: dict[str, Case] = {
    "binding conditions": call(resource_slice(with_(loom("a"), **READY)), claims=[claim(request())]),
    "binding conditions without their gate": call(
        resource_slice(with_(loom("a"), **READY)), claims=[claim(request())], off=["DeviceBindingAndStatus"]
    ),
    "devices without conditions come first": call(
        resource_slice(with_(loom("a"), **READY), loom("b"), with_(loom("c"), **READY), loom("d")), claims=[claim(request(count=3))]
    ),
    "pools without conditions come first": call(
        resource_slice(with_(loom("a"), **READY)), resource_slice(loom("b"), name="s2", pool="yard"), claims=[claim(request())]
    ),
    "slices without conditions come first": call(
        resource_slice(with_(loom("a"), **READY), name="s1", of=2), resource_slice(loom("b"), name="s2", of=2), claims=[claim(request())]
    ),
    "a device that binds to its node": call(
        resource_slice(with_(loom("a"), bindsToNode=True, **READY), where=on_floor("upper")), claims=[claim(request())]
    ),
    "a device with conditions for many nodes": call(
        resource_slice(with_(loom("a"), **READY), where=on_floor("upper")), claims=[claim(request())]
    ),
    "conditions and a taint": call(
        resource_slice(with_(loom("a"), taints=[RUSTY], **READY), with_(loom("b"), **READY)), claims=[claim(request())]
    ),
}  # fmt: skip
FRAME = counters("frame", threads="90Gi", arms="6")
WHOLE = with_(loom("whole"), consumesCounters=[draws("frame", threads="90Gi", arms="6")])
HALVES = [with_(loom(f"half-{i}"), consumesCounters=[draws("frame", threads="45Gi", arms="3")]) for i in range(2)]
SETS = resource_slice(name="frames", of=2, sets=[FRAME])
PARTS = resource_slice(WHOLE, *HALVES, of=2)
COUNTERS: dict[str, Case] = {
    "one partition": call(PARTS, SETS, claims=[claim(request())]),
    "two halves instead of the whole": call(PARTS, SETS, claims=[claim(request(count=2))]),
    "three partitions do not fit": call(PARTS, SETS, claims=[claim(request(count=3))]),
    "a half is held": call(PARTS, SETS, claims=[claim(request())], taken=[held("half-1")]),
    "both halves are held": call(PARTS, SETS, claims=[claim(request())], taken=[held("half-1"), held("half-0")]),
    "the whole is held": call(PARTS, SETS, claims=[claim(request())], taken=[held("whole")]),
    "counters by a selector": call(
        resource_slice(with_(WHOLE, attributes={"size": {"int": 2}}), *(with_(half, attributes={"size": {"int": 1}}) for half in HALVES), of=2), SETS,
        claims=[claim(request(count=2, select=f"device.attributes['{LOOM}'].size == 1"))],
    ),
    "more held than the counters have": call(
        resource_slice(WHOLE, *HALVES, with_(loom("tiny"), consumesCounters=[draws("frame", arms="1")]), of=2), SETS,
        claims=[claim(request(select=f"!('{LOOM}' in device.attributes)"))], taken=[held("whole"), held("half-0")],
    ),
    "counters of two sets": call(
        resource_slice(*(with_(loom(f"l{i}"), consumesCounters=[draws("frame", arms="3"), draws("motor", watts="40")]) for i in range(3)), of=2),
        resource_slice(name="sets", of=2, sets=[FRAME, counters("motor", watts="60")]), claims=[claim(request(count=2))],
    ),
    "counters of two sets that suffice": call(
        resource_slice(*(with_(loom(f"l{i}"), consumesCounters=[draws("frame", arms="3"), draws("motor", watts="30")]) for i in range(3)), of=2),
        resource_slice(name="sets", of=2, sets=[FRAME, counters("motor", watts="60")]), claims=[claim(request(count=2))],
    ),
    "counters that nobody draws on": call(
        resource_slice(with_(loom("a"), consumesCounters=[draws("frame", arms="6")]), loom("b"), of=2), SETS, claims=[claim(request(count=2))]
    ),
    "two pools with a set each": call(
        PARTS, SETS,
        resource_slice(with_(loom("whole"), consumesCounters=[draws("frame", arms="6")]), name="p2", pool="yard", of=2),
        resource_slice(name="f2", pool="yard", of=2, sets=[counters("frame", arms="6")]),
        claims=[claim(request(count=3))],
    ),
    "a set of another pool": call(
        resource_slice(WHOLE), resource_slice(name="f2", pool="yard", sets=[FRAME]), claims=[claim(request())]
    ),
    "a set that is not there": call(resource_slice(with_(loom("a"), consumesCounters=[draws("nowhere", arms="1")]), of=2), SETS, claims=[claim(request())]),
    "a counter that is not there": call(resource_slice(with_(loom("a"), consumesCounters=[draws("frame", legs="1")]), of=2), SETS, claims=[claim(request())]),
    "a set's name in two slices": call(
        resource_slice(WHOLE, of=3), resource_slice(name="f1", of=3, sets=[FRAME]), resource_slice(name="f2", of=3, sets=[FRAME]), claims=[claim(request())]
    ),
    "counters without their gate": call(PARTS, SETS, claims=[claim(request())], off=["PartitionableDevices", "CompatibilityGroups"]),
    "a device without counters, without the gate": call(
        resource_slice(WHOLE, loom("free"), of=2), SETS, claims=[claim(request())], off=["PartitionableDevices", "CompatibilityGroups"]
    ),
    "partitions on two nodes draw on one set": call(
        resource_slice(with_(HALVES[0]), of=3), resource_slice(with_(loom("third"), consumesCounters=[draws("frame", arms="5")]), name="s2", of=3, where=on_node(OTHER)),
        resource_slice(name="frames", of=3, sets=[FRAME]), claims=[claim(request())], taken=[held("third")],
    ),
    "partitions on two nodes that fit": call(
        resource_slice(with_(HALVES[0]), of=3), resource_slice(with_(loom("third"), consumesCounters=[draws("frame", arms="2")]), name="s2", of=3, where=on_node(OTHER)),
        resource_slice(name="frames", of=3, sets=[FRAME]), claims=[claim(request())], taken=[held("third")],
    ),
    "each partition has its node": call(
        resource_slice(with_(HALVES[0], **on_node(OTHER)), with_(HALVES[1], **on_floor("upper")), of=2, where=EACH), SETS, claims=[claim(request())]
    ),
    "the whole or two halves": call(
        PARTS, SETS, taken=[held("half-0")], claims=[claim(first_of("r", ("two", asks(2)), ("one", asks())))]
    ),
    "partitions with conditions": call(
        resource_slice(with_(WHOLE, **READY), *(with_(half, **READY) for half in HALVES), of=2), SETS, claims=[claim(request(count=2))]
    ),
    "partitions with a taint": call(resource_slice(WHOLE, with_(HALVES[0], taints=[LOUD]), HALVES[1], of=2), SETS, claims=[claim(request(count=2))]),
    "groups that go together": call(
        resource_slice(*(with_(loom(n), consumesCounters=[{**draws("frame", arms="2"), "compatibilityGroups": g}]) for n, g in (("a", ["silk"]), ("b", ["wool"]), ("c", ["silk", "wool"]))), of=2),
        SETS, claims=[claim(request(count=2))],
    ),
    "groups that do not": call(
        resource_slice(*(with_(loom(n), consumesCounters=[{**draws("frame", arms="2"), "compatibilityGroups": g}]) for n, g in (("a", ["silk"]), ("b", ["wool"]))), of=2),
        SETS, claims=[claim(request(count=2))],
    ),
    "a group is held": call(
        resource_slice(*(with_(loom(n), consumesCounters=[{**draws("frame", arms="2"), "compatibilityGroups": g}]) for n, g in (("a", ["silk"]), ("b", ["wool"]), ("c", ["silk"]))), of=2),
        SETS, claims=[claim(request())], taken=[held("b")],
    ),
}  # fmt: skip


def shared(name: str = "wide", value: str = "24", **policy: Any) -> Spec:
    capacity: Spec = {"metres": {"value": value}}
    if policy:
        capacity["metres"]["requestPolicy"] = policy
    return with_(loom(name), allowMultipleAllocations=True, capacity=capacity)


METRES = {"min": "4", "max": "16", "step": "4"}
PAIR = [claim(request("x", needs={"metres": "10"})), claim(request("y", needs={"metres": "10"}), name="yarn")]
SHARES: dict[str, Case] = {
    "two shares of one device": call(resource_slice(shared()), claims=PAIR),
    "a third share does not fit": call(resource_slice(shared()), claims=[*PAIR, claim(request("z", needs={"metres": "5"}), name="z")]),
    "a third share that fits": call(resource_slice(shared()), claims=[*PAIR, claim(request("z", needs={"metres": "4"}), name="z")]),
    "more than the device has": call(resource_slice(shared()), claims=[claim(request(needs={"metres": "25"}))]),
    "an amount that is not asked for takes all": call(resource_slice(shared()), claims=[claim(request("x")), claim(request("y"), name="yarn")]),
    "no capacity and no request for any": call(
        resource_slice(with_(loom("wide"), allowMultipleAllocations=True)), claims=[claim(request("x")), claim(request("y"), name="yarn")]
    ),
    "a capacity that the device does not have": call(resource_slice(shared()), claims=[claim(request(needs={"yards": "1"}))]),
    "a device for one": call(resource_slice(with_(loom("one"), capacity=amounts(metres="24"))), claims=[claim(request(needs={"metres": "10"}))]),
    "a device for one, asked for by two": call(resource_slice(with_(loom("one"), capacity=amounts(metres="24"))), claims=PAIR),
    "a device for one that is too small": call(resource_slice(with_(loom("one"), capacity=amounts(metres="9"))), claims=PAIR[:1]),
    "capacity without its gate": call(
        resource_slice(shared()), claims=PAIR[:1], off=["ConsumableCapacity", "FractionalCapacityRange"]
    ),
    "shareable without the gate": call(
        resource_slice(shared(), loom("own")), claims=[claim(request())], off=["ConsumableCapacity", "FractionalCapacityRange"]
    ),
    "some of it is in use": call(
        resource_slice(shared()), claims=PAIR[:1], shares=[held("wide")], consumed=[(held("wide"), {"metres": "14"})]
    ),
    "too much of it is in use": call(
        resource_slice(shared()), claims=PAIR[:1], shares=[held("wide")], consumed=[(held("wide"), {"metres": "15"})]
    ),
    "the next device has enough": call(
        resource_slice(shared(), shared("other")), claims=PAIR[:1], shares=[held("wide")], consumed=[(held("wide"), {"metres": "15"})]
    ),
    "held by one alone": call(resource_slice(shared()), claims=PAIR[:1], taken=[held("wide")]),
    "the policy's default": call(resource_slice(shared(default="4", validRange=METRES)), claims=[claim(request())]),
    "a range rounds up": call(resource_slice(shared(default="4", validRange=METRES)), claims=[claim(request(needs={"metres": "5"}))]),
    "a range's least": call(resource_slice(shared(default="4", validRange=METRES)), claims=[claim(request(needs={"metres": "1"}))]),
    "a range's most": call(resource_slice(shared(default="4", validRange=METRES)), claims=[claim(request(needs={"metres": "16"}))]),
    "more than a range's most": call(resource_slice(shared(default="4", validRange=METRES)), claims=[claim(request(needs={"metres": "17"}))]),
    "a range without steps": call(
        resource_slice(shared(default="4", validRange={"min": "3", "max": "9"})), claims=[claim(request(needs={"metres": "7500m"}))]
    ),
    "a range of fractions": call(
        resource_slice(shared(default="500m", validRange={"min": "250m", "max": "2", "step": "250m"})), claims=[claim(request(needs={"metres": "1100m"}))]
    ),
    "valid values": call(resource_slice(shared(default="3", validValues=["3", "6", "12"])), claims=[claim(request(needs={"metres": "6"}))]),
    "valid values round up": call(resource_slice(shared(default="3", validValues=["3", "6", "12"])), claims=[claim(request(needs={"metres": "7"}))]),
    "more than any valid value": call(resource_slice(shared(default="3", validValues=["3", "6", "12"])), claims=[claim(request(needs={"metres": "13"}))]),
    "nothing is a valid value": call(
        resource_slice(shared(default="0", validValues=["0", "24"])), claims=[claim(request("x", needs={"metres": "0"})), claim(request("y", needs={"metres": "24"}), name="yarn")]
    ),
    "nothing is asked for, something is the least": call(
        resource_slice(shared(default="4", validRange=METRES)), claims=[claim(request("x", needs={"metres": "0"}))]
    ),
    "only a default": call(resource_slice(shared(default="8")), claims=[claim(request("x")), claim(request("y", needs={"metres": "16"}), name="yarn")]),
    "two capacities, one asked for": call(
        resource_slice(with_(loom("wide"), allowMultipleAllocations=True, capacity={"metres": {"value": "24"}, "knots": {"value": "8", "requestPolicy": {"default": "2"}}})),
        claims=[claim(request(needs={"metres": "6"}))],
    ),
    "shares of one claim": call(resource_slice(shared()), claims=[claim(request("x", 2, needs={"metres": "12"}))]),
    "shares of one claim, distinct": call(
        resource_slice(with_(shared(), attributes={"serial": {"int": 1}})), claims=[claim(request("x", needs={"metres": "1"}), request("y", needs={"metres": "1"}), distinct=f"{LOOM}/serial")]
    ),
    "shares of two devices, distinct": call(
        resource_slice(with_(shared(), attributes={"serial": {"int": 1}}), with_(shared("other"), attributes={"serial": {"int": 2}})),
        claims=[claim(request("x", needs={"metres": "1"}), request("y", needs={"metres": "1"}), distinct=f"{LOOM}/serial")],
    ),
    "only devices for one": call(
        resource_slice(shared(), loom("own")), claims=[claim(request(of="own"))], classes=[a_class("own", "!device.allowMultipleAllocations")]
    ),
    "only devices for several": call(
        resource_slice(loom("own"), shared()), claims=[claim(request(of="many"))], classes=[a_class("many", "device.allowMultipleAllocations")]
    ),
    "all devices with an amount": call(
        resource_slice(shared(), shared("other"), loom("own")), claims=[claim(request(every=True, needs={"metres": "6"}))]
    ),
    "all devices of a class with an amount": call(
        resource_slice(shared(), shared("other")), claims=[claim(request(every=True, needs={"metres": "6"}))]
    ),
    "shares draw on counters once": call(
        resource_slice(with_(shared(), consumesCounters=[draws("frame", arms="6")]), with_(shared("other"), consumesCounters=[draws("frame", arms="6")]), of=2), SETS, claims=PAIR
    ),
    "shares draw on counters, full": call(
        resource_slice(with_(shared(), consumesCounters=[draws("frame", arms="6")]), with_(shared("other"), consumesCounters=[draws("frame", arms="6")]), of=2), SETS,
        claims=PAIR, shares=[held("wide")], consumed=[(held("wide"), {"metres": "20"})],
    ),
    "a share makes room for the claim after": call(
        resource_slice(shared("small", "12"), shared("large", "24")),
        claims=[claim(request("x", needs={"metres": "10"})), claim(request("y", needs={"metres": "20"}), name="yarn")],
    ),
}  # fmt: skip
NEWER: dict[str, Case] = {
    "a derived attribute matches": call(
        resource_slice(loom("a", slot=4), loom("b", slot=9), loom("c", slot=5)),
        claims=[claim(
            request("x", derivedAttributes=[{"name": f"{LOOM}/pair", "expression": f"device.attributes['{LOOM}'].slot / 2"}]),
            request("y", derivedAttributes=[{"name": f"{LOOM}/pair", "expression": f"device.attributes['{LOOM}'].slot / 2"}]),
            match=f"{LOOM}/pair",
        )],
    ),
    "a derived attribute without its gate": call(
        resource_slice(loom("a", slot=4)), off=["DerivedAttributes"],
        claims=[claim(request("x", derivedAttributes=[{"name": f"{LOOM}/pair", "expression": "1"}]))],
    ),
    "a derived attribute that fails": call(
        resource_slice(loom("a", slot=0)),
        claims=[claim(request("x", derivedAttributes=[{"name": f"{LOOM}/pair", "expression": f"4 / device.attributes['{LOOM}'].slot"}]), match=f"{LOOM}/pair")],
    ),
    "a slice without node operations": call(
        resource_slice(*looms(1), where={**on_node(), "skipNodeOperations": ["*"]}), claims=[claim(request())]
    ),
}  # fmt: skip
SCENARIOS: dict[str, Case] = {
    name: {"name": name, **case}
    for group in (
        PLAIN,
        POOLS,
        EVERY,
        CONSTRAINTS,
        ADMIN,
        TAINTS,
        ALTERNATIVES,
        CONFIGS,
        BINDING,
        COUNTERS,
        SHARES,
        NEWER,
    )
    for name, case in group.items()
}
