"""Can the card that a selector names have the partition profile that it names?

Puts partitions of every card of a known driver to the selectors; of cards that are not known nothing is said.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import msgspec

from dragoman.api.selectors import Selector, compile_selector
from dragoman.known_drivers import Card, Cards, KnownDrivers

_NAMED = 3
_TEXTS = re.compile(r"[\"']([^\"']+)[\"']")


class Misfit(msgspec.Struct, frozen=True):
    """A profile that none of the cards has; instead: the one of that size, "" if they differ. of_all: of all cards."""

    profile: str
    title: str
    cards: tuple[Card, ...]
    instead: str
    of_all: bool

    @property
    def message(self) -> str:
        """What is wrong."""
        if self.of_all:
            return f"no known card has the {self.title} {self.profile}"
        shown = ", ".join(card.name for card in self.cards[:_NAMED]) + (", ..." if len(self.cards) > _NAMED else "")
        return f"{shown} cannot have the {self.title} {self.profile}"

    @property
    def fix(self) -> str:
        """What to do."""
        if self.instead:
            return f"write {self.instead}"
        return f"{self.cards[0].name} has {', '.join(self.cards[0].profiles) or f'no {self.title}'}"


def misfit(expression: str, others: Sequence[str], known: KnownDrivers) -> Misfit | None:
    """The profile in the expression that no card can have which passes it and the other selectors."""
    selectors = [compile_selector(text) for text in (expression, *others)]
    compiled = [selector for selector in selectors if isinstance(selector, Selector)]
    if len(compiled) < len(selectors):
        return None
    families = (driver.cards for driver in known.drivers.values() if driver.cards is not None)
    return next((found for cards in families if (found := _of(cards, expression, compiled))), None)


def _of(cards: Cards, expression: str, selectors: Sequence[Selector]) -> Misfit | None:
    pattern = re.compile(cards.profile)
    wrong: Misfit | None = None
    for profile in dict.fromkeys(filter(pattern.fullmatch, _TEXTS.findall(expression))):
        models = cards.models()
        fitting = tuple(card for card in models if all(s.match(card.partition(profile)) is True for s in selectors))
        if any(profile in card.profiles for card in fitting):
            return None
        if fitting and wrong is None:
            instead = _instead(profile, pattern, fitting)
            wrong = Misfit(profile, cards.title, fitting, instead, len(fitting) == len(models))
    return wrong


def _instead(profile: str, pattern: re.Pattern[str], cards: Sequence[Card]) -> str:
    """The smallest profile of the same size, if all of the cards agree."""

    def size(name: str) -> tuple[str, ...]:
        parts = pattern.fullmatch(name)
        return parts.groups() if parts else ()

    same = {next((other for other in card.profiles if size(other) == size(profile)), "") for card in cards}
    return same.pop() if len(same) == 1 else ""
