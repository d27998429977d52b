"""Which functions and type names does Kubernetes 1.37 declare for expressions? All libraries in one table."""

from __future__ import annotations

from typing import Final

from dragoman.cel.environment import TYPE_NAMES as LANGUAGE_TYPE_NAMES
from dragoman.cel.functions import Overload, table
from dragoman.cel.stdlib import (
    conversions,
    formats,
    lists,
    net,
    operators,
    optionals,
    quantity,
    regex,
    semver,
    strings,
    times,
    url,
)
from dragoman.cel.types import Type

FUNCTIONS: Final[dict[str, tuple[Overload, ...]]] = table(
    operators.OVERLOADS,
    conversions.OVERLOADS,
    times.OVERLOADS,
    optionals.OVERLOADS,
    strings.OVERLOADS,
    lists.OVERLOADS,
    regex.OVERLOADS,
    url.OVERLOADS,
    net.OVERLOADS,
    formats.OVERLOADS,
    quantity.OVERLOADS,
    semver.OVERLOADS,
)

TYPE_NAMES: Final[dict[str, Type]] = LANGUAGE_TYPE_NAMES | {
    net.IP_TYPE.name: net.IP_TYPE,
    net.CIDR_TYPE.name: net.CIDR_TYPE,
}
"""Names that denote types."""
