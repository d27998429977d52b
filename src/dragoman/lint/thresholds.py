"""Does a threshold miss devices by a hair? An "80 GB" card has 79.6 GiB, a "10 GB" partition 9.5.

Lowers each quantity of a selector a little and looks which devices match then. Never says that a threshold is wrong:
perhaps the devices are to be left out.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

import msgspec

from dragoman.api.selectors import DeviceView, Selector, compile_selector
from dragoman.lint.published import Published
from dragoman.values.quantity import NANO, Quantity

_QUANTITY = re.compile(r"quantity\(\s*([\"'])([^\"']+)\1\s*\)")
_PERCENT = 92
"""GB cards are sold by have at least so much of that number in GiB (24 GB: 22.5 GiB)."""
_FROM = 2**30 * NANO
"""Smaller quantities count something else than memory."""
_GI = 2**30 * NANO


class Missed(msgspec.Struct, frozen=True):
    """Devices that lack little: the threshold as written, the capacity and how much the largest of them has."""

    threshold: str
    capacity: str
    has: Quantity
    views: tuple[DeviceView, ...]

    @property
    def instead(self) -> str:
        """A threshold that takes them: 75Gi for 80Gi, 9Gi for 10Gi."""
        least = min(_amounts(self.views, self.capacity), default=self.has).nanos
        whole = min(Quantity.parse(self.threshold).nanos * 94 // 100, least) // _GI
        return f"{whole}Gi"


def missed(selector: Selector, views: Iterable[DeviceView], published: Published) -> Iterator[Missed]:
    """For each quantity of the selector the devices that it leaves out by little."""
    considered = list(views)
    capacities = sorted((domain, name) for domain, name in selector.reads.capacity or () if name is not None)
    for literal in dict.fromkeys(found[0] for found in _QUANTITY.finditer(selector.expression)):
        written = _QUANTITY.fullmatch(literal)
        assert written is not None
        threshold = _parsed(written[2])
        if threshold is None or threshold.nanos < _FROM:
            continue
        low = Quantity(threshold.nanos * _PERCENT // 100)
        lowered = compile_selector(selector.expression.replace(literal, f"quantity('{low.nanos // NANO}')"))
        if not isinstance(lowered, Selector):
            continue
        matching = {id(view) for view in published.run(selector, considered).matched}
        more = [view for view in published.run(lowered, considered).matched if id(view) not in matching]
        for domain, name in capacities:
            short = tuple(v for v in more if _is_between(v.capacity[domain].get(name), low, threshold))
            if short:
                full = f"{domain}/{name}"
                yield Missed(written[2], full, max(_amounts(short, full)), short)


def _parsed(text: str) -> Quantity | None:
    try:
        return Quantity.parse(text)
    except ValueError:
        return None


def _is_between(amount: object, low: Quantity, high: Quantity) -> bool:
    return isinstance(amount, Quantity) and low <= amount < high


def _amounts(views: Iterable[DeviceView], capacity: str) -> list[Quantity]:
    domain, _, name = capacity.rpartition("/")
    found = (view.capacity[domain].get(name) for view in views)
    return [amount for amount in found if isinstance(amount, Quantity)]


def shown(amount: Quantity) -> str:
    """`79.64Gi`: memory as people read it, rounded down."""
    hundredths = amount.nanos * 100 // _GI
    whole, rest = divmod(hundredths, 100)
    return f"{whole}Gi" if not rest else f"{whole}.{rest:02d}".rstrip("0") + "Gi"
