"""Device selectors that `make vectors` asks Kubernetes about: outcome, worst-case cost, cost, message.

Made by hand over devices with attributes of every kind, gates on and off, and at random from tests/cel/expressions.py.
Nothing here stops half-way through a map, whose order differs from call to call in Go.
"""

from __future__ import annotations

from typing import Any

from tests.cel import expressions

Request = dict[str, Any]

DRIVER = "press.example.org"
PRESS = {
    "attributes": {
        "format": {"string": "a4"},
        "trays": {"int": 3},
        "colour": {"bool": True},
        "firmware": {"version": "2.10.0-rc.1"},
        "papers": {"strings": ["plain", "glossy", "plain"]},
        "speeds": {"ints": [15, 30, 60]},
        "duplex": {"bools": [False, True]},
        "protocols": {"versions": ["1.4.0", "2.0.0"]},
        "hall.example.org/aisle": {"string": "north"},
    },
    "capacity": {"toner": "480Gi", "sheets": "2500", "hall.example.org/watts": "1500m"},
    "allowMultipleAllocations": True,
}
BARE: Request = {"attributes": {}, "capacity": {}, "allowMultipleAllocations": False}
LONG = {
    "attributes": {"papers": {"strings": [f"paper-{i}" for i in range(40)]}},
    "capacity": {"sheets": "0"},
    "allowMultipleAllocations": False,
}
DEVICES = {"press": PRESS, "bare": BARE, "long": LONG}

A = "device.attributes['press.example.org']"
C = "device.capacity['press.example.org']"

TEXTS = (
    "true",
    "false",
    "1",
    "'yes'",
    "tru",
    "device",
    "device.driver",
    "device.drivers == ''",
    "device.driver == 'press.example.org'",
    "device.driver != 'press.example.org'",
    "device.driver in ['x.example.org', 'press.example.org']",
    "device.driver.startsWith('press')",
    f"{A}.colour",
    f"{A}['colour']",
    f"!{A}.colour",
    f"{A}.trays >= 3",
    f"{A}.trays > 3",
    f"{A}.trays",
    f"{A}.format == 'a4'",
    f"{A}.format == 4",
    f"{A}.absent == 'a4'",
    f"has({A}.absent) && {A}.absent == 'a4'",
    f"has({A}.format) && {A}.format == 'a4'",
    f"{A}.?absent.orValue('a4') == 'a4'",
    f"{A}.?format.hasValue()",
    f"'format' in {A}",
    f"'absent' in {A}",
    "'press.example.org' in device.attributes",
    "'absent.example.org' in device.attributes",
    "device.attributes['absent.example.org'].x == 1",
    "has(device.attributes['absent.example.org'].x)",
    "device.attributes['hall.example.org'].aisle.matches('^n.*h$')",
    "device.attributes['hall.example.org'].aisle.split('r').size() == 2",
    "device.attributes.exists(d, d == 'absent.example.org')",
    "device.attributes.all(d, d.endsWith('.example.org'))",
    f"{A}.exists_one(name, name == 'trays')",
    f"{A}.map(name, name).size() > 4",
    f"{A}.firmware.isGreaterThan(semver('2.9.9'))",
    f"{A}.firmware.isLessThan(semver('2.10.0'))",
    f"{A}.firmware.major() == 2 && {A}.firmware.minor() == 10",
    f"{A}.firmware == semver('2.10.0-rc.1')",
    f"{A}.firmware == '2.10.0-rc.1'",
    f"{A}.firmware.compareTo(semver('v2', true)) > 0",
    f"{C}.toner.isGreaterThan(quantity('100Gi'))",
    f"{C}.toner.compareTo(quantity('480Gi')) == 0",
    f"{C}.toner >= quantity('1')",
    f"{C}.sheets.asInteger() % 500 == 0",
    f"{C}.sheets.add(quantity('1k')).isLessThan(quantity('4k'))",
    f"'sheets' in {C} && {C}.sheets.isLessThan(quantity('1'))",
    f"!('toner' in {C}) || {C}.toner.isGreaterThan(quantity('1Ti'))",
    f"{C}.absent.isGreaterThan(quantity('1'))",
    "device.capacity['hall.example.org'].watts == quantity('1.5')",
    f"cel.bind(a, {A}, a.colour && a.trays == 3 && a.format == 'a4')",
    f"{A}.papers.exists(p, p == 'glossy')",
    f"'glossy' in {A}.papers",
    f"{A}.papers.size() == 3 && {A}.papers[1] == 'glossy'",
    f"{A}.papers == ['plain', 'glossy', 'plain']",
    f"{A}.papers.includes('glossy')",
    f"{A}.papers.includes('matte')",
    f"{A}.papers.includes('paper-39')",
    f"{A}.format.includes('a4')",
    f"{A}.format.includes('a5')",
    f"{A}.trays.includes(3)",
    f"{A}.trays.includes('3')",
    f"{A}.speeds.includes(30)",
    f"{A}.speeds.all(s, s > 20)",
    f"{A}.speeds.sum() == 105",
    f"{A}.duplex.includes(true)",
    f"{A}.colour.includes(false)",
    f"{A}.protocols.includes(semver('2.0.0'))",
    f"{A}.protocols.exists(v, v.major() == 3)",
    f"{A}.firmware.includes(semver('2.10.0-rc.1'))",
    f"{A}.format.exists(x, x == 'a')",
    f"{A}.papers",
    "device.allowMultipleAllocations",
    "!device.allowMultipleAllocations",
    "device.allowMultipleAllocations == 'yes'",
    f"{A}.format.lowerAscii().contains('A'.lowerAscii()) || {A}.absent",
    f"{A}.absent || {A}.colour",
    f"{A}.absent && false",
    f"{A}.colour ? {A}.trays > 1 : {A}.absent",
    f"{A}.trays / 0 == 1",
    f"{A}.papers[9] == ''",
    f"[1, 2, 3].all(x, {A}.speeds.exists(s, s == x * 15))",
    "[1, 2, 3, 4, 5, 6, 7, 8].all(a, [1, 2, 3, 4, 5, 6, 7, 8].all(b, [1, 2, 3, 4, 5, 6, 7, 8].all(c, "
    "[1, 2, 3, 4, 5, 6, 7, 8].all(d, [1, 2, 3, 4, 5, 6, 7, 8].all(e, 'a1'.find('[0-9]+') == '1')))))",
    "device.attributes['press.example.org'].trays >",
    "device.attributes[press].trays > 1",
    "size(device.attributes) == 2",
    "size(device.capacity) == 2 && device.capacity.exists_one(d, d == 'hall.example.org')",
    f"isIP({A}.format) || ip.isCanonical('::1')",
    f"'%s has %d'.format([{A}.format, {A}.trays]) == 'a4 has 3'",
)

# Gates: what is in them decides which fields and functions new expressions know.
GATED = (
    "device.allowMultipleAllocations",
    f"{A}.format.includes('a4')",
    f"{A}.papers.includes('plain')",
    f"{A}.papers.exists(p, p == 'plain')",
    f"{A}.trays == 3",
)
SEEDS = range(2)
RANDOM = 180
LENGTH_MAX = 300


def requests() -> dict[str, list[Request]]:
    """Group to requests: expression, device, and what the environment is."""
    made: dict[str, list[Request]] = {name: [{"expression": text} for text in TEXTS] for name in DEVICES}
    made["gates"] = [
        {"expression": text, "new": True, "listAttributes": lists, "consumableCapacity": capacity}
        for text in GATED
        for lists in (False, True)
        for capacity in (False, True)
    ]
    texts = [maker.selector() for maker in map(expressions.Maker, SEEDS) for _ in range(RANDOM)]
    made["random"] = [{"expression": text} for text in dict.fromkeys(texts) if len(text) < LENGTH_MAX]
    return made


def device_of(group: str) -> Request:
    """driver, attributes, capacity and allowMultipleAllocations of a group's device."""
    if group == "random":
        return {
            "driver": expressions.DRIVER,
            "attributes": expressions.ATTRIBUTES,
            "capacity": expressions.CAPACITY,
            "allowMultipleAllocations": True,
        }
    return {"driver": DRIVER, **DEVICES.get(group, PRESS)}
