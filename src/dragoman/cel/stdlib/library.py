"""Which functions does Kubernetes 1.37 declare for expressions? All libraries in one table."""

from __future__ import annotations

from typing import Final

from dragoman.cel.functions import Overload, table
from dragoman.cel.stdlib import conversions, operators, optionals, quantity, semver, times

FUNCTIONS: Final[dict[str, tuple[Overload, ...]]] = table(
    operators.OVERLOADS,
    conversions.OVERLOADS,
    times.OVERLOADS,
    optionals.OVERLOADS,
    quantity.OVERLOADS,
    semver.OVERLOADS,
)
