"""What can be bought, and at which price? The user's price file: node shapes, pools with limits, spot.

    currency: EUR
    pools:
    - name: training
      limits: {nodes: 10, cpu: "2000"}
    shapes:
    - profile: dgx-h100            # a machine profile (`dragoman profiles`), or likeNode: a node of the cluster
      pricePerHour: 98.32
      pool: training

Reads strictly: an unknown field or a wrong type is Invalid with file, line and field. Prices are exact decimals.
"""

from __future__ import annotations

import re
from decimal import Decimal, InvalidOperation

import msgspec

from dragoman.errors import Invalid
from dragoman.profiles.load import Source, documents
from dragoman.values.quantity import Quantity

MICRO = 1_000_000
"""Prices are counted in millionths."""
_TAINT = re.compile(r"[^=:\s]+(=[^=:\s]*)?:(NoSchedule|PreferNoSchedule|NoExecute)")


class _Part(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """Base: an unknown field is an error that names it."""


class PoolLimits(_Part, frozen=True):
    """Limits of a node pool: its name, and resource to amount; `nodes` counts nodes, `devices` their devices."""

    name: str
    limits: dict[str, str | int] = {}


class PricedShape(_Part, frozen=True):
    """A node that can be bought: profile or like_node. most: nodes of it, None for any number.

    labels and taints (`key=value:Effect`) come on top of the machine's, as a NodePool sets them.
    """

    price_per_hour: str | int | float
    profile: str = ""
    like_node: str = ""
    name: str = ""
    pool: str = ""
    most: int | None = None
    spot: bool = False
    labels: dict[str, str] = {}
    taints: tuple[str, ...] = ()

    @property
    def title(self) -> str:
        """Its name; else that of what it is."""
        return self.name or (self.profile or self.like_node) + ("-spot" if self.spot else "")

    @property
    def price(self) -> int:
        """Millionths of the currency for an hour."""
        return int((Decimal(str(self.price_per_hour)) * MICRO).to_integral_value())


class PriceList(_Part, frozen=True):
    """All of a price file."""

    shapes: tuple[PricedShape, ...]
    currency: str = ""
    pools: tuple[PoolLimits, ...] = ()


def price_list(file: str, text: str) -> PriceList:
    """The price list of a YAML text. Raises Invalid with file, line and field."""
    found = documents(file, text)
    if len(found) != 1 or not isinstance(found[0].value, dict):
        raise Invalid(file, "must be one document with `shapes`, each with a profile and pricePerHour")
    source = found[0]
    made = source.typed(PriceList)
    if not made.shapes:
        raise source.wrong("shapes", "must name at least one node shape")
    pools = {pool.name for pool in made.pools}
    names: set[str] = set()
    for index, shape in enumerate(made.shapes):
        _check_shape(source, f"shapes[{index}]", shape, pools)
        if shape.title in names:
            raise source.wrong(f"shapes[{index}]", f"shape {shape.title} exists already; give each a name of its own")
        names.add(shape.title)
    for index, pool in enumerate(made.pools):
        for resource, amount in pool.limits.items():
            _amount(source, f"pools[{index}].limits.{resource}", amount)
    return made


def _check_shape(source: Source, where: str, shape: PricedShape, pools: set[str]) -> None:
    if bool(shape.profile) == bool(shape.like_node):
        raise source.wrong(where, "must have either profile or likeNode")
    try:
        price = Decimal(str(shape.price_per_hour))
    except InvalidOperation:
        raise source.wrong(f"{where}.pricePerHour", f"is no number: {shape.price_per_hour!r}") from None
    if not price.is_finite() or price < 0 or price > 10**9:
        raise source.wrong(f"{where}.pricePerHour", f"must be between 0 and 10^9, got {shape.price_per_hour}")
    if shape.pool and shape.pool not in pools:
        listed = ", ".join(sorted(pools)) or "none"
        raise source.wrong(f"{where}.pool", f"no pool {shape.pool!r}; there are: {listed}")
    if shape.most is not None and shape.most < 0:
        raise source.wrong(f"{where}.most", f"must be 0 or more, got {shape.most}")
    for index, taint in enumerate(shape.taints):
        if not _TAINT.fullmatch(taint):
            raise source.wrong(f"{where}.taints[{index}]", f"must be KEY[=VALUE]:EFFECT, got {taint!r}")


def _amount(source: Source, where: str, amount: str | int) -> None:
    try:
        Quantity.parse(str(amount))
    except ValueError as error:
        raise source.wrong(where, f"is no quantity: {error}") from None


def money(micro: int, currency: str) -> str:
    """`98.32 EUR`."""
    text = f"{Decimal(micro) / MICRO:.2f}"
    return f"{text} {currency}".strip()
