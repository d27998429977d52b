"""Expressions over every part of the selector language, by section: what `make vectors` asks Kubernetes' CEL about.

Written as products (every operator on every pair of literals, every function on every argument of its kind), so that
the corners meet: bounds of numbers, empty texts and lists, mixed numeric types, escapes, leap days, absent keys.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

MAX, MIN, UMAX = "9223372036854775807", "-9223372036854775808", "18446744073709551615u"
INTS = ("0", "7", "-3", MAX, MIN)
UINTS = ("0u", "12u", UMAX)
DOUBLES = ("0.0", "-0.0", "2.5", "-1e300", "1.0 / 0.0", "0.0 / 0.0")
TEXTS = ("''", "'kelp'", "'Öl'", "'a.b.a'", "'🐟x'")
BYTES = ("b''", "b'kelp'", "b'\\xc3\\xbf'")
LISTS = ("[]", "[4]", "[4, 9]", "[9, 4]")
MAPS = ("{}", "{'a': 1}", "{'a': 1, 'b': 2}", "{'b': 2, 'a': 1}")
TIMES = ("timestamp('2024-02-29T23:59:59.5Z')", "timestamp('1969-12-31T23:00:00-02:30')", "timestamp(86400)")
SPANS = ("duration('90s')", "duration('-1h30m')", "duration('1.5s')")
OTHERS = ("true", "false", "null")
COMPARED = ("==", "!=", "<", "<=", ">", ">=")


def dyn(text: str) -> str:
    return f"dyn({text})"


def comparisons() -> Iterator[str]:
    for pool in (INTS, UINTS, DOUBLES[:4], TEXTS, BYTES, ("true", "false"), TIMES, SPANS):
        for left, right in product(pool, repeat=2):
            yield from (f"{left} {op} {right}" for op in ("==", "<", ">="))
    for pool in (LISTS, MAPS):
        for left, right in product(pool, repeat=2):
            yield from (f"{left} {op} {right}" for op in ("==", "!="))
    numbers = ("1", "1u", "1.0", MAX, "9223372036854775807.0", UMAX, "0.0 / 0.0", "-1")
    for left, right in product(numbers, repeat=2):
        yield from (f"{dyn(left)} {op} {dyn(right)}" for op in ("==", "<", ">"))
    for left, right in product(("1", "'1'", "null", "[1]", "{'a': 1}", "true", "type(1)"), repeat=2):
        yield f"{dyn(left)} == {dyn(right)}"
        yield f"{dyn(left)} < {dyn(right)}"
    for left, right in product(("1", "1u", "1.5", "'1'", "null", "b'1'", "[1]", "type(1)"), repeat=2):
        yield f"{left} == {right}"  # mixed types: most are refused
    yield from (
        "[1, 2u] == [1.0, 2]",
        "[dyn(1), dyn(2u)] == [dyn(1.0), dyn(2)]",
        "[0.0 / 0.0] == [0.0 / 0.0]",
        "{1: 'a'} == {1u: 'a'}",
        "{dyn(1): 'a'} == {dyn(1u): 'a'}",
        "[[1], [2, 3]] == [[1], [2, 3]]",
        "{'k': [1, {'z': null}]} == {'k': [1, {'z': null}]}",
        "optional.of(3) == optional.of(3)",
        "optional.none() == optional.of(3)",
    )


def arithmetic() -> Iterator[str]:
    for pool in (INTS, UINTS, DOUBLES[:5]):
        for left, right in product(pool, repeat=2):
            yield from (f"{left} {op} {right}" for op in "+-*/%")
    yield from (f"-({number})" for number in (*INTS, "12u", "2.5", "-0.0"))
    for left, right in product(TIMES[:2], SPANS):
        yield from (f"{left} + {right}", f"{right} + {left}", f"{left} - {right}")
    yield from (f"{left} - {right}" for left, right in product(TIMES, repeat=2))
    yield from (f"{left} {op} {right}" for left, right in product(SPANS, repeat=2) for op in "+-")
    yield from (f"{left} + {right}" for pool in (TEXTS, BYTES, LISTS) for left, right in product(pool, repeat=2))
    yield from ("1 + 1u", "1 + 1.0", "dyn(1) + dyn(1u)", "'a' + 1", "[1] + ['a']", "{} + {}", "null + null")
    yield from ("7 / 2", "-7 / 2", "7 % -2", "-7 % 2", "2 + 3 * 4 - 10 / 5 % 3", "-(-5)", "--5", "1 - -1")
    yield from (
        "timestamp('9999-12-31T23:59:59Z') + duration('1s')",
        "timestamp('0001-01-01T00:00:00Z') - duration('1s')",
        "duration('9223372036s') + duration('9223372036s')",
        "duration('320000000000s')",
    )


def logic() -> Iterator[str]:
    broken, value = "(1 / 0 > 0)", ("true", "false")
    for left, right in product((*value, broken), repeat=2):
        yield from (f"{left} {op} {right}" for op in ("&&", "||"))
    yield from (f"!{operand}" for operand in (*value, broken, "1", "null"))
    yield from (
        f"{test} ? {a} : {b}" for test in (*value, broken) for a, b in (("1", "2"), ("1 / 0", "2"), ("1", "1 / 0"))
    )
    yield from (
        "true ? 1 : 'a'",
        "true ? dyn(1) : dyn('a')",
        "1 ? 2 : 3",
        "true && 'x'",
        "dyn('x') && true",
        "dyn('x') || true",
    )
    yield from ("!!true", "!(true && false) || false", "true || false && false", "false ? 1 : true ? 2 : 3")


def conversions() -> Iterator[str]:
    values = (*INTS, *UINTS, *DOUBLES, *TEXTS[:2], *BYTES, *OTHERS, TIMES[0], SPANS[2], "[1]", "{}", "type(1)")
    for function, given in product(("int", "uint", "double", "string", "bytes", "bool", "type", "dyn"), values):
        yield f"{function}({given})"
        if function not in ("type", "dyn"):
            yield f"{function}(dyn({given}))"
    texts = (
        "'42'",
        "'-42'",
        "'+7'",
        "' 1'",
        "'1.5'",
        "'1e3'",
        "'NaN'",
        "'inf'",
        "'0x1f'",
        "'true'",
        "'TRUE'",
        "'t'",
        "'1'",
        "'0'",
        "'yes'",
    )
    yield from (f"{function}({text})" for function, text in product(("int", "uint", "double", "bool"), texts))
    yield from (f"int({number})" for number in ("2.9", "-2.9", "9.3e18", "-9.3e18", "9223372036854774784.0"))
    yield from (f"uint({number})" for number in ("2.9", "-0.5", "1.9e19", "-1", "'-1'"))
    yield from (f"double({number})" for number in ("9007199254740993", UMAX, "'1e400'", "'.5'", "'5.'"))
    stamps = (
        "2023-06-15T08:09:10Z",
        "2023-06-15T08:09:10.123456789+05:45",
        "2023-06-15",
        "2023-02-29T00:00:00Z",
        "2024-02-29T00:00:00Z",
        "10000-01-01T00:00:00Z",
        "0001-01-01T00:00:00Z",
        "2023-06-15T24:00:00Z",
        "2023-06-15 08:09:10Z",
        "2023-06-15t08:09:10z",
        "0000-01-01T00:00:00Z",
    )
    yield from (f"timestamp('{stamp}')" for stamp in stamps)
    yield from (f"string(timestamp('{stamp}'))" for stamp in stamps[:2])
    yield from (
        "timestamp(0)",
        "timestamp(-62135596801)",
        "timestamp(253402300800)",
        "int(timestamp('1970-01-02T00:00:00Z'))",
    )
    spans = (
        "1h",
        "1m",
        "1.25h",
        "-2m30s",
        "100ms",
        "7us",
        "7µs",
        "9ns",
        "0",
        "1",
        "1d",
        "",
        "1h-2m",
        "+3s",
        "-0.5s",
        "1h1h",
        ".5s",
    )
    yield from (f"duration('{span}')" for span in spans)
    yield from (f"string(duration('{span}'))" for span in ("1h", "1.25h", "-2m30s", "100ms", "9ns"))
    yield from (
        "duration(duration('3s'))",
        "timestamp(timestamp(5))",
        "int(duration('3s'))",
        "bytes('Öl')",
        "string(b'\\xff')",
    )
    kinds = (
        "int",
        "uint",
        "double",
        "string",
        "bytes",
        "bool",
        "list",
        "map",
        "null_type",
        "type",
        "timestamp",
        "duration",
    )
    yield from kinds
    yield from (
        f"type({value}) == {kind}"
        for value, kind in zip(("1", "1u", "1.0", "''", "b''", "true", "[1]", "{}", "null", "int"), kinds, strict=False)
    )
    yield from (
        "type(type(1))",
        "type(timestamp(0))",
        "type(duration('1s'))",
        "type(optional.of(1))",
        "type(quantity('1'))",
    )


def literals() -> Iterator[str]:
    yield from ("0x1F", "-0x1f", "0xFFu", "0XAB", "1.5e3", "1E-2", ".25", "1.", "007", "12U", "1_000", "0b11", "0x")
    yield from (MAX, MIN, "9223372036854775808", "-9223372036854775809", UMAX, "18446744073709551616u", "1e309")
    escapes = (
        r"\a\b\f\n\r\t\v",
        r"\\ \? \" \' \`",
        r"\x41\X42",
        r"\101\060",
        r"A\U0001F41F",
        r"\uD800",
        r"\U00110000",
        r"\400",
        r"\q",
        r"\x4",
    )
    for escape in escapes:
        yield from (f"'{escape}'", f'"{escape}"', f"b'{escape}'", f"r'{escape}'")
    yield from (
        "'''tri\nple'''",
        '"""a"b"""',
        "r'''\\n'''",
        "'open",
        "'a\nb'",
        "rb'\\n'",
        "br'\\n'",
        "R'\\d'",
        "B'x'",
        "bR'\\n'",
    )
    yield from (
        "[]",
        "[1, 2,]",
        "[,]",
        "[, 1]",
        "{'a': 1,}",
        "{,}",
        "{1: 'i', 2: 'j'}",
        "{true: 1, false: 0}",
        "{1u: 'u'}",
        "{1.5: 'd'}",
        "{null: 1}",
        "{[1]: 2}",
    )
    yield from (
        "{'a': 1, 'a': 2}",
        "{1: 'a', 1u: 'b'}",
        "{dyn(1): 'a', dyn(1u): 'b'}",
        "{'a': 1, 'b': 'x'}",
        "[1, 'x']",
        "[dyn(1), 'x']",
        "[[], [1]]",
    )
    yield from (
        "{'a': {'b': {'c': [1, 2]}}}.a.b.c[1]",
        "[[[[[5]]]]][0][0][0][0][0]",
        "((((((1))))))",
        "// only a comment",
        "1 // one\n + 2",
        "",
    )
    yield from (
        "true // end",
        "as",
        "break",
        "const",
        "continue",
        "else",
        "for",
        "function",
        "if",
        "import",
        "let",
        "loop",
        "package",
        "namespace",
        "return",
        "var",
        "void",
        "while",
        "in",
    )
    yield from (
        "{'if': 1}.if",
        "{'in': 1}.in",
        "{'for': 2}['for']",
        "{'x-y': 1}.`x-y`",
        "{'a.b': 1}.`a.b`",
        "unknown",
        "unknown.field",
        "unknown(1)",
        "1.size()",
        "1 2",
        "(1",
        "1)",
        "[1",
        "a b",
        "&& true",
        "1 +",
        "..a",
        ".type(1)",
    )


def collections() -> Iterator[str]:
    lists = ("[]", "[4, 9, 4]", "['a', 'b']", "[dyn(1), dyn('a'), dyn(2.0)]")
    for given in lists:
        yield from (f"size({given})", f"{given}.size()")
        yield from (
            f"{given}[{index}]" for index in ("0", "1", "-1", "3", "1u", "0.0", "dyn(1.0)", "dyn(0.5)", "dyn('0')")
        )
        yield from (f"{item} in {given}" for item in ("4", "'a'", "dyn(1u)", "dyn(2)", "null", "[4]"))
    for given in ("{}", "{'a': 1, 'b': 2}", "{1: 'x', 2: 'y'}", "{true: 'x'}", "{1u: 'x'}"):
        yield f"size({given})"
        yield from (f"{given}[{key}]" for key in ("'a'", "'z'", "1", "1u", "true", "dyn(1.0)", "dyn(1)", "dyn(null)"))
        yield from (f"{key} in {given}" for key in ("'a'", "'z'", "dyn(1)", "dyn(1u)", "dyn(1.0)", "dyn('a')"))
    yield from (
        "has({'a': 1}.a)",
        "has({'a': 1}.z)",
        "has({'a': {'b': 1}}.a.b)",
        "has({'a': {}}.a.b.c)",
        "has([1].a)",
        "has(1)",
        "has({'a': 1}['a'])",
        "has({'a': null}.a)",
    )
    yield from (f"size({value})" for value in (*TEXTS, *BYTES, "1", "null", "dyn('ab')", "dyn(3)"))
    for call in (
        "min()",
        "max()",
        "sum()",
        "isSorted()",
        "indexOf(4)",
        "lastIndexOf(4)",
        "sort()",
        "distinct()",
        "reverse()",
        "slice(0, 1)",
        "flatten()",
        "first()",
        "last()",
    ):
        yield from (
            f"{given}.{call}"
            for given in (
                "[]",
                "[4, 9, 4]",
                "[1.5, -2.0]",
                "['b', 'a']",
                "[2u, 1u]",
                "[true, false]",
                "[duration('2s'), duration('1s')]",
            )
        )
    yield from (
        "lists.range(3)",
        "[3, 1, 2].sortBy(x, -x)",
        "[[1], [2, [3]]].flatten()",
        "[[1], [2]].flatten()",
        "{'b': 1, 'a': 2}.map(k, k).sort()",
    )
    yield from (
        f"sets.{call}([1, 2], {other})"
        for call in ("contains", "equivalent", "intersects")
        for other in ("[]", "[2]", "[2, 1, 1]", "[3]", "[1.0]", "['a']")
    )


def macros() -> Iterator[str]:
    tests = ("x > 4", "x > 100", "x / 0 > 1", "10 / (x - 4) > 1", "true", "x")
    for macro, test in product(("all", "exists", "exists_one", "filter"), tests):
        yield from (f"{given}.{macro}(x, {test})" for given in ("[]", "[4]", "[4, 9, 5]"))
    yield from (f"{{'a': 1, 'b': 2}}.{macro}(k, k == 'a')" for macro in ("all", "exists", "exists_one", "filter"))
    yield from (
        "[1, 2, 3].map(x, x * 2)",
        "[1, 2, 3].map(x, x > 1, x * 10)",
        "[1, 2].map(x, 1 / (x - 1))",
        "[].map(x, x)",
        "[1].map(x, [x].map(x, x + 1))",
        "[[1, 2], [3]].map(l, l.map(x, x + l[0]))",
    )
    yield from (
        "[4].existsOne(x, true)",
        "[1, 2].map(x, y, x)",
        "[1].all(x.y, true)",
        "[1].all(1, true)",
        "[1].exists()",
        "1.all(x, true)",
        "dyn(1).all(x, true)",
        "'ab'.all(c, true)",
        "[1].all(x, 1)",
    )
    yield from (
        "[3, 4].all(i, v, i < v)",
        "[3, 4].exists(i, v, v == 4 && i == 1)",
        "[3, 3].existsOne(i, v, v == 3)",
        "[3, 4].transformList(i, v, v * 10 + i)",
        "[3, 4].transformList(i, v, i > 0, v)",
    )
    yield from (
        "{'a': 1}.transformMap(k, v, v + 1)",
        "{'a': 1, 'b': 2}.transformMap(k, v, v > 1, v)",
        "{'a': 'x'}.transformMapEntry(k, v, {v: k})",
        "{'a': 1}.all(k, v, k == 'a' && v == 1)",
    )
    yield from (
        "cel.bind(x, 3, x * x)",
        "cel.bind(x, 1, cel.bind(x, x + 1, x * 10))",
        "cel.bind(a, [1, 2], a.all(x, x in a))",
        "cel.bind(x, 1 / 0, 5)",
        "cel.bind(x, 1 / 0, x)",
        "cel.bind(1, 2, 3)",
        "cel.bind(x.y, 2, 3)",
    )
    yield from (
        "[1, 2, 3, 4].filter(x, x % 2 == 0).map(x, x + 1).exists(x, x == 5)",
        "[1, 2].all(x, [x, x + 1].exists(y, y == 2))",
        "has({'a': 1}.a) && [1].all(x, x == {'a': 1}.a)",
    )


def optionals() -> Iterator[str]:
    yield from (
        "optional.of(1)",
        "optional.none()",
        "optional.ofNonZeroValue(0)",
        "optional.ofNonZeroValue('')",
        "optional.ofNonZeroValue([])",
        "optional.ofNonZeroValue(5)",
        "optional.ofNonZeroValue({})",
        "optional.ofNonZeroValue(null)",
    )
    for given in (
        "optional.of(4)",
        "optional.none()",
        "{'a': 4}[?'a']",
        "{'a': 4}[?'z']",
        "[4][?0]",
        "[4][?7]",
        "{'a': {'b': 4}}.?a.?b",
        "{'a': {'b': 4}}.?z.?b",
        "{'a': {'b': 4}}.?a.z",
        "{'a': {'b': 4}}.?a.b",
    ):
        yield from (
            f"{given}{call}"
            for call in ("", ".hasValue()", ".value()", ".orValue(9)", ".or(optional.of(9))", ".orValue('x')")
        )
    yield from (
        "optional.of(2).optMap(x, x * 3)",
        "optional.none().optMap(x, x)",
        "optional.of(2).optFlatMap(x, optional.of(x + 1))",
        "optional.of(2).optFlatMap(x, optional.none())",
        "optional.of(2).optFlatMap(x, x)",
    )
    yield from (
        "[?optional.of(1), ?optional.none(), 3]",
        "{?'a': optional.of(1), ?'b': optional.none()}",
        "[?1]",
        "{?'a': 1}",
        "optional.of(optional.of(1))",
        "optional.of([1, 2])[?1]",
        "optional.of({'a': 1}).?a",
        "optional.of({'a': 1})[?'z'].orValue(0)",
        "has({'a': {}}.?a.b)",
        "optional.of(1) == optional.of(1.0)",
        "1.?a",
        "dyn(1).?a",
        "dyn([1]).?a",
        "dyn(null).?a",
        "dyn(quantity('1')).?a",
        "dyn(1)[?'a']",
        "dyn('ab')[?0]",
        "optional.of(dyn(1)).?a",
        "optional.of(dyn(1)).a",
        "optional.of(dyn(1))[0]",
    )
    yield from (
        "optional.unwrap([optional.of(1), optional.none()])",
        "[optional.of(1)].unwrapOpt()",
        "optional.of(1).value() + 1",
    )


def texts() -> Iterator[str]:
    subjects = ("''", "'kelp kelp'", "'ÄöÜ ß'", "'🐟a🐟'")
    for subject in subjects:
        yield from (f"{subject}.{call}" for call in (
            "size()", "lowerAscii()", "upperAscii()", "trim()", "reverse()", "charAt(0)", "charAt(1)", "charAt(9)", "charAt(10)", "charAt(-1)",
            "substring(0)", "substring(1)", "substring(0, 2)", "substring(2, 1)", "substring(-1)", "substring(99)", "substring(1, 99)",
            "indexOf('')", "indexOf('l')", "indexOf('🐟')", "indexOf('k', 1)", "indexOf('k', 99)", "indexOf('k', -1)", "lastIndexOf('')", "lastIndexOf('k')", "lastIndexOf('k', 3)", "lastIndexOf('k', -1)", "lastIndexOf('k', 99)",
            "replace('k', 'w')", "replace('', '-')", "replace('k', 'w', 1)", "replace('k', 'w', 0)", "replace('k', 'w', -1)",
            "split(' ')", "split('')", "split(' ', 0)", "split(' ', 1)", "split(' ', -1)", "split('k', 2)",
            "startsWith('k')", "startsWith('')", "endsWith('p')", "endsWith('🐟')", "contains('elp')", "contains('')",
            "matches('k.*p')", "matches('^$')", "matches('(?i)KELP')", "matches('[')", "matches('\\\\pL+')", "matches('^.{3}$')", "find('[a-z]+')", "find('z')", "findAll('[a-z]')", "findAll('k', 1)", "findAll('k', 0)", "findAll('k', -1)",
        ))  # fmt: skip
        yield from (f"strings.quote({subject})", f"{subject} + {subject}")
    yield from (
        "['a', 'b'].join()",
        "['a', 'b'].join(', ')",
        "[].join('x')",
        "[1].join()",
        "strings.quote('a\\n\"\\\\')",
        "'\\u00a0 x\\t'.trim()",
        "matches('abc', 'b')",
        "'abc'.matches('^b')",
        "'a'.matches('(?=a)')",
        "'aaa'.matches('a{2,}')",
        "'x'.matches('\\\\x78')",
        "'a\\nb'.matches('a.b')",
        "'a\\nb'.matches('(?s)a.b')",
    )
    formats = ("%d", "%s", "%f", "%.2f", "%e", "%x", "%X", "%o", "%b", "%%", "%q", "%", "%.3e", "%5d")
    values = (
        "42",
        "-42",
        "7u",
        "3.14159",
        "1.0 / 0.0",
        "'kelp'",
        "true",
        "null",
        "b'hi'",
        "[1, 2]",
        "{'a': 1}",
        "duration('90s')",
        "timestamp(0)",
        "type(1)",
    )
    yield from (f"'{form}'.format([{value}])" for form, value in product(formats, values))
    yield from (
        "'%d and %s'.format([1, 'x'])",
        "'%d'.format([])",
        "'none'.format([1])",
        "'%s'.format(['a', 'b'])",
        "'%s'.format([[1, 'x', 2.5]])",
        "'%s'.format([{1: 'a', 'b': 2}])",
        "'%d'.format(['x'])",
    )


def times() -> Iterator[str]:
    calls = (
        "getFullYear",
        "getMonth",
        "getDate",
        "getDayOfMonth",
        "getDayOfYear",
        "getDayOfWeek",
        "getHours",
        "getMinutes",
        "getSeconds",
        "getMilliseconds",
    )
    for stamp, call in product((*TIMES, "timestamp('2020-12-31T23:30:00.987654321Z')"), calls):
        yield f"{stamp}.{call}()"
    zones = (
        "UTC",
        "+02:30",
        "-11:00",
        "Asia/Kathmandu",
        "America/St_Johns",
        "Australia/Lord_Howe",
        "Nowhere/Town",
        "",
        "02:00",
    )
    yield from (
        f"{TIMES[0]}.{call}('{zone}')"
        for call, zone in product(("getHours", "getDate", "getMinutes", "getMonth"), zones)
    )
    yield from (
        f"{span}.{call}()"
        for span, call in product(
            (*SPANS, "duration('3723.004s')"), ("getHours", "getMinutes", "getSeconds", "getMilliseconds")
        )
    )
    yield from (f"{SPANS[0]}.getFullYear()", f"{SPANS[0]}.getHours('UTC')")


def kubernetes() -> Iterator[str]:
    quantities = (
        "0",
        "12",
        "1500m",
        "1.5Gi",
        "3Ki",
        "-2k",
        "1e3",
        "9E",
        "1n",
        "+5",
        "0.1",
        "5 Gi",
        "Gi",
        "1g",
        "",
        "1.5.1",
        "1Gii",
    )
    yield from (f"{call}('{amount}')" for call, amount in product(("isQuantity", "quantity"), quantities))
    some = ("quantity('2')", "quantity('1500m')", "quantity('1Gi')", "quantity('-3')", "quantity('9E')")
    for left, right in product(some, repeat=2):
        yield from (f"{left}.{call}({right})" for call in ("isGreaterThan", "isLessThan", "compareTo"))
        yield from (f"{left}.{call}({right}).compareTo(quantity('0'))" for call in ("add", "sub"))
        yield f"{left} == {right}"
    yield from (
        f"{left}.{call}"
        for left, call in product(
            some, ("asInteger()", "isInteger()", "asApproximateFloat()", "add(7).asInteger()", "sub(2).asInteger()")
        )
    )
    yield from (
        "sign(quantity('-3'))",
        "quantity('-3').sign()",
        "quantity(3)",
        "quantity('1').add('1')",
        "quantity('1') + quantity('1')",
        "quantity('1') < quantity('2')",
    )
    versions = (
        "1.2.3",
        "v1.2.3",
        "1.2",
        "1",
        "01.2.3",
        "1.2.3-rc.1",
        "1.2.3+b7",
        "1.2.3-",
        "1.2.3.4",
        "",
        "a.b.c",
        "1.2.3-rc.01",
    )
    yield from (f"isSemver('{text}')" for text in versions)
    yield from (f"isSemver('{text}', true)" for text in versions)
    yield from (f"semver('{text}').major()" for text in versions)
    yield from (f"semver('{text}', true).minor()" for text in versions)
    known = (
        "semver('1.2.3')",
        "semver('1.10.0')",
        "semver('1.2.3-rc.1')",
        "semver('1.2.3-rc.2')",
        "semver('1.2.3+b7')",
    )
    for left, right in product(known, repeat=2):
        yield from (f"{left}.{call}({right})" for call in ("isGreaterThan", "isLessThan", "compareTo"))
        yield f"{left} == {right}"
    yield from ("semver('1.2.3').patch()", "semver('1.2.3') < semver('2.0.0')", "semver(1)", "string(semver('1.2.3'))")
    addresses = (
        "10.1.2.3",
        "::1",
        "2001:db8::ff",
        "256.1.1.1",
        "::ffff:1.2.3.4",
        "fe80::1%eth0",
        "",
        "1.2.3",
        "127.0.0.1",
        "224.0.0.5",
        "0.0.0.0",
    )
    yield from (f"isIP('{text}')" for text in addresses)
    yield from (
        f"ip('{text}').{call}()"
        for text in ("10.1.2.3", "::1", "127.0.0.1", "224.0.0.5", "fe80::1", "0.0.0.0", "300.1.1.1")
        for call in (
            "family",
            "isUnspecified",
            "isLoopback",
            "isLinkLocalMulticast",
            "isLinkLocalUnicast",
            "isGlobalUnicast",
        )
    )
    yield from (
        "ip('::1') == ip('0:0:0:0:0:0:0:1')",
        "ip('10.0.0.1') == ip('10.0.0.2')",
        "string(ip('2001:DB8::0:1'))",
        "ip.isCanonical('2001:db8::1')",
        "ip.isCanonical('2001:DB8::1')",
        "ip.isCanonical('x')",
        "ip('1.1.1.1') < ip('2.2.2.2')",
        "type(ip('1.1.1.1'))",
    )
    yield from (
        f"isCIDR('{text}')"
        for text in (
            "10.0.0.0/8",
            "10.1.2.3/8",
            "::/0",
            "10.0.0.0/33",
            "10.0.0.0",
            "10.0.0.0/08",
            "::ffff:10.0.0.0/104",
        )
    )
    yield from (
        f"cidr('10.20.0.0/16').{call}({other})"
        for call in ("containsIP", "containsCIDR")
        for other in (
            "'10.20.3.4'",
            "'10.21.0.0'",
            "'10.20.8.0/24'",
            "'10.0.0.0/8'",
            "ip('10.20.0.1')",
            "cidr('10.20.0.0/16')",
            "'nonsense'",
            "'::1'",
        )
    )
    yield from (
        "string(cidr('10.9.8.7/12').masked())",
        "cidr('10.0.0.0/8').prefixLength()",
        "string(cidr('10.9.8.7/12').ip())",
        "cidr('::/0').ip().family()",
        "cidr('10.0.0.0/8') == cidr('10.0.0.0/8')",
        "string(cidr('10.9.8.7/12'))",
    )
    urls = (
        "https://reef.example:8443/a/b%20c?x=1&y=2&x=3",
        "http://[::1]:80/",
        "/only/path",
        "reef.example",
        "://",
        "https://u:p@reef.example/",
    )
    yield from (f"isURL('{text}')" for text in urls)
    yield from (
        f"url('{text}').{call}()"
        for text in urls[:3]
        for call in ("getScheme", "getHost", "getHostname", "getPort", "getEscapedPath", "getQuery")
    )
    for name in (
        "dns1123Label",
        "dns1123Subdomain",
        "dns1035Label",
        "qualifiedName",
        "dns1123LabelPrefix",
        "labelValue",
        "uri",
        "uuid",
        "byte",
        "date",
        "datetime",
    ):
        yield f"format.{name}().validate('reef-7')"
        yield f"format.{name}().validate('-Reef_')"
    yield from (
        "format.named('dns1123Label').hasValue()",
        "format.named('nothing').hasValue()",
        "!format.dns1123Label().validate('UP').hasValue()",
        "format.date().validate('2024-02-30')",
        "format.uuid().validate('123e4567-e89b-12d3-a456-426614174000')",
    )
    yield from (
        "'kelp'.includes('kelp')",
        "[1, 2].includes(2)",
        "['a'].includes('b')",
        "[1].includes('a')",
        "base64.encode(b'hi')",
        "base64.decode('aGk=')",
        "math.greatest(1, 2)",
        "math.least([3, 1])",
        "math.abs(-3)",
        "regex.replace('a', 'b', 'c')",
        "jsonpatch.escapeKey('a/b~c')",
        "authorizer",
        "object",
        "request",
    )


SECTIONS = {
    "comparisons": comparisons,
    "arithmetic": arithmetic,
    "logic": logic,
    "conversions": conversions,
    "literals": literals,
    "collections": collections,
    "macros": macros,
    "optionals": optionals,
    "texts": texts,
    "times": times,
    "kubernetes": kubernetes,
}
