"""Random device selectors, well typed most of the time, over a device with one attribute of each kind."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any, Final

DRIVER: Final = "d.example.com"
ATTRIBUTES: Final[dict[str, Any]] = {
    "s": {"string": "fish"},
    "e": {"string": ""},
    "i": {"int": 3},
    "b": {"bool": True},
    "v": {"version": "1.2.3"},
    "ss": {"strings": ["fish", "bird", "fish"]},
    "ii": {"ints": [3, 1, 2]},
    "bb": {"bools": [True, False]},
    "vv": {"versions": ["1.0.0", "2.0.0"]},
    "o.example.com/s": {"string": "other"},
}
CAPACITY: Final = {"m": "80Gi", "c": "100", "f": "1500m", "o.example.com/m": "1Ki"}

# {S}tring, {I}nt, {B}ool, {D}ouble, {Q}uantity, {V}ersion, {L}ist of anything, {LS} {LI} lists, {O} optional string,
# {M}ap; {x} is a fresh name, which the part after `->` may use.
_TEMPLATES: Final[dict[str, list[str]]] = {
    "S": [
        "({S} + {S})",
        "{S}.lowerAscii()",
        "{S}.upperAscii()",
        "{S}.replace({S}, {S})",
        "{S}.substring({I})",
        "{S}.substring({I}, {I})",
        "{S}.trim()",
        "{S}.charAt({I})",
        "{LS}.join({S})",
        "string({I})",
        "string({S})",
        "string({B})",
        "string({D})",
        "{S}.find('[a-z]+')",
        "{S}.find({S})",
        "strings.quote({S})",
        "'%s-%d'.format([{S}, {I}])",
        "({B} ? {S} : {S})",
        "{LS}[{I}]",
        "cel.bind({x}, {S}, -> {x} + {S})",
        "{O}.orValue({S})",
        "string(dyn({S}))",
        "{{'a': {S}, 'b': {S}}}.a",
        "{{'a': {S}}}[{S}]",
        "url('https://h.com:80/' + {S}).getHost()",
        "url('https://h.com:80/' + {S}).getEscapedPath()",
        "string(cidr('10.1.2.3/9').masked())",
        "{LS}.max()",
        "{LS}.min()",
        "string(bytes({S}))",
        "{A}",
    ],
    "I": [
        "({I} + {I})",
        "({I} - {I})",
        "({I} * {I})",
        "({I} / {I})",
        "({I} % {I})",
        "{S}.size()",
        "size({L})",
        "{S}.indexOf({S})",
        "{S}.lastIndexOf({S})",
        "int({I})",
        "int({S})",
        "int({D})",
        "{LI}.sum()",
        "{LI}.max()",
        "{Q}.asInteger()",
        "{Q}.compareTo({Q})",
        "sign({Q})",
        "{V}.major()",
        "{V}.compareTo({V})",
        "({B} ? {I} : {I})",
        "{LI}[{I}]",
        "{L}.indexOf({I})",
        "{L}.lastIndexOf({I})",
        "-{I}",
        "timestamp('2024-02-29T12:34:56Z').getDayOfYear()",
        "duration('1h30m').getMinutes()",
        "{A}",
    ],
    "D": ["({D} * {D})", "({D} / {D})", "double({I})", "double({S})", "{Q}.asApproximateFloat()", "2.5e3"],
    "Q": ["{Q}.add({Q})", "{Q}.sub({Q})", "{Q}.add({I})", "{Q}.sub({I})", "quantity({S})", "{C}", "{C}"],
    "V": ["semver({S})", "semver('1.0.0')", "semver('v1.2', true)", "semver('1.2.3-a+b')"],
    "O": [
        "optional.of({S})",
        "optional.none()",
        "device.attributes['d.example.com'].?s",
        "device.attributes['d.example.com'].?zz",
        "device.attributes[?'x'].zz",
        "{LS}[?{I}]",
        "optional.ofNonZeroValue({S})",
        "{O}.or(optional.of({S}))",
        "{O}.optMap({x}, -> {S})",
        "{O}.optFlatMap({x}, -> optional.of({S}))",
    ],
    "LS": [
        "[{S}, {S}]",
        "({LS} + {LS})",
        "{LS}.filter({x}, -> {B})",
        "{L}.map({x}, -> {S})",
        "{L}.map({x}, -> {B}, {S})",
        "{LS}.slice({I}, {I})",
        "{LS}.distinct()",
        "{LS}.sort()",
        "{LS}.reverse()",
        "{LS}.sortBy({x}, -> {S})",
        "{L}.transformList({y}, {x}, -> {S})",
        "{S}.split({S})",
        "{S}.findAll('[a-z]')",
        "[{LS}, {LS}].flatten()",
        "({B} ? {LS} : {LS})",
        "device.attributes['d.example.com'].ss",
    ],
    "LI": [
        "[{I}, {I}]",
        "lists.range({I})",
        "({LI} + {LI})",
        "{L}.map({x}, -> {I})",
        "device.attributes['d.example.com'].ii",
    ],
    "L": [
        "{LS}",
        "{LI}",
        "[{B}]",
        "[]",
        "device.attributes['d.example.com'].bb",
        "device.attributes['d.example.com'].vv",
    ],
    "M": [
        "device.attributes",
        "device.attributes['d.example.com']",
        "device.capacity['d.example.com']",
        "{L}.transformMap({y}, {x}, -> {I})",
        "{{'a': {I}, 'b': {I}}}",
        "{{}}",
    ],
    "B": [
        "({B} && {B})",
        "({B} && {B} && {B})",
        "({B} || {B})",
        "!({B})",
        "{S} == {S}",
        "{S} != {S}",
        "{S} < {S}",
        "{I} == {I}",
        "{I} >= {D}",
        "{D} < {D}",
        "{Q} == {C}",
        "{V} != {V}",
        "{I} == {S}",
        "{I} in {LI}",
        "{S} in {LS}",
        "{S} in {M}",
        "{L}.all({x}, -> {B})",
        "{L}.exists({x}, -> {B})",
        "{L}.exists_one({x}, -> {B})",
        "device.capacity['o.example.com'].all({x}, -> {B})",  # one entry: upstream's maps have no order
        "{{'a': {I}}}.exists({y}, {x}, -> {B})",
        "{L}.existsOne({y}, {x}, -> {B})",
        "has({A})",
        "has({{'a': 1}}.a)",
        "{S}.startsWith({S})",
        "{S}.endsWith({S})",
        "{S}.contains({S})",
        "{S}.matches('^f')",
        "{S}.matches({S})",
        "{Q}.isGreaterThan({Q})",
        "{V}.isLessThan({V})",
        "isQuantity({S})",
        "isSemver({S})",
        "isIP({S})",
        "isURL({S})",
        "({B} ? {B} : {B})",
        "{O}.hasValue()",
        "sets.contains({LI}, {LI})",
        "sets.intersects({LI}, {LI})",
        "{LS}.isSorted()",
        "{L} == {L}",
        "{Q}.isInteger()",
        "type({S}) == string",
        "cidr('10.0.0.0/8').containsIP(ip('10.1.1.1'))",
        "cidr('10.0.0.0/8').containsIP({S})",
        "format.dns1123Label().validate({S}).hasValue()",
        "cel.bind({x}, {I}, -> {B})",
        "{A}",
        "device.allowMultipleAllocations",
    ],
}
_LEAVES: Final = {
    "S": ["'fish'", "'a'", "''", "'abc def'", "device.driver", "'1.2.3'", "'é☺'", "'1Ki'", "{A}"],
    "I": ["0", "1", "2", "3", "-1", "5", "{A}"],
    "D": ["0.5", "1.0", "-1.5"],
    "B": ["true", "false", "device.allowMultipleAllocations", "{A}", "device.driver == 'x'"],
    "Q": ["quantity('1Ki')", "quantity('1500m')", "{C}"],
    "V": ["semver('1.0.0')", "device.attributes['d.example.com'].v"],
    "O": ["optional.none()", "optional.of('a')"],
    "LS": ["['a', 'fish']", "[device.driver]", "['']"],
    "LI": ["[1, 2]", "[0]", "[3, 1, 2]"],
    "L": ["[]", "[true]", "[1, 2]", "['a']"],
    "M": ["{{'a': 1}}", "device.attributes"],
}


class Maker:
    """Makes expressions from a seed."""

    def __init__(self, seed: int) -> None:
        self.draw = random.Random(seed)
        self.names = 0

    def selector(self) -> str:
        """One expression that is bool as far as the static types go."""
        return self.made("B", self.draw.randint(1, 4), ())

    def made(self, kind: str, depth: int, bound: tuple[str, ...]) -> str:
        if kind == "A":
            return self.attribute()
        if kind == "C":
            return self.capacity()
        if bound and kind in "SIB" and self.draw.random() < 0.15:
            return self.draw.choice(bound)
        template = self.draw.choice((_LEAVES if depth <= 0 else _TEMPLATES)[kind])
        return self.filled(template, depth, bound)

    def filled(self, template: str, depth: int, bound: tuple[str, ...]) -> str:
        self.names += 1
        fresh = {"x": f"x{self.names}", "y": f"y{self.names}"}
        before, arrow, after = template.partition("-> ")
        inner = tuple(name for key, name in fresh.items() if f"{{{key}}}" in before) if arrow else ()
        make = self.maker(depth - 1, fresh, bound)
        return before.format_map(make) + after.format_map(self.maker(depth - 1, fresh, (*bound, *inner)))

    def maker(self, depth: int, fresh: dict[str, str], bound: tuple[str, ...]) -> dict[str, str]:
        return _Made(lambda kind: fresh.get(kind) or self.made(kind, depth, bound))

    def attribute(self) -> str:
        domain = self.draw.choice(["d.example.com"] * 6 + ["o.example.com", "nobody"])
        name = self.draw.choice(["s", "i", "b", "v", "e", "ss", "ii", "bb", "vv", "zz"])
        return f"device.attributes['{domain}']" + (f".{name}" if self.draw.random() < 0.7 else f"['{name}']")

    def capacity(self) -> str:
        name = self.draw.choice("mcfz")
        return "device.capacity['d.example.com']" + (f".{name}" if self.draw.random() < 0.7 else f"['{name}']")


class _Made(dict[str, str]):
    """Every mention of a kind in a template is made anew."""

    def __init__(self, make: Callable[[str], str]) -> None:
        super().__init__()
        self.make = make

    def __missing__(self, key: str) -> str:
        return self.make(key)
