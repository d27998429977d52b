"""Can the card that a selector names have the MIG profile that it names?

Puts instances of every known card to the selectors; of cards that are not known nothing is said.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import msgspec

from dragoman.api.selectors import Selector, compile_selector
from dragoman.lint.models import MODELS, instance

_LITERAL = re.compile(r"[\"'](\d+g\.\d+gb(?:[+-][a-z.]+)?)[\"']")
_PARTS = re.compile(r"(\d+g)\.\d+gb(.*)")
_NAMED = 3


class Misfit(msgspec.Struct, frozen=True):
    """A profile that none of the cards has; instead is the one of that many compute slices, "" if they differ."""

    profile: str
    cards: tuple[str, ...]
    instead: str

    @property
    def message(self) -> str:
        """What is wrong."""
        if len(self.cards) == len(MODELS):
            return f"no known card has the MIG profile {self.profile}"
        shown = ", ".join(self.cards[:_NAMED]) + (", ..." if len(self.cards) > _NAMED else "")
        return f"{shown} cannot have the MIG profile {self.profile}"

    @property
    def fix(self) -> str:
        """What to do."""
        if self.instead:
            return f"write {self.instead}"
        profiles = MODELS[self.cards[0]].profiles()
        return f"{self.cards[0]} has {', '.join(profiles) or 'no MIG'}"


def misfit(expression: str, others: Sequence[str]) -> Misfit | None:
    """The profile in the expression that no card can have which passes it and the other selectors."""
    selectors = [compile_selector(text) for text in (expression, *others)]
    compiled = [selector for selector in selectors if isinstance(selector, Selector)]
    if len(compiled) < len(selectors):
        return None
    wrong: Misfit | None = None
    for profile in dict.fromkeys(_LITERAL.findall(expression)):
        cards = tuple(name for name in MODELS if all(s.match(instance(name, profile)) is True for s in compiled))
        if any(profile in MODELS[name].profiles() for name in cards):
            return None
        if cards and wrong is None:
            wrong = Misfit(profile, cards, _instead(profile, cards))
    return wrong


def _instead(profile: str, cards: Sequence[str]) -> str:
    """The smallest profile with the same compute slices and suffix, if all of the cards agree."""
    parts = _PARTS.fullmatch(profile)
    assert parts is not None
    same = {
        next((p for p in MODELS[card].profiles() if (m := _PARTS.fullmatch(p)) and m.groups() == parts.groups()), "")
        for card in cards
    }
    return same.pop() if len(same) == 1 else ""
