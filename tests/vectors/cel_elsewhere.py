"""Conformance cases of CEL that Kubernetes' environment answers otherwise, by name, with the reason.

Listed in docs/reference/cel.md, too. Kubernetes 1.37 was asked about each (cel-go 0.29); we follow it.
"""

FORMAT = "strings library 2 formats as in English text, the suite tests version 4"
REVERSE = "string.reverse() came with strings library 3, Kubernetes has 2"
MAPPED = "Kubernetes' IP library refuses IPv4 addresses inside IPv6"
KEYS = "cel-go takes doubles as keys of map literals"
REPEATED = "cel-go lets the last of equal keys of a map literal win"
OFFSET = "strings library 2 answers -1 for an offset behind the end"
MILLISECONDS = "cel-go's getMilliseconds() of a duration counts the whole duration"

_FORMATS = (
    "scientific notation formatting clause",
    "default precision for fixed-point clause with int",
    "default precision for fixed-point clause with uint",
    "default precision for scientific notation",
    "default precision for scientific notation with int",
    "default precision for scientific notation with uint",
    "NaN support for scientific notation",
    "positive infinity support for scientific notation",
    "negative infinity support for scientific notation",
    "NaN support for decimal",
    "positive infinity support for decimal",
    "negative infinity support for decimal",
    "positive infinity support for fixed-point",
    "negative infinity support for fixed-point",
    "list support for string",
    "map support for string",
    "map support (all key types)",
    "dyntype support for scientific notation",
    "dyntype NaN/infinity support",
    "dyntype support for lists",
    "dyntype support for maps",
    "scientific notation formatting clause in a string variable",
)

ELSEWHERE = {f"string_ext/format/{name}": FORMAT for name in _FORMATS} | {
    "string_ext/reverse/empty": REVERSE,
    "string_ext/reverse/single_character": REVERSE,
    "string_ext/reverse/multiple": REVERSE,
    "string_ext/value_errors/indexof_out_of_range": OFFSET,
    "string_ext/value_errors/lastindexof_out_of_range": OFFSET,
    "network_ext/ipv4/ipv4_equals_ipv6": MAPPED,
    "network_ext/ipv4/ipv4_not_equals_ipv6": MAPPED,
    "fields/qualified_identifier_resolution/map_key_float": KEYS,
    "fields/qualified_identifier_resolution/map_value_repeat_key": REPEATED,
    "fields/qualified_identifier_resolution/map_value_repeat_key_heterogeneous": REPEATED,
    "timestamps/duration_converters/get_milliseconds": MILLISECONDS,
}
